"""Softmax; layer, batch, group, instance and RMS normalization; the cross-entropy primitives.

Group, instance and RMS normalization are compositions of other operations.
"""

from __future__ import annotations

from math import prod
from typing import Any

from ..core.abstract import INTEGERS, DType, Shape, promote
from ..core.errors import DTypeError, ShapeError
from ..core.options import choice, flag, integer, number
from ..core.primitive import Primitive
from . import rules
from .checks import Tensor, composition, dtype_of, needs_float, shape_of
from .composed.elementwise import in_dtype, widened
from .elementwise import add, mul, rsqrt, square, sub
from .reduce import mean
from .rules import FloatUnary, moves, per_input
from .shape import reshape

__all__ = [
    "BatchNorm", "CheckedLabels", "CheckedProbabilities", "CrossEntropy", "CrossEntropyGrad",
    "LayerNorm", "LogSoftmax", "Softmax", "batch_norm", "layer_norm", "log_softmax", "softmax",
    "group_norm", "instance_norm", "rms_norm",
]  # fmt: skip


class Distribution(FloatUnary, abstract=True):
    """A function of exp(x) along `axis`, computed from x - max(x), which does not overflow."""

    elementwise = False
    autocast = "wide"
    flops = per_input(5)
    axis: int = -1
    infer_shape = rules.along("axis")


class Softmax(Distribution):
    """exp(x) / sum(exp(x)) along `axis`; NaN for a row of nothing but -inf, or with +inf."""


class LogSoftmax(Distribution):
    """x - log(sum(exp(x))) along `axis`; NaN for a row of nothing but -inf, or with +inf."""


@composition
def softmax(x: Any, axis: int = -1) -> Tensor:
    """exp(x) / sum(exp(x)) along `axis`: positive numbers whose sum is 1 (Bridle 1990)."""
    return Softmax(axis)(x)


@composition
def log_softmax(x: Any, axis: int = -1) -> Tensor:
    """The logarithm of softmax along `axis`, exact where softmax itself is 0 or 1 to rounding.

    Source: Bridle 1990, as for softmax."""
    return LogSoftmax(axis)(x)


# --- Layer and batch normalization ----------------------------------------------------------------


class Normalization(Primitive, abstract=True):
    """A normalization of x by its mean and variance, times gamma, plus beta."""

    autocast = "wide"
    flops = per_input(7)
    promote = "float"
    eps: float = 1e-5


class LayerNorm(Normalization):
    """(x - mean) * rstd * gamma + beta, with mean and rstd over the axes that gamma has.

    gamma and beta have the shape of x's last axes. rstd = 1 / sqrt(var + eps), var being the mean
    of (x - mean)^2. mean and rstd keep the axes they were taken over, with extents 1. ShapeError
    for other shapes.
    Source: Ba, Kiros, Hinton, "Layer normalization" (2016).
    """

    outputs = ("out", "mean", "rstd")

    def infer_shape(self, x: Shape, gamma: Shape, beta: Shape) -> tuple[Shape, Shape, Shape]:
        count = len(gamma)
        if not 1 <= count <= len(x) or x[-count:] != gamma or beta != gamma:
            raise ShapeError(
                f"{self.name} got x of shape {x}, gamma of {gamma} and beta of {beta}; gamma and "
                "beta have the shape of the last axes of x, over which it normalises"
            )
        kept = (*x[:-count], *(1,) * count)
        return x, kept, kept


@composition
def layer_norm(x: Any, gamma: Any, beta: Any, eps: float = 1e-5) -> Tensor:
    """x normalised to mean 0 and variance 1 over its last axes, times gamma, plus beta.

    gamma and beta have the shape of those last axes; eps > 0 is added to the variance.
    """
    return LayerNorm(eps)(x, gamma, beta)[0]


class BatchNorm(Normalization):
    """(x - mean) / sqrt(var + eps) * gamma + beta, channel by channel, by the batch's statistics.

    x has shape (N, C, ...); gamma, beta, and the outputs mean and var have shape (C,). var is the
    mean of (x - mean)^2 over all axes but 1. An empty batch has NaN statistics. ShapeError for
    other shapes.
    Source: Ioffe, Szegedy, "Batch normalization" (2015).
    """

    outputs = ("out", "mean", "var")
    images = ("x", "out")

    def infer_shape(self, x: Shape, gamma: Shape, beta: Shape) -> tuple[Shape, Shape, Shape]:
        if len(x) < 2 or gamma != x[1:2] or beta != gamma:
            raise ShapeError(
                f"{self.name} got x of shape {x}, gamma of {gamma} and beta of {beta}; x has shape "
                "(N, C, ...), gamma and beta (C,)"
            )
        return x, gamma, gamma


@composition
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
    passes, and the arguments mean and var are not read; without, they are the arguments. ShapeError
    for other shapes.
    """
    if flag("batch_norm", "training", training):
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
    # The mean is subtracted first: times the scale, it may be much larger than the difference.
    centred = sub(x, reshape(mean, rest))
    return add(mul(centred, reshape(scale, rest)), reshape(beta, rest)), mean, var


# --- Group, instance and RMS normalization --------------------------------------------------------


@composition
def group_norm(
    x: Any, num_groups: int, gamma: Any = None, beta: Any = None, eps: float = 1e-5
) -> Tensor:
    """(x - mean) / sqrt(var + eps) * gamma + beta, over groups of channels of each sample.

    x: (N, C, ...) floats. The C channels form num_groups groups of C / num_groups adjacent
    channels; mean and variance (the biased one) are over a group's channels and all further axes.
    gamma and beta: (C,), by default 1 and 0. Floats of 16 bits are computed in float32. ShapeError
    where num_groups does not divide C. Source: Wu, He 2018, "Group normalization".

    >>> group_norm([[1.0, 3.0, 5.0, 9.0]], 2, eps=0.0).tolist()
    [[-1.0, 1.0, -1.0, 1.0]]
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
    needs_float("group_norm", dtype_of(x))
    normal = _normal(reshape(widened(x), groups), eps)
    return _channelwise("group_norm", reshape(normal, shape), gamma, beta, dtype_of(x))


@composition
def instance_norm(x: Any, gamma: Any = None, beta: Any = None, eps: float = 1e-5) -> Tensor:
    """(x - mean) / sqrt(var + eps) * gamma + beta, over each channel of each sample.

    x: (N, C, ...) floats; mean and variance (the biased one) are over all axes but the first two.
    gamma and beta: (C,), by default 1 and 0. It is `group_norm` with C groups. ShapeError for an
    x of fewer axes.
    Source: Ulyanov, Vedaldi, Lempitsky 2016, "Instance normalization".
    """
    shape = shape_of(x)
    if len(shape) < 3:
        raise ShapeError(f"instance_norm got x of shape {shape}; x has shape (N, C, ...)")
    return group_norm(x, max(shape[1], 1), gamma, beta, eps)


@composition
def rms_norm(x: Any, gamma: Any, eps: float = 2.0**-23) -> Tensor:
    """x / sqrt(mean(x^2) + eps) * gamma, the mean over the last axes of x, those that gamma has.

    Floats of 16 bits are computed in float32. eps is by default the distance of 1 to the next
    float32. ShapeError for a gamma of no last axes of x. Source: Zhang, Sennrich 2019, "Root mean
    square layer normalization".

    >>> rms_norm([3.0, -3.0], [1.0, 2.0]).tolist()
    [1.0, -2.0]
    """
    shape, own = shape_of(x), shape_of(gamma)
    if not 1 <= len(own) <= len(shape) or shape[-len(own) :] != own:
        raise ShapeError(
            f"rms_norm got x of shape {shape} and gamma of {own}; gamma has the shape of the last "
            "axes of x, over which it normalises"
        )
    needs_float("rms_norm", dtype_of(x))
    eps, v = number("rms_norm", "eps", eps), widened(x)
    normal = mul(v, rsqrt(add(mean(square(v), tuple(range(-len(own), 0)), True), eps)))
    return in_dtype(mul(normal, gamma), promote(dtype_of(x), dtype_of(gamma)))


def _normal(groups: Any, eps: float) -> Tensor:
    """Groups (N, groups, size), each normalized to mean 0 and variance 1."""
    centred = sub(groups, mean(groups, 2, True))
    return mul(centred, rsqrt(add(mean(square(centred), 2, True), eps)))


def _channelwise(name: str, normal: Tensor, gamma: Any, beta: Any, dtype: DType) -> Tensor:
    """normal * gamma + beta, each if given, channel by channel, in the common dtype."""
    shape = normal.shape
    both = (gamma, "gamma", mul), (beta, "beta", add)
    for given, word, join in (each for each in both if each[0] is not None):
        if shape_of(given) != shape[1:2]:
            raise ShapeError(
                f"{name} got x of shape {shape} and {word} of {shape_of(given)}; {word} has one "
                f"number for each channel, shape {shape[1:2]}"
            )
        normal = join(normal, reshape(given, (-1, *(1,) * (len(shape) - 2))))
        dtype = promote(dtype, dtype_of(given))
    return in_dtype(normal, dtype)


# --- Cross entropy --------------------------------------------------------------------------------


class CrossEntropy(Primitive):
    """The negative logarithm of the probability of each row's label under softmax.

    logits (N, C) floats, labels (N,) integers in [0, C). loss_n = log(sum(exp(logits_n))) -
    logits_n[labels_n]; `reduction` "mean" (of an empty batch NaN) or "sum" gives loss of shape (),
    "none" (N,). probs (N, C) is softmax(logits), which the gradient needs.
    """

    autocast = "wide"
    flops = per_input(5)
    outputs = ("loss", "probs")
    reduction: str = "mean"

    def infer_shape(self, logits: Shape, labels: Shape) -> tuple[Shape, Shape]:
        return reduced_loss(self.name, self.reduction, logits, labels), logits

    def infer_dtype(self, logits: DType, labels: DType) -> tuple[DType, DType]:
        return labelled(self.name, logits, labels), logits


class CrossEntropyGrad(Primitive):
    """The gradient of CrossEntropy in the logits: (probs - onehot(labels)) * dloss.

    probs (N, C), labels (N,), dloss () or, for reduction "none", (N,); "mean" divides by N.
    ShapeError for a dloss that has not the loss's shape, DTypeError for one of another dtype than
    probs.
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

    of, what: the names of the function and of the integers in the error. On a GPU, where reading
    values would need a synchronization, nothing is checked: losses are NaN for refused labels.
    """

    batch = "leading"
    refuses = True
    flops = moves
    differentiable = False
    classes: int
    of: str = "CrossEntropy"
    ignored: int | None = None
    what: str = "label"

    @property
    def bounds(self) -> tuple[int, int, int | None]:
        """The classes, and what is ignored."""
        return 0, self.classes, self.ignored

    def infer_shape(self, labels: Shape) -> Shape:
        return labels

    def infer_dtype(self, labels: DType) -> DType:
        return needs_integers(self.of, labels, self.what)


class CheckedProbabilities(FloatUnary):
    """The probabilities, all of which are in [0, 1] or NaN; else ValueRefusedError.

    of: the name of the function in the error. On a GPU, where reading values would need a
    synchronization, nothing is checked: the logarithm of a negative number is NaN.
    """

    refuses = True
    flops = moves
    of: str = "bce"


def reduced_loss(name: str, reduction: str, logits: Shape, labels: Shape) -> Shape:
    """The loss's shape for that reduction."""
    check_reduction(name, reduction)
    if len(logits) != 2 or labels != logits[:1] or logits[1] == 0:
        raise ShapeError(
            f"{name} got logits of shape {logits} and labels of shape {labels}; logits have shape "
            "(N, C) with C at least 1, labels (N,)"
        )
    return labels if reduction == "none" else ()


REDUCTIONS = ("mean", "sum", "none")


def check_reduction(name: str, reduction: str) -> str:
    """The `reduction`, one of REDUCTIONS."""
    batch = "; PyTorch's batchmean is 'sum' divided by the rows" * (str(reduction) == "batchmean")
    return choice(name, "reduction", reduction, REDUCTIONS, batch)


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
