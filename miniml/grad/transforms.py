"""Gradients of functions: grad, value_and_grad, vjp, jvp."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import optree

from .. import ops
from ..abstract import Kind, typed
from ..dtype import is_float
from ..errors import GradientArgumentError
from ..graph.traced import TracedTensor
from ..settings import context
from ..tensor import Tensor
from ..trace import current_trace
from ..tracebacks import hide_frames, hides_frames
from .cotangents import cotangents, tensor_like
from .linearize import checked_function, linearize, name_of
from .weights import Given, Weights

Function = Callable[..., Any]
ArgNums = int | Sequence[int] | None


@dataclass(frozen=True, eq=False)
class _Gradient:
    """value_and_grad of one function, as a value: equal settings share one compiled program."""

    fn: Function
    argnums: ArgNums
    has_aux: bool
    weights: Weights | None

    def __call__(self, *args: Any, **named: Any) -> tuple[Any, Any]:
        numbers = _numbers(self.argnums)
        parameters = () if self.weights is None else self.weights.parameters
        found = linearize(self.fn, args, numbers, parameters, self.has_aux, named)
        dout = _one(_scalar(self.fn, found.out))
        trees, by_weight = found.pull([dout], name_of(self.fn) if self.argnums is None else "")
        by_argument = trees[0] if isinstance(self.argnums, int) else trees
        return ((found.out, found.aux) if self.has_aux else found.out), self._arranged(
            by_argument, by_weight
        )

    def _arranged(self, by_argument: Any, by_weight: tuple[Any, ...]) -> Any:
        if self.weights is None:
            return by_argument
        arranged = self.weights.arranged(by_weight)
        return arranged if self.argnums is None else (by_argument, arranged)

    def _key(self) -> tuple[object, ...]:
        weights = None if self.weights is None else self.weights.key()
        return self.fn, self.argnums, self.has_aux, weights

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Gradient) and self._key() == other._key()

    def __hash__(self) -> int:
        return hash(self._key())

    @property
    def __name__(self) -> str:
        return f"grad({name_of(self.fn)})"


def value_and_grad(
    fn: Function,
    argnums: ArgNums = 0,
    has_aux: bool = False,
    weights: Given | None = None,
) -> Function:
    """The function that returns fn's value and its gradient.

    fn returns one float of size 1, or (value, aux) with `has_aux`. argnums: the positional
    arguments to differentiate, an int or a tuple; the gradient has the argument's structure, in
    which None stays None, or is a tuple of such. Keywords of a call are passed on to fn.

    weights: Parameters to differentiate too: the gradient is then (by argument, by weight), or
    only by weight with argnums=None. By weight it is one tensor for a Parameter, a dict for a
    dict, a tuple for a list, and for a Cell one for each of its present `trainable_params()`.
    It is zero where fn does not use the weight; with argnums=None an fn that uses none of them is
    refused.

    >>> value_and_grad(lambda x: x * x)(3.0)
    (Tensor(9., shape=(), dtype=float32), Tensor(6., shape=(), dtype=float32))
    """
    return _value_and_grad("value_and_grad", fn, argnums, has_aux, weights)


def _value_and_grad(
    who: str, fn: Function, argnums: ArgNums, has_aux: bool, weights: Given | None
) -> Function:
    numbers = argnums if argnums is None or isinstance(argnums, int) else tuple(argnums)
    chosen = None if weights is None else Weights.of(weights)
    return called(_Gradient(checked_function(who, fn), numbers, has_aux, chosen), fn)


def called(gradient: Function, fn: Function) -> Function:
    """The function that asks the current trace to call `gradient`, which takes what `fn` takes."""

    def derived(*args: Any, **named: Any) -> Any:
        try:
            return current_trace().call(gradient, args, named)
        except Exception as error:
            hide_frames(error)
            raise

    derived.__name__ = derived.__qualname__ = gradient.__name__  # errors name it
    derived.__wrapped__ = fn  # type: ignore[attr-defined]  # its arguments have names
    return derived


def grad(
    fn: Function, argnums: ArgNums = 0, has_aux: bool = False, weights: Given | None = None
) -> Function:
    """The function that returns the gradient of fn's float value of size 1.

    argnums, weights and keywords are as for `value_and_grad`. With `has_aux`, fn returns
    (value, aux) and the result is (gradient, aux). GradientArgumentError names an argument that
    is not made of floats.

    >>> grad(lambda x: ops.sum(x * x))(np.array([1.0, 2.0]))
    Tensor([2., 4.], shape=(2,), dtype=float64)
    """
    both = _value_and_grad("grad", fn, argnums, has_aux, weights)

    def derived(*args: Any, **named: Any) -> Any:
        try:
            value, gradients = both(*args, **named)
        except Exception as error:
            hide_frames(error)
            raise
        return (gradients, value[1]) if has_aux else gradients

    derived.__name__ = derived.__qualname__ = both.__name__
    derived.__wrapped__ = fn  # type: ignore[attr-defined]
    return derived


@hides_frames
def vjp(
    fn: Function, *xs: Any, has_aux: bool = False, weights: Given | None = None, **named: Any
) -> tuple[Any, ...]:
    """(out, pull), or (out, pull, aux): the value at xs and the map from dout to (dx, ...).

    `dout` has the structure, shapes and dtypes of `out`; None in it stands for zeros. `pull`
    may be called any number of times, also inside another transform. With `weights`, as for
    `value_and_grad`, it gives ((dx, ...), gradient by weight). Further keywords are passed on to
    fn, and are not differentiated.

    >>> out, pull = vjp(lambda x, y: x * y, 2.0, 3.0)
    >>> pull(Tensor(1.0))
    (Tensor(3., shape=(), dtype=float32), Tensor(2., shape=(), dtype=float32))
    """
    chosen = None if weights is None else Weights.of(weights)
    parameters = () if chosen is None else chosen.parameters
    fn = checked_function("vjp", fn)
    found = linearize(fn, xs, range(len(xs)), parameters, has_aux, named)

    def pull(dout: Any) -> tuple[Any, ...]:
        try:
            by_argument, by_weight = found.pull(cotangents(found.out_spec, found.out, dout))
        except Exception as error:
            hide_frames(error)
            raise
        return by_argument if chosen is None else (by_argument, chosen.arranged(by_weight))

    return (found.out, pull, found.aux) if has_aux else (found.out, pull)


@hides_frames
def jvp(fn: Function, primals: Sequence[Any], tangents: Sequence[Any]) -> tuple[Any, Any]:
    """(out, tangent): the value of fn and its derivative in the direction of `tangents`.

    Computed as the vjp of the vjp, which is linear in its cotangent, so every primitive with a
    bprop has it. `tangents` have the structure, shapes and dtypes of `primals`. The tangent of an
    integer output is None.

    >>> jvp(lambda x: x * x, (3.0,), (1.0,))[1]
    Tensor(6., shape=(), dtype=float32)
    """
    if not (isinstance(primals, (tuple, list)) and isinstance(tangents, (tuple, list))):
        raise GradientArgumentError(
            f"jvp got {type(primals).__name__} and {type(tangents).__name__} for primals and "
            "tangents; each is a tuple with one entry for each argument, as in jvp(f, (x,), (t,))"
        )
    if len(primals) != len(tangents):
        raise GradientArgumentError(
            f"jvp got {len(primals)} primals and {len(tangents)} tangents; give one for each"
        )
    found = linearize(checked_function("jvp", fn), primals, range(len(primals)))
    outs = found.out_spec.flatten_up_to(found.out)
    varying = [i for i, o in enumerate(outs) if isinstance(o, Tensor) and is_float(o.dtype)]

    def pull(*given: Any) -> Any:
        douts = dict(zip(varying, given, strict=True))
        return found.pull([douts.get(i) for i in range(len(outs))])[0]

    # Any point would do where pull is linear; at 0 it would not be NaN where there is no gradient.
    with context(check_nan=False):  # what pull gives there is nobody's
        _, transposed = vjp(pull, *[ops.ones_like(outs[i]) for i in varying])
    directions = tuple(
        optree.tree_map(tensor_like, p, t) for p, t in zip(primals, tangents, strict=True)
    )
    along = dict(zip(varying, transposed(directions), strict=True))
    tangent = found.out_spec.unflatten([along.get(i) for i in range(len(outs))])
    return found.out, tangent


def _numbers(argnums: ArgNums) -> tuple[int, ...]:
    if argnums is None or isinstance(argnums, int):
        return () if argnums is None else (argnums,)
    given = tuple(argnums) if isinstance(argnums, (tuple, list)) else (argnums,)
    if not all(isinstance(n, int) for n in given):
        raise GradientArgumentError(
            f"argnums is {argnums!r}; it is an int, or a tuple of them: the positions of arguments"
        )
    return given


def _one(out: Tensor) -> Tensor:
    """The cotangent of a value itself. Of a value that is known it is made without a call."""
    if isinstance(out, TracedTensor):
        return ops.ones_like(out)
    known = type(out) is Tensor
    return _ones(out._kind if known else Kind.of(Tensor, out.shape, out.dtype, out.device))


@lru_cache(64)
def _ones(kind: Kind) -> Tensor:
    return Tensor.of_host(np.ones(kind.abstract.shape, kind.abstract.dtype), kind)


def _scalar(fn: Function, out: Any) -> Tensor:
    if isinstance(out, Tensor) and out.size == 1 and is_float(out.dtype):
        return out
    what = typed(out) if isinstance(out, Tensor) else type(out).__name__
    raise GradientArgumentError(
        f"grad of {name_of(fn)} needs one float of size 1; it returned "
        f"{what}; reduce it (.sum()), or use vjp or jacobian"
    )
