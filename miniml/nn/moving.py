"""Parameters on another device, or of another dtype."""

from __future__ import annotations

from typing import Any

from ..dtype import ALL, DType, as_dtype, is_float
from ..errors import DTypeError
from ..parameter import Parameter
from ..settings import device_name


def move(network: Any, target: object) -> None:
    """Replace the parameters that are not on the device, or the floats of another dtype."""
    device = None if _is_dtype(target) else device_name(str(target))
    dtype = None if device else _float_dtype(target)
    moved: dict[int, Parameter] = {}
    for cell in network.cells():
        for name, old in list(vars(cell).items()):
            if isinstance(old, Parameter) and _differs(old, device, dtype):
                if id(old) not in moved:
                    data = old.asnumpy().astype(dtype) if dtype else old
                    where = device or old.device
                    moved[id(old)] = Parameter(data, old.name, old.requires_grad, where)
                setattr(cell, name, moved[id(old)])


def _is_dtype(target: object) -> bool:
    """False for the name of a device, or what nobody knows."""
    return not isinstance(target, str) or target in {dtype.name for dtype in ALL}


def _differs(old: Parameter, device: str | None, dtype: DType | None) -> bool:
    return old.device != device if device else is_float(old.dtype) and old.dtype != dtype


def _float_dtype(target: object) -> DType:
    dtype = as_dtype(target)
    if is_float(dtype):
        return dtype
    raise DTypeError(
        f"net.to got {dtype.name}; parameters are floats: give ml.float32 or another float"
    )
