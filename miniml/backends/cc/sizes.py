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


# A number of C's grammar; where C asks for constants they stay. Texts write sizes with the suffix L.
_NUMBER = re.compile(
    r"^(?:static const|typedef|enum|#if|#pragma) .*|(?<![\w.])(\.?[0-9](?:[eEpP][+-]|[\w.])*)",
    re.MULTILINE,
)
_COUNT = re.compile(r"(#define \w+_(PARTS|BLOCKS|SLICES|SPLITS) |\*\)at, |first [+] |part \* )$")
_INTEGER = re.compile(r"\d+L")
_FLOAT = re.compile(r"0x[\da-f.]+p[+-]?\d+f?|\d+\.\d*f?")


@lru_cache(maxsize=1024)
def form(source: Source) -> Form:
    """The form of a kernel's text."""
    between, numbers, counts, begin = [], [], set(), 0
    for found in _NUMBER.finditer(source.text):
        number = found[1]
        if number and (_INTEGER.fullmatch(number) or _FLOAT.fullmatch(number)):
            between.append(source.text[begin : found.start()])
            if _COUNT.search(between[-1]):
                counts.add(len(numbers))
            numbers.append(number)
            begin = found.end()
    between.append(source.text[begin:])
    whole = "\0".join((*source.without, *source.shared, *between))
    return Form(tuple(between), tuple(numbers), frozenset(counts), sha256(whole.encode()).hexdigest())


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
    columns = {k: [*zip(*map(_plain, rows))] for k, rows in likes.items()}
    varying = {c[-1] for of in columns.values() for c in of if len({*c}) > 1 and _large(c[-1])}
    for kernel, of in columns.items():
        alone = len(likes[kernel]) == 1
        keys = [
            (str(i), c[-1]) if i in form(kernel.source).counts
            else c if len({*c}) > 1 or (alone and c[0] in varying) else None
            for i, c in enumerate(of)
        ]
        assert kernel.source is not None
        differ = any(len({*c}) > 1 for c in of) or alone and any(c[0] in varying for c in of)
        if differ and NUMBERED.search(kernel.source.text):
            kernel.take_numbers(*_general(kernel.source, keys, kernel.slots))


def _plain(numbers: Numbers) -> list[str]:
    return [number.rstrip("L") for number in numbers]


_FEW = 16  # numbers up to which a kernel for them alone may be much faster


def _large(number: str) -> bool:
    return number.isdigit() and int(number) > _FEW


def _general(
    source: Source, keys: Sequence[tuple[str, ...] | None], slot: int
) -> tuple[Source, Array]:
    """The text with a variable for each key in place of its numbers, and the array of their values,
    which is at[slot]. A key ends with the value."""
    found, names, text = form(source), {}, ""
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
