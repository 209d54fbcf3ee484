"""Compositions called eagerly: from the second call on a plan, with the bits of its primitives."""

import gc
import sys
import threading
from contextlib import suppress

import numpy as np
import pytest

import miniml as ml
from miniml import Primitive, kernel, nn, ops
from miniml.core.parameter import default_generator
from miniml.core.settings import current
from miniml.core.trace import is_tracing
from miniml.errors import MinimlError, OutOfRangeError, ShapeError, ValueRefusedError
from miniml.grad import custom_bprop, grad, hvp, jvp, reverse, value_and_grad
from miniml.ops.checks import composition
from miniml.runtime import compositions
from tools.walks import passed_by

RNG = np.random.default_rng(3)
X, Y = (RNG.standard_normal((4, 6)).astype(np.float32) for _ in range(2))
IMAGES = RNG.standard_normal((2, 4, 6, 6)).astype(np.float32)
LABELS = np.array([1, 5, 0, 2])
CALLS = {
    "hard_swish": lambda: ops.hard_swish(x),
    "mish": lambda: ops.mish(x),
    "softshrink": lambda: ops.softshrink(x, 0.3),
    "celu": lambda: ops.celu(x, alpha=0.7),
    "sinc": lambda: ops.sinc(x),
    "norm": lambda: ops.norm(x),
    "norm of order 3": lambda: ops.norm(x, 3, axis=0, keepdims=True),
    "var": lambda: ops.var(x, 0, correction=1),
    "std": lambda: ops.std(x, axis=1),
    "var of a transpose": lambda: ops.var(x.T, 0),
    "float16": lambda: ops.var(x.astype(ml.float16), 1),
    "stack": lambda: ops.stack([x, y, x], 1),
    "roll": lambda: ops.roll(x, (1, -2), (0, 1)),
    "tril": lambda: ops.tril(x, -1),
    "diag": lambda: ops.diag(x[0], 1),
    "meshgrid": lambda: ops.meshgrid(x[0], y[1]),
    "unstack": lambda: ops.unstack(x),
    "repeat": lambda: ops.repeat(x, (1, 0, 2, 3), 0),
    "pad": lambda: ops.pad(x, ((1, 0), (2, 2)), mode="reflect"),
    "lerp": lambda: ops.lerp(x, y, 0.25),
    "mse": lambda: ops.mse_loss(x, y),
    "huber": lambda: ops.huber_loss(x, y, delta=0.5),
    "cross entropy": lambda: ops.cross_entropy(x, labels),
    "bce": lambda: ops.bce_with_logits(x, ops.sigmoid(y), reduction="none"),
    "cosine": lambda: ops.cosine_similarity(x, y),
    "group norm": lambda: ops.group_norm(images, 2, x[0, :4], y[0, :4]),
    "batch norm": lambda: ops.batch_norm(images, x[0, :4], y[0, :4], training=True),
    "rms norm": lambda: ops.rms_norm(x, y[0]),
    "attention": lambda: ops.scaled_dot_product_attention(images, images, images),
    "resize": lambda: ops.resize(images, (3, 9)),
    "median": lambda: ops.median(x, 1),
    "nanmean": lambda: ops.nanmean(x, 0),
    "inverse": lambda: ops.inv(x[:, :4]),
    "fft": lambda: ops.fft(x),
    "divmod": lambda: ops.divmod(x, y),
    "parameters": lambda: ops.mse_loss(parameter, y),
    "dropout": lambda: ops.dropout(x, 0.3),
    "normal": lambda: ops.normal((3, 5), 1.0, 2.0),
    "bernoulli": lambda: ops.bernoulli((3, 5), 0.3),
    "softmax": lambda: ops.softmax(x.T, 0),
    "transpose": lambda: x.T,
    "split": lambda: ops.split(images, (1, 3), 1),
    "max pool": lambda: ops.max_pool2d(images, 2),
    "max pool, padded": lambda: ops.max_pool2d(holes, 3, 2, 1),
    "max pool of halves": lambda: ops.max_pool2d(holes.astype(ml.float16), 3, 1, 1),
    "tril of more": lambda: ops.tril(many),
    "lstm": lambda: lstm(sequences)[0],
    "gru backwards": lambda: gru(sequences, lengths=lengths)[0],
    "exponential": lambda: ops.exponential((3, 2), 2.0),
    "poisson": lambda: ops.poisson(None, positive),
    "gamma": lambda: ops.gamma((2, 4, 6), positive),
    "dirichlet": lambda: ops.dirichlet(positive),
    "choice": lambda: ops.choice(6, (3,), p=positive[0]),
}
x, y, images, labels = (ml.Tensor(a) for a in (X, Y, IMAGES, LABELS))
HOLES = np.where(RNG.random(IMAGES.shape) < 0.1, np.nan, IMAGES)
holes, many = ml.Tensor(HOLES), ml.Tensor(RNG.standard_normal((20, 20)))
parameter, positive = ml.Parameter(X), ml.Tensor(np.abs(X) + 1)
sequences = ml.Tensor(RNG.standard_normal((5, 2, 3)).astype(np.float32))
lengths = ml.Tensor(np.array([5, 3]))
lstm, gru = nn.LSTM(3, 4), nn.GRU(3, 4, bidirectional=True)


def bits(result):
    """The tensors of a result, by type and bytes."""
    parts = result if isinstance(result, (tuple, list)) else [result]
    return [(p.dtype, p.shape, p.asnumpy().tobytes()) for p in parts]


@pytest.fixture(autouse=True)
def without_plans():
    """The more plans of a composition a process has, the later it makes another."""
    current().plans.clear()


def differences(call):
    """Calls of six whose bits are not those of the primitives one by one, the state of the random
    stream afterwards among them."""
    found = []
    for watched in (True, False):
        ml.manual_seed(5)
        results = []
        for _ in range(6):
            if watched:  # every primitive is seen, so nothing is planned
                with ml.profile():
                    results.append(bits(call()))
            else:
                results.append(bits(call()))
        found.append([*results, bits(ml.random_state)])
    return [i for i, (a, b) in enumerate(zip(*found, strict=True)) if a != b]


def passed(call):
    """The functions that a call passes: their names, and the files that they stand in."""
    codes = []
    sys.setprofile(lambda frame, event, arg: codes.append(frame.f_code))
    try:
        call()
    finally:
        sys.setprofile(None)
    return {name for code in codes for name in (code.co_name, code.co_filename)}


def is_planned(call):
    """True if the call runs a function that was written for it."""
    return "<composition>" in passed(call)


@pytest.mark.parametrize("name", CALLS)
def test_a_plan_gives_the_bits_of_its_primitives(name):
    assert differences(CALLS[name]) == []
    assert is_planned(CALLS[name])


def test_outputs_that_nobody_reads_are_not_computed():
    """The indices of maxima, which gradients alone need."""
    many = ml.Tensor(np.tile(IMAGES, (1, 1, 8, 8)))  # few windows are gathered, for both
    pooled, slope = lambda: ops.max_pool2d(many, 2), grad(lambda x: ops.max_pool2d(x, 2).sum())
    for _ in range(3):
        pooled(), slope(many)
    assert "folded" in passed(pooled)
    assert "compete" not in passed(pooled)
    assert "compete" in passed(lambda: slope(many))
    windows = np.full(IMAGES.shape[:2], np.prod(pooled().shape[2:]), float)
    np.testing.assert_array_equal(slope(many).asnumpy().sum((2, 3)), windows)


def test_a_plan_with_exchanged_operands_would_be_seen(monkeypatch):
    fill = compositions._Sequence._fill

    def exchanged(self, node, kernel, given, i):
        fill(self, node, kernel, given[::-1], i)

    monkeypatch.setattr(compositions._Sequence, "_fill", exchanged)
    fresh = ml.Tensor(RNG.standard_normal((3, 5)).astype(np.float32))  # kinds without a plan
    assert differences(lambda: ops.var(fresh)) == [1, 2, 3, 4, 5]


def test_draws_that_a_plan_repeats_would_be_seen(monkeypatch):
    """A planted fault: the plan takes no blocks from the stream."""
    take = compositions._Sequence._draw

    def drawn(self):
        lines = take(self)
        self.objects["take"] = lambda: ml.random_state._data
        return lines

    monkeypatch.setattr(compositions._Sequence, "_draw", drawn)
    assert differences(lambda: ops.dropout(ops.zeros((5, 3)) + 1.0, 0.5))


FEW = {
    "ops.mse_loss(x, array)": 20,
    "x[positions]": 22,
    "ops.hard_swish(x)": 10,
    "ops.var(x)": 9,
    "ops.mse_loss(x, y)": 12,
    "x.T": 7,
    "ops.normal((4, 4))": 15,
    "slope(x)": 112,
    "trained(images)": 240,
}


@pytest.mark.parametrize(("text", "most"), FEW.items())
def test_a_planned_composition_passes_few_functions(text, most):
    names, call = {"ops": ops, "x": x, "y": y, "images": images}, compile(text, "<call>", "eval")
    names |= {"array": X, "positions": np.array([1, 3])}
    names["slope"] = grad(lambda x: ops.sum(ops.sin(x) * x))
    weights = pooled.trainable_params()
    names["trained"] = value_and_grad(lambda x: ops.sum(pooled(x)), None, weights=weights)
    for _ in range(3):
        eval(call, names)
    gc.collect()  # what it would release in the call is none of its functions
    passed = passed_by(call, names)
    assert sum(passed.values()) <= most, [f"{c.co_qualname} x {n}" for c, n in passed.items()]


def test_errors_are_those_of_the_primitive_on_the_users_line():
    logits = ml.Tensor(RNG.standard_normal((4, 6, 2)).astype(np.float32))  # kinds without a plan
    right, wrong = ml.Tensor(np.ones((4, 2), int)), ml.Tensor(np.full((4, 2), 7))
    found = []
    for given in (wrong, right, right, right, wrong):
        try:
            ops.nll_loss(logits, given)
        except MinimlError as error:
            found.append([str(error), *error.__notes__])
    assert len(found) == 2
    assert found[0] == found[1]
    assert "7" in found[0][0]
    assert "ops.nll_loss(logits, given)" in "\n".join(found[0])


def test_refusals_stay():
    for _ in range(4):
        with pytest.raises(ShapeError, match="stack got tensors of shapes"):
            ops.stack([x, y[:2]])
        with pytest.raises(TypeError):
            ops.hard_swish(x, y)


def test_python_code_that_asks_for_values_asks_at_each_call():
    for i in range(6):
        mask = np.arange(x.size).reshape(x.shape) % 3 < i // 2
        np.testing.assert_array_equal(x[ml.Tensor(mask)].asnumpy(), x.asnumpy()[mask])


def test_numbers_in_a_plan_are_looked_at_in_each_call():
    numbers = ml.Tensor(np.array([0, 2, 2]))
    for _ in range(4):
        np.testing.assert_array_equal(ops.bincount(numbers, 3).asnumpy(), [1, 0, 2])
        for part in (slice(0, 1), slice(0, 2), slice(0, 2, 2), slice(0, None), ...):
            expected = x.asnumpy()[[0, 2, 2], part]
            np.testing.assert_array_equal(x[numbers, part].asnumpy(), expected)
    for call in (lambda i: ops.bincount(i, 3), lambda i: x[i, 1:], lambda i: ops.gather(x, i)):
        with pytest.raises(OutOfRangeError):
            call(ml.Tensor(np.array([0, -20, 2])))


@pytest.mark.parametrize("device", ["cpu", "cuda-sim"])
def test_constants_of_plans_are_on_the_device(device):
    with ml.context(device_target=device):
        given = ml.Tensor(x.asnumpy())
        for _ in range(4):
            np.testing.assert_array_equal(ops.linspace(0.0, 2.0, 3).asnumpy(), [0, 1, 2])
            values, indices = ops.cummin(given, 1)
            np.testing.assert_array_equal(values.asnumpy(), np.minimum.accumulate(x.asnumpy(), 1))
            picked = ops.take_along_axis(given, indices, 1)
            np.testing.assert_array_equal(picked.asnumpy(), values.asnumpy())


@pytest.mark.parametrize("device", ["cpu", "cuda-sim"])
def test_a_check_of_values_that_a_plan_leaves_to_its_kernels_names_what_is_wrong(device):
    with ml.context(device_target=device):
        for _ in range(4):
            assert ops.categorical(ml.Tensor(np.zeros((2, 3), np.float32))).shape == (2,)
            assert ops.bincount(ml.Tensor([0, 1]), 3).tolist() == [1, 1, 0]
        with pytest.raises(OutOfRangeError, match="categorical got a row of logits"):
            ops.categorical(ml.Tensor(np.full((2, 3), -np.inf, np.float32)))
        with pytest.raises(OutOfRangeError, match="bincount got a negative number"):
            ops.bincount(ml.Tensor([0, -1]), 3)


def test_a_check_that_a_plan_makes_itself_refuses_what_the_call_would():
    """And draws nothing then; of constants it is made, too."""

    @composition
    def constant(x):
        return ops.add(x, ops.poisson(x.shape, np.full(x.shape, -1.0)))

    for _ in range(3):
        ops.poisson(None, positive)
    before = bits(ml.random_state)
    for bad in (-positive, positive * np.float32(np.nan)):
        with pytest.raises(ValueRefusedError, match="poisson got lam with an element that is not"):
            ops.poisson(None, bad)
    assert bits(ml.random_state) == before
    assert is_planned(lambda: ops.poisson(None, positive))
    for _ in range(3):
        with pytest.raises(ValueRefusedError, match="poisson got lam"):
            constant(x)


def test_arrays_beside_tensors_are_read_anew_in_each_call():
    array = np.arange(6.0, dtype=np.float32).reshape(2, 3)
    given = ml.Tensor(array)
    for i in range(4):
        other = array + i
        np.testing.assert_array_equal((given + other).asnumpy(), array + other)
        np.testing.assert_array_equal(
            ops.where(other > 3, given, 0.0).asnumpy(), np.where(other > 3, array, 0)
        )
        assert (given.astype(ml.float64) + other).dtype == ml.float64
        assert ops.add(other, 1).dtype == ml.float32


def test_what_is_made_of_numbers_alone_is_a_fresh_tensor_each_time():
    made = [lambda: ops.arange(3), lambda: ops.full((3,), 2.0), lambda: ops.zeros(3)]
    for call in made:
        first, *others = [call() for _ in range(5)]
        data = np.from_dlpack(first)
        for other in others:
            assert not np.shares_memory(data, np.from_dlpack(other))
            np.testing.assert_array_equal(other.asnumpy(), first.asnumpy())


def test_numbers_that_compare_equal_are_different_arguments():
    zero, ones = ml.Tensor(np.zeros(2, np.float32)), ml.Tensor(np.ones(2, np.int32))
    for _ in range(3):
        assert np.signbit(ops.threshold(zero, 1.0, -0.0).asnumpy()).all()
        assert not np.signbit(ops.threshold(zero, 1.0, 0.0).asnumpy()).any()
        assert ops.threshold(ones, 0, 1).dtype == ml.int32
        assert ops.threshold(ones, 0, 1.0).dtype == ml.float32
        assert np.isnan(ops.threshold(zero, 1.0, float("nan")).asnumpy()).all()


def test_results_are_the_callers_own():
    """Neither a later call, nor a constant of the plan, nor a parameter that changes."""
    weight = ml.Parameter(np.ones(3, np.float32))
    seen, positions = [], []
    for k in range(4):
        weight.set_data(np.full(3, k, np.float32))
        seen.append(ops.atleast_2d(weight))
        positions.append(ops.sinusoidal_positions(3, 4))
    assert [s.asnumpy()[0, 0] for s in seen] == [0, 1, 2, 3]
    pairs = [(a, b) for a in positions for b in positions if a is not b]
    assert not any(np.shares_memory(a._data, b._data) for a, b in pairs)
    assert all(ops.dropout(x, 0.0) is x for _ in range(4))


def test_a_kernel_registered_later_is_used_at_once():
    class CompositionTwice(Primitive):
        def infer_shape(self, x):
            return x

    times = [2.0]

    def register():  # again, as a cell of a notebook that is run twice
        factor = times[0]

        @kernel("CompositionTwice", "cpu", "f->f")
        def twice(x, *, out):
            np.multiply(x, factor, out=out)

    register()

    @ops.checks.composition
    def twice_and_one(x):
        return CompositionTwice()(x) + 1.0

    results = [twice_and_one(x) for _ in range(3)]

    times[0] = 3.0
    register()
    np.testing.assert_array_equal(results[2].asnumpy(), X * 2 + 1)
    np.testing.assert_array_equal(twice_and_one(x).asnumpy(), X * 3 + 1)


def test_a_users_kernel_runs_at_each_call_of_constants_too():
    class CompositionCounted(Primitive):
        like = "x"

    runs = []

    @kernel("CompositionCounted", "cpu", "f->f")
    def counted(x, *, out):
        runs.append(x)
        np.copyto(out, x + len(runs))

    @composition
    def counting(x):
        return ops.add(x, CompositionCounted()(ops.zeros(())))

    results = [counting(x).asnumpy() for _ in range(5)]
    assert is_planned(lambda: counting(x))
    np.testing.assert_array_equal(results, [X + np.float32(n) for n in range(1, 6)])


def test_traces_and_watchers_see_the_primitives():
    for _ in range(3):
        ops.hard_swish(x)
    with ml.profile() as seen:
        ops.hard_swish(x)
    assert "Clip" in str(seen)
    assert "Clip" in str(ml.trace(ops.hard_swish, x))
    slope = grad(lambda x: ops.sum(ops.hard_swish(x)))(x).asnumpy()
    inside = np.abs(X) < 3
    np.testing.assert_allclose(slope[inside], (X / 3 + 0.5)[inside], rtol=1e-6)
    _, tangent = jvp(ops.hard_swish, (x,), (ops.ones_like(x),))
    np.testing.assert_allclose(tangent.asnumpy()[inside], (X / 3 + 0.5)[inside], rtol=1e-6)
    rows = ml.vmap(ops.hard_swish)(x)
    np.testing.assert_array_equal(rows.asnumpy(), ops.hard_swish(x).asnumpy())
    with ml.context(check_nan=True):
        for _ in range(3):
            with pytest.raises(MinimlError, match="Div"):
                ops.mse_loss(ops.div(x, 0.0), y)


def test_settings_have_plans_of_their_own():
    for _ in range(3):
        wide = ops.lerp(x @ y.T, 1.0, 0.5)
        with ml.context(autocast=ml.bfloat16):
            narrow = ops.lerp(x @ y.T, 1.0, 0.5)
    assert (wide.dtype, narrow.dtype) == (ml.float32, ml.bfloat16)


def test_arrays_and_lists_are_inspected_at_each_call():
    for k in range(4):
        np.testing.assert_array_equal(
            ops.roll([k, 2, 3], 1).asnumpy(), np.roll(np.array([k, 2, 3]), 1)
        )
        np.testing.assert_array_equal(ops.tril(np.full((2, 2), k)).asnumpy(), [[k, 0], [k, k]])


def test_code_that_takes_arrays_apart_from_tensors_does_so_at_each_call():
    """Angles of positions in an array are of float64, those of a tensor of float32."""
    x, positions = ml.Tensor(np.ones((2, 3, 4), np.float32)), np.array([7, 10**6 + 1, 5])
    angles = positions[:, None] * 10000.0 ** (-np.arange(2) / 2)
    expected = (np.cos(angles) - np.sin(angles)).astype(np.float32)
    for _ in range(4):
        turned = ops.rotary_embedding(x, positions).asnumpy()[:, :, :2]
        np.testing.assert_allclose(turned, np.stack([expected] * 2), atol=1e-6)
        given = np.full((2, 2), 3.0)
        assert ops.masked_select(x[0, 0], np.array([True, False, True, False])).shape == (2,)
        assert type(composition(lambda a: a)(given)) is np.ndarray


@pytest.mark.parametrize("device", ["cpu", "cuda-sim"])
def test_arrays_follow_the_first_tensor(device):
    there = ml.Tensor(X, device=device)
    for _ in range(4):
        for found in (ops.mse_loss(Y, there, reduction="none"), there + Y, there[LABELS // 2]):
            assert found.device == device
        np.testing.assert_array_equal(there[LABELS // 2].asnumpy(), X[LABELS // 2])


def test_a_function_called_in_many_ways_is_planned_late():
    """Plans take a thousand times as long to make as they save at a call."""

    def made():
        plans = current().plans
        return sum(n for fn, n in plans.items() if getattr(fn, "__name__", "") == "roll")

    before, given = made(), ml.Tensor(np.zeros(200, np.float32))
    for _ in range(3):
        for k in range(100):
            assert ops.roll(given, k).shape == (200,)
    assert 16 <= made() - before < 60


def test_a_step_of_ones_own_in_a_recurrent_layer_is_called_each_time():
    class Leaky(nn.RNN):
        rate = 0.0

        def step(self, x, h, *others):
            return (others[0] * self.rate + ops.tanh(x + h),)

    layer = Leaky(3, 4)
    first = [layer(sequences)[0].asnumpy() for _ in range(3)][-1]
    layer.rate = 0.5
    second = layer(sequences)[0].asnumpy()
    np.testing.assert_array_equal(first[0], second[0])
    assert (first[1:] != second[1:]).all()


# --- Gradients ------------------------------------------------------------------------------------

dense, normed, pooled = nn.Dense(6, 3), nn.LayerNorm(6), nn.BatchNorm2d(4)
GRADIENTS = {
    "of a product": lambda: grad(lambda x: ops.sum(ops.sin(x) * x))(x),
    "of two arguments": lambda: grad(lambda x, y: ops.mse_loss(x * 2.0, y), (0, 1))(x, y),
    "of weights": lambda: of_weights(dense, lambda net: ops.sum(ops.tanh(net(x)))),
    "of layer norm": lambda: of_weights(normed, lambda net: ops.sum(ops.square(net(x)))),
    "of batch norm": lambda: of_weights(pooled, lambda net: ops.sum(ops.square(net(images)))),
    "of an lstm": lambda: of_weights(lstm, lambda net: ops.sum(net(sequences)[0])),
    "of a gru": lambda: of_weights(gru, lambda net: ops.sum(net(sequences, lengths=lengths)[0])),
    "of one argument or both": lambda: [
        *[grad(ops.mse_loss, n)(x, y) for n in (0, 1)],
        *grad(ops.mse_loss, (0, 1))(x, y),
    ],
    "of a factor": lambda: grad(lambda g: ops.sum(ops.group_norm(images, 2, g) ** 2))(x[0, :4]),
    "of losses": lambda: grad(lambda x: ops.cross_entropy(x, labels) + ops.norm(x))(x),
    "of group norm": lambda: grad(lambda x: ops.sum(ops.group_norm(x, 2) ** 3))(images),
    "of a convolution": lambda: grad(lambda w: ops.sum(ops.conv2d(images, w) ** 2))(
        images[:, :, :2]
    ),
    "with draws": lambda: grad(lambda x: ops.sum(ops.dropout(x, 0.5) * x))(x),
    "of attention with draws": lambda: grad(
        lambda x: ops.norm(ops.scaled_dot_product_attention(x, x, x, dropout=0.3))
    )(images),
    "of the second order": lambda: grad(lambda x: ops.sum(grad(energy)(x) ** 2))(x),
    "of a split, of the second order": lambda: grad(
        lambda x: ops.sum(grad(lambda x: ops.norm(ops.split(x, 2)[0]))(x) ** 3)
    )(x),
    "hvp": lambda: hvp(energy, (x,), (y,)),
    "of what is used twice": lambda: grad(lambda x: ops.sum(ops.stack([x, x]) * ops.var(x)))(x),
    "of a constant": lambda: grad(lambda x: ops.sum(ops.stop_gradient(x)) + x[0, 0])(x),
}


def energy(x):
    return ops.sum(ops.mish(x) * ops.hard_swish(x))


def of_weights(net, loss):
    derive = value_and_grad(lambda: loss(net), argnums=None, weights=net.trainable_params())
    value, gradients = derive()
    return [value, *gradients]


@pytest.mark.parametrize("name", GRADIENTS)
def test_a_planned_gradient_has_the_bits_of_its_rules(name, monkeypatch):
    assert differences(GRADIENTS[name]) == []
    one_by_one, backward = [], reverse.backward

    def seen(*args):
        one_by_one.append(not is_tracing())
        return backward(*args)

    monkeypatch.setattr(reverse, "backward", seen)
    GRADIENTS[name]()
    assert not any(one_by_one)  # but for gradients of gradients, which record the inner one


def test_a_gradient_planned_with_exchanged_operands_would_be_seen(monkeypatch):
    fill = compositions._Sequence._fill

    def exchanged(self, node, kernel, given, i):
        fill(self, node, kernel, given[::-1], i)

    monkeypatch.setattr(compositions._Sequence, "_fill", exchanged)
    fresh = ml.Tensor(RNG.standard_normal((3, 7)).astype(np.float32))  # kinds without a plan
    derive = grad(lambda x: ops.sum(ops.sigmoid(x)))
    with ml.context(threads=3):  # settings without plans
        assert differences(lambda: derive(fresh)) == [1, 2, 3, 4, 5]


def test_rules_of_ones_own_are_called_each_time():
    calls = []

    def bprop(x, out, dout):
        calls.append(1)
        return (dout * float(len(calls)),)

    @custom_bprop(bprop)
    def doubled(x):
        return x * 2.0

    found = [grad(lambda x: ops.sum(doubled(ops.tanh(x))))(x).asnumpy() for _ in range(4)]
    assert len(calls) == 4
    np.testing.assert_array_equal(found[3], found[0] * 4)


def test_gradients_follow_the_values_of_parameters():
    weight = ml.Parameter(np.ones(6, np.float32))
    derive = value_and_grad(lambda: ops.sum(ops.square(weight)), argnums=None, weights=[weight])
    found = []
    for k in range(5):
        weight.set_data(np.full(6, k, np.float32))
        found.append(derive()[1][0])
    assert [g.asnumpy()[0] for g in found] == [0, 2, 4, 6, 8]


def test_errors_of_a_planned_gradient_name_the_operation_on_the_users_line():
    for given in (LABELS, LABELS, LABELS, LABELS + 9):
        wrong = ml.Tensor(given)
        try:
            grad(lambda x: ops.nll_loss(ops.log_softmax(x), wrong))(x)  # noqa: B023
        except MinimlError as error:
            text = "\n".join([str(error), *error.__notes__])
    assert "label 10" in text
    assert "ops.nll_loss(ops.log_softmax(x), wrong)" in text


def _drawn_then_failing(wrong):
    """The offset of the stream after calls that draw, some of them of a class that may be wrong;
    with gradients the calls are recorded."""

    @composition
    def loss(x, labels):
        return ops.cross_entropy(ops.mul(x, ops.uniform(x.shape)), labels)

    ml.manual_seed(7)
    offsets = []
    for call in (loss, grad(loss)):
        for given in (LABELS, LABELS, LABELS, LABELS + wrong):
            with suppress(OutOfRangeError):
                call(x, ml.Tensor(given))
        offsets.append(ml.random_state.tolist()[1])
    return offsets


def test_a_plan_that_raises_draws_once(monkeypatch):
    assert _drawn_then_failing(100) == _drawn_then_failing(0) == [24, 48]
    monkeypatch.setattr(type(default_generator), "give_back", lambda *args: None)
    assert _drawn_then_failing(100) != _drawn_then_failing(0)  # so a plan did fail


def test_what_another_thread_drew_is_not_given_back():
    stream = ml.Generator(3)
    before = stream.reserve(4)
    stream.reserve(2)
    stream.give_back(before, 4)
    assert stream.state.tolist() == [3, 6]
    stream.give_back(ml.Tensor(np.array([3, 4], np.uint64)), 2)
    assert stream.state.tolist() == [3, 4]


def test_threads_share_a_plan():
    def run(k, into):
        given = ml.Tensor(np.full((16, 16), k, np.float32))
        for _ in range(200):
            into.append(bool((ops.std(given) == 0.0).item() and ops.norm(given).item() == 16 * k))

    found: list[bool] = []
    threads = [threading.Thread(target=run, args=(k, found)) for k in range(1, 4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert found == [True] * 600


def test_layers_give_the_same_with_plans():
    net = nn.Sequential(nn.Dense(6, 8), nn.LayerNorm(8), nn.ReLU(), nn.Dense(8, 2))
    first = net(x).asnumpy()
    for _ in range(3):
        np.testing.assert_array_equal(net(x).asnumpy(), first)
