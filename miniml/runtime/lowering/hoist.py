"""Hoisting of index checks: indices are checked once, before kernels in C that cannot fail.

Movement: Gather, IndexAdd and Scatter get checked indices, and the parts of a Split become slices,
which are read in place. Loops: checks of a loop's inputs move from its steps to before the loop, so
that the steps cannot fail.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import accumulate, pairwise
from math import prod
from typing import Any, NamedTuple

import numpy as np

from ...backends.cpu.index import check
from ...backends.device import CPU, start_of
from ...backends.kernel import Array
from ...backends.registry import kernel
from ...backends.selection import Target
from ...backends.signature import ANY, INT, WIDE
from ...core.abstract import Shape
from ...core.dtype import from_type_code
from ...core.primitive import Primitive
from ...graph.ir import Graph, Node, Var
from ...graph.passes.loops import Loop
from ...ops.control import Scan
from ...ops.index import Gather, IndexAdd, Scatter
from ...ops.norm import CheckedLabels
from ...ops.shape import Slice
from ..launch import prepare
from .decompose import decompose
from .legalize import in_c, legalize, select

_MOVED, _ADDED = set(map(from_type_code, ANY)), set(map(from_type_code, INT + WIDE))


class Window(NamedTuple):
    """A view of an array in row-major order: its shape, its strides and its first element."""

    shape: Shape
    strides: Shape
    first: int


class CheckedIndices(Primitive):
    """A copy of the indices; OutOfRangeError, as of `operation`, if one in any of the windows is
    out of range for an axis of this extent."""

    differentiable = False
    operation: str
    extent: int
    axis: int
    windows: tuple[Window, ...]
    like = "indices"


@kernel("CheckedIndices", "cpu", "i->i", "l->l")
def checked_indices(
    indices: Array, *, operation: str, extent: int, axis: int, windows: Any, out: Array
) -> None:
    np.copyto(out, indices)
    if out.size and (out.min() < -extent or out.max() >= extent):
        for shape, strides, first in windows:
            apart = [s * out.itemsize for s in strides]
            seen = np.ndarray(shape, out.dtype, out, first * out.itemsize, apart)
            check(operation, seen, extent, axis)


class Lookup(Gather):
    """Gather by indices that have been checked."""

    differentiable = False


class AddRows(IndexAdd):
    """IndexAdd along one axis, at indices that have been checked."""

    differentiable = False


class PutRows(Scatter):
    """Scatter to rows, by indices that have been checked."""

    differentiable = False


_CHECKED: dict[str, type[Primitive]] = {"Gather": Lookup, "IndexAdd": AddRows, "Scatter": PutRows}
_NAMES = {"Split", *_CHECKED}


# --- Movement -------------------------------------------------------------------------------------


def movement(graph: Graph, target: Target) -> Graph:
    """The graph with data movement as nodes that have kernels in C; the same graph if no C kernels
    are wanted."""
    if not in_c(target) or not any(n.primitive.name in _NAMES for n in graph.nodes):
        return graph
    return _Movement(graph, target).rewritten()


class _Movement:
    """Rewriting of one graph.

    uses: of indices, by node. checked: checked indices, by root and extent; seen: views of them.
    first: nodes that may fail and can run before all others.
    """

    def __init__(self, graph: Graph, target: Target):
        self.graph, self.target = graph, target
        self.maker = graph.makers()
        self._arrays: dict[Var, Array] = {}
        self.uses = {n: use for n in graph.nodes if (use := self._use(n)) is not None}
        self.checked: dict[tuple[Var, int], Var] = {}
        self.seen: dict[tuple[Var, Var], Var] = {}
        self.first: list[Node] = []
        self.nodes: list[Node] = []

    def rewritten(self) -> Graph:
        """The graph with rewritten nodes."""
        for node in self.graph.nodes:
            if node.primitive.name == "Split" and self._replaceable(node):
                self.nodes += parts(node)
            elif node in self.uses:
                self._move(node, self.uses[node])
            else:
                self.nodes.append(node)
        return replace(self.graph, nodes=(*self.first, *self.nodes))

    def _use(self, node: Node) -> _Use | None:
        """A node's use of its indices, the last of its inputs, if its kernel would be NumPy's and
        there is one in C."""
        if not self._replaceable(node) or not _by_rows(node):
            return None
        whole = (node.inputs if node.primitive.name == "Gather" else node.outputs)[0].abstract.shape
        (axis,) = node.attrs.get("axes") or (node.attrs.get("axis", 0) % len(whole),)
        root, seen = self._seen(node.inputs[-1])
        first = start_of(seen) - start_of(self._arrays[root])
        strides = tuple([s // seen.itemsize for s in seen.strides])
        return _Use(root, whole[axis], axis, Window(seen.shape, strides, first // seen.itemsize))

    def _replaceable(self, node: Node) -> bool:
        return node.primitive.name in _NAMES and select(node, self.target).entry.built_in

    def _seen(self, var: Var) -> tuple[Var, Array]:
        """The Var that `var` is a view of, and a stand-in for `var`, a view of one for that Var."""
        node = self.maker.get(var)
        if node is not None and (type(node.primitive).view or isinstance(node.primitive, Slice)):
            root, base = self._seen(node.inputs[0])
            given, out = node.inputs[0].abstract, var.abstract
            kernel = prepare(node.primitive, (given,), (out,), node.attrs, self.target)
            if kernel.entry.view is not None and kernel.entry.built_in:
                found, copied = CPU().seen(kernel.function, [base])
                if not copied:
                    return root, found
        known = np.empty(var.abstract.shape, var.abstract.dtype)
        return var, self._arrays.setdefault(var, known)

    def _move(self, node: Node, use: _Use) -> None:
        key = use.root, use.extent
        if key not in self.checked:
            self._check(node, use)
        *others, indices = node.inputs
        moved = _CHECKED[node.primitive.name](**node.primitive.attributes)
        inputs = (*others, self._view(self.checked[key], indices, use.root))
        self.nodes.append(replace(node, primitive=moved, inputs=inputs))

    def _check(self, node: Node, use: _Use) -> None:
        """Check all windows that nodes read of the indices `root` at once."""
        every = [u for u in self.uses.values() if (u.root, u.extent) == (use.root, use.extent)]
        if _inside(use.root, use.extent):
            self.checked[use.root, use.extent] = use.root
            return
        windows = tuple(dict.fromkeys(u.window for u in every))
        made = self.checked[use.root, use.extent] = Var(use.root.abstract)
        check = CheckedIndices(node.primitive.name, use.extent, use.axis, windows)
        known = use.root in (*self.graph.inputs, *self.graph.constants)
        checking = Node(check, (use.root,), (made,), (), node.where)
        (self.first if known else self.nodes).append(checking)

    def _view(self, checked: Var, var: Var, root: Var) -> Var:
        """The counterpart of `var`, a view of the indices `root`, on checked indices."""
        if var is root:
            return checked
        if (checked, var) not in self.seen:
            node = self.maker[var]
            given = self._view(checked, node.inputs[0], root)
            made = self.seen[checked, var] = Var(var.abstract)
            self.nodes.append(replace(node, inputs=(given,), outputs=(made,)))
        return self.seen[checked, var]


class _Use(NamedTuple):
    """Indices as a node reads them: a window on the array `root`."""

    root: Var
    extent: int
    axis: int
    window: Window


def _by_rows(node: Node) -> bool:
    """True if one array of indices selects rows, of a dtype that kernels in C take."""
    name, dtype = node.primitive.name, node.inputs[0].abstract.dtype
    if name == "IndexAdd":
        return len(node.inputs) == 2 and dtype in _ADDED
    return dtype in _MOVED and (name == "Gather" or node.attrs.get("index") == ("tensor",))


def _inside(var: Var, extent: int) -> bool:
    """True for constant indices that are in range for an axis of this extent."""
    known = var.abstract.value
    return known is not None and bool(np.all((-extent <= known) & (known < extent)))


def parts(node: Node) -> Iterator[Node]:
    """The parts of a Split, as slices."""
    shape = node.inputs[0].abstract.shape
    axis = node.attrs["axis"] % len(shape)
    sizes = [v.abstract.shape[axis] for v in node.outputs]
    ones = (1,) * len(shape)
    for out, (begin, end) in zip(node.outputs, pairwise(accumulate(sizes, initial=0)), strict=True):
        begins = tuple(begin if a == axis else 0 for a in range(len(shape)))
        ends = tuple(end if a == axis else n for a, n in enumerate(shape))
        yield replace(node, primitive=Slice(begins, ends, ones), outputs=(out,))


# --- Checks in loops ------------------------------------------------------------------------------


def checks(graph: Graph, target: Target) -> Graph:
    """The graph with labels and indices checked for all steps at once, if C for the CPU ranks
    first."""
    if not in_c(target) or not any(isinstance(n.primitive, Scan) for n in graph.nodes):
        return graph
    given = {*graph.inputs, *graph.constants}
    nodes: list[Node] = []
    first: list[Node] = []  # nodes that may fail and can run before all others
    for node in graph.nodes:
        for made in _checked_before(node, target) if isinstance(node.primitive, Scan) else [node]:
            early = made is not node and given.issuperset(made.inputs)
            (first if early and _is_check(made) else nodes).append(made)
    return replace(graph, nodes=(*first, *nodes))


def _checked_before(node: Node, target: Target) -> list[Node]:
    """The nodes in place of a Scan; itself if no step checks an input of the loop."""
    scan = node.primitive
    assert isinstance(scan, Scan)
    body: Graph = scan.body
    for change in (legalize, decompose, movement, checks):
        body = change(body, target)
    sizes = scan.length, scan.carried, scan.scanned, scan.reverse
    loop = Loop(replace(node, primitive=Scan(body, *sizes)))
    for found in [n for n in loop.nodes if _is_check(n)]:
        _move(loop, found)
    return loop.finish() if loop.before else [node]


def _is_check(node: Node) -> bool:
    return isinstance(node.primitive, CheckedLabels | CheckedIndices)


def _move(loop: Loop, check: Node) -> None:
    """Hoist a check of rows or of a capture out of the loop."""
    (x,), (out,) = check.inputs, check.outputs
    primitive = check.primitive
    if x in loop.scanned:
        sources, primitive = loop.scanned, _of_all(primitive, x, loop.scan.length)
    elif x in loop.captured and loop.scan.length:  # else no step would check it
        sources = loop.captured
    else:
        return
    sources[out] = Var(sources[x].abstract)
    made = replace(check, primitive=primitive, inputs=(sources[x],), outputs=(sources[out],))
    loop.before.append(made)
    loop.nodes.remove(check)


def _of_all(check: Primitive, row: Var, length: int) -> Primitive:
    """The check of a stack of rows."""
    if not isinstance(check, CheckedIndices):
        return check
    size = prod(row.abstract.shape)
    windows = [
        Window((length, *shape), (size, *steps), first) for shape, steps, first in check.windows
    ]
    return CheckedIndices(check.operation, check.extent, check.axis, tuple(windows))
