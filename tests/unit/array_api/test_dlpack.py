"""Memory of other libraries, both ways: what is shared, who owns it, and who may write."""

import gc

import numpy as np
import pytest

import miniml as ml
from miniml.errors import DeviceError, DTypeError, ValueRefusedError

SHAPES = {
    "plain": lambda a: a,
    "strided": lambda a: a[::2, 1:].T,
    "reversed": lambda a: a[::-1],
    "single": lambda a: a[0, 0],
    "empty": lambda a: a[:0],
}


class Foreign:
    """An array of another library: all that it has is DLPack."""

    def __init__(self, array, device=(1, 0), old=False):
        self.array, self.device, self.old = array, device, old

    def __dlpack__(self, **options):
        if self.old and options:
            raise TypeError("unexpected keyword arguments")
        return self.array.__dlpack__(**options)

    def __dlpack_device__(self):
        return self.device


def address(tensor):
    return np.asarray(tensor).__array_interface__["data"][0]


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("dtype", "bool int8 uint64 float16 bfloat16 float64 complex64".split())
def test_arrays_of_numpy_are_shared_whatever_their_strides(dtype, shape):
    owner = SHAPES[shape](np.arange(24).reshape(4, 6).astype(ml.Tensor([0]).astype(dtype).dtype))
    owner = np.asarray(owner)
    x = ml.from_dlpack(owner)
    assert x.dtype == owner.dtype
    assert x.shape == owner.shape
    assert address(x) == owner.__array_interface__["data"][0]
    assert owner.flags.writeable
    assert not np.asarray(x).flags.writeable
    np.testing.assert_array_equal(x.asnumpy(), owner)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "bool", "complex128"])
@pytest.mark.parametrize("old", [False, True])
def test_a_capsule_goes_out_and_comes_in(dtype, old):
    x = ml.Tensor(np.arange(6).reshape(2, 3)).astype(dtype)
    for back in (ml.from_dlpack(Foreign(x, old=old)), ml.Tensor(Foreign(x))):
        assert back.dtype == x.dtype
        np.testing.assert_array_equal(back.asnumpy(), x.asnumpy())
        assert address(back) != address(x)  # what goes out may be written to


def test_memory_lives_as_long_as_the_tensor():
    x = ml.from_dlpack(Foreign(np.arange(1000.0)))
    gc.collect()
    assert x.tolist() == list(range(1000))


def test_read_only_memory_is_shared_and_stays_so():
    owner = np.arange(3.0)
    owner.flags.writeable = False
    for producer in (owner, Foreign(owner)):
        x = ml.from_dlpack(producer)
        assert address(x) == owner.__array_interface__["data"][0]


def test_copies_are_made_when_asked_for():
    owner = np.arange(3.0)
    for producer in (owner, Foreign(owner)):
        x = ml.from_dlpack(producer, copy=True)
        owner += 1
        assert x.tolist() == (owner - 1).tolist()
        assert address(ml.from_dlpack(producer, copy=False)) == address(ml.from_dlpack(producer))


def test_another_byte_order_is_copied():
    owner = np.arange(3.0).astype(">f8")
    assert ml.from_dlpack(owner).tolist() == [0.0, 1.0, 2.0]
    with pytest.raises(ValueRefusedError, match="of another byte order"):
        ml.from_dlpack(owner, copy=False)


def test_tensors_of_ours_are_themselves_and_move():
    x = ml.Tensor([1.0, 2.0])
    assert ml.from_dlpack(x) is x
    assert ml.from_dlpack(x, device="cuda-sim").device == "cuda-sim"
    assert ml.from_dlpack(np.ones(2), device="cuda-sim").device == "cuda-sim"


@pytest.mark.parametrize(
    ("taken", "named", "error", "message"),
    [
        ([1.0], {}, DTypeError, r"list, which has no __dlpack__; ml\.Tensor\(x\) copies"),
        (Foreign(np.ones(2), (2, 0)), {}, DeviceError, r"device \(2, 0\) .* give device='cpu'"),
        (np.ones(2), {"copy": 1.5}, ValueRefusedError, "expected True, False or None"),
        (np.ones(2), {"copy": False, "device": "cuda-sim"}, ValueRefusedError, "would copy"),
        (np.array(["a"]), {}, DTypeError, "not supported"),
        (np.ones(2), {"device": "tpu"}, DeviceError, "unknown"),
    ],
)
def test_refusals(taken, named, error, message):
    with pytest.raises(error, match=message):
        ml.from_dlpack(taken, **named)


def test_a_producer_that_refuses_is_quoted():
    class Refusing(Foreign):
        def __dlpack__(self, **options):
            raise BufferError("detach me first")

    with pytest.raises(DTypeError, match=r"the memory of a .*Refusing: detach me first"):
        ml.from_dlpack(Refusing(None))
    with pytest.raises(DeviceError, match="detach me first"):
        ml.from_dlpack(Refusing(None, (2, 0)), device="cpu")


def test_a_capsule_is_taken_once():
    capsule = np.ones(2).__dlpack__()

    class Once(Foreign):
        def __dlpack__(self, **options):
            return capsule

    ml.from_dlpack(Once(None))
    with pytest.raises(DTypeError, match="taken before"):
        ml.from_dlpack(Once(None))


@pytest.mark.parametrize("dtype", "float32 bfloat16 bool complex64 int8 float16".split())
@pytest.mark.parametrize("shape", ["plain", "strided", "single", "empty"])
def test_tensors_of_torch_both_ways(dtype, shape):
    torch = pytest.importorskip("torch", reason="no torch")
    owner = SHAPES[shape](torch.arange(24).reshape(4, 6).to(getattr(torch, dtype)))
    x = ml.from_dlpack(owner)
    assert x.dtype.name == dtype
    if owner.numel():
        assert address(x) == owner.data_ptr()
    back = torch.from_dlpack(x)
    assert back.dtype == owner.dtype
    assert torch.equal(back, owner)
    if owner.numel():
        assert back.data_ptr() != owner.data_ptr()


@pytest.mark.parametrize("dtype", "float32 bfloat16 bool complex64 int8".split())
def test_arrays_of_jax_both_ways(dtype):
    jnp = pytest.importorskip("jax.numpy", reason="no jax")
    owner = jnp.arange(6).reshape(2, 3).astype(dtype)
    x = ml.from_dlpack(owner)
    assert x.dtype.name == dtype
    assert not np.asarray(x).flags.writeable  # they do not change, there either
    back = jnp.from_dlpack(x)
    assert back.dtype == owner.dtype
    assert (back == owner).all()
