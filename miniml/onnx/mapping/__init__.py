"""The rows of the ONNX operators, each a function that calls `ops`, in the module of its family;
a class of primitives names the operator that it is itself."""

from ...core import load
from ...core.primitive import definition_checks, primitives
from ..operators import register_class

for _primitive in list(primitives.values()):
    register_class(_primitive)
definition_checks.append(register_class)
load(__name__, __path__)
from . import quantized as quantized  # noqa: E402 - its rows call those of the families
