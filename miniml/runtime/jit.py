"""Just-in-time compilation: a function is traced and compiled once for each signature of its calls.

Jit: a function with its compiled versions. Versions: one compiled program, its guards, and the fast
path of the version used last. Dynamic axes: extents of arguments that vary between calls.
Recompilation: why a function is compiled again. Graphs: a call of a graph is checked against its
inputs' types and compiled once.
"""

from __future__ import annotations

from _thread import RLock
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, fields
from functools import partial
from inspect import CO_ASYNC_GENERATOR, CO_COROUTINE, CO_GENERATOR, CO_VARKEYWORDS, Signature
from itertools import accumulate, count
from types import FunctionType, MethodType
from typing import Any, NamedTuple, TypeVar
from weakref import WeakKeyDictionary, WeakValueDictionary, ref

import numpy as np
import optree

from ..backends.cc.native import Texts, in_slots, unwrapping, wrapping
from ..backends.compiled import lock_of_process
from ..backends.selection import Target
from ..core.abstract import Abstract, DType, Kind, Shape, canonical, scalar_dtype, typed
from ..core.access import at_fork, inside_section
from ..core.errors import (
    ArityError,
    DTypeError,
    GraphError,
    PerformanceWarning,
    ShapeError,
    warn_user,
)
from ..core.hints import hide_frames
from ..core.scope import Epoch, epoch
from ..core.settings import Settings, current
from ..core.tensor import Tensor, common_device
from ..core.trace import Guarded, in_trace, is_tracing
from ..graph.ir import Graph, Leaf, Rebuild, flatten_arguments, run_by, signature_of
from ..graph.passes import run_passes
from ..graph.record import replay
from ..graph.tracing import function_name, trace_call
from .launch import in_c, program_target
from .program import Pending, Program, begun

F = TypeVar("F", bound=Callable[..., Any])
Guard = tuple[ref[Guarded], object]
Types = tuple[tuple[Shape, DType], ...]  # of the tensors and arrays of a call
Key = tuple[Any, ...]  # of a version: Types, structure, settings, and what is registered
_tensor = Tensor.of_kind
_LIMIT = 64  # versions of one function; each has an arena
_RUN_LATER = CO_GENERATOR | CO_COROUTINE | CO_ASYNC_GENERATOR
_EXACT = 2  # sizes of a function whose kernels in C are compiled for them alone
_MANY = 5  # compilations of one function after which the user is warned
_FOR_SIZES = (
    '; declare axes that vary, as in ml.jit(f, dynamic={"x": (0,)}), which shares kernels from the '
    "second size on, or pad them to a few sizes, which data.bucketed keeps close"
)
_SENTENCES = 100  # kept in `recompilations`
_uses = count()  # numbers of uses, by which the version used last is known


def jit(fn: F, dynamic: Mapping[str, Sequence[int]] | None = None) -> F:
    """The compiled `fn`: it is traced at its first call and for every new kind of arguments, then
    run as a Program with preallocated buffers.

    Tensors and arrays in the arguments (of other libraries and in trees, too), given by position or
    by keyword, are inputs; Python scalars, strings and None are part of the program. Closures,
    globals and the attributes of cells are read when tracing. Under another trace, and in
    `ml.context(jit=False)`, it is `fn` itself. GraphError for what cannot be called, and for
    generators and coroutines.

    dynamic: axes of arguments whose sizes vary, by the names of the arguments, as in {"x": (0,)};
    of a Cell, those of its construct. A new size is traced again, so shapes are Python integers.
    The C of the first size holds its extents as constants; from the second on (of other functions
    the third) those that differ are arguments, so that most further sizes compile nothing. Sizes
    share kernel objects that can be resized (see `Kernel`); programs for the eight sizes used last
    are kept. `recompilations` says what is shared, or which operation is another one at that size.
    """
    if not callable(fn):
        raise GraphError(f"jit got {fn!r} of type {type(fn).__name__}; give a function of tensors")
    if _runs_later(fn):
        raise GraphError(
            f"jit got {function_name(fn)}, a generator or coroutine, whose body runs after the "
            "call; return a list of tensors"
        )
    return Jit(fn, dynamic)  # type: ignore[return-value]


def _runs_later(fn: Any) -> bool:
    """True for a function, or a partial or method of one, whose body a call does not run."""
    while isinstance(fn, (partial, MethodType)):
        fn = fn.func if isinstance(fn, partial) else fn.__func__
    return isinstance(fn, FunctionType) and bool(fn.__code__.co_flags & _RUN_LATER)


def compiled(fn: Callable[..., Any]) -> Jit:
    """The one Jit of a function, found by its equality and hash, and dropped with the function."""
    found = _shared.get(fn)
    if found is None:
        found = _shared[fn] = Jit(_Weakly(fn))
    return found


_shared: WeakKeyDictionary[Any, Jit] = WeakKeyDictionary()


class _Weakly:
    """A call of a function that this object does not keep alive."""

    def __init__(self, fn: Callable[..., Any]):
        self._fn = ref(fn)
        self.__name__ = getattr(fn, "__name__", type(fn).__name__)

    def __call__(self, *args: Any, **named: Any) -> Any:
        fn = self._fn()
        assert fn is not None, "the caller holds the function while it calls it"
        return fn(*args, **named)


# --- Jit ------------------------------------------------------------------------------------------


class Jit:
    """A function that compiles itself: `jit(fn)(*args, **named)`.

    The key of a compiled version: shapes, dtypes and device of the tensors among the arguments,
    the value of everything else in them, the settings, the kernels and gradients registered, and
    the mode and structure of the cells it met. `recompilations` says why each version was made.
    """

    def __init__(self, fn: Callable[..., Any], dynamic: object = None):
        self.fn = fn
        self.recompilations: list[str] = []
        self._kept: list[tuple[Key, Compiled]] = []  # in the order in which they were made
        self._versions: dict[object, list[Compiled]] = {}  # the same, by key
        self._last: dict[str, object] | None = None
        self._latest: _Latest | None = None
        self.__doc__ = fn.__doc__
        self.__name__ = getattr(fn, "__name__", type(fn).__name__)
        self.__wrapped__ = fn
        self.dynamic = None if dynamic is None else Dynamic(self.__name__, fn, dynamic)

    def __call__(self, *args: Any, **named: Any) -> Any:
        try:
            latest = self._latest
            if latest is not None and not named and (in_trace() is None or not is_tracing()):
                arrays = latest.arrays(args)
                if arrays is not None:
                    return latest.compiled.run(arrays)
            return self._call(args, named)
        except Exception as error:
            hide_frames(error)
            raise

    def _call(self, args: Sequence[Any], named: Mapping[str, Any]) -> Any:
        settings = current()
        if not settings.jit or is_tracing():
            return self.fn(*args, **named)
        flat = _flat(self.fn, args, named)
        arrays = [a._data if isinstance(a, Tensor) else a for a in flat.leaves]
        types = tuple([(a.shape, a.dtype) for a in arrays])
        compiled = self._find(flat, types, settings)
        if flat.leaves is args:
            compiled.expect([Kind.of(Tensor, *of, compiled.device) for of in types])
            self._latest = _Latest(settings.bare, compiled)
        return compiled.run(arrays)

    def __repr__(self) -> str:
        return f"jit({self.__name__})"

    def __reduce__(self) -> tuple[Any, ...]:  # copies and pickles are compiled anew
        return Jit, (self.fn, self.dynamic and self.dynamic.axes)

    def __get__(self, owner: object, kind: type | None = None) -> Any:
        """On an instance, a bound method: the object is the first argument, a static one."""
        return self if owner is None else MethodType(self, owner)

    def compiled(self, *args: Any, **named: Any) -> Compiled:
        """The compiled version that a call with these arguments uses; compiled now if need be."""
        flat = _flat(self.fn, args, named)
        found = self._find(flat, tuple([(a.shape, a.dtype) for a in flat.leaves]), current())
        found.settle(wait=True)
        return found

    def _find(self, flat: _Flat, types: Types, settings: Settings) -> Compiled:
        tensors = [a for a in flat.leaves if isinstance(a, Tensor)]
        device = common_device(self.__name__, tensors)
        now = epoch.now
        key = (types, flat.structure, settings.bare, now.kernels, now.bprops, now.passes)
        placed = bool(tensors)
        found = self._made(key, device, placed)
        if found is not None:
            return found
        with _alone(self, key):
            found = self._made(key, device, placed)  # another thread may have compiled it meanwhile
            if found is not None:
                return found
            sizes = None
            if self.dynamic is not None:
                sizes = self.dynamic.general(flat.rebuild, types), *key[1:]
            return self._compile(flat.rebuild, device, key, settings, sizes, placed)

    def _made(self, key: object, device: str, placed: bool) -> Compiled | None:
        """The version that serves such a call, if there is one."""
        for compiled in self._versions.get(key, ()):
            if compiled.serves(device, placed) and compiled.valid():
                compiled.used = next(_uses)
                return compiled
        return None

    def _compile(
        self,
        rebuild: Rebuild,
        device: str,
        key: Key,
        settings: Settings,
        sizes: tuple[object, ...] | None,
        placed: bool,
    ) -> Compiled:
        """placed: True if a tensor among the arguments decides the device."""
        asked = device
        began, first = epoch.now, epoch.tick()  # changes during tracing may be missing from it
        abstracts = [Abstract(shape, canonical(dtype)) for shape, dtype in key[0]]
        graph, result, trace = trace_call(self.fn, rebuild, abstracts, device, placed)
        anchored, device = trace.device != device or trace.anchored(), trace.device
        sizes = sizes and (device, *sizes)
        passed = run_passes(graph, settings.disabled_passes, settings.verify_passes)
        texts = self._texts((device, *key[1:]))
        program, pending = self._program(passed, program_target(device), sizes, texts)
        # Cells are as tracing met them. One that tracing itself made, since the tick `first`, is
        # made again by the next trace; if it is kept, it may not change from now on.
        guards = tuple(
            [(ref(c), met if c.born < first else c.signature) for c, met in trace.guards.values()]
        )
        silent = any(owner.silent for owner, _ in trace.guards.values())
        outs = [(v.abstract.shape, v.abstract.dtype) for v in program.graph.outputs]
        kinds = [Kind.of(Tensor, *of, device) for of in outs]
        compiled = Compiled(
            program, graph, result, guards, device, anchored, kinds, began, texts, silent, sizes
        )
        compiled.used, compiled.pending = next(_uses), pending
        compiled.remarks = trace.remarked()
        with _registry:
            reason = self._why(asked, key)
            self._keep(key, compiled)
        self._note(reason if sizes is None else f"{reason}; {program.shared}")
        return compiled

    def _note(self, reason: str) -> None:
        """Keep the reason of a version; one that failed to compile has none."""
        self.recompilations.append(reason)
        if len(self.recompilations) == _MANY and self.dynamic is None:
            advice = _FOR_SIZES if reason.startswith("tensor ") else ""
            warn_user(
                PerformanceWarning(
                    f"{self.__name__} is compiled for the fifth time; the last reason: "
                    f"{reason}{advice}; all of them are in its .recompilations"
                )
            )
        del self.recompilations[:-_SENTENCES]

    def _program(
        self, graph: Graph, target: Target, sizes: object, texts: Texts
    ) -> tuple[Program, Pending | None]:
        """The program of a version, and the one that will take its place; for a dynamic function it
        shares kernel objects with those for other sizes."""
        if sizes is not None:
            others = [c.program.sibling for c in self._of_sizes(sizes)[::-1]]
            return Program(graph, target, others=others, texts=texts), None
        if current().compile == "background" and in_c(target):
            return begun(graph, target, texts)
        return Program(graph, target, texts=texts), None

    def _texts(self, alike: tuple[object, ...]) -> Texts:
        """Those of the versions that differ from this one in sizes alone."""
        found = (c.texts for key, c in self._kept[::-1] if (c.device, *key[1:]) == alike)
        return next(found, None) or Texts(_EXACT if self.dynamic is None else 1)

    def _of_sizes(self, sizes: object) -> list[Compiled]:
        """The versions for these kinds of arguments in any size, the one used last at the end."""
        return sorted([c for _, c in self._kept if c.sizes == sizes], key=lambda c: c.used)

    def _keep(self, key: Key, compiled: Compiled) -> None:
        """Add a version; evict those that never fit again, and the oldest beyond the limit: among
        those for other sizes, the least recently used beyond their room."""
        kept = [(k, c) for k, c in self._kept if not c.outgrown()]
        if compiled.sizes is not None:
            surplus = _beyond_room(self._of_sizes(compiled.sizes))
            kept = [(k, c) for k, c in kept if c not in surplus]
        self._kept = [*kept[1 - _LIMIT :], (key, compiled)]
        versions: dict[object, list[Compiled]] = {}
        for k, c in self._kept:
            versions.setdefault(k, []).append(c)
        self._versions = versions  # another thread may be iterating over the previous ones

    def _why(self, device: str, key: Key) -> str:
        """Difference from the version compiled before, in one sentence."""
        names = ("device", "tensors", "static", "settings", "kernels", "bprops", "passes")
        now = dict(zip(names, (device, *key), strict=True))
        before, self._last = self._last, now
        if before is None:
            return "first call"
        others = self._versions.get(key, ())
        if before == now and any(version.valid() for version in others):
            return "another thread compiled the same at the same time"
        return why(before, now, [cell for version in others[-1:] for cell in version.changed()])


# Locks of versions being compiled, by function and key, while a thread holds or awaits them.
_making: WeakValueDictionary[tuple[int, object], RLock] = WeakValueDictionary()
_registry = lock_of_process()
at_fork(after_in_child=_making.clear)  # the threads that held them are not there


@contextmanager
def _alone(of: Jit, key: object) -> Iterator[None]:
    """Let one thread at a time compile a version: others wait, to use it or, if it failed, to try.

    A thread inside a section does not wait: the other thread may be waiting for that section.
    """
    if inside_section():
        yield
        return
    with _registry:
        lock = _making.get((id(of), key))
        if lock is None:
            lock = _making[id(of), key] = RLock()
    with lock:
        yield


class _Flat(NamedTuple):
    """Flattened arguments of a call: tensors and arrays, static structure, and the inverse."""

    leaves: Sequence[Any]
    structure: object
    rebuild: Rebuild


def _flat(fn: Any, args: Sequence[Any], named: Mapping[str, Any]) -> _Flat:
    """Flatten the arguments; tensors and arrays by position, the common case, need no tree."""
    if not named and {Tensor, np.ndarray}.issuperset(map(type, args)):
        return _Flat(args, len(args), lambda leaves: (leaves, {}))
    code = getattr(fn, "__code__", None)
    if code is not None and not code.co_flags & CO_VARKEYWORDS:  # it does not see their order
        named = dict(sorted(named.items()))
    return _Flat(*flatten_arguments((args, named)))


# --- Versions -------------------------------------------------------------------------------------


@dataclass(slots=True)
class Compiled:
    """A compiled version of a function, with all that it depends on."""

    program: Program
    traced: Graph
    rebuild: Callable[[Sequence[Any]], Any]
    guards: tuple[Guard, ...]
    device: str
    anchored: bool  # to the device of parameters or tensors that fn found; arrays follow it
    kinds: Sequence[Kind]  # of the outputs
    checked: Epoch  # when the guards last held
    texts: Texts  # of its kernels in C, and of all versions for other sizes
    silent: bool = False  # a cell among the guards may change without a new epoch
    sizes: object = None  # the key of all versions for other sizes, of a dynamic function
    used: int = 0  # time of its last use, among these
    remarks: tuple[str, ...] = ()  # on calls that were traced in a slower way than need be
    pending: Pending | None = None  # the program that will take the place of this one
    # In C: the arrays of tensors of the kinds `expected`, and the tensors of the outputs.
    expected: Sequence[Kind] = ()
    unwrap: Callable[..., Sequence[Any] | None] | None = None
    wrap: Callable[..., Sequence[Tensor]] | None = None

    def expect(self, kinds: Sequence[Kind]) -> None:
        """Have C take tensors of these kinds, where it is available without a compiler."""
        if self.expected != kinds:
            self.expected = kinds
            x = Tensor(0.0, device="cpu")
            if in_c(program_target(self.device)) and in_slots(x, x._data, x._kind):
                self.unwrap, self.wrap = unwrapping(Tensor, kinds), wrapping(Tensor, self.kinds)

    def settle(self, wait: bool = False) -> None:
        """Let the pending program take its place if it is done; wait: for it."""
        made = self.pending and self.pending.program(wait)
        if made:
            self.program, self.pending = made, None

    def run(self, arrays: Sequence[Any]) -> Any:
        """Result of the function for these arrays, as Tensors of their own."""
        if self.pending is not None:
            self.settle()
        outs = self.program.run(arrays)
        wrap = self.wrap
        return self.rebuild([*map(_tensor, outs, self.kinds)] if wrap is None else wrap(*outs))

    def serves(self, device: str, placed: bool) -> bool:
        """True if it fits arguments on that device. placed: a tensor among them decides it."""
        return self.device == device or (self.anchored and not placed)

    def valid(self) -> bool:
        """True while every cell among the guards is as it was when traced."""
        now = epoch.now
        if self.checked is now and not self.silent:
            return True
        if any(self.changed()):
            return False
        self.checked = now
        return True

    def changed(self) -> Iterator[Guarded]:
        """The cells that are not as they were; without a new epoch, of those that may be so."""
        new = self.checked is not epoch.now
        return (c for c, met in self._alive() if (new or c.silent) and c.signature != met)

    def outgrown(self) -> bool:
        """True if a cell has changed for good, so that this is never valid again."""
        return any(cell.outgrown(state) for cell, state in self._alive())

    def _alive(self) -> Iterator[tuple[Guarded, object]]:
        """The cells that may still change: one that was collected stays as it was."""
        owners = ((owner(), state) for owner, state in self.guards)
        return ((cell, state) for cell, state in owners if cell is not None)


@dataclass(frozen=True, slots=True)
class _Latest:
    """The version used last, if its arguments were plain tensors; it is tried first."""

    settings: Settings
    compiled: Compiled

    def arrays(self, args: Sequence[Any]) -> Sequence[Any] | None:
        """The arrays of `args` if the version serves them, else None."""
        now, compiled = current(), self.compiled
        if (
            (self.settings is not now and self.settings is not now.unwatched)
            or compiled.checked is not epoch.now
            or (compiled.silent and not compiled.valid())
        ):
            return None
        unwrap = compiled.unwrap
        return (unwrap and unwrap(*args)) or self._each(args, compiled.expected)

    def _each(self, args: Sequence[Any], kinds: Sequence[Kind]) -> list[Any] | None:
        """The same for arguments that may be arrays of the host."""
        if len(args) != len(kinds):
            return None
        arrays = []
        for a, kind in zip(args, kinds):
            if type(a) is Tensor:
                if a._kind is not kind:
                    return None
                arrays.append(a._data)
            else:
                of = kind.abstract
                if type(a) is not np.ndarray or a.dtype is not of.dtype or a.shape != of.shape:
                    return None
                arrays.append(a)
        return arrays


# --- Dynamic axes ---------------------------------------------------------------------------------

Axes = dict[int, tuple[int, ...]]  # by the position of a tensor among those of a call
SIZES = 8  # programs that are kept for one function and kind of arguments; more of them in _ROOM
_ROOM = 1 << 28  # bytes of arenas


def _beyond_room(versions: list[Compiled]) -> list[Compiled]:
    """Those that go for one more, given the one used last at the end: all but SIZES with it, as far
    as their arenas need more than _ROOM."""
    arenas = accumulate(version.program.plan.size for version in reversed(versions))
    found = list(zip(reversed(versions), arenas))
    return [version for version, nbytes in found[SIZES - 1 :] if nbytes > _ROOM]


class Dynamic:
    """Axes that vary, by argument name, as in {"x": (0,)}.

    An argument may be a tree: then they are axes of each tensor in it. GraphError for a name
    that the function does not have, and for axes that are not integers.
    """

    def __init__(self, name: str, fn: Callable[..., Any], axes: object):
        self.name = name
        self.signature = _signature(name, fn)
        self.axes = self._checked(axes)

    def _checked(self, axes: object) -> dict[str, tuple[int, ...]]:
        if not isinstance(axes, Mapping) or not axes:
            raise GraphError(
                f"jit of {self.name} got dynamic={axes!r}; give the axes that vary by the name of "
                "the argument, as in {'x': (0,)}"
            )
        return {name: self._one(name, axes[name]) for name in axes}

    def _one(self, name: object, axes: object) -> tuple[int, ...]:
        if name not in self.signature.parameters:
            known = ", ".join(self.signature.parameters) or "none"
            raise GraphError(
                f"jit of {self.name} got dynamic axes of {name!r}, which is not among its "
                f"arguments: {known}"
            )
        given = (axes,) if isinstance(axes, int) else axes
        if not isinstance(given, (tuple, list)) or {*map(type, given)} != {int}:
            raise GraphError(
                f"jit of {self.name} got {axes!r} as the dynamic axes of {name}; give integers, "
                "as in (0,)"
            )
        return tuple(given)

    def general(self, rebuild: Rebuild, types: Types) -> object:
        """The types with None for the extents that vary: equal for calls in other sizes only.

        rebuild: gives (args, named) with values in place of the tensors. GraphError for an
        argument without a tensor, other than None, and ShapeError for an axis that one lacks.
        """
        axes = self._axes_of(rebuild, len(types))
        return tuple(
            (self._open(shape, dtype, axes.get(i, ())), dtype)
            for i, (shape, dtype) in enumerate(types)
        )

    def _axes_of(self, rebuild: Rebuild, count: int) -> Axes:
        args, named = rebuild(list(map(Leaf, range(count))))
        try:
            given = self.signature.bind(*args, **named).arguments
        except TypeError:
            return {}  # the traced call raises the error
        found: Axes = {}
        for name, axes in self.axes.items():
            value: Any = given.get(name)
            leaves = [a for a in optree.tree_leaves(value) if isinstance(a, Leaf)]
            if not leaves and value is not None:
                raise GraphError(
                    f"{self.name} got {value!r} for {name}, whose axes {axes} are dynamic; pass a "
                    "Tensor, or leave it out of dynamic="
                )
            found |= {leaf.index: axes for leaf in leaves}
        return found

    def _open(self, shape: Shape, dtype: DType, axes: Sequence[int]) -> tuple[int | None, ...]:
        for axis in axes:
            if not -len(shape) <= axis < len(shape):
                raise ShapeError(
                    f"{self.name} has the dynamic axis {axis} in an argument that is "
                    f"{Abstract(shape, dtype)}; name axes that it has"
                )
        varies = {axis % len(shape) for axis in axes}
        return tuple(None if i in varies else n for i, n in enumerate(shape))


def _signature(name: str, fn: Any) -> Signature:
    try:
        return signature_of(fn)
    except (TypeError, ValueError):
        raise GraphError(
            f"jit of {name} cannot name its arguments; wrap it in a function for dynamic="
        ) from None


# --- Recompilation --------------------------------------------------------------------------------

_CELL = "a cell changed{}: its mode, an attribute, or what a list, dict or set among these holds"
_CHANGES = {
    "device": "the tensors are on another device",
    "kernels": "a primitive or kernel was registered",
    "bprops": "a gradient rule was registered",
    "passes": "a pass was registered",
}
_WATCHING = "watchers", "unwatched"  # which no program depends on


def why(before: dict[str, Any], now: dict[str, Any], changed: Sequence[object] = ()) -> str:
    """Difference between the keys of two versions of a function, in one sentence. changed: the
    cells that are not as they were for the version with an equal key."""
    found = []
    if before["tensors"] != now["tensors"]:
        old, new = before["tensors"], now["tensors"]
        if len(old) != len(new):
            found.append(f"{len(old)} tensors became {len(new)}")
        found += [
            f"tensor {i} changed from {Abstract(*a)} to {Abstract(*b)}"
            for i, (a, b) in enumerate(zip(old, new, strict=False))
            if a != b
        ]
    if before["static"] != now["static"]:
        found.append(
            "a static argument (a Python number, string or the tree itself) changed; pass a "
            "Tensor for a number that varies"
        )
    if before["settings"] != now["settings"]:
        found.append(f"the context's settings changed: {_settings(before, now)}")
    found += [text for name, text in _CHANGES.items() if before[name] != now[name]]
    names = ", ".join(dict.fromkeys(type(cell).__name__ for cell in changed))
    return "; ".join(found) or _CELL.format(names and f" ({names})")


def _settings(before: dict[str, Any], now: dict[str, Any]) -> str:
    """The settings that differ, with old and new values."""
    pairs = [
        (f.name, *(getattr(of["settings"], f.name) for of in (before, now)))
        for f in fields(Settings)
        if f.init and f.name not in _WATCHING
    ]
    return ", ".join(f"{name} from {old!r} to {new!r}" for name, old, new in pairs if old != new)


# --- Calls of graphs ------------------------------------------------------------------------------


class CallableGraph:
    """The callable behind `graph(...)`: a Jit of its replay, for arguments of its inputs' types."""

    def __init__(self, graph: Graph):
        self.graph, self.__name__ = graph, graph.name
        self._types = [(v.abstract.shape, v.abstract.dtype) for v in graph.inputs]
        self._names = graph.input_names or tuple(f"x{i}" for i in range(len(graph.inputs)))
        self._compiled = Jit(self._replay)
        self._compiled.__name__ = graph.name  # the name in warnings and of programs

    def __call__(self, *args: Any, **named: Any) -> Any:
        if named or len(args) != len(self._names):
            args = self._in_order(args, named)
        if not all(map(_fits, args, self._types)):
            args = tuple(self._converted(i, value) for i, value in enumerate(args))
        return self._compiled(*args)

    def _converted(self, i: int, value: Any) -> Any:
        """An argument converted to the type of its input. A number is an array of no axes; a Python
        number gets the dtype that it has beside a tensor of the input's."""
        shape, dtype = self._types[i]
        if isinstance(value, np.generic):
            value = np.asarray(value)
        converted = value
        if shape == () and isinstance(value, (bool, int, float)):
            with suppress(OverflowError):
                converted = np.array(value, scalar_dtype(value, (dtype,)))
        if not _fits(converted, (shape, dtype)):
            raise self._misfit(i, value)
        return converted

    def _replay(self, *args: Any) -> Any:
        outputs = replay(self.graph, args)
        return outputs[0] if len(outputs) == 1 else outputs

    def _in_order(self, args: Sequence[Any], named: Mapping[str, Any]) -> tuple[Any, ...]:
        given = {**dict(zip(self._names, args, strict=False)), **named}
        twice = [n for n in self._names[: len(args)] if n in named]
        if twice or len(args) > len(self._names) or given.keys() != set(self._names):
            raise ArityError(
                f"graph {self.__name__} got {len(args)} inputs by position"
                f"{', and by name ' + ', '.join(named) if named else ''}; it takes {self._takes()}"
            )
        return tuple(given[n] for n in self._names)

    def _misfit(self, i: int, value: Any) -> Exception:
        """The error for an argument whose type is not that of its input."""
        expected = self.graph.inputs[i].abstract
        what = f"graph {self.__name__} takes {self._names[i]}: {expected}; got "
        if not isinstance(value, (Tensor, np.ndarray)):
            number = "a number that it can hold, " if expected.shape == () else ""
            instead = f"; give {number}a Tensor or an array"
            return DTypeError(f"{what}{value!r:.200} of type {type(value).__name__}{instead}")
        kind = ShapeError if value.shape != expected.shape else DTypeError
        return kind(
            f"{what}{typed(value)}; a graph is for fixed types: trace or load it again, or cast"
        )

    def _takes(self) -> str:
        inputs = zip(self._names, self.graph.inputs, strict=True)
        return ", ".join(f"{name}: {v.abstract}" for name, v in inputs) or "none"


def _fits(value: Any, type_: tuple[Shape, DType]) -> bool:
    shape, dtype = type_
    array = isinstance(value, (Tensor, np.ndarray)) and value.shape == shape
    return array and canonical(value.dtype) == dtype


run_by(CallableGraph)
