"""Batching: a function of one example computes all of them at once (vmap).

First `vmap`, which takes the mapped axes of the arguments to the front, runs the function in a
`BatchTrace` and puts the axes of the results where they are asked for. In that trace a value has
the shape of one example, and stands for a tensor of the enclosing trace with an axis of all
examples in front. A call is made once for all of them: by the batch rule of the primitive
(`batch_rules`), by broadcasting where the class says `elementwise` or `batch = "leading"`, else by
a loop over the examples, `ops.scan`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import repeat
from operator import index
from typing import Any, Literal

import numpy as np
import optree

from .. import ops
from ..core.abstract import Abstract, DType, Shape, typed
from ..core.bprop import Getters
from ..core.errors import BatchError, GraphError, ShapeError, TracedValueError, point_at
from ..core.infer import arguments, infer, interleave, written
from ..core.options import choice, count
from ..core.parameter import Parameter
from ..core.primitive import Primitive, PrimitiveWithCheck
from ..core.scope import user_location
from ..core.tensor import Tensor
from ..core.trace import Trace, current_trace, partition, use_trace
from ..graph.ir import Var, is_result
from ..graph.tracing import ForwardingTrace, Function, TracedTensor, as_tensor, live, map_tree
from ..ops.random import Draw
from .reverse import called, checked_function, name_of

Axes = int | None | tuple[Any, ...] | list[Any] | dict[Any, Any]
_SHARED = "pass None in in_axes for what all examples share"
Randomness = Literal["different", "same", "error"]
_RANDOMNESS = ("different", "same", "error")

batch_rules = Getters(
    "batch_rules", "batch rule", "def get_batch(self): return lambda batched, x: self(x)"
)
batches = batch_rules.rule  # of fn(primitive, batched, *inputs)


# --- vmap -----------------------------------------------------------------------------------------


def vmap(
    fn: Function,
    in_axes: Axes = 0,
    out_axes: Axes = 0,
    axis_size: int | None = None,
    randomness: Randomness = "different",
) -> Function:
    """The function that computes fn for every example along an axis, all of them at once.

    in_axes: the axis of the examples in each positional argument, which fn does not see: an int
    for all, or a tuple with an int, None or a tree of them for each argument; None passes an
    argument as it is to every example. Negative axes count from the end. Keywords of a call are
    passed on, not mapped. out_axes: where the axis stands in the results, an int or a tree of
    ints; None where a result is the same for all examples. axis_size: the number of examples,
    needed where no argument is mapped. randomness: "different" draws for each example, "same"
    draws once for all, "error" refuses to draw.

    It nests, and composes with grad, jvp, jit, scan, cond and while_loop. A condition that differs
    between examples computes both branches; a while_loop goes on until the last example has ended.
    Parameters may be read; what assigns them is refused, since there is one of them.
    ShapeError names the argument that has no such axis, or another number of examples.

    >>> rows = np.array([[1.0, 2.0], [3.0, 4.0]], np.float32)
    >>> vmap(lambda row, y: ops.sum(row * y), in_axes=(0, None))(rows, np.array([1, 10]))
    Tensor([21., 43.], shape=(2,), dtype=float32)
    """
    name = f"vmap({name_of(checked_function('vmap', fn))})"
    mode = choice("vmap", "randomness", randomness, _RANDOMNESS)
    into, out_of = _Spread(in_axes), _Spread(out_axes)

    def derive(*args: Any, **named: Any) -> Any:
        tree: Any = args
        leaves, spec = optree.tree_flatten(tree, none_is_leaf=True)
        taken = _taken(name, leaves, into.of_arguments(name, args, spec))
        size = _size(name, taken, axis_size)
        mapped = Mapped(size, mode, name)
        trace = BatchTrace(current_trace(), mapped)
        try:
            given = spec.unflatten([trace.front(t.value, t.axis) for t in taken])
            with use_trace(trace):
                result = fn(*given, **named)
            return _returned(trace, result, out_of)
        except Exception as error:
            _note(error, mapped, taken)
            raise
        finally:
            trace.ended = True

    derive.__name__ = derive.__qualname__ = name
    return called(derive, fn)


@dataclass(slots=True)
class _Taken:
    """A leaf of the arguments, the axis of its examples, and where it stands: its path."""

    value: Any
    axis: int | None
    where: str


class _Spread:
    """The axes that a user gave, for each leaf of trees; what was found of a structure is kept."""

    def __init__(self, axes: Axes):
        self.given = axes
        self.axes: Any = tuple(axes) if isinstance(axes, list) else axes
        self.known: dict[Any, tuple[list[Any], list[str]]] = {}

    def of_arguments(self, name: str, args: Any, spec: Any) -> tuple[list[Any], list[str]]:
        """The axis of each leaf of the arguments, and its path."""
        found = self.known.get(spec)
        if found is not None:
            return found
        if isinstance(self.axes, tuple) and len(self.axes) != len(args):
            raise ShapeError(
                f"{name} got in_axes={self.given!r} for {len(args)} arguments; give an entry for "
                "each, or one int for all"
            )
        paths = [a.codify("args") for a in optree.tree_accessors(args, none_is_leaf=True)]
        found = self._leaves(f"{name} got in_axes", "arguments", args), paths
        return self._kept(spec, found)

    def of_result(self, name: str, result: Any, spec: Any) -> list[Any]:
        """The axis of each leaf of the result."""
        found = self.known.get(spec)
        if found is None:
            axes = self._leaves(f"{name} got out_axes", "result", result)
            found = self._kept(spec, (axes, []))
        return found[0]

    def _kept(self, spec: Any, found: tuple[list[Any], list[str]]) -> tuple[list[Any], list[str]]:
        if len(self.known) >= _STRUCTURES:
            self.known.clear()
        self.known[spec] = found
        return found

    def _leaves(self, who: str, what: str, tree: Any) -> list[Any]:
        try:
            spread = optree.tree_broadcast_prefix(
                self.axes, tree, none_is_leaf=True,
                is_leaf=lambda axis: axis is None or isinstance(axis, (int, np.integer)),
            )  # fmt: skip
        except ValueError as error:
            raise ShapeError(
                f"{who}={self.given!r}, whose structure is no beginning of that of the {what}: "
                f"{error}"
            ) from None
        return optree.tree_leaves(spread, none_is_leaf=True)


_STRUCTURES = 64  # of arguments or results, that one mapped function keeps the axes of


def _taken(name: str, leaves: Sequence[Any], spread: tuple[list[Any], list[str]]) -> list[_Taken]:
    """The leaves of all arguments with their axes."""
    return [
        _checked(name, leaf, axis, where) for leaf, axis, where in zip(leaves, *spread, strict=True)
    ]


def _checked(name: str, leaf: Any, axis: Any, where: str) -> _Taken:
    """The leaf with its axis as a number >= 0; ShapeError where it has none."""
    if axis is None or leaf is None:
        return _Taken(leaf, None, where)
    try:
        number = index(axis)
    except TypeError:
        raise ShapeError(
            f"{name} got in_axes with {axis!r} for {where}; an axis is an int, or None"
        ) from None
    if not hasattr(leaf, "shape") and not isinstance(leaf, np.generic):
        raise ShapeError(
            f"{name} maps axis {number} of {where}, which is {leaf!r} of type "
            f"{type(leaf).__name__} and has no axes; {_SHARED}"
        )
    rank = len(leaf.shape)
    if not -rank <= number < rank:
        raise ShapeError(
            f"{name} maps axis {number} of {where}, which has shape {tuple(leaf.shape)}; "
            + (f"its axes are {-rank} to {rank - 1}" if rank else _SHARED)
        )
    return _Taken(leaf, number % rank, where)


def _size(name: str, taken: Sequence[_Taken], axis_size: int | None) -> int:
    """The number of examples, on which all mapped leaves agree."""
    sizes = {t.where: t.value.shape[t.axis] for t in taken if t.axis is not None}
    if axis_size is not None:
        sizes["axis_size"] = count(name, "axis_size", axis_size, 0)
    if not sizes:
        raise ShapeError(f"{name} maps no argument; give it an axis in in_axes, or axis_size=")
    if len(set(sizes.values())) > 1:
        got = ", ".join(f"{where} has {n}" for where, n in sizes.items())
        raise ShapeError(f"{name} got different numbers of examples: {got}")
    return int(next(iter(sizes.values())))


def _returned(trace: BatchTrace, result: Any, out_of: _Spread) -> Any:
    """The result with the axis of all examples in each of its tensors."""
    leaves, spec = optree.tree_flatten(result, none_is_leaf=True)
    axes = out_of.of_result(trace.mapped.name, result, spec)
    return spec.unflatten(
        [_put(trace, leaf, axis) for leaf, axis in zip(leaves, axes, strict=True)]
    )


def _put(trace: BatchTrace, leaf: Any, axis: Any) -> Any:
    """One leaf of a result, with the axis of all examples in its place."""
    if leaf is None or isinstance(leaf, (str, bytes)):
        return leaf
    if axis is None:
        if trace.owns(leaf):
            raise ShapeError(
                f"{trace.mapped.name} got out_axes=None for a result {typed(leaf)} that differs "
                "between examples; give the axis in which they are to stand"
            )
        return leaf
    whole = trace.whole(as_tensor(trace.stand_in(leaf) if isinstance(leaf, Parameter) else leaf))
    rank = len(whole.shape)
    if not isinstance(axis, (int, np.integer)) or not -rank <= axis < rank:
        raise ShapeError(
            f"{trace.mapped.name} got out_axes={axis!r} for a result of shape {whole.shape[1:]} of "
            f"each example; with them it has axes {-rank} to {rank - 1}"
        )
    return ops.moveaxis(whole, 0, int(axis)) if axis % rank else whole


def _note(error: Exception, mapped: Mapped, taken: Sequence[_Taken]) -> None:
    """Say under which map the error came: shapes in it are those of one example."""
    named = [f"axis {t.axis} of {t.where}" for t in taken if t.axis is not None]
    error.add_note(
        f"under {mapped.name}, which maps {', '.join(named) or 'no argument'}: shapes are those of "
        f"one of {mapped.size} examples"
    )


# --- The trace ------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Mapped:
    """One application of vmap: how many examples there are, and how they draw."""

    size: int
    randomness: str
    name: str


class BatchedTensor(TracedTensor):
    """A value for one example; `value` has those of all along an axis in front."""

    __slots__ = ()

    def _array(self, operation: str) -> Any:
        live(self)
        mapped = self.trace.mapped
        raise TracedValueError(
            f"{operation} on a tensor under {mapped.name}, {typed(self)} for each of {mapped.size} "
            "examples, which have different values; use ops.where for a choice by element, "
            "ops.cond for a branch, ops.while_loop for a loop, or compute it outside of vmap"
        )

    def __repr__(self) -> str:
        return f"Batched({typed(self)} for each of {self.trace.mapped.size})"


class Batched(tuple[bool, ...]):
    """For each input of a call True where it has the axis of all examples, in front. size: their
    number. mapped: the application of vmap."""

    mapped: Mapped

    def __new__(cls, flags: Sequence[bool], mapped: Mapped) -> Batched:
        made = super().__new__(cls, flags)
        made.mapped = mapped
        return made

    @property
    def size(self) -> int:
        """The number of examples."""
        return self.mapped.size


class BatchTrace(ForwardingTrace):
    """The trace of one vmap: calls on values of one example are made for all in the parent."""

    def __init__(self, parent: Trace, mapped: Mapped):
        super().__init__(parent)
        self.mapped, self.ended = mapped, False

    def owns(self, value: Any) -> bool:
        """True for a value that differs between the examples of this map."""
        return type(value) is BatchedTensor and value.trace.mapped is self.mapped

    def wrap(self, whole: Tensor) -> BatchedTensor:
        """The value of one example of a tensor with the axis of all in front."""
        abstract = Abstract(whole.shape[1:], whole.dtype)
        return BatchedTensor(Var(abstract), self, whole.device, whole)

    def front(self, value: Any, axis: int | None) -> Any:
        """An argument, mapped along an axis; or as it is, an array as a tensor, which indices
        that differ between examples can index."""
        if axis is None:
            return as_tensor(value) if isinstance(value, np.ndarray) else value
        known = self.parent.stand_in(value) if isinstance(value, Parameter) else value
        whole = as_tensor(known)
        if axis:
            with use_trace(self.parent):
                whole = ops.moveaxis(whole, axis, 0)
        return self.wrap(whole)

    def whole(self, value: Any) -> Any:
        """The value with the axis of all examples, repeated where they share it."""
        if self.owns(value):
            return value.value
        with use_trace(self.parent):
            return in_front(value, self.mapped.size)

    def bind(self, primitive: Primitive, args: Sequence[Any]) -> tuple[Any, ...]:
        if not any(map(self.owns, args)):
            if not isinstance(primitive, Draw) or self.mapped.randomness != "different":
                return self.parent.bind(primitive, args)
            if len(args) == 1:
                return tuple(map(self.wrap, self.parent.bind(self._drawn(primitive), args)))
        try:
            return self._mapped(primitive, args)
        except Exception as error:
            point_at(error, user_location(primitive.name))
            raise

    def _mapped(self, primitive: Primitive, args: Sequence[Any]) -> tuple[Any, ...]:
        """A call of which some arguments differ between examples."""
        target = written(primitive, args)
        if target is not None:
            raise GraphError(
                f"{self.mapped.name} assigns Parameter {target.name!r} a value that differs "
                f"between {self.mapped.size} examples; return the values, and assign outside"
            )
        if primitive.dynamic_outputs:
            raise GraphError(
                f"{primitive.name} gives shapes that depend on values, which would differ between "
                "examples; call it outside of vmap, or keep the shape, as ops.where does"
            )
        given = [self.stand_in(a) if isinstance(a, Parameter) else a for a in args]
        tensors, consts = arguments(primitive, given, self.bind)
        if consts or isinstance(primitive, PrimitiveWithCheck):
            outs = infer(primitive, interleave(primitive, [t._abstract for t in tensors], consts))
        else:
            outs = _inferred(primitive, *[(t.shape, t.dtype) for t in tensors])
        flags = interleave(primitive, list(map(self.owns, tensors)), dict.fromkeys(consts, False))
        values = interleave(primitive, list(map(self.known, tensors)), consts)
        with use_trace(self.parent):
            results = call_batched(primitive, Batched(flags, self.mapped), values, outs)
        return tuple(map(self.wrap, results))

    def _drawn(self, primitive: Primitive) -> Primitive:
        """The draw without parameters for all examples, from one stream."""
        shape = (self.mapped.size, *primitive.shape)
        return primitive.with_attributes({**primitive.attributes, "shape": shape})

    def reserve(self, blocks: int, generator: Any = None) -> tuple[Any, int]:
        return self.parent.reserve(self._for_all(blocks), generator)

    def blocks_for(self, blocks: int) -> int:
        return self.parent.blocks_for(self._for_all(blocks))

    def _for_all(self, blocks: int) -> int:
        if blocks and self.mapped.randomness == "error":
            raise GraphError(
                f'{self.mapped.name} has randomness="error" and its function draws random numbers; '
                '"different" draws for each example, "same" once for all'
            )
        return blocks * self.mapped.size if self.mapped.randomness == "different" else blocks

    def call_with_bprop(self, name: str, fn: Function, bprop: Function, args: Any) -> Any:
        given = partition(tuple(args), self.owns, none_is_leaf=True)
        if not given.positions:
            return super().call_with_bprop(name, fn, bprop, args)

        def pull_all(*whole: Any) -> Any:
            *taken, out, dout = whole
            trace = BatchTrace(current_trace(), self.mapped)
            with use_trace(trace):
                each = map_tree(trace.one, out), map_tree(trace.one, dout)
                found = bprop(*trace.again(tuple(taken), given.positions), *each)
            return trace.gathered(found, tuple(taken), given.positions)

        outer, of_all = map_tree(self.known, tuple(args)), self.of_all(fn, given.positions)
        with use_trace(self.parent):
            out = self.parent.call_with_bprop(name, of_all, pull_all, outer)
        return map_tree(self.one, out)

    def of_all(self, fn: Function, positions: Sequence[int]) -> Function:
        """The function for all examples, in whatever trace it is called. positions: of the leaves
        of its arguments that have their axis; all its results do."""

        def of_all(*whole: Any) -> Any:
            trace = BatchTrace(current_trace(), self.mapped)
            with use_trace(trace):
                out = fn(*trace.again(whole, positions))
            return map_tree(lambda leaf: trace.whole(leaf) if is_result(leaf) else leaf, out)

        return of_all

    def one(self, whole: Any) -> Any:
        """The value of one example, of a leaf that has the axis of all."""
        return self.wrap(whole) if isinstance(whole, Tensor) else whole

    def again(self, whole: Any, positions: Sequence[int]) -> Any:
        """Arguments of which the leaves at these positions have the axis of all examples."""
        leaves, spec = optree.tree_flatten(whole, none_is_leaf=True)
        inside = set(positions)
        return spec.unflatten([self.wrap(x) if i in inside else x for i, x in enumerate(leaves)])

    def gathered(self, found: Any, taken: tuple[Any, ...], positions: Sequence[int]) -> Any:
        """The gradients of arguments: of a shared one the sum over the examples."""
        if not isinstance(found, tuple) or len(found) != len(taken):
            return found  # refused where it is used, by name
        count, inside = 0, set(positions)
        gradients: list[Any] = []
        for argument, gradient in zip(taken, found, strict=True):
            leaves, spec = optree.tree_flatten(argument, none_is_leaf=True)
            places = range(count, count + len(leaves))
            count += len(leaves)
            if gradient is None:
                gradients.append(None)
                continue
            each = zip(places, spec.flatten_up_to(gradient), strict=True)
            gradients.append(spec.unflatten([self._summed(g, i in inside) for i, g in each]))
        return tuple(gradients)

    def _summed(self, gradient: Any, mapped: bool) -> Any:
        if not isinstance(gradient, Tensor):
            return gradient
        whole = self.whole(gradient)
        with use_trace(self.parent):
            return whole if mapped else ops.sum(whole, axis=0)

    def call_recomputed(self, name: str, fn: Function, pull: Function, args: Sequence[Any]) -> Any:
        positions = [i for i, a in enumerate(args) if self.owns(a)]
        of_all, outer = self.of_all(fn, positions), list(map(self.known, args))
        with use_trace(self.parent):
            out = self.parent.call_recomputed(name, of_all, pull, outer)
        return map_tree(self.one, out)


# --- Calls for all examples -----------------------------------------------------------------------


@lru_cache(4096)
def _inferred(primitive: Primitive, *types: tuple[Shape, DType]) -> tuple[Abstract, ...]:
    """The outputs of a call without const inputs, by the rules of its class."""
    return infer(primitive, tuple([Abstract(*of) for of in types]))


def call_batched(
    primitive: Primitive, batched: Batched, values: Sequence[Any], outs: Sequence[Abstract]
) -> tuple[Any, ...]:
    """The outputs of a call for all examples, in the current trace, with their axis in front.

    outs: what it gives for one example. BatchError for a rule or a fact that gives anything else.
    """
    getter = batch_rules.find(type(primitive))
    if getter is not None:
        found: Any = getter(primitive)(batched, *values)
        results = tuple(found) if isinstance(found, (tuple, list)) else (found,)
        who = f"the batch rule of {primitive.name}"
    elif primitive.elementwise:
        results = current_trace().bind(primitive, aligned(batched, values))
        who = f"{primitive.name}, which says elementwise = True,"
    elif primitive.batch == "leading":  # which speaks of axes in front of all inputs
        results = current_trace().bind(primitive, all_in_front(batched, values))
        who = f'{primitive.name}, which says batch = "leading",'
    else:
        return looped(primitive, batched, values, _instead(primitive))
    if len(results) != len(outs) or not all(map(_fits, results, outs, repeat(batched.size))):
        expected = [((batched.size, *out.shape), out.dtype) for out in outs]
        got = [(tuple(r.shape), r.dtype) if isinstance(r, Tensor) else r for r in results]
        raise BatchError(
            f"{who} gave {_shown(got)} for {batched.size} examples of {', '.join(map(str, outs))}; "
            f"the axis of the examples comes first: {_shown(expected)}"
        )
    return results


def _fits(result: Any, out: Abstract, size: int) -> bool:
    """True for the outputs of `size` examples, of the type `out` each."""
    whole = isinstance(result, Tensor) and result.dtype == out.dtype
    return whole and result.shape == (size, *out.shape)


def _shown(types: Sequence[Any]) -> str:
    return ", ".join(
        f"{t[1].name}[{', '.join(map(str, t[0]))}]" if isinstance(t, tuple) else repr(t)
        for t in types
    )


def aligned(batched: Batched, values: Sequence[Any]) -> list[Any]:
    """The inputs with axes of extent 1 behind that of the examples, so that all broadcast."""
    if len(values) == 1:
        return list(values)
    pairs = list(zip(values, batched, strict=True))
    rank = max([len(v.shape) - flag for v, flag in pairs if isinstance(v, Tensor)])
    return [padded(v, rank) if flag else v for v, flag in pairs]


def padded(whole: Any, rank: int) -> Any:
    """A tensor of all examples, with axes of extent 1 in front of each example, up to a rank."""
    size, *shape = whole.shape
    missing = rank - len(shape)
    return ops.reshape(whole, (size, *[1] * missing, *shape)) if missing > 0 else whole


def in_front(value: Any, size: int) -> Any:
    """A value that all examples share, repeated along an axis in front."""
    return ops.broadcast_to(value, (size, *np.shape(value)))


def _instead(primitive: Primitive) -> str:
    """Advice by which a primitive that has neither rule nor fact becomes one call."""
    name = type(primitive).__name__
    return (
        f"{primitive.name} says nothing of batches: where further axes in front of every input "
        f'are axes in front of every output, batch = "leading" in its class makes it one call, '
        f"else @batch_rules.register({name})"
    )


def looped(
    primitive: Primitive, batched: Batched, values: Sequence[Any], why: str
) -> tuple[Any, ...]:
    """The outputs by a loop over the examples: one compiled loop in a graph. why: the remark that
    `ml.explain` shows, and what would be faster."""
    current_trace().remark(user_location(primitive.name), why)
    rows = [v for v, flag in zip(values, batched, strict=True) if flag]

    def step(_: None, xs: Sequence[Any]) -> tuple[None, tuple[Any, ...]]:
        rest = iter(xs)
        given = [next(rest) if flag else v for v, flag in zip(values, batched, strict=True)]
        return None, current_trace().bind(primitive, given)

    return tuple(ops.scan(step, None, tuple(rows))[0])


def shifted(attribute: str) -> Callable[[Any], Function]:
    """The getter of a batch rule for primitives of one input whose attribute names axes of it."""

    def get_batch(self: Any) -> Function:
        def batch(batched: Batched, x: Any) -> Any:
            axes = behind(getattr(self, attribute), len(x.shape) - 1)
            return self.with_attributes({**self.attributes, attribute: axes})(x)

        return batch

    return get_batch


def behind(axes: Any, rank: int) -> Any:
    """Axes of an example of that rank, as axes behind that of the examples; all of them for
    None."""
    if axes is None:
        return tuple(range(1, rank + 1))
    if isinstance(axes, tuple):
        return tuple([behind(a, rank) for a in axes])
    return axes % rank + 1 if rank else axes


def all_in_front(batched: Batched, values: Sequence[Any]) -> list[Any]:
    """The inputs, each tensor with the axis of the examples in front."""
    return [
        v if flag or not isinstance(v, Tensor) else in_front(v, batched.size)
        for v, flag in zip(values, batched, strict=True)
    ]
