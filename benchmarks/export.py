"""Cost of Python around a compiled program: `OMP_NUM_THREADS=1 python -m benchmarks.export`.

The networks of `benchmarks.networks` on one input, as the C file that `export_c` writes, for this
machine's vectors, beside the compiled program and beside onnxruntime on the model that
`ml.onnx.save` writes: each pair in turns on one thread, medians of CPU time. A call of C is one by
ctypes, of which half a microsecond is ctypes' own.
"""

from __future__ import annotations

import ctypes
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime

import miniml as ml
from benchmarks.measure import compare, machine
from benchmarks.networks import problems
from benchmarks.networks.in_miniml import NETWORKS
from miniml.core.tensor import Array

FLAGS = "-std=c11 -O3 -march=native -mprefer-vector-width=512 -fno-math-errno".split()
FLAGS += "-fno-trapping-math -ffp-contract=off -fPIC -shared".split()
PROBLEMS = {
    "mlp 64-128-10": problems.mlp(64, 128, 10, batch=1),
    "mlp 784-512-256-10": problems.mlp(784, 512, 256, 10, batch=1),
    "lenet": problems.lenet(1),
    "resnet": problems.resnet(1),
    "lstm, 32 steps": problems.lstm(32, 1),
    "transformer": problems.transformer(1),
}


def in_c(fn: Callable[[Any], Any], x: Array, folder: Path) -> tuple[Callable[[], object], Array]:
    """The call of the exported function, and the array that it fills."""
    file = folder / "net.c"
    ml.export_c(fn, file, x, target="native")
    library = folder / f"{len([*folder.iterdir()])}.so"
    subprocess.run(["cc", *FLAGS, str(file), "-o", str(library), "-lm"], check=True)
    found = ctypes.CDLL(str(library))
    lines = file.with_suffix(".h").read_text().splitlines()
    size = next(int(line.split()[-1]) for line in lines if "define NET_ARENA_BYTES " in line)
    block, out = np.zeros(size + 64, np.uint8), np.empty_like(ml.jit(fn)(x).asnumpy())
    start = block.ctypes.data + -block.ctypes.data % 64
    given = [ctypes.c_void_p(at) for at in (start, x.ctypes.data, out.ctypes.data)]
    kept = block, x, out, found

    def call() -> object:
        return kept and found.net_run(*given)

    return call, out


def in_onnxruntime(fn: Callable[[Any], Any], x: Array, folder: Path) -> Callable[[], Array]:
    """The call of a session on one thread."""
    ml.onnx.save(fn, folder / "net.onnx", x)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    session = onnxruntime.InferenceSession(folder / "net.onnx", options)
    given = {session.get_inputs()[0].name: x}
    return lambda: session.run(None, given)[0]


def main() -> None:
    """Print a row for each network."""
    print(machine())
    print("| network, one input | in C, us | program in Python, us | ratio | quartiles | ", end="")
    print("onnxruntime, us | ratio | quartiles |\n|---|---|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder, ml.context(threads=1):
        for name, problem in PROBLEMS.items():
            weights = {key: ml.Parameter(w, name=key) for key, w in problem.weights.items()}
            network = NETWORKS[problem.network]

            def fn(x: Any, weights: Any = weights, network: Any = network) -> Any:
                return network(weights, x)

            call, out = in_c(fn, problem.x, Path(folder))
            program, x = ml.jit(fn), ml.Tensor(problem.x)
            call()
            np.testing.assert_allclose(out, program(x).asnumpy(), 1e-4, 1e-5)
            found = compare(call, lambda program=program, x=x: program(x), clock=time.thread_time)
            times = f"{found.ours * 1e6:.1f} | {found.theirs * 1e6:.1f}"
            row = f"| {name} | {times} | {found.ratio:.2f} | {found.low:.2f} to {found.high:.2f} |"
            other = in_onnxruntime(fn, problem.x, Path(folder))
            np.testing.assert_allclose(out, other(), 1e-4, 1e-5)
            found = compare(call, other, clock=time.thread_time)
            shown = f"{found.ratio:.2f} | {found.low:.2f} to {found.high:.2f}"
            print(f"{row} {found.theirs * 1e6:.1f} | {shown} |", flush=True)


if __name__ == "__main__":
    main()
