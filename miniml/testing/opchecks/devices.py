"""Checks of calls elsewhere: CUDA kernels in the simulator, and collectives on several ranks.

In order: one launch, and launches in other ways and on other inputs; the notes of a report on what
ran; a launch in the simulator, which checks the use of memory.

The ranks are threads of a loop-back group, each with inputs of its own. On them a collective, which
is a primitive that has a `group` and its `size`, is checked for its gradient, which is that of the
sum of all ranks' outputs, and for its results under `jit` and `vmap`, which are those of a call by
itself. On one rank, where the other checks run it, a gradient that does not pass through the group
looks right.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import cache, partial
from typing import Any, NamedTuple, cast

import numpy as np

from ...backends import registry
from ...backends.cuda.array import DeviceArray
from ...backends.cuda.sim import memory as settings
from ...backends.group import Group
from ...backends.kernel import KernelEntry, KernelNode
from ...backends.selection import Target, get_device
from ...core.abstract import float64, is_float
from ...core.errors import CompileError, DeviceError, KernelFaultError, MinimlError
from ...core.primitive import Primitive
from ...core.tensor import Tensor
from ...distributed.ranks import loopback
from ...grad import vmap
from ...ops import stack
from ...runtime.jit import jit
from ..calls import (
    Array,
    Arrays,
    Call,
    as_tuple,
    failure,
    go_on,
    laid_out,
    launch,
    launched,
    named,
    node_of,
    prepared,
    wide,
)
from ..gradchecks.run import gradcheck
from ..report import GradReport
from ..tolerance import changed
from .draws import signatures
from .kernels import Expected, against, between
from .numbers import specials
from .relations import Relation, any_order, broken
from .rules import others
from .session import Issue, Remark, first_line
from .values import LONGEST
from .variants import Variant, dense

_SMALL = 64  # elements up to which a call is run in several ways
_BLOCK = 256  # threads
_LISTED = 12  # kernels at most
_MIXED = 2  # layouts of a call that are tried
_LOG = 6  # lines of a compiler's log that a finding shows
_ORDERS = (
    ("runs again", "forward"),
    ("runs with its threads in another order", "shuffled"),
    ("runs with its last threads first", "reverse"),
)
_OUTSIDE = "guard the index: threads beyond the last element must do nothing"
_ADVICE = {
    "race": "put __syncthreads() between the two accesses, or use an atomic",
    "out-of-bounds": _OUTSIDE,
    "overrun": _OUTSIDE,
    "uninitialised": "write memory before it is read; outputs and workspace come uninitialised",
    "const-write": "write into outputs only",
    "divergent-barrier": "let every thread of the block reach __syncthreads()",
    "hang": "look for a loop that does not end or waits for another block",
}


def on_devices(call: Call) -> bool:
    """True for calls that a CUDA kernel takes, if the simulator is available."""
    return call.kind != LONGEST and bool(entries(call)) and launched(call)


def long_on_devices(call: Call) -> bool:
    """True for those with an axis longer than a warp, and than most blocks of threads."""
    long = any(n > _BLOCK for a in call.arrays for n in a.shape)
    return long and bool(entries(call)) and launched(call)


def devices(call: Call) -> Iterator[Remark]:
    """Every CUDA kernel agrees with the reference and the CPU's kernels, without a fault."""
    for entry in entries(call):
        name = f"cuda {entry.describe()}"
        found = yield from _remarks(call, name, _once(call, name, entry))
        if found:
            continue
        if call.kind != LONGEST:
            yield from _remarks(call, name, _in_other_ways(call, name, entry))
        if max((a.size for a in call.arrays), default=0) <= _SMALL:
            for other in _elsewhere(call, entry):
                remark = _remarks(other, name, _beside_cpu(other, name, entry, other.smooth))
                found = [s._replace(call=other) for s in remark if isinstance(s, Issue)]
                yield from found
                if found:
                    break


def _remarks(call: Call, name: str, found: Iterator[Remark]) -> Any:
    """The issues of a check, including errors of its launches; returns whether there were any."""
    any_issue = False
    try:
        for remark in found:
            any_issue |= isinstance(remark, Issue)
            yield remark
    except KernelFaultError as error:
        faults: Any = error.faults
        for fault in {fault.kind: fault for fault in reversed(faults)}.values():
            text = f"{call}: the kernel {name}: {fault}"
            yield Issue(fault.kind, text, _ADVICE.get(fault.kind, "correct the kernel"))
        return True
    except CompileError as error:
        log = "\n".join(str(error).splitlines()[:_LOG])
        advice = "correct the source; lines count from the first of your own text"
        yield Issue("compile", f"the kernel {name} does not compile: {log}", advice)
        return True
    except Exception as error:
        text = f"{call}: the kernel {name} raises {first_line(error)}"
        yield Issue("raises", text, "let the launch rule fit every shape that the rules take")
        return True
    return any_issue


def _once(call: Call, name: str, entry: KernelEntry) -> Iterator[Remark]:
    """Issues of one launch: of its memory, else of its numbers, against the reference or the
    float64 kernel, then against the first CPU kernel."""
    ran = simulated(entry, call)
    memory = list(_memory(call, name, ran))
    yield from memory
    expected = Expected(call)
    wrong = bool(memory)
    if expected.known and not memory:
        for remark in against(call, expected, name, ran.outs):
            wrong |= isinstance(remark, Issue)
            yield remark
    for cpu in () if wrong else call.entries[:1]:
        if failure(cpu, call) is None:
            yield from between(call, name, ran.outs, f"cpu {cpu.describe()}", launch(cpu, call))


def _memory(call: Call, name: str, ran: Run) -> Iterator[Issue]:
    for i, count in enumerate(ran.unwritten):
        if count:
            yield Issue(
                f"unwritten {i}",
                f"{call}: the kernel {name} leaves {count} of {ran.outs[i].size} elements of "
                f"output {i} unwritten",
                "launch enough threads for every element, and let each write its own",
            )
    for i in ran.changed:
        yield Issue(
            f"input {i}",
            f"{call}: the kernel {name} writes into input {i}",
            "write into outputs only; declare inputs const",
        )


def _in_other_ways(call: Call, name: str, entry: KernelEntry) -> Iterator[Remark]:
    """Issues of more launches: a kernel gives the same bits when it runs again and in other orders
    of threads, and the same numbers in other layouts."""

    def run(arrays: Arrays, schedule: str = "forward") -> Arrays:
        return simulated(entry, call, arrays, schedule).outs

    outs = run(call.arrays)
    for how, schedule in _ORDERS:
        variant = Variant(how, partial(run, call.arrays, schedule), run, call.arrays)
        got = variant.got()
        both = enumerate(zip(outs, got))
        i = next((k for k, (one, two) in both if one.tobytes() != two.tobytes()), None)
        if i is not None:
            rounding = schedule != "forward" and any_order(call, variant, got, outs) is None
            yield Issue(
                f"repeat {i}",
                f"{call}: the kernel {name} gives other numbers when it {how}: output {i} "
                f"{changed(outs[i], got[i])}",
                "sum in an order that does not depend on the threads' (atomics add in any order)"
                if rounding
                else "let no result depend on which thread comes first, nor on earlier launches",
                "warning" if rounding else "fault",
            )
            break
    yield from broken(call, Relation(
        "strides", partial(_layouts, name, run), any_order,
        "let the kernel follow strides, or register it without strided=True",
    ))  # fmt: skip


def _layouts(name: str, run: Any, call: Call) -> Iterator[Variant]:
    for layouts in call.layouts[:_MIXED]:
        arrays = laid_out(call.arrays, layouts)
        words = (
            f"on {named(layouts[: len(arrays)], 'input')} the kernel {name} gives something else "
            "than on contiguous ones"
        )
        shown = replace(call, layouts=(layouts,))
        yield Variant(words, partial(run, arrays), run, dense(arrays), shown)


def _elsewhere(call: Call, entry: KernelEntry) -> Iterator[Call]:
    """The call with NaN and infinities among the inputs, and with other attributes, if the rules
    and the CPU's kernel take it."""
    handled = call.info is not None and call.info.nan == "handled"
    usual = call.smooth and not handled and not _to_integers(call)
    near = [replace(other, smooth=False) for other, *_ in specials(call, 1)] if usual else []
    for other in (*near, *(Call(p, call.arrays, call.consts) for p in others(call.primitive))):
        try:
            usable = launched(other) and entry in entries(other) and other.entries
        except Exception:  # the rules refuse it
            continue
        if usable and failure(other.entries[0], other) is None:
            yield other


def _beside_cpu(call: Call, name: str, entry: KernelEntry, numbers: bool) -> Iterator[Remark]:
    """Issues of a launch against the first CPU kernel.

    numbers: False if some inputs are NaN or infinite; if all outputs are finite, the treatment of
    these inputs is up to kernels.
    """
    cpu = call.entries[0]
    outs, right = simulated(entry, call).outs, launch(cpu, call)
    if not numbers:
        right = tuple(map(_unless_all_vanish, outs, right))
    for remark in between(call, name, outs, f"cpu {cpu.describe()}", right):
        if isinstance(remark, Issue):
            yield remark._replace(kind=f"{remark.kind}, elsewhere")


def _to_integers(call: Call) -> bool:
    """True if each element becomes an integer: the integers for NaN and infinities depend on the
    machine."""
    shapes = [a.shape for a in call.arrays[:1]]
    return all(o.dtype.kind in "iu" and [o.shape] == shapes for o in call.inferred)


def _unless_all_vanish(out: Array, right: Array) -> Array:
    """`right`, or the kernel's output where `right` is not finite, if part of that output is not
    finite: whether a NaN reaches terms that padding makes 0 is up to kernels."""
    if not is_float(out.dtype) or np.isfinite(out.astype(float64)).all():
        return right
    return np.where(np.isfinite(right.astype(float64)), right, out).astype(right.dtype)


def notes_on_devices(primitive: Primitive, seen: Sequence[Call]) -> Iterator[str]:
    """The CUDA kernels that ran, and those that did not, with the reason."""
    found = registered(primitive)
    why = available() if found else ""
    ran = [e for e in found if any(e in entries(call) for call in seen)]
    others = [e for e in found if e not in ran]
    if ran:
        yield f"checked in the simulator of CUDA, not on a GPU: {_listed(ran)}"
    if others:
        yield f"not checked{f', because {why}' if why else ''}: {_listed(others)}"


def _listed(entries: Sequence[KernelEntry]) -> str:
    rest = f" and {len(entries) - _LISTED} more" if len(entries) > _LISTED else ""
    return ", ".join(f"{e.device} {e.describe()}" for e in entries[:_LISTED]) + rest


# --- Launches in the simulator --------------------------------------------------------------------


_SECONDS = 4.0  # seconds after which a launch counts as hung


@cache
def available() -> str:
    """The reason why there is no simulator, in a sentence; "" if there is one. The call registers
    the library's CUDA kernels."""
    try:
        get_device("cuda-sim")
    except DeviceError as error:
        return str(error)
    return ""


def registered(primitive: Primitive) -> list[KernelEntry]:
    """The CUDA kernels of a primitive. For a user's primitive without any, nothing is loaded."""
    if type(primitive).__module__.startswith("miniml."):
        available()
    return registry.table.get((primitive.name, "cuda"), [])


def entries(call: Call) -> list[KernelEntry]:
    """The CUDA kernels that take and give the dtypes of a call unchanged, and that the simulator
    can run."""
    plain = [e for e in registered(call.primitive) if not e.signature.arranged]
    fitting = [e for e in plain if e.signature.accepts(call.dtypes)]
    if call.primitive.dynamic_outputs or not fitting or available():
        return []
    outs = tuple(o.dtype for o in call.inferred)
    simulator = Target(get_device("cuda-sim"))
    return [e for e in fitting if e.signature.gives(outs) and simulator.supports(e)]


def simulated(
    entry: KernelEntry, call: Call, arrays: Arrays | None = None, schedule: str = "forward"
) -> Run:
    """Launch a kernel on a call's inputs (or other arrays of the same shapes), in any strides.

    schedule: the order of blocks and threads. Raises what the kernel's rule and the simulator
    raise: CompileError, LaunchError, KernelFaultError with the faults; TimeIsUpError when the time
    of the check is up.
    """
    go_on()
    device: Any = get_device("cuda-sim", "check")
    given = tuple(_uploaded(device, a) for a in (call.arrays if arrays is None else arrays))
    if not device.takes_strides(entry):
        given = tuple(map(device.contiguous, given))
    before = [device.to_host(x).tobytes() for x in given]
    with settings.using(schedule=schedule, seed=1, seconds=_SECONDS):
        outs = _launched(device, entry, call, given)
    return Run(
        tuple(map(device.to_host, outs)),
        tuple(-(-o.flat.unwritten() // o.dtype.itemsize) for o in outs),
        tuple(i for i, x in enumerate(given) if device.to_host(x).tobytes() != before[i]),
    )


class Run(NamedTuple):
    """The result of a launch: outputs, the number of unwritten elements of each, and the numbers of
    the inputs that it changed."""

    outs: Arrays
    unwritten: tuple[int, ...]
    changed: tuple[int, ...]


def _launched(device: Any, entry: KernelEntry, call: Call, given: tuple[Any, ...]) -> Any:
    node = node_of(call, call.arrays, call.inferred, call.attrs_of(entry), Target(device))
    if entry.view is not None:
        with _look(entry, node) as look:
            return tuple(map(device.contiguous, as_tuple(look(*given))))
    kernel = device.bare_kernel(entry)
    with prepared(kernel, node):
        scratch, outs = (
            tuple(device.empty(s.shape, s.dtype) for s in specs)
            for specs in (kernel.workspace(), node.outputs)
        )
        kernel.launch(given, scratch, outs, device.stream)
    return outs


@contextmanager
def _look(entry: KernelEntry, node: KernelNode) -> Iterator[Callable[..., Any]]:
    """A view kernel for a node, as a function of arrays alone."""
    made, body = entry.made(), cast(Any, entry.body)
    if made is None:
        yield partial(body, **node.attrs)
        return
    with prepared(made, node):
        yield made.call


def _uploaded(device: Any, a: Array) -> DeviceArray:
    """The array on the device, with its strides."""
    steps = [(n - 1) * s for n, s in zip(a.shape, a.strides)]
    if a.flags.c_contiguous or not a.size:
        made: DeviceArray = device.from_host(a)
        return made
    start = -sum(min(s, 0) for s in steps)
    memory = np.zeros(start + sum(max(s, 0) for s in steps) + a.itemsize, np.uint8)
    np.ndarray(a.shape, a.dtype, memory, start, a.strides)[...] = a
    block = device.arena(memory.nbytes)
    device.set(block, memory)
    return DeviceArray(device, block, start, a.shape, a.dtype, a.strides)


# --- Collectives, as calls of several ranks -------------------------------------------------------

_SIZES = 2, 3
_WAITED = 20.0  # seconds; a rank that makes other calls than the rest is found at once
_NAME = "world"  # of the loop-back group


def is_collective(primitive: Primitive) -> bool:
    """True for a primitive that says for which group of ranks it is, and how many these are."""
    named = {"group": str, "size": int}
    attributes = primitive.attributes
    return all(isinstance(attributes.get(name), kind) for name, kind in named.items())


def of_several(primitive: Primitive) -> bool:
    """True for a collective of more than one rank, which only ranks can call."""
    return is_collective(primitive) and primitive.attributes["size"] > 1


def calls_of_ranks(primitive: Primitive, seed: int | None) -> list[Call]:
    """Calls of a collective of several ranks: arrays that its rules take."""
    rng = np.random.default_rng(0 if seed is None else seed)
    n = primitive.attributes["size"]
    calls = []
    for dtypes in signatures(primitive):
        for shape in ((2 * n, 3), (n,), ()):
            arrays = tuple([np.asarray(rng.normal(size=shape) * 4).astype(d) for d in dtypes])
            call = Call(primitive, arrays)
            if _taken(call):
                calls.append(call)
    return calls


def across_ranks(call: Call) -> Iterator[Issue]:
    """The issues of one call on a group of each size, on inputs made of its own."""
    primitive = call.primitive
    if primitive.effect != "ordered":
        yield Issue(
            "effect",
            f"{primitive!r} is a collective with effect {primitive.effect!r}, so that programs may "
            "drop or reorder its calls on some ranks",
            'declare effect = "ordered"',
        )
        return
    size = primitive.attributes["size"]
    for n in (size,) if size > 1 else _SIZES:
        several = _for(call, n)
        found = [] if several is None else list(_on(several, n))
        yield from found
        if found:
            return


def _for(call: Call, n: int) -> Call | None:
    """The call for a group of n, repeated along its first axis where that makes it valid; None
    where it never is."""
    attributes = {**call.primitive.attributes, "group": _NAME, "size": n}
    try:
        primitive = call.primitive.with_attributes(attributes)
    except MinimlError:  # other attributes speak of ranks that this group lacks
        return None
    arrays = tuple([np.concatenate([a] * n) if a.ndim else a for a in call.arrays])
    tried = (replace(call, primitive=primitive, arrays=a) for a in (call.arrays, arrays))
    return next((each for each in tried if _taken(each)), None)


def _taken(call: Call) -> bool:
    try:
        return bool(call.inferred)
    except MinimlError:
        return False


def _on(call: Call, n: int) -> Iterator[Issue]:
    found = loopback(lambda group: list(_of_rank(call, group)), n, _WAITED)
    told = set()
    for rank, issues in enumerate(found):
        for issue in issues:
            if issue.kind not in told:
                told.add(issue.kind)
                where = f"{call} on rank {rank} of {n}"
                yield issue._replace(message=f"{where}: {issue.message}")


def _of_rank(call: Call, group: Group) -> Iterator[Issue]:
    """The issues that one rank finds."""
    op = call.primitive
    arrays = _own(call.arrays, group.rank)
    tensors = [Tensor(a) for a in arrays]

    def called(*xs: Any) -> Any:
        return op(*call.args(xs))

    plain = as_tuple(called(*tensors))
    if not _same(plain, as_tuple(jit(called)(*tensors))):
        yield Issue("jit", "its result differs under jit", "keep nothing from call to call")
    mapped = as_tuple(vmap(called)(*(stack([x, x]) for x in tensors)))
    if not _same([stack([x, x]) for x in plain], mapped):
        yield Issue(
            "vmap",
            "its result under vmap is not that of each example",
            'correct its batch rule, or leave out batch = "leading"',
        )
    if any(is_float(a.dtype) and a.size for a in arrays) and any(is_float(o.dtype) for o in plain):
        yield from _gradient(op, call.on(tuple(map(wide, arrays))), group)


def _gradient(op: Primitive, call: Call, group: Group) -> Iterator[Issue]:
    report: GradReport = gradcheck(op, *call.args(), group=group, raise_error=False)
    for finding in report.findings:
        if finding.verdict == "wrong":
            yield Issue(
                "gradient",
                f"its gradient across ranks is wrong: {finding.argument}: {finding.diagnosis}",
                "return from its bprop the gradient of the sum of all ranks' outputs: the "
                "transpose of a sum over ranks is a sum over ranks",
            )
            return


def _own(arrays: Sequence[Array], rank: int) -> Arrays:
    """The inputs of a rank: like those of the call, and others on each rank."""
    rng = np.random.default_rng(rank)
    factors = (np.asarray(rng.uniform(0.5, 1.5, a.shape)).astype(a.dtype) for a in arrays)
    return tuple(
        [
            np.asarray(a * f) if is_float(a.dtype) else a
            for a, f in zip(arrays, factors, strict=True)
        ]
    )


def _same(some: Sequence[Any], others: Sequence[Any]) -> bool:
    """True for equal arrays, to the bit but for NaN."""
    pairs = [(np.asarray(a), np.asarray(b)) for a, b in zip(some, others, strict=True)]
    return all(a.shape == b.shape and np.array_equal(a, b, equal_nan=a.dtype.kind == "f")
               for a, b in pairs)  # fmt: skip
