"""gradcheck of functions on a device, and of a user's gradient that is a kernel in CUDA C."""

import numpy as np
import pytest

import miniml as ml
from miniml import Launch, Primitive, elementwise_kernel, nn, ops, raw_kernel
from miniml.grad import bprop_getters
from miniml.ops import Unary
from miniml.testing import gradcheck

X = np.array([[0.3, -1.2, 0.7], [2.0, -0.4, 1.1]])
MODES = pytest.mark.parametrize("mode", [ml.PYNATIVE_MODE, ml.GRAPH_MODE], ids=["eager", "graph"])

SLOPE = """
extern "C" __global__ void slope(const T* x, const T* dout, T_OUT0* out, long long n) {
  long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) out[i] = FACTOR * dout[i] * cos(x[i]);
}
"""


class DeviceSine(Unary):
    """sin, with a gradient that is a kernel of its own."""

    slope: str = "RightSlope"


class RightSlope(Primitive):
    """dout cos(x)."""

    def infer_shape(self, x, dout):
        return x

    def infer_dtype(self, x, dout):
        return x


class WrongSlope(RightSlope):
    """Off by 1 %."""


def threads(node):
    n = int(np.prod(node.inputs[0].shape))
    return Launch(grid=(-(-n // 64),), block=(64,), args=(np.int64(n),), shared=0, workspace=())


elementwise_kernel("DeviceSine", "sin(x)", "f->f", "d->d")
for name, factor in (("RightSlope", "T(1)"), ("WrongSlope", "T(1.01)")):
    defines = {"FACTOR": factor}
    raw_kernel(name, "ff->f", "dd->d", entry="slope", source=SLOPE, defines=defines, launch=threads)


@bprop_getters.register(DeviceSine)
def get_bprop_device_sine(self):
    slope = {"RightSlope": RightSlope(), "WrongSlope": WrongSlope()}[self.slope]
    return lambda x, out, dout: (slope(x, dout),)


@MODES
def test_a_function_of_tensors_on_the_device(on_device, mode):
    report = gradcheck(lambda x: ops.sum(ops.sin(x) * x), ml.Tensor(X), order=2, mode=mode)
    assert not report.findings
    assert report.judged == 2 * X.size + 1


@MODES
def test_tensors_on_the_device_while_the_context_is_the_cpu(on_device, mode):
    x, w = (ml.Tensor(a, dtype=ml.float32) for a in (X, X.T.copy()))
    with ml.context(device_target="cpu"):
        report = gradcheck(lambda x, w: ops.tanh(x @ w), x, w, mode=mode)
    assert not report.findings
    assert report.judged == 2 * X.size


@MODES
def test_the_weights_of_a_cell_on_the_device(on_device, mode):
    net = nn.Dense(3, 2).to(on_device)
    with ml.context(device_target="cpu"):
        report = gradcheck(net, X.astype(np.float32), mode=mode)
    assert not report.findings
    assert report.judged == X.size + 8


@MODES
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_a_users_kernel_off_by_a_percent(on_device, mode, dtype):
    x = ml.Tensor(X, dtype=dtype)
    assert not gradcheck(DeviceSine(), x, order=1, mode=mode).findings
    report = gradcheck(DeviceSine("WrongSlope"), x, order=1, mode=mode, raise_error=False)
    assert {f.argnum for f in report.wrong} == {0}
    assert "a constant factor 1.01" in report.wrong[0].diagnosis
