"""Operators that onnxruntime's quantizer writes, of its own domain, com.microsoft.

Most compute between quantized numbers: x stands for scale_x (x - zero_x). They are read as what
they stand for: numbers that floats represent exactly, then the operation, then levels again. A
level may differ by one from onnxruntime's, where the result lies between two.

Parts: elementwise; pooling, softmax, joined tensors; products; an LSTM.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from typing import Any

import numpy as np

from ... import ops
from ...core.abstract import float32
from ...core.errors import OnnxError
from ..operators import Floats, Ints, Setting, Strings, register_operator
from ..tensors import extent
from .control import lstm_of
from .elementwise import (
    dequantize_linear,
    dequantized,
    dynamic_quantize_linear,
    leaky_relu,
    quantize_linear,
    quantized,
)
from .images import average_pool
from .linalg import matmul_integer
from .shape import flatten

DOMAIN = "com.microsoft"

register_operator(DOMAIN, "QuantizeLinear", (1, None))(quantize_linear)
register_operator(DOMAIN, "DequantizeLinear", (1, None))(dequantize_linear)


def _levels(x: Any, scale: Any, zero: Any, like: Any) -> Any:
    """The levels of x, of the dtype of the zero point, or where there is none of `like`."""
    zero = np.zeros((), like.dtype) if zero is None else zero
    return quantized(x, ops.reshape(scale, ()), ops.reshape(zero, ()), zero.dtype)


def _numbers(x: Any, scale: Any, zero: Any) -> Any:
    """The numbers that the levels x stand for, with one scale."""
    return dequantized(x, ops.reshape(scale, ()), None if zero is None else ops.reshape(zero, ()))


# --- Elementwise ----------------------------------------------------------------------------------


def _binary(type: str, function: Callable[..., Any]) -> None:
    @register_operator(DOMAIN, type, (1, None))
    def row(
        a: Any, a_scale: Setting, a_zero: Setting | None = None, b: Any = None,
        b_scale: Setting = None, b_zero: Setting | None = None, c_scale: Setting = None,
        c_zero: Setting | None = None,
    ) -> Any:  # fmt: skip
        out = function(_numbers(a, a_scale, a_zero), _numbers(b, b_scale, b_zero))
        return _levels(out, c_scale, c_zero, a)


_binary("QLinearAdd", ops.add)
_binary("QLinearMul", ops.mul)


@register_operator(DOMAIN, "QLinearSigmoid", (1, None))
def qlinear_sigmoid(
    x: Any, x_scale: Setting, x_zero: Setting | None = None, y_scale: Setting = None,
    y_zero: Setting | None = None,
) -> Any:  # fmt: skip
    return _levels(ops.sigmoid(_numbers(x, x_scale, x_zero)), y_scale, y_zero, x)


@register_operator(DOMAIN, "QLinearLeakyRelu", (1, None))
def qlinear_leaky_relu(
    x: Any, x_scale: Setting, x_zero: Setting | None = None, y_scale: Setting = None,
    y_zero: Setting | None = None, *, alpha: float = 0.01,
) -> Any:  # fmt: skip
    return _levels(leaky_relu(_numbers(x, x_scale, x_zero), alpha=alpha), y_scale, y_zero, x)


@register_operator(DOMAIN, "QLinearWhere", (1, None))
def qlinear_where(
    condition: Any, x: Any, x_scale: Setting, x_zero: Setting, y: Any, y_scale: Setting,
    y_zero: Setting, z_scale: Setting, z_zero: Setting,
) -> Any:  # fmt: skip
    out = ops.where(condition, _numbers(x, x_scale, x_zero), _numbers(y, y_scale, y_zero))
    return _levels(out, z_scale, z_zero, x)


# --- Pooling, softmax, joined tensors -------------------------------------------------------------


@register_operator(DOMAIN, "QLinearGlobalAveragePool", (1, None))
def qlinear_global_average_pool(
    x: Any, x_scale: Setting, x_zero: Setting, y_scale: Setting, y_zero: Setting, *,
    channels_last: int = 0,
) -> Any:  # fmt: skip
    rank = len(x.shape)
    axes = tuple(range(1, rank - 1) if channels_last else range(2, rank))
    return _levels(ops.mean(_numbers(x, x_scale, x_zero), axes, True), y_scale, y_zero, x)


@register_operator(DOMAIN, "QLinearAveragePool", (1, None))
def qlinear_average_pool(
    x: Any, x_scale: Setting, x_zero: Setting | None = None, y_scale: Setting = None,
    y_zero: Setting | None = None, *, kernel_shape: Ints, strides: Ints | None = None,
    pads: Ints | None = None, auto_pad: str = "NOTSET", ceil_mode: int = 0,
    count_include_pad: int = 0, channels_last: int = 0,
) -> Any:  # fmt: skip
    values = _numbers(x, x_scale, x_zero)
    out = average_pool(
        ops.moveaxis(values, -1, 1) if channels_last else values, kernel_shape=kernel_shape,
        strides=strides, pads=pads, auto_pad=auto_pad, ceil_mode=ceil_mode,
        count_include_pad=count_include_pad,
    )  # fmt: skip
    return _levels(ops.moveaxis(out, 1, -1) if channels_last else out, y_scale, y_zero, x)


@register_operator(DOMAIN, "QLinearSoftmax", (1, None))
def qlinear_softmax(
    x: Any, x_scale: Setting, x_zero: Setting | None = None, y_scale: Setting = None,
    y_zero: Setting | None = None, *, axis: int = -1, opset: int,
) -> Any:  # fmt: skip
    """opset: that of the Softmax which it was, and which says what a row is."""
    values = _numbers(x, x_scale, x_zero)
    if opset >= 13:
        return _levels(ops.softmax(values, axis), y_scale, y_zero, x)
    rows = ops.softmax(flatten(values, axis=axis), -1)
    return _levels(ops.reshape(rows, tuple(x.shape)), y_scale, y_zero, x)


@register_operator(DOMAIN, "QLinearConcat", (1, None))
def qlinear_concat(y_scale: Setting, y_zero: Setting, *parts: Setting, axis: int) -> Any:
    """parts: a tensor, its scale and its zero point, in turn."""
    if not parts or len(parts) % 3:
        raise OnnxError(f"got {len(parts)} inputs behind y_zero; it takes threes of them")
    threes = [parts[i : i + 3] for i in range(0, len(parts), 3)]
    return _levels(ops.concat([_numbers(*t) for t in threes], axis), y_scale, y_zero, parts[0])


# --- Products -------------------------------------------------------------------------------------


@register_operator(DOMAIN, "QGemm", (1, None))
def qgemm(
    a: Any, a_scale: Setting, a_zero: Setting, b: Any, b_scale: Setting, b_zero: Setting,
    c: Any = None, y_scale: Setting | None = None, y_zero: Setting | None = None, *,
    alpha: float = 1.0, transA: int = 0, transB: int = 0,
) -> Any:  # fmt: skip
    """In float without y_scale. c is in units of the product, alpha a_scale b_scale."""
    a, b = ops.transpose(a) if transA else a, ops.transpose(b) if transB else b
    product = matmul_integer(a, b, a_zero, b_zero)
    total = ops.cast(product if c is None else ops.add(product, c), float32)
    scale = reduce(ops.mul, (_wide(a_scale), _wide(b_scale), np.float32(alpha)))
    out = ops.mul(total, scale)
    return out if y_scale is None else _levels(out, y_scale, y_zero, a)


@register_operator(DOMAIN, "MatMulIntegerToFloat", (1, None))
def matmul_integer_to_float(
    a: Any, b: Any, a_scale: Setting, b_scale: Setting, a_zero: Setting | None = None,
    b_zero: Setting | None = None, bias: Any = None,
) -> Any:  # fmt: skip
    product = ops.cast(matmul_integer(a, b, a_zero, b_zero), float32)
    out = ops.mul(product, ops.mul(_wide(a_scale), _wide(b_scale)))
    return out if bias is None else ops.add(out, bias)


@register_operator(DOMAIN, "DynamicQuantizeMatMul", (1, None))
def dynamic_quantize_matmul(
    a: Any, b: Any, b_scale: Setting, b_zero: Setting | None = None, bias: Any = None
) -> Any:
    levels, scale, zero = dynamic_quantize_linear(a)
    return matmul_integer_to_float(levels, b, scale, b_scale, zero, b_zero, bias)


def _wide(scale: Any) -> Any:
    """A scale, or one for each column, in float32."""
    scale = ops.cast(scale, float32)
    return ops.reshape(scale, ()) if tuple(scale.shape) == (1,) else scale


# --- An LSTM --------------------------------------------------------------------------------------


@register_operator(DOMAIN, "DynamicQuantizeLSTM", (1, None))
def dynamic_quantize_lstm(
    x: Any, w: Setting, r: Setting, b: Any = None, sequence_lens: Any = None,
    initial_h: Any = None, initial_c: Any = None, peepholes: Any = None,
    w_scale: Setting = None, w_zero: Setting = None, r_scale: Setting = None,
    r_zero: Setting = None, *,
    activation_alpha: Floats | None = None, activation_beta: Floats | None = None,
    activations: Strings | None = None, clip: float | None = None, direction: str = "forward",
    hidden_size: int | None = None, input_forget: int = 0,
) -> Any:  # fmt: skip
    """An LSTM whose weights are levels, (directions, inputs, 4 hidden), and whose inputs become
    levels: the sequence once, the hidden state at each step."""
    return lstm_of(
        _through_levels(x), _weights(w, w_scale, w_zero), _weights(r, r_scale, r_zero), b,
        sequence_lens, initial_h, initial_c, peepholes,
        activation_alpha, activation_beta, activations, clip, direction, hidden_size,
        input_forget, 0, _through_levels,
    )  # fmt: skip


def _through_levels(x: Any) -> Any:
    levels, scale, zero = dynamic_quantize_linear(x)
    return dequantized(levels, scale, zero)


def _weights(levels: Any, scale: Any, zero: Any) -> Any:
    """Quantized weights as those of an LSTM: (directions, 4 hidden, inputs)."""
    shape = (extent(levels, 0), 1, -1)
    found = dequantized(levels, ops.reshape(scale, shape), ops.reshape(zero, shape))
    return ops.swapaxes(found, 1, 2)
