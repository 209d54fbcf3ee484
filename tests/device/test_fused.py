"""Fused groups on a CUDA device: random programs, softmax and normalisations with their gradients,
against the same programs node by node on the CPU."""

import numpy as np
import optree
import pytest

import miniml as ml
from miniml import ops
from miniml.backends.cuda.sim.memory import SCHEDULES, using
from miniml.backends.cuda.text import loops as cuda_rows
from miniml.core.scope import epoch
from miniml.errors import CompileError, PerformanceWarning
from miniml.runtime.jit import Jit
from tests.unit.cc.programs import function, inputs_for, with_gradient

# Of float64, where what differs is the order of sums and the last bits of exp and its like.
TOLERANCE = {"rtol": 1e-9, "atol": 1e-11}


def run(fn, arrays, device, provider):
    """The outputs of a compiled function, and how many of its nodes are fused."""
    with ml.context(device_target=device, providers=(provider,), verify_passes=True):
        jit, xs = Jit(fn), [ml.Tensor(a) for a in arrays]
        outs = optree.tree_leaves(jit(*xs))
        nodes = jit.compiled(*xs).program.graph.nodes
    return [o.asnumpy() for o in outs], sum(isinstance(n.primitive, ops.Fused) for n in nodes)


def check(fn, arrays, device, schedules=SCHEDULES, **tolerance):
    """A device gives the same in every order of threads; in check mode a race is an error. Returns
    how many nodes were fused."""
    expected, _ = run(fn, arrays, "cpu", "miniml")
    for schedule in schedules:
        with using(schedule=schedule, seed=5):
            got, fused = run(fn, arrays, device, "cc")
        for one, two in zip(expected, got, strict=True):
            np.testing.assert_allclose(two, one, **(tolerance or TOLERANCE))
    return fused


@pytest.mark.parametrize("seed", [3, 6, 7])
def test_random_programs(device, seed):
    assert check(function(seed), inputs_for(seed, np.float64), device)


@pytest.mark.parametrize("seed", [20])
def test_random_gradients(device, seed):
    assert check(with_gradient(function(seed, 7)), inputs_for(seed, np.float64), device)


@pytest.mark.deep
@pytest.mark.parametrize("seed", range(100, 160))
def test_many(device, seed):
    check(function(seed), inputs_for(seed, np.float64), device)
    check(with_gradient(function(seed, 7)), inputs_for(seed, np.float64), device)


def rows(*shape):
    return np.random.default_rng(8).standard_normal(shape).astype(np.float32)


def elements(x, y):
    return ops.tanh(x) * y + x, ops.cast(x, ml.float16), x > y


@pytest.mark.parametrize("begin", [0, 1, 4])
def test_packs_where_arrays_are_aligned(on_device, begin):
    """Views of an array begin anywhere in its memory."""
    x, y = rows(68), rows(9, 64)
    with ml.context(providers=("cc",)):
        got = ml.jit(elements)(ml.Tensor(x)[begin : begin + 64], ml.Tensor(y))
    for one, two in zip(got, elements(ml.Tensor(x[begin : begin + 64]), ml.Tensor(y)), strict=True):
        # a GPU rounds the product and the sum at once
        np.testing.assert_allclose(one.asnumpy(), two.asnumpy(), 1e-6, 2.0**-23 * np.abs(y).max())


def test_a_column_of_many_rows_is_summed_in_parts(on_device):
    x = rows(3000, 5)
    with ml.context(providers=("cc",)):
        got = ml.jit(lambda x: (ops.sum(ops.exp(x), 0), ops.max(x * 2.0, 0)))(ml.Tensor(x))
    np.testing.assert_allclose(got[0].asnumpy(), np.exp(x.astype("d")).sum(0), rtol=2e-6)
    np.testing.assert_array_equal(got[1].asnumpy(), 2 * x.max(0))


def test_few_long_rows_are_not_fused(on_device):
    """Several blocks share each of them."""
    x = ml.Tensor(np.ones((2, 1 << 16), np.float32))
    with ml.context(providers=("cc",)):
        found = ml.explain(lambda x: ops.sum(x * 2.0, 1), x)
    assert "Sum(" in str(found)


def test_explain_says_why_products_stay_apart(on_device):
    x = ml.Tensor(rows(8, 8))
    with ml.context(providers=("cc",)):
        found = ml.explain(lambda x: ops.relu(ops.matmul(x, x)), x, text=True)
    assert "MatMul | relu: products on CUDA have no epilogue" in found.apart
    assert "1 pass over" in found.groups[0]
    assert "a thread for each element" in found.rows[1].why
    assert 'extern "C" __global__' in found.texts[0]


LABELS = np.arange(6) % 33
COMPOSED = {
    "softmax": (ops.softmax, rows(6, 33)),
    "softmax of columns": (lambda x: ops.softmax(x, 0), rows(6, 40)),
    "log_softmax": (ops.log_softmax, rows(6, 33)),
    "layer_norm of a warp": (ops.layer_norm, rows(20, 64), rows(64), rows(64)),
    "layer_norm of a block": (ops.layer_norm, rows(17, 2100), rows(2100), rows(2100)),
    "batch_norm": (
        lambda *xs: ops.batch_norm(*xs, training=True)[0], rows(4, 3, 5, 5), rows(3), rows(3),
    ),
    "cross_entropy": (lambda x: ops.cross_entropy(x, LABELS), rows(6, 33)),
}  # fmt: skip


def with_slopes(fn, count):
    def loss(*xs):
        y = fn(*xs)
        return ops.sum(y * ml.Tensor(np.cos(np.arange(y.size, dtype="f")).reshape(y.shape)))

    return lambda *xs: (fn(*xs), ml.grad.grad(loss, argnums=tuple(range(count)))(*xs))


@pytest.mark.parametrize("name", COMPOSED)
def test_compositions(device, name):
    fn, *arrays = COMPOSED[name]
    assert check(with_slopes(fn, len(arrays)), arrays, device, rtol=2e-5, atol=2e-5)


def test_labels_outside_the_classes_give_nan(on_device):
    labels = ml.Tensor(np.array([1, -1, 33, 4]))
    with ml.context(providers=("cc",)):
        losses = ml.jit(lambda x: ops.cross_entropy(x, labels, "none"))(ml.Tensor(rows(4, 33)))
    assert np.isnan(losses.asnumpy()).tolist() == [False, True, True, False]


@pytest.fixture
def refused(monkeypatch):
    """Texts of groups that no compiler takes; those of single primitives are as ever."""
    made = cuda_rows.printed

    def wrong(program):
        printed = made(program)
        return printed._replace(text=printed.text + "nonsense\n")

    monkeypatch.setattr(cuda_rows, "printed", wrong)
    epoch.bump("kernels")  # no text that was made before
    yield
    epoch.bump("kernels")


def stepped(x, w):
    """A value, and an update of a Parameter, each a group."""
    ops.assign(w, w - 0.1 * ops.tanh(x))
    return ops.sum(ops.exp(x) * x)


def test_a_group_whose_text_is_refused_runs_one_by_one(on_device, refused):
    x, w = ml.Tensor(rows(7)), ml.Parameter(np.ones(7, np.float32))
    step = ml.jit(lambda x: stepped(x, w))
    with ml.context(providers=("cc",)), pytest.warns(PerformanceWarning) as told:
        got = [step(x), step(x)]
    x = rows(7).astype("d")
    np.testing.assert_allclose([*map(float, got)], [(np.exp(x) * x).sum()] * 2, rtol=1e-6)
    np.testing.assert_allclose(w.asnumpy(), 1 - 0.2 * np.tanh(x), rtol=1e-6)
    said = [str(warning.message) for warning in told]
    assert any(s.startswith("the fused group exp_mul_sum runs kernel by kernel") for s in said)
    assert all("nonsense" in s for s in said)
    assert len(said) == len(set(said))


def test_a_composition_whose_text_is_refused_runs_one_by_one(on_device, refused):
    x = rows(3, 5)
    with pytest.warns(PerformanceWarning, match="the fused group .* runs kernel by kernel"):
        got = ops.softmax(ml.Tensor(x))
    terms = np.exp(x.astype("d"))
    np.testing.assert_allclose(got.asnumpy(), terms / terms.sum(1, keepdims=True), rtol=1e-6)


class Misspelt(ml.Primitive):
    """2 x, whose expression no compiler takes."""

    def infer_shape(self, x):
        return x

    def infer_dtype(self, x):
        return x


def test_a_users_expression_that_does_not_compile_is_an_error_that_names_it(on_device):
    ml.elementwise_kernel("Misspelt", "2 +* x", "f->f")
    with ml.context(providers=("cc",)), pytest.raises(CompileError, match="Misspelt") as caught:
        ml.jit(lambda x: ops.exp(Misspelt()(x)) * x)(ml.Tensor(rows(3)))
    assert caught.value.__notes__[0].startswith("Misspelt was called at\n")
