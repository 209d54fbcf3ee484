"""C texts of kernels for several sizes: the numbers in which they differ become arguments.

The programs of one function for other sizes have, kernel by kernel, texts that differ in numbers
alone: extents, strides, counts of parts. The first programs hold all of them as constants, which
compilers turn into the fastest code. From then on a kernel has a text with variables in place of
the numbers that differed, whose values lie in an array beside its operands; so that further sizes
find it compiled.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import lru_cache
from hashlib import sha256
from typing import NamedTuple

import numpy as np

from ...core.scope import Block, Scoped
from ..kernel import Array
from .native import NativeKernel
from .units import KERNEL, NUMBERED, Source

Numbers = tuple[str, ...]


class Form(NamedTuple):
    """A kernel's text without its numbers, and these. counts: the positions of counts of parts,
    which change at some sizes only. key: equal for equal forms."""

    between: tuple[str, ...]
    numbers: Numbers
    counts: frozenset[int]
    key: str


# Where C asks for constants they stay. Texts write sizes with the suffix L.
_SIZE, _FLOAT = r"\d+L", r"0x[\da-f.]+p[+-]?\d+f?|\d+\.\d*f?"
_NUMBER = re.compile(
    rf"^(?:static const|typedef|enum|#if|#pragma) .*|(?<![\w.])({_SIZE}|{_FLOAT})(?![\w.])",
    re.MULTILINE,
)
_COUNT = re.compile(r"(?:#define \w+_(?:PARTS|BLOCKS|SLICES|SPLITS)|at,|first \+|part \*) $")


@lru_cache(maxsize=1024)
def form(source: Source) -> Form:
    """The form of a kernel's text."""
    found = [m for m in _NUMBER.finditer(source.text) if m[1]]
    ends = [0, *(m.end() for m in found)]
    begins = [*(m.start() for m in found), len(source.text)]
    between = tuple(source.text[end:begin] for end, begin in zip(ends, begins))
    counts = frozenset(i for i, text in enumerate(between) if _COUNT.search(text))
    whole = "\0".join((*source.without, *source.shared, *between))
    key = sha256(whole.encode()).hexdigest()
    return Form(between, tuple(m[1] for m in found), counts, key)


class Texts:
    """The kernels in C of a function's programs, one program after another.

    exact: sizes for which kernels hold all their numbers as constants.
    """

    def __init__(self, exact: int):
        self.exact = exact
        self.sizes: dict[object, None] = {}  # of the programs
        self._programs: list[dict[str, list[Numbers]]] = []  # of the kernels of each form, in order

    def program(self, size: object) -> Block[Texts]:
        """A block in which one more program is made, for arguments of some size."""
        return _texts.use(lambda: self._begun(size))

    def _begun(self, size: object) -> Texts:
        self.sizes[size] = None
        self._programs.append({})
        return self

    def likes(self, source: Source) -> list[Numbers]:
        """The numbers of the kernel in each program that is the same in other sizes; those of
        `source`, the next of the last program, at the end."""
        *before, now = self._programs
        key, numbers = form(source).key, form(source).numbers
        index = len(now.setdefault(key, []))
        now[key].append(numbers)
        return [*(p[key][index] for p in before if len(p.get(key, ())) > index), numbers]


_texts: Scoped[Texts] = Scoped("miniml_texts")


def share_texts(kernels: Sequence[NativeKernel]) -> None:
    """Give kernels the texts of those that programs for other sizes have in their places; they are
    in the order of their program's nodes."""
    texts = _texts.get()
    if texts is None:
        return
    likes = {k: texts.likes(k.source) for k in kernels if k.source is not None}
    if len(texts.sizes) <= texts.exact:
        return
    columns = {k: [*zip(*(_plain(row) for row in rows))] for k, rows in likes.items()}
    differing = {c[-1] for of in columns.values() for c in of if len({*c}) > 1}
    common = {number for number in differing if number.isdigit() and int(number) > _FEW}
    for kernel, of in columns.items():
        # What a kernel without likes has in common with others is taken to vary as it does there.
        alone = len(likes[kernel]) == 1
        vary = [len({*c}) > 1 or (alone and c[0] in common) for c in of]
        assert kernel.source is not None
        if any(vary) and NUMBERED.search(kernel.source.text):
            counts = form(kernel.source).counts
            keys = [
                (str(i), c[-1]) if i in counts else c if vary[i] else () for i, c in enumerate(of)
            ]
            kernel.take_numbers(*general(kernel.source, keys, kernel.slots))


_FEW = 16  # numbers up to which a kernel for them alone may be much faster


def _plain(numbers: Numbers) -> Numbers:
    return tuple(number.rstrip("L") for number in numbers)


def general(source: Source, keys: Sequence[Numbers], slot: int) -> tuple[Source, Array]:
    """The text with variables in place of numbers, and the array of their values, at[slot].

    keys: for each number those of all kernels of the form, its own at the end, and () for one that
    stays a constant; numbers with equal keys have one variable.
    """
    found, text = form(source), ""
    names: dict[Numbers, str] = {}
    for before, number, key in zip(found.between, found.numbers, keys):
        text += before + (names.setdefault(key, f"{KERNEL}_{len(names)}") if key else number)
    numbers = [key[-1] for key in names]
    declared = [*_declared(numbers, slot)]
    text = NUMBERED.sub(lambda m: "".join(declared).replace("AT", m[1]), text + found.between[-1])
    values = np.array([*map(_bits, numbers)], np.int64)
    return source._replace(text=f"#define {KERNEL}_VARIES\n{text}"), values


def _declared(numbers: Sequence[str], slot: int) -> Iterator[str]:
    """The variables that hold the numbers."""
    for i, number in enumerate(numbers):
        c = "long" if number.isdigit() else "float" if number[-1] == "f" else "double"
        array = "int64_t" if c == "long" else "double"
        yield f"  const {c} {KERNEL}_{i} = ((const {array} *)(AT)[{slot}])[{i}];\n"


def _bits(number: str) -> int:
    """The eight bytes of a number, as those of an integer."""
    if number.isdigit():
        return int(number)
    value = number.removesuffix("f")
    parsed = float.fromhex(value) if value.startswith("0x") else float(value)
    return int(np.float64(parsed).view(np.int64))
