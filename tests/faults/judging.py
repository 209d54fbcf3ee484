"""What a checker said of a row of the corpus, against what it had to say."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from miniml.errors import MinimlError
from miniml.testing import OpInfo, gradcheck, gradcheck_vjp, opcheck
from miniml.testing.opchecks import OpFinding, OpReport

from .functions import Function, WrongFunction
from .natural import Natural
from .planted import Planted, planted
from .rows import Pair, WrongPair


class Judgement(NamedTuple):
    """found: the checker says that something is wrong. named: it says what had to be said."""

    found: bool
    named: bool
    text: str


def check_pair(row: Pair, seed: int = 0) -> Any:
    """gradcheck_vjp's report on a pair at the points of a seed."""
    xs = row.draw(np.random.default_rng(seed))
    return gradcheck_vjp(row.f, row.vjp, *xs, raise_error=False, seed=seed)


def check_function(row: Function, seed: int = 0) -> Any:
    """gradcheck's report on a function of tensors at the points of a seed."""
    xs = row.draw(np.random.default_rng(seed))
    return gradcheck(row.f, *xs, order=row.order, raise_error=False, seed=seed)


def judge_gradient(row: WrongPair | WrongFunction, check: Callable[[], Any]) -> Judgement:
    """Whether the report is not ok and names what the row says: words, argument, index."""
    try:
        report = check()
    except MinimlError as refusal:
        text = str(refusal)
        return Judgement(True, bool(re.search(row.diagnosis, text, re.DOTALL)), text)
    text = str(report)
    wrong = [f for f in report.findings if f.verdict == "wrong"]
    named = bool(re.search(row.diagnosis, text, re.DOTALL))
    if row.argnum is not None:
        named &= any(f.argnum == row.argnum for f in wrong)
    if row.index is not None:
        named &= any(f.index == row.index for f in wrong)
    return Judgement(not report.ok, named, text)


def judge_pair(row: WrongPair, seed: int = 0) -> Judgement:
    return judge_gradient(row, lambda: check_pair(row, seed))


def judge_function(row: WrongFunction, seed: int = 0) -> Judgement:
    if row.plant is None:
        return judge_gradient(row, lambda: check_function(row, seed))
    xs = row.draw(np.random.default_rng(seed))
    with planted(row.plant) as (primitive, _):

        def check() -> Any:
            return gradcheck(primitive, *xs, order=row.order, raise_error=False, seed=seed)

        return judge_gradient(row, check)


def check_natural(row: Natural, seed: int = 0, dtype: Any = None) -> Any:
    """gradcheck's report on a natural primitive at the points of a seed."""
    xs = row.draw(np.random.default_rng(seed))
    with planted(row) as (primitive, _):
        given = [x.astype(dtype or row.given) for x in xs]
        return gradcheck(primitive, *given, raise_error=False, seed=seed)


def judge_natural(row: Natural, seed: int = 0) -> Judgement:
    """Whether gradcheck finds the fault of a natural primitive, and says what it has to."""
    report = check_natural(row, seed)
    return Judgement(not report.ok, bool(re.search(row.says, str(report), re.DOTALL)), str(report))


def check_planted(row: Planted, budget: float | None = None, **options: Any) -> OpReport:
    """opcheck's report on a planted primitive."""
    with planted(row) as (primitive, info):
        return opcheck(primitive, info=info, budget=budget, raise_error=False, **options)


def judge_planted(row: Planted, budget: float | None = None, **options: Any) -> Judgement:
    """Whether opcheck finds the fault, and names it with a check and words that the row wants."""
    report = check_planted(row, budget, **options)

    def fits(finding: OpFinding) -> bool:
        if row.severity == "fault" and finding.severity != "fault":
            return False
        text = f"{finding.message}\n{finding.advice}"
        message = finding.advice and re.search(row.says, text, re.DOTALL)
        compile(finding.example, "example", "exec")
        return bool(re.search(row.check, finding.check) and message)

    found = bool(report.findings) if row.severity != "fault" else not report.ok
    return Judgement(found, any(map(fits, report.findings)), str(report))


def check_row(info: OpInfo, budget: float | None = None, **options: Any) -> OpReport:
    """opcheck's report on a primitive of the library, with its row of tests/opinfo."""
    sample = next(iter(info.samples(np.random.default_rng(0), np.dtype(np.float64))))
    primitive = info.primitive(**sample.attrs)
    return opcheck(primitive, info=info, budget=budget, raise_error=False, **options)
