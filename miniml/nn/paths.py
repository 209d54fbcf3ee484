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
    below = list(network._walk("", set()))
    if len(below) == 1:
        return type(cell).__name__ if cell is network else ""
    paths = [prefix[:-1] for prefix, inner in below if inner is cell and prefix]
    return f"layer {paths[0]} ({type(cell).__name__})" if paths else ""
