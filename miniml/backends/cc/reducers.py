"""Reductions in C: how two partial results become one, and whole blocks of elements."""

from __future__ import annotations

from typing import NamedTuple

from ...dtype import DType, uint64
from ..expressions.types import ends
from .scalars import value_type


class Reducer(NamedTuple):
    """A reduction in C. x: the element; LOWEST, HIGHEST: the ends of its dtype."""

    identity: str
    element: str
    combination: str

    def combine(self, a: str, b: str) -> str:
        """Two partial results as one."""
        return self.combination.format(a=a, b=b)


REDUCERS = {
    "Sum": Reducer("0", "x", "{a} + {b}"),
    "Max": Reducer("LOWEST", "x", "({a} > {b} || {a} != {a}) ? {a} : {b}"),
    "Min": Reducer("HIGHEST", "x", "({a} < {b} || {a} != {a}) ? {a} : {b}"),
    "Any": Reducer("0", "x != 0", "{a} | {b}"),
    "All": Reducer("1", "x != 0", "{a} & {b}"),
}

# 16 lanes, so that compilers use vectors: they keep the order of a sum that is written plainly.
_BLOCK_TEXT = """\
static inline TYPE NAME_of(TYPE a, TYPE b) { return COMBINE; }
static __attribute__((noinline)) TYPE NAME(const TYPE *x, long n) {
  TYPE lane[16];
  long i = 0;
  for (int l = 0; l < 16; ++l) lane[l] = IDENTITY;
  for (; i + 16 <= n; i += 16)
    for (int l = 0; l < 16; ++l) lane[l] = NAME_of(lane[l], x[i + l]);
  for (int l = 0; i + l < n; ++l) lane[l] = NAME_of(lane[l], x[i + l]);
  for (int w = 8; w; w /= 2)
    for (int l = 0; l < w; ++l) lane[l] = NAME_of(lane[l], lane[l + w]);
  return lane[0];
}
"""


def reducer(row: str, dtype: DType) -> Reducer:
    """The reduction of a row program, of elements of a dtype."""
    low, high = ends(dtype)
    found = REDUCERS[row]
    return found._replace(identity=found.identity.replace("LOWEST", low).replace("HIGHEST", high))


def block(row: str, dtype: DType) -> tuple[str, str]:
    """The function that reduces a block of elements: its name and its text."""
    name, found = f"miniml_block_{row.lower()}_{dtype.name}", reducer(row, dtype)
    text = _BLOCK_TEXT.replace("IDENTITY", found.identity)
    text = text.replace("COMBINE", found.combine("a", "b"))
    return name, text.replace("NAME", name).replace("TYPE", value_type(dtype))


def wrapping(row: str, dtype: DType) -> DType:
    """The dtype in which a reduction is taken: sums of integers wrap around without a sign."""
    return uint64 if row == "Sum" and dtype.kind in "iu" else dtype
