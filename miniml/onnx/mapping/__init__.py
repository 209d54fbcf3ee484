"""The rows of the ONNX operators, each a function that calls `ops`, in the module of its family."""

from ...core.families import load

load(__name__, __path__)
