"""The inputs and outputs of primitives that are images, for kernels of other memory formats."""

from __future__ import annotations

from ..core.abstract import PLAIN
from .kernel import Formats, KernelNode
from .signature import KernelAttr, Signature

Image = tuple[bool, ...]
Ports = tuple[Image, Image]  # of the inputs, and of the outputs

CONVOLUTIONS: dict[str, Ports] = {
    "Conv2D": ((True, False), (True,)),
    "Conv2DInputGrad": ((True, False), (True,)),
    "Conv2DWeightGrad": ((True, True), (False,)),
}
POOLINGS: dict[str, Ports] = {
    "MaxPool2D": ((True,), (True, True)),
    "MaxPool2DGrad": ((True, True), (True,)),
    "MaxPool2DGather": ((True, True), (True,)),
    "AvgPool2D": ((True,), (True,)),
    "AvgPool2DGrad": ((True,), (True,)),
}
OTHERS: dict[str, Ports] = {
    "BatchNorm": ((True, False, False), (True, False, False)),
    **dict.fromkeys(("Sum", "SumTo", "Mean", "Max", "Min"), ((True,), (False,))),
}
IMAGES = CONVOLUTIONS | POOLINGS | OTHERS


def arranged(name: str, format: str, first: str | None = None) -> tuple[Formats, Formats]:
    """The formats of inputs and outputs: `format` for images, row-major order for the rest; first:
    the format of the first input, if it is another."""
    takes, gives = ([format if image else PLAIN for image in part] for part in IMAGES[name])
    takes[0] = first or takes[0]
    return tuple(takes), tuple(gives)


def given(node: KernelNode) -> str:
    """The format of the first input image that is not row-major, else row-major order."""
    pairs = zip(node.inputs, IMAGES[node.name][0], strict=True)
    return next((s.format for s, image in pairs if image and s.format), PLAIN)


def declared(name: str, signature: Signature, format: str, first: str | None = None) -> KernelAttr:
    """The signature on images in that format; first: as for `arranged`."""
    attr, (takes, gives) = KernelAttr(), arranged(name, format, first)
    for dtype, at in zip(signature.inputs, takes, strict=True):
        attr.add_input_attr(dtype, at)
    for dtype, at in zip(signature.outputs, gives, strict=True):
        attr.add_output_attr(dtype, at)
    return attr
