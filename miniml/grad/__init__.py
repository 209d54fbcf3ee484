"""How gradients pass: reverse mode over recorded graphs, the rules, and the transforms."""

import sys
from types import ModuleType
from typing import NoReturn

from ..bprop import bprop_getters as bprop_getters
from ..ops.control import stop_gradient as stop_gradient
from . import rules as rules
from .custom import custom_bprop as custom_bprop
from .operation import GradOperation as GradOperation
from .transforms import grad as grad
from .transforms import hessian as hessian
from .transforms import hvp as hvp
from .transforms import jacobian as jacobian
from .transforms import jvp as jvp
from .transforms import value_and_grad as value_and_grad
from .transforms import vjp as vjp

__all__ = [
    "GradOperation", "bprop_getters", "custom_bprop", "grad", "hessian", "hvp", "jacobian", "jvp",
    "stop_gradient", "value_and_grad", "vjp",
]  # fmt: skip


def __dir__() -> list[str]:
    return list(__all__)


class _Package(ModuleType):
    def __call__(self, *args: object, **options: object) -> NoReturn:
        raise TypeError(
            "miniml.grad is the package; the function is in it: miniml.grad.grad(f), or "
            "from miniml.grad import grad"
        )


sys.modules[__name__].__class__ = _Package
