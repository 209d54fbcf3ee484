"""Attention in tiles gives what it gives on the CPU: several tiles, and parts of the columns."""

import numpy as np
import pytest

import miniml as ml
from miniml import ops
from miniml.grad import value_and_grad
from miniml.ops import attention

RNG = np.random.default_rng(0)


@pytest.mark.parametrize(
    ("lead", "sizes", "mask", "causal", "dropout"),
    [
        ((2,), (35, 34, 2, 1), (2, 1, 34), True, 0.3),
        ((), (33, 66, 1, 2), (33, 1), False, 0.0),
        ((1, 2), (2, 3, 34, 130), (2, 1, 1), False, 0.0),
    ],
)
def test_tiles_give_what_the_cpu_gives(lead, sizes, mask, causal, dropout, device, monkeypatch):
    monkeypatch.setattr(attention, "COMPOSED", 0)
    t, s, e, f = sizes
    arrays = [RNG.normal(size=n) for n in ((*lead, t, e), (*lead, s, e), (*lead, s, f), mask)]

    def loss(*xs):
        out = ops.scaled_dot_product_attention(*xs, dropout, causal)
        return ops.sum(ops.sin(out)), out

    found = []
    for where in ("cpu", device):
        ml.manual_seed(3)
        given = [ml.Tensor(x, dtype=ml.float32, device=where) for x in arrays]
        (_, out), slopes = value_and_grad(loss, (0, 1, 2, 3), True)(*given)
        found.append([out, *slopes])
    for cpu, gpu in zip(*found, strict=True):
        assert gpu.device == device
        np.testing.assert_allclose(gpu.asnumpy(), cpu.asnumpy(), rtol=2e-4, atol=2e-5)


def test_a_query_that_sees_nothing_gets_zero(on_device, monkeypatch):
    monkeypatch.setattr(attention, "COMPOSED", 0)
    x = np.ones((2, 3), np.float32)
    seen = np.array([[False, False], [True, False]])
    out, slope = value_and_grad(lambda q: ops.sum(ops.scaled_dot_product_attention(q, x, x, seen)))(
        ml.Tensor(x)
    )
    assert out.item() == 3
    assert not slope.asnumpy().any()
