"""Draws of distributions with tensors for parameters: their laws, gradients, batches, refusals."""

import numpy as np
import pytest
from scipy import special, stats

import miniml as ml
from miniml import ops
from miniml.errors import AttributeRefusedError, DTypeError, ShapeError, ValueRefusedError
from miniml.grad import grad, jacobian, jvp

N = 20_000
LAWS = {
    "exponential": (lambda n, **k: ops.exponential(n, 2.5, **k), stats.expon(scale=2.5)),
    "laplace": (lambda n, **k: ops.laplace(n, -1.0, 0.5, **k), stats.laplace(-1.0, 0.5)),
    "cauchy": (lambda n, **k: ops.cauchy(n, 1.0, 2.0, **k), stats.cauchy(1.0, 2.0)),
    "gamma 0.2": (lambda n, **k: ops.gamma(n, 0.2, 3.0, **k), stats.gamma(0.2, scale=3.0)),
    "gamma 1": (ops.gamma, stats.gamma(1.0)),
    "gamma 30": (lambda n, **k: ops.gamma(n, 30.0, 0.1, **k), stats.gamma(30.0, scale=0.1)),
    "gamma 1e6": (lambda n, **k: ops.gamma(n, 1e6, **k), stats.gamma(1e6)),
    "beta": (lambda n, **k: ops.beta(n, 0.5, 2.0, **k), stats.beta(0.5, 2.0)),
    "beta 1e6": (lambda n, **k: ops.beta(n, 1e6, 3e6, **k), stats.beta(1e6, 3e6)),
    "dirichlet": (
        lambda n, **k: ops.dirichlet([0.5, 1.0, 2.5], n, **k)[:, 1], stats.beta(1.0, 3.0)
    ),
    "student_t": (lambda n, **k: ops.student_t(n, 3.0, 1.0, 0.5, **k), stats.t(3.0, 1.0, 0.5)),
    "student_t 1e6": (lambda n, **k: ops.student_t(n, 1e6, **k), stats.norm),
}  # fmt: skip
CALLS = {
    "exponential": ops.exponential,
    "laplace": lambda s, a, **k: ops.laplace(s, a, a, **k),
    "cauchy": lambda s, a, **k: ops.cauchy(s, a, a, **k),
    "gamma": lambda s, a, **k: ops.gamma(s, a, a, **k),
    "beta": lambda s, a, **k: ops.beta(s, a, a, **k),
    "student_t": lambda s, a, **k: ops.student_t(s, a, a, a, **k),
    "poisson": ops.poisson,
}
EVERY = pytest.mark.parametrize("name", CALLS)
MODES = pytest.mark.parametrize("run", [lambda f: f, ml.jit], ids=["eager", "jit"])


def of(seed=1):
    return ml.Generator(seed)


# --- Laws -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", LAWS)
def test_the_law_is_that_of_scipy(name):
    draw, law = LAWS[name]
    found = draw((N,), dtype="float64", generator=of(5)).asnumpy()
    assert stats.kstest(found, law.cdf).pvalue > 1e-3
    narrow = draw((N,), generator=of(5))
    assert narrow.dtype == ml.float32
    np.testing.assert_allclose(narrow.asnumpy(), found, 3e-6, 1e-6 * (law.support()[0] < 0))


@pytest.mark.parametrize("lam", [0.0, 0.05, 3.0, 9.99, 10.0, 45.0, 1e6])
def test_the_law_of_poisson_draws(lam):
    found = ops.poisson((N,), lam, generator=of(3)).asnumpy()
    law = stats.poisson(lam)
    assert found.dtype == np.int64
    assert found.min() >= 0
    if not lam:
        assert not found.any()
        return
    edges = np.unique(law.ppf(np.linspace(0.02, 0.98, 25)))
    seen = np.diff([0, *((found <= e).sum() for e in edges), N])
    expected = np.diff([0.0, *law.cdf(edges), 1.0]) * N
    kept = expected > 5
    statistic = (((seen - expected) ** 2)[kept] / expected[kept]).sum()
    assert stats.chi2(kept.sum() - 1).sf(statistic) > 1e-3
    assert abs(found.mean() - lam) < 5 * np.sqrt(lam / N)


def test_small_shapes_keep_their_ratios():
    """Of gamma draws of 1e-3 half are below the smallest float; their logarithms are not."""
    logs = ops.random.Gamma((N,), ml.float64, True)(of().state, np.full(N, 1e-3)).asnumpy()
    near = np.exp(1e-3 * logs - special.gammaln(1.001))  # the cdf, to 1e-3 of itself
    assert (
        stats.kstest(near[logs < -10], stats.uniform(0, near[logs < -10].max()).cdf).pvalue > 1e-3
    )
    shares = ops.dirichlet(np.full(4, 1e-3), (500,), generator=of()).asnumpy()
    np.testing.assert_allclose(shares.sum(-1), 1.0, 1e-6)
    assert np.isfinite(shares).all()
    assert (shares.max(-1) > 0.99).mean() > 0.95
    counts = np.bincount(shares.argmax(-1), minlength=4)
    assert stats.chisquare(counts).pvalue > 1e-3
    halves = ops.beta((N,), 1e-3, 3e-3, generator=of()).asnumpy()
    assert abs(halves.mean() - 0.25) < 0.02


# --- Shapes, dtypes, modes ------------------------------------------------------------------------


@EVERY
def test_parameters_broadcast_and_say_the_dtype(name):
    draw, a = CALLS[name], np.array([[0.5], [2.0]])
    assert draw(None, a).shape == (2, 1)
    assert draw((4, 2, 3), a).shape == (4, 2, 3)
    assert draw((0, 2, 3), a).shape == (0, 2, 3)
    assert draw((), 0.5).shape == ()
    assert draw(None, 0.5).shape == ()
    assert draw(5, 1).shape == (5,)
    assert draw(None, ml.Tensor([1, 2])).shape == (2,)
    whole = name == "poisson"
    assert draw(None, a).dtype == (ml.int64 if whole else ml.float64)
    assert draw(3, 0.5).dtype == (ml.int64 if whole else ml.float32)
    for dtype in ("float16", "bfloat16", "float32", "float64"):
        got = draw((50,), 1.5, dtype=dtype, generator=of(2))
        wide = draw((50,), 1.5, dtype="float64", generator=of(2)).asnumpy()
        assert got.dtype.name == dtype
        roundoff = {"float16": 2e-3, "bfloat16": 2e-2}.get(dtype, 1e-5)
        np.testing.assert_allclose(got.asnumpy().astype(float), wide, roundoff, roundoff)


@EVERY
def test_equal_bits_in_both_modes_and_a_stream_for_each_call(name):
    def two(a):
        return CALLS[name]((3, 5), a), CALLS[name]((3, 5), a), ops.uniform((2,))

    a, found = ml.Tensor(np.linspace(0.3, 20.0, 5)), []
    for run in (two, ml.jit(two)):
        ml.manual_seed(4)
        found.append([t.asnumpy() for _ in range(2) for t in run(a)])
    for eager, compiled in zip(*found, strict=True):
        np.testing.assert_array_equal(eager, compiled)
    assert (found[0][0] != found[0][1]).any()


@EVERY
@MODES
def test_each_example_draws_for_itself(name, run):
    a = np.full(3, 4.0)

    def one(a):
        return CALLS[name]((6,), a, generator=g)

    g = of()
    apart = run(ml.vmap(one))(a).asnumpy()
    assert apart.shape == (3, 6)
    assert (apart[0] != apart[1]).any()
    shared = run(ml.vmap(lambda _: one(4.0)))(a).asnumpy()
    assert (shared[0] != shared[1]).any()
    g = of(8)
    same = run(ml.vmap(one, randomness="same"))(a).asnumpy()
    np.testing.assert_array_equal(same[0], same[2])
    g = of(8)
    np.testing.assert_array_equal(one(np.float64(4.0)).asnumpy(), same[1])


@pytest.mark.parametrize("kind", [ops.Gamma, ops.Poisson])
def test_maps_that_share_the_stream_inside_of_maps_that_do_not(kind):
    g, a = of(), np.full((2, 3, 4), 5.0)

    def one(a):
        state, skip = ml.core.trace.current_trace().reserve(4, g)
        return kind((4,), ml.float64, skip=skip)(state, a)

    mixed = ml.vmap(ml.vmap(one, randomness="same"))(a).asnumpy()
    np.testing.assert_array_equal(mixed[:, 0], mixed[:, 2])
    assert (mixed[0] != mixed[1]).any()
    turned = ml.vmap(ml.vmap(one), randomness="same")(a).asnumpy()
    np.testing.assert_array_equal(turned[0], turned[1])
    assert (turned[:, 0] != turned[:, 1]).any()


@EVERY
def test_draws_in_a_scan(name):
    def walk(a):
        return ops.scan(lambda c, _: (c + CALLS[name]((), a, dtype="float64"), c), 0.0 * a,
                        length=4)  # fmt: skip

    found = []
    for run in (walk, ml.jit(walk)):
        ml.manual_seed(2)
        found.append([t.asnumpy() for t in run(ml.Tensor(np.float64(3.0)))])
    for eager, compiled in zip(*found, strict=True):
        np.testing.assert_allclose(eager, compiled, 1e-14)


# --- Gradients ------------------------------------------------------------------------------------


def quantile_slope(alpha, x):
    """d quantile / d alpha at the probability of x, by differences of SciPy's quantiles."""
    below, above = special.gammainc(alpha, x), special.gammaincc(alpha, x)
    h = 1e-3 * alpha

    def moved(k):
        at = alpha + k * h
        inner = special.gammaincinv(at, below), special.gammainccinv(at, above)
        return np.where(below < 0.5, *inner)

    return (moved(-2) - 8 * moved(-1) + 8 * moved(1) - moved(2)) / (12 * h)


@MODES
@pytest.mark.parametrize("alpha", [1e-2, 0.3, 0.999, 1.0, 2.5, 40.0, 1e4, 1e6])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_the_gradient_of_gamma_draws_is_that_of_the_quantile(run, alpha, dtype):
    g, given = of(6), np.full(60, alpha)

    def total(a):
        return ops.sum(ops.cast(ops.gamma(None, a, dtype=dtype, generator=g), "float64"))

    slope = run(grad(total))(given).asnumpy()
    g = of(6)
    x = ops.gamma(None, given, dtype=dtype, generator=g).asnumpy().astype(float)
    seen = x > 1e-12  # where differences of quantiles are good
    expected = quantile_slope(given[seen], x[seen])
    np.testing.assert_allclose(slope[seen], expected, 3e-6 if dtype == "float32" else 1e-7)
    assert np.isfinite(slope).all()
    g = of(6)
    tangent = run(lambda a: jvp(lambda a: ops.gamma(None, a, dtype=dtype, generator=g), (a,),
                                (np.ones(60),))[1])(given)  # fmt: skip
    np.testing.assert_allclose(tangent.asnumpy(), slope, 1e-6, 1e-30)


def test_the_second_derivative_of_gamma_draws():
    """That of the quantile, x + h x' at alpha + h, at the same probability."""
    given = np.array([0.4, 1.7, 12.0])
    state = np.array([5, 0], np.uint64)

    def slope(a):
        return grad(lambda a: ops.sum(ops.Gamma((3,), ml.float64)(state, a)))(a)

    found = np.diag(jacobian(slope)(given).asnumpy())
    x = ops.Gamma((3,), ml.float64)(state, given).asnumpy()
    p, h = special.gammainc(given, x), 1e-3 * given
    curve = special.gammaincinv(given + h, p) - 2 * x + special.gammaincinv(given - h, p)
    np.testing.assert_allclose(found, curve / h**2, 1e-4)


MEANS = {  # of draws of two parameters: a function of draws, its mean, and the slopes of that
    "gamma": (lambda a, b, g: ops.gamma((N,), a, b, generator=g), lambda a, b: (b, a)),
    "beta": (
        lambda a, b, g: ops.beta((N,), a, b, generator=g),
        lambda a, b: (b / (a + b) ** 2, -a / (a + b) ** 2),
    ),
    "dirichlet": (
        lambda a, b, g: ops.dirichlet(ops.stack([a, b]), (N,), generator=g)[:, 0],
        lambda a, b: (b / (a + b) ** 2, -a / (a + b) ** 2),
    ),
    "student_t": (
        lambda a, b, g: ops.square(ops.student_t((N,), a + 8.0, 0.0, b, generator=g)),
        lambda a, b: (-2 * b**2 / (a + 6) ** 2, 2 * b * (a + 8) / (a + 6)),
    ),
    "laplace": (lambda a, b, g: ops.laplace((N,), a, b, generator=g) ** 2.0,
                lambda a, b: (2 * a, 4 * b)),
    "exponential": (lambda a, b, g: ops.exponential((N,), a * b, generator=g),
                    lambda a, b: (b, a)),
}  # fmt: skip


@MODES
@pytest.mark.parametrize("name", MEANS)
def test_the_mean_of_gradients_is_the_gradient_of_the_mean(name, run):
    draw, slopes = MEANS[name]
    a, b = np.float64(1.5), np.float64(0.8)
    g = of(11)
    found = run(grad(lambda a, b: ops.mean(draw(a, b, g)), (0, 1)))(a, b)
    each = 0.1 if name == "student_t" else 0.05
    for got, expected in zip(found, slopes(a, b), strict=True):
        assert abs(got.item() - expected) < each * max(abs(expected), 0.3)


def test_gradients_for_each_example_and_none_of_poisson():
    g = of()
    each = ml.vmap(grad(lambda a: ops.sum(ops.gamma((4,), a, generator=g))))(np.array([0.5, 3.0]))
    assert each.shape == (2,)
    assert (each.asnumpy() > 0).all()
    slope = grad(lambda lam: ops.sum(ops.poisson(None, lam, "float64", g) * lam))(np.full(3, 4.0))
    g = of()
    g.reserve(8)
    np.testing.assert_array_equal(slope.asnumpy(), ops.poisson((3,), 4.0, generator=g).asnumpy())


# --- Choices --------------------------------------------------------------------------------------


@MODES
def test_choices(run):
    x = np.arange(12.0).reshape(3, 4)
    g = of(2)
    rows = run(lambda x: ops.choice(x, (5, 2), generator=g))(x)
    assert rows.shape == (5, 2, 4)
    assert set(rows[..., 0].asnumpy().ravel()) == {0.0, 4.0, 8.0}
    columns = run(lambda x: ops.choice(x, 4, False, axis=1, generator=g))(x).asnumpy()
    np.testing.assert_array_equal(np.sort(columns), x)
    assert run(lambda: ops.choice(7, generator=g))().shape == ()
    assert run(lambda: ops.choice(7, 0, generator=g))().shape == (0,)
    assert run(lambda: ops.choice(0, (0, 2), generator=g))().shape == (0, 2)
    seen = run(lambda: ops.choice(4, (N,), p=[0.1, 0.0, 0.6, 0.3], generator=g))().asnumpy()
    counts = np.bincount(seen, minlength=4)
    assert not counts[1]
    assert stats.chisquare(counts[[0, 2, 3]], N * np.array([0.1, 0.6, 0.3])).pvalue > 1e-3
    once = run(lambda: ops.choice(4, 3, False, [1.0, 0.0, 6.0, 3.0], generator=g))().asnumpy()
    assert set(once) == {0, 2, 3}
    assert run(lambda x: ops.shuffle(x, 1, g))(x).shape == (3, 4)


def test_choices_without_replacement_have_the_probabilities_of_those_left():
    g, p = of(9), np.array([0.5, 0.3, 0.2])
    pairs = ml.vmap(lambda _: ops.choice(3, 2, False, p, generator=g))(np.zeros(N)).asnumpy()
    expected = {(i, j): p[i] * p[j] / (1 - p[i]) for i in range(3) for j in range(3) if i != j}
    seen = [(pairs == pair).all(1).sum() for pair in expected]
    assert stats.chisquare(seen, N * np.array(list(expected.values()))).pvalue > 1e-3


def test_the_gradient_of_a_choice_goes_to_the_slices_drawn():
    slope = grad(lambda x: ops.sum(ops.choice(x, 4, False, generator=of())))(np.ones(6))
    assert sorted(slope.tolist()) == [0.0, 0.0, 1.0, 1.0, 1.0, 1.0]


# --- Refusals -------------------------------------------------------------------------------------

REFUSED = [
    (lambda: ops.exponential(3, -1.0), ValueRefusedError, "exponential got scale=-1.0; expected a"),
    (lambda: ops.gamma(3, 0.0), ValueRefusedError, "gamma got alpha=0.0; expected a"),
    (lambda: ops.laplace(3, np.nan), ValueRefusedError, "laplace got loc=nan; expected a finite"),
    (lambda: ops.gamma(3, True), AttributeRefusedError, "gamma got alpha=True; expected a number"),
    (lambda: ops.gamma(None, np.array([1.0, 0.0])), ValueRefusedError,
     "gamma got alpha with an element that is not a finite number above 0; clip it"),
    (lambda: ops.beta(None, 1.0, np.array([np.inf])), ValueRefusedError, "beta got beta with an"),
    (lambda: ops.dirichlet([1.0, -1.0]), ValueRefusedError, "dirichlet got alpha with an element"),
    (lambda: ops.poisson(None, np.array([np.nan])), ValueRefusedError, "number of at least 0; cl"),
    (lambda: ops.student_t(3, np.array([True] * 3)), DTypeError, "student_t got df of bool"),
    (lambda: ops.exponential(3, dtype="int64"), DTypeError, "exponential draws floats; got dtype"),
    (lambda: ops.poisson(3, dtype="bool"), DTypeError, "poisson draws numbers; got dtype bool"),
    (lambda: ops.gamma((3,), np.ones(4)), ShapeError, r"got shape \(3,\) for parameters of shape"),
    (lambda: ops.gamma(2.0, (3,)), ShapeError, "gamma got shape 2.0; the shape comes first"),
    (lambda: ops.laplace(-1), ShapeError, "an extent is 0 or more"),
    (lambda: ops.dirichlet(2.0), ShapeError, r"alpha of shape \(\); its last axis has one number"),
    (lambda: ops.gamma(3, generator=3), DTypeError, "got generator=3; it takes an ml.Generator"),
    (lambda: ops.choice(3, 4, False), ShapeError, "4 draws without replacement of 3 slices"),
    (lambda: ops.choice(0, 4), ShapeError, "choice got 0 slices to draw 4 from"),
    (lambda: ops.choice(3, p=[1.0]), ShapeError, r"p of shape \(1,\) for 3 slices"),
    (lambda: ops.choice(2, p=[-1.0, 1.0]), ValueRefusedError, "choice got p with a number below 0"),
    (lambda: ops.choice(2, 2, False, [0.0, 1.0]), ValueRefusedError, "fewer than 2 above 0"),
    (lambda: ops.choice(3, replace=1), AttributeRefusedError, "choice got replace=1; exp"),
    (lambda: ops.choice(np.ones(3), axis=1), ShapeError, "choice got axis 1 of a tensor of rank 1"),
    (lambda: ops.shuffle(np.ones(3), 2), ShapeError, "shuffle got axis 2 of a tensor of rank 1"),
]  # fmt: skip


@pytest.mark.parametrize(("call", "error", "says"), REFUSED)
def test_what_is_refused(call, error, says):
    with pytest.raises(error, match=says):
        call()


def test_parameters_that_a_graph_computes():
    """Out of their ranges they give NaN, or what stands for it in integers."""
    bad = ml.Tensor(np.array([-1.0, np.nan, 2.0]))
    for name in ("exponential", "laplace", "gamma", "beta", "student_t"):
        got = ml.jit(lambda a, name=name: CALLS[name]((3,), a))(bad).asnumpy()
        assert np.isnan(got).tolist() == [True, True, False]
    for dtype, wrong in (("float32", [np.nan] * 2), ("int64", [-1] * 2), ("uint8", [0] * 2)):
        got = ml.jit(lambda a, dtype=dtype: ops.poisson(None, a, dtype))(bad).asnumpy()
        np.testing.assert_array_equal(got[:2], wrong)
