"""The checks that every row of tests/opinfo goes through: plain functions of (row, dtype, rng)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from miniml.dtype import FLOATS, DType, float64, is_float
from miniml.testing import OpInfo
from miniml.testing.calls import dtypes_of

from .forward import (
    check_inference,
    check_kernels,
    check_layouts,
    check_memory,
    check_refusals,
    check_special,
)
from .gradients import check_gradient, check_graph, check_narrow_gradient, check_second_gradient

Check = Callable[[OpInfo, Any, Any], None]

# Each check with the dtypes it is made for, out of a row's own.
CHECKS: dict[Check, Callable[[OpInfo, DType], bool]] = {
    check_inference: lambda row, dtype: True,
    check_kernels: lambda row, dtype: True,
    check_layouts: lambda row, dtype: True,
    check_memory: lambda row, dtype: True,
    check_graph: lambda row, dtype: True,
    check_special: lambda row, dtype: is_float(dtype),
    check_gradient: lambda row, dtype: row.primitive.differentiable and dtype == float64,
    check_second_gradient: lambda row, dtype: row.primitive.differentiable and dtype == float64,
    check_narrow_gradient: lambda row, dtype: (
        row.primitive.differentiable and dtype in FLOATS and dtype != float64
    ),
}


def name_of(check: Check) -> str:
    return check.__name__.removeprefix("check_")


def cases(rows: Iterable[OpInfo]) -> Iterator[tuple[OpInfo, DType | None, Check]]:
    """Every (row, dtype, check) there is a test for, in an order that never changes."""
    for row in rows:
        if row.refused:
            yield row, None, check_refusals
        for dtype in dtypes_of(row):
            for check, wanted in CHECKS.items():
                if wanted(row, dtype):
                    yield row, dtype, check
