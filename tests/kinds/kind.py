"""What a kind is, what one case of it is, and how each of the four checkers is asked about one."""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from miniml.errors import GradientArgumentError, KernelFaultError, KernelWarning
from miniml.testing import gradcheck, gradcheck_vjp, opcheck
from miniml.testing.opchecks import CHECKS

from ..faults.functions import Function
from ..faults.natural import Natural
from ..faults.planted import Planted, planted
from ..faults.rows import Pair
from .launches import Launched


class Judgement(NamedTuple):
    """found: the checker calls something wrong. named: what was to be said is said of it."""

    found: bool
    named: bool
    text: str


@dataclass(frozen=True)
class Kind:
    """A generator of one kind of fault, or of one kind of right ones.

    make(*values) is a subject for `checker`: a Pair, a Function, a Planted or Natural, a Launched.
    says: a regular expression for what a report of the fault says; of opcheck, for the check that
    finds it; of the simulator, for the kind that comes first. level: "warning" where the finding
    is meant to be one.
    """

    name: str
    checker: str
    make: Callable[..., Any]
    rows: tuple[tuple[Any, ...], ...]
    says: str = ""
    level: str = "fault"

    def __str__(self) -> str:
        return f"{self.checker}-{self.name}"

    def subject(self, *values: Any) -> Any:
        made = self.make(*values)
        if isinstance(made, Launched):
            return made
        name = re.sub(r"\W+", "_", "_".join(map(str, (self.name, *values)))).strip("_")
        return replace(made, name="".join(map(str.capitalize, name.split("_"))))

    def judge(self, values: tuple[Any, ...], seed: int, **options: Any) -> Judgement:
        return JUDGES[self.checker](self, self.subject(*values), seed, **options)


def kinds_of(checker: str, into: list[Kind], **more: Any) -> Callable[..., Any]:
    """A decorator of generators: kind(row, row, ...); a row is a value, or a tuple of values."""

    def kind(*rows: Any, **own: Any) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
        def file(make: Callable[..., Any]) -> Callable[..., Any]:
            given = tuple(row if isinstance(row, tuple) else (row,) for row in rows)
            into.append(Kind(make.__name__, checker, make, given, **{**more, **own}))
            return make

        return file

    return kind


def each(*values: Iterable[Any]) -> list[tuple[Any, ...]]:
    """Rows that go through all values together: the shorter lists begin again."""
    lists = [list(v) for v in values]
    return [tuple(v[i % len(v)] for v in lists) for i in range(max(map(len, lists)))]


def _of_gradients(kind: Kind, row: Any, seed: int, **options: Any) -> Judgement:
    rng = np.random.default_rng(seed)
    try:
        if isinstance(row, Pair):
            report = gradcheck_vjp(row.f, row.vjp, *row.draw(rng), raise_error=False, seed=seed)
        elif isinstance(row, Natural):
            xs = [x.astype(row.given) for x in row.draw(rng)]
            with planted(row) as (primitive, _):
                report = gradcheck(primitive, *xs, raise_error=False, seed=seed)
        else:
            report = _of_function(row, row.draw(rng), seed)
    except GradientArgumentError as refusal:
        return Judgement(True, bool(re.search(kind.says, str(refusal))), str(refusal))
    found = bool(report.wrong) or not report.repeatable
    return Judgement(found, bool(re.search(kind.says, str(report), re.DOTALL)), str(report))


def _of_function(row: Function, xs: Any, seed: int) -> Any:
    return gradcheck(row.f, *xs, order=row.order, raise_error=False, seed=seed)


def _of_primitives(
    kind: Kind, row: Planted, seed: int, budget: float | None = None, only: bool = False
) -> Judgement:
    """only: no other checks than those that must find it."""
    checks = [c for c in CHECKS if re.fullmatch(kind.says, c)] if only and kind.says else None
    with planted(row) as (primitive, info):
        report = opcheck(
            primitive, info=info, budget=budget, checks=checks, raise_error=False, seed=seed
        )
    of_level = [f for f in report.findings if kind.level in ("warning", f.severity)]
    return Judgement(
        bool(of_level), any(re.fullmatch(kind.says, f.check) for f in of_level), str(report)
    )


def _of_launches(kind: Kind, row: Launched, seed: int, **options: Any) -> Judgement:
    """A warning that a variable may be unwritten counts, too: right kernels have none."""
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always", KernelWarning)
        try:
            row.launch(seed)
        except KernelFaultError as error:
            return Judgement(
                True, bool(re.fullmatch(row.kind or kind.says, error.faults[0].kind)), str(error)
            )
    said = "\n".join(str(w.message) for w in told)
    return Judgement(bool(said), "before it is written" in said, said)


JUDGES: dict[str, Callable[..., Judgement]] = {
    "gradcheck_vjp": _of_gradients,
    "gradcheck": _of_gradients,
    "opcheck": _of_primitives,
    "simulator": _of_launches,
}
