"""miniml: define a primitive with a gradient, check it, and train small networks with it."""

from .backends import cpu as cpu
from . import grad as grad
from . import ops as ops
from .runtime.eager import EagerTrace
from .trace import install_eager
from .tensor import Parameter as Parameter
from .tensor import Tensor as Tensor

install_eager(EagerTrace())
