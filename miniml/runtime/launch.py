"""From a typed call to something that can be launched: one kernel, chosen and prepared."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ..abstract import Abstract
from ..backends import registry
from ..backends.device import Array
from ..backends.kernel import Kernel, KernelEntry, KernelNode
from ..backends.registry import Selection
from ..backends.signature import ArraySpec
from ..primitive import Primitive


@dataclass(frozen=True, slots=True, eq=False)
class Prepared:
    """A kernel bound to one call's shapes, dtypes and attributes.

    single: the primitive has one output, so a function kernel gets `out` bare, not as a tuple.
    """

    selection: Selection
    node: KernelNode
    outputs: tuple[Abstract, ...]
    instance: Kernel | None
    single: bool

    @property
    def entry(self) -> KernelEntry:
        """The kernel's row in the table."""
        return self.selection.entry

    @property
    def empty(self) -> bool:
        """True when no output has an element, so that there is nothing to launch."""
        return bool(self.outputs) and not any(o.size for o in self.outputs)


def prepare(
    primitive: Primitive,
    inputs: tuple[Abstract, ...],
    outputs: tuple[Abstract, ...],
    attrs: dict[str, Any],
    device: str,
    providers: tuple[str, ...],
) -> Prepared:
    """Choose the kernel for a call and prepare it.

    KernelNotFoundError when there is none; DeclarationError when the dtypes that the primitive's
    rule gave are not those of the kernel's signature.
    """
    dtypes = tuple(i.dtype for i in inputs)
    promised = tuple(o.dtype for o in outputs)
    selection = registry.select(primitive.name, device, dtypes, providers, promised)
    node = KernelNode(primitive.name, _specs(inputs), _specs(outputs), attrs)
    body = selection.entry.body
    instance = body() if isinstance(body, type) and issubclass(body, Kernel) else None
    if instance is not None:
        instance.prepare(node)
    return Prepared(selection, node, outputs, instance, primitive._single)


def _specs(abstracts: tuple[Abstract, ...]) -> tuple[ArraySpec, ...]:
    return tuple(ArraySpec(a.shape, a.dtype) for a in abstracts)


def run_prepared(prepared: Prepared, arrays: tuple[Array, ...]) -> tuple[Array, ...]:
    """Run a prepared kernel once on CPU arrays, into fresh outputs."""
    entry, cast = prepared.entry, prepared.selection.cast
    if cast is not None:
        arrays = tuple(a.astype(cast) for a in arrays)
    if entry.view is not None:
        return (entry.body(*arrays, **prepared.node.attrs),)  # type: ignore[operator]
    dtypes = entry.signature.expand_outputs(len(prepared.outputs))
    outs = tuple(np.empty(o.shape, d) for o, d in zip(prepared.outputs, dtypes, strict=True))
    if not prepared.empty:
        _launch(prepared, arrays, outs)
    if cast is None:
        return outs
    return tuple(o.astype(a.dtype, copy=False) for o, a in zip(outs, prepared.outputs, strict=True))


def _launch(prepared: Prepared, arrays: tuple[Array, ...], outs: tuple[Array, ...]) -> None:
    if prepared.instance is not None:
        scratch = tuple(np.empty(w.shape, w.dtype) for w in prepared.instance.workspace())
        prepared.instance.launch(arrays, scratch, outs, None)
        return
    out = outs[0] if prepared.single else outs
    prepared.entry.body(*arrays, **prepared.node.attrs, out=out)  # type: ignore[operator]
