"""The C types in which elements are stored, computed and summed."""

from __future__ import annotations

from ...dtype import (
    DType,
    bool_,
    float32,
    float64,
    int8,
    int16,
    int32,
    int64,
    uint8,
    uint16,
    uint32,
    uint64,
)

# Each compiler has its own names for the floats of 16 bits.
C_TYPES: dict[DType, str] = {
    bool_: "bool", int8: "signed char", int16: "short", int32: "int", int64: "long long",
    uint8: "unsigned char", uint16: "unsigned short", uint32: "unsigned int",
    uint64: "unsigned long long", float32: "float", float64: "double",
}  # fmt: skip


def computed(dtype: DType) -> DType:
    """The dtype in which single elements are computed: float32 for floats of 16 bits."""
    return float32 if dtype.itemsize == 2 and dtype.kind not in "iu" else dtype


def accumulation(dtype: DType) -> DType:
    """The dtype in which sums and products of many elements are taken; integers wrap around."""
    return uint64 if dtype.kind in "biu" else computed(dtype)


def unsigned(dtype: DType) -> DType:
    """The dtype in which integers wrap around without undefined behaviour; else `computed`.

    At least 32 bits: C would promote narrower ones to int, which may overflow.
    """
    if dtype.kind not in "iub":
        return computed(dtype)
    return uint64 if dtype.itemsize == 8 else uint32


def ends(dtype: DType) -> tuple[str, str]:
    """The least and the greatest number of a dtype, in C."""
    if dtype.kind == "b":
        return "false", "true"
    if dtype.kind not in "iu":
        return "-INFINITY", "INFINITY"
    c, bits = C_TYPES[dtype], 8 * dtype.itemsize
    if dtype.kind == "u":
        return f"({c})0", f"({c})~({c})0"
    top = f"({c})0x{2 ** (bits - 1) - 1:x}LL"
    return f"({c})(-{top} - 1)", top
