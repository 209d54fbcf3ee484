"""`nvrtc FILE`: compiles kernels with NVRTC, without a GPU, and prints their resources."""

from __future__ import annotations

from argparse import ArgumentParser
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from ..backends import registry
from ..backends.cuda import nvrtc
from ..backends.cuda.text import raw
from ..backends.cuda.text.source import unit
from ..backends.kernel import KernelEntry, RawSource
from ..backends.signature import ArraySpec
from ..core.dtype import ALL
from ..core.errors import CompileError, MinimlError
from .named import imported, near, whole

_COLUMNS = "kernel", "registers", "shared", "stack", "spilled"


def add(command: ArgumentParser) -> None:
    command.add_argument(
        "file",
        help="CUDA C as raw_kernel takes it, or path/to/file.py, whose raw kernels are compiled "
        "in each of their signatures",
    )
    command.add_argument(
        "--arch", type=partial(whole, "architecture", 50), nargs="+", default=[90],
        help="of GPUs: 75 for sm_75 and so on; 90 by default",
    )  # fmt: skip
    command.add_argument(
        "-D", dest="defines", action="append", default=[], metavar="NAME=VALUE",
        help="a macro of a text, or, where the value is a dtype of miniml, a type: T=float16",
    )  # fmt: skip
    command.add_argument(
        "--option", dest="options", action="append", default=[],
        help="one more option of NVRTC: --option=--use_fast_math",
    )  # fmt: skip
    command.set_defaults(run=lambda o: run(o.file, o.arch, o.defines, o.options))


def run(file: str, architectures: Sequence[int], defines: Sequence[str], more: list[str]) -> int:
    """Print the resources of the kernels on each architecture, or the compiler's log; returns 1
    if a source does not compile, else 0."""
    compiler, code = nvrtc.compiler(), 0
    found = list(_registered(file) if file.endswith(".py") else _text(file, defines))
    for title, text, own in found:
        options = *nvrtc.folders_of_cccl(), *own, *more
        for architecture in architectures:
            print(f"{title}, sm_{architecture}, NVRTC {compiler.version}")
            try:
                print(_report(compiler.compile(text, architecture, *options)))
            except CompileError as error:
                print(error)
                code = 1
    return code


def _text(file: str, defines: Sequence[str]) -> Iterator[tuple[str, str, tuple[str, ...]]]:
    """The unit of a file of CUDA C; errors have the line numbers of the file."""
    path = Path(file)
    if not path.is_file():
        there = [str(p) for p in path.parent.glob("*.cu")]
        raise MinimlError(f"there is no file {file!r}; {near(file, there)}")
    names = dict(_defined(d) for d in defines)
    yield file, unit(f'#line 1 "{path.name}"\n{path.read_text("utf-8")}', **names), ()


def _defined(given: str) -> tuple[str, Any]:
    """A macro and its value, a dtype if it is the name of one."""
    name, _, value = given.partition("=")
    if not name.isidentifier():
        raise MinimlError(f"-D {given!r} defines nothing; give NAME=VALUE, as T=float32 or TILE=16")
    return name, {d.name: d for d in ALL}.get(value, value or "1")


def _registered(file: str) -> Iterator[tuple[str, str, tuple[str, ...]]]:
    """The units of the raw kernels that a Python file registers."""
    module = imported(file).__name__
    raws = [
        (entry, entry.body)
        for (_, device), entries in registry.table.items()
        for entry in entries
        if device == "cuda" and entry.module == module and isinstance(entry.body, RawSource)
    ]
    if not raws:
        raise MinimlError(
            f"{file} registers no raw_kernel; give the text of a Kernel class as a file of CUDA C"
        )
    for entry, body in raws:
        yield f"{entry.name} {entry.signature}", raw.text(body, _typed(entry)), body.options


def _typed(entry: KernelEntry) -> Any:
    """A node with the dtypes of an entry, on which alone the source depends."""
    taken, given = (
        tuple(ArraySpec((), d) for d in dtypes if d is not None)
        for dtypes in (entry.signature.inputs, entry.signature.outputs)
    )
    return SimpleNamespace(inputs=taken, outputs=given)


def _report(compiled: nvrtc.Compiled) -> str:
    """A table of kernels, in bytes except for registers; then the warnings."""
    rows = [_COLUMNS] + [
        (k.kernel, *map(str, (k.registers, k.shared, k.stack, k.stores + k.loads)))
        for k in compiled.kernels
    ]
    widths = [max(len(row[i]) for row in rows) for i in range(len(_COLUMNS))]
    lines = [
        "  " + "  ".join([row[0].ljust(widths[0]), *map(str.rjust, row[1:], widths[1:])])
        for row in rows
    ]
    return "\n".join([*lines, *(f"  {w}" for w in compiled.warnings)])
