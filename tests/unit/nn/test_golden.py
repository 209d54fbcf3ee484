"""Every layer against PyTorch 2.13: its output, and its gradients by input and parameters.

A row has what the layer is given, and three numbers: its output, the gradient of their product by
the input and that by all parameters, each times the fixed numbers of `fill` and summed, in float64.
Weights are moved by load_torch_state, in the shapes that PyTorch has.
"""

import inspect
from functools import partial

import numpy as np
import pytest
from scipy import special

import miniml as ml
from miniml import nn, ops
from miniml.grad import grad
from miniml.nn import layer, loss, norm


def fill(shape, k):
    return np.sin(np.arange(1, np.prod(shape) + 1) * 1.7 + k).reshape(shape) * 2


PAIR = fill((3, 4), 1), fill((3, 4), 5)
PROBS = special.softmax(PAIR[0], 1), special.softmax(fill((3, 4), 6), 1)
INPUTS = {
    "rows": (4 * PAIR[0],),
    "images": (fill((2, 4, 4, 3), 2),),
    "volumes": (fill((2, 4, 2, 3, 2), 2),),
    "memory": (fill((3, 2, 4), 4), fill((3, 5, 4), 6)),
    "lines": (fill((2, 4, 3), 3),),
    "times": (fill((3, 2, 4), 4),),
    "numbers": (np.array([[0, 3], [2, 3]]),),
    "pair": PAIR,
    "probabilities": PROBS,
    "logs": (np.log(PROBS[0]), PROBS[1]),
    "weighted": (*PAIR, np.abs(fill((3,), 9))),
    "signs": (PAIR[0], np.sign(fill((3, 4), 7))),
    "bits": (PAIR[0], np.maximum(np.sign(fill((3, 4), 7)), 0)),
    "ranks": (*PAIR, np.sign(fill((3, 4), 7))),
    "angles": (*PAIR, np.sign(fill((3,), 7))),
    "three": (*PAIR, fill((3, 4), 9)),
    "spread": (*PAIR, np.abs(fill((3, 4), 8)) + 0.1),
    "counts": (PAIR[0], np.round(np.abs(fill((3, 4), 6)) * 2)),
    "labels": (fill((2, 4, 3), 3), np.array([[0, 3, 1], [2, 3, 3]])),
    "paths": (
        special.log_softmax(fill((5, 2, 4), 4), 2),
        np.array([[1, 2], [3, 0]]),
        np.array([5, 4]),
        np.array([2, 1]),
    ),
    "attention": (fill((2, 3, 4), 1), fill((2, 5, 4), 2), fill((2, 5, 4), 3)),
}

ENCODES = partial(nn.TransformerEncoderLayer, 4, 2, 5, dropout=0.0)
DECODES = partial(nn.TransformerDecoderLayer, 4, 2, 5, dropout=0.0)
GOLDEN = {
    "nn.ReLU()": ("rows", 45.9398382, -8.77722803, 0),
    "nn.ReLU6()": ("rows", 40.0659507, -1.0726517, 0),
    "nn.LeakyReLU(0.2)": ("rows", 54.7100603, -10.650984, 0),
    "nn.ELU(0.7)": ("rows", 50.6441954, -9.03629656, 0),
    "nn.CELU(0.7)": ("rows", 50.7006493, -9.04563861, 0),
    "nn.SELU()": ("rows", 60.0843582, -9.87291104, 0),
    "nn.GELU()": ("rows", 46.0091006, -8.87956773, 0),
    "nn.GELU('tanh')": ("rows", 46.0096933, -8.88017805, 0),
    "nn.SiLU()": ("rows", 45.843523, -8.97594394, 0),
    "nn.Mish()": ("rows", 46.144045, -8.86071838, 0),
    "nn.Sigmoid()": ("rows", 7.37988803, -0.269960436, 0),
    "nn.LogSigmoid()": ("rows", 43.9809549, -9.2283607, 0),
    "nn.HardSigmoid()": ("rows", 7.41344264, -0.366383097, 0),
    "nn.HardSwish()": ("rows", 45.9174167, -9.5747075, 0),
    "nn.Tanh()": ("rows", 14.4444789, -0.477528105, 0),
    "nn.HardTanh(-0.5, 1.5)": ("rows", 15.0030116, 0, 0),
    "nn.Softplus()": ("rows", 45.8099941, -8.91764702, 0),
    "nn.Softsign()": ("rows", 12.285527, -0.636198108, 0),
    "nn.Softmax()": ("rows", 5.14206599, -0.296916103, 0),
    "nn.Softmax(axis=1)": ("images", 22.0274932, -16.5047081, 0),
    "nn.LogSoftmax()": ("rows", 84.476878, -17.3148584, 0),
    "nn.PReLU()": ("rows", 12.5260115, -1.63837171, -66.4241486),
    "nn.PReLU(4)": ("images", 64.3386174, -82.5512813, -7.07164425),
    "nn.Identity()": ("rows", 89.790949, -18.1460077, 0),
    "nn.Flatten()": ("images", 126.772713, -161.005403, 0),
    "nn.Dense(4, 3)": ("times", 20.7736159, 12.7275376, 5.72565854),
    "nn.Embedding(4, 3)": ("numbers", -2.67972413, 0, 8.99330489),
    "nn.Conv2d(4, 6, (2, 3), stride=(2, 1), padding=1, groups=2)": (
        "images", -9.51196935, 6.65369916, 12.8355961
    ),
    "nn.MaxPool2d(2)": ("images", 4.65558066, -2.63434405, 0),
    "nn.AvgPool2d(2, stride=1)": ("images", -0.049637921, 0.0570043849, 0),
    "nn.BatchNorm1d(4)": ("lines", -1.62643853, 1.4482494, 7.01076564),
    "nn.BatchNorm2d(4)": ("images", -10.0956728, 1.19839866, -14.0678675),
    "nn.BatchNorm3d(4)": ("volumes", -10.0956728, 1.19839866, -14.0678675),
    "nn.WeightNorm(nn.Dense(4, 3))": ("rows", -57.361695, 13.0775503, -40.0373128),
    "nn.RNNCell(4, 3)": ("rows", -2.23795564, 1.12584311, -11.4857525),
    "nn.LSTMCell(4, 3)": ("rows", 0.75433734, 1.38279178, -17.0738356),
    "nn.GRUCell(4, 3)": ("rows", 1.6943709, 2.11228799, -25.8128002),
    "nn.TransformerEncoder([ENCODES(), ENCODES()], nn.LayerNorm(4))": (
        "times", 6.13563918, 0.0109253638, -17.2316375
    ),
    "nn.TransformerDecoder([DECODES(), DECODES()])": (
        "memory", 11.0365454, 0.00109585707, -11.5807442
    ),
    "nn.LayerNorm((4, 3))": ("images", -2.18420018, -0.96149646, -6.0953278),
    "nn.GroupNorm(2, 4)": ("images", -9.94201133, 0.997839542, -14.4185959),
    "nn.RMSNorm(3)": ("images", 18.0657819, -6.12047975, -30.2982411),
    "nn.InstanceNorm1d(4)": ("lines", -8.89268112, -29.820748, 0),
    "nn.InstanceNorm2d(4, affine=True)": ("images", -10.0955926, 1.19838518, -14.0679241),
    "nn.InstanceNorm3d(4, affine=True)": ("volumes", -10.0955926, 1.19838518, -14.0679241),
    "nn.RNN(4, 3)": ("times", -3.77989532, 6.78483432, 34.6974996),
    "nn.LSTM(4, 3, 2, bidirectional=True)": ("times", -0.304936437, 0.18789047, -1.15345591),
    "nn.GRU(4, 3)": ("times", 8.47211388, -6.63883976, -27.5788889),
    "nn.MultiHeadAttention(4, 2)": ("attention", 1.61954631, 8.43956527, 8.14296847),
    "nn.TransformerEncoderLayer(4, 2, 5, dropout=0.0)": (
        "times", 17.299314, -2.63223394, 0.589449027
    ),
    "nn.MSELoss()": ("pair", 6.06726559, -6.35042667, 0),
    "nn.MSELoss('sum')": ("pair", 72.8071871, -76.20512, 0),
    "nn.L1Loss('none')": ("pair", -0.372550121, 0.726751977, 0),
    "nn.HuberLoss('mean', 0.8)": ("pair", 1.44362375, -0.900432952, 0),
    "nn.BCELoss()": ("probabilities", 0.686891581, -4.15540328, 0),
    "nn.BCEWithLogitsLoss('sum')": ("logs", 7.51244064, -3.25452189, 0),
    "nn.KLDivLoss('sum')": ("logs", 2.50700338, -1.65168513, 0),
    "nn.HingeLoss()": ("signs", 0.189689049, -0.107082354, 0),
    "nn.CosineSimilarity()": ("pair", 0.817485113, -0.895624373, 0),
    "nn.CrossEntropyLoss([1, 2, 3, 0.5], label_smoothing=0.1)": (
        "labels", 2.51825337, -0.529109343, 0
    ),
    "nn.NLLLoss(ignore_index=3)": ("labels", 0.722645052, -0.247264814, 0),
    "nn.SmoothL1Loss('mean', 0.8)": ("pair", 1.80452968, -1.12554119, 0),
    "nn.FocalLoss('sum', 1.5, 0.25)": ("bits", 0.278098233, -0.120777099, 0),
    "nn.GaussianNLLLoss('sum', True)": ("spread", 36.6640126, -22.8798119, 0),
    "nn.PoissonNLLLoss(full=True)": ("counts", 3.51450608, -2.1166243, 0),
    "nn.TripletMarginLoss(margin=2.0, swap=True)": ("three", 2.50906738, -2.34082688, 0),
    "nn.CosineEmbeddingLoss('sum', -0.5)": ("angles", 1.63016849, -0.482678721, 0),
    "nn.MarginRankingLoss('mean', 0.5)": ("ranks", 0.341552289, -0.252417497, 0),
    "nn.BCEWithLogitsLoss('mean', [1, 2, 3, 4], [0.5])": ("bits", 0.452689166, 0.12457429, 0),
    "nn.SampleWeighted(nn.MSELoss('none'))": ("weighted", 6.16594484, -6.46444394, 0),
    "nn.CTCLoss()": ("paths", 2.15242979, -3.85725111, 0),
}  # fmt: skip
# In training they draw; in evaluation they are the identity.
DROPPING = {"Dropout", "Dropout1d", "Dropout2d", "Dropout3d"}
BASES = {*"Activation BatchNorm ChannelDropout ClassLoss FunctionCell InstanceNorm Loss".split()}


def turned(layer):
    """The names of the weights that are transposed in PyTorch."""
    cells = dict(layer._walk("", set()))
    return {f"{prefix}weight" for prefix, cell in cells.items() if isinstance(cell, nn.Dense)}


def product(out):
    out = out[0] if isinstance(out, tuple) else out
    return ops.sum(out * fill(out.shape, 20)) if out.ndim else out


@pytest.mark.parametrize("text", GOLDEN)
def test_output_and_gradients(text):
    key, value, slope, slopes = GOLDEN[text]
    layer, (x, *others) = eval(text).to(ml.float64), INPUTS[key]
    named = sorted((n, p) for n, p in layer.named_parameters() if p.requires_grad)
    turns = turned(layer)
    shapes = {n: p.shape[::-1] if n in turns else p.shape for n, p in named}
    given = {n: fill(shape, 10 + k) * 0.5 for k, (n, shape) in enumerate(shapes.items())}
    kept = {n: a for n, a in layer.state_dict().items() if n not in shapes}
    nn.load_torch_state(layer, given | kept)

    def loss(x):
        return product(layer(x, *others))

    np.testing.assert_allclose(float(loss(x)), value, 1e-7)
    if x.dtype == np.float64:
        found = (grad(loss)(x).asnumpy() * fill(x.shape, 30)).sum()
        np.testing.assert_allclose(found, slope, 1e-6, 1e-8)
    if not named:
        return
    found = grad(loss, argnums=None, weights=[p for _, p in named])(x)
    arrays = [g.asnumpy().T if n in turns else g.asnumpy() for (n, _), g in zip(named, found)]
    total = sum((a * fill(a.shape, 40 + k)).sum() for k, a in enumerate(arrays))
    np.testing.assert_allclose(total, slopes, 1e-6)


@pytest.mark.parametrize("module", [layer, loss, norm])
def test_no_layer_is_left_out(module):
    cells = {
        name
        for name, value in vars(module).items()
        if inspect.isclass(value) and value.__module__ == module.__name__
    }
    tested = {text.partition("(")[0].removeprefix("nn.") for text in GOLDEN}
    assert cells - DROPPING - BASES <= tested
