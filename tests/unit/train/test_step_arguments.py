"""train_step: several inputs, keywords, clipping, auxiliary outputs, and what it refuses."""

import copy

import numpy as np
import pytest

import miniml as ml
from miniml import nn, ops, optim
from miniml.errors import (
    ArityError,
    AttributeRefusedError,
    GradientArgumentError,
    ImmutableError,
    ValueRefusedError,
)

rng = np.random.default_rng(3)
A = rng.normal(size=(6, 3))
B = rng.normal(size=(6, 3))
Y = rng.normal(size=(6, 2)) * 10.0


@pytest.fixture(params=["compiled", "op by op", "graph mode"])
def mode(request):
    graph = ml.GRAPH_MODE if request.param == "graph mode" else ml.PYNATIVE_MODE
    with ml.context(jit=request.param != "op by op", mode=graph):
        yield request.param


class Two(nn.Cell):
    """a v + b w."""

    def __init__(self, dtype=ml.float64):
        draws = np.random.default_rng(5)
        self.v = ml.Parameter(ml.Tensor(draws.normal(size=(3, 2)), dtype=dtype))
        self.w = ml.Parameter(ml.Tensor(draws.normal(size=(3, 2)), dtype=dtype))

    def construct(self, a, b):
        return a @ self.v + b @ self.w


class Pair(nn.Cell):
    """The same of one input, which is a tuple."""

    def __init__(self):
        self.inner = Two()

    def construct(self, pair):
        return self.inner(*pair)


def squares(p, y, scale=1.0):
    return ops.mean((p - y) * (p - y)) * scale


def gradients(v, w, a=A, b=B, y=Y):
    """Of the mean of squares, by hand."""
    dp = 2.0 * (a @ v + b @ w - y) / y.size
    return a.T @ dp, b.T @ dp


def sgd(net, lr=0.1):
    return optim.SGD(net.trainable_params(), lr=lr)


class TestInputs:
    def test_a_tuple_is_several_inputs(self, mode):
        net = Two()
        v, w = net.v.asnumpy(), net.w.asnumpy()
        dv, dw = gradients(v, w)
        loss = ml.train_step(net, squares, sgd(net))((A, B), Y)
        assert loss.item() == pytest.approx(np.mean((A @ v + B @ w - Y) ** 2))
        np.testing.assert_allclose(net.v.asnumpy(), v - 0.1 * dv, rtol=1e-6)
        np.testing.assert_allclose(net.w.asnumpy(), w - 0.1 * dw, rtol=1e-6)

    def test_one_input_that_is_a_tuple(self, mode):
        net = Pair()
        v, w = net.inner.v.asnumpy(), net.inner.w.asnumpy()
        ml.train_step(net, squares, sgd(net))(((A, B),), Y)
        expected = v - 0.1 * gradients(v, w)[0]
        np.testing.assert_allclose(net.inner.v.asnumpy(), expected, rtol=1e-6)

    def test_keywords_go_to_the_loss(self, mode):
        nets = Two(), Two()
        ml.train_step(nets[0], squares, sgd(nets[0]))((A, B), y=Y, scale=ml.Tensor(np.float64(3)))
        ml.train_step(nets[1], squares, sgd(nets[1], 0.3))((A, B), Y)
        np.testing.assert_allclose(nets[0].v.asnumpy(), nets[1].v.asnumpy(), rtol=1e-6)

    def test_another_number_of_inputs_is_refused(self, mode):
        net = Two()
        step = ml.train_step(net, squares, sgd(net))
        text = r"a tuple of 3 for the inputs of Two: too many positional arguments; labels come"
        with pytest.raises(ArityError, match=text):
            step((A, B, Y), Y)
        with pytest.raises(ArityError, match=r"a tuple of 1 .* missing a required argument: 'b'"):
            step((A,), Y)


class TestClipping:
    def test_gradients_have_at_most_this_norm_together(self, mode):
        net = Two()
        v, w = net.v.asnumpy(), net.w.asnumpy()
        step = ml.train_step(net, squares, sgd(net), clip=0.5)
        for _ in range(3):
            dv, dw = gradients(v, w)
            norm = np.sqrt((dv**2).sum() + (dw**2).sum())
            assert norm > 0.5
            v, w = v - 0.1 * dv * 0.5 / norm, w - 0.1 * dw * 0.5 / norm
            step((A, B), Y)
        np.testing.assert_allclose(net.v.asnumpy(), v, rtol=1e-6)
        np.testing.assert_allclose(net.w.asnumpy(), w, rtol=1e-6)

    def test_those_below_it_keep_their_bits(self, mode):
        nets = Two(), Two()
        ml.train_step(nets[0], squares, sgd(nets[0]), clip=1e3)((A, B), Y)
        ml.train_step(nets[1], squares, sgd(nets[1]))((A, B), Y)
        assert nets[0].v.tolist() == nets[1].v.tolist()

    def test_it_is_in_the_one_program(self):
        net = Two()
        step = ml.train_step(net, squares, sgd(net), clip=0.5)
        for _ in range(3):
            step((A, B), Y)
            step.optimizer.lr = float(step.optimizer.lr) / 2
        assert step._program.recompilations == ["first call"]
        with pytest.raises(ImmutableError, match="TrainStep refuses another clip"):
            step.clip = 1.0

    @pytest.mark.parametrize("dtype", [ml.float16, ml.bfloat16])
    def test_squares_of_two_byte_floats_are_summed_in_float32(self, mode, dtype):
        """300^2 is beyond float16, and 4096 ones do not add up in bfloat16."""
        grads = [ml.Tensor(np.full((4096,), 300.0), dtype=dtype), ml.Tensor([0.0], dtype=dtype)]
        found = optim.clip_by_global_norm(grads, 64.0)
        assert [g.dtype for g in found] == [dtype, dtype]
        np.testing.assert_allclose(np.asarray(found[0].tolist()), np.ones(4096))

    def test_on_the_simulated_device(self):
        net = Two(ml.float32).to("cuda-sim")
        v, w = net.v.asnumpy(), net.w.asnumpy()
        a, b, y = (ml.Tensor(t, dtype=ml.float32, device="cuda-sim") for t in (A, B, Y))
        ml.train_step(net, squares, sgd(net), clip=0.5)((a, b), y)
        dv, dw = gradients(v, w)
        norm = np.sqrt((dv**2).sum() + (dw**2).sum())
        np.testing.assert_allclose(net.v.asnumpy(), v - 0.1 * dv * 0.5 / norm, rtol=1e-5)

    def test_dtypes_may_differ(self):
        grads = [ml.Tensor(np.array([3.0], t)) for t in (np.float32, np.float64)]
        found = optim.clip_by_global_norm([*grads, ml.Tensor([0.0], dtype=ml.bfloat16)], 1.0)
        assert [g.dtype for g in found] == [ml.float32, ml.float64, ml.bfloat16]
        np.testing.assert_allclose(found[1].item(), np.sqrt(0.5))
        assert optim.clip_by_global_norm([], 1.0) == ()

    def test_all_zeros_stay_zeros(self):
        assert optim.clip_by_global_norm([ml.Tensor([0.0, 0.0])], 1e-3)[0].tolist() == [0.0, 0.0]

    @pytest.mark.parametrize("clip", [0, 0.0, -1.0, np.nan, np.inf, "1", True, ml.Tensor(1.0)])
    def test_what_is_no_number_above_zero_is_refused(self, clip):
        net = Two()
        refused = AttributeRefusedError, ValueRefusedError
        with pytest.raises(refused, match=r"train_step got clip=.*; expected a .*number > 0"):
            ml.train_step(net, squares, sgd(net), clip=clip)


class TestAux:
    def test_a_tree_comes_beside_the_loss(self, mode):
        def loss_fn(p, y):
            loss = squares(p, y)
            return loss, {"p": p, "worst": (ops.max(ops.abs(p - y)), net.v), "n": 3}

        net = Two()
        step = ml.train_step(net, loss_fn, sgd(net), clip=1.0)
        for _ in range(2):
            v, w = net.v.asnumpy(), net.w.asnumpy()
            p = A @ v + B @ w
            loss, aux = step((A, B), Y)
            assert loss.item() == pytest.approx(np.mean((p - Y) ** 2))
            np.testing.assert_allclose(aux["p"].asnumpy(), p)
            np.testing.assert_allclose(aux["worst"][0].item(), abs(p - Y).max())
            np.testing.assert_array_equal(aux["worst"][1].asnumpy(), v)
            assert aux["n"] == 3
            assert not np.array_equal(net.v.asnumpy(), v)

    def test_none_is_an_auxiliary_output_too(self, mode):
        net = Two()
        loss, aux = ml.train_step(net, lambda p, y: (squares(p, y), None), sgd(net))((A, B), Y)
        assert loss.shape == ()
        assert aux is None


def counts(p, y):
    return ops.sum(ops.cast(p > y, ml.int32))


class TestLosses:
    @pytest.mark.parametrize(
        ("loss_fn", "text"),
        [
            (lambda p, y: p - y, r"<lambda> returned float64\[6, 2\]; return one float Tensor"),
            (counts, r"counts returned int64\[\]; return"),
            (lambda p, y: (p, squares(p, y)), r"<lambda> returned float64\[6, 2\]"),
            (lambda p, y: None, "<lambda> returned None"),
            (lambda p, y: 3.0, "<lambda> returned 3.0"),
            (lambda p, y: (squares(p, y), 1, 2), "<lambda> returned a tuple of 3; return"),
        ],
    )
    def test_what_is_no_float_is_refused_and_changes_nothing(self, mode, loss_fn, text):
        net = Two()
        before = net.v.tolist()
        step = ml.train_step(net, loss_fn, sgd(net))
        with pytest.raises(GradientArgumentError, match=f"train_step's loss function {text}"):
            step((A, B), Y)
        assert net.v.tolist() == before

    def test_a_cell_is_named_by_its_class(self):
        class Bad(nn.Cell):
            def construct(self, p, y):
                return p

        net = Two()
        with pytest.raises(GradientArgumentError, match="loss function Bad returned"):
            ml.train_step(net, Bad(), sgd(net))((A, B), Y)


def test_a_step_shows_what_it_is():
    net = nn.Sequential(nn.Dense(3, 2), nn.ReLU())
    step = ml.train_step(net, nn.MSELoss(), sgd(net), clip=0.5)
    expected = """train_step(
  (net): Sequential(
    (0): Dense(3, 2)
    (1): ReLU()
  )
  (loss): MSELoss()
  (optimizer): SGD(2 parameters, 8 numbers)
  (clip): 0.5
)"""
    assert repr(step) == expected
    assert "(loss): squares\n" in repr(ml.train_step(net, squares, sgd(net)))
    assert repr(copy.copy(step)) == expected
    assert repr(ml.jit(squares)) == "jit(squares)"
    assert str(ml.trace(step, A.astype(np.float32), Y.astype(np.float32))).startswith("train_step(")
    with pytest.raises(TypeError, match=r"^TrainStep.__call__\(\) missing 1 required"):
        step()
