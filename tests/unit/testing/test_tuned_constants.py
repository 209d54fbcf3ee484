"""Constants of gradcheck that no theory gives: each catches a fault, or passes a right gradient,
that it would not without."""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pytest

from miniml.testing import gradcheck, gradcheck_vjp
from miniml.testing.gradchecks.derivative import FIRST, Line, climb, converged
from miniml.testing.tolerance import Tuned
from tests.faults.planted import planted
from tests.faults.rights import RIGHTS

HILBERT = 1 / (np.arange(8)[:, None] + np.arange(8) + 1)


def right(f, slope, x, seed=0):
    """A right gradient is not called wrong."""
    return not gradcheck_vjp(f, vjp_of(slope), x, raise_error=False, seed=seed).wrong


def wrong(f, slope, x):
    """A wrong gradient is."""
    return bool(gradcheck_vjp(f, vjp_of(slope), x, raise_error=False).wrong)


def vjp_of(slope):
    return lambda x, dout: (dout * slope(x),)


def holds(f, slope, points):
    """The true derivative at each of these points lies within the error of the differences."""
    for x in points:
        at = np.array([x])
        line = Line(lambda t, at=at: f(at + t), f(at), np.full(1, 2.0**-53))
        found = climb(line, FIRST, converged(line.origin)).central
        if not abs(found.value[0] - slope(x)) <= found.error[0] < np.inf:
            return False
    return True


def judged(f, slope, x):
    report = gradcheck_vjp(f, vjp_of(slope), x, raise_error=False)
    return report.ok and not report.unjudged


def natural(name, draw, seeds=(0,), **options):
    """A right primitive of the corpus, at numbers of several seeds."""
    row = next(row for row in RIGHTS if row.name == name)
    with planted(row) as (primitive, _):
        for seed in seeds:
            xs = draw(np.random.default_rng(seed))
            if gradcheck(primitive, *xs, raise_error=False, seed=seed, **options).wrong:
                return False
    return True


def eliminated(matrix, b):
    """The solution of matrix @ x = b with one rounding for each operation, in the order written
    here: LAPACK's differs with the processor, which at this condition is 1e-10 to 1e-8 of it."""
    rows = np.column_stack([matrix, b])
    for i in range(len(rows)):
        rows[i + 1 :] -= rows[i + 1 :, i, None] / rows[i, i] * rows[i]
    for i in reversed(range(len(rows))):
        rows[i, -1] /= rows[i, i]
        rows[:i, -1] -= rows[:i, i] * rows[i, -1]
    return rows[:, -1]


def solved():
    """Solutions with a matrix and with its transpose, of condition 1e10."""
    return all(
        not gradcheck_vjp(
            lambda b: eliminated(HILBERT, b),
            lambda b, dout: eliminated(HILBERT.T, dout),
            np.random.default_rng(seed).normal(size=8), raise_error=False, seed=seed,
        ).wrong
        for seed in range(3)
    )  # fmt: skip


def pulled(bend, x, seed=0):
    """A pull-back of sin that bends its cotangent is called wrong."""

    def vjp(x, dout):
        return (bend(dout) * np.cos(x),)

    return bool(gradcheck_vjp(np.sin, vjp, x, raise_error=False, seed=seed).wrong)


def kept_on_the_function():
    """A pull-back of what the last call has left is called wrong."""
    last = {}

    def f(x):
        last["x"] = x
        return np.sin(x)

    def vjp(x, dout):
        return (dout * np.cos(last["x"]),)

    return bool(gradcheck_vjp(f, vjp, np.array([0.3, 2.0]), raise_error=False).wrong)


def peak(width, at=1.0):
    """A function that is 0 in one point and 1 away from it, and its slope."""
    return (
        lambda x: (x - at) ** 2 / ((x - at) ** 2 + width),
        lambda x: 2 * width * (x - at) / ((x - at) ** 2 + width) ** 2,
    )


def noted():
    """A sum in float32 inside of a float64 function."""

    def f(x):
        return np.add.accumulate(x.astype(np.float32)).astype(np.float64)

    def vjp(x, dout):
        return (np.flip(np.cumsum(np.flip(dout))),)

    return gradcheck_vjp(f, vjp, np.random.default_rng(0).normal(size=5)).noise > 0


class Row(NamedTuple):
    """A constant, what stands for its absence, the fault in words, and the check that sees it."""

    name: str
    without: Any
    fault: str
    seen: Callable[[], bool]


POINTS = np.random.default_rng(0).uniform(0.3, 1.2, 12)
WAVE = lambda x: x + 1e-4 * np.sin(1e5 * x), lambda x: 1 + 10 * np.cos(1e5 * x)
BEND = lambda x: np.tanh(1e6 * x), lambda x: 1e6 / np.cosh(1e6 * x) ** 2
STAIRS = lambda x: 1 - np.tanh(x) ** 2, lambda x: -2 * np.tanh(x) / np.cosh(x) ** 2
SUM = lambda x: (1e6 + x * x) - 1e6, lambda x: 2 * x
NORM = "LayerNormOfRows", lambda rng: (rng.normal(size=2),), range(12)
SINE = "SineOfThree", lambda rng: (rng.uniform(-40, 40, 200).astype(np.float32),), (0, 7, 36)
ROWS = [
    Row("SENTINELS", (), "a wave finer than the steps", lambda: holds(*WAVE, POINTS)),
    Row("DEEP", (), "a slope that ends at a millionth", lambda: holds(*BEND, 1e-7 * POINTS)),
    Row("TINY", (1e-6,), "a gradient of 0 at 1e-9 from a kink",
        lambda: wrong(lambda x: np.abs(x - 1.0), lambda x: 0.0 * x, np.array([1 + 1e-9]))),
    Row("STILL", 1000, "stairs", lambda: holds(*STAIRS, [16.7, 17.3])),
    Row("STEP_PARTS", 1, "the least change of several stairs",
        lambda: holds(*STAIRS, [15.7684, 15.71])),
    Row("SMALL", 1.0, "a step function, whose slope is 0",
        lambda: judged(np.round, lambda x: 0.0 * x, np.array([0.3, 1.7, -2.2]))),
    Row("SMALLEST", 0.0, "a solution of condition 1e10", solved),
    Row("NEARER", (), "a peak 1e-11 wide", lambda: right(*peak(1e-22), np.array([2.0, 1.0]))),
    Row("NEAREST", (), "a peak 1e-15 wide, at 0",
        lambda: right(*peak(1e-30, 0.0), np.array([1.0, 0.0, 2.0]))),
    Row("NOISY", 1e-3, "float32 inside", noted),
    Row("NEAR", 0, "numbers that round alike", lambda: natural(*SINE, order=1)),
    Row("FURTHER", (0.0, 0.0), "a saturated tanh", lambda: all(
        right(np.tanh, lambda x: 1 - np.tanh(x) ** 2, np.array([p], np.float32))
        for p in (4, 7, 9, 12))),
    Row("ELSEWHERE", (), "a pull-back of what the last call has left", kept_on_the_function),
    Row("SCALES", (2.0**-10, -1.0), "a clip at 100",
        lambda: pulled(lambda d: np.clip(d, -100, 100), POINTS)),
    Row("SCALES", (2.0**10, -1.0), "a floor at 0.01",
        lambda: pulled(lambda d: np.where(np.abs(d) < 0.01, 0, d), POINTS)),
    Row("SCALES", (2.0**10, 2.0**-10), "the size of one cotangent",
        lambda: all(pulled(np.abs, POINTS[:1], seed) for seed in range(40))),
]  # fmt: skip


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row.name}, {row.fault}")
def test_without_it_a_fault_is_missed(row, monkeypatch):
    assert row.seen()
    monkeypatch.setattr(Tuned, row.name, row.without)
    assert not row.seen()
