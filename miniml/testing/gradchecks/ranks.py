"""Gradients across ranks: one scalar, the sum over a group, by the inputs of all of its ranks.

Every rank has a function of its own inputs, which calls collectives. Rank 0 checks the function of
all their inputs to all their outputs, as it checks any other; the others do what it tells them.

In order: the function of all ranks as a Map; what a rank does when it is told to; the words that
pass between ranks, in messages of any length.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from ...backends.group import Group
from ...core.errors import GradientArgumentError
from ..report import Arrays
from ..tolerance import Array, Perturbation
from .problem import Map, Name, Pull

_SEEDS = 2**31


@dataclass(frozen=True, slots=True)
class Leader:
    """Rank 0 of a check, which tells the others what to do.

    blocks: how many arrays each rank has among the inputs; the arrays of all ranks for the first
    block come first: these are arguments, those of the next blocks cotangents.
    """

    group: Group
    part: Part
    blocks: tuple[tuple[int, ...], ...] = ()

    @staticmethod
    def of(group: Group, map_: Map, point: Arrays) -> tuple[Leader, Map, Arrays]:
        """The leader, the Map of all ranks, and their points, one after the other."""
        every = meet(group, map_, point)
        points = [own for _, own in every]
        leader = Leader(group, Part(map_), (tuple(map(len, points)),))
        names = [_of_rank(rank, n) for rank, (of_rank, _) in enumerate(every) for n in of_rank]
        return leader, leader.map_of(map_.name, names), [x for each in points for x in each]

    def map_of(self, name: str, names: Sequence[Name]) -> Map:
        """The Map of all ranks, of the order that has as many blocks."""
        order = len(self.blocks)
        outs: list[int] = []  # the outputs of each rank, once it has run

        def joined_outputs(found: Sequence[Arrays]) -> Arrays:
            outs[:] = map(len, found)
            return [x for each in found for x in each]

        def run(arrays: Arrays) -> Arrays:
            return joined_outputs(self.tell("run", [(order, xs) for xs in self.cut(arrays)]))

        def linearize(arrays: Arrays) -> Pull:
            key = self.tell("linearize", [(order, xs) for xs in self.cut(arrays)])[0]

            def pull(douts: Arrays) -> list[Any]:
                parts = _parted(douts, outs)
                return self.joined(self.tell("pull", [(key, part) for part in parts]))

            return pull

        def following() -> Map:
            every = self.tell("following", [()] * self.group.size)
            after = replace(self, blocks=(*self.blocks, tuple(outs)))
            new = [
                _of_rank(rank, each)
                for rank, (of_rank, count) in enumerate(zip(every, outs, strict=True))
                for each in of_rank[len(of_rank) - count :]
            ]
            return after.map_of(name, [*names, *new])

        forward = _Tangents(self) if order == 1 else None
        return Map(
            name, run, linearize, tuple(names), self.rounding, order, following, forward
        )  # fmt: skip

    @contextmanager
    def rounding(self, by: Perturbation, rng: np.random.Generator) -> Iterator[None]:
        """Results of visible operations are perturbed on all ranks."""
        seeds = rng.integers(0, _SEEDS, self.group.size).tolist()
        self.tell("perturb", [(by, seed) for seed in seeds])
        try:
            yield
        finally:
            self.tell("perturb", [(None, 0)] * self.group.size)

    def cut(self, arrays: Sequence[Any]) -> list[list[Any]]:
        """The arrays of each rank among those of all."""
        own: list[list[Any]] = [[] for _ in range(self.group.size)]
        left = iter(arrays)
        for block in self.blocks:
            for each, count in zip(own, block, strict=True):
                each += [next(left) for _ in range(count)]
        return own

    def joined(self, found: Sequence[Sequence[Any]]) -> list[Any]:
        """The inverse of `cut`."""
        left = [iter(each) for each in found]
        return [
            next(left[rank])
            for block in self.blocks
            for rank, count in enumerate(block)
            for _ in range(count)
        ]

    def tell(self, act: str, given: Sequence[tuple[Any, ...]]) -> list[Any]:
        """Have each rank do this with what it is given; the results of all."""
        told(self.group, (act, given))
        own = self.part.done(act, given[0])
        found = gathered(self.group, own.words())
        if own.error is not None:
            raise own.error
        for rank, said in enumerate(found):
            if said.failed:
                raise GradientArgumentError(f"on rank {rank}: {said.value}")
        return [said.value for said in found]

    def end(self, result: Any) -> None:
        """Tell the others what was found: a report, or the words of an error."""
        told(self.group, ("end", result))


@dataclass(frozen=True)
class _Tangents:
    """Tangents of the function of all ranks."""

    leader: Leader

    def moved(self, arrays: Arrays, tangents: Arrays) -> Arrays:
        both = zip(self.leader.cut(arrays), self.leader.cut(tangents), strict=True)
        return [x for each in self.leader.tell("moved", list(both)) for x in each]

    def fault(self, arrays: Arrays, rng: np.random.Generator, tolerance: float) -> str:
        return ""  # ranks that look for it may part at the first one


def follow(group: Group, map_: Map, point: Arrays) -> Any:
    """Do what rank 0 says until it ends; returns what it found."""
    meet(group, map_, point)
    part = Part(map_)
    while True:
        act, given = told(group)
        if act == "end":
            return given
        gathered(group, part.done(act, given[group.rank]).words())


def meet(group: Group, map_: Map, point: Arrays) -> list[Any]:
    """The names and the points of all ranks."""
    group.agree("gradcheck")
    return gathered(group, (map_.names, point))


class Said(NamedTuple):
    """The result of an act, or what its error says."""

    failed: bool
    value: Any


class Done(NamedTuple):
    """The result of an act, or its error."""

    value: Any
    error: Exception | None = None

    def words(self) -> Said:
        """The form in which other ranks hear of it."""
        failed = self.error is not None
        return Said(failed, f"{type(self.error).__name__}: {self.error}" if failed else self.value)


class Part:
    """The work of one rank: its own function, its pull-backs, and the block that perturbs it."""

    def __init__(self, map_: Map):
        self._maps, self._pulls = [map_], list[Pull]()
        self._inside = ExitStack()

    def done(self, act: str, given: Sequence[Any]) -> Done:
        """The result of the method of that name."""
        try:
            return Done(getattr(self, act)(*given))
        except Exception as error:
            return Done(None, error)

    def run(self, order: int, arrays: Arrays) -> Arrays:
        return self._maps[order - 1].run(arrays)

    def linearize(self, order: int, arrays: Arrays) -> int:
        self._pulls.append(self._maps[order - 1].linearize(arrays))
        return len(self._pulls) - 1

    def pull(self, key: int, douts: Arrays) -> list[Any]:
        return [None if g is None else np.asarray(g) for g in self._pulls[key](douts)]

    def following(self) -> tuple[Name, ...]:
        after: Callable[[], Map] | None = self._maps[-1].following
        assert after is not None
        self._maps.append(after())
        return self._maps[-1].names

    def perturb(self, by: Perturbation | None, seed: int) -> None:
        self._inside.close()
        if by is not None:
            self._inside.enter_context(self._maps[-1].rounding(by, np.random.default_rng(seed)))

    def moved(self, arrays: Arrays, tangents: Arrays) -> Arrays:
        forward = self._maps[0].forward
        assert forward is not None
        return forward.moved(arrays, tangents)


def _of_rank(rank: int, name: Name) -> Name:
    return (*name[:2], f"{name[2]} on rank {rank}")


def _parted(values: Sequence[Any], counts: Sequence[int]) -> list[list[Any]]:
    left = iter(values)
    return [[next(left) for _ in range(count)] for count in counts]


# --- Messages -------------------------------------------------------------------------------------


_SHORT = 4096  # bytes of a message that needs no second one


def told(group: Group, value: Any = None) -> Any:
    """The value of rank 0, on every rank."""
    group.agree("gradcheck")
    text = pickle.dumps(value) if group.rank == 0 else b""
    first = _first(text)
    group.spread(first, 0)
    size = _size(first)
    if size <= _SHORT:
        return _read(first)
    rest = np.frombuffer(text, np.uint8).copy() if group.rank == 0 else np.empty(size, np.uint8)
    group.spread(rest, 0)
    return pickle.loads(rest.tobytes())


def gathered(group: Group, value: Any) -> list[Any]:
    """The values of all ranks, on every rank."""
    text = pickle.dumps(value)
    first = np.empty((group.size, 8 + _SHORT), np.uint8)
    group.gather(_first(text), first)
    longest = max(map(_size, first))
    if longest <= _SHORT:
        return [_read(row) for row in first]
    every = np.empty((group.size, longest), np.uint8)
    group.gather(np.frombuffer(text.ljust(longest, b"\0"), np.uint8), every)
    return [pickle.loads(row.tobytes()) for row in every]


def _first(text: bytes) -> Array:
    """The first message: the length of the text, and the text if it is short."""
    message = np.zeros(8 + _SHORT, np.uint8)
    message[:8].view(np.int64)[0] = len(text)
    if len(text) <= _SHORT:
        message[8 : 8 + len(text)] = np.frombuffer(text, np.uint8)
    return message


def _size(message: Array) -> int:
    return int(message[:8].view(np.int64)[0])


def _read(message: Array) -> Any:
    return pickle.loads(message[8:].tobytes())
