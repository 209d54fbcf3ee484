"""A group with NCCL: threads as ranks, each with a simulated GPU, and a double of NCCL between them
that checks each call. No two real GPUs have been tried."""

import platform
import sys
import threading

import numpy as np
import pytest

import miniml as ml
from miniml import distributed, nn, ops, optim
from miniml.backends import group as groups
from miniml.backends.group import Self, thread_is_rank
from miniml.distributed import loopback
from miniml.distributed import ranks as of_ranks
from miniml.errors import DistributedError, DTypeError
from miniml.grad import vjp
from tests.device.emunccl import Machine
from tests.unit.distributed.test_collectives import CASES, PAIRS, SIZE, X

RNG = np.random.default_rng(0)


@pytest.fixture
def machine(cupy, monkeypatch):
    """As many GPUs as ranks."""
    made = Machine(cupy, SIZE)
    monkeypatch.setitem(sys.modules, "cupy.cuda", cupy.cuda)
    monkeypatch.setitem(sys.modules, "cupy.cuda.nccl", cupy.cuda.nccl)
    monkeypatch.delitem(groups._of_process, "world", raising=False)
    return made


@pytest.fixture
def ranks(machine, monkeypatch):
    """Runs body(group) on ranks that have called init, with threads in the place of processes
    under MPI; what they say to each other is in `host` of each group."""
    launched = threading.local()
    monkeypatch.setattr(of_ranks, "launched", lambda name, timeout: launched.group)
    monkeypatch.setenv("PMI_RANK", "0")

    def run(body, size=SIZE, backend="nccl"):
        def on(group):
            launched.group = group
            thread_is_rank(Self())  # this thread has joined no world yet
            with ml.context(device_target="cuda"):
                return body(distributed.init(backend))

        return loopback(on, size, 10.0)

    return run


def stacked(results):
    """The results of all ranks, as arrays with an axis of ranks in front."""
    return [np.stack(found) for found in zip(*results)]


# What moves values and cotangents; of a maximum of floats only its cotangents.
CALLED = {
    "sum": {"allReduce"},
    "mean": {"allReduce"},
    "gather": {"allGather", "reduceScatter"},
    "scatter": {"reduceScatter", "allGather"},
    "broadcast": {"broadcast", "reduce"},
    "exchange": {"send", "recv"},
    "send": {"send", "recv"},
    "max": {"allReduce"},
}


def refuse(*_):
    raise AssertionError("elements pass through the host")


@pytest.mark.parametrize("name", CASES)
def test_values_and_cotangents(name, ranks, machine):
    collective, expected, back = CASES[name]
    x = X.astype(np.float32)
    dout = RNG.normal(size=expected(x).shape).astype(np.float32)

    def on(group):
        if name != "max":
            group.gather = group.swap = group.spread = group.exchange = refuse
        given, cotangent = (ml.Tensor(a[group.rank]) for a in (x, dout))
        out, pull = vjp(collective, given)
        (pulled,) = pull(cotangent)
        compiled = ml.jit(lambda x: collective(x) * 1.0)(given)  # a program of this rank's own
        assert out.device == pulled.device == compiled.device == "cuda"
        return out.asnumpy(), pulled.asnumpy(), compiled.asnumpy()

    out, pulled, compiled = stacked(ranks(on))
    np.testing.assert_allclose(out, expected(x), rtol=1e-6)
    np.testing.assert_allclose(pulled, back(x, dout), rtol=1e-5, atol=1e-6)
    assert np.array_equal(out, compiled)
    assert {call for _, call, *_ in machine.calls} == CALLED[name]


def called(machine, rank=0):
    """The calls of NCCL that a rank has made."""
    return [call for r, *call in machine.calls if r == rank]


REDUCED = "int8 uint8 int32 uint32 int64 uint64 float16 bfloat16 float32 float64".split()


@pytest.mark.parametrize("dtype", [*REDUCED, "int16", "bool_"])
def test_dtypes(dtype, ranks, machine):
    """What NCCL adds, it adds in that dtype; everything else is moved, as bytes."""
    kind = getattr(ml, dtype)
    x = np.abs(RNG.normal(size=(SIZE, 6)) * 9).astype(kind)
    added = dtype in REDUCED

    def on(group):
        given = ml.Tensor(x[group.rank])
        moved = [
            distributed.all_gather(given),
            distributed.broadcast(given, 1),
            distributed.all_to_all(given),
            distributed.send_recv(given, PAIRS),
        ]
        if added:
            moved.append(distributed.all_reduce(given))
        assert all(out.dtype == kind for out in moved)
        return [out.asnumpy() for out in moved]

    gathered, spread, swapped, sent, *total = stacked(ranks(on))
    assert np.array_equal(gathered, [x.reshape(-1)] * SIZE)
    assert np.array_equal(spread, [x[1]] * SIZE)
    assert np.array_equal(swapped, np.swapaxes(x.reshape(3, 3, 2), 0, 1).reshape(3, 6))
    assert np.array_equal(sent, [x[0] * 0, x[0], x[1]])
    if added:
        assert np.array_equal(total[0], [x[0] + x[1] + x[2]] * SIZE)
        assert called(machine)[-1] == ["allReduce", 6, dtype]
    elif dtype == "int16":
        with pytest.raises(DTypeError, match=r"NCCL, which adds .* on 'cuda', has no int16; cast"):
            ranks(lambda group: distributed.all_reduce(ml.Tensor(x[group.rank])))


def test_a_maximum_keeps_nan(ranks):
    x = np.array([[1.0, 5.0], [np.nan, 2.0], [3.0, 2.0]], np.float32)

    def on(group):
        largest = distributed.all_reduce(ml.Tensor([group.rank]), "max")
        return distributed.all_reduce(ml.Tensor(x[group.rank]), "max").tolist(), largest.item()

    for (lost, found), largest in ranks(on):
        assert np.isnan(lost)
        assert (found, largest) == (5.0, 2)


def test_a_step_of_training(ranks, machine):
    """Ranks on GPUs train as one on the CPU that has all rows, and are equal to the bit."""
    x = RNG.normal(size=(2, SIZE, 4, 5)).astype(np.float32)
    y = RNG.normal(size=(2, SIZE, 4, 3)).astype(np.float32)

    def trained(batches, device, group=None):
        with ml.context(device_target=device):
            net = nn.Dense(5, 3)
            net.weight.set_data(np.linspace(-1, 1, 15, dtype=np.float32).reshape(5, 3))
            net.bias.set_data(np.zeros(3, np.float32))
            step = ml.train_step(
                net,
                lambda out, y: ops.mean((out - y) ** 2),
                optim.SGD(net.trainable_params(), 0.1),
                group=group,
            )
            losses = [step(*batch).item() for batch in batches]
            return np.array(losses), net.weight.asnumpy()

    losses, weight = stacked(
        ranks(lambda group: trained(zip(x[:, group.rank], y[:, group.rank]), "cuda", group))
    )
    one = trained(zip(x.reshape(2, -1, 5), y.reshape(2, -1, 3)), "cpu")
    np.testing.assert_allclose(losses, [one[0]] * SIZE, rtol=1e-5)
    np.testing.assert_allclose(weight, [one[1]] * SIZE, rtol=1e-4, atol=1e-6)
    assert np.array_equal(weight[0], weight[1])
    assert called(machine) == [["allReduce", 20, "float32"]] * 2  # 18 weights, loss, rows


def test_launches_are_on_the_current_stream(ranks, cupy):
    """The double refuses any other."""

    def on(group):
        with cupy.cuda.Stream(non_blocking=True):
            return (distributed.all_reduce(ml.Tensor([1.0])).item(),)

    assert ranks(on) == [(3.0,)] * SIZE


def test_arrays_of_the_cpu_and_parts_of_a_group(ranks, machine):
    def on(group):
        half = group.split(group.rank % 2, key=-group.rank)
        value = ml.Tensor([float(group.rank)])
        parts = distributed.all_gather(value, group=half).tolist()
        return parts, distributed.all_gather(value.to("cpu")).tolist()

    every = [0.0, 1.0, 2.0]
    assert ranks(on) == [([2.0, 0.0], every), ([1.0], every), ([2.0, 0.0], every)]
    # Ranks 2 and 1 are the first of their part.
    assert called(machine) == [["allGather", 4, "uint8"]] * 2


# --- Errors ---------------------------------------------------------------------------------------


def test_other_shapes_or_devices_are_named_before_nccl_is_called(ranks, machine):
    shapes = r"ranks 0, 1: all_reduce sum of float32\[2\] on cuda; rank 2: .* float32\[3\] on cuda"
    with pytest.raises(DistributedError, match=shapes):
        ranks(lambda group: distributed.all_reduce(np.ones(2 + group.rank // 2, np.float32)))

    def on(group):
        distributed.all_reduce(ml.Tensor([1.0]).to("cpu" if group.rank else "cuda"))

    devices = r"rank 0: .* float32\[1\] on cuda; ranks 1, 2: .* float32\[1\];"
    with pytest.raises(DistributedError, match=devices):
        ranks(on)
    assert not machine.calls


@pytest.mark.parametrize("fails", ["failing", "late"])
def test_nccl_that_fails_ends_the_group(fails, ranks, machine):
    def on(group):
        x = ml.Tensor([1.0])
        distributed.all_reduce(x)
        getattr(machine, fails)[group.rank] = 2
        with pytest.raises(DistributedError) as failed:
            distributed.all_reduce(x)
        with pytest.raises(
            DistributedError, match=r"cannot go on at broadcast from 0.*: NCCL fail"
        ):
            distributed.broadcast(x)
        return str(failed.value)

    for rank, sentence in enumerate(ranks(on)):
        assert sentence.startswith(
            f"NCCL failed on rank {rank} of 'world' at all_reduce sum of float32[1] on cuda: "
            "NCCL_ERROR_SYSTEM_ERROR: unhandled system error"
        )
        assert "NCCL_DEBUG=INFO in the environment" in sentence
    assert sorted(machine.aborted) == [0, 1, 2]


def test_nccl_that_does_not_start(ranks, machine):
    machine.failing.update(dict.fromkeys(range(SIZE), 5))
    with pytest.raises(DistributedError, match=r"rank 0 of 'world' at its start: .*INVALID_USAGE"):
        ranks(lambda group: None)


# --- Who has a GPU --------------------------------------------------------------------------------


def kinds(found):
    return [type(group).__name__ for group in found]


def test_auto_is_nccl_where_each_rank_has_a_gpu(ranks, machine):
    assert kinds(ranks(lambda group: group, backend="auto")) == ["NcclGroup"] * SIZE
    assert kinds(ranks(lambda group: group, 1, "auto")) == ["Loopback"]
    assert kinds(ranks(lambda group: group, 1)) == ["NcclGroup"]  # for who asks for it


def no_gpu(cupy):
    cupy.cuda.runtime.getDeviceCount = lambda: 0


def no_nccl(cupy):
    cupy.cuda.nccl.available = False


@pytest.mark.parametrize(
    ("lacking", "size", "sentence"),
    [
        (no_gpu, 2, "rank 0 has no GPU for NCCL: device 'cuda' is not available: there is no GPU"),
        (no_nccl, 2, "rank 0 has no GPU for NCCL: cupy finds no NCCL: pip install nvidia-nccl"),
        (None, 4, r"ranks 0, 3 would share the GPU 0000:00:00.0 of .*start fewer there; init\("),
    ],
)
def test_what_nccl_needs_and_is_not_there(lacking, size, sentence, ranks, cupy):
    if lacking:
        lacking(cupy)
    with pytest.raises(DistributedError, match=sentence):
        ranks(lambda group: group, size)
    assert kinds(ranks(lambda group: group, size, "auto")) == ["Loopback"] * size


def test_ranks_of_a_host_take_its_gpus_in_turn():
    """Also those that a launcher gives one GPU each, which is then number 0 there."""
    both, one, other = ["a", "b"], ["a"], ["b"]

    def seats(*told):
        return of_ranks._seats([of_ranks._Told(host, gpus, "") for host, gpus in told])

    found, refusal = seats(("x", both), ("y", both), ("x", both), ("z", one), ("z", other))
    assert not refusal
    assert [(s.host, s.gpu, s.bus) for s in found] == [
        ("x", 0, "a"), ("y", 0, "a"), ("x", 1, "b"), ("z", 0, "a"), ("z", 0, "b"),
    ]  # fmt: skip
    assert "ranks 0, 1 would share the GPU a of 'z'" in seats(("z", one), ("z", one))[1]


def test_a_machine_without_a_gpu_does_not_import_cupy(monkeypatch):
    monkeypatch.delitem(sys.modules, "cupy", raising=False)
    monkeypatch.setattr(of_ranks, "find_spec", lambda name: None)
    assert of_ranks._found(required=False) == ([], "there is no GPU for cupy")
    assert "cupy" not in sys.modules
    assert platform.node() in of_ranks._told(Self(), required=False)[0]
