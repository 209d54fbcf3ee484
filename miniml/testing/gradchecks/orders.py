"""One order of derivatives after the other: the comparisons, and the findings from them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ...dtype import float64
from ...errors import DTypeError, KernelNotFoundError
from ..budget import TimeIsUpError, time_is_up
from .diagnosis import diagnosed
from .finite import blind, not_finite, unseen
from .kinks import ties
from .linearity import check_linearity
from .maps import Map, WrongGradientForm
from .narrow import check_narrow
from .report import CORRECT, KINK, UNKNOWN, WRONG, Array, Arrays, GradFinding, GradReport, Verdict
from .search import Search
from .subject import Subject, at_point

JUDGED = CORRECT, KINK, WRONG
NONE = np.zeros(0, np.int64)


def check_orders(
    map_: Map, point: Arrays, highest: int, rng: np.random.Generator, report: GradReport
) -> None:
    """Check the derivatives of each order up to `highest`, or to the first that is wrong."""
    fixed = NONE
    for order in range(1, highest + 1):
        if time_is_up():
            report.findings.append(_late(order, f"the derivative of order {order}"))
            break
        subject = _subject(map_, point, rng, report)
        if fixed.size:
            report.notes.append(
                f"order {order}: {fixed.size} elements without a derivative of order {order - 1} "
                "are held fixed"
            )
        fixed = np.union1d(fixed, _check_order(subject, report, fixed))
        if subject.raised:
            report.notes.append(f"the function raises near the point: {subject.raised}")
        given = tuple(a.dtype for a in point)
        if not report.wrong and subject.dtypes != given:
            if time_is_up():
                report.findings.append(_late(order, "the backward in its own dtypes"))
            else:
                check_narrow(subject, given, report)
        report.forward_calls += subject.forward_calls
        if report.wrong or order == highest or map_.following is None:
            break
        own = subject if subject.dtypes == given else at_point(map_, point, given, rng)
        point = [*point, *(subject.random(shape).astype(dtype) for shape, dtype in own.shapes)]
        map_ = map_.following()


def _subject(map_: Map, point: Arrays, rng: np.random.Generator, report: GradReport) -> Subject:
    """The Subject, in float64 if the function runs there, else in the dtypes it was given."""
    own = tuple(a.dtype for a in point)
    if all(d == float64 for d in own):
        return at_point(map_, point, own, rng)
    try:
        return at_point(map_, point, tuple(float64 for _ in own), rng)
    except (DTypeError, KernelNotFoundError) as error:
        report.notes.append(
            f"the numeric side ran in {', '.join(sorted({d.name for d in own}))}: there is no "
            f"float64 kernel ({str(error).splitlines()[0]})"
        )
        return at_point(map_, point, own, rng)


def _check_order(subject: Subject, report: GradReport, fixed: Array) -> Array:
    """Judge one order; returns the elements for which no derivative exists, or was found."""
    order = subject.map.order
    found, faults, verdicts = not_finite(subject), list[GradFinding](), list[Verdict]()
    if subject.unlike:
        found.append(_unlike(subject))
        report.repeatable &= subject.repeatable
    lost = NONE
    try:
        gradient, faults = check_linearity(subject)
        if order == 1:
            report.gradients = [gradient[f.part].reshape(f.shape).copy() for f in subject.leaves]
        dark, still = blind(subject)
        finite = np.setdiff1d(np.flatnonzero(np.isfinite(subject.x)), fixed)
        members = np.setdiff1d(finite, dark)
        if members.size and np.isfinite(subject.y).any():
            for verdict in Search(subject, report).judge_all(members):
                verdicts.append(verdict)
            verdicts = diagnosed(subject, members, verdicts)
            verdicts += ties(subject, verdicts)
        if np.isfinite(subject.y).any():
            lost = np.union1d(dark, np.intersect1d(_elements(verdicts, CORRECT, KINK), still))
            found += unseen(subject, np.setdiff1d(lost, fixed))
    except WrongGradientForm as error:
        found.append(error.finding(order))
    except TimeIsUpError:
        left = subject.x.size - _elements(verdicts, *JUDGED).size
        found.append(_late(order, f"{left} elements" if left else "ties among kinks"))
    found += [f for v in verdicts for f in v.findings]
    report.findings += _with_faults(found, faults)
    judged = np.setdiff1d(_elements(verdicts, *JUDGED), lost)
    report.judged += judged.size
    unknown = np.setdiff1d(np.arange(subject.x.size), judged)
    return np.union1d(unknown, _elements(verdicts, KINK))


def _elements(verdicts: list[Verdict], *kinds: str) -> Array:
    """The elements with one of these kinds of verdict."""
    return np.unique(np.concatenate([NONE, *(v.members for v in verdicts if v.kind in kinds)]))


def _late(order: int, what: str) -> GradFinding:
    message = "not judged: the budget was used up; give more"
    return GradFinding(UNKNOWN, order, message, what)


def _unlike(subject: Subject) -> GradFinding:
    order = subject.map.order
    what = "function" if order == 1 else f"pull-back of order {order - 1}"
    message = f"the {what} is not repeatable: two equal calls differ by up to {subject.unlike:.2g}"
    return GradFinding(UNKNOWN, order, message, "outputs")


def _with_faults(found: list[GradFinding], faults: list[GradFinding]) -> list[GradFinding]:
    """Findings with the faults known without differences, which name the fault of their
    argument."""
    known = {f.argument: f.diagnosis for f in faults}
    named = {f.argument for f in found if f.verdict == WRONG}
    merged = [
        replace(f, diagnosis=known[f.argument]) if f.verdict == WRONG and f.argument in known else f
        for f in found
    ]
    return merged + [f for f in faults if f.argument not in named]
