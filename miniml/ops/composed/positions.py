"""Positions in a sequence as numbers that attention can use: sines, and angles of rotation."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ...abstract import Shape
from ...dtype import DType, as_dtype, float32, float64, is_float
from ...errors import DTypeError, ShapeError
from ..arithmetic import add, cast, mul, sub
from ..inference.devices import on_one_device
from ..inference.geometry import lengths
from ..inference.numbers import above_zero, integer
from ..inference.shapes import broadcast, dtype_of, shape_of
from ..join import concat, split, stack
from ..shape import reshape
from ..trigonometric import cos, sin

if TYPE_CHECKING:
    from ...tensor import Tensor

__all__ = ["rotary_embedding", "sinusoidal_positions"]


@on_one_device
def sinusoidal_positions(
    length: int, d: int, start: int = 0, base: float = 10000.0, dtype: object = float
) -> Tensor:
    """sin(t / base^(2 i / d)) in column 2 i and cos of the same in column 2 i + 1, (length, d), for
    t = start, start + 1, ...; float32 by default. Columns are waves of growing length.

    Source: Vaswani et al. 2017, "Attention is all you need", section 3.5.

    >>> sinusoidal_positions(2, 2).tolist()
    [[0.0, 1.0], [0.8414709568023682, 0.5403022766113281]]
    """
    name = "sinusoidal_positions"
    length, d = lengths(name, "(length, d)", (length, d), 2, 0)
    times = integer(name, "start", start) + np.arange(length)
    angles = times[:, None] * _speeds(name, d, base)
    both = np.stack([np.sin(angles), np.cos(angles)], -1).reshape(length, 2 * angles.shape[1])
    return cast(both[:, :d], as_dtype(dtype))


@on_one_device
def rotary_embedding(
    x: Any, positions: Any = None, base: float = 10000.0, interleaved: bool = False
) -> Tensor:
    """(a cos(p w_i) - b sin(p w_i), a sin(p w_i) + b cos(p w_i)) for each pair of features (a, b)
    of x (..., T, d) at position p, with w_i = base^(-2 i / d).

    The product of two vectors turned in this way depends on the distance of their positions alone.
    Pair i is features i and i + d / 2, or, with interleaved, 2 i and 2 i + 1, as in the paper; in
    the weights that make x this is a permutation. positions: integers that broadcast to (..., T),
    by default 0 to T - 1; as a tensor they are taken in float32, exact below 2^24.
    Source: Su et al. 2021, "RoFormer: enhanced transformer with rotary position embedding".

    >>> rotary_embedding([[1.0, 0.0], [1.0, 0.0]]).tolist()
    [[1.0, 0.0], [0.5403022766113281, 0.8414709568023682]]
    """
    shape, dtype = shape_of(x), dtype_of(x)
    if not is_float(dtype):
        raise DTypeError(f"rotary_embedding got x of {dtype.name}; it turns floats; cast x")
    if len(shape) < 2 or shape[-1] % 2:
        raise ShapeError(
            f"rotary_embedding got x of shape {shape}; expected (..., T, d) with an even d"
        )
    turn, tilt = _turns(shape, dtype, positions, base)
    half = shape[-1] // 2
    axis = -1 if interleaved else -2
    pairs = reshape(x, (*shape[:-1], half, 2) if interleaved else (*shape[:-1], 2, half))
    a, b = (reshape(part, (*shape[:-1], half)) for part in split(pairs, 2, axis))
    turned = sub(mul(a, turn), mul(b, tilt)), add(mul(a, tilt), mul(b, turn))
    if not interleaved:
        return concat(turned, -1)
    return reshape(stack(turned, -1), shape)


def _turns(shape: Shape, dtype: DType, positions: Any, base: float) -> tuple[Any, Any]:
    """cos and sin of the angles, (..., T, d / 2)."""
    given = np.arange(shape[-2]) if positions is None else positions
    if dtype_of(given).kind not in "iu":
        raise DTypeError(
            f"rotary_embedding got positions of {dtype_of(given).name}; expected integers"
        )
    extents = shape_of(given)
    if broadcast("rotary_embedding positions", extents, shape[:-1]) != shape[:-1]:
        raise ShapeError(
            f"rotary_embedding got positions of shape {extents}; expected one that broadcasts to "
            f"{shape[:-1]}"
        )
    speeds = _speeds("rotary_embedding", shape[-1], base)
    if isinstance(given, (int, list, tuple, np.ndarray)):
        angles = np.asarray(given)[..., None] * speeds
        return np.cos(angles).astype(dtype), np.sin(angles).astype(dtype)
    places = reshape(cast(given, float32), (*extents, 1))
    angles = mul(places, speeds.astype(float32))
    return cast(cos(angles), dtype), cast(sin(angles), dtype)


def _speeds(name: str, d: int, base: float) -> Any:
    """base^(-2 i / d) for each pair of d features, in float64."""
    return above_zero(name, "base", base) ** (-2.0 * np.arange(-(-d // 2), dtype=float64) / d)
