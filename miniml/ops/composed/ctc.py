"""Connectionist temporal classification: the loss of labels at unknown places in a sequence."""

from __future__ import annotations

import builtins
from typing import TYPE_CHECKING, Any

import numpy as np

from ...dtype import float32, float64, int64
from ...errors import AttributeRefusedError, ShapeError
from ..arithmetic import add, cast, clip, div, maximum, neg
from ..compare import equal, less, logical_or, select
from ..create import zeros_like
from ..exponential import logaddexp
from ..index import take_along_axis
from ..inference.devices import on_one_device
from ..inference.numbers import integer
from ..inference.shapes import dtype_of, needs_float, shape_of
from ..join import concat
from ..norm import check_reduction
from ..reduce import any
from ..scan import scan
from ..shape import broadcast_to, expand_dims, reshape, squeeze
from .label_losses import checked, outside
from .loss import reduced

if TYPE_CHECKING:
    from ...tensor import Tensor

__all__ = ["ctc_loss"]

# The logarithm of what cannot be: finite, so that differences of two are no NaN, and beyond
# all sums of logarithms of probabilities.
_NEVER = -1e30


@on_one_device
def ctc_loss(
    log_probs: Any,
    targets: Any,
    input_lengths: Any,
    target_lengths: Any,
    blank: int = 0,
    reduction: str = "mean",
    zero_infinity: bool = False,
) -> Tensor:
    """-log sum_pi prod_t p_t(pi_t), over all paths pi that spell the target: CTC's loss.

    A path names a class for each step; it spells what is left when runs of one class become one
    of it, and blanks are dropped. log_probs: (T, N, C) logarithms of probabilities, as of
    log_softmax, floats. targets: (N, S) integer classes, none of them blank; what follows a
    target's length may be anything. input_lengths, target_lengths: (N,) integers, at most T and S.
    The sums are taken in the logarithms, in a scan over T; in float32 for floats of 16 bits.

    reduction: "none" gives (N,), "sum" their sum, and "mean", as in PyTorch, the mean of each loss
    divided by its target's length, at least 1. A target that no path of its length spells has the
    loss inf, or 0 with zero_infinity; its gradient is 0 in both cases. OutOfRangeError for a label
    or length outside of its range. Source: Graves et al. 2006, "Connectionist temporal
    classification".

    >>> probs = np.full((3, 1, 2), 0.5, np.float32)  # 6 of 8 paths spell one 1: all but 000, 101
    >>> round(ctc_loss(np.log(probs), [[1]], [3], [1]).item(), 6), round(float(-np.log(6 / 8)), 6)
    (0.287682, 0.287682)
    """
    check_reduction("ctc_loss", reduction)
    steps, most, classes = _sizes(log_probs, targets, input_lengths, target_lengths, blank)
    dtype = needs_float("ctc_loss", dtype_of(log_probs))
    computed = float64 if dtype == float64 else float32
    lengths = cast(checked("ctc_loss", "input_length", input_lengths, steps + 1), int64)
    count = checked("ctc_loss", "target_length", target_lengths, most + 1)
    count = expand_dims(cast(count, int64), 1)
    targets = select(less(np.arange(most), count), targets, blank)
    labels = checked("ctc_loss", "target", targets, classes)
    blanks, ends = _paths(cast(log_probs, computed), labels, lengths, blank)
    likely = squeeze(logaddexp(*(take_along_axis(v, count, 1) for v in (blanks, ends))), 1)
    losses = select(less(likely, _NEVER / 2), 0.0 if zero_infinity else float("inf"), neg(likely))
    unseen = logical_or(outside(lengths, steps + 1), outside(squeeze(count, 1), most + 1))
    unseen = logical_or(unseen, any(outside(labels, classes), 1))  # on a GPU
    losses = select(unseen, float("nan"), losses)
    if reduction == "mean":
        losses = div(losses, cast(maximum(squeeze(count, 1), 1), computed))
    return cast(reduced("ctc_loss", losses, reduction), dtype)


def _paths(log_probs: Any, labels: Any, lengths: Any, blank: int) -> tuple[Any, Any]:
    """The logarithms of what all paths have together that spell the first s labels, for s from 0 to
    S: those that end in the blank after them, and those that end in the last of them; (N, S + 1).

    Before step 0 there is the empty path, at the blank before all labels.
    """
    steps, rows, _ = log_probs.shape
    most, dtype = labels.shape[1], log_probs.dtype
    never = np.full((rows, 1), _NEVER, dtype)
    none = zeros_like(reshape(lengths, (rows, 1)), dtype)  # on the device of what is given
    ends = add(none, np.repeat(never, most + 1, 1))
    blanks = add(none, np.array([0.0] + [_NEVER] * most, dtype))
    again = equal(labels, concat([np.full((rows, 1), -1), cast(labels, int64)], 1)[:, :most])
    at = broadcast_to(expand_dims(labels, 0), (steps, rows, most))
    emitted = clip(take_along_axis(log_probs, at, 2), _NEVER)
    emitted = select(equal(labels, blank), _NEVER, emitted)
    silent = clip(log_probs[:, :, blank : blank + 1], _NEVER)
    going = less(np.arange(steps).reshape(-1, 1, 1), reshape(lengths, (rows, 1)))

    def step(before: Any, row: Any) -> Any:
        (blanks, ends), (silence, label, on) = before, row
        entered = logaddexp(blanks[:, :most], select(again, _NEVER, ends[:, :most]))
        stayed = logaddexp(ends[:, 1:], entered)
        after = logaddexp(blanks, ends) + silence, concat([never, stayed + label], 1)
        return tuple(select(on, a, b) for a, b in zip(after, before, strict=True)), None

    blanks, ends = scan(step, (blanks, ends), (silent, emitted, going))[1]
    return blanks, ends


def _sizes(
    log_probs: Any, targets: Any, input_lengths: Any, target_lengths: Any, blank: int
) -> tuple[int, int, int]:
    """(T, S, C); ShapeError where the shapes do not belong together."""
    shapes = [shape_of(v) for v in (log_probs, targets, input_lengths, target_lengths)]
    rows = shapes[0][1:2]
    if [len(s) for s in shapes] != [3, 2, 1, 1] or builtins.any(s[:1] != rows for s in shapes[1:]):
        raise ShapeError(
            "ctc_loss got log_probs, targets, input_lengths and target_lengths of shapes "
            f"{', '.join(map(str, shapes))}; expected (T, N, C), (N, S), (N,) and (N,): targets "
            "of several lengths are padded, not joined"
        )
    classes = shapes[0][2]
    if not 0 <= integer("ctc_loss", "blank", blank) < classes:
        raise AttributeRefusedError(
            f"ctc_loss got blank={blank} for {classes} classes; give one from 0 to {classes - 1}"
        )
    return shapes[0][0], shapes[1][1], classes
