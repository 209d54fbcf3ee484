"""Imports of miniml in tests: public names by their public paths, internals where they must.

`python -m tools.public_names` (part of `make lint`) lists imports in `tests/` that

- take a public name by the path of the module that happens to define it (`miniml.core.primitive`
  for `Primitive`): tests then hold when code moves, as users' programs do. `--fix` rewrites them;
- take an internal one in a folder that has no row for it in INTERNAL, which says why some must.

Public is what `__all__` of a module in PUBLIC has.
"""

from __future__ import annotations

import ast
import importlib
import sys
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import NamedTuple

from miniml.errors import MinimlError

ROOT = Path(__file__).parents[1]
PUBLIC = (
    "miniml", "miniml.errors", "miniml.ops", "miniml.nn", "miniml.optim", "miniml.data",
    "miniml.train", "miniml.grad", "miniml.testing", "miniml.onnx", "miniml.interop", "miniml.viz",
    "miniml.export", "miniml.ops.rules", "miniml.ops.validator",
)  # fmt: skip


class Internal(NamedTuple):
    """Internals that tests in these folders (or files) may import, and why."""

    modules: str
    tests: str
    reason: str


# tests/unit/X may import what is below miniml.X without a row: it tests the parts of that floor.
INTERNAL = (
    Internal(
        "miniml.core",
        "device faults frame opinfo unit/cc unit/grad unit/graph unit/ops unit/runtime unit/train "
        "unit/data unit/export unit/interop unit/onnx unit/testing unit/test_checkpoint.py "
        "unit/test_completeness.py unit/test_families.py unit/test_mistakes.py "
        "unit/test_settings_page.py",
        "settings in force, kinds of dtypes, the table of primitives: no user asks for them",
    ),
    Internal(
        "miniml.interop.operator miniml.interop.pytorch miniml.interop.dlpack",
        "device/test_lending.py",
        "memory of a GPU is lent before torch, which has no GPU here, calls an operator",
    ),
    Internal("miniml.core.hints miniml.compat", "unit/test_hints.py", "the tables of spellings"),
    Internal(
        "miniml.backends",
        "device frame kinds unit/cc unit/core unit/runtime unit/ops",
        "kernels are called, counted and compiled by themselves, and their tables are read",
    ),
    Internal(
        "miniml.backends.registry miniml.backends.compiled",
        "faults unit/onnx unit/testing unit/test_cli.py",
        "what a test registers is taken away again; the cache on disk is emptied",
    ),
    Internal(
        "miniml.runtime",
        "device unit/cc unit/core unit/data unit/nn",
        "programs are looked into: steps, kernels, memory, lowering",
    ),
    Internal(
        "miniml.graph",
        "unit/cc unit/core unit/onnx unit/runtime unit/viz unit/test_viz.py",
        "graphs are built, verified and passed through single passes",
    ),
    Internal(
        "miniml.grad.reverse",
        "unit/core unit/runtime",
        "what a pull-back holds on to, and when it is planned",
    ),
    Internal(
        "miniml.ops",
        "unit/cc unit/backends unit/grad",
        "numbers that kernels share with definitions",
    ),
    Internal("miniml.ops.attention", "device", "its module is replaced to see which path is taken"),
    Internal(
        "miniml.ops.checks",
        "faults kinds unit/runtime",
        "primitives and compositions of users in the style of the library's",
    ),
    Internal(
        "miniml.testing",
        "device faults frame kinds unit/cc unit/core unit/export unit/grad unit/onnx unit/ops "
        "unit/test_ops.py",
        "the calls that opcheck draws and how far numbers may lie apart serve other tests, too",
    ),
    Internal("miniml.onnx.operators", "unit/core", "the table of operators is compared"),
    Internal(
        "miniml.distributed",
        "device/test_nccl.py",
        "threads take the place of processes under MPI, a double that of NCCL",
    ),
    Internal(
        "miniml.cli",
        "device unit/core unit/distributed unit/export unit/onnx unit/test_cli.py "
        "unit/test_install.py unit/test_run.py unit/test_show.py",
        "commands are run in this process",
    ),
    Internal("miniml.viz", "unit/test_viz.py unit/test_draw.py", "pages are measured"),
)
# Names with an underscore.
PRIVATE: dict[str, str] = {
    "miniml.backends.kernel._made": "how many kernels live",
    "miniml.viz.summary._short": "numbers as a table has them",
    "miniml.testing.opchecks.run._findings": "findings without the time of a run",
}


class Import(NamedTuple):
    """`from module import name`, at a line."""

    path: Path
    line: int
    module: str
    name: str


def imports(path: Path) -> Iterator[Import]:
    """The names that a file imports from the package; `import miniml.x` counts as one, too."""
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.level == 0 and _own(node.module or ""):
            for alias in node.names:
                yield Import(path, node.lineno, node.module or "", alias.name)
        elif isinstance(node, ast.Import):
            for alias in node.names:
                if _own(alias.name) and "." in alias.name:
                    yield Import(path, node.lineno, *alias.name.rsplit(".", 1))


def _own(module: str) -> bool:
    return module.partition(".")[0] == "miniml"


@cache
def exported(module: str) -> dict[str, int]:
    """The public names of a module, with the identity of what they stand for; 0 where that needs
    an absent package."""
    found = importlib.import_module(module)
    if "__dir__" in vars(found):
        names = [name for name in dir(found) if not name.startswith("_")]
    else:
        names = [n for n, v in vars(found).items() if n[0] != "_" and _defined(v, found)]
    return {name: _identity(found, name) for name in names}


def _defined(value: object, module: ModuleType) -> bool:
    """True for what a module without a list of names defines; of errors, those that are raised."""
    if module.__name__ == "miniml.core.errors":
        return isinstance(value, type) and issubclass(value, MinimlError | Warning)
    return getattr(value, "__module__", None) == module.__name__


def _identity(module: ModuleType, name: str) -> int:
    try:
        return id(getattr(module, name))
    except MinimlError:
        return 0


@cache
def public_path(module: str, name: str) -> str | None:
    """The first public module that has the same object by this name; None for an internal one, and
    where a package that it needs is absent."""
    if module in PUBLIC and name in exported(module):
        return module
    try:
        home = importlib.import_module(module)
        if not hasattr(home, name):
            importlib.import_module(f"{module}.{name}")  # a submodule
    except MinimlError:
        return None
    value = _identity(home, name)
    return next((m for m in PUBLIC if exported(m).get(name) == value), None)


def allowed(found: Import) -> bool:
    """True for internals of the floor that the folder tests, and those with a row."""
    full = f"{found.module}.{found.name}"
    if any(part.startswith("_") for part in full.split(".")):
        return full in PRIVATE
    where = found.path.relative_to(ROOT / "tests").as_posix()
    floor = full.split(".")[1]
    return _below(where, f"unit/{floor}", "/") or any(
        _below(full, module, ".") and _below(where, folder, "/")
        for row in INTERNAL
        for module in row.modules.split()
        for folder in row.tests.split()
    )


def _below(name: str, prefix: str, separator: str) -> bool:
    return name == prefix or name.startswith(prefix + separator)


def problems(paths: Iterable[Path]) -> Iterator[str]:
    """One line for each import that should be another."""
    for found in (i for path in paths for i in imports(path)):
        path = public_path(found.module, found.name)
        at = f"{found.path.relative_to(ROOT)}:{found.line}: {found.module}.{found.name}"
        if path is None and not allowed(found):
            yield f"{at} is internal; test what is public, or say in tools/public_names.py why not"
        elif path not in (None, found.module):
            yield f"{at} is public: from {path} import {found.name} (--fix writes it)"


def rewritten(text: str) -> str:
    """The text of a module whose imports take public names by their public paths."""
    lines = text.splitlines(keepends=True)
    nodes = [n for n in ast.walk(ast.parse(text)) if isinstance(n, ast.ImportFrom)]
    for node in sorted(nodes, key=lambda n: n.lineno, reverse=True):
        module = node.module or ""
        if node.level or not _own(module):
            continue
        homes: dict[str, list[str]] = {}
        for alias in node.names:
            name = alias.name + (f" as {alias.asname}" if alias.asname else "")
            homes.setdefault(public_path(module, alias.name) or module, []).append(name)
        if set(homes) != {module}:
            pad = " " * node.col_offset
            new = [f"{pad}from {home} import {', '.join(names)}\n" for home, names in homes.items()]
            lines[node.lineno - 1 : node.end_lineno] = new
    return "".join(lines)


def main() -> None:
    """List the problems; with --fix, rewrite what can be (`make format` then sorts the imports)."""
    paths = sorted((ROOT / "tests").rglob("*.py"))
    if sys.argv[1:] == ["--fix"]:
        for path in paths:
            text = path.read_text("utf-8")
            new = rewritten(text)
            if new != text:
                path.write_text(new, "utf-8")
    found = list(problems(paths))
    if found:
        sys.exit("\n".join(found))


if __name__ == "__main__":
    main()
