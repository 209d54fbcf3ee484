"""One order of derivatives after the other: what is compared, and what is made of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from ...dtype import DType, float64
from ...errors import DTypeError, KernelNotFoundError
from ..budget import TimeIsUpError, time_is_up
from .finite import blind, not_finite, unseen
from .isolated import Isolated, isolated
from .linearity import check_linearity
from .maps import Arrays, Map, WrongGradientForm
from .narrow import check_narrow
from .noise import noise_of, note_on
from .probe import Probe, probe
from .problem import Problem
from .report import UNKNOWN, WRONG, Check, Finding, GradReport
from .search import MOST, Search
from .subject import Array, Subject, at_point


def check_orders(
    problem: Problem, highest: int, rng: np.random.Generator, report: GradReport
) -> None:
    """Check the derivatives of each order up to `highest`, or to the first that is wrong."""
    point, fixed = problem.point, set[int]()
    for order in range(1, highest + 1):
        if time_is_up():
            report.findings.append(_late(order, f"the derivative of order {order}"))
            break
        map_ = problem.maps(order, point)
        subject = _subject(map_, point, report)
        if fixed:
            report.notes.append(
                f"order {order}: {len(fixed)} elements without a derivative of order {order - 1} "
                "are held fixed"
            )
        fixed |= _check_order(subject, order, rng, report, fixed)
        if subject.raised:
            report.notes.append(f"the function raises near the point: {subject.raised}")
        given = tuple(a.dtype for a in point)
        if not report.wrong and subject.dtypes != given:
            if time_is_up():
                report.findings.append(_late(order, "the backward in its own dtypes"))
            else:
                check_narrow(map_, subject, given, order, rng, report)
        report.forward_calls += subject.forward_calls
        if report.wrong or order == highest:
            break
        own = subject.shapes if subject.dtypes == given else None
        shapes = own or _own_shapes(map_, point)
        douts = [_cotangent(rng, shape, dtype) for shape, dtype in shapes]
        point = [*point, *douts]


def _own_shapes(map_: Map, point: Arrays) -> Sequence[tuple[tuple[int, ...], DType]]:
    """Shapes and dtypes of the outputs in the dtypes that the function was given."""
    return at_point(map_, point, tuple(a.dtype for a in point)).shapes


def _cotangent(rng: np.random.Generator, shape: tuple[int, ...], dtype: DType) -> Array:
    signs = rng.choice([-1.0, 1.0], size=shape)
    return np.asarray(signs * rng.uniform(0.5, 1.5, size=shape)).astype(dtype)


def _subject(map_: Map, point: Arrays, report: GradReport) -> Subject:
    """In float64 if the function runs there, else in the dtypes it was given."""
    own = tuple(a.dtype for a in point)
    if all(d == float64 for d in own):
        return at_point(map_, point, own)
    try:
        return at_point(map_, point, tuple(float64 for _ in own))
    except (DTypeError, KernelNotFoundError) as error:
        report.notes.append(
            f"the numeric side ran in {', '.join(sorted({d.name for d in own}))}: there is no "
            f"float64 kernel ({str(error).splitlines()[0]})"
        )
        return at_point(map_, point, own)


def _check_order(
    subject: Subject, order: int, rng: np.random.Generator, report: GradReport, fixed: set[int]
) -> set[int]:
    """Judge one order; returns the elements that have no derivative, or none that was found."""
    search = Search(subject, order, rng)
    search.found += not_finite(subject, order)
    if subject.unlike:
        search.found.append(_unlike(subject, order))
        report.repeatable &= subject.repeatable
    faults = list[Finding]()
    try:
        gradient, faults = check_linearity(subject, order, rng)
        if order == 1:
            report.gradients = subject_arrays(subject, gradient)
        members = np.setdiff1d(np.flatnonzero(np.isfinite(subject.x)), sorted(fixed))
        dark, still = blind(subject, rng)
        search.members = members = np.setdiff1d(members, dark)
        if members.size and np.isfinite(subject.y).any():
            _directions(search, members, report)
            search.check_ties()
        search.diagnose()
        search.found += [a.finding(subject, order) for a in search.alone]
        search.judged |= {a.position for a in search.alone}
        if np.isfinite(subject.y).any():
            agreed = search.judged - set(search.suspects) - {a.position for a in search.alone}
            lost = set(dark.tolist()) | (agreed & set(still.tolist()))
            search.judged -= lost
            search.found += unseen(subject, order, lost - fixed)
    except WrongGradientForm as error:
        search.found.append(_misformed(subject, order, error))
    except TimeIsUpError:
        left = subject.x.size - len(search.judged)
        search.found.append(_late(order, f"{left} elements" if left else "ties among kinks"))
    search.found = _with_faults(search.found, faults)
    report.findings += search.found
    report.judged += len(search.judged)
    report.notes += search.notes
    return set(range(subject.x.size)) - search.judged | search.kinks


def _misformed(subject: Subject, order: int, error: WrongGradientForm) -> Finding:
    nan = float("nan")
    if error.leaf < 0:
        return Finding(WRONG, order, None, "", None, nan, nan, nan, str(error), "gradient")
    leaf = subject.leaves[error.leaf]
    return Finding(
        WRONG, order, leaf.argnum, leaf.path, None, nan, nan, nan, str(error), leaf.argument
    )


def _late(order: int, what: str) -> Finding:
    nan, said = float("nan"), "not judged: the budget was used up; give more"
    return Finding(UNKNOWN, order, None, "", None, nan, nan, nan, said, what)


def _unlike(subject: Subject, order: int) -> Finding:
    what = "function" if order == 1 else f"pull-back of order {order - 1}"
    said = f"the {what} is not repeatable: two equal calls differ by up to {subject.unlike:.2g}"
    nan = float("nan")
    return Finding(UNKNOWN, order, None, "", None, nan, nan, nan, said, "outputs")


def _with_faults(found: list[Finding], faults: list[Finding]) -> list[Finding]:
    """Findings with what is known without differences: it names the fault of its argument."""
    said = {f.argument: f.diagnosis for f in faults}
    named = {f.argument for f in found if f.verdict == WRONG}
    merged = [
        replace(f, diagnosis=said[f.argument])
        if f.verdict == WRONG and f.argument in said else f
        for f in found
    ]  # fmt: skip
    return merged + [f for f in faults if f.argument not in named]


def _directions(search: Search, members: Array, report: GradReport) -> None:
    """Two random directions: one with steps like the numbers, one with equal steps in each array.

    If they agree, and each output has a derivative in one of them, all members are judged. An
    element at an isolated value of the function is wrong, and the rest is judged without it.
    """
    both = [_direction(search, members, uniform) for uniform in (False, True)]
    alone = _isolated(search, members, both)
    if alone is not None:
        search.alone.append(alone)
        rest = np.setdiff1d(members, [alone.position])
        if rest.size and len(search.alone) < MOST:
            _directions(search, rest, report)
        return
    _note_noise(search.subject, both, search.rng, report)
    for seen, what in zip(both, ("steps like the numbers", "equal steps"), strict=True):
        if seen.agrees and seen.sharp:
            _file_check(report, search.order, f"a random direction, {what}", seen)
    seen = both[0].joined(both[1])
    if seen.clean:
        search.judged.update(members.tolist())
    else:
        search.examine(seen)


def _isolated(search: Search, members: Array, both: list[Probe]) -> Isolated | None:
    """The isolated value that both directions show, one of them where there are several."""
    which = both[0].lonely & both[1].lonely
    if not which.any() or not search.subject.repeatable:
        return None
    return isolated(search.subject, members, both[1].u, both[1].nearest, which)


def _note_noise(
    subject: Subject, both: list[Probe], rng: np.random.Generator, report: GradReport
) -> None:
    if subject.repeatable and all(d == float64 for d in subject.dtypes):
        noise = noise_of(subject, both, rng)
        if noise > report.noise:
            report.noise = noise
            report.notes.append(note_on(noise))


def _direction(search: Search, members: Array, uniform: bool) -> Probe:
    """A random direction; another one where the first disagrees by no more than chance may."""
    seen = probe(search.subject, members, search.rng, uniform)
    return probe(search.subject, members, search.rng, uniform) if seen.marginal else seen


def _file_check(report: GradReport, order: int, what: str, seen: Probe) -> None:
    report.checks.append(Check(order, what, seen.analytic, seen.numeric, seen.bar, seen.resolution))


def subject_arrays(subject: Subject, x: Array) -> Arrays:
    """A long float64 vector as arrays of the arguments' shapes."""
    return [x[f.part].reshape(f.shape).copy() for f in subject.leaves]
