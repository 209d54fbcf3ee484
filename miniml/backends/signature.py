"""Kernel signatures: the dtypes of inputs and outputs, as "ff->f" or spelt out in a KernelAttr.

First the specification of an array, signatures and their parser; then NumPy's type codes by kind,
and the signatures made of them for kernels of every device.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cache
from math import prod
from typing import NamedTuple, TypeVar

from ..core.abstract import (
    PLAIN,
    DType,
    as_dtype,
    bfloat16,
    from_type_code,
    known,
    stored,
    type_code,
    unknown,
)
from ..core.errors import DeclarationError, DTypeError


class ArraySpec(NamedTuple):
    """Shape and dtype of one input or output of a node, as kernels see it.

    format: the memory format of images (N, C, H, W); None, as for most primitives always, is
    row-major order. The shape is that of the images; that of the array is `stored`.
    """

    shape: tuple[int, ...]
    dtype: DType
    format: str | None = None

    @property
    def stored(self) -> tuple[int, ...]:
        """The shape of the array."""
        return stored(self.shape, self.format)

    @property
    def size(self) -> int:
        """The number of elements of the array, as launch rules need it."""
        return prod(self.stored)

    @property
    def nbytes(self) -> int:
        """The bytes of the array."""
        return self.size * self.dtype.itemsize


Entries = tuple[DType | None, ...]
Formats = tuple[str | None, ...]
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Signature:
    """Dtypes of inputs and outputs; a repeated last entry stands for any number of them.

    None stands for any dtype, as in the kernels that run other graphs; it is spelt '.'. arranged:
    it names a memory format other than row-major order.
    """

    inputs: tuple[DType | None, ...]
    outputs: tuple[DType | None, ...]
    repeats_input: bool = False
    repeats_output: bool = False
    input_formats: tuple[str | None, ...] = ()
    output_formats: tuple[str | None, ...] = ()
    any_dtype: bool = field(init=False)
    arranged: bool = field(init=False)

    def __post_init__(self) -> None:
        # Not `None in`: to NumPy, float64 == None. So this is part of equality, too.
        free = any(d is None for d in (*self.inputs, *self.outputs))
        named = any(f not in (None, PLAIN) for f in (*self.input_formats, *self.output_formats))
        object.__setattr__(self, "any_dtype", free)
        object.__setattr__(self, "arranged", named)

    def arrangement(self, inputs: int, outputs: int) -> tuple[Formats, Formats]:
        """The memory formats of that many inputs and outputs."""
        takes = self.input_formats or (None,) * len(self.inputs)
        gives = self.output_formats or (None,) * len(self.outputs)
        return (
            _expand(takes, self.repeats_input, inputs),
            _expand(gives, self.repeats_output, outputs),
        )

    def accepts(self, dtypes: tuple[DType, ...]) -> bool:
        """True when inputs of exactly these dtypes fit."""
        return _fits(_expand(self.inputs, self.repeats_input, len(dtypes)), dtypes)

    def gives(self, dtypes: tuple[DType, ...]) -> bool:
        """True when the outputs have exactly these dtypes."""
        return _fits(_expand(self.outputs, self.repeats_output, len(dtypes)), dtypes)

    def expanded(self, inputs: int, outputs: int) -> tuple[tuple[DType, ...], tuple[DType, ...]]:
        """The dtypes of that many inputs and outputs; DeclarationError if they may be any."""
        if self.any_dtype:
            raise DeclarationError(
                "a signature with '.' names no dtype, so nothing can be cast to it"
            )
        takes = _expand(self.inputs, self.repeats_input, inputs)
        gives = _expand(self.outputs, self.repeats_output, outputs)
        return takes, gives  # type: ignore[return-value]

    def __str__(self) -> str:
        ins = "".join(map(_spelling, self.inputs)) + "*" * self.repeats_input
        spelt = f"{ins}->{''.join(map(_spelling, self.outputs))}{'*' * self.repeats_output}"
        if not self.arranged:
            return spelt
        every = self.arrangement(len(self.inputs), len(self.outputs))
        takes, gives = (",".join(f or PLAIN for f in formats) for formats in every)
        return f"{spelt} {takes}->{gives}"


def _expand(entries: tuple[T, ...], repeats: bool, count: int) -> tuple[T, ...]:
    if not repeats:
        return entries
    return entries[:-1] + entries[-1:] * max(0, count - len(entries) + 1)


def _fits(entries: Entries, dtypes: tuple[DType, ...]) -> bool:
    return len(entries) == len(dtypes) and all(
        e is None or e == d for e, d in zip(entries, dtypes, strict=True)
    )


def _spelling(dtype: DType | None) -> str:
    return "." if dtype is None else type_code(dtype)


class KernelAttr:
    """A signature built entry by entry, in the order of the primitive's tensor inputs.

    >>> str(KernelAttr().add_input_attr("float32").add_output_attr("float32").signature)
    'f->f'
    """

    def __init__(self) -> None:
        self._inputs: list[tuple[DType, str | None]] = []
        self._outputs: list[tuple[DType, str | None]] = []
        self._all_same = False

    def add_input_attr(self, dtype: object, format: str | None = None) -> KernelAttr:
        """Append one input of `dtype`; of images, the kernel gets the array in memory format
        `format` ("NHWC") if one is given. Returns the KernelAttr."""
        self._inputs.append((as_dtype(dtype), _format(format)))
        return self

    def add_output_attr(self, dtype: object, format: str | None = None) -> KernelAttr:
        """Append one output of `dtype`, likewise; returns the KernelAttr."""
        self._outputs.append((as_dtype(dtype), _format(format)))
        return self

    def add_all_same_attr(self, all_same: bool = True) -> KernelAttr:
        """Let the last input stand for any number of its dtype; returns the KernelAttr."""
        self._all_same = all_same
        return self

    @property
    def signature(self) -> Signature:
        """The finished signature; DeclarationError if it has no output."""
        if not self._outputs:
            raise DeclarationError("KernelAttr has no output; call add_output_attr")
        return Signature(
            tuple(d for d, _ in self._inputs),
            tuple(d for d, _ in self._outputs),
            self._all_same,
            False,
            _formats(self._inputs),
            _formats(self._outputs),
        )


def _format(name: str | None) -> str | None:
    if name in (None, "DefaultFormat"):
        return None
    if not known(name):
        raise DeclarationError(f"KernelAttr: {unknown(name)}")
    return name


def _formats(arrays: list[tuple[DType, str | None]]) -> tuple[str | None, ...]:
    """The memory formats; () if none is required, as in a signature given as a string."""
    return tuple(f for _, f in arrays) if any(f for _, f in arrays) else ()


def parse(spec: str | KernelAttr | Signature) -> Signature:
    """The Signature of "?ff->f", "f*->f", "f->f*", "?.*->.*" or of a KernelAttr."""
    if isinstance(spec, Signature):
        return spec
    return spec.signature if isinstance(spec, KernelAttr) else _parsed(spec)


@cache
def _parsed(spec: str) -> Signature:
    head, arrow, tail = spec.partition("->")
    if not arrow or not tail:
        raise DeclarationError(f"signature {spec!r} has no '->' with outputs behind it, as 'ff->f'")
    try:
        inputs, repeats_input = _codes(head)
        outputs, repeats_output = _codes(tail)
    except (DeclarationError, DTypeError) as error:
        raise DeclarationError(f"signature {spec!r}: {error}") from None
    return Signature(inputs, outputs, repeats_input, repeats_output)


def _codes(text: str) -> tuple[Entries, bool]:
    repeats = text.endswith("*")
    codes = text[:-1] if repeats else text
    if "*" in codes or (repeats and not codes):
        raise DeclarationError("'*' may be used once, after the last type code")
    return tuple(None if c == "." else from_type_code(c) for c in codes), repeats


# --- Type codes and signatures made of them -------------------------------------------------------


BF16 = bfloat16.char
LOW = "e" + BF16  # stored in 16 bits; computed in float32 where accuracy requires it
WIDE = "fd"
FLOAT = LOW + WIDE
SIGNED = "bhil"
UNSIGNED = "BHIL"
INT = SIGNED + UNSIGNED
NUMBER = INT + FLOAT
ANY = "?" + NUMBER
COMPLEX = "FD"  # NumPy's kernels alone compute with these
HELD = ANY + COMPLEX  # what a kernel may take that only moves its elements
WHOLE = [f"{c}->{'L' if c.isupper() else 'l'}" for c in "?" + INT]  # sums have 64 bits


def same(arity: int, codes: str, out: str = "") -> list[str]:
    """Signatures with `arity` equal inputs and an output of the same dtype, or of dtype `out`."""
    return [f"{c * arity}->{out or c}" for c in codes]


def pairs(codes: str) -> list[str]:
    """Signatures with two inputs of any of these dtypes, and an output like the first."""
    return [f"{x}{y}->{x}" for x in codes for y in codes]


def with_sums(codes: str, *patterns: str) -> list[str]:
    """Each pattern with every code for x, and for s the code of sums: "f" for floats of 16 bits."""
    return [p.replace("s", "f" if c in LOW else c).replace("x", c) for p in patterns for c in codes]


# Patterns of attention and its gradients, with masks of bools and of floats.
ATTENTION = "xxx?L->xs", "xxxxL->xs"
ATTENTION_GRAD = "xxx?Lssx->xxx", "xxxxLssx->xxx"
ATTENTION_MASK_GRAD = ("xxxxLssx->x",)
