"""From a bound kernel to a function of arrays, which launches it into fresh outputs."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ..backends.declare import refuse_returned
from ..backends.device import Array
from ..dtype import DType
from .launch import BoundKernel, note_kernel

Arrays = tuple[Array, ...]
Launcher = Callable[[Arrays], Arrays]


def launcher(prepared: BoundKernel) -> Launcher:
    """The function that runs a prepared kernel once on its device's arrays, into fresh outputs."""
    if prepared.selection.cast is not None:
        return _widened(prepared, prepared.selection.cast)
    if prepared.entry.view is not None:
        return lambda arrays: (prepared.function(*arrays),)
    return _filling(prepared, tuple(o.dtype for o in prepared.outputs))


def _filling(prepared: BoundKernel, dtypes: tuple[DType, ...]) -> Launcher:
    """Fresh outputs of these dtypes, filled by the kernel."""
    shapes = tuple(o.shape for o in prepared.outputs)
    fill = prepared.function
    device, new = prepared.device, prepared.device.empty
    strided = device.takes_strides(prepared.entry)

    def empty(arrays: Arrays) -> Arrays:
        return tuple(map(new, shapes, dtypes))

    def one(arrays: Arrays) -> Arrays:
        out = np.empty(shapes[0], dtypes[0])
        try:
            returned = fill(*arrays, out=out)
        except Exception as error:
            note_kernel(error, prepared)
            raise
        if returned is not None and returned is not out:
            refuse_returned(prepared.entry, returned, (out,))  # which keeps it from being released
        return (out,)

    def several(arrays: Arrays) -> Arrays:
        outs = tuple(map(np.empty, shapes, dtypes))
        try:
            returned = fill(*arrays, out=outs)
        except Exception as error:
            note_kernel(error, prepared)
            raise
        if returned is not None and returned is not outs:
            refuse_returned(prepared.entry, returned, outs)
        return outs

    def owned(arrays: Arrays) -> Arrays:
        instance = prepared.instance  # through `prepared`, which keeps it alive
        assert instance is not None
        if not strided:
            arrays = tuple(map(device.contiguous, arrays))
        outs = tuple(map(new, shapes, dtypes))
        scratch = tuple(new(w.shape, w.dtype) for w in prepared.workspace)
        try:
            instance.launch(arrays, scratch, outs, device.stream)
        except Exception as error:
            note_kernel(error, prepared)
            raise
        return outs

    if prepared.empty:
        return empty
    return owned if prepared.instance is not None else one if prepared.single else several


def _widened(prepared: BoundKernel, cast: DType) -> Launcher:
    """Inputs widened to one dtype, outputs cast back to what the rule gave."""
    given = tuple(o.dtype for o in prepared.node.outputs)
    run = _filling(prepared, given)
    promised, convert = [o.dtype for o in prepared.outputs], prepared.device.converted

    def launch(arrays: Arrays) -> Arrays:
        outs = run(tuple(convert(a, cast) for a in arrays))
        return tuple(convert(o, d) for o, d in zip(outs, promised, strict=True))

    return launch
