"""DLPack, the protocol by which libraries lend each other memory, of NumPy arrays and for them.

NumPy speaks it, but knows no bfloat16. Memory of bfloat16 passes it as int16, and the capsule, a
struct around a pointer, is told the type: `exported` on the way out, `imported` on the way in.
"""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np

from ..core.dtype import bfloat16
from ..core.errors import DeviceError, DTypeError

Array = np.ndarray[Any, Any]

# Bytes before the DLDataType (code, bits, lanes) of the struct that a capsule of this name holds:
# after data, device and ndim; a versioned one has version, context, deleter and flags in front.
_OFFSETS = {b"dltensor": 20, b"dltensor_versioned": 52}
_INT, _BFLOAT = 0, 4  # codes of DLDataType
_CPU, _HOSTS = 1, (1, 3)  # kinds of DLDevice; pinned memory is memory of the CPU too

_name_of = ctypes.pythonapi.PyCapsule_GetName
_name_of.restype, _name_of.argtypes = ctypes.c_char_p, [ctypes.py_object]
_pointer_of = ctypes.pythonapi.PyCapsule_GetPointer
_pointer_of.restype, _pointer_of.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]


def exported(array: Array, options: dict[str, Any]) -> Any:
    """The capsule of an array. options: what the consumer gave to `__dlpack__`."""
    if array.dtype != bfloat16:
        return array.__dlpack__(**options)
    capsule = array.view(np.int16).__dlpack__(**options)
    _type_of(capsule)[0] = _BFLOAT
    return capsule


def imported(producer: Any, copy: bool | None, move: bool) -> Array:
    """The memory of an object with `__dlpack__` as an array; the array keeps it alive.

    copy: True for memory of its own, False to refuse where there would be a copy. move: whether
    the producer may bring the data to the CPU; DeviceError for memory of another device otherwise.
    DTypeError where the producer refuses, and for a dtype that NumPy does not know.
    """
    kind, number = (int(n) for n in producer.__dlpack_device__())
    if kind not in _HOSTS and not move:
        raise DeviceError(
            f"from_dlpack got memory of device ({kind}, {number}) in DLPack's numbers; give "
            "device='cpu' to have it copied to the CPU, where the other library can do that"
        )
    lent = _Lent(producer, kind)
    try:
        array = np.from_dlpack(lent, copy=copy, device=None if kind in _HOSTS else "cpu")
    except (BufferError, RuntimeError) as error:
        named = f"{type(producer).__module__}.{type(producer).__name__}"
        refusal = DTypeError if kind in _HOSTS else DeviceError
        raise refusal(f"from_dlpack was refused the memory of a {named}: {error}") from error
    return array.view(bfloat16) if lent.narrow else array


class _Lent:
    """A producer whose bfloat16 are int16; `narrow` is then True, once the capsule is made."""

    def __init__(self, producer: Any, kind: int):
        self.producer, self.kind, self.narrow = producer, kind, False

    def __dlpack__(self, **options: Any) -> Any:
        try:
            capsule = self.producer.__dlpack__(**options)
        except TypeError:  # it speaks the protocol of before 2024: neither versions nor copies
            if options.get("copy") or options.get("dl_device") not in (None, (_CPU, 0)):
                raise
            capsule = self.producer.__dlpack__()
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
