"""Elements that tie: any order of them gives a valid gradient, and nothing else does."""

import secrets

import numpy as np
import pytest

from miniml import ops
from miniml.testing import gradcheck, gradcheck_vjp

MIXED = np.random.default_rng(5).normal(size=(7, 7))


def ordered(x, rng=None):
    """The order that sorts x along its last axis; equal elements as they come, or in any order."""
    first = np.broadcast_to(np.arange(x.shape[-1]), x.shape)
    return np.lexsort((rng.permuted(first, axis=-1) if rng else first, x))


def back(order, dout):
    """Cotangents in sorted order, taken back to where the elements were."""
    gradient = np.zeros(order.shape)
    np.put_along_axis(gradient, order, dout, axis=-1)
    return gradient


# Functions of a sorted axis: its elements themselves, some, one, their sums, mixed by a matrix.
OF_SORTED = {
    "sort": (lambda s: s, lambda s, d: d),
    "reversed": (lambda s: s[..., ::-1], lambda s, d: d[..., ::-1]),
    "top 2": (lambda s: s[..., -2:], lambda s, d: np.pad(d, [(0, 0), (s.shape[-1] - 2, 0)])),
    "median": (
        lambda s: s[..., s.shape[-1] // 2],
        lambda s, d: d[..., None] * (np.arange(s.shape[-1]) == s.shape[-1] // 2),
    ),
    "sums": (
        lambda s: np.cumsum(s, -1),
        lambda s, d: np.cumsum(d[..., ::-1], -1)[..., ::-1],
    ),
    "squares": (
        lambda s: s**2 * np.arange(1, s.shape[-1] + 1),
        lambda s, d: 2 * d * s * np.arange(1, s.shape[-1] + 1),
    ),
    "mixed": (
        lambda s: s @ MIXED[: s.shape[-1], : s.shape[-1]],
        lambda s, d: d @ MIXED[: s.shape[-1], : s.shape[-1]].T,
    ),
}

FAULTS = {
    "twice": lambda x, g: 2 * g,
    "a quarter more": lambda x, g: 1.25 * g,
    "the sum for each of a tie": lambda x, g: np.where(
        counts(x) > 2, np.einsum("rij,rj->ri", x[..., None] == x[:, None], g), g
    ),
    "the other sign for ties": lambda x, g: np.where(counts(x) > 2, -g, g),
}


def counts(x):
    """How many of its row each element is equal to, itself included."""
    return (x[..., None] == x[:, None]).sum(-1)


def draw(rng):
    """Rows with ties, of three elements at least."""
    n = int(rng.integers(3, 8))
    x = rng.integers(-1, 3, size=(int(rng.integers(1, 3)), n)) * float(rng.uniform(0.3, 2))
    x[0, :3] = x[0, 0]
    return rng.permuted(x, axis=-1) + 0.1  # not at 0, where squares are flat


def pair(name, x, rng, fault=None):
    """A function of the sorted axis, and a pull-back that takes ties in an order of its own."""
    of, vjp = OF_SORTED[name]
    order = ordered(x, rng)

    def backward(at, dout):
        chosen = order if np.array_equal(at, x) else ordered(at)
        gradient = back(chosen, vjp(np.take_along_axis(at, chosen, -1), dout))
        return (fault(at, gradient) if fault else gradient,)

    return lambda x: of(np.sort(x, -1)), backward


def made(name, seed, fault=None):
    rng = np.random.default_rng(seed)
    x = draw(rng)
    return x, *pair(name, x, rng, fault)


def report_on(name, seed, fault=None):
    """The report on a pair; None for a fault that changes nothing there."""
    x, f, vjp = made(name, seed, fault)
    dout = np.random.default_rng(seed).normal(size=f(x).shape)
    if fault and np.array_equal(vjp(x, dout)[0], made(name, seed)[2](x, dout)[0]):
        return None
    return gradcheck_vjp(f, vjp, x, raise_error=False, seed=seed)


def faults_of(name):
    """Those that are not valid for each element by itself: one output may be the slope of each."""
    return [f for f in FAULTS if name not in {"median", "top 2"} or not f.startswith("the sum")]


@pytest.mark.parametrize("name", OF_SORTED)
def test_any_order_of_a_tie_is_valid(name):
    for seed in range(2):
        report = report_on(name, seed)
        assert report.ok, f"seed {seed}:\n{report}"


@pytest.mark.parametrize(("name", "fault"), [(n, f) for n in OF_SORTED for f in faults_of(n)])
def test_a_wrong_gradient_of_ties_is_wrong(name, fault):
    report = report_on(name, 0, FAULTS[fault])
    assert report is None or report.wrong, str(report)


@pytest.mark.rates
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("name", OF_SORTED)
def test_ties_at_fresh_seeds(name):
    first = secrets.randbits(32)
    for seed in range(first, first + 25):
        report = report_on(name, seed)
        assert report.ok, f"seed {seed}:\n{report}"
        for fault in faults_of(name):
            report = report_on(name, seed, FAULTS[fault])
            assert report is None or report.wrong, f"seed {seed}, {fault}:\n{report}"


@pytest.mark.parametrize(
    "fn",
    [
        lambda x: ops.sort(x, -1),
        lambda x: ops.sort(x, 0),
        lambda x: ops.topk(x, 2)[0],
        lambda x: ops.max(x, -1),
    ],
    ids=["sort", "sort along axis 0", "topk", "max"],
)
@pytest.mark.parametrize("x", [[[1.0, 1.0, 1.0, 2.0]] * 3, np.zeros((3, 3)), np.ones((1, 12))])
def test_ties_in_the_library_are_valid(fn, x):
    report = gradcheck(fn, np.array(x))
    assert report.ok
    assert report.forward_calls < 2500


def tied(factor, seed):
    """The report of a sort of two equal elements among others, whose first output gets a factor."""
    x = np.random.default_rng(seed).permutation([1.0, 1.0, 2.0, 4.5, 7.0])

    def vjp(x, dout):
        return (back(ordered(x), dout * np.array([factor, factor, 1, 1, 1])),)

    return gradcheck_vjp(np.sort, vjp, x, raise_error=False, seed=seed)


@pytest.mark.parametrize("seed", [0, 1, 2, 78, 107])
def test_each_output_of_a_tie_is_judged_by_itself(seed):
    """Both outputs together leave room for a wrong one, by the cotangents of 78 and 107."""
    report = tied(2.0, seed)
    assert report.wrong, str(report)
    assert tied(1.0, seed).ok


@pytest.mark.rates
@pytest.mark.timeout(3600)
def test_each_output_of_a_tie_is_judged_by_itself_at_fresh_seeds():
    first = secrets.randbits(31)
    missed = [seed for seed in range(first, first + 500) if not tied(2.0, seed).wrong]
    assert not missed
