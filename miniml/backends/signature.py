"""The spelling of kernel signatures: as "ff->f", or entry by entry in a KernelAttr.

First the two spellings; then NumPy's type codes by kind, and the signatures made of them for
kernels of every device.
"""

from __future__ import annotations

from functools import cache

from ..core.abstract import (
    DType,
    Entries,
    Signature,
    as_dtype,
    bfloat16,
    from_type_code,
    known,
    unknown,
)
from ..core.errors import DeclarationError, DTypeError


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
