"""Arguments of a launch: the values that cupy would pass, checked against the parameters of the
kernel."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from ....errors import LaunchError
from .memory import DeviceAllocation

DType = np.dtype[Any]


@dataclass(frozen=True, slots=True)
class Pointer:
    """An argument in device memory: `nbytes` from `offset` on, elements of `dtype`."""

    allocation: DeviceAllocation
    offset: int
    nbytes: int
    dtype: DType

    @property
    def address(self) -> int:
        """Its address in this process."""
        return self.allocation.address + self.offset


class KernelParameter(NamedTuple):
    """A parameter of a kernel, as sim_entry.h describes it.

    kind: p pointer, b bool, i signed, u unsigned, f floating point, s structure, v void.
    """

    kind: str
    size: int
    pointee_kind: str
    pointee_size: int
    pointee_const: bool

    def __str__(self) -> str:
        if self.kind != "p":
            return _in_words(self.kind, self.size)
        pointee = _in_words(self.pointee_kind, self.pointee_size)
        return f"pointer to {'const ' if self.pointee_const else ''}{pointee}"


def _in_words(kind: str, size: int) -> str:
    if kind == "v":
        return "void"
    if kind == "s":
        return f"a structure of {size} bytes"
    name = {"b": "bool", "i": "int", "u": "uint", "f": "float"}[kind]
    return name if kind == "b" else f"{name}{8 * size}"


class Packed:
    """The arguments of a launch in memory: `slots[i]` is the address of argument i's value."""

    __slots__ = ("slots", "pointers", "_kept")

    def __init__(self, kernel: str, args: Sequence[Any], parameters: Sequence[KernelParameter]):
        if len(args) != len(parameters):
            raise LaunchError(
                f"{kernel} has {len(parameters)} parameters; got {len(args)} arguments"
            )
        self.slots = (ctypes.c_void_p * max(len(args), 1))()
        self.pointers: list[tuple[int, Pointer, KernelParameter]] = []
        self._kept: list[Any] = []
        for i, (argument, parameter) in enumerate(zip(args, parameters, strict=True)):
            if isinstance(argument, Pointer):
                if not _points(argument.dtype, parameter):
                    raise LaunchError(
                        f"argument {i} of {kernel} is {parameter}; got an array of {argument.dtype}"
                    )
                if argument.nbytes:
                    self.pointers.append((i, argument, parameter))
                value: Any = ctypes.c_uint64(argument.address if argument.nbytes else 0)
                self.slots[i] = ctypes.addressof(value)
            else:
                value = _scalar(kernel, i, argument, parameter)
                self.slots[i] = value.ctypes.data
            self._kept.append(value)


@lru_cache(None)
def _points(dtype: DType, parameter: KernelParameter) -> bool:
    """True when a pointer parameter may get an array of that dtype."""
    if parameter.kind != "p":
        return False
    kind, size = parameter.pointee_kind, parameter.pointee_size
    if kind == "v":
        return True
    if kind == "s":  # __half, float4: only its size is known
        return size % dtype.itemsize == 0
    return size == dtype.itemsize and (kind == dtype.kind or (kind == "u" and dtype.kind == "b"))


def _scalar(kernel: str, i: int, argument: Any, parameter: KernelParameter) -> Any:
    """An array of one element; Python's int becomes int64, its float float64, as in cupy."""
    if isinstance(argument, (bool, np.bool_)):
        value = np.array([argument], np.bool_)
    elif isinstance(argument, int):
        value = np.array([argument], np.int64)
    elif isinstance(argument, float):
        value = np.array([argument], np.float64)
    elif isinstance(argument, np.generic):
        value = np.array([argument])
    elif isinstance(argument, np.ndarray):
        if argument.size != 1:
            raise LaunchError(
                f"argument {i} of {kernel} is a NumPy array of {argument.size} elements; "
                "put it into device memory first"
            )
        value = np.ascontiguousarray(argument).reshape(1)
    else:
        raise LaunchError(f"argument {i} of {kernel} cannot be a {type(argument).__name__}")
    if not _takes(value.dtype, parameter, parameter.kind == "p" and value.view(np.uint8).any()):
        raise LaunchError(f"argument {i} of {kernel} is {parameter}; got a value of {value.dtype}")
    return value


@lru_cache(None)
def _takes(dtype: DType, parameter: KernelParameter, address: bool) -> bool:
    """True when a parameter may get the bytes of a scalar; a pointer only gets null."""
    if parameter.kind == "p":
        return dtype.kind in "iu" and dtype.itemsize == parameter.size and not address
    if dtype.itemsize != parameter.size:
        return False
    if parameter.kind == "s":
        return True
    return dtype.kind == parameter.kind or (dtype.kind in "iu" and parameter.kind in "iu")
