"""Gradient rules of Fourier transforms: the transpose of each, by transforms.

A cotangent d of y stands for the change Re(sum of d dy), as in JAX, so that a linear map passes it
back by its transpose. The matrix exp(-2 pi i j k / n) is symmetric.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ... import ops
from ...core.bprop import rule
from ...core.dtype import real_dtype

# The transposes of real transforms are those of the other direction, which divide where these do.
_OTHER = {"backward": "forward", "ortho": "ortho", "forward": "backward"}


@rule(ops.FFT)
@rule(ops.IFFT)
def transform_bprop(self: Any, x: Any, out: Any, dout: Any) -> tuple[Any]:
    return (self(dout),)


@rule(ops.RFFT)
def rfft_bprop(self: ops.RFFT, x: Any, out: Any, dout: Any) -> tuple[Any]:
    """Re(sum over k of dout[k] exp(-2 pi i j k / n)), of the k that y has: IRFFT counts all but the
    ends twice."""
    once = _weights(dout, self.axis, x.shape[self.axis], 0.5)
    back = ops.IRFFT(x.shape[self.axis], self.axis, _OTHER[self.norm])
    return (ops.cast(back(ops.conj(dout) * once), x.dtype),)


@rule(ops.IRFFT)
def irfft_bprop(self: ops.IRFFT, x: Any, out: Any, dout: Any) -> tuple[Any]:
    twice = _weights(x, self.axis, self.n, 2.0)
    return (ops.conj(ops.RFFT(self.axis, _OTHER[self.norm])(dout)) * twice,)


def _weights(half: Any, axis: int, n: int, inner: float) -> Any:
    """1 for the numbers of half a transform of n that are their own conjugates, the first and for
    even n the last; `inner` for the others; to be multiplied along the axis."""
    count = half.shape[axis]
    weights = np.full(count, inner, real_dtype(half.dtype))
    weights[0] = 1.0
    if n % 2 == 0:
        weights[-1] = 1.0
    return weights.reshape(count, *(1,) * (-axis - 1))
