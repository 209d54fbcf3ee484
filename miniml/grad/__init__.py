"""Automatic differentiation: reverse mode over recorded calls, gradient rules, and transforms."""

import typing

from ..core import hints
from ..core.bprop import bprop_getters as bprop_getters
from ..ops.elementwise import stop_gradient as stop_gradient
from . import rules as rules
from .batching import batch_rules as batch_rules
from .batching import vmap as vmap
from .forward import jvp_rules as jvp_rules
from .forward import linearize as linearize
from .transforms import *  # noqa: F403

if typing.TYPE_CHECKING:
    from ..compat.classic import GradOperation as GradOperation
else:  # checkers read the imports
    __all__, __dir__, __getattr__ = hints.names(globals())

hints.refuse_calls(
    __name__,
    "is the package; the function is in it: miniml.grad.grad(f), or from miniml.grad import grad",
)
