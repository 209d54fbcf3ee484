"""Which layer of a network an error comes from, by its path: "2", or "body.0"."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from ..errors import AttributeRefusedError
from ..location import name_layer


def note_layer(error: Exception, cell: Any) -> None:
    """Name, in an error that leaves `cell`, the path of the layer that raised it.

    The innermost cell comes first; each one around it, on the way out, puts its longer path.
    """
    inner: Any = error.__dict__.setdefault("_miniml_cell", cell)
    layer = ""
    with suppress(AttributeRefusedError):  # of cells hidden in a list, which is another mistake
        layer = layer_of(inner, cell)
    if layer and not (inner is cell and hasattr(error, "_miniml_layer")):
        name_layer(error, layer)


def layer_of(cell: Any, network: Any) -> str:
    """What to call a layer of a network; "" for what is neither in it nor a layer itself."""
    return layer_names(network).get(id(cell), "")


def layer_names(network: Any) -> dict[int, str]:
    """What to call each layer of a network, by identity: the network alone, if it has none."""
    (_, whole), *below = network._walk("", set())
    if not below:
        return {id(whole): type(whole).__name__}
    return {id(cell): f"layer {path[:-1]} ({type(cell).__name__})" for path, cell in below}
