"""Normalisation made of other operations: of groups of channels, of each channel, and by the root
mean square."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, Any

from ...dtype import DType, bfloat16, float16, float32, promote
from ...errors import ShapeError
from ..arithmetic import add, cast, mul, square, sub
from ..exponential import rsqrt
from ..inference.devices import on_one_device
from ..inference.numbers import integer, number
from ..inference.shapes import dtype_of, needs_float, shape_of
from ..reduce import mean
from ..shape import reshape

if TYPE_CHECKING:
    from ...tensor import Tensor

__all__ = ["group_norm", "instance_norm", "rms_norm"]


@on_one_device
def group_norm(
    x: Any, num_groups: int, gamma: Any = None, beta: Any = None, eps: float = 1e-5
) -> Tensor:
    """(x - mean) / sqrt(var + eps) * gamma + beta, over groups of channels of each sample.

    x: (N, C, ...) floats. The C channels form num_groups groups of C / num_groups that stand side
    by side; mean and variance (the biased one) are over a group's channels and all further axes.
    gamma and beta: (C,), by default 1 and 0. Floats of 16 bits are computed in float32. ShapeError
    where num_groups does not divide C. Source: Wu, He 2018, "Group normalization".

    >>> group_norm([[1.0, 3.0, 5.0, 5.0]], 2, eps=0.0).tolist()
    [[-1.0, 1.0, nan, nan]]
    """
    shape = shape_of(x)
    count = integer("group_norm", "num_groups", num_groups)
    if len(shape) < 2 or count < 1 or shape[1] % count:
        raise ShapeError(
            f"group_norm got x of shape {shape} for {num_groups} groups; x has shape (N, C, ...), "
            "and the number of groups divides C"
        )
    groups = shape[0], count, prod(shape[1:]) // count
    eps = number("group_norm", "eps", eps)
    normal = _normal(reshape(_wide("group_norm", x), groups), eps)
    return _channelwise("group_norm", reshape(normal, shape), gamma, beta, dtype_of(x))


@on_one_device
def instance_norm(x: Any, gamma: Any = None, beta: Any = None, eps: float = 1e-5) -> Tensor:
    """(x - mean) / sqrt(var + eps) * gamma + beta, over each channel of each sample by itself.

    x: (N, C, ...) floats; mean and variance (the biased one) are over all axes but the first two.
    gamma and beta: (C,), by default 1 and 0. It is `group_norm` with C groups.
    Source: Ulyanov, Vedaldi, Lempitsky 2016, "Instance normalization".
    """
    shape = shape_of(x)
    if len(shape) < 3:
        raise ShapeError(f"instance_norm got x of shape {shape}; x has shape (N, C, ...)")
    return group_norm(x, max(shape[1], 1), gamma, beta, eps)


@on_one_device
def rms_norm(x: Any, gamma: Any, eps: float = 2.0**-23) -> Tensor:
    """x / sqrt(mean(x^2) + eps) * gamma, the mean over the last axes of x, those that gamma has.

    Floats of 16 bits are computed in float32. eps is by default the distance of 1 to the next
    float32. Source: Zhang, Sennrich 2019, "Root mean square layer normalization".

    >>> rms_norm([3.0, -3.0], [1.0, 2.0]).tolist()
    [1.0, -2.0]
    """
    shape, own = shape_of(x), shape_of(gamma)
    if not 1 <= len(own) <= len(shape) or shape[-len(own) :] != own:
        raise ShapeError(
            f"rms_norm got x of shape {shape} and gamma of {own}; gamma has the shape of the last "
            "axes of x, over which it normalises"
        )
    eps, v = number("rms_norm", "eps", eps), _wide("rms_norm", x)
    squares = mean(square(v), tuple(range(-len(own), 0)), True)
    normal = mul(v, rsqrt(add(squares, eps)))
    return _in(mul(normal, gamma), promote(dtype_of(x), dtype_of(gamma)))


def _normal(groups: Any, eps: float) -> Tensor:
    """(N, groups, size), of which each group has mean 0 and variance 1."""
    centred = sub(groups, mean(groups, 2, True))
    return mul(centred, rsqrt(add(mean(square(centred), 2, True), eps)))


def _wide(name: str, x: Any) -> Any:
    """x, in float32 if it has floats of 16 bits; DTypeError unless it has floats."""
    return cast(x, float32) if needs_float(name, dtype_of(x)) in (float16, bfloat16) else x


def _in(x: Tensor, dtype: DType) -> Tensor:
    return x if x.dtype == dtype else cast(x, dtype)


def _channelwise(name: str, normal: Tensor, gamma: Any, beta: Any, dtype: DType) -> Tensor:
    """normal * gamma + beta by channels, where they are given, in the common dtype."""
    shape = normal.shape
    for given, word, join in ((gamma, "gamma", mul), (beta, "beta", add)):
        if given is None:
            continue
        if shape_of(given) != shape[1:2]:
            raise ShapeError(
                f"{name} got x of shape {shape} and {word} of {shape_of(given)}; {word} has one "
                f"number for each channel, shape {shape[1:2]}"
            )
        normal = join(normal, reshape(given, (-1, *(1,) * (len(shape) - 2))))
        dtype = promote(dtype, dtype_of(given))
    return _in(normal, dtype)
