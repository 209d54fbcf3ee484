"""Arrays by name in a safetensors file, and what a path must be to be written or read."""

from __future__ import annotations

import hashlib
import json
import os
import stat
import struct
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from .errors import CheckpointError
from .files import write_file

PathLike = str | os.PathLike[str]
Array = np.ndarray[Any, Any]
Spec = tuple[tuple[int, ...], str]  # shape, name of the dtype

_HASH = "miniml.blake2b"  # in the metadata: of the data of all entries, in the order of their names
_WIDTH = 100  # characters
_CODES = {
    "bool": "BOOL", "int8": "I8", "int16": "I16", "int32": "I32", "int64": "I64", "uint8": "U8",
    "uint16": "U16", "uint32": "U32", "uint64": "U64", "bfloat16": "BF16", "float16": "F16",
    "float32": "F32", "float64": "F64",
}  # fmt: skip
_NAMES = {code: name for name, code in _CODES.items()}


class Archive:
    """An open file: the specs of all its arrays, whose data are read when asked for, and the hash
    of these, if it has one."""

    def __init__(self, path: PathLike, file: Any):
        self._path, self._file, names = path, file, file.keys()
        self.specs: dict[str, Spec] = {name: _stored(file.get_slice(name)) for name in names}
        self.hash: str | None = (file.metadata() or {}).get(_HASH)

    def read(self) -> dict[str, Array]:
        """All arrays; CheckpointError if they are not those that were written."""
        arrays: dict[str, Array] = {name: self._file.get_tensor(name) for name in self.specs}
        if self.hash is not None and self.hash != digest(arrays):
            raise CheckpointError(
                f"{short(self._path)} is damaged: its data are not those that were saved, as their "
                "hash shows; nothing was loaded"
            )
        return arrays


@contextmanager
def opened(path: PathLike) -> Iterator[Archive]:
    """The archive in a file; CheckpointError for one that is damaged, or none."""
    from safetensors import SafetensorError, safe_open

    try:
        entered = safe_open(path, framework="np")
    except OSError as error:
        raise refused(path, "loaded", error) from None
    except (SafetensorError, ValueError, KeyError) as error:
        raise CheckpointError(
            f"{short(path)} is damaged or truncated, or no safetensors file "
            f"({short(error)}); nothing was loaded"
        ) from None
    with entered as file:
        yield Archive(path, file)


def _stored(entry: Any) -> Spec:
    code = entry.get_dtype()
    return tuple(entry.get_shape()), _NAMES.get(code, code)


def write(target: Path, parts: Iterator[bytes | memoryview], path: PathLike) -> None:
    """Write a file wholly or not at all; CheckpointError where the system refuses."""
    try:
        write_file(target, parts)
    except OSError as error:
        raise refused(path, "saved", error) from None


def encoded(arrays: Mapping[str, Array]) -> Iterator[bytes | memoryview]:
    """A safetensors file piece by piece; equal arrays give equal files, byte by byte."""
    # Wide numbers first, so that each stands at a multiple of its size.
    ordered = sorted(arrays.items(), key=lambda item: (-item[1].itemsize, item[0]))
    header: dict[str, Any] = {"__metadata__": {"format": "np", _HASH: digest(arrays)}}
    end = 0
    for name, array in ordered:
        start, end = end, end + array.nbytes
        code = _CODES[array.dtype.name]
        header[name] = {"dtype": code, "shape": array.shape, "data_offsets": (start, end)}
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    yield struct.pack("<Q", len(text)) + text
    yield from (_bytes(array) for _, array in ordered)


def _bytes(array: Array) -> memoryview:
    return array.reshape(-1).view(np.uint8).data


def digest(arrays: Mapping[str, Array]) -> str:
    """A hash of the data: 0.1 s for 100 MB, with or without a processor's help."""
    hashed = hashlib.blake2b(digest_size=16)
    for name in sorted(arrays):
        hashed.update(_bytes(arrays[name]))
    return hashed.hexdigest()


def writable(path: PathLike, calls: str) -> Path:
    """The path, if a file can stand there; that it can be written is seen when it is. calls: how
    saving and loading are called, for the error of what is no path."""
    target = _path(path, calls)
    kind = _kind(path, target, "saved")
    if kind not in ("", "file"):
        raise CheckpointError(f"{short(path)!r} cannot be saved: it is {kind}; name a file")
    folder = Path(os.path.realpath(target)).parent
    if not kind and not folder.is_dir():
        raise CheckpointError(
            f"{short(path)} cannot be saved: there is no folder {short(folder)}; make it first"
        )
    return target


def readable(path: PathLike, calls: str, writes: str) -> Path:
    """The path, if a file stands there. writes: the call that makes one."""
    source = _path(path, calls)
    kind = _kind(path, source, "loaded")
    if not kind:
        raise CheckpointError(f"{short(path)} does not exist; {writes} writes one")
    if kind != "file":
        raise CheckpointError(f"{short(path)!r} cannot be loaded: it is {kind}; name a file")
    return source


def _path(path: object, calls: str) -> Path:
    plain = os.fspath(path) if isinstance(path, (str, os.PathLike)) else path
    if not isinstance(plain, str):
        raise CheckpointError(f"the path of a file is a str; got {type(path).__name__}; {calls}")
    return Path(plain)


def _kind(path: PathLike, target: Path, what: str) -> str:
    """What stands there: "file", "" for nothing, else in words."""
    try:
        mode = target.stat().st_mode
    except FileNotFoundError:
        return ""
    except (OSError, ValueError) as error:  # ValueError: a null character
        raise refused(path, what, error) from None
    if stat.S_ISDIR(mode):
        return "a folder"
    return "file" if stat.S_ISREG(mode) else "a pipe, socket or device"


def refused(path: PathLike, what: str, error: OSError | ValueError) -> CheckpointError:
    """The error of a file that the system refuses."""
    reason = getattr(error, "strerror", None) or error
    return CheckpointError(f"{short(path)} cannot be {what}: {reason}; nothing has changed")


def short(text: object) -> str:
    """Text that may be long, cut to what a message can show."""
    plain = str(text)
    return plain if len(plain) <= _WIDTH else f"{plain[: _WIDTH - 3]}... ({len(plain)} characters)"
