"""The core: values, calls and the settings under which they run.

Low to high: `scope`; `abstract`, `errors`; `settings`, `hints`, `access`, `files`;
`trace`, `primitive`, `bprop`; then, above the operations, `tensor`, `parameter`, `infer`. Here
stand the families of operations, whose modules have the same names on all floors.
"""

from __future__ import annotations

from collections.abc import Iterable
from importlib import import_module
from pkgutil import iter_modules

FAMILIES = {  # with their parts, which stand in a module of their own where there is much of them
    "attention": (),
    "control": ("collective",),
    "elementwise": (),
    "images": (),
    "index": (),
    "linalg": ("decomposition", "fourier"),
    "norm": (),
    "random": (),
    "reduce": (),
    "shape": ("create",),
}


def load(package: str, folder: Iterable[str]) -> None:
    """Import the families that have a module in a package: each registers what it has."""
    here = {module.name for module in iter_modules(folder)}
    for family, parts in FAMILIES.items():
        for name in (family, *parts):
            if name in here:
                import_module(f"{package}.{name}")
