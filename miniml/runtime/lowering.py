"""Lowering: the passes that depend on the target; they run after all others.

Legalization: where no kernel takes a node's dtypes, Cast nodes widen its inputs. Decomposition:
primitives whose hand-written kernels are no faster than their parts, fused. Hoisting of index
checks: indices are checked once, before kernels in C that cannot fail; the parts of a Split become
slices; checks of a loop's inputs move from its steps to before the loop. Transposed products: one
that is transposed and then flattened is stored transposed. LOWERING: the passes in their
order. `formats` (with `narrow`) and `fuse` have modules of their own.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import replace
from functools import lru_cache, partial
from itertools import accumulate, pairwise
from math import prod
from typing import Any, NamedTuple

import numpy as np

from .. import ops
from ..backends.cpu.index import check
from ..backends.cpu.linalg import order
from ..backends.kernel import CPU, Array, start_of
from ..backends.registry import kernel
from ..backends.selection import Selection, Target
from ..core.abstract import HALVES, Abstract, DType, Shape, float32, float64, from_type_code, int32
from ..core.errors import KernelNotFoundError
from ..core.primitive import Primitive
from ..core.signature import ANY, INT, WIDE
from ..graph.ir import Graph, Node, Var
from ..graph.passes import Pass, add_stage, run_stage
from ..graph.passes.loops import Loop
from ..graph.passes.rewrite import Rewriter, prune, share
from ..graph.tracing import trace_graph
from ..ops.control import Scan
from ..ops.elementwise import Cast, StopGradient
from ..ops.index import (
    Gather,
    IndexAdd,
    IndexReduce,
    PutAlongAxisAdd,
    Scatter,
    ScatterAdd,
    TakeAlongAxis,
)
from ..ops.linalg import Equation, MatMul, parse
from ..ops.norm import CheckedLabels
from ..ops.shape import Slice, Split
from .formats import formats, narrow
from .fuse import fuse, placed, selections
from .launch import in_c, native, prepare, select
from .nest import in_parts


def legalize(graph: Graph, target: Target) -> Graph:
    """The graph with Cast nodes before and after every node whose kernel is a lossless widening, or
    one in C for float32 where floats of 16 bits have NumPy's; the same graph if there is none.
    Nodes that `decompose` replaces stay."""
    nodes: list[Node] = []
    wide: dict[tuple[Var, DType], Var] = {}
    for node in graph.nodes:
        try:
            selection = select(node, target)
        except KernelNotFoundError:
            if not target.arranging(node.primitive.name, *node.abstracts):
                raise  # no kernel takes these dtypes in other memory formats, either
            nodes.append(node)
            continue
        # By what computes in float32 itself.
        whole = native(target) and _composed(node, target) is not None
        if selection.cast is None and not whole:
            selection = target.in_float32(node.primitive.name, *node.abstracts) or selection
        nodes += [node] if whole or selection.cast is None else _widened(node, selection, wide)
    return graph if len(nodes) == len(graph.nodes) else replace(graph, nodes=tuple(nodes))


def _widened(
    node: Node, selection: Selection, wide: dict[tuple[Var, DType], Var]
) -> Iterator[Node]:
    """The node on widened inputs, between casts. wide: the widened values, which nodes share."""
    taken, given = selection.entry.signature.expanded(len(node.inputs), len(node.outputs))
    inputs = []
    for var, dtype in zip(node.inputs, taken, strict=True):
        key = var, dtype
        if var.abstract.dtype != dtype and key not in wide:
            wide[key] = Var(Abstract(var.abstract.shape, dtype))
            yield _cast(node, var, wide[key])
        inputs.append(wide.get(key, var))
    outputs = tuple(
        v if v.abstract.dtype == d else Var(Abstract(v.abstract.shape, d))
        for v, d in zip(node.outputs, given, strict=True)
    )
    yield replace(node, inputs=tuple(inputs), outputs=outputs)
    for made, out in zip(outputs, node.outputs, strict=True):
        if made is not out:
            yield _cast(node, made, out)


def _cast(node: Node, source: Var, target: Var) -> Node:
    return Node(Cast(target.abstract.dtype), (source,), (target,), (), node.where)


# --- Decomposition --------------------------------------------------------------------------------


Composition = Callable[..., Sequence[Any]]  # composition(primitive, *inputs) -> the outputs
_LARGEST = 2**31 - 1  # classes that fit in an int32


def decompose(graph: Graph, target: Target) -> Graph:
    """The graph with primitives replaced by their compositions, if C kernels rank first; 16-bit
    floats are computed in float32 in between, as by the primitive."""
    known = ON_DEVICE[target.home]
    if not native(target) or not any(n.primitive.name in known for n in graph.nodes):
        return graph
    nodes: list[Node] = []
    first: list[Node] = []
    constants = list(graph.constants)
    checked: dict[tuple[Primitive, Var], Var] = {}
    for node in graph.nodes:
        made, composed = [node], _composed(node, target)
        if composed is not None:
            made, extra = _inlined(node, composed, checked)
            constants += extra
        for each in made:  # checks may fail: they run first, so as not to interrupt kernels in C
            early = isinstance(each.primitive, CheckedLabels) and each.inputs[0] in graph.inputs
            (first if early else nodes).append(each)
            if isinstance(each.primitive, CheckedLabels) and each.primitive.ignored is None:
                checked[CheckedLabels(each.primitive.classes), each.outputs[0]] = each.outputs[0]
    rewriter = Rewriter(replace(graph, nodes=(*first, *nodes), constants=tuple(constants)))
    for node in rewriter.graph.nodes:  # no gradient is asked of a lowered graph
        if isinstance(node.primitive, StopGradient):
            rewriter.replace(node.outputs, node.inputs)
        else:
            rewriter.keep(node)
    return prune(share(rewriter.finish()))  # an unused output leaves dead nodes


def _composed(node: Node, target: Target) -> Graph | None:
    """The composition that replaces a node; None if it stays."""
    if node.primitive.name not in ON_DEVICE[target.home]:
        return None
    shapes = [v.abstract.shape for v in node.inputs]
    if not all(0 not in s and max(s, default=0) < _LARGEST for s in shapes):
        return None
    made = composition(node.primitive, node.abstracts[0], target.home)
    return None if made is None or any(in_parts(n, target) for n in made.nodes) else made


def _inlined(
    node: Node, graph: Graph, checked: dict[tuple[Primitive, Var], Var]
) -> tuple[list[Node], tuple[Var, ...]]:
    """The nodes of the composition that replace a node, and the constants that they read. checked:
    labels that are not checked again."""
    stand_in = dict(zip(graph.inputs, node.inputs, strict=True))
    stand_in.update(zip(graph.outputs, node.outputs, strict=True))
    stand_in.update((v, Var(v.abstract)) for v in graph.constants)
    made = []
    for part in graph.nodes:
        inputs = tuple([stand_in[v] for v in part.inputs])
        if isinstance(part.primitive, CheckedLabels):
            key = part.primitive, inputs[0]
            if key in checked:
                stand_in[part.outputs[0]] = checked[key]
                continue
            stand_in[part.outputs[0]] = checked[key] = Var(part.outputs[0].abstract)
        outputs = tuple([stand_in.setdefault(v, Var(v.abstract)) for v in part.outputs])
        made.append(replace(part, inputs=inputs, outputs=outputs, where=node.where))
    return made, tuple(stand_in[v] for v in graph.constants)


@lru_cache(maxsize=256)
def composition(primitive: Primitive, abstracts: tuple[Abstract, ...], home: str) -> Graph | None:
    """The composition as a graph, whose outputs nodes make; None if the primitive stays whole."""
    made = ON_DEVICE[home][primitive.name]

    def composed(*inputs: Any) -> Sequence[Any]:
        wide = inputs if made in (layer_norm, matmul) else map(_wide, inputs)
        outs, dtype = made(primitive, *wide), abstracts[0].dtype
        return [out if out.dtype == dtype else ops.cast(out, dtype) for out in outs]

    known = [Abstract(a.shape, a.dtype) for a in abstracts]
    graph, _ = trace_graph(composed, known, "cpu", primitive.name.lower())
    return graph if graph.outputs else None


def _wide(x: Any) -> Any:
    return ops.cast(x, float32) if x.dtype in HALVES else x


def softmax(self: Any, x: Any) -> Sequence[Any]:
    terms = ops.exp(x - ops.max(x, self.axis, True))
    return (terms / ops.sum(terms, self.axis, True),)


def log_softmax(self: Any, x: Any) -> Sequence[Any]:
    shifted = x - ops.max(x, self.axis, True)
    return (shifted - ops.log(ops.sum(ops.exp(shifted), self.axis, True)),)


def log_sum_exp(self: Any, x: Any) -> Sequence[Any]:
    peak = ops.max(x, self.axis, True)
    peak = ops.select(ops.isinf(peak), 0, peak)
    total = ops.sum(ops.exp(x - peak), self.axis, self.keepdims)
    return (ops.log(total) + ops.reshape(peak, total.shape),)


def layer_norm(self: Any, x: Any, gamma: Any, beta: Any) -> Sequence[Any]:
    axes = tuple(range(x.ndim - gamma.ndim, x.ndim))
    # Widened after the broadcast, or they would be computed in loops of their own.
    x, gamma, beta = (_wide(ops.broadcast_to(v, x.shape)) for v in (x, gamma, beta))
    mean = ops.mean(x, axes, True)
    centred = x - mean
    rstd = _inverse_root(ops.mean(ops.square(centred), axes, True), self.eps)
    return centred * rstd * gamma + beta, mean, rstd


def batch_norm(self: Any, x: Any, gamma: Any, beta: Any) -> Sequence[Any]:
    axes, rest = (0, *range(2, x.ndim)), (-1, *(1,) * (x.ndim - 2))
    mean = ops.mean(x, axes)
    centred = x - ops.reshape(mean, rest)
    var = ops.mean(ops.square(centred), axes)
    scale = _inverse_root(var, self.eps) * gamma
    return centred * ops.reshape(scale, rest) + ops.reshape(beta, rest), mean, var


def _inverse_root(var: Any, eps: float) -> Any:
    return ops.reciprocal(ops.sqrt(var + eps))


def cross_entropy(self: Any, logits: Any, labels: Any) -> Sequence[Any]:
    losses, probs = _entropies(logits, CheckedLabels(logits.shape[1])(labels))
    return _reduced(self, losses), probs


def marked_cross_entropy(self: Any, logits: Any, labels: Any) -> Sequence[Any]:
    """Cross entropy without synchronization: labels outside the classes give NaN."""
    known = _numbers(labels, logits.shape[1])
    losses, probs = _entropies(logits, labels)
    inside = ops.logical_and(known >= 0, known < logits.shape[1])
    return _reduced(self, ops.select(inside, losses, ops.full_like(losses, np.nan))), probs


def _entropies(logits: Any, labels: Any) -> tuple[Any, Any]:
    """The loss of each row, and the probabilities of its classes."""
    shifted = logits - ops.max(logits, 1, True)
    terms = ops.exp(shifted)
    total = ops.sum(terms, 1, True)
    chosen = ops.select(_hits(labels, logits.shape[1]), shifted, ops.zeros_like(shifted))
    return ops.reshape(ops.log(total), labels.shape) - ops.sum(chosen, 1), terms / total


def _reduced(self: Any, losses: Any) -> Any:
    reduce = {"mean": ops.mean, "sum": ops.sum}.get(self.reduction)
    return losses if reduce is None else reduce(losses)


def cross_entropy_grad(self: Any, probs: Any, labels: Any, dloss: Any) -> Sequence[Any]:
    return marked_cross_entropy_grad(self, probs, CheckedLabels(probs.shape[1])(labels), dloss)


def marked_cross_entropy_grad(self: Any, probs: Any, labels: Any, dloss: Any) -> Sequence[Any]:
    """Gradient of cross entropy without synchronization."""
    share = dloss / float(probs.shape[0]) if self.reduction == "mean" else dloss
    share = ops.reshape(share, (-1, 1)) if self.reduction == "none" else share
    hits = _hits(labels, probs.shape[1])
    return (probs * share - ops.select(hits, share, ops.zeros_like(share)),)


def _hits(labels: Any, classes: int) -> Any:
    """Mask (N, classes): True for the label of each row."""
    labels = _numbers(labels, classes)
    return ops.equal(ops.reshape(labels, (-1, 1)), ops.arange(0, classes, dtype=labels.dtype))


def _numbers(labels: Any, classes: int) -> Any:
    """The labels in a dtype that can hold the number of classes."""
    return ops.cast(labels, int32) if classes > np.iinfo(labels.dtype).max else labels


def einsum(self: Any, *operands: Any) -> Sequence[Any]:
    """Of one operand a transposed sum; of more, two at a time, products of matrices or of elements.
    Nothing for diagonals, axes that broadcast, numbers other than floats, and no change."""
    equation = parse(self.equation, tuple([x.shape for x in operands]))
    terms, result, extents = equation
    left = [*zip(operands, terms, strict=True)]
    whole = all(x.shape == tuple([extents[c] for c in term]) for x, term in left)
    plain = all(len({*term}) == len(term) for term in terms) and terms != (result,)
    if not (whole and plain and all(x.dtype in (float32, float64) for x in operands)):
        return ()
    for takes in order([*terms], result, extents):
        taken = [left.pop(i) for i in takes][::-1]
        left.append(_contracted(equation, operands, taken, "".join(t for _, t in left)))
    return (_permuted(*left[0], result),)


def _contracted(
    equation: Equation, given: Sequence[Any], taken: Sequence[tuple[Any, str]], rest: str
) -> tuple[Any, str]:
    """The product of one or two operands, summed over the labels that neither the output nor the
    rest has, and its labels. It is one of elements also where a matrix that is multiplied by a
    vector is such a product, which shares its loops then, and not one of those that are given."""
    read = equation.output + rest
    every = "".join((read, *(labels for _, labels in taken)))
    (x, a), *others = [_summed(*operand, every) for operand in taken]
    if not others:
        return x, a
    ((y, b),) = others
    inner = [c for c in a if c in b and c not in read]
    left, right = [c for c in a if c not in b], [c for c in b if c not in a]
    known = any((x if left else y) is v for v in given)
    if not inner or not (left or right) or not (known or (left and right)):
        ordered = dict.fromkeys(("" if rest else read) + a + b)
        labels = "".join(c for c in ordered if c in read)
        made = _spread(x, a, labels + "".join(inner)) * _spread(y, b, labels + "".join(inner))
        axes = tuple(range(len(labels), made.ndim))
        return ops.sum(made, axes) if axes else made, labels
    batch = [c for c in a if c in b and c in read]
    x, turned_x = _matrices(x, a, batch, left, inner)
    y, turned_y = _matrices(y, b, batch, inner, right)
    labels = "".join((*batch, *left, *right))
    made = ops.matmul(x, y, turned_x, turned_y)
    return ops.reshape(made, tuple([equation.extents[c] for c in labels])), labels


def _summed(x: Any, labels: str, every: str) -> tuple[Any, str]:
    """An operand without the labels that occur nowhere else, and its other labels."""
    gone = tuple(i for i, c in enumerate(labels) if every.count(c) == 1)
    return (ops.sum(x, gone) if gone else x), "".join(c for c in labels if every.count(c) > 1)


def _permuted(x: Any, labels: str, order: str) -> Any:
    return x if labels == order else ops.transpose(x, tuple(map(labels.index, order)))


def _spread(x: Any, labels: str, every: str) -> Any:
    """An operand along all labels, with extent 1 for those that it lacks."""
    x = _permuted(x, labels, "".join(c for c in every if c in labels))
    extents = iter(x.shape)
    return ops.reshape(x, tuple([next(extents) if c in labels else 1 for c in every]))


def _matrices(
    x: Any, labels: str, batch: list[str], rows: list[str], columns: list[str]
) -> tuple[Any, bool]:
    """An operand as matrices of these rows and columns, or as their transposes where it lies so."""
    turned = labels == "".join((*batch, *columns, *rows))
    first, second = (columns, rows) if turned else (rows, columns)
    extents = dict(zip(labels, x.shape, strict=True))
    x = _permuted(x, labels, "".join((*batch, *first, *second)))
    sides = [prod([extents[c] for c in side]) for side in (first, second)]
    return ops.reshape(x, (*(extents[c] for c in batch), *sides)), turned


def matmul(self: MatMul, x: Any, y: Any) -> Sequence[Any]:
    """Products of elements, where a column is multiplied by a row: no sum has two of them. A sum of
    products, where a matrix of 16 bits is multiplied by one row or column: it is read once, as it
    lies, and not as another one of float32. Nothing for batches and short sums."""
    if min(x.ndim, y.ndim) > 1 and x.shape[-2 if self.transpose_x else -1] == 1:
        return (ops.reshape(x, (*x.shape[:-2], -1, 1)) * ops.reshape(y, (*y.shape[:-2], 1, -1)),)
    if x.dtype not in HALVES or max(x.ndim, y.ndim) > 2:
        return ()
    row = x.ndim == 1 or x.shape[-1 if self.transpose_x else 0] == 1
    if not (row or y.ndim == 1 or y.shape[0 if self.transpose_y else 1] == 1):
        return ()
    matrix, vector, turned = (y, x, self.transpose_y) if row else (x, y, not self.transpose_x)
    if turned and matrix.shape[-1] < (1024 if matrix.shape[-1] % 8 else 128):
        return ()
    matrix = ops.reshape(matrix, (-1, 1)) if matrix.ndim == 1 and not turned else matrix
    vector = ops.reshape(_wide(vector), (1, -1) if turned else (-1, 1))
    total = ops.sum(_wide(matrix) * vector, int(turned))
    return (ops.reshape(total, self.infer_shape(x.shape, y.shape)),)


def of_pixels(self: Any, x: Any, y: Any, turned: tuple[bool, bool]) -> Sequence[Any]:
    """A convolution as a product of matrices, where images and filters are one pixel: the output is
    x w', the gradient in the images dout w, that in the filters dout' x."""
    if not _one_pixel(self, x, y):
        return ()
    made = ops.matmul(ops.reshape(x, x.shape[:2]), ops.reshape(y, y.shape[:2]), *turned)
    return (ops.reshape(made, (*made.shape, 1, 1)),)


def _one_pixel(self: Any, *arrays: Any) -> bool:
    pixels = {self.padding == ((0, 0), (0, 0)), *(a.shape[2:] == (1, 1) for a in arrays)}
    own = (getattr(self, name, (1, 1)) == (1, 1) for name in ("input_shape", "kernel_shape"))
    floats = all(a.dtype in (float32, float64) for a in arrays)
    return self.groups == 1 and pixels == {True} and all(own) and floats


COMPOSITIONS: dict[str, Composition] = {
    "Softmax": softmax,
    "LogSoftmax": log_softmax,
    "LogSumExp": log_sum_exp,
    "LayerNorm": layer_norm,
    "BatchNorm": batch_norm,
    "CrossEntropy": cross_entropy,
    "CrossEntropyGrad": cross_entropy_grad,
}
ON_DEVICE: dict[str, dict[str, Composition]] = {
    "cuda": COMPOSITIONS
    | {"CrossEntropy": marked_cross_entropy, "CrossEntropyGrad": marked_cross_entropy_grad},
    "cpu": COMPOSITIONS
    | {
        "Einsum": einsum,
        "MatMul": matmul,
        "Conv2D": partial(of_pixels, turned=(False, True)),
        "Conv2DInputGrad": partial(of_pixels, turned=(False, False)),
        "Conv2DWeightGrad": lambda self, x, dout: of_pixels(self, dout, x, (True, False)),
    },
}


# --- Hoisting of index checks ---------------------------------------------------------------------


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

    @property
    def bounds(self) -> tuple[int, int, int | None]:
        """The indices of an axis; negative ones count from its end."""
        return -self.extent, self.extent, None


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


_CHECKED: dict[type, type[Primitive]] = {  # those that take indices which have been checked
    checking: type(name, (checking,), {"__module__": __name__, "differentiable": False})
    for name, checking in {
        "Lookup": Gather, "AddRows": IndexAdd, "PutRows": Scatter, "LookupAlong": TakeAlongAxis,
        "AddAlong": PutAlongAxisAdd, "AddToRows": ScatterAdd, "ReduceRows": IndexReduce,
    }.items()
}  # fmt: skip
_ADDS = (IndexAdd, IndexReduce, PutAlongAxisAdd, ScatterAdd)
_MOVES = {Split, *_CHECKED}


# --- Hoisted index checks, and splits as views ----------------------------------------------------


def movement(graph: Graph, target: Target) -> Graph:
    """The graph with checks of indices hoisted before the kernels in C that look rows up, which
    cannot fail then, and the parts of a Split as slices, which are views; the same graph if no C
    kernels are wanted."""
    if not in_c(target) or not any(type(n.primitive) in _MOVES for n in graph.nodes):
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
            if type(node.primitive) is Split and self._replaceable(node):
                self.nodes += parts(node)
            elif node in self.uses:
                self._move(node, self.uses[node])
            else:
                self.nodes.append(node)
        return replace(self.graph, nodes=(*self.first, *self.nodes))

    def _use(self, node: Node) -> _Use | None:
        """A node's use of its indices, if its kernel would be NumPy's and there is one in C."""
        if not self._replaceable(node) or not _by_rows(node):
            return None
        read = isinstance(node.primitive, Gather | TakeAlongAxis)
        whole = (node.inputs if read else node.outputs)[0].abstract.shape
        (axis,) = node.attrs.get("axes") or (node.attrs.get("axis", 0) % len(whole),)
        root, seen = self._seen(node.inputs[_indices_at(node)])
        first = start_of(seen) - start_of(self._arrays[root])
        strides = tuple([s // seen.itemsize for s in seen.strides])
        return _Use(root, whole[axis], axis, Window(seen.shape, strides, first // seen.itemsize))

    def _replaceable(self, node: Node) -> bool:
        return type(node.primitive) in _MOVES and select(node, self.target).entry.built_in

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
        moved = _CHECKED[type(node.primitive)](**node.primitive.attributes)
        inputs, at = [*node.inputs], _indices_at(node)
        inputs[at] = self._view(self.checked[key], inputs[at], use.root)
        self.nodes.append(replace(node, primitive=moved, inputs=tuple(inputs)))

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
    """True if one array of indices selects rows or elements, of a dtype that kernels in C take."""
    primitive, dtype = node.primitive, node.inputs[0].abstract.dtype
    if isinstance(primitive, Scatter) and primitive.index != ("tensor",):
        return False
    if isinstance(primitive, IndexAdd | IndexReduce) and len(node.inputs) != 2:
        return False
    return dtype in (_ADDED if isinstance(primitive, _ADDS) else _MOVED)


def _indices_at(node: Node) -> int:
    """The index of the indices among the inputs."""
    return 1 if isinstance(node.primitive, ScatterAdd) else len(node.inputs) - 1


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


# --- Checks hoisted out of loops ------------------------------------------------------------------


def checks(graph: Graph, target: Target) -> Graph:
    """The graph with checks of labels and indices hoisted out of loops: they are made for all steps
    at once, if C for the CPU ranks first."""
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


# --- Transposed products --------------------------------------------------------------------------


def turn(graph: Graph, target: Target) -> Graph:
    """The graph with transposes propagated into products, as TurnedMatMul, where only a view that
    permutes axes reads a product, and then only such of another shape, which would have to copy;
    the same graph if no C kernels are wanted."""
    if not in_c(target):
        return graph
    maker, readers = graph.makers(), graph.readers()
    turned: dict[Node, Node] = {}
    for node in graph.nodes:
        permutes = type(node.primitive).view == "transpose"
        made = maker.get(node.inputs[0]) if permutes else None
        if made is None or readers[node.inputs[0]] != [node] or node.inputs[0] in graph.outputs:
            continue
        flattened = {type(n.primitive).view for n in readers[node.outputs[0]]} == {"reshape"}
        if flattened and _storable(made, node.attrs["axes"], target):
            turned[made] = node
    gone = set(turned.values())
    nodes = (_turned(n, turned[n]) if n in turned else n for n in graph.nodes if n not in gone)
    return replace(graph, nodes=tuple(nodes)) if turned else graph


def _storable(node: Node, axes: Shape, target: Target) -> bool:
    """True for a product in C whose rows stay contiguous when its axes are permuted."""
    if node.primitive.name != "MatMul" or axes[-1] != len(axes) - 1:
        return False
    matrices = all(len(v.abstract.shape) > 1 for v in node.inputs)
    return matrices and select(node, target).entry.provider == "cc"


def _turned(node: Node, transpose: Node) -> Node:
    attributes = {**node.primitive.attributes, "axes": transpose.attrs["axes"]}
    return replace(node, primitive=TurnedMatMul(**attributes), outputs=transpose.outputs)


class TurnedMatMul(MatMul):
    """A product whose result is stored transposed by `axes`."""

    differentiable = False
    axes: tuple[int, ...] = ()

    def infer_shape(self, x: Shape, y: Shape) -> Shape:
        shape = super().infer_shape(x, y)
        return tuple([shape[a] for a in self.axes])


# --- Pipeline -------------------------------------------------------------------------------------


LOWERING = add_stage(
    (
        Pass("selections", selections),
        Pass("narrow", narrow),
        Pass("legalize", legalize),
        Pass("decompose", decompose),
        Pass("movement", movement),
        Pass("checks", checks),
        Pass("turn", turn),
        Pass("formats", formats),
        Pass("placed", placed),
        Pass("fuse", fuse),
    )
)


def lower(
    graph: Graph, target: Target, disabled: Collection[str] = (), verified: bool = False
) -> Graph:
    """The graph after every pass of `pipeline(LOWERING)`; disabled, verified: as in run_passes."""
    return run_stage(LOWERING, lambda fn, g: fn(g, target), graph, disabled, verified)
