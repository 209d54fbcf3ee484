"""Interop: primitives, functions and networks in PyTorch, JAX, SciPy and scikit-learn, and theirs
here.

`pytorch` and `jax` are imported when first asked for, and say so where their package is missing;
`scipy` and `estimators` likewise. `operator` has what both share, `foreign` the arrays. `custom`
and `formula` make primitives of functions in Python and C, and of the text of one element.
"""

from __future__ import annotations

import importlib
import sys
from importlib.util import find_spec
from typing import TYPE_CHECKING

from ..core.hints import unknown

if TYPE_CHECKING:
    from .estimators import Classifier as Classifier
    from .estimators import Regressor as Regressor
    from .jax import from_jax as from_jax
    from .jax import to_jax as to_jax
    from .pytorch import to_torch as to_torch
    from .scipy import to_scipy as to_scipy
    from .torch_functions import from_torch as from_torch
    from .torch_functions import import_torch as import_torch

_OF = {
    "to_torch": "pytorch", "from_torch": "torch_functions", "import_torch": "torch_functions",
    "to_jax": "jax", "from_jax": "jax", "to_scipy": "scipy",
    "Classifier": "estimators", "Regressor": "estimators",
}  # fmt: skip
_NEEDS = {"pytorch": "torch", "torch_functions": "torch", "jax": "jax", "estimators": "sklearn"}
# What `import *` takes: names whose package is installed. The others say what is missing.
__all__ = [n for n, module in _OF.items() if find_spec(_NEEDS.get(module, "numpy")) is not None]


def __dir__() -> list[str]:
    return sorted(_OF)


if not TYPE_CHECKING:

    def __getattr__(name: str) -> object:
        if name not in _OF:
            raise unknown(__name__, name, sys.modules[__name__])
        found = getattr(importlib.import_module(f"{__name__}.{_OF[name]}"), name)
        return globals().setdefault(name, found)
