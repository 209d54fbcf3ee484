"""RNN, LSTM and GRU: numbers of PyTorch 2.13, and loops written out in NumPy."""

import numpy as np
import pytest

import miniml as ml
from miniml import nn, ops
from miniml.errors import DTypeError, OutOfRangeError, ShapeError, ValueRefusedError
from miniml.grad import grad, value_and_grad

LAYERS = pytest.mark.parametrize("kind", [nn.RNN, nn.LSTM, nn.GRU], ids=lambda k: k.__name__)


def fill(shape, k):
    """Numbers that any program can make: sin(0.7 i + k) / 2."""
    n = int(np.prod(shape))
    return (np.sin(np.arange(n) * 0.7 + k) * 0.5).reshape(shape).astype(np.float32)


def filled(layer):
    for k, p in enumerate(layer.get_parameters()):
        p.set_data(fill(p.shape, k))
    return layer


# Of two layers, both directions, 3 features in and 2 out: the outputs of sequence 0, the last
# states of sequence 1, the gradient of the sum of all squares for sequence 0, and for two weights.
GOLDEN = {
    nn.RNN: (
        [[-0.6665425, -0.6588121, 0.8726898, 0.7125072], [-0.7060587, -0.3522114, 0.9056414,
          0.4929402], [-0.6008575, -0.5809556, 0.7040707, 0.2551678]],
        [[[0.4117167, 0.0246587], [-0.1756383, 0.7546934], [-0.663484, -0.497001],
          [0.9215224, 0.6856411]]],
        [[0.4241588, 0.6749845, 0.6083544], [0.0914438, 0.2303478, 0.2609157],
         [0.2136225, 0.2744215, 0.2061558]],
        [[0.9179852, -0.624347], [0.5053226, -0.4537985]],
        [4.0987137, 7.3430519],
    ),
    nn.LSTM: (
        [[0.1188825, 0.2376867, -0.3020303, -0.3793546], [0.134772, 0.2500132, -0.2637183,
          -0.3480488], [0.1195447, 0.2660917, -0.1602878, -0.2860293]],
        [[[-0.3012603, -0.0601336], [0.0009376, -0.145553], [0.0995564, 0.3145451],
          [-0.3124263, -0.3706337]],
         [[-0.6712191, -0.0844493], [0.0042568, -0.5191531], [0.1672, 0.5715897],
          [-0.7346402, -0.6660149]]],
        [[-0.5309272, -0.2444737, 0.1569595], [-0.1854871, 0.0641851, 0.2836701],
         [-0.3900738, -0.083712, 0.2620208]],
        [[-0.1864142, -0.135477], [-0.039555, -0.0124312]],
        [1.033199, 1.4929477, 0.9197743, 0.9320876, -3.0396592, -1.7830257, 0.6475512, 0.8428997],
    ),
    nn.GRU: (
        [[0.0168672, 0.1673025, -0.3490534, -0.7901437], [0.0588938, 0.3173679, -0.3530557,
          -0.7072132], [0.03489, 0.3950206, -0.3050746, -0.5634652]],
        [[[-0.6572696, -0.1538368], [0.2715144, -0.0683303], [0.1456102, 0.3161184],
          [-0.2363339, -0.7585485]]],
        [[-0.0099775, 0.079533, 0.1316379], [0.2086897, 0.2894418, 0.2340648],
         [-0.1589854, 0.008982, 0.172725]],
        [[-0.1011714, -0.0745862], [-0.0739418, -0.061113]],
        [0.2570864, 0.3680395, -0.2348054, -1.0669146, -2.4646896, -4.1213817],
    ),
}  # fmt: skip


@LAYERS
@pytest.mark.parametrize("mode", [ml.PYNATIVE_MODE, ml.GRAPH_MODE])
def test_numbers_are_those_of_pytorch(kind, mode):
    layer = filled(kind(3, 2, num_layers=2, bidirectional=True))
    states = tuple(fill((4, 2, 2), k) for k in (60, 70)[: kind.states])

    def loss(x):
        out, last = layer(x, states if kind.states > 1 else states[0])
        last = last if isinstance(last, tuple) else (last,)
        return sum((ops.sum(p * p) for p in (out, *last)), 0.0), (out, last)

    with ml.context(mode=mode):
        weights = [layer.weight_hh_l0, layer.bias_ih_l1_reverse]
        (_, (out, last)), (dx, (dw, db)) = value_and_grad(loss, has_aux=True, weights=weights)(
            fill((3, 2, 3), 50)
        )
    found = out[:, 0], [s[:, 1] for s in last], dx[:, 0], dw[:2], db
    for got, expected in zip(found, GOLDEN[kind], strict=True):
        np.testing.assert_allclose(np.asarray(got), expected, rtol=1e-4, atol=2e-6)


# One direction of two layers without bias: outputs and input gradients of sequence 1, of the sum of
# all squares, and the gradient of the last row of weight_hh_l1.
UNBIASED = {
    nn.RNN: (
        [[0.0863028, -0.113975], [0.2112145, -0.0146565], [-0.0827425, -0.0553859]],
        [[0.1043407, 0.1039331, 0.0546441], [0.0169099, 0.0520024, 0.0626374],
         [0.0043393, -0.0169732, -0.0303029]],
        [-0.0152708, -0.0055721],
    ),
    nn.LSTM: (
        [[-0.0033842, 0.0070351], [-0.0136337, 0.0056463], [-0.0055685, -0.000818]],
        [[5.0051225e-04, 7.3611736e-04, 6.2551501e-04],
         [2.8547884e-05, 4.4130377e-04, 6.4650772e-04],
         [-5.1845167e-05, 7.5158314e-05, 1.6681368e-04]],
        [-3.2502297e-07, 1.8502331e-07],
    ),
    nn.GRU: (
        [[0.0006083, 0.026577], [-0.0357357, 0.0212631], [0.0091308, -0.0089526]],
        [[0.0023262, 0.0031711, 0.0025247], [0.0008713, 0.0021241, 0.0023779],
         [-0.0007435, -0.0013964, -0.0013926]],
        [4.9221230e-04, 8.5587904e-05],
    ),
}  # fmt: skip


@LAYERS
def test_without_bias_the_numbers_are_those_of_pytorch(kind):
    layer = filled(kind(3, 2, num_layers=2, bias=False))
    assert [n for n in layer.parameters_dict() if "bias" in n] == []

    def loss(x):
        out, _ = layer(x)
        return ops.sum(out * out), out

    weights = [layer.weight_hh_l1]
    (_, out), (dx, (dw,)) = value_and_grad(loss, has_aux=True, weights=weights)(fill((3, 2, 3), 50))
    for got, expected in zip((out[:, 1], dx[:, 1], dw[-1]), UNBIASED[kind], strict=True):
        np.testing.assert_allclose(got.asnumpy(), expected, rtol=2e-3, atol=1e-7)


@LAYERS
def test_dropout_acts_between_layers_and_in_training_only(kind):
    layer = filled(kind(3, 2, num_layers=2, dropout=0.5))
    plain = filled(kind(3, 2, num_layers=2))
    first = filled(kind(3, 2))
    x = fill((4, 3, 3), 50)
    for f in (layer, ml.jit(layer)):
        ml.manual_seed(7)
        layer.set_train(True)
        out = f(x)[0]
        ml.manual_seed(7)
        given = ops.dropout(first(x)[0], 0.5)  # what the second layer reads
        second = kind(2, 2)
        named = layer.parameters_dict()
        for name, p in second.parameters_dict().items():
            p.set_data(named[name.replace("_l0", "_l1")].asnumpy())
        np.testing.assert_allclose(out.asnumpy(), second(given)[0].asnumpy(), atol=1e-6)
        layer.set_train(False)
        np.testing.assert_allclose(f(x)[0].asnumpy(), plain(x)[0].asnumpy(), atol=1e-6)
    assert layer.describe() == f"{kind.__name__}(3, 2, num_layers=2, dropout=0.5)"
    one = kind(3, 2, dropout=0.9)  # its only layer is the last
    assert np.array_equal(one(x)[0].asnumpy(), one(x)[0].asnumpy())
    with pytest.raises(ValueRefusedError, match=r"dropout=1.5; expected a number from 0 to 1"):
        kind(3, 2, dropout=1.5)


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def stepped(kind, w, x, states):
    """One step in NumPy and float64, of one sequence."""
    a, b = w["weight_ih_l0"] @ x + w["bias_ih_l0"], w["weight_hh_l0"] @ states[0] + w["bias_hh_l0"]
    if kind is nn.RNN:
        return (np.tanh(a + b),)
    if kind is nn.LSTM:
        i, f, g, o = np.split(a + b, 4)
        c = sigmoid(f) * states[1] + sigmoid(i) * np.tanh(g)
        return sigmoid(o) * np.tanh(c), c
    (r, z, g), (hr, hz, hg) = np.split(a, 3), np.split(b, 3)
    g = np.tanh(g + sigmoid(r + hr) * hg)
    z = sigmoid(z + hz)
    return ((1 - z) * g + z * states[0],)


def looped(kind, w, x):
    """(outputs, last states) of one sequence (T, n_in), from zeros."""
    states, outs = (np.zeros(len(w["weight_hh_l0"][0])),) * kind.states, []
    for row in x:
        states = stepped(kind, w, row, states)
        outs.append(states[0])
    return np.array(outs), states


@LAYERS
def test_a_sequence_of_a_length_is_read_as_if_it_stood_alone(kind):
    ml.manual_seed(1)
    layer = kind(3, 2, bidirectional=True, batch_first=True)
    w = {n: p.asnumpy().astype(np.float64) for n, p in layer.parameters_dict().items()}
    forth = {n: v for n, v in w.items() if not n.endswith("_reverse")}
    back = {n.removesuffix("_reverse"): v for n, v in w.items() if n.endswith("_reverse")}
    x = np.random.default_rng(0).normal(size=(3, 4, 3)).astype(np.float32)
    out, last = ml.jit(layer)(x, lengths=np.array([4, 2, 1]))
    last = last if kind.states > 1 else (last,)
    for row, length in enumerate((4, 2, 1)):
        ahead, ends = looped(kind, forth, x[row, :length])
        behind, others = looped(kind, back, x[row, :length][::-1])
        expected = np.concatenate([ahead, behind[::-1]], axis=1)
        np.testing.assert_allclose(out.asnumpy()[row, :length], expected, atol=1e-6)
        assert not out.asnumpy()[row, length:].any()
        for state, end, other in zip(last, ends, others, strict=True):
            np.testing.assert_allclose(state.asnumpy()[:, row], [end, other], atol=1e-6)


def test_a_compiled_layer_is_one_loop_however_long():
    layer = nn.LSTM(2, 3)
    text = str(ml.trace(lambda x: layer(x)[0], np.zeros((50, 2, 2), np.float32)))
    assert text.count("Scan") == 1
    assert text.count("MatMul") == 2


def test_an_lstm_learns_through_a_training_step():
    ml.manual_seed(0)

    class Net(nn.Cell):
        def __init__(self):
            self.lstm, self.head = nn.LSTM(1, 8, batch_first=True), nn.Dense(8, 2)

        def construct(self, x):
            _, (h, _) = self.lstm(x)
            return self.head(h[-1])

    x = np.random.default_rng(0).normal(size=(32, 6, 1)).astype(np.float32)
    y = (x.sum((1, 2)) > 0).astype(np.int64)
    net = Net()
    opt = ml.optim.Adam(net.trainable_params(), lr=0.05)
    step = ml.train_step(net, nn.CrossEntropyLoss(), opt)
    losses = [step(x, y).item() for _ in range(25)]
    assert losses[-1] < 0.3 * losses[0]
    with ml.context(autocast=ml.float16):
        assert np.isfinite(net(x).asnumpy()).all()


def test_no_step_gives_the_state_back():
    state = fill((1, 2, 3), 1)
    out, h = nn.GRU(2, 3)(np.zeros((0, 2, 2), np.float32), state)
    assert out.shape == (0, 2, 3)
    assert np.array_equal(h.asnumpy(), state)
    assert not grad(lambda x: ops.sum(nn.GRU(2, 3)(x)[1]))(np.zeros((0, 2, 2), np.float32)).size


X = np.zeros((5, 2, 3), np.float32)


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: nn.LSTM(0, 2), ValueRefusedError, "LSTM got n_in=0; expected an int >= 1"),
        (lambda: nn.LSTM(4, 2)(X), ShapeError, r"LSTM\(4, 2\) got .*\(5, 2, 3\); .*\(T, N, 4\)"),
        (
            lambda: nn.GRU(4, 2, batch_first=True)(X),
            ShapeError,
            r"GRU\(4, 2, batch_first=True\).*\(N, T, 4\)",
        ),
        (lambda: nn.RNN(3, 2)(X[0]), ShapeError, r"RNN\(3, 2\).*\(2, 3\); expected \(T, N, 3\)"),
        (lambda: nn.LSTM(3, 2)(X, X[:1]), DTypeError, r"a state of type ndarray; expected \(h, c"),
        (lambda: nn.GRU(3, 2)(X, X), ShapeError, r"\(5, 2, 3\); .*a state of shape \(1, 2, 2\)"),
        (lambda: nn.GRU(3, 2)(X, lengths=[1]), ShapeError, r"lengths of shape \(2,\)"),
        (lambda: nn.GRU(3, 2)(X, lengths=[1.0, 2.0]), DTypeError, "lengths of float32; expected"),
    ],
)
def test_what_does_not_fit_is_refused_by_name(call, error, message):
    with pytest.raises(error, match=message):
        call()


@pytest.mark.parametrize("jit", [False, True])
@pytest.mark.parametrize("batch_first", [False, True])
@pytest.mark.parametrize("kind", [nn.RNN, nn.LSTM, nn.GRU])
@pytest.mark.parametrize("dtype", [np.int8, np.int64, np.uint16])
def test_lengths_beyond_the_sequence_are_refused(kind, dtype, batch_first, jit):
    draw = np.random.default_rng(0)
    steps, batch = 5, 4
    layer = kind(3, 2, bidirectional=True, batch_first=batch_first)
    x = np.zeros((batch, steps, 3) if batch_first else (steps, batch, 3), np.float32)
    call = ml.jit(lambda x, lengths: layer(x, lengths=lengths)[0]) if jit else layer
    lengths = draw.integers(0, steps + 1, batch).astype(dtype)
    assert call(x, lengths=lengths) is not None
    wrong = [steps + 1, 100] + ([-1] if dtype is not np.uint16 else [])
    for value in wrong:
        found = lengths.copy()
        row = draw.integers(batch)
        found[row] = value
        message = rf"{kind.__name__}\(3, 2.* got length {value}; lengths are 0 to 5.*hs\[{row}"
        with pytest.raises(OutOfRangeError, match=message):
            call(x, lengths=found)
