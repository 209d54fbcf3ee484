"""Has the bprop the right form, whatever cotangent it gets, and does it leave everything alone?"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from ....abstract import Abstract
from ....bprop import bprop_getters
from ....dtype import float64, is_float
from ....errors import BpropNotFoundError, MinimlError, OutOfRangeError
from ....tensor import Tensor
from ...calls import Array, Arrays, Call
from ...tolerance import limits_of
from ..draws.layouts import laid_out, named, usual
from ..session import Problem
from ..vjp import Slope
from .accuracy import apart

_POWERS = (2.0**10, 2.0**-10)


def graded(call: Call) -> bool:
    """True for calls with float inputs and outputs that gradients should pass."""
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


def bprop(call: Call) -> Iterator[Problem]:
    """The bprop gives a tuple with one gradient per input, of the input's shape and dtype."""
    primitive = call.primitive
    if not has_bprop(call):
        yield Problem(
            "missing",
            f"{primitive.name} has no bprop, so no gradient passes through it",
            f"register one with @bprop_getters.register({type(primitive).__name__}), or set "
            "differentiable = False in the class",
        )
        return
    tensors = [Tensor(a) for a in call.arrays]
    outs = [Tensor(o) for o in call.run(tuple(tensors))]
    rng = np.random.default_rng(0)
    douts = [Tensor(_ones(o, rng)) if is_float(o.dtype) else None for o in outs]
    args = (
        *call.args(tuple(tensors)),
        primitive.unwrap(tuple(outs)),
        primitive.unwrap(tuple(douts)),
    )
    try:
        gradients = bprop_getters.get(primitive)(*args)
    except (BpropNotFoundError, OutOfRangeError):
        return  # a bprop that refuses, and says what to do instead, or refuses these numbers
    except np.linalg.LinAlgError:
        raise  # these numbers are outside the domain
    except Exception as error:
        yield Problem(
            "raises",
            f"{call}: its bprop raises {_first_line(error)}",
            "let the bprop take (*inputs, out, dout) and be made of ops",
        )
        return
    yield from _returned(call, gradients)


def _ones(out: Tensor, rng: np.random.Generator) -> Array:
    return np.asarray(rng.uniform(0.5, 1.5, out.shape)).astype(out.dtype)


def _returned(call: Call, gradients: Any) -> Iterator[Problem]:
    name = call.primitive.name
    count = len(call.args())
    if not isinstance(gradients, tuple) or len(gradients) != count:
        came = f"{len(gradients)}" if isinstance(gradients, (tuple, list)) else "one"
        yield Problem(
            "count",
            f"{call}: its bprop returns a {type(gradients).__name__} of {came}; {name} has "
            f"{count} inputs",
            "return a tuple with one gradient per input, None where there is none, as (dx,)",
        )
        return
    consts = {i for i, _ in call.primitive._const} if call.consts else set()
    passed = [g for i, g in enumerate(gradients) if i not in consts]
    largest = call.inferred[0].shape
    for i, (gradient, x) in enumerate(zip(passed, call.arrays)):
        if gradient is None or not is_float(x.dtype):
            continue
        wanted = Abstract(x.shape, x.dtype)
        if not isinstance(gradient, Tensor):
            came = type(gradient).__name__
        elif gradient.dtype == x.dtype and gradient.shape in (x.shape, largest):
            continue
        else:
            came = str(Abstract(gradient.shape, gradient.dtype))
        yield Problem(
            f"gradient {i}",
            f"{call}: its bprop returns {came} for input {i}, which is {wanted}",
            "return a gradient of the input's shape and dtype; for an input that was broadcast, "
            "the output's shape will do",
        )


def cotangents(call: Call) -> Iterator[Problem]:
    """Strided, broadcast, zero and large cotangents give what contiguous ones of ordinary size
    give, and nothing that the backward is given changes."""
    slope = Slope(call)
    rng = np.random.default_rng(0)
    douts = slope.cotangents(rng)
    if not all(d.size for d in douts):
        return
    try:
        right = _pulled(slope, (*slope.xs, *douts))
    except MinimlError:
        return  # the check of the bprop says why
    yield from _unchanged(slope, douts)
    yield from _strided(slope, douts, right)
    yield from _scaled(slope, douts, right)
    zero = tuple(np.zeros_like(d) for d in douts)
    for i, g in enumerate(_pulled(slope, (*slope.xs, *zero))):
        if g.astype(float64).any() and np.isfinite(right[i].astype(float64)).all():
            yield Problem(
                "zero",
                f"{call}: gradient {i} is not zero for cotangents of zeros; it is {g!r}",
                "let every term of the bprop have a factor of dout",
            )


def _scaled(slope: Slope, douts: Arrays, right: Arrays) -> Iterator[Problem]:
    """Cotangents 2^10 times as large, and as small: powers of 2 change no rounding."""
    for by in _POWERS if all(d.dtype.itemsize > 2 for d in (*douts, *right)) else ():
        scaled = tuple(np.asarray(d * d.dtype.type(by)) for d in douts)
        with np.errstate(all="ignore"):
            pulled = _pulled(slope, (*slope.xs, *scaled))
            got = tuple(_divided(g, by, r) for g, r in zip(pulled, right))
        wrong = _difference(slope, got, right, (*slope.xs, *douts))
        if wrong is not None:
            yield Problem(
                "not linear",
                f"{slope.call}: for cotangents {by:g} times as large the gradient is not {by:g} "
                f"times as large: divided by that, gradient {wrong}",
                "let every term of the bprop have one factor of dout; clip gradients outside of it",
            )
            return


def _divided(gradient: Array, by: float, right: Array) -> Array:
    """What is `by` times `right`, divided by that; `right` where the dtype has no such number."""
    limits, size = limits_of(right.dtype), np.abs(right.astype(float64)) * by
    kept = (size < 0.98 * float(limits.max)) & (size > float(limits.tiny))
    return np.where(kept | (right == 0), gradient / gradient.dtype.type(by), right)


def _strided(slope: Slope, douts: Arrays, right: Arrays) -> Iterator[Problem]:
    """Cotangents in other layouts, alone and with the inputs, against contiguous ones."""
    call = slope.call
    count = len(call.arrays)
    every = len(call.arrays) + len(call.inferred)
    for tried in call.layouts or usual(every, 2):
        inputs = laid_out(call.arrays, tried[:count])
        laid = _floats_in(tried[count:], call)
        given = laid_out(douts, laid)
        for beside in (False, True):
            xs = tuple(inputs[i] for i in slope.places) if beside else slope.xs
            repeated = any(0 in a.strides for a in (*xs, *given))  # then the numbers are others
            dense = _dense((*xs, *given))
            expected = _pulled(slope, dense) if repeated else right
            wrong = _difference(slope, _pulled(slope, (*xs, *given)), expected, dense)
            if wrong is not None:
                what = named(laid, "cotangent")
                what += f" and {named(tried[:count], 'input')}" if beside else ""
                yield Problem(
                    "strided",
                    f"{call}: with {what} gradient {wrong} (as for contiguous ones)",
                    "let every kernel in the bprop follow strides",
                    call=replace(call, layouts=(tried,)),
                )


def _floats_in(layouts: tuple[str, ...], call: Call) -> tuple[str, ...]:
    """The layouts of outputs that have a cotangent."""
    return tuple(layout for layout, o in zip(layouts, call.inferred) if is_float(o.dtype))


def _pulled(slope: Slope, xs_and_douts: Arrays) -> Arrays:
    given = [Tensor.wrap(a.view(), "cpu") for a in xs_and_douts]
    return tuple(g.asnumpy() for g in slope.pulled(*given))


def _dense(arrays: Arrays) -> Arrays:
    return tuple(np.array(a, order="C") for a in arrays)


def _unchanged(slope: Slope, douts: Arrays) -> Iterator[Problem]:
    """Inputs, outputs and cotangents keep their bits while the bprop runs."""
    call = slope.call
    tensors = [Tensor(a) for a in call.arrays]
    outs = [Tensor(o) for o in call.run(tuple(tensors))]
    cotangents = iter([Tensor(d) for d in douts])
    given = [next(cotangents) if is_float(o.dtype) else None for o in outs]
    watched = {f"input {i}": t for i, t in enumerate(tensors)}
    watched |= {f"output {i}": t for i, t in enumerate(outs)}
    watched |= {f"cotangent {i}": t for i, t in enumerate(given) if t is not None}
    before = {name: t.asnumpy().tobytes() for name, t in watched.items()}
    unwrap = call.primitive.unwrap
    pulled = bprop_getters.get(call.primitive)
    pulled(*call.args(tuple(tensors)), unwrap(tuple(outs)), unwrap(tuple(given)))
    for name, tensor in watched.items():
        if tensor.asnumpy().tobytes() != before[name]:
            yield Problem(
                "changed",
                f"{call}: the bprop changes {name}",
                "make the bprop of ops only; do not write into the memory of tensors",
            )


def _difference(slope: Slope, got: Arrays, right: Arrays, given: Arrays) -> str | None:
    """What differs by more than rounding explains. given: the inputs and cotangents."""
    wrong = apart(replace(slope.call, arrays=given), got, right, partial(_pulled, slope), given)
    return None if wrong is None else f"{wrong[0]} {wrong[1]}"


def _first_line(error: Exception) -> str:
    return f"{type(error).__name__}: {str(error).partition(chr(10))[0]}"
