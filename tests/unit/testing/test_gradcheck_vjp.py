"""gradcheck_vjp: detection to the element, kinds of faults by name, and what cannot be judged."""

import numpy as np
import pytest

from miniml.errors import GradientArgumentError
from miniml.testing import gradcheck_vjp

RNG = np.random.default_rng(0)
X = RNG.normal(size=(4, 4))
B = RNG.normal(size=(4, 4))


def check(f, vjp, *args, **options):
    return gradcheck_vjp(f, vjp, *args, raise_error=False, **options)


def one_percent(place):
    def vjp(x, dout):
        dx = dout * np.cos(x)
        dx[place] *= 1.01
        return dx

    return vjp


def find(seed, largest, dtype=np.float64):
    rng = np.random.default_rng(seed)
    size = int(np.exp(rng.uniform(np.log(2), np.log(largest))))
    place = int(rng.integers(size))
    report = check(np.sin, one_percent(place), rng.normal(size=size).astype(dtype), seed=seed)
    assert [f.index for f in report.wrong] == [(place,)], str(report)
    return report


@pytest.mark.parametrize("seed", range(20))
def test_one_element_wrong_by_a_percent_is_named(seed):
    (finding,) = find(seed, 5000).wrong
    assert finding.analytic == pytest.approx(1.01 * finding.numeric)
    assert abs(finding.analytic - finding.numeric) > 100 * finding.error_bar


@pytest.mark.parametrize("size", [10_000, pytest.param(100_000, marks=pytest.mark.deep)])
def test_one_element_of_many(size):
    x = RNG.normal(size=size)
    report = check(np.sin, one_percent(size - 1), x)
    assert [f.index for f in report.wrong] == [(size - 1,)]
    assert check(np.sin, lambda x, d: d * np.cos(x), x).forward_calls <= 60


@pytest.mark.rates
@pytest.mark.timeout(1000)
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_two_hundred_of_two_hundred(dtype):
    for seed in range(200):
        find(1000 + seed, 100_000, dtype)


KINDS = {
    "factor 2": (np.sin, lambda x, d: 2 * d * np.cos(x)),
    "factor -1: the sign": (np.sin, lambda x, d: -d * np.cos(x)),
    "factor 16 = n": (np.mean, np.full_like),
    "= 1/n": (np.sum, lambda x, d: np.full_like(x, d / x.size)),
    "transposed": (lambda x: x @ B, lambda x, d: (d @ B.T).T),
    "shifted by 1 along axis 1": (np.sin, lambda x, d: np.roll(d * np.cos(x), 1, 1)),
    "zero": (np.sin, lambda x, d: 0 * x),
    "factor dout is missing|lacks its factor dout": (np.sin, lambda x, d: np.cos(x)),
    "not linear in dout": (np.sin, lambda x, d: d * d * np.cos(x)),
    "float32": (np.sin, lambda x, d: d * np.cos(x.astype(np.float32))),
    "(a constant rounded to float32?)": (
        lambda x: 0.1 * x,
        lambda x, d: d * float(np.float32(0.1)),
    ),
    "not finite": (np.sin, lambda x, d: d * np.where(x == x[1, 2], np.nan, np.cos(x))),
    "writes into its cotangent": (np.sin, lambda x, d: np.multiply(d, np.cos(x), out=d)),
    "shape": (np.sin, lambda x, d: d.sum() * np.cos(x[0])),
    "not repeatable": (np.sin, lambda x, d: d * np.cos(x) * (1 + 1e-9 * RNG.random(x.shape))),
}


@pytest.mark.parametrize("message", KINDS)
def test_the_kind_of_fault_is_named(message):
    f, vjp = KINDS[message]
    report = check(f, vjp, X)
    assert not report.ok
    assert any(part in str(report) for part in message.split("|")), str(report)


def test_a_wrong_input_and_a_swap_are_named():
    y = RNG.normal(size=(4, 4))
    swapped = check(np.multiply, lambda x, y, d: (d * x, d * y), X, y)
    assert "swapped" in str(swapped)
    same = check(lambda x, y: x * np.sin(y), lambda x, y, d: (d * x * np.cos(y),) * 2, X, y)
    assert "another input" in str(same)
    assert {f.argnum for f in same.wrong} == {0}


def test_a_missing_broadcast_sum_is_named():
    row = RNG.normal(size=4)
    assert "broadcast" in str(check(np.add, lambda x, y, d: (d, d), X, row))
    assert "broadcast" in str(check(np.add, lambda x, y, d: (d, d[0]), X, row))


def test_a_search_that_ends_early_says_so():
    report = check(np.sin, lambda x, dout: 2 * dout * (np.cos(x) - 1), RNG.normal(size=20))
    assert len(report.wrong) == 8
    assert "the search ended with 8 wrong elements; there may be more" in str(report)


def test_a_gradient_that_should_be_zero():
    def softmax(x):
        e = np.exp(x - x.max(axis=-1, keepdims=True))
        return e / e.sum(axis=-1, keepdims=True)

    def vjp(x, dout):
        y = softmax(x)
        return y * (dout - (dout * y).mean(axis=-1, keepdims=True))

    report = check(softmax, vjp, RNG.normal(size=(2, 3)))
    assert {f.diagnosis for f in report.wrong} == {"should be zero"}
    assert not report.notes


def test_a_subgradient_outside_the_slopes_is_wrong():
    relu = lambda x: np.maximum(x, 0)  # noqa: E731
    for at_zero, right in ((0.0, True), (0.5, True), (1.0, True), (2.0, False), (-1e-3, False)):
        vjp = lambda x, d, g=at_zero: d * np.where(x == 0, g, x > 0)  # noqa: E731
        report = check(relu, vjp, np.array([0.0, 1.0, -2.0]))
        assert report.ok is right, str(report)


def test_ties_share_one_subgradient():
    top = lambda x: x.max(-1)  # noqa: E731
    x = np.array([[1.0, 1.0, 0.0]])

    def each(x, d):
        return d[:, None] * (x == x.max(-1, keepdims=True))

    assert check(top, lambda x, d: each(x, d) / 2, x).ok
    assert "ties" in str(check(top, each, x))


def test_too_near_a_kink():
    relu = lambda x: np.maximum(x - 1, 0)  # noqa: E731
    vjp = lambda x, d: d * (x > 1)  # noqa: E731
    assert not check(relu, vjp, np.array([1 + 1e-9, 2.0])).findings
    near = [check(relu, vjp, np.array([1 + 3e-13, 2.0]), seed=s) for s in range(8)]
    assert all(r.ok for r in near)
    unjudged = [r for r in near if r.unjudged]
    assert {f.verdict for r in unjudged for f in r.findings} == {"too near a kink"}
    assert "too near a kink" in str(unjudged[0])


def test_strict_wants_everything_judged():
    root = lambda x, d: d / (2 * np.sqrt(x))  # noqa: E731
    x = np.array([0.0, 1.0])
    assert check(np.sqrt, root, x).ok
    assert not check(np.sqrt, root, x, strict=True).ok


def test_what_cannot_be_judged_is_listed():
    root = lambda x, d: d / (2 * np.sqrt(x))  # noqa: E731
    report = check(np.sqrt, root, np.array([0.0, 1.0]))
    assert report.ok
    assert [f.verdict for f in report.unjudged] == ["cannot judge"]
    alone = check(np.sqrt, root, np.array([0.0]))
    assert not alone.ok
    assert not alone.wrong
    assert check(np.log, lambda x, d: d / x, np.array([-1.0, 1.0])).unjudged


def test_noise_is_no_wrong_gradient():
    hidden = np.random.default_rng(1)
    report = check(lambda x: np.sin(x) + hidden.normal(size=x.shape), lambda x, d: d * np.cos(x), X)
    assert not report.ok
    assert not report.wrong
    assert "not repeatable" in str(report)


def changes(x):
    x *= 2
    return x


def test_bad_input_is_refused_in_a_sentence():
    with pytest.raises(GradientArgumentError, match="changes its argument 0"):
        check(changes, lambda x, d: 2 * d, X)
    with pytest.raises(GradientArgumentError, match="nothing to differentiate"):
        check(np.sin, lambda x, d: d, 3)


def test_a_function_that_raises_nearby_is_said():
    def picky(x):
        if (x > 1.00001).any():
            raise ValueError("too large")
        return x * x

    assert "raises near the point: ValueError: too large" in str(
        check(picky, lambda x, d: 2 * x * d, np.ones(2))
    )


def hilbert(rng):
    n = np.arange(5)
    return 1 / (n[:, None] + n + 1.0), rng.normal(size=5)


def solve_vjp(a, b, d):
    w = np.linalg.solve(a.T, d)
    return -np.outer(w, np.linalg.solve(a, b)), w


@pytest.mark.parametrize("seed", range(5))
def test_hard_but_correct_functions_pass(seed):
    rng = np.random.default_rng(seed)
    assert not check(np.linalg.solve, solve_vjp, *hilbert(rng), seed=seed).findings
    norm = lambda x, d: d * x / np.linalg.norm(x)  # noqa: E731
    for scale in (1e-8, 1.0, 1e8):
        assert not check(np.linalg.norm, norm, scale * rng.normal(size=50), seed=seed).findings
    order = lambda x, d: d[np.argsort(np.argsort(x))]  # noqa: E731
    assert not check(np.sort, order, rng.normal(size=50), seed=seed).findings
    wide = rng.normal(size=40) * 10.0 ** rng.uniform(-8, 2, size=40)
    slope = lambda x, d: 1.5 * np.sign(x) * np.sqrt(np.abs(x)) * d  # noqa: E731
    assert not check(lambda x: np.abs(x) ** 1.5, slope, wide, seed=seed).findings
