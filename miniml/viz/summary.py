"""summary: a network as a table of its layers, from shapes alone.

The table, and the tracing of a call that it is made from.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape
from math import prod
from typing import Any

import numpy as np
import optree

from ..core.abstract import Abstract, ArraySpec, canonical, float32, listed
from ..core.errors import DTypeError, ShapeError
from ..core.parameter import Parameter
from ..core.primitive import Primitive
from ..core.scope import layers
from ..core.settings import current, unwatched
from ..core.trace import Partition, current_trace, partition, use_trace
from ..graph.ir import Graph, Var, flops, is_result, is_traced
from ..graph.tracing import ForwardingTrace, TracedTensor, trace_body, trace_call


def summary(net: Any, examples: Sequence[Any]) -> Summary:
    """The summary of a network called with arguments like these; without any, of its parameters."""
    try:
        noted = _traced(net, _arguments(examples)) if examples else _Noted({}, {})
    except DTypeError as error:
        if not any(hasattr(example, "__array__") for example in examples):
            error.add_note(_INTEGERS)
        raise
    names, seen = net._entry.names(), set[int]()
    cells = {id(cell): (prefix[:-1], cell) for prefix, cell in net._walk("", set())}
    flops_of = {key: noted.flops.pop(name, 0) for key, name in names.items()}
    flops_of[id(net)] = flops_of.get(id(net), 0) + sum(noted.flops.values())  # those in no layer
    return Summary(
        tuple([_row(*found, noted, flops_of[key], seen) for key, found in cells.items()])
    )


_INTEGERS = (
    "a shape stands for float32; for integers, such as tokens, give an array or "
    "ml.ArraySpec(shape, ml.int64), or on the command line --input 'int64[4,7]'"
)


@dataclass(frozen=True, slots=True)
class _Noted:
    """The outputs of each cell's calls, by identity, and the FLOPs of each layer, by name."""

    outputs: dict[int, list[Any]]
    flops: dict[str, int]


def _arguments(examples: Sequence[Any]) -> Partition:
    """The arguments, with each tensor, array, ArraySpec and shape replaced by its type."""
    if all(type(x) is int for x in examples):
        got = ", ".join(map(str, examples))
        raise ShapeError(f"summary got {got}; give a shape as one tuple, ({got}), or an array")
    given: Any = list(examples)  # a tuple of shapes is not a shape
    leaves, spec = optree.tree_flatten(given, is_leaf=_is_type)
    known = [_Typed(_abstract(x)) if _is_type(x) or is_traced(x) else x for x in leaves]
    typed = spec.unflatten(known)
    found = partition(typed, lambda leaf: isinstance(leaf, _Typed))
    for position in found.positions:
        found.leaves[position] = found.leaves[position].abstract
    return found


@dataclass(frozen=True, slots=True)
class _Typed:
    """A leaf that stands for a tensor of this type."""

    abstract: Abstract


def _is_type(x: Any) -> bool:
    """True for an ArraySpec and for a shape: trees for optree, leaves here."""
    return isinstance(x, ArraySpec) or (type(x) is tuple and all(type(n) is int for n in x))


def _abstract(x: Any) -> Abstract:
    shape, dtype = (x, float32) if type(x) is tuple else (tuple(x.shape), x.dtype)
    if any(n < 0 for n in shape):
        raise ShapeError(f"summary got shape {shape}; extents are 0 or more, -1 is no batch size")
    return Abstract(shape, canonical(np.dtype(dtype)))


def _traced(net: Any, examples: Partition) -> _Noted:
    outputs: dict[int, list[Any]] = {}
    layer_of: dict[Var, str] = {}

    def watched(*args: Any) -> Any:
        with use_trace(_Watching(current_trace(), outputs, layer_of)):
            return net(*args)

    device = next((p.device for p in net.get_parameters()), current().device_target)

    def arranged(values: Sequence[Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        return tuple(examples.filled(values)), {}

    with unwatched():
        graph, _, _ = trace_call(watched, arranged, examples.taken(), device)
    counted: dict[str, int] = {}
    for node, count in flops(graph):
        name = layer_of.get(node.outputs[0], "")
        counted[name] = counted.get(name, 0) + count
    return _Noted(outputs, counted)


class _Watching(ForwardingTrace):
    """Records the outputs of each cell that is called, and the layer in which each value is made,
    in bodies of loops, too."""

    def __init__(self, parent: Any, outputs: dict[int, list[Any]], layer_of: dict[Var, str]):
        super().__init__(parent)
        self.outputs, self.layer_of = outputs, layer_of

    def bind(self, primitive: Primitive, args: Sequence[Any]) -> tuple[Any, ...]:
        results = super().bind(primitive, args)
        inside = layers.get()
        if inside is not None:
            made = [r.var for r in results if isinstance(r, TracedTensor)]
            self.layer_of.update(dict.fromkeys(made, inside.name))
        return results

    def callee(self, fn: Any) -> Any:
        def noting(*args: Any, **named: Any) -> Any:
            result = fn(*args, **named)
            leaves = [leaf for leaf in optree.tree_leaves(result) if is_result(leaf)]
            self.outputs.setdefault(id(getattr(fn, "cell", None)), []).append(leaves)
            return result

        return noting

    def graph_of(self, fn: Any, operands: Any) -> tuple[Graph, list[Any], dict[Any, int]]:
        return trace_body(self, self._within(fn), operands)


def _row(path: str, cell: Any, noted: _Noted, counted: int, seen: set[int]) -> Row:
    own = {id(p): p for p in vars(cell).values() if isinstance(p, Parameter)}
    new = [p for key, p in own.items() if key not in seen]
    seen.update(map(id, new))
    calls = noted.outputs.get(id(cell), [])
    given = calls[0] if calls else []
    return Row(
        path,
        type(cell).__name__,
        listed(given) if given else "",
        len(calls),
        sum(prod(leaf.shape) * leaf.dtype.itemsize for leaf in given),
        sum(p.size for p in new),
        sum(p.size for p in new if p.requires_grad),
        sum(p.size for p in own.values()) - sum(p.size for p in new),
        sum(p.size * p.dtype.itemsize for p in new),
        counted,
    )


# --- The table ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Summary:
    """The result of `Cell.summary`; printed, or shown by a notebook, it is a table.

    rows: one a layer, a network before the layers inside it. The other attributes are sums:
    parameters, of them trainable and frozen (running statistics, too), nbytes of parameters, flops.
    """

    rows: tuple[Row, ...]

    @property
    def parameters(self) -> int:
        """Numbers in all parameters."""
        return sum(row.parameters for row in self.rows)

    @property
    def trainable(self) -> int:
        """Numbers in parameters with `requires_grad`."""
        return sum(row.trainable for row in self.rows)

    @property
    def frozen(self) -> int:
        """Numbers in the other parameters."""
        return self.parameters - self.trainable

    @property
    def nbytes(self) -> int:
        """Bytes of all parameters."""
        return sum(row.nbytes for row in self.rows)

    @property
    def flops(self) -> int:
        """Floating-point operations of one call."""
        return sum(row.flops for row in self.rows)

    def __str__(self) -> str:
        lines = [
            "  ".join(row).rstrip() for row in zip(*map(_padded, self._columns()), strict=True)
        ]
        rule = "-" * max(map(len, lines))
        return "\n".join([lines[0], rule, *lines[1:-1], rule, lines[-1], self._kinds()])

    __repr__ = __str__

    def _repr_html_(self) -> str:
        rows = [
            f"<tr>{''.join(row)}</tr>" for row in zip(*map(_html, self._columns()), strict=True)
        ]
        return (
            f"<table><thead>{rows[0]}</thead><tbody>{''.join(rows[1:-1])}</tbody>"
            f"<tfoot>{rows[-1]}</tfoot>"
            f'<caption style="caption-side: bottom">{escape(self._kinds())}</caption></table>'
        )

    def _columns(self) -> list[tuple[str, ...]]:
        """The columns that are not empty below the head."""
        return [c for c in zip(_HEAD, *self._cells(), strict=True) if any(c[1:])]

    def _cells(self) -> Iterator[tuple[str, ...]]:
        """The texts of all rows, then of their totals."""
        called = any(row.calls for row in self.rows)
        for row in self.rows:
            times = f" x {row.calls}" if row.calls > 1 else ""
            shared = f"{row.shared:,} shared" if row.shared else ""
            yield (
                row.path,
                row.cell,
                row.output + times if row.calls else "not called" * called,
                _bytes(row.output_bytes) if row.calls else "",
                " + ".join(filter(None, [f"{row.parameters:,}" * bool(row.parameters), shared])),
                _bytes(row.nbytes) if row.nbytes else "",
                _short(row.flops) if row.calls else "",
            )
        total = _short(self.flops) if called else ""
        yield ("together", "", "", "", f"{self.parameters:,}", _bytes(self.nbytes), total)

    def _kinds(self) -> str:
        return f"trainable {self.trainable:,}, others {self.frozen:,}"


@dataclass(frozen=True, slots=True)
class Row:
    """One layer, without those inside it, so that all but outputs add up to the network.

    path: "body.0", or "" of the network itself. cell: its class. output: the types of its output
    in its first call, such as "float32[32, 10]"; "" without a call or without examples. calls: the
    number of calls. output_bytes: of that output. parameters, trainable, nbytes:
    numbers in its parameters, those that learn, and the bytes of all; a parameter of two layers
    counts for the first. shared: numbers that an earlier layer counts. flops: counted
    as `flops` does.
    """

    path: str
    cell: str
    output: str
    calls: int
    output_bytes: int
    parameters: int
    trainable: int
    shared: int
    nbytes: int
    flops: int


_HEAD = ("layer", "class", "output", "output bytes", "parameters", "their bytes", "FLOPs")
_TEXTS = frozenset(_HEAD[:3])  # the others are numbers, right-aligned


def _padded(column: Sequence[str]) -> list[str]:
    width = max(map(len, column))
    return [text.ljust(width) if column[0] in _TEXTS else text.rjust(width) for text in column]


def _html(column: Sequence[str]) -> list[str]:
    side = "left" if column[0] in _TEXTS else "right"
    tags = ["th", *["td"] * (len(column) - 2), "th"]
    return [
        f'<{tag} style="text-align: {side}">{escape(text)}</{tag}>'
        for tag, text in zip(tags, column, strict=True)
    ]


def _short(count: int) -> str:
    """A number of three digits and its unit."""
    return _scaled(count, ("", " k", " M", " G", " T", " P", " E"))


def _bytes(count: int) -> str:
    return _scaled(count, (" B", " kB", " MB", " GB", " TB", " PB", " EB"))


def _scaled(count: int, units: Sequence[str]) -> str:
    if count < 1000:
        return f"{count}{units[0]}"
    digits, _, exponent = f"{count:.2e}".partition("e")  # rounded: 999,999 is a million
    power = min(int(exponent) // 3, len(units) - 1)
    shown = float(digits) * 10 ** (int(exponent) - 3 * power)
    return f"{shown:.3g}{units[power]}" if shown < 1000 else f"{count:.2e}{units[0]}"
