"""In check mode every call of a kernel begins with new memory, and must fill its outputs."""

import numpy as np
import pytest

import miniml as ml
from miniml import ArraySpec, Launch, ops, raw_kernel
from miniml.errors import KernelFaultError, LaunchError
from miniml.ops import Unary


class _Same(Unary):
    """x in, something of its type out."""


class WatchedWorkspace(_Same):
    """x, by way of a workspace that is read where it was not written if x begins below 0."""


class WatchedHalf(_Same):
    """x where x is not below 0; else nothing."""


class WatchedRefused(_Same):
    """Never launched: its rule passes an argument of a wrong type."""


class WatchedDouble(_Same):
    """2 x, in place if need be."""


def one_block(node):
    n = node.inputs[0].shape[0]
    return Launch((1,), (n,), (), workspace=(ArraySpec((n,), np.dtype("f")),))


def alone(node):
    return Launch((1,), (node.inputs[0].shape[0],))


WORKSPACE = """
extern "C" __global__ void by_workspace(const float* x, float* y, float* work) {
  int t = threadIdx.x;
  if (x[0] >= 0 || t % 2) work[t] = x[t];
  y[t] = work[t];
}
"""
HALF = """
extern "C" __global__ void half(const float* x, float* y) {
  if (x[threadIdx.x] >= 0) y[threadIdx.x] = x[threadIdx.x];
}
"""
DOUBLED = """
extern "C" __global__ void doubled(const float* x, float* y) {
  y[threadIdx.x] = 2 * x[threadIdx.x];
}
"""
raw_kernel("WatchedWorkspace", "f->f", entry="by_workspace", source=WORKSPACE, launch=one_block)
raw_kernel("WatchedHalf", "f->f", entry="half", source=HALF, launch=alone)
SHIFTED = 'extern "C" __global__ void shifted(const float* x, float* y, int n) { y[n] = x[n]; }'


def with_a_float(node):
    return Launch((1,), (1,), (1.5,))


raw_kernel("WatchedRefused", "f->f", entry="shifted", source=SHIFTED, launch=with_a_float)
raw_kernel("WatchedDouble", "f->f", entry="doubled", source=DOUBLED, launch=alone)
by_workspace, half = WatchedWorkspace(), WatchedHalf()
refused, doubled = WatchedRefused(), WatchedDouble()


@pytest.fixture(autouse=True)
def _simulator():
    with ml.context(device_target="cuda-sim", sim="check"):
        yield


def row(*values: float) -> ml.Tensor:
    return ml.Tensor(np.array(values, np.float32))


GOOD, BAD = (1, 2, 3, 4), (-1, 2, 3, 4)


@pytest.mark.parametrize("wrap", [lambda f: f, ml.jit], ids=["eager", "jit"])
def test_a_workspace_is_new_at_every_call(wrap):
    f = wrap(lambda x: by_workspace(x) + 1)
    for _ in range(2):
        np.testing.assert_array_equal(f(row(*GOOD)).asnumpy(), [2, 3, 4, 5])
        with pytest.raises(KernelFaultError, match=r"uninitialised in kernel by_workspace"):
            f(row(*BAD))


@pytest.mark.parametrize("wrap", [lambda f: f, ml.jit], ids=["eager", "jit"])
def test_a_half_written_output_is_a_fault_at_every_call(wrap):
    f = wrap(lambda x: ops.exp(half(doubled(doubled(x)))))
    for _ in range(2):
        np.testing.assert_allclose(f(row(*GOOD)).asnumpy(), np.exp(4.0 * np.array(GOOD)), rtol=1e-5)
        message = "unwritten in kernel WatchedHalf: 1 of the 4 elements of output 0"
        with pytest.raises(KernelFaultError, match=message):
            f(row(*BAD))


def test_a_refused_update_leaves_its_parameter_as_it_was():
    w = ml.Parameter(np.array(GOOD, np.float32), name="w")

    @ml.jit
    def update(x):
        ops.assign(w, refused(x * w))
        return x

    for _ in range(2):
        with pytest.raises(LaunchError, match="argument 2 of shifted is int32"):
            update(row(*GOOD))
        np.testing.assert_array_equal(w.asnumpy(), GOOD)


def test_outputs_in_place_of_inputs_keep_what_is_read():
    f = ml.jit(lambda x: ops.tanh(ops.exp(-ops.square(x))) + x)
    for scale in (1, 2):
        x = np.array(GOOD, np.float32) / scale
        expected = np.tanh(np.exp(-np.square(x))) + x
        np.testing.assert_allclose(f(row(*x)).asnumpy(), expected, rtol=1e-5)
