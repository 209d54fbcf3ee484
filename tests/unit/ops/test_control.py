"""Branches and loops: known conditions run as Python, unknown ones become graphs in the graph."""

import numpy as np
import pytest

import miniml as ml
from miniml import ops
from miniml.core.parameter import default_generator
from miniml.errors import (
    BpropNotFoundError,
    DTypeError,
    GraphError,
    KernelNotFoundError,
    ShapeError,
)
from miniml.grad import grad, hvp, value_and_grad
from miniml.ops import Unary

X = ml.Tensor(np.array([0.1, 0.2, 0.3]))
YES, NO = ml.Tensor(True), ml.Tensor(False)


def branchy(pred, x):
    """Both branches use something from outside, and not the same."""
    y, z = x * 2.0, x + 1.0
    return ops.cond(pred, lambda a: ops.sum(a * a * y), lambda a: ops.sum(ops.sin(a) * z * y), x)


def plainly(pred, x):
    y, z = x * 2.0, x + 1.0
    return ops.sum(x * x * y) if pred else ops.sum(ops.sin(x) * z * y)


@pytest.mark.parametrize("pred", [YES, NO], ids=["true", "false"])
def test_values_and_gradients_of_two_orders(pred):
    def curve(function):
        return lambda pred, x: hvp(lambda x: function(pred, x), x, np.ones(3))

    for derive in (lambda f: f, lambda f: grad(f, 1), curve):
        expected = derive(plainly)(pred, X).asnumpy()
        np.testing.assert_allclose(derive(branchy)(pred, X).asnumpy(), expected)
        np.testing.assert_allclose(ml.jit(derive(branchy))(pred, X).asnumpy(), expected)


def test_one_program_serves_both_branches():
    compiled = ml.jit(branchy)
    assert compiled(YES, X).item() != compiled(NO, X).item()
    assert len(compiled.recompilations) == 1


def test_the_graph_shows_its_branches():
    text = str(ml.trace(branchy, YES, X))
    assert "Cond(on_true=<Graph on_true: 3 nodes>" in text
    assert "on_false(" in text


def test_weights_used_in_a_branch_get_gradients():
    weight = ml.Parameter(np.array([1.0, 2.0, 3.0]), name="w")

    def loss(pred, x):
        return ops.cond(pred, lambda: ops.sum(x * weight * weight), lambda: ops.sum(x))

    derived = value_and_grad(loss, argnums=None, weights=[weight])
    for pred, expected in ((YES, 2 * X.asnumpy() * weight.asnumpy()), (NO, np.zeros(3))):
        for function in (derived, ml.jit(derived)):
            np.testing.assert_allclose(function(pred, X)[1][0].asnumpy(), expected)


def test_branches_nest_and_hold_gradients():
    def function(p, q, x):
        inner = lambda x: ops.cond(q, lambda: ops.sum(x * x), lambda: ops.sum(x * x * x))  # noqa: E731
        return ops.cond(p, lambda: grad(inner)(x), lambda: x)

    for p in (YES, NO):
        for q in (YES, NO):
            eager, compiled = function(p, q, X), ml.jit(function)(p, q, X)
            np.testing.assert_allclose(eager.asnumpy(), compiled.asnumpy())
    np.testing.assert_allclose(ml.jit(function)(YES, NO, X).asnumpy(), 3 * X.asnumpy() ** 2)


def test_trees_and_numbers():
    def function(pred, tree):
        return ops.cond(
            pred,
            lambda t: {"a": t["x"] + t["n"], "b": (1.0, None)},
            lambda t: {"a": t["x"], "b": (2.0, None)},
            tree,
        )

    for call in (function, ml.jit(function)):
        found = call(NO, {"x": X, "n": 5})
        assert found["b"][0].item() == 2.0
        assert found["b"][1] is None
        assert found["a"].tolist() == X.tolist()


def test_python_conditions_leave_no_trace():
    graph = ml.trace(lambda x: ops.cond(True, lambda: x + 1.0, lambda: x), X)
    assert [n.primitive.name for n in graph.nodes] == ["Add"]


@pytest.mark.parametrize(
    ("on_true", "on_false", "error", "says"),
    [
        (lambda x: x, lambda x: (x, x), ShapeError, "branches return equal structures"),
        (  # eagerly the result has the order of the branch: it may not be another one compiled
            lambda x: {"b": x, "a": x},
            lambda x: {"a": x, "b": x},
            ShapeError,
            r"on_false, which returns \{'a': '\*', 'b': '\*'\}; .* with dicts in one order",
        ),
        (lambda x: x, ops.sum, ShapeError, r"value 0 is float64\[3\] in on_true and float64\[\]"),
        (lambda x: x, lambda x: ops.cast(x, "float32"), DTypeError, r"float32\[3\] in on_false"),
        (lambda x: "x", lambda x: x, DTypeError, "'x' of type str among its values"),
        (lambda x: x, ops.dropout, GraphError, "draw 0 and 2 blocks of random numbers"),
    ],
)
def test_branches_that_do_not_agree(on_true, on_false, error, says):
    with pytest.raises(error, match=says):
        ml.jit(lambda p, x: ops.cond(p, on_true, on_false, x))(YES, X)


def test_state_stays_outside_of_branches():
    weight = ml.Parameter(np.ones(3))
    with pytest.raises(GraphError, match="assigned inside a branch or loop"):
        ml.jit(lambda p, x: ops.cond(p, lambda: ops.assign(weight, x), lambda: x))(YES, X)


@pytest.mark.parametrize(
    "function",
    [
        lambda p, x: branchy(x, x),
        lambda p, x: ops.while_loop(lambda v: v > 0, lambda v: v, x),
    ],
    ids=["cond", "while_loop"],
)
@pytest.mark.parametrize("wrap", [lambda f: f, ml.jit], ids=["eager", "compiled"])
def test_conditions_have_one_element(function, wrap):
    with pytest.raises(ShapeError, match=r"condition of one element; got shape \(3,\)"):
        wrap(function)(YES, X)


def test_equal_draws_in_both_branches_are_equal_in_both_modes():
    x = ml.Tensor(np.ones(40))

    def function(pred, x):
        first = ops.cond(
            pred, lambda: ops.dropout(x), lambda: ops.uniform((40,), dtype="float64") * x
        )
        return first, ops.uniform((3,))

    for pred in (YES, NO):
        found = []
        for call in (function, ml.jit(function)):
            ml.manual_seed(5)
            found.append([t.asnumpy() for _ in range(2) for t in call(pred, x)])
            found[-1].append(default_generator.state.asnumpy())
        for eager, compiled in zip(*found, strict=True):
            np.testing.assert_array_equal(eager, compiled)


def test_the_gradient_of_a_branch_meets_the_same_draws():
    x = ml.Tensor(np.ones(40))

    def function(pred, x):
        return ops.sum(
            ops.cond(pred, lambda: ops.dropout(x), lambda: x * ops.normal((40,), dtype="float64"))
        )

    for pred in (YES, NO):
        slopes = []
        for call in (grad(function, 1), ml.jit(grad(function, 1))):
            ml.manual_seed(5)
            slopes.append(call(pred, x).asnumpy())
        np.testing.assert_allclose(*slopes)
        assert slopes[0].any()


def power(x, n):
    """x, multiplied by 1.5 and moved by the first x, n times."""
    return ops.while_loop(lambda v: v[0] < n, lambda v: (v[0] + 1, v[1] * 1.5 + x), (0, x))


@pytest.mark.parametrize("n", [0, 1, 5])
def test_loops(n):
    expected = X.asnumpy()
    for _ in range(n):
        expected = expected * 1.5 + X.asnumpy()
    for call in (power, ml.jit(power)):
        count, value = call(X, ml.Tensor(n))
        assert count.item() == n
        assert count.dtype == ml.int64
        np.testing.assert_allclose(value.asnumpy(), expected)


def test_one_program_loops_any_number_of_times():
    compiled = ml.jit(power)
    counts = [compiled(X, ml.Tensor(n))[0].item() for n in (3, 0, 7)]
    assert counts == [3, 0, 7]
    assert len(compiled.recompilations) == 1


def test_an_eager_loop_has_a_gradient_and_a_compiled_one_says_why_not():
    def total(x, n):
        return ops.sum(power(x, n)[1])

    factor = 1.5**2 + 1.5 + 1
    np.testing.assert_allclose(grad(total)(X, ml.Tensor(2)).asnumpy(), factor)
    with pytest.raises(BpropNotFoundError, match="trip count is unknown; give it max_iterations="):
        ml.jit(grad(total))(X, ml.Tensor(2))


def test_a_loop_beside_a_gradient():
    """What the gradient does not pass through may be a loop."""

    def total(x, n):
        return ops.sum(x * ops.cast(power(ml.Tensor(np.ones(3)), n)[0], "float64"))

    assert ml.jit(grad(total))(X, ml.Tensor(4)).tolist() == [4.0, 4.0, 4.0]


@pytest.mark.parametrize("wrap", [lambda f: f, ml.jit], ids=["eager", "compiled"])
@pytest.mark.parametrize(
    ("body", "error", "says"),
    [
        (lambda v: (v, v), ShapeError, "keeps the structure of its value"),
        (ops.sum, ShapeError, r"value is float64\[3\] in the loop and float64\[\] in body"),
        (lambda v: ops.cast(v, "float32"), DTypeError, r"float32\[3\] in body"),
        (lambda v: "v", DTypeError, "'v' of type str among its values"),
    ],
)
def test_bodies_that_change_their_values(wrap, body, error, says):
    with pytest.raises(error, match=says):
        wrap(lambda x: ops.while_loop(lambda v: ops.sum(v) < 9.0, body, x))(X)


def test_loops_of_a_graph_do_not_draw():
    def loop(x):
        return ops.while_loop(lambda v: ops.sum(v) < 9.0, lambda v: v + ops.uniform((3,)), x)

    with pytest.raises(GraphError, match="draw before the loop"):
        ml.jit(loop)(X)


def test_an_error_in_a_branch_points_at_the_users_line():
    with pytest.raises(ShapeError) as caught:
        ml.jit(lambda p, x: ops.cond(p, lambda: x + np.ones(4), lambda: x))(YES, X)
    assert "x + np.ones(4)" in "\n".join(caught.value.__notes__)


def test_a_label_out_of_range_inside_a_branch():
    def function(pred, x, labels):
        return ops.cond(pred, lambda: ops.cross_entropy(x, labels), lambda: ops.sum(x))

    compiled = ml.jit(function)
    x, labels = np.ones((2, 3)), np.array([0, 3])
    assert compiled(NO, x, labels).item() == 6.0
    with pytest.raises(IndexError, match="label 3 for 3 classes"):
        compiled(YES, x, labels)


def test_a_missing_kernel_inside_a_branch_is_found_when_compiling():
    class Nowhere(Unary):
        """Has no kernel."""

    with pytest.raises(KernelNotFoundError, match="Nowhere has no kernel"):
        ml.jit(lambda p, x: ops.cond(p, lambda: Nowhere()(x), lambda: x))(NO, X)


@pytest.mark.parametrize("run", [lambda f: f, ml.jit], ids=["eager", "jit"])
def test_only_parameters_are_assigned_to(run):
    with pytest.raises(ml.errors.ImmutableError, match=r"Assign got \w+ to assign to, which never"):
        run(lambda x: ops.assign(x, x * 2.0))(ml.Tensor([1.0]))


@pytest.mark.parametrize("compiled", [lambda f: f, ml.jit], ids=["eager", "jit"])
@pytest.mark.parametrize(
    ("pred", "got"),
    [
        (np.float32(1.0), r"float32\[\]"),
        (np.array([2]), r"int64\[1\]"),
        (1, "int 1"),
        (0.5, "float 0.5"),
        (None, "NoneType None"),
        ("yes", "str 'yes'"),
    ],
)
def test_a_condition_is_a_bool(compiled, pred, got):
    def branch(p, x):
        return ops.cond(p, lambda a: a, lambda a: -a, x)

    with pytest.raises(DTypeError, match=f"^Cond needs a bool as its condition; got {got}; comp"):
        compiled(branch)(pred, X)

    def loop(p, x):
        return ops.while_loop(lambda a: p, lambda a: a, x)

    with pytest.raises(DTypeError, match=f"^WhileLoop needs a bool as its condition; got {got}"):
        compiled(loop)(pred, X)


@pytest.mark.parametrize("compiled", [lambda f: f, ml.jit], ids=["eager", "jit"])
@pytest.mark.parametrize("pred", [True, np.bool_(True), np.array([[True]]), YES], ids=repr)
def test_bools_of_one_element_are_conditions(compiled, pred):
    assert compiled(lambda p: ops.cond(p, lambda: 1.0, lambda: 2.0))(pred).item() == 1.0


@pytest.mark.parametrize("compiled", [lambda f: f, ml.jit], ids=["eager", "jit"])
def test_a_condition_may_be_a_bool_of_any_rank(compiled):
    def doubled(x):
        return ops.while_loop(lambda a: a[:1] < 100.0, lambda a: a * 2.0, x)

    assert compiled(doubled)(X).tolist() == pytest.approx([102.4, 204.8, 307.2])
