"""Kernels: functions that fill `out`, or classes with a life cycle; and the devices that run them.

First the class and the row of the kernel table; then what is read off a function, whose
result would be lost if it rebound `out`; memoized constants; and devices: the memory that holds
arrays, and the copies to it and back.
"""

from __future__ import annotations

import dis
import inspect
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache, partial
from types import CodeType
from typing import Any, ClassVar, Literal, NamedTuple, Protocol, TypeVar, cast
from weakref import finalize

import numpy as np

from ..core.abstract import PLAIN, ArraySpec, DType, Shape, Signature
from ..core.errors import CaptureError, DeclarationError
from ..core.signature import CPU as FEATURES
from .expressions import Expression as Expression

Array = np.ndarray[Any, Any]
Arrays = tuple[Array, ...]
Formats = tuple[str, ...]
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class OpSpec:
    """A primitive as seen by kernels: names, and the facts that they need.

    `inputs` excludes const inputs; it is None for a variable number. `attributes` is None where
    the primitive declares them only when it is constructed (the classic spelling). `images`: the
    inputs and outputs that are images. dynamic: the shapes of the outputs depend on values.
    any_format: the kernels look at the memory formats of images.
    """

    name: str
    inputs: tuple[str, ...] | None
    const_inputs: tuple[str, ...]
    outputs: tuple[str, ...] | None
    attributes: tuple[str, ...] | None
    elementwise: bool = False
    images: tuple[str, ...] = ()
    dynamic: bool = False
    any_format: bool = False


@dataclass(frozen=True, slots=True)
class KernelNode:
    """The call for which a kernel is prepared: names, shapes, dtypes and attributes, no data.

    target: the Target it was selected for, from which a kernel may select another kernel. strides:
    of the inputs, in elements, for a kernel in C that takes them; None stands for row-major order,
    and () for that of all. values: those of inputs that are constants of the program.
    """

    name: str
    inputs: tuple[ArraySpec, ...]
    outputs: tuple[ArraySpec, ...]
    attrs: Mapping[str, Any]
    target: Any = None
    strides: tuple[tuple[int, ...] | None, ...] = ()
    values: tuple[Array | None, ...] = field(default=(), compare=False, repr=False)

    def constant(self, index: int, make: Callable[[Array], T]) -> T | None:
        """`make(value)` of an input that is a constant of the program; None if the input may change
        from call to call, as it always may eagerly.

        It is computed once: all kernels that ask the same function of the same array get the same
        object, in other programs too. `make` gets an array of NumPy on every device, and must not
        write to it.
        """
        value = self.values[index] if self.values else None
        return None if value is None else once(value, make)

    @property
    def device(self) -> Any:
        """The device on which the kernel will run, and may allocate memory or compile."""
        return None if self.target is None else self.target.device

    @property
    def masked(self) -> tuple[str, ...]:
        """The features of the device that are not to be used."""
        return () if self.target is None else self.target.masked


class Kernel:
    """Base of kernels that prepare once per shape and may own workspace.

    Life cycle: `prepare(node)`, then any number of `launch`, `release()` at the end. Attributes are
    in `node.attrs`. The runtime makes an instance for each shape, and releases it when the program
    or the eager cache that holds it is dropped, at the exit of the interpreter (the last prepared
    first), and when `prepare`, its own or that of a later kernel of the program, raises.

    A class that overrides `resize` keeps one instance for all sizes of a function that is compiled
    with `ml.jit(fn, dynamic=...)`: it is resized before a call with another size, never while it
    launches.

    A class whose `prepare` only picks a function for the node sets `self.call` to it, and needs no
    `launch`: the runtime calls `self.call(*inputs, out=out)`, without attributes.

    capturable: True for a class whose `launch` only launches, in the same way each time, so that a
    CUDA graph may repeat it without calling it. None: True for the library's own, False for users'
    classes.
    reason: what `prepare` chose for these shapes and why, which `explain` shows; may be empty.
    inplace: the inputs whose memory the output may share, where `prepare` decides that for the
    node; None: as registered.
    calm: True where `prepare` chose a function in which NumPy has nothing to warn about.
    """

    capturable: ClassVar[bool | None] = None
    reason: str = ""
    inplace: tuple[int, ...] | None = None
    calm: bool = False
    call: Callable[..., Any]

    def select_format(
        self, node: KernelNode
    ) -> tuple[tuple[str | None, ...], tuple[str | None, ...]]:
        """The memory formats that it needs for its inputs and gives its outputs, from those that
        the inputs have (`node.inputs[i].format`) and those that `node.target.formats` ranks.

        None is row-major order, as by default for all. The class is registered for each answer that
        it gives.
        """
        return (PLAIN,) * len(node.inputs), (PLAIN,) * len(node.outputs)

    def prepare(self, node: KernelNode) -> None:
        """Work done once per shape: compile, choose an algorithm, pack constants."""
        self.node = node

    def can_run(self, node: KernelNode) -> bool:
        """True if the kernel is prepared and launched for such a node: by default, unless every
        output is empty, so that there is nothing to fill.

        Override it for a kernel that does something even then, or that must not see an empty input.
        Outputs with elements need a kernel that runs: DeclarationError otherwise.
        """
        return has_elements(node)

    def workspace(self) -> tuple[ArraySpec, ...]:
        """The scratch arrays that every launch needs; the framework owns them."""
        return ()

    def launch(self, inputs: Arrays, workspace: Arrays, outputs: Arrays, stream: object) -> None:
        """Compute: fill every element of `outputs`. `stream` is None on the CPU."""
        if not hasattr(self, "call"):
            raise NotImplementedError(f"{type(self).__name__} defines no launch")
        self.call(*inputs, out=outputs[0] if len(outputs) == 1 else outputs)

    def resize(self, node: KernelNode) -> None:
        """Follow a change of shapes; prepares again unless overridden.

        If it raises, the call does, and it is resized again before the next one.
        """
        self.prepare(node)

    @property
    def follows(self) -> bool:
        """True for a class that overrides `resize`."""
        return type(self).resize is not Kernel.resize

    def release(self) -> None:
        """Release what `prepare` acquired; called once, also when `prepare` has raised midway."""


def has_elements(node: KernelNode) -> bool:
    """False where every output is empty."""
    return not node.outputs or any(0 not in out.shape for out in node.outputs)


class Launch(NamedTuple):
    """The launch configuration of a raw CUDA kernel for one node.

    grid, block: up to three ints. args: scalars passed after the arrays. shared: bytes of dynamic
    shared memory. workspace: ArraySpecs of scratch arrays, passed between outputs and args.
    """

    grid: tuple[int, ...]
    block: tuple[int, ...]
    args: tuple[Any, ...] = ()
    shared: int = 0
    workspace: tuple[ArraySpec, ...] = ()
    zero: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class RawSource:
    """CUDA C text with its entry point and launch rule; options: of the compiler."""

    source: str
    entry: str
    launch: Callable[[KernelNode], Launch]
    defines: tuple[tuple[str, str], ...] = ()
    options: tuple[str, ...] = ()


Body = Callable[..., Any] | type[Kernel] | Expression | RawSource


@dataclass(frozen=True, slots=True)
class KernelEntry:
    """One row of the kernel table."""

    name: str
    device: str
    signature: Signature
    provider: str
    body: Body
    requires: tuple[str, ...] = ()
    priority: int = 0
    inplace: tuple[int, ...] = ()
    view: int | None = None
    strided: bool = False
    total: bool = False
    owner: str = ""
    where: str = ""
    module: str = ""
    derived: bool = False  # from another kernel, and gives way to one that is registered
    by_class: Literal["", "own", "inherited"] = ""  # by the class of the primitive, or a base of it
    key: tuple[object, ...] = field(init=False)

    def __post_init__(self) -> None:
        # Unique among entries, which registration compares: by dtypes first, which is soonest.
        key = self.signature.inputs, self.signature, self.provider, self.requires
        object.__setattr__(self, "key", key)

    @property
    def built_in(self) -> bool:
        """True for the library's own kernels, which keep every contract."""
        return self.module.startswith("miniml.")

    @property
    def skips(self) -> tuple[int, ...]:
        """The outputs for which it takes None, where nobody reads them."""
        return getattr(self.body, "skips", ())

    def made(self) -> Kernel | None:
        """An instance of a Kernel class; None for a function, an expression or CUDA C."""
        body = self.body
        return body() if isinstance(body, type) and issubclass(body, Kernel) else None

    def describe(self) -> str:
        """Signature and provider, as `explain` and error messages show them."""
        needs = f", requires {' '.join(self.requires)}" if self.requires else ""
        return f"{self.signature} ({self.provider}{needs})"


def skips(*outputs: int) -> Callable[[T], T]:
    """Decorator of a function that fills several outputs: of these it computes none for which it
    gets None in `out`."""

    def mark(fn: T) -> T:
        fn.skips = outputs  # type: ignore[attr-defined]
        return fn

    return mark


# --- Functions that fill `out` --------------------------------------------------------------------


def taken(entry: KernelEntry, spec: OpSpec | None, attrs: dict[str, Any]) -> dict[str, Any]:
    """The attributes passed to a kernel: all of them, or only those that a function names where the
    class of the primitive declares none. DeclarationError for one that is missing."""
    if spec is None or spec.attributes is not None or isinstance(entry.body, type):
        return attrs
    if isinstance(entry.body, np.ufunc):
        return {}
    takes = keywords(entry.body)
    if takes is None:
        return attrs
    absent = sorted(takes[1] - attrs.keys() - {"out"})
    if absent:
        raise DeclarationError(
            f"{entry.name} kernel {getattr(entry.body, '__name__', entry.body)!r} asks for "
            f"{', '.join(absent)}; the call has the attributes {', '.join(attrs) or 'none'}"
        )
    return {k: v for k, v in attrs.items() if k in takes[0]}


def check_fills(entry: KernelEntry) -> None:
    """DeclarationError if a function kernel has no `out` to fill."""
    body: Any = entry.body
    takes = keywords(body) if inspect.isfunction(body) else None
    if takes is not None and "out" not in takes[0]:
        raise DeclarationError(
            f"{entry.name} kernel {body.__name__!r} does not take out; a kernel fills the array "
            "out= and returns nothing, as in np.multiply(x, x, out=out)"
        )


def refuse_returned(entry: KernelEntry, returned: object, out: Any) -> None:
    """DeclarationError if a kernel returned an array other than `out`, which stays unfilled."""
    if isinstance(returned, np.ndarray) and not any(np.may_share_memory(returned, o) for o in out):
        raise DeclarationError(
            f"{entry.name} kernel {getattr(entry.body, '__name__', entry.body)!r} returned an "
            "array; a kernel fills the array out= and returns nothing, as in out[...] = result"
        )


@lru_cache(maxsize=512)
def keywords(body: Any) -> tuple[frozenset[str], frozenset[str]] | None:
    """The keywords that a function takes, and those it requires; None if it takes any."""
    parameters = _parameters(body)
    if parameters is None or any(p.kind is p.VAR_KEYWORD for p in parameters):
        return None
    named = (p for p in parameters if p.kind in (p.KEYWORD_ONLY, p.POSITIONAL_OR_KEYWORD))
    needed = (p for p in parameters if p.kind is p.KEYWORD_ONLY and p.default is p.empty)
    return frozenset(p.name for p in named), frozenset(p.name for p in needed)


@lru_cache(maxsize=512)
def _parameters(body: Any) -> tuple[inspect.Parameter, ...] | None:
    """The parameters of a function, which has kernels of many signatures; None if unknown."""
    try:
        return (*inspect.signature(body).parameters.values(),)
    except (TypeError, ValueError):
        return None


def check_arrays(entry: KernelEntry) -> None:
    """DeclarationError unless a function takes as many arrays by position as its signature has."""
    body, count = entry.body, len(entry.signature.inputs)
    if isinstance(body, (Expression, RawSource, type)) or entry.signature.repeats_input:
        return
    takes = ("x",) * body.nin if isinstance(body, np.ufunc) else _positional(body)
    if takes is None:
        return
    arrays = [name for name in takes if name != "out"]
    if len(arrays) < count or (isinstance(body, np.ufunc) and len(arrays) > count):
        raise DeclarationError(
            f"{entry.name} kernel {getattr(body, '__name__', body)!r} takes {len(arrays)} "
            f"array{'s' * (len(arrays) != 1)} by position; its signature {entry.signature} has "
            f"{count} input{'s' * (count != 1)}"
        )


@lru_cache(maxsize=512)
def _positional(body: Any) -> tuple[str, ...] | None:
    """The parameters that a function takes by position; None if it takes any number."""
    parameters = _parameters(body)
    if parameters is None or any(p.kind is p.VAR_POSITIONAL for p in parameters):
        return None
    return tuple(
        p.name for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)
    )


def refuse_rebinding(name: str, body: Any) -> None:
    """DeclarationError if the function of a kernel rebinds its parameter `out`.

    Found in its bytecode: a plain assignment, a loop's target, `with ... as`, a walrus. `out += x`
    is allowed, since it writes into the array itself. Functions without bytecode (ufuncs) rebind
    nothing.
    """
    while isinstance(body, partial):
        body = body.func
    code = getattr(body, "__code__", None)
    if not isinstance(code, CodeType):
        return
    if "out" not in code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]:
        return
    line = next(_rebindings(code), None)
    if line is not None:
        raise DeclarationError(
            f"{name} kernel {body.__name__!r} rebinds out at {code.co_filename}:{line}, which "
            "leaves the array it was given unfilled; write into it, as in out[...] = 2 * x or "
            "np.multiply(2, x, out=out), and give views of it names of their own"
        )


def _rebindings(code: CodeType) -> Iterator[int]:
    """The lines on which the name `out` gets another value."""
    steps = [*dis.get_instructions(code)] if _may_store(code, "out") else []
    # From Python 3.12 on a comprehension over `out` is inlined into the function and saves the
    # name.
    saved = any(s.opname == "LOAD_FAST_AND_CLEAR" and s.argval == "out" for s in steps)
    in_place = False  # out += x: an in-place operation whose result is stored in the name
    for step in [] if saved else steps:
        if "out" in _stored(step) and not in_place:
            yield (step.positions.lineno if step.positions else None) or code.co_firstlineno
        in_place = step.opname == "BINARY_OP" and step.argrepr.endswith("=")
    for inner in code.co_consts:
        if isinstance(inner, CodeType) and "out" in inner.co_freevars:  # `nonlocal out`
            yield from _rebindings(inner)


def _may_store(code: CodeType, name: str) -> bool:
    """False where no instruction binds the name, known without looking at all of each, which takes
    long. Those of two names (Python 3.13) have the places of both in four bits each."""
    if name not in code.co_varnames or name in code.co_cellvars:
        return True  # what is shared with inner functions has another place
    place = code.co_varnames.index(name)
    steps = (s for s in zip(code.co_code[::2], code.co_code[1::2]) if s[0] in _STORES)
    return any(place in ((a >> 4, a & 15) if o in _PAIRS else (a,)) for o, a in steps)


_STORES = frozenset(
    code for name, code in dis.opmap.items() if name.startswith(("STORE_FAST", "STORE_DEREF"))
)
_PAIRS = frozenset(code for code in _STORES if dis.opname[code].count("FAST") > 1)


def _stored(step: dis.Instruction) -> tuple[str, ...]:
    """The names that an instruction binds; Python 3.13 has some that store two names."""
    if step.opcode not in _STORES:
        return ()
    names = step.argval if isinstance(step.argval, tuple) else (step.argval,)
    return names[:1] if step.opname == "STORE_FAST_LOAD_FAST" else names


# --- Constants ------------------------------------------------------------------------------------


_made: dict[tuple[int, Callable[..., Any]], Any] = {}


def once(array: Any, make: Callable[[Any], T]) -> T:
    """`make(array)`, computed once for an array of NumPy or of a device and equal functions.

    The result is kept as long as the array, which must not change afterwards; `make` gets an array
    of NumPy as a read-only view.
    """
    key = id(array), make
    if key not in _made:
        made = make(read_only(array))
        if _made.setdefault(key, made) is made:
            finalize(array, _made.pop, key, None).atexit = False
    found: T = _made[key]
    return found


@lru_cache(maxsize=1024)
def scalars(dtype: DType, *values: float) -> tuple[Array, ...]:
    """The numbers as arrays without axes, which NumPy would make of Python's at each call: that
    takes longer than 64 elements. -0.0 is 0.0, whichever was asked for first."""
    return tuple([np.array(value + 0, dtype) for value in values])


@lru_cache(maxsize=1024)
def index_of(begin: Shape, end: Shape, strides: Shape, dropped: Shape = ()) -> tuple[Any, ...]:
    """The index of the elements range(begin[i], end[i], strides[i]) along each axis i, without the
    axes that are dropped."""
    runs = zip(begin, end, strides, strict=True)
    # An end of -1 would count from the end.
    chosen: list[Any] = [
        slice(b, None if e < 0 else e, s) if range(b, e, s) else slice(0, 0) for b, e, s in runs
    ]
    for axis in dropped:
        chosen[axis] = begin[axis]
    return (..., *chosen)


def largest(x: Array) -> Any:
    """The largest element, or NaN; least: the least one. argmax takes a third of the time on few
    elements, and copies read-only arrays."""
    return x.item(x.argmax()) if x.size <= _FEW else np.maximum.reduce(x, axis=None).item()


def least(x: Array) -> Any:
    return x.item(x.argmin()) if x.size <= _FEW else np.minimum.reduce(x, axis=None).item()


_FEW = 4096


class _Opened:
    def __init__(self, x: Array):
        shown = dict(x.__array_interface__)
        self.x, self.__array_interface__ = x, shown | {"data": (shown["data"][0], False)}


def opened(x: Array) -> Array:
    """x, for functions of NumPy that do not write, but copy what is read-only: argmax, argmin, and
    `take` of its indices. That takes as long as they do, unless there are few elements."""
    if x.size <= _FEW or x.flags.writeable:
        return x
    return np.asarray(_Opened(x)).view(x.dtype)


def read_only(array: Any) -> Any:
    """A read-only view of a NumPy array; an array of a device as it is, since kernels there declare
    what they write."""
    if isinstance(array, np.ndarray) and array.flags.writeable:
        array = array.view()
        array.flags.writeable = False
    return array


# --- Devices --------------------------------------------------------------------------------------


class Device(Protocol):
    """The interface of a device to the runtime."""

    name: str

    def empty(self, shape: tuple[int, ...], dtype: DType) -> Any:
        """An uninitialised C-contiguous array in memory of its own."""

    def arena(self, nbytes: int) -> Any:
        """A block of `nbytes` bytes, aligned to 64."""

    def carve(self, arena: Any, offset: int, shape: tuple[int, ...], dtype: DType) -> Any:
        """An array inside an arena, `offset` bytes from its start."""

    def from_host(self, array: Array) -> Any:
        """A device array with a NumPy array's contents, in memory of its own."""

    def to_host(self, buffer: Any) -> Array:
        """A fresh NumPy array with a device array's contents."""

    def copy_into(self, target: Any, source: Any) -> None:
        """Overwrite an array of this device with one of its own, or a NumPy array, of the same
        shape and dtype."""

    def copy(self, array: Any) -> Any:
        """The elements in memory of their own."""

    def seen(self, look: Callable[..., Any], arrays: Sequence[Any]) -> tuple[Any, bool]:
        """The view that `look` makes of arrays that need not be computed yet, and True if it is a
        copy in new memory instead."""

    def contiguous(self, array: Any) -> Any:
        """The array, or a copy of it in row-major order."""

    def converted(self, array: Any, dtype: DType, target: Any) -> Any:
        """The array, or a copy of it in another dtype, by the kernel that the target selects."""

    def kernel(self, entry: KernelEntry) -> Kernel | None:
        """A registered kernel as a Kernel object; None for a function that is called directly."""

    def takes_strides(self, entry: KernelEntry) -> bool:
        """True when the kernel takes inputs of any strides; others get contiguous ones."""

    def has(self, feature: str) -> bool:
        """True for a feature that kernels may require and this device has."""

    def capture(self, launches: Callable[[], object]) -> Callable[[], None]:
        """The launches of `launches`, as one call that repeats them. CaptureError if it does
        anything else, or if the device has no graphs."""

    @property
    def stream(self) -> Any:
        """The stream on which kernels are launched; None on the CPU."""


PAGE = 4096  # bytes from which on a copy takes longer than to align it, for vectors of 64 bytes


class CPU:
    """The machine's own memory, as NumPy arrays."""

    name = "cpu"
    stream = None

    empty = staticmethod(cast(Callable[[tuple[int, ...], DType], Array], np.empty))

    def arena(self, nbytes: int) -> Array:
        """`nbytes` bytes whose address is a multiple of 64."""
        block = np.empty(nbytes + 64, np.uint8)
        start = -start_of(block) % 64
        return block[start : start + nbytes]

    def carve(self, arena: Array, offset: int, shape: tuple[int, ...], dtype: DType) -> Array:
        return np.ndarray(shape, dtype, arena.data, offset)

    def from_host(self, array: Array) -> Array:
        if array.nbytes < PAGE:
            return np.array(array, order="C", copy=True)
        own = self.carve(self.arena(array.nbytes), 0, array.shape, array.dtype)
        np.copyto(own, array)
        return own

    def to_host(self, buffer: Array) -> Array:
        return np.array(buffer, copy=True)

    def copy_into(self, target: Array, source: Array) -> None:
        np.copyto(target, source)

    copy = staticmethod(cast(Callable[[Any], Any], np.array))  # no Python frame in between

    def seen(self, look: Callable[..., Array], arrays: Sequence[Array]) -> tuple[Array, bool]:
        found = look(*arrays)
        return found, not any(np.may_share_memory(found, a) for a in arrays)

    def contiguous(self, array: Array) -> Array:
        return np.ascontiguousarray(array)

    def converted(self, array: Array, dtype: DType, target: Any) -> Array:
        return array.astype(dtype, copy=False)

    def kernel(self, entry: KernelEntry) -> Kernel | None:
        """An instance of a kernel class; functions are called directly."""
        return entry.made()

    def takes_strides(self, entry: KernelEntry) -> bool:
        """True for kernels of NumPy; those in C have their strides as numbers in their text."""
        return entry.provider != "cc" or entry.strided

    def has(self, feature: str) -> bool:
        """True for an instruction set of this machine's CPU."""
        return FEATURES.get(feature, False)

    def capture(self, launches: Callable[[], object]) -> Callable[[], None]:
        """CaptureError: calls of functions are not recorded."""
        raise CaptureError("the CPU launches nothing that could be recorded")


def start_of(array: Array) -> int:
    """The address of a NumPy array's first element."""
    start: int = array.__array_interface__["data"][0]
    return start


def cpus() -> int:
    """The number of CPUs that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def cpu_threads() -> int:
    """The number of threads that compute on the CPU: the first number of OMP_NUM_THREADS, as
    libraries and launchers read it, but at most the CPUs that this process may use."""
    wanted = os.environ.get("OMP_NUM_THREADS", "").partition(",")[0].strip()
    return min(int(wanted), cpus()) if wanted.isdecimal() and int(wanted) else cpus()
