"""The eager trace: infer, select a kernel, allocate, launch, at once."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextvars import copy_context
from operator import is_
from typing import Any

import numpy as np

from .. import epoch, random
from ..abstract import Abstract
from ..arguments import arguments
from ..attributes import key as attribute_key
from ..backends.device import Array
from ..backends.devices import get_device
from ..errors import DeclarationError, GraphError
from ..graph.ir import interleave
from ..graph.state import written
from ..graph.traced import TracedTensor, live
from ..graph.tracer import known_value
from ..infer import infer
from ..location import point_at, user_location
from ..primitive import Primitive
from ..reading import Reading, read
from ..settings import GRAPH_MODE, Settings, current
from ..tensor import Parameter, Tensor, common_device
from ..trace import Trace
from ..tracebacks import hide_frames
from .finite import check_finite
from .jit import compiled
from .launch import BoundKernel, Launcher, launcher, prepare, target_for

_LIMIT = 4096
_NONE: dict[object, Launcher] = {}


class _Known:
    """The launchers prepared under one set of settings, for one state of the kernel table.

    `ready` holds those that plain tensors may go to directly, because nothing has to be cast,
    moved or published for them.
    """

    __slots__ = ("launchers", "ready", "kernels")

    def __init__(self) -> None:
        self.launchers: dict[object, tuple[BoundKernel, Launcher]] = {}
        self.ready: dict[Primitive, dict[object, Launcher]] = {}
        self.kernels = epoch.now.kernels


class EagerTrace(Trace):
    """Runs every call at once. Launchers are kept by settings, primitive and types."""

    parent = None

    def __init__(self) -> None:
        self._known: dict[Settings, _Known] = {}

    def bind(self, primitive: Primitive, args: Sequence[Any]) -> tuple[Any, ...]:
        try:
            key = _plain_types(args)
            if key is not None:
                launch = self._now().ready.get(primitive, _NONE).get(key)
                if launch is not None:
                    outs = quietly(launch, tuple([a._data for a in args]))
                    return tuple([Tensor.wrap(o, "cpu") for o in outs])
            return self._bind(primitive, args, key)
        except Exception as error:
            point_at(error, user_location(), f"{primitive.name} was called")
            hide_frames(error)
            raise

    def _now(self) -> _Known:
        """What is known under the present settings and kernels."""
        settings = current()
        known = self._known.get(settings)
        if known is None or known.kernels != epoch.now.kernels or len(known.launchers) > _LIMIT:
            known = self._known[settings] = _Known()
        return known

    def _bind(self, primitive: Primitive, args: Sequence[Any], key: object) -> tuple[Any, ...]:
        tensors, consts = arguments(primitive, args, self.bind)
        for t in tensors:
            if isinstance(t, TracedTensor):
                _refuse_traced(primitive, t)
        device = common_device(primitive.name, tensors)
        if primitive._infers_value:
            known = known_value(primitive, tensors, consts)
            if known is not None:
                return known
        arrays = tuple(t._data for t in tensors)
        if primitive.dynamic_outputs:
            outs = quietly(_run_dynamic, primitive, arrays, consts, device)
        else:
            prepared, launch = self._launcher(primitive, tensors, consts, device)
            outs = quietly(launch, arrays)
            shared = any(isinstance(t, (Parameter, Reading)) for t in tensors)
            if prepared.entry.view is not None and shared:
                outs = tuple(o.copy() for o in outs)
            unchanged = len(tensors) == len(args) and all(map(is_, tensors, args))
            if key is not None and unchanged and _is_plain(primitive, device):
                self._now().ready.setdefault(primitive, {})[key] = launch
        results = tuple(Tensor.wrap(o, device) for o in outs)
        if current().check_nan:
            check_finite(primitive.name, tensors, results, _on_host)
        target = written(primitive, tensors)
        if target is not None:
            target.set_data(results[0])
        return results

    def _launcher(
        self, primitive: Primitive, tensors: list[Tensor], consts: dict[str, Any], device: str
    ) -> tuple[BoundKernel, Launcher]:
        types = tuple([(t.shape, t.dtype) for t in tensors])
        frozen = tuple((name, attribute_key(value)) for name, value in consts.items())
        key = (primitive, frozen, types, device)
        found = self._now().launchers.get(key)
        if found is None:
            abstracts = [Abstract(t.shape, t.dtype) for t in tensors]
            outs = infer(primitive, interleave(primitive, abstracts, consts))
            attrs = {**primitive.attributes, **consts}
            target = target_for(device)
            prepared = quietly(prepare, primitive, tuple(abstracts), outs, attrs, target)
            found = prepared, launcher(prepared)
            self._now().launchers[key] = found  # now: the rules just run may have registered some
        return found

    def call(self, fn: Callable[..., Any], args: Sequence[Any], named: Mapping[str, Any]) -> Any:
        settings = current()
        if settings.mode == GRAPH_MODE and settings.jit:
            return compiled(fn)(*args, **named)
        return fn(*args, **named)

    def stand_in(self, parameter: Any) -> Tensor:
        return read(parameter)

    def reserve(self, blocks: int) -> tuple[Any, int]:
        return random.default_generator.reserve(blocks), 0


def quietly(run: Callable[..., Any], *args: Any) -> Any:
    """`run(*args)`, in which NumPy warns of nothing.

    It runs in a copy of the context of `contextvars`, so no interrupt can leave NumPy quiet.
    """
    return copy_context().run(_quiet, run, args)


def _quiet(run: Callable[..., Any], args: tuple[Any, ...]) -> Any:
    np.errstate(all="ignore").__enter__()  # it ends with the context
    return run(*args)


def _plain_types(args: Sequence[Any]) -> object:
    """Shapes and dtypes when every argument is a plain Tensor on the CPU, else None."""
    types = []
    for a in args:
        if type(a) is not Tensor or a._device != "cpu":
            return None
        array = a._data
        types.append((array.dtype.num, array.shape))
    return tuple(types)


def _is_plain(primitive: Primitive, device: str) -> bool:
    """True when running the kernel is all there is to a call."""
    return (
        device == "cpu"
        and primitive.effect == "pure"
        and not primitive._infers_value
        and not current().check_nan
    )


def _refuse_traced(primitive: Primitive, tensor: TracedTensor) -> None:
    live(tensor)
    raise GraphError(f"{primitive.name} got a traced tensor outside its trace")


def _run_dynamic(
    primitive: Primitive, arrays: tuple[Array, ...], consts: dict[str, Any], device: str
) -> tuple[Array, ...]:
    """A primitive whose output shapes depend on values: its kernel returns fresh arrays."""
    inputs = [Abstract(a.shape, a.dtype) for a in arrays]
    selection = target_for(device).select(primitive.name, inputs)
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
    return outs


def _on_host(tensor: Tensor) -> Array:
    """The data of a tensor that has some, whatever trace is around: looking loses no gradient."""
    return get_device(tensor.device).to_host(tensor._data)
