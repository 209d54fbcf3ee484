"""One run of opcheck: the calls, the clock, the issues found, and programs that reproduce them."""

from __future__ import annotations

import ast
import base64
import inspect
import os
import sys
import traceback
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np

from ...core.primitive import Primitive, show
from ...ops import Custom
from ..calls import (
    CONTIGUOUS,
    Array,
    Call,
    Stopwatch,
    TimeIsUpError,
    as_tuple,
    go_on,
    lasting_until,
    reference,
)
from ..report import Severity
from .values import ladder_text

SHRINKING = 0.8  # seconds at most for the smallest example of one issue
DOMAIN = "domain"  # the kind of an issue with the numbers
ENDS = "out of range"  # the same with numbers at the ends of the range of their dtype
_RAISES = "raises "  # the prefix of the kinds of issues that are exceptions
LIBRARIES = str(Path(__file__).parents[2]) + os.sep, str(Path(np.__file__).parent) + os.sep


class Issue(NamedTuple):
    """An issue that a check finds in a call.

    kind: tells the issues of one check apart; it stays while a call is made smaller.
    call: the call that shows it directly, where that is another one. named: the message names the
    cause, so that no smaller call whose message does not takes its place.
    """

    kind: str
    message: str
    advice: str
    severity: Severity = "fault"
    call: Call | None = None
    named: bool = False


class Difference(NamedTuple):
    """The difference between two right results: not an issue, but worth a line.

    ulp: units in the last place.
    """

    kernel: str
    other: str
    ulp: float
    where: str


Remark = Issue | Difference


@dataclass(frozen=True, slots=True)
class Check:
    """One property.

    run: yields the issues of a call. wants: the calls it applies to. limit: the number of calls it
    sees at most; few: the limit for samples alone, if that differs. It sees every dtype first, then
    every kind of numbers, then every rank. trusted: with an OpInfo it only sees samples, because
    other calls may leave the domain. enough: the number of calls with faults after which it stops.
    share: the part of the budget it may take. after: a check whose faults leave nothing to remark
    here. first: runs on all these calls before the first one is seen.
    """

    name: str
    run: Callable[[Call], Iterator[Remark]]
    limit: int = 80
    wants: Callable[[Call], bool] = lambda call: True
    trusted: bool = False
    enough: int = 1000
    share: float = 1.0
    after: str = ""
    few: int = 0
    first: Callable[[Sequence[Call]], None] = lambda calls: None


@dataclass
class Session:
    """The findings so far: by check and kind, the issue in its smallest call.

    kept: the names of what the code of the primitive has kept from call to call.
    """

    budget: float
    few: bool = False
    watch: Stopwatch = field(default_factory=Stopwatch)
    found: dict[tuple[str, str], tuple[Issue, Call]] = field(default_factory=dict)
    unfinished: list[str] = field(default_factory=list)
    differences: dict[tuple[str, str], Difference] = field(default_factory=dict)
    seen: dict[str, list[Call]] = field(default_factory=dict)
    kept: list[str] = field(default_factory=list)

    def run(self, check: Check, calls: Sequence[Call]) -> None:
        """Let a check see calls until it has seen enough or time is up."""
        end = self.watch.elapsed() + check.share * self.budget
        with lasting_until(lambda: self.watch.elapsed() > end):
            try:
                self._see(check, chosen(check, calls, self.few))
                go_on()  # the last call may have been cut short
            except TimeIsUpError:
                self.unfinished.append(check.name)

    def _see(self, check: Check, calls: Sequence[Call]) -> None:
        go_on()
        check.first(calls)
        failed = 0
        for call in calls:
            if failed == check.enough:
                return
            go_on()
            self.seen.setdefault(check.name, []).append(call)
            failed += self._look(check, call)

    def _look(self, check: Check, call: Call) -> bool:
        """Let a check see one call; True if it has a fault: a warning may stand before one."""
        any_fault = False
        for remark in _remarks(check, call):
            if isinstance(remark, Issue):
                any_fault |= remark.severity == "fault"
                self.note(check.name, remark, call)
            else:
                self.compare(remark)
        return any_fault

    def checked_for_long(self) -> bool:
        """True when the time for checks is up: the rest is for smaller examples."""
        kept = min(len(self.found) * SHRINKING, self.budget / 4) if not self.few else 0.0
        return self.watch.elapsed() > self.budget - kept

    def over(self) -> bool:
        """True when the budget is used up."""
        return self.watch.elapsed() > self.budget

    def compare(self, remark: Difference) -> None:
        """Keep the largest difference between two kernels."""
        key = remark.kernel, remark.other
        if key not in self.differences or remark.ulp > self.differences[key].ulp:
            self.differences[key] = remark

    @property
    def counts(self) -> dict[str, int]:
        """The number of calls that each check saw."""
        return {name: len(calls) for name, calls in self.seen.items()}

    def note(self, name: str, issue: Issue, call: Call) -> None:
        """Keep an issue if it is new, or its call smaller than the one known; a fault before any
        warning.

        Exceptions of one line, and numbers outside the domain, count once, whichever check finds
        them.
        """
        key = name, issue.kind
        once = issue.kind in (DOMAIN, ENDS) or issue.kind.startswith(_RAISES)
        if once and any(kind == issue.kind and check != name for check, kind in self.found):
            return
        known = self.found.get(key)
        if known is None or _rank(issue, call) < _rank(*known):
            self.found[key] = issue, call

    def has(self, name: str, *severities: Severity) -> bool:
        """True when a check has found an issue; with severities, one of these."""
        return any(
            check == name and (not severities or issue.severity in severities)
            for (check, _), (issue, _) in self.found.items()
        )


def _rank(issue: Issue, call: Call) -> tuple[bool, tuple[int, int, int]]:
    return issue.severity != "fault", size(issue.call or call)


def chosen(check: Check, calls: Sequence[Call], few: bool = False) -> list[Call]:
    """The calls that a check sees."""
    limit = check.few or check.limit if few else check.limit
    return _spread([c for c in calls if check.wants(c)])[:limit]


def issues(check: Check, call: Call) -> list[Issue]:
    return [remark for remark in _remarks(check, call) if isinstance(remark, Issue)]


def _remarks(check: Check, call: Call) -> Iterator[Remark]:
    """The remarks of a check on a call; an exception is an issue, too. TimeIsUpError when the time
    of the check is up."""
    try:
        yield from check.run(call)
    except np.linalg.LinAlgError as error:
        advice = "where only some numbers are valid, give these in an OpInfo"
        yield Issue(DOMAIN, f"{call} raises {first_line(error)}", advice, "warning")
    except Exception as error:
        yield Issue(
            f"{_RAISES}{type(error).__name__} {_line(error)}",
            f"{call} raises {first_line(error)}",
            "make the call run, or refuse it in infer_shape or infer_dtype; where only some "
            "numbers are valid, give these in an OpInfo",
        )


def first_line(error: Exception) -> str:
    """The type and the first line of an exception."""
    return f"{type(error).__name__}: {str(error).partition(chr(10))[0]}"


def _line(error: Exception) -> str:
    """The line that raised an exception: the last one outside this package and libraries."""
    frames = traceback.extract_tb(error.__traceback__)
    own = [f for f in frames if not f.filename.startswith(LIBRARIES)] or frames[-1:]
    return f"{own[-1].filename}:{own[-1].lineno}" if own else ""


def size(call: Call) -> tuple[int, int, int]:
    """The size of a call for a reader: axes and elements, axes, inputs."""
    axes = sum(a.ndim for a in call.arrays)
    return sum(a.size for a in call.arrays) + axes, axes, len(call.arrays)


def _spread(calls: Sequence[Call]) -> list[Call]:
    """The calls, reordered: every combination of dtypes comes early, with each every kind of
    numbers, and with each of these every rank."""
    return _interleaved(
        _interleaved(
            _interleaved(_grouped(kind, lambda c: c.form))
            for kind in _grouped(alike, lambda c: c.kind)
        )
        for alike in _grouped(calls, lambda c: c.dtypes)
    )


def _grouped(calls: Sequence[Call], by: Callable[[Call], object]) -> list[list[Call]]:
    """The calls with an equal key, together; groups and calls in the order of the first."""
    groups: dict[object, list[Call]] = {}
    for call in calls:
        groups.setdefault(by(call), []).append(call)
    return list(groups.values())


def _interleaved(rows: Iterable[list[Call]]) -> list[Call]:
    """The first of every row, then the second of every row that has one, and so on."""
    ranked = ((i, call) for row in rows for i, call in enumerate(row))
    return [call for _, call in sorted(ranked, key=lambda pair: pair[0])]


# --- Programs that reproduce a finding: run from a file, they fail as opcheck did -----------------


_LONG = 64  # elements at most that a literal spells out


_REGISTERING = {"elementwise_kernel", "raw_kernel", "infer_rule"}


def program(name: str | None, call: Call | None, primitive: Primitive) -> str:
    """The text of a program that runs one check on one call (or without one)."""
    subject = primitive if call is None else call.primitive
    lines = ["import numpy as np", "from miniml.testing import OpInfo, gradcheck, opcheck", ""]
    lines += _definition(type(subject))
    if call is None:
        return "\n".join([*lines, "", f"opcheck({_made(subject)})"])
    inputs = []
    for i, value in enumerate(call.args()):
        if isinstance(value, np.ndarray):
            lines.append(f"x{i} = {literal(value)}")
            inputs.append(f"x{i}")
        else:
            inputs.append(show(value))
    each = f"({', '.join(inputs)},)" if inputs else "()"
    info = _info(call)
    lines += info
    given = ", info" if info else ""
    only = call.layouts[0] if len(call.layouts) == 1 else ()
    laid = f"layouts={only!r}, " if set(only) - {CONTIGUOUS} else ""
    lines.append(f"opcheck({_made(subject)}{given}, inputs={each}, {laid}checks=({name!r},))")
    return "\n".join(lines)


def gradchecked(call: Call) -> str:
    """The line that runs gradcheck on a call, after the lines of its program."""
    given = (f"x{i}" if isinstance(v, np.ndarray) else show(v) for i, v in enumerate(call.args()))
    return f"gradcheck({', '.join((_made(call.primitive), *given))})"


def _made(primitive: Primitive) -> str:
    if isinstance(primitive, Custom):
        return repr(primitive)
    shown = ", ".join(f"{k}={_value(v)}" for k, v in primitive.attributes.items())
    return f"{type(primitive).__qualname__}({shown})"


def _value(value: Any) -> str:
    return f"np.dtype({value.name!r})" if isinstance(value, np.dtype) else repr(value)


def _info(call: Call) -> list[str]:
    """An OpInfo with the same claims about this call as the given one."""
    if call.info is None:
        return []
    parts = [type(call.primitive).__qualname__, "samples=lambda rng, dtype: ()"]
    if call.info.reference is not None:
        try:
            outs = ", ".join(map(literal, as_tuple(reference(call))))
        except Exception:  # the reference fails here: leave it out
            outs = ""
        single = call.primitive._single
        parts += [f"reference=lambda *xs, **attrs: {outs if single else f'({outs},)'}"] * bool(outs)
    if call.info.nan != "propagates":
        parts.append(f"nan={call.info.nan!r}")
    if call.info.batch_axes is not None:
        parts.append(f"batch_axes={call.info.batch_axes!r}")
    return [f"info = OpInfo({', '.join(parts)})"]


def literal(array: Array) -> str:
    """An expression that gives the array; long ones as a formula or as compressed text."""
    dtype = array.dtype.name
    if array.size > _LONG:
        row = ladder_text(array)
        if row is not None:
            return row
        packed = base64.b85encode(zlib.compress(np.ascontiguousarray(array).tobytes())).decode()
        return (
            "np.frombuffer(__import__('zlib').decompress(__import__('base64').b85decode("
            f"{packed!r})), {dtype!r}).reshape({array.shape})"
        )
    numbers = repr(_exact(array)).replace("nan", "np.nan").replace("inf", "np.inf")
    shaped = "" if array.size else f".reshape({array.shape})"
    return f"np.array({numbers}, {dtype!r}){shaped}"


def _exact(array: Array) -> Any:
    """Nested lists whose numbers, rounded to the dtype, give the array exactly."""
    if array.dtype.kind in "?biu":
        return array.tolist()
    text = np.array([float(str(v)) for v in array.reshape(-1)], np.float64)
    same = text.astype(array.dtype).tobytes() == np.ascontiguousarray(array).tobytes()
    return (text if same else array.astype(np.float64)).reshape(array.shape).tolist()


def _definition(cls: type[Primitive]) -> list[str]:
    """Lines that define the primitive in the program: an import, or its source."""
    module = sys.modules.get(cls.__module__)
    name = cls.__qualname__
    if issubclass(cls, Custom):
        return ["from miniml.ops import Custom", f"# put the kernels and rules of {cls.name} here"]
    if cls.__module__.startswith("miniml."):
        return [f"from {cls.__module__} import {name}"]
    if "." in name or module is None or not hasattr(module, name):
        return [f"# put the definition of {name} here"]
    if cls.__module__ != "__main__" and getattr(module, "__file__", None):
        return [*_path_to(module), f"from {cls.__module__} import {name}"]
    source = _source(module, cls)
    return [source] if source else [f"# put the definition of {name} here"]


def _path_to(module: ModuleType) -> list[str]:
    """The lines that make a module importable if it is in no installed package."""
    root = Path(os.path.abspath(str(module.__file__))).parents[module.__name__.count(".")]
    if root.name in ("site-packages", "dist-packages"):
        return []
    return ["import sys", f"sys.path.insert(0, {str(root)!r})"]


def _source(module: ModuleType, cls: type[Primitive]) -> str:
    """The part of a program that defines a primitive: its class, the registrations for it, and the
    imports, classes, functions and names that these use."""
    try:
        text = inspect.getsource(module)
        body = [_Part(text, node) for node in ast.parse(text).body]
    except (OSError, TypeError, SyntaxError):
        return ""
    used, known = {cls.__qualname__}, {cls.__qualname__, cls.name}
    taken: list[_Part] = []
    while more := [p for p in body if p not in taken and (p.binds & used or p.registers(known))]:
        taken += more
        used |= {name for part in more for name in part.uses}
    return "\n".join(part.text for part in body if part in taken)


class _Part:
    """A statement of a module. binds: names that it assigns; uses: names that it reads."""

    def __init__(self, text: str, node: ast.stmt):
        inner = list(ast.walk(node))
        self.node = node
        self.uses = {n.id for n in inner if isinstance(n, ast.Name)}
        self.binds: set[str] = set()
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            self.binds = {(a.asname or a.name).partition(".")[0] for a in node.names}
        elif isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            self.binds = {node.name}
        elif isinstance(node, ast.Assign) and not any(isinstance(n, ast.Call) for n in inner):
            targets = [n for target in node.targets for n in ast.walk(target)]
            self.binds = {n.id for n in targets if isinstance(n, ast.Name)}
        decorators = getattr(node, "decorator_list", [])
        first = min([node.lineno, *(d.lineno for d in decorators)])
        self.text = "\n".join(text.splitlines()[first - 1 : node.end_lineno])
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            self.text = f"\n{self.text}"

    def registers(self, known: set[str]) -> bool:

        calls = list(getattr(self.node, "decorator_list", []))
        if isinstance(self.node, ast.Expr):
            calls = [self.node.value]
        for call in calls:
            first = next(iter(getattr(call, "args", ())), None)
            if getattr(first, "id", getattr(first, "value", None)) in known:
                return isinstance(self.node, ast.FunctionDef) or _name(call.func) in _REGISTERING
        return False


def _name(function: ast.expr) -> str:
    return str(getattr(function, "id", getattr(function, "attr", "")))


def an_opinfo(primitive: Primitive, calls: Sequence[Call]) -> tuple[str, ...]:
    """Lines that give an OpInfo with a sample like the first of these calls; none without any."""
    if not calls:
        return ()
    name, inputs = type(primitive).__qualname__, ", ".join(map(_sampled, calls[0].args()))
    return (
        "from miniml.testing import OpInfo, Sample, opcheck",
        "def samples(rng, dtype):",
        f"    yield Sample(({inputs}{',' * (len(calls[0].args()) == 1)}))",
        f"opcheck({_made(primitive)}, OpInfo({name}, samples, domain='as drawn in samples'))",
    )


def _sampled(value: Any) -> str:
    """An expression for an input: square matrices get a heavy diagonal, so that they are
    nonsingular (and, if only the lower half is read, positive definite)."""
    if not isinstance(value, np.ndarray):
        return show(value)
    if value.dtype.kind in "?biu":
        return literal(value)
    numbers, n = f"rng.uniform(0.5, 2.0, {value.shape})", value.shape[-1] if value.ndim else 0
    if value.ndim > 1 and value.shape[-2] == n:
        return f"({numbers} + {2 * n} * np.eye({n})).astype(dtype)"
    return f"{numbers}.astype(dtype)"
