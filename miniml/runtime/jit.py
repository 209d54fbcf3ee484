"""jit: a Python function traced and compiled once for each kind of call."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from inspect import CO_ASYNC_GENERATOR, CO_COROUTINE, CO_GENERATOR
from itertools import count
from types import FunctionType, MethodType
from typing import Any, NamedTuple, TypeVar
from weakref import WeakKeyDictionary, ref

import numpy as np

from .. import epoch
from ..abstract import Abstract, Kind, Shape
from ..backends.registry import NATIVE
from ..backends.selection import Target
from ..dtype import DType, canonical
from ..epoch import Epoch
from ..errors import GraphError, PerformanceWarning, warn_user
from ..graph.function import function_name, trace_call
from ..graph.ir import Graph
from ..graph.passes import run_passes
from ..graph.trees import Rebuild, flatten_arguments
from ..settings import Settings, current
from ..tensor import Tensor, common_device
from ..trace import Guarded, is_tracing
from ..tracebacks import hide_frames
from .dynamic import SIZES, Dynamic
from .launch import program_target
from .program import Program
from .reasons import why

F = TypeVar("F", bound=Callable[..., Any])
Guard = tuple[ref[Guarded], object]
Types = tuple[tuple[Shape, DType], ...]  # of the tensors and arrays of a call
_tensor = Tensor.of_kind
_LIMIT = 64  # versions of one function; each has an arena
_RUN_LATER = CO_GENERATOR | CO_COROUTINE | CO_ASYNC_GENERATOR
_MANY = 5  # compilations of one function, at which the user is warned
_SENTENCES = 100  # of a function's recompilations


@dataclass(slots=True)
class Compiled:
    """One compiled version of a function, with all that it depends on."""

    program: Program
    traced: Graph
    rebuild: Callable[[Sequence[Any]], Any]
    guards: tuple[Guard, ...]
    device: str
    anchored: bool  # by what fn found there: arrays follow it, whatever the context's device
    kinds: Sequence[Kind]  # of the outputs
    checked: Epoch  # when the guards last held
    silent: bool = False  # a cell that was met may change without being counted
    sizes: object = None  # the key of all versions for other sizes, of a dynamic function
    used: int = 0  # when it was last, among these

    def run(self, arrays: Sequence[Any]) -> Any:
        """What the function returns for these arrays, as Tensors of their own."""
        return self.rebuild([*map(_tensor, self.program(*arrays), self.kinds)])

    def serves(self, device: str, placed: bool) -> bool:
        """True for arguments on that device; placed: where a tensor among them says so."""
        return self.device == device or (self.anchored and not placed)

    def valid(self) -> bool:
        """True while every cell that was met while tracing is as it was then."""
        now = epoch.now
        if self.checked is now and not self.silent:
            return True
        if any(cell.signature != state for cell, state in self._alive()):
            return False
        self.checked = now
        return True

    def outgrown(self) -> bool:
        """True when a cell has changed for good, so that this is never valid again."""
        return any(cell.outgrown(state) for cell, state in self._alive())

    def _alive(self) -> Iterator[tuple[Guarded, object]]:
        """The cells that may still change: what is gone stays as it was."""
        owners = ((owner(), state) for owner, state in self.guards)
        return ((cell, state) for cell, state in owners if cell is not None)


@dataclass(frozen=True, slots=True)
class _Latest:
    """The version used last, when its arguments were plain tensors: looked at first."""

    settings: Settings
    kinds: Sequence[Kind]
    compiled: Compiled

    def arrays(self, args: Sequence[Any]) -> list[Any] | None:
        """The arrays of `args` if the version serves them, else None."""
        now = current()
        if (
            (self.settings is not now and self.settings is not now.unwatched)
            or self.compiled.checked is not epoch.now
            or (self.compiled.silent and not self.compiled.valid())
            or len(args) != len(self.kinds)
        ):
            return None
        arrays = []
        for a, kind in zip(args, self.kinds):
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


class Jit:
    """A function that compiles itself: `jit(fn)(*args, **named)`.

    The key of a compiled version: shapes, dtypes and device of the tensors among the arguments,
    the value of everything else in them, the settings, the kernels and gradients registered, and
    the mode and structure of the cells it met. `recompilations` says why each version was made.
    """

    def __init__(self, fn: Callable[..., Any], dynamic: object = None):
        self.fn = fn
        self.recompilations: list[str] = []
        self._kept: list[tuple[object, Compiled]] = []  # in the order in which they were made
        self._versions: dict[object, list[Compiled]] = {}  # the same, by key
        self._last: dict[str, object] | None = None
        self._latest: _Latest | None = None
        self.__doc__ = fn.__doc__
        self.__name__ = getattr(fn, "__name__", type(fn).__name__)
        self.__wrapped__ = fn
        self.dynamic = None if dynamic is None else Dynamic(self.__name__, fn, dynamic)
        self._uses = count()

    def __call__(self, *args: Any, **named: Any) -> Any:
        try:
            latest = self._latest
            if latest is not None and not named and not is_tracing():
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
        flat = _flat(args, named)
        arrays = [a._data if isinstance(a, Tensor) else a for a in flat.leaves]
        types = tuple([(a.shape, a.dtype) for a in arrays])
        compiled = self._find(flat, types, settings)
        if flat.leaves is args:
            kinds = [Kind.of(Tensor, *of, compiled.device) for of in types]
            self._latest = _Latest(settings.bare, kinds, compiled)
        return compiled.run(arrays)

    def __repr__(self) -> str:
        return f"jit({self.__name__})"

    def __get__(self, owner: object, kind: type | None = None) -> Any:
        """On an instance, a bound method: the object is the first argument, a static one."""
        return self if owner is None else MethodType(self, owner)

    def compiled(self, *args: Any, **named: Any) -> Compiled:
        """The compiled version that a call with these arguments uses; compiled now if need be."""
        flat = _flat(args, named)
        return self._find(flat, tuple([(a.shape, a.dtype) for a in flat.leaves]), current())

    def _find(self, flat: _Flat, types: Types, settings: Settings) -> Compiled:
        tensors = [a for a in flat.leaves if isinstance(a, Tensor)]
        device = common_device(self.__name__, tensors)
        now = epoch.now
        key = (types, flat.structure, settings.bare, now.kernels, now.bprops, now.passes)
        for compiled in self._versions.get(key, ()):
            if compiled.serves(device, bool(tensors)) and compiled.valid():
                compiled.used = next(self._uses)
                return compiled
        sizes = None
        if self.dynamic is not None:
            sizes = self.dynamic.general(flat.rebuild, types), *key[1:]
        return self._compile(flat.rebuild, device, key, settings, sizes, bool(tensors))

    def _compile(
        self,
        rebuild: Rebuild,
        device: str,
        key: tuple[Any, ...],
        settings: Settings,
        sizes: tuple[object, ...] | None,
        placed: bool,
    ) -> Compiled:
        """placed: whether a tensor among the arguments says on which device."""
        self.recompilations.append(self._why(device, key))
        if len(self.recompilations) == _MANY and self.dynamic is None:
            warn_user(
                PerformanceWarning(
                    f"{self.__name__} is compiled for the fifth time; the last reason: "
                    f"{self.recompilations[-1]}; all of them are in its .recompilations"
                )
            )
        del self.recompilations[:-_SENTENCES]
        began, first = epoch.now, epoch.tick()  # what changes meanwhile may not be in it
        abstracts = [Abstract(shape, canonical(dtype)) for shape, dtype in key[0]]
        graph, result, trace = trace_call(self.fn, rebuild, abstracts, device, placed)
        anchored, device = trace.device != device or trace.anchored(), trace.device
        sizes = sizes and (device, *sizes)
        passed = run_passes(graph, settings.disabled_passes, settings.verify_passes)
        program = self._program(passed, program_target(device), sizes)
        guards = tuple([_guard(*met, first) for met in trace.guards.values()])
        silent = any(owner.silent for owner, _ in trace.guards.values())
        outs = [(v.abstract.shape, v.abstract.dtype) for v in program.graph.outputs]
        kinds = [Kind.of(Tensor, *of, device) for of in outs]
        compiled = Compiled(
            program, graph, result, guards, device, anchored, kinds, began, silent, sizes
        )
        compiled.used = next(self._uses)
        self._keep(key, compiled)
        return compiled

    def _program(self, graph: Graph, target: Target, sizes: object) -> Program:
        """The program of a version; of a dynamic function, with what those for other sizes share
        and without kernels in C, whose text holds the sizes."""
        if sizes is None:
            return Program(graph, target)
        others = [c.program.sibling for c in self._of_sizes(sizes)[::-1]]
        program = Program(graph, target.without(NATIVE), others=others)
        self.recompilations[-1] += f"; {program.shared}"
        return program

    def _of_sizes(self, sizes: object) -> list[Compiled]:
        """The versions for these kinds of arguments in any size, the one used last at the end."""
        found = [c for _, c in self._kept if c.sizes == sizes]
        return sorted(found, key=lambda c: c.used)

    def _keep(self, key: object, compiled: Compiled) -> None:
        """Add a version; those that never fit again go, and the oldest where there are too many:
        of those for other sizes, the one not used for longest."""
        kept = [(k, c) for k, c in self._kept if not c.outgrown()]
        if compiled.sizes is not None:
            surplus = self._of_sizes(compiled.sizes)[: 1 - SIZES]
            kept = [(k, c) for k, c in kept if c not in surplus]
        self._kept = [*kept[1 - _LIMIT :], (key, compiled)]
        versions: dict[object, list[Compiled]] = {}
        for k, c in self._kept:
            versions.setdefault(k, []).append(c)
        self._versions = versions  # another thread may be looking through those of before

    def _why(self, device: str, key: tuple[Any, ...]) -> str:
        """What differs from the version compiled before, in one sentence."""
        names = ("device", "tensors", "static", "settings", "kernels", "bprops", "passes")
        now = dict(zip(names, (device, *key), strict=True))
        before, self._last = self._last, now
        return "first call" if before is None else why(before, now)


def _guard(owner: Guarded, met: object, first: int) -> Guard:
    """What a version asks of a cell: to be as tracing met it. One that tracing itself made, since
    the tick `first`, is made anew by tracing again; if it is kept, it may not change from now on.
    """
    return ref(owner), met if owner.born < first else owner.signature


class _Flat(NamedTuple):
    """The arguments of a call: tensors and arrays, all else in them, and how they were arranged."""

    leaves: Sequence[Any]
    structure: object
    rebuild: Rebuild


def _flat(args: Sequence[Any], named: Mapping[str, Any]) -> _Flat:
    """Tensors and arrays by position are the common case and need no tree."""
    plain = not named
    for a in args:
        kind = type(a)
        plain = plain and (kind is Tensor or kind is np.ndarray)
    if plain:
        return _Flat(args, len(args), _by_position)
    return _Flat(*flatten_arguments((args, named)))


def _by_position(leaves: Sequence[Any]) -> tuple[Sequence[Any], dict[str, Any]]:
    return leaves, {}


def jit(fn: F, dynamic: Mapping[str, Sequence[int]] | None = None) -> F:
    """`fn`, compiled: traced on its first call and for every new kind of arguments, then run as a
    Program of preallocated buffers.

    Tensors and arrays in the arguments (trees of them, too), given by position or by keyword, are
    inputs; Python scalars, strings and None are part of the program. Closures, globals and the
    attributes of cells are read when tracing. Under another trace, and in `ml.context(jit=False)`,
    it is `fn` itself. GraphError for what cannot be called, and for generators and coroutines.

    dynamic: axes of arguments whose sizes vary, by the names of the arguments, as in {"x": (0,)};
    of a Cell, those of its construct. A new size is traced again, so shapes are Python integers,
    but nothing is compiled in C, and it shares the kernels of other sizes that it can (see
    `Kernel`); programs for the eight sizes used last are kept. `recompilations` says what is
    shared, or which operation is another one at that size.
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


def compiled(fn: Callable[..., Any]) -> Jit:
    """The one Jit of a function, found by its equality and hash; it ends when the function does."""
    found = _shared.get(fn)
    if found is None:
        found = _shared[fn] = Jit(_Weakly(fn))
    return found
