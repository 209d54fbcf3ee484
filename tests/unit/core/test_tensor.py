"""Tensors do not change; Parameters change only where they say so."""

import copy
import math
import pickle

import numpy as np
import pytest

import miniml as ml
from miniml import ops
from miniml.backends import kernel
from miniml.backends import selection as devices
from miniml.errors import DeviceError, DTypeError, ImmutableError, ShapeError


class TestData:
    def test_data_are_copied(self):
        array = np.zeros(3)
        x = ml.Tensor(array)
        array[0] = 1
        assert x.tolist() == [0.0, 0.0, 0.0]

    @pytest.mark.parametrize("made", [ml.Tensor, ml.Parameter])
    @pytest.mark.parametrize("dtype", [np.int8, np.float32, np.complex128, ml.bfloat16])
    def test_large_data_begin_at_lines_of_the_caches(self, made, dtype):
        """Vectors of 64 bytes then lie in one line each; axes are in row-major order."""
        for array in (np.arange(5001), np.arange(9000).reshape(90, 100).T, np.empty((0, 9000))):
            seen = np.asarray(made(array.astype(dtype)))
            assert seen.ctypes.data % 64 == 0 or not seen.size
            assert seen.flags.c_contiguous
            assert seen.dtype == dtype
            assert (seen == array.astype(dtype)).all()

    def test_asnumpy_is_fresh_and_writable(self):
        x = ml.Tensor([1.0, 2.0])
        first = x.asnumpy()
        first[0] = 9
        assert x.tolist() == [1.0, 2.0]
        assert first.flags.c_contiguous

    def test_asarray_is_a_read_only_view(self):
        x = ml.Tensor([1.0, 2.0])
        view = np.asarray(x)
        assert np.shares_memory(view, np.asarray(x))
        with pytest.raises(ValueError, match="read-only"):
            view[0] = 1

    def test_array_protocol_with_dtype_and_copy(self):
        x = ml.Tensor([1.0, 2.0])
        assert np.asarray(x, dtype=np.float64).dtype == np.float64
        assert np.array(x).flags.writeable
        with pytest.raises(ValueError, match="without a copy"):
            np.asarray(x, dtype=np.float64, copy=False)

    def test_dlpack_both_ways(self):
        x = ml.Tensor([[1.0, 2.0]])
        assert np.from_dlpack(x).tolist() == [[1.0, 2.0]]

        class Foreign:
            """An array of another library: DLPack and nothing else."""

            def __init__(self, array):
                self.array = array

            def __dlpack__(self, **options):
                return self.array.__dlpack__(**options)

            def __dlpack_device__(self):
                return self.array.__dlpack_device__()

        assert ml.Tensor(Foreign(np.arange(3))).tolist() == [0, 1, 2]

    def test_what_gets_a_tensor_by_dlpack_cannot_change_it(self):
        x = ml.Tensor([1.0, 2.0])
        taken = np.from_dlpack(x)
        taken[0] = 99.0
        assert x.tolist() == [1.0, 2.0]
        shared = np.from_dlpack(x, copy=False)
        assert np.shares_memory(shared, x._data)
        assert not shared.flags.writeable

    def test_a_masked_array_is_refused(self):
        masked = np.ma.array([1.0, 2.0], mask=[False, True])
        for give in (ml.Tensor, ops.exp, ml.Parameter):
            with pytest.raises(DTypeError, match=r"masked array.*filled"):
                give(masked)

    def test_ragged_rows_and_objects_are_refused(self):
        with pytest.raises(ShapeError, match="rows of equal length"):
            ml.Tensor([[1.0], [1.0, 2.0]])
        for data in ("text", None, {1: 2}, [object()]):
            with pytest.raises(DTypeError, match="Tensor"):
                ml.Tensor(data)

    def test_nested_tensors_are_taken_in(self):
        row = ml.Tensor([1.0, 2.0])
        assert ml.Tensor([row, row]).shape == (2, 2)
        assert ml.Tensor(row).tolist() == [1.0, 2.0]
        assert ml.Tensor(row, dtype="int32").dtype == ml.int32

    @pytest.mark.parametrize("shape", [(), (0,), (2, 0, 3), (2, 3)])
    def test_what_it_says_of_itself(self, shape):
        x = ml.Tensor(np.zeros(shape, np.int16))
        assert (x.shape, x.ndim, x.size) == (shape, len(shape), math.prod(shape))
        assert (x.dtype, x.device, x.nbytes) == (ml.int16, "cpu", 2 * math.prod(shape))


class TestImmutable:
    def test_item_assignment_is_refused_and_says_what_to_use(self):
        x = ml.Tensor([1.0, 2.0])
        with pytest.raises(ImmutableError, match=r"ops.scatter.*ops.where"):
            x[0] = 1.0

    def test_augmented_assignment_rebinds(self):
        x = y = ml.Tensor([1.0])
        x += 1
        assert (x.tolist(), y.tolist()) == ([2.0], [1.0])

    def test_numpy_cannot_write_into_it(self):
        x = ml.Tensor([1.0])
        with pytest.raises(DTypeError, match=r"np.add with out is NumPy's .*use ops.add"):
            np.add(1.0, 1.0, out=(x,))

    def test_results_do_not_share_memory_with_a_parameter(self):
        p = ml.Parameter(np.arange(4.0))
        seen = p.reshape(2, 2)
        p.set_data(np.zeros(4))
        assert seen.tolist() == [[0.0, 1.0], [2.0, 3.0]]


class TestPythonProtocols:
    def test_scalars(self):
        assert (int(ml.Tensor(3.7)), float(ml.Tensor(3)), bool(ml.Tensor(0))) == (3, 3.0, False)
        assert [10, 20, 30][ml.Tensor(1)] == 20
        assert f"{ml.Tensor(0.25):.1%}" == "25.0%"
        assert ml.Tensor([[2.5]]).item() == 2.5

    def test_more_than_one_element_has_no_value(self):
        with pytest.raises(ShapeError, match=r"shape \(2,\) has 2 elements, so bool has no single"):
            bool(ml.Tensor([1.0, 2.0]))
        with pytest.raises(ShapeError, match="has 0 elements"):
            ml.Tensor([]).item()

    def test_a_float_cannot_be_used_as_an_index(self):
        with pytest.raises(DTypeError, match="float32 cannot be used as an index"):
            [1, 2][ml.Tensor(1.0)]

    def test_len_and_iteration(self):
        x = ml.Tensor([[1.0, 2.0], [3.0, 4.0]])
        assert len(x) == 2
        assert [row.tolist() for row in x] == [[1.0, 2.0], [3.0, 4.0]]
        for ask in (len, iter):
            with pytest.raises(ShapeError, match=r"shape \(\) has no length") as error:
                ask(ml.Tensor(1.0))
            assert isinstance(error.value, TypeError)
        assert (np.iterable(x), np.iterable(ml.Tensor(1.0))) == (True, False)

    def test_flatten_joins_neighbouring_axes(self):
        t = ml.Tensor(np.arange(24.0).reshape(2, 3, 4))
        assert t.flatten().shape == (24,)
        assert ml.Tensor(1.0).flatten().shape == (1,)
        assert t.flatten(1).tolist() == t.asnumpy().reshape(2, 12).tolist()
        assert t.flatten(0, 1).shape == t.flatten(-3, -2).shape == (6, 4)
        for axes in ((3,), (2, 1)):
            with pytest.raises(ShapeError):
                t.flatten(*axes)

    def test_repr(self):
        assert repr(ml.Tensor([[1.0, 2.0]])) == "Tensor([[1., 2.]], shape=(1, 2), dtype=float32)"
        assert "..." in repr(ml.Tensor(np.zeros(1000)))
        assert repr(ml.Parameter([1.0], name="w")).endswith("dtype=float32, name='w')")

    def test_hash_is_by_identity(self):
        x, y = ml.Tensor(1.0), ml.Tensor(1.0)
        assert len({x, y, x}) == 2

    def test_copies_and_pickles(self):
        x = ml.Tensor([1.0, 2.0], dtype="bfloat16")
        assert copy.deepcopy(x) is x
        back = pickle.loads(pickle.dumps(x))
        assert (back.dtype, back.astype("float32").tolist()) == (ml.bfloat16, [1.0, 2.0])


class TestNumPyFunctions:
    @pytest.mark.parametrize(
        ("ufunc", "args"),
        [
            (np.add, (1.0, 2.0)),
            (np.exp, (0.5,)),
            (np.maximum, (1.0, 2.0)),
            (np.less, (1.0, 2.0)),
            (np.matmul, (np.ones((2, 3)), np.ones((3, 2)))),
        ],
    )
    def test_ufuncs_dispatch(self, ufunc, args):
        first, *rest = args
        out = ufunc(ml.Tensor(first), *rest)
        assert isinstance(out, ml.Tensor)
        np.testing.assert_allclose(out.asnumpy(), ufunc(*args), rtol=1e-6)

    def test_an_array_on_the_left_gives_a_tensor(self):
        assert isinstance(np.ones(2) + ml.Tensor([1.0, 2.0]), ml.Tensor)
        assert isinstance(np.float32(2) * ml.Tensor([1.0, 2.0]), ml.Tensor)

    def test_other_ufuncs_are_refused_by_name(self):
        x = ml.Tensor([1.0])
        with pytest.raises(DTypeError, match=r"np.spacing is NumPy's .* t.asnumpy\(\)"):
            np.spacing(x)
        with pytest.raises(DTypeError, match=r"np.add.reduce is NumPy's"):
            np.add.reduce(x)

    def test_under_a_gradient_numpy_is_refused(self):
        for leave in (np.asarray, ml.Tensor.asnumpy, np.linalg.norm):
            with pytest.raises(ml.errors.TracedValueError, match="would lose the gradient"):
                ml.grad.grad(lambda x, leave=leave: x * leave(x).sum())(2.0)


class TestParameter:
    def test_set_data_keeps_buffer_shape_and_dtype(self):
        p = ml.Parameter(np.zeros(2, np.float32), name="w")
        view = np.asarray(p)
        p.set_data([1, 2])
        p.set_data(ml.Tensor([3.0, 4.0]))
        assert view.tolist() == [3.0, 4.0]
        assert np.shares_memory(view, np.asarray(p))

    def test_set_data_refuses_another_shape_or_dtype(self):
        p = ml.Parameter(np.zeros(2, np.float32), name="w")
        with pytest.raises(ShapeError, match=r"Parameter 'w' has shape \(2,\); got \(3,\)"):
            p.set_data(np.zeros(3, np.float32))
        with pytest.raises(ShapeError, match="never changes"):
            p.set_data(1.0)
        with pytest.raises(DTypeError, match="Parameter 'w' has dtype float32; got float64"):
            p.set_data(np.zeros(2))

    def test_item_assignment_and_shape_are_refused(self):
        p = ml.Parameter([1.0])
        with pytest.raises(ImmutableError, match=r"item assignment \[0\]; .*p.set_data\("):
            p[0] = 2.0
        with pytest.raises(AttributeError):
            p.shape = (2,)

    def test_assign_changes_it(self):
        p = ml.Parameter([1.0, 2.0])
        ops.assign(p, ml.Tensor([3.0, 4.0]))
        assert p.tolist() == [3.0, 4.0]

    def test_copies_are_independent_and_pickles_equal(self):
        p = ml.Parameter([1.0], name="w", requires_grad=False)
        for q in (copy.deepcopy(p), pickle.loads(pickle.dumps(p))):
            assert isinstance(q, ml.Parameter)
            assert (q.name, q.requires_grad, q.tolist()) == ("w", False, [1.0])
            q.set_data([5.0])
        assert p.tolist() == [1.0]


class Elsewhere(kernel.CPU):
    """A second device in the same memory."""


@pytest.fixture
def second_device(monkeypatch):
    real = devices.get_device

    def get_device(name):
        return Elsewhere() if name == "cuda" else real(name)

    monkeypatch.setattr("miniml.core.tensor.get_device", get_device)


class TestDevices:
    def test_a_tensor_is_made_on_the_contexts_device_and_stays(self, second_device):
        with ml.context(device_target="cuda"):
            x = ml.Tensor([1.0])
        assert (x.device, ml.Tensor([1.0]).device) == ("cuda", "cpu")
        assert x.to("GPU") is x
        assert x.to("cpu").device == "cpu"
        assert repr(x).endswith("device=cuda)")

    def test_two_devices_in_one_call_are_refused_by_name(self, second_device):
        x, y = ml.Tensor([1.0]), ml.Tensor([1.0], device="cuda")
        with pytest.raises(DeviceError, match="Add got tensors on two devices, cpu and cuda; move"):
            x + y

    @pytest.mark.parametrize("name", ["tpu", "", 3, "cuda:0"])
    def test_an_unknown_device_is_refused(self, name):
        with pytest.raises(DeviceError, match="is unknown; use 'cpu', 'cuda' or 'cuda-sim'"):
            ml.set_context(device_target=name)


def test_bfloat16_prints_as_floats_do():
    assert repr(ml.Tensor([1.5, 2.0]).astype(ml.bfloat16)) == (
        "Tensor([1.5, 2. ], shape=(2,), dtype=bfloat16)"
    )
