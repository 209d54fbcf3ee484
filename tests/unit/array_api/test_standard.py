"""Every name of the array API standard 2025.12 is there, or in the table of docs/interop.md."""

import inspect
from pathlib import Path

import numpy as np
import pytest

import miniml as ml
from miniml.errors import DTypeError, ShapeError, ValueRefusedError

xp = ml.array_api
ROOT = Path(ml.__file__).parents[1]

STANDARD = {
    "xp": """e inf nan newaxis pi arange asarray empty empty_like eye from_dlpack full full_like
        linspace meshgrid ones ones_like tril triu zeros zeros_like astype broadcast_arrays
        broadcast_shapes broadcast_to can_cast finfo iinfo isdtype result_type bool int8 int16 int32
        int64 uint8 uint16 uint32 uint64 float32 float64 complex64 complex128 abs acos acosh add
        asin asinh atan atan2 atanh bitwise_and bitwise_left_shift bitwise_invert bitwise_or
        bitwise_right_shift bitwise_xor ceil clip conj copysign cos cosh divide equal exp expm1
        floor floor_divide greater greater_equal hypot imag isfinite isinf isnan less less_equal log
        log1p log2 log10 logaddexp logical_and logical_not logical_or logical_xor maximum minimum
        multiply negative nextafter not_equal positive pow real reciprocal remainder round sign
        signbit sin sinh square sqrt subtract tan tanh trunc take take_along_axis matmul
        matrix_transpose tensordot vecdot concat expand_dims flip moveaxis permute_dims repeat
        reshape roll squeeze stack tile unstack argmax argmin count_nonzero nonzero searchsorted
        where isin unique_all unique_counts unique_inverse unique_values argsort sort
        cumulative_prod cumulative_sum max mean min prod std sum var all any diff fft linalg
        __array_api_version__ __array_namespace_info__""",
    "xp.linalg": """cholesky cross det diagonal eigh eigvalsh inv matmul matrix_norm matrix_power
        matrix_rank matrix_transpose outer pinv qr slogdet solve svd svdvals tensordot trace vecdot
        vector_norm eig eigvals""",
    "xp.fft": """fft ifft fftn ifftn rfft irfft rfftn irfftn hfft ihfft fftfreq rfftfreq fftshift
        ifftshift""",
    "Tensor": """dtype device mT ndim shape size T __abs__ __add__ __and__ __array_namespace__
        __bool__ __complex__ __dlpack__ __dlpack_device__ __eq__ __float__ __floordiv__ __ge__
        __getitem__ __gt__ __index__ __int__ __invert__ __le__ __lshift__ __lt__ __matmul__ __mod__
        __mul__ __ne__ __neg__ __or__ __pos__ __pow__ __rshift__ __setitem__ __sub__ __truediv__
        __xor__ to_device""",
}
# Keywords of the standard, where a function has some.
KEYWORDS = {
    "arange": "dtype device", "asarray": "dtype device copy", "astype": "copy device",
    "argmax": "axis keepdims", "argsort": "axis descending stable", "clip": "min max",
    "concat": "axis", "cumulative_sum": "axis dtype include_initial",
    "diff": "axis n prepend append",
    "eye": "k dtype device",
    "from_dlpack": "device copy", "full_like": "dtype device",
    "isin": "invert", "linspace": "dtype device endpoint", "meshgrid": "indexing",
    "reshape": "copy", "roll": "axis", "searchsorted": "side sorter", "sort": "axis descending",
    "std": "axis correction keepdims", "sum": "axis dtype keepdims", "take": "axis",
    "tensordot": "axes", "unstack": "axis", "vecdot": "axis", "zeros": "dtype device",
}  # fmt: skip


def listed():
    """The names in the first column of the table of what is missing."""
    text = (ROOT / "docs/interop.md").read_text().split("### Not of the standard")[1]
    rows = [line.split("|")[1] for line in text.split("\n\n")[2].splitlines()[2:]]
    return {name.strip(" `") for row in rows for name in row.split(",")}


@pytest.mark.parametrize("owner", STANDARD)
def test_every_name_is_there_or_in_the_list(owner):
    space = {"xp": xp, "xp.linalg": xp.linalg, "xp.fft": xp.fft, "Tensor": ml.Tensor}[owner]
    prefix = "" if owner == "xp" else owner.removeprefix("xp.") + "."
    refused = {"Tensor.__setitem__"}  # is there, to say what would do
    missing = {
        prefix + name
        for name in STANDARD[owner].split()
        if not hasattr(space, name) or prefix + name in refused
    }
    assert missing == {n for n in listed() if n.startswith(prefix) and ("." in n) == bool(prefix)}


@pytest.mark.parametrize("name", KEYWORDS)
def test_keywords_are_the_standards(name):
    taken = inspect.signature(getattr(xp, name)).parameters
    assert set(KEYWORDS[name].split()) <= set(taken)


def test_a_tensor_gives_the_namespace_of_each_version():
    x = ml.Tensor([1.0])
    assert x.__array_namespace__() is xp
    assert x.__array_namespace__(api_version="2024.12") is xp
    with pytest.raises(ValueRefusedError, match=r"got api_version='2019\.01'; expected one of"):
        x.__array_namespace__(api_version="2019.01")


def test_traced_tensors_and_parameters_give_it_too():
    assert ml.Parameter(np.ones(2), name="w").__array_namespace__() is xp

    def total(x):
        space = x.__array_namespace__()
        return space.sum(space.multiply(x, 2), axis=0)

    assert ml.jit(total)(np.ones((2, 3))).tolist() == [4.0, 4.0, 4.0]
    assert ml.grad.grad(lambda x: total(x)[0])(np.ones((2, 3))).tolist()[0] == [2.0, 0.0, 0.0]


def test_tensors_move_by_the_standards_name():
    x = ml.Tensor([1.0, 2.0])
    assert x.to_device("cpu") is x
    there = x.to_device("cuda-sim")
    assert there.device == "cuda-sim"
    assert there.to_device("cpu").tolist() == [1.0, 2.0]
    with pytest.raises(ml.errors.DeviceError, match="got stream=3; miniml orders its streams"):
        x.to_device("cpu", stream=3)


@pytest.mark.parametrize("make", [xp.zeros, xp.ones, xp.empty])
def test_tensors_are_made_on_the_device_that_is_given(make):
    assert make((2,), device="cuda-sim").device == "cuda-sim"
    assert make((2,)).device == "cpu"
    assert make((2,)).dtype == ml.float32


def test_asarray_shares_copies_or_refuses():
    x, owner = ml.Tensor([1.0]), np.arange(3.0)
    assert xp.asarray(x) is x
    assert xp.asarray(x, dtype="float64").dtype == ml.float64
    assert not np.shares_memory(np.asarray(xp.asarray(owner)), owner)
    assert np.shares_memory(np.asarray(xp.asarray(owner, copy=False)), owner)
    assert xp.asarray([x, 2 * x]).tolist() == [[1.0], [2.0]]
    for taken, named in (([1.0], {}), (x, {"dtype": "int8"}), (owner, {"dtype": "int8"})):
        with pytest.raises(ValueRefusedError, match=r"copy=False refuses a .*; leave copy out"):
            xp.asarray(taken, copy=False, **named)


def test_limits():
    assert xp.finfo("complex64") == xp.finfo(ml.float32)
    limits = xp.finfo(ml.Tensor([1.0]))
    known = np.finfo(np.float32)
    assert (limits.bits, limits.eps, limits.max) == (32, float(known.eps), float(known.max))
    assert limits.smallest_normal == float(known.smallest_normal)
    assert (xp.iinfo("int16").min, xp.iinfo("int16").max, xp.iinfo("int16").bits) == (
        -32768,
        32767,
        16,
    )
    with pytest.raises(DTypeError, match="finfo got int8"):
        xp.finfo("int8")
    with pytest.raises(DTypeError, match="iinfo got float16"):
        xp.iinfo("float16")


def test_inspection():
    info = xp.__array_namespace_info__()
    assert info.default_device() == "cpu"
    assert {"cpu", "cuda-sim"} <= set(info.devices())
    assert info.default_dtypes()["real floating"] == xp.zeros(1).dtype
    assert info.default_dtypes()["integral"] == xp.asarray(1).dtype
    assert set(info.dtypes(kind="real floating")) == {"float32", "float64"}
    assert set(info.dtypes(kind=("bool", "complex floating"), device="cpu")) == {
        "bool", "complex64", "complex128",
    }  # fmt: skip
    assert info.capabilities()["boolean indexing"] is True


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda x: xp.isdtype("int8", "ints"), ValueRefusedError, "kind='ints'; expected one of"),
        (lambda x: xp.result_type(1), DTypeError, "one tensor or dtype at least"),
        (lambda x: xp.signbit(xp.asarray(1)), DTypeError, "signbit got int64; it takes floats"),
        (
            lambda x: xp.broadcast_shapes((2,), (3,)),
            ShapeError,
            r"got \(2,\), \(3,\), which do not",
        ),
        (lambda x: xp.take(x, xp.asarray([0])), ShapeError, "no axis; give axis="),
        (xp.cumulative_sum, ShapeError, "cumulative_sum got x of shape"),
        (lambda x: xp.nonzero(x[0, 0]), ShapeError, "one axis at least"),
        (lambda x: xp.tensordot(x, x, axes=3), ValueRefusedError, "expected 0 to 2"),
        (lambda x: xp.tensordot(x, x, axes=1), ShapeError, "must agree in pairs"),
        (lambda x: xp.vecdot(x, x[:, :1]), ShapeError, "of other extents along axis -1; only"),
        (lambda x: xp.vecdot(x, x[0], axis=-2), ShapeError, "axis -2"),
        (lambda x: xp.linalg.qr(x, mode="r"), ValueError, "mode"),
        (lambda x: xp.fft.hfft(x, norm="no"), ValueError, "norm"),
        (lambda x: xp.diff(x, n=-1), ValueError, "n"),
    ],
)
def test_refusals(call, error, message):
    with pytest.raises(error, match=message):
        call(ml.Tensor(np.ones((2, 3))))


def test_shapes_that_depend_on_values_are_refused_in_graphs():
    with pytest.raises(ml.errors.MinimlError, match="depend"):
        ml.jit(xp.unique_values)(np.ones(3))
