"""Data movement in C: copies of blocks, gather and scatter of rows by index, and conversions from
row-major order to other memory formats and back."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from itertools import groupby
from math import prod
from operator import attrgetter
from typing import NamedTuple

import numpy as np

from ...core.abstract import OTHERS, ArraySpec, KernelAttr
from ...core.signature import ANY, INT, WIDE
from ..kernel import KernelNode
from ..product import Axis, Shape, broadcast_steps, dense_strides, merged, steps_of
from ..registry import kernel
from .native import NativeKernel
from .scalars import SCALARS, STORED, Reducer, Vectors, reducer, register_bytes
from .units import NUMBERS, Source, enumerators, header, run_by, template

SQUARE = 16  # elements of a line of a piece that is transposed: one or two lines of the cache
_shape = attrgetter("shape")
_FLOATS = {np.dtype("f"): "float", np.dtype("d"): "double"}


class Moved(NamedTuple):
    """An array in loops: its name, C type and index in `at`, its strides along the loops, and its
    first element; index and element are numbers or C."""

    name: str
    c: str
    at: int | str
    steps: Sequence[int]
    first: int | str = 0

    def __str__(self) -> str:
        c = f"{'const ' * (self.name != 'out')}{self.c} *"
        first = self.first if isinstance(self.first, str) else f"{self.first}L"
        return f"{c}restrict {self.name} = ({c})at[{self.at}] + {first};"


def loops(shape: Sequence[int], arrays: Sequence[Moved], statement: str) -> list[str]:
    """The loops over a shape around a statement, in which {x} is the index of x's element."""
    axes = merged(tuple(shape), [tuple(a.steps) for a in arrays])
    return [] if 0 in shape else _nested(axes, arrays, statement)


def copies(shape: Sequence[int], arrays: Sequence[Moved], x: str = "{x}") -> list[str]:
    """The loops over a shape that copy the elements of an array to another, runs of them at once.
    x: the index of the first array's element."""
    axes = merged(tuple(shape), [tuple(a.steps) for a in arrays])
    names = [a.name for a in arrays]
    near = {names[a] for a, step in enumerate(axes[-1][1]) if step} if axes else set()
    if 0 in shape or near != {"x", "out"} or not {*axes[-1][1]} <= {0, 1}:
        return loops(shape, arrays, f"out[{{out}}] = x[{x}];")
    run = f"memcpy(out + {{out}}, x + {x}, {axes[-1][0]}L * sizeof *out);"
    return _nested(axes[:-1], arrays, run)


def _nested(axes: Sequence[Axis], arrays: Sequence[Moved], statement: str) -> list[str]:
    numbers = {}
    for a, array in enumerate(arrays):
        terms = [f"i{k} * {steps[a]}L" for k, (_, steps) in enumerate(axes) if steps[a]]
        numbers[array.name] = " + ".join(terms) or "0"
    lines = (*map(str, arrays), *_heads(axes), f"  {statement.format(**numbers)}")
    return ["  {", *(f"    {line}" for line in lines), "  }"]


def _heads(axes: Sequence[Axis]) -> list[str]:
    """The loops in order; those of a transposing copy are tiled by squares."""
    heads = [_head(f"i{k}", "0", f"{extent}L") for k, (extent, _) in enumerate(axes)]
    if not axes:
        return heads
    *outer, (_, last) = axes
    near = next((k for k, (_, steps) in enumerate(outer) if steps[0] == 1), None)
    if near is None or len(last) != 2 or last[0] == 1:
        return heads
    extent, inner = axes[near][0], heads.pop()
    end = f"({extent}L - b < {SQUARE} ? {extent}L : b + {SQUARE})"
    pieces, within = _head("b", "0", f"{extent}L", SQUARE), _head(f"i{near}", "b", end)
    return [*heads[:near], *heads[near + 1 :], pieces, inner, within]


def _head(name: str, begin: str, end: str, step: int = 1) -> str:
    return f"for (long {name} = {begin}; {name} < {end}; {name} += {step})"


def _unsigned(spec: ArraySpec) -> str:
    """The C type that holds the bits of elements of this size."""
    return f"uint{8 * spec.dtype.itemsize}_t"


class Move(NativeKernel, ABC):
    """A kernel of loops that move elements. shared: the texts that its own needs before it."""

    strided = True
    shared: tuple[str, ...] = ()

    def prepare(self, node: KernelNode) -> None:
        super().prepare(node)
        body = NUMBERS, *self.lines(node, *node.outputs)
        text = "\n".join(("void KERNEL(char *const *at) {", *body, "}", ""))
        self.source = Source(text, self.shared)

    @abstractmethod
    def lines(self, node: KernelNode, out: ArraySpec) -> Iterator[str]:
        """The body of the function."""


class Concat(Move):
    """A copy of each input to its block of the output, unless it was computed there. Neighbours of
    one shape and strides share their loops, so the text does not grow with their number; contiguous
    rows of all inputs share the loops around them, so that a row of the output is written at once.
    """

    def lines(self, node: KernelNode, out: ArraySpec) -> Iterator[str]:
        axis, steps, size = node.attrs["axis"], dense_strides(out.shape, 1), out.dtype.itemsize
        c, at, begin, first = _unsigned(out), len(node.inputs), 0, 0
        given = [*zip(map(_shape, node.inputs), steps_of(node), strict=True)]
        near = all(own[-1] == 1 or s[-1] == 1 for s, own in given)
        outer = axis if near and 0 not in out.shape else 0
        rows = _around(out.shape[:outer], [*(own for _, own in given), steps])
        yield from _heads_of(rows)
        for (shape, own), alike in groupby(given):
            count, each = len([*alike]), shape[axis] * steps[axis]
            x, to = ([by[k] for _, by in rows] for k in (first, -1))
            target = f"({begin}L + k * {each}L{_along_rows(to)})"
            block = Moved("out", c, at, steps[outer:], target)
            part = Moved("x", c, f"{first} + k", own[outer:], f"(0{_along_rows(x)})")
            copied = copies(shape[outer:], [part, block])
            if copied:
                yield f"  {_head('k', '0', f'{count}L')}"
                yield f"  if (at[{first} + k] != at[{at}] + {target} * {size}L)"
                yield from copied
            first, begin = first + count, begin + count * each
        yield "  }"


def _around(shape: Shape, steps: Sequence[Shape]) -> list[Axis]:
    """The loops around rows of several arrays, over their first axes."""
    return [*merged(shape, [tuple(own[: len(shape)]) for own in steps])] if shape else []


def _heads_of(rows: Sequence[Axis]) -> Iterator[str]:
    yield from (f"  {_head(f'r{k}', '0', f'{extent}L')}" for k, (extent, _) in enumerate(rows))
    yield "  {"


def _along_rows(steps: Sequence[int]) -> str:
    return "".join(f" + r{k} * {step}L" for k, step in enumerate(steps))


class Place(Move):
    """A copy of the input to a part of the output, which holds one number everywhere else; slices
    that are filled one by one stay in the cache."""

    def lines(self, node: KernelNode, out: ArraySpec) -> Iterator[str]:
        (x,), (own,), attrs, c = node.inputs, steps_of(node), node.attrs, _unsigned(out)
        steps = dense_strides(out.shape, 1)
        if "padding" in attrs:
            begins, by = [before for before, _ in attrs["padding"]], (1,) * len(x.shape)
        else:
            begins, by = attrs["begin"], attrs["strides"]
        apart = [n * step for n, step in zip(by, steps, strict=True)]
        first = sum(n * step for n, step in zip(begins, steps, strict=True))
        bits = np.array(attrs.get("value", 0), out.dtype).view(f"u{out.dtype.itemsize}")
        alike = zip(x.shape, out.shape, begins, by, strict=True)
        outer = next((k for k, (n, m, b, s) in enumerate(alike) if n != m or b or s != 1), 0)
        rows = _around(x.shape[:outer], [own, steps])
        from_x, to = (_along_rows([by_row[k] for _, by_row in rows]) for k in (0, 1))
        yield from _heads_of(rows)
        whole = Moved("out", c, 1, steps[outer:], f"(0{to})")
        yield from loops(out.shape[outer:], [whole], f"out[{{out}}] = {bits}U;")
        part = Moved("x", c, 0, own[outer:], f"(0{from_x})")
        into = Moved("out", c, 1, apart[outer:], f"({first}L{to})")
        yield from copies(x.shape[outer:], [part, into])
        yield "  }"


class _Named(NamedTuple):
    """The steps of the array and of the indices, and C for the first element of the named row, of
    which negative ones count from the end."""

    whole: Shape
    indices: Shape
    row: str


def _named(whole: ArraySpec, steps: Shape, indices: Shape, axis: int, at: int) -> _Named:
    """The strides of loops over (*rest[:at], *indices, *rest[at:]), of an array whose axes are
    `rest` and the indexed one. indices: the strides of these."""
    rest = (*steps[:axis], *steps[axis + 1 :])
    over_whole = (*rest[:at], *(0,) * len(indices), *rest[at:])
    over_indices = (*(0,) * at, *indices, *(0,) * len(rest[at:]))
    row = f"(n[{{n}}] + (n[{{n}}] < 0 ? {whole.shape[axis]}L : 0)) * {steps[axis]}L"
    return _Named(over_whole, over_indices, row)


class Lookup(Move):
    """The indexed rows of an array, or one element for each index along an axis; all are inside."""

    def lines(self, node: KernelNode, out: ArraySpec) -> Iterator[str]:
        (x, indices), (own, along), axis = node.inputs, steps_of(node), node.attrs["axis"]
        if node.name == "Lookup":
            named = _named(x, own, along, axis % len(x.shape), axis % len(x.shape))
        else:
            named = _along(x, own, indices, along, axis, out.shape)
        arrays = [
            Moved("x", _unsigned(x), 0, named.whole),
            Moved("n", f"int{8 * indices.dtype.itemsize}_t", 1, named.indices),
            Moved("out", _unsigned(out), 2, dense_strides(out.shape, 1)),
        ]
        yield from copies(out.shape, arrays, f"{{x}} + {named.row}")


def _along(
    whole: ArraySpec, steps: Shape, indices: ArraySpec, along: Shape, axis: int, shape: Shape
) -> _Named:
    """The strides of loops over a shape, which is that of an array and of indices along one of its
    axes, broadcast. along: the strides of the indices."""
    axis %= len(shape)
    one = (*whole.shape[:axis], 1, *whole.shape[axis + 1 :])
    row = _named(whole, steps, along, axis, axis).row
    over_whole = broadcast_steps(one, shape, steps)
    return _Named(over_whole, broadcast_steps(indices.shape, shape, along), row)


class Combine(Move):
    """An array of one number, with whose indexed rows, or elements with the indices along an axis,
    updates are combined in their order: zeros, to which they are added, by default."""

    shared = header("types")

    def lines(self, node: KernelNode, out: ArraySpec) -> Iterator[str]:
        (updates, indices), (own, along), attrs = node.inputs, steps_of(node), node.attrs
        steps = dense_strides(out.shape, 1)
        if "axes" in attrs:
            named = _named(out, steps, along, attrs["axes"][0] % len(steps), attrs["at"])
        else:
            named = _along(out, steps, indices, along, attrs["axis"], updates.shape)
        by = reducer(_MODES[attrs.get("mode", "add")], out.dtype)
        c, first = _combined(out, by), f"out[{{out}}] = {by.identity};"
        yield from loops(out.shape, [Moved("out", c, 2, steps)], first)
        yield from _combining(updates.shape, (0, own), (1, indices), (2, out), named, by)


class AddToRows(Move):
    """A copy of an array, to whose indexed rows updates are added in their order."""

    def lines(self, node: KernelNode, out: ArraySpec) -> Iterator[str]:
        (_, indices, updates), (own, along, given) = node.inputs, steps_of(node)
        by = reducer("Sum", out.dtype)
        steps, c = dense_strides(out.shape, 1), _combined(out, by)
        axis = node.attrs["axis"] % len(steps)
        named = _named(out, steps, along, axis, axis)
        rows = (*out.shape[:axis], *indices.shape, *out.shape[axis + 1 :])
        given = broadcast_steps(updates.shape, rows, given)
        yield from copies(out.shape, [Moved("x", c, 0, own), Moved("out", c, 3, steps)])
        yield from _combining(rows, (2, given), (1, indices), (3, out), named, by)


def _combining(
    shape: Shape,
    updates: tuple[int, Shape],
    indices: tuple[int, ArraySpec],
    out: tuple[int, ArraySpec],
    named: _Named,
    by: Reducer,
) -> Iterator[str]:
    """The loops that combine updates, which have strides along them, with the named places; each
    array with its index in `at`."""
    c = _combined(out[1], by)
    arrays = [
        Moved("x", c, *updates),
        Moved("n", f"int{8 * indices[1].dtype.itemsize}_t", indices[0], named.indices),
        Moved("out", c, out[0], named.whole),
    ]
    place = f"out[{{out}} + {named.row}]"
    yield from loops(shape, arrays, f"{place} = {by.combine(place, 'x[{x}]')};")


_MODES = {"add": "Sum", "mul": "Prod", "max": "Max", "min": "Min"}


def _combined(spec: ArraySpec, by: Reducer) -> str:
    """The C type in which elements are combined: sums and products of integers wrap."""
    return _unsigned(spec) if by.counts and spec.dtype not in _FLOATS else STORED[spec.dtype]


class PutRows(Move):
    """A copy of an array with a value stored in its indexed rows; the last store stays."""

    def lines(self, node: KernelNode, out: ArraySpec) -> Iterator[str]:
        (_, value, indices), (own, given, along) = node.inputs, steps_of(node)
        steps, c = dense_strides(out.shape, 1), _unsigned(out)
        named = _named(out, steps, along, 0, 0)
        rows = (*indices.shape, *out.shape[1:])
        arrays = [
            Moved("x", c, 1, broadcast_steps(value.shape, rows, given)),
            Moved("n", f"int{8 * indices.dtype.itemsize}_t", 2, named.indices),
            Moved("out", c, 3, named.whole),
        ]
        copy = [Moved("x", c, 0, own), Moved("out", c, 3, steps)]
        yield from copies(out.shape, copy)
        yield from loops(rows, arrays, f"out[{{out}} + {named.row}] = x[{{x}}];")


# --- Conversions between memory formats, as transpositions ----------------------------------------


_SPLIT = 100_000  # elements, about 50 us, from which on a copy is split over threads

_SQUARES = template("text/squares.c")


class Convert(NativeKernel):
    """A conversion from row-major order to another memory format, or back."""

    def prepare(self, node: KernelNode) -> None:
        super().prepare(node)
        x, out = node.inputs[0], node.outputs[0]
        back = out.format is None
        other, (images, channels, *plane) = (x if back else out), x.shape
        lanes, pixels = other.stored[-1], prod(plane)
        batch = other.format == "CHWN"
        groups, count = (channels, images) if batch else (images, channels)
        blocks = -(-count // lanes)
        numbers = {
            "LANES": lanes, "COUNT": count, "BLOCKS": blocks, "PARTS": groups * blocks,
            "PIXELS": pixels, "GROUP": pixels * (1 if batch else channels),
            "STEP": pixels * (channels if batch else 1), "BACK": int(back),
        }  # fmt: skip
        v = Vectors("float" if x.dtype.itemsize == 4 else "double", register_bytes(node.masked))
        text = enumerators(numbers, "PARTS") + run_by(prod(other.stored) > _SPLIT)
        text += v.written(_SQUARES)
        self.source = Source(text, (v.prelude, v.text("planes.c")))


def _between(code: str) -> list[KernelAttr]:
    dtype = {"f": "float32", "d": "float64", "l": "int64"}[code]
    pairs = [p for f in OTHERS for p in ((None, f), (f, None))]
    return [KernelAttr().add_input_attr(dtype, x).add_output_attr(dtype, out) for x, out in pairs]


kernel("Concat", "cpu", *[f"{c}*->{c}" for c in ANY], provider="cc", total=True)(Concat)
for _name in ("Pad", "SliceGrad"):
    kernel(_name, "cpu", *[f"{c}->{c}" for c in ANY], provider="cc", total=True)(Place)
for _names, _kernel, _taken, _codes in (
    ("Lookup LookupAlong", Lookup, ANY, "{0}{1}->{0}"),
    ("AddRows AddAlong ReduceRows", Combine, INT + WIDE, "{0}{1}->{0}"),
    ("AddToRows", AddToRows, INT + WIDE, "{0}{1}{0}->{0}"),
    ("PutRows", PutRows, ANY, "{0}{0}{1}->{0}"),
):
    _every = [_codes.format(c, i) for c in _taken for i in "il"]
    for _name in _names.split():
        kernel(_name, "cpu", *_every, provider="cc", total=True)(_kernel)
for _c in (*SCALARS, "l"):
    kernel("Convert", "cpu", *_between(_c), provider="cc", total=True)(Convert)
