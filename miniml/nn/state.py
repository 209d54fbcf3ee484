"""State of networks by name: `load` gives a network values, or reports all that do not fit at once.

Then the paths of layers, such as "body.0", which errors name.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from typing import Any

import numpy as np

from ..core.abstract import is_float
from ..core.errors import AttributeRefusedError, CheckpointError, MinimlError, name_layer
from ..core.files import short
from ..core.parameter import Generator, Parameter, write_all
from ..core.tensor import Array, host_array
from ..core.trace import computes_at_once

COUNTER = "num_batches_tracked"  # of PyTorch's batch norm, for averages without momentum


def load(
    who: str, cell: Any, state: object, transposed: Callable[[str], bool] = lambda name: False
) -> None:
    """Give the parameters of `cell` the values that the entries of their names have.

    transposed: True for the name of an entry that is the transpose. A parameter with several names
    is given by one of them or by equal entries of all. CheckpointError lists every entry that is
    missing, unexpected, of another shape, not of floats where floats are expected, or differs from
    that of another name; nothing has changed then.
    """
    if not isinstance(state, Mapping):
        raise CheckpointError(
            f"{who} got {type(state).__name__}; give a dict of arrays, such as net.state_dict(), "
            "or call ml.load_checkpoint(path, net) to load a file"
        )
    if not computes_at_once():
        raise CheckpointError(f"{who} refuses to run in a graph; load before it is made")
    given = {str(name): _array(name, value) for name, value in state.items()}
    names: dict[int, list[str]] = {}
    for path, parameter in paths(cell):
        names.setdefault(id(parameter), []).append(path)
    values: list[tuple[Parameter, Array]] = []
    problems: list[str] = []
    for name, parameter in cell.parameters_dict().items():
        found = [n for n in dict.fromkeys((name, *names[id(parameter)])) if n in given]
        array = given[found[0]] if found else None
        shape = parameter.shape[::-1] if transposed(name) else parameter.shape
        if problem := _misfit(array, shape, parameter):
            problems.append(f"{name} {problem}")
        elif array is not None:
            array = array.T if transposed(name) else array
            values.append((parameter, array.astype(parameter.dtype, order="C")))
        other = [n for n in found[1:] if not np.array_equal(given[n], given[found[0]])]
        same = "which is the same parameter here"
        problems += [f"{n} differs from {found[0]}, {same}" for n in other]
    known = {path for paths in names.values() for path in paths}
    problems += [f"{short(n)} is unexpected" for n in given if not _known(n, known)]
    if problems:
        raise CheckpointError(
            f"the state does not fit the {type(cell).__name__}: {'; '.join(problems)}; nothing was "
            "loaded" + _beginning(given, known)
        )
    write_all(who, values)


def paths(
    cell: Any, prefix: str = "", above: tuple[int, ...] = ()
) -> Iterator[tuple[str, Parameter]]:
    """Every parameter under all its paths: one that is shared, or in a shared cell, has several."""
    for name, value in vars(cell).items():
        if isinstance(value, Parameter):
            yield prefix + name, value
        elif hasattr(value, "_walk") and id(value) not in above:
            yield from paths(value, f"{prefix}{name}.", (*above, id(cell)))


def _misfit(array: Array | None, expected: tuple[int, ...], parameter: Parameter) -> str:
    """The problem with an entry; "" if there is none."""
    if array is None:
        return f"of shape {expected} is missing"
    if array.shape != expected:
        return f"has shape {array.shape}, where {expected} is expected"
    if is_float(parameter.dtype) and not is_float(array.dtype):
        return f"is {array.dtype}, where floats are expected"
    return ""


def _beginning(given: Mapping[str, Array], known: set[str]) -> str:
    """A hint where all names begin with one more word, as in a wrapped network's state."""
    first = next(iter(given), "").partition(".")[0] + "."
    if not all(name.startswith(first) for name in given):
        return ""
    if not all(_known(name.removeprefix(first), known) for name in given):
        return ""
    return (
        f"; all names begin with {first!r}: give {{n.removeprefix({first!r}): v for n, v in "
        "state.items()}"
    )


def _known(name: str, known: set[str]) -> bool:
    counted = name.removesuffix(COUNTER) + "running_mean"
    return name in known or (name.endswith(COUNTER) and counted in known)


def _array(name: object, value: Any) -> Array:
    try:
        return host_array(value, None)
    except (MinimlError, BufferError, RuntimeError, TypeError, ValueError) as error:
        raise CheckpointError(
            f"entry {short(name)!r} is no array ({short(error)}); give NumPy arrays, or the "
            "tensors of net.float().state_dict()"
        ) from None


def streams(cells: Mapping[str, Any]) -> dict[str, Parameter]:
    """The states of the Generators that these cells and those below hold, by path, each once."""
    found: dict[int, tuple[str, Parameter]] = {}
    for part, cell in cells.items():
        for prefix, inner in cell._walk(f"{part}.", set()):
            for name, value in vars(inner).items():
                if isinstance(value, Generator):
                    found.setdefault(id(value.state), (prefix + name, value.state))
    return dict(found.values())


# --- Paths of layers ------------------------------------------------------------------------------


def note_layer(error: Exception, cell: Any) -> None:
    """Add the path of the layer that raised an error, which is leaving `cell`, to the error.

    The innermost cell does so first; each one around it replaces the path with its longer one.
    """
    if isinstance(error, RecursionError):
        if not getattr(error, "__notes__", ()):
            error.add_note(_TOO_DEEP)
        return
    inner: Any = error.__dict__.setdefault("_miniml_cell", cell)
    layer = ""
    with suppress(AttributeRefusedError):  # cells hidden in a list are another mistake
        layer = layer_of(inner, cell)
    if layer and not (inner is cell and hasattr(error, "_miniml_layer")):
        name_layer(error, layer)


_TOO_DEEP = (
    "cells that hold each other are called some 210 levels deep at most: Python 3.12 has a fixed "
    "limit on calls from C, which 3.11 and 3.13 have not; nest them less"
    if sys.version_info[:2] == (3, 12)
    else "cells that hold each other are called some 240 levels deep at most, as Python's stack "
    "holds 1000 calls; sys.setrecursionlimit(10_000) before the call lets it hold more"
)


def layer_of(cell: Any, network: Any) -> str:
    """The name of a layer of a network; "" for a cell that is not in it."""
    name: str = network._entry.names().get(id(cell), "")
    return name
