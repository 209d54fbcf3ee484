"""The eager trace: every call runs at once, by a plan made once for the kinds of its arguments."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextvars import copy_context
from functools import partial
from operator import attrgetter
from typing import Any

import numpy as np

from .. import epoch, random
from ..abstract import Abstract, Kind
from ..arguments import Weak, arguments, weak_tensor
from ..attributes import key as attribute_key
from ..backends.declare import refuse_returned
from ..backends.device import Array
from ..backends.devices import get_device
from ..errors import DeclarationError, GraphError
from ..graph.ir import Graph, interleave
from ..graph.state import written
from ..graph.traced import TracedTensor, live
from ..graph.tracer import known_value, trace_body
from ..infer import infer
from ..location import point_at, user_location
from ..ops.arithmetic import Cast
from ..parameter import Parameter
from ..primitive import Primitive
from ..reading import Reading, read
from ..settings import GRAPH_MODE, Plans, current, unwatched
from ..tensor import Tensor, common_device
from ..trace import Trace
from ..tracebacks import hide_frames
from .finite import check_finite
from .jit import compiled
from .launch import BoundKernel, note_kernel, prepare, target_for
from .launcher import Launcher, launcher
from .quiet import ignore_errors, quietly
from .watched import watching_call

Plan = Callable[[Sequence[Any]], tuple[Tensor, ...]]
_LIMIT = 4096
_kind, _data = attrgetter("_kind"), attrgetter("_data")


class EagerTrace(Trace):
    """Runs every call at once, by its call plan: make tensors of the arguments, launch, wrap.

    A plan is made for a primitive and the kinds of the arguments. A kind is the class, dtype, shape
    and device of a tensor, or the class of a weak scalar; None is that of what has to be looked at
    in each call, such as an array.
    """

    parent = None

    def bind(self, primitive: Primitive, args: Sequence[Any]) -> tuple[Any, ...]:
        try:
            try:
                if len(args) == 2:  # most calls, written out
                    x, y = args
                    kinds: tuple[Any, ...] = (x._kind, y._kind)
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
        """The plan of a call; it is kept where the kinds of the arguments decide all."""
        by_value = primitive._const or primitive._infers_value or primitive.dynamic_outputs
        if by_value or None in kinds:
            return partial(self._run_by_value, primitive)
        tensors, _ = arguments(primitive, args, self.bind)
        run = self._of_tensors(primitive, tensors, {})
        if kinds == tuple(map(_kind, tensors)):
            return run
        makers = [self._maker(primitive, k, t._kind) for k, t in zip(kinds, tensors, strict=True)]
        plan = _plans()[primitive._key, kinds] = _making(makers, run)
        return plan

    def _run_by_value(self, primitive: Primitive, args: Sequence[Any]) -> tuple[Tensor, ...]:
        tensors, consts = arguments(primitive, args, self.bind)
        for t in tensors:
            if isinstance(t, TracedTensor):
                _refuse_traced(primitive, t)
        device = common_device(primitive.name, tensors)
        if primitive._infers_value:
            known = known_value(primitive, tensors, consts)
            if known is not None:
                return known
        if primitive.dynamic_outputs:
            launch = partial(_run_dynamic, primitive, consts, device)
            run = _watched(primitive, tensors, _launching(launch, device))
            return _seen(primitive, device, run)(tensors)
        return self._of_tensors(primitive, tensors, consts)(tensors)

    def _of_tensors(
        self, primitive: Primitive, tensors: list[Tensor], consts: dict[str, Any]
    ) -> Plan:
        """The plan of a call that gets tensors of these kinds, with these const inputs."""
        frozen = tuple((name, attribute_key(value)) for name, value in consts.items())
        key = primitive._key, tuple(map(_kind, tensors)), *frozen
        plan: Plan | None = _plans().get(key)
        if plan is None and current().watchers:
            with unwatched():  # where the plan is made once, whoever watches
                plan = self._of_tensors(primitive, tensors, consts)
            plan = _seen(primitive, common_device(primitive.name, tensors), plan)
            _plans()[key] = plan
        if plan is None:
            plan = _watched(primitive, tensors, _kernel_plan(primitive, tensors, consts))
            _plans()[key] = plan  # now: the rules just run may have registered something
        return plan

    def _maker(self, primitive: Primitive, given: Any, kind: Kind) -> Callable[[Any], Tensor]:
        """What makes a tensor of that kind of an argument: nothing, a weak scalar's, or a cast."""
        if given is kind:
            return _itself
        if isinstance(given, Kind):
            return lambda tensor: self.bind(Cast(kind.abstract.dtype), (tensor,))[0]
        return lambda value: weak_tensor(primitive, value, kind)

    def call(self, fn: Callable[..., Any], args: Sequence[Any], named: Mapping[str, Any]) -> Any:
        settings = current()
        if settings.mode == GRAPH_MODE and settings.jit:
            return compiled(fn)(*args, **named)
        return fn(*args, **named)

    def graph_of(
        self, fn: Callable[..., Any], operands: Sequence[Any]
    ) -> tuple[Graph, list[Any], dict[Any, int]]:
        return trace_body(self, fn, operands)

    def stand_in(self, parameter: Any) -> Tensor:
        return read(parameter)

    def reserve(self, blocks: int, generator: Any = None) -> tuple[Any, int]:
        return (generator or random.default_generator).reserve(blocks), 0


def _plans() -> Plans:
    """The plans for the present settings and kernels."""
    plans, version = current().plans, epoch.now.kernels
    if plans.version != version or len(plans) > _LIMIT:
        plans.clear()
        plans.version = version  # last: until then no other thread uses what was there
    return plans


def _kind_of(value: Any) -> object:
    """The kind of an argument: of a weak scalar its class, of anything else but tensors None."""
    if isinstance(value, Tensor):
        return value._kind
    return type(value) if type(value) in Weak else None


def _itself(tensor: Any) -> Any:
    return tensor


def _kernel_plan(primitive: Primitive, tensors: list[Tensor], consts: dict[str, Any]) -> Plan:
    """From tensors of these kinds to the outputs of the kernel under the present settings."""
    device = common_device(primitive.name, tensors)
    inputs = tuple(t._abstract for t in tensors)
    outs = infer(primitive, interleave(primitive, list(inputs), consts))
    attrs = {**primitive.attributes, **consts}
    prepared = quietly(prepare, primitive, inputs, outs, attrs, target_for(device))
    kinds = [Kind.of(Tensor, o.shape, o.dtype, device) for o in outs]
    view = prepared.entry.view is not None
    if view and any(isinstance(t, (Parameter, Reading)) for t in tensors):
        return _launching(_copying(launcher(prepared)), device)
    if view and len(tensors) == 1 and prepared.life is None:
        return _viewing(prepared.function, kinds[0])
    if prepared.calls_function and prepared.single and len(tensors) in (1, 2):
        return _calling(prepared, kinds[0])
    return _launching(launcher(prepared), device)


def _launching(launch: Launcher, device: str) -> Plan:
    """Whatever a launch gives, in tensors."""

    def run(tensors: Sequence[Tensor]) -> tuple[Tensor, ...]:
        ignore_errors()
        return tuple([Tensor.wrap(o, device) for o in launch(tuple(map(_data, tensors)))])

    return lambda tensors: copy_context().run(run, tensors)


def _calling(prepared: BoundKernel, kind: Kind) -> Plan:
    """A function of one or two inputs that fills one output, with nothing in between."""
    fill, of_kind = prepared.function, Tensor.of_kind
    shape, dtype, empty = kind.abstract.shape, kind.abstract.dtype, np.empty

    def unary(tensors: Sequence[Tensor]) -> tuple[Tensor, ...]:
        ignore_errors()
        (x,), out = tensors, empty(shape, dtype)
        returned = fill(x._data, out=out)
        if returned is not out and returned is not None:
            refuse_returned(prepared.entry, returned, (out,))
        return (of_kind(out, kind),)

    def binary(tensors: Sequence[Tensor]) -> tuple[Tensor, ...]:
        ignore_errors()
        (x, y), out = tensors, empty(shape, dtype)
        returned = fill(x._data, y._data, out=out)
        if returned is not out and returned is not None:
            refuse_returned(prepared.entry, returned, (out,))
        return (of_kind(out, kind),)

    run = unary if len(prepared.node.inputs) == 1 else binary

    def plan(tensors: Sequence[Tensor]) -> tuple[Tensor, ...]:
        try:
            return copy_context().run(run, tensors)
        except Exception as error:
            note_kernel(error, prepared)
            raise

    return plan


def _viewing(look: Callable[[Array], Array], kind: Kind) -> Plan:
    """A view of the one input, which computes nothing that NumPy could warn of."""
    of_kind, shape, dtype = Tensor.of_kind, kind.abstract.shape, kind.abstract.dtype

    def plan(tensors: Sequence[Tensor]) -> tuple[Tensor, ...]:
        (x,) = tensors
        out = look(x._data)
        if out.shape != shape or out.dtype is not dtype:  # the user's own kernel says otherwise
            return (Tensor.wrap(out, kind.device),)
        return (of_kind(out, kind),)

    return plan


def _making(makers: Sequence[Callable[[Any], Tensor]], run: Plan) -> Plan:
    """A plan that makes tensors of its arguments first."""

    def plan(args: Sequence[Any]) -> tuple[Tensor, ...]:
        return run([make(a) for make, a in zip(makers, args, strict=True)])

    return plan


def _watched(primitive: Primitive, tensors: Sequence[Tensor], run: Plan) -> Plan:
    """The plan with what else a call does: look for NaN, write to a parameter."""
    check, write = current().check_nan, written(primitive, tensors) is not None
    if not (check or write):
        return run

    def plan(tensors: Sequence[Tensor]) -> tuple[Tensor, ...]:
        results = run(tensors)
        if check:
            check_finite(primitive, tensors, results, _on_host, user_location)
        if write:
            tensors[0].set_data(results[0])  # type: ignore[attr-defined]
        return results

    return plan


def _seen(primitive: Primitive, device: str, run: Plan) -> Plan:
    """The plan, of which watchers see each call."""
    by = current().watchers
    return watching_call(primitive, device, by, run) if by else run


def _copying(launch: Launcher) -> Launcher:
    """The launcher of a view whose memory others write to."""
    return lambda arrays: tuple([o.copy() for o in launch(arrays)])


def _refuse_traced(primitive: Primitive, tensor: TracedTensor) -> None:
    live(tensor)
    raise GraphError(f"{primitive.name} got a traced tensor outside its trace")


def _run_dynamic(
    primitive: Primitive, consts: dict[str, Any], device: str, arrays: tuple[Array, ...]
) -> tuple[Array, ...]:
    """A primitive whose output shapes depend on values, which the host has to know: it is computed
    there, and its kernel returns fresh arrays."""
    if device != "cpu":
        arrays = tuple(map(get_device(device).to_host, arrays))
    inputs = [Abstract(a.shape, a.dtype) for a in arrays]
    selection = target_for("cpu").select(primitive.name, inputs)
    if selection.cast is not None:
        arrays = tuple(a.astype(selection.cast) for a in arrays)
    body: Any = selection.entry.body
    result: Any = body(*arrays, **primitive.attributes, **consts)
    outs = tuple(result) if isinstance(result, (tuple, list)) else (result,)
    got = [str(getattr(o, "dtype", type(o).__name__)) for o in outs]
    if not all(isinstance(o, np.ndarray) for o in outs) or not selection.entry.signature.gives(
        tuple(o.dtype for o in outs)
    ):
        raise DeclarationError(
            f"{primitive.name} kernel {selection.entry.signature} returned {', '.join(got)}; "
            "return the arrays of its signature"
        )
    return outs if device == "cpu" else tuple(map(get_device(device).from_host, outs))


def _on_host(tensor: Tensor) -> Array:
    """The data of a tensor that has some, whatever trace is around: looking loses no gradient."""
    return get_device(tensor.device).to_host(tensor._data)
