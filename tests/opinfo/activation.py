"""Rows of the activations and of the error function."""

import math

import numpy as np
from scipy.special import erfinv, expit

from miniml import ops
from miniml.errors import AttributeRefusedError, DTypeError
from miniml.testing import OpInfo, Refusal, Sample

from .arithmetic import BOOLS, PAIRS, off_zero, unary, unary_off_zero
from .draws import SHAPES, numbers

erf = np.vectorize(math.erf, otypes=[float])
erfc = np.vectorize(math.erfc, otypes=[float])


def sloped(name, *values):
    """Samples off the kink at 0, with several values of one attribute."""

    def samples(rng, dtype):
        for value in values:
            for shape in SHAPES:
                yield Sample((off_zero(rng, shape, dtype),), {name: value})

    return samples


def saturating(rng, dtype):
    """Where a sigmoid bends, and far on both sides, where naive formulas cancel or overflow."""
    yield from unary(-4.0, 4.0)(rng, dtype)
    for ends in ((-30.0, -10.0), (90.0, 100.0)):
        yield Sample((numbers(rng, (4,), dtype, *ends),))


def pulls(rng, dtype):
    """x off the kink at 0, and any dout, broadcast."""
    for x, y in PAIRS:
        yield Sample((off_zero(rng, x, dtype), numbers(rng, y, dtype)))


def leaky_pulls(rng, dtype):
    for slope in (0.01, 0.0, 1.5, -0.5):
        for sample in pulls(rng, dtype):
            yield Sample(sample.inputs, {"slope": slope})


def gelus(rng, dtype):
    for approximate in (False, True):
        for shape in SHAPES:
            yield Sample((numbers(rng, shape, dtype, -3.0, 3.0),), {"approximate": approximate})


def gelu(x, approximate):
    finite = np.maximum(x, -1e3)  # the limit at -inf is 0
    if approximate:
        inner = math.sqrt(2 / math.pi) * (finite + 0.044715 * finite**3)
        return finite * expit(2 * inner)
    return 0.5 * finite * erfc(-finite / math.sqrt(2))


def leaky_relu(x, slope):
    return np.where(x > 0, x, slope * x) if slope else relu(x)


def relu(x):
    return np.where(x < 0, np.zeros_like(x), x)


ROWS = (
    OpInfo(ops.Erf, unary(), reference=erf),
    OpInfo(ops.Erfc, unary(-2.0, 4.0), reference=erfc),
    OpInfo(ops.ErfInv, unary(-0.99, 0.99), reference=erfinv, domain=(-1.0, 1.0)),
    OpInfo(ops.Sigmoid, saturating, reference=expit),
    OpInfo(ops.Softplus, saturating, reference=lambda x: np.logaddexp(x, 0)),
    OpInfo(ops.SiLU, saturating, reference=lambda x: np.maximum(x, -1e3) / (1 + np.exp(-x))),
    OpInfo(ops.ReLU, unary_off_zero, reference=relu, domain="x != 0",
           refused=(Refusal((BOOLS,), "no meaning for bool", error=DTypeError),)),
    OpInfo(ops.ReLUGrad, pulls, reference=lambda x, dout: np.where(x > 0, dout, 0.0),
           domain="x != 0"),
    OpInfo(ops.LeakyReLU, sloped("slope", 0.01, 0.0, 1.5, -0.5), reference=leaky_relu,
           domain="x != 0"),
    OpInfo(ops.LeakyReLUGrad, leaky_pulls, domain="x != 0",
           reference=lambda x, dout, slope: dout * np.where(x > 0, 1.0, slope)),
    OpInfo(ops.ELU, sloped("alpha", 1.0, 0.3), domain="x != 0",
           reference=lambda x, alpha: np.where(x > 0, x, alpha * np.expm1(x))),
    OpInfo(ops.GELU, gelus, reference=gelu,
           refused=(
               Refusal((np.ones(3),), "approximate='tanh'", {"approximate": "tanh"},
                       AttributeRefusedError),
           )),
)  # fmt: skip
