"""Memory of a GPU that is lent to others and borrowed from them, tensors of PyTorch among them: on
the double of cupy, whose memory is the CPU's, so that a tensor of the CPU stands for one of a GPU.
"""

import numpy as np
import pytest

import miniml as ml
from miniml import ops
from miniml.backends.machine import get_device
from miniml.errors import DTypeError
from miniml.interop.operator import of_primitive, owned
from tests.device import emucupy

X = np.arange(12, dtype=np.float32).reshape(3, 4)


def test_borrowed_memory_is_the_lenders_and_lent_memory_the_tensors(cupy):
    lender = emucupy.asarray(X)
    array = get_device("cuda").borrowed(lender, X.dtype)
    assert array.block.data.ptr == lender.data.ptr
    lender.set(X + 1)
    np.testing.assert_array_equal(get_device("cuda").to_host(array), X + 1)
    lent = get_device("cuda").lent(ml.Tensor(X).to("cuda")._data)
    assert (lent.shape, lent.dtype) == (X.shape, X.dtype)
    np.testing.assert_array_equal(lent.get(), X)


def test_the_lender_is_told_of_the_current_stream(cupy):
    emucupy.asked.clear()
    get_device("cuda").borrowed(emucupy.asarray(X), X.dtype)
    with cupy.cuda.Stream(non_blocking=True) as stream:
        get_device("cuda").borrowed(emucupy.asarray(X), X.dtype)
    assert emucupy.asked == [1, stream.ptr]


def test_memory_that_begins_between_is_copied(cupy):
    base = emucupy.asarray(X.reshape(-1))
    part = base[1:9]
    array = get_device("cuda").borrowed(part, X.dtype)
    assert array.block.data.ptr % 16 == 0
    np.testing.assert_array_equal(get_device("cuda").to_host(array), X.reshape(-1)[1:9])


@pytest.mark.parametrize("shape", [(), (0, 3), (2, 0)])
def test_one_number_and_none(cupy, shape):
    array = get_device("cuda").borrowed(emucupy.asarray(np.ones(shape, np.float32)), X.dtype)
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
    """torch, to which memory of a GPU is what the double has."""
    found = pytest.importorskip("torch", reason="no torch")
    real = found.from_dlpack
    lent = lambda x: real(emucupy.SimpleCapsule(x.__dlpack__(stream=1)))  # noqa: E731
    monkeypatch.setattr(found, "from_dlpack", lent)
    return found


class OnGpu:
    """A tensor of torch that says it is on a GPU."""

    is_cuda, is_cpu, requires_grad, device = True, False, False, "cuda:0"

    def __init__(self, tensor):
        self.tensor, self.streams = tensor, []
        self.layout, self.dtype, self.shape = tensor.layout, tensor.dtype, tensor.shape

    def detach(self):
        return self

    resolve_conj = resolve_neg = detach

    def contiguous(self):
        return OnGpu(self.tensor.contiguous())

    def view(self, dtype):
        return OnGpu(self.tensor.view(dtype))

    def numpy(self):
        raise TypeError("can't convert cuda:0 device type tensor to numpy")

    def __dlpack_device__(self):
        return 2, 0

    def __dlpack__(self, *, stream, **_):
        emucupy.asked.append(stream)
        return self.tensor.__dlpack__()


@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16", "int64", "bool"])
def test_tensors_of_a_gpu_go_in_and_out(torch, dtype):
    from miniml.interop.pytorch import tensor_in, tensor_out  # noqa: PLC0415

    x = torch.arange(6).reshape(2, 3).to(getattr(torch, dtype))
    here = tensor_in(OnGpu(x))
    assert (here.device, here.shape) == ("cuda", (2, 3))
    assert here._data.block.data.ptr == x.data_ptr()
    again = tensor_out(here._data)
    assert again.dtype == x.dtype
    assert again.data_ptr() == x.data_ptr()
    assert torch.equal(again, x)
    turned = tensor_in(OnGpu(x.T))  # not in row-major order
    assert torch.equal(tensor_out(turned._data), x.T)


def test_an_operator_runs_where_its_tensors_are(torch):
    from miniml.interop.pytorch import computed  # noqa: PLC0415

    exp = of_primitive(ops.Exp(), {}, 1, 1)
    found = computed(exp, [OnGpu(torch.from_numpy(X))])
    np.testing.assert_allclose(found.numpy(), np.exp(X), 1e-6)
    (dx,) = [computed(exp.pulled, [OnGpu(torch.from_numpy(a)) for a in (X, np.exp(X), X)])]
    np.testing.assert_allclose(dx.numpy(), X * np.exp(X), 1e-6)


def test_what_is_refused(torch):
    from miniml.interop.pytorch import tensor_in  # noqa: PLC0415

    sparse = OnGpu(torch.ones(2, 2).to_sparse())
    with pytest.raises(DTypeError, match=r"of layout torch.sparse_coo; give x.to_dense\(\)"):
        tensor_in(sparse)
