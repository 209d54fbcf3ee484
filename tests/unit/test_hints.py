"""Names of PyTorch, JAX and MindSpore lead to those of miniml, and every hint holds."""

import inspect
import re

import numpy as np
import pytest

import miniml as ml
from miniml import data, nn, ops, optim, train
from miniml.compat import ARGUMENTS, HINTS, INSTEAD, KEYWORDS, TUPLES, hint_for
from miniml.errors import ArityError, DeviceError, DTypeError

T = ml.Tensor(np.ones((2, 3), np.float32))
NET = nn.Sequential(nn.Dense(3, 2))
OPT = optim.SGD(NET.trainable_params(), lr=0.1)
MODULES = {name for name, value in vars(ops).items() if inspect.ismodule(value)}
WHAT = {"t": T, "net": NET, "opt": OPT, "p": NET[0].weight, "np": np}
WHAT |= {"ml": ml, "miniml": ml, "ops": ops, "nn": nn, "optim": optim, "data": data}
WHAT |= {"train": train}
TARGET = re.compile(r"\b(?:ml|miniml|ops|nn|optim|data|train|net|opt|p|t|np)(?:\.\w+)+")
CALL = re.compile(r"\b((?:ops|optim|nn|data|train|ml)(?:\.\w+)+)\(([^()]*)\)")


def found(dotted):
    first, *rest = dotted.split(".")
    value = WHAT[first]
    for name in rest:
        value = getattr(value, name)
    return value


def check(hint):
    """What the hint names exists, and takes what it is shown with."""
    for dotted in TARGET.findall(hint):
        assert not inspect.ismodule(found(dotted)) or dotted == "miniml.grad", hint
    for dotted, written in CALL.findall(hint):
        given = [a for a in re.sub(r"\[.*?\]", "list", written).split(", ") if a]
        named = {a.split("=")[0]: 0 for a in given if "=" in a}
        given = [a for a in given if "=" not in a]
        if "..." not in given:
            inspect.signature(found(dotted)).bind(*given, **named)


def test_what_a_hint_names_exists_and_is_called_as_shown():
    for hint in {*HINTS.values(), *TUPLES.values()}:
        check(hint)


def test_no_name_has_two_hints():
    names = [name for names in INSTEAD.values() for name in names.split()]
    assert len(names) == len(set(names))


def test_a_tensor_points_to_operations_as_they_are_called():
    for name in {*dir(ops), *dir(optim), "Dense"}.difference(dir(T), MODULES):
        hint = hint_for(name, "Tensor")
        assert hint
        check(hint)


def test_a_tensor_never_points_to_a_module():
    for name in MODULES.difference(dir(T)):
        assert f"ops.{name}" not in hint_for(name, "Tensor")


@pytest.mark.parametrize(
    ("owner", "name", "hint"),
    [
        (nn, "Linear", "nn.Dense(in_features, out_features)"),
        (nn, "spectral_norm", "nn.SpectralNorm(layer)"),
        (nn, "Module", "nn.Cell, with construct"),
        (nn, "Relu", "nn.ReLU"),
        (nn, "relu", "ops.relu"),
        (nn, "Parameter", "ml.Parameter"),
        (ops, "cat", "ops.concat([x, y], axis)"),
        (ops, "unsqueeze", "ops.expand_dims(t, axis)"),
        (ops, "Dense", "nn.Dense"),
        (optim, "ADAM", "optim.Adam"),
        (OPT, "step", "opt.update(gradients), or ml.train_step(net, loss_fn, opt)"),
        (OPT, "zero_grad", "nothing to clear"),
        (OPT, "state_dict", "opt.parameters_dict(), or ml.save_checkpoint(opt, path)"),
        (nn.init, "xavier_uniform_", "nn.init.xavier_uniform(p)"),
        (nn.init, "he_normal", "nn.init.kaiming_normal(p)"),
        (nn, "ModuleDict", "nn.CellDict({...})"),
        (nn, "Hardtanh", "nn.HardTanh"),
        (T, "view", "t.reshape(...)"),
        (T, "numpy", "t.asnumpy()"),
        (T, "detach", "ops.stop_gradient(t)"),
        (T, "norm", "ops.norm(t)"),
        (T, "masked_fill_", "ops.masked_fill(t, mask, value), which gives a new tensor"),
        (T, "pow", "ops.pow(t, y)"),
        (T, "add_", "ops.add(t, y), which gives a new tensor"),
        (T, "where", "ops.where(condition, t, other)"),
        (T, "swapaxes", "ops.swapaxes(t, axis1, axis2)"),
        (T, "zeros", "ops.zeros(shape)"),
        (ml, "pmap", "ml.vmap(f)"),
        (ml, "sin", "ops.sin"),
        (ml, "no_grad", "not needed: nothing is recorded"),
        (ml.grad, "autograd", "miniml.grad"),
        (ml, "DataLoader", "data.DataLoader"),
        (data, "TensorDataset", "data.DataLoader(x, y, size=64)"),
        (train, "ModelCheckpoint", "train.SaveBest(path)"),
    ],
)
def test_names_from_elsewhere_lead_to_those_here(owner, name, hint):
    with pytest.raises(AttributeError) as caught:
        getattr(owner, name)
    assert f"; in miniml: {hint}" in str(caught.value) or hint in str(caught.value)
    assert caught.value.name == name


@pytest.mark.parametrize("owner", [nn, ops, optim, ml, T, NET, OPT])
def test_a_name_that_nobody_knows_gets_no_hint(owner):
    with pytest.raises(AttributeError, match=r"no attribute 'nonsense'$"):
        owner.nonsense  # noqa: B018


def test_modules_that_are_called_say_what_is_meant():
    with pytest.raises(TypeError, match=r"is a module; the class in it is ml\.Tensor\(data\)"):
        ml.tensor([1.0])


X = np.ones((4, 3), np.float32)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda: data.DataLoader(X, batch_size=2, shuffle=True),
            r"=2 \(in miniml: size=\)",
        ),
        (
            lambda: data.DataLoader(X, batch_size=2, shuffle=True),
            "=True .*seed=0, which shu",
        ),
        (
            lambda: nn.Dense(3, 4, use_bias=False),
            r"\(in miniml: bias=\); it takes in_features",
        ),
        (lambda: nn.Softmax(dim=1), r"Softmax does not take dim=1 \(in miniml: axis=\)"),
        (lambda: nn.ReLU(inplace=True), r"inplace=True \(in miniml: nothing, as tensors never"),
        (lambda: nn.LSTM(input_size=3, hidden_size=4), r"hidden_size=4 \(in miniml: n=\)"),
        (
            lambda: nn.MultiHeadAttention(4, 2, batch_first=True),
            "nothing, as the batch comes first",
        ),
        (lambda: optim.Adam(NET.trainable_params(), learning_rate=1), r"\(in miniml: lr=\)"),
        (lambda: optim.Adam(NET.trainable_params(), rectify=True), "rectify=True; it takes params"),
        (lambda: train.Model(NET, nn.MSELoss(), scaler=1), r"\(in miniml: loss_scale=\)"),
    ],
)
def test_keywords_from_elsewhere_lead_to_those_here(make, message):
    with pytest.raises(ArityError, match=message):
        make()


def test_a_hint_for_a_keyword_is_for_what_has_that_parameter():
    with pytest.raises(ArityError, match=r"dim=1; it takes in_features"):
        nn.Dense(3, 4, dim=1)
    names = [name for names in KEYWORDS.values() for name in names.split()]
    assert len(set(names)) == len(names)
    assert len(names) == len(ARGUMENTS)


def test_a_cell_may_take_any_keyword():
    class Open(nn.Cell):
        def __init__(self, **options):
            self.options = options

    assert Open(dim=1).options == {"dim": 1}


class Summed(nn.Cell):
    def construct(self, x):
        return ops.sum(x, dim=1)


@pytest.mark.parametrize(
    ("call", "note"),
    [
        (lambda: nn.Sequential(Summed())(X), "in miniml: axis="),
        (lambda: ml.jit(lambda x: x.mean(1, keepdim=True))(X), "in miniml: keepdims="),
        (lambda: nn.MultiHeadAttention(4, 2)(X, X, X, attn_mask=X), "in miniml: mask=, where True"),
        (lambda: ml.jit(lambda x: optim.step_decay(0.1, step_size=3))(X), "in miniml: every="),
    ],
)
def test_keywords_of_calls_are_noted_once(call, note):
    with pytest.raises(TypeError, match="unexpected keyword") as caught:
        call()
    assert sum(n.startswith(note) for n in caught.value.__notes__) == 1


@pytest.mark.parametrize(
    ("call", "note"),
    [
        (lambda model: model.fit(X, X, num_epochs=3), "in miniml: epochs="),
        (lambda model: model.fit(X, X, validation_data=(X, X)), "in miniml: validation="),
    ],
)
def test_a_model_as_others_call_it_gets_a_note(call, note):
    model = train.Model(NET, nn.CrossEntropyLoss(), OPT)
    with pytest.raises(TypeError) as caught:
        call(model)
    assert note in caught.value.__notes__


def test_a_shape_in_parts_and_a_dtype_for_a_device_say_what_to_write():
    with pytest.raises(DTypeError, match=r"dtype 3 is unknown.*; a shape is one tuple"):
        ops.zeros(2, 3)
    with pytest.raises(DeviceError, match=r"is unknown.*; a tensor of another dtype is t\.astype"):
        T.to(ml.float64)


@pytest.mark.parametrize(
    ("call", "note"),
    [
        (lambda x: ops.reshape(x, (x.size(0), -1)), "in miniml: t.shape, or t.shape[0]"),
        (lambda x: ops.reshape(x, 2, 6), "in miniml: ops.reshape(x, (2, 3)), with the shape"),
        (lambda x: ops.transpose(x, 0, 1), "in miniml: ops.transpose(x, (1, 0)), with all axes"),
    ],
)
def test_sizes_and_axes_as_others_write_them_get_a_note(call, note):
    with pytest.raises(TypeError) as caught:
        ml.jit(call)(X)
    assert sum(n.startswith(note) for n in caught.value.__notes__) == 1


def test_errors_of_others_stay_as_they_are():
    for call in (
        lambda x: int("x"),
        lambda x: len(5),
        lambda x: x.size + x.ndim(),
        lambda x: len(x, dim=1),
    ):
        with pytest.raises((TypeError, ValueError)) as caught:
            ml.jit(call)(X)
        assert not hasattr(caught.value, "__notes__")


@pytest.mark.parametrize(
    ("owner", "name", "hint"),
    [
        (nn, "glu", "a * ops.sigmoid(b), of the halves"),
        (ops, "hardtanh", "ops.hard_tanh"),
        (NET, "double", "t.astype(ml.float64), or net.to(ml.float64) for a network"),
        (NET, "add_module", "setattr(net, name, cell)"),
        (NET, "insert", "nn.Sequential(*net[:i], cell, *net[i:])"),
        (nn, "ZeroPad2d", "ops.pad(x, padding)"),
        (nn, "MultiMarginLoss", "a function of tensors made of ops"),
        (optim, "ReduceLROnPlateau", "optim.OnPlateau(lr)"),
        (T, "repeat_interleave", "ops.repeat(t, repeats)"),
    ],
)
def test_names_without_an_equal_lead_to_what_does_the_same(owner, name, hint):
    with pytest.raises(AttributeError) as caught:
        getattr(owner, name)
    assert f"; in miniml: {hint}" in str(caught.value)
