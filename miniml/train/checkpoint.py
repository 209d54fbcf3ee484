"""Checkpoints: what a training run holds, in one safetensors file; wholly or not at all."""

from __future__ import annotations

import hashlib
import json
import os
import stat
import struct
from collections.abc import Iterator, Mapping, MutableMapping
from pathlib import Path
from typing import Any

import numpy as np

from ..access import Access
from ..backends.devices import get_device
from ..errors import CheckpointError
from ..files import write_file
from ..parameter import Parameter
from ..tensor import Array
from ..undo import write_all
from ..uninterrupted import uninterrupted
from .entries import CALLS, Spec, array_of, entries_of, keys_of, like, short, spec_of

PathLike = str | os.PathLike[str]

_HASH = "miniml.blake2b"  # in the metadata: of the data of all entries, in the order of their names
_SHOWN = 8
_CODES = {
    "bool": "BOOL", "int8": "I8", "int16": "I16", "int32": "I32", "int64": "I64", "uint8": "U8",
    "uint16": "U16", "uint32": "U32", "uint64": "U64", "bfloat16": "BF16", "float16": "F16",
    "float32": "F32", "float64": "F64",
}  # fmt: skip
_NAMES = {code: name for name, code in _CODES.items()}


def save_checkpoint(obj: Any, path: PathLike) -> None:
    """Write what `obj` holds to a safetensors file, under the names of `parameters_dict`.

    obj: a Cell, an Optimizer, or a dict of these, of Parameters, Tensors, NumPy arrays and plain
    numbers (bool, int, float), whose keys begin the names: {"net": net, "optimizer": optimizer,
    "random": ml.random_state, "epoch": 3} gives "net.0.weight". All that an exact resume needs
    belongs in one file, which is written beside `path` and takes its place in one step: a save
    that is killed leaves the old file as it was. A link is followed, and the mode of an old file
    kept. An optimizer's state and lr are saved, its other settings (momentum, betas, eps) are
    not: make it with the same ones. CheckpointError for what a file cannot hold, and for a place
    where none can be written.
    """
    target = _writable(path)
    arrays = _gather(entries_of(obj))
    try:
        write_file(target, _encoded(arrays))
    except OSError as error:
        raise _refused(path, "saved", error) from None


def load_checkpoint(path: PathLike, obj: Any) -> None:
    """Give `obj`, as for `save_checkpoint`, the values that the file holds.

    The file must hold exactly the names, shapes and dtypes of `obj`; these are compared before
    data are read. CheckpointError names every entry that is missing, extra or different, or a
    file that is damaged; `obj` is then as it was. In a dict, Tensors, arrays and numbers are
    replaced by values of the same type; Parameters are updated in place.
    """
    source = _readable(path)
    entries = entries_of(obj)
    arrays = _read(source, entries, obj)
    _apply(obj, entries, arrays)


def _gather(entries: Mapping[str, Any]) -> dict[str, Array]:
    """Copies of the values of all entries; of parameters as they are at one moment, between two
    steps, whoever runs them. Inside a step, in a signal handler that is, as they are before it."""
    parameters = {n: v for n, v in entries.items() if isinstance(v, Parameter)}
    section = Access("save_checkpoint", reads=parameters.values())
    seen = section.run(lambda: {n: _own(p) for n, p in parameters.items()})
    return {n: array_of(v) for n, v in entries.items() if n not in parameters} | seen


def _own(parameter: Parameter) -> Array:
    """The parameter's data, though inside a step an unpublished version stands for it."""
    return np.array(get_device(parameter.device).to_host(parameter._data), order="C")


def _encoded(arrays: Mapping[str, Array]) -> Iterator[bytes | memoryview]:
    """A safetensors file piece by piece; equal arrays give equal files, byte by byte."""
    # Wide numbers first, so that each stands at a multiple of its size.
    ordered = sorted(arrays.items(), key=lambda item: (-item[1].itemsize, item[0]))
    header: dict[str, Any] = {"__metadata__": {"format": "np", _HASH: _digest(arrays)}}
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


def _apply(obj: Any, entries: Mapping[str, Any], arrays: Mapping[str, Array]) -> None:
    """Publish what was loaded, all at once: signals wait until the dict has its entries, too."""
    keys = keys_of(obj)
    parameters = [(v, arrays[n]) for n, v in entries.items() if isinstance(v, Parameter)]
    others = {n: like(v, arrays[n]) for n, v in entries.items() if not isinstance(v, Parameter)}
    if others and not isinstance(obj, MutableMapping):
        raise CheckpointError(
            f"load_checkpoint cannot replace entries of a {type(obj).__name__}; give a dict"
        )
    with uninterrupted():
        write_all("load_checkpoint", parameters)
        if others:
            obj.update({keys[name]: value for name, value in others.items()})


def _read(path: Path, entries: Mapping[str, Any], obj: Any) -> dict[str, Array]:
    """The arrays of all entries; CheckpointError if the file holds others, or is damaged."""
    from safetensors import SafetensorError, safe_open

    try:
        opened = safe_open(path, framework="np")
    except OSError as error:
        raise _refused(path, "loaded", error) from None
    except (SafetensorError, ValueError, KeyError) as error:
        raise CheckpointError(
            f"{short(path)} is damaged or truncated, or no safetensors file "
            f"({short(error)}); nothing was loaded"
        ) from None
    with opened as file:
        names = file.keys()
        _check_specs(path, entries, {n: _stored(file.get_slice(n)) for n in names}, obj)
        arrays = {name: file.get_tensor(name) for name in entries}
        saved = (file.metadata() or {}).get(_HASH)
    if saved is not None and saved != _digest(arrays):
        raise CheckpointError(
            f"{short(path)} is damaged: its data are not those that were saved, as their hash "
            "shows; nothing was loaded"
        )
    return arrays


def _stored(entry: Any) -> Spec:
    code = entry.get_dtype()
    return tuple(entry.get_shape()), _NAMES.get(code, code)


def _check_specs(
    path: Path, entries: Mapping[str, Any], stored: Mapping[str, Spec], obj: Any
) -> None:
    problems = [p for name, value in entries.items() for p in _misfits(name, value, stored)]
    problems += [f"{short(n)} is extra" for n in stored if n not in entries]
    if problems:
        more = len(problems) - _SHOWN
        tail = f"; and {more} more" if more > 0 else ""
        raise CheckpointError(
            f"{short(path)} does not fit the {type(obj).__name__}: "
            f"{'; '.join(problems[:_SHOWN])}{tail}; nothing was loaded"
        )


def _misfits(name: str, value: Any, stored: Mapping[str, Spec]) -> list[str]:
    expected, got = spec_of(value), stored.get(name)
    if got == expected:
        return []
    if got is None:
        return [f"{short(name)} ({_type(expected)}) is missing"]
    return [f"{short(name)} is {_type(got)} in the file, {_type(expected)} here"]


def _type(spec: Spec | None) -> str:
    shape, dtype = spec or ((), "")
    return short(f"{dtype}[{', '.join(map(str, shape))}]")


def _digest(arrays: Mapping[str, Array]) -> str:
    """A hash of the data: 0.1 s for 100 MB, with or without a processor's help."""
    digest = hashlib.blake2b(digest_size=16)
    for name in sorted(arrays):
        digest.update(_bytes(arrays[name]))
    return digest.hexdigest()


def _writable(path: PathLike) -> Path:
    """The path, if a file can stand there; that it can be written is seen when it is."""
    target = _path(path)
    kind = _kind(path, target, "saved")
    if kind not in ("", "file"):
        raise CheckpointError(f"{short(path)!r} cannot be saved: it is {kind}; name a file")
    folder = Path(os.path.realpath(target)).parent
    if not kind and not folder.is_dir():
        raise CheckpointError(
            f"{short(path)} cannot be saved: there is no folder {short(folder)}; make it first"
        )
    return target


def _readable(path: PathLike) -> Path:
    source = _path(path)
    kind = _kind(path, source, "loaded")
    if not kind:
        raise CheckpointError(
            f"{short(path)} does not exist; save_checkpoint(obj, path) writes one"
        )
    if kind != "file":
        raise CheckpointError(f"{short(path)!r} cannot be loaded: it is {kind}; name a file")
    return source


def _path(path: object) -> Path:
    plain = os.fspath(path) if isinstance(path, (str, os.PathLike)) else path
    if not isinstance(plain, str):
        raise CheckpointError(f"a checkpoint's path is a str; got {type(path).__name__}; {CALLS}")
    return Path(plain)


def _kind(path: PathLike, target: Path, what: str) -> str:
    """What stands there: "file", "" for nothing, else in words."""
    try:
        mode = target.stat().st_mode
    except FileNotFoundError:
        return ""
    except (OSError, ValueError) as error:  # ValueError: a null character
        raise _refused(path, what, error) from None
    if stat.S_ISDIR(mode):
        return "a folder"
    return "file" if stat.S_ISREG(mode) else "a pipe, socket or device"


def _refused(path: PathLike, what: str, error: OSError | ValueError) -> CheckpointError:
    reason = getattr(error, "strerror", None) or error
    return CheckpointError(f"{short(path)} cannot be {what}: {reason}; nothing has changed")
