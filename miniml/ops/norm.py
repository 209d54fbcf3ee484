"""Normalisation: softmax and its logarithm, batch and layer normalisation, cross entropy."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..abstract import Shape
from ..dtype import INTEGERS, DType
from ..errors import AttributeRefusedError, DTypeError, ShapeError
from ..primitive import Primitive
from . import rules
from .arithmetic import add, mul, sub
from .exponential import rsqrt
from .inference.bases import FloatUnary
from .inference.devices import on_one_device
from .inference.shapes import needs_float, shape_of
from .shape import reshape

if TYPE_CHECKING:
    from ..tensor import Tensor

__all__ = [
    "BatchNorm", "CheckedLabels", "CrossEntropy", "CrossEntropyGrad", "LayerNorm", "LogSoftmax",
    "Softmax", "batch_norm", "layer_norm", "log_softmax", "softmax",
]  # fmt: skip


class Distribution(FloatUnary, abstract=True):
    """A function of exp(x) along `axis`, computed from x - max(x), which does not overflow.

    A row of nothing but -inf has no softmax and gives NaN, as does a row with +inf.
    """

    axis: int = -1
    infer_shape = rules.along("axis")


class Softmax(Distribution):
    """exp(x) / sum(exp(x)) along `axis`; NaN for a row of nothing but -inf, or with +inf."""


class LogSoftmax(Distribution):
    """x - log(sum(exp(x))) along `axis`; NaN for a row of nothing but -inf, or with +inf."""


def softmax(x: Any, axis: int = -1) -> Tensor:
    """exp(x) / sum(exp(x)) along `axis`: positive numbers whose sum is 1."""
    return Softmax(axis)(x)


def log_softmax(x: Any, axis: int = -1) -> Tensor:
    """The logarithm of softmax along `axis`, exact where softmax itself is 0 or 1 to rounding."""
    return LogSoftmax(axis)(x)


class LayerNorm(Primitive):
    """(x - mean) * rstd * gamma + beta, with mean and rstd over the axes that gamma has.

    gamma and beta have the shape of x's last axes. rstd = 1 / sqrt(var + eps), var being the mean
    of (x - mean)^2. mean and rstd keep the axes they were taken over, with extents 1.
    Source: Ba, Kiros, Hinton, "Layer normalization" (2016).
    """

    outputs = ("out", "mean", "rstd")
    promote = "float"
    eps: float = 1e-5

    def infer_shape(self, x: Shape, gamma: Shape, beta: Shape) -> tuple[Shape, Shape, Shape]:
        count = len(gamma)
        if not 1 <= count <= len(x) or x[-count:] != gamma or beta != gamma:
            raise ShapeError(
                f"{self.name} got x of shape {x}, gamma of {gamma} and beta of {beta}; gamma and "
                "beta have the shape of the last axes of x, over which it normalises"
            )
        kept = (*x[:-count], *(1,) * count)
        return x, kept, kept


def layer_norm(x: Any, gamma: Any, beta: Any, eps: float = 1e-5) -> Tensor:
    """x normalised to mean 0 and variance 1 over its last axes, times gamma, plus beta.

    gamma and beta have the shape of those last axes; eps > 0 is added to the variance.
    """
    return LayerNorm(eps)(x, gamma, beta)[0]


class BatchNorm(Primitive):
    """(x - mean) / sqrt(var + eps) * gamma + beta, channel by channel, by the batch's statistics.

    x has shape (N, C, ...); gamma, beta, and the outputs mean and var have shape (C,). var is the
    mean of (x - mean)^2 over all axes but 1. An empty batch has NaN statistics.
    Source: Ioffe, Szegedy, "Batch normalization" (2015).
    """

    outputs = ("out", "mean", "var")
    promote = "float"
    eps: float = 1e-5

    def infer_shape(self, x: Shape, gamma: Shape, beta: Shape) -> tuple[Shape, Shape, Shape]:
        if len(x) < 2 or gamma != x[1:2] or beta != gamma:
            raise ShapeError(
                f"{self.name} got x of shape {x}, gamma of {gamma} and beta of {beta}; x has shape "
                "(N, C, ...), gamma and beta (C,)"
            )
        return x, gamma, gamma


@on_one_device
def batch_norm(
    x: Any,
    gamma: Any,
    beta: Any,
    mean: Any = None,
    var: Any = None,
    training: bool = False,
    eps: float = 1e-5,
) -> tuple[Tensor, Tensor, Tensor]:
    """(out, mean, var): x (N, C, ...) normalised channel by channel, and the statistics used.

    out = (x - mean) / sqrt(var + eps) * gamma + beta; gamma, beta, mean and var have shape (C,).
    With `training`, mean and var are the batch's (var the biased one), through which the gradient
    passes, and what was given for them is not read; without, they are those given.
    ShapeError for other shapes.
    """
    if training:
        out, mean, var = BatchNorm(eps)(x, gamma, beta)
        return out, mean, var
    if mean is None or var is None:
        raise ShapeError("BatchNorm without training needs mean and var; got None")
    shape, *channels = (shape_of(v) for v in (x, gamma, beta, mean, var))
    if len(shape) < 2 or any(c != shape[1:2] for c in channels):
        raise ShapeError(
            f"batch_norm got x of shape {shape}, and gamma, beta, mean and var of "
            f"{', '.join(map(str, channels))}; x has shape (N, C, ...), the others (C,)"
        )
    scale = mul(gamma, rsqrt(add(var, eps)))
    rest = (-1, *(1,) * (len(shape) - 2))
    # The mean first: multiplied by the scale, it may be much larger than what is left of x.
    centred = sub(x, reshape(mean, rest))
    return add(mul(centred, reshape(scale, rest)), reshape(beta, rest)), mean, var


REDUCTIONS = ("mean", "sum", "none")


class CrossEntropy(Primitive):
    """The negative logarithm of the probability that softmax gives to each row's label.

    logits (N, C) floats, labels (N,) integers in [0, C). loss_n = log(sum(exp(logits_n))) -
    logits_n[labels_n]; `reduction` "mean" (of an empty batch NaN) or "sum" gives loss of shape (),
    "none" (N,). probs (N, C) is softmax(logits), which the gradient needs.
    """

    outputs = ("loss", "probs")
    reduction: str = "mean"

    def infer_shape(self, logits: Shape, labels: Shape) -> tuple[Shape, Shape]:
        return reduced_loss(self.name, self.reduction, logits, labels), logits

    def infer_dtype(self, logits: DType, labels: DType) -> tuple[DType, DType]:
        return labelled(self.name, logits, labels), logits


class CrossEntropyGrad(Primitive):
    """The gradient of CrossEntropy in the logits: (probs - onehot(labels)) * dloss.

    probs (N, C), labels (N,), dloss () or, for reduction "none", (N,); "mean" divides by N.
    """

    reduction: str = "mean"

    def infer_shape(self, probs: Shape, labels: Shape, dloss: Shape) -> Shape:
        expected = reduced_loss(self.name, self.reduction, probs, labels)
        if dloss != expected:
            raise ShapeError(
                f"{self.name} got dloss of shape {dloss}; with reduction={self.reduction!r} the "
                f"loss has shape {expected}"
            )
        return probs

    def infer_dtype(self, probs: DType, labels: DType, dloss: DType) -> DType:
        if dloss != probs:
            raise DTypeError(
                f"{self.name} got probs of {probs.name} and dloss of {dloss.name}; cast one of them"
            )
        return labelled(self.name, probs, labels)


class CheckedLabels(Primitive):
    """The labels, all of which are in [0, classes) or equal `ignored`; else OutOfRangeError.

    of, what: who is named in the error, and what the integers are called. On a GPU, where nothing
    waits to look at values, it checks nothing: losses are NaN for the labels that it would refuse.
    """

    differentiable = False
    classes: int
    of: str = "CrossEntropy"
    ignored: int | None = None
    what: str = "label"

    def infer_shape(self, labels: Shape) -> Shape:
        return labels

    def infer_dtype(self, labels: DType) -> DType:
        return needs_integers(self.of, labels, self.what)


def reduced_loss(name: str, reduction: str, logits: Shape, labels: Shape) -> Shape:
    """The loss's shape for that reduction."""
    check_reduction(name, reduction)
    if len(logits) != 2 or labels != logits[:1] or logits[1] == 0:
        raise ShapeError(
            f"{name} got logits of shape {logits} and labels of shape {labels}; logits have shape "
            "(N, C) with C at least 1, labels (N,)"
        )
    return labels if reduction == "none" else ()


def check_reduction(name: str, reduction: str) -> None:
    """AttributeRefusedError unless `reduction` is one that losses have."""
    if reduction not in REDUCTIONS:
        raise AttributeRefusedError(
            f"{name} got reduction={reduction!r}; use one of {', '.join(REDUCTIONS)}"
        )


def labelled(name: str, logits: DType, labels: DType) -> DType:
    """The logits' dtype, a float; DTypeError unless the labels are integers."""
    needs_integers(name, labels)
    return needs_float(name, logits)


def needs_integers(name: str, labels: DType, what: str = "label") -> DType:
    """The dtype of labels; DTypeError unless they are integers."""
    if labels not in INTEGERS:
        numbers = ", class numbers" if what == "label" else ""
        raise DTypeError(f"{name} needs {what}s of an integer dtype{numbers}; got {labels.name}")
    return labels
