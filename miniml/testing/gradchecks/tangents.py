"""Tangents of a function, and the call at fault where they are not what its pull-back gives: one
whose jvp rule, or whose fact, gives another tangent than the transpose of its bprop.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from ...core.dtype import is_float
from ...core.errors import MinimlError
from ...core.tensor import Tensor
from ...grad.forward import joint, jvp_rules, push, transposed
from ...grad.reverse import linearize
from ...grad.transforms import jvp
from ...graph.record import Call
from ..report import Arrays
from ..tolerance import of_one_size

Function = Callable[..., Any]


class Tangents(Protocol):
    """Tangents of the outputs of a function for tangents of its inputs."""

    def moved(self, arrays: Arrays, tangents: Arrays) -> Arrays:
        """The tangents of the outputs for these of the inputs."""

    def fault(self, arrays: Arrays, rng: np.random.Generator, tolerance: float) -> str:
        """The first call at fault, in a sentence; "" if there is none, or none is looked for."""


@dataclass(frozen=True)
class Forward:
    """Tangents of a function of tensors to a tuple of them. tensors: makes tensors of arrays."""

    function: Function
    tensors: Callable[[Arrays], list[Tensor]]

    def moved(self, arrays: Arrays, tangents: Arrays) -> Arrays:
        """The tangents of the outputs for these of the inputs."""
        given = tuple(self.tensors(arrays)), tuple(self.tensors(tangents))
        return [np.asarray(t.asnumpy()) for t in jvp(self.function, *given)[1]]

    def fault(self, arrays: Arrays, rng: np.random.Generator, tolerance: float) -> str:
        """The first call whose tangent is not the transpose of its bprop; "" if there is none."""
        found = linearize(self.function, self.tensors(arrays), range(len(arrays)))
        for call in found.trace.calls:
            said = _says(call)
            if said and not _transposes(call, rng, tolerance):
                return (
                    f"the tangent of {call.primitive.name}, by {said}, is not what the transpose "
                    f"of its bprop gives; called at {call.where}"
                )
        return ""


def _says(call: Call) -> str:
    """The origin of the tangent of a call; "" where it is the transpose of the bprop itself."""
    cls = type(call.primitive)
    if jvp_rules.find(cls) is not None or cls in joint:
        return "its jvp rule"
    facts = {"view": cls.view, "linear": cls.linear, "elementwise": cls.elementwise}
    return next((f"{name} = {value!r}" for name, value in facts.items() if value), "")


def _transposes(call: Call, rng: np.random.Generator, tolerance: float) -> bool:
    """False where the tangents of a call differ from the transpose of its bprop."""
    tangents = [
        Tensor(of_one_size(rng, x.shape).astype(x.dtype), device=x.device)
        if var is not None and is_float(x.dtype)
        else None
        for var, x in zip(call.inputs, call.given, strict=True)
    ]
    try:
        expected = transposed(call.primitive, call.given, tangents, call.outs)
    except MinimlError:  # its bprop is not made of operations with a gradient
        return True
    got = push(call.primitive, call.given, tangents, call.outs)
    return all(_agree(a, b, tolerance) for a, b in zip(got, expected, strict=True))


def _agree(got: Tensor | None, expected: Tensor | None, tolerance: float) -> bool:
    if got is None or expected is None:
        other = expected if got is None else got
        return other is None or not np.any(other.asnumpy())
    if got.shape != expected.shape:
        return False
    a, b = got.asnumpy(), expected.asnumpy()
    known = np.isfinite(a) & np.isfinite(b)
    scale = np.abs(b[known]).max(initial=0.0)
    return bool(np.all(np.abs(a - b)[known] <= tolerance * scale))
