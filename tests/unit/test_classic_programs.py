"""Two programs from MindSpore's documents on custom operators, with miniml's imports."""

import numpy as np
import pytest

import miniml as ml
from miniml import KernelAttr, Primitive, PrimitiveWithInfer, kernel, nn, ops, prim_attr_register
from miniml.errors import (
    ConstInputError,
    DTypeError,
    KernelNotFoundError,
    ShapeError,
    ValueRefusedError,
)
from miniml.grad import GradOperation, bprop_getters
from miniml.ops import validator
from miniml.ops.validator import Rel


class TransposePerm(PrimitiveWithInfer):
    """x with its axes in the order of `perm`, which is a const input."""

    const_inputs = ("perm",)

    @prim_attr_register
    def __init__(self):
        self.init_prim_io_names(inputs=["x", "perm"], outputs=["output"])

    def infer_shape(self, x_shape, perm):
        if len(x_shape) != len(perm):
            raise ShapeError(
                f"TransposePerm got perm {perm} for x of shape {x_shape}; their dimensions must be "
                "equal"
            )
        return tuple(x_shape[p] for p in perm)

    def infer_dtype(self, x_dtype, perm):
        return x_dtype


class InvertPermutation(Primitive):
    """The permutation that undoes a permutation; known at once, so it has no kernel."""

    def infer_shape(self, perm):
        return perm

    def infer_dtype(self, perm):
        return perm

    def infer_value(self, perm):
        return np.argsort(perm)


@bprop_getters.register(TransposePerm)
def get_bprop_transpose(self):
    """Transpose the cotangent back; perm gets int32 zeros."""
    transpose, invert = TransposePerm(), InvertPermutation()

    def bprop(x, perm, out, dout):
        return transpose(dout, invert(perm)), ops.full((len(perm),), 0, ml.int32)

    return bprop


float_attr = KernelAttr().add_input_attr(ml.float32).add_output_attr(ml.float32)


@kernel("TransposePerm", "cpu", float_attr, "d->d")
def transpose_cpu(x, *, perm, out):
    np.copyto(out, np.transpose(x, perm))


class TransposeNet(nn.Cell):
    def __init__(self):
        super().__init__()
        self.transpose = TransposePerm()

    def construct(self, data):
        return self.transpose(data, (1, 0))


class Grad(nn.Cell):
    def __init__(self, network):
        super().__init__()
        self.grad = GradOperation(sens_param=True)
        self.network = network

    def construct(self, input_data, sens):
        return self.grad(self.network)(input_data, sens)


@pytest.fixture(params=[ml.GRAPH_MODE, ml.PYNATIVE_MODE], ids=["graph", "pynative"])
def mode(request):
    ml.set_context(mode=request.param, device_target="CPU")
    return request.param


class TestTranspose:
    def test_forward(self, mode):
        x = np.arange(2 * 3).reshape(2, 3).astype(np.float32)
        output = TransposeNet()(ml.Tensor(x))
        assert output.asnumpy().tolist() == [[0, 3], [1, 4], [2, 5]]

    def test_gradient(self, mode):
        x = np.arange(2 * 3).reshape(2, 3).astype(np.float32)
        sens = np.arange(2 * 3).reshape(3, 2).astype(np.float32)
        dx = Grad(TransposeNet())(ml.Tensor(x), ml.Tensor(sens))
        assert dx.asnumpy().tolist() == [[0, 2, 4], [1, 3, 5]]

    def test_second_order(self, mode):
        x = np.arange(6.0).reshape(2, 3)
        net = TransposeNet()
        product = ml.grad.hvp(lambda x: (net(x) * net(x) * net(x)).sum(), x, np.ones((2, 3)))
        np.testing.assert_allclose(product.asnumpy(), 6 * x)

    @pytest.mark.parametrize(("shape", "perm"), [((3, 0), (1, 0)), ((), ()), ((4,), (-1,))])
    def test_shapes_at_the_edge(self, mode, shape, perm):
        x = np.ones(shape, np.float32)
        assert TransposePerm()(x, perm).shape == x.transpose(perm).shape

    def test_refusals(self, mode):
        x = np.ones((2, 3), np.float32)
        with pytest.raises(ShapeError, match=r"TransposePerm got perm .*dimensions must be equal"):
            TransposePerm()(x, (0, 1, 2))
        with pytest.raises(ConstInputError, match="TransposePerm needs 'perm' to be a constant"):
            ml.jit(TransposePerm())(x, np.array([1, 0]))
        with pytest.raises(KernelNotFoundError, match=r"f->f \(miniml\), d->d"):
            TransposePerm()(x.astype(np.int64), (1, 0))


class TensorAddV2(PrimitiveWithInfer):
    """x + y, for equal shapes of float32 or int32, with the document's older validator."""

    @prim_attr_register
    def __init__(self):
        self.init_prim_io_names(inputs=["x1", "x2"], outputs=["y"])

    def infer_shape(self, x1_shape, x2_shape):
        validator.check_integer("input dims", len(x1_shape), len(x2_shape), Rel.EQ, self.name)
        for i in range(len(x1_shape)):
            validator.check_integer("input_shape", x1_shape[i], x2_shape[i], Rel.EQ, self.name)
        return x1_shape

    def infer_dtype(self, x1_dtype, x2_dtype):
        types = {"x1_dtype": x1_dtype, "x2_dtype": x2_dtype}
        validator.check_tensor_type_same(types, [ml.float32, ml.int32], self.name)
        return x1_dtype


@bprop_getters.register(TensorAddV2)
def get_bprop_tensor_add_v2(self):
    """Both inputs get the cotangent."""

    def bprop(x1, x2, out, dout):
        return dout, dout

    return bprop


@kernel("TensorAddV2", "cpu", "ff->f", "ii->i")
def tensor_add_v2_cpu(x1, x2, *, out):
    np.add(x1, x2, out=out)


class AddNet(nn.Cell):
    def __init__(self):
        super().__init__()
        self.add = TensorAddV2()

    def construct(self, x1, x2):
        return self.add(x1, x2)


class TestTensorAddV2:
    @pytest.mark.parametrize("dtype", [np.float32, np.int32])
    def test_forward(self, mode, dtype):
        ones = np.ones((3, 4), dtype)
        result = AddNet()(ml.Tensor(ones), ml.Tensor(ones))
        assert result.dtype == dtype
        assert result.asnumpy().tolist() == [[2] * 4] * 3

    def test_gradient(self, mode):
        ones = ml.Tensor(np.ones((3, 4), np.float32))
        sens = np.arange(12, dtype=np.float32).reshape(3, 4)
        derive = GradOperation(get_all=True, sens_param=True)(AddNet())
        dx1, dx2 = derive(ones, ones, ml.Tensor(sens))
        np.testing.assert_array_equal(dx1.asnumpy(), sens)
        np.testing.assert_array_equal(dx2.asnumpy(), sens)

    def test_refusals(self, mode):
        x = np.ones((3, 4), np.float32)
        with pytest.raises(
            ValueRefusedError,
            match="TensorAddV2 got input_shape=4 of type int; expected an int equal to 1",
        ):
            AddNet()(ml.Tensor(x), ml.Tensor(x[:, :1]))
        with pytest.raises(
            ValueRefusedError, match="TensorAddV2 got input dims=2 of type int; exp"
        ):
            AddNet()(ml.Tensor(x), ml.Tensor(x[0]))
        with pytest.raises(
            DTypeError,
            match="TensorAddV2 got x1_dtype: float64 and x2_dtype: float64; expected the same "
            "dtype for all, float32 or int32",
        ):
            AddNet()(ml.Tensor(x.astype(float)), ml.Tensor(x.astype(float)))
