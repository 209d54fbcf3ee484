"""Every layer and loss of `nn`, and networks of known kinds, as files: onnxruntime computes what
was computed here, for the extents of the example and for others, and so does what is read again."""

import numpy as np
import optree
import pytest

import miniml as ml
from miniml import nn, ops

onnx = pytest.importorskip("onnx", reason="no onnx")
ort = pytest.importorskip("onnxruntime", reason="no onnxruntime")
ort.set_default_logger_severity(4)

F = np.float32


def numbers(*shape, seed=0):
    return np.random.default_rng(seed).normal(size=shape).astype(F)


def classes(*shape, count=3):
    return np.random.default_rng(1).integers(count, size=shape)


LINE, IMAGE, CUBE = numbers(2, 4, 9), numbers(2, 4, 8, 8), numbers(1, 4, 6, 6, 6)
ROWS, STEPS, TEXT = numbers(5, 4), numbers(6, 2, 4), numbers(2, 6, 8)
PAIR = numbers(5, 4), numbers(5, 4, seed=1)
SIGNS = np.where(numbers(5) > 0, 1.0, -1.0).astype(F)
UNIT = (np.random.default_rng(2).random((5, 4)) * 0.9 + 0.05).astype(F)
BY_RANK = {"1d": LINE, "2d": IMAGE, "3d": CUBE}


def each(name, *args, **named):
    """A layer for 1, 2 and 3 axes behind the channels."""
    return {
        f"{name}{rank}": (lambda n=f"{name}{rank}": getattr(nn, n)(*args, **named), (x,))
        for rank, x in BY_RANK.items()
        if hasattr(nn, f"{name}{rank}")
    }


CASES = {
    **{
        name: (getattr(nn, name), (ROWS,))
        for name in """CELU ELU GELU HardSigmoid HardSwish HardTanh Identity LeakyReLU LogSigmoid
        LogSoftmax Mish PReLU ReLU ReLU6 SELU SiLU Sigmoid Softmax Softplus Softsign Tanh
        Dropout""".split()
    },
    **each("AdaptiveAvgPool", 3), **each("AdaptiveMaxPool", 3), **each("AvgPool", 2),
    **each("MaxPool", 3, stride=2, padding=1), **each("LPPool", 2.0, 2), **each("Dropout", 0.3),
    **each("Conv", 4, 6, 3, stride=2, padding=1, groups=2), **each("BatchNorm", 4),
    **each("ConvTranspose", 4, 6, 3, stride=2, padding=1, output_padding=1),
    **each("InstanceNorm", 4, affine=True),
    "Conv2d wrap": (lambda: nn.Conv2d(4, 3, 3, padding=1, padding_mode="wrap"), (IMAGE,)),
    "Conv2d reflect": (lambda: nn.Conv2d(4, 3, 3, padding=1, padding_mode="reflect"), (IMAGE,)),
    "AvgPool2d ceil": (lambda: nn.AvgPool2d(3, 2, 1, True, False), (IMAGE,)),
    "GlobalAvgPool": (nn.GlobalAvgPool, (IMAGE,)),
    "GlobalMaxPool": (nn.GlobalMaxPool, (IMAGE,)),
    "GroupNorm": (lambda: nn.GroupNorm(2, 4), (IMAGE,)),
    "LayerNorm": (lambda: nn.LayerNorm(4), (ROWS,)),
    "RMSNorm": (lambda: nn.RMSNorm(4), (ROWS,)),
    "Upsample": (lambda: nn.Upsample(scale_factor=2), (IMAGE,)),
    "Upsample linear": (lambda: nn.Upsample((5, 11), mode="linear"), (IMAGE,)),
    "PixelShuffle": (lambda: nn.PixelShuffle(2), (IMAGE,)),
    "PixelUnshuffle": (lambda: nn.PixelUnshuffle(2), (IMAGE,)),
    "Flatten": (nn.Flatten, (IMAGE,)),
    "Dense": (lambda: nn.Dense(4, 3), (ROWS,)),
    "Dense without": (lambda: nn.Dense(4, 3, bias=False), (STEPS,)),
    "Embedding": (lambda: nn.Embedding(7, 4), (classes(2, 5, count=7),)),
    "EmbeddingBag": (lambda: nn.EmbeddingBag(7, 4), (classes(2, 5, count=7),)),
    **{
        f"{name}{suffix}": (
            lambda n=name, o=options: getattr(nn, n)(4, 3, **o), (STEPS,),
        )
        for name in ("LSTM", "GRU", "RNN")
        for suffix, options in {
            "": {}, " deep": {"num_layers": 2, "bidirectional": True},
            " batches": {"batch_first": True, "bias": False},
        }.items()
    },
    "MultiHeadAttention": (lambda: nn.MultiHeadAttention(8, 2), (TEXT, TEXT, TEXT)),
    "MultiHeadAttention rotary": (
        lambda: nn.MultiHeadAttention(8, 2, rotary=nn.RotaryPositions(4)), (TEXT, TEXT, TEXT),
    ),
    "TransformerEncoderLayer": (lambda: nn.TransformerEncoderLayer(8, 2, 16), (TEXT,)),
    "TransformerEncoderLayer first": (
        lambda: nn.TransformerEncoderLayer(8, 2, 16, norm_first=True, activation="gelu"), (TEXT,),
    ),
    "TransformerDecoderLayer": (
        lambda: nn.TransformerDecoderLayer(8, 2, 16), (TEXT, numbers(2, 3, 8, seed=3)),
    ),
    "TransformerEncoder": (
        lambda: nn.TransformerEncoder([nn.TransformerEncoderLayer(8, 2, 16)], nn.LayerNorm(8)),
        (TEXT,),
    ),
    "TransformerDecoder": (
        lambda: nn.TransformerDecoder([nn.TransformerDecoderLayer(8, 2, 16)]),
        (TEXT, numbers(2, 3, 8, seed=3)),
    ),
    "WeightNorm": (lambda: nn.WeightNorm(nn.Dense(4, 3)), (ROWS,)),
    "SpectralNorm": (lambda: nn.SpectralNorm(nn.Dense(4, 3)), (ROWS,)),
    "SampleWeighted": (
        lambda: nn.SampleWeighted(nn.CrossEntropyLoss(reduction="none")),
        (ROWS, classes(5), UNIT[:, 0]),
    ),
    **{
        name: (lambda n=name: getattr(nn, n)(4, 3), (ROWS,))
        for name in ("RNNCell", "LSTMCell", "GRUCell")
    },
    "SinusoidalPositions": (lambda: nn.SinusoidalPositions(8), (TEXT,)),
    "LearnedPositions": (lambda: nn.LearnedPositions(10, 8), (TEXT,)),
    "RotaryPositions": (lambda: nn.RotaryPositions(8), (TEXT,)),
    "Sequential": (lambda: nn.Sequential(nn.Dense(4, 3), nn.Tanh()), (ROWS,)),
    **{
        name: (getattr(nn, name), PAIR)
        for name in """CosineSimilarity HingeLoss HuberLoss KLDivLoss L1Loss MSELoss PoissonNLLLoss
        SmoothL1Loss""".split()
    },
    "BCELoss": (nn.BCELoss, (UNIT, np.round(UNIT))),
    "BCEWithLogitsLoss": (nn.BCEWithLogitsLoss, (ROWS, np.round(UNIT))),
    "FocalLoss": (nn.FocalLoss, (ROWS, np.round(UNIT))),
    "CrossEntropyLoss": (nn.CrossEntropyLoss, (ROWS, classes(5))),
    "CrossEntropyLoss smooth": (lambda: nn.CrossEntropyLoss(label_smoothing=0.1, ignore_index=1),
                                (ROWS, classes(5))),
    "NLLLoss": (nn.NLLLoss, (ROWS, classes(5))),
    "GaussianNLLLoss": (nn.GaussianNLLLoss, (*PAIR, UNIT)),
    "TripletMarginLoss": (nn.TripletMarginLoss, (*PAIR, UNIT)),
    "CosineEmbeddingLoss": (nn.CosineEmbeddingLoss, (*PAIR, SIGNS)),
    "MarginRankingLoss": (nn.MarginRankingLoss, (*(p[:, 0] for p in PAIR), SIGNS)),
    "CTCLoss": (
        nn.CTCLoss,
        (np.log(np.full((6, 2, 4), 0.25, F)), np.array([[1, 2], [3, 1]]), np.array([6, 5]),
         np.array([2, 1])),
    ),
}  # fmt: skip
WITHOUT = {"Cell", "CellDict", "CellList", "ParameterList"}  # they compute nothing


def test_every_layer_has_a_case():
    layers = {n for n in nn.__all__ if isinstance(getattr(nn, n), type)}
    layers = {n for n in layers if issubclass(getattr(nn, n), nn.Cell)}
    assert layers - WITHOUT == {name.partition(" ")[0] for name in CASES}


def leaves(out):
    return [np.asarray(leaf) for leaf in optree.tree_leaves(out)]


def same(got, want, tolerance):
    for a, b in zip(got, want, strict=True):
        assert (a.shape, a.dtype) == (b.shape, b.dtype)
        np.testing.assert_allclose(a, b, tolerance, tolerance)


def holds(net, path, arrays, others=(), dynamic=None, tolerance=1e-5):
    """The file is whole, and says what the network says."""
    net.set_train(False)
    ml.onnx.save(net, path, *arrays, dynamic=dynamic)
    onnx.checker.check_model(path, full_check=True)
    session = ort.InferenceSession(path)
    for given in (arrays, *others):
        # A function of constants alone may leave inputs out.
        named = dict(zip([i.name for i in session.get_inputs()], given, strict=True))
        same(session.run(None, named), leaves(net(*given)), tolerance)
    sizes = {} if dynamic is None else {"dims": {"n": len(arrays[0])}}
    again = ml.onnx.load(path, train_constants=False, **sizes)
    same(leaves(again(*arrays)), leaves(net(*arrays)), tolerance)
    learned = {name for name, p in net.parameters_dict().items() if p.requires_grad}
    assert {p.name for p in again.trainable_params()} == learned


@pytest.mark.parametrize("name", CASES)
def test_a_layer(name, tmp_path):
    made, arrays = CASES[name]
    ml.manual_seed(0)
    holds(made(), str(tmp_path / "layer.onnx"), arrays, tolerance=1e-4)


# --- Networks -------------------------------------------------------------------------------------


class Block(nn.Cell):
    """Two convolutions and a way around them, with one of its own where extents change."""

    def __init__(self, n, m, stride):
        self.first, self.norm = nn.Conv2d(n, m, 3, stride, 1, bias=False), nn.BatchNorm2d(m)
        self.second, self.last = nn.Conv2d(m, m, 3, 1, 1, bias=False), nn.BatchNorm2d(m)
        self.around = nn.Identity() if n == m else nn.Conv2d(n, m, 1, stride)

    def construct(self, x):
        h = ops.relu(self.norm(self.first(x)))
        return ops.relu(self.last(self.second(h)) + self.around(x))


def resnet():
    return nn.Sequential(nn.Conv2d(3, 4, 3, padding=1), Block(4, 4, 1), Block(4, 8, 2),
                         nn.GlobalAvgPool(), nn.Dense(8, 3))  # fmt: skip


def mobilenet():
    def part(n, m, stride):
        return [nn.Conv2d(n, n, 3, stride, 1, groups=n), nn.BatchNorm2d(n), nn.ReLU6(),
                nn.Conv2d(n, m, 1), nn.BatchNorm2d(m)]  # fmt: skip

    return nn.Sequential(nn.Conv2d(3, 4, 3, 2, 1), *part(4, 8, 1), *part(8, 8, 2),
                         nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Dense(8, 3))  # fmt: skip


class UNet(nn.Cell):
    def __init__(self):
        self.down, self.deep = nn.Conv2d(3, 4, 3, padding=1), nn.Conv2d(4, 8, 3, padding=1)
        self.up, self.out = nn.ConvTranspose2d(8, 4, 2, stride=2), nn.Conv2d(8, 2, 3, padding=1)
        self.pool = nn.MaxPool2d(2)

    def construct(self, x):
        side = ops.relu(self.down(x))
        deep = ops.relu(self.deep(self.pool(side)))
        return self.out(ops.concat([side, self.up(deep)], 1))


class Tagger(nn.Cell):
    """Words, an LSTM or a GRU, and scores for the last one."""

    def __init__(self, kind):
        self.words, self.net = nn.Embedding(11, 4), kind(4, 5, batch_first=True)
        self.out = nn.Dense(5, 3)

    def construct(self, words):
        return self.out(self.net(self.words(words))[0][:, -1])


class Decoder(nn.Cell):
    """A small language model: causal attention over positions that are learned."""

    def __init__(self):
        self.words, self.places = nn.Embedding(11, 8), nn.LearnedPositions(12, 8)
        self.layer, self.out = nn.TransformerEncoderLayer(8, 2, 16), nn.Dense(8, 11)

    def construct(self, words):
        return self.out(self.layer(self.places(self.words(words)), is_causal=True))


class Translator(nn.Cell):
    """An encoder and a decoder."""

    def __init__(self):
        self.encoder = nn.Sequential(
            nn.SinusoidalPositions(8), nn.TransformerEncoderLayer(8, 2, 16)
        )
        self.decoder = nn.TransformerDecoderLayer(8, 2, 16)

    def construct(self, x, y):
        return self.decoder(y, self.encoder(x), is_causal=True)


NETWORKS = {
    "resnet": (resnet, (2, 3, 16, 16)),
    "mobilenet": (mobilenet, (2, 3, 16, 16)),
    "unet": (UNet, (2, 3, 16, 16)),
    "lstm": (lambda: Tagger(nn.LSTM), (2, 6)),
    "gru": (lambda: Tagger(nn.GRU), (2, 6)),
    "decoder": (Decoder, (2, 6)),
    "translator": (Translator, (2, 6, 8)),
}


@pytest.mark.parametrize("name", NETWORKS)
def test_a_network_for_any_batch(name, tmp_path):
    made, shape = NETWORKS[name]
    ml.manual_seed(0)
    net = made()
    count = 2 if name == "translator" else 1

    def arrays(n):
        if len(shape) == 2:
            return (classes(n, *shape[1:], count=11),)
        return tuple(numbers(n, *shape[1:], seed=i) for i in range(count))

    names = "xy" if count == 2 else ("words" if len(shape) == 2 else "x",)
    holds(
        net, str(tmp_path / "net.onnx"), arrays(2), [arrays(1), arrays(5)],
        {n: {0: "n"} for n in names}, 1e-4,
    )  # fmt: skip
