"""Real ONNX files as C: `OMP_NUM_THREADS=1 python -m tools.onnx_in_c [--only TEXT]`.

Each file of `tools.onnx_files` is exported, compiled by gcc without a warning, and run once; what
it gives is compared with onnxruntime's result, and no byte behind its memory may change. Prints a
line for each, with sizes and times. Not a test: the files are fetched, and it takes minutes.
"""

from __future__ import annotations

import argparse
import ctypes
import subprocess
import time
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

import miniml as ml
from benchmarks.onnx_models import Call, both
from miniml.core.tensor import Array
from tools.onnx_files import calls

FLAGS = "-std=c11 -O1 -Wall -Wextra -Werror -pedantic -ffp-contract=off -fno-math-errno".split()
FENCE = np.full(256, 0xA5, np.uint8)


class Block:
    """Memory at a multiple of 64, with bytes behind it that nobody may change."""

    def __init__(self, nbytes: int):
        whole = np.zeros(nbytes + 64 + len(FENCE), np.uint8)
        begin = -whole.ctypes.data % 64
        self.bytes, self.fence = np.split(whole[begin : begin + nbytes + len(FENCE)], [nbytes])
        self.fence[:] = FENCE

    def like(self, array: Array) -> Array:
        """The memory as an array of the same shape and dtype."""
        return self.bytes.view(array.dtype).reshape(array.shape)


class Exported:
    """A graph as a library made of C."""

    def __init__(self, graph: Any, arrays: list[Array], folder: Path):
        file, library = folder / "net.c", folder / "net.so"
        begun = time.perf_counter()
        ml.export_c(graph, file, *arrays, weights="file" if graph.state else "arrays")
        exported = time.perf_counter()
        text = file.read_text()
        self.holds = bool(graph.state)
        if self.holds:
            text += "\nlong net_size(void);\nlong net_size(void) { return sizeof(net_state); }\n"
        command = ["gcc", *FLAGS, "-fPIC", "-shared", "-I", str(folder), "-x", "c", "-"]
        command += ["-o", str(library), "-lm"]
        subprocess.run(command, input=text, text=True, check=True)
        self.seconds = exported - begun, time.perf_counter() - exported
        header = (folder / "net.h").read_text().splitlines()
        arena = next(line for line in header if line.startswith("#define NET_ARENA_BYTES"))
        self.sizes = file.stat().st_size, int(arena.split()[-1])
        self.library: Any = ctypes.CDLL(str(library))
        self.given = [Block(self.sizes[1])]
        if self.holds:
            self._load(folder / "net.safetensors")

    def _load(self, weights: Path) -> None:
        state = Block(self.library.net_size())
        self.given.insert(0, state)
        data = np.frombuffer(weights.read_bytes(), np.uint8)
        if self.library.net_load(*_pointers(state.bytes, data)):
            raise ValueError(f"{weights.name} is refused")

    def __call__(self, arrays: list[Array], like: list[Array]) -> tuple[list[Array], float]:
        """The outputs, and the seconds of a second call."""
        outs = [Block(a.nbytes) for a in like]
        inputs = [np.ascontiguousarray(a) for a in arrays]
        blocks = [block.bytes for block in (*self.given, *outs)]
        state, made = blocks[: len(self.given)], blocks[len(self.given) :]
        for _ in range(2):
            begun = time.perf_counter()
            self.library.net_run(*_pointers(*state, *inputs, *made))
        seconds = time.perf_counter() - begun
        if any(not np.array_equal(block.fence, FENCE) for block in (*self.given, *outs)):
            raise ValueError("it writes behind its memory")
        return [block.like(a) for block, a in zip(outs, like, strict=True)], seconds


def _pointers(*arrays: Array) -> list[ctypes.c_void_p]:
    return [ctypes.c_void_p(a.ctypes.data) for a in arrays]


def tried(call: Call) -> str:
    """A line on a file: how far it is from onnxruntime, of the greatest number; sizes and times."""
    graph, arrays, session, named = both(call)
    expected = session.run(None, named)
    out = graph(*arrays)
    like = [t.asnumpy() for t in (out if isinstance(out, tuple) else (out,))]
    with TemporaryDirectory() as folder:
        made = Exported(graph, arrays, Path(folder))
        outs, seconds = made(arrays, like)
    apart = max(_apart(a, b) for a, b in zip(outs, expected, strict=True))
    text, arena = (f"{size / 1024:,.0f} KB" for size in made.sizes)
    exported, compiled = (f"{s:.1f} s" for s in made.seconds)
    return (
        f"{apart:.1e} apart; C {text}, arena {arena}; exported in {exported}, compiled in "
        f"{compiled}, a call {seconds * 1e3:.1f} ms"
    )


def _apart(got: Array, expected: Array) -> float:
    difference = np.abs(got.astype(np.float64) - expected.astype(np.float64))
    return float(difference.max(initial=0) / max(1.0, np.abs(expected).max(initial=0)))


def main() -> None:
    """Try the files, a line for each."""
    options = argparse.ArgumentParser(description="Real ONNX files as C.")
    options.add_argument("--only", default="", help="files whose path contains this text")
    options.add_argument("--folder", type=Path, default=Path("build/wheels"))
    given = options.parse_args()
    for name, call in calls(given.folder, given.only):
        try:
            found = tried(call)
        except Exception as error:  # a file that is refused is a line, too
            found = f"{type(error).__name__}: {error}"
        print(f"{name}: {found}", flush=True)


if __name__ == "__main__":
    main()
