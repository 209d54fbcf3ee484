"""Reductions of row programs in CUDA C: structures that groups of threads combine by."""

from __future__ import annotations

from ....dtype import DType
from ...expressions.reduce import ROWS
from ...expressions.types import accumulation, computed, ends
from .source import C_TYPES

_TEXT = """\
struct NAME {
  typedef ELEMENTS C;
  typedef SUMS S;
  struct A { VALUE value; };
  static __device__ __forceinline__ A identity() { return {IDENTITY}; }
  static __device__ __forceinline__ A element(C x) { return {(VALUE)(ELEMENT)}; }
  static __device__ __forceinline__ A combine(A a, A b) { return {(VALUE)(COMBINE)}; }
  static __device__ __forceinline__ A crossed(A a, int o) {
    return {(VALUE)__shfl_xor_sync(0xffffffffu, a.value, o)};
  }
};
"""


def structure(row: str, dtype: DType) -> tuple[str, str]:
    """The structure of a reduction of elements of a dtype: its name and its text."""
    name, found, (low, high) = f"{row}_{dtype.name}", ROWS[row], ends(computed(dtype))
    c, s = C_TYPES[computed(dtype)], C_TYPES[accumulation(dtype)]
    value = {"S": s, "C": c}.get(found.value, found.value)
    text = _TEXT.replace("NAME", name).replace("COMBINE", found.combine[0])
    text = text.replace("ELEMENTS", c).replace("SUMS", s).replace("VALUE", value)
    text = text.replace("IDENTITY", found.identity[0]).replace("ELEMENT", found.element[0])
    return name, text.replace("LOWEST", low).replace("HIGHEST", high)
