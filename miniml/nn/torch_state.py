"""load_torch_state: weights of PyTorch's layers for those of the library."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from ..core.errors import CheckpointError
from ..core.files import PathLike, opened, readable, short
from .cell import Cell
from .linear import Dense
from .state import load

_CALLS = (
    "the calls are nn.load_torch_state(cell, {name: array}) and nn.load_torch_state(cell, path)"
)
_TRANSPOSED = ((Dense, "weight"),)  # (in, out) here, (out, in) in PyTorch


def load_torch_state(cell: Cell, state: Mapping[str, Any] | PathLike) -> None:
    """Give the parameters of `cell` the values that a PyTorch layer holds.

    state: the state_dict of the same layer, or of a Sequential of the same layers: a dict of arrays
    or of CPU tensors, or the path of a safetensors file. Its names are those of
    `cell.parameters_dict()`, and its shapes PyTorch's: the weight of a Dense, (in, out) here, is
    (out, in) in PyTorch; all others agree. Floats are cast to the parameter's dtype. A batch norm's
    num_batches_tracked is not needed. Shared weights may be given under one of their names, or
    equal under all.

    CheckpointError lists every entry that is missing, unexpected, of another shape or not of
    floats; nothing has changed then.
    """
    if not isinstance(cell, Cell):
        raise CheckpointError(f"load_torch_state got {type(cell).__name__} for a cell; {_CALLS}")
    owners = dict(cell._walk("", set()))

    def transposed(name: str) -> bool:
        prefix, _, attribute = name.rpartition(".")
        owner = owners[f"{prefix}." if prefix else ""]
        return any(isinstance(owner, kind) and attribute == n for kind, n in _TRANSPOSED)

    load("load_torch_state", cell, _entries(state), transposed)


def _entries(state: Any) -> Mapping[Any, Any]:
    if isinstance(state, Mapping):
        return state
    if not isinstance(state, (str, os.PathLike)):
        raise CheckpointError(f"load_torch_state got {type(state).__name__} for a state; {_CALLS}")
    if str(state).endswith((".pt", ".pth", ".bin")):
        raise CheckpointError(
            f"load_torch_state got {short(state)}, a pickle, which may run code; let PyTorch read "
            "it: load_torch_state(cell, torch.load(path, weights_only=True))"
        )
    with opened(readable(state, _CALLS, "safetensors.torch.save_file(state_dict, path)")) as file:
        return file.read()
