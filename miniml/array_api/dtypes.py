"""Dtypes, by the array API standard: what they are called, what they hold, and what is here.

In order: the cast; questions about dtypes; limits of numbers; `__array_namespace_info__`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np

from .. import ops
from ..backends.selection import get_device
from ..core.abstract import (
    ALL,
    COMPLEX,
    FLOATS,
    INTEGERS,
    SIGNED,
    UNSIGNED,
    DType,
    as_dtype,
    bool_,
    complex64,
    float32,
    holds,
    int64,
    is_inexact,
    promote,
    real_dtype,
    scalar_dtype,
)
from ..core.errors import DeviceError, DTypeError, ValueRefusedError
from ..core.settings import current, device_name
from ..core.tensor import Tensor

_KINDS: dict[str, tuple[DType, ...]] = {
    "bool": (bool_,),
    "signed integer": SIGNED,
    "unsigned integer": UNSIGNED,
    "integral": INTEGERS,
    "real floating": FLOATS,
    "complex floating": COMPLEX,
    "numeric": (*INTEGERS, *FLOATS, *COMPLEX),
}


def astype(x: Tensor, dtype: object, /, *, copy: bool = True, device: str | None = None) -> Tensor:
    """x in another dtype, and on another device if one is given.

    copy changes nothing: nobody can write to a tensor, so its values may be shared.
    """
    found = ops.cast(x, dtype)
    return found if device is None else found.to(device)


def can_cast(from_: Any, to: object, /) -> bool:
    """True where the dtype `to` holds every value of `from_`, a dtype or a tensor.

    >>> can_cast("int8", "float32"), can_cast("int32", "float32")
    (True, False)
    """
    return holds(as_dtype(to), _dtype_of(from_))


def isdtype(dtype: object, kind: Any) -> bool:
    """True where a dtype is of a kind: another dtype, one of the words below, or a tuple of them.

    "bool", "signed integer", "unsigned integer", "integral", "real floating" (bfloat16 too),
    "complex floating", "numeric". ValueRefusedError for another word.

    >>> isdtype("bfloat16", ("integral", "real floating"))
    True
    """
    if isinstance(kind, tuple):
        return any(isdtype(dtype, one) for one in kind)
    if isinstance(kind, str):
        if kind not in _KINDS:
            raise ValueRefusedError(
                f"isdtype got kind={kind!r}; expected one of {', '.join(map(repr, _KINDS))}, a "
                "dtype, or a tuple of these"
            )
        return as_dtype(dtype) in _KINDS[kind]
    return as_dtype(dtype) == as_dtype(kind)


def result_type(*arrays_and_dtypes: Any) -> DType:
    """The dtype in which an operation of these tensors, dtypes and Python scalars computes.

    A scalar is weak: it has no dtype of its own beside one of its class or a higher one.

    >>> result_type("float16", 2.0), result_type("int8", "uint8")
    (dtype('float16'), dtype('int16'))
    """
    scalars = [x for x in arrays_and_dtypes if type(x) in (bool, int, float, complex)]
    known = [_dtype_of(x) for x in arrays_and_dtypes if type(x) not in (bool, int, float, complex)]
    if not known:
        raise DTypeError(
            f"result_type got {arrays_and_dtypes!r}; it takes one tensor or dtype at least"
        )
    joined = promote(*known)
    return promote(joined, *[scalar_dtype(x, (joined,)) for x in scalars])


def _dtype_of(x: Any) -> DType:
    return x.dtype if isinstance(x, Tensor) else as_dtype(x)


# --- Limits ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class FloatLimits:
    """Limits of a float; those of the parts for a complex dtype."""

    bits: int
    eps: float
    max: float
    min: float
    smallest_normal: float
    dtype: DType


@dataclass(frozen=True)
class IntegerLimits:
    """Limits of an integer dtype."""

    bits: int
    max: int
    min: int
    dtype: DType


def finfo(type: Any, /) -> FloatLimits:
    """The limits of a float or complex dtype, or of a tensor's.

    >>> finfo("bfloat16").eps
    0.0078125
    """
    dtype = _dtype_of(type)
    if not is_inexact(dtype):
        raise DTypeError(f"finfo got {dtype.name}; it takes a float or complex dtype: use iinfo")
    part = real_dtype(dtype)
    known: Any = ml_dtypes.finfo(part)  # type: ignore[no-untyped-call]
    return FloatLimits(
        part.itemsize * 8,
        float(known.eps),
        float(known.max),
        float(known.min),
        float(known.smallest_normal),
        part,
    )


def iinfo(type: Any, /) -> IntegerLimits:
    """The limits of an integer dtype, or of a tensor's.

    >>> iinfo("uint8").max
    255
    """
    dtype = _dtype_of(type)
    if dtype not in INTEGERS:
        raise DTypeError(f"iinfo got {dtype.name}; it takes an integer dtype")
    known = np.iinfo(dtype)
    return IntegerLimits(known.bits, int(known.max), int(known.min), dtype)


# --- Inspection -----------------------------------------------------------------------------------


class Info:
    """Information on the namespace, as `__array_namespace_info__()` gives it."""

    def capabilities(self) -> dict[str, Any]:
        """Of eager tensors; a graph refuses shapes that depend on values."""
        return {"boolean indexing": True, "data-dependent shapes": True, "max dimensions": 64}

    def default_device(self) -> str:
        """The context's device."""
        return current().device_target

    def default_dtypes(self, *, device: str | None = None) -> dict[str, DType]:
        """The dtypes of Python's numbers, and of what is made without one."""
        _ = None if device is None else device_name(device)
        return {
            "real floating": float32,
            "complex floating": complex64,
            "integral": int64,
            "indexing": int64,
        }

    def dtypes(
        self, *, device: str | None = None, kind: str | tuple[str, ...] | None = None
    ) -> dict[str, DType]:
        """The standard's dtypes of a kind by name: all but float16 and bfloat16, which it lacks."""
        _ = None if device is None else device_name(device)
        named = {"bool": bool_} | {d.name: d for d in ALL if d.name != "bool"}
        beyond = "float16", "bfloat16"
        return {
            name: dtype
            for name, dtype in named.items()
            if name not in beyond and (kind is None or isdtype(dtype, kind))
        }

    def devices(self) -> list[str]:
        """The devices that are present."""
        return [name for name in ("cpu", "cuda", "cuda-sim") if _present(name)]


def _present(device: str) -> bool:
    try:
        get_device(device)
    except DeviceError:
        return False
    return True
