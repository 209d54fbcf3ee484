"""Scaling of a loss, so that small gradients are not lost in float16."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from typing import Any

import numpy as np

from .. import ops
from ..errors import MinimlError
from ..nn import Cell
from ..parameter import Parameter
from ..tensor import Tensor
from .optimizer import in_dtype, wide

_MOST = 2.0**126  # twice this is still a float32


class LossScale(Cell):
    """The factor of a loss, which its gradients are divided by again before an update.

    `train_step(net, loss, opt, loss_scale=LossScale())` does all of it: a step with a gradient that
    is not finite changes nothing but the scale. dynamic: after such a step the scale is divided by
    `factor`, down to 1, and after `every` steps in a row without one it is multiplied by it. A
    static scale stays. Scale and count of good steps are Parameters: save this with the net and the
    optimizer. With powers of two no gradient within range changes its bits.

    By hand: `scaled = scale(loss)`; `grads, finite = scale.unscaled(grads)`;
    `opt.update(grads, where=finite)`; `scale.update(finite)`.
    """

    def __init__(
        self,
        scale: float = 2.0**15,
        dynamic: bool = True,
        every: int = 2000,
        factor: float = 2.0,
    ):
        _check("scale", scale, 1.0 if dynamic else 2.0**-126, _MOST)
        _check("every", every, 1, 2**62)
        _check("factor", factor, 1.0 + 2.0**-10, 2.0**20)
        self.dynamic, self.every, self.factor = bool(dynamic), int(every), float(factor)
        self.scale = Parameter(np.float32(scale), requires_grad=False)
        self.good_steps = Parameter(np.int64(0), requires_grad=False)

    def construct(self, loss: Any) -> Any:
        """The loss times the scale, at least in float32."""
        return ops.mul(in_dtype(loss, wide(loss.dtype)), self.scale)

    def unscaled(self, grads: Sequence[Tensor]) -> tuple[tuple[Tensor, ...], Tensor]:
        """The gradients of the loss itself, and whether all that is in them is finite."""
        smaller = ops.reciprocal(self.scale)
        found = tuple(self._times(g, smaller) for g in grads)
        return found, reduce(ops.logical_and, (ops.all(ops.isfinite(g)) for g in found))

    def _times(self, grad: Tensor, factor: Tensor) -> Tensor:
        dtype = wide(grad.dtype)
        return in_dtype(ops.mul(in_dtype(grad, dtype), in_dtype(factor, dtype)), grad.dtype)

    def update(self, finite: Tensor) -> None:
        """What a step, whose gradients were finite or not, does to a dynamic scale."""
        if not self.dynamic:
            return
        good = ops.add(self.good_steps, 1)
        grows = ops.greater_equal(good, self.every)
        more = ops.where(grows, ops.minimum(ops.mul(self.scale, self.factor), _MOST), self.scale)
        less = ops.maximum(ops.div(self.scale, self.factor), 1.0)
        none = ops.zeros_like(self.good_steps)
        count = ops.where(ops.logical_and(finite, ops.logical_not(grows)), good, none)
        scale = ops.where(finite, more, less)
        ops.assign(self.good_steps, count)
        ops.assign(self.scale, scale)

    def describe(self) -> str:
        """The constructor call, with the scale of now."""
        now = f"{float(self.scale):g}"
        rest = f", every={self.every}, factor={self.factor:g}" if self.dynamic else ""
        return f"LossScale({now}, dynamic={self.dynamic}{rest})"


def _check(name: str, value: object, low: float, high: float) -> None:
    """MinimlError unless the value is a number in the range, and an int where `low` is one."""
    kinds = (int,) if isinstance(low, int) else (int, float)
    if not isinstance(value, kinds) or not low <= value <= high:
        raise MinimlError(
            f"LossScale got {name}={value!r}; expected {kinds[-1].__name__} from {low:g} to "
            f"{high:g}"
        )
