"""Programs of notebooks as C: `OMP_NUM_THREADS=1 python -m tools.notebooks_in_c [NUMBER...]`.

A notebook is run as a script. Each program that it compiles - networks, functions, training steps -
is exported where it is first called, compiled by gcc without a warning, and run once on the same
arrays: outputs, and the state that a step leaves, are compared with Python's. Prints a line for
each; one that is refused is a line, too, with the sentence of the error. Returns 1 where an output
is more than BOUND of the largest number away, or where something fails but is not refused. Of a
state the bound is wider: Adam divides gradients that are rounding errors by their size, as those of
a bias before a batch normalization.
"""

from __future__ import annotations

import argparse
import ctypes
import os
import re
import runpy
import subprocess
import sys
import traceback
from collections.abc import Iterator, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from miniml.core.tensor import Array, Tensor
from miniml.errors import ExportError
from miniml.export.exporter import Exported, exported
from miniml.runtime.jit import Compiled
from tools.onnx_in_c import FENCE, FLAGS, Block

FOLDER = Path(__file__).resolve().parent.parent / "notebooks"
CHECKERS = FOLDER.parent / "miniml" / "testing"
BOUND, OF_STATE = 1e-4, 1e-2
LEAST = 1e-4  # a state of smaller numbers is compared with this
_OUTS = re.compile(r"^(float|double|void) net_(?:run|step)\((.*)\);", re.MULTILINE)


class InC:
    """A program as a library of C, with its state as it was when this was made."""

    def __init__(self, compiled: Compiled, arrays: Sequence[Array], folder: Path):
        self.arrays = [np.asarray(a, order="C") for a in arrays]
        self.made: Exported = exported(compiled.traced, folder / "net.c", self.arrays)
        self.step = bool(compiled.program.schedule.writes)
        text = (folder / "net.c").read_text()
        if self.step:
            text += "\nlong net_size(void);\nlong net_size(void) { return sizeof(net_state); }\n"
        command = ["gcc", *FLAGS, "-fPIC", "-shared", "-I", str(folder), "-x", "c", "-"]
        subprocess.run(
            [*command, "-o", str(folder / "net.so"), "-lm"], input=text, text=True, check=True
        )
        self.library: Any = ctypes.CDLL(str(folder / "net.so"))
        self.header = (folder / "net.h").read_text()
        self.blocks = [Block(self._size("ARENA"))]
        if self.step:
            self.blocks.insert(0, Block(self.library.net_size()))
            self.library.net_init(_pointer(self.blocks[0].bytes))

    def _size(self, what: str) -> int:
        found = re.search(rf"^#define NET_{what}_BYTES (\d+)", self.header, re.MULTILINE)
        return int(found[1]) if found else 64

    def outputs(self, like: Sequence[Array]) -> list[Array]:
        """The outputs of a call; like: those of Python."""
        prototype = _OUTS.search(self.header)
        assert prototype is not None, "no function in the header"
        returns = prototype[1] != "void"
        outs = [Block(a.nbytes) for a in like[returns:]]
        call = self.library.net_step if self.step else self.library.net_run
        call.restype = {"float": ctypes.c_float, "double": ctypes.c_double, "void": None}[
            prototype[1]
        ]
        given = [*(b.bytes for b in self.blocks), *self.arrays, *(b.bytes for b in outs)]
        value = call(*map(_pointer, given))
        if any(not np.array_equal(b.fence, FENCE) for b in (*self.blocks, *outs)):
            raise ValueError("it writes behind its memory")
        made = [b.like(a) for b, a in zip(outs, like[returns:], strict=True)]
        return [np.asarray(value, like[0].dtype), *made] if returns else made

    def state(self) -> Iterator[tuple[Array, Array]]:
        """The arrays of the state, each with Python's."""
        if not self.step:
            return
        file = np.zeros(self._size("FILE"), np.uint8)
        self.library.net_save(_pointer(self.blocks[0].bytes), _pointer(file))
        at = self._size("FILE") - sum(p.asnumpy().nbytes for p, _ in self.made.members)
        for parameter, _ in self.made.members:  # in their order, behind the file's header
            value = parameter.asnumpy()
            yield file[at : at + value.nbytes].view(value.dtype).reshape(value.shape), value
            at += value.nbytes


def _pointer(array: Array) -> ctypes.c_void_p:
    return ctypes.c_void_p(array.ctypes.data)


class Trial:
    """Exports each program at its first call, in the place of `Compiled.run`."""

    def __init__(self) -> None:
        self.seen: dict[int, Compiled] = {}  # which keeps them alive, and their ids apart
        self.failed = 0
        self.plain = Compiled.run

    def run(self, compiled: Compiled, arrays: Sequence[Array]) -> Any:
        """The call, as Python makes it."""
        if id(compiled) in self.seen or compiled.device != "cpu" or _by_a_checker():
            return self.plain(compiled, arrays)
        self.seen[id(compiled)] = compiled
        with TemporaryDirectory() as folder:
            try:
                in_c = InC(compiled, arrays, Path(folder))
            except ExportError as error:
                self._say(compiled, f"refused: {str(error).splitlines()[0]}")
                return self.plain(compiled, arrays)
            made = compiled.program.run(arrays)
            like = [np.asarray(a) for a in made]
            apart = max(map(_apart, in_c.outputs(like), like), default=0.0)
            later = max((_apart(a, b, LEAST) for a, b in in_c.state()), default=0.0)
        self.failed += not (apart <= BOUND and later <= OF_STATE)
        self._say(compiled, f"{apart:.0e} apart" + f", its state {later:.0e}" * in_c.step)
        return compiled.rebuild([*map(Tensor.of_kind, made, compiled.kinds)])

    def _say(self, compiled: Compiled, found: str) -> None:
        inputs = ", ".join(str(v.abstract) for v in compiled.traced.inputs)
        print(f"  {compiled.traced.name}({inputs}): {found}", file=sys.stderr, flush=True)


def _by_a_checker() -> bool:
    """True where opcheck or gradcheck calls: hundreds of programs of one operation each."""
    return any(frame.filename.startswith(str(CHECKERS)) for frame in traceback.extract_stack())


def _apart(got: Array, expected: Array, least: float = 1e-30) -> float:
    """The largest difference, of the largest number."""
    if expected.dtype.kind not in "fV":
        return float(not np.array_equal(got, expected))
    a, b = (x.astype(np.float64) for x in (got, expected))
    if not np.array_equal(np.isfinite(a), np.isfinite(b)):
        return np.inf
    finite = np.isfinite(b)
    return float(
        np.abs(a - b)[finite].max(initial=0) / max(np.abs(b)[finite].max(initial=0), least)
    )


def main() -> int:
    """Run notebooks in processes of their own, a line for each program; 1 where one failed."""
    options = argparse.ArgumentParser(description="What notebooks compile, as C.")
    options.add_argument("numbers", nargs="*", help="of notebooks, as 05; all by default")
    given = options.parse_args()
    paths = [
        p
        for p in sorted(FOLDER.glob("[0-9]*.py"))
        if p.stem[:2] in given.numbers or not given.numbers
    ]
    if len(paths) > 1:
        commands = [[sys.executable, "-m", "tools.notebooks_in_c", path.stem[:2]] for path in paths]
        return max(subprocess.run(command).returncode for command in commands)
    trial = Trial()

    def run(compiled: Compiled, arrays: Sequence[Array]) -> Any:  # a method of it
        return trial.run(compiled, arrays)

    Compiled.run = run  # type: ignore[method-assign]
    print(paths[0].stem, file=sys.stderr)
    os.environ.setdefault("MPLBACKEND", "Agg")
    os.chdir(FOLDER.parent)  # as execute.py runs them
    runpy.run_path(str(paths[0]), run_name="__main__")
    return trial.failed > 0


if __name__ == "__main__":
    sys.exit(main())
