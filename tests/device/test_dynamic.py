"""Sizes that vary, on a device: kernels that follow them, with and without CUDA graphs."""

import gc

import numpy as np
import pytest

import miniml as ml
from miniml import Kernel, kernel, ops
from miniml.backends.kernel import _made
from miniml.ops import Unary

EVENTS = []


class Tripled(Unary):
    """3 x."""


@kernel("Tripled", "cuda", "f->f")
class TripledKernel(Kernel):
    """Compiles once, for all sizes."""

    capturable = True
    text = """
    extern "C" __global__ void tripled(const float* x, float* out, long long n) {
      long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x;
      if (i < n) out[i] = 3 * x[i];
    }
    """

    def prepare(self, node):
        EVENTS.append("prepare")
        self.function = node.device.compiler.function(self.text, "tripled")
        self.size = np.int64(np.prod(node.outputs[0].shape))

    def resize(self, node):
        EVENTS.append("resize")
        self.size = np.int64(np.prod(node.outputs[0].shape))

    def launch(self, inputs, workspace, outputs, stream):
        grid = (-(-int(self.size) // 64),)
        self.function(grid, (64,), (inputs[0].flat, outputs[0].flat, self.size))

    def release(self):
        EVENTS.append("release")


@pytest.mark.parametrize("graphs", ["off", "on"])
def test_one_object_is_resized(on_device, graphs):
    EVENTS.clear()
    run = ml.jit(lambda x: Tripled()(ops.exp(x)) + x.shape[0], dynamic={"x": (0,)})
    with ml.context(cuda_graphs=graphs):
        for n in (4, 70, 4, 4, 4, 70, 70, 1, 0, 4):
            x = np.linspace(-1, 1, 2 * n, dtype=np.float32).reshape(n, 2)
            out = run(ml.Tensor(x)).asnumpy()
            np.testing.assert_allclose(out, 3 * np.exp(x) + n, rtol=1e-5)
    assert list(EVENTS) == ["prepare", *["resize"] * 5]
    with ml.context(cuda_graphs=graphs):
        why = ml.explain(run, ml.Tensor(np.ones((4, 2), np.float32))).launched
    assert ("launched one by one: kernels are resized for other sizes" in why) == (graphs == "on")


def functions():
    w = ml.Tensor(np.arange(40, dtype=np.float32))
    return (lambda x: x * w), (lambda x: ops.exp(w) + x * w)


def test_constants_are_uploaded_once(on_simulator):
    gc.collect()
    before = len(_made)
    with ml.context(device_target=on_simulator):
        for fn in functions():
            for dynamic in (None, {"x": (0,)}):
                ml.jit(fn, dynamic=dynamic)(ml.Tensor(np.ones(40, np.float32)))
                assert len(_made) == before + 2  # the copy on the host, and that of all programs
    del fn
    gc.collect()
    assert len(_made) == before
