"""Checkpoints come back bit by bit, and one that does not fit changes nothing."""

import errno
import os
import signal
import subprocess
import sys
import textwrap

import numpy as np
import pytest
import safetensors.numpy

import miniml as ml
from miniml import bfloat16, complex128, nn, optim
from miniml.core.abstract import ALL
from miniml.errors import CheckpointError
from miniml.train import load_checkpoint, save_checkpoint


def small_net(seed: int) -> nn.Sequential:
    ml.manual_seed(seed)
    return nn.Sequential(nn.Dense(4, 3), nn.ReLU(), nn.Dense(3, 2))


def values(net: nn.Cell) -> dict[str, np.ndarray]:
    return {name: p.asnumpy() for name, p in net.parameters_dict().items()}


def same(a: dict[str, np.ndarray], b: dict[str, np.ndarray]) -> bool:
    return a.keys() == b.keys() and all(a[k].tobytes() == b[k].tobytes() for k in a)


def test_a_net_comes_back_bit_by_bit(tmp_path):
    path = tmp_path / "net.safetensors"
    saved, other = small_net(1), small_net(2)
    save_checkpoint(saved, path)
    assert not same(values(saved), values(other))
    load_checkpoint(path, other)
    assert same(values(saved), values(other))
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("dtype", [d for d in ALL if d != complex128], ids=lambda d: d.name)
def test_every_dtype_is_kept(tmp_path, dtype):
    array = np.array([[0, 1], [1, 0]]).astype(dtype)
    entries = {"w": ml.Parameter(array), "empty": ml.Parameter(array[:0]), "t": ml.Tensor(array)}
    save_checkpoint(entries, tmp_path / "x")
    zeros = {
        "w": ml.Parameter(np.zeros_like(array)),
        "empty": ml.Parameter(array[:0]),
        "t": ml.Tensor(np.zeros_like(array)),
    }
    load_checkpoint(tmp_path / "x", zeros)
    for name in ("w", "t"):
        assert zeros[name].dtype == dtype
        assert zeros[name].asnumpy().tobytes() == array.tobytes()


def test_a_net_and_its_optimizer_in_one_file(tmp_path):
    net = small_net(1)
    opt = optim.SGD(net.trainable_params(), lr=0.5, momentum=0.9)
    opt.update([ml.Tensor(np.ones(p.shape, np.float32)) for p in opt.params])
    save_checkpoint({"net": net, "opt": opt}, tmp_path / "x")
    other = small_net(2)
    fresh = optim.SGD(other.trainable_params(), lr=0.1, momentum=0.9)
    load_checkpoint(tmp_path / "x", {"net": other, "opt": fresh})
    assert same(values(net), values(other))
    assert float(fresh.lr) == 0.5
    assert fresh.parameters_dict()["velocity.0.weight"].asnumpy().min() == 1.0


def damaged(path, how):
    arrays = safetensors.numpy.load_file(path)
    if how == "missing":
        del arrays["2.bias"]
    elif how == "unexpected":
        arrays["3.scale"] = np.zeros(2, np.float32)
    elif how == "shape":
        arrays["0.weight"] = np.zeros((4, 4), np.float32)
    elif how == "dtype":
        arrays["0.weight"] = arrays["0.weight"].astype(np.float64)
    safetensors.numpy.save_file(arrays, path)


@pytest.mark.parametrize(
    ("how", "message"),
    [
        ("missing", r"2\.bias \(float32\[2\]\) is missing"),
        ("unexpected", r"3\.scale is unexpected"),
        ("shape", r"0\.weight is float32\[4, 4\] in the file, float32\[4, 3\] here"),
        ("dtype", r"0\.weight is float64\[4, 3\] in the file, float32\[4, 3\] here"),
    ],
)
def test_what_does_not_fit_is_named_and_nothing_changes(tmp_path, how, message):
    path = tmp_path / "net.safetensors"
    save_checkpoint(small_net(1), path)
    damaged(path, how)
    net = small_net(2)
    before = values(net)
    with pytest.raises(CheckpointError, match=message):
        load_checkpoint(path, net)
    assert same(before, values(net))


def test_all_problems_are_named_at_once(tmp_path):
    path = tmp_path / "net.safetensors"
    save_checkpoint(small_net(1), path)
    damaged(path, "missing")
    damaged(path, "unexpected")
    with pytest.raises(CheckpointError, match=r"2\.bias .* is missing; 3\.scale is unexpected"):
        load_checkpoint(path, small_net(2))
    many = {f"w{i}": 1.0 for i in range(50)}
    with pytest.raises(CheckpointError) as caught:
        load_checkpoint(path, many)
    assert str(caught.value).count("is missing") == 50
    assert str(caught.value).count("is unexpected") == 4


def test_a_part_is_loaded_by_pattern(tmp_path):
    path, saved, net = tmp_path / "x", small_net(1), small_net(2)
    save_checkpoint({"net": saved, "epoch": 3, "best": 0.5}, path)
    before = values(net)
    load_checkpoint(path, {"net": net}, only="net.0.*")
    assert np.array_equal(net[0].weight.asnumpy(), saved[0].weight.asnumpy())
    assert np.array_equal(net[2].weight.asnumpy(), before["2.weight"])
    rest = {"net": net, "epoch": 0}
    load_checkpoint(path, rest, only=["net.2.*", "epoch"])
    assert same(values(net), values(saved))
    assert rest["epoch"] == 3


def test_without_strict_what_one_side_lacks_is_left_alone(tmp_path):
    path, saved, net = tmp_path / "x", small_net(1), small_net(2)
    save_checkpoint({"0": saved[0], "epoch": 3}, path)
    before = values(net)
    load_checkpoint(path, net, strict=False)
    assert np.array_equal(net[0].weight.asnumpy(), saved[0].weight.asnumpy())
    assert np.array_equal(net[2].weight.asnumpy(), before["2.weight"])
    other = {"0.weight": ml.Tensor([1.0])}
    with pytest.raises(CheckpointError, match=r"0\.weight is float32\[4, 3\] in the file"):
        load_checkpoint(path, other, strict=False)
    with pytest.raises(CheckpointError, match=r"no entry in common that matches only='head\.\*'"):
        load_checkpoint(path, net, only="head.*")
    for wrong in (3, [3]):
        with pytest.raises(CheckpointError, match="only is a pattern of names or a list of them"):
            load_checkpoint(path, net, only=wrong)
    with pytest.raises(CheckpointError, match=r"no entry .*the file has 0\.bias, .* has step"):
        load_checkpoint(path, {"step": 1}, strict=False)
    assert same(
        {k: v for k, v in values(net).items() if k[0] == "2"},
        {k: v for k, v in before.items() if k[0] == "2"},
    )


def test_truncated_at_any_length(tmp_path):
    path = tmp_path / "net.safetensors"
    save_checkpoint(small_net(1), path)
    content = path.read_bytes()
    net = small_net(2)
    before = values(net)
    for length in (0, 1, 8, 9, len(content) // 2, len(content) - 1):
        path.write_bytes(content[:length])
        with pytest.raises(CheckpointError, match=r"net\.safetensors is damaged or truncated"):
            load_checkpoint(path, net)
    path.write_bytes(os.urandom(8) + content[8:])
    with pytest.raises(CheckpointError, match="damaged"):
        load_checkpoint(path, net)
    assert same(before, values(net))


def test_an_absent_file_and_a_strange_object_are_named(tmp_path):
    with pytest.raises(CheckpointError, match=r"nothing\.safetensors does not exist"):
        load_checkpoint(tmp_path / "nothing.safetensors", small_net(1))
    with pytest.raises(CheckpointError, match="got int"):
        save_checkpoint(3, tmp_path / "x")
    with pytest.raises(CheckpointError, match="entry 'net' of type list"):
        save_checkpoint({"net": [small_net(1)]}, tmp_path / "x")
    assert not list(tmp_path.iterdir())


def test_a_save_that_fails_leaves_the_old_file_and_no_draft(tmp_path, monkeypatch):
    path = tmp_path / "net.safetensors"
    save_checkpoint(small_net(1), path)
    before = path.read_bytes()

    def fail(descriptor):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(CheckpointError, match=r"cannot be saved: No space left"):
        save_checkpoint(small_net(2), path)
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


def test_a_save_killed_half_way_leaves_the_old_file(tmp_path):
    path = tmp_path / "net.safetensors"
    program = f"""
        import os, signal, sys
        import numpy as np, miniml as ml
        big = {{"w": ml.Parameter(np.full(1000, float(sys.argv[1]), np.float32))}}
        if sys.argv[1] == "2":
            os.fsync = lambda descriptor: os.kill(os.getpid(), signal.SIGKILL)
        ml.save_checkpoint(big, {str(path)!r})
    """
    codes = [
        subprocess.run([sys.executable, "-c", textwrap.dedent(program), value]).returncode
        for value in ("1", "2")
    ]
    assert codes == [0, -signal.SIGKILL]
    into = {"w": ml.Parameter(np.zeros(1000, np.float32))}
    load_checkpoint(path, into)
    assert set(into["w"].tolist()) == {1.0}
    assert len(list(tmp_path.iterdir())) == 2
    save_checkpoint(into, path)
    assert list(tmp_path.iterdir()) == [path]


def test_an_interrupted_load_changes_nothing(tmp_path, monkeypatch):
    path = tmp_path / "net.safetensors"
    save_checkpoint(small_net(1), path)
    net = small_net(2)
    before = values(net)
    plain, calls = ml.Parameter.writing, []

    def interrupted(self, array):
        calls.append(self)
        if len(calls) == 3:
            raise KeyboardInterrupt
        return plain(self, array)

    monkeypatch.setattr(ml.Parameter, "writing", interrupted)
    with pytest.raises(KeyboardInterrupt):
        load_checkpoint(path, net)
    assert same(before, values(net))


def test_bfloat16_is_stored_as_such(tmp_path):
    save_checkpoint({"w": ml.Parameter(np.ones(3, bfloat16))}, tmp_path / "x")
    assert b'"BF16"' in (tmp_path / "x").read_bytes()


@pytest.mark.parametrize("jit", [True, False])
def test_training_goes_on_bit_by_bit(tmp_path, jit):
    x = np.random.default_rng(0).normal(size=(16, 4)).astype(np.float32)
    labels = np.arange(16) % 3

    def start(seed):
        ml.manual_seed(seed)
        net = nn.Sequential(nn.Dense(4, 8), nn.Dropout(0.5), nn.ReLU(), nn.Dense(8, 3))
        opt = optim.Adam(net.trainable_params(), lr=0.01)
        step = ml.train_step(net, nn.CrossEntropyLoss(), opt)
        return {"net": net, "opt": opt, "stream": ml.random_state}, step

    with ml.context(jit=jit):
        kept, step = start(1)
        [step(x, labels) for _ in range(2)]
        save_checkpoint(kept, tmp_path / "x")
        expected = [step(x, labels).item() for _ in range(3)], values(kept["net"])
        fresh, again = start(2)
        load_checkpoint(tmp_path / "x", fresh)
        assert [again(x, labels).item() for _ in range(3)] == expected[0]
        assert same(values(fresh["net"]), expected[1])
