"""Arrays of others: memory that a tensor of ours and one of another framework share.

In order: packages that may be missing; tensors and parameters around arrays; arrays of a parameter.
"""

from __future__ import annotations

import importlib
from typing import Any

import numpy as np

from ..core.abstract import Kind
from ..core.dtype import bfloat16, canonical
from ..core.errors import MinimlError
from ..core.parameter import Parameter
from ..core.tensor import Array, Tensor

_PIP = {"torch": "torch", "jax": "jax", "sklearn": "scikit-learn"}


def package(name: str, who: str) -> Any:
    """The module of a package; MinimlError where it is not installed. who: what needs it."""
    try:
        return importlib.import_module(name)
    except ImportError:
        pip = _PIP.get(name, name)
        raise MinimlError(
            f"{who} needs the package {pip}, which is not installed; pip install {pip}"
        ) from None


def around(array: Array) -> Tensor:
    """A Tensor around an array of the CPU, whatever its strides; nothing is copied.

    The array is a view that nobody else has: it becomes read-only, what it looks at does not.
    """
    return Tensor.of_kind(array, Kind.of(Tensor, array.shape, array.dtype, "cpu"))


def shared_parameter(array: Array, name: str, requires_grad: bool = True) -> Parameter:
    """A Parameter whose buffer is this array: writes of either side are seen by both.

    MinimlError for an array that cannot be written to.
    """
    if not array.flags.writeable:
        raise MinimlError(f"Parameter {name!r} needs memory that it may write to; give a copy")
    made = object.__new__(Parameter)
    made._data = array
    made._kind = Kind.of(Parameter, array.shape, canonical(array.dtype), "cpu")
    made.name, made.requires_grad = name, requires_grad
    made._seal()
    return made


def memory_of(parameter: Parameter) -> Array:
    """The buffer of a Parameter on the CPU, to which its writes go; MinimlError elsewhere."""
    if parameter.device != "cpu":
        raise MinimlError(
            f"Parameter {parameter.name!r} is on {parameter.device}; only memory of the CPU is "
            "shared: bring the network there with net.to('cpu')"
        )
    buffer: Array = parameter._buffer
    return buffer


def as_bits(array: Array) -> tuple[Array, bool]:
    """The array, bfloat16 as int16, which every package knows; and whether it was."""
    narrow = array.dtype == bfloat16
    return (array.view(np.int16) if narrow else array), narrow
