"""NumPy's type codes by kind, and the signatures of kernels made of them, for every device."""

from .abstract import bfloat16

BF16 = bfloat16.char
LOW = "e" + BF16  # stored in 16 bits; computed in float32 where accuracy requires it
WIDE = "fd"
FLOAT = LOW + WIDE
SIGNED = "bhil"
UNSIGNED = "BHIL"
INT = SIGNED + UNSIGNED
NUMBER = INT + FLOAT
ANY = "?" + NUMBER
COMPLEX = "FD"  # on the CPU alone
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
