"""Gradient transforms of functions: grad, value_and_grad, vjp, jvp, custom_bprop, hook_gradient.

After grad, value_and_grad, vjp and jvp stand the `Weights` that a gradient is with respect to, with
the structure that they are given in; `custom_bprop`, a Python function that carries its own
gradient; and `hook_gradient`, a function of the gradient that passes through a value.
Then jacobians, Hessians and Hessian-vector products, made of these; and `recomputed`, a function of
which a gradient keeps the inputs alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache, wraps
from operator import index, itemgetter
from types import MethodType
from typing import Any, Protocol, TypeVar, runtime_checkable

import numpy as np
import optree

from .. import ops
from ..core.abstract import Kind, is_complex, is_float, is_inexact, typed
from ..core.errors import BpropError, DeclarationError, GradientArgumentError, ShapeError
from ..core.hints import hide_frames, hides_frames
from ..core.options import flag
from ..core.parameter import Parameter
from ..core.primitive import Same
from ..core.tensor import Tensor
from ..core.trace import computes_at_once, current_trace, partition
from ..graph.ir import is_result
from ..graph.tracing import TracedTensor, as_tensor, by_position
from ..ops.checks import on_device_of
from .batching import vmap
from .forward import along, moved_or_zeros, pushed
from .reverse import (
    Linearized,
    called,
    checked_argnums,
    checked_function,
    cotangents,
    linearize,
    name_of,
)

__all__ = [
    "custom_bprop", "grad", "hessian", "hook_gradient", "hvp", "jacfwd",
    "jacobian", "jacrev", "jvp", "per_example", "value_and_grad", "vjp",
]  # fmt: skip

Function = Callable[..., Any]
ArgNums = int | Sequence[int] | None


def grad(
    fn: Function,
    argnums: ArgNums = 0,
    has_aux: bool = False,
    weights: Given | None = None,
    holomorphic: bool = False,
) -> Function:
    """The function that returns the gradient of fn's float value of size 1.

    argnums, weights, holomorphic and keywords are as for `value_and_grad`. With `has_aux`, fn
    returns (value, aux) and the result is (gradient, aux). GradientArgumentError names an argument
    that is not made of floats.

    >>> grad(lambda x: ops.sum(x * x))(np.array([1.0, 2.0]))
    Tensor([2., 4.], shape=(2,), dtype=float64)
    """
    part = (lambda both: (both[1], both[0][1])) if has_aux else itemgetter(1)
    return _value_and_grad("grad", fn, argnums, has_aux, weights, holomorphic, part)


def value_and_grad(
    fn: Function,
    argnums: ArgNums = 0,
    has_aux: bool = False,
    weights: Given | None = None,
    holomorphic: bool = False,
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

    With respect to a complex z = x + iy the gradient of a float is df/dx - i df/dy, as in JAX.
    holomorphic: fn maps complex numbers to one complex number by a complex derivative, which is
    returned; without it a complex value is refused.

    >>> value_and_grad(lambda x: x * x)(3.0)
    (Tensor(9., shape=(), dtype=float32), Tensor(6., shape=(), dtype=float32))
    """
    return _value_and_grad("value_and_grad", fn, argnums, has_aux, weights, holomorphic)


def _value_and_grad(
    who: str,
    fn: Function,
    argnums: ArgNums,
    has_aux: bool,
    weights: Given | None,
    holomorphic: bool,
    part: Function | None = None,
) -> Function:
    chosen = None if weights is None else Weights.of(weights)
    checked = checked_function(who, fn), checked_argnums(argnums)
    whole = flag(who, "holomorphic", holomorphic)
    by = fn if isinstance(fn, MethodType) else Same(fn)  # methods are made anew for each call
    return called(_Gradient(*checked, has_aux, chosen, whole, by), fn, part)


@dataclass(frozen=True)
class _Gradient:
    """value_and_grad of one function, hashable: equal settings share one compiled program. by: what
    tells functions apart; objects that their class calls equal may compute different things."""

    fn: Function = field(compare=False)
    argnums: ArgNums
    has_aux: bool
    weights: Weights | None
    holomorphic: bool
    by: object

    def __call__(self, *args: Any, **named: Any) -> tuple[Any, Any]:
        one = isinstance(self.argnums, int)
        numbers: Any = () if self.argnums is None else (self.argnums,) if one else self.argnums
        parameters = () if self.weights is None else self.weights.parameters
        found = linearize(self.fn, args, numbers, parameters, self.has_aux, named)
        if self.holomorphic:
            _needs_complex_arguments("grad", self.fn, found)
        dout = _seed(_scalar(self.fn, found.out, self.holomorphic))
        trees, by_weight = found.pull([dout], name_of(self.fn) if self.argnums is None else "")
        by_argument = trees[0] if one else trees
        gradients = by_argument
        if self.weights is not None:
            arranged = self.weights.arranged(by_weight)
            gradients = arranged if self.argnums is None else (by_argument, arranged)
        return ((found.out, found.aux) if self.has_aux else found.out), gradients

    @property
    def __name__(self) -> str:
        return f"grad({name_of(self.fn)})"


def _seed(out: Tensor) -> Tensor:
    """The cotangent of a scalar with respect to itself; without a call of an op if it is known."""
    if isinstance(out, TracedTensor):
        return ops.ones_like(out)
    known = type(out) is Tensor
    return _ones(out._kind if known else Kind.of(Tensor, out.shape, out.dtype, out.device))


@lru_cache(64)
def _ones(kind: Kind) -> Tensor:
    return Tensor.of_host(np.ones(kind.abstract.shape, kind.abstract.dtype), kind)


def _scalar(fn: Function, out: Any, holomorphic: bool) -> Tensor:
    right = is_complex if holomorphic else is_float
    if isinstance(out, Tensor) and (known := out._abstract).size == 1 and right(known.dtype):
        return out
    what = typed(out) if isinstance(out, Tensor) else type(out).__name__
    if holomorphic:
        raise GradientArgumentError(
            f"grad of {name_of(fn)} with holomorphic=True needs one complex number; it returned "
            f"{what}; leave holomorphic out for a function that returns a float"
        )
    if isinstance(out, Tensor) and is_complex(out.dtype):
        raise GradientArgumentError(
            f"grad of {name_of(fn)} needs one float of size 1; it returned {what}; return a float "
            "such as its abs, say holomorphic=True if it has a complex derivative, or use vjp"
        )
    raise GradientArgumentError(
        f"grad of {name_of(fn)} needs one float of size 1; it returned "
        f"{what}; reduce it (.sum()), or use vjp or jacobian"
    )


def _needs_complex_arguments(who: str, fn: Function, found: Linearized) -> None:
    """GradientArgumentError where a function said to be holomorphic is derived by real numbers."""
    variables = [v for vs, _ in found.wrt for v in vs] + list(found.weights)
    for variable in variables:
        if not is_complex(variable.abstract.dtype):
            raise GradientArgumentError(
                f"{who} of {name_of(fn)} with holomorphic=True got {variable.abstract}; a "
                "holomorphic function takes complex numbers: cast it, or leave holomorphic out"
            )


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

    In one pass, which keeps nothing: a primitive moves tangents by its jvp rule (`jvp_rules`), by
    what its class says (`linear`, `elementwise`), else by the gradient of its gradient. `tangents`
    have the structure, shapes and dtypes of `primals`. The tangent of an integer output is None.
    GradientArgumentError for what is no tuple, and for tuples of unequal lengths.

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
    return along(checked_function("jvp", fn), primals, tangents)


# --- Weights --------------------------------------------------------------------------------------


@runtime_checkable
class Trainable(Protocol):
    """An object with parameters to train, such as a Cell."""

    def trainable_params(self) -> list[Parameter]:
        """The parameters, in order."""


Given = Trainable | Parameter | Sequence["Given"] | Mapping[str, "Given"]


@dataclass(frozen=True)
class Weights:
    """Parameters, told apart by which they are, and the structure in which they were given."""

    parameters: tuple[Parameter, ...] = field(compare=False)
    each: tuple[Same, ...]
    structure: optree.PyTreeSpec

    @staticmethod
    def of(given: Given) -> Weights:
        """The weights in an argument `weights`; GradientArgumentError for anything else."""
        tree = _tree(given)
        known = isinstance(tree, (Parameter, tuple, dict))
        if not known:
            raise GradientArgumentError(f"weights is {_what(given)}; {_INSTEAD}")
        leaves, structure = optree.tree_flatten(tree, none_is_leaf=True)
        parameters = _checked(leaves)
        return Weights(parameters, tuple(map(Same, parameters)), structure)

    def arranged(self, gradients: tuple[Any, ...]) -> Any:
        """The gradients, one per parameter, in that structure, with tuples for lists and cells."""
        return self.structure.unflatten(gradients)


def _tree(given: Any) -> Any:
    """Cells, lists and dicts as tuples and dicts of parameters; all else as it is."""
    if isinstance(given, Mapping):
        return {name: _tree(value) for name, value in given.items()}
    if isinstance(given, Trainable) and not isinstance(given, (type, Parameter)):
        return tuple(given.trainable_params())
    return tuple(map(_tree, given)) if isinstance(given, (list, tuple, Iterator)) else given


_INSTEAD = (
    "give a Cell, a float Parameter, or a list or dict of them, such as net.trainable_params()"
)


def _what(given: object) -> str:
    if callable(given) and hasattr(given, "__name__"):
        return f"the function {given.__name__}, which nobody has called"
    return f"{given!r} of type {type(given).__name__}"


def _checked(given: Any) -> tuple[Parameter, ...]:
    parameters = tuple(given)
    for weight in parameters:
        if not (isinstance(weight, Parameter) and is_inexact(weight.dtype)):
            raise GradientArgumentError(f"weights holds {weight!r}; {_INSTEAD}")
        if sum(weight is other for other in parameters) > 1:
            raise GradientArgumentError(
                f"weights holds parameter {weight.name!r} twice; name each once"
            )
    return parameters


# --- custom_bprop: functions with their own gradient ----------------------------------------------


F = TypeVar("F", bound=Callable[..., Any])


def custom_bprop(bprop: Callable[..., tuple[Any, ...]]) -> Callable[[F], F]:
    """Decorator: give a function of trees the gradient `bprop(*args, out, dout)`.

    `out` is the function's result and `dout` its cotangent, of the same structure, with None for
    leaves that are not tensors. The bprop returns a tuple with one gradient per argument, in order:
    a tree of the argument's structure, or None where there is none. Keywords of a call reach the
    bprop in their positions, after the defaults of what was left out before them. The bprop is
    made of `ops`, and is differentiated where a gradient of the gradient is asked for. A gradient
    reaches the arguments only: parameters and other values that the function uses are constants.

    Eagerly the function is called with values, so it may compute them in any way, with NumPy too.

    >>> from miniml.grad import grad
    >>> @custom_bprop(lambda x, out, dout: (dout * 2.0 * x,))
    ... def square(x):
    ...     return x * x
    >>> grad(square)(3.0)
    Tensor(6., shape=(), dtype=float32)
    """
    _check(bprop, "a bprop", "as in @custom_bprop(lambda x, out, dout: (dx,))")

    def give(fn: F) -> F:
        _check(fn, "a function", "written under @custom_bprop(bprop)")
        name = getattr(fn, "__name__", type(fn).__name__)

        @wraps(fn)
        def call(*args: Any, **named: Any) -> Any:
            given = by_position(name, fn, args, named)
            return current_trace().call_with_bprop(name, fn, bprop, given)

        return call  # type: ignore[return-value]

    return give


def _check(value: object, expected: str, how: str) -> None:
    if not callable(value):
        raise DeclarationError(f"custom_bprop takes {expected}, {how}; got {value!r}")


# --- hook_gradient: functions of a passing gradient -----------------------------------------------


Change = Callable[[Tensor], Tensor | None]


def hook_gradient(x: Any, fn: Change) -> Any:
    """x itself; where a gradient passes through it, `fn(gradient)` is called.

    The result of fn, if not None, replaces the gradient, and has its shape and dtype. fn is
    made of `ops` and is differentiated with the gradient; in a compiled function it is traced.
    Nothing happens where no gradient is asked for. DeclarationError for a fn that cannot be called.

    >>> from miniml.grad import grad
    >>> grad(lambda x: hook_gradient(x * x, lambda g: 10.0 * g))(3.0)
    Tensor(60., shape=(), dtype=float32)
    """
    if not callable(fn):
        raise DeclarationError(f"hook_gradient got {fn!r}; give a function of the gradient")
    who = f"the gradient hook {name_of(fn)}"

    def bprop(x: Any, out: Any, dout: Any) -> tuple[Any]:
        found = _returned(who, fn, dout)
        return (dout if found is None else checked(who, BpropError, found, dout),)

    return current_trace().call_with_bprop(who, lambda x: x, bprop, (x,))


def _returned(who: str, fn: Callable[..., Any], *args: Any) -> Any:
    """The result of a hook; errors that it raises get a note that names it."""
    try:
        return fn(*args)
    except Exception as error:
        error.add_note(f"in {who}")
        raise


def checked(who: str, kind: type[Exception], got: Any, expected: Any) -> Any:
    """The replacement that a hook returned for a value; an error of this kind unless both have
    tensors of the same shapes and dtypes in the same structure."""
    given, structure = optree.tree_flatten(got, none_is_leaf=True)
    leaves, same = optree.tree_flatten(expected, none_is_leaf=True)
    if structure != same:
        raise kind(f"{who} returned {_kind_of(got)} in place of {_kind_of(expected)}")
    for new, old in zip(given, leaves, strict=True):
        if isinstance(old, Tensor) and (
            not isinstance(new, Tensor) or new.shape != old.shape or new.dtype != old.dtype
        ):
            raise kind(
                f"{who} returned {_kind_of(new)} in place of {typed(old)}; return a tensor of the "
                "same shape and dtype, or None to leave it as it is"
            )
        if old is None and new is not None:
            raise kind(
                f"{who} returned {_kind_of(new)} where no gradient passes; return None there"
            )
    return got


def _kind_of(value: Any) -> str:
    if isinstance(value, Tensor):
        return typed(value)
    count = f" of {len(value)}" if isinstance(value, (tuple, list, dict)) else ""
    return f"{type(value).__name__}{count}"


# --- Jacobians, Hessians and Hessian-vector products ----------------------------------------------


def jacobian(fn: Function, argnums: int = 0, holomorphic: bool = False) -> Function:
    """The function that returns d fn / d argument, of shape out.shape + argument.shape.

    By `jacfwd` where the argument has fewer elements than the output, else by `jacrev`; of a real
    argument and a complex output by `jacfwd`, and the reverse by `jacrev`. holomorphic: both are
    complex, and fn has a complex derivative. Where the
    output or the argument is a tree, the result has the output's structure, with the argument's
    structure for each of its leaves.

    >>> jacobian(lambda x: x * x)(np.array([1.0, 2.0])).tolist()
    [[2.0, 0.0], [0.0, 4.0]]
    """
    return _jacobian("jacobian", fn, argnums, holomorphic)


def jacfwd(fn: Function, argnums: int = 0, holomorphic: bool = False) -> Function:
    """`jacobian` by forward mode: one tangent for each element of the argument, all at once."""
    return _jacobian("jacfwd", fn, argnums, holomorphic)


def jacrev(fn: Function, argnums: int = 0, holomorphic: bool = False) -> Function:
    """`jacobian` by reverse mode: one cotangent for each element of the output, all at once."""
    return _jacobian("jacrev", fn, argnums, holomorphic)


def _jacobian(who: str, fn: Function, argnums: int, holomorphic: bool) -> Function:
    argnum = _one_argument(who, argnums)
    flag(who, "holomorphic", holomorphic)

    def derive(*args: Any, **named: Any) -> Any:
        found = linearize(fn, args, (argnum,), named=named)
        outs = found.out_spec.flatten_up_to(found.out)
        if not all(map(_varies, outs)):
            raise GradientArgumentError(f"{who} needs a function that returns float tensors")
        if holomorphic:
            _needs_complex_arguments(who, fn, found)
        forward = _goes_forward(who, fn, [v.abstract for v in found.wrt[0][0]], outs, holomorphic)
        way = _columns if forward else _rows
        spec = found.wrt[0][1]
        return found.out_spec.unflatten([spec.unflatten(blocks) for blocks in way(found, outs)])

    derive.__name__ = f"{who}({name_of(checked_function(who, fn))})"
    return called(derive, fn)


def _goes_forward(
    who: str, fn: Function, inputs: Sequence[Any], outs: Sequence[Tensor], holomorphic: bool
) -> bool:
    """True for forward mode: a unit tangent says all of a real argument, a unit cotangent all of a
    real output, and either all of a complex derivative. GradientArgumentError where neither does.
    """
    takes, gives = (any(is_complex(x.dtype) for x in xs) for xs in (inputs, outs))
    fewer = sum(x.size for x in inputs) < sum(o.size for o in outs)
    ways = {"jacfwd": (True,), "jacrev": (False,)}.get(who, (fewer, not fewer))
    for forward in ways:
        if holomorphic or not (takes if forward else gives):
            return forward
    sides = " and a complex ".join(["argument"] * takes + ["output"] * gives)
    raise GradientArgumentError(
        f"{who} of {name_of(fn)} got a complex {sides}, of which a number has two derivatives; say "
        "holomorphic=True if the function has a complex derivative, or derive by real and "
        "imaginary parts"
    )


def _rows(found: Linearized, outs: Sequence[Tensor]) -> list[list[Any]]:
    """For each output its blocks, by argument leaf: pull-backs of all unit cotangents at once."""
    variables, spec = found.wrt[0]
    blocks = []
    for i, out in enumerate(outs):

        def pull(dout: Any, i: int = i) -> list[Any]:
            douts = [dout if k == i else None for k in range(len(found.targets))]
            return list(spec.flatten_up_to(found.pull(douts)[0][0]))

        rows = vmap(pull)(_units(out))
        shapes = [(*out.shape, *v.abstract.shape) for v in variables]
        blocks.append(list(map(ops.reshape, rows, shapes)))
    return blocks


def _columns(found: Linearized, outs: Sequence[Tensor]) -> list[list[Any]]:
    """The same blocks forward: unit tangents of all elements of the argument, sent at once."""
    variables, _ = found.wrt[0]
    blocks: list[list[Any]] = [[] for _ in outs]
    for i, variable in enumerate(variables):

        def send(tangent: Any, i: int = i) -> list[Any]:
            given = tuple([tangent if k == i else None for k in range(len(variables))])
            return list(map(moved_or_zeros, pushed(found, given), outs))

        given = variable.abstract
        with on_device_of(outs[0]):
            units = _units(ops.zeros(given.shape, given.dtype))
        for k, column in enumerate(vmap(send)(units)):
            shape = (*outs[k].shape, *given.shape)
            blocks[k].append(ops.reshape(ops.moveaxis(column, 0, -1), shape))
    return blocks


def _units(like: Tensor) -> Tensor:
    """All tensors of that shape with one element 1 and zeros elsewhere, stacked."""
    units = np.eye(like.size, dtype=like.dtype).reshape(like.size, *like.shape)
    with on_device_of(like):
        return Tensor(units)


def per_example(fn: Function, argnums: ArgNums = 0, weights: Given | None = None) -> Function:
    """The function of batches that returns the gradient of fn for each example: `grad` under
    `vmap`. All arguments have the examples along their first axis, and so have the gradients.

    >>> per_example(lambda x: ops.sum(x * x))(np.array([[1.0, 2.0], [3.0, 4.0]])).tolist()
    [[2.0, 4.0], [6.0, 8.0]]
    """
    return vmap(grad(fn, argnums, weights=weights))


def _one_argument(who: str, argnums: Any) -> int:
    try:
        return index(argnums)
    except TypeError:
        raise GradientArgumentError(
            f"{who} got argnums={argnums!r}; it is an int, the position of one argument: call "
            f"{who} for each, or have fn take one tuple of them"
        ) from None


def hessian(fn: Function, argnums: int = 0) -> Function:
    """The function that returns the second derivatives of a scalar fn: x.shape + x.shape.

    >>> hessian(lambda x: ops.sum(x * x * x))(np.array([1.0, 2.0])).tolist()
    [[6.0, 0.0], [0.0, 12.0]]
    """
    argnum = _one_argument("hessian", argnums)
    return jacfwd(grad(checked_function("hessian", fn), argnum), argnum)


@hides_frames
def hvp(fn: Function, xs: Any, vs: Any) -> Any:
    """The Hessian of a scalar fn at xs times vs, without forming the Hessian.

    xs, vs: one array or tree each, or tuples of as many as fn has arguments; the result likewise.
    ShapeError for vs of another structure, GradientArgumentError for no arguments.

    >>> hvp(lambda x: ops.sum(x * x * x), np.array([1.0, 2.0]), np.array([1.0, 0.0])).tolist()
    [6.0, 0.0]
    """
    checked_function("hvp", fn)
    if isinstance(xs, tuple) and not xs:
        raise GradientArgumentError("hvp got no arguments; give the point in xs")
    vs = tuple(vs) if isinstance(vs, list) and isinstance(xs, tuple) else vs
    single = not isinstance(xs, tuple)
    points, directions = ((xs,), (vs,)) if single else (xs, vs)

    if not isinstance(directions, tuple) or len(points) != len(directions):
        raise ShapeError(
            f"hvp got vs of another structure than xs: {_kind_of(directions)} for "
            f"{_kind_of(points)}; give one for each"
        )
    slopes = grad(fn, tuple(range(len(points))))
    _, products = along(slopes, points, directions, "hvp got vs")
    return products[0] if single else products


# --- Activation checkpointing ---------------------------------------------------------------------


def recomputed(fn: F) -> F:
    """`fn`, of which a gradient keeps the inputs alone (activation checkpointing)."""
    if not callable(fn):
        raise DeclarationError(f"recompute got {fn!r}; give a function of tensors, or a Cell")
    name = f"recompute of {name_of(fn)}"

    @wraps(fn)
    def called(*args: Any, **named: Any) -> Any:
        given = partition((args, named), is_result)

        def of_tensors(*tensors: Any) -> Any:
            by_position, by_keyword = given.filled(tensors)
            return fn(*by_position, **by_keyword)

        tensors = list(map(as_tensor, given.taken()))
        return current_trace().call_recomputed(name, of_tensors, _pull, tensors)

    return called  # type: ignore[return-value]


def _pull(again: Callable[..., Any], values: Sequence[Any], dout: Any) -> tuple[Any, ...]:
    """The gradients of the values, None for those that are not floats."""
    if not computes_at_once():
        values = _fenced(values, dout)
    floats = [i for i, x in enumerate(values) if is_inexact(x.dtype)]

    def of_floats(*xs: Any) -> Any:
        known = dict(zip(floats, xs, strict=True))
        return again([known.get(i, x) for i, x in enumerate(values)])

    _, back = vjp(of_floats, *[values[i] for i in floats])
    found = dict(zip(floats, back(dout), strict=True))
    return tuple(found.get(i) for i in range(len(values)))


def _fenced(values: Sequence[Any], dout: Any) -> list[Any]:
    """The values behind barriers that wait for the cotangent, so that in a graph their
    recomputation is neither merged with the forward computation nor scheduled early."""
    after = next(d for d in partition(dout, _varies).taken())
    return [ops.barrier(x, after) if is_inexact(x.dtype) else x for x in values]


def _varies(out: Any) -> bool:
    return isinstance(out, Tensor) and is_inexact(out.dtype)
