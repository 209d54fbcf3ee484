"""ONNX's random draws, from miniml's generator: their bits differ from those of other runtimes."""

from __future__ import annotations

from typing import Any

import numpy as np

from ... import ops
from ...core.abstract import as_dtype, bool_
from ...core.errors import OnnxError
from ..operators import Constant, Ints, register_operator, register_writer
from ..tensors import checked_shape, code_of, dtype_of, number


def _kind(dtype: int | None, x: Any) -> Any:
    return as_dtype(x.dtype) if dtype is None else dtype_of(dtype, "the output")


@register_operator("", "RandomNormal", (1, None))
def random_normal(
    *, shape: Ints, dtype: int = 1, mean: float = 0.0, scale: float = 1.0, seed: float | None = None
) -> Any:
    return ops.normal(checked_shape(shape, 8, "its output"), mean, scale, _kind(dtype, None))


@register_operator("", "RandomNormalLike", (1, None))
def random_normal_like(
    x: Any, *, dtype: int | None = None, mean: float = 0.0, scale: float = 1.0,
    seed: float | None = None,
) -> Any:  # fmt: skip
    return ops.normal(tuple(x.shape), mean, scale, _kind(dtype, x))


@register_operator("", "RandomUniform", (1, None))
def random_uniform(
    *, shape: Ints, dtype: int = 1, low: float = 0.0, high: float = 1.0, seed: float | None = None
) -> Any:
    return ops.uniform(checked_shape(shape, 8, "its output"), low, high, _kind(dtype, None))


@register_operator("", "RandomUniformLike", (1, None))
def random_uniform_like(
    x: Any, *, dtype: int | None = None, low: float = 0.0, high: float = 1.0,
    seed: float | None = None,
) -> Any:  # fmt: skip
    return ops.uniform(tuple(x.shape), low, high, _kind(dtype, x))


@register_operator("", "Bernoulli", (15, None))
def bernoulli(x: Any, *, dtype: int | None = None, seed: float | None = None) -> Any:
    return ops.cast(ops.less(ops.uniform(tuple(x.shape)), x), _kind(dtype, x))


@register_operator("", "Dropout", (6, 11))
def dropout_inference(x: Any, *, ratio: float = 0.5, is_test: int = 1) -> Any:
    return x, ops.full(tuple(x.shape), True, bool_)


@register_operator("", "Dropout", (12, None))
def dropout(
    x: Any, ratio: Constant | None = None, training_mode: Constant | None = None, *,
    seed: int | None = None,
) -> Any:  # fmt: skip
    p = 0.5 if ratio is None else float(number(ratio))
    if training_mode is None or not number(training_mode) or p == 0.0:
        return x, ops.full(tuple(x.shape), True, bool_)
    if not 0.0 <= p < 1.0:
        raise OnnxError(f"ratio {p} is not in [0, 1)")
    kept = ops.bernoulli(tuple(x.shape), 1.0 - p)
    return ops.mul(x, ops.mul(ops.cast(kept, x.dtype), 1.0 / (1.0 - p))), kept


# --- The way back ---------------------------------------------------------------------------------


def _draws(type: str, **of: str) -> Any:
    """A draw by the other runtime's generator. of: attributes, by those of the primitive."""

    def write(emit: Any, node: Any, state: Any) -> Any:
        p = node.primitive
        emit.draws = True
        named = {name: getattr(p, own) for name, own in of.items()}
        if p.dtype.itemsize > 2:
            return emit(type, shape=p.shape, dtype=code_of(p.dtype), **named)
        return emit("Cast", emit(type, shape=p.shape, **named), to=code_of(p.dtype))

    return write


register_writer(ops.Normal)(_draws("RandomNormal", mean="mean", scale="std"))
register_writer(ops.Uniform)(_draws("RandomUniform", low="low", high="high"))


@register_writer(ops.Bernoulli)
def write_bernoulli(emit: Any, node: Any, state: Any) -> Any:
    """A comparison of uniform draws with the probability."""
    p = node.primitive
    emit.draws = True
    drawn = emit("Less", emit("RandomUniform", shape=p.shape), np.float32(p.p))
    return emit("Cast", drawn, to=code_of(p.dtype))


@register_writer(ops.Gumbel)
def write_gumbel(emit: Any, node: Any, state: Any) -> Any:
    """loc - scale log(-log(u)) of uniform draws u above 0."""
    p = node.primitive
    emit.draws = True
    u = emit("RandomUniform", shape=p.shape, low=2.0**-25, high=1.0)
    twice = emit("Log", emit("Neg", emit("Log", u)))
    spread = emit("Sub", np.float32(p.loc), emit("Mul", twice, np.float32(p.scale)))
    return emit("Cast", spread, to=code_of(p.dtype))
