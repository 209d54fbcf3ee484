"""Checkpoints: what a training run holds, in one safetensors file; wholly or not at all."""

from __future__ import annotations

from collections.abc import Collection, Mapping, MutableMapping, Sequence
from fnmatch import fnmatchcase
from typing import Any, TypeVar

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

_FEW = 5
Value = TypeVar("Value")


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
    held = entries_of(obj)
    with opened(source) as archive:
        entries, stored = _chosen(held, only), _chosen(archive.specs, only)
        shared = {n: v for n, v in entries.items() if n in stored}
        _check_specs(path, entries if strict else shared, stored, obj, strict)
        if not shared and not (strict and only is None):
            raise CheckpointError(
                f"{short(path)} and the {type(obj).__name__} have no entry in common"
                f"{_that_match(only)}; the file has {_few(archive.specs)}; the "
                f"{type(obj).__name__} has {_few(held)}; nothing was loaded"
            )
        arrays = archive.read()
    _apply(obj, shared, arrays)


def _chosen(found: Mapping[str, Value], only: str | Sequence[str] | None) -> dict[str, Value]:
    """What has a name that matches a pattern; everything without one."""
    patterns: Any = ["*"] if only is None else [only] if isinstance(only, str) else only
    if not isinstance(patterns, Collection) or not all(isinstance(p, str) for p in patterns):
        raise CheckpointError(f"only is a pattern of names or a list of them; got {only!r}")
    return {n: v for n, v in found.items() if any(fnmatchcase(n, p) for p in patterns)}


def _that_match(only: object) -> str:
    return "" if only is None else f" that matches only={short(repr(only))}"


def _few(names: Collection[str]) -> str:
    """The first names, to be compared by eye."""
    listed = ", ".join(map(short, [*names][:_FEW])) or "none"
    return listed + (f" and {len(names) - _FEW} more" if len(names) > _FEW else "")


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


def _check_specs(
    path: PathLike, entries: Mapping[str, Any], stored: Mapping[str, Spec], obj: Any, strict: bool
) -> None:
    """CheckpointError unless the file has the entries, with their types, and (strict) no others."""
    lacking = [
        f"{short(n)} ({_type(spec_of(v))}) is missing"
        for n, v in entries.items()
        if n not in stored
    ]
    lacking += [f"{short(n)} is unexpected" for n in stored if strict and n not in entries]
    problems = [_differs(n, v, stored[n]) for n, v in entries.items() if n in stored]
    problems = [*filter(None, problems), *lacking]
    if problems:
        partly = "; strict=False or only='body.*'" if lacking else "; only='body.*'"
        raise CheckpointError(
            f"{short(path)} does not fit the {type(obj).__name__}: {'; '.join(problems)}; nothing "
            f"was loaded{partly} loads a part"
        )


def _differs(name: str, value: Any, got: Spec) -> str:
    expected = spec_of(value)
    if got == expected:
        return ""
    return f"{short(name)} is {_type(got)} in the file, {_type(expected)} here"


def _type(spec: Spec | None) -> str:
    shape, dtype = spec or ((), "")
    return short(f"{dtype}[{', '.join(map(str, shape))}]")
