"""The `onnx` wheel, which parses protobuf: imported where it is first needed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ..errors import OnnxError

NEWEST = (
    28  # the newest opset of the default domain whose operators were read when this was written
)


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
    except OSError as error:
        raise OnnxError(f"{path} cannot be read: {error.strerror or error}") from None
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
