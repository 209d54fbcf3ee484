"""Checkpoints: parameters by name in a safetensors file, saved and loaded wholly or not at all."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..dtype import DType
from ..errors import CheckpointError
from ..nn import Cell
from ..optim import Optimizer
from ..tensor import Array, Parameter, Tensor
from ..undo import write_all
from .snapshot import values

PathLike = str | os.PathLike[str]
_SHOWN = 8


def save_checkpoint(obj: Any, path: PathLike) -> None:
    """Write what `obj` holds to a safetensors file, under the names of `parameters_dict`.

    obj: a Cell, an Optimizer, or a dict of these, of Parameters and of Tensors, whose keys begin
    the names: {"net": net, "optimizer": optimizer} gives "net.0.weight". The file is written
    beside `path` and then takes its place in one step, so a save that is killed leaves the old
    file as it was. Raises CheckpointError for an object that holds nothing of the kind.
    """
    target = Path(path)
    if not target.parent.is_dir():
        raise CheckpointError(f"{path} cannot be saved: there is no folder {target.parent}")
    entries = _entries(obj)
    arrays = dict(zip(entries, values("save_checkpoint", list(entries.values())), strict=True))
    from safetensors import numpy as safetensors

    content = safetensors.save(arrays, metadata={"format": "np"})
    draft = target.with_name(f".{target.name}.{os.urandom(4).hex()}.tmp")
    try:
        with draft.open("xb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        draft.replace(target)
    except BaseException:
        draft.unlink(missing_ok=True)
        raise


def load_checkpoint(path: PathLike, obj: Any) -> None:
    """Give `obj`, as for `save_checkpoint`, the values that the file holds.

    The file must hold exactly the names, shapes and dtypes of `obj`. CheckpointError names every
    entry that is missing, extra or different, or a file that is damaged; `obj` is then as it was.
    In a dict, Tensors are replaced; Parameters are updated in place.
    """
    entries = _entries(obj)
    arrays = _read(Path(path))
    problems = [p for name, value in entries.items() for p in _misfits(name, value, arrays)]
    problems += [f"{n} is extra" for n in arrays if n not in entries]
    if problems:
        more = len(problems) - _SHOWN
        tail = f"; and {more} more" if more > 0 else ""
        raise CheckpointError(
            f"{path} does not fit {_kind(obj)}: {'; '.join(problems[:_SHOWN])}{tail}; "
            "nothing was loaded"
        )
    _apply(obj, entries, arrays)


def _apply(obj: Any, entries: dict[str, Tensor], arrays: dict[str, Array]) -> None:
    parameters = {n: v for n, v in entries.items() if isinstance(v, Parameter)}
    write_all("load_checkpoint", [(p, arrays[name]) for name, p in parameters.items()])
    for name, value in entries.items():
        if name not in parameters:
            obj[name] = Tensor(arrays[name], device=value.device)


def _entries(obj: Any) -> dict[str, Tensor]:
    """Everything an object holds, by name."""
    if isinstance(obj, (Cell, Optimizer)):
        return dict(obj.parameters_dict())
    if not isinstance(obj, Mapping):
        raise CheckpointError(
            f"a checkpoint holds a Cell, an Optimizer or a dict of them; got {type(obj).__name__}; "
            "the calls are save_checkpoint(obj, path) and load_checkpoint(path, obj)"
        )
    found: dict[str, Tensor] = {}
    for key, value in obj.items():
        if isinstance(value, Tensor):
            found[str(key)] = value
        elif isinstance(value, (Cell, Optimizer)):
            found.update((f"{key}.{n}", p) for n, p in value.parameters_dict().items())
        else:
            raise CheckpointError(
                f"a checkpoint cannot hold entry {key!r} of type {type(value).__name__}; give a "
                "Cell, an Optimizer, a Parameter or a Tensor"
            )
    return found


def _read(path: Path) -> dict[str, Array]:
    if not path.exists():
        raise CheckpointError(f"{path} does not exist; save_checkpoint(obj, path) writes one")
    from safetensors import SafetensorError
    from safetensors import numpy as safetensors

    try:
        return dict(safetensors.load_file(path))
    except (SafetensorError, ValueError, KeyError) as error:
        raise CheckpointError(
            f"{path} is damaged or truncated, or no safetensors file ({error}); nothing was loaded"
        ) from None


def _misfits(name: str, value: Tensor, arrays: dict[str, Array]) -> list[str]:
    wanted = _type(value.shape, value.dtype)
    if name not in arrays:
        return [f"{name} ({wanted}) is missing"]
    came = _type(arrays[name].shape, arrays[name].dtype)
    return [] if came == wanted else [f"{name} is {came} in the file, {wanted} here"]


def _type(shape: tuple[int, ...], dtype: DType) -> str:
    return f"{dtype.name}[{','.join(map(str, shape))}]"


def _kind(obj: Any) -> str:
    return f"the {type(obj).__name__}"
