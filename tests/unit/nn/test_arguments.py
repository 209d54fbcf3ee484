"""Constructors of cells: no argument vanishes, and those of PyTorch mean what they mean there."""

import inspect

import numpy as np
import pytest

import miniml as ml
from miniml import nn, ops
from miniml.errors import (
    ArityError,
    AttributeRefusedError,
    MinimlError,
    ShapeError,
    ValueRefusedError,
)
from miniml.grad import grad

X = np.ones((2, 3), np.float32)


class Plain(nn.Cell):
    """A user's cell without an __init__ of its own."""

    def construct(self, x):
        return x


class Below(Plain):
    """Its base takes nothing; it takes a factor."""

    def __init__(self, factor):
        self.factor = factor


LAYERS = [v for v in vars(nn).values() if isinstance(v, type) and issubclass(v, nn.Cell)]


@pytest.mark.parametrize("kind", [Plain, nn.ReLU, nn.Sigmoid, nn.Tanh, nn.Cell])
@pytest.mark.parametrize(
    ("args", "kwargs", "got"),
    [((X,), {}, r"ndarray float32\[2, 3\]"), ((1, "a"), {"foo": 4}, "1, 'a', foo=4")],
)
def test_a_cell_without_an_init_takes_no_arguments(kind, args, kwargs, got):
    name = kind.__name__
    with pytest.raises(
        ArityError, match=rf"^{name} takes no arguments; got {got}; .*{name}\(\)\(x"
    ):
        kind(*args, **kwargs)


@pytest.mark.parametrize("kind", LAYERS, ids=lambda k: k.__name__)
def test_no_layer_takes_an_argument_that_it_does_not_name(kind):
    with pytest.raises(TypeError):
        kind(no_such_argument=1)
    named = list(inspect.signature(kind).parameters.values())
    assert all(p.kind is not p.VAR_KEYWORD for p in named)


def test_the_signature_is_that_of_the_init():
    assert str(inspect.signature(Plain)) == "()"
    assert list(inspect.signature(Below).parameters) == ["factor"]
    assert list(inspect.signature(nn.Dense).parameters) == ["in_features", "out_features", "bias"]
    assert list(inspect.signature(nn.Dense(3, 2)).parameters) == ["args", "named"]
    assert Below(3).factor == 3
    with pytest.raises(TypeError):
        Below()


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: nn.CrossEntropyLoss(X, np.array([0, 1])), r"weight of float32\[2, 3\]; expected"),
        (lambda: nn.CrossEntropyLoss([1.0, np.nan]), "one finite number for each class"),
        (lambda: nn.CrossEntropyLoss(ignore_index=1.0), r"ignore_index=1\.0; expected an int"),
        (lambda: nn.CrossEntropyLoss(reduction="avg"), "reduction='avg'; expected one of 'mean'"),
        (lambda: nn.CrossEntropyLoss(label_smoothing=1.5), "label_smoothing=1.5; expected a"),
        (lambda: nn.MSELoss(X), "MSELoss got reduction=array.* one of 'mean', 'sum', 'none'"),
        (lambda: nn.GELU(X), "GELU got approximate=array.*; expected one of 'none', 'tanh'"),
        (lambda: nn.Flatten(X), "Flatten got start_dim=array.*; expected an int"),
        (lambda: nn.LeakyReLU(X), "LeakyReLU got slope=array.*; expected a number"),
        (lambda: nn.Dense(3, 2, "no"), "Dense got bias='no'; expected True or False"),
        (lambda: nn.Conv2d(3, 2, 3, bias=None), "Conv2d got bias=None"),
        (lambda: nn.Conv2d(3, 2, 3, stride=0), "Conv2d got stride"),
        (lambda: nn.Conv2d(3, 2, 3, padding=-1), "Conv2d got padding"),
        (lambda: nn.MaxPool2d(2, padding="same"), "MaxPool2d got padding"),
        (lambda: nn.AvgPool2d(2, stride="2"), "AvgPool2d got stride"),
        (lambda: nn.AvgPool2d(2, count_include_pad=0), "got count_include_pad=0"),
        (lambda: nn.BatchNorm2d(3, momentum=None), "BatchNorm2d got momentum=None"),
        (lambda: nn.BatchNorm2d(3, eps=-1e-5), "got eps=-1e-05; expected a number >= 0"),
        (lambda: nn.LayerNorm(3, eps="x"), "LayerNorm got eps='x'"),
        (lambda: nn.Dropout(X), "Dropout got p=array"),
        (lambda: nn.CellList(nn.ReLU()), "CellList got ReLU; expected a list of cells"),
        (lambda: nn.CellList([ops.relu]), "use a layer, such as nn.ReLU"),
        (lambda: (net := nn.Sequential()).append(nn.Sequential(net)), "cannot hold itself"),
    ],
)  # fmt: skip
def test_arguments_that_make_no_sense_are_refused_by_name(make, message):
    with pytest.raises(
        (AttributeRefusedError, ShapeError, ValueRefusedError), match=message
    ) as caught:
        make()
    assert isinstance(caught.value, MinimlError)


def expected_loss(logits, labels, weight, ignored, smoothing, reduction):
    """PyTorch's documented formulas, row by row in float64."""
    logits = logits.astype(np.float64)
    shifted = logits - logits.max(1, keepdims=True)
    log_p = shifted - np.log(np.exp(shifted).sum(1, keepdims=True))
    classes = logits.shape[1]
    w = np.ones(classes) if weight is None else np.asarray(weight, np.float64)
    losses, total = np.zeros(len(labels)), 0.0
    for n, y in enumerate(labels):
        if y == ignored:
            continue
        smooth = sum(w[c] * log_p[n, c] for c in range(classes))
        losses[n] = -(1 - smoothing) * w[y] * log_p[n, y] - smoothing / classes * smooth
        total += w[y]
    if reduction == "none":
        return losses
    return losses.sum() / total if reduction == "mean" else losses.sum()


rng = np.random.default_rng(7)
CASES = [
    (weight, ignored, smoothing, reduction)
    for weight in (None, (0.5, 2.0, 1.25, 0.25))
    for ignored in (None, 2, -100)
    for smoothing in (0.0, 0.3, 1.0)
    for reduction in ("mean", "sum", "none")
]


@pytest.mark.parametrize(("weight", "ignored", "smoothing", "reduction"), CASES)
def test_cross_entropy_has_pytorchs_numerics(weight, ignored, smoothing, reduction):
    logits = rng.normal(size=(6, 4)) * 3
    labels = np.array([0, 2, 3, 2, 1, 0])
    if ignored == -100:
        labels[[1, 4]] = -100
    loss = nn.CrossEntropyLoss(weight, ignored, reduction, smoothing)
    settings = (weight, ignored, smoothing, reduction)
    np.testing.assert_allclose(
        loss(logits, labels).asnumpy(), expected_loss(logits, labels, *settings), rtol=1e-12
    )
    seed = rng.normal(size=(6,) if reduction == "none" else ())
    slope = grad(lambda x: ops.sum(loss(x, labels) * seed))(logits).asnumpy()
    h, numeric = 1e-6, np.zeros_like(logits)
    for place in np.ndindex(*logits.shape):
        step = np.zeros_like(logits)
        step[place] = h
        ends = [expected_loss(logits + s * step, labels, *settings) for s in (1, -1)]
        numeric[place] = ((ends[0] - ends[1]) * seed).sum() / (2 * h)
    np.testing.assert_allclose(slope, numeric, rtol=1e-6, atol=1e-8)


def test_cross_entropy_at_its_edges():
    logits = rng.normal(size=(3, 4)).astype(np.float32)
    none_counts = nn.CrossEntropyLoss(ignore_index=1)(logits, np.array([1, 1, 1]))
    assert np.isnan(float(none_counts))
    for dtype in (np.uint8, np.int8, np.int64):  # -100 does not fit uint8, and ignores nothing
        labels = np.array([0, 3, 1], dtype)
        loss = nn.CrossEntropyLoss(ignore_index=-100)(logits, labels)
        assert np.isclose(float(loss), expected_loss(logits, labels, None, -100, 0.0, "mean"))
    with pytest.raises(ml.errors.OutOfRangeError, match="got label -100 for 4 classes"):
        nn.CrossEntropyLoss()(logits, np.array([0, -100, 1]))
    with pytest.raises(ShapeError, match=r"weight of shape \(3,\) for 4 classes"):
        nn.CrossEntropyLoss([1.0, 2.0, 3.0])(logits, np.array([0, 1, 2]))
    for labels in (np.array([0.0, 1.0, 2.0]), np.array([True, False, True])):
        with pytest.raises(ml.errors.DTypeError, match="labels of an integer dtype"):
            nn.CrossEntropyLoss(ignore_index=1)(logits, labels)


def test_a_masked_logit_of_another_class_leaves_the_loss_finite():
    logits = np.array([[1.0, -np.inf, 2.0]], np.float32)
    loss = nn.CrossEntropyLoss([1.0, 2.0, 3.0], ignore_index=9)(logits, np.array([0]))
    assert np.isclose(float(loss), np.log(1 + np.e), rtol=1e-6)


def test_many_rows_of_half_precision_do_not_overflow():
    logits = np.zeros((3000, 2), np.float16)
    labels = np.zeros(3000, int)
    loss = nn.CrossEntropyLoss([100.0, 1.0])(logits, labels)
    assert loss.dtype == ml.float16
    assert np.isclose(float(loss), np.log(2), rtol=2e-3)


def test_class_weights_are_saved_and_moved_but_do_not_learn():
    loss = nn.CrossEntropyLoss([1.0, 2.0])
    assert list(loss.parameters_dict()) == ["weight"]
    assert loss.trainable_params() == []
    assert repr(loss) == repr(nn.CrossEntropyLoss([1, 2])) == "CrossEntropyLoss(weight=[1.0, 2.0])"
    assert repr(nn.CrossEntropyLoss(reduction="sum")) == "CrossEntropyLoss(reduction='sum')"


def test_a_step_trains_on_a_weighted_loss_in_both_modes():
    x, labels = rng.normal(size=(8, 3)).astype(np.float32), np.arange(8) % 3
    found = []
    for jit in (True, False):
        ml.manual_seed(1)
        net = nn.Dense(3, 3)
        loss = nn.CrossEntropyLoss([1.0, 2.0, 0.5], ignore_index=2, label_smoothing=0.1)
        step = ml.train_step(net, loss, ml.optim.SGD(net.trainable_params(), lr=0.1))
        with ml.context(jit=jit):
            found.append([float(step(x, labels)) for _ in range(3)])
    assert found[0][2] < found[0][0]
    np.testing.assert_allclose(found[0], found[1], rtol=1e-5)


def test_mse_reductions():
    p, t = rng.normal(size=(2, 3, 4))[:2]
    for reduction, reduce in (("mean", np.mean), ("sum", np.sum), ("none", np.asarray)):
        found = nn.MSELoss(reduction=reduction)(p, t).asnumpy()
        np.testing.assert_allclose(found, reduce((p - t) ** 2), rtol=1e-12)


def test_gelu_by_the_hyperbolic_tangent():
    x = np.linspace(-4, 4, 33)
    inner = np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)
    found = nn.GELU(approximate="tanh")(x).asnumpy()
    np.testing.assert_allclose(found, x / 2 * (1 + np.tanh(inner)), rtol=1e-10, atol=1e-12)
    assert not np.array_equal(found, nn.GELU()(x).asnumpy())


@pytest.mark.parametrize(
    ("args", "shape", "expected"),
    [
        ((), (2, 3, 4, 5), (2, 60)),
        ((2,), (2, 3, 4, 5), (2, 3, 20)),
        ((0,), (2, 3, 4), (24,)),
        ((0, 1), (2, 3, 4), (6, 4)),
        ((-3, -2), (2, 3, 4, 5), (2, 12, 5)),
        ((1, 1), (2, 3), (2, 3)),
        ((), (7,), (7, 1)),
        ((), (0, 3, 4), (0, 12)),
    ],
)
def test_flatten_merges_the_axes_named(args, shape, expected):
    x = np.arange(np.prod(shape), dtype=np.float32).reshape(shape)
    assert np.array_equal(nn.Flatten(*args)(x).asnumpy(), x.reshape(expected))


@pytest.mark.parametrize(
    ("args", "rank"), [((3,), 2), ((-4,), 3), ((2, 1), 3), ((0, 3), 3), ((), 0)]
)
def test_flatten_refuses_axes_that_are_not_there(args, rank):
    with pytest.raises(ShapeError, match="Flatten"):
        nn.Flatten(*args)(np.ones((2,) * rank, np.float32))
