"""Reports on programs: the kernel that runs each node, and the time that each takes.

`explain`: each node's kernel, its provider, and the reason. Fused nodes: their members and passes,
and why neighbours are apart. `profile`: time, calls, bytes and bandwidth of each node, layer and
line.
"""

from __future__ import annotations

import inspect
import json
import os
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from operator import itemgetter
from pathlib import Path
from threading import get_ident
from types import CodeType
from typing import Any, NamedTuple

import numpy as np

from ..backends.cc.native import NativeKernel
from ..backends.expressions import RowProgram, table
from ..backends.kernel import Array
from ..backends.selection import Candidate
from ..core.errors import ArityError
from ..core.files import write_file
from ..core.scope import Location
from ..core.settings import Watching
from ..graph.ir import Graph, Node, Var, in_order
from ..ops.control import Fused
from ..runtime.codegen import anchor_of, anchors, tail
from ..runtime.executor import Marks
from ..runtime.jit import Jit
from ..runtime.launch import BoundKernel, Sizes, native
from ..runtime.memory import Copy, KernelLaunch, Publish, Stage, Step
from ..runtime.nest import Apart, Nest, body_of, codes_of, doubt, kind_of
from ..runtime.observe import TimedCall
from ..runtime.program import Program

# --- Explanations ---------------------------------------------------------------------------------

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


# --- Fused nodes ---------------------------------------------------------------------------------


def members(node: Node, program: RowProgram | None) -> str:
    """Members of a fused node, and its number of passes over which rows."""
    names = " ".join(n.primitive.name for n in node.primitive.attributes["body"].nodes)
    if program is None:
        return names
    count = sum(bool(p.elements) for p in program.passes)
    rows = " x ".join(map(str, program.extents[: program.outer])) or "1"
    row = " x ".join(map(str, program.row)) or "1"
    return f"{names}; {count} {'pass' if count == 1 else 'passes'} over {rows} rows of {row}"


def neighbours(graph: Graph, home: str) -> Iterator[str]:
    """For each fused node and each node that computes one of its inputs, why they are apart."""
    maker = graph.makers()
    for node in graph.nodes:
        for other in dict.fromkeys(maker[v] for v in node.inputs if v in maker):
            if not isinstance(node.primitive, Fused):
                continue
            fused = isinstance(other.primitive, Fused)
            if fused or (home == "cpu" and anchor_of([other]) is not None):
                yield f"{name(other)} | {name(node)}: {apart(other, node)}"
            elif home == "cuda" and kind_of(other) == "" and not _users(other):
                yield f"{other.primitive.name} | {name(node)}: {_own_kernel(other)}"


def _own_kernel(node: Node) -> str:
    """Reason why nothing is fused with a node that has a hand-written kernel."""
    if node.primitive.name == "MatMul":
        return "products on CUDA have no epilogue"
    return "one has a kernel of its own"


def alone(graph: Graph) -> Iterator[str]:
    """For each user's primitive that could join a neighbour and does not, why, and a remedy."""
    maker, reported = graph.makers(), set()
    for reader in graph.nodes:
        for other in dict.fromkeys(maker[v] for v in reader.inputs if v in maker):
            for node, near in (other, reader), (reader, other):
                if node in reported or not _users(node) or kind_of(node) or not _has_loops(near):
                    continue
                reported.add(node)
                yield f"{name(node)}: {_lacking(node)}"


def _users(node: Node) -> bool:
    return not type(node.primitive).__module__.startswith("miniml.")


def _has_loops(node: Node) -> bool:
    return isinstance(node.primitive, Fused) or kind_of(node) in ("elements", "reduction")


def _lacking(node: Node) -> str:
    """Reason why loops cannot compute a user's primitive, and a remedy."""
    primitive, shapes = node.primitive.name, [v.abstract.shape for v in node.inputs]
    if len(node.outputs) != 1:
        return f"it has {len(node.outputs)} outputs, and an expression gives one"
    codes = codes_of(node)
    given = [c for n, c in table if n == primitive]
    if codes in given:
        return doubt(primitive, codes) or "there is nothing to compute, or its format differs"
    if given:
        return f"its expression is for {', '.join(given)}; register it for {codes}, too"
    if node.outputs[0].abstract.shape == _broadcast(shapes):
        return (
            "it has no expression; if every element is computed by itself, "
            f'ml.elementwise_kernel({primitive!r}, "...", {codes!r}) gives it one'
        )
    return (
        "it has no expression, and cannot have one, since its output has another shape; a function "
        "of operations in its place would be fused"
    )


def _broadcast(shapes: list[tuple[int, ...]]) -> tuple[int, ...] | None:
    try:
        return np.broadcast_shapes(*shapes)
    except ValueError:
        return None


def name(node: Node) -> str:
    """Name of a node in `explain`: a fused one by its members."""
    fused = isinstance(node.primitive, Fused)
    return str(node.primitive.attributes["body"].name) if fused else repr(node.primitive)


def apart(first: Node, second: Node) -> str:
    """Reason why an anchor or a fused node is not one with a fused node that reads it."""
    fused = isinstance(first.primitive, Fused)
    before = first.primitive.attributes["body"].nodes if fused else (first,)
    body = second.primitive.attributes["body"]
    nodes = in_order([*dict.fromkeys((*before, *body.nodes))])
    anchor = anchor_of(nodes)
    if anchor_of([n for n in nodes if n is not anchor]) is not None:
        return "each has a product or a convolution"
    if anchor is not None and not anchors(anchor):
        return "it is a product of vectors"
    try:
        if anchor is None:
            Nest(nodes)
        else:
            tail(body_of(nodes, body.outputs, {n: kind_of(n) for n in nodes}), anchor)
    except Apart as reason:
        return str(reason)
    return "other nodes stand between them, one updates parameters, or they would be too large"


# --- Profiles -------------------------------------------------------------------------------------

_ROWS = 40
_KEPT = 1 << 20  # times that are kept for a trace: 8 MB of programs, 40 MB of eager calls


def profile() -> Watching[Profile]:
    """The time of each kernel that runs in the `with` block, of this thread or task:
    `with ml.profile() as p: ...`.

    print(p) shows a table, `p.rows`, `p.layers` and `p.lines` are its data, and
    `p.save_trace("trace.json")` writes them for a trace viewer. Eager calls and compiled programs
    are seen, native kernels included; nothing is recompiled. A loop or branch that is a node has
    one row. On a GPU each kernel is waited for, and CUDA graphs are not used.

    >>> from miniml import ops
    >>> with profile() as p:
    ...     _ = ops.exp(ops.exp(0.0))
    >>> [(row.node, row.calls, row.bytes) for row in p.rows]
    [('Exp', 1, 8), ('Exp', 1, 8)]
    """
    return Watching(Profile())


@dataclass(frozen=True, slots=True)
class Row:
    """Totals over the runs of one node, or of all nodes of a layer or a line.

    node: the primitive's name, "copy" of a result or "update" of a parameter. layer: what made the
    call, such as "layer 0 (Dense)", or "". line: "file:line" of the user's call, or "". gradient:
    True for what belongs to the gradient of that call. bytes: of inputs and outputs, in all calls.
    """

    node: str
    layer: str
    line: str
    gradient: bool
    calls: int
    seconds: float
    bytes: int

    @property
    def bandwidth(self) -> float:
        """Achieved bytes per second."""
        return self.bytes / self.seconds if self.seconds else 0.0


class _What(NamedTuple):
    """Something that takes time. key: equal for what shares a row."""

    key: object
    node: str
    where: Location | None
    nbytes: int


# One run of a program: its marks, when it began and each of its steps ended, and the thread.
_Run = tuple[Marks, Array, int]
_FIELDS = len(TimedCall._fields)


class Profile:
    """A watcher that notes when kernels begin and end. Rows are sorted, the longest time first.

    rows: one for each node of a compiled program, and for each call of a primitive on a line.
    layers, lines: their sums. Printing it shows the nodes, then the layers.
    """

    sees_values = False

    def __init__(self) -> None:
        self._runs: list[_Run] = []
        self._kept = self.dropped = 0
        self.calls: list[Any] = []  # the fields of each TimedCall, one after the other
        self.most = _KEPT // 4 * _FIELDS
        self._before: dict[object, list[Any]] = {}  # sums of the runs that are not kept
        self._known: dict[int, tuple[Marks, list[_What | None]]] = {}

    def program_ran(self, marks: Marks) -> None:
        """Note one run of a compiled program."""
        self._runs.append((marks, marks.times.copy(), get_ident()))
        self._kept += marks.times.size
        if self._kept > _KEPT:
            self.fold()

    def fold(self) -> None:
        """Reduce all that is noted to its sums."""
        self._before = self._sums()
        self.dropped += len(self._runs) + len(self.calls) // _FIELDS
        self._runs, self._kept = [], 0
        self.calls.clear()

    def _events(self) -> Iterator[tuple[_What, int, int, int]]:
        """Each thing that took time, with its begin and end in nanoseconds and its thread."""
        for marks, times, thread in self._runs:
            spans = pairwise(times.tolist())
            for what, (begin, end) in zip(self._steps_of(marks), spans, strict=True):
                if what is not None:
                    yield what, begin, end, thread
        called, fields = _Called(), iter(self.calls)
        for *noted, begin, end, thread in zip(*[fields] * _FIELDS, strict=True):
            yield called[tuple(noted)], begin, end, thread

    def _steps_of(self, marks: Marks) -> list[_What | None]:
        if id(marks) not in self._known:
            self._known[id(marks)] = marks, list(_whats(marks.steps))
        return self._known[id(marks)][1]

    def _sums(self) -> dict[object, list[Any]]:
        """By key: what, calls, nanoseconds, bytes."""
        sums = {key: list(known) for key, known in self._before.items()}
        for what, begin, end, _ in self._events():
            known = sums.setdefault(what.key, [what, 0, 0, 0])
            known[1] += what.nbytes >= 0
            known[2] += end - begin
            known[3] += max(what.nbytes, 0)
        return sums

    @property
    def rows(self) -> list[Row]:
        """One row a node."""
        return _longest([_row(*known) for known in self._sums().values()])

    @property
    def layers(self) -> list[Row]:
        """One row a layer."""
        return _grouped(self.rows, lambda row: row.layer)

    @property
    def lines(self) -> list[Row]:
        """One row a line of the user's."""
        return _grouped(self.rows, lambda row: row.line)

    def __str__(self) -> str:
        rows, layers = self.rows, self.layers
        more = len(rows) - _ROWS
        rest = f"\n... {more} more in .rows" if more > 0 else ""
        return f"{_table(rows)}{rest}\n\nby layer\n{_table(layers)}"

    __repr__ = __str__

    def save_trace(self, path: str | os.PathLike[str]) -> None:
        """Write a trace in Chrome's format, for ui.perfetto.dev or chrome://tracing. Of a long
        profile it holds the last million times."""
        names: dict[int, int] = {}
        events = [
            _event(what, begin, end, names.setdefault(thread, len(names)))
            for what, begin, end, thread in sorted(self._events(), key=itemgetter(1))
        ]
        trace = {"traceEvents": events, "otherData": {"runs left out": self.dropped}}
        write_file(Path(path), [json.dumps(trace).encode()])


class _Called(dict[Any, _What]):
    """Eager calls, by the noted fields other than the times."""

    def __missing__(self, noted: tuple[tuple[str, int], CodeType | None, int, str, bool]) -> _What:
        (name, nbytes), code, lasti, layer, gradient = noted
        where = None if code is None else Location(code, lasti, "", layer, gradient)
        what = self[noted] = _What((name, *noted[1:]), name, where, nbytes)
        return what


def _whats(steps: Sequence[Step | None]) -> Iterator[_What | None]:
    """Meaning of each mark of a program. The calls of one step count as one."""
    for step, after in pairwise((*steps, None)):
        what = None if step is None else _what(step)
        yield what if what is None or step is not after else what._replace(nbytes=-1)


def _what(step: Step) -> _What | None:
    match step:
        case KernelLaunch(node):
            return _What(id(node), _name(node), node.where, _size(*node.inputs, *node.outputs))
        case Copy(source):
            return _What((id(source), "copy"), "copy", None, 2 * _size(source))
        case Stage(source) | Publish(_, source):
            return _What((id(source), "update"), "update", None, 2 * _size(source))
        case _:
            return None


def _name(node: Node) -> str:
    return name(node) if isinstance(node.primitive, Fused) else node.primitive.name


def _size(*values: Var) -> int:
    return sum(v.abstract.nbytes for v in values)


def _row(what: _What, calls: int, nanoseconds: int, nbytes: int) -> Row:
    at = what.where
    layer, line, gradient = ("", "", False) if at is None else (at.layer, str(at), at.gradient)
    return Row(what.node, layer, line, gradient, calls, nanoseconds / 1e9, nbytes)


def _grouped(rows: Sequence[Row], by: Callable[[Row], str]) -> list[Row]:
    """Sums of the rows that share a text; columns in which they differ are left empty."""
    groups: dict[str, list[Row]] = {}
    for row in rows:
        groups.setdefault(by(row), []).append(row)
    return _longest([_sum(group) for group in groups.values()])


def _sum(rows: Sequence[Row]) -> Row:
    def common(texts: Sequence[str]) -> str:
        return texts[0] if len(set(texts)) == 1 else ""

    return Row(
        common([r.node for r in rows]) or f"{len(rows)} nodes",
        common([r.layer for r in rows]),
        common([r.line for r in rows]),
        all(r.gradient for r in rows),
        sum(r.calls for r in rows),
        sum(r.seconds for r in rows),
        sum(r.bytes for r in rows),
    )


def _longest(rows: Sequence[Row]) -> list[Row]:
    return sorted(rows, key=lambda row: -row.seconds)


def _table(rows: Sequence[Row]) -> str:
    """The first rows as text, cut to the width of a terminal; percentages are of all rows."""
    total = sum(row.seconds for row in rows) or 1.0
    cells = [("ms", "%", "calls", "MB", "GB/s", "node", "layer", "line")]
    cells += [
        (
            f"{1e3 * row.seconds:.3f}",
            f"{100.0 * row.seconds / total:.1f}",
            str(row.calls),
            f"{row.bytes / 1e6:.3f}",
            f"{row.bandwidth / 1e9:.2f}",
            row.node + " (gradient)" * row.gradient,
            row.layer,
            os.path.basename(row.line),
        )
        for row in rows[:_ROWS]
    ]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    columns = shutil.get_terminal_size((1000, 24)).columns
    return "\n".join(_line(row, widths)[:columns].rstrip() for row in cells)


def _line(cells: Sequence[str], widths: Sequence[int]) -> str:
    numbers = [c.rjust(w) for c, w in zip(cells[:5], widths[:5], strict=True)]
    texts = [c.ljust(w) for c, w in zip(cells[5:], widths[5:], strict=True)]
    return "  ".join([*numbers, *texts])


def _event(what: _What, begin: int, end: int, thread: int) -> dict[str, object]:
    """A complete event; times are microseconds."""
    row = _row(what, 1, end - begin, max(what.nbytes, 0))
    return {
        "name": row.node,
        "cat": "gradient" if row.gradient else "forward",
        "ph": "X",
        "ts": begin / 1e3,
        "dur": (end - begin) / 1e3,
        "pid": 0,
        "tid": thread,
        "args": {"layer": row.layer, "line": row.line, "bytes": row.bytes},
    }
