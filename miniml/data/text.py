"""Text as numbers: a vocabulary, padded sequences, pieces of text with what follows."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np

from ..errors import MinimlError, OutOfRangeError, ShapeError
from ..tensor import Array

_WORDS = re.compile(r"\w+|[^\w\s]")
_SPLITS: dict[str, Callable[[str], list[str]]] = {"characters": list, "words": _WORDS.findall}
_JOINS = {"characters": "", "words": " "}


@dataclass(frozen=True)
class Vocabulary:
    """Numbers for tokens: tokens[i] has number i.

    by: "characters", or "words", which are runs of letters, digits and underscores, and each other
    character that is no space. unknown: the token that stands for all that the vocabulary lacks;
    None refuses these. `tokens` is a plain tuple of strings, to be saved as JSON.
    """

    tokens: tuple[str, ...]
    by: str = "characters"
    unknown: str | None = None
    _numbers: dict[str, int] = field(init=False, repr=False, compare=False)

    def __repr__(self) -> str:
        return f"Vocabulary({len(self):,} {self.by})"

    def __post_init__(self) -> None:
        if self.by not in _SPLITS:
            raise MinimlError(f"Vocabulary got by={self.by!r}; expected 'characters' or 'words'")
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
        those of the text, the most frequent first. size: at most so many, all together."""
        if by not in _SPLITS:
            raise MinimlError(f"Vocabulary got by={by!r}; expected 'characters' or 'words'")
        counts = Counter(_SPLITS[by](text))
        found = sorted(counts, key=lambda token: (-counts[token], token))
        first = [*special] if unknown is None else [*special, unknown]
        if size is not None and size < max(len(first), 1):
            raise MinimlError(f"Vocabulary.of got size={size} for special tokens {first}")
        return cls(tuple(dict.fromkeys([*first, *found]))[:size], by, unknown)

    def __len__(self) -> int:
        return len(self.tokens)

    def encode(self, text: str) -> Array:
        """The numbers of the text's tokens, int64."""
        found, other = _SPLITS[self.by](text), self._numbers.get(self.unknown or "")
        numbers = [self._numbers.get(token, other) for token in found]
        if None in numbers:
            raise MinimlError(
                f"the vocabulary of {len(self)} {self.by} lacks {found[numbers.index(None)]!r}; "
                "make it of all the text, or with unknown='?'"
            )
        return np.array(numbers, np.int64)

    def decode(self, numbers: Iterable[int]) -> str:
        """The text of numbers: characters as they were, words with spaces between them."""
        indices = [int(i) for i in numbers]
        if not all(0 <= i < len(self) for i in indices):
            raise OutOfRangeError(
                f"decode got numbers from {min(indices)} to {max(indices)}; the vocabulary has "
                f"tokens 0 to {len(self) - 1}"
            )
        return _JOINS[self.by].join([self.tokens[i] for i in indices])


def pad_sequences(
    sequences: Iterable[Sequence[int] | Array], length: int | None = None, value: int = 0
) -> tuple[Array, Array]:
    """Sequences of all lengths as one array (N, T), filled up with `value`, and their lengths (N,).

    length: T; None for that of the longest. Longer ones are cut.
    """
    if length is not None and length < 0:
        raise ShapeError(f"pad_sequences got length={length}; expected an int >= 0")
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
    """All pieces of `length` tokens (N, length), and the same one token later: what is to be
    predicted. Both are views, so a DataLoader copies only the rows of a batch."""
    tokens = np.asarray(tokens)
    if tokens.ndim != 1 or not 0 < length < len(tokens):
        raise ShapeError(
            f"next_tokens got tokens {tokens.shape} and length={length}; expected tokens (T,) and "
            "a length from 1 to T - 1"
        )
    pieces = np.lib.stride_tricks.sliding_window_view(tokens, length)
    return pieces[:-1], pieces[1:]
