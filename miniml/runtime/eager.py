"""Eager trace: every call runs at once, by a plan made once for the kinds of its arguments.

Keys of compositions: what one plan of all its calls serves.
Call plans: functions from tensors to tensors for one primitive and the kinds of its arguments.
Staged trace: calls run at once, too, but assignments are committed together at the end.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextvars import copy_context
from functools import partial
from operator import attrgetter
from types import EllipsisType, FunctionType, NoneType
from typing import Any, TypeVar

import numpy as np

from ..backends.kernel import Array, refuse_returned
from ..backends.selection import get_device
from ..core import infer as inference
from ..core.abstract import Abstract, Kind
from ..core.access import claim
from ..core.errors import DeclarationError, DTypeError, GraphError, point_at
from ..core.hints import hide_frames
from ..core.infer import Weak, arguments, infer, interleave, refuse_complex, weak_tensor, written
from ..core.parameter import Parameter, Reading, default_generator, publish, read, write_all
from ..core.primitive import Primitive
from ..core.primitive import key as attribute_key
from ..core.scope import epoch, user_location
from ..core.settings import GRAPH_MODE, Plans, current, unwatched
from ..core.tensor import Tensor, common_device
from ..core.trace import Keyed, Trace, eager_trace, is_tracing, use_trace
from ..graph.tracing import TracedTensor, known_value, live, trace_body
from ..ops.elementwise import Cast
from .compositions import Calls, calls_of, kind_of_array, of_array, plan_of, tensors_of
from .jit import compiled
from .launch import BoundKernel, eager_kernel, ignore_errors, note_kernel, quietly, target_for
from .observe import check_finite, watching_call

Plan = Callable[[Sequence[Any]], tuple[Tensor, ...]]
Launch = Callable[[tuple[Array, ...]], tuple[Array, ...]]
_LIMIT = 4096
_PATIENCE = 16  # plans of one composition for each further time that a call must have been seen
_kind: Callable[[Any], Any] = attrgetter("_kind")
_data = attrgetter("_data")
_weak_kind = {of: of for of in Weak}.get


class EagerTrace(Trace):
    """A trace that runs every call at once, by its plan: make tensors of arguments, launch, wrap.

    A plan is made for a primitive and the kinds of the arguments. A kind is the class, dtype, shape
    and device of a tensor, that of an array too, or the class of a weak scalar; it is None for an
    argument that has to be inspected at each call, such as a list.
    """

    graph_of = trace_body

    def bind(self, primitive: Primitive, args: Sequence[Any]) -> tuple[Any, ...]:
        try:
            try:
                if len(args) == 2:  # the common case, unrolled
                    x, y = args
                    left = x._kind if type(x) is Tensor else _weak_kind(type(x)) or x._kind
                    right = y._kind if type(y) is Tensor else _weak_kind(type(y)) or y._kind
                    kinds: tuple[Any, ...] = (left, right)
                elif len(args) == 1:
                    (x,) = args
                    kinds = (x._kind,)
                else:
                    kinds = tuple(map(_kind, args))
            except AttributeError:  # not all are tensors
                kinds = tuple(map(_kind_of, args))
            plans = current().plans
            if plans.version != epoch.now.kernels:
                plans = _plans()
            plan = plans.get((primitive._key, kinds))
            if plan is None:
                plan = self._plan(primitive, args, kinds)
            return plan(args)
        except Exception as error:
            point_at(error, user_location(primitive.name))
            hide_frames(error)
            raise

    def _plan(self, primitive: Primitive, args: Sequence[Any], kinds: tuple[Any, ...]) -> Plan:
        """The plan of a call; it is cached if it depends on the kinds of the arguments alone."""
        if primitive._const or primitive._infers_value or None in kinds:
            return partial(self._run_by_value, primitive)
        tensors, _ = arguments(primitive, args, self.bind)
        run = self._of_tensors(primitive, tensors, {})
        if kinds == tuple(map(_kind, tensors)):
            return run
        given = zip(kinds, args, inference.in_tensors(primitive, args), tensors, strict=True)
        makers = [self._maker(primitive, k, a, i._kind, t._kind) for k, a, i, t in given]
        return _plans().setdefault((primitive._key, kinds), _making(makers, run))  # type: ignore[no-any-return]

    def _run_by_value(self, primitive: Primitive, args: Sequence[Any]) -> tuple[Tensor, ...]:
        tensors, consts = arguments(primitive, args, self.bind)
        for t in tensors:
            if isinstance(t, TracedTensor):
                live(t)
                raise GraphError(f"{primitive.name} got a traced tensor outside its trace")
        common_device(primitive.name, tensors)
        if primitive._infers_value:
            known = known_value(primitive, tensors, consts)
            if known is not None:
                return known
        return self._of_tensors(primitive, tensors, consts)(tensors)

    def _of_tensors(
        self, primitive: Primitive, tensors: list[Tensor], consts: dict[str, Any]
    ) -> Plan:
        """The plan of a call on tensors of these kinds, with these const inputs."""
        frozen = tuple((name, attribute_key(value)) for name, value in consts.items())
        key = primitive._key, tuple(map(_kind, tensors)), *frozen
        plan: Plan | None = _plans().get(key)
        if plan is None and (by := current().watchers):
            with unwatched():  # there the plan is shared by all watchers
                plan = self._of_tensors(primitive, tensors, consts)
            plan = watching_call(primitive, common_device(primitive.name, tensors), by, plan)
            _plans()[key] = plan
        if plan is None:
            plan = _with_effects(primitive, tensors, _kernel_plan(primitive, tensors, consts))
            _plans()[key] = plan  # fetched again: the rules just run may have registered something
        return plan

    def _maker(
        self, primitive: Primitive, given: Any, argument: Any, first: Kind, kind: Kind
    ) -> Callable[[Any], Tensor]:
        """A function from an argument to a tensor of that kind: identity, a copy of an array, a
        cast of these, or weak scalar."""
        if given is kind:
            return lambda tensor: tensor
        if not isinstance(given, Kind):
            return lambda value: weak_tensor(primitive, value, kind, first)
        if isinstance(argument, Tensor):
            return lambda tensor: self.bind(Cast(kind.abstract.dtype), (tensor,))[0]
        made = of_array(given, kind.device)
        if given.abstract.dtype == kind.abstract.dtype:
            return made
        return lambda array: self.bind(Cast(kind.abstract.dtype), (made(array),))[0]

    def compose(self, fn: Callable[..., Any], args: Sequence[Any], named: Mapping[str, Any]) -> Any:
        """A call of a composition, from the second one with such arguments on by a plan.

        What raises in a plan is called again, one primitive after another, for the error of the one
        that it is about.
        """
        count, tensors = 0 if named else len(args), args
        if count == 1 and type(args[0]) is Tensor:  # the common cases, unrolled
            key: object = (fn, args[0]._kind)
        elif count == 2 and type(args[0]) is type(args[1]) is Tensor:
            key = fn, args[0]._kind, args[1]._kind
        else:
            found = _key_of(fn, args, named)
            if found is None:
                return fn(*args, **named)
            key, tensors = found
        plans = current().plans
        if plans.version != epoch.now.kernels:
            plans = _plans()
        plan = plans.get(key, 0)
        if type(plan) is int:
            plan = self._composed(plan, key, partial(plan_of, fn, args, named, tensors))
        if plan is None:
            return fn(*args, **named)
        try:
            if type(plan) is partial:
                return plan(tensors)
            return copy_context().run(plan, tensors)
        except Exception:
            return fn(*args, **named)

    def calls_of(
        self,
        fn: Callable[..., Any],
        args: Sequence[Any],
        named: Mapping[str, Any],
        recorded: tuple[bool, ...],
    ) -> tuple[Calls, Sequence[Tensor], Sequence[Tensor]] | None:
        found = _key_of(fn, args, named)
        if found is None:
            return None
        key, tensors = (recorded, found[0]), found[1]
        plan = _plans().get(key, 0)
        if type(plan) is int:
            plan = self._composed(plan, key, partial(calls_of, fn, args, named, tensors, recorded))
        try:
            given = tensors_of(tensors) if np.ndarray in map(type, tensors) else tensors
            return plan and (plan, given, copy_context().run(plan.run, tensors))
        except Exception:
            return None

    def _composed(self, seen: int, key: Any, make: partial[Any]) -> Any:
        """The plan that `make` gives for a composition; None for one that is run call by call, as
        it is when it is seen for the first time. The more plans it has, the later it gets another.
        """
        plans, fn = current().plans, make.args[0]
        made = plans.get(fn, 0)
        if seen <= made // _PATIENCE:
            plans[key] = seen + 1
            return None
        plan = make()
        plans = _plans()  # fetched again: the rules just run may have registered something
        plans[key], plans[fn] = plan, made + 1
        return plan

    def callee(self, fn: Callable[..., Any]) -> Callable[..., Any]:
        settings = current()
        return compiled(fn) if settings.mode == GRAPH_MODE and settings.jit else fn

    def stand_in(self, parameter: Any) -> Tensor:
        return read(parameter)

    def reserve(self, blocks: int, generator: Any = None) -> tuple[Any, int]:
        return (generator or default_generator).reserve(blocks), 0


def _plans() -> Plans:
    """The plans for the present settings and kernels."""
    plans, version = current().plans, epoch.now.kernels
    if plans.version != version or len(plans) > _LIMIT:
        plans.clear()
        plans.version = version  # last: until then no other thread uses the old plans
    return plans


def _kind_of(value: Any) -> object:
    """The kind of an argument: for a weak scalar its class, for others but tensors and arrays
    None, and for arrays of which no tensor can be made."""
    if isinstance(value, Tensor):
        return value._kind
    of = type(value)
    if of in Weak:
        return of
    if of is not np.ndarray and not isinstance(value, np.generic):
        return None
    try:
        return kind_of_array(value)
    except DTypeError:
        return None


# --- Keys of compositions -------------------------------------------------------------------------

_PACKAGE = __name__.partition(".")[0] + "."
_PLAIN = frozenset({NoneType, EllipsisType, bool, int, str})


def _key_of(
    fn: Callable[..., Any], args: Sequence[Any], named: Mapping[str, Any]
) -> tuple[object, Sequence[Any]] | None:
    """The key of a call, equal for calls that one plan serves, and its tensors and arrays in order;
    None for arguments that have to be inspected at each call, such as functions."""
    key: list[object] = [fn]
    tensors: list[Any] = []
    fits = _add(args, key, tensors)
    if named and fits:
        key.append(("=", *named))
        fits = _add(named.values(), key, tensors)
    return (tuple(key), tensors) if fits else None


def _add(values: Iterable[Any], key: list[object], tensors: list[Any]) -> bool:
    """Add the arguments to a key; False if one of them cannot be part of it."""
    for value in values:
        of = type(value)
        if of is Tensor:  # the common case, unrolled
            key.append(value._kind)
            tensors.append(value)
        elif of in _PLAIN:
            key += (of, value)
        elif of is tuple and _PLAIN.issuperset(types := tuple(map(type, value))):  # as a shape
            key += (of, value, types)
        elif of is np.ndarray or isinstance(value, Tensor):
            kind = _kind_of(value)
            if kind is None:  # a traced one, or an array of objects
                return False
            key.append(kind)
            tensors.append(value)
        elif of is float:
            if value != value:
                return False
            key += (of, value or value.hex())  # 0.0 and -0.0 differ
        elif of is tuple or of is list or of is slice:
            parts = (value.start, value.stop, value.step) if of is slice else value
            key += (of, len(parts))
            if not _add(parts, key, tensors):
                return False
        elif of is Keyed:
            kinds = list(map(_kind, value.tensors))
            if None in kinds:
                return False
            key += (value.key, *kinds)
            tensors += value.tensors
        elif isinstance(value, (np.dtype, type)) or _is_own(value):
            key += ("type", value)
        else:
            return False
    return True


def _is_own(value: Any) -> bool:
    """True for a function of the library that has no variables but its arguments."""
    function = type(value) is FunctionType and value.__closure__ is None
    return function and value.__module__.startswith(_PACKAGE)


# --- Call plans -----------------------------------------------------------------------------------


def _kernel_plan(primitive: Primitive, tensors: list[Tensor], consts: dict[str, Any]) -> Plan:
    """A plan that runs the kernel for tensors of these kinds under the present settings."""
    device = common_device(primitive.name, tensors)
    inputs = tuple(t._abstract for t in tensors)
    attrs = {**primitive.attributes, **consts}
    if primitive.dynamic_outputs:
        return _launching(_dynamic(primitive, inputs, attrs, device), device)
    outs = infer(primitive, interleave(primitive, list(inputs), consts))
    prepared = quietly(eager_kernel, primitive, inputs, outs, attrs, device)
    kinds = [Kind.of(Tensor, o.shape, o.dtype, device) for o in outs]
    view = prepared.entry.view
    if view is not None:
        seen = tensors[view : view + 1] if prepared.entry.built_in else tensors
        if any(isinstance(t, (Parameter, Reading)) for t in seen):  # others write to it
            return _launching(lambda arrays: (prepared.function(*arrays).copy(),), device)
        return _viewing(prepared, kinds[0])
    if prepared.calls_function and prepared.single:
        return _calling(prepared, kinds[0])
    return _launching(prepared.into_fresh, device, kinds)


def _dynamic(
    primitive: Primitive, inputs: tuple[Abstract, ...], attrs: dict[str, Any], device: str
) -> Launch:
    """The launch of a primitive whose output shapes depend on values, which the host has to know:
    it is computed there, and its kernel returns fresh arrays."""
    refuse_complex(primitive, inputs)
    selection, there = target_for("cpu").select(primitive.name, inputs), get_device(device)
    signature, cast = selection.entry.signature, selection.cast
    body: Any = selection.entry.body
    right: set[tuple[Any, ...]] = set()  # dtypes of outputs that agree with the signature

    def launch(arrays: tuple[Array, ...]) -> tuple[Array, ...]:
        if device != "cpu":
            arrays = tuple(map(there.to_host, arrays))
        if cast is not None:
            arrays = tuple(a.astype(cast) for a in arrays)
        result: Any = body(*arrays, **attrs)
        outs = tuple(result) if isinstance(result, (tuple, list)) else (result,)
        got: tuple[Any, ...] = tuple([o.dtype if isinstance(o, np.ndarray) else None for o in outs])
        if got not in right:
            if any(dtype is None for dtype in got) or not signature.gives(got):
                listed = [str(getattr(o, "dtype", type(o).__name__)) for o in outs]
                raise DeclarationError(
                    f"{primitive.name} kernel {signature} returned {', '.join(listed)}; "
                    "return the arrays of its signature"
                )
            right.add(got)
        return outs if device == "cpu" else tuple(map(there.from_host, outs))

    return launch


def _launching(launch: Launch, device: str, kinds: Sequence[Kind] = ()) -> Plan:
    """A plan that wraps the arrays of a launch in tensors: of these kinds, if they are known."""

    def run(tensors: Sequence[Tensor]) -> tuple[Tensor, ...]:
        ignore_errors()
        outs = launch(tuple(map(_data, tensors)))
        if kinds:
            return tuple(map(Tensor.of_kind, outs, kinds))
        return tuple([Tensor.wrap(o, device) for o in outs])

    return lambda tensors: copy_context().run(run, tensors)


def _calling(kernel: BoundKernel, kind: Kind) -> Plan:
    """The plan of `into_fresh` for a function that fills one output, written out for speed."""
    fill, of_kind = kernel.function, Tensor.of_kind
    shape, dtype, empty = kind.abstract.shape, kind.abstract.dtype, kernel.device.empty

    def unary(tensors: Sequence[Tensor]) -> tuple[Tensor, ...]:
        ignore_errors()
        (x,), out = tensors, empty(shape, dtype)
        returned = fill(x._data, out=out)
        if returned is not out and returned is not None:
            refuse_returned(kernel.entry, returned, (out,))
        return (of_kind(out, kind),)

    def binary(tensors: Sequence[Tensor]) -> tuple[Tensor, ...]:
        ignore_errors()
        (x, y), out = tensors, empty(shape, dtype)
        returned = fill(x._data, y._data, out=out)
        if returned is not out and returned is not None:
            refuse_returned(kernel.entry, returned, (out,))
        return (of_kind(out, kind),)

    def of_many(tensors: Sequence[Tensor]) -> tuple[Tensor, ...]:
        ignore_errors()
        out = empty(shape, dtype)
        returned = fill(*map(_data, tensors), out=out)
        if returned is not out and returned is not None:
            refuse_returned(kernel.entry, returned, (out,))
        return (of_kind(out, kind),)

    run = {1: unary, 2: binary}.get(len(kernel.node.inputs), of_many)

    def plan(tensors: Sequence[Tensor]) -> tuple[Tensor, ...]:
        try:
            return copy_context().run(run, tensors)
        except Exception as error:
            note_kernel(error, kernel)
            raise

    return plan


def _viewing(kernel: BoundKernel, kind: Kind) -> Plan:
    """A plan for a view of an input, which computes nothing that NumPy could warn about."""
    of_kind, shape, dtype = Tensor.of_kind, kind.abstract.shape, kind.abstract.dtype
    look = kernel.function

    def wrapped(out: Array) -> tuple[Tensor, ...]:
        if out.shape != shape or out.dtype is not dtype:  # of a user's kernel
            return (Tensor.wrap(out, kind.device),)
        return (of_kind(out, kind),)

    # owned: kept while the plan is, since the function may be a method of that object.
    def unary(tensors: Sequence[Tensor], owned: object = kernel.owned) -> tuple[Tensor, ...]:
        (x,) = tensors
        out = look(x._data)
        return (of_kind(out, kind),) if out.shape == shape and out.dtype is dtype else wrapped(out)

    def of_many(tensors: Sequence[Tensor], owned: object = kernel.owned) -> tuple[Tensor, ...]:
        return wrapped(look(*map(_data, tensors)))

    return unary if len(kernel.node.inputs) == 1 else of_many


def _making(makers: Sequence[Callable[[Any], Tensor]], run: Plan) -> Plan:
    """A plan that makes tensors of its arguments first."""
    if len(makers) == 2:  # the common case, unrolled
        first, second = makers
        return lambda args: run((first(args[0]), second(args[1])))

    def plan(args: Sequence[Any]) -> tuple[Tensor, ...]:
        return run([make(a) for make, a in zip(makers, args, strict=True)])

    return plan


def _with_effects(primitive: Primitive, tensors: Sequence[Tensor], run: Plan) -> Plan:
    """The plan with the other effects of a call: check for NaN, write to a parameter."""
    check, write = current().check_nan, written(primitive, tensors) is not None
    if not (check or write):
        return run

    def on_host(tensor: Tensor) -> Array:  # in any trace: a look loses no gradient
        return get_device(tensor.device).to_host(tensor._data)

    def plan(tensors: Sequence[Tensor]) -> tuple[Tensor, ...]:
        results = run(tensors)
        if check:
            check_finite(primitive, tensors, results, on_host, user_location)
        if write:
            write_all(primitive.name, [(tensors[0], results[0]._data)])  # of its type, by the rules
        return results

    return plan


# --- Staged trace ---------------------------------------------------------------------------------


T = TypeVar("T")


class StagedTrace(Trace):
    """The eager trace, but assignments make new versions, as they do in a graph.

    Parameters keep their values until `publish`, so there is nothing to undo when something
    raises, and code that reads them meanwhile, such as a signal handler that saves, sees a
    consistent state.
    """

    parent = None  # set_data is refused here, as it is while a graph is traced
    graph_of = trace_body

    def __init__(self) -> None:
        self._versions: dict[int, tuple[Parameter, Tensor]] = {}

    def bind(self, primitive: Primitive, args: Sequence[Any]) -> tuple[Any, ...]:
        target = written(primitive, args)
        given = [self._now(a) if isinstance(a, Parameter) else a for a in args]
        if target is not None and given[0] is target:
            given[0] = Tensor.wrap(target._data, target.device)
        outs = eager_trace().bind(primitive, given)
        if target is not None:
            self._versions[id(target)] = target, outs[0]
        return outs

    def _now(self, parameter: Parameter) -> Tensor:
        """The latest version of a parameter: itself if it has not been assigned."""
        if id(parameter) not in self._versions:
            claim(parameter)
            return parameter
        return self._versions[id(parameter)][1]

    def publish(self) -> None:
        """Write the last versions to their parameters, all at once."""
        publish([(parameter, version._data) for parameter, version in self._versions.values()])

    def stand_in(self, parameter: Any) -> Any:
        version = self._versions.get(id(parameter))
        return eager_trace().stand_in(parameter) if version is None else version[1]

    def reserve(self, blocks: int, generator: Any = None) -> tuple[Any, int]:
        """Draw from a version of the stream's state, as from any other parameter."""
        state = (generator or default_generator).state
        before = self._now(state)._data
        after = before + np.array([0, blocks], np.uint64)
        self._versions[id(state)] = state, Tensor.wrap(after, "cpu")
        return Tensor(before), 0


def together(fn: Callable[..., T], *args: Any) -> T:
    """Call fn(*args), then commit all its assignments at once, or none if it raises.

    Inside a trace it is just the call: that trace decides when writes happen.
    """
    if is_tracing():
        return fn(*args)
    trace = StagedTrace()
    with use_trace(trace):
        result = fn(*args)
    trace.publish()
    return result
