"""Scalar expressions of tensors made from numbers alone, in terms of the element's index."""

from __future__ import annotations

from collections.abc import Mapping
from math import isinf
from typing import Any

import numpy as np

from ...core.dtype import FLOATS, INTEGERS, REAL, float64, int64, type_code, uint64
from .table import TypedCall, computed, express


def given(node: TypedCall) -> Mapping[str, Any]:
    return node.attrs


def filled(node: TypedCall) -> dict[str, Any]:
    """The value of Full, rounded to the output's dtype."""
    return {"value": np.asarray(node.attrs["value"]).astype(node.outputs[0].dtype)[()]}


def spaced(node: TypedCall) -> dict[str, Any]:
    """The start and step of Linspace, halved if the distance of the ends overflows float64."""
    start, stop, num = (node.attrs[name] for name in ("start", "stop", "num"))
    scale = 2.0 if isinf(float(stop) - float(start)) else 1.0
    step = (stop / scale - start / scale) / max(num - 1, 1)
    end = num - 1 if num > 1 else -1  # the index of the element that is `stop` itself
    return {"start": start / scale, "stop": stop, "step": step, "scale": scale, "end": end}


def whole_steps(node: TypedCall) -> dict[str, Any]:
    """The start and step of Linspace of integers."""
    start, stop, num = (int(node.attrs[name]) for name in ("start", "stop", "num"))
    return modular(start, (stop - start) // max(num - 1, 1))


def counted(node: TypedCall) -> dict[str, Any]:
    """The start and step of Arange of integers."""
    return modular(int(node.attrs["start"]), int(node.attrs["step"]))


def modular(start: int, step: int) -> dict[str, Any]:
    return {"start": start % 2**64, "step": step % 2**64}


_SPACED = (*((n, float64) for n in ("start", "stop", "step", "scale")), ("end", int64))
_COUNT, _COUNTED = (
    "T(start + (unsigned long long)index * step)",
    (("start", uint64), ("step", uint64)),
)
_STEPS, _STEPPED = "T(start + double(index) * step)", (("start", float64), ("step", float64))
_LINE = "T(index == end ? stop : (start + double(index) * step) * scale)"
_ROWS = (
    *(("Full", "value", d, (("value", computed(d)),), filled) for d in REAL),
    *(("Eye", "T(index / m == index % m)", d, (("m", int64),), given) for d in REAL),
    *(("Arange", _COUNT, d, _COUNTED, counted) for d in INTEGERS),
    *(("Arange", _STEPS, d, _STEPPED, given) for d in FLOATS),
    *(("Linspace", _COUNT, d, _COUNTED, whole_steps) for d in INTEGERS),
    *(("Linspace", _LINE, d, _SPACED, spaced) for d in FLOATS),
)
for _name, _text, _dtype, _types, _scalars in _ROWS:
    express(_name, _text, f"->{type_code(_dtype)}", unit="create", types=_types, scalars=_scalars)
