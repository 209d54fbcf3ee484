"""Rules of random draws: the gradient of gamma draws by implicit differentiation, and batches.

The distribution function P(alpha, x) of a draw stays when alpha moves, so x moves by

    dx/dalpha = -(dP/dalpha) / (dP/dx).

Source: Figurnov, Mohamed, Mnih, "Implicit reparameterization gradients" (2018).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ... import ops
from ...core.abstract import float64
from ...core.bprop import rule
from ..batching import Batched, batches, in_front, looped
from ..forward import moves_along


@rule(ops.Gamma)
def gamma_bprop(self: ops.Gamma, state: Any, alpha: Any, out: Any, dout: Any) -> Any:
    return None, ops.cast(dout, float64) * gamma_slope(alpha, out, self.log)


@moves_along(ops.Gamma)
def jvp_gamma(self: ops.Gamma, primals: Any, tangents: Any, out: Any) -> Any:
    if tangents[1] is None:
        return ops.zeros_like(out)
    return ops.cast(tangents[1] * gamma_slope(primals[1], out, self.log), self.dtype)


def gamma_slope(alpha: Any, out: Any, log: bool) -> Any:
    """The derivative of a gamma draw, or of its logarithm, in alpha, float64.

    By substituting t = x e^v, with psi the digamma function, d log x / dalpha is the integral of

        |log x - psi(alpha) + v| exp(alpha v - x (e^v - 1))

    over v < 0 where log x < psi(alpha), else over v > 0; in neither are there terms that cancel.
    Gauss and Legendre's rule integrates from 0 to where exp has fallen to e^-40 (e^-26 unless out
    is float64). Below alpha = 1 the integral is that of alpha + 1, since
    P(alpha, x) = P(alpha + 1, x) + x^alpha e^-x / gamma(alpha + 1).
    """
    count, cut = (40, 40.0) if out.dtype == float64 else (20, 26.0)
    draw = ops.cast(out, float64)
    x = ops.maximum(ops.exp(draw) if log else draw, 1e-300)
    log_x = draw if log else ops.log(x)
    small = alpha < 1.0
    a = ops.select(small, alpha + 1.0, alpha)
    psi = ops.digamma(a)
    distance = log_x - psi
    width = ops.stop_gradient(_width(a, x, distance < 0.0, cut))

    def step(total: Any, node: Any) -> Any:
        v = width * node[0]
        part = ops.abs(distance + v) * ops.exp(a * v - x * ops.expm1(v))
        return total + node[1] * part, None

    nodes, weights = np.polynomial.legendre.leggauss(count)
    rows = np.stack([(nodes + 1.0) / 2.0, weights / 2.0], 1)
    share = ops.abs(width) * ops.scan(step, ops.zeros_like(x), rows)[1]
    slope = ops.select(small, (x * share - distance) / alpha, share)
    return slope if log else draw * slope


def _width(a: Any, x: Any, lower: Any, cut: float) -> Any:
    """v, below 0 where `lower`, at which x (e^v - 1) - a v is some `cut`: the least of bounds by
    its slope at 0 and by its curvature."""
    c = cut / x
    root = ops.sqrt(c * 2.0)
    below = c / 3.0 + ops.sqrt(c * c / 9.0 + c * 2.0)
    curved = ops.select(lower, below, ops.log1p(root + c))
    sign = ops.select(lower, -1.0, 1.0)
    return sign * ops.minimum(cut / ops.maximum(sign * (x - a), 1e-300), curved)


_STREAMS = (
    "a draw from a stream of each example; ops.gamma and ops.poisson draw for all in one call"
)


@batches(ops.Gamma, ops.Poisson)
def batch_draw(self: Any, batched: Batched, state: Any, given: Any) -> Any:
    """Each example draws for itself, or all share the stream, whatever their parameters."""
    if batched[0]:
        return looped(self, batched, (state, given), _STREAMS)[0]
    given = given if batched[1] else in_front(given, batched.size)
    if batched.mapped.randomness != "different":
        return self(state, given)
    # Axes of enclosing maps that share the stream stay in front of all that do not.
    shared = len(given.shape) - 1 - len(self.shape)
    shape = (batched.size, *self.shape)
    own = self.with_attributes({**self.attributes, "shape": shape})
    return ops.moveaxis(own(state, ops.moveaxis(given, 0, shared)), shared, 0)
