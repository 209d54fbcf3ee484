"""Running single kernels on calls, and finding out why one raised."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from itertools import chain
from math import prod
from typing import Any

import numpy as np

from ....abstract import Shape
from ....backends.kernel import KernelEntry
from ....dtype import float64, is_float
from ....errors import MinimlError, OutOfRangeError, ShapeError
from ...calls import Array, Arrays, Call, poisoned, run_entry


def copies(call: Call) -> Arrays:
    """Writable copies of the inputs, so that the writes of a kernel into them are seen."""
    return tuple(np.array(a, order="C") for a in call.arrays)


def launch(entry: KernelEntry, call: Call, arrays: Arrays | None = None, byte: int = 0) -> Arrays:
    """The outputs of one kernel, into buffers that were filled with `byte`."""
    return run_entry(entry, call, copies(call) if arrays is None else arrays, poisoned(call, byte))


def launched(call: Call) -> bool:
    """False if the framework skips the kernels, because no output has an element."""
    return call.primitive.dynamic_outputs or any(o.size for o in call.inferred)


def kernels_of(call: Call) -> list[KernelEntry]:
    """The CPU kernels that take and give the dtypes of a call, if the framework would run them."""
    return call.entries() if launched(call) else []


def wide_kernel(call: Call, arrays: Arrays) -> KernelEntry | None:
    """The kernel for a call of other dtypes; None if it would have to cast them."""
    try:
        return next(iter(call.on(arrays).entries()), None)
    except MinimlError:
        return None


def failure(entry: KernelEntry, call: Call) -> Exception | None:
    """The exception of a kernel; None if it runs."""
    try:
        launch(entry, call)
    except Exception as error:
        return error
    return None


def gives_no_number(call: Call) -> bool:
    """True when a kernel gives NaN or infinity for these numbers."""
    entries = [entry for entry in call.entries()[:1] if failure(entry, call) is None]
    outs = [o for entry in entries for o in launch(entry, call) if is_float(o.dtype)]
    return any(not np.isfinite(o.astype(float64)).all() for o in outs)


def refused_by_value(call: Call) -> bool:
    """True when a kernel turns away these numbers rather than these shapes.

    That is so if it raises an error made for that (an index out of range, a matrix that is not
    definite), and either plain numbers pass or the error allows no other reading.
    """
    if not launched(call):
        return False
    errors = [(e, failure(e, call)) for e in call.entries()]
    for entry, error in errors:
        if error is None or not _about_values(call, error):
            continue
        if isinstance(error, (OutOfRangeError, np.linalg.LinAlgError)):
            return True
        if failure(entry, call.on(tuple(map(_plain, call.arrays)))) is None:
            return True
    return False


def _about_values(call: Call, error: Exception) -> bool:
    if isinstance(error, MinimlError):
        return not isinstance(error, ShapeError)
    if isinstance(error, np.linalg.LinAlgError):
        return True
    indices = any(not is_float(a.dtype) and a.size for a in call.arrays)
    return indices and isinstance(error, (IndexError, ValueError))


def _plain(a: Array) -> Array:
    return np.ones(a.shape, a.dtype) if is_float(a.dtype) else np.zeros(a.shape, a.dtype)


def other_shape(entry: KernelEntry, call: Call) -> Shape | None:
    """A shape of the output into which a kernel does run that cannot fill the one inferred."""
    if not call.primitive._single or entry.view is not None or call.primitive.dynamic_outputs:
        return None
    (out,) = call.inferred
    fitting = []
    for shape in _plausible(call):
        if shape == out.shape:
            continue
        with suppress(Exception):  # whatever it raises, this is not the shape
            run_entry(entry, call, copies(call), (np.zeros(shape, out.dtype),))
            fitting.append(shape)
    # Results are broadcast into larger outputs, so the smallest is what the kernel computes.
    return min(fitting, key=lambda shape: (prod(shape), len(shape)), default=None)


def _plausible(call: Call) -> Iterator[Shape]:
    """Output shapes that operations give for inputs like these, each once."""
    shapes = [a.shape for a in call.arrays]
    tried: dict[Any, None] = dict.fromkeys(shapes)
    with suppress(ValueError):
        tried[np.broadcast_shapes(*shapes)] = None
    if len(shapes) == 2 and all(shapes):
        tried[shapes[0][:-1] + shapes[1][1:]] = None
        tried[shapes[0][:-2] + shapes[0][-2:-1] + shapes[1][-1:]] = None
        tried[shapes[0] + shapes[1]] = None
    for shape in list(tried):
        dropped = [shape[:a] + shape[a + 1 :] for a in range(len(shape))]
        thinned = [shape[:a] + (1,) + shape[a + 1 :] for a in range(len(shape))]
        tried.update(dict.fromkeys(chain([shape[::-1]], dropped, thinned)))
    yield from tried
    yield ()
