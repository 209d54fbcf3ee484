"""Checks of a device's kernels: each primitive computed there, against the reference."""

from __future__ import annotations

import zlib
from typing import Any

import numpy as np

import miniml as ml
from miniml import bfloat16, float16, float32, float64, int8, uint64
from miniml.core.abstract import DType, is_float
from miniml.testing import OpInfo
from miniml.testing.calls import Call, as_tuple, calls, dtypes_of, reference
from miniml.testing.tolerance import mismatch, spread_of


def run_on(call: Call, device: str, arrays: tuple[np.ndarray, ...]) -> tuple[np.ndarray, ...]:
    """The outputs of a call whose inputs are on a device."""
    with ml.context(device_target=device):
        tensors = tuple(ml.Tensor(a) for a in arrays)
        outs = as_tuple(call.primitive(*call.args(tensors)))
    assert all(o.device == device for o in outs)
    return tuple(o.asnumpy() for o in outs)


def check_device(row: OpInfo, dtype: DType, rng: np.random.Generator, device: str) -> None:
    """A device gives what the reference gives in float64, or the CPU where there is none."""
    for call in calls(row, dtype, rng):
        if call.primitive.dynamic_outputs:
            continue
        got = run_on(call, device, call.arrays)
        on_cpu = call.run()
        expected, spread = on_cpu, (0.0,) * len(on_cpu)
        if row.reference is not None:
            expected = reference(call)
            spread = _spread(call, on_cpu, rng) or (0.0,) * len(expected)
        for i, (out, cpu, right, moved) in enumerate(zip(got, on_cpu, expected, spread)):
            assert (out.shape, out.dtype) == (cpu.shape, cpu.dtype), f"{call}: output {i}"
            wrong = mismatch(out, right, call.terms, moved)
            assert wrong is None, f"{call}: output {i} on {device} {wrong}"


def check_device_layouts(row: OpInfo, dtype: DType, rng: np.random.Generator, device: str) -> None:
    """Views of tensors on a device give what contiguous tensors give."""
    for call in calls(row, dtype, rng):
        arrays = call.arrays
        if call.primitive.dynamic_outputs or not any(a.ndim > 1 for a in arrays):
            continue
        wanted = run_on(call, device, arrays)
        with ml.context(device_target=device):
            turned = tuple(ml.Tensor(a.T.copy()).T for a in arrays)
            outs = as_tuple(call.primitive(*call.args(turned)))
        for i, (out, right) in enumerate(zip(outs, wanted)):
            wrong = mismatch(out.asnumpy(), right.astype(out.dtype), call.terms)
            assert wrong is None, f"{call}: output {i} of transposed inputs on {device} {wrong}"
        return  # one call of a row says it


def chosen(row: OpInfo, every: bool) -> tuple[DType, ...]:
    """The dtypes to try: all of the row's; or float32 (its first dtype without) and one more.

    That is one of a few of every kind and width: compiling the kernels of all takes long.
    """
    dtypes = dtypes_of(row)
    if every or len(dtypes) <= 2:
        return dtypes
    first = float32 if float32 in dtypes else dtypes[0]
    others = [d for d in dtypes if d != first]
    few = [d for d in others if d in (bfloat16, float16, float64, int8, uint64)] or others
    return first, few[zlib.crc32(row.primitive.name.encode()) % len(few)]


def _spread(call: Call, outs: tuple[np.ndarray, ...], rng: Any) -> tuple[Any, ...] | None:
    numbers = [o.dtype for o in outs if is_float(o.dtype)]
    if not numbers:
        return None
    wide = tuple(a.astype(np.float64) if is_float(a.dtype) else a for a in call.arrays)
    return spread_of(lambda *xs: reference(call, xs), call.args(wide), numbers[0], rng, 6)
