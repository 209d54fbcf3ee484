"""Windows that move over the axes of an image behind the first two, as ONNX describes them."""

from __future__ import annotations

from typing import Any

from ..errors import OnnxError
from ..ops.inference.windows import Axis
from .known import table
from .operators import Ints


def axes_of(
    extents: Ints,
    kernel: Ints,
    strides: Ints | None,
    dilations: Ints | None,
    pads: Ints | None,
    auto_pad: str,
    ceil_mode: int = 0,
) -> tuple[Axis, ...]:
    """The windows along each axis; OnnxError where the attributes differ in number or are not
    positive."""
    n = len(extents)
    sizes = kernel, strides or (1,) * n, dilations or (1,) * n
    around = pads or (0,) * 2 * n
    if n == 0 or [len(g) for g in (*sizes, around)] != [n, n, n, 2 * n]:
        raise OnnxError(
            f"got kernel {kernel}, strides {strides}, dilations {dilations} and pads {pads} for "
            f"{n} axes; expected one of each, and two pads, for an axis"
        )
    if min(map(min, sizes)) < 1 or min(around) < 0:
        raise OnnxError(
            f"kernel {kernel}, strides {strides} and dilations {dilations} are >= 1, pads >= 0"
        )
    rows = zip(extents, *sizes, around[:n], around[n:], strict=True)
    found = (Axis(n, k, s, d, b, a, bool(ceil_mode)) for n, k, s, d, b, a in rows)
    return tuple(_axis(axis, auto_pad) for axis in found)


def _axis(a: Axis, auto_pad: str) -> Axis:
    """The axis padded as `auto_pad` says."""
    if auto_pad.startswith("SAME"):
        total = max((-(-a.extent // a.stride) - 1) * a.stride + a.reach - a.extent, 0)
        before = total // 2 if auto_pad == "SAME_UPPER" else -(-total // 2)
        return Axis(a.extent, a.size, a.stride, a.dilation, before, total - before)
    if auto_pad not in ("NOTSET", "VALID"):
        raise OnnxError(f"auto_pad {auto_pad!r} is not NOTSET, VALID, SAME_UPPER or SAME_LOWER")
    return a if auto_pad == "NOTSET" else Axis(a.extent, a.size, a.stride, a.dilation, ceil=a.ceil)


def bounded(axes: tuple[Axis, ...]) -> tuple[Axis, ...]:
    """The axes; OnnxError for windows too many or too large to be listed."""
    for axis in axes:
        table(axis.count, axis.size)
    return axes


def spatial(x: Any, at_least: int = 1) -> Ints:
    """The extents behind (N, C); OnnxError where there are none."""
    if len(x.shape) < 2 + at_least:
        raise OnnxError(f"got shape {tuple(x.shape)}; expected (N, C, ...) with axes behind")
    return tuple(int(n) for n in x.shape[2:])


def along(axis: int, ndim: int) -> Ints:
    """The shape of a vector that broadcasts along one axis."""
    return tuple(-1 if i == axis else 1 for i in range(ndim))
