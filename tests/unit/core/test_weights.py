"""weights=: grad, value_and_grad and vjp alike, in the structure given; None in arguments."""

import numpy as np
import pytest

import miniml as ml
from miniml import nn, ops
from miniml.errors import GradientArgumentError
from miniml.grad import GradOperation, grad, hvp, jacobian, jvp, value_and_grad, vjp

X = np.array([1.0, -2.0, 3.0])
TWICE = ml.Parameter(X, name="w")


class Line(nn.Cell):
    """w x^2 + b, and a parameter that is not trained."""

    def __init__(self):
        self.w = ml.Parameter(np.array([1.0, 2.0, 3.0]))
        self.fixed = ml.Parameter(np.array(1.0), requires_grad=False)
        self.b = ml.Parameter(np.array([0.5, 0.5, 0.5]))

    def construct(self, x):
        return self.w * x * x * self.fixed + self.b


def lists(net):
    """Every way to give both weights, and how both gradients come."""
    return [
        (net, tuple),
        (net.trainable_params(), tuple),
        ((net.w, net.b), tuple),
        (iter([net.w, net.b]), tuple),
        ({"slope": net.w, "shift": net.b}, lambda g: {"slope": g[0], "shift": g[1]}),
    ]


def equal(found, expected):
    assert type(found) is type(expected)
    if isinstance(expected, dict):
        assert list(found) == list(expected)
        found, expected = list(found.values()), list(expected.values())
    for f, e in zip(found, expected, strict=True):
        np.testing.assert_allclose(f.asnumpy(), e)


@pytest.mark.parametrize("which", range(5))
class TestStructures:
    def test_of_grad_and_value_and_grad(self, run, which):
        net = Line()
        weights, structure = lists(net)[which]
        both = run(value_and_grad(lambda x: ops.sum(net(x)), weights=weights))
        value, (dx, by_weight) = both(X)
        assert value.item() == (net.w.asnumpy() * X**2 + 0.5).sum()
        np.testing.assert_allclose(dx.asnumpy(), 2 * net.w.asnumpy() * X)
        equal(by_weight, structure([X**2, np.ones(3)]))
        weights, _ = lists(net)[which]
        alone = run(grad(lambda x: ops.sum(net(x)), argnums=None, weights=weights))(X)
        equal(alone, structure([X**2, np.ones(3)]))

    def test_of_vjp(self, run, which):
        net = Line()
        weights, structure = lists(net)[which]
        chosen = list(weights) if which == 3 else weights
        dout = np.array([1.0, 2.0, 3.0])
        (dx,), by_weight = run(lambda x, d: vjp(net, x, weights=chosen)[1](d))(X, dout)
        np.testing.assert_allclose(dx.asnumpy(), 2 * net.w.asnumpy() * X * dout)
        equal(by_weight, structure([X**2 * dout, dout]))


class TestWeights:
    def test_one_parameter_has_one_gradient(self, run):
        net = Line()

        def loss(x):
            return ops.sum(net(x))

        alone = run(grad(loss, None, weights=net.w))(X)
        np.testing.assert_allclose(alone.asnumpy(), X**2)
        dx, dw = run(grad(loss, weights=net.w))(X)
        np.testing.assert_allclose(dw.asnumpy(), X**2)
        np.testing.assert_allclose(dx.asnumpy(), 2 * net.w.asnumpy() * X)

    def test_with_aux_and_keywords(self, run):
        net = Line()

        def loss(x, *, scale):
            return ops.sum(net(x) * scale), scale + 1.0

        gradients, aux = run(grad(loss, None, has_aux=True, weights=net))(X, scale=2.0 * X)
        np.testing.assert_allclose(gradients[0].asnumpy(), 2 * X**3)
        np.testing.assert_allclose(np.asarray(aux), 2 * X + 1)

    def test_gradients_of_gradients(self, run):
        net = Line()

        def slope(x):
            return ops.sum(grad(lambda x: ops.sum(net(x)), weights=net.w)(x)[0] * x)

        found = run(grad(slope, None, weights=net.w))(X)  # of sum(2 w x^2)
        np.testing.assert_allclose(found.asnumpy(), 2 * X**2)

    def test_lists_and_dicts_of_cells_give_the_gradients_of_each(self, run):
        a, b = Line(), Line()

        def loss(x):
            return ops.sum(a(x) * 2.0 + b(x))

        one, two = (X**2, np.ones(3)), (2 * X**2, 2 * np.ones(3))
        of_a, of_b = run(grad(loss, None, weights=[a, b]))(X)
        equal(of_a, two)
        equal(of_b, one)
        named = run(grad(loss, None, weights={"b": b, "a": [a.w]}))(X)
        assert list(named) == ["b", "a"]
        equal(named["b"], one)
        equal(named["a"], two[:1])

    def test_a_gradient_of_the_weights_of_a_cell_updates_it(self, run):
        net = Line()
        opt = ml.optim.SGD(net.trainable_params(), lr=1.0)
        opt.update(run(grad(lambda x: ops.sum(net(x)), None, weights=net))(X))
        np.testing.assert_allclose(net.b.asnumpy(), -0.5 * np.ones(3))

    def test_grad_operation_takes_a_cell(self, run):
        net = Line()
        found = run(GradOperation(get_by_list=True)(lambda x: ops.sum(net(x)), net))(X)
        equal(found, (X**2, np.ones(3)))

    def test_other_structures_are_other_programs(self):
        net = Line()
        with ml.context(mode=ml.GRAPH_MODE):

            def loss(x):
                return ops.sum(net(x))

            equal(grad(loss, None, weights=[net.w])(X), (X**2,))
            equal(grad(loss, None, weights={"w": net.w})(X), {"w": X**2})
            equal(grad(loss, None, weights={"v": net.w})(X), {"v": X**2})
            assert grad(loss, None, weights=net.w)(X).tolist() == (X**2).tolist()

    @pytest.mark.parametrize(
        ("weights", "text"),
        [
            (Line().trainable_params, "weights is the function trainable_params, which nobody has"),
            (Line, "weights is the function Line, which nobody has called; give a Cell"),
            (X, r"weights is array\(.* of type ndarray; give a Cell, a float Parameter, or a list"),
            ("w", "weights is 'w' of type str; give a Cell"),
            ([X], r"weights holds array\(.*; give a Cell"),
            ({"w": 1.0}, "weights holds 1.0; give a Cell"),
            (ml.Parameter(np.array([1, 2])), "weights holds Parameter"),
            ([Line], "weights holds <class"),
            ([None], "weights holds None; give a Cell"),
            ([TWICE, TWICE], "weights holds parameter 'w' twice; name each once"),
        ],
    )
    def test_anything_else_is_refused(self, weights, text):
        for transform in (grad, value_and_grad):
            with pytest.raises(GradientArgumentError, match=text):
                transform(lambda: 0.0, weights=weights)
        with pytest.raises(GradientArgumentError, match=text):
            vjp(lambda: 0.0, weights=weights)


class TestNone:
    """None is an empty subtree of what is differentiated."""

    def test_has_none_for_its_gradient(self, run):
        def loss(tree):
            assert tree["bias"] is None
            return ops.sum(tree["w"] * tree["w"])

        found = run(grad(loss))({"w": X, "bias": None})
        assert found["bias"] is None
        np.testing.assert_allclose(found["w"].asnumpy(), 2 * X)
        assert run(grad(lambda x, y: ops.sum(x), (0, 1)))(X, None)[1] is None

    def test_in_every_transform(self, run):
        def f(tree):
            return tree[0] * tree[0]

        d = np.ones(3)
        ((dx, none),) = run(lambda x: vjp(f, (x, None))[1](d))(X)
        assert none is None
        np.testing.assert_allclose(dx.asnumpy(), 2 * X)
        _, tangent = run(lambda x: jvp(f, ((x, None),), ((d, None),)))(X)
        np.testing.assert_allclose(tangent.asnumpy(), 2 * X)
        found = run(jacobian(f))((X, None))
        np.testing.assert_allclose(found[0].asnumpy(), np.diag(2 * X))
        assert found[1] is None
        found = run(lambda x: hvp(lambda t: ops.sum(f(t)), ((x, None),), ((d, None),)))(X)
        np.testing.assert_allclose(found[0][0].asnumpy(), 2 * d)
        found = run(GradOperation(get_all=True)(lambda t, n: ops.sum(f(t))))((X, None), None)
        np.testing.assert_allclose(found[0][0].asnumpy(), 2 * X)
        assert found[0][1] is None
        assert len(found) == 1


@pytest.mark.parametrize("transform", [grad, value_and_grad, jacobian, ml.grad.hessian])
def test_what_is_no_function_is_refused_at_once(transform):
    name = transform.__name__
    text = rf"{name} got Tensor.* of type Tensor; give the function that .* as in {name}\(f\)\(x\)"
    with pytest.raises(GradientArgumentError, match=text):
        transform(ml.Tensor(3.0))


def test_what_is_no_function_is_refused_in_all_others():
    for call in (lambda: vjp(3.0, X), lambda: jvp(3.0, (X,), (X,)), lambda: hvp(3.0, X, X)):
        with pytest.raises(GradientArgumentError, match=r"got 3.0 of type float; give the func"):
            call()
    with pytest.raises(GradientArgumentError, match=r"GradOperation got 3\.0 of type float; give"):
        GradOperation()(3.0)
