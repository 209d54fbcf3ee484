"""ONNX's normalizations, softmax, and the losses made of it."""

from __future__ import annotations

from functools import partial, reduce
from typing import Any

import numpy as np

from ... import ops
from ...core.abstract import HALVES, as_dtype, float32, float64, int32, int64
from ...core.errors import OnnxError
from ..operators import Ints, Setting, register_composition, register_operator, register_writer
from ..reader import Node
from ..tensors import code_of, extent
from .shape import flatten


def wide(x: Any) -> Any:
    """x in its compute dtype: float32 for 16-bit floats."""
    return ops.cast(x, float32) if as_dtype(x.dtype) in HALVES else x


def hardmax_along(x: Any, axis: int) -> Any:
    hot = ops.one_hot(ops.argmax(x, axis), extent(x, axis), x.dtype)
    return ops.moveaxis(hot, -1, axis)


for _type, _function in {
    "Softmax": ops.softmax, "LogSoftmax": ops.log_softmax, "Hardmax": hardmax_along
}.items():  # fmt: skip

    def _register(type: str, function: Any) -> None:
        @register_operator("", type, (1, 12))
        def of_rows(x: Any, *, axis: int = 1) -> Any:
            """All axes from `axis` on are one row."""
            return ops.reshape(function(flatten(x, axis=axis), -1), tuple(x.shape))

        @register_operator("", type, (13, None))
        def along(x: Any, *, axis: int = -1) -> Any:
            return function(x, axis)

    _register(_type, _function)


def _channels(x: Any, v: Any) -> Any:
    """One number per channel, axis 1, in a shape that broadcasts with x."""
    return ops.reshape(v, (-1, *(1,) * (len(x.shape) - 2)))


@register_operator("", "BatchNormalization", (6, 13))
def batch_normalization_inference(
    x: Any,
    scale: Any,
    bias: Any,
    mean: Setting,
    var: Setting,
    *,
    epsilon: float = 1e-5,
    momentum: float = 0.9,
    spatial: int = 1,
    is_test: int = 1,
    node: Node,
) -> Any:
    if not spatial or len([n for n in node.outputs if n]) > 1:
        raise OnnxError("trains, or normalizes each place by itself, which is not read before 14")
    return ops.batch_norm(x, scale, bias, mean, var, eps=epsilon)[0]


@register_operator("", "BatchNormalization", (14, None))
def batch_normalization(
    x: Any,
    scale: Any,
    bias: Any,
    input_mean: Setting,
    input_var: Setting,
    *,
    epsilon: float = 1e-5,
    momentum: float = 0.9,
    training_mode: int = 0,
) -> Any:
    out, mean, var = ops.batch_norm(
        x, scale, bias, input_mean, input_var, bool(training_mode), epsilon
    )
    if not training_mode:
        return ops.cast(out, x.dtype)

    def running(old: Any, new: Any) -> Any:
        return ops.add(ops.mul(old, momentum), ops.mul(new, 1.0 - momentum))

    return ops.cast(out, x.dtype), running(input_mean, mean), running(input_var, var)


def _standard(x: Any, axes: tuple[int, ...], eps: float) -> tuple[Any, Any, Any]:
    """(x - mean) / sqrt(var + eps) over axes; the mean; 1 / sqrt(var + eps)."""
    mean = ops.mean(x, axes, True)
    centred = ops.sub(x, mean)
    inverse = ops.rsqrt(ops.add(ops.mean(ops.square(centred), axes, True), eps))
    return ops.mul(centred, inverse), mean, inverse


@register_operator("", "InstanceNormalization", (6, None))
def instance_normalization(x: Any, scale: Any, bias: Any, *, epsilon: float = 1e-5) -> Any:
    return ops.instance_norm(x, scale, bias, epsilon)


@register_operator("", "LayerNormalization", (17, None))
def layer_normalization(
    x: Any, scale: Any, bias: Any = None, *, axis: int = -1, epsilon: float = 1e-5,
    stash_type: int = 1,
) -> Any:  # fmt: skip
    first = axis % len(x.shape)
    out, mean, inverse = _standard(wide(x), tuple(range(first, len(x.shape))), epsilon)
    out = ops.mul(ops.cast(out, x.dtype), scale)
    return out if bias is None else ops.add(out, bias), mean, inverse


@register_operator("", "RMSNormalization", (23, None))
def rms_normalization(
    x: Any, scale: Any, *, axis: int = -1, epsilon: float = 1e-5, stash_type: int = 1
) -> Any:
    values, axes = wide(x), tuple(range(axis % len(x.shape), len(x.shape)))
    inverse = ops.rsqrt(ops.add(ops.mean(ops.square(values), axes, True), epsilon))
    return ops.mul(ops.cast(ops.mul(values, inverse), x.dtype), scale)


@register_operator("", "GroupNormalization", (21, None))
def group_normalization(
    x: Any, scale: Any, bias: Any, *, num_groups: int, epsilon: float = 1e-5, stash_type: int = 1
) -> Any:
    return ops.group_norm(x, num_groups, scale, bias, epsilon)


@register_operator("", "MeanVarianceNormalization", (9, None))
def mean_variance_normalization(x: Any, *, axes: Ints = (0, 2, 3)) -> Any:
    return _standard(x, axes, 1e-9)[0]


@register_operator("", "LpNormalization", (1, None))
def lp_normalization(x: Any, *, axis: int = -1, p: int = 2) -> Any:
    size = ops.norm(x, p, axis, True)
    # A vector of zeros stays one, though its length is 0.
    return ops.div(x, ops.where(ops.equal(size, 0.0), ops.ones_like(size), size))


@register_operator("", "LRN", (1, None))
def lrn(x: Any, *, size: int, alpha: float = 1e-4, beta: float = 0.75, bias: float = 1.0) -> Any:
    """x / (bias + alpha / size * s)^beta, s the sum of squares of `size` channels around each."""
    channels = extent(x, 1)
    if not 0 < size <= 1000:
        raise OnnxError(f"has size {size}; it is read from 1 to 1000")
    before, after = min((size - 1) // 2, channels), min(size // 2, channels)
    pads = ((0, 0), (before, after), *((0, 0),) * (len(x.shape) - 2))
    padded = ops.pad(ops.square(x), pads)
    around = [ops.slice(padded, (None, i), (None, i + channels)) for i in range(before + after + 1)]
    scaled = ops.mul(reduce(ops.add, around), alpha / size)
    return ops.div(x, ops.pow(ops.add(scaled, bias), beta))


@register_operator("", "NegativeLogLikelihoodLoss", (12, None))
def nll_loss(
    x: Any, target: Any, weight: Any = None, *, ignore_index: int | None = None,
    reduction: str = "mean",
) -> Any:  # fmt: skip
    return ops.nll_loss(x, target, reduction, weight, ignore_index)


@register_operator("ai.onnx.ml", "Normalizer", (1, None))
def normalizer(x: Any, *, norm: str = "MAX") -> Any:
    """Each row by its largest number, or its norm; a row whose norm is 0 stays."""
    x = ops.cast(x, float32)
    if norm not in ("MAX", "L1", "L2"):
        raise OnnxError(f"norm {norm!r:.50} is not there; MAX, L1 and L2 are")
    sizes = {
        "MAX": lambda: ops.max(x, -1, True),
        "L1": lambda: ops.sum(ops.abs(x), -1, True),
        "L2": lambda: ops.sqrt(ops.sum(ops.square(x), -1, True)),
    }[norm]()
    return ops.where(ops.equal(sizes, np.float32(0)), x, ops.div(x, sizes))


@register_operator("", "SoftmaxCrossEntropyLoss", (12, None))
def softmax_cross_entropy_loss(
    scores: Any, labels: Any, weights: Any = None, *, ignore_index: int | None = None,
    reduction: str = "mean",
) -> Any:  # fmt: skip
    loss = ops.cross_entropy(scores, labels, reduction, weights, ignore_index)
    return loss, ops.log_softmax(scores, 1)


# --- The way back ---------------------------------------------------------------------------------


@register_writer(ops.Softmax, ops.LogSoftmax)
def write_softmax(emit: Any, node: Any, x: Any) -> Any:
    return emit(type(node.primitive).__name__, x, axis=node.primitive.axis)


@register_writer(ops.LayerNorm)
def write_layer_norm(emit: Any, node: Any, x: Any, gamma: Any, beta: Any) -> Any:
    axis, eps = -len(node.inputs[1].abstract.shape), node.primitive.eps
    if node.inputs[0].abstract.dtype == float64:  # its statistics are of float32
        return emit.made_of(partial(layer_norm_of, node.primitive), x, gamma, beta)
    out, *rest = emit.several(3, "LayerNormalization", x, gamma, beta, axis=axis, epsilon=eps)
    mean, rstd = (emit("Cast", v, to=code_of(node.outputs[1].abstract.dtype)) for v in rest)
    return out, mean, rstd


def layer_norm_of(self: Any, x: Any, gamma: Any, beta: Any) -> Any:
    axes = tuple(range(len(x.shape) - len(gamma.shape), len(x.shape)))
    out, mean, rstd = _standard(x, axes, self.eps)
    return ops.add(ops.mul(out, gamma), beta), mean, rstd


@register_composition(ops.BatchNorm)
def batch_norm_of(self: Any, x: Any, gamma: Any, beta: Any) -> Any:
    """By the batch's statistics, which it gives too."""
    axes = (0, *range(2, len(x.shape)))
    along = (-1, *(1,) * (len(x.shape) - 2))
    mean = ops.mean(x, axes, True)
    centred = ops.sub(x, mean)
    var = ops.mean(ops.mul(centred, centred), axes, True)
    scaled = ops.mul(centred, ops.rsqrt(ops.add(var, self.eps)))
    out = ops.add(ops.mul(scaled, ops.reshape(gamma, along)), ops.reshape(beta, along))
    return out, ops.reshape(mean, (-1,)), ops.reshape(var, (-1,))


@register_writer(ops.CrossEntropy)
def write_cross_entropy(emit: Any, node: Any, logits: Any, labels: Any) -> Any:
    reduction = node.primitive.reduction
    if node.inputs[1].abstract.dtype not in (int32, int64):
        labels = emit("Cast", labels, to=code_of(int64))
    loss = emit("SoftmaxCrossEntropyLoss", logits, labels, reduction=reduction)
    return loss, emit("Softmax", logits, axis=-1)


@register_writer(ops.CheckedLabels, ops.CheckedProbabilities)
def write_checked(emit: Any, node: Any, x: Any, *_: Any) -> Any:
    """The values; other runtimes check them where they use them, or not at all."""
    return emit("Identity", x)
