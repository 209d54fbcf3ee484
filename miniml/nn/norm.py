"""Layers that normalise (BatchNorm, LayerNorm, ...) or drop values (Dropout)."""

from __future__ import annotations

import math
from typing import Any, ClassVar

from .. import ops
from ..backends.group import Group, of_several
from ..core.abstract import float32
from ..core.errors import ValueRefusedError
from ..core.options import count, counts, flag, number, probability
from ..graph.tracing import as_tensor
from ..ops.checks import composition
from . import init
from .cell import Cell
from .layer import beside, refuse_shape, shape_of, shape_of_images

__all__ = [
    "BatchNorm1d", "BatchNorm2d", "BatchNorm3d", "Dropout", "Dropout1d", "Dropout2d", "Dropout3d",
    "GroupNorm", "InstanceNorm1d", "InstanceNorm2d", "InstanceNorm3d", "LayerNorm", "RMSNorm",
]  # fmt: skip


class BatchNorm(Cell):
    """(x - mean) / sqrt(var + eps) * weight + bias, for each channel of x (N, num_features, ...).

    In training, mean and variance are the batch's own, and the running ones move by
    running = (1 - momentum) * running + momentum * batch, with the unbiased variance; in
    evaluation the running ones are used. weight (all 1) and bias (all 0) are learnt; running_mean
    (all 0) and running_var (all 1) are Parameters without gradient.
    Source: Ioffe, Szegedy 2015, "Batch normalization".

    group: ranks that train together, as `ml.distributed.init()` gives it: in training, mean and
    variance are then those of the rows of all ranks, of which each may have other numbers, and the
    gradient passes through them; by one collective call forward and one backward.
    """

    _shown = "num_features", "eps=", "momentum="
    _ns: ClassVar[tuple[int, ...]]  # the numbers of axes behind the channels that it takes
    _values: ClassVar[str]

    def __init__(
        self,
        num_features: int,
        eps: float = 1e-5,
        momentum: float = 0.1,
        group: Group | None = None,
    ):
        layer = type(self).__name__
        self.num_features = num_features = count(layer, "num_features", num_features)
        self.eps = number(layer, "eps", eps, 0)
        self.momentum = probability(layer, "momentum", momentum)
        self.weight = init.constant((num_features,), 1.0)
        self.bias = init.constant((num_features,), 0.0)
        self.running_mean = init.constant((num_features,), 0.0, requires_grad=False)
        self.running_var = init.constant((num_features,), 1.0, requires_grad=False)
        self.group = of_several(layer, group)

    def construct(self, x: Any) -> Any:
        shape = shape_of_images(self, x, self.num_features, *self._ns)
        if not self.training:
            running = (self.running_mean, self.running_var)
            return ops.batch_norm(x, self.weight, self.bias, *running, eps=self.eps)[0]
        count = shape[0] * math.prod(shape[2:])
        if self.group is not None and count:
            mean, var, unbiased = _of_ranks(x, count, self.group.name, self.group.size)
            self._follow(mean, unbiased, 1.0)
            return ops.batch_norm(x, self.weight, self.bias, mean, var, eps=self.eps)[0]
        if count < 2:
            refuse_shape(self, shape, f"two or more {self._values} per channel in training")
        out, mean, var = ops.batch_norm(x, self.weight, self.bias, training=True, eps=self.eps)
        self._follow(mean, var, count / (count - 1))
        return out

    def _follow(self, mean: Any, var: Any, unbiased: float) -> None:
        """Move the running statistics by those of a batch, of which var is multiplied first."""
        running = self.running_mean, self.running_var
        shares = self.momentum, self.momentum * unbiased
        moved = _moved(running, (mean, var), 1.0 - self.momentum, shares)
        ops.assign(self.running_mean, moved[0])
        ops.assign(self.running_var, moved[1])


@composition
def _of_ranks(x: Any, count: int, group: str, size: int) -> tuple[Any, Any, Any]:
    """Mean, biased and unbiased variance of each channel over the `count` values of this rank and
    those of all others, from the means and variances of each (Chan, Golub, LeVeque 1983)."""
    axes = (0, *range(2, len(x.shape)))
    wide = ops.cast(x, float32) if x.dtype.itemsize == 2 else x
    mean, var = ops.mean(wide, axes), ops.var(wide, axes)
    own = ops.stack([mean, var, ops.full_like(mean, count)])
    every = ops.AllGather(group, size)(ops.reshape(own, (1, *own.shape)))
    means, variances, counts = every[:, 0], every[:, 1], every[:, 2]
    total = ops.sum(counts, 0)
    mean = ops.sum(means * counts, 0) / total
    spread = ops.sum((variances + (means - mean) ** 2) * counts, 0)
    return mean, spread / total, spread / (total - 1.0)


@composition
def _moved(running: Any, batch: Any, kept: float, shares: tuple[float, float]) -> Any:
    """kept * running + share * batch of both, in running's dtype, without a gradient."""
    moved = []
    for was, now, share in zip(running, batch, shares, strict=True):
        own = now if now.dtype == was.dtype else ops.cast(now, was.dtype)
        moved.append(ops.add(ops.mul(was, kept), ops.mul(ops.stop_gradient(own), share)))
    return moved


class BatchNorm1d(BatchNorm):
    """`BatchNorm` of x (N, num_features) or (N, num_features, L)."""

    _ns, _values = (0, 1), "values"


class BatchNorm2d(BatchNorm):
    """`BatchNorm` of images x (N, num_features, H, W)."""

    _ns, _values = (2,), "pixels"


class BatchNorm3d(BatchNorm):
    """`BatchNorm` of volumes x (N, num_features, D, H, W)."""

    _ns, _values = (3,), "voxels"


class LayerNorm(Cell):
    """(x - mean) / sqrt(var + eps) * weight + bias, mean and variance over the last axes of x.

    shape: the extents of those axes, an int for one. weight starts with 1, bias with 0; with
    bias=False it is None. Source: Ba, Kiros, Hinton 2016, "Layer normalization".
    """

    _shown = "shape", "eps="

    def __init__(self, shape: int | tuple[int, ...], eps: float = 1e-5, bias: bool = True):
        self.shape, self.eps = extents("LayerNorm", shape), number("LayerNorm", "eps", eps, 0)
        self.weight = init.constant(self.shape, 1.0)
        self.bias = init.constant(self.shape, 0.0) if flag("LayerNorm", "bias", bias) else None

    def construct(self, x: Any) -> Any:
        _check_last(self, x)
        bias = ops.zeros_like(self.weight) if self.bias is None else self.bias
        return ops.layer_norm(x, self.weight, bias, self.eps)


def _check_last(layer: LayerNorm | RMSNorm, x: Any) -> None:
    """ShapeError unless the last axes of x are those that the layer normalises over."""
    shape = shape_of(layer, x)
    if shape[-len(layer.shape) :] != layer.shape:
        refuse_shape(layer, shape, f"(..., {', '.join(map(str, layer.shape))})")


class RMSNorm(Cell):
    """x / sqrt(mean(x^2) + eps) * weight, the mean over the last axes of x, as in `LayerNorm`.

    weight starts with 1. eps is by default the distance of 1 to the next float32.
    Source: Zhang, Sennrich 2019, "Root mean square layer normalization".
    """

    _shown = "shape", "eps="

    def __init__(self, shape: int | tuple[int, ...], eps: float = 2.0**-23):
        self.shape, self.eps = extents("RMSNorm", shape), number("RMSNorm", "eps", eps, 0)
        self.weight = init.constant(self.shape, 1.0)

    def construct(self, x: Any) -> Any:
        _check_last(self, x)
        return ops.rms_norm(beside(self.weight, x), self.weight, self.eps)


class GroupNorm(Cell):
    """(x - mean) / sqrt(var + eps) * weight + bias, for x (N, num_channels, ...).

    mean and variance are those of each sample's groups of num_channels / num_groups adjacent
    channels; weight (all 1) and bias (all 0) are of each channel. With a group for each
    channel it is instance normalization. ValueRefusedError for num_groups that do not divide
    num_channels.
    Source: Wu, He 2018, "Group normalization".
    """

    _shown = "num_groups", "num_channels", "eps="

    def __init__(self, num_groups: int, num_channels: int, eps: float = 1e-5):
        num_groups, num_channels = counts(
            "GroupNorm", num_groups=num_groups, num_channels=num_channels
        )
        if num_channels % num_groups:
            raise ValueRefusedError(
                f"GroupNorm got num_groups={num_groups} for {num_channels} channels; expected a "
                "divisor"
            )
        self.num_groups, self.num_channels = num_groups, num_channels
        self.eps = number("GroupNorm", "eps", eps, 0)
        self.weight = init.constant((num_channels,), 1.0)
        self.bias = init.constant((num_channels,), 0.0)

    def construct(self, x: Any) -> Any:
        shape = shape_of(self, x)
        if len(shape) < 2 or shape[1] != self.num_channels:
            refuse_shape(self, shape, f"(N, {self.num_channels}, ...)")
        x = beside(self.weight, x)
        return ops.group_norm(x, self.num_groups, self.weight, self.bias, self.eps)


class InstanceNorm(Cell):
    """(x - mean) / sqrt(var + eps), for each channel of each sample of x (N, num_features, ...).

    affine: True multiplies the result by weight (starts with 1) and adds bias (with 0), one number
    of each for every channel; else both are None. Training and evaluation are the same: there are
    no running statistics, as by default in PyTorch. Source: Ulyanov, Vedaldi, Lempitsky 2016,
    "Instance normalization".
    """

    _shown = "num_features", "eps="
    _n: ClassVar[int]

    def __init__(self, num_features: int, eps: float = 1e-5, affine: bool = False):
        layer = type(self).__name__
        self.num_features = num_features = count(layer, "num_features", num_features)
        self.eps = number(layer, "eps", eps, 0)
        self.affine = flag(layer, "affine", affine)
        self.weight = init.constant((num_features,), 1.0) if affine else None
        self.bias = init.constant((num_features,), 0.0) if affine else None

    def construct(self, x: Any) -> Any:
        shape = shape_of_images(self, x, self.num_features, self._n)
        if math.prod(shape[2:]) < 2:
            refuse_shape(self, shape, "two or more values per channel of each sample")
        x = x if self.weight is None else beside(self.weight, x)
        return ops.instance_norm(x, self.weight, self.bias, self.eps)


class InstanceNorm1d(InstanceNorm):
    """`InstanceNorm` of x (N, num_features, L)."""

    _n = 1


class InstanceNorm2d(InstanceNorm):
    """`InstanceNorm` of images x (N, num_features, H, W)."""

    _n = 2


class InstanceNorm3d(InstanceNorm):
    """`InstanceNorm` of volumes x (N, num_features, D, H, W)."""

    _n = 3


class Dropout(Cell):
    """In training each element becomes 0 with probability p and the others grow by 1 / (1 - p).

    In evaluation it does nothing. The draws are the default generator's.
    """

    _shown = ("p",)

    def __init__(self, p: float = 0.5):
        self.p = number(type(self).__name__, "p", p, 0, below=1)

    def construct(self, x: Any) -> Any:
        x = as_tensor(x)
        return self.dropped(x) if self.training and self.p else x

    def dropped(self, x: Any) -> Any:
        """The value of x in training."""
        return ops.dropout(x, self.p)


class ChannelDropout(Dropout):
    """In training each channel of each sample becomes 0 as a whole with probability p, and the
    others grow by 1 / (1 - p); in evaluation it does nothing.

    Source: Tompson et al. 2015, "Efficient object localization using convolutional networks".
    """

    _n: ClassVar[int]

    def dropped(self, x: Any) -> Any:
        """The value of x in training."""
        shape_of_images(self, x, None, self._n)
        ones = ops.ones_like(x[(slice(None), slice(None), *[slice(1)] * self._n)])
        return ops.mul(x, ops.dropout(ones, self.p))


class Dropout1d(ChannelDropout):
    """`ChannelDropout` of x (N, C, L)."""

    _n = 1


class Dropout2d(ChannelDropout):
    """`ChannelDropout` of images x (N, C, H, W)."""

    _n = 2


class Dropout3d(ChannelDropout):
    """`ChannelDropout` of volumes x (N, C, D, H, W)."""

    _n = 3


def extents(layer: str, shape: Any) -> tuple[int, ...]:
    """The extents of the last axes, from an int or a tuple of ints, all above 0."""
    given = shape if isinstance(shape, (tuple, list)) else (shape,)
    return tuple(count(layer, f"shape[{i}]", n) for i, n in enumerate(given))
