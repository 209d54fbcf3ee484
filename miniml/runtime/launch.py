"""From a typed call to something that can be launched: one kernel, chosen and prepared."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..abstract import Abstract
from ..backends import registry
from ..backends.device import Array
from ..backends.kernel import Kernel, KernelEntry, KernelNode
from ..backends.registry import Selection
from ..backends.signature import ArraySpec
from ..dtype import DType
from ..errors import DeclarationError
from ..primitive import Primitive


@dataclass(frozen=True, slots=True)
class Prepared:
    """A kernel bound to one call's shapes, dtypes and attributes."""

    selection: Selection
    node: KernelNode
    outputs: tuple[Abstract, ...]
    instance: Kernel | None

    @property
    def entry(self) -> KernelEntry:
        """The kernel's row in the table."""
        return self.selection.entry


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
    return Prepared(selection, node, outputs, instance)


def _specs(abstracts: tuple[Abstract, ...]) -> tuple[ArraySpec, ...]:
    return tuple(ArraySpec(a.shape, a.dtype) for a in abstracts)


def run_prepared(prepared: Prepared, arrays: tuple[Array, ...]) -> tuple[Array, ...]:
    """Run a prepared kernel once on CPU arrays, into fresh outputs."""
    entry = prepared.entry
    if prepared.selection.cast is not None:
        arrays = tuple(a.astype(prepared.selection.cast) for a in arrays)
    if entry.view:
        body: Callable[..., Array] = entry.body  # type: ignore[assignment]
        return (body(*arrays, **prepared.node.attrs),)
    dtypes = entry.signature.expand_outputs(len(prepared.outputs))
    outs = tuple(np.empty(o.shape, d) for o, d in zip(prepared.outputs, dtypes, strict=True))
    if outs and not any(o.size for o in outs):
        return _cast_back(prepared, outs)
    if prepared.instance is not None:
        scratch = tuple(np.empty(w.shape, w.dtype) for w in prepared.instance.workspace())
        prepared.instance.launch(arrays, scratch, outs, None)
    else:
        single = len(outs) == 1 and not entry.signature.repeats_output
        entry.body(*arrays, **prepared.node.attrs, out=outs[0] if single else outs)  # type: ignore[operator]
    return _cast_back(prepared, outs)


def _cast_back(prepared: Prepared, outs: tuple[Array, ...]) -> tuple[Array, ...]:
    if prepared.selection.cast is None:
        return outs
    return tuple(o.astype(a.dtype, copy=False) for o, a in zip(outs, prepared.outputs, strict=True))
