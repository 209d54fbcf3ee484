"""Optional features of a device that kernels may require: libraries and hardware units.

A feature is present when a probe shows it, so a machine that lacks a library or a header uses the
kernels that do without it.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from ...dtype import DType, bfloat16, float16
from ...errors import CompileError
from .text.source import unit

# Compiles where the compiler finds mma.h and the architecture multiplies matrices of the type:
# __half from sm_70 on, __nv_bfloat16 from sm_80 on.
PROBE = r"""
#include <mma.h>
extern "C" __global__ void probe(const T* x, float* out) {
  using namespace nvcuda::wmma;
  fragment<matrix_a, 16, 16, 16, T, row_major> a;
  fragment<matrix_b, 16, 16, 16, T, row_major> b;
  fragment<accumulator, 16, 16, 16, float> sum;
  load_matrix_sync(a, x, 16);
  load_matrix_sync(b, x, 16);
  fill_fragment(sum, 0.0f);
  mma_sync(sum, a, b, sum);
  store_matrix_sync(out, sum, 16, mem_row_major);
}
"""


def tensor_cores(device: Any, dtype: DType) -> bool:
    """True when a kernel with products of 16 x 16 matrices of the dtype compiles."""
    try:
        device.compiler.function(unit(PROBE, T=dtype), "probe")
    except CompileError:
        return False
    return True


def cublas(device: Any) -> bool:
    """True when the module has cuBLAS; cupy's raises ImportError where the library is absent."""
    try:
        return device.module.cuda.cublas is not None
    except (AttributeError, ImportError):
        return False


FEATURES: dict[str, Callable[[Any], bool]] = {
    "cublas": cublas,
    "wmma": partial(tensor_cores, dtype=float16),
    "wmma_bfloat16": partial(tensor_cores, dtype=bfloat16),
}
