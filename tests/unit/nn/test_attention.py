"""Attention and the layers of a transformer: numbers of PyTorch 2.13, and formulas in NumPy."""

import numpy as np
import pytest

import miniml as ml
from miniml import nn, ops
from miniml.errors import AttributeRefusedError, DTypeError, ShapeError, ValueRefusedError
from miniml.grad import grad, value_and_grad

from .test_recurrent import fill

RNG = np.random.default_rng(0)
Q, K, V = fill((2, 3, 4), 50), fill((2, 4, 4), 51), fill((2, 4, 4), 52)
VISIBLE = fill((3, 4), 9) > -0.2
SIX = fill((1, 2, 6), 0)


def filled(layer):
    """The values that PyTorch's layer was given: its dense weights are those here, transposed."""
    for k, (name, p) in enumerate(layer.parameters_dict().items()):
        dense = name.endswith("weight") and ("linear" in name or "out_proj" in name)
        p.set_data(fill(p.shape[::-1], k).T if dense else fill(p.shape, k))
    return layer


@pytest.mark.parametrize("mode", [ml.PYNATIVE_MODE, ml.GRAPH_MODE])
@pytest.mark.parametrize("mask", [VISIBLE, np.where(VISIBLE, 0, -np.inf).astype(np.float32)])
def test_attention_has_the_numbers_of_pytorch(mode, mask):
    layer = filled(nn.MultiHeadAttention(4, 2))

    def loss(q, k):
        out = layer(q, k, V, mask)
        return ops.sum(out * out), out

    weights = [layer.in_proj_weight, layer.out_proj.bias]
    with ml.context(mode=mode):
        (_, out), ((dq, dk), (dw, db)) = value_and_grad(loss, (0, 1), True, weights)(Q, K)
    expected = (
        [[0.0445836, -0.4229801, -0.1519655, -0.9150955],
         [0.0733908, -0.4459662, -0.1374566, -0.9194506],
         [-0.0430983, -0.3489125, -0.2038599, -0.891371]],
        [[0.0043266, -0.0012762, -0.0062787, -0.0083282],
         [0.0496096, 0.0191584, -0.0203033, -0.050216],
         [0.014455, 0.0086348, -0.0012465, -0.0105415]],
        [[-0.0171673, -0.0268459, -0.0238985, -0.0097112],
         [-0.008603, -0.0048571, 0.0011732, 0.0066516],
         [0.0481311, 0.0592532, 0.0425075, 0.0057699],
         [-0.0223608, -0.0275501, -0.0197822, -0.0027104]],
        [-0.0228931, -0.0430079, -0.0428954, -0.0226086],
        [0.37222, -4.970905, -1.8583983, -11.0204],
    )  # fmt: skip
    for got, wanted in zip((out[1], dq[1], dk[1], dw[5], db), expected, strict=True):
        np.testing.assert_allclose(np.asarray(got), wanted, rtol=1e-4, atol=2e-6)


# By norm_first: the output and the input's gradient of the sum of cubes for sample 1, then those of
# row 4 of linear1.weight and of norm1.weight; causal, without dropout.
ENCODED = {
    False: (
        [[-0.9698593, -0.0931222, 0.2223543, 0.3581249],
         [-0.9378866, 0.11238, -0.0866834, 0.3862579],
         [-0.9690012, -0.1057595, 0.2428583, 0.3533269]],
        [[-0.005601, 0.0481061, 0.0168861, 0.0135441],
         [-0.2177776, -0.1437168, 0.0968513, 0.312554],
         [-0.0224553, 0.0522182, -0.0151213, -0.0057178]],
        [0.0741904, 0.0549136, 0.266331, 0.1378677],
        [0.7430854, 0.4913058, 2.6177469, 1.0606617],
    ),
    True: (
        [[1.2885662, -0.032944, 0.5025111, -1.2639232],
         [0.4086881, -0.7786701, 0.4673675, -0.6577872],
         [1.3235476, 0.1095546, 0.8809421, -1.0063765]],
        [[5.7496237, -0.9596983, 0.3993673, 5.3452298],
         [0.6995445, 1.5762784, 0.4740178, 1.5235679],
         [5.4161908, -0.2963255, 2.4500204, 3.0880134]],
        [-6.5508763, -2.4602393, -2.0244605, 4.5623053],
        [0.2962787, -0.3158399, -0.31534, 0.9945595],
    ),
}  # fmt: skip


@pytest.mark.parametrize("mode", [ml.PYNATIVE_MODE, ml.GRAPH_MODE])
@pytest.mark.parametrize("norm_first", [False, True])
def test_the_encoder_layer_has_the_numbers_of_pytorch(norm_first, mode):
    layer = filled(nn.TransformerEncoderLayer(4, 2, 5, dropout=0.0, norm_first=norm_first))

    def loss(x):
        out = layer(x, is_causal=True)
        return ops.sum(out**3), out

    weights = [layer.linear1.weight, layer.norm1.weight]
    with ml.context(mode=mode):
        (_, out), (dx, (dw, dn)) = value_and_grad(loss, has_aux=True, weights=weights)(Q)
    for got, wanted in zip((out[1], dx[1], dw[:, 4], dn), ENCODED[norm_first], strict=True):
        np.testing.assert_allclose(np.asarray(got), wanted, rtol=2e-4, atol=5e-6)


# The decoder layer, causal, VISIBLE of the memory: for sample 1 the output, and the gradients of
# the input and of the memory of the sum of cubes; then those of row 5 of
# multihead_attn.in_proj_weight and of norm3.weight. With norm_first also GELU and no bias.
DECODED = {
    False: (
        [[-0.3242727, -0.7971122, 0.2259642, -0.2731041],
         [-0.307368, -0.5995676, 0.0727034, -0.3686906],
         [-0.3373924, -0.7435362, 0.2597473, -0.3088467]],
        [[-0.0983552, -0.0280517, 0.1900025, -0.0658682],
         [-0.3475158, -0.0526204, 0.190957, 0.2440315],
         [-0.1247423, -0.0319121, 0.189429, -0.0421007]],
        [[-0.125115, -0.1942321, -0.1719988, -0.0688719],
         [-0.1096846, -0.1812727, -0.1676055, -0.0751108],
         [-0.0934373, -0.1309047, -0.1068055, -0.0324741],
         [-0.0208993, -0.0443001, -0.0468658, -0.0273898]],
        [-0.0295684, -0.0367916, -0.0267111, -0.004068],
        [-2.0233421, 5.05002, -0.8282211, 2.813364],
    ),
    True: (
        [[0.5542698, 0.2343059, -0.0461264, -0.3337774],
         [-0.5711177, -0.3325084, -0.1721478, 0.2644862],
         [0.5095407, 0.4046872, 0.3596077, -0.1556145]],
        [[0.9947452, 0.1126912, -0.1095346, 0.4290462],
         [1.056782, 0.3199128, -0.0414045, 0.2736851],
         [0.8051612, 0.4816535, 0.3620093, 0.0819871]],
        [[-0.0361813, -0.0323048, -0.0132349, 0.0120597],
         [-0.0569116, -0.0561236, -0.0289398, 0.0118549],
         [-0.0420685, -0.0343458, -0.0104698, 0.0183304],
         [-0.004619, -0.0067502, -0.0057067, -0.0019792]],
        [0.0016278, -0.0049646, -0.0092221, -0.0091423],
        [-0.3649962, -0.1798427, 0.1918996, 0.1159903],
    ),
}  # fmt: skip


@pytest.mark.parametrize("mode", [ml.PYNATIVE_MODE, ml.GRAPH_MODE])
@pytest.mark.parametrize("norm_first", [False, True])
def test_the_decoder_layer_has_the_numbers_of_pytorch(norm_first, mode):
    changed = {"activation": "gelu", "bias": False} if norm_first else {}
    layer = filled(nn.TransformerDecoderLayer(4, 2, 5, 0.0, norm_first, **changed))

    def loss(x, memory):
        out = layer(x, memory, memory_mask=VISIBLE, is_causal=True)
        return ops.sum(out**3), out

    weights = [layer.multihead_attn.in_proj_weight, layer.norm3.weight]
    with ml.context(mode=mode):
        (_, out), ((dx, dm), (dw, dn)) = value_and_grad(loss, (0, 1), True, weights)(Q, K)
    found = out[1], dx[1], dm[1], dw[5], dn
    for got, wanted in zip(found, DECODED[norm_first], strict=True):
        np.testing.assert_allclose(np.asarray(got), wanted, rtol=2e-4, atol=5e-6)


def test_an_encoder_layer_without_bias_has_the_numbers_of_pytorch():
    layer = filled(nn.TransformerEncoderLayer(4, 2, 5, 0.0, activation="gelu", bias=False))
    weights = [layer.linear1.weight]
    slope, (dw,) = grad(lambda x: ops.sum(layer(x) ** 3), weights=weights)(Q)
    wanted = [[0.6282557, -1.2015129, 0.3964188, -0.0822103],
              [0.5439139, -1.0529718, 0.3201947, -0.0173679],
              [0.6848654, -1.1302359, 0.3726476, -0.269803]]  # fmt: skip
    np.testing.assert_allclose(slope.asnumpy()[1], wanted, rtol=2e-4)
    rest = [0.0700178, -0.3798345, 0.2207202, -0.2866313, -0.0067516]
    np.testing.assert_allclose(dw.asnumpy()[1], rest, rtol=2e-4)


def test_a_function_or_a_cell_may_be_the_activation():
    ml.manual_seed(0)
    layers = []
    for activation in ("relu", ops.relu, nn.ReLU()):
        ml.manual_seed(0)
        layers.append(nn.TransformerEncoderLayer(4, 2, 5, 0.0, activation=activation))
    named, *others = (layer(Q).asnumpy() for layer in layers)
    assert all(np.array_equal(named, other) for other in others)
    assert layers[2].describe().endswith("activation=ReLU())")


def test_rotary_positions_turn_the_queries_and_keys_of_each_head():
    layer = nn.MultiHeadAttention(8, 2, bias=False, rotary=nn.RotaryPositions(4))
    x = RNG.normal(size=(1, 6, 8)).astype(np.float32)
    projected = (x @ layer.in_proj_weight.asnumpy().T).reshape(1, 6, 3, 2, 4)
    q, k, v = (projected[:, :, i].swapaxes(1, 2) for i in range(3))
    q, k = ops.rotary_embedding(q), ops.rotary_embedding(k)
    heads = ops.scaled_dot_product_attention(q, k, v).asnumpy().swapaxes(1, 2).reshape(1, 6, 8)
    wanted = heads @ layer.out_proj.weight.asnumpy()
    np.testing.assert_allclose(ml.jit(layer)(x, x, x).asnumpy(), wanted, atol=1e-6)
    assert layer.describe().startswith("MultiHeadAttention(8, 2, bias=False, rotary=Rotary")


def test_long_sequences_are_attended_in_blocks():
    layer = nn.MultiHeadAttention(4, 2).set_train(False)
    x = RNG.normal(size=(1, 400, 4)).astype(np.float32)
    text = str(ml.trace(lambda x: layer(x, x, x, is_causal=True), np.tile(x, (4, 1, 1))))
    assert "ScaledDotProductAttention" in text
    assert "400, 400" not in text
    short = layer(x[:, :50], x[:, :50], x[:, :50], is_causal=True).asnumpy()
    np.testing.assert_allclose(
        layer(x, x, x, is_causal=True).asnumpy()[:, :50], short, rtol=1e-4, atol=1e-6
    )


def attended(layer, q, k, v, visible):
    """The formula for one sample in float64, head by head."""
    w, b = (p.asnumpy().astype(np.float64) for p in (layer.in_proj_weight, layer.in_proj_bias))
    d, size = layer.d, layer.d // layer.heads
    q, k, v = (x @ w[i * d : i * d + d].T + b[i * d : i * d + d] for i, x in enumerate((q, k, v)))
    heads = []
    for h in range(layer.heads):
        part = slice(h * size, h * size + size)
        weights = np.exp(q[:, part] @ k[:, part].T / np.sqrt(size)) * visible
        heads.append(weights / np.maximum(weights.sum(1, keepdims=True), 1e-300) @ v[:, part])
    return (
        np.concatenate(heads, 1) @ layer.out_proj.weight.asnumpy() + layer.out_proj.bias.asnumpy()
    )


def test_masks_of_each_sample_and_causality_hold_together():
    layer = nn.MultiHeadAttention(6, 3)
    q, k, v = (RNG.normal(size=(2, n, 6)).astype(np.float32) for n in (3, 5, 5))
    mask = RNG.random((2, 1, 3, 5)) < 0.6
    mask[0, 0, 1] = False  # a query that sees nothing
    out = ml.jit(layer)(q, k, v, mask, is_causal=True).asnumpy()
    for i in range(2):
        expected = attended(layer, q[i], k[i], v[i], mask[i, 0] & np.tril(np.ones((3, 5), bool)))
        np.testing.assert_allclose(out[i], expected, atol=2e-6)
    np.testing.assert_allclose(out[0, 1], layer.out_proj.bias.asnumpy(), atol=1e-7)
    dq = grad(lambda q: ops.sum(layer(q, k, v, mask) ** 2))(q).asnumpy()
    assert np.isfinite(dq).all()
    assert not dq[0, 1].any()
    with ml.context(autocast=ml.float16):
        assert np.allclose(layer(q, k, v, mask, is_causal=True).asnumpy(), out, atol=5e-3)


def test_dropout_acts_in_training_only():
    layer = nn.TransformerEncoderLayer(4, 2, 8, dropout=0.5)
    assert not np.array_equal(layer(Q).asnumpy(), layer(Q).asnumpy())
    layer.set_train(False)
    assert np.array_equal(layer(Q).asnumpy(), layer(Q).asnumpy())
    assert layer.describe() == "TransformerEncoderLayer(4, 2, 8, dropout=0.5)"


def test_encoder_layers_in_sequence_learn_in_a_training_step():
    ml.manual_seed(0)
    layers = [
        nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, norm_first=n) for n in (True, False)
    ]
    net = nn.Sequential(nn.Embedding(5, 8), *layers, nn.Flatten(), nn.Dense(32, 2))
    x = RNG.integers(0, 5, (32, 4))
    y = (x == 2).any(1).astype(np.int64)
    opt = ml.optim.Adam(net.trainable_params(), lr=0.01)
    step = ml.train_step(net, nn.CrossEntropyLoss(), opt)
    losses = [step(x, y).item() for _ in range(30)]
    assert losses[-1] < 0.2 * losses[0]


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: nn.MultiHeadAttention(6, 4), ValueRefusedError, "heads=4 for d=6; expected a"),
        (lambda: nn.MultiHeadAttention(4, 0), ValueRefusedError, "heads=0; expected an int >= 1"),
        (lambda: nn.TransformerEncoderLayer(4, 2, 0), ValueRefusedError, "got hidden=0"),
        (lambda: nn.TransformerEncoderLayer(4, 2, 8, 1.0), ValueRefusedError, "p=1.0"),
        (
            lambda: nn.TransformerDecoderLayer(4, 2, 8, activation="tanh"),
            ValueRefusedError,
            "activation='tanh'; expected one of 'relu', 'gelu'",
        ),
        (
            lambda: nn.MultiHeadAttention(4, 2, rotary=True),
            AttributeRefusedError,
            r"rotary=True; expected a cell, such as nn.RotaryPositions\(2\)",
        ),
        (
            lambda: nn.MultiHeadAttention(6, 2, rotary=nn.RotaryPositions(2))(SIX, SIX, SIX),
            ShapeError,
            r"RotaryPositions.*\(1, 2, 2, 3\); expected \(..., T, 2\)",
        ),
        (
            lambda: nn.TransformerDecoderLayer(4, 2, 8)(Q, K[:, :, :3]),
            ShapeError,
            r"TransformerDecoderLayer.*\(2, 4, 3\); expected \(N, S, 4\)",
        ),
        (
            lambda: nn.TransformerDecoderLayer(4, 2, 8)(Q, K[:1]),
            ShapeError,
            r"\(1, 4, 4\); expected k of shape \(2, S, 4\)",
        ),
        (
            lambda: nn.MultiHeadAttention(4, 2)(Q[0], K, V),
            ShapeError,
            r"MultiHeadAttention\(4, 2\) got input of shape \(3, 4\); expected q of shape",
        ),
        (
            lambda: nn.MultiHeadAttention(4, 2)(Q, K[:1], V),
            ShapeError,
            r"\(1, 4, 4\); expected k of shape \(2, S, 4\)",
        ),
        (lambda: nn.MultiHeadAttention(4, 2)(Q, K, Q), ShapeError, r"expected v of k's shape"),
        (
            lambda: nn.MultiHeadAttention(4, 2)(Q, K, V, VISIBLE.T),
            ShapeError,
            r"shape \(4, 3\); expected a mask that broadcasts to .* \(2, 2, 3, 4\)",
        ),
        (
            lambda: nn.MultiHeadAttention(4, 2)(Q, K, V, VISIBLE.astype(int)),
            DTypeError,
            "a mask of int64; expected bool or float",
        ),
        (
            lambda: nn.TransformerEncoderLayer(4, 2, 8)(Q[:, :, :3]),
            ShapeError,
            r"TransformerEncoderLayer.*\(2, 3, 3\); expected \(N, T, 4\)",
        ),
    ],
)
def test_what_does_not_fit_is_refused_by_name(call, error, message):
    with pytest.raises(error, match=message):
        call()
