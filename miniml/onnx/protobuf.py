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
    return model
