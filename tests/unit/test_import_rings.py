"""No ring of imports in the package, lazy ones counted: those inside functions, and import_module.

Names that only annotations use are counted too, but for Tensor: every operation returns one, and
the methods of Tensor are operations. What runs must have no ring at all.
"""

import ast
from collections.abc import Iterator
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import NamedTuple

import pytest

import miniml

ROOT = Path(miniml.__file__).parent
# import_module of a name that is made when the program runs: lazy subpackages, a user's module.
BY_ANY_NAME = {
    "miniml.interop",
    "miniml.interop.foreign",
    "miniml",
    "miniml.cli",
    "miniml.core",
    "miniml.core.hints",
    "miniml.testing.pytest_plugin",
}


class Import(NamedTuple):
    name: str  # absolute; "" where it is not known before the program runs
    annotation: bool  # under TYPE_CHECKING: it does not run


def modules(root: Path) -> dict[str, Path]:
    found = {}
    for path in root.rglob("*.py"):
        parts = [root.name, *path.relative_to(root).with_suffix("").parts]
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


@cache
def imports(name: str, path: Path) -> tuple[Import, ...]:
    package = name if path.name == "__init__.py" else name.rpartition(".")[0]
    nodes = [*ast.walk(ast.parse(path.read_text()))]
    checking = {
        inner
        for node in nodes
        if isinstance(node, ast.If) and word(node.test) == "TYPE_CHECKING"
        for statement in node.body
        for inner in ast.walk(statement)
    }
    return tuple(
        Import(imported, node in checking) for node in nodes for imported in names(node, package)
    )


def word(node: ast.expr) -> str:
    """The name of a variable or of an attribute."""
    return getattr(node, "id", getattr(node, "attr", ""))


def names(node: ast.AST, package: str) -> Iterator[str]:
    """What one statement or call imports; for `from a import b` both a and a.b."""
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names)
    elif isinstance(node, ast.ImportFrom):
        above = package.split(".")[: package.count(".") + 2 - node.level] if node.level else []
        start = ".".join([*above, *filter(None, [node.module])])
        yield from (f"{start}.{alias.name}" for alias in node.names)
    elif isinstance(node, ast.Call) and word(node.func) == "import_module":
        first = node.args[0]
        given = first.value if isinstance(first, ast.Constant) else ""
        yield f"{package}{given}" if given.startswith(".") else given


def arrows(root: Path, annotations: bool) -> dict[str, set[str]]:
    """From every module to those that it imports."""
    known = modules(root)
    found: dict[str, set[str]] = {name: set() for name in known}
    for name, path in known.items():
        for imported, annotation in imports(name, path):
            if annotation and (not annotations or imported == f"{root.name}.core.tensor.Tensor"):
                continue
            target = imported if imported in known else imported.rpartition(".")[0]
            if target in known and target != name:
                found[name].add(target)
    return found


def ring(graph: dict[str, set[str]]) -> list[str]:
    """The modules of one ring, the first again at the end; [] where there is none."""
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        return list(error.args[1])
    return []


@pytest.mark.parametrize("annotations", [False, True], ids=["what runs", "annotations too"])
def test_no_ring_of_imports(annotations):
    assert ring(arrows(ROOT, annotations)) == []


def test_only_these_import_modules_of_any_name():
    found = {n for n, path in modules(ROOT).items() if any(not i.name for i in imports(n, path))}
    assert found == BY_ANY_NAME


MADE_UP = {
    "at the top": ("from .. import b", "", False),
    "of a name": ("from ..b import thing", "", False),
    "inside a function": ("def f():\n    from ..b import thing", "", False),
    "by import_module": ("", "import importlib\nimportlib.import_module('.sub.a', 'made')", False),
    "by its whole name": ("import made.b", "", False),
    "of an annotation": ("if TYPE_CHECKING:\n    from ..b import Thing", "", True),
}


@pytest.mark.parametrize("how", MADE_UP)
def test_a_ring_of_three_is_found(how, tmp_path):
    """a -> b -> c -> a, of which one arrow is written in another way each time."""
    first, third, annotation = MADE_UP[how]
    root = tmp_path / "made"
    (root / "sub").mkdir(parents=True)
    files = {
        "__init__": "", "sub/__init__": "", "sub/a": first or "from ..b import thing",
        "b": "from .c import thing", "c": third or "from .sub.a import thing",
    }  # fmt: skip
    for name, text in files.items():
        (root / f"{name}.py").write_text(text)
    imports.cache_clear()
    assert {*ring(arrows(root, True))} == {"made.sub.a", "made.b", "made.c"}
    assert bool(ring(arrows(root, False))) != annotation
    (root / "c.py").write_text("")
    imports.cache_clear()
    assert ring(arrows(root, True)) == []
