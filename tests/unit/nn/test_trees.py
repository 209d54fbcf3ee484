"""Trees of cells: dicts of them, sharing, freezing, dtypes, state dicts, functions of all cells."""

import copy

import numpy as np
import pytest

import miniml as ml
from miniml import nn, optim
from miniml.errors import (
    AttributeRefusedError,
    CheckpointError,
    DTypeError,
    GradientArgumentError,
    MinimlError,
    OutOfRangeError,
    ShapeError,
)

X = np.arange(6, dtype=np.float32).reshape(2, 3) / 6
LABELS = np.array([0, 1])


def network():
    return nn.Sequential(nn.Dense(3, 4), nn.BatchNorm1d(4), nn.Dense(4, 2))


def step_of(net, loss=None):
    return ml.train_step(net, loss or nn.CrossEntropyLoss(), optim.SGD(net.trainable_params(), 0.1))


# Containers, and cells in two places


def test_a_dict_of_cells():
    heads = nn.CellDict({"left": nn.Dense(3, 2)})
    heads["right"] = nn.Dense(3, 1)
    assert list(heads) == list(heads.keys()) == ["left", "right"]
    assert [c.out_features for c in heads.values()] == [2, 1]
    assert dict(heads.items())["left"] is heads["left"] is heads.left
    assert list(heads.parameters_dict())[2:] == ["right.weight", "right.bias"]
    heads["left"] = nn.Dense(3, 5)
    del heads["right"]
    assert ("right" in heads, len(heads)) == (False, 1)
    with pytest.raises(KeyError):
        heads["right"]
    with pytest.raises(KeyError):
        del heads["training"]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: nn.CellDict([nn.ReLU()]), "CellDict got list; expected a dict of cells"),
        (lambda: nn.CellDict({"cells": nn.ReLU()}), "name 'cells', which every cell has"),
        (lambda: nn.CellDict({"training": nn.ReLU()}), "name 'training', which every cell has"),
        (lambda: nn.CellDict({"a.b": nn.ReLU()}), "name 'a.b'; a name is a word without dots"),
        (lambda: nn.CellDict({1: nn.ReLU()}), "got the name 1; a name"),
        (lambda: nn.CellDict({"a": np.tanh}), "CellDict holds cells; got .* use a layer"),
        (lambda: (d := nn.CellDict()).__setitem__("a", nn.Sequential(d)), "cannot hold itself"),
    ],
)
def test_names_and_things_that_a_dict_of_cells_refuses(make, message):
    with pytest.raises(AttributeRefusedError, match=message):
        make()


def test_a_cell_in_two_places_and_a_parameter_of_two_names():
    dense = nn.Dense(3, 3)
    net = nn.Sequential(dense, nn.ReLU(), dense, nn.Dense(3, 3))
    net[3].weight = dense.weight
    names = ["0.weight", "0.bias", "3.bias"]
    assert list(net.state_dict()) == [n for n, _ in net.named_parameters()] == names
    assert len(optim.SGD(net.trainable_params(), 0.1).params) == 3
    before = dense.weight.asnumpy()
    step_of(net, nn.MSELoss())(X, X)
    assert not np.array_equal(before, dense.weight.asnumpy())
    assert net.to(ml.float64)[3].weight is net[0].weight  # still one
    assert copy.deepcopy(net)[3].weight.dtype == ml.float64
    assert net.to("float32")[0].weight.dtype == ml.float32


def test_weights_that_are_shared_load_under_any_of_their_names():
    net = nn.Sequential(nn.Dense(2, 2, bias=False), nn.Dense(2, 2, bias=False))
    net[1].weight = net[0].weight
    w = np.array([[1, 2], [3, 4]], np.float32)
    for state in ({"0.weight": w}, {"1.weight": w}, {"0.weight": w, "1.weight": w}):
        net[0].weight.set_data(0 * w)
        nn.load_torch_state(net, state)
        assert np.array_equal(net[0].weight.asnumpy(), w.T)
    message = "1.weight differs from 0.weight, which is the same parameter here"
    with pytest.raises(CheckpointError, match=message):
        nn.load_torch_state(net, {"0.weight": w, "1.weight": w + 1})


# State


def test_a_state_dict_is_a_copy_that_loads():
    net = network()
    state = net.state_dict()
    assert list(state)[2:4] == ["1.weight", "1.bias"]
    assert "1.running_mean" in state
    step_of(net)(X, LABELS)
    moved = net.state_dict()
    assert not np.array_equal(state["0.weight"], moved["0.weight"])
    state["2.bias"][0] = np.nan
    net.load_state_dict(state)
    for name, value in net.state_dict().items():
        np.testing.assert_array_equal(value, state[name])
    del state["2.bias"]
    state |= {"0.weight": state["0.weight"].T, "more": np.zeros(1)}
    message = r"0.weight has shape \(4, 3\), .*2.bias of .* is missing; more is unexpected; nothing"
    with pytest.raises(CheckpointError, match=message):
        net.load_state_dict(state)
    with pytest.raises(CheckpointError, match="load_state_dict got str; give a dict of arrays"):
        net.load_state_dict("net.safetensors")


def test_apply_calls_children_first():
    seen = []
    network().apply(lambda cell: seen.append(type(cell).__name__))
    assert seen == ["Dense", "BatchNorm1d", "Dense", "Sequential"]


@pytest.mark.parametrize("dtype", [ml.float64, ml.float16, ml.bfloat16])
def test_floats_of_another_dtype(dtype):
    net = network()
    net.count = ml.Parameter(np.array(3), requires_grad=False)
    net[0].weight.requires_grad = False
    kept = net.state_dict()["0.weight"]
    assert net.to(dtype) is net
    assert {p.dtype for n, p in net.named_parameters() if n != "count"} == {dtype}
    assert net.count.dtype == ml.int64
    assert not net[0].weight.requires_grad
    weight = net[0].weight
    assert np.array_equal(net.state_dict()["0.weight"], kept.astype(dtype))
    assert net.to(dtype)[0].weight is weight
    assert net(X.astype(dtype)).dtype == dtype
    with pytest.raises(DTypeError, match=r"net\.to got int32; parameters"):
        net.to(ml.int32)


# Freezing


def learning(net):
    return [p.name for p in net.trainable_params()]


def test_freezing_by_patterns_and_thawing():
    net = network()
    everything = learning(net)
    assert net.freeze("0", "*.bias") is net
    assert learning(net) == ["1.weight", "2.weight"]
    assert net.unfreeze("0.weight") is net
    assert learning(net) == ["0.weight", "1.weight", "2.weight"]
    assert learning(copy.deepcopy(net).unfreeze()) == everything
    net.freeze()
    assert learning(net) == []
    assert learning(net.unfreeze()) == everything  # running statistics do not learn
    net[2].bias = net[1].bias  # of two names
    assert learning(net.freeze().unfreeze("2.bias")) == ["1.bias"]
    net.unfreeze()
    for pattern in ("body", "0.w", 7):
        with pytest.raises(AttributeRefusedError, match=r"no parameter or layer .* 0.weight, 0"):
            net.freeze(pattern)


def test_frozen_layers_keep_their_weights_in_a_step():
    net = network().freeze("0")
    before = net.state_dict()
    step_of(net)(X, LABELS)
    moved = {n for n, v in net.state_dict().items() if not np.array_equal(v, before[n])}
    assert not {"0.weight", "0.bias"} & moved
    assert "2.weight" in moved


def test_gradients_by_a_cell_leave_out_what_is_frozen():
    net = nn.Sequential(nn.Dense(3, 2), nn.Dense(2, 1)).freeze("1")
    slopes = ml.grad.grad(lambda x: ml.ops.sum(net(x)), argnums=None, weights=net)
    assert [g.shape for g in slopes(X)] == [(3, 2), (2,)]


@pytest.mark.parametrize("jit", [True, False])
def test_a_step_refuses_what_was_frozen_after_its_optimizer(jit):
    net = network()
    step, opt = step_of(net), optim.SGD(net.trainable_params(), 0.1)
    before = net.state_dict()
    with ml.context(jit=jit):
        net.freeze("0")
        message = "got SGD for 0.weight, 0.bias, which do not learn .*; make the optimizer after"
        for call in (lambda: step(X, LABELS), lambda: ml.train_step(net, nn.MSELoss(), opt)):
            with pytest.raises(MinimlError, match=message):
                call()
        net.freeze()
        message = r"a Sequential with nothing to train: .* layer 0 \(Dense\), layer 1 \(BatchNorm1d"
        for call in (lambda: step(X, LABELS), lambda: ml.train_step(net, nn.MSELoss(), opt)):
            with pytest.raises(MinimlError, match=message):
                call()
        with pytest.raises(GradientArgumentError, match=r"no parameters; .* net\.unfreeze"):
            optim.SGD(net.trainable_params(), 0.1)
        assert all(np.array_equal(v, before[n]) for n, v in net.state_dict().items())
        net.unfreeze()
        step(X, LABELS)


# Data that do not fit


@pytest.mark.parametrize("jit", [True, False])
def test_a_step_names_the_layer_or_the_label_and_changes_nothing(jit):
    net = network()
    step, before = step_of(net), net.state_dict()
    with ml.context(jit=jit):
        with pytest.raises(ShapeError, match=r"expected \(\.\.\., 3\)\nin layer 0 \(Dense\)"):
            step(X[:, :2], LABELS)
        with pytest.raises(OutOfRangeError, match=r"label 2 for 2 classes; .*labels\[1\]"):
            step(X, np.array([0, 2]))
    assert all(np.array_equal(v, before[n]) for n, v in net.state_dict().items())


def test_labels_of_each_place_are_named_before_the_first_step():
    net = nn.Sequential(nn.Conv2d(1, 3, 1), nn.LogSoftmax(axis=1))
    x, labels = np.zeros((4, 1, 2, 2), np.float32), np.zeros((4, 2, 2), np.int64)
    labels[2, 1, 0] = 3
    for loss in (nn.NLLLoss(), nn.CrossEntropyLoss()):
        model = ml.train.Model(net, loss, optim.SGD(net.trainable_params(), 0.1))
        with pytest.raises(OutOfRangeError, match=r"1 labels outside of the 3 .* in row 2: 3"):
            model.fit(ml.data.DataLoader(x, labels, size=2), epochs=1)
