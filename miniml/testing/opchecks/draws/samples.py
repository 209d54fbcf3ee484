"""Calls that an OpInfo gives: its samples, and drawn calls that its reference covers."""

from __future__ import annotations

import inspect
from dataclasses import replace
from typing import Any

import numpy as np

from ....attributes import EMPTY, key
from ....errors import MinimlError
from ....primitive import Primitive
from ...calls import Call, call_of, dtypes_of
from ...opinfo import OpInfo
from .values import LONGEST


def sampled(primitive: Primitive, info: OpInfo, seed: int | None) -> tuple[list[Call], list[str]]:
    """The calls of an OpInfo's samples, in every dtype it covers, and its refusals.

    A sample without attributes calls the primitive itself, one with attributes the primitive with
    these. Samples that only the attributes of this primitive refuse are left out.
    """
    own = _given(primitive, info)
    found, refused = [], []
    for number, dtype in enumerate(dtypes_of(info)):
        rng = np.random.default_rng([seed or 0, number])
        for sample in info.samples(rng, dtype):
            made, given = primitive, own
            try:
                if sample.attrs:
                    made, given = type(primitive)(**sample.attrs), dict(sample.attrs)
                call = call_of(made, sample, info, given)
                _ = call.inferred
            except MinimlError as error:
                if sample.attrs or not primitive.attributes:
                    refused.append(str(error).partition("\n")[0])
                continue
            found.append(call)
    return found, refused[:1]


def informed(call: Call, info: OpInfo) -> Call:
    """A drawn call, with the OpInfo's reference where any input is in its domain.

    Not one with an axis of 40,000: references are written for clarity, and some need its square.
    """
    if call.kind == LONGEST:
        return call
    if info.domain is not None or (call.arrays and call.dtypes[0] not in dtypes_of(info)):
        return call
    return replace(call, info=info, given=_given(call.primitive, info), smooth=False)


def _given(primitive: Primitive, info: OpInfo) -> dict[str, Any]:
    """The attributes that a reference is given: those it names, and all non-default ones."""
    try:
        named = set(inspect.signature(info.reference or _given).parameters)
    except (TypeError, ValueError):  # a ufunc
        named = set()
    defaults = {f.name: f.default for f in type(primitive)._fields}
    return {
        name: value
        for name, value in primitive.attributes.items()
        if name in named or defaults.get(name, EMPTY) is EMPTY or key(defaults[name]) != key(value)
    }
