"""In the place of cuBLAS: gemm on the simulator's memory, written from BLAS's definition."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import ml_dtypes
import numpy as np

from miniml.backends.cuda.device import Cuda
from miniml.backends.cuda.driver import Cupy
from miniml.backends.cuda.sim.memory import using
from tests.device.emucupy import double

NUMBERS = {0: np.float32, 1: np.float64, 2: np.float16, 14: ml_dtypes.bfloat16}
SUMS = {68: np.float32, 70: np.float64}
HANDLE, TF32, EXACT = 77, 3, 16


@dataclass
class Gemm:
    """The functions of cupy.cuda.cublas that the backend calls.

    ranges: the memory that may be touched, as (address, bytes); calls: what was asked for.
    """

    mode: int = TF32  # somebody else's choice, which must come back
    ranges: list[tuple[int, int]] = field(default_factory=list)
    calls: list[tuple[int, ...]] = field(default_factory=list)

    def getMathMode(self, handle: int) -> int:
        assert handle == HANDLE
        return self.mode

    def setMathMode(self, handle: int, mode: int) -> None:
        assert handle == HANDLE
        self.mode = mode

    def gemmStridedBatchedEx(
        self, handle, transa, transb, m, n, k, alpha, A, Atype, lda, strideA, B, Btype, ldb,
        strideB, beta, C, Ctype, ldc, strideC, batchCount, computeType, algo,
    ):  # fmt: skip
        """C[i] = alpha op(A[i]) op(B[i]) + beta C[i], all of them by columns."""
        assert (handle, self.mode, algo) == (HANDLE, EXACT, -1)
        assert Atype == Btype == Ctype
        assert computeType == (70 if Ctype == 1 else 68)
        assert min(m, n, k, batchCount) > 0
        places = np.add.outer(np.arange(batchCount) * strideC, np.arange(n) * ldc)
        places = np.add.outer(places, np.arange(m))
        assert len(np.unique(places)) == places.size  # results do not overlap
        scalars = [SUMS[computeType](0)] * 2
        for i, at in enumerate((alpha, beta)):
            scalars[i] = view(at, SUMS[computeType], (1,), (0,))[0]
        self.calls.append((m, n, k, batchCount))
        a = self._matrices(A, Atype, lda, strideA, (m, k), transa, batchCount)
        b = self._matrices(B, Btype, ldb, strideB, (k, n), transb, batchCount)
        c = self._matrices(C, Ctype, ldc, strideC, (m, n), 0, batchCount)
        wide = np.matmul(a.astype(np.float64), b.astype(np.float64))
        assert tuple(scalars) == (1, 0)  # and so C may hold anything before
        c[...] = wide.astype(c.dtype)

    def _matrices(self, address, kind, ld, stride, shape, transposed, count):
        """op(matrix) for each of the batch, as views by columns."""
        rows, columns = shape[::-1] if transposed else shape
        assert ld >= max(1, rows)
        size = np.dtype(NUMBERS[kind]).itemsize
        last = (count - 1) * stride + (columns - 1) * ld + rows
        assert any(
            start <= address and address + last * size <= start + nbytes
            for start, nbytes in self.ranges
        ), "outside the arrays"
        found = view(address, NUMBERS[kind], (count, rows, columns), (stride, 1, ld))
        return found.swapaxes(1, 2) if transposed else found


def view(address, dtype, shape, steps):
    """Memory at an address as an array, `steps` in elements."""
    size = np.dtype(dtype).itemsize
    span = 1 + sum((n - 1) * s for n, s in zip(shape, steps))
    raw = np.ctypeslib.as_array((ctypes.c_uint8 * (span * size)).from_address(address))
    return np.lib.stride_tricks.as_strided(raw.view(dtype), shape, [s * size for s in steps])


@contextmanager
def with_cublas() -> Iterator[tuple[Any, Gemm]]:
    """A device of the simulator that has cuBLAS besides."""
    gemm, module = Gemm(), double()
    module.cuda.cublas, module.cuda.get_cublas_handle = gemm, lambda: HANDLE
    with using(mode="fast"):
        yield Cuda(Cupy(module)), gemm
    assert gemm.mode == TF32
