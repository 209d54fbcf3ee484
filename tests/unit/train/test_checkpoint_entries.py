"""What a checkpoint holds besides parameters: numbers and arrays; names that would collide."""

import signal
import types

import numpy as np
import pytest
import safetensors.numpy

import miniml as ml
from miniml import nn, optim
from miniml.errors import CheckpointError

PLAIN = [True, False, 3, -(2**63), 2**63 - 1, 0.1, float("inf"), -0.0]


@pytest.mark.parametrize("value", PLAIN, ids=repr)
def test_a_number_comes_back_as_what_it_was(tmp_path, value):
    ml.save_checkpoint({"x": value}, tmp_path / "x")
    into = {"x": type(value)(0)}
    ml.load_checkpoint(tmp_path / "x", into)
    assert type(into["x"]) is type(value)
    assert repr(into["x"]) == repr(value)


@pytest.mark.parametrize(
    ("value", "other"),
    [
        (np.arange(6.0).reshape(2, 3), np.zeros((2, 3))),
        (np.array(True), np.array(False)),
        (np.float16(3), np.float16(0)),
        (np.float64(3), np.float64(0)),
    ],
    ids=lambda v: f"{type(v).__name__}-{v.dtype}",
)
def test_an_array_comes_back_as_what_it_was(tmp_path, value, other):
    ml.save_checkpoint({1: value}, tmp_path / "x")
    into = {1: other}
    ml.load_checkpoint(tmp_path / "x", into)
    assert type(into[1]) is type(value)
    assert into[1].dtype == value.dtype
    assert np.array_equal(into[1], value)
    assert list(into) == [1]


def test_layouts_and_byte_orders_of_arrays_do_not_matter(tmp_path):
    value = np.arange(12, dtype=">f4").reshape(3, 4).T
    ml.save_checkpoint({"x": value}, tmp_path / "x")
    into = {"x": np.zeros((4, 3), np.float32)}
    ml.load_checkpoint(tmp_path / "x", into)
    assert np.array_equal(into["x"], value)
    assert into["x"].flags.writeable


def test_a_number_of_another_type_does_not_fit(tmp_path):
    ml.save_checkpoint({"epoch": 3}, tmp_path / "x")
    for other, type_ in ((0.0, "float64"), (False, "bool"), (np.int32(0), "int32")):
        into = {"epoch": other}
        with pytest.raises(CheckpointError, match=rf"is int64\[\] in the file, {type_}\[\] here"):
            ml.load_checkpoint(tmp_path / "x", into)
        assert into == {"epoch": other}


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (2**63, "'x' beyond the range of int64"),
        (-(2**63) - 1, "beyond the range of int64"),
        (10**10_000, "beyond the range of int64"),
        (1j, "of type complex"),
        ("three", "of type str"),
        ([1, 2], "of type list"),
        ({"y": 1}, "of type dict"),
        (None, "of type NoneType"),
        (np.array(["a"]), "of type ndarray and dtype <U1"),
        (np.array([1j]), "x is complex128, which safetensors files do not hold"),
        (np.array([None]), "dtype object"),
        (np.ma.array([1.0], mask=[True]), "of type MaskedArray"),
    ],
    ids=lambda v: type(v).__name__,
)
def test_what_no_file_can_hold_is_named(tmp_path, value, message):
    with pytest.raises(CheckpointError, match=message) as caught:
        ml.save_checkpoint({"x": value}, tmp_path / "x")
    assert len(str(caught.value)) < 400
    assert not list(tmp_path.iterdir())


def test_names_that_collide_are_refused(tmp_path):
    net = nn.Sequential(nn.Dense(2, 2))
    w = ml.Tensor([1.0])
    for obj, name in (
        ({"a": net, "a.0.weight": w}, "a.0.weight"),
        ({1: w, "1": w}, "1"),
        ({"__metadata__": w}, "__metadata__"),
        ({"\ud800": w}, "Unicode"),
    ):
        with pytest.raises(CheckpointError, match=name):
            ml.save_checkpoint(obj, tmp_path / "x")
        with pytest.raises(CheckpointError, match=name):
            ml.load_checkpoint(__file__, obj)
    assert not list(tmp_path.iterdir())


def test_a_key_that_is_no_string_is_replaced_where_it_stands(tmp_path):
    net = nn.Dense(2, 2)
    obj = {"1": ml.Tensor([1.0]), 1: net, 2: ml.Tensor([2.0])}
    ml.save_checkpoint(obj, tmp_path / "x")
    into = {"1": ml.Tensor([0.0]), 1: net, 2: ml.Tensor([0.0])}
    ml.load_checkpoint(tmp_path / "x", into)
    assert list(into) == ["1", 1, 2]
    assert into[1] is net
    assert into["1"].item() == 1.0
    assert into[2].item() == 2.0


def test_a_mapping_that_cannot_change_is_refused_when_loading(tmp_path):
    ml.save_checkpoint({"epoch": 3}, tmp_path / "x")
    with pytest.raises(CheckpointError, match="mappingproxy; give a dict"):
        ml.load_checkpoint(tmp_path / "x", types.MappingProxyType({"epoch": 0}))
    weight = types.MappingProxyType({"w": ml.Parameter([0.0])})
    ml.save_checkpoint({"w": ml.Parameter([1.0])}, tmp_path / "x")
    ml.load_checkpoint(tmp_path / "x", weight)
    assert weight["w"].item() == 1.0


def test_a_load_that_is_interrupted_is_whole_numbers_included(tmp_path):
    class Interrupted(dict):
        def update(self, *args):
            signal.raise_signal(signal.SIGINT)  # after the parameters, before the numbers
            super().update(*args)

    ml.save_checkpoint(
        {"w": ml.Parameter([1.0]), "epoch": 3, "t": ml.Tensor([1.0])}, tmp_path / "x"
    )
    into = Interrupted(w=ml.Parameter([0.0]), epoch=0, t=ml.Tensor([0.0]))
    with pytest.raises(KeyboardInterrupt):
        ml.load_checkpoint(tmp_path / "x", into)
    assert (into["w"].item(), into["epoch"], into["t"].item()) == (1.0, 3, 1.0)


def test_the_random_state_is_the_default_generators(tmp_path):
    ml.manual_seed(7)
    ml.ops.uniform((5,))
    ml.save_checkpoint({"random": ml.random_state}, tmp_path / "x")
    expected = ml.ops.uniform((5,)).tolist()
    ml.manual_seed(8)
    ml.load_checkpoint(tmp_path / "x", {"random": ml.random_state})
    assert ml.ops.uniform((5,)).tolist() == expected


def test_other_programs_read_the_file(tmp_path):
    net = nn.Dense(2, 2)
    opt = optim.Adam(net.trainable_params(), lr=0.5)
    obj = {"net": net, "optimizer": opt, "random": ml.random_state, "epoch": 3, "best": 0.25}
    ml.save_checkpoint(obj, tmp_path / "x")
    arrays = safetensors.numpy.load_file(tmp_path / "x")
    assert arrays["epoch"] == 3
    assert arrays["best"] == 0.25
    assert arrays["optimizer.lr"] == 0.5
    assert np.array_equal(arrays["net.weight"], net.weight.asnumpy())


def test_equal_values_give_equal_files(tmp_path):
    """Also where the order of the keys is another, and laid out as safetensors itself does it."""
    values = {"b": np.arange(3.0), "a": np.ones(3, np.int8), "c": 1, "d": ml.Tensor([1.0])}
    ml.save_checkpoint(values, tmp_path / "x")
    ml.save_checkpoint(dict(reversed(values.items())), tmp_path / "y")
    content = (tmp_path / "x").read_bytes()
    assert content == (tmp_path / "y").read_bytes()
    arrays = safetensors.numpy.load(content)
    assert {n: (a.dtype, a.tolist()) for n, a in arrays.items()} == {
        "a": (np.int8, [1, 1, 1]),
        "b": (np.float64, [0.0, 1.0, 2.0]),
        "c": (np.int64, 1),
        "d": (np.float32, [1.0]),
    }
    with safetensors.safe_open(tmp_path / "x", framework="np") as file:
        assert file.offset_keys() == ["b", "c", "d", "a"]
