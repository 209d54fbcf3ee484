"""Checks of CUDA kernels in the simulator: their numbers against the CPU's, and their faults."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from ....backends.kernel import KernelEntry
from ....core.dtype import float64, is_float
from ....core.errors import CompileError, KernelFaultError
from ...calls import Array, Arrays, Call
from ...layouts import laid_out, named
from ..draws.values import LONGEST
from ..session import Issue, Remark, first_line
from . import launches
from .accuracy import Relation, Variant, any_order, broken, changed
from .kernels import Expected, against, between
from .launches import failure, launch, launched
from .numbers import specials
from .rules import others
from .variants import dense

_SMALL = 64  # elements up to which a call is run in several ways
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
    return call.kind != LONGEST and bool(launches.entries(call)) and launched(call)


def devices(call: Call) -> Iterator[Remark]:
    """Every CUDA kernel agrees with the reference and the CPU's kernels, without a fault."""
    for entry in launches.entries(call):
        name = f"cuda {entry.describe()}"
        found = yield from _remarks(call, name, _once(call, name, entry))
        if found:
            continue
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
    ran = launches.run(entry, call)
    memory = list(_memory(call, name, ran))
    yield from memory
    expected = Expected(call)
    wrong = bool(memory)
    if expected.known and not memory:
        for remark in against(call, expected, name, ran.outs):
            wrong |= isinstance(remark, Issue)
            yield remark
    for cpu in () if wrong else call.entries()[:1]:
        if failure(cpu, call) is None:
            yield from between(call, name, ran.outs, f"cpu {cpu.describe()}", launch(cpu, call))


def _memory(call: Call, name: str, ran: launches.Run) -> Iterator[Issue]:
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
    run = partial(_outputs, entry, call)
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


def _outputs(entry: KernelEntry, call: Call, arrays: Arrays, schedule: str = "forward") -> Arrays:
    return launches.run(entry, call, arrays, schedule).outs


def _elsewhere(call: Call, entry: KernelEntry) -> Iterator[Call]:
    """The call with NaN and infinities among the inputs, and with other attributes, if the rules
    and the CPU's kernel take it."""
    handled = call.info is not None and call.info.nan == "handled"
    usual = call.smooth and not handled and not _to_integers(call)
    near = [replace(other, smooth=False) for other, *_ in specials(call, 1)] if usual else []
    for other in (*near, *(Call(p, call.arrays, call.consts) for p in others(call.primitive))):
        try:
            usable = launched(other) and entry in launches.entries(other) and other.entries()
        except Exception:  # the rules refuse it
            continue
        if usable and failure(other.entries()[0], other) is None:
            yield other


def _beside_cpu(call: Call, name: str, entry: KernelEntry, numbers: bool) -> Iterator[Remark]:
    """Issues of a launch against the first CPU kernel.

    numbers: False if some inputs are NaN or infinite; if all outputs are finite, the treatment of
    these inputs is up to kernels.
    """
    cpu = call.entries()[0]
    outs, right = launches.run(entry, call).outs, launch(cpu, call)
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
