"""Kernels of CUDA, in the simulator: their numbers against the CPU's, and what they do wrong."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from ....backends.kernel import KernelEntry
from ....dtype import float64, is_float
from ....errors import CompileError, KernelFaultError
from ...calls import Array, Arrays, Call
from ..draws.layouts import laid_out, named
from ..draws.values import LONGEST
from ..session import Problem, Said
from . import simulated
from .accuracy import apart
from .attributes import others
from .kernels import Expected, against, between
from .launches import failure, launch, launched
from .memory import unlike
from .special import specials

_SMALL = 64  # elements up to which a call is run in more ways
_MIXED = 2
_LOG = 6  # lines of a compiler's log that a finding shows


def on_devices(call: Call) -> bool:
    """True for calls that a CUDA kernel takes, where there is a simulator."""
    return call.kind != LONGEST and bool(simulated.entries(call)) and launched(call)


def devices(call: Call) -> Iterator[Said]:
    """Every CUDA kernel gives what the reference and the CPU's kernels give, without a fault."""
    for entry in simulated.entries(call):
        name = f"cuda {entry.describe()}"
        problem, ran = _attempt(call, name, entry)
        if ran is None:
            yield from problem
            continue
        found = False
        for said in [*_memory(call, name, ran)] or _numbers(call, name, ran.outs):
            found |= isinstance(said, Problem)
            yield said
        if not found:
            yield from _orders(call, name, entry, ran.outs)
            yield from _laid(call, name, entry)
            if max((a.size for a in call.arrays), default=0) <= _SMALL:
                yield from _elsewhere(call, name, entry)


def _attempt(
    call: Call,
    name: str,
    entry: KernelEntry,
    arrays: Arrays | None = None,
    schedule: str = "forward",
) -> tuple[list[Problem], simulated.Run | None]:
    """What a launch gave; or what it raised, as problems."""
    try:
        return [], simulated.run(entry, call, arrays, schedule)
    except KernelFaultError as error:
        kinds = {_fault(call, name, fault).kind: fault for fault in reversed(error.faults)}
        return [_fault(call, name, fault) for fault in reversed(kinds.values())], None
    except CompileError as error:
        log = "\n".join(str(error).splitlines()[:_LOG])
        advice = "correct the source; lines count from the first of your own text"
        return [Problem("compile", f"the kernel {name} does not compile: {log}", advice)], None
    except Exception as error:
        kind = type(error).__name__
        told = f"{call}: the kernel {name} raises {kind}: {str(error).partition(chr(10))[0]}"
        return [
            Problem("raises", told, "let the launch rule fit every shape that the rules take")
        ], None


def _fault(call: Call, name: str, fault: Any) -> Problem:
    """A fault that the simulator saw, with kernel, block, thread and line."""
    return Problem(
        fault.kind,
        f"{call}: the kernel {name}: {fault}",
        _ADVICE.get(fault.kind, "correct the kernel"),
    )


_ADVICE = {
    "race": "put __syncthreads() between the two accesses, or use an atomic",
    "out-of-bounds": "guard the index: threads beyond the last element must do nothing",
    "overrun": "guard the index: threads beyond the last element must do nothing",
    "uninitialised": "write memory before it is read; outputs and workspace come uninitialised",
    "const-write": "write into outputs only",
    "divergent-barrier": "let every thread of the block reach __syncthreads()",
    "hang": "look for a loop that does not end or waits for another block",
}


def _memory(call: Call, name: str, ran: simulated.Run) -> Iterator[Problem]:
    for i, count in enumerate(ran.unwritten):
        if count:
            yield Problem(
                f"unwritten {i}",
                f"{call}: the kernel {name} leaves {count} of {ran.outs[i].size} elements of "
                f"output {i} unwritten",
                "launch enough threads for every element, and let each write its own",
            )
    for i in ran.changed:
        yield Problem(
            f"input {i}",
            f"{call}: the kernel {name} writes into input {i}",
            "write into outputs only; declare inputs const",
        )


def _numbers(call: Call, name: str, outs: Arrays) -> Iterator[Said]:
    """Against the reference or the float64 kernel, then against the first kernel of the CPU."""
    expected = Expected(call)
    if expected.known:
        wrong = False
        for said in against(call, expected, name, outs):
            wrong |= isinstance(said, Problem)
            yield said
        if wrong:
            return
    for entry in call.entries()[:1]:
        if failure(entry, call) is None:
            yield from between(call, name, outs, f"cpu {entry.describe()}", launch(entry, call))


def _orders(call: Call, name: str, entry: KernelEntry, outs: Arrays) -> Iterator[Problem]:
    """The same bits again, and in other orders of blocks and threads."""
    for how, schedule in (
        ("runs again", "forward"),
        ("runs with its threads in another order", "shuffled"),
        ("runs with its last threads first", "reverse"),
    ):
        problem, ran = _attempt(call, name, entry, None, schedule)
        yield from problem
        if ran is None:
            return
        for i, (one, two) in enumerate(zip(outs, ran.outs)):
            if one.tobytes() == two.tobytes():
                continue
            index = tuple(int(n) for n in np.argwhere(unlike(one, two))[0])
            rounding = schedule != "forward" and not _wrong(
                call, entry, ran.outs, outs, call.arrays
            )
            yield Problem(
                f"repeat {i}",
                f"{call}: the kernel {name} gives other numbers when it {how}: output {i} at "
                f"{list(index)} is {one[index]!s}, then {two[index]!s}",
                "sum in an order that does not depend on the threads' (atomics add in any order)"
                if rounding
                else "let no result depend on which thread comes first, nor on earlier launches",
                "warning" if rounding else "fault",
            )
            return


def _laid(call: Call, name: str, entry: KernelEntry) -> Iterator[Problem]:
    """Inputs in other layouts give what contiguous ones give."""
    for tried in call.layouts[:_MIXED]:
        arrays = laid_out(call.arrays, tried)
        dense = tuple(np.array(a, order="C") for a in arrays)
        _, expected = _attempt(call, name, entry, dense)
        problem, ran = _attempt(call, name, entry, arrays)
        yield from problem
        wrong = _wrong(call, entry, ran.outs, expected.outs, dense) if ran and expected else None
        if wrong is not None:
            yield Problem(
                "strides",
                f"{call}: output {wrong[0]} of the kernel {name} on "
                f"{named(tried[: len(arrays)], 'input')} {wrong[1]} (as for contiguous inputs)",
                "let the kernel follow strides, or register it without strided=True",
                call=replace(call, layouts=(tried,)),
            )


def _wrong(
    call: Call, entry: KernelEntry, outs: Arrays, rights: Arrays, arrays: Arrays
) -> tuple[int, str] | None:
    """What differs by more than the order of sums explains."""
    return apart(call, outs, rights, lambda xs: simulated.run(entry, call, xs).outs, arrays)


def _elsewhere(call: Call, name: str, entry: KernelEntry) -> Iterator[Said]:
    """With NaN and infinities among the inputs, and with other attributes, it follows the CPU."""
    handled = call.info is not None and call.info.nan == "handled"
    looked = call.smooth and not handled and not _to_integers(call)
    near = [other for other, _ in specials(call, 1)] if looked else []
    twins = [Call(p, call.arrays, call.consts) for p in others(call.primitive)]
    for other in (*near, *twins):
        try:
            usable = launched(other) and entry in simulated.entries(other)
            cpu = other.entries()[:1] if usable else []
            right = launch(cpu[0], other) if cpu else ()
        except Exception:  # the rules or the CPU's kernel refuse it
            continue
        if not right:
            continue
        problem, ran = _attempt(other, name, entry)
        yield from (p._replace(call=other) for p in problem)
        outs = ran.outs if ran else ()
        if other in near:
            right = tuple(map(_unless_all_vanish, outs, right))
        for said in between(other, name, outs, f"cpu {cpu[0].describe()}", right):
            if isinstance(said, Problem):
                yield said._replace(kind=f"{said.kind}, elsewhere", call=other)
                return


def _to_integers(call: Call) -> bool:
    """True where each element becomes an integer: what NaN and infinities become is left to
    machines."""
    shapes = [a.shape for a in call.arrays[:1]]
    return all(o.dtype.kind in "iu" and [o.shape] == shapes for o in call.inferred)


def _unless_all_vanish(out: Array, right: Array) -> Array:
    """`right`, with what came where that is not finite, if some of what came is not: whether a NaN
    reaches terms that padding makes 0 is left to kernels."""
    if not is_float(out.dtype) or np.isfinite(out.astype(float64)).all():
        return right
    return np.where(np.isfinite(right.astype(float64)), right, out).astype(right.dtype)
