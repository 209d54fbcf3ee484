"""In the place of cuBLAS: gemm on the simulator's memory, written from BLAS's definition."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import ml_dtypes
import numpy as np

from miniml.backends.cuda.device import Cuda
from miniml.backends.cuda.driver import CublasLibrary, Cupy
from miniml.backends.cuda.sim.memory import using
from tests.device.emucupy import current_stream, double

NUMBERS = {0: np.float32, 1: np.float64, 2: np.float16, 14: ml_dtypes.bfloat16}
SUMS = {68: np.float32, 70: np.float64}
HANDLE, EXACT, BAD = 77, 16, 13


class Library:
    """The functions of libcublas that the backend calls, with ctypes' conversions of numbers.

    ranges: the memory that may be touched, as (address, bytes); calls: what was asked for.
    status: what gemm gives back, for failures.
    """

    def __init__(self):
        self.ranges: list[tuple[int, int]] = []
        self.calls: list[tuple[int, ...]] = []
        self.stream = self.workspace = None
        self.mode, self.status = 0, 0
        for name in (
            "GetStatusName", "Create_v2", "SetMathMode", "SetStream_v2", "SetWorkspace_v2",
            "GemmStridedBatchedEx",
        ):  # fmt: skip
            setattr(self, f"cublas{name}", partial(getattr(self, name)))

    def GetStatusName(self, status):
        assert status == BAD
        return b"CUBLAS_STATUS_EXECUTION_FAILED"

    def Create_v2(self, at):
        at._obj.value = HANDLE
        return 0

    def SetMathMode(self, handle, mode):
        assert handle.value == HANDLE
        self.mode = mode
        return 0

    def SetStream_v2(self, handle, stream):
        assert handle.value == HANDLE
        assert stream == current_stream().ptr
        self.stream, self.workspace = stream, None  # as NVIDIA's: back to its own memory
        return 0

    def SetWorkspace_v2(self, handle, address, nbytes):
        assert handle.value == HANDLE
        view(address, np.uint8, (nbytes,), (1,))[...] = 0xFE  # it is there, and no array
        self.workspace = address
        return 0

    def GemmStridedBatchedEx(self, handle, *arguments):
        """Checks what holds when it is called; the product is computed when the stream is there."""
        assert (handle.value, self.mode) == (HANDLE, EXACT)
        assert self.workspace is not None
        if self.status:
            return self.status
        captured = current_stream().captured
        if captured is None:
            self.product(*arguments)
        else:
            captured.append(partial(self.product, *arguments))
        return 0

    def product(
        self, transa, transb, m, n, k, alpha, A, Atype, lda, strideA, B, Btype, ldb,
        strideB, beta, C, Ctype, ldc, strideC, batchCount, computeType, algo,
    ):  # fmt: skip
        """C[i] = alpha op(A[i]) op(B[i]) + beta C[i], all of them by columns."""
        assert algo == -1
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
        assert not self.ranges or any(
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
def with_cublas() -> Iterator[tuple[Any, Library]]:
    """A device of the simulator that has cuBLAS besides."""
    library, driver = Library(), Cupy(double())
    driver.cublas = CublasLibrary(library, 80)
    with using(mode="fast"):
        yield Cuda(driver), library
