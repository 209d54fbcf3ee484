"""Windows over images, for convolution and pooling: the pixels of a window, and the reverse."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...product import Shape
from .source import struct

_FIELDS = "n c h w o oh ow kh kw sh sw top left dh dw groups".split()
WINDOW = np.dtype([(name, np.int64) for name in _FIELDS])

WINDOWS = (
    struct("Window", WINDOW)
    + r"""
using namespace miniml;
typedef Compute<T>::type C;
// visit(pixel, tap) for every pixel of the plane that the window of output (r, q) covers.
template <typename F> __device__ __forceinline__ void pixels_of(
    const Window& s, long long r, long long q, F visit) {
  for (long long a = 0; a < s.kh; ++a) {
    const long long y = r * s.sh + a * s.dh - s.top;
    if (y < 0 || y >= s.h) continue;
    for (long long b = 0; b < s.kw; ++b) {
      const long long z = q * s.sw + b * s.dw - s.left;
      if (z >= 0 && z < s.w) visit(y * s.w + z, a * s.kw + b);
    }
  }
}
// visit(r, q, tap) for every output (r, q) whose window covers pixel (y, z).
template <typename F> __device__ __forceinline__ void windows_of(
    const Window& s, long long y, long long z, F visit) {
  for (long long a = 0; a < s.kh; ++a) {
    const long long r = y + s.top - a * s.dh;
    if (r < 0 || r % s.sh || r / s.sh >= s.oh) continue;
    for (long long b = 0; b < s.kw; ++b) {
      const long long q = z + s.left - b * s.dw;
      if (q >= 0 && q % s.sw == 0 && q / s.sw < s.ow) visit(r / s.sh, q / s.sw, a * s.kw + b);
    }
  }
}
"""
)


def window(attrs: Any, x: Shape, w: Shape, out: Shape) -> np.ndarray[tuple[int], np.dtype]:
    """The struct Window of a convolution of x with w to out; pooling has one filter per channel."""
    (top, _), (left, _) = attrs["padding"]
    dilation, groups = attrs.get("dilation", (1, 1)), attrs.get("groups", x[1])
    sizes = (*x, w[0], *out[2:], *w[2:], *attrs["stride"], top, left, *dilation, groups)
    return np.array([sizes], WINDOW)
