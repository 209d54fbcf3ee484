"""Memory of a GPU that is lent to others and borrowed from them, tensors of PyTorch among them: on
the double of cupy, whose memory is the CPU's, so that a tensor of the CPU stands for one of a GPU.
"""

import copy
from contextlib import nullcontext
from types import SimpleNamespace

import numpy as np
import pytest

import miniml as ml
from miniml import nn, ops, optim
from miniml.backends.selection import get_device
from miniml.errors import DeviceError, DTypeError, GraphError, TracedValueError, ValueRefusedError
from miniml.grad import grad, value_and_grad
from miniml.interop.dlpack import Lender, imported
from miniml.interop.operator import owned
from tests.device import emucupy

X = np.arange(12, dtype=np.float32).reshape(3, 4)


def test_borrowed_memory_is_the_lenders_and_lent_memory_the_tensors(cupy):
    lender = emucupy.asarray(X)
    array = imported(lender)
    assert array.block.data.ptr == lender.data.ptr
    lender.set(X + 1)
    np.testing.assert_array_equal(get_device("cuda").to_host(array), X + 1)
    lent = get_device("cuda").lent(ml.Tensor(X).to("cuda")._data)
    assert (lent.shape, lent.dtype) == (X.shape, X.dtype)
    np.testing.assert_array_equal(lent.get(), X)


def test_the_lender_is_told_of_the_current_stream(cupy):
    emucupy.asked.clear()
    imported(emucupy.asarray(X))
    with cupy.cuda.Stream(non_blocking=True) as stream:
        imported(emucupy.asarray(X))
    assert emucupy.asked == [1, stream.ptr]


def test_memory_that_begins_between_is_copied(cupy):
    base = emucupy.asarray(X.reshape(-1))
    part = base[1:9]
    array = imported(part)
    assert array.block.data.ptr % 16 == 0
    np.testing.assert_array_equal(get_device("cuda").to_host(array), X.reshape(-1)[1:9])


def test_what_kernels_cannot_read_as_it_is_is_copied_or_refused(cupy):
    class Turned:  # of another library: columns in a row
        def __dlpack_device__(self):
            return 2, 0

        def __dlpack__(self, **_):
            return np.asfortranarray(X).__dlpack__()

    array = imported(Turned())
    np.testing.assert_array_equal(get_device("cuda").to_host(array), X)
    for lender in (Turned(), emucupy.asarray(X.reshape(-1))[1:9]):
        with pytest.raises(ValueRefusedError, match="without a copy; leave copy out"):
            ml.from_dlpack(lender, copy=False)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "bool"])
def test_tensors_of_a_gpu_stay_there(cupy, dtype):
    """`ml.from_dlpack` in, `__dlpack__` out: the memory itself, or a copy on the device."""
    x = ml.Tensor(X).astype(dtype)
    there = x.to("cuda")
    lender = get_device("cuda").lent(there._data)
    here = ml.from_dlpack(Lender(there._data))  # of bfloat16, if they are
    assert (here.device, here.dtype, here.shape) == ("cuda", x.dtype, (3, 4))
    assert here._data.block.data.ptr == lender.data.ptr
    assert here.tolist() == x.tolist()
    assert here.__dlpack_device__() == (2, 0)
    for shared in (None, False):
        back = ml.from_dlpack(Host(here.__dlpack__(stream=1, copy=shared)))
        assert back.tolist() == x.tolist()
        assert (address(back) == lender.data.ptr) is (shared is False)
    assert ml.from_dlpack(lender, copy=True)._data.block.data.ptr != lender.data.ptr
    assert ml.Tensor(Lender(there._data)).tolist() == x.tolist()


class Host:
    """A capsule of the double, whose memory is the CPU's."""

    def __init__(self, capsule):
        self.capsule = capsule

    def __dlpack_device__(self):
        return 1, 0

    def __dlpack__(self, **_):
        return self.capsule


def address(tensor):
    data = tensor._data
    return data.ctypes.data if isinstance(data, np.ndarray) else data.block.data.ptr


def test_views_and_parameters_are_lent_and_what_is_traced_is_not(cupy):
    turned = ml.Tensor(X).to("cuda").T
    back = ml.from_dlpack(Host(turned.__dlpack__(stream=1, copy=False)))
    np.testing.assert_array_equal(back.asnumpy(), X.T)
    weight = ml.Parameter(X, device="cuda")
    capsule = weight.__dlpack__(stream=1)
    weight.set_data(X + 1)
    np.testing.assert_array_equal(ml.from_dlpack(Host(capsule)).asnumpy(), X)
    with pytest.raises(TracedValueError, match="DLPack on a tensor under a gradient"):
        grad(lambda x: (x.__dlpack__(), x.sum())[1])(ml.Tensor(X).to("cuda"))


def test_memory_of_another_gpu_is_refused(cupy):
    class Second:
        def __dlpack_device__(self):
            return 2, 1

        __dlpack__ = None

    with pytest.raises(DeviceError, match=r"computes on GPU 0, which is cupy's current one"):
        ml.from_dlpack(Second())
    with pytest.raises(DeviceError, match=r"memory of device \(10, 0\) .* give device='cpu'"):
        ml.from_dlpack(
            type("Metal", (), {"__dlpack_device__": lambda _: (10, 0)} | {"__dlpack__": 0})()
        )


@pytest.mark.parametrize("shape", [(), (0, 3), (2, 0)])
def test_one_number_and_none(cupy, shape):
    array = imported(emucupy.asarray(np.ones(shape, np.float32)))
    assert array.shape == shape
    np.testing.assert_array_equal(get_device("cuda").to_host(array), np.ones(shape, np.float32))


def test_results_are_handed_out_in_their_own_memory(gpu):
    device = get_device("cuda")
    made = [ops.exp(ml.Tensor(X).to("cuda"))]
    address = made[0]._data.block.data.ptr
    (array,) = owned(made)
    assert array.block.data.ptr == address
    kept = ops.exp(ml.Tensor(X).to("cuda"))  # the caller has it, too
    (copied,) = owned([kept])
    assert copied.block.data.ptr != kept._data.block.data.ptr
    np.testing.assert_array_equal(device.to_host(copied), kept.asnumpy())
    row = [ops.exp(ml.Tensor(X).to("cuda"))[1]]  # in a block of more
    (array,) = owned(row)
    assert array.bounds() == (0, array.block.nbytes)


# --- PyTorch --------------------------------------------------------------------------------------


@pytest.fixture
def torch(gpu, monkeypatch):
    """torch with tensors of a GPU, whose memory is what the double has; `torch.on_gpu` makes them.

    To torch's kernels they are tensors of the CPU, so it computes with them too. What asks where
    they are is told: on a GPU.
    """
    found = pytest.importorskip("torch", reason="no torch")

    class OnGpu(found.Tensor):
        is_cuda, is_cpu = True, False

        def numpy(self):
            raise TypeError("can't convert cuda:0 device type tensor to numpy")

        def detach(self):  # inside an operator torch makes plain tensors of what it derives
            return super().detach().as_subclass(OnGpu)

        def resolve_conj(self):
            return self

        resolve_neg = resolve_conj

        def __dlpack_device__(self):
            return 2, 0

        def __dlpack__(self, *, stream, **_):
            emucupy.asked.append(stream)
            return self.as_subclass(found.Tensor).detach().__dlpack__()

    real = {name: getattr(found, name) for name in ("from_dlpack", "zeros", "empty")}

    def from_dlpack(lender):
        if lender.__dlpack_device__()[0] != 2:
            return real["from_dlpack"](lender)
        capsule = lender.__dlpack__(stream=1)
        return real["from_dlpack"](emucupy.SimpleCapsule(capsule)).as_subclass(OnGpu)

    def made(name):
        def make(*shape, device="cpu", **named):
            if device != "cuda":
                return real[name](*shape, device=device, **named)
            plain = real[name](*shape, **named)
            return plain.as_subclass(OnGpu)

        return make

    stream = SimpleNamespace(cuda_stream=77)
    entered = []
    for name, value in {
        "from_dlpack": from_dlpack, "zeros": made("zeros"), "empty": made("empty"),
        "cuda.current_stream": lambda: stream,
        "cuda.ExternalStream": lambda handle: handle,
        "cuda.stream": lambda handle: entered.append(handle) or nullcontext(),
        "cuda.get_rng_state": found.get_rng_state, "cuda.set_rng_state": found.set_rng_state,
    }.items():  # fmt: skip
        monkeypatch.setattr(f"torch.{name}", value)
    pytorch = pytest.importorskip("miniml.interop.pytorch", reason="no torch")
    compute = pytorch.Library._compute

    def compute_there(library, *tensors, **attributes):
        if "_bprop" in library.name and any(x.is_cuda for x in tensors):
            tensors = [x.as_subclass(OnGpu) for x in tensors]  # autograd made plain ones of some
        return compute(library, *tensors, **attributes)

    monkeypatch.setattr(pytorch.Library, "_compute", compute_there)
    monkeypatch.setattr(found, "on_gpu", lambda x: x.as_subclass(OnGpu), raising=False)
    monkeypatch.setattr(found, "entered", entered, raising=False)
    return found


@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16", "int64", "bool"])
def test_tensors_of_a_gpu_go_in_and_out(torch, dtype):
    from miniml.interop.pytorch import tensor_in, tensor_out  # noqa: PLC0415

    x = torch.arange(6).reshape(2, 3).to(getattr(torch, dtype))
    here = tensor_in(torch.on_gpu(x))
    assert (here.device, here.shape) == ("cuda", (2, 3))
    assert here._data.block.data.ptr == x.data_ptr()
    again = tensor_out(here._data)
    assert again.is_cuda
    assert again.dtype == x.dtype
    assert again.data_ptr() == x.data_ptr()
    assert torch.equal(again, x)
    turned = tensor_in(torch.on_gpu(x.T))  # not in row-major order
    assert torch.equal(tensor_out(turned._data), x.T)


def test_an_operator_runs_where_its_tensors_are_and_on_their_stream(torch):
    from miniml.interop import to_torch  # noqa: PLC0415

    x = torch.on_gpu(torch.from_numpy(X.copy())).requires_grad_()
    emucupy.asked.clear()
    out = to_torch(ops.Exp())(x)
    assert emucupy.asked == [77, 1]  # cupy's stream is torch's; torch's own asks for what comes out
    assert out.is_cuda
    np.testing.assert_allclose(host(out), np.exp(X), 1e-6)
    (dx,) = torch.autograd.grad(out.sum(), x, create_graph=True)
    (ddx,) = torch.autograd.grad(dx.sum(), x)
    np.testing.assert_allclose(host(ddx), np.exp(X), 1e-6)


def host(x):
    import torch  # noqa: PLC0415

    return x.detach().as_subclass(torch.Tensor).numpy()


def test_a_network_shares_the_memory_of_a_gpu(torch):
    from miniml.interop import to_torch  # noqa: PLC0415

    ml.manual_seed(0)
    net = nn.Sequential(nn.Dense(4, 3), nn.BatchNorm1d(3), nn.Dropout(0.5), nn.Dense(3, 2))
    here = copy.deepcopy(net)
    here.to("cpu")
    module, same = to_torch(net.to("cuda")), to_torch(here)
    weight = net.parameters_dict()["0.weight"]
    assert module.get_parameter("0.weight").data_ptr() == weight._buffer.block.data.ptr
    x = torch.from_numpy(X.copy())
    for _ in range(2):
        ml.manual_seed(3)
        out = module(torch.on_gpu(x))
        ml.manual_seed(3)
        wanted = same(x)
        assert out.is_cuda
        np.testing.assert_allclose(host(out), wanted.detach().numpy(), 1e-3, 1e-4)
        for m, o in ((module, out), (same, wanted)):
            optimizer = torch.optim.SGD(m.parameters(), lr=0.1)
            optimizer.zero_grad()
            (o**2).sum().backward()
            optimizer.step()
    for path, parameter in here.parameters_dict().items():  # statistics have moved, too
        found = net.parameters_dict()[path]
        assert found.device == "cuda"
        np.testing.assert_allclose(found.asnumpy(), parameter.asnumpy(), 1e-3, 1e-4)
    net.parameters_dict()["0.bias"].set_data(np.full(3, 7.0, np.float32))
    assert host(module.state_dict()["0.bias"]).tolist() == [7.0] * 3


def test_a_module_of_torch_computes_on_the_gpu(torch):
    from miniml.interop import from_torch  # noqa: PLC0415

    module = torch.nn.Linear(4, 2)
    with ml.context(device_target="cpu"):
        x, own = ml.Tensor(X), from_torch(module)
        wanted = value_and_grad(lambda x: (own(x) ** 2).sum())(x)
    for name, p in list(module.named_parameters()):
        setattr(module, name, torch.nn.Parameter(torch.on_gpu(p.detach())))
    net = from_torch(module)
    assert [p.device for p in net.trainable_params()] == ["cuda"] * 2
    torch.entered.clear()
    found = value_and_grad(lambda x: (net(x) ** 2).sum())(x.to("cuda"))
    for a, b in zip(found, wanted, strict=True):
        assert a.device == "cuda"
        np.testing.assert_allclose(a.asnumpy(), b.asnumpy(), 1e-6)
    assert set(torch.entered) == {get_device("cuda").stream.ptr}
    step = ml.train_step(net, nn.MSELoss(), optim.SGD(net.trainable_params(), lr=0.1))
    before = host(module.weight).copy()
    step(x.to("cuda"), ml.Tensor(X[:, :2]).to("cuda"))
    assert not np.array_equal(host(module.weight), before)  # the memory is the module's
    graph = ml.jit(grad(lambda x: ops.sum(from_torch(torch.sin)(x))))
    np.testing.assert_allclose(graph(x.to("cuda")).asnumpy(), np.cos(X), 1e-6)


def test_effects_on_a_gpu_are_refused(torch):
    from miniml.interop import from_torch  # noqa: PLC0415

    drawing = from_torch(lambda x: x + torch.rand(()))
    with pytest.raises(GraphError, match="draws random numbers"):
        drawing(ml.Tensor(X).to("cuda"))


def test_what_is_refused(torch):
    from miniml.interop.pytorch import tensor_in  # noqa: PLC0415

    with pytest.raises(DTypeError, match=r"of layout torch.sparse_coo; .* give x.to_dense\(\)"):
        tensor_in(torch.ones(2, 2).to_sparse())
    with pytest.raises(DTypeError, match=r"on meta; .* give x.cpu\(\)"):
        tensor_in(torch.ones(2, 2, device="meta"))
