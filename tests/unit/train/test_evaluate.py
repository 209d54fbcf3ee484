"""Model.evaluate: each row counts once, whatever trees the batches are made of."""

import numpy as np
import pytest

import miniml as ml
from miniml import nn, ops, train
from miniml.errors import MinimlError, ShapeError

KINDS = {
    "array": (lambda a, b: a, lambda x: x),
    "dict": (lambda a, b: {"wide": b, "narrow": a}, lambda x: x["narrow"]),
    "dict of one": (lambda a, b: {"a": a}, lambda x: x["a"]),
    "tuple": (lambda a, b: ((a, b),), lambda x: x[0]),
    "list": (lambda a, b: [b, a], lambda x: x[1]),
    "nested": (lambda a, b: {"u": [b, (a, {"v": b})]}, lambda x: x["u"][1][0]),
    "rows of time": (lambda a, b: {"t": np.stack([a, a, a])}, lambda x: x["t"][1]),
    "constants": (lambda a, b: {"a": a, "scale": np.float32(1.0)}, lambda x: x["a"] * x["scale"]),
    "table": (lambda a, b: {"a": a, "all": np.ones((3, 3), np.float32)}, lambda x: x["a"]),
    "tensors": (lambda a, b: {"a": ml.Tensor(a), "b": ml.Tensor(b)}, lambda x: x["a"]),
}


class Takes(nn.Cell):
    def __init__(self, take):
        self.dense, self.take = nn.Dense(4, 3), take

    def construct(self, x):
        return self.dense(self.take(x))


def by_hand(net, x, labels):
    """Mean of -log softmax(x W + b)[label] in float64."""
    scores = x.astype(np.float64) @ net.dense.weight.asnumpy().astype(np.float64)
    scores += net.dense.bias.asnumpy()
    return np.mean(np.log(np.exp(scores).sum(1)) - scores[np.arange(len(x)), labels])


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed", range(2))
def test_the_loss_is_that_of_all_rows_at_once(kind, seed):
    make, take = KINDS[kind]
    draw = np.random.default_rng(seed)
    cuts = np.sort(draw.choice(np.arange(1, 60), 2, replace=False))
    x = draw.normal(size=(60, 4)).astype(np.float32) * draw.choice([0.1, 1.0, 9.0], (60, 1))
    x, other = x.astype(np.float32), draw.normal(size=(60, 7)).astype(np.float32)
    labels = draw.integers(0, 3, 60)
    batches = [(make(x[rows], other[rows]), labels[rows]) for rows in np.split(np.arange(60), cuts)]
    net = Takes(take)
    model = train.Model(net, nn.CrossEntropyLoss(), metrics=[train.accuracy()])
    assert model.evaluate(batches)["loss"] == pytest.approx(by_hand(net, x, labels), rel=1e-5)


def test_without_labels_the_rows_are_those_of_the_inputs():
    net = Takes(lambda x: x["a"])
    model = train.Model(net, ops.mean)
    x = np.arange(40, dtype=np.float32).reshape(10, 4)
    batches = [({"a": x[:7], "b": x[:7, 0]},), ({"a": x[7:], "b": x[7:, 0]},)]
    expected = x @ net.dense.weight.asnumpy() + net.dense.bias.asnumpy()
    assert model.evaluate(batches)["loss"] == pytest.approx(expected.mean(), rel=1e-5)


def test_validation_of_dicts_is_weighted_too():
    net = Takes(lambda x: x["a"])
    x, labels = np.ones((10, 4), np.float32), np.arange(10) % 3
    x[8:] *= 10
    batches = [({"a": x[:8]}, labels[:8]), ({"a": x[8:]}, labels[8:])]
    model = train.Model(net, nn.CrossEntropyLoss(), ml.optim.SGD(net.trainable_params(), lr=0.0))
    (row,) = model.fit(batches, epochs=1, validation=batches, show=False)
    assert row["val_loss"] == pytest.approx(by_hand(net, x, labels), rel=1e-5)


def test_rows_that_nothing_agrees_on_are_refused():
    net = Takes(lambda x: x["a"])
    model = train.Model(net, lambda out, y: ops.mean(out) * y)
    batch = {"a": np.ones((5, 4), np.float32), "edges": np.ones((2, 6))}, np.float32(1.0)
    with pytest.raises(ShapeError, match=r"shapes \[\(5, 4\), \(2, 6\), \(\)\].* rows first"):
        model.evaluate([batch])


class Foreign:
    """A tensor of another library, as PyTorch's: it compares element by element."""

    def __init__(self, array):
        self.array, self.shape = array, array.shape

    def __array__(self, dtype=None, copy=None):
        return np.array(self.array, dtype)

    def __len__(self):
        return len(self.array)

    def __eq__(self, other):
        raise RuntimeError("Boolean value of Tensor with more than one value is ambiguous")

    __hash__ = object.__hash__


class ForeignLoader:
    """A loader of another library, as PyTorch's: lists of tensors, anew at each iteration."""

    def __init__(self, x, labels, size):
        self.parts = [
            [Foreign(x[i : i + size]), Foreign(labels[i : i + size])]
            for i in range(0, len(x), size)
        ]

    def __len__(self):
        return len(self.parts)

    def __iter__(self):
        return iter(self.parts)


def test_fit_takes_loaders_of_other_libraries():
    draw = np.random.default_rng(0)
    x, labels = draw.normal(size=(50, 4)).astype(np.float32), draw.integers(0, 3, 50)

    def rows(data):
        ml.manual_seed(0)
        net = nn.Dense(4, 3)
        optimizer = ml.optim.SGD(net.trainable_params(), lr=0.1)
        model = train.Model(net, nn.CrossEntropyLoss(), optimizer, [train.accuracy()])
        found = model.fit(data, epochs=2, validation=data, show=False)
        assert len(model.step.recompilations) == 2  # for 16 rows and for 2
        return [{k: v for k, v in row.items() if k != "seconds"} for row in found]

    own = [(x[i : i + 16], labels[i : i + 16]) for i in range(0, 50, 16)]
    assert rows(ForeignLoader(x, labels, 16)) == rows(own)


@pytest.mark.parametrize("kind", ["array", "dict", "dict of one", "tuple", "tensors"])
@pytest.mark.parametrize("rows", [0, 1, 7, 8, 20])
def test_predict_takes_the_trees_that_fit_takes(kind, rows):
    make, take = KINDS[kind]
    draw = np.random.default_rng(rows)
    x = draw.normal(size=(rows, 4)).astype(np.float32)
    net = Takes(take)
    given = make(x, draw.normal(size=(rows, 2)).astype(np.float32))
    scores = train.Model(net, nn.CrossEntropyLoss()).predict(given, batch_size=8)
    assert scores.shape == (rows, 3)
    assert np.allclose(scores, x @ net.dense.weight.asnumpy() + net.dense.bias.asnumpy(), atol=1e-5)


@pytest.mark.parametrize(
    "given", ["text", {"a": np.ones((3, 4)), "b": np.ones((2, 4))}, {"a": 1.0}]
)
def test_predict_refuses_what_has_no_rows(given):
    model = train.Model(Takes(lambda x: x["a"]), nn.CrossEntropyLoss())
    with pytest.raises(ShapeError, match=r"^predict got inputs of shapes \[\(.*equally many rows"):
        model.predict(given)


def test_evaluate_refuses_no_batches():
    with pytest.raises(MinimlError, match="evaluate got no batches"):
        train.Model(nn.Dense(4, 3), nn.CrossEntropyLoss()).evaluate([])


@pytest.mark.parametrize("first", [["a"], ["a", "b"], []])
@pytest.mark.parametrize("second", [["a"], ["b"], []])
def test_aux_has_the_same_names_for_all_batches(first, second):
    x, y = np.ones((4, 4), np.float32), np.zeros(4, np.int64)
    net = nn.Dense(4, 3)

    def loss(out, labels):
        return ops.mean(out), {n: ops.max(out) for n in (first if len(labels) == 3 else second)}

    model = train.Model(net, loss, ml.optim.SGD(net.trainable_params(), lr=0.1))
    for call in (
        lambda: model.evaluate((x, y), batch_size=3),
        lambda: model.fit([(x[:3], y[:3]), (x[3:], y[3:])], epochs=1, show=False),
    ):
        if first == second:
            call()
            continue
        with pytest.raises(
            MinimlError, match=r"returned aux with the names .*; give the same ones"
        ):
            call()
