"""Checkpoints: what a training run holds, in one safetensors file; wholly or not at all."""

from __future__ import annotations

from collections.abc import Mapping, MutableMapping
from pathlib import Path
from typing import Any

import numpy as np

from ..access import Access
from ..archive import PathLike, Spec, encoded, opened, readable, short, writable, write
from ..backends.devices import get_device
from ..errors import CheckpointError
from ..parameter import Parameter
from ..tensor import Array
from ..undo import write_all
from ..uninterrupted import uninterrupted
from .entries import CALLS, array_of, entries_of, keys_of, like, spec_of

_SHOWN = 8


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
    target = writable(path, CALLS)
    write(target, encoded(_gather(entries_of(obj))), path)


def load_checkpoint(path: PathLike, obj: Any) -> None:
    """Give `obj`, as for `save_checkpoint`, the values that the file holds.

    The file must hold exactly the names, shapes and dtypes of `obj`; these are compared before
    data are read. CheckpointError names every entry that is missing, extra or different, or a
    file that is damaged; `obj` is then as it was. In a dict, Tensors, arrays and numbers are
    replaced by values of the same type; Parameters are updated in place.
    """
    source = readable(path, CALLS, "save_checkpoint(obj, path)")
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
    with opened(path) as archive:
        _check_specs(path, entries, archive.specs, obj)
        return archive.read()


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
