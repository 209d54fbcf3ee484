"""A parameter inside a trace is state: its value is neither taken out nor baked in."""

import numpy as np
import pytest

import miniml as ml
from miniml import Primitive, ops
from miniml.errors import ConstInputError, GraphError, TracedValueError
from miniml.grad import stop_gradient, value_and_grad


class ParRoll(Primitive):
    """x moved along by `by`, a const input."""

    const_inputs = ("by",)

    def infer_shape(self, x, by):
        return x

    def infer_dtype(self, x, by):
        return x


@ml.kernel("ParRoll", "cpu", "f->f")
def roll(x, *, by, out):
    out[...] = np.roll(x, by)


@pytest.fixture
def w():
    return ml.Parameter([1.0, 2.0], name="w")


LEAVE = {
    "asnumpy": lambda p: p.asnumpy(),
    "np.asarray": np.asarray,
    "np.sum": np.sum,
    "Tensor": ml.Tensor,
}


@pytest.mark.parametrize("leave", LEAVE.values(), ids=LEAVE)
def test_its_value_is_not_known_while_a_graph_is_traced(w, leave):
    with pytest.raises(TracedValueError, match="is not known while the graph is traced"):
        ml.jit(lambda x: (leave(w), x))(1.0)
    assert np.asarray(leave(w)).sum() == 3.0


def test_python_control_flow_on_it_is_refused_in_a_graph_and_cond_sees_it_change():
    flag = ml.Parameter(np.array(True), name="flag")
    with pytest.raises(TracedValueError, match=r"bool on a traced tensor .* ops.cond"):
        ml.jit(lambda x: x if flag else -x)(ml.Tensor(1.0))
    branch = ml.jit(lambda x: ops.cond(flag, lambda: x, lambda: -x))
    assert branch(ml.Tensor(1.0)).item() == 1.0
    flag.set_data(False)
    assert branch(ml.Tensor(1.0)).item() == -1.0


@pytest.mark.parametrize("leave", LEAVE.values(), ids=LEAVE)
def test_leaving_with_a_weight_would_lose_its_gradient(w, leave):
    with pytest.raises(TracedValueError, match="would lose the gradient"):
        value_and_grad(lambda: ops.sum(w * leave(w)), argnums=None, weights=[w])()
    other = ml.Parameter([3.0, 4.0])
    taken = value_and_grad(lambda: ops.sum(w * leave(other)), argnums=None, weights=[w])
    assert taken()[0].size == 1


def test_a_weight_has_its_real_value_under_an_eager_gradient(w):
    def f():
        ops.assign(w, w * 2.0)
        assert float(w[0]) == 2.0
        assert "Parameter([2., 4.]" in repr(w)
        return ops.sum(w * stop_gradient(w).asnumpy())

    value, (dw,) = value_and_grad(f, argnums=None, weights=[w])()
    assert (value.item(), dw.tolist()) == (20.0, [4.0, 8.0])


def test_set_data_and_seeds_are_refused_while_a_graph_is_traced(w):
    def change(x):
        w.set_data([5.0, 5.0])
        return x

    def seed(x):
        ml.manual_seed(1)
        return x

    for fn in (change, seed):
        with pytest.raises(GraphError, match="refuses set_data while a graph is traced"):
            ml.jit(fn)(1.0)
    assert w.tolist() == [1.0, 2.0]
    ml.grad.grad(change)(1.0)
    assert w.tolist() == [5.0, 5.0]


def test_as_a_const_input_it_is_a_constant_only_where_calls_run_at_once():
    by = ml.Parameter(np.array(1), name="by")
    x = ml.Tensor([1.0, 2.0, 3.0])
    assert ParRoll()(x, by).tolist() == [3.0, 1.0, 2.0]
    with pytest.raises(ConstInputError, match="ParRoll needs 'by' to be a constant; got a traced"):
        ml.jit(lambda x: ParRoll()(x, by))(x)
