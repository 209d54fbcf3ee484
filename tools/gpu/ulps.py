"""The GPU against the simulator, or the simulator against the CPU: the largest difference of every
kernel, in units in the last place of its result."""

from __future__ import annotations

import os
from concurrent.futures import Executor, ProcessPoolExecutor, ThreadPoolExecutor, as_completed
from multiprocessing import get_context
from typing import Any

import numpy as np

from miniml.backends.selection import get_device
from miniml.core.abstract import DType, float32, is_float
from miniml.testing import OpInfo
from miniml.testing.calls import calls, dtypes_of
from tests.frame.calls import rng_of
from tests.frame.device import run_on
from tests.opinfo import ROWS
from tools.gpu.step import arguments

AGAINST = {"cuda": "cuda-sim", "cuda-sim": "cpu"}
FEW = ("Exp", "Sum", "Softmax", "MatMul", "ArgMax", "Uniform")
# Bits of the fraction, and the least exponent of a normal number.
FORMATS = {
    "float16": (10, -14),
    "bfloat16": (7, -126),
    "float32": (23, -126),
    "float64": (52, -1022),
}


def ulps(came: np.ndarray, right: np.ndarray) -> tuple[float, float, int]:
    """The largest |came - right| in units in the last place of that element of `right`; in those
    of its largest element, which says more of sums that cancel; and how many elements are NaN or
    infinite in one and not the same in the other. Integers: the largest difference."""
    if not came.size:
        return 0.0, 0.0, 0
    a, b = (np.atleast_1d(x).astype(np.float64) for x in (came, right))
    same = (a == b) | (np.isnan(a) & np.isnan(b))
    finite = np.isfinite(a) & np.isfinite(b)
    special = int((~same & ~finite).sum())
    a, b = np.where(finite, a, 0), np.where(finite, b, 0)
    difference = np.abs(a - b)
    if not is_float(right.dtype):
        return float(difference.max()), float(difference.max()), special
    bits, least = FORMATS[right.dtype.name]
    if right.dtype == float32:  # cupy's compiler flushes subnormal numbers of this type to zero
        flushed = ((a == 0) | (b == 0)) & (np.maximum(np.abs(a), np.abs(b)) < np.ldexp(1.0, least))
        difference[flushed] = 0
    exponent = np.where(b == 0, least, np.frexp(b)[1] - 1)
    unit = np.ldexp(1.0, np.maximum(exponent, least) - bits)
    return float((difference / unit).max()), float(difference.max() / unit.max()), special


def largest(row: OpInfo, dtype: DType, device: str, against: str) -> dict[str, Any]:
    """The largest difference over the row's calls: ulp and the call, ulp of the largest element,
    how many elements were compared, how many are special in one result only."""
    found: dict[str, Any] = {"ulp": 0.0, "of_largest": 0.0, "special": 0, "elements": 0, "call": ""}
    for call in calls(row, dtype, rng_of(row.primitive.name, dtype)):
        if call.primitive.dynamic_outputs:
            continue
        outs = (run_on(call, where, call.arrays) for where in (device, against))
        for came, right in zip(*outs, strict=True):
            ulp, of_largest, special = ulps(came, right)
            found["elements"] += came.size
            found["special"] += special
            found["of_largest"] = max(found["of_largest"], round(of_largest, 3))
            if ulp > found["ulp"]:
                found["ulp"], found["call"] = round(ulp, 3), str(call)
    return found


def jobs(quick: bool) -> list[tuple[int, DType]]:
    """Rows and dtypes to compare: first float32 (the first dtype without it) of every row, then,
    unless it is to be quick, the others."""
    numbers = [i for i, row in enumerate(ROWS) if row.primitive.name in FEW or not quick]
    first = {i: min(dtypes_of(ROWS[i]), key=lambda d: d != float32) for i in numbers}
    others = [(i, d) for i in numbers for d in dtypes_of(ROWS[i]) if d != first[i]]
    return [*first.items(), *([] if quick else others)]


def job(number: int, dtype: DType, device: str) -> dict[str, Any]:
    """One kernel; what it raises is part of the result."""
    try:
        return largest(ROWS[number], dtype, device, AGAINST[device])
    except Exception as error:
        return {"raised": f"{type(error).__name__}: {error}"[:300]}


def main() -> None:
    given = arguments(__doc__)
    found, device = given.found, given.device
    get_device(device)
    quick = device == "cuda-sim"
    found.update({"device": device, "against": AGAINST[device], "kernels": {}, "raised": {}})
    todo = jobs(quick)
    found["wanted"] = len(todo)
    # The simulator compiles each kernel on the CPU, which takes longer than all else.
    with executor(1 if quick else min(12, os.cpu_count() or 1)) as pool:
        waiting = {pool.submit(job, i, dtype, device): (i, dtype) for i, dtype in todo}
        for done in as_completed(waiting):
            i, dtype = waiting[done]
            result, name = done.result(), f"{ROWS[i].primitive.name} {dtype.name}"
            if "raised" in result:
                found["raised"][name] = result["raised"]
            else:
                found["kernels"][name] = result
            found.save()
    kernels = found["kernels"]
    order = sorted(kernels, key=lambda n: kernels[n]["ulp"], reverse=True)
    found["worst"] = {n: kernels[n]["ulp"] for n in order[:20]}
    found["compared"], found["differing"] = len(order), sum(k["ulp"] > 0 for k in kernels.values())
    found.save()


def executor(count: int) -> Executor:
    """Processes of their own, each with its context on the device; a thread where one is enough."""
    if count == 1:
        return ThreadPoolExecutor(1)
    return ProcessPoolExecutor(count, mp_context=get_context("spawn"))


if __name__ == "__main__":
    main()
