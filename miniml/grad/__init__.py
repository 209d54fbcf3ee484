"""How gradients pass: reverse mode over recorded graphs, the rules, and the transforms."""

import typing

from .. import public
from ..bprop import bprop_getters as bprop_getters
from ..ops.control import stop_gradient as stop_gradient
from . import rules as rules
from .custom import custom_bprop as custom_bprop
from .hook import hook_gradient as hook_gradient
from .jacobians import hessian as hessian
from .jacobians import hvp as hvp
from .jacobians import jacobian as jacobian
from .operation import GradOperation as GradOperation
from .transforms import grad as grad
from .transforms import jvp as jvp
from .transforms import value_and_grad as value_and_grad
from .transforms import vjp as vjp

if not typing.TYPE_CHECKING:  # checkers read the imports
    __all__, __dir__, __getattr__ = public.names(globals())

public.refuse_calls(
    __name__,
    "is the package; the function is in it: miniml.grad.grad(f), or from miniml.grad import grad",
)
