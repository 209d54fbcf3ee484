"""NumPy kernels of images in other memory formats: those of row-major images, on views.

A format without blocks is an order of axes, so such a kernel reads and writes the images in place.
Pooling treats blocks of channels as further planes; elsewhere the images are copied out of blocks
and back, which costs as much as to convert them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, ClassVar

import numpy as np

from ...core.abstract import FORMATS, OTHERS, PLAIN, ArraySpec, Look, images, padding, pairs, parse
from ...core.signature import ANY, FLOAT, same
from ..kernel import Array, Formats, Kernel, KernelEntry, KernelNode
from ..registry import (
    BUILTIN,
    arrangements,
    image_attr,
    image_format,
    image_formats,
    kernel,
    register_arranged,
    table,
)

_CONVOLUTIONS = "Conv2D", "Conv2DInputGrad", "Conv2DWeightGrad"
_POOLINGS = "MaxPool2D", "MaxPool2DGrad", "MaxPool2DGather", "AvgPool2D", "AvgPool2DGrad"


class Arranged(Kernel):
    """The kernel `plain` of row-major images, on images in other formats."""

    plain: ClassVar[Callable[..., Any]]

    def select_format(self, node: KernelNode) -> tuple[Formats, Formats]:
        """The format ranked first for convolutions; that of the input for the rest."""
        ranked = node.target.formats[:1] if node.name in _CONVOLUTIONS else ()
        return image_formats(node.name, *(ranked or (image_format(node),)))

    def prepare(self, node: KernelNode) -> None:
        run = _by_planes if node.name in _POOLINGS else _by_images
        self.call = run(node, partial(type(self).plain, **node.attrs))


def _by_planes(node: KernelNode, plain: Callable[..., Any]) -> Callable[..., Any]:
    looks = [_planes(s.format) for s in (*node.inputs, *node.outputs)]
    return partial(_seen, plain, looks[: len(node.inputs)], looks[len(node.inputs) :])


def _planes(format: str | None) -> Look:
    """Images (N, C, H, W), or blocks of channels as such images."""
    if not FORMATS[format or PLAIN].block:
        return images(format)
    return lambda a: a.reshape(-1, *a.shape[2:]).transpose(0, 3, 1, 2)


def _by_images(node: KernelNode, plain: Callable[..., Any]) -> Callable[..., Any]:
    if any(FORMATS[s.format or PLAIN].block for s in (*node.inputs, *node.outputs)):
        return partial(_copied, plain, node.inputs, node.outputs)
    ins, outs = ([_whole(s) for s in specs] for specs in (node.inputs, node.outputs))
    return partial(_seen, plain, ins, outs)


def _whole(spec: ArraySpec) -> Look:
    return images(spec.format) if spec.format else lambda a: a


def _seen(
    plain: Callable[..., Any], ins: Sequence[Look], outs: Sequence[Look], *arrays: Array, out: Any
) -> None:
    """Call `plain` on views of the arrays."""
    given = [look(a) for look, a in zip(ins, arrays, strict=True)]
    made = out if isinstance(out, tuple) else (out,)
    seen = tuple(look(a) for look, a in zip(outs, made, strict=True))
    plain(*given, out=seen if isinstance(out, tuple) else seen[0])


def _copied(
    plain: Callable[..., Any],
    ins: Sequence[ArraySpec],
    outs: Sequence[ArraySpec],
    *arrays: Array,
    out: Any,
) -> None:
    """Call `plain` on row-major copies of the images."""
    given = [_row_major(s, a) for s, a in zip(ins, arrays, strict=True)]
    made = out if isinstance(out, tuple) else (out,)
    results = tuple(np.empty(s.shape, s.dtype) for s in outs)
    plain(*given, out=results if isinstance(out, tuple) else results[0])
    for spec, result, target in zip(outs, results, made, strict=True):
        convert(result, target, PLAIN, spec.format, *spec.shape[1:2])


def _row_major(spec: ArraySpec, array: Array) -> Array:
    if not spec.format:
        return array
    made = np.empty(spec.shape, spec.dtype)
    convert(array, made, spec.format, PLAIN, spec.shape[1])
    return made


def convert(
    x: Array, out: Array, source: str | None, target: str | None, channels: int = 0
) -> None:
    """Copy images of so many channels from one format to the other."""
    if source == target or not {source, target} - {None, PLAIN}:
        out[...] = x
        return
    for look, target_look in pairs(source, target, channels):
        target_look(out)[...] = look(x)
    zeros = padding(target, channels)
    if zeros is not None:
        zeros(out)[...] = 0


class Convert(Kernel):
    """A conversion between any two formats."""

    def prepare(self, node: KernelNode) -> None:
        (x,), (out,) = node.inputs, node.outputs
        self.call = partial(_converted, x.format, out.format, x.shape[1])


def _converted(
    source: str | None, target: str | None, channels: int, x: Array, *, out: Array
) -> None:
    convert(x, out, source, target, channels)


def arrange(entry: KernelEntry) -> Iterator[KernelEntry]:
    """The kernels in other formats of one of row-major images, a user's as well. Kernels that are
    classes read row-major memory, unless they say a function for any."""
    own = entry.provider == BUILTIN and entry.device == "cpu" and entry.view is None
    if not own or entry.signature.arranged or str(entry.signature)[0] not in FLOAT:
        return
    by_class = isinstance(entry.body, type)
    plain: Any = getattr(entry.body, "anywhere", None) if by_class else entry.body
    if plain is not None:
        body = type(f"{entry.name}Arranged", (Arranged,), {"plain": staticmethod(plain)})
        for format in OTHERS:
            signature = parse(image_attr(entry.name, entry.signature, format))
            yield replace(
                entry, signature=signature, body=body, inplace=(), total=False, derived=True
            )


arrangements.append(arrange)
for _entry in [entry for entries in table.values() for entry in entries]:
    register_arranged(_entry)

kernel("Convert", "cpu", *same(1, ANY))(Convert)
