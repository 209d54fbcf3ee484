"""From a typed call to something that can be launched: one kernel, chosen and prepared."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any
from weakref import finalize

import numpy as np

from ..abstract import Abstract
from ..backends import registry
from ..backends.declare import check_fills, refuse_returned
from ..backends.device import Array, Device
from ..backends.kernel import Kernel, KernelEntry, KernelNode
from ..backends.rebinding import refuse_rebinding
from ..backends.registry import Selection
from ..backends.signature import ArraySpec
from ..dtype import DType
from ..primitive import Primitive

Arrays = tuple[Array, ...]
Launcher = Callable[[Arrays], Arrays]


@dataclass(frozen=True, slots=True, eq=False, weakref_slot=True)
class Prepared:
    """A kernel bound to one call's shapes, dtypes and attributes; a class kernel's `release` is
    called when nothing uses this any more.

    single: the primitive has one output, so a function kernel gets `out` bare, not as a tuple.
    function: the function kernel with its attributes bound, or specialised for the node.
    """

    selection: Selection
    node: KernelNode
    outputs: tuple[Abstract, ...]
    instance: Kernel | None
    single: bool
    function: Callable[..., Any]
    device: Device

    @property
    def entry(self) -> KernelEntry:
        """The kernel's row in the table."""
        return self.selection.entry

    @property
    def calls_function(self) -> bool:
        """True when a launch is one call of `function`, which fills the outputs as they are."""
        cast, view = self.selection.cast is not None, self.entry.view is not None
        return not (cast or view or self.empty or self.instance is not None)

    @property
    def empty(self) -> bool:
        """True when no output has an element, so that there is nothing to launch."""
        return bool(self.outputs) and not any(o.size for o in self.outputs)


def prepare(
    primitive: Primitive,
    inputs: tuple[Abstract, ...],
    outputs: tuple[Abstract, ...],
    attrs: dict[str, Any],
    device: Device,
    providers: tuple[str, ...],
) -> Prepared:
    """Choose the kernel for a call on a device and prepare it.

    KernelNotFoundError when there is none; DeclarationError when the dtypes that the primitive's
    rule gave are not those of the kernel's signature.
    """
    dtypes = tuple(i.dtype for i in inputs)
    promised = tuple(o.dtype for o in outputs)
    formats = tuple(i.format for i in inputs)
    selection = registry.select(primitive.name, device.name, dtypes, providers, promised, formats)
    entry, cast = selection.entry, selection.cast
    if cast is not None:  # the kernel gets what the inputs are widened to
        dtypes, promised = (cast,) * len(inputs), entry.signature.expand_outputs(len(outputs))
    node = KernelNode(
        primitive.name, _specs(inputs, dtypes), _specs(outputs, promised), attrs, device.for_kernels
    )
    empty = bool(outputs) and not any(o.size for o in outputs)
    instance = None if empty or entry.view is not None else device.kernel(entry)
    if instance is not None:
        instance.prepare(node)
    elif entry.view is None and not empty:
        check_fills(entry)
    function = _bound(entry, node)
    prepared = Prepared(selection, node, outputs, instance, primitive._single, function, device)
    if instance is not None:
        finalize(prepared, instance.release)
    return prepared


def _bound(entry: KernelEntry, node: KernelNode) -> Callable[..., Any]:
    body: Any = entry.body
    if entry.specialize is not None:
        special = entry.specialize(node)
        refuse_rebinding(entry.name, special)
        return special
    return partial(body, **node.attrs) if node.attrs and callable(body) else body


def _specs(abstracts: tuple[Abstract, ...], dtypes: tuple[DType, ...]) -> tuple[ArraySpec, ...]:
    return tuple(ArraySpec(a.shape, d) for a, d in zip(abstracts, dtypes, strict=True))


def launcher(prepared: Prepared) -> Launcher:
    """The function that runs a prepared kernel once on its device's arrays, into fresh outputs."""
    if prepared.selection.cast is not None:
        return _widened(prepared, prepared.selection.cast)
    if prepared.entry.view is not None:
        look = prepared.function
        return lambda arrays: (look(*arrays),)
    return _filling(prepared, tuple(o.dtype for o in prepared.outputs))


def _filling(prepared: Prepared, dtypes: tuple[DType, ...]) -> Launcher:
    """Fresh outputs of these dtypes, filled by the kernel."""
    shapes = tuple(o.shape for o in prepared.outputs)
    fill = prepared.function
    device, new = prepared.device, prepared.device.empty
    strided = device.takes_strides(prepared.entry)

    def empty(arrays: Arrays) -> Arrays:
        return tuple(map(new, shapes, dtypes))

    def one(arrays: Arrays) -> Arrays:
        out = np.empty(shapes[0], dtypes[0])
        returned = fill(*arrays, out=out)
        if returned is not None and returned is not out:
            refuse_returned(prepared.entry, returned, (out,))  # and so keeps it from its release
        return (out,)

    def several(arrays: Arrays) -> Arrays:
        outs = tuple(map(np.empty, shapes, dtypes))
        returned = fill(*arrays, out=outs)
        if returned is not None and returned is not outs:
            refuse_returned(prepared.entry, returned, outs)
        return outs

    def owned(arrays: Arrays) -> Arrays:
        instance = prepared.instance  # by way of what keeps it from being released
        assert instance is not None
        if not strided:
            arrays = tuple(map(device.contiguous, arrays))
        outs = tuple(map(new, shapes, dtypes))
        scratch = tuple(new(w.shape, w.dtype) for w in instance.workspace())
        instance.launch(arrays, scratch, outs, device.stream)
        return outs

    if prepared.empty:
        return empty
    return owned if prepared.instance is not None else one if prepared.single else several


def _widened(prepared: Prepared, cast: DType) -> Launcher:
    """Inputs widened to one dtype, outputs cast back to what the rule gave."""
    given = prepared.entry.signature.expand_outputs(len(prepared.outputs))
    run = _filling(prepared, given)
    promised, convert = [o.dtype for o in prepared.outputs], prepared.device.converted

    def launch(arrays: Arrays) -> Arrays:
        outs = run(tuple(convert(a, cast) for a in arrays))
        return tuple(convert(o, d) for o, d in zip(outs, promised, strict=True))

    return launch
