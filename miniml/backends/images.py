"""The inputs and outputs of primitives that are images, for kernels of other memory formats."""

from __future__ import annotations

from ..core.abstract import PLAIN
from .kernel import Formats, KernelNode
from .registry import specs
from .signature import KernelAttr, Signature


def _ports(name: str) -> tuple[tuple[bool, ...], tuple[bool, ...]]:
    """For each input and each output, whether it is an image."""
    spec = specs[name]
    takes, gives = spec.inputs or (), spec.outputs or ()
    return tuple(n in spec.images for n in takes), tuple(n in spec.images for n in gives)


def arranged(name: str, format: str, first: str | None = None) -> tuple[Formats, Formats]:
    """The formats of inputs and outputs: `format` for images, row-major order for the rest; first:
    the format of the first input, if it is another."""
    takes, gives = ([format if image else PLAIN for image in part] for part in _ports(name))
    takes[0] = first or takes[0]
    return tuple(takes), tuple(gives)


def given(node: KernelNode) -> str:
    """The format of the first input image that is not row-major, else row-major order."""
    pairs = zip(node.inputs, _ports(node.name)[0], strict=True)
    return next((s.format for s, image in pairs if image and s.format), PLAIN)


def declared(name: str, signature: Signature, format: str, first: str | None = None) -> KernelAttr:
    """The signature on images in that format; first: as for `arranged`."""
    attr, (takes, gives) = KernelAttr(), arranged(name, format, first)
    for dtype, at in zip(signature.inputs, takes, strict=True):
        attr.add_input_attr(dtype, at)
    for dtype, at in zip(signature.outputs, gives, strict=True):
        attr.add_output_attr(dtype, at)
    return attr
