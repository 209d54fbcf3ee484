"""Plain values as JSON and back: attributes, types, and the numbers of small arrays."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np

from ...abstract import Abstract
from ...archive import short
from ...dtype import ALL, DType, bool_, canonical, is_float
from ...errors import GraphError
from ..ir import Graph

INLINE = 16  # arrays of at most this many elements stand in the text
_TYPE = re.compile(r"(\w+)\[((?:\d{1,19}(?:, \d{1,19})*)?)\]")
_DTYPES = {d.name: d for d in ALL}
_ODD = {"nan": math.nan, "inf": math.inf, "-inf": -math.inf}
_AXES = 64  # of an array of NumPy
T = TypeVar("T")


def encode(value: Any, number: Callable[[Graph], int]) -> Any:
    """An attribute as JSON; `number` is that of a body. GraphError for what is no plain value."""
    if value is None or isinstance(value, (bool, int, str)):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else {"float": str(value)}
    if isinstance(value, bytes):
        return {"bytes": value.hex()}
    if isinstance(value, np.dtype):
        return {"dtype": canonical(value).name}
    if value is Ellipsis:
        return {"ellipsis": True}
    if isinstance(value, slice):
        parts = (value.start, value.stop, value.step)
        return {"slice": [encode(part, number) for part in parts]}
    if isinstance(value, tuple):
        return [encode(part, number) for part in value]
    if isinstance(value, Graph):
        return {"body": number(value)}
    raise GraphError(
        f"{short(repr(value))} of type {type(value).__name__} has no form in a file; an attribute "
        "there is a number, string, bytes, dtype, None, slice, Graph or a tuple of these"
    )


def decode(value: Any, bodies: Callable[[int], Graph]) -> Any:
    """The attribute that JSON stands for; GraphError where it stands for none."""
    if isinstance(value, list):
        return tuple([decode(part, bodies) for part in value])
    if not isinstance(value, dict):
        return value
    kind, given = next(iter(value.items())) if len(value) == 1 else ("", None)
    if kind == "float" and isinstance(given, str) and given in _ODD:
        return _ODD[given]
    if kind == "bytes" and isinstance(given, str) and re.fullmatch("(?:[0-9a-f]{2})*", given):
        return bytes.fromhex(given)
    if kind == "dtype" and isinstance(given, str) and given in _DTYPES:
        return _DTYPES[given]
    if kind == "ellipsis" and given is True:
        return Ellipsis
    if kind == "slice" and isinstance(given, list) and len(given) == 3:
        return slice(*decode(given, bodies))
    if kind == "body" and type(given) is int:
        return bodies(given)
    raise GraphError(f"{short(value)} stands for no value")


def type_of(text: Any) -> Abstract:
    """The type that is written as "float32[2, 3]"."""
    found = _TYPE.fullmatch(text) if isinstance(text, str) else None
    dtype = _DTYPES.get(found[1]) if found else None
    if found is None or dtype is None:
        raise GraphError(f"{short(repr(text))} is no type, such as 'float32[2, 3]'")
    shape = tuple(map(int, found[2].split(", "))) if found[2] else ()
    if len(shape) > _AXES or math.prod([max(n, 1) for n in shape]) * dtype.itemsize >= 2**63:
        raise GraphError(f"{short(text)} is more than an array can be")
    return Abstract(shape, dtype)


def numbers(array: np.ndarray[Any, Any]) -> list[Any] | None:
    """The elements of a small array as JSON; None if it is large, or they would not come back."""
    if array.size > INLINE:
        return None
    shown = array.reshape(-1).tolist()
    if is_float(array.dtype):
        digits = [float(str(element)) for element in array.reshape(-1)]
        shown = [v if math.isfinite(v) else str(v) for v in digits]
    back = array_of(shown, Abstract(array.shape, array.dtype))
    return shown if back.tobytes() == array.tobytes() else None


def array_of(shown: Any, abstract: Abstract) -> np.ndarray[Any, Any]:
    """The array whose elements these are; GraphError unless number and kind agree."""
    dtype = abstract.dtype
    if not isinstance(shown, list) or len(shown) != abstract.size or len(shown) > INLINE:
        raise GraphError(f"{short(shown)} are not the elements of {abstract}")
    try:
        with np.errstate(all="ignore"):
            elements = np.array([_element(v, dtype) for v in shown], dtype)
    except OverflowError:
        raise GraphError(f"{short(shown)} do not fit {dtype.name}") from None
    return elements.reshape(abstract.shape)


def _element(value: Any, dtype: DType) -> Any:
    if is_float(dtype):
        value = _ODD.get(value, value) if isinstance(value, str) else value
        fits = type(value) is float
    else:
        fits = type(value) is (bool if dtype == bool_ else int)
    if not fits:
        raise GraphError(f"{short(repr(value))} is no element of an array of {dtype.name}")
    return value


def part(row: Any, name: str, kind: type[T]) -> T:
    """An entry of a JSON object; GraphError if it is missing or of another kind."""
    if not isinstance(row, dict) or type(row.get(name)) is not kind:
        got = short(repr(row.get(name) if isinstance(row, dict) else row))
        raise GraphError(f"{name!r} is {got}, where {kind.__name__} is expected")
    found: T = row[name]
    return found


def only(row: dict[str, Any], *names: str) -> None:
    """GraphError for an object with other entries than these."""
    unknown = [name for name in row if name not in names]
    if unknown:
        raise GraphError(f"{short(repr(unknown[0]))} is unknown beside {', '.join(names)}")
