"""gradcheck on functions and primitives of miniml: verdicts, orders, modes, arguments, refusals."""

import subprocess
import sys

import numpy as np
import pytest

import miniml as ml
from miniml import ops
from miniml.errors import GradientArgumentError
from miniml.testing import GradientError, gradcheck
from tests.faults.planted import WAVE, Planted, bprop_of, planted

X = np.array([[0.3, -1.2, 0.7], [2.0, -0.4, 1.1]])


@pytest.mark.parametrize("mode", [ml.PYNATIVE_MODE, ml.GRAPH_MODE])
def test_a_correct_function_costs_less_than_sixty_calls_an_order(mode):
    for fn in (ops.sin, ops.softmax, lambda x: ops.sum(x * x), lambda x: ops.logsumexp(x, -1)):
        report = gradcheck(fn, X, order=2, mode=mode)
        assert report.ok
        assert not report.findings
        assert report.forward_calls <= 2 * 60


def test_a_primitive_is_checked_to_order_two():
    report = gradcheck(ops.Sin(), X)
    assert {c.order for c in report.checks} == {1, 2}
    assert {c.order for c in gradcheck(ops.sin, X, order=1).checks} == {1}


@pytest.mark.parametrize(("order", "error"), [("a", TypeError), (1.0, TypeError), (0, ValueError)])
def test_an_order_is_an_int_of_at_least_one(order, error):
    with pytest.raises(error, match=rf"gradcheck got order={order!r}; expected an int >= 1"):
        gradcheck(ops.tanh, np.ones(2), order=order)


def test_order_three():
    assert gradcheck(lambda x: x * x * x * x, X, order=3).ok


def test_trees_integers_and_several_outputs():
    def fn(weights, exponent, parts):
        product = weights["w"] * parts[0]
        return {"out": product**exponent, "at": ops.argmax(parts[0], 0), "sum": ops.sum(parts[1])}

    weights = {"w": X, "n": np.arange(3)}
    report = gradcheck(fn, weights, 2, [X + 3, ml.Tensor([1.0, 2.0])])
    assert report.ok
    assert report.judged == X.size * 2 + 2


def test_random_functions_repeat_their_draws():
    before = ml.core.parameter.default_generator.state.asnumpy()
    assert gradcheck(lambda x: ops.dropout(x, 0.5), X).ok
    assert (ml.core.parameter.default_generator.state.asnumpy() == before).all()


@pytest.mark.parametrize("dtype", [ml.float32, ml.float16, ml.bfloat16])
def test_a_narrow_backward_is_compared_with_float64(dtype):
    report = gradcheck(ops.Tanh(), ml.Tensor(X, dtype=dtype))
    assert report.ok
    assert not report.findings
    assert any(dtype.name in c.what for c in report.checks)


def test_relu_at_zero_is_a_kink_and_accepted():
    report = gradcheck(ops.relu, np.array([0.0, 1.0, -1.0]), order=1)
    (kink,) = report.findings
    assert report.ok
    assert report.judged == 3
    assert (kink.verdict, kink.argnum, kink.index) == ("kink", 0, (0,))
    assert (kink.left, kink.right) == (pytest.approx(0), pytest.approx(1))
    assert not report.unjudged


def test_relu_near_zero_is_judged():
    assert not gradcheck(ops.relu, np.full(3, 1e-7), order=2).findings


def test_one_kink_among_ten_thousand():
    x = np.random.default_rng(0).normal(size=10_000)
    x[77] = 0.0
    report = gradcheck(ops.relu, x, order=1)
    assert [(f.verdict, f.index) for f in report.findings] == [("kink", (77,))]
    assert report.judged == x.size


def test_kinks_everywhere_cost_no_more():
    report = gradcheck(ops.relu, np.zeros(10_000), order=1)
    assert report.ok
    assert report.judged == 10_000
    assert report.forward_calls < 300


def test_a_gradient_stopped_by_mistake_is_wrong():
    report = gradcheck(lambda x: ops.sin(x) * ops.stop_gradient(x), X, raise_error=False)
    assert not report.ok
    assert report.findings[0].verdict == "wrong"


def test_the_error_carries_the_report_and_prints_the_element():
    with pytest.raises(GradientError, match=r"argument 0\[0, 0\]") as caught:
        gradcheck(lambda x: ops.sin(ops.stop_gradient(x)) + x, X)
    assert caught.value.report.wrong


def test_a_cotangent_is_an_argument_after_the_functions_own():
    fault = bprop_of(lambda self, x, out, dout: (ops.stop_gradient(dout) * ops.cos(x),))
    with planted(Planted("StopsItsCotangent", WAVE, "gradient", bprop=fault)) as (sine, _):
        fn = lambda x, y: {"a": x + y, "b": sine(x)}  # noqa: E731
        wrong = gradcheck(fn, X, X, order=2, raise_error=False).wrong[0]
    assert (wrong.order, wrong.argnum, wrong.argument) == (2, 3, "cotangent of output['b']")


@pytest.mark.parametrize("budget", [0.0, 0.02, 0.1])
def test_what_the_budget_leaves_out_is_said(budget):
    """Whatever it cuts, nothing passes in silence."""
    large = np.random.default_rng(0).normal(size=(300, 300)).astype(np.float32)
    report = gradcheck(ops.sin, large, order=3, budget=budget, raise_error=False)
    assert report.judged < 5 * large.size
    assert any("budget" in f.diagnosis for f in report.unjudged)
    assert report.ok == (report.judged > 0)
    with pytest.raises(GradientError, match="budget"):
        gradcheck(ops.sin, large, order=3, budget=budget, strict=True)


def test_argnums_choose_what_is_differentiated():
    fn = lambda x, y: x * ops.stop_gradient(y)  # noqa: E731
    assert gradcheck(fn, X, X, argnums=0).ok
    assert not gradcheck(fn, X, X, raise_error=False).ok
    wrong_is_second = [1, -1, np.int64(1), (0, 1), [-1, -2], (1,)]
    for argnums in (0, -2, (0,), np.int64(0)):
        assert gradcheck(fn, X, X, argnums=argnums).ok
    for argnums in wrong_is_second:
        assert not gradcheck(fn, X, X, argnums=argnums, raise_error=False).ok


@pytest.mark.parametrize("count", [0, 1, 2])
def test_argnums_that_grad_refuses_are_refused(count):
    """No other argument is checked in their place."""
    fn = lambda *xs: sum(ops.sum(x * x) for x in xs)  # noqa: E731
    outside = [count, count + 3, -count - 1, (0, count)]
    for argnums in (*outside, (0, 0), (0, -count), (-1, 0, 1), 1.5, "ab", (0.0,)):
        args = [X] * count
        for derive in (
            lambda n=argnums, args=args: gradcheck(fn, *args, argnums=n),
            lambda n=argnums, args=args: ml.grad.grad(fn, n)(*args),
        ):
            with pytest.raises(GradientArgumentError, match="argnums"):
                derive()


def test_an_argument_of_argnums_has_floats():
    with pytest.raises(GradientArgumentError, match="argument 1 is int 3, which has no gradient"):
        gradcheck(lambda x, n: x * n, X, 3, argnums=(0, 1))


@pytest.mark.parametrize(
    ("fn", "args", "says"),
    [
        (ops.argmax, (X,), "returns int64"),
        (ops.sin, (np.array([1, 2]),), "nothing to differentiate: it got int64"),
        (ops.sin, (np.zeros((0, 3)),), "non-empty"),
        (lambda x: 1 / 0, (X,), "raises ZeroDivisionError at the point"),
    ],
)
def test_bad_input_is_refused_in_a_sentence(fn, args, says):
    with pytest.raises(GradientArgumentError, match=says):
        gradcheck(fn, *args)


def test_importing_miniml_leaves_the_checkers_alone():
    code = "import miniml, sys; sys.exit('miniml.testing' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
