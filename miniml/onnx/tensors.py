"""ONNX tensors as arrays, protobuf files as messages, and numbers taken from constants.

Parts: TensorProto to array, where lengths are checked before memory is allocated, and files with
data must lie in the model's folder; the `onnx` wheel, which parses protobuf and is imported where
it is first needed; known values, the numbers in constant inputs and tables of bounded size.
"""

from __future__ import annotations

import os
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from ..core.abstract import (
    HALVES,
    DType,
    Shape,
    bfloat16,
    bool_,
    float16,
    float32,
    float64,
    int8,
    int16,
    int32,
    int64,
    uint8,
    uint16,
    uint32,
    uint64,
)
from ..core.errors import OnnxError

# --- TensorProto to array -------------------------------------------------------------------------


LARGEST = 2**31  # bytes of one tensor: a file of protobuf cannot be larger either

# ONNX's numbers of dtypes, and the field that holds such elements where there are no raw bytes.
_DTYPES: dict[int, tuple[DType, str]] = {
    1: (float32, "float_data"),
    2: (uint8, "int32_data"),
    3: (int8, "int32_data"),
    4: (uint16, "int32_data"),
    5: (int16, "int32_data"),
    6: (int32, "int32_data"),
    7: (int64, "int64_data"),
    9: (bool_, "int32_data"),
    10: (float16, "int32_data"),
    11: (float64, "double_data"),
    12: (uint32, "uint64_data"),
    13: (uint64, "uint64_data"),
    16: (bfloat16, "int32_data"),
}
_CODES = {dtype: code for code, (dtype, _) in _DTYPES.items()}


def array_of(proto: Any, folder: Path | None = None) -> np.ndarray[Any, Any]:
    """The array in a TensorProto. folder: of the model, in which its data may be.

    OnnxError for unknown dtypes, negative extents, a number of elements or bytes that is not the
    shape's, and data outside of the folder.
    """
    what = f"tensor {proto.name!r}"
    dtype = dtype_of(proto.data_type, what)
    shape = checked_shape(tuple(proto.dims), dtype.itemsize, what)
    if proto.HasField("segment"):
        raise OnnxError(f"{what} is one segment of a tensor, which no version of ONNX uses")
    if proto.data_location == wheel().TensorProto.EXTERNAL:
        return (
            _outside(proto, folder, prod(shape) * dtype.itemsize, what).view(dtype).reshape(shape)
        )
    field = _DTYPES[proto.data_type][1]
    if proto.HasField("raw_data"):
        _expect(what, "bytes", len(proto.raw_data), prod(shape) * dtype.itemsize)
        return np.frombuffer(proto.raw_data, dtype).reshape(shape)
    values = getattr(proto, field)
    _expect(what, "elements", len(values), prod(shape))
    if dtype in HALVES:
        return np.array(values, np.int32).astype(np.uint16).view(dtype).reshape(shape)
    return np.array(values).astype(dtype).reshape(shape)


def dtype_of(code: int, what: str) -> DType:
    """The dtype with ONNX's number `code`; OnnxError for one that miniml lacks."""
    if code not in _DTYPES:
        known = wheel().TensorProto.DataType
        name = known.Name(code) if code in known.values() else str(code)
        raise OnnxError(
            f"{what} has dtype {name}, which miniml lacks; it has "
            f"{', '.join(d.name for d in _CODES)}"
        )
    return _DTYPES[code][0]


def code_of(dtype: DType) -> int:
    """ONNX's number of a dtype."""
    return _CODES[dtype]


def checked_shape(shape: tuple[int, ...], itemsize: int, what: str) -> Shape:
    """The shape; OnnxError for extents below 0, or more than LARGEST bytes."""
    if any(n < 0 for n in shape):
        raise OnnxError(f"{what} has shape {shape}; an extent is 0 or more")
    if prod(shape) * itemsize > LARGEST:
        raise OnnxError(
            f"{what} has shape {shape}, which takes {prod(shape) * itemsize:,} bytes; "
            f"a tensor of a model has at most {LARGEST:,}"
        )
    return shape


def _expect(what: str, unit: str, got: int, expected: int) -> None:
    if got != expected:
        raise OnnxError(f"{what} holds {got} {unit}; its shape and dtype make {expected}")


def _outside(proto: Any, folder: Path | None, size: int, what: str) -> np.ndarray[Any, Any]:
    """The bytes of a tensor that are in a file beside the model."""
    entries = {e.key: e.value for e in proto.external_data}
    offset, length = (_whole(what, key, entries.get(key, default)) for key, default in
                      (("offset", "0"), ("length", str(size))))  # fmt: skip
    _expect(what, "bytes", length, size)
    location = entries.get("location", "")
    try:
        path = _inside(folder, location, what)
        if offset + size > path.stat().st_size:
            raise OnnxError(
                f"{what} lies at {offset} to {offset + size} of {path.name}, which has "
                f"{path.stat().st_size} bytes"
            )
        return np.fromfile(path, np.uint8, size, offset=offset)
    except OSError as error:  # a name that is too long, a file that may not be read
        reason = error.strerror or error
        raise OnnxError(f"{what} lies in {location!r}, which cannot be read: {reason}") from None


def _whole(what: str, key: str, text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) < 20):
        raise OnnxError(f"{what} has external data with {key} {text!r}; expected a whole number")
    return int(text)


def _inside(folder: Path | None, location: str, what: str) -> Path:
    """The plain file `location` in the folder; OnnxError for one that is elsewhere."""
    if folder is None:
        raise OnnxError(f"{what} lies in a file, {location!r}; load the model from its own file")
    root = folder.resolve()
    path = root / location
    real = Path(os.path.realpath(path)) if "\0" not in location else root
    if not location or real != Path(os.path.normpath(path)) or not real.is_relative_to(root):
        raise OnnxError(
            f"{what} lies in {location!r}, which leaves the model's folder; the data of a model "
            "are plain files beside it, without links"
        )
    if not real.is_file():
        raise OnnxError(f"{what} lies in {location!r}, which is not a file in the model's folder")
    return real


# --- Protobuf -------------------------------------------------------------------------------------


NEWEST = 28  # the newest opset of the default domain whose operators are read


def wheel() -> Any:
    """The module `onnx`; OnnxError where it is not installed."""
    try:
        import onnx
    except ImportError:
        raise OnnxError(
            "reading ONNX needs the package onnx, which is not installed; "
            "pip install 'miniml[onnx]', or pip install onnx"
        ) from None
    return onnx


def parsed(path: Path) -> Any:
    """The ModelProto in a file; OnnxError unless it is one."""
    try:
        data = path.read_bytes()
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise OnnxError(f"{path} cannot be read: {reason}") from None
    model = wheel().ModelProto()
    try:
        model.ParseFromString(data)
    except Exception as error:  # protobuf's classes of errors differ between its versions
        raise OnnxError(f"{path} is not an ONNX model, or it is damaged: {error}") from None
    if not is_text(model):
        raise OnnxError(f"{path} holds a name that is not UTF-8; the file is damaged")
    return model


def is_text(message: Any) -> bool:
    """False where a text somewhere in a message is not UTF-8: protobuf gives its bytes."""
    for field, value in message.ListFields():
        many = value if hasattr(value, "extend") else (value,)
        if field.type == field.TYPE_STRING and any(isinstance(v, bytes) for v in many):
            return False
        if field.type == field.TYPE_MESSAGE and not all(map(is_text, many)):
            return False
    return True


# --- Known values ---------------------------------------------------------------------------------


Array = np.ndarray[Any, Any]


def ints(value: Any) -> tuple[int, ...]:
    """The whole numbers in a constant, one for a single number."""
    return tuple(int(n) for n in np.asarray(value).ravel())


def number(value: Any) -> Any:
    """The one number in a constant, as Python's; OnnxError where there are more."""
    array = np.asarray(value)
    if array.size != 1:
        raise OnnxError(f"got a constant of shape {array.shape}; expected one number")
    return array.item()


_TABLE = 2**26  # most bytes of a table that is made from numbers in a model while it is read


def table(*shape: int) -> tuple[int, ...]:
    """The shape of a table of int64; OnnxError for one that is too large to be made from numbers in
    a file."""
    if prod(checked_shape(shape, 8, "a table of indices")) * 8 > _TABLE:
        raise OnnxError(f"needs a table of indices of shape {shape}, more than {_TABLE:,} bytes")
    return shape


def counted(n: int) -> Array:
    """0 to n - 1; OnnxError for too many."""
    return np.arange(*table(n))


def extent(x: Any, axis: int) -> int:
    """The extent of an axis, which may count from the end; OnnxError where there is none."""
    if not -len(x.shape) <= axis < len(x.shape):
        raise OnnxError(f"axis {axis} is not one of a tensor of shape {tuple(x.shape)}")
    return int(x.shape[axis])
