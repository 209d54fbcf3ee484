"""Weights of PyTorch's layers: load_torch_state."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from ..archive import PathLike, opened, readable, short
from ..dtype import is_float
from ..errors import CheckpointError, MinimlError
from ..parameter import Parameter
from ..tensor import Array, host_array
from ..trace import computes_at_once
from ..undo import write_all
from .cell import Cell
from .linear import Dense

_CALLS = (
    "the calls are nn.load_torch_state(cell, {name: array}) and nn.load_torch_state(cell, path)"
)
_TRANSPOSED = ((Dense, "weight"),)  # (in, out) here, (out, in) there
_COUNTER = "num_batches_tracked"  # of a batch norm there, which averages without a momentum by it


def load_torch_state(cell: Cell, state: Mapping[str, Any] | PathLike) -> None:
    """Give the parameters of `cell` the values that a PyTorch layer holds.

    state: the state_dict of the same layer, or of a Sequential of the same layers: a dict of arrays
    or of CPU tensors, or the path of a safetensors file. Its names are those of
    `cell.parameters_dict()`, and its shapes PyTorch's: the weight of a Dense, (in, out) here, is
    (out, in) there; all others agree. Floats are cast to the parameter's dtype. A batch norm's
    num_batches_tracked is not needed.

    CheckpointError lists every entry that is missing, unexpected, of another shape or not of
    floats; nothing has changed then.
    """
    if not isinstance(cell, Cell):
        raise CheckpointError(f"load_torch_state got {type(cell).__name__} for a cell; {_CALLS}")
    if not computes_at_once():
        raise CheckpointError("load_torch_state refuses to run in a graph; load before it is made")
    given, owners = _entries(state), dict(cell._walk("", set()))
    parameters = cell.parameters_dict()
    values: list[tuple[Parameter, Array]] = []
    problems: list[str] = []
    for name, parameter in parameters.items():
        owner, attribute = owners[name[: name.rfind(".") + 1]], name.rpartition(".")[2]
        turned = any(isinstance(owner, k) and attribute == n for k, n in _TRANSPOSED)
        problem = _misfit(given.get(name), parameter.shape[::-1] if turned else parameter.shape)
        if problem:
            problems.append(f"{name} {problem}")
        else:
            array = given[name].T if turned else given[name]
            values.append((parameter, array.astype(parameter.dtype, order="C")))
    problems += [f"{short(n)} is unexpected" for n in given if not _known(n, parameters)]
    if problems:
        raise CheckpointError(
            f"the state does not fit the {type(cell).__name__}: {'; '.join(problems)}; nothing was "
            "loaded"
        )
    write_all("load_torch_state", values)


def _misfit(array: Array | None, expected: tuple[int, ...]) -> str:
    """What is wrong with an entry; "" if nothing is."""
    if array is None:
        return f"of shape {expected} is missing"
    if array.shape != expected:
        return f"has shape {array.shape}, where {expected} is expected"
    return "" if is_float(array.dtype) else f"is {array.dtype}, where floats are expected"


def _known(name: str, parameters: Mapping[str, Parameter]) -> bool:
    counted = name.removesuffix(_COUNTER) + "running_mean"
    return name in parameters or (name.endswith(_COUNTER) and counted in parameters)


def _entries(state: Any) -> dict[str, Array]:
    if isinstance(state, Mapping):
        return {str(name): _array(name, value) for name, value in state.items()}
    if not isinstance(state, (str, os.PathLike)):
        raise CheckpointError(f"load_torch_state got {type(state).__name__} for a state; {_CALLS}")
    with opened(readable(state, _CALLS, "safetensors.torch.save_file(state_dict, path)")) as file:
        return file.read()


def _array(name: object, value: Any) -> Array:
    try:
        return host_array(value, None)
    except (MinimlError, BufferError, RuntimeError, TypeError, ValueError) as error:
        raise CheckpointError(
            f"entry {short(name)!r} is no array ({short(error)}); give NumPy arrays, or the "
            "tensors of net.float().state_dict()"
        ) from None
