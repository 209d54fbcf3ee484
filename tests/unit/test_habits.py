"""Calls as people from elsewhere write them: what each refusal says would do."""

import zipfile

import numpy as np
import pytest

import miniml as ml
from miniml import nn, ops, optim
from miniml.errors import (
    AttributeRefusedError,
    CheckpointError,
    DTypeError,
    GradientArgumentError,
    ShapeError,
    ValueRefusedError,
)
from miniml.testing import opcheck

X, Y = np.ones((6, 8), np.float32), np.arange(6) % 3
METHODS = ("apply", "cells", "freeze", "to", "summary", "set_train", "describe", "state_dict")


def network():
    return nn.Sequential(nn.Dense(8, 4), nn.ReLU(), nn.Dense(4, 3))


@pytest.mark.parametrize("name", METHODS)
def test_a_layer_does_not_hide_a_method(name):
    cell = nn.Cell()
    for value in (nn.Dense(2, 2), 3, nn.CellList([nn.Dense(2, 2)])):
        with pytest.raises(AttributeRefusedError, match=rf"Cell\.{name} is a method .* hide"):
            setattr(cell, name, value)
    cell.construct = lambda x: x  # which is a cell's own
    cell.training = np.bool_(False)


@pytest.mark.parametrize("value", ["yes", 1, None])
def test_the_mode_is_a_bool(value):
    with pytest.raises(AttributeRefusedError, match=r"Dense\.training got .*set_train\(False\)"):
        nn.Dense(2, 2).training = value


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda net: net({"a": X, "b": Y}), DTypeError, r"Dense\(8, 4\) got a dict of 'a', 'b' wh"),
        (lambda net: net("hello"), DTypeError, r"Dense\(8, 4\) got a str 'hello' where it takes"),
        (
            lambda net: optim.SGD(net[0].weight, 0.1),
            GradientArgumentError,
            r"one Parameter, .*\[ne",
        ),
        (lambda net: net[0](X[0], Y), TypeError, "positional"),
        (
            lambda net: nn.MSELoss("batchmean"),
            ValueRefusedError,
            "'none'; .*'sum' divided by the r",
        ),
        (
            lambda net: nn.CrossEntropyLoss()(X[0], 1),
            ShapeError,
            r"logits\[None\] and labels\[None",
        ),
        (
            lambda net: ops.normal(0.0, 1.0, (3,)),
            ShapeError,
            r"first, as in ops\.uniform\(\(3,\), 0",
        ),
        (
            lambda net: ops.normal(0, 1, (3,)),
            ShapeError,
            r"Normal got 0, 1, \(3,\); the shape come",
        ),
        (lambda net: ops.uniform(0.0, 1.0, (3,)), ShapeError, "the shape comes first"),
        (lambda net: ops.uniform(0, 1, (3, 2)), ShapeError, r"the shape comes first.*\(\(3, 2\), "),
        (lambda net: ops.bernoulli(0.5, (3,)), ShapeError, "the shape comes first"),
        (
            lambda net: ops.randint(0, 10, (3,)),
            AttributeRefusedError,
            r"the shape comes first, as in ops\.randint\(\(3,\), 0, 10\)",
        ),
    ],
)
def test_the_message_says_what_would_do(call, error, message):
    with pytest.raises(error, match=message):
        call(network())


@pytest.mark.parametrize("jit", [True, False])
@pytest.mark.parametrize("loss", [False, True])
def test_update_takes_gradients(loss, jit):
    net = network()
    opt = optim.SGD(net.trainable_params(), lr=0.1)
    given = nn.CrossEntropyLoss()(net(X), Y) if loss else net[0].weight
    with (
        ml.context(jit=jit),
        pytest.raises(GradientArgumentError, match=r"SGD\.update takes gradie"),
    ):
        ml.jit(opt.update)(given)


@pytest.mark.parametrize("jit", [True, False])
def test_a_batch_without_rows_is_refused(jit):
    net = network()
    step = ml.train_step(net, nn.CrossEntropyLoss(), optim.SGD(net.trainable_params(), lr=0.1))
    with (
        ml.context(jit=jit),
        pytest.raises(ShapeError, match=r"without rows, of shapes \(0, 8\), "),
    ):
        step(X[:0], Y[:0])


def test_a_function_of_another_library_in_a_compiled_one_is_explained():
    def foreign(x):
        raise TypeError(f"tanh(): argument 'input' must be Tensor, not {type(x).__name__}")

    with pytest.raises(TypeError) as caught:
        ml.jit(foreign)(X)
    assert any("in miniml: functions of ops" in note for note in caught.value.__notes__)


def zipped(path, names):
    with zipfile.ZipFile(path, "w") as archive:
        for name in names:
            archive.writestr(name, b"\x80\x02.")


FORMATS = {
    "torch": (lambda p: zipped(p, ["a/data.pkl", "a/data/0"]), r"torch\.load\(path, weights_only"),
    "torch of old": (
        lambda p: p.write_bytes(b"\x80\x02\x8a\nl\xfc\x9c"),
        r"torch\.load\(path, wei",
    ),
    "numpy": (lambda p: np.savez(p, a=X), r"numpy\.savez; net\.load_state_dict"),
    "keras": (lambda p: p.write_bytes(b"\x89HDF\r\n\x1a\n" + bytes(99)), "an HDF5 file"),
    "zip": (lambda p: zipped(p, ["a.txt"]), "damaged or truncated, or no safetensors file"),
    "cut zip": (lambda p: p.write_bytes(b"PK\x03\x04" + bytes(50)), "damaged or truncated"),
    "nothing": (lambda p: p.write_bytes(b""), "damaged or truncated"),
    "text": (lambda p: p.write_text("epoch,loss"), "damaged or truncated"),
}


@pytest.mark.parametrize("kind", FORMATS)
@pytest.mark.parametrize("load", [ml.load_checkpoint, lambda p, n: nn.load_torch_state(n, p)])
def test_files_of_other_formats_are_named(kind, load, tmp_path):
    write, message = FORMATS[kind]
    path = tmp_path / "weights.npz"
    write(path)
    net = network()
    before = net.state_dict()
    with pytest.raises(CheckpointError, match=message):
        load(path, net)
    assert all(np.array_equal(v, before[k]) for k, v in net.state_dict().items())


def test_what_numpy_wrote_loads_as_the_message_says(tmp_path):
    net, other = network(), network()
    np.savez(tmp_path / "a.npz", **net.state_dict())
    other.load_state_dict(dict(np.load(tmp_path / "a.npz")))
    assert np.array_equal(other[0].weight, net[0].weight)


CHANGES = {
    "wider head": lambda net: net.__setitem__(2, nn.Dense(4, 7)),
    "longer": lambda net: net.append(nn.Dense(3, 3)),
    "shorter": lambda net: net.__delitem__(2),
    "other first": lambda net: net.__setitem__(0, nn.Dense(8, 4, bias=False)),
    "nested": lambda net: net.__setitem__(0, nn.Sequential(nn.Dense(8, 4))),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_checkpoint_of_another_net_says_which_part_fits(change, tmp_path):
    path = tmp_path / "a.safetensors"
    saved = network()
    ml.save_checkpoint(saved, path)
    net = network()
    CHANGES[change](net)
    with pytest.raises(CheckpointError, match="does not fit") as caught:
        ml.load_checkpoint(path, net)
    said = str(caught.value).split("nothing was loaded")[1].split("\n")[0]
    ways = [way for way in said.removesuffix(" loads what fits").lstrip("; ").split(" or ") if way]
    assert ways
    for way in ways:
        exec(f"ml.load_checkpoint(path, net, {way})")
    same = [n for n, v in saved.state_dict().items() if n in net.parameters_dict()]
    if change != "other first":
        assert any(np.array_equal(net.state_dict()[n], saved.state_dict()[n]) for n in same)


@pytest.mark.parametrize("given", [X, [X], ml.Tensor(X), (X, X), 3])
def test_opcheck_of_arrays_says_inputs(given):
    with pytest.raises(TypeError, match=r"opcheck takes an OpInfo .* are inputs=\(x, y\)"):
        opcheck(ops.Tanh(), given)
