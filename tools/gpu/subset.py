"""A few kernels of each kind on the GPU, without cupy's pool, which would hide overruns."""

from __future__ import annotations

import numpy as np

import miniml as ml
from miniml.testing.calls import calls, dtypes_of
from tests.frame.device import run_on
from tests.opinfo import ROWS

NAMES = (
    "Add", "Cast", "Sum", "ArgMax", "Softmax", "LayerNorm", "MatMul", "Conv2D", "MaxPool2D",
    "Gather", "ScatterAdd", "CumSum", "Sort", "Uniform", "CrossEntropy",
)  # fmt: skip


def main() -> None:
    import cupy  # noqa: PLC0415 - there is none on most machines

    cupy.cuda.set_allocator(None)
    rows = [row for row in ROWS if row.primitive.name in NAMES]
    for row in rows:
        dtypes = dtypes_of(row)
        dtype = np.dtype(np.float32) if np.dtype(np.float32) in dtypes else dtypes[0]
        for call in calls(row, dtype, np.random.default_rng(0)):
            run_on(call, "cuda", call.arrays)
    print(f"{len(rows)} primitives ran; miniml {ml.__version__}")


if __name__ == "__main__":
    main()
