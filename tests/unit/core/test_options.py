"""Options: a wrong type is a TypeError, a value out of range a ValueError, both of one wording."""

from __future__ import annotations

import re
from functools import partial
from typing import NamedTuple

import numpy as np
import pytest

import miniml as ml
from miniml import data, nn, ops, optim, train
from miniml.core import options
from miniml.errors import AttributeRefusedError, MinimlError, ValueRefusedError


class Kind(NamedTuple):
    """Values of a wrong type, and values out of range, of an option."""

    wrong: tuple
    out: tuple


NOT_INTS = ("a", 1.5, True, np.True_, np.float64(2), [2, 2, 2, 2], None)
NOT_NUMBERS = ("a", True, np.True_, 1j, [0.5], np.ones(2), None)
BEYOND = (np.nan, np.inf, -np.inf, 10**400)

INT = Kind(NOT_INTS, (2**70,))
POSITIVE = Kind(NOT_INTS, (0, -1, np.int64(0), 2**70))
FROM_0 = Kind(NOT_INTS, (-1, np.int8(-1)))
SIZE = Kind(NOT_INTS, (0, 9))
LENGTHS = Kind(("a", 1.5, True, (1.5, 2), None), (0, (1, 2, 3), (0, 1), 2**70))
NUMBER = Kind(NOT_NUMBERS, BEYOND)
EACH = Kind(("a", True, 1j, ["b"], None), BEYOND)
NOT_BELOW_0 = Kind(NOT_NUMBERS, (*BEYOND, -1, np.float32(-0.1)))
NOT_BELOW_1 = Kind(NOT_NUMBERS, (*BEYOND, 0.9, np.float32(0)))
ABOVE_0 = Kind(NOT_NUMBERS, (*BEYOND, 0, -1))
PROBABILITY = Kind(NOT_NUMBERS, (*BEYOND, 1.1, -0.1))
SHARE = Kind(NOT_NUMBERS, (*BEYOND, 1, 0))
BELOW_1 = Kind(NOT_NUMBERS, (*BEYOND, 1.0, -0.1))
FLAG = Kind((1, 0.0, "no", np.ones(2, bool), None), ())
WORD = Kind((1, None, True, ["mean"]), ("x", ""))

X, IMAGES, TAPS = np.ones((4, 3), np.float32), np.ones((2, 4, 6, 6)), np.ones((4, 4, 3, 3))
LABELS = np.zeros(4, int)
ONE = (ml.Parameter(np.zeros(2, np.float32), name="w"),)


def optimizer(kind):
    return partial(kind, ONE)


def accumulate(**given):
    return optim.Accumulate(optim.SGD(ONE, lr=0.1), **given)


def ema(**given):
    return optim.EMA(optim.SGD(ONE, lr=0.1), **given)


def fit(**given):
    net = nn.Dense(3, 2)
    model = train.Model(net, nn.MSELoss(), optim.SGD(net.trainable_params(), lr=0.1))
    return model.fit([(X, X[:, :2])], show=False, **{"epochs": 1, **given})


CONV = {"in_channels": 4, "out_channels": 4, "kernel_size": 3}
CONV_KINDS = {
    "in_channels": POSITIVE, "groups": POSITIVE, "kernel_size": LENGTHS, "stride": LENGTHS,
    "bias": FLAG,
}  # fmt: skip
ADAM = {"lr": NOT_BELOW_0, "eps": NOT_BELOW_0, "weight_decay": NOT_BELOW_0}

# Of each call: the arguments that it needs, and the kinds of its options.
CALLS = {
    "Dense": (nn.Dense, {"in_features": 3, "out_features": 2},
              {"in_features": POSITIVE, "out_features": POSITIVE, "bias": FLAG}),
    "Embedding": (nn.Embedding, {"count": 3, "features": 2},
                  {"count": POSITIVE, "features": POSITIVE}),
    "Conv2d": (nn.Conv2d, CONV, CONV_KINDS),
    "ConvTranspose2d": (nn.ConvTranspose2d, CONV, CONV_KINDS),
    "MaxPool2d": (nn.MaxPool2d, {"kernel_size": 2}, {"kernel_size": LENGTHS, "ceil_mode": FLAG}),
    "Upsample": (nn.Upsample, {"size": 2}, {"mode": WORD, "align_corners": FLAG}),
    "BatchNorm": (nn.BatchNorm1d, {"num_features": 3},
                  {"num_features": POSITIVE, "eps": NOT_BELOW_0, "momentum": PROBABILITY}),
    "GroupNorm": (nn.GroupNorm, {"num_groups": 1, "num_channels": 4},
                  {"num_groups": POSITIVE, "num_channels": POSITIVE, "eps": NOT_BELOW_0}),
    "InstanceNorm": (nn.InstanceNorm2d, {"num_features": 3},
                     {"num_features": POSITIVE, "affine": FLAG}),
    "LayerNorm": (nn.LayerNorm, {"shape": 3}, {"eps": NOT_BELOW_0, "bias": FLAG}),
    "Dropout": (nn.Dropout, {}, {"p": BELOW_1}),
    "LSTM": (nn.LSTM, {"n_in": 3, "n": 2},
             {"n_in": POSITIVE, "n": POSITIVE, "num_layers": POSITIVE, "dropout": PROBABILITY,
              "bidirectional": FLAG, "batch_first": FLAG}),
    "MultiHeadAttention": (nn.MultiHeadAttention, {"d": 4, "heads": 2},
                           {"d": POSITIVE, "heads": POSITIVE}),
    "SinusoidalPositions": (nn.SinusoidalPositions, {"d": 4}, {"d": POSITIVE, "base": NOT_BELOW_1}),
    "LearnedPositions": (nn.LearnedPositions, {"length": 3, "d": 4},
                         {"length": POSITIVE, "d": POSITIVE}),
    "RotaryPositions": (nn.RotaryPositions, {"d": 4}, {"d": POSITIVE, "interleaved": FLAG}),
    "PReLU": (nn.PReLU, {}, {"num_parameters": POSITIVE, "slope": NUMBER}),
    "ELU": (nn.ELU, {}, {"alpha": NUMBER}),
    "Flatten": (nn.Flatten, {}, {"start_dim": INT, "end_dim": INT}),
    "CrossEntropyLoss": (nn.CrossEntropyLoss, {}, {"label_smoothing": PROBABILITY,
                                                   "ignore_index": INT, "reduction": WORD}),
    "conv2d": (partial(ops.conv2d, IMAGES, TAPS), {},
               {"stride": LENGTHS, "dilation": LENGTHS, "groups": INT}),
    "dropout": (partial(ops.dropout, X), {}, {"p": PROBABILITY}),
    "huber_loss": (partial(ops.huber_loss, X, X), {}, {"delta": ABOVE_0, "reduction": WORD}),
    "focal_loss": (partial(ops.focal_loss, X, X), {}, {"gamma": NOT_BELOW_0, "reduction": WORD}),
    "smooth_l1_loss": (partial(ops.smooth_l1_loss, X, X), {}, {"beta": NOT_BELOW_0}),
    "triplet_margin_loss": (partial(ops.triplet_margin_loss, X, X, X), {},
                            {"margin": ABOVE_0, "p": NOT_BELOW_1, "swap": FLAG}),
    "gaussian_nll_loss": (partial(ops.gaussian_nll_loss, X, X, X), {},
                          {"eps": ABOVE_0, "full": FLAG}),
    "poisson_nll_loss": (partial(ops.poisson_nll_loss, X, X), {},
                         {"log_input": FLAG, "full": FLAG, "eps": NOT_BELOW_0}),
    "grid_sample": (partial(ops.grid_sample, IMAGES, np.zeros((IMAGES.shape[0], 1, 2))), {},
                    {"mode": WORD, "padding_mode": WORD, "align_corners": FLAG}),
    "pixel_shuffle": (partial(ops.pixel_shuffle, IMAGES), {"upscale_factor": 1},
                      {"upscale_factor": POSITIVE}),
    "depth_to_space": (partial(ops.depth_to_space, IMAGES), {"block_size": 1},
                       {"block_size": POSITIVE, "mode": WORD}),
    "EmbeddingBag": (nn.EmbeddingBag, {"count": 3, "features": 2},
                     {"count": POSITIVE, "features": POSITIVE, "mode": WORD}),
    "attention": (partial(ops.scaled_dot_product_attention, X, X, X), {},
                  {"dropout": PROBABILITY, "is_causal": FLAG, "scale": NUMBER}),
    "tril": (partial(ops.tril, X), {}, {"k": INT}),
    "median": (partial(ops.median, X), {}, {"keepdims": FLAG}),
    "cholesky": (partial(ops.cholesky, np.eye(2)), {}, {"upper": FLAG}),
    "rotary_embedding": (partial(ops.rotary_embedding, IMAGES), {}, {"interleaved": FLAG}),
    "scan": (partial(ops.scan, lambda carry, x: (carry, x), 0.0, X), {}, {"reverse": FLAG}),
    "ctc_loss": (partial(ops.ctc_loss, np.zeros((3, 1, 2)), [[1]], [3], [1]), {},
                 {"zero_infinity": FLAG, "reduction": WORD}),
    "cross_entropy": (partial(ops.cross_entropy, X, LABELS), {}, {"label_smoothing": PROBABILITY}),
    "SGD": (optimizer(optim.SGD), {"lr": 0.1},
            {"lr": NOT_BELOW_0, "momentum": BELOW_1, "weight_decay": NOT_BELOW_0,
             "nesterov": FLAG}),
    "AdamW": (optimizer(optim.AdamW), {}, ADAM),
    "RMSprop": (optimizer(optim.RMSprop), {}, {**ADAM, "alpha": BELOW_1, "centered": FLAG}),
    "Adagrad": (optimizer(optim.Adagrad), {}, {**ADAM, "initial": NOT_BELOW_0}),
    "LBFGS": (optimizer(optim.LBFGS), {}, {"history": POSITIVE}),
    "Accumulate": (accumulate, {"every": 2}, {"every": POSITIVE, "clip": ABOVE_0}),
    "EMA": (ema, {}, {"decay": BELOW_1}),
    "LossScale": (optim.LossScale, {},
                  {"scale": NOT_BELOW_1, "dynamic": FLAG, "every": POSITIVE, "factor": SHARE}),
    "clip_by_value": (optim.clip_by_value, {"grads": [], "clip": 1.0}, {"clip": ABOVE_0}),
    "cosine": (optim.cosine, {"lr": 0.1, "steps": 9},
               {"lr": NOT_BELOW_0, "steps": POSITIVE, "end": NOT_BELOW_0}),
    "warmup": (optim.warmup, {"steps": 9, "then": 0.1}, {"steps": POSITIVE, "then": NOT_BELOW_0}),
    "one_cycle": (optim.one_cycle, {"lr": 0.1, "steps": 9},
                  {"steps": POSITIVE, "pct_start": BELOW_1, "div_factor": ABOVE_0}),
    "OnPlateau": (optim.OnPlateau, {"lr": 0.1},
                  {"lr": NOT_BELOW_0, "factor": BELOW_1, "patience": FROM_0, "low": NOT_BELOW_0}),
    "DataLoader": (partial(data.DataLoader, X), {"size": 2},
                   {"size": SIZE, "seed": FROM_0, "prefetch": FROM_0, "drop_last": FLAG}),
    "normalize": (data.normalize, {"mean": 0.0, "std": 1.0},
                  {"mean": EACH, "std": EACH._replace(out=(*BEYOND, 0, [1.0, -1.0]))}),
    "pad_images": (data.pad_images, {"width": 1}, {"width": FROM_0, "value": NUMBER}),
    "random_crop": (data.random_crop, {"size": 3}, {"size": LENGTHS, "padding": FROM_0}),
    "random_flip": (data.random_flip, {}, {"p": PROBABILITY}),
    "split": (data.split, {"rows": 9, "share": 0.5}, {"rows": FROM_0, "share": SHARE}),
    "stratified_split": (data.stratified_split, {"labels": LABELS, "share": 0.5},
                         {"share": SHARE}),
    "k_fold": (data.k_fold, {"rows": 8, "folds": 2}, {"rows": SIZE._replace(out=(1, -1)),
                                                      "folds": SIZE._replace(out=(1, 9))}),
    "next_tokens": (data.next_tokens, {"tokens": LABELS, "length": 2}, {"length": SIZE}),
    "pad_sequences": (data.pad_sequences, {"sequences": [[1]]}, {"length": FROM_0}),
    "EarlyStopping": (train.EarlyStopping, {}, {"patience": POSITIVE, "mode": WORD}),
    "LivePlot": (train.LivePlot, {}, {"seconds": NOT_BELOW_0}),
    "accuracy": (train.accuracy, {}, {"ignore_index": INT, "axis": INT}),
    "top_k": (train.top_k, {"k": 1}, {"k": POSITIVE, "ignore_index": INT, "axis": INT}),
    "perplexity": (train.perplexity, {}, {"ignore_index": INT, "axis": INT}),
    "f1": (train.f1, {"classes": 3}, {"classes": POSITIVE, "axis": INT}),
    "fit": (fit, {}, {"epochs": POSITIVE, "save_every": POSITIVE}),
}  # fmt: skip
NONE_IS_FINE = {"seed", "length", "ignore_index", "clip", "scale"}


def refused(error, call, given, name, value):
    with pytest.raises(error, match=re.escape(f" got {name}") + r".*=.*; expected ") as caught:
        call(**{**given, name: value})
    assert isinstance(caught.value, MinimlError)


@pytest.mark.parametrize("call", CALLS)
def test_what_makes_no_sense_is_refused_by_name_type_and_range(call):
    made, needed, kinds = CALLS[call]
    made(**needed)
    for name, kind in kinds.items():
        for value in kind.wrong:
            if value is not None or name not in NONE_IS_FINE:
                refused(AttributeRefusedError, made, needed, name, value)
        for value in kind.out:
            refused(ValueRefusedError, made, needed, name, value)


@pytest.mark.parametrize(
    ("check", "value", "expected"),
    [
        (options.count, 0, "an int >= 1"),
        (partial(options.count, least=0), "a", "an int >= 0"),
        (options.integer, 1.0, "an int"),
        (options.integer, 2**63, "an int of 64 bits"),
        (options.count, 2**63, "an int of 64 bits >= 1"),
        (partial(options.integer, low=2, high=5), 6, "an int from 2 to 5"),
        (options.number, None, "a number"),
        (options.number, np.nan, "a finite number"),
        (partial(options.number, low=0, below=1), 1.5, "a number >= 0 and < 1"),
        (partial(options.number, above=0), 0, "a number > 0"),
        (options.probability, 2, "a number from 0 to 1"),
        (options.flag, 1, "True or False"),
        (partial(options.choice, known=("a", "b")), "c", "one of 'a', 'b'"),
        (partial(options.integers, n=2, low=1), (1, 0), "two ints >= 1"),
        (partial(options.integers, n=2, low=1), (1, 2**63), "two ints of 64 bits >= 1"),
    ],
)
def test_the_wording(check, value, expected):
    with pytest.raises(MinimlError) as caught:
        check("f", "x", value)
    assert str(caught.value) == f"f got x={value!r}; expected {expected}"


def test_numbers_of_numpy_become_those_of_python():
    bfloat16 = ml.bfloat16.type
    for value in (2, np.int8(2), np.uint64(2), np.int64(2)):
        assert type(options.count("f", "x", value)) is int
        assert type(options.integers("f", "x", (value,), 1, 0)[0]) is int
    for value in (2, np.int8(2), 0.5, np.float16(0.5), np.float64(0.5), bfloat16(0.5)):
        assert type(options.number("f", "x", value)) is float
    assert options.flag("f", "x", np.True_) is True
    assert nn.Dense(np.int64(3), np.int32(2)).describe() == nn.Dense(3, 2).describe()
    assert type(data.DataLoader(X, size=np.int64(2)).size) is int


def test_a_seed_may_have_any_number_of_digits():
    assert data.DataLoader(X, size=2, seed=2**200).seed == 2**200
    assert ml.Generator(2**70 + 3).state.tolist() == ml.Generator(3).state.tolist()
