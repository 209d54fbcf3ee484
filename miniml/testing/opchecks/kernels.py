"""Checks of kernels: accuracy, memory, resizing, shared state, and crashes.

In order: every kernel against float64 and against the other kernels; the memory that a kernel
reads, fills and shares; kernel objects that are resized, as in `jit(fn, dynamic=...)`; the shared
state of the program (generators, error states, the environment), which a call must not change;
kernels that end the process, which a child of it finds.
"""

from __future__ import annotations

import faulthandler
import os
import pickle
import random
import re
import signal
import time
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from functools import partial
from typing import Any

import numpy as np

from ...backends.kernel import Kernel, KernelEntry
from ...core.abstract import float64, is_float
from ...core.errors import MinimlError
from ...core.primitive import Primitive
from ..calls import (
    Array,
    Arrays,
    Call,
    copies,
    failure,
    kernels_of,
    launch,
    launched,
    node_of,
    poisoned,
    prepared,
    reference,
    wide,
    wide_kernel,
)
from ..report import OpFinding
from ..tolerance import (
    STEPS,
    Systematic,
    at_an_end,
    degree,
    largest_ulp,
    limits_of,
    mismatch,
    moved_by_rounding,
    moved_by_slope,
    scale_of,
    spread_of,
    systematic,
    ulps,
    unit_roundoff,
    unlike,
    where_too_large,
)
from .gradients import has_bprop, ran
from .session import ENDS, LIBRARIES, Difference, Issue, Remark, program

_NUDGES = 3  # attempts to move inputs across a step
_CAP = 0.01  # of the result
_MOVES, _CHANCE = 8, 4.0  # an error is so many times the largest of 8 changes in 3 of 10^6 cases
_ADVICE = {
    "wrong": "correct the kernel for this dtype (or the reference, should that be wrong)",
    "inaccurate": "rewrite the formula so that terms do not cancel, or compute it in a wider dtype",
    ENDS: "where squares of these numbers leave the range of the dtype, scale before squaring, or "
    "compute in a wider dtype, should such numbers come",
}


def kernels(call: Call) -> Iterator[Remark]:
    """Every kernel agrees with float64 up to rounding, and with the other kernels."""
    if not launched(call):
        return
    entries = {entry.describe(): entry for entry in call.entries}
    results = {name: launch(entry, call) for name, entry in entries.items()}
    expected = Expected(call)
    if expected.known:
        for name, outs in results.items():
            yield from against(call, expected, name, outs, partial(launch, entries[name], call))
    first = next(iter(results), None)
    for name in list(results)[1:]:
        assert first is not None
        yield from between(call, name, results[name], first, results[first])


def against(
    call: Call,
    expected: Expected,
    name: str,
    outs: Arrays,
    run: Callable[[Arrays], Arrays] | None = None,
) -> Iterator[Remark]:
    """Issues of a kernel's outputs against the expected ones. run: the kernel, so that an error
    that changes with every rounding of its inputs is told from that of a formula."""
    exact = expected.exact()
    if len(outs) != len(exact):
        return
    numbers = [o.dtype for o in outs if is_float(o.dtype)]
    spreads: tuple[Array | float, ...] = (0.0,) * len(exact)
    if numbers and numbers[0] in (*call.dtypes, *(o.dtype for o in call.inferred)):
        rng = np.random.default_rng(0)
        spreads = spread_of(expected.outputs, expected.wide_args(), numbers[0], rng)
    for i, (out, right, moved) in enumerate(zip(outs, exact, spreads)):
        yield from _small(call, name, i, out, right)
        right = where_too_large(out, right)
        wrong = mismatch(out, right, call.terms, moved)
        shared = systematic(out, right, moved) if call.smooth and _apiece(call, out) else None
        if shared is not None and expected.by_itself(i):
            yield _systematic(call, name, i, shared, expected.source)
            continue
        if wrong is None:
            yield from _apart(call, name, expected.source, out, right)
        if wrong is None or (not expected.given and _jumps(expected, i, out, moved)):
            continue
        how = degree(call.arrays, out, right)
        if how == "rounding" and expected.given and call.sample and expected.by_itself(i):
            how = "inaccurate"
        if how == "rounding" or _rounds(expected, i, out, right):
            continue
        if how == "wrong" and at_an_end(call.arrays):
            how = ENDS
        elif how == "wrong" and run and _noisy(call, expected, run, i, out, right):
            how = "inaccurate"
        yield Issue(
            ENDS if how == ENDS else f"{how} {i}",
            f"{call}: output {i} of the kernel {name} {wrong} ({expected.source})"
            f"{ulps(out, right)}",
            _ADVICE[how],
            "fault" if how == "wrong" else "warning",
        )


def _apiece(call: Call, out: Array) -> bool:
    """True if each element has inputs of its own: what rounding does to one that several have is an
    error that they share."""
    return all(a.size >= out.size for a in call.arrays if is_float(a.dtype))


def _systematic(call: Call, name: str, i: int, shared: Systematic, source: str) -> Issue:
    return Issue(
        f"systematic {i}",
        f"{call}: most numbers of output {i} of the kernel {name} are {shared.how} by about "
        f"{shared.by:.1f} units of rounding, where right ones are by less than one of either sign "
        f"({source})",
        "look for a factor, for a constant of few digits, and for what computes or stores in a "
        "narrower dtype",
        shared.severity,
    )


def _small(call: Call, name: str, i: int, out: Array, right: Array) -> Iterator[Issue]:
    """Subnormal numbers are kept, and zeros have their sign."""
    if not is_float(out.dtype) or out.shape != right.shape:
        return
    size, zero, limits = np.abs(right), out == 0, limits_of(out.dtype)
    kept = 2 * float(limits.smallest_subnormal)
    flushed = zero & (size >= kept) & (size < float(limits.tiny))
    signless = zero & (right == 0) & (np.signbit(out) != np.signbit(right))
    for kind, what, lost in (
        (ENDS, "is 0 where numbers below the smallest normal one are right", flushed),
        (f"sign of zero {i}", "has zeros of the other sign", signless),
    ):
        if lost.any():
            index = tuple(int(n) for n in np.argwhere(lost)[0])
            yield Issue(
                kind,
                f"{call}: output {i} of the kernel {name} {what}: at {list(index)} it is "
                f"{out[index]!s}, should be {right[index]!s}",
                _ADVICE[ENDS] if kind == ENDS else "let -0.0 pass, should its sign matter",
                "warning",
            )


def _rounds(expected: Expected, i: int, out: Array, right: Array) -> bool:
    """True if the exact result moves as far when inputs move by a rounding: near a pole, where
    terms cancel almost completely, or where it oscillates between one number and the next. The
    change is capped, unless a slope shows it, since results also move far at steps."""
    call = expected.call
    if not is_float(out.dtype) or out.shape != right.shape:
        return False

    def exact(arrays: Arrays) -> Arrays:
        return expected.outputs(*call.args(tuple(map(wide, arrays))))

    outs = expected.exact()
    moved = np.minimum(moved_by_rounding(exact, call.arrays, outs)[i], _CAP * np.abs(right))
    if mismatch(out, right, call.terms, moved) is None:
        return True
    along = moved_by_slope(exact, tuple(map(wide, call.arrays)), outs)[i] * _unit(call)
    return mismatch(out, right, call.terms, np.maximum(moved, along)) is None


def _noisy(
    call: Call,
    expected: Expected,
    run: Callable[[Arrays], Arrays],
    i: int,
    out: Array,
    right: Array,
) -> bool:
    """True if the error is another one for inputs that are some roundings apart: terms cancel
    inside, as in a determinant. That of a wrong formula stays. For ordinary numbers, which make no
    terms cancel, it is a fault all the same."""
    if call.smooth or not is_float(out.dtype) or out.shape != right.shape:
        return False
    rng, u, moved = np.random.default_rng(2), _unit(call), np.zeros(out.shape)
    with np.errstate(all="ignore"):
        for _ in range(_MOVES):
            near = call.of_floats(lambda a: a * (1 + STEPS * u * rng.choice([-1.0, 1.0], a.shape)))
            exact = expected.outputs(*near.args(tuple(map(wide, near.arrays))))[i]
            error = run(near.arrays)[i].astype(float64) - exact
            moved = np.fmax(moved, np.abs(error - (out.astype(float64) - right)))
    return mismatch(out, right, call.terms, _CHANCE * moved / STEPS) is None


def _unit(call: Call) -> float:
    """The largest rounding of the inputs, relative to them."""
    return max((unit_roundoff(a.dtype) for a in call.arrays if is_float(a.dtype)), default=0.0)


def _jumps(expected: Expected, i: int, out: Array, moved: Array | float) -> bool:
    """True if the exact result itself jumps when inputs move by a rounding: at a step."""
    rng, call = np.random.default_rng(1), expected.call
    u = _unit(call)
    exact = call.on(tuple(map(wide, call.arrays)))
    for _ in range(_NUDGES):
        near = exact.of_floats(lambda a: a * (1 + 4 * u * rng.choice([-1.0, 1.0], a.shape)))
        if mismatch(out, expected.outputs(*near.args())[i], call.terms, moved) is None:
            return True
    return False


def between(call: Call, name: str, outs: Arrays, other: str, others: Arrays) -> Iterator[Remark]:
    """Issues of a kernel's outputs against those of another."""
    for i, (out, right) in enumerate(zip(outs, others)):
        unit = unit_roundoff(right.dtype) if is_float(right.dtype) else 0.0
        wrong = mismatch(out, right, call.terms, 4 * scale_of(call.arrays, right) * unit)
        expected = Expected(call) if wrong is not None else None
        if wrong is None:
            yield from _apart(call, name, other, out, right)
        elif not (expected and expected.known and _rounds(expected, i, out, right.astype(float64))):
            far = at_an_end(call.arrays)
            yield Issue(
                ENDS if far else f"kernels differ {i}",
                f"{call}: output {i} of the kernel {name} {wrong} (the kernel {other})"
                f"{ulps(out, right)}",
                _ADVICE[ENDS] if far else "correct one of the two kernels",
                "warning" if far else "fault",
            )


def _apart(call: Call, name: str, other: str, out: Array, right: Array) -> Iterator[Difference]:
    """The difference between two right results, for numbers of ordinary size."""
    ulp, index = largest_ulp(out, right)
    if call.smooth and ulp:
        yield Difference(name, other, ulp, f"{call} at {index}")


class Expected:
    """The expected outputs of a call, in float64: from the OpInfo's reference, else from the
    primitive's own float64 kernel. `known` is False if there is neither."""

    def __init__(self, call: Call):
        self.call = call
        self.given = call.referenced
        self.entry = None if self.given else self._float64_kernel()
        self.known = self._answers() if self.given else self.entry is not None

    @property
    def source(self) -> str:
        """The source of the numbers, in words."""
        return "the reference" if self.given else "the kernel in float64"

    def _float64_kernel(self) -> KernelEntry | None:
        """The float64 kernel; None if there is none, or if it is the one to be checked."""
        arrays = tuple(map(wide, self.call.arrays))
        same = all(a.dtype == b.dtype for a, b in zip(arrays, self.call.arrays))
        if same or self.call.primitive.dynamic_outputs:
            return None
        return wide_kernel(self.call, arrays)

    def _answers(self) -> bool:
        """False if the reference covers less than the rules accept."""
        if self.call.sample:
            return True
        try:
            self.exact()
        except Exception:
            return False
        return True

    def outputs(self, *inputs: object) -> Arrays:
        """The outputs for these inputs, in the order of the primitive's."""
        if self.given:
            return reference(self.call, inputs)
        assert self.entry is not None
        consts = {i for i, _ in self.call.primitive._const} if self.call.consts else set()
        arrays = tuple(np.asarray(a) for i, a in enumerate(inputs) if i not in consts)
        return tuple(wide(o) for o in launch(self.entry, self.call.on(arrays), arrays))

    def exact(self) -> Arrays:
        """The outputs for the call's own inputs."""
        return self.outputs(*self.wide_args())

    def wide_args(self) -> tuple[object, ...]:
        """The call's arguments with floats in float64."""
        return self.call.args(tuple(map(wide, self.call.arrays)))

    def by_itself(self, i: int) -> bool:
        """True if elements of output i, the first, one in the middle and the last, depend only on
        those of the inputs at their own index: what is off is then the formula. False for an output
        of one element, which shows nothing."""
        right = self.exact()[i]
        indices = {np.unravel_index(k, right.shape) for k in (0, right.size // 2, right.size - 1)}
        try:
            return right.size > 1 and all(
                np.isclose(self._alone(at, right.shape)[i], right[at], 1e-6, 0.0, True).all()
                for at in indices
            )
        except Exception:  # inputs that do not broadcast, or none that the reference takes
            return False

    def _alone(self, at: tuple[Any, ...], shape: tuple[int, ...]) -> Arrays:
        """The outputs for the elements of the inputs at one index of an output."""
        one = tuple(slice(k, k + 1) for k in at)
        spanned = (np.broadcast_to(wide(a), shape)[one] for a in self.call.arrays)
        return self.outputs(*self.call.args(tuple(spanned)))


# --- Memory ---------------------------------------------------------------------------------------


# Fillings after 0xA5 and 0x5A: so irregular that no counter follows them.
_BYTES = (0x5A, 0xA5, 0x5A, 0xA5, 0xA5)


def memory(call: Call) -> Iterator[Issue]:
    """Inputs stay as they were; outputs are filled completely, and share no undeclared memory."""
    for entry in kernels_of(call):
        arrays = copies(call)
        first = launch(entry, call, arrays, 0xA5)
        for i, (array, was) in enumerate(zip(arrays, copies(call))):
            if array.tobytes() != was.tobytes():
                yield Issue(
                    f"input {i}",
                    f"{call}: the kernel {entry.describe()} writes into input {i} (element "
                    f"{int(np.flatnonzero(unlike(array, was))[0])} in C order changed)",
                    "write into out only; work on a copy of the input",
                )
        yield from _filled(call, entry, first)
        yield from _shared(call, entry, arrays, first)


def _filled(call: Call, entry: KernelEntry, first: Arrays) -> Iterator[Issue]:
    """Outputs that depend on what was in memory, each time: others depend on the number of the
    call."""
    second = launch(entry, call, None, 0x5A)
    if all(one.tobytes() == two.tobytes() for one, two in zip(first, second)):
        return
    runs = [(byte, launch(entry, call, None, byte)) for byte in _BYTES]
    for i, (one, two) in enumerate(zip(first, second)):
        right = {0xA5: one.tobytes(), 0x5A: two.tobytes()}
        if one.tobytes() != two.tobytes() and all(o[i].tobytes() == right[b] for b, o in runs):
            differs = unlike(one, two)
            index = [int(n) for n in np.argwhere(differs)[0]]
            yield Issue(
                f"output {i}",
                f"{call}: the kernel {entry.describe()} leaves {int(differs.sum())} of "
                f"{differs.size} elements of output {i} to what was in memory, the first at "
                f"{index}",
                "fill every element of out, and read none of it before",
            )


def _shared(call: Call, entry: KernelEntry, arrays: Arrays, outs: Arrays) -> Iterator[Issue]:
    if entry.view is None and not call.primitive.dynamic_outputs:
        return  # such a kernel fills buffers that are given to it
    for i, array in enumerate(arrays):
        for k, out in enumerate(outs):
            if i != entry.view and np.shares_memory(out, array):
                yield Issue(
                    f"alias {i}",
                    f"{call}: output {k} of the kernel {entry.describe()} shares memory with "
                    f"input {i}, which is not declared",
                    "return a copy, or register it with @view_kernel",
                )


# --- Resized kernels ------------------------------------------------------------------------------


def follow(call: Call) -> bool:
    """True for calls with a kernel class that overrides `resize`."""
    return any(map(_follows, kernels_of(call)))


def _follows(entry: KernelEntry) -> bool:
    return getattr(entry.body, "resize", Kernel.resize) is not Kernel.resize


def sizes(call: Call) -> Iterator[Issue]:
    """A kernel that is resized, to fewer elements and back, gives what a new one gives."""
    part = call.on(tuple(a[: -(-len(a) // 2)] if a.ndim else a for a in call.arrays))
    try:
        entries = [e for e in kernels_of(part) if _follows(e) and e in call.entries]
    except MinimlError:  # not each input may be shorter
        return
    for entry in entries:
        for first, then in ((part, call), (call, part)):
            yield from _compared(entry, first, then)


def _compared(entry: KernelEntry, first: Call, then: Call) -> Iterator[Issue]:
    how = f"{then}: the kernel {entry.describe()}, resized after {first},"
    advice = "let resize(node) renew all that prepare(node) took from the node"
    try:
        outs = _resized(entry, first, then)
    except Exception as error:
        yield Issue("raises", f"{how} raises {type(error).__name__}: {error}", advice)
        return
    for i, (got, new) in enumerate(zip(outs, launch(entry, then, byte=0xA5))):
        if got.tobytes() != new.tobytes():
            index = [int(n) for n in np.argwhere(unlike(got, new))[0]]
            wrong = f"gives other numbers than a new one in output {i}, the first at {index}"
            yield Issue(f"output {i}", f"{how} {wrong}", advice)


def _resized(entry: KernelEntry, first: Call, then: Call) -> Arrays:
    kernel, outs = entry.made(), poisoned(then, 0xA5)
    assert kernel is not None
    before, after = (node_of(c, c.arrays, c.inferred, c.attrs) for c in (first, then))
    with prepared(kernel, before):
        kernel.resize(after)
        scratch = tuple(np.full(w.shape, 7, w.dtype) for w in kernel.workspace())
        with np.errstate(all="ignore"):
            kernel.launch(copies(then), scratch, outs, None)
    return outs


# --- Shared state of the program ------------------------------------------------------------------


_UNUSUAL = 271828
_GENERATOR = "draw from a generator of the kernel's own, seeded by an input (a key)"


def _numpy_generator() -> list[Any]:
    name, key, *rest = tuple(np.random.get_state())  # noqa: NPY002
    return [name, np.asarray(key).tobytes(), *rest]


def _set_numpy_generator(was: list[Any]) -> None:
    name, key, *rest = was
    np.random.set_state((name, np.frombuffer(key, np.uint32), *rest))  # noqa: NPY002


def _directory() -> str:
    try:
        return os.getcwd()
    except OSError:  # it was removed
        return ""


def _set_directory(was: str) -> None:
    if was:
        os.chdir(was)


def _set_environment(was: dict[str, str]) -> None:
    os.environ.clear()
    os.environ.update(was)


def _set_filters(was: list[Any]) -> None:
    warnings.filters[:] = was  # type: ignore[index]


# Shared state of a program: a name, its present value, how to restore it, what to do instead.
State = tuple[str, Callable[[], Any], Callable[[Any], Any], str]

SHARED: tuple[State, ...] = (
    ("numpy.random's generator", _numpy_generator, _set_numpy_generator, _GENERATOR),
    ("random's generator", random.getstate, random.setstate, _GENERATOR),
    ("numpy's error state (np.seterr)", np.geterr, lambda was: np.seterr(**was),
     "use `with np.errstate(...)`"),
    ("the environment (os.environ)", lambda: dict(os.environ), _set_environment,
     "read the environment only"),
    ("the working directory", _directory, _set_directory, "give whole paths to what opens files"),
    ("the filters of warnings", lambda: list(warnings.filters), _set_filters,
     "use `with warnings.catch_warnings()`"),
    ("numpy's print options", np.get_printoptions, lambda was: np.set_printoptions(**was),
     "use `with np.printoptions(...)`"),
)  # fmt: skip

_first: ContextVar[list[Any] | None] = ContextVar("miniml_first_state", default=None)


@contextmanager
def remembered() -> Iterator[None]:
    """Keep for `state` the shared state at the beginning of the block, before anything runs, and
    restore it at the end."""
    first = [read() for _, read, _, _ in SHARED]
    token = _first.set(first)
    try:
        yield
    finally:
        _first.reset(token)
        _restore(first)


def state(call: Call) -> Iterator[Issue]:
    """Rules, kernels and the bprop change nothing that the rest of the program shares.

    Each of them starts from the state before any of them ran, and from freshly seeded generators,
    so that a value that is set to the same each time shows, too.
    """
    now = [read() for _, read, _, _ in SHARED]
    for what, act in _acts(call):
        _restore(_first.get() or now)
        np.random.seed(_UNUSUAL)  # noqa: NPY002
        random.seed(_UNUSUAL)
        before = [read() for _, read, _, _ in SHARED]
        with suppress(Exception):  # other checks report it
            act()
        after = [read() for _, read, _, _ in SHARED]
        _restore(now)
        for (name, _, _, advice), was, left in zip(SHARED, before, after):
            if was != left:
                yield Issue(name, f"{call}: {what} changes {name}", advice)


def _acts(call: Call) -> Iterator[tuple[str, Callable[[], Any]]]:
    """The actions that run code of the primitive's author, each with its name."""
    yield "infer_shape or infer_dtype", lambda: call.on(call.arrays).inferred
    for entry in call.entries if launched(call) else ():
        yield f"the kernel {entry.describe()}", partial(launch, entry, call)
    yield "a call", call.run
    if has_bprop(call):
        yield "its bprop", lambda: ran(call)


def _restore(states: list[Any]) -> None:
    for (_, read, restore, _), was in zip(SHARED, states):
        if read() != was:
            restore(was)


# --- Crashes --------------------------------------------------------------------------------------

_TRIED = 40  # calls that a child makes first
_SECONDS = 1.0  # for them


class CrashError(Exception):
    """A kernel ended the child of this process. finding: what it was called with, and where."""

    def __init__(self, finding: OpFinding):
        super().__init__(finding.message)
        self.finding = finding


class Canary:
    """The first calls of a check in a child of this process, which a kernel may end: `np.cumsum`
    of NumPy 2.4 into an array of shape () does, and C that writes beside its arrays.

    The child is a fork at the first call. It goes on as this process would, saying each call before
    it is made, and ends by itself after `_TRIED` of them or with the block; meanwhile this process
    waits, and goes on where the child has come to no harm. Only users' kernels are tried.
    """

    def __init__(self, primitive: Primitive):
        own = type(primitive).__module__.startswith("miniml.")
        self.primitive, self.waits = primitive, hasattr(os, "memfd_create") and not own
        self.in_child, self.left = False, _TRIED

    def __enter__(self) -> Canary:
        return self

    def __exit__(self, *_: object) -> None:
        if self.in_child:
            os._exit(0)

    def before(self, call: Call) -> None:
        """Note that a call is next; CrashError if it, or one after it, ended the child."""
        if self.waits:
            self.waits = False
            with suppress(OSError):  # no process is left, or another part waits for all children
                self._fork()
        if self.in_child:
            self.left -= 1
            if self.left < 0:
                os._exit(0)
            os.ftruncate(self.said, 0)
            os.pwrite(self.said, pickle.dumps((call.arrays, call.consts)), 0)

    def explore(self, calls: Iterable[Call]) -> None:
        """Run the kernels of these calls in the child; nothing is run in this process."""
        for call in calls:
            self.before(call)
            for entry in kernels_of(call) if self.in_child else ():
                failure(entry, call)

    def _fork(self) -> None:
        self.said, self.trace = os.memfd_create("call"), os.memfd_create("trace")
        print(end="", flush=True)  # or the child would write it again
        with warnings.catch_warnings():  # this thread alone makes the calls
            warnings.simplefilter("ignore", DeprecationWarning)
            child = os.fork()
        if child == 0:
            self.in_child = True
            silence = os.open(os.devnull, os.O_WRONLY)
            for stream in (1, 2):
                os.dup2(silence, stream)
            faulthandler.enable(self.trace)
            return
        try:
            self._wait(child)
        finally:
            os.close(self.said)
            os.close(self.trace)

    def _wait(self, child: int) -> None:
        """Wait for the child, which is ended after `_SECONDS`."""
        end, (done, status) = time.monotonic() + _SECONDS, (0, 0)
        while not done:
            done, status = os.waitpid(child, os.WNOHANG)
            if not done and time.monotonic() > end:
                os.kill(child, signal.SIGKILL)
                os.waitpid(child, 0)
                return
            time.sleep(0 if done else 0.001)
        size = os.fstat(self.said).st_size
        if os.WIFSIGNALED(status) and size:
            call = Call(self.primitive, *pickle.loads(os.pread(self.said, size, 0)))
            raise CrashError(self._finding(call, signal.Signals(os.WTERMSIG(status)).name))

    def _finding(self, call: Call, name: str) -> OpFinding:
        trace = os.pread(self.trace, 1 << 16, 0).decode(errors="replace")
        frames = re.findall(r'File "(.*)", line (\d+) in (.*)', trace)
        own = [frame for frame in frames if not frame[0].startswith(LIBRARIES)]
        where = "".join(f", in {of} at {file}:{line}" for file, line, of in own[:1])
        return OpFinding(
            "kernels", "fault", f"{call} ends the process by {name}{where}; nothing else was "
            "checked",
            "make the kernel write into its own arrays alone, or refuse such inputs in infer_shape",
            program("kernels", call, self.primitive),
        )  # fmt: skip
