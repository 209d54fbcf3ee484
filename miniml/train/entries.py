"""What a checkpoint holds: arrays, tensors and plain numbers by name."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from ..archive import Spec, short
from ..dtype import DType, bool_, canonical, float64, int64
from ..errors import CheckpointError, DTypeError
from ..nn import Cell
from ..optim import Optimizer
from ..tensor import Array, Tensor, host_array

CALLS = "the calls are save_checkpoint(obj, path) and load_checkpoint(path, obj)"
_NUMBERS: dict[type, DType] = {bool: bool_, int: int64, float: float64}


def entries_of(obj: Any) -> dict[str, Any]:
    """Everything an object holds, by name; CheckpointError for what no file can hold."""
    found: dict[str, Any] = {}
    for name, value in _listed(obj):
        _check_name(name, found)
        found[name] = value
    return found


def keys_of(obj: Any) -> dict[str, Any]:
    """The keys of a dict's own entries, by name; nothing of a Cell and an Optimizer."""
    if not isinstance(obj, Mapping):
        return {}
    return {str(k): k for k, v in obj.items() if not isinstance(v, (Cell, Optimizer))}


def _listed(obj: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(obj, (Cell, Optimizer)):
        yield from obj.parameters_dict().items()
    elif isinstance(obj, Mapping):
        for key, value in obj.items():
            yield from _below(key, value)
    else:
        raise CheckpointError(
            f"a checkpoint holds a Cell, an Optimizer or a dict of them; got {type(obj).__name__}; "
            + CALLS
        )


def _below(key: Any, value: Any) -> Iterator[tuple[str, Any]]:
    """What stands under a key of a dict."""
    if isinstance(value, (Cell, Optimizer)):
        yield from ((f"{key}.{name}", p) for name, p in value.parameters_dict().items())
        return
    if spec_of(value) is None:
        raise CheckpointError(
            f"a checkpoint cannot hold entry {short(key)!r} {_what(value)}; give a Cell, an "
            "Optimizer, a Parameter (as generator.state), a Tensor, an array, or a bool, int or "
            "float of 64 bits"
        )
    yield str(key), value


def _check_name(name: str, taken: Mapping[str, Any]) -> None:
    if name in taken:
        raise CheckpointError(
            f"two entries of the checkpoint have the name {short(name)!r}; rename a key"
        )
    if name == "__metadata__":
        raise CheckpointError(f"safetensors keeps the name {name!r} for itself; rename the key")
    if not name.isascii() and any("\ud800" <= c <= "\udfff" for c in name):
        raise CheckpointError(f"the name {short(name)!r} is not valid Unicode; rename the key")


def _what(value: Any) -> str:
    if type(value) is int:
        return "beyond the range of int64"
    dtype = f" and dtype {value.dtype}" if isinstance(value, (np.ndarray, np.generic)) else ""
    return f"of type {type(value).__name__}{dtype}"


def spec_of(value: Any) -> Spec | None:
    """Shape and dtype of an entry; None for what a checkpoint cannot hold."""
    if isinstance(value, Tensor):
        return value.shape, value.dtype.name
    if isinstance(value, (np.ndarray, np.generic)):
        return _spec_of_array(value)
    if type(value) is int and not -(2**63) <= value < 2**63:
        return None
    dtype = _NUMBERS.get(type(value))
    return None if dtype is None else ((), dtype.name)


def _spec_of_array(value: Array | np.generic) -> Spec | None:
    if isinstance(value, np.ma.MaskedArray):
        return None
    try:
        return value.shape, canonical(value.dtype).name
    except DTypeError:
        return None


def array_of(value: Any) -> Array:
    """A copy of the value of an entry."""
    if isinstance(value, Tensor):
        return value.asnumpy()
    dtype = _NUMBERS.get(type(value))
    plain = host_array(value, None) if dtype is None else np.array(value, dtype)
    return np.array(plain, order="C", copy=True)


def like(value: Any, array: Array) -> Any:
    """The array as the kind of value that an entry is: Tensor, array, NumPy or Python number."""
    if isinstance(value, Tensor):
        return Tensor(array, device=value.device)
    if isinstance(value, np.ndarray):
        return array
    return array[()] if isinstance(value, np.generic) else array.item()
