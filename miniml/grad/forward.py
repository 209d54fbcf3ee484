"""Forward mode: tangents pass through a function along with its values, in one pass.

First the ways to run it: `along` runs a function in a `DualTrace`, in which a value carries its
tangent, so that memory does not grow with the length of the function; `linearize` records the calls
and sends tangents through them, again and again. Then `push`, the tangents of one call: by a rule
(`jvp_rules`), by the facts `view`, `linear` and `elementwise` of the class, else by the transpose
of its bprop, which is linear in the cotangent.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import optree

from .. import ops
from ..core.abstract import is_inexact
from ..core.bprop import Getters, bprop_getters
from ..core.errors import GradientArgumentError, point_at
from ..core.infer import arguments, interleave, written
from ..core.parameter import Parameter
from ..core.primitive import Primitive
from ..core.scope import Location, pinned, user_location
from ..core.settings import context
from ..core.tensor import Tensor
from ..core.trace import Trace, current_trace, partition, use_trace
from ..graph.ir import Graph, Var
from ..graph.record import Call, ConstantTrace, as_constant, replay
from ..graph.tracing import ForwardingTrace, Function, TracedTensor
from .reverse import (
    Linearized,
    as_result,
    backward,
    checked_function,
    flattened,
    float_leaves,
    name_of,
    note_bprop,
    note_lists,
    refuse_left,
    tensor_like,
)
from .reverse import linearize as recorded

R = TypeVar("R", bound=Callable[..., Any])
Tangents = tuple[Any, ...]  # None stands for zeros

jvp_rules = Getters(
    "jvp_rules", "jvp rule", "def get_jvp(self): return lambda primals, tangents, out: tangents[0]"
)
moves_along = jvp_rules.rule  # of fn(primitive, primals, tangents, out)
# Of calls whose values and tangents are computed together, such as loops: fn(primitive, primals,
# tangents) gives both.
joint: dict[type[Primitive], Callable[..., tuple[Sequence[Any], Sequence[Any]]]] = {}


def along(
    fn: Function, primals: Sequence[Any], tangents: Sequence[Any], what: str = "jvp got a tangent"
) -> tuple[Any, Any]:
    """fn(*primals) and its tangent, in one pass. GradientArgumentError for primals that are not
    made of floats, ShapeError for tangents, of which errors say `what`, that do not fit them."""
    trace = DualTrace(current_trace())
    given = []
    for argnum, tangent in enumerate(tangents):
        leaves, spec = float_leaves(fn, primals, argnum)
        moving = flattened(spec, tangent, what)
        known = [trace.parent.stand_in(x) if isinstance(x, Parameter) else x for x in leaves]
        duals = map(trace.dual, known, map(tensor_like, leaves, moving))
        given.append(spec.unflatten(duals))
    try:
        with use_trace(trace):
            result = fn(*given)
    except Exception as error:
        note_lists(error, fn, primals, range(len(primals)))
        raise
    finally:
        trace.ended = True
    returned, spec = optree.tree_flatten(result, none_is_leaf=True)
    if trace.numbers_left:
        refuse_left(fn, returned)
    pairs = [trace.apart(as_result(leaf)) for leaf in returned]
    out = spec.unflatten([value for value, _ in pairs])
    return out, spec.unflatten([moved_or_zeros(tangent, value) for value, tangent in pairs])


def moved_or_zeros(tangent: Any, value: Any) -> Any:
    """The tangent of a result: zeros where none passes to a float, None for what is none."""
    floats = isinstance(value, Tensor) and is_inexact(value.dtype)
    return ops.zeros_like(value) if tangent is None and floats else tangent


def linearize(fn: Function, *xs: Any) -> tuple[Any, Function]:
    """(out, jvp_fn): the value of fn at xs, and the function of tangents of xs that gives the
    tangent of out; fn runs once, however often jvp_fn is called. GradientArgumentError for another
    number of tangents.

    >>> out, jvp_fn = linearize(lambda x: x * x, 3.0)
    >>> jvp_fn(1.0), jvp_fn(2.0)
    (Tensor(6., shape=(), dtype=float32), Tensor(12., shape=(), dtype=float32))
    """
    fn = checked_function("linearize", fn)
    found = recorded(fn, xs, range(len(xs)))
    leaves = [optree.tree_leaves(x) for x in xs]
    outs = found.out_spec.flatten_up_to(found.out)

    def jvp_fn(*tangents: Any) -> Any:
        if len(tangents) != len(xs):
            raise GradientArgumentError(
                f"jvp_fn of {name_of(fn)} got {len(tangents)} tangents for {len(xs)} arguments; "
                "give one for each"
            )
        moving: list[Any] = []
        for (_, spec), own, tangent in zip(found.wrt, leaves, tangents, strict=True):
            given = flattened(spec, tangent, "jvp_fn got a tangent")
            moving += [tensor_like(x, t) for x, t in zip(own, given, strict=True)]
        moved = pushed(found, tuple(moving))
        return found.out_spec.unflatten(list(map(moved_or_zeros, moved, outs)))

    return found.out, jvp_fn


def pushed(found: Linearized, tangents: Tangents) -> list[Any]:
    """The tangents of a recorded function's outputs, for those of its differentiated leaves."""
    variables = [v for vs, _ in found.wrt for v in vs]
    known = {v: t for v, t in zip(variables, tangents, strict=True) if t is not None}
    for call in found.trace.calls:
        given = [None if v is None else known.get(v) for v in call.inputs]
        if any(t is not None for t in given):
            outs = pushed_at(call.where, call.primitive, call.given, given, call.outs)
            known.update((v, t) for v, t in zip(call.outputs, outs, strict=True) if t is not None)
    return [None if v is None else known.get(v) for v in found.targets]


# --- The trace ------------------------------------------------------------------------------------


class DualTensor(TracedTensor):
    """A value and its tangent, both of the enclosing trace."""

    __slots__ = ("tangent",)

    def __init__(self, trace: DualTrace, value: Tensor, tangent: Tensor):
        super().__init__(Var(value._abstract), trace, value.device, value)
        self.tangent = tangent


class DualTrace(ForwardingTrace):
    """The trace of one pass of forward mode: calls are made in the parent, with their tangents."""

    differentiates = True

    def __init__(self, parent: Trace):
        super().__init__(parent)
        self.ended = False
        self.numbers_left = False
        self.versions: dict[int, Any] = {}  # by the id of a Parameter that was assigned a dual

    def dual(self, value: Any, tangent: Any) -> Any:
        """The value with a tangent, or as it is without one."""
        return value if tangent is None else DualTensor(self, value, tangent)

    def owns(self, value: Any) -> bool:
        """True for a value that has a tangent of this pass."""
        return type(value) is DualTensor and value.trace is self

    def apart(self, value: Any) -> tuple[Any, Any]:
        """The value in the parent, and its tangent."""
        if isinstance(value, Parameter):
            value = self.stand_in(value)
        return (value.value, value.tangent) if self.owns(value) else (value, None)

    def constant_in(self, parent: Trace) -> Trace:
        """The trace `parent`, in which values with tangents are constants."""
        return ConstantTrace(self, parent)

    def stand_in(self, parameter: Any) -> Any:
        known = self.versions.get(id(parameter))
        return self.parent.stand_in(parameter) if known is None else known

    def bind(self, primitive: Primitive, args: Sequence[Any]) -> tuple[Any, ...]:
        target = written(primitive, args)
        given = [self.stand_in(a) if isinstance(a, Parameter) else a for a in args]
        if target is not None:
            given[0] = target
            self.versions.pop(id(target), None)
        if not any(map(self.owns, given)):
            return self.parent.bind(primitive, given)
        if not primitive.differentiable:
            return self.parent.bind(primitive, list(map(self.known, given)))
        tensors, consts = arguments(primitive, given, self.bind)
        values = interleave(primitive, list(map(self.known, tensors)), consts)
        moving = [t.tangent if type(t) is DualTensor else None for t in tensors]
        tangents = interleave(primitive, moving, dict.fromkeys(consts))
        with use_trace(self.parent):
            if type(primitive) in joint:
                outs, moved = joint[type(primitive)](primitive, values, tangents)
            else:
                outs = self.parent.bind(primitive, values)
                where = user_location(primitive.name)
                moved = pushed_at(where, primitive, values, tangents, outs)
        results = tuple(map(self.dual, outs, moved))
        if target is not None:
            self.versions[id(target)] = results[0]
        return results

    def call_with_bprop(self, name: str, fn: Function, bprop: Function, args: Sequence[Any]) -> Any:
        given = partition(tuple(args), self.owns, none_is_leaf=True)
        own = as_constant(self, fn), as_constant(self, bprop)
        duals = given.taken()

        def call(*values: Any) -> Any:
            return current_trace().call_with_bprop(name, *own, given.filled(values))

        with use_trace(self.parent):
            if not duals:
                return self.parent.call_with_bprop(name, *own, args)
            found = recorded(call, [d.value for d in duals], range(len(duals)))
            moved = pushed(found, tuple([d.tangent for d in duals]))
            outs = found.out_spec.flatten_up_to(found.out)
        return found.out_spec.unflatten(map(self.dual, outs, moved))

    def call_recomputed(self, name: str, fn: Function, pull: Function, args: Sequence[Any]) -> Any:
        return fn(*args)


def of_duals(graph: Graph, pairs: Sequence[tuple[Any, Any]]) -> tuple[list[Any], list[Any]]:
    """The outputs of a graph for inputs with tangents, and the tangents of the outputs: zeros where
    none passes to a float."""
    trace = DualTrace(current_trace())
    with use_trace(trace):
        outs = replay(graph, [trace.dual(value, tangent) for value, tangent in pairs])
    apart = [trace.apart(out) for out in outs]
    return [v for v, _ in apart], [moved_or_zeros(t, v) for v, t in apart]


# --- One call -------------------------------------------------------------------------------------


def pushed_at(where: Location | None, primitive: Primitive, *given: Any) -> Tangents:
    """`push`, whose calls are attributed to the line of the call that they belong to."""
    with pinned() as pin:
        pin.move(where)
        try:
            return push(primitive, *given)
        except Exception as error:
            point_at(error, where)
            note_bprop(error, primitive)
            raise


def push(
    primitive: Primitive, given: Sequence[Any], tangents: Sequence[Any], outs: Sequence[Any]
) -> Tangents:
    """The tangents of a call's outputs, in the current trace; None where there is none.

    given: its inputs, const ones too; tangents: theirs, None for zeros. Nothing passes through
    integers.
    """
    getter = jvp_rules.find(type(primitive))
    if getter is not None:
        out = outs[0] if primitive._single else tuple(outs)
        rule: Any = getter(primitive)
        moved = rule(given, tangents, out)
        return (moved,) if primitive._single else tuple(moved)
    if type(primitive) in joint:
        return tuple(joint[type(primitive)](primitive, given, tangents)[1])
    with context(autocast=False):
        for way in (_viewed, _linear, _diagonal):
            found = way(primitive, given, tangents, outs)
            if found is not None:
                return found
        return transposed(primitive, given, tangents, outs)


def _viewed(
    primitive: Primitive, given: Sequence[Any], tangents: Sequence[Any], outs: Sequence[Any]
) -> Tangents | None:
    """A view moves the tangent as it moves the value."""
    if primitive.view is None:
        return None
    return current_trace().bind(primitive, tangents)


def _linear(
    primitive: Primitive, given: Sequence[Any], tangents: Sequence[Any], outs: Sequence[Any]
) -> Tangents | None:
    """The sum over the groups of inputs in which it is linear, of the call with tangents there."""
    groups, names = [set(g.split()) for g in primitive.linear], primitive._inputs or ()
    reached = {n for n, t in zip(names, tangents, strict=False) if t is not None}
    if not reached or not reached.issubset(set().union(*groups)):
        return None
    total: Tangents | None = None
    for group in groups:
        if group & reached:
            moved = [
                x if n not in group else ops.zeros_like(x) if t is None else t
                for n, x, t in zip(names, given, tangents, strict=True)
            ]
            terms = current_trace().bind(primitive, moved)
            total = terms if total is None else tuple(map(ops.add, total, terms))
    return total


def _diagonal(
    primitive: Primitive, given: Sequence[Any], tangents: Sequence[Any], outs: Sequence[Any]
) -> Tangents | None:
    """An elementwise call has a diagonal Jacobian, which is its own transpose: its bprop moves the
    tangent of each input, broadcast to the output."""
    if not (primitive.elementwise and primitive._single):
        return None
    (out,), total = outs, None
    for i, tangent in enumerate(tangents):
        if tangent is None:
            continue
        if tangent.dtype != out.dtype:
            return None
        spread = tangent if tangent.shape == out.shape else ops.broadcast_to(tangent, out.shape)
        moved = bprop_getters.get(primitive)(*given, out, spread)[i]
        if moved is None:
            continue
        if moved.shape != out.shape:  # summed already to the shape of the input
            return None
        total = moved if total is None else total + moved
    return (total,)


def transposed(
    primitive: Primitive, given: Sequence[Any], tangents: Sequence[Any], outs: Sequence[Any]
) -> Tangents:
    """The transpose of the pull-back, by the gradient of its gradient."""
    moving = [i for i, t in enumerate(tangents) if t is not None]
    inputs = [Var(x._abstract) if i in moving else None for i, x in enumerate(given)]
    outputs = tuple([Var(out._abstract) for out in outs])
    call = Call(primitive, given, inputs, tuple(outs), outputs, None)
    floats = [i for i, out in enumerate(outs) if is_inexact(out.dtype)]

    def pull(*douts: Any) -> list[Any]:
        found = backward([call], {outputs[i]: d for i, d in zip(floats, douts, strict=True)})
        by_input = [(found.get(inputs[i]), given[i]) for i in moving]  # type: ignore[arg-type]
        return [ops.zeros_like(x) if gradient is None else gradient for gradient, x in by_input]

    # It is linear, so any point would do; at 0 a gradient that does not exist would not be NaN.
    with context(check_nan=False):  # what it gives there is not used
        back = recorded(pull, [ops.ones_like(outs[i]) for i in floats], range(len(floats)))
    moved, _ = back.pull([tangents[i] for i in moving])
    by_output = dict(zip(floats, moved, strict=True))
    return tuple([by_output.get(i) for i in range(len(outs))])


def jointly(primitive: type[Primitive]) -> Callable[[R], R]:
    """Decorator: register `fn(primitive, primals, tangents)`, which gives outputs and tangents."""

    def add(fn: R) -> R:
        joint[primitive] = fn
        return fn

    return add
