"""The eager trace: infer, select a kernel, allocate, launch, at once."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextvars import copy_context
from operator import is_
from typing import Any

import numpy as np

from .. import random
from ..abstract import Abstract
from ..arguments import arguments
from ..attributes import key as attribute_key
from ..backends import registry
from ..backends.device import Array, get_device
from ..errors import DeclarationError, GraphError, NonFiniteError
from ..graph.ir import Graph, interleave
from ..graph.state import written
from ..graph.traced import TracedTensor, live
from ..graph.tracer import known_value
from ..infer import infer
from ..location import point_at, user_location
from ..primitive import Primitive
from ..reading import Reading, read
from ..settings import GRAPH_MODE, Settings, current
from ..tensor import Parameter, Tensor, common_device
from ..tracebacks import hide_frames
from .jit import compiled
from .launch import Launcher, Prepared, launcher, prepare

_LIMIT = 4096
_NONE: dict[object, Launcher] = {}


class _Known:
    """The launchers prepared under one set of settings, for one state of the kernel table.

    `ready` holds those that plain tensors may go to directly, because nothing has to be cast,
    moved or published for them.
    """

    __slots__ = ("launchers", "ready", "version")

    def __init__(self) -> None:
        self.launchers: dict[object, tuple[Prepared, Launcher]] = {}
        self.ready: dict[Primitive, dict[object, Launcher]] = {}
        self.version = registry.version


class EagerTrace:
    """Runs every call at once. Launchers are kept by settings, primitive and types."""

    differentiates = False
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
        if known is None or known.version != registry.version or len(known.launchers) > _LIMIT:
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
            check_finite(primitive.name, tensors, results)
        target = written(primitive, tensors)
        if target is not None:
            target.set_data(results[0])
        return results

    def _launcher(
        self, primitive: Primitive, tensors: list[Tensor], consts: dict[str, Any], device: str
    ) -> tuple[Prepared, Launcher]:
        types = tuple([(t.shape, t.dtype) for t in tensors])
        frozen = tuple((name, attribute_key(value)) for name, value in consts.items())
        key = (primitive, frozen, types, device)
        found = self._now().launchers.get(key)
        if found is None:
            abstracts = [Abstract(t.shape, t.dtype) for t in tensors]
            outs = infer(primitive, interleave(primitive, abstracts, consts))
            attrs = {**primitive.attributes, **consts}
            settings = current()
            home = get_device(device, settings.sim)
            inputs, providers = tuple(abstracts), settings.providers
            prepared = quietly(prepare, primitive, inputs, outs, attrs, home, providers)
            found = prepared, launcher(prepared)
            self._now().launchers[key] = found  # now: the rules just run may have filed something
        return found

    def call(self, fn: Callable[..., Any], args: Sequence[Any], named: Mapping[str, Any]) -> Any:
        settings = current()
        if settings.mode == GRAPH_MODE and settings.jit:
            return compiled(fn)(*args, **named)
        return fn(*args, **named)

    def call_with_bprop(
        self, name: str, fn: Callable[..., Any], bprop: Callable[..., Any], args: Sequence[Any]
    ) -> Any:
        return fn(*args)

    def graph_of(
        self, fn: Callable[..., Any], operands: Sequence[Any]
    ) -> tuple[Graph, list[Any], int]:
        raise GraphError("the eager trace runs branches and loops at once; it traces no graph")

    def stand_in(self, parameter: Any) -> Tensor:
        return read(parameter)

    def reserve(self, blocks: int) -> tuple[Any, int]:
        return random.default_generator.reserve(blocks), 0

    def guard(self, owner: Any, state: object) -> None:
        """Nothing is kept that could depend on it."""


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
    dtypes = tuple(a.dtype for a in arrays)
    selection = registry.select(primitive.name, device, dtypes, current().providers)
    if selection.cast is not None:
        arrays = tuple(a.astype(selection.cast) for a in arrays)
    body: Any = selection.entry.body
    result: Any = body(*arrays, **primitive.attributes, **consts)
    outs = tuple(result) if isinstance(result, (tuple, list)) else (result,)
    came = [str(getattr(o, "dtype", type(o).__name__)) for o in outs]
    if not all(isinstance(o, np.ndarray) for o in outs) or not selection.entry.signature.gives(
        tuple(o.dtype for o in outs)
    ):
        raise DeclarationError(
            f"{primitive.name} kernel {selection.entry.signature} returned {', '.join(came)}; "
            "return the arrays of its signature"
        )
    return outs


def _on_host(tensor: Tensor) -> Array:
    """The data of a tensor that has some, whatever trace is around: looking loses no gradient."""
    return get_device(tensor.device).to_host(tensor._data)


def check_finite(name: str, inputs: Sequence[Tensor], outputs: Sequence[Tensor]) -> None:
    """NonFiniteError, with the inputs' ranges, when an output holds a NaN or an infinity."""
    for output in outputs:
        array = _on_host(output)
        if array.dtype.kind in "fV" and not np.isfinite(array.astype(np.float64)).all():
            ranges = ", ".join(_range(_on_host(t)) for t in inputs) or "none"
            kind = "NaN" if np.isnan(array.astype(np.float64)).any() else "an infinity"
            raise NonFiniteError(f"{name} made {kind}; its inputs were {ranges}")


def _range(array: Array) -> str:
    if not array.size:
        return f"{array.dtype.name}{list(array.shape)} empty"
    wide = array.astype(np.float64)
    return f"{array.dtype.name}{list(array.shape)} in [{wide.min():.4g}, {wide.max():.4g}]"
