"""DLPack, the protocol by which libraries lend each other memory: all arrays of others come in by
`imported` and go out by `exported`, on the CPU as NumPy's, on a GPU as cupy's.

NumPy knows no bfloat16, nor does every cupy. Memory of bfloat16 passes them as int16, and the
capsule, a struct around a pointer, is told the type.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

import numpy as np

from ..backends.selection import get_device
from ..core.abstract import bfloat16, canonical
from ..core.errors import DeviceError, DTypeError, MinimlError, ValueRefusedError

Array = np.ndarray[Any, Any]

# Bytes before the DLDataType (code, bits, lanes) of the struct that a capsule of this name holds:
# after data, device and ndim; a versioned one has version, context, deleter and flags in front.
_OFFSETS = {b"dltensor": 20, b"dltensor_versioned": 52}
_INT, _BFLOAT = 0, 4  # codes of DLDataType
# Kinds of DLDevice: pinned memory is memory of the CPU too, managed memory also of the GPU.
_CPU, _HOSTS, _GPUS = 1, (1, 3), (2, 13)

_name_of = ctypes.pythonapi.PyCapsule_GetName
_name_of.restype, _name_of.argtypes = ctypes.c_char_p, [ctypes.py_object]
_pointer_of = ctypes.pythonapi.PyCapsule_GetPointer
_pointer_of.restype, _pointer_of.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]


def exported(array: Any, options: dict[str, Any]) -> Any:
    """The capsule of an array; of a GPU's, in row-major order. options: what the consumer gave to
    `__dlpack__`."""
    narrow = array.dtype == bfloat16
    if isinstance(array, np.ndarray):
        capsule = (array.view(np.int16) if narrow else array).__dlpack__(**options)
    else:
        copied = array.copy() if options.get("copy") else array.device.contiguous(array)
        capsule = array.device.lent(copied).__dlpack__(**options | {"copy": None})
    if narrow:
        _type_of(capsule)[0] = _BFLOAT
    return capsule


class Lender:
    """An array of the CPU or of a GPU, for the `from_dlpack` of others."""

    def __init__(self, array: Any):
        self.array = array

    def __dlpack__(self, **options: Any) -> Any:
        return exported(self.array, options)

    def __dlpack_device__(self) -> tuple[int, int]:
        return device_of(self.array)


def device_of(array: Any) -> tuple[int, int]:
    """The kind and number of an array's device, in DLPack's numbers."""
    owner = array if isinstance(array, np.ndarray) else array.device.lent(array)
    found: tuple[int, int] = owner.__dlpack_device__()
    return found


def imported(producer: Any, copy: bool | None = None, move: bool = False) -> Any:
    """The memory of an object with `__dlpack__` as an array, which keeps it alive: of NumPy, in any
    strides, or of the device "cuda" for memory of the GPU that cupy uses.

    copy: True for memory of its own, False to refuse where there would be a copy. move: bring
    memory of another device than the CPU there, where the producer can; DeviceError for memory of
    a device that is not here. DTypeError where the producer refuses, and for a dtype that NumPy
    does not know. ValueRefusedError: copy=False, and the kernels of a GPU need a copy.
    """
    if isinstance(producer, (np.ndarray, np.generic)):
        return _of_numpy(np.asarray(producer), copy)
    kind, number = (int(n) for n in producer.__dlpack_device__())
    if kind in _HOSTS:
        return _taken(producer, kind, lambda lent: np.from_dlpack(lent, copy=copy))
    if move:
        return _taken(producer, kind, lambda lent: np.from_dlpack(lent, copy=copy, device="cpu"))
    return _taken(producer, kind, lambda lent: _on_gpu(lent, kind, number, copy))


def _of_numpy(array: Array, copy: bool | None) -> Array:
    """A view of the array, or a copy; NumPy's own DLPack refuses bfloat16 and odd strides."""
    canonical(array.dtype)
    if array.dtype.isnative:
        return array.copy() if copy else array.view()
    if copy is False:
        raise ValueRefusedError(
            f"from_dlpack with copy=False refuses {array.dtype}, of another byte order"
        )
    return array.astype(canonical(array.dtype))


def _on_gpu(lent: Lent, kind: int, number: int, copy: bool | None) -> Any:
    where = f"from_dlpack got memory of device ({kind}, {number}) in DLPack's numbers"
    advice = "give device='cpu' to have it copied to the CPU, where the other library can do that"
    if kind not in _GPUS:
        raise DeviceError(f"{where}; {advice}")
    try:
        device: Any = get_device("cuda")
    except DeviceError as error:
        raise DeviceError(f"{where}, and {error}; {advice}") from None
    if number != device.number:
        raise DeviceError(
            f"{where}; miniml computes on GPU {device.number}, which is cupy's current one: move "
            "it there, or work inside `with cupy.cuda.Device(...)`"
        )
    array, copied = device.borrowed(lent, copy is True)
    if copied and copy is False:
        raise ValueRefusedError(
            f"{where}, in an order or at an address that kernels cannot read without a copy; "
            "leave copy out"
        )
    return array


def _taken(producer: Any, kind: int, take: Callable[[Lent], Any]) -> Any:
    lent = Lent(producer)
    try:
        array = take(lent)
    except (BufferError, RuntimeError) as error:
        if isinstance(error, MinimlError):
            raise
        named = f"{type(producer).__module__}.{type(producer).__name__}"
        refusal = DTypeError if kind in _HOSTS else DeviceError
        raise refusal(f"from_dlpack was refused the memory of a {named}: {error}") from error
    return array.view(bfloat16) if lent.narrow and isinstance(array, np.ndarray) else array


class Lent:
    """A producer whose bfloat16 are int16; `narrow` is then True, once the capsule is made."""

    def __init__(self, producer: Any):
        self.producer, self.narrow = producer, False

    def __dlpack__(self, **options: Any) -> Any:
        try:
            capsule = self.producer.__dlpack__(**options)
        except TypeError:  # it speaks the protocol of before 2024: neither versions nor copies
            if options.get("copy") or options.get("dl_device") not in (None, (_CPU, 0)):
                raise
            given = {"stream": options["stream"]} if "stream" in options else {}
            capsule = self.producer.__dlpack__(**given)
        declared = _type_of(capsule)
        if declared[0] == _BFLOAT:
            if declared[1] != 16:
                raise BufferError(f"bfloat of {declared[1]} bits is unknown")
            declared[0], self.narrow = _INT, True
        return capsule

    def __dlpack_device__(self) -> tuple[int, int]:
        found: tuple[int, int] = self.producer.__dlpack_device__()
        return found


def _type_of(capsule: Any) -> Any:
    """The code and the bits of a capsule's DLDataType: two bytes that can be written."""
    name = _name_of(capsule)
    if name not in _OFFSETS:
        raise BufferError(f"a capsule named {name!r} is not one of DLPack, or was taken before")
    return (ctypes.c_uint8 * 2).from_address(_pointer_of(capsule, name) + _OFFSETS[name])
