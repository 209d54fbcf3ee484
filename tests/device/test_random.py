"""Random draws on a CUDA device: the bits of the CPU, op by op and compiled, of any generator."""

import numpy as np
import pytest

import miniml as ml
from miniml import ops
from miniml.errors import OutOfRangeError
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


def parametrised(x, g):
    a = ops.cast(ops.exp(2.0 * x), "float64")
    draws = (
        ops.exponential(None, a, "float32", g), ops.laplace((9,), generator=g),
        ops.gamma(None, a, dtype="float32", generator=g), ops.gamma((9,), 1e-2, generator=g),
        ops.gamma(None, a, dtype="float16", generator=g), ops.gamma((2, 0), generator=g),
        ops.beta(None, a, 2.0, "float32", g), ops.dirichlet(a, (2,), "float32", g),
        ops.student_t(None, a, dtype="float32", generator=g), ops.cauchy((9,), generator=g),
        grad(lambda a: ops.sum(ops.gamma(None, a, dtype="float64", generator=g)))(a),
    )  # fmt: skip
    counts = (
        ops.poisson(None, a, generator=g), ops.poisson((99,), 9.9, "uint8", g),
        ops.poisson((99,), 1e4, "float32", g), ops.poisson(None, a * 5.0, "float16", g),
        ops.choice(x, (5,), generator=g), ops.choice(9, 4, False, np.arange(9.0), generator=g),
        ml.vmap(lambda a: ops.poisson((3,), a, generator=g), randomness="same")(a[0]),
    )  # fmt: skip
    return draws, counts


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


@pytest.mark.parametrize("compiled", [False, True])
def test_draws_with_parameters(device, compiled):
    """By rejection, which rounding of float64 does not change here."""
    found = []
    for where, mode in ((device, compiled), ("cpu", False)):
        g = ml.Generator(3)
        with ml.context(device_target=where):
            call = (ml.jit if mode else lambda f: f)(lambda x, g=g: parametrised(x, g))
            draws, counts = call(ml.Tensor(X))
            assert {t.device for t in (*draws, *counts)} == {where}
            found.append((draws, counts, g.state.tolist()))
    (draws, counts, end), (expected, others, other) = found
    assert end == other
    for one, two in zip(draws, expected, strict=True):
        tolerance = 2e-3 if one.dtype == ml.float16 else 1e-6
        np.testing.assert_allclose(one.asnumpy(), two.asnumpy(), tolerance, 1e-6)
    for one, two in zip(counts, others, strict=True):
        np.testing.assert_array_equal(one.asnumpy(), two.asnumpy(), strict=True)


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
