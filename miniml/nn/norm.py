"""Layers that normalise or drop values: BatchNorm2d, LayerNorm, Dropout."""

from __future__ import annotations

from typing import Any

from .. import ops
from ..errors import AttributeRefusedError
from ..graph.tracer import as_tensor
from . import init
from .arguments import fraction, number, positive
from .cell import Cell
from .shapes import refuse_shape, shape_of


class BatchNorm2d(Cell):
    """(x - mean) / sqrt(var + eps) * weight + bias, for each channel of x (N, num_features, H, W).

    In training, mean and variance are the batch's own, and the running ones move by
    running = (1 - momentum) * running + momentum * batch, with the unbiased variance; in
    evaluation the running ones are used. weight (all 1) and bias (all 0) are learnt; running_mean
    (all 0) and running_var (all 1) are Parameters without gradient.
    Source: Ioffe, Szegedy 2015, "Batch normalization".
    """

    _shown = "{0.num_features}, eps={0.eps}, momentum={0.momentum}"

    def __init__(self, num_features: int, eps: float = 1e-5, momentum: float = 0.1):
        positive("BatchNorm2d", num_features=num_features)
        self.num_features = num_features
        self.eps = number("BatchNorm2d", "eps", eps, 0.0)
        self.momentum = fraction("BatchNorm2d", "momentum", momentum)
        self.weight = init.constant((num_features,), 1.0)
        self.bias = init.constant((num_features,), 0.0)
        self.running_mean = init.constant((num_features,), 0.0, requires_grad=False)
        self.running_var = init.constant((num_features,), 1.0, requires_grad=False)

    def construct(self, x: Any) -> Any:
        shape = shape_of(self, x)
        if len(shape) != 4 or shape[1] != self.num_features:
            refuse_shape(self, shape, f"(N, {self.num_features}, H, W)")
        if not self.training:
            running = (self.running_mean, self.running_var)
            return ops.batch_norm(x, self.weight, self.bias, *running, eps=self.eps)[0]
        count = shape[0] * shape[2] * shape[3]
        if count < 2:
            refuse_shape(self, shape, "two or more pixels per channel in training")
        out, mean, var = ops.batch_norm(x, self.weight, self.bias, training=True, eps=self.eps)
        self._follow(self.running_mean, mean, 1.0)
        self._follow(self.running_var, var, count / (count - 1))
        return out

    def _follow(self, running: Any, batch: Any, factor: float) -> None:
        moved = ops.mul(ops.cast(ops.stop_gradient(batch), running.dtype), self.momentum * factor)
        ops.assign(running, ops.add(ops.mul(running, 1.0 - self.momentum), moved))


class LayerNorm(Cell):
    """(x - mean) / sqrt(var + eps) * weight + bias, mean and variance over the last axes of x.

    shape: the extents of those axes, an int for one. weight starts with 1, bias with 0.
    Source: Ba, Kiros, Hinton 2016, "Layer normalization".
    """

    _shown = "{0.shape}, eps={0.eps}"

    def __init__(self, shape: int | tuple[int, ...], eps: float = 1e-5):
        extents = tuple(shape) if isinstance(shape, (tuple, list)) else (shape,)
        positive("LayerNorm", **{f"shape[{i}]": n for i, n in enumerate(extents)})
        self.shape, self.eps = extents, number("LayerNorm", "eps", eps, 0.0)
        self.weight = init.constant(self.shape, 1.0)
        self.bias = init.constant(self.shape, 0.0)

    def construct(self, x: Any) -> Any:
        shape = shape_of(self, x)
        if shape[-len(self.shape) :] != self.shape:
            refuse_shape(self, shape, f"(..., {', '.join(map(str, self.shape))})")
        return ops.layer_norm(x, self.weight, self.bias, self.eps)


class Dropout(Cell):
    """In training each element becomes 0 with probability p and the others grow by 1 / (1 - p).

    In evaluation it does nothing. The draws are the default generator's.
    """

    _shown = "{0.p}"

    def __init__(self, p: float = 0.5):
        self.p = number("Dropout", "p", p)
        if not 0.0 <= self.p < 1.0:
            raise AttributeRefusedError(f"Dropout got p={p}; expected 0 <= p < 1")

    def construct(self, x: Any) -> Any:
        x = as_tensor(x)
        return ops.dropout(x, self.p) if self.training and self.p else x
