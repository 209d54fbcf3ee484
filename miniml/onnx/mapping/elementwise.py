"""ONNX's elementwise operators that are more than one primitive; a primitive names its own.

Parts: arithmetic, rounding, bounds and casts; powers and comparisons;
quantization; activations.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from math import log, pi
from typing import Any

import numpy as np

from ... import ops
from ...core.abstract import UNSIGNED, as_dtype, float32, float64, is_float
from ...core.errors import OnnxError
from ..operators import (
    Floats,
    Setting,
    register_all,
    register_composition,
    register_operator,
    register_writer,
)
from ..tensors import code_of, counted, dtype_of, extent, number

# --- Arithmetic -----------------------------------------------------------------------------------


def divide(x: Any, y: Any) -> Any:
    """x / y; of integers the quotient, rounded towards zero."""
    if is_float(x.dtype):
        return ops.div(x, y)
    quotient = ops.floor_div(x, y)
    if x.dtype in UNSIGNED:
        return quotient
    left = ops.not_equal(ops.mul(quotient, y), x)
    upward = ops.logical_and(left, ops.less(quotient, 0))
    return ops.add(quotient, ops.cast(upward, x.dtype))


def remainder(x: Any, y: Any) -> Any:
    """x - trunc(x / y) * y, which has the sign of x."""
    rest = ops.mod(ops.abs(x), ops.abs(y))
    return rest if x.dtype in UNSIGNED else ops.where(ops.less(x, 0), ops.neg(rest), rest)


def aligned(x: Any, y: Any, axis: int | None) -> Any:
    """y with axes of extent 1 after its own, so that its first one lines up with `axis` of x."""
    behind = 0 if axis is None else len(x.shape) - axis % len(x.shape) - len(y.shape)
    return ops.reshape(y, (*y.shape, *(1,) * behind)) if behind > 0 else y


def register_broadcasting(type: str, first: int, function: Callable[[Any, Any], Any]) -> None:
    """Register an operator of two inputs that broadcast, before version 7 by its attributes."""

    @register_operator("", type, (first, 6))
    def before(x: Any, y: Any, *, axis: int | None = None, broadcast: int = 0) -> Any:
        return function(x, aligned(x, y, axis) if broadcast else y)

    @register_operator("", type, (7, None))
    def now(x: Any, y: Any) -> Any:
        return function(x, y)


register_broadcasting("Add", 6, ops.add)
register_broadcasting("Sub", 6, ops.sub)
register_broadcasting("Mul", 6, ops.mul)
register_broadcasting("Div", 6, divide)


def folded(function: Callable[[Any, Any], Any]) -> Callable[..., Any]:
    """A function of two tensors, applied to any number of them from left to right."""

    def fold(*xs: Any) -> Any:
        return reduce(function, xs)

    return fold


for _type, _function in {"Max": ops.maximum, "Min": ops.minimum, "Sum": ops.add}.items():
    register_operator("", _type, (6, None))(folded(_function))


@register_operator("", "Mean", (6, None))
def mean(*xs: Any) -> Any:
    return ops.div(reduce(ops.add, xs), float(len(xs)))


@register_operator("", "Mod", (10, None))
def mod(x: Any, y: Any, *, fmod: int = 0) -> Any:
    return remainder(x, y) if fmod else ops.mod(x, y)


LARGEST = float(np.finfo(np.float32).max)


@register_operator("", "Clip", (6, 10))
def clip_by_numbers(x: Any, *, min: float = -LARGEST, max: float = LARGEST) -> Any:
    return ops.clip(x, min, max)


@register_operator("", "Clip", (11, None))
def clip(x: Any, min: Setting | None = None, max: Setting | None = None) -> Any:
    return ops.clip(x, *(_bound(b) for b in (min, max)))


def _bound(value: Any) -> Any:
    return number(value) if isinstance(value, np.ndarray) else value


@register_operator("", "Cast", (6, None))
def cast(x: Any, *, to: int, saturate: int = 1, round_mode: str = "up") -> Any:
    return ops.cast(x, dtype_of(to, "the output"))


@register_operator("", "CastLike", (15, None))
def cast_like(x: Any, like: Any, *, saturate: int = 1, round_mode: str = "up") -> Any:
    return ops.cast(x, like.dtype)


@register_operator("", "BitShift", (11, None))
def bit_shift(x: Any, y: Any, *, direction: str) -> Any:
    """x * 2^y or floor(x / 2^y), within the width of the dtype; a shift that is negative, or as
    wide as the dtype, leaves no bit of x but its sign."""
    kind, width = as_dtype(x.dtype), np.iinfo(x.dtype).bits
    inside = ops.logical_and(ops.greater_equal(y, 0), ops.less(y, width))
    factor = ops.pow(ops.full((), 2, kind), ops.where(inside, y, ops.zeros_like(y)))
    left = direction == "LEFT"
    if left or kind in UNSIGNED:
        shifted = ops.mul(x, factor) if left else ops.floor_div(x, factor)
        return ops.where(inside, shifted, ops.zeros_like(x))
    sign = ops.neg(ops.cast(ops.less(x, 0), kind))
    # 2^(width - 1) is negative in a signed dtype.
    inside = ops.logical_and(inside, ops.greater(factor, 0))
    return ops.where(inside, ops.floor_div(x, factor), sign)


# --- Powers and comparisons -----------------------------------------------------------------------


def power(x: Any, y: Any) -> Any:
    """x to the power y, in the dtype of x."""
    if x.dtype == y.dtype:
        return ops.pow(x, y)
    wide = x if is_float(x.dtype) else ops.cast(x, float64)
    return ops.cast(ops.pow(wide, ops.cast(y, wide.dtype)), x.dtype)


register_broadcasting("Pow", 1, power)
register_broadcasting("Equal", 1, ops.equal)
register_broadcasting("Less", 1, ops.less)
register_broadcasting("Greater", 1, ops.greater)
register_broadcasting("And", 1, ops.logical_and)
register_broadcasting("Or", 1, ops.logical_or)
register_broadcasting("Xor", 1, ops.logical_xor)


@register_operator("", "IsInf", (10, None))
def isinf(x: Any, *, detect_negative: int = 1, detect_positive: int = 1) -> Any:
    found = ops.isinf(x)
    if not detect_negative:
        found = ops.logical_and(found, ops.greater(x, 0))
    return found if detect_positive else ops.logical_and(found, ops.less(x, 0))


@register_operator("ai.onnx.ml", "Binarizer", (1, None))
def binarizer(x: Any, *, threshold: float = 0.0) -> Any:
    return ops.cast(ops.greater(x, np.array(threshold).astype(x.dtype)), x.dtype)


@register_operator("ai.onnx.ml", "Scaler", (1, None))
def scaler(x: Any, *, offset: Floats | None = None, scale: Floats | None = None) -> Any:
    """(x - offset) scale, with one number each or one for each column."""
    shift, factor = (np.array(v, np.float32) for v in (offset or (0.0,), scale or (1.0,)))
    return ops.mul(ops.sub(ops.cast(x, float32), shift), factor)


# --- Quantization ---------------------------------------------------------------------------------


@register_operator("", "QuantizeLinear", (10, None))
def quantize_linear(
    x: Any,
    y_scale: Setting,
    y_zero_point: Setting | None = None,
    *,
    axis: int = 1,
    block_size: int = 0,
    output_dtype: int = 0,
    precision: int = 0,
    saturate: int = 1,
) -> Any:
    if precision:
        x = ops.cast(x, dtype_of(precision, "the division"))
    scale = spread(x, y_scale, axis, block_size)
    if y_zero_point is None:
        kind = dtype_of(output_dtype or 2, "the output")
        return quantized(x, ops.cast(scale, x.dtype), np.array(0, kind), kind)
    zero = spread(x, y_zero_point, axis, block_size)
    return quantized(x, ops.cast(scale, x.dtype), zero, y_zero_point.dtype)


@register_operator("", "DequantizeLinear", (10, None))
def dequantize_linear(
    x: Any,
    x_scale: Setting,
    x_zero_point: Setting | None = None,
    *,
    axis: int = 1,
    block_size: int = 0,
    output_dtype: int = 0,
) -> Any:
    zero = None if x_zero_point is None else spread(x, x_zero_point, axis, block_size)
    out = dequantized(x, spread(x, x_scale, axis, block_size), zero)
    return ops.cast(out, dtype_of(output_dtype, "the output")) if output_dtype else out


@register_operator("", "DynamicQuantizeLinear", (11, None))
def dynamic_quantize_linear(x: Any) -> Any:
    low, high = ops.minimum(ops.min(x), 0.0), ops.maximum(ops.max(x), 0.0)
    scale = ops.div(ops.sub(high, low), 255.0)
    scale = ops.where(ops.equal(scale, 0.0), 1.0, scale)
    zero = ops.cast(ops.clip(ops.round(ops.div(ops.neg(low), scale)), 0.0, 255.0), np.uint8)
    return quantized(x, scale, zero, np.uint8), scale, zero


def spread(x: Any, scale: Any, axis: int, block_size: int) -> Any:
    """A scale or zero point in the shape in which it broadcasts with x: one for all, for each index
    of an axis, or for each block of them."""
    if len(scale.shape) == 0 or (len(scale.shape) == 1 and scale.shape[0] == 1):
        return ops.reshape(scale, ())
    if block_size:
        block = counted(extent(x, axis)).reshape(along(x, axis)) // block_size
        return ops.take_along_axis(scale, block, axis)
    return ops.reshape(scale, along(x, axis))


def along(x: Any, axis: int) -> tuple[int, ...]:
    """The shape of a vector that broadcasts along an axis of x."""
    shape = [1] * len(x.shape)
    extent(x, axis)
    shape[axis] = -1
    return tuple(shape)


def quantized(x: Any, scale: Any, zero: Any, dtype: Any) -> Any:
    """round(x / scale) + zero, kept within the range of an integer dtype."""
    kind = as_dtype(dtype)
    if is_float(kind) or kind == np.bool_:
        raise OnnxError(f"quantization to {kind.name} is not there; integers of 8 to 32 bits are")
    info = np.iinfo(kind)
    levels = ops.add(ops.round(ops.div(x, scale)), ops.cast(zero, x.dtype))
    return ops.cast(ops.clip(levels, float(info.min), float(info.max)), kind)


def dequantized(x: Any, scale: Any, zero: Any = None) -> Any:
    """(x - zero) * scale, in the dtype of scale."""
    levels = ops.cast(x, float32)
    if zero is not None:
        levels = ops.sub(levels, ops.cast(zero, float32))
    return ops.cast(ops.mul(levels, ops.cast(scale, float32)), scale.dtype)


# --- Activations ----------------------------------------------------------------------------------


register_all((1, None), {"Softsign": ops.softsign})
register_all((9, None), {"PRelu": ops.prelu})
register_all((14, None), {"HardSwish": ops.hard_swish})
register_all((18, None), {"Mish": ops.mish})


@register_operator("", "LeakyRelu", (6, None))
def leaky_relu(x: Any, *, alpha: float = 0.01) -> Any:
    return ops.leaky_relu(x, alpha)


@register_operator("", "PRelu", (6, 8))
def prelu_by_channel(x: Any, slope: Any) -> Any:
    """slope has one number, or one for each channel, axis 1."""
    behind = (1,) * (len(x.shape) - 2)
    return ops.prelu(x, ops.reshape(slope, (-1, *behind)) if len(slope.shape) == 1 else slope)


@register_operator("", "Celu", (12, None))
def celu(x: Any, *, alpha: float = 1.0) -> Any:
    return ops.celu(x, alpha)


@register_operator("", "Selu", (6, None))
def selu(x: Any, *, alpha: float = 1.6732631921768188, gamma: float = 1.0507010221481323) -> Any:
    return ops.mul(ops.elu(x, alpha), gamma)


@register_operator("", "HardSigmoid", (6, None))
def hard_sigmoid(x: Any, *, alpha: float = 0.2, beta: float = 0.5) -> Any:
    return ops.hard_sigmoid(x, alpha, beta)


@register_operator("", "Gelu", (20, None))
def gelu(x: Any, *, approximate: str = "none") -> Any:
    return ops.gelu(x, approximate)


@register_operator("", "Swish", (24, None))
def swish(x: Any, *, alpha: float = 1.0) -> Any:
    return ops.mul(x, ops.sigmoid(ops.mul(x, alpha)))


@register_operator("", "SwiGLU", (28, None))
def swiglu(x: Any, gate: Any, *, alpha: float = 1.0) -> Any:
    wide = [ops.cast(v, float32) for v in (x, gate)]
    return ops.cast(ops.mul(swish(wide[0], alpha=alpha), wide[1]), x.dtype)


@register_operator("", "ThresholdedRelu", (10, None))
def thresholded_relu(x: Any, *, alpha: float = 1.0) -> Any:
    return ops.where(ops.greater(x, alpha), x, ops.zeros_like(x))


@register_operator("", "Shrink", (9, None))
def shrink(x: Any, *, bias: float = 0.0, lambd: float = 0.5) -> Any:
    below = ops.where(ops.less(x, -lambd), ops.add(x, bias), ops.zeros_like(x))
    return ops.where(ops.greater(x, lambd), ops.sub(x, bias), below)


# --- The way back ---------------------------------------------------------------------------------


def writes(type: str, *primitives: Any) -> None:
    """Write primitives as one operator, whose inputs are theirs."""
    register_writer(*primitives)(lambda emit, node, *inputs: emit(type, *inputs))


for _type, _primitive in {
    "Add": ops.Add, "Sub": ops.Sub, "Mul": ops.Mul, "Pow": ops.Pow, "Equal": ops.Equal,
    "Less": ops.Less, "Greater": ops.Greater, "And": ops.LogicalAnd, "Or": ops.LogicalOr,
    "Xor": ops.LogicalXor, "Div": ops.Div, "Max": ops.Maximum,
    "Min": ops.Minimum, "Identity": ops.StopGradient,
}.items():  # fmt: skip
    writes(_type, _primitive)


@register_writer(ops.Barrier)
def write_barrier(emit: Any, node: Any, x: Any, after: Any) -> Any:
    return emit("Identity", x)


@register_writer(ops.Cast)
def write_cast(emit: Any, node: Any, x: Any) -> Any:
    return emit("Cast", x, to=code_of(node.primitive.dtype))


@register_writer(ops.NotEqual)
def write_not_equal(emit: Any, node: Any, x: Any, y: Any) -> Any:
    return emit("Not", emit("Equal", x, y))


@register_writer(ops.IsNan, ops.IsInf)
def write_is(emit: Any, node: Any, x: Any) -> Any:
    """No integer is either."""
    if is_float(node.inputs[0].abstract.dtype):
        return emit("IsNaN" if type(node.primitive) is ops.IsNan else "IsInf", x)
    return emit("Not", emit("Equal", x, x))


@register_writer(ops.Clip)
def write_clip(emit: Any, node: Any, x: Any) -> Any:
    dtype, primitive = node.inputs[0].abstract.dtype, node.primitive
    ends = [None if n is None else np.array(n, dtype) for n in (primitive.min, primitive.max)]
    return emit("Clip", x, *ends)


@register_writer(ops.LeakyReLU)
def write_leaky_relu(emit: Any, node: Any, x: Any) -> Any:
    return emit("LeakyRelu", x, alpha=node.primitive.slope)


def _gelu(self: Any, x: Any) -> Any:
    if self.approximate:
        inner = ops.mul(ops.add(x, ops.mul(0.044715, ops.mul(x, ops.mul(x, x)))), (2 / pi) ** 0.5)
        return ops.mul(ops.mul(x, 0.5), ops.add(ops.tanh(inner), 1.0))
    return ops.mul(x, _normal_cdf(self, x))


def _normal_cdf(_: Any, x: Any) -> Any:
    return ops.mul(ops.add(ops.erf(ops.mul(x, 0.5**0.5)), 1.0), 0.5)


def _log1p(_: Any, x: Any) -> Any:
    """log(u) x / (u - 1) with u = 1 + x, whose rounding cancels (Kahan); x where u is 1, and
    log(u) where x is infinite."""
    u = ops.add(x, 1.0)
    rest = ops.sub(u, 1.0)
    small, large = ops.equal(rest, 0.0), ops.isinf(x)
    ratio = ops.div(x, ops.where(ops.logical_or(small, large), 1.0, rest))
    scaled = ops.mul(ops.log(u), ops.where(large, 1.0, ratio))
    return ops.where(small, x, scaled)


def _expm1(_: Any, x: Any) -> Any:
    """tanh(x / 2) (exp(x) + 1), which loses no digits near 0."""
    return ops.mul(ops.tanh(ops.mul(x, 0.5)), ops.add(ops.exp(x), 1.0))


def _floor_div(_: Any, x: Any, y: Any) -> Any:
    """The quotient rounded down, from one that rounds towards zero or not at all."""
    return ops.floor(ops.div(x, y))


def _atan2(_: Any, y: Any, x: Any) -> Any:
    """atan(y / x), turned by pi, with the sign of y, where x is negative, and pi / 2 at x = 0."""
    half = ops.cast(ops.where(ops.less(y, 0.0), -pi / 2, pi / 2), y.dtype)
    turned = ops.where(ops.less(x, 0.0), ops.mul(half, 2.0), 0.0)
    zero = ops.equal(x, 0.0)
    angle = ops.add(ops.atan(ops.div(y, ops.where(zero, 1.0, x))), turned)
    return ops.where(zero, ops.where(ops.equal(y, 0.0), 0.0, half), angle)


def _log_add(_: Any, x: Any, y: Any) -> Any:
    """The greater, and the logarithm of 1 and the exponential of what the smaller is below it."""
    high, low = ops.maximum(x, y), ops.minimum(x, y)
    below = ops.where(ops.equal(high, low), 0.0, ops.sub(low, high))
    return ops.add(high, _log1p(_, ops.exp(below)))


def _hypot(_: Any, x: Any, y: Any) -> Any:
    """The length by the ratio of the smaller to the larger."""
    a, b = ops.abs(x), ops.abs(y)
    high, low = ops.maximum(a, b), ops.minimum(a, b)
    ratio = ops.div(low, ops.where(ops.equal(high, 0.0), 1.0, high))
    size = ops.mul(high, ops.sqrt(ops.add(ops.mul(ratio, ratio), 1.0)))
    infinite = ops.logical_or(ops.isinf(a), ops.isinf(b))
    return ops.where(infinite, float("inf"), size)


def _times_log(self: Any, x: Any, y: Any) -> Any:
    """The product, 0 where x is, unless y is NaN."""
    log = ops.log(y) if isinstance(self, ops.XLogY) else _log1p(self, y)
    vanishes = ops.logical_and(ops.equal(x, 0.0), ops.equal(y, y))
    return ops.where(vanishes, 0.0, ops.mul(x, log))


# What primitives that ONNX lacks are made of, functions of (primitive, *inputs).
COMPOSED: dict[Any, Callable[..., Any]] = {
    ops.Square: lambda _, x: ops.mul(x, x),
    ops.Rsqrt: lambda _, x: ops.reciprocal(ops.sqrt(x)),
    ops.Exp2: lambda _, x: ops.pow(2.0, x),
    ops.Log2: lambda _, x: ops.div(ops.log(x), log(2.0)),
    ops.Log10: lambda _, x: ops.div(ops.log(x), log(10.0)),
    ops.Log1p: _log1p,
    ops.Expm1: _expm1,
    ops.Erfc: lambda _, x: ops.sub(1.0, ops.erf(x)),
    ops.NormalCDF: _normal_cdf,
    ops.GELU: _gelu,
    ops.SiLU: lambda _, x: ops.mul(x, ops.sigmoid(x)),
    ops.ReLUGrad: lambda _, y, dout: ops.where(ops.greater(y, 0.0), dout, 0.0),
    ops.LeakyReLUGrad: lambda self, x, dout: ops.where(
        ops.greater(x, 0.0), dout, ops.mul(dout, self.slope)
    ),
    ops.ExpNegSquare: lambda self, x: ops.exp(
        ops.mul(ops.mul(x, x), -0.5 if self.halved else -1.0)
    ),
    ops.Copysign: lambda _, x, y: ops.mul(
        ops.abs(x),
        ops.cast(
            ops.where(ops.less(ops.where(ops.equal(y, 0.0), ops.reciprocal(y), y), 0.0), -1.0, 1.0),
            x.dtype,
        ),
    ),
    ops.IsFinite: lambda _, x: ops.equal(ops.sub(x, x), 0.0),
    ops.Atan2: _atan2,
    ops.LogAddExp: _log_add,
    ops.Hypot: _hypot,
    ops.XLogY: _times_log,
    ops.XLog1pY: _times_log,
}
for _primitive, _composition in COMPOSED.items():
    register_composition(_primitive)(_composition)


@register_writer(ops.Floor, ops.Ceil, ops.Round, ops.Trunc)
def write_rounding(emit: Any, node: Any, x: Any) -> Any:
    """Integers are whole already."""
    if not is_float(node.inputs[0].abstract.dtype):
        return emit("Identity", x)
    if type(node.primitive) is not ops.Trunc:
        return emit(type(node.primitive).__name__, x)
    return emit("Mul", emit("Sign", x), emit("Floor", emit("Abs", x)))


@register_writer(ops.FloorDiv, ops.Mod)
def write_floored(emit: Any, node: Any, x: Any, y: Any) -> Any:
    """The quotient rounded down and its remainder: Mod has the divisor's sign for integers, and
    only the dividend's for floats."""
    if is_float(node.inputs[0].abstract.dtype):
        down = emit("Floor", emit("Div", x, y))
        if type(node.primitive) is ops.FloorDiv:
            return down
        return emit("Sub", x, emit("Mul", down, y))
    rest = emit("Mod", x, y)
    if type(node.primitive) is ops.Mod:
        return rest
    return emit("Div", emit("Sub", x, rest), y)
