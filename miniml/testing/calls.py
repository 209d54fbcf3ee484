"""One call of a primitive as a value: its arrays, its kernels, its reference, ready to be run.

In order: OpInfo, the facts about a primitive that calls are made of; a Call, and calls from an
OpInfo; one kernel run on arrays; its launch in a check, and the reasons why one raises; the memory
layouts of its arrays, by name: strides of every kind; and the time that checks may take.
"""

from __future__ import annotations

import os
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import chain
from math import prod
from pathlib import Path
from typing import Any, Literal, TypeVar

import numpy as np

from ..backends import registry
from ..backends.cpu.formats import convert
from ..backends.kernel import Kernel, KernelEntry, KernelNode, taken
from ..backends.registry import BUILTIN, NATIVE
from ..backends.selection import Target, get_device
from ..core.abstract import (
    PLAIN,
    REAL,
    Abstract,
    ArraySpec,
    DType,
    Shape,
    from_type_code,
    is_float,
    typed,
)
from ..core.errors import MinimlError, OutOfRangeError, ShapeError
from ..core.infer import arguments, infer, interleave
from ..core.primitive import Primitive
from ..core.scope import Block
from ..core.settings import Settings, context, current
from ..core.tensor import Tensor
from ..core.trace import current_trace

Array = np.ndarray[Any, Any]
Arrays = tuple[Array, ...]

ON_CPU = Target(get_device("cpu"))


def without_c() -> Block[Settings]:
    """Settings without kernels in C, which would be compiled for every shape."""
    others = tuple(p for p in current().providers if p != NATIVE)
    return context(providers=others or (BUILTIN,))


@dataclass(frozen=True, slots=True)
class Sample:
    """One valid call: inputs by position (const inputs as values), attributes by name."""

    inputs: tuple[Any, ...]
    attrs: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Refusal:
    """One call that must be refused with a message in which `match` (a regular expression) is
    found."""

    inputs: tuple[Any, ...]
    match: str
    attrs: Mapping[str, Any] = field(default_factory=dict)
    error: type[Exception] = MinimlError


@dataclass(frozen=True, slots=True)
class OpInfo:
    """The facts about a primitive that tests need beyond its rules.

    samples(rng, dtype): small valid calls for a working dtype, away from kinks and poles.
    reference(*inputs, **attrs): the right outputs, independent of miniml, in float64.
    dtypes: type codes of the working dtypes, all of the registered kernels' by default. domain:
    where inputs come from, a sentence or (low, high). refused: calls that must be refused. nan:
    "handled" if a NaN may rightly vanish. batch_axes: the input axes along which the
    primitive works row by row, if any.
    """

    primitive: type[Primitive]
    samples: Callable[[np.random.Generator, DType], Iterable[Sample]]
    reference: Callable[..., Any] | None = None
    dtypes: str | None = None
    domain: str | tuple[float, float] | None = None
    refused: tuple[Refusal, ...] = ()
    nan: Literal["propagates", "handled"] = "propagates"
    batch_axes: tuple[int | None, ...] | None = None


@dataclass(frozen=True, eq=False)
class Call:
    """A primitive with inputs as bind passes them on: arrays by position, consts by name.

    given: the attributes as `info.reference` takes them. smooth: the gradient is well-defined at
    these numbers. kind: the kind of numbers drawn, "" for given numbers.
    layouts: the memory layouts that a check of strides gives the arrays, and after them the
    cotangents of the outputs, in words as below; () for a list of usual ones.
    """

    primitive: Primitive
    arrays: Arrays
    consts: Mapping[str, Any] = field(default_factory=dict)
    info: OpInfo | None = None
    given: Mapping[str, Any] = field(default_factory=dict)
    smooth: bool = True
    kind: str = ""
    layouts: tuple[tuple[str, ...], ...] = ()

    def __post_init__(self) -> None:
        cls = type(self.primitive)
        if cls.ordered:
            names = [name for name in cls._inputs or () if name not in cls.const_inputs]
            rows = {i for i, a in enumerate(self.arrays) if a.ndim and names[i] in cls.ordered}
            arrays = (np.sort(a, -1) if i in rows else a for i, a in enumerate(self.arrays))
            object.__setattr__(self, "arrays", tuple(arrays))

    @property
    def sample(self) -> bool:
        """True for a sample of an OpInfo, False for a drawn call."""
        return self.info is not None and self.smooth

    @property
    def referenced(self) -> bool:
        """True if the expected outputs come from the reference of an OpInfo."""
        return self.info is not None and self.info.reference is not None

    @property
    def attrs(self) -> dict[str, Any]:
        """The keyword arguments of kernels."""
        return {**self.primitive.attributes, **self.consts}

    def attrs_of(self, entry: KernelEntry) -> dict[str, Any]:
        """The keyword arguments that this kernel gets."""
        return taken(entry, registry.specs.get(self.primitive.name), self.attrs)

    @cached_property
    def dtypes(self) -> tuple[DType, ...]:
        return tuple(a.dtype for a in self.arrays)

    @cached_property
    def form(self) -> object:
        """Equal for calls that only dtypes and numbers, or the lengths of axes, tell apart."""
        return tuple((a.ndim, a.size == 0) for a in self.arrays), repr(self.primitive)

    @cached_property
    def inferred(self) -> tuple[Abstract, ...]:
        """The outputs, as inferred by the primitive's rules."""
        abstracts = [Abstract(a.shape, a.dtype) for a in self.arrays]
        return infer(self.primitive, interleave(self.primitive, abstracts, dict(self.consts)))

    @property
    def terms(self) -> int:
        """A bound on the number of terms in any sum the call can make."""
        return max([1, *(a.size for a in self.arrays)])

    def on(self, arrays: Arrays) -> Call:
        """The same call on other arrays."""
        return replace(self, arrays=arrays)

    def of_floats(self, fn: Callable[[Array], Array]) -> Call:
        """The same call with fn of each float array, in its dtype."""
        each = (fn(a).astype(a.dtype) if is_float(a.dtype) else a for a in self.arrays)
        return self.on(tuple(each))

    @cached_property
    def entries(self) -> list[KernelEntry]:
        """Every CPU kernel, of every provider but C's, that takes and gives these dtypes as they
        are."""
        table = registry.table.get((self.primitive.name, "cpu"), [])
        table = [e for e in table if e.provider != NATIVE]
        found = [e for e in table if ON_CPU.supports(e) and e.signature.accepts(self.dtypes)]
        found = [e for e in found if not e.signature.arranged or self._images(e)]
        if self.primitive.dynamic_outputs:
            return found
        outs = tuple(a.dtype for a in self.inferred)
        return [e for e in found if e.signature.gives(outs)]

    def _images(self, entry: KernelEntry) -> bool:
        """True if all that a kernel takes or gives in a memory format are images with pixels."""
        takes, gives = entry.signature.arrangement(len(self.arrays), len(self.inferred))
        shapes = [a.shape for a in self.arrays] + [a.shape for a in self.inferred]
        pairs = zip((*takes, *gives), shapes, strict=True)
        return all(f is None or (len(s) == 4 and 0 not in s) for f, s in pairs)

    def args(self, arrays: tuple[Any, ...] | None = None) -> tuple[Any, ...]:
        """The arguments of the primitive, const inputs at their positions."""
        tensors = list(self.arrays if arrays is None else arrays)
        return interleave(self.primitive, tensors, dict(self.consts))

    def run(self, arrays: tuple[Any, ...] | None = None) -> Arrays:
        """The outputs of the call in the current trace, as arrays."""
        outs = self.primitive(*self.args(arrays))
        return tuple(o.asnumpy() for o in as_tuple(outs))

    def __str__(self) -> str:
        shapes = ", ".join(map(typed, self.arrays))
        consts = "".join(f", {k}={v!r}" for k, v in self.consts.items())
        return f"{self.primitive!r}({shapes}{consts})"


def dtypes_of(info: OpInfo) -> tuple[DType, ...]:
    """The working dtypes of an OpInfo: its own type codes, or the registered kernels' for input
    0."""
    if info.dtypes is not None:
        return tuple(map(from_type_code, info.dtypes))
    entries = registry.table.get((info.primitive.name, "cpu"), [])
    found = {(e.signature.inputs or e.signature.outputs)[0] for e in entries}
    return tuple(d for d in REAL if d in found)


def calls(info: OpInfo, dtype: DType, rng: np.random.Generator) -> Iterator[Call]:
    """The OpInfo's samples for a working dtype."""
    for sample in info.samples(rng, dtype):
        yield call_of(info.primitive(**sample.attrs), sample, info, sample.attrs)


def call_of(
    primitive: Primitive, sample: Sample, info: OpInfo | None, given: Mapping[str, Any]
) -> Call:
    """The call of a primitive with a sample's inputs: cast, promoted and with consts frozen."""
    tensors, consts = arguments(primitive, sample.inputs, current_trace().bind)
    return Call(primitive, tuple(t.asnumpy() for t in tensors), consts, info, given)


def as_tuple(value: Any) -> tuple[Any, ...]:
    """The outputs as a tuple, whether one or several."""
    return tuple(value) if isinstance(value, (tuple, list)) else (value,)


def wide(value: Any) -> Any:
    """A float array in float64; anything else as it is."""
    if isinstance(value, Tensor):
        value = value.asnumpy()
    if isinstance(value, np.ndarray) and is_float(value.dtype):
        return value.astype(np.float64)
    return value


def reference(call: Call, inputs: tuple[Any, ...] | None = None) -> Arrays:
    """The outputs of the OpInfo's reference for a call, one array each.

    inputs: arguments to use instead of the call's own, in the order of the primitive's inputs.
    """
    assert call.info is not None
    assert call.info.reference is not None
    given = call.args() if inputs is None else inputs
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        result = call.info.reference(*map(wide, given), **call.given)
    outs = (result,) if call.primitive._single else as_tuple(result)
    return tuple(np.asarray(wide(np.asarray(o))) for o in outs)


def run_entry(entry: KernelEntry, call: Call, arrays: Arrays, outs: Arrays) -> Arrays:
    """Launch one kernel into `outs`, with inputs as the runtime gives them: in row-major order if
    it takes no strides. View kernels and dynamic ones give their own arrays."""
    body: Any = entry.body
    if entry.signature.arranged:
        return _run_arranged(entry, call, arrays, outs)
    if not ON_CPU.device.takes_strides(entry):
        arrays = tuple(map(ON_CPU.device.contiguous, arrays))
    with np.errstate(all="ignore"):
        attrs = call.attrs_of(entry)
        node, made = node_of(call, arrays, outs, attrs), entry.made()
        if entry.view is not None and made is not None:
            with prepared(made, node):
                return as_tuple(made.call(*arrays))
        if entry.view is not None or call.primitive.dynamic_outputs:
            return as_tuple(body(*arrays, **attrs))
        if made is not None:
            _launch(made, node, arrays, outs)
        else:
            body(*arrays, **attrs, out=outs[0] if call.primitive._single else outs)
    return outs


def node_of(
    call: Call, inputs: Sequence[Any], outputs: Sequence[Any], attrs: Any, target: Target = ON_CPU
) -> KernelNode:
    """The KernelNode of a call, for arrays or abstracts in row-major order."""
    ins, outs = (tuple(ArraySpec(a.shape, a.dtype) for a in group) for group in (inputs, outputs))
    return KernelNode(call.primitive.name, ins, outs, attrs, target)


def _run_arranged(entry: KernelEntry, call: Call, arrays: Arrays, outs: Arrays) -> Arrays:
    """Launch a kernel of memory formats: on images that are converted before, and back after."""
    takes, gives = entry.signature.arrangement(len(arrays), len(outs))
    ins = [ArraySpec(a.shape, a.dtype, f) for a, f in zip(arrays, takes, strict=True)]
    filled = [ArraySpec(a.shape, a.dtype, f) for a, f in zip(outs, gives, strict=True)]
    given, made = ([np.empty(s.stored, s.dtype) for s in specs] for specs in (ins, filled))
    for array, stored, spec in zip(arrays, given, ins, strict=True):
        convert(array, stored, PLAIN, spec.format, *spec.shape[1:2])
    for out, stored in zip(outs, made, strict=True):
        stored.reshape(-1).view(np.uint8)[...] = out.reshape(-1).view(np.uint8)[0]
    body: Any = entry.body
    attrs = call.attrs_of(entry)
    with np.errstate(all="ignore"):
        if isinstance(body, type):
            node = KernelNode(call.primitive.name, tuple(ins), tuple(filled), attrs, ON_CPU)
            _launch(body(), node, tuple(given), tuple(made))
        else:
            body(*given, **attrs, out=made[0] if call.primitive._single else tuple(made))
    for out, stored, spec in zip(outs, made, filled, strict=True):
        convert(stored, out, spec.format, PLAIN, *spec.shape[1:2])
    return outs


def _launch(kernel: Kernel, node: KernelNode, arrays: Arrays, outs: Arrays) -> None:
    with prepared(kernel, node):
        scratch = tuple(np.full(w.shape, 7, w.dtype) for w in kernel.workspace())
        kernel.launch(arrays, scratch, outs, None)


@contextmanager
def prepared(kernel: Kernel, node: KernelNode) -> Iterator[None]:
    """Inside it, a kernel is prepared; it is released at the end, also where one of its methods
    raises."""
    try:
        kernel.prepare(node)
        yield
    except BaseException:
        with suppress(Exception):  # the first error matters more
            kernel.release()
        raise
    kernel.release()


def poisoned(call: Call, byte: int) -> Arrays:
    """Output buffers filled with one byte (with False or True where they are bools)."""
    if call.primitive.dynamic_outputs:
        return ()
    outs = []
    for abstract in call.inferred:
        out = np.empty(abstract.shape, abstract.dtype)
        out.reshape(-1).view(np.uint8)[...] = byte & 1 if out.dtype == bool else byte
        outs.append(out)
    return tuple(outs)


# --- Launches in a check --------------------------------------------------------------------------


_WIDTHS, _BLOCKS = (4, 8), 3  # bytes of an element; blocks of each size


def launch(entry: KernelEntry, call: Call, arrays: Arrays | None = None, byte: int = 0) -> Arrays:
    """The outputs of one kernel, in buffers that are filled with `byte` before, if it is not 0 with
    memory that np.empty gives it; TimeIsUpError when the time of the check is up."""
    go_on()
    arrays, outs = copies(call) if arrays is None else arrays, poisoned(call, byte)
    if byte:
        _soil(byte, (*arrays, *outs))
    return run_entry(entry, call, arrays, outs)


def _soil(byte: int, arrays: Arrays) -> None:
    """Fill free memory of the sizes that a kernel may ask for beside these arrays: as many rows,
    columns or elements, or a few more. What was freed last is given out first."""
    counts = {n + more for a in arrays for n in (*a.shape, a.size) for more in range(-1, 3)}
    sizes = sorted({max(n, 1) * width for n in counts for width in _WIDTHS})
    for blocks in ([np.empty(n, np.uint8) for _ in range(_BLOCKS)] for n in sizes):
        for block in blocks:
            block.fill(byte)


def copies(call: Call) -> Arrays:
    """Writable copies of the inputs, so that writes of a kernel into them show."""
    return tuple(np.array(a, order="C") for a in call.arrays)


def launched(call: Call) -> bool:
    """False if the framework skips the kernels, because no output has an element."""
    return call.primitive.dynamic_outputs or any(o.size for o in call.inferred)


def kernels_of(call: Call) -> list[KernelEntry]:
    """The CPU kernels that take and give the dtypes of a call, if the framework would run them."""
    return call.entries if launched(call) else []


def wide_kernel(call: Call, arrays: Arrays) -> KernelEntry | None:
    """The kernel for a call of other dtypes; None if it would have to cast them."""
    try:
        return next(iter(call.on(arrays).entries), None)
    except MinimlError:
        return None


def failure(entry: KernelEntry, call: Call) -> Exception | None:
    """The exception of a kernel; None if it runs."""
    try:
        launch(entry, call)
    except Exception as error:
        return error
    return None


def gives_no_number(call: Call, at_all: bool = False) -> bool:
    """True when a kernel gives NaN or infinity for these numbers; at_all: and nothing else."""
    entries = [entry for entry in call.entries[:1] if failure(entry, call) is None]
    finite = [np.isfinite(wide(o)) for entry in entries for o in launch(entry, call)]
    return any(o.size and not (o.any() if at_all else o.all()) for o in finite)


def refused_by_value(call: Call) -> bool:
    """True when a kernel refuses these numbers rather than these shapes.

    That is so if it raises an error made for that (an index out of range, a matrix that is not
    definite), and either plain numbers pass or the error allows no other reading.
    """
    if not launched(call):
        return False
    errors = [(e, failure(e, call)) for e in call.entries]
    for entry, error in errors:
        if error is None or not _about_values(call, error):
            continue
        if isinstance(error, (OutOfRangeError, np.linalg.LinAlgError)):
            return True
        plain = (np.full(a.shape, is_float(a.dtype), a.dtype) for a in call.arrays)  # ones, zeros
        if failure(entry, call.on(tuple(plain))) is None:
            return True
    return False


def _about_values(call: Call, error: Exception) -> bool:
    if isinstance(error, MinimlError):
        return not isinstance(error, ShapeError)
    if isinstance(error, np.linalg.LinAlgError):
        return True
    indices = any(not is_float(a.dtype) and a.size for a in call.arrays)
    return indices and isinstance(error, (IndexError, ValueError))


def other_shape(entry: KernelEntry, call: Call) -> Shape | None:
    """An output shape with which a kernel runs that raises with the inferred one; None if there is
    none."""
    if not call.primitive._single or entry.view is not None or call.primitive.dynamic_outputs:
        return None
    (out,) = call.inferred
    fitting = []
    for shape in _plausible(call):
        if shape == out.shape:
            continue
        with suppress(Exception):  # whatever it raises, this is not the shape
            run_entry(entry, call, copies(call), (np.zeros(shape, out.dtype),))
            fitting.append(shape)
    # Results are broadcast into larger outputs, so the smallest is what the kernel computes.
    return min(fitting, key=lambda shape: (prod(shape), len(shape)), default=None)


def _plausible(call: Call) -> Iterator[Shape]:
    """Output shapes that operations have for inputs like these, each once."""
    shapes = [a.shape for a in call.arrays]
    tried: dict[Any, None] = dict.fromkeys(shapes)
    with suppress(ValueError):
        tried[np.broadcast_shapes(*shapes)] = None
    if len(shapes) == 2 and all(shapes):
        tried[shapes[0][:-1] + shapes[1][1:]] = None
        tried[shapes[0][:-2] + shapes[0][-2:-1] + shapes[1][-1:]] = None
        tried[shapes[0] + shapes[1]] = None
    for shape in list(tried):
        dropped = [shape[:a] + shape[a + 1 :] for a in range(len(shape))]
        thinned = [shape[:a] + (1,) + shape[a + 1 :] for a in range(len(shape))]
        tried.update(dict.fromkeys(chain([shape[::-1]], dropped, thinned)))
    yield from tried
    yield ()


# --- Memory layouts -------------------------------------------------------------------------------

# A layout is words joined by commas, as in "Fortran-ordered, reversed along axis 1". Axes that an
# array does not have are ignored, so that a layout fits arrays of any rank.


CONTIGUOUS = "contiguous"
ORDERS = ("Fortran-ordered", "axes swapped")  # swapped: the first one and the last one
STEPS = ("reversed", "sliced", "broadcast")  # a negative stride, one twice as large, one of 0
WORDS = (CONTIGUOUS, *ORDERS, *STEPS, "offset")
USUAL = ("Fortran-ordered", "reversed", "sliced", "offset", "broadcast")
_OFFSET = 3
T = TypeVar("T")


def is_layout(layout: str) -> bool:
    """True for the words of a layout."""
    return all(
        (not along and word in WORDS) or (word in STEPS and along.isdecimal())
        for word, along in map(_split, layout.split(", "))
    )


def _split(part: str) -> tuple[str, str]:
    word, _, along = part.partition(" along axis ")
    return word, along


class Choices:
    """The choices for one numbered call and a seed, equal on every machine."""

    def __init__(self, seed: int, number: int):
        self._rng = np.random.default_rng([seed, number])

    def below(self, n: int) -> int:
        """A whole number from 0 to n - 1."""
        return int(self._rng.integers(n))

    def of(self, values: Sequence[T]) -> T:
        return values[self.below(len(values))]


def drawn_layouts(choose: Choices, ranks: Iterable[int]) -> tuple[str, ...]:
    """A random layout for each array of these ranks, now and then contiguous."""
    return tuple(_drawn(choose, rank) for rank in ranks)


def usual_layouts(count: int, shifts: int = len(USUAL)) -> Iterator[tuple[str, ...]]:
    """Usual layouts: each for that many arrays together, then, if there are several arrays,
    mixtures of layouts. shifts: 1 for no mixtures, more for more of them."""
    for shift in range(shifts if count > 1 else 1):
        for first in range(len(USUAL)):
            yield tuple(USUAL[(first + shift * i) % len(USUAL)] for i in range(count))


def _drawn(choose: Choices, rank: int) -> str:
    words = [choose.of(("", "", *ORDERS))] if rank > 1 else []
    for axis in range(rank):
        step = choose.of(("", *STEPS))
        words.append(f"{step} along axis {axis}" if step else "")
    words.append(choose.of(("", "offset")))
    return ", ".join(filter(None, words)) or CONTIGUOUS


def named(layouts: Sequence[str], what: str) -> str:
    """The name of arrays in these layouts: "reversed inputs", or each one by itself."""
    if len(set(layouts)) <= 1:
        return f"{next(iter(layouts), CONTIGUOUS)} {what}s"
    each = [f"{what} {i} {layout}" for i, layout in enumerate(layouts)]
    return f"{what}s laid out as: {'; '.join(each)};"


def simpler_layouts(layout: str) -> tuple[str, ...]:
    """Simpler layouts: with no words, then with one word less."""
    words = layout.split(", ")
    if layout == CONTIGUOUS:
        return ()
    fewer = [", ".join(words[:i] + words[i + 1 :]) for i in range(len(words))] * (len(words) > 1)
    return (CONTIGUOUS, *fewer)


def laid_out(arrays: Arrays, layouts: Sequence[str]) -> Arrays:
    """Each array in its layout; those beyond the last layout are contiguous."""
    rest = (CONTIGUOUS,) * (len(arrays) - len(layouts))
    return tuple(lay(a, layout) for a, layout in zip(arrays, (*layouts, *rest)))


def lay(a: Array, layout: str) -> Array:
    """The elements of an array in that layout.

    A contiguous one has memory of its own, the others are views. Where an axis is broadcast (axis 0
    if none is named), the first entry along it replaces all of them; integers, which may be indices
    that must differ, are not broadcast.
    """
    if layout == CONTIGUOUS:
        return np.array(a, order="C")
    order, steps, start = list(range(a.ndim)), [1] * a.ndim, 0
    for word, along in map(_split, layout.split(", ")):
        axes = [int(along)] if along else [0] if word == "broadcast" else list(range(a.ndim))
        axes = [axis for axis in axes if axis < a.ndim]
        if word == "Fortran-ordered":
            order.reverse()
        elif word == "axes swapped" and order:
            order[0], order[-1] = order[-1], order[0]
        elif word == "offset":
            start += _OFFSET
        elif word == "sliced":
            start += 1
        for axis in axes if word in STEPS else ():
            steps[axis] *= {"reversed": -1, "sliced": 2}.get(word, 0 if is_float(a.dtype) else 1)
    return _strided(a, order, steps, start)


def _strided(a: Array, order: Sequence[int], steps: Sequence[int], start: int) -> Array:
    """A view of new memory that holds the array's elements.

    order: the axes, those that vary slowest first. steps: from one element along an axis to the
    next, where 1 is dense, 0 the same element again. start: elements of memory before the first.
    """
    strides, span = [0] * a.ndim, 1
    for axis in reversed(order):
        strides[axis] = span * steps[axis]
        span *= max(abs(steps[axis]) * a.shape[axis], 1)
        start -= min(strides[axis], 0) * max(a.shape[axis] - 1, 0)
    memory = np.zeros((start + span) * a.itemsize, np.uint8)
    distinct = tuple(slice(1) if s == 0 else slice(None) for s in steps)
    steps_in_bytes = [s * a.itemsize for s in strides]
    view: Array = np.ndarray(a.shape, a.dtype, memory, start * a.itemsize, steps_in_bytes)
    view[distinct] = a[distinct]
    if 0 in steps:
        view.flags.writeable = False  # these elements alias each other, so the view is read-only
    return view


# --- Time limits: a check inside another one ends with it at the latest ---------------------------


_PATIENCE = 4.0  # code that sleeps may take that many times its budget
_FRESH = 1e-2  # seconds for which a reading is good enough: `os.times` counts in hundredths
_SCHEDULED = "/proc/thread-self/schedstat"  # Linux: nanoseconds run, nanoseconds waited, slices


def _never() -> bool:
    return False


_over: ContextVar[Callable[[], bool]] = ContextVar("miniml_testing_over", default=_never)


class Stopwatch:
    """Seconds since its construction: of the clock on an idle machine; on a busy one, of this
    process and of the compilers it starts, and a quarter of those in which it sleeps.

    So a check sees as much on a busy machine as on an idle one, and code that sleeps still ends.
    Where the system does not say how long others had the processors, that counts as sleep.
    """

    def __init__(self) -> None:
        self._clock, self._work, self._waited = time.monotonic(), _work(), _waited()
        self._read, self._elapsed = 0.0, 0.0

    def elapsed(self) -> float:
        """The seconds so far, as of the last hundredth."""
        clock = time.monotonic() - self._clock
        if clock - self._read > _FRESH:  # the system's counters cost more than the clock
            self._read, self._elapsed = clock, self._since(clock)
        return self._elapsed

    def _since(self, clock: float) -> float:
        work = _work() - self._work
        if work >= clock / _PATIENCE:
            return min(clock, work)
        alone = clock - (_waited() - self._waited)
        return max(work, min(alone, clock / _PATIENCE))

    def seconds(self) -> float:
        """The clock's seconds so far."""
        return time.monotonic() - self._clock


def _work() -> float:
    """Processor seconds of this process and of the children it has waited for."""
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system


def _waited() -> float:
    """Seconds in which this thread could have run and others had the processors; 0 if unknown."""
    try:
        return int(Path(_SCHEDULED).read_text().split()[1]) * 1e-9
    except (OSError, ValueError, IndexError):
        return 0.0


class TimeIsUpError(BaseException):
    """Raised inside a check when its time is up; the check says what it has not examined.

    It is no Exception, so that what catches those of code under test does not take it for one.
    """


@contextmanager
def lasting_until(over: Callable[[], bool]) -> Iterator[None]:
    """Inside the block time is up when `over()` says so, or an enclosing block."""
    outer = _over.get()
    token = _over.set(over if outer is _never else lambda: over() or outer())
    try:
        yield
    finally:
        _over.reset(token)


@contextmanager
def lasting(seconds: float | None) -> Iterator[None]:
    """Inside the block time is up after that many seconds; None: when that of the enclosing block
    is."""
    watch = Stopwatch()
    with lasting_until(_never if seconds is None else lambda: watch.elapsed() > seconds):
        yield


def time_is_up() -> bool:
    """True when the time of this check, or of an enclosing one, is over."""
    return _over.get()()


def go_on() -> None:
    """Raise TimeIsUpError when time is up."""
    if time_is_up():
        raise TimeIsUpError
