"""Launches that wait in their stream, as on a GPU: nothing reads what was not computed yet."""

import numpy as np
import pytest

import miniml as ml
from miniml import nn, optim
from miniml.backends.cuda.sim import memory
from miniml.errors import KernelFaultError

from .test_users_kernels import broken


def trained(device, jit):
    """Losses and weights of a few steps with dropout, read at the end."""
    rng = np.random.default_rng(0)
    x, labels = rng.normal(size=(12, 8)).astype(np.float32), np.arange(12) % 4
    with ml.context(device_target=device, sim="fast", jit=jit):
        ml.manual_seed(0)
        net = nn.Sequential(nn.Dense(8, 16), nn.ReLU(), nn.Dropout(0.3), nn.Dense(16, 4))
        adam = optim.Adam(net.trainable_params(), lr=0.01)
        step = ml.train_step(net, nn.CrossEntropyLoss(), adam)
        losses = [step(x, labels) for _ in range(4)]
        return np.array([float(loss) for loss in losses]), net.trainable_params()


@pytest.mark.parametrize("jit", [True, False], ids=["graph", "eager"])
def test_training_reads_what_was_computed(jit, on_simulator):
    losses, weights = trained("cpu", jit)
    with memory.using(deferred=True):
        late_losses, late_weights = trained(on_simulator, jit)
        assert np.allclose(late_losses, losses, rtol=1e-5)
        for late, weight in zip(late_weights, weights):
            assert np.allclose(late.asnumpy(), weight.asnumpy(), atol=1e-5)


def test_a_faulty_kernel_is_reported_when_its_result_is_read(on_simulator):
    text = """extern "C" __global__ void f(const T* x, T* out, long long n) {
      out[blockIdx.x] = x[(blockIdx.x + 1) * n];
    }"""
    late = broken("ReadsTheNextRow", text)
    with ml.context(device_target=on_simulator), memory.using(deferred=True):
        out = late(ml.Tensor(np.ones((2, 3), np.float32)))
        with pytest.raises(KernelFaultError, match="out-of-bounds in kernel f, block"):
            out.asnumpy()
        assert float(ml.ops.add(ml.Tensor(1.0), 1.0)) == 2.0
