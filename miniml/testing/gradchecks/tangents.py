"""Forward mode beside reverse mode: tangents of a function against its pull-back.

`check_forward` compares them along a random direction, in which the pull-back has been compared
with differences already. Where they differ, `Forward.fault` looks for the call whose jvp rule, or
whose fact, gives another tangent than the transpose of its bprop.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ...core.dtype import is_float
from ...core.errors import MinimlError
from ...core.tensor import Tensor
from ...grad.forward import joint, jvp_rules, push, transposed
from ...grad.reverse import linearize
from ...grad.transforms import jvp
from ...graph.record import Call
from ..report import WRONG, Agreement, Arrays, GradFinding, GradReport
from ..tolerance import of_one_size

if TYPE_CHECKING:
    from .problem import Subject

Function = Callable[..., Any]
WHAT = "forward mode"


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
    """What gives the tangent of a call; "" where it is the transpose of the bprop itself."""
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


def check_forward(subject: Subject, highest: int, report: GradReport) -> None:
    """Compare <dout, J t> of forward mode with <pull(dout), t>, for one random dout and t.

    Where something is not finite nothing is compared; a refusal of forward mode becomes a note.
    highest: the order up to which derivatives are checked. A tangent that is the transpose of a
    bprop, which loses the gradient of its cotangent, is left to order 2.
    """
    rng = np.random.default_rng(0)  # its own, so that other checks see the same numbers
    along, dout = of_one_size(rng, subject.x.size), of_one_size(rng, subject.y.size)
    try:
        moved = subject.tangent(along)
    except MinimlError as error:
        report.notes.append(f"{WHAT} was not compared: {str(error).splitlines()[0]}")
        return
    terms, others = dout * moved, along * subject.pull(dout)
    if not np.isfinite(terms).all() or not np.isfinite(others).all():
        return
    tolerance = float(np.sqrt(subject.roundoff))
    bar = tolerance * float(np.abs(terms).sum() + np.abs(others).sum())
    analytic, numeric = float(terms.sum()), float(others.sum())
    if abs(analytic - numeric) <= bar:
        what = f"{WHAT}, the tangent along one direction against the pull-back"
        report.checks.append(Agreement(1, what, analytic, numeric, bar, tolerance))
        return
    assert subject.map.forward is not None
    why = subject.map.forward.fault(subject.arrays(subject.x), rng, tolerance)
    if why or highest == 1:
        why = why or "the tangent is not what the pull-back gives"
        report.findings.append(
            GradFinding(WRONG, 1, why, WHAT, analytic=analytic, numeric=numeric, error_bar=bar)
        )
