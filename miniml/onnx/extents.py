"""Extents that a file leaves open: a function is traced at several sizes, and numbers that differ
follow the extents of its inputs by a formula.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import prod
from typing import Any

import numpy as np

from ..core.errors import MinimlError, OnnxError
from ..graph.ir import Graph, flatten_arguments
from ..graph.tracing import trace
from .tape import cleaned


@dataclass
class Sizes:
    """The sizes at which a function is traced: the example's, then others for each symbol alone,
    then others for all together, against which what was found is checked."""

    fn: Any
    leaves: Sequence[Any]
    rebuild: Callable[[Sequence[Any]], Any]
    axes: dict[tuple[int, int], str]  # (input, axis): symbol
    runs: list[dict[str, int]]
    first: Graph

    @staticmethod
    def of(obj: Any, args: Sequence[Any], dynamic: Any) -> Sizes:
        if isinstance(obj, Graph):
            if args or dynamic:
                raise OnnxError(
                    "save got a Graph and "
                    + ("arguments" if args else "dynamic extents")
                    + "; a Graph has its types already: give the function it was traced from"
                )
            return Sizes(obj, [], lambda leaves: leaves, {}, [{}], cleaned(obj))
        leaves, _, rebuild = flatten_arguments((args, {}))
        sizes = Sizes(obj, leaves, rebuild, {}, [{}], trace(obj, *args))
        if dynamic:
            sizes.vary(dynamic)
        else:
            sizes.first = cleaned(sizes.first)
        return sizes

    @property
    def symbols(self) -> list[str]:
        return list(dict.fromkeys(self.axes.values()))

    def vary(self, dynamic: Any) -> None:
        """Choose the extents of all runs; OnnxError for axes that are not there."""
        names = self.first.input_names
        base: dict[str, int] = {}
        if not isinstance(dynamic, Mapping):
            raise OnnxError(f"dynamic is {dynamic!r:.200}; give a dict, {{'x': {{0: 'batch'}}}}")
        for name, axes in dynamic.items():
            if name not in names or not isinstance(axes, Mapping):
                raise OnnxError(
                    f"dynamic has {name!r}: {axes!r:.200}; give {{input: {{axis: symbol}}}}; the "
                    f"inputs are {', '.join(names) or 'none'}"
                )
            shape = self.leaves[names.index(name)].shape
            for axis, symbol in axes.items():
                if type(axis) is not int or not -len(shape) <= axis < len(shape):
                    raise OnnxError(f"dynamic names axis {axis!r} of {name}, of shape {shape}")
                if not isinstance(symbol, str) or not symbol.isidentifier():
                    raise OnnxError(f"dynamic calls axis {axis} of {name} {symbol!r}; give a name")
                extent = shape[axis]
                if base.setdefault(symbol, extent) != extent:
                    raise OnnxError(
                        f"dynamic calls two axes {symbol!r}, of extents {base[symbol]} and "
                        f"{extent}; give axes that differ names that differ"
                    )
                self.axes[names.index(name), axis % len(shape)] = symbol
        self.runs = [base]  # so that each is traced where it is chosen
        for symbol, extent in base.items():
            if extent < 2:  # an axis of extent 1 broadcasts, and one of 0 has no elements
                base[symbol] = self._tried(symbol, extent, (2, 3, 4, 8))
        others = {s: self._tried(s, n, (n + 1, n - 1, 2 * n, n // 2)) for s, n in base.items()}
        together = {
            s: self._tried(s, n, (n + 2, 2 * n, n - 1, 3 * n, n + 1)) for s, n in base.items()
        }
        self.runs += [{**base, s: n} for s, n in others.items()] + [together]

    def _tried(self, symbol: str, extent: int, candidates: Sequence[int]) -> int:
        """The first of these extents at which the function can be traced."""
        error: Exception | None = None
        for candidate in candidates:
            if candidate < 2 or candidate == extent:
                continue
            try:
                self._traced({**self.runs[0], symbol: candidate})
            except MinimlError as refusal:
                error = error or refusal
            else:
                return candidate
        raise OnnxError(
            f"{symbol!r} cannot stay open: the function takes extent {extent}, and refuses "
            f"{', '.join(map(str, candidates))}"
        ) from error

    def _traced(self, run: Mapping[str, int]) -> Graph:
        shapes = [list(leaf.shape) for leaf in self.leaves]
        for (i, axis), symbol in self.axes.items():
            shapes[i][axis] = run[symbol]
        given = [np.zeros(s, leaf.dtype) for s, leaf in zip(shapes, self.leaves, strict=True)]
        args, _ = self.rebuild(given)
        return trace(self.fn, *args)

    def graphs(self) -> Iterator[Graph]:
        """The graph at each of the sizes."""
        if not self.axes:
            yield self.first
            return
        for run in self.runs:
            yield cleaned(self._traced(run), fold=False)

    def follow(self, values: Sequence[int]) -> Formula:
        """The formula in the symbols that has these values in the runs; OnnxError without one."""
        base, *others, _ = [*zip(self.runs, values, strict=True)]
        moved = {
            s: (run[s], value)
            for s, (run, value) in zip(self.symbols, others, strict=True)
            if value != base[1]
        }
        slopes = {s: Fraction(value - base[1], at - base[0][s]) for s, (at, value) in moved.items()}
        start = Fraction(base[1])
        start -= sum((f * base[0][s] for s, f in slopes.items()), Fraction(0))
        sums = Formula(start, slopes, product=False)
        power = Fraction(base[1], prod(base[0][s] for s in moved))
        products = Formula(power, dict.fromkeys(moved, Fraction(1)), product=True)
        for formula in (sums, products):
            if formula.whole and all(formula.at(r) == v for r, v in zip(self.runs, values)):
                return formula
        raise OnnxError(
            f"a number is {', '.join(map(str, values))} where the open extents are "
            f"{', '.join(map(str, self.runs))}: neither a sum of them with whole factors nor a "
            "product; give that axis a fixed extent"
        )


@dataclass(frozen=True)
class Formula:
    """start + sum of factor * symbol, or, as a product, start * product of symbols."""

    start: Fraction
    factors: Mapping[str, Fraction]
    product: bool

    @property
    def whole(self) -> bool:
        """True where only whole numbers occur."""
        return all(n.denominator == 1 for n in (self.start, *self.factors.values()))

    def at(self, run: Mapping[str, int]) -> Fraction:
        """Its value at these extents."""
        if self.product:
            return self.start * prod(run[s] for s in self.factors)
        return self.start + sum(f * run[s] for s, f in self.factors.items())

    def __str__(self) -> str:
        start = int(self.start)
        if self.product:
            return "*".join([str(start)] * (start != 1) + list(self.factors))
        terms = [s if f == 1 else f"{f}*{s}" for s, f in self.factors.items()]
        return "+".join(terms + [str(start)] * (start != 0 or not terms))
