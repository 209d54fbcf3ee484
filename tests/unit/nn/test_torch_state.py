"""load_torch_state: arrays as PyTorch has them, whole or not at all."""

import numpy as np
import pytest
from safetensors.numpy import save_file

import miniml as ml
from miniml import nn, ops
from miniml.errors import CheckpointError

RNG = np.random.default_rng(0)


def drawn(*shape):
    return RNG.normal(size=shape).astype(np.float32)


def norm(n):
    return {"weight": drawn(n), "bias": drawn(n)}


def batch_norm(n):
    running = {"running_mean": drawn(n), "running_var": drawn(n) ** 2}
    return norm(n) | running | {"num_batches_tracked": np.array(7)}


def prefixed(prefix, entries):
    return {f"{prefix}.{name}": array for name, array in entries.items()}


def network():
    return nn.Sequential(
        nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2), nn.ReLU(), nn.Flatten(), nn.Dense(8, 3)
    )


def state():
    """The state_dict of PyTorch's Sequential of the same layers."""
    conv, dense = {"weight": drawn(2, 1, 3, 3), "bias": drawn(2)}, {"weight": drawn(3, 8)}
    parts = [conv, batch_norm(2), {}, {}, dense | {"bias": drawn(3)}]
    return {k: v for i, part in enumerate(parts) for k, v in prefixed(str(i), part).items()}


def expected(s, x):
    """The network in evaluation, in NumPy."""
    windows = np.lib.stride_tricks.sliding_window_view(x[:, 0], (3, 3), (1, 2))
    h = np.einsum("nhwij,oij->nohw", windows, s["0.weight"][:, 0])
    h += s["0.bias"][:, None, None]
    mean, var, w, b = (
        s[f"1.{n}"][:, None, None] for n in ("running_mean", "running_var", "weight", "bias")
    )
    h = np.maximum((h - mean) / np.sqrt(var + 1e-5) * w + b, 0).reshape(len(x), 8)
    return h @ s["4.weight"].T + s["4.bias"]


@pytest.mark.parametrize("kind", ["dict", "file", "float64"])
def test_a_sequential_gives_what_it_gave_there(kind, tmp_path):
    net, given, x = network(), state(), drawn(4, 1, 4, 4)
    loaded = given
    if kind == "file":
        save_file(given, loaded := tmp_path / "torch.safetensors")
    if kind == "float64":
        loaded = {k: v.astype(np.float64) for k, v in given.items()}
    nn.load_torch_state(net, loaded)
    out = net.set_train(False)(x)
    assert out.dtype == ml.float32
    np.testing.assert_allclose(out.asnumpy(), expected(given, x), rtol=1e-4, atol=1e-5)


def test_every_layer_takes_the_entries_that_pytorch_has():
    def attention(d):
        projected = {"in_proj_weight": drawn(3 * d, d), "in_proj_bias": drawn(3 * d)}
        return projected | prefixed("out_proj", {"weight": drawn(d, d), "bias": drawn(d)})

    linear = [{"weight": drawn(5, 4), "bias": drawn(5)}, {"weight": drawn(4, 5), "bias": drawn(4)}]
    encoder = prefixed("self_attn", attention(4))
    encoder |= prefixed("linear1", linear[0]) | prefixed("linear2", linear[1])
    encoder |= prefixed("norm1", norm(4)) | prefixed("norm2", norm(4))
    decoder = encoder | prefixed("multihead_attn", attention(4)) | prefixed("norm3", norm(4))
    lstm = {f"{n}{s}": drawn(*shape) for s in ("l0", "l0_reverse") for n, shape in (
        ("weight_ih_", (8, 3)), ("weight_hh_", (8, 2)), ("bias_ih_", (8,)), ("bias_hh_", (8,))
    )}  # fmt: skip
    cases = [
        (nn.LSTM(3, 2, bidirectional=True), lstm),
        (nn.MultiHeadAttention(4, 2), attention(4)),
        (nn.TransformerEncoderLayer(4, 2, 5), encoder),
        (nn.TransformerDecoderLayer(4, 2, 5), decoder),
        (nn.LSTM(3, 2, bias=False), {n: lstm[n] for n in ("weight_ih_l0", "weight_hh_l0")}),
        (nn.LayerNorm(4), norm(4)),
        (nn.LearnedPositions(5, 3), {"weight": drawn(5, 3)}),
        (nn.Embedding(5, 3), {"weight": drawn(5, 3)}),
    ]
    for cell, entries in cases:
        nn.load_torch_state(cell, entries)
        turned = ("linear1.weight", "linear2.weight", "out_proj.weight")
        for name, p in cell.parameters_dict().items():
            array = entries[name].T if name.endswith(turned) else entries[name]
            assert np.array_equal(p.asnumpy(), array), name


def test_all_that_does_not_fit_is_listed_and_nothing_is_loaded():
    net, given = network(), state()
    before = [p.asnumpy() for p in net.get_parameters()]
    del given["0.bias"], given["1.running_var"]
    given |= {"4.weight": given["4.weight"].T, "4.bias": np.array([1, 2, 3]), "9.w": drawn(1)}
    given |= {f"extra{i}.num_batches_tracked": np.array(0) for i in range(12)}
    with pytest.raises(CheckpointError) as caught:
        nn.load_torch_state(net, given)
    for problem in (
        "the state does not fit the Sequential: 0.bias of shape (2,) is missing",
        "1.running_var of shape (2,) is missing",
        "4.weight has shape (8, 3), where (3, 8) is expected",
        "4.bias is int64, where floats are expected",
        "9.w is unexpected",
        "extra11.num_batches_tracked is unexpected; nothing was loaded",
    ):
        assert problem in str(caught.value)
    assert " 1.num_batches_tracked" not in str(caught.value)
    for p, value in zip(net.get_parameters(), before, strict=True):
        assert np.array_equal(p.asnumpy(), value)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: nn.load_torch_state({}, {}), "got dict for a cell; the calls are"),
        (lambda: nn.load_torch_state(nn.Dense(2, 2), [1.0]), "got list for a state"),
        (lambda: nn.load_torch_state(nn.Dense(2, 2), "no.safetensors"), "does not exist"),
        (lambda: nn.load_torch_state(nn.Dense(2, 2), {"weight": object()}), "'weight' is no array"),
        (lambda: nn.load_torch_state(nn.Dense(2, 2), "net.pt"), r"torch\.load\(path, weights_only"),
        (
            lambda: nn.load_torch_state(nn.Dense(1, 1), {"m.weight": [[1.0]], "m.bias": [1.0]}),
            r"all names begin with 'm\.': give {n\.removeprefix\('m\.'\): v for n, v in state",
        ),
    ],
)
def test_what_is_no_state_is_refused(call, message):
    with pytest.raises(CheckpointError, match=message):
        call()


def test_a_graph_loads_nothing():
    layer = nn.Dense(2, 2)

    def f(x):
        nn.load_torch_state(layer, {"weight": np.eye(2), "bias": np.zeros(2)})
        return ops.sum(layer(x))

    with pytest.raises(CheckpointError, match="refuses to run in a graph"):
        ml.jit(f)(drawn(2, 2))


def shared():
    """A network with a Dense under two names, and a table that shares the Dense's weight."""
    net = nn.CellDict({"a": nn.Dense(3, 3), "table": nn.Embedding(3, 3), "norm": nn.BatchNorm1d(3)})
    net["b"] = net["a"]
    net["table"].weight = net["a"].weight
    return net


@pytest.mark.parametrize("make", [network, shared])
def test_the_way_back_gives_what_was_taken(make):
    net = make()
    given = nn.torch_state(net)
    values = net.state_dict()
    assert all(np.array_equal(given[n], state_of(n, v)) for n, v in values.items())
    for parameter in net.get_parameters():
        parameter.set_data(np.zeros(parameter.shape, np.float32))
    net2 = network() if make is network else None
    if net2 is not None:
        nn.load_torch_state(net2, given)
        assert all(np.array_equal(v, values[n]) for n, v in net2.state_dict().items())
    assert all(array.any() or n.endswith(("bias", "mean", "tracked")) for n, array in given.items())


def state_of(name, value):
    return value.T if name in ("4.weight", "a.weight") else value


def test_names_of_shared_weights_are_all_there_each_in_its_layout():
    net = shared()
    given = nn.torch_state(net)
    weight = net["a"].weight.asnumpy()
    assert np.array_equal(given["a.weight"], weight.T)
    assert np.array_equal(given["b.weight"], weight.T)
    assert np.array_equal(given["table.weight"], weight)
    assert given["norm.num_batches_tracked"].tolist() == 0
    with pytest.raises(CheckpointError, match="torch_state got dict; give a Cell"):
        nn.torch_state({})


def test_pytorch_takes_it():
    torch = pytest.importorskip("torch", reason="no torch")
    net = network()
    there = torch.nn.Sequential(
        torch.nn.Conv2d(1, 2, 3), torch.nn.BatchNorm2d(2), torch.nn.ReLU(), torch.nn.Flatten(),
        torch.nn.Linear(8, 3),
    )  # fmt: skip
    state = {name: torch.from_numpy(array) for name, array in nn.torch_state(net).items()}
    there.load_state_dict(state)
    x = drawn(4, 1, 4, 4)
    expected = there.eval()(torch.from_numpy(x)).detach().numpy()
    np.testing.assert_allclose(net.set_train(False)(x).asnumpy(), expected, 1e-5, 1e-6)
