"""One OpInfo row per primitive, a module per family; ROWS has them all, but for the primitives that
take or give complex numbers alone, which are COMPLEX_ROWS.

A new module here is found by itself: give it `ROWS = (OpInfo(...), ...)`.
"""

from importlib import import_module
from pkgutil import iter_modules

from miniml.testing import OpInfo

from .fourier import COMPLEX_ROWS as COMPLEX_ROWS

MODULES = tuple(
    import_module(f"{__name__}.{name}") for name in sorted(m.name for m in iter_modules(__path__))
)
ROWS: tuple[OpInfo, ...] = tuple(row for module in MODULES for row in module.ROWS)
