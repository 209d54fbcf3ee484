"""Data sets and their preparation: digits, text as numbers, and splits."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from ..core.errors import MinimlError, OutOfRangeError, ShapeError
from ..core.options import choice, count, integer, number
from ..core.tensor import Array

HELD_OUT = 360


class Digits(NamedTuple):
    """Images (N, 1, 8, 8) float32 of mean 0 and standard deviation 1, labels (N,) int64 from 0
    to 9: a training set and a test set."""

    images: Array
    labels: Array
    test_images: Array
    test_labels: Array


def load_digits(seed: int = 0) -> Digits:
    """The 1,797 handwritten digits, 8 x 8 pixels each, that ship inside scikit-learn: no download.

    360 of them, chosen by `seed`, are the test set. Mean and standard deviation are those of the
    training pixels. MinimlError where scikit-learn is not installed.
    Source: E. Alpaydin, C. Kaynak 1998, "Optical recognition of handwritten digits", UCI.
    """
    try:
        from sklearn.datasets import load_digits as load
    except ImportError:
        raise MinimlError(
            "the digits come with scikit-learn, which is not installed; "
            "pip install scikit-learn, or pip install 'miniml[demo]'"
        ) from None
    pixels, labels = load(return_X_y=True)
    images = pixels.astype(np.float32).reshape(-1, 1, 8, 8)
    order = np.random.default_rng(seed).permutation(len(images))
    test, train = order[:HELD_OUT], order[HELD_OUT:]
    images = (images - images[train].mean()) / images[train].std()
    numbers = labels.astype(np.int64)
    return Digits(images[train], numbers[train], images[test], numbers[test])


# --- Text as numbers ------------------------------------------------------------------------------


@dataclass(frozen=True)
class Vocabulary:
    """Numbers for tokens: tokens[i] has number i.

    by: "characters", or "words", which are runs of letters, digits and underscores, and each other
    character that is no space. unknown: the token that stands for all others; None refuses
    these. `tokens` is a plain tuple of strings, to be saved as JSON.
    """

    tokens: tuple[str, ...]
    by: str = "characters"
    unknown: str | None = None
    _numbers: dict[str, int] = field(init=False, repr=False, compare=False)

    def __repr__(self) -> str:
        return f"Vocabulary({len(self):,} {self.by})"

    def __post_init__(self) -> None:
        choice("Vocabulary", "by", self.by, tuple(_SPLITS))
        object.__setattr__(self, "tokens", tuple(self.tokens))
        numbers = {token: i for i, token in enumerate(self.tokens)}
        object.__setattr__(self, "_numbers", numbers)
        if len(numbers) < len(self.tokens) or self.unknown not in {None, *numbers}:
            raise MinimlError("the tokens of a Vocabulary differ, and `unknown` is one of them")

    @classmethod
    def of(
        cls,
        text: str,
        by: str = "characters",
        size: int | None = None,
        special: Sequence[str] = (),
        unknown: str | None = None,
    ) -> Vocabulary:
        """The vocabulary of a text: `special` tokens and `unknown` first, for padding, say, then
        those of the text, the most frequent first. size: the largest number of all together."""
        counts = Counter(_SPLITS[choice("Vocabulary", "by", by, tuple(_SPLITS))](text))
        found = sorted(counts, key=lambda token: (-counts[token], token))
        first = [*special] if unknown is None else [*special, unknown]
        if size is not None:
            size = count("Vocabulary.of", "size", size, max(len(first), 1))
        return cls(tuple(dict.fromkeys([*first, *found]))[:size], by, unknown)

    def __len__(self) -> int:
        return len(self.tokens)

    def encode(self, text: str) -> Array:
        """The numbers of the text's tokens, int64; MinimlError for one that it lacks."""
        found, other = _SPLITS[self.by](text), self._numbers.get(self.unknown or "")
        numbers = [self._numbers.get(token, other) for token in found]
        if None in numbers:
            raise MinimlError(
                f"the vocabulary of {len(self)} {self.by} lacks {found[numbers.index(None)]!r}; "
                "make it of all the text, or with unknown='?'"
            )
        return np.array(numbers, np.int64)

    def decode(self, numbers: Iterable[int]) -> str:
        """The text of numbers: characters as they were, words with spaces between them.

        OutOfRangeError for a number that stands for no token."""
        indices = [int(i) for i in numbers]
        if not all(0 <= i < len(self) for i in indices):
            raise OutOfRangeError(
                f"decode got numbers from {min(indices)} to {max(indices)}; the vocabulary has "
                f"tokens 0 to {len(self) - 1}"
            )
        return _JOINS[self.by].join([self.tokens[i] for i in indices])


_WORDS = re.compile(r"\w+|[^\w\s]")
_SPLITS: dict[str, Callable[[str], list[str]]] = {"characters": list, "words": _WORDS.findall}
_JOINS = {"characters": "", "words": " "}


def pad_sequences(
    sequences: Iterable[Sequence[int] | Array], length: int | None = None, value: int = 0
) -> tuple[Array, Array]:
    """Sequences of any lengths as one array (N, T), padded with `value`, and their lengths (N,).

    length: T; None for that of the longest. Longer ones are cut. ShapeError for none at all, and
    for one of several axes.
    """
    if length is not None:
        length = count("pad_sequences", "length", length, 0)
    rows = [np.asarray(row, None if len(row) else np.int64) for row in sequences]
    if not rows or any(row.ndim != 1 for row in rows):
        raise ShapeError("pad_sequences expects at least one sequence, each of one axis")
    rows = [row[:length] for row in rows]
    lengths = np.array([len(row) for row in rows])
    width = int(lengths.max()) if length is None else length
    padded = np.full((len(rows), width), value, np.result_type(*rows, value))
    for line, row in zip(padded, rows, strict=True):
        line[: len(row)] = row
    return padded, lengths


def next_tokens(tokens: Sequence[int] | Array, length: int) -> tuple[Array, Array]:
    """All windows of `length` tokens (N, length), and the same one token later, to be predicted.
    Both are views, so a DataLoader copies only the rows of a batch. ShapeError for fewer than
    two."""
    tokens = np.asarray(tokens)
    if tokens.ndim != 1 or len(tokens) < 2:
        raise ShapeError(f"next_tokens got tokens {tokens.shape}; expected (T,), two or more")
    length = integer(f"next_tokens of {len(tokens)}", "length", length, 1, len(tokens) - 1)
    windows = np.lib.stride_tricks.sliding_window_view(tokens, length)
    return windows[:-1], windows[1:]


# --- Splits: row numbers, fixed by a seed ---------------------------------------------------------


def split(rows: int, share: float, seed: int = 0) -> tuple[Array, Array]:
    """Two arrays of row numbers, both sorted: round(share * rows) of them drawn by `seed`, held
    out, come second."""
    rows = count("split", "rows", rows, 0)
    share = number("split", "share", share, above=0, below=1)
    order = np.random.default_rng(seed).permutation(rows)
    return _parts(order[: round(share * rows)], rows, share)


def stratified_split(labels: Any, share: float, seed: int = 0) -> tuple[Array, Array]:
    """As `split`, with the share held out of each class alone, rounded: of a class of few rows
    that may be none, or all. labels: (N,), else ShapeError."""
    labels, draw = np.asarray(labels), np.random.default_rng(seed)
    share = number("stratified_split", "share", share, above=0, below=1)
    if labels.ndim != 1:
        raise ShapeError(f"stratified_split got labels {labels.shape}; expected (N,)")
    classes = [np.flatnonzero(labels == c) for c in np.unique(labels)]
    held_out = [draw.permutation(own)[: round(share * len(own))] for own in classes]
    return _parts(np.concatenate([np.arange(0), *held_out]), len(labels), share)


def k_fold(rows: int, folds: int, seed: int = 0) -> Iterator[tuple[Array, Array]]:
    """`folds` pairs (to learn from, held out) of sorted row numbers; each row is held out once."""
    rows = count("k_fold", "rows", rows, 2)
    folds = integer(f"k_fold of {rows} rows", "folds", folds, 2, rows)
    parts = np.array_split(np.random.default_rng(seed).permutation(rows), folds)
    return ((np.setdiff1d(np.arange(rows), part), np.sort(part)) for part in parts)


def _parts(held_out: Array, rows: int, share: float) -> tuple[Array, Array]:
    """The other rows and those held out; MinimlError if either is empty."""
    if not 0 < len(held_out) < rows:
        raise MinimlError(
            f"a split with share={share} holds out {len(held_out)} of {rows} rows; give a share "
            "that leaves rows on both sides"
        )
    return np.setdiff1d(np.arange(rows), held_out), np.sort(held_out)
