"""debug_nans: every call is looked at, and the first one that makes a NaN or an infinity named."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from ..abstract import typed
from ..backends.device import Array
from ..errors import NonFiniteError
from ..graph.ir import Node
from ..location import Location
from ..ops.control import Cond, Fused, WhileLoop
from ..ops.scan import Scan
from ..primitive import Primitive
from ..scope import Block
from ..settings import Settings, context

OnHost = Callable[[Any], Array]
Members = Callable[[Node], Callable[..., Sequence[Any]]]


def debug_nans() -> Block[Settings]:
    """In the `with` block, of this thread or task, stop at the first call that makes a NaN, or that
    makes an infinity of finite inputs: NonFiniteError with the primitive, the ranges of its inputs,
    the path of the layer and the user's line, in the forward or the backward pass.

    Eager calls, compiled programs and training steps are looked at after each kernel, on the
    kernels that they run anyway. The members of a fused group run once more, one by one, so that it
    is one of them that is named; of a loop, the step is. What was given as NaN is reported by the
    call that passes it on; infinities that were given, as in a mask of -inf, are let through. When
    it raises, a step has changed no parameter. Programs are compiled anew on both sides of the
    block. `set_context(check_nan=True)` does the same for all that runs.

    >>> from miniml import ops
    >>> with debug_nans():
    ...     try:
    ...         ops.log(-1.0)
    ...     except FloatingPointError as error:
    ...         print(error)
    Log made NaN; its inputs were float32[] in [-1, -1]
    """
    return context(check_nan=True)


def check_finite(
    primitive: Primitive,
    inputs: Iterable[Any],
    outputs: Iterable[Any],
    on_host: OnHost,
    where: Callable[[], Location | None],
) -> None:
    """NonFiniteError, with the inputs' ranges, where an output holds a NaN, or, of finite inputs,
    an infinity. Branches and loops look at their own calls.

    on_host: gives the NumPy array of an input or output. where: the call, asked for in an error.
    """
    if isinstance(primitive, _LOOKED_INTO):
        return
    for array in map(on_host, outputs):
        if _is_finite(array):
            continue
        nan, given = bool(np.isnan(_wide(array)).any()), [*map(on_host, inputs)]
        if not nan and not (all(map(_is_finite, given)) and _finite_attributes(primitive)):
            continue
        passed = nan and any(np.isnan(_wide(x)).any() for x in given)
        what = "got NaN" if passed else "made NaN" if nan else "made an infinity"
        ranges = ", ".join(map(_range, given)) or "none"
        at = where()
        backward = f" in the backward of {at.forward}" if at is not None and at.forward else ""
        raise NonFiniteError(f"{primitive.name} {what}{backward}; its inputs were {ranges}")


_LOOKED_INTO = Cond, WhileLoop, Scan


def finding_nan(on_host: OnHost, members: Members) -> Callable[[Node, Any, Any], None]:
    """The check, of the inputs and outputs of a node.

    members: of a fused node, what runs its members one by one and looks at each.
    """

    def look(node: Node, inputs: Sequence[Any], outputs: Sequence[Any]) -> None:
        if isinstance(node.primitive, Fused):  # what its members make of -inf is no infinity made
            inputs = (*inputs, *members(node)(*inputs))
        check_finite(node.primitive, inputs, outputs, on_host, lambda: node.where)

    return look


def _is_finite(array: Array) -> bool:
    return array.dtype.kind not in "fV" or bool(np.isfinite(_wide(array)).all())


def _wide(array: Array) -> Array:
    """Numbers that NumPy can look at, of bfloat16 too."""
    return array.astype(np.float64) if array.dtype.kind == "V" else array


def _finite_attributes(primitive: Primitive) -> bool:
    attributes: Mapping[str, Any] = primitive.attributes
    return all(np.isfinite(v) for v in attributes.values() if isinstance(v, float))


def _range(array: Array) -> str:
    """The type and the range of an array, and how many of its numbers are not finite."""
    shown = typed(array)
    if not array.size:
        return f"{shown} empty"
    wide = array.astype(np.float64)
    finite, nan = wide[np.isfinite(wide)], int(np.isnan(wide).sum())
    counts = (nan, "NaN"), (wide.size - finite.size - nan, "infinite")
    others = " and ".join(f"{count} {what}" for count, what in counts if count)
    within = f"in [{finite.min():.4g}, {finite.max():.4g}]" if finite.size else "without a number"
    return f"{shown} {within}" + f" but for {others} of {wide.size}" * bool(others)
