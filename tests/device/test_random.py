"""Random draws on a CUDA device: the bits of the CPU, op by op and compiled, of any generator."""

import numpy as np
import pytest

import miniml as ml
from miniml import ops
from miniml.core.errors import OutOfRangeError
from miniml.grad import grad

X = np.linspace(-1.0, 1.0, 12).astype(np.float32).reshape(4, 3)


def draws(x, g):
    return (
        ops.uniform((7,), -1.0, 2.0, generator=g), ops.bernoulli((9,), 0.3, generator=g),
        ops.randint((2, 3), -9, 99, "int8", g), ops.permutation(40, generator=g),
        ops.permutation(x, generator=g), ops.dropout(x, 0.4, g), ops.gumbel((9,), generator=g),
        ops.truncated_normal((9,), low=1.0, high=3.0, generator=g), ops.categorical(x, (5,), g),
        grad(lambda x: ops.sum(ops.dropout(x * x, 0.4, g)))(x), ops.uniform((3,)),
    )  # fmt: skip


def outcome(device, compiled):
    """What two calls give, and where the streams stand afterwards."""
    ml.manual_seed(1)
    g = ml.Generator(3)
    with ml.context(device_target=device):
        call = ml.jit(lambda x: draws(x, g)) if compiled else lambda x: draws(x, g)
        outs = [t for _ in range(2) for t in call(ml.Tensor(X))]
        assert {t.device for t in outs} == {device}
        ends = [g.state.tolist(), ml.random_state.tolist()]
        return [t.asnumpy() for t in outs], ends


@pytest.mark.parametrize("compiled", [False, True])
def test_the_bits_of_the_cpu(device, compiled):
    (got, ends), (expected, others) = outcome(device, compiled), outcome("cpu", False)
    assert ends == others
    for one, two in zip(got, expected, strict=True):
        np.testing.assert_array_equal(one, two, strict=True)


def test_normal_draws_up_to_rounding(on_device):
    got = ops.normal((64,), generator=ml.Generator(3))
    with ml.context(device_target="cpu"):
        expected = ops.normal((64,), generator=ml.Generator(3)).asnumpy()
    np.testing.assert_allclose(got.asnumpy(), expected, 1e-5, 1e-6)


def test_logits_without_a_law(on_device):
    with pytest.raises(OutOfRangeError, match="categorical got a row"):
        ops.categorical(ml.Tensor([0.0, np.nan]))


def test_logits_without_a_law_when_compiled(on_simulator):  # indices read 0 on a GPU
    with ml.context(device_target=on_simulator):
        logits = ml.Tensor([0.0, np.nan])
    with pytest.raises(OutOfRangeError, match="index 2"):
        ml.jit(ops.categorical)(logits).asnumpy()
