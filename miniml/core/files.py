"""Files that appear wholly or not at all: written as a draft, synced, moved into place.

Then archives: arrays by name in a safetensors file, and what a path must be to be written or read.
"""

from __future__ import annotations

import hashlib
import json
import os
import stat
import struct
import zipfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from .errors import CheckpointError

Buffer = bytes | memoryview
# What Windows lacks: locks, without which drafts of killed processes stay, and flags of `open`; it
# has one that leaves line ends alone.
_LOCKS: Any = import_module("fcntl") if find_spec("fcntl") else None
_PLAIN = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_BINARY", 0)
_NO_WAIT = getattr(os, "O_NONBLOCK", 0)
_CREATE = os.O_RDWR | os.O_CREAT | os.O_EXCL | _PLAIN
DRAFT = ".tmp"  # the suffix of draft names
_RANDOM = 4  # bytes of a draft's name, twice as many characters


def write_file(target: Path, parts: Iterable[Buffer], mode: int | None = None) -> None:
    """Write `parts` to a draft beside `target`, sync it and put it in target's place.

    A link is followed. mode: of the file; None keeps the mode of an existing file, and gives a new
    one what the umask allows. Drafts of the same target left by killed processes are removed. If
    anything is raised, target is as it was and the draft is gone; an OSError means that the system
    refuses.
    """
    target = Path(os.path.realpath(target))
    remove_drafts(target)
    with _draft(target, mode) as (draft, file):
        file.writelines(parts)
        file.flush()
        os.fsync(file.fileno())
        if _LOCKS is None:  # Windows moves no file that is open
            file.close()
        draft.replace(target)
    _sync_folder(target.parent)


def remove_drafts(target: Path) -> None:
    """Remove the drafts of `target` whose writers are dead: a living writer holds a lock."""
    start = _prefix(target)
    with suppress(OSError):
        for entry in os.scandir(target.parent):
            if entry.name.startswith(start) and entry.name.endswith(DRAFT):
                if len(entry.name) == len(start) + 2 * _RANDOM + len(DRAFT):
                    _remove_unless_locked(entry.path)


@contextmanager
def _draft(target: Path, mode: int | None) -> Iterator[tuple[Path, BinaryIO]]:
    """A new file beside target, locked while it is written; removed when anything is raised."""
    draft = target.with_name(f"{_prefix(target)}{os.urandom(_RANDOM).hex()}{DRAFT}")
    try:
        with open(draft, "wb", opener=lambda path, _: _create_locked(path)) as file:
            with suppress(FileNotFoundError, AttributeError):  # Windows has none before Python 3.13
                kept = stat.S_IMODE(target.stat().st_mode) if mode is None else mode
                os.fchmod(file.fileno(), kept)
            yield draft, file
    except BaseException:
        draft.unlink(missing_ok=True)
        raise


def _create_locked(draft: str) -> int:
    while True:
        descriptor = os.open(draft, _CREATE, 0o666)
        _lock(descriptor, "LOCK_EX")
        if os.fstat(descriptor).st_nlink:
            return descriptor
        os.close(descriptor)  # another process removed it as abandoned before it was locked


def _remove_unless_locked(path: str) -> None:
    with suppress(OSError):  # gone meanwhile, or another user's
        descriptor = os.open(path, os.O_RDWR | _PLAIN | _NO_WAIT)
        try:
            # Removed by another meanwhile, its writer may have made one of the same name.
            if _lock(descriptor, "LOCK_EX", "LOCK_NB") and os.fstat(descriptor).st_nlink:
                os.unlink(path)
        finally:
            os.close(descriptor)


def _lock(descriptor: int, *how: str) -> bool:
    """False where another process holds the lock, or the file system or the platform has none."""
    try:
        _LOCKS.flock(descriptor, sum(getattr(_LOCKS, flag) for flag in how))
    except (OSError, AttributeError):
        return False
    return True


def _prefix(target: Path) -> str:
    """The prefix of the names of target's drafts: cut, since a name may have at most 255 bytes."""
    return f".{os.fsdecode(os.fsencode(target.name)[:100])}."


def _sync_folder(folder: Path) -> None:
    """Make a rename survive a power cut, where folders can be synced."""
    with suppress(OSError, AttributeError):
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


# --- Archives of arrays ---------------------------------------------------------------------------


PathLike = str | os.PathLike[str]
Array = np.ndarray[Any, Any]
Spec = tuple[tuple[int, ...], str]  # shape, name of the dtype

_HASH = "miniml.digest"  # in the metadata: of the names, types and data of all entries
_OLD_HASH = "miniml.blake2b"  # of files of before: of the data alone, in the order of the names
_WIDTH = 100  # characters
_CODES = {
    "bool": "BOOL", "int8": "I8", "int16": "I16", "int32": "I32", "int64": "I64", "uint8": "U8",
    "uint16": "U16", "uint32": "U32", "uint64": "U64", "bfloat16": "BF16", "float16": "F16",
    "float32": "F32", "float64": "F64", "complex64": "C64",
}  # fmt: skip
_NAMES = {code: name for name, code in _CODES.items()}


class Archive:
    """An open file: the specs of all its arrays, whose data are read when asked for, and the hash
    of these, if it has one."""

    def __init__(self, path: PathLike, file: Any):
        self._path, self._file, names = path, file, file.keys()
        self.specs: dict[str, Spec] = {name: _stored(file.get_slice(name)) for name in names}
        metadata = file.metadata() or {}
        self._digest = digest if _HASH in metadata else _digest_of_data
        self.hash: str | None = metadata.get(_HASH, metadata.get(_OLD_HASH))

    def read(self) -> dict[str, Array]:
        """All arrays; CheckpointError if they are not those that were written."""
        arrays: dict[str, Array] = {name: self._file.get_tensor(name) for name in self.specs}
        if self.hash is not None and self.hash != self._digest(arrays):
            raise CheckpointError(
                f"{short(self._path)} is damaged: its entries are not those that were saved, as "
                "their hash shows; nothing was loaded"
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
        what = _other_format(path) or (
            f"is damaged or truncated, or no safetensors file ({short(error)})"
        )
        raise CheckpointError(f"{short(path)} {what}; nothing was loaded") from None
    with entered as file:
        yield Archive(path, file)


def _other_format(path: PathLike) -> str:
    """The kind of a file by its first bytes, and what reads it; "" if that is unknown."""
    with open(path, "rb") as file:
        start = file.read(8)
    if start.startswith(b"PK"):
        names = zipfile.ZipFile(path).namelist() if zipfile.is_zipfile(path) else []
        if any(name.endswith(".npy") for name in names):
            return "is a file of numpy.savez; net.load_state_dict(dict(numpy.load(path))) takes it"
        if not any(name.endswith(".pkl") for name in names):
            return ""
    if start.startswith((b"PK", b"\x80\x02")):
        return (
            "is a pickle, as torch.save writes, which may run code; let PyTorch read it: "
            "nn.load_torch_state(net, torch.load(path, weights_only=True))"
        )
    if start == b"\x89HDF\r\n\x1a\n":
        return "is an HDF5 file, as Keras writes; h5py reads it"
    return ""


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
        code = _CODES.get(array.dtype.name)
        if code is None:
            raise CheckpointError(
                f"{name} is {array.dtype.name}, which safetensors files do not hold; save it as "
                "complex64, or its real and imaginary parts; nothing was saved"
            )
        header[name] = {"dtype": code, "shape": array.shape, "data_offsets": (start, end)}
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    yield struct.pack("<Q", len(text)) + text
    yield from (_bytes(array) for _, array in ordered)


def _bytes(array: Array) -> memoryview:
    return array.reshape(-1).view(np.uint8).data


def digest(arrays: Mapping[str, Array]) -> str:
    """A hash of names, types and data: 0.1 s for 100 MB, with or without a processor's help."""
    types = [[n, a.dtype.name, a.shape] for n, a in sorted(arrays.items())]
    return _digest_of_data(arrays, json.dumps(types, separators=(",", ":")).encode())


def _digest_of_data(arrays: Mapping[str, Array], before: bytes = b"") -> str:
    hashed = hashlib.blake2b(before, digest_size=16)
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
    """The kind of what stands there: "file", "" for nothing, else in words."""
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
