"""Attributes as byte strings: numbers and texts packed, and unpacked within their bounds."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod
from typing import Any

import numpy as np

from ...dtype import canonical
from ...errors import AttributeRefusedError


def pack_attribute(value: Any, kind: Any) -> bytes:
    """The bytes of an attribute: of numbers in the dtype `kind`, or of a text if kind is str.

    Numbers may be a scalar or nested sequences, kept in row-major order and without their shape.
    Byte order is little-endian unless the dtype says '>'; text is UTF-8. AttributeRefusedError for
    numbers that the dtype cannot hold.

    >>> pack_attribute(3, "<i4"), pack_attribute((1, 2), "u1"), pack_attribute("sum", str)
    (b'\\x03\\x00\\x00\\x00', b'\\x01\\x02', b'sum')
    """
    if kind is str and isinstance(value, str):
        return value.encode()
    dtype = _fixed(kind)
    try:
        given = np.asarray(value)
        with np.errstate(over="ignore"):
            packed = given.astype(dtype)
        lost = given.dtype.kind not in "biuf" or (
            dtype.kind in "biu" and not np.array_equal(packed, given)
        )
    except (TypeError, ValueError, OverflowError):
        lost = True
    if lost:
        raise AttributeRefusedError(f"pack_attribute got {value!r:.200}; {kind} cannot hold it")
    return packed.tobytes()


def unpack_attribute(
    attributes: Mapping[str, bytes], name: str, kind: Any, shape: tuple[int, ...] = ()
) -> Any:
    """The attribute `name` as numbers of the dtype `kind`, or as text if kind is str.

    attributes: those of a primitive or a node. shape: of the numbers, given as nested tuples; one
    -1 in it stands for as many as there are; () is one number. AttributeRefusedError, with the
    attribute, the bytes it has and those expected, unless they agree exactly.

    >>> unpack_attribute({"pads": b"\\x01\\x02\\x03\\x04"}, "pads", "u1", (-1, 2))
    ((1, 2), (3, 4))
    """
    if name not in attributes:
        raise AttributeRefusedError(
            f"attribute {name!r} is missing; there are {', '.join(attributes) or 'none'}"
        )
    data = attributes[name]
    if kind is str:
        try:
            return data.decode()
        except UnicodeDecodeError as error:
            raise AttributeRefusedError(f"attribute {name!r} is no UTF-8 text: {error}") from None
    dtype = _fixed(kind)
    known = prod([n for n in shape if n >= 0]) * dtype.itemsize
    fits = len(data) % known == 0 if -1 in shape and known else len(data) == known
    if not fits or shape.count(-1) > 1 or min(shape, default=0) < -1:
        expected = f"a multiple of {known}" if -1 in shape else str(known)
        raise AttributeRefusedError(
            f"attribute {name!r} has {len(data)} bytes; expected {expected}, for {dtype.name} of "
            f"shape {shape}"
        )
    return _tuples(np.frombuffer(data, dtype).reshape(shape).tolist())


def _fixed(kind: Any) -> np.dtype[Any]:
    """The dtype, with a byte order that no machine changes."""
    try:
        dtype: np.dtype[Any] = np.dtype(kind)
        canonical(dtype)
    except (TypeError, ValueError):
        raise AttributeRefusedError(
            f"an attribute got the kind {kind!r:.200}; give a dtype, such as '<i4', or str"
        ) from None
    if dtype.byteorder != ">":
        dtype = dtype.newbyteorder("<")
    return dtype


def _tuples(value: Any) -> Any:
    return tuple(map(_tuples, value)) if isinstance(value, list) else value
