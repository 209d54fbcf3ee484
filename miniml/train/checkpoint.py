"""Checkpoints: the state of a training run in one safetensors file, saved and loaded atomically.

Saving and loading, the entries of a file (arrays, tensors and plain numbers by name), the checks of
a file against an object, and Snapshot, the values of parameters in memory.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, MutableMapping, Sequence
from fnmatch import fnmatchcase
from typing import Any, TypeVar

import numpy as np

from ..backends.group import Group
from ..backends.selection import get_device
from ..core.abstract import DType, bool_, canonical, float64, int64
from ..core.access import Access, uninterrupted
from ..core.errors import CheckpointError, DTypeError
from ..core.files import PathLike, Spec, encoded, opened, readable, short, writable, write
from ..core.parameter import Parameter, UndoLog, default_generator, write_all
from ..core.tensor import Array, Tensor, host_array
from ..nn import Cell
from ..nn.state import streams
from ..optim import Optimizer

__all__ = ["Snapshot", "load_checkpoint", "save_checkpoint"]

CALLS = "the calls are save_checkpoint(obj, path) and load_checkpoint(path, obj)"
_FEW = 5
Value = TypeVar("Value")


def save_checkpoint(obj: Any, path: PathLike) -> None:
    """Write what `obj` holds to a safetensors file, under the names of `parameters_dict`.

    obj: a Cell, an Optimizer, or a dict of these, of Parameters, Tensors, NumPy arrays and plain
    numbers (bool, int, float), whose keys begin the names: {"net": net, "optimizer": optimizer,
    "random": ml.random_state, "epoch": 3} gives "net.0.weight". All that an exact resume needs
    belongs in one file, which is written beside `path` and then renamed: a save that is killed
    leaves the old file as it was. A link is followed, and the mode of an old file
    kept. An optimizer's state and lr are saved, its other settings (momentum, betas, eps) are
    not: make it with the same ones. CheckpointError for what a file cannot hold, and for a path
    where none can be written.
    """
    write(writable(path, CALLS), encoded(_gather(_entries_of(obj))), path)


def _gather(entries: Mapping[str, Any]) -> dict[str, Array]:
    """Copies of the values of all entries: those of parameters are consistent, as they are between
    two steps of whatever thread; inside a step, as in a signal handler, those from before it."""
    parameters = {n: v for n, v in entries.items() if isinstance(v, Parameter)}
    section = Access("save_checkpoint", reads=parameters.values())
    seen = section.run(lambda: {n: _own(p) for n, p in parameters.items()})
    return {n: _array_of(v) for n, v in entries.items() if n not in parameters} | seen


def _own(parameter: Parameter) -> Array:
    """The parameter's published data, also inside a step, which may have assigned it already."""
    return np.array(get_device(parameter.device).to_host(parameter._data), order="C")


def load_checkpoint(
    path: PathLike, obj: Any, only: str | Sequence[str] | None = None, strict: bool = True
) -> None:
    """Give `obj`, as for `save_checkpoint`, the values that the file holds.

    The file must hold exactly the names, shapes and dtypes of `obj`; these are compared before
    data are read. CheckpointError names every entry that is missing, unexpected or different, or
    a file that is damaged; `obj` is then as it was. In a dict, Tensors, arrays and numbers are
    replaced by values of the same type; Parameters are updated in place. Files are read as data:
    nothing in them is run.

    only: a pattern of names, or several, as in "body.*" (`fnmatch`: * is any text, dots included);
    all other entries of file and object are left alone. strict=False leaves those alone that one
    of the two lacks; what both have must still agree in shape and dtype.
    """
    source = readable(path, CALLS, "save_checkpoint(obj, path)")
    held = _entries_of(obj)
    with opened(source) as archive:
        entries, stored = _chosen(held, only), _chosen(archive.specs, only)
        shared = {n: v for n, v in entries.items() if n in stored}
        _check_specs(path, entries if strict else shared, stored, obj, strict)
        if not shared and not (strict and only is None):
            matching = "" if only is None else f" that matches only={short(repr(only))}"
            raise CheckpointError(
                f"{short(path)} and the {type(obj).__name__} have no entry in common"
                f"{matching}; the file has {_few(archive.specs)}; the "
                f"{type(obj).__name__} has {_few(held)}; nothing was loaded"
            )
        arrays = archive.read()
    _apply(obj, shared, arrays)


def _chosen(found: Mapping[str, Value], only: str | Sequence[str] | None) -> dict[str, Value]:
    """The entries whose names match a pattern; all of them without one."""
    patterns: Any = ["*"] if only is None else [only] if isinstance(only, str) else only
    if not isinstance(patterns, Collection) or not all(isinstance(p, str) for p in patterns):
        raise CheckpointError(f"only is a pattern of names or a list of them; got {only!r}")
    return {n: v for n, v in found.items() if any(fnmatchcase(n, p) for p in patterns)}


def _few(names: Collection[str]) -> str:
    """The first names, in a message."""
    listed = ", ".join(map(short, [*names][:_FEW])) or "none"
    return listed + (f" and {len(names) - _FEW} more" if len(names) > _FEW else "")


def _apply(obj: Any, entries: Mapping[str, Any], arrays: Mapping[str, Array]) -> None:
    """Publish all values at once: signals wait until the dict has its entries, too."""
    parts = (Cell, Optimizer)
    own = obj.items() if isinstance(obj, Mapping) else ()
    keys = {str(key): key for key, value in own if not isinstance(value, parts)}
    parameters = [(v, arrays[n]) for n, v in entries.items() if isinstance(v, Parameter)]
    others = {n: _like(v, arrays[n]) for n, v in entries.items() if not isinstance(v, Parameter)}
    if others and not isinstance(obj, MutableMapping):
        raise CheckpointError(
            f"load_checkpoint cannot replace entries of a {type(obj).__name__}; give a dict"
        )
    with uninterrupted():
        write_all("load_checkpoint", parameters)
        if others:
            obj.update({keys[name]: value for name, value in others.items()})


def spread_checkpoint(obj: Any, group: Group) -> None:
    """Give `obj`, as for `save_checkpoint`, on all ranks of a group the values that it has on rank
    0; DistributedError where it has other entries there."""
    entries = _entries_of(obj)
    arrays = _gather(entries)
    for name, array in arrays.items():
        group.agree(f"loading {short(name)}, {_type(_spec_of(array))}")
        group.spread(array, 0)
    if group.rank:
        _apply(obj, entries, arrays)


def names_below(prefix: str, path: PathLike) -> list[str]:
    """The names of a file's entries that begin with the prefix, without it."""
    with opened(readable(path, CALLS, "save_checkpoint(obj, path)")) as archive:
        return [name.removeprefix(prefix) for name in archive.specs if name.startswith(prefix)]


# --- Entries --------------------------------------------------------------------------------------


def _entries_of(obj: Any) -> dict[str, Any]:
    """The entries of an object by name; CheckpointError for what no file can hold."""
    found: dict[str, Any] = {}
    for name, value in _listed(obj):
        _check_name(name, found)
        found[name] = value
    return found


def _listed(obj: Any) -> Iterator[tuple[str, Any]]:
    parts = (Cell, Optimizer)
    if isinstance(obj, parts):
        obj = obj.parameters_dict()
    elif not isinstance(obj, Mapping):
        raise CheckpointError(
            f"a checkpoint holds a Cell, an Optimizer or a dict of them; got {type(obj).__name__}; "
            + CALLS
        )
    for key, value in obj.items():
        if isinstance(value, parts):
            yield from ((f"{key}.{name}", p) for name, p in value.parameters_dict().items())
        elif _spec_of(value) is None:
            raise CheckpointError(
                f"a checkpoint cannot hold entry {short(key)!r} {_kind_of(value)}; give a Cell, an "
                "Optimizer, a Parameter (as generator.state), a Tensor, an array, or a bool, int "
                "or float of 64 bits"
            )
        else:
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


def _spec_of(value: Any) -> Spec | None:
    """Shape and dtype of an entry; None for what a checkpoint cannot hold."""
    if isinstance(value, Tensor):
        return value.shape, value.dtype.name
    if isinstance(value, np.ma.MaskedArray):
        return None
    if isinstance(value, (np.ndarray, np.generic)):
        try:
            return value.shape, canonical(value.dtype).name
        except DTypeError:
            return None
    if type(value) is int and not -(2**63) <= value < 2**63:
        return None
    dtype = _NUMBERS.get(type(value))
    return None if dtype is None else ((), dtype.name)


_NUMBERS: dict[type, DType] = {bool: bool_, int: int64, float: float64}


def _kind_of(value: Any) -> str:
    if type(value) is int:
        return "beyond the range of int64"
    dtype = f" and dtype {value.dtype}" if isinstance(value, (np.ndarray, np.generic)) else ""
    return f"of type {type(value).__name__}{dtype}"


def _array_of(value: Any) -> Array:
    """A copy of the value of an entry."""
    if isinstance(value, Tensor):
        return value.asnumpy()
    dtype = _NUMBERS.get(type(value))
    plain = host_array(value, None) if dtype is None else np.array(value, dtype)
    return np.array(plain, order="C", copy=True)


def _like(value: Any, array: Array) -> Any:
    """The array as the kind of value that an entry is: Tensor, array, NumPy or Python number."""
    if isinstance(value, Tensor):
        return Tensor(array, device=value.device)
    if isinstance(value, np.ndarray):
        return array
    return array[()] if isinstance(value, np.generic) else array.item()


# --- Checks of a file against an object -----------------------------------------------------------


def _check_specs(
    path: PathLike, entries: Mapping[str, Any], stored: Mapping[str, Spec], obj: Any, strict: bool
) -> None:
    """CheckpointError unless the file has the entries, with their types, and (strict) no others."""
    missing = [name for name in entries if name not in stored]
    unexpected = [name for name in stored if strict and name not in entries]
    both = {n: _differs(n, v, stored[n]) for n, v in entries.items() if n in stored}
    problems = [*filter(None, both.values())]
    problems += [f"{short(n)} ({_type(_spec_of(entries[n]))}) is missing" for n in missing]
    problems += [f"{short(n)} is unexpected" for n in unexpected]
    if problems:
        differing = [n for n, problem in both.items() if problem]
        ways = [] if differing else ["strict=False"]
        ways += _patterns(both, [*differing, *missing, *unexpected])
        partly = f"; {' or '.join(ways)} loads what fits" if ways else ""
        raise CheckpointError(
            f"{short(path)} does not fit the {type(obj).__name__}: {'; '.join(problems)}; nothing "
            f"was loaded{partly}"
        )


def _patterns(names: Collection[str], others: Collection[str]) -> list[str]:
    """`only=` for the layers of these names that have none of the others, if they are few."""
    layers = dict.fromkeys(f"{name.rpartition('.')[0]}." for name in names if "." in name)
    whole = [layer for layer in layers if not any(name.startswith(layer) for name in others)]
    return [f"only={[f'{layer}*' for layer in whole]}"] if 0 < len(whole) <= _FEW else []


def _differs(name: str, value: Any, got: Spec) -> str:
    expected = _spec_of(value)
    if got == expected:
        return ""
    return f"{short(name)} is {_type(got)} in the file, {_type(expected)} here"


def _type(spec: Spec | None) -> str:
    shape, dtype = spec or ((), "")
    return short(f"{dtype}[{', '.join(map(str, shape))}]")


# --- Snapshots ------------------------------------------------------------------------------------


class Snapshot:
    """Copies of all parameters of cells and optimizers, of the generators that cells hold, and of
    the default random stream."""

    def __init__(self, *owners: object):
        stream = default_generator.state
        found = {id(stream): stream}
        for owner in owners:
            if isinstance(owner, (Cell, Optimizer)):
                found.update((id(p), p) for p in owner.parameters_dict().values())
            if isinstance(owner, Cell):
                found.update((id(p), p) for p in streams({"": owner}).values())
        self._log = UndoLog()
        self._access = Access("Snapshot", reads=found.values())
        self._access.run(self._log.note, *found.values())

    def renew(self) -> None:
        """Take the values of the same parameters at this moment, in place of the older ones."""
        self._access.run(self._log.renew)

    def restore(self) -> None:
        """Give every parameter its value of that moment, all at once."""
        self._log.restore("Snapshot")
