"""Explanation of kernel selection: the kernel of each node, its provider, and the reason."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..backends.cc.native import NativeKernel
from ..backends.selection import Candidate
from ..core.errors import ArityError
from ..ops.control import Fused
from .codegen import alone, members, name, neighbours
from .jit import Jit
from .launch import BoundKernel, Sizes, native
from .program import Program

_SHOWN = 4  # kernels rejected for one reason that the text names


@dataclass(frozen=True, slots=True)
class Choice:
    """The kernel of one node; printing it lists all that were candidates.

    candidates: every kernel of the primitive on the device, the one that runs first; `lost` says
    why each of the others does not. sizes: the bytes of its arrays.
    """

    primitive: str
    inputs: str
    kernel: str
    provider: str
    why: str
    where: str
    candidates: tuple[Candidate, ...]
    sizes: Sizes

    def __str__(self) -> str:
        lines = [f"{self.primitive} {self.inputs}", *map(str, self.candidates)]
        return "\n  ".join(lines)


@dataclass(frozen=True)
class Explanation:
    """Result of `explain`; printing it shows a table, one row per node in execution order, then,
    for each primitive, its other kernels by the reason for their rejection.

    rows: the table as data; printing one lists all its candidates. groups: the members of each
    fused node. looped: calls under vmap that run one example at a time, and what would make them
    one call. apart: fused nodes that follow one another, and why they are two; a user's
    primitives between them, and what would let them join. texts: the C of each native kernel, if
    requested.
    """

    rows: tuple[Choice, ...]
    arena_bytes: int
    peak_bytes: int
    launched: str = ""
    groups: tuple[str, ...] = ()
    apart: tuple[str, ...] = ()
    looped: tuple[str, ...] = ()
    texts: tuple[str, ...] = ()

    def __str__(self) -> str:
        head = ("primitive", "inputs", "kernel", "provider", "why", "called at")
        rows = [head] + [
            (c.primitive, c.inputs, c.kernel, c.provider, c.why, c.where) for c in self.rows
        ]
        widths = [max(len(row[i]) for row in rows) for i in range(len(head) - 1)] + [0]
        lines = ["  ".join(cell.ljust(w) for cell, w in zip(r, widths, strict=True)) for r in rows]
        memory = f"arena {self.arena_bytes} bytes; at most {self.peak_bytes} are alive at once"
        tail = [memory, self.launched] if self.launched else [memory]
        found: Sequence[str]
        sections = (
            ("one example at a time", self.looped),
            ("fused", self.groups),
            ("not fused", self.apart),
            ("candidates", self._lost()),
        )
        for title, found in sections:
            tail += [f"{title}:", *(f"  {line}" for line in found)] * bool(found)
        return "\n".join([*(line.rstrip() for line in lines), *tail, *self.texts])

    __repr__ = __str__

    def _lost(self) -> list[str]:
        """For each primitive with several kernels, the one that runs, and the others by reason."""
        judged = dict.fromkeys((r.candidates[0].entry.name, r.candidates) for r in self.rows)
        lines = []
        for primitive, (chosen, *others) in judged:
            lines += [f"{primitive}: {chosen}"] * bool(others)
            reasons: dict[str, list[str]] = {}
            for other in others:
                reasons.setdefault(other.lost, []).append(other.entry.describe())
            for why, found in reasons.items():
                few = len(found) <= _SHOWN
                lines.append(f"  {why}: {', '.join(found) if few else f'{len(found)} kernels'}")
        return lines


def explain(
    fn: Callable[..., Any], *example_args: Any, text: bool = False, **named: Any
) -> Explanation:
    """An Explanation: which kernel runs each node of `fn` for arguments of these types, and why.

    Nothing is computed. A node whose inputs had to be widened shows as Cast nodes around it. Fused
    nodes are listed with their members; text: with the C of native kernels, too. ArityError for
    example arguments that `fn` does not take.
    """
    _check_examples(fn, example_args, named)
    compiling = fn if isinstance(fn, Jit) else Jit(fn)
    compiled = compiling.compiled(*example_args, **named)
    return explain_program(compiled.program, text, compiled.remarks)


def _check_examples(fn: Any, given: Sequence[Any], named: Mapping[str, Any]) -> None:
    """ArityError for example arguments that the function, or the cell, does not take."""
    try:
        inner = inspect.unwrap(fn)
        taken = inspect.signature(getattr(inner, "construct", inner))
    except (TypeError, ValueError):  # of a function in C
        return
    try:
        taken.bind(*given, **named)
    except TypeError as error:
        name = getattr(fn, "__name__", type(fn).__name__)
        stars = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
        needed = [p for p in taken.parameters.values() if p.kind not in stars]
        names = [p.name for p in needed if p.default is p.empty]
        raise ArityError(
            f"explain got {len(given) + len(named) or 'no'} example arguments for "
            f"{name}({', '.join(taken.parameters)}): {error}; give it what a call gets, since it "
            f"compiles for these shapes and dtypes: explain({', '.join([name, *names])})"
        ) from None


def explain_program(
    program: Program, text: bool = False, looped: tuple[str, ...] = ()
) -> Explanation:
    """Explain a program that is already compiled. looped: what tracing remarked of loops."""
    rows = []
    fused = [n for n in program.schedule.order if isinstance(n.primitive, Fused)]
    sources = dict.fromkeys(filter(None, map(_source, program.prepared.values())))
    for node in program.schedule.order:
        prepared = program.prepared[node]
        entry = prepared.entry
        inputs, outputs = node.abstracts
        rows.append(
            Choice(
                name(node) if node in fused else repr(node.primitive),
                " ".join(map(str, inputs)),
                str(entry.signature),
                entry.provider,
                prepared.why,
                str(node.where or ""),
                program.target.candidates(node.primitive.name, inputs, outputs),
                prepared.sizes,
            )
        )
    plan = program.plan
    unfused = alone(program.graph) if native(program.target) else ()  # users' primitives
    return Explanation(
        tuple(rows),
        plan.size,
        plan.peak,
        program.launched,
        tuple(members(n, _made(program.prepared[n], "program")) for n in fused),
        (*neighbours(program.graph, program.target.home), *unfused),
        looped,
        tuple(sources) if text else (),
    )


def _source(kernel: BoundKernel) -> str | None:
    """The C that was generated for a node."""
    if isinstance(kernel.instance, NativeKernel):
        source = kernel.instance.source
        return None if source is None else source.constant
    made = _made(kernel, "printed")
    return None if made is None else str(made.text)


def _made(kernel: BoundKernel, name: str) -> Any:
    """An attribute that a kernel derived from its node; None if it has no such attribute."""
    instance = getattr(kernel.instance, "kernel", kernel.instance)  # in check mode
    return getattr(instance, name, None)
