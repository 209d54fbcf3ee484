"""Calls with a gradient: does the bprop have the right form, and does it change nothing?"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from ....abstract import Abstract, typed
from ....bprop import bprop_getters
from ....dtype import float64, is_float
from ....errors import BpropNotFoundError, MinimlError, OutOfRangeError
from ....tensor import Tensor
from ...calls import Call
from ..session import Issue, first_line
from ..vjp import Slope, weights


def graded(call: Call) -> bool:
    """True for calls with float inputs and outputs, through which gradients should pass."""
    primitive = call.primitive
    if not primitive.differentiable or primitive.dynamic_outputs or primitive.effect != "pure":
        return False
    return any(map(is_float, call.dtypes)) and any(is_float(o.dtype) for o in call.inferred)


def has_bprop(call: Call) -> bool:
    """True where there is a gradient to check."""
    return graded(call) and bprop_getters.find(type(call.primitive)) is not None


def in_float64(call: Call) -> bool:
    """True where a gradient can be checked against differences."""
    return has_bprop(call) and Slope(call).dtypes() == {float64}


def narrow(call: Call) -> bool:
    """True where a gradient is computed in a dtype narrower than float64."""
    return has_bprop(call) and float64 not in Slope(call).dtypes()


def ran(call: Call) -> tuple[Any, dict[str, Tensor]]:
    """The results of the bprop, and the tensors that it was given, by role."""
    rng = np.random.default_rng(0)
    inputs = tuple(map(Tensor, call.arrays))
    outs = tuple(map(Tensor, call.run(inputs)))
    douts = [Tensor(weights(rng, o.shape, o.dtype)) if is_float(o.dtype) else None for o in outs]
    unwrap = call.primitive.unwrap
    args = *call.args(inputs), unwrap(outs), unwrap(tuple(douts))
    given = {f"input {i}": t for i, t in enumerate(inputs)}
    given |= {f"output {i}": t for i, t in enumerate(outs)}
    given |= {f"cotangent {i}": t for i, t in enumerate(douts) if t is not None}
    before = {name: t.asnumpy().tobytes() for name, t in given.items()}
    gradients = bprop_getters.get(call.primitive)(*args)
    return gradients, {n: t for n, t in given.items() if t.asnumpy().tobytes() != before[n]}


def bprop(call: Call) -> Iterator[Issue]:
    """The bprop gives a tuple with one gradient per input, of the input's shape and dtype."""
    primitive = call.primitive
    if not has_bprop(call):
        yield Issue(
            "missing",
            f"{primitive.name} has no bprop, so no gradient passes through it",
            f"register one with @bprop_getters.register({primitive.name!r}), or set "
            "differentiable = False in the class",
        )
        return
    try:
        gradients, _ = ran(call)
    except (BpropNotFoundError, OutOfRangeError):
        return  # a bprop that refuses on purpose, or refuses these numbers
    except np.linalg.LinAlgError:
        raise  # these numbers are outside the domain
    except Exception as error:
        yield Issue(
            "raises",
            f"{call}: its bprop raises {first_line(error)}",
            "let the bprop take (*inputs, out, dout) and be made of ops",
        )
        return
    yield from _returned(call, gradients)


def _returned(call: Call, gradients: Any) -> Iterator[Issue]:
    count = len(call.args())
    if not isinstance(gradients, tuple) or len(gradients) != count:
        got = f"{len(gradients)}" if isinstance(gradients, (tuple, list)) else "one"
        yield Issue(
            "count",
            f"{call}: its bprop returns a {type(gradients).__name__} of {got}; "
            f"{call.primitive.name} has {count} inputs",
            "return a tuple with one gradient per input, None where there is none, as (dx,)",
        )
        return
    consts = {i for i, _ in call.primitive._const} if call.consts else set()
    passed = [g for i, g in enumerate(gradients) if i not in consts]
    largest = call.inferred[0].shape
    for i, (gradient, x) in enumerate(zip(passed, call.arrays)):
        if gradient is None or not is_float(x.dtype):
            continue
        if not isinstance(gradient, Tensor):
            got = type(gradient).__name__
        elif gradient.dtype == x.dtype and gradient.shape in (x.shape, largest):
            continue
        else:
            got = typed(gradient)
        yield Issue(
            f"gradient {i}",
            f"{call}: its bprop returns {got} for input {i}, which is {Abstract(x.shape, x.dtype)}",
            "return a gradient of the input's shape and dtype; for an input that was broadcast, "
            "the output's shape will do",
        )


def unchanged(call: Call) -> Iterator[Issue]:
    """Inputs, outputs and cotangents keep their bits while the bprop runs."""
    try:
        _, changed = ran(call)
    except MinimlError:
        return  # the bprop check reports it
    for name in changed:
        yield Issue(
            "changed",
            f"{call}: the bprop changes {name}",
            "make the bprop of ops only; do not write into the memory of tensors",
        )
