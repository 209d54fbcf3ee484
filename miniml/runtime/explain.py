"""explain: which kernel each node of a function got, from which provider, and why."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ..backends.cc.kernel import NativeKernel
from ..ops.control import Fused
from .fusion.describe import members, name, neighbours
from .jit import Jit
from .launch import BoundKernel
from .program import Program


@dataclass(frozen=True, slots=True)
class Choice:
    """The kernel of one node."""

    primitive: str
    inputs: str
    kernel: str
    provider: str
    why: str
    where: str


@dataclass(frozen=True)
class Explanation:
    """What `explain` found; printing it shows a table, one row per node in the order they run.

    groups: what each fused node computes. apart: fused nodes that follow one another, and why they
    are two. texts: the C of each native kernel, if it was asked for.
    """

    choices: tuple[Choice, ...]
    arena_bytes: int
    peak_bytes: int
    launched: str = ""
    groups: tuple[str, ...] = ()
    apart: tuple[str, ...] = ()
    texts: tuple[str, ...] = ()

    def __str__(self) -> str:
        head = ("primitive", "inputs", "kernel", "provider", "why", "called at")
        rows = [head] + [
            (c.primitive, c.inputs, c.kernel, c.provider, c.why, c.where) for c in self.choices
        ]
        widths = [max(len(row[i]) for row in rows) for i in range(len(head) - 1)] + [0]
        lines = ["  ".join(cell.ljust(w) for cell, w in zip(r, widths, strict=True)) for r in rows]
        memory = f"arena {self.arena_bytes} bytes; at most {self.peak_bytes} are alive at once"
        tail = [memory, self.launched] if self.launched else [memory]
        for title, found in (("fused", self.groups), ("not fused", self.apart)):
            tail += [f"{title}:", *(f"  {line}" for line in found)] * bool(found)
        return "\n".join([*(line.rstrip() for line in lines), *tail, *self.texts])

    __repr__ = __str__


def explain(
    fn: Callable[..., Any], *example_args: Any, text: bool = False, **named: Any
) -> Explanation:
    """Compile `fn` for arguments of these types and say which kernel runs each node, and why.

    Nothing is computed. A node whose inputs had to be widened shows as Cast nodes around it. Nodes
    that were fused are listed with what they compute; text: with the C of native kernels, too.
    """
    return explain_program(Jit(fn).compiled(*example_args, **named).program, text)


def explain_program(program: Program, text: bool = False) -> Explanation:
    """The same for a program that is already compiled."""
    choices = []
    fused = [n for n in program.schedule.order if isinstance(n.primitive, Fused)]
    sources = dict.fromkeys(filter(None, map(_source, program.prepared.values())))
    for node in program.schedule.order:
        prepared = program.prepared[node]
        entry = prepared.entry
        choices.append(
            Choice(
                name(node) if node in fused else repr(node.primitive),
                " ".join(str(v.abstract) for v in node.inputs),
                str(entry.signature),
                entry.provider,
                prepared.why,
                str(node.where or ""),
            )
        )
    plan = program.plan
    return Explanation(
        tuple(choices),
        plan.size,
        plan.peak,
        program.launched,
        tuple(members(n, _made(program.prepared[n], "program")) for n in fused),
        tuple(neighbours(program.graph, program.target.home)),
        tuple(sources) if text else (),
    )


def _source(kernel: BoundKernel) -> str | None:
    """The C that was written for a node."""
    if isinstance(kernel.instance, NativeKernel):
        source = kernel.instance.source
        return None if source is None else source.text
    made = _made(kernel, "printed")
    return None if made is None else str(made.text)


def _made(kernel: BoundKernel, name: str) -> Any:
    """What the kernel of a node has made of it; None where it has no such thing."""
    instance = getattr(kernel.instance, "kernel", kernel.instance)  # in check mode
    return getattr(instance, name, None)
