"""profile: time, calls, bytes and bandwidth of each node, layer and line."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from operator import itemgetter
from pathlib import Path
from threading import get_ident
from types import CodeType
from typing import Any, NamedTuple

from ..backends.device import Array
from ..files import write_file
from ..graph.ir import Node, Var
from ..location import Location
from ..ops.control import Fused
from ..settings import Watching
from .fusion.describe import name as fused_name
from .players.marks import Marks
from .steps import Copy, KernelLaunch, Publish, Stage, Step
from .watched import TimedCall

_SHOWN = 40
_KEPT = 1 << 20  # times that are kept for a trace: 8 MB of programs, 40 MB of eager calls


@dataclass(frozen=True, slots=True)
class Row:
    """What the runs of one node took together, or of all nodes in a layer or of a line.

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
    """What takes time. key: equal for what is one row."""

    key: object
    node: str
    where: Location | None
    nbytes: int


# Noted of one run of a program: when it began and each of its steps ended, and the thread.
_Run = tuple[Marks, Array, int]
_FIELDS = len(TimedCall._fields)


class Profile:
    """A watcher that notes when kernels begin and end. All rows come with the longest time first.

    rows: one for each node of a compiled program, and for each call of a primitive on a line.
    layers, lines: their sums. Printing it shows the nodes, then the layers.
    """

    sees_values = False

    def __init__(self) -> None:
        self._runs: list[_Run] = []
        self._kept = self.dropped = 0
        self.calls: list[Any] = []  # what each TimedCall has, one after the other
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
        """Keep of all that is noted the sums alone."""
        self._before = self._sums()
        self.dropped += len(self._runs) + len(self.calls) // _FIELDS
        self._runs, self._kept = [], 0
        self.calls.clear()

    def _events(self) -> Iterator[tuple[_What, int, int, int]]:
        """What, when it began and ended, in nanoseconds, and in which thread."""
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
        more = len(rows) - _SHOWN
        rest = f"\n... {more} more in .rows" if more > 0 else ""
        return f"{_table(rows)}{rest}\n\nby layer\n{_table(layers)}"

    __repr__ = __str__

    def save_trace(self, path: str | os.PathLike[str]) -> None:
        """Write what has run as a trace in the format of Chrome, for ui.perfetto.dev or
        chrome://tracing. Of long profiles it has the last million of times."""
        names: dict[int, int] = {}
        events = [
            _event(what, begin, end, names.setdefault(thread, len(names)))
            for what, begin, end, thread in sorted(self._events(), key=itemgetter(1))
        ]
        trace = {"traceEvents": events, "otherData": {"runs left out": self.dropped}}
        write_file(Path(path), [json.dumps(trace).encode()])


def profile() -> Watching[Profile]:
    """Note the time of each kernel that runs in the `with` block, of this thread or task:
    `with ml.profile() as p: ...`.

    print(p) shows a table, `p.rows`, `p.layers` and `p.lines` are its data, and
    `p.save_trace("trace.json")` writes them for a viewer of traces. Eager calls and compiled
    programs are seen, native kernels too; programs are not compiled anew. A loop or branch that is
    a node is one. On a GPU each kernel is waited for, and CUDA graphs are not used.

    >>> from miniml import ops
    >>> with profile() as p:
    ...     _ = ops.exp(ops.exp(0.0))
    >>> [(row.node, row.calls, row.bytes) for row in p.rows]
    [('Exp', 1, 8), ('Exp', 1, 8)]
    """
    return Watching(Profile())


class _Called(dict[Any, _What]):
    """What eager calls are, by what is noted of them but for the times."""

    def __missing__(self, noted: tuple[tuple[str, int], CodeType | None, int, str, bool]) -> _What:
        (name, nbytes), code, lasti, layer, gradient = noted
        where = None if code is None else Location(code, lasti, "", layer, gradient)
        what = self[noted] = _What((name, *noted[1:]), name, where, nbytes)
        return what


def _whats(steps: Sequence[Step | None]) -> Iterator[_What | None]:
    """What each mark of a program stands for. The calls of one step count as one."""
    for step, after in zip(steps, (*steps[1:], None), strict=True):
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
    return fused_name(node) if isinstance(node.primitive, Fused) else node.primitive.name


def _size(*values: Var) -> int:
    return sum(v.abstract.nbytes for v in values)


def _row(what: _What, calls: int, nanoseconds: int, nbytes: int) -> Row:
    at = what.where
    layer, line, gradient = ("", "", False) if at is None else (at.layer, str(at), at.gradient)
    return Row(what.node, layer, line, gradient, calls, nanoseconds / 1e9, nbytes)


def _longest(rows: Sequence[Row]) -> list[Row]:
    return sorted(rows, key=lambda row: -row.seconds)


def _grouped(rows: Sequence[Row], by: Callable[[Row], str]) -> list[Row]:
    """The sums of rows that have the same text; what they do not have in common is left out."""
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


def _table(rows: Sequence[Row]) -> str:
    """The first rows as text, cut to the width of the terminal if there is one; shares are of
    all."""
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
        for row in rows[:_SHOWN]
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
