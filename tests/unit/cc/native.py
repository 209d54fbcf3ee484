"""Running kernels of provider "cc" by themselves: many of them compiled together."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from miniml import ArraySpec
from miniml.backends.cc import units
from miniml.backends.cc.convolution import BATCH_INNERMOST as BATCH_INNERMOST
from miniml.backends.cc.convolution import BLOCKS as BLOCKS
from miniml.backends.cpu.formats import convert
from miniml.backends.kernel import KernelNode
from miniml.core.abstract import padding, stored

UNWRITTEN = 77  # what memory holds that a kernel has yet to fill


class Call(NamedTuple):
    """A kernel class and what it is to compute; formats: of the inputs, then of the outputs."""

    body: type
    name: str
    arrays: tuple[np.ndarray[Any, Any], ...]
    outputs: tuple[ArraySpec, ...]
    attrs: dict[str, Any]
    formats: tuple[str | None, ...]


def spec(array: Any, order: str | None) -> ArraySpec:
    """How a kernel sees an array of this order."""
    return ArraySpec(array.shape, array.dtype, order)


def prepared(call: Call) -> Any:
    made = call.body()
    count = len(call.arrays)
    given = zip(call.arrays, call.formats[:count], strict=True)
    gives = zip(call.outputs, call.formats[count:], strict=True)
    made.prepare(
        KernelNode(
            call.name,
            tuple(spec(a, f) for a, f in given),
            tuple(spec(s, f) for s, f in gives),
            call.attrs,
        )
    )
    return made


def results(calls: Sequence[Call]) -> list[tuple[np.ndarray[Any, Any], ...]]:
    """The outputs of all calls, whose kernels are one unit."""
    kernels = [prepared(call) for call in calls]
    units.load([k.source for k in kernels])
    return [run(k, call) for k, call in zip(kernels, calls, strict=True)]


def run(
    made: Any, call: Call, placed: Callable[[Any], Any] = np.asarray
) -> tuple[np.ndarray[Any, Any], ...]:
    """Launch a prepared kernel on copies made by `placed`; its workspace is full of NaN."""
    count = len(call.arrays)
    given = tuple(
        placed(in_order(a, f)) for a, f in zip(call.arrays, call.formats[:count], strict=True)
    )
    outs = tuple(
        placed(in_order(np.full(s.shape, UNWRITTEN, s.dtype), f))
        for s, f in zip(call.outputs, call.formats[count:], strict=True)
    )
    scratch = tuple(placed(np.full(w.shape, np.nan, w.dtype)) for w in made.workspace())
    made.launch(given, scratch, outs, None)
    ends = zip(outs, call.outputs, call.formats[count:], strict=True)
    return tuple(row_major(o, s.shape, f) for o, s, f in ends)


def in_order(array: np.ndarray[Any, Any], order: str | None) -> np.ndarray[Any, Any]:
    """Images (N, C, H, W) as their format stores them; what fills a block is NaN."""
    if order is None:
        return np.ascontiguousarray(array)
    made = np.empty(stored(array.shape, order), array.dtype)
    convert(array, made, None, order, array.shape[1])
    beside = padding(order, array.shape[1])
    if beside is not None and array.dtype.kind == "f":
        beside(made)[...] = np.nan
    return made


def row_major(
    array: np.ndarray[Any, Any], shape: tuple[int, ...], order: str | None
) -> np.ndarray[Any, Any]:
    """The images that a format stores."""
    made = np.empty(shape, array.dtype)
    convert(array, made, order, None, *shape[1:2])
    return made
