"""Why a function is compiled again: what differs from the version compiled before."""

from __future__ import annotations

from typing import Any

from ..abstract import Abstract

_CELL = "a cell changed: its mode, an attribute, or what a list, dict or set among these holds"
_CHANGES = {
    "device": "the tensors are on another device",
    "settings": "the context's settings changed",
    "kernels": "a primitive or kernel was registered",
    "bprops": "a gradient rule was registered",
    "passes": "a pass was registered",
}


def why(before: dict[str, Any], now: dict[str, Any]) -> str:
    """What differs between the keys of two versions of a function, in one sentence."""
    found = []
    if before["tensors"] != now["tensors"]:
        old, new = before["tensors"], now["tensors"]
        if len(old) != len(new):
            found.append(f"{len(old)} tensors became {len(new)}")
        found += [
            f"tensor {i} changed from {Abstract(*a)} to {Abstract(*b)}"
            for i, (a, b) in enumerate(zip(old, new, strict=False))
            if a != b
        ]
    if before["static"] != now["static"]:
        found.append(
            "a static argument (a Python number, string or the tree itself) changed; pass a "
            "Tensor for a number that varies"
        )
    found += [text for name, text in _CHANGES.items() if before[name] != now[name]]
    return "; ".join(found) or _CELL
