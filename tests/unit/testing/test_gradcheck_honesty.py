"""gradcheck says only what is so, of points and functions that are hard to judge."""

import itertools

import numpy as np
import pytest

import miniml as ml
from miniml import ops
from miniml.errors import GradientArgumentError
from miniml.testing import GradReport, gradcheck, gradcheck_vjp
from miniml.testing.report import KINK, NEAR_KINK, UNKNOWN, WRONG, GradFinding
from tests.faults.planted import planted
from tests.faults.rights import RIGHTS

NAN = float("nan")
OUTSIDE = {
    "sqrt": (ops.sqrt, [1.0, -1.0]),
    "rsqrt": (ops.rsqrt, [1.0, -1.0]),
    "asin": (ops.asin, [0.5, 2.0]),
    "acosh": (ops.acosh, [2.0, 0.5]),
    "x log x": (lambda x: x * ops.log(x), [1.5, -1.0]),
    "half a circle": (lambda x: ops.sqrt(1.0 - x * x), [0.5, 2.0]),
    "x^1.7": (lambda x: x**1.7, [1.5, -1.0]),
}


def with_verdict(report, verdict):
    return [f for f in report.findings if f.verdict == verdict]


@pytest.mark.parametrize("name", OUTSIDE)
def test_an_element_that_only_outputs_without_a_number_see_is_not_judged(name):
    fn, x = OUTSIDE[name]
    report = gradcheck(fn, np.array(x), order=2)
    assert any(f.index == (1,) and f.order == 1 for f in with_verdict(report, UNKNOWN)), str(report)
    assert report.judged == 1 + 2  # the other one, and at order 2 its cotangent


def test_a_vjp_outside_its_domain_is_not_judged():
    report = gradcheck_vjp(np.sqrt, lambda x, out, d: d / (2 * out), np.array([1.0, -1.0]))
    assert report.judged == 1
    assert {f.index for f in report.unjudged} == {None, (1,)}


def test_what_a_finite_output_sees_is_judged_beside_one_that_is_not():
    def fn(x):
        return ops.stack((2.0 * x, ops.log(x)))

    def wrong(x, dout):
        return (3.0 * dout[0] + dout[1] / x,)

    x = np.array([2.0, -1.0])
    assert gradcheck(fn, x).judged == 2
    with np.errstate(invalid="ignore"):
        report = gradcheck_vjp(
            lambda x: np.stack((2.0 * x, np.log(x))), wrong, x, raise_error=False
        )
    assert {f.index for f in report.wrong} == {(0,), (1,)}


def test_an_output_that_stays_infinite_has_no_derivative():
    """1 log(1 / 0) + 2 log(2 / 1): whatever the second term is, the sum is infinite."""
    p, q = np.array([[2.0, 1.0], [1.0, 2.0]]), np.array([[1.0, 1.0], [0.0, 1.0]])
    with planted(next(row for row in RIGHTS if row.name == "Divergence")) as (primitive, _):
        report = gradcheck(primitive, p, q, raise_error=False)
    assert not report.wrong, str(report)


def test_where_no_output_is_a_number_nothing_is_judged():
    report = gradcheck(ops.sqrt, np.array([-1.0, -2.0]), raise_error=False)
    assert not report.ok
    assert not report.wrong


@pytest.mark.parametrize("dtype", [ml.float64, ml.float32, ml.float16, ml.bfloat16])
@pytest.mark.parametrize(
    ("fn", "points"),
    [(ops.tanh, (4, 7, 9)), (ops.sigmoid, (8, 12, -20)), (ops.elu, (-8, -12))],
    ids=["tanh", "sigmoid", "elu"],
)
def test_a_saturated_function_is_not_wrong(fn, points, dtype):
    for point in points:
        assert not gradcheck(fn, ml.Tensor([point], dtype=dtype), raise_error=False).wrong


def test_a_saturated_function_of_numpy_is_not_wrong():
    def slope(x, d):
        return (d * (1 - np.tanh(x) ** 2),)

    for point in (4, 7, 9, 12):
        assert gradcheck_vjp(np.tanh, slope, np.array([point], np.float32)).ok


def test_a_difference_of_rounded_numbers_is_not_wrong():
    assert not gradcheck(ops.tanh, np.array([18.0]), order=2, raise_error=False).wrong

    def slope(x, d):
        return (-2 * d * np.tanh(x) * (1 - np.tanh(x) ** 2),)

    x = np.array([18.0])
    report = gradcheck_vjp(lambda x: 1 - np.tanh(x) ** 2, slope, x, raise_error=False)
    assert not report.wrong


def test_a_mistake_of_two_percent_shows_in_a_saturated_function_too():
    def slope(x, d):
        return (1.02 * d * (1 - np.tanh(x) ** 2),)

    assert gradcheck_vjp(np.tanh, slope, np.array([4.0]), raise_error=False).wrong
    off_in_float32 = gradcheck_vjp(
        np.tanh,
        lambda x, d: (d * (1 - np.tanh(x) ** 2) * (1.02 if x.dtype == np.float32 else 1),),
        np.array([4.0], np.float32),
        raise_error=False,
    )
    assert off_in_float32.wrong


def test_terms_that_cancel_are_linear():
    row = next(row for row in RIGHTS if row.name == "LayerNormOfRows")
    rng = np.random.default_rng(0)
    pairs = [np.array([0.7697867137638701, -0.8630383126785457]), *rng.normal(size=(12, 2))]
    with planted(row) as (primitive, _):
        for x in pairs:
            assert gradcheck(primitive, x).ok


def test_terms_that_are_large_and_cancel_are_linear():
    """The cosine of two numbers is 1 or -1: all its derivatives are roundings of 1/x and 1/x^2."""
    row = next(row for row in RIGHTS if row.name == "CosineOfRows")
    rng = np.random.default_rng(0)
    with planted(row) as (primitive, _):
        for x, y in rng.normal(size=(8, 2, 1)) * [[1.0], [0.02]]:
            assert gradcheck(primitive, x, y, order=2).ok


def test_two_roundings_that_cancel_are_not_wrong():
    """Near a zero of cos(3 x) all that is left is the rounding of 3 x, which every fourth float32
    has in common."""
    row = next(row for row in RIGHTS if row.name == "SineOfThree")
    with planted(row) as (primitive, _):
        for seed in (0, 7, 36):
            x = np.random.default_rng(seed).uniform(-40, 40, 200).astype(np.float32)
            assert gradcheck(primitive, x, order=1, seed=seed).ok


@pytest.mark.parametrize("at", [0.0, 1.0, -1.0, 3.0, 1e-3])
def test_an_isolated_value_is_found_where_it_stands(at):
    rng = np.random.default_rng(1)
    for size in (1, 6):
        x = rng.normal(size=size)
        x[size // 2] = at
        report = gradcheck(lambda x: ops.where(x == at, 7.5, x * x), x, raise_error=False)
        assert [f.index for f in report.wrong] == [(size // 2,)], str(report)
        assert "isolated value" in report.wrong[0].diagnosis
        assert report.judged == size


def test_jumps_and_narrow_peaks_are_no_isolated_values():
    functions = (
        ops.sign,
        lambda x: ops.floor(x) * x,
        lambda x: x * x / (x * x + 1e-12),
        lambda x: x * x / (x * x + 1e-30),
        lambda x: ops.sqrt(ops.abs(x)),
        lambda x: ops.abs(x) ** 0.05,
    )
    for fn in functions:
        report = gradcheck(fn, np.array([1.0, 0.0, 2.0]), raise_error=False)
        assert not any("isolated" in f.diagnosis for f in report.findings), str(report)


def test_a_gradient_that_is_wrong_in_one_point_alone_is_wrong():
    def slope(x, d):
        return (np.where(x == 1, 3.0, 2 * x) * d,)

    report = gradcheck_vjp(np.square, slope, np.array([0.5, 1.0, 2.0]), raise_error=False)
    assert [f.index for f in report.wrong] == [(1,)]


def test_a_function_that_computes_in_float32_is_noted_and_passes():
    def sums_in_float32(x):
        return np.add.accumulate(x.astype(np.float32)).astype(np.float64)

    def suffixes(x, d):
        return (np.flip(np.cumsum(np.flip(d))),)

    x = np.random.default_rng(0).normal(size=5)
    report = gradcheck_vjp(sums_in_float32, suffixes, x)
    assert report.ok
    assert 1e-10 < report.noise < 1e-5
    assert any("noisy" in n and "float32" in n for n in report.notes)
    assert not gradcheck_vjp(np.cumsum, suffixes, x).notes
    assert gradcheck(lambda x: ops.sin(2000.0 * x), x).noise == 0


def test_lists_of_numbers_are_arrays_for_a_primitive_and_for_numpy():
    assert gradcheck(ops.sin, [1.0, 2.0]).judged == 2 + 4
    assert gradcheck(ops.Add(), [[1.0, 2.0]], [[3.0], [4.0]]).ok
    assert gradcheck_vjp(np.sin, lambda x, d: (d * np.cos(x),), [1.0, 2.0]).judged == 2
    assert gradcheck(lambda xs: xs[0] * xs[1], [1.0, 2.0]).judged == 2  # a tree of scalars
    with pytest.raises(GradientArgumentError, match=r"argument 0.*pass np\.array"):
        gradcheck(ops.softmax, [1.0, 2.0])


def test_a_function_that_assigns_is_checked_from_the_state_it_found():
    state = ml.Parameter(np.float64(2.0), requires_grad=False)

    def step(w):
        h = ops.tanh(w * state)
        ops.assign(state, h)
        return ops.sum(h)

    report = gradcheck(step, np.float64(0.5))
    assert report.ok
    assert report.repeatable
    assert state.item() == 2.0


def test_what_is_not_repeatable_is_not_called_correct():
    rng = np.random.default_rng(0)
    report = gradcheck_vjp(
        lambda x: np.sin(x) + rng.normal(), lambda x, d: (d * np.cos(x),), np.ones(3),
        raise_error=False,
    )  # fmt: skip
    assert not report.ok
    assert "correct" not in str(report)
    assert "NOT REPEATABLE" in str(report)


def finding(verdict):
    return GradFinding(verdict, 1, "", "argument 0", 0, "", (0,), 1.0, 1.0, 0.1)


def test_the_headline_agrees_with_the_findings_whatever_these_are():
    """ "correct" only beside valid kinks; what fails is in capitals, and only that."""
    verdicts = (WRONG, NEAR_KINK, UNKNOWN, KINK)
    for which in itertools.product((False, True), repeat=len(verdicts)):
        found = [finding(v) for v, there in zip(verdicts, which, strict=True) if there]
        for judged, strict, repeatable in itertools.product((0, 5), (False, True), (False, True)):
            report = GradReport(
                "f", findings=found, judged=judged, strict=strict, repeatable=repeatable
            )
            headline = str(report).splitlines()[0].removeprefix("gradcheck of f: ")
            shouted = headline.split("(")[0].split(",")[0].strip()
            clean = not any(f.verdict != KINK for f in found)
            assert ("correct" in headline) == (clean and bool(judged) and repeatable)
            assert shouted.isupper() == (not report.ok), headline
            assert ("WRONG" in headline) == bool(report.wrong)


def test_a_pull_back_that_writes_to_its_saved_output_is_wrong():
    def slope(x, out, d):
        g = d * out
        out[...] = 0
        return (g,)

    report = gradcheck_vjp(np.exp, slope, np.ones(3), raise_error=False)
    assert "writes into" in report.wrong[0].diagnosis
