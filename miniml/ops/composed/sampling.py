"""Random draws made of others: whole numbers, orders, categories; and dropout."""

from __future__ import annotations

from operator import index
from typing import TYPE_CHECKING, Any

import numpy as np

from ...abstract import Shape
from ...dtype import INTEGERS, as_dtype, float32, float64, int64, is_float
from ...errors import AttributeRefusedError, DTypeError, OutOfRangeError, ShapeError
from ...trace import Stream
from .. import reduce
from ..arithmetic import add, as_float, cast, floor, mul
from ..compare import isfinite, select
from ..create import arange
from ..index import gather
from ..inference.bodies import known_truth
from ..inference.devices import on_one_device
from ..inference.shapes import dtype_of, normal_axis, shape_of
from ..random import Gumbel, Uniform, as_shape, bernoulli, drawn
from ..sort import argsort

if TYPE_CHECKING:
    from ...tensor import Tensor

__all__ = ["categorical", "dropout", "permutation", "randint"]
_EXACT = 1 << 53  # the numbers that a uniform draw of float64 may be, all equally likely


@on_one_device
def randint(
    shape: int | Shape,
    low: int,
    high: int,
    dtype: object = int64,
    generator: Stream | None = None,
) -> Tensor:
    """Independent draws low + floor((high - low) * u), u uniform in [0, 1): integers below high.

    low, high: ints that an integer `dtype` holds (high less 1), low < high, at most 2^53 apart.
    Each is drawn with a probability that differs from 1 / (high - low) by less than 2^-53.

    >>> draws = randint((100,), -3, 4)
    >>> -3 <= draws.min().item() <= draws.max().item() < 4
    True
    """
    kind = as_dtype(dtype)
    if kind not in INTEGERS:
        raise DTypeError(f"randint draws integers; got dtype {kind.name}; cast the draw")
    whole = all(hasattr(end, "__index__") for end in (low, high))
    if not (whole and 0 < high - low <= _EXACT):
        raise AttributeRefusedError(
            f"randint got low={low} and high={high}; they are ints, low below high by at most 2**53"
        )
    first, end = index(low), index(high)
    info = np.iinfo(kind)
    if first < info.min or end - 1 > info.max:
        raise DTypeError(f"randint got low={low} and high={high}, which {kind.name} cannot hold")
    unit = drawn(Uniform, shape, float64, generator)
    steps = cast(floor(mul(unit, float(end - first))), int64)
    start = np.array(first % 2**64, np.uint64).astype(np.int64)  # wraps, as the cast does
    return cast(add(steps, start), kind)


@on_one_device
def permutation(x: Any, axis: int = 0, generator: Stream | None = None) -> Tensor:
    """x with its slices along `axis` in random order; for an int n, 0 to n - 1 in random order.

    All orders are equally likely, up to n^2 / 2^54: the order is that of random numbers of 53
    bits, of which equal ones stay as they are. ShapeError for an n below 0, and where there is no
    such axis.
    """
    whole = isinstance(x, (int, np.integer)) and not isinstance(x, bool)
    count = index(x) if whole else shape_of(x)[normal_axis("permutation", axis, len(shape_of(x)))]
    order = argsort(drawn(Uniform, count, float64, generator))
    return order if whole else gather(x, order, axis)


@on_one_device
def categorical(logits: Any, shape: int | Shape = (), generator: Stream | None = None) -> Tensor:
    """Independent draws of i with probability softmax(logits)[i] along the last axis: int64.

    logits: floats of shape (..., n), log-probabilities up to a constant; -inf is never drawn. The
    output has `shape`, then that of logits without n. It is argmax(logits + gumbel noise).
    OutOfRangeError when a row has a NaN, inf or nothing but -inf; in a compiled
    function the message is that of gather, with the index n; on a GPU the draw is 0 instead.
    Source: Gumbel (1954); Maddison, Tarlow, Minka, "A* sampling" (2014).

    >>> categorical([0.0, -float("inf")], (3,)).tolist()
    [0, 0, 0]
    """
    logits = as_float(logits)
    rows, kind = shape_of(logits), dtype_of(logits)
    if not rows or not rows[-1]:
        raise ShapeError(
            f"categorical got logits of shape {rows}; the last axis has one logit or more for each "
            "draw"
        )
    kind = kind if kind == float64 else float32
    noise = drawn(Gumbel, (*as_shape(shape), *rows), kind, generator)
    winner = reduce.argmax(add(cast(logits, kind), noise), -1)
    sound = isfinite(reduce.max(logits, -1))
    if known_truth("categorical", reduce.all(sound)) is False:
        raise OutOfRangeError(
            "categorical got a row of logits with a NaN, with inf, or of nothing but -inf; they "
            "are log-probabilities up to a constant, one of them finite"
        )
    return gather(arange(rows[-1]), select(sound, winner, rows[-1]))


@on_one_device
def dropout(x: Any, p: float = 0.5, generator: Stream | None = None) -> Tensor:
    """x with each element set to 0 with probability p, the others divided by 1 - p.

    The expectation is x. p: a Python number in [0, 1]; the draws are made on x's device.
    Source: Srivastava et al., "Dropout" (2014).
    """
    if not 0.0 <= p <= 1.0:
        raise AttributeRefusedError(f"dropout got p={p}; a probability is in [0, 1]")
    if p == 0.0:
        return x  # type: ignore[no-any-return]
    given = getattr(x, "dtype", None)
    kind = float32 if given is None or not is_float(as_dtype(given)) else as_dtype(given)
    kept = bernoulli(np.shape(x), 1.0 - p, kind, generator)
    return mul(x, mul(kept, 1.0 / (1.0 - p)) if p < 1.0 else kept)
