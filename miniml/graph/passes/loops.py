"""Loop optimization: equal scans are fused, invariant code is hoisted, and dead values are dropped.

Early exit: a Scan whose steps change nothing from some step on becomes a loop that ends there. Code
motion: work that a Scan need not do at each step is done for all steps at once, before or after it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from ...core.abstract import Abstract, bool_
from ...core.infer import infer
from ...core.primitive import Primitive
from ...ops.control import Cond, Scan, WhileLoop
from ...ops.create import Full
from ...ops.elementwise import Add
from ...ops.index import Gather, IndexAdd
from ...ops.linalg import MatMul
from ...ops.logic import LogicalAnd
from ...ops.shape import Reshape, SumTo
from ..ir import Graph, Node, Var
from .rewrite import Rewriter, narrowed, share


def loops(graph: Graph) -> Graph:
    """The graph with every Scan simplified, up to the order in which products are summed.

    Scans with equal inputs and steps become one with the outputs of all: the rule of their
    gradient needs a second one that keeps more. Invariant nodes, products of rows and a captured
    matrix, and sums of products over time are computed before or after the loop. Dead outputs,
    carried values and inputs are dropped. A scan that no longer changes anything once a flag that
    it carries is False, and keeps no rows, becomes a while loop.
    """
    if not any(isinstance(n.primitive, (Scan, Cond)) for n in graph.nodes):
        return graph
    return share(_ending(_trimmed(_moved(_merged(graph)))))


def _merged(graph: Graph) -> Graph:
    """Merge scans of the same steps over the same inputs, with the outputs of all of them."""
    groups: dict[object, list[Node]] = {}
    for node in graph.nodes:
        if isinstance(node.primitive, Scan):
            groups.setdefault(_steps(node.primitive, node), []).append(node)
    rewriter = Rewriter(graph)
    for node in graph.nodes:
        group = groups[_steps(node.primitive, node)] if isinstance(node.primitive, Scan) else []
        if len(group) < 2:
            rewriter.keep(node)
        elif node is group[0]:
            _join(rewriter, group)
    return rewriter.finish()


def _steps(scan: Scan, node: Node) -> object:
    """Key of a scan's steps: equal for scans that differ in their row outputs only."""
    body: Graph = scan.body
    taken = replace(body, outputs=body.outputs[: scan.carried]).key
    return node.inputs, taken, scan.length, scan.carried, scan.scanned, scan.reverse


def _join(rewriter: Rewriter, group: list[Node]) -> None:
    """Keep only the first node, with the rows of all."""
    node = group[0]
    scan = node.primitive
    assert isinstance(scan, Scan)
    rows: dict[Var, Var] = {}
    for other in group:
        # Bodies of equal steps define the same values in the same order.
        body: Graph = other.primitive.attributes["body"]
        ours = dict(zip(body.definitions(), scan.body.definitions(), strict=True))
        rewriter.replace(other.outputs[: scan.carried], node.outputs[: scan.carried])
        for var, out in [*zip(body.outputs, other.outputs, strict=True)][scan.carried :]:
            rewriter.replace((out,), (rows.setdefault(ours[var], out),))
    body = replace(scan.body, outputs=(*scan.body.outputs[: scan.carried], *rows))
    longer = Scan(body, scan.length, scan.carried, scan.scanned, scan.reverse)
    outputs = (*node.outputs[: scan.carried], *rows.values())
    rewriter.keep(replace(node, primitive=longer, outputs=outputs))


def _moved(graph: Graph) -> Graph:
    """Move work out of the steps to before and after the loops."""
    nodes, constants = list[Node](), list(graph.constants)
    zeros = {v for v in constants if v.abstract.value is not None and not v.abstract.value.any()}
    for node in graph.nodes:
        if isinstance(node.primitive, Full) and not node.primitive.value:
            zeros.update(node.outputs)
        if isinstance(node.primitive, Scan):
            loop = Loop(node, constants, zeros)
            move(loop)
            nodes += loop.finish()
        else:
            nodes.append(node)
    return replace(graph, nodes=tuple(nodes), constants=tuple(constants))


def _trimmed(graph: Graph) -> Graph:
    """Drop dead nodes, and dead values of loops and branches."""
    needed, nodes = set(graph.outputs), list[Node]()
    for node in reversed(graph.nodes):
        if node.effect == "pure" and needed.isdisjoint(node.outputs):
            continue
        if isinstance(node.primitive, Scan):
            loop = Loop(node)
            trim(loop, needed)
            (node,) = loop.finish()
        node = narrowed(node, needed)
        needed.update(node.inputs)
        nodes.append(node)
    return replace(graph, nodes=tuple(reversed(nodes)))


# --- Early exit -----------------------------------------------------------------------------------


def _ending(graph: Graph) -> Graph:
    """Make while loops of scans that may end early: those of a bounded while loop of which no
    gradient is asked."""
    read = {*graph.outputs, *(v for node in graph.nodes for v in node.inputs)}
    nodes = [_until(n, graph, read) if isinstance(n.primitive, Scan) else n for n in graph.nodes]
    return graph if nodes == [*graph.nodes] else replace(graph, nodes=tuple(nodes))


def _until(node: Node, graph: Graph, read: Collection[Var]) -> Node:
    """The scan as a while loop of at most as many steps, or as it is."""
    loop = Loop(node)
    true = [v for v in graph.constants if v.abstract.dtype == bool_ and np.all(v.abstract.value)]
    flags = [c for c in loop.carried if c.last not in read and c.first in true]
    if loop.scanned or loop.rows or not flags:
        return node
    values = [c for c in loop.carried if c is not flags[0]]
    test, step = _test(loop, flags[0]), _only_step(loop, flags[0], values)
    if test is None or step is None or step in test.nodes:
        return node
    cond, given = step.primitive, [*(c.before for c in values), *loop.captured]
    assert isinstance(cond, Cond)
    taken = [step.inputs[1 + i] for i in cond.true_takes]
    if not {*test.inputs, *taken}.issubset(given):
        return node
    after = tuple([cond.on_true.outputs[step.outputs.index(c.after)] for c in values])
    body = replace(cond.on_true, name="body", outputs=after)
    takes = [tuple(map(given.index, v)) for v in (test.inputs, taken)]
    until = WhileLoop(test, body, takes[0], takes[1], loop.scan.length)
    inputs = *(c.first for c in values), *loop.captured.values()
    return replace(node, primitive=until, inputs=inputs, outputs=tuple([c.last for c in values]))


def _test(loop: Loop, flag: Carried) -> Graph | None:
    """The truth that a step adds to the flag by a logical and, as a graph of what it reads."""
    both = loop.maker(flag.after)
    if both is None or not isinstance(both.primitive, LogicalAnd) or flag.before not in both.inputs:
        return None
    more = both.inputs[both.inputs[0] is flag.before]
    needed, nodes = {more}, list[Node]()
    for node in reversed(loop.nodes):
        if not needed.isdisjoint(node.outputs):
            needed.update(node.inputs)
            nodes.append(node)
    inputs = tuple([v for v in loop.body.inputs if v in needed])
    constants = tuple([v for v in loop.body.constants if v in needed])
    nodes.reverse()
    return replace(
        loop.body, name="condition", inputs=inputs, nodes=tuple(nodes), outputs=(more,),
        constants=constants,
    )  # fmt: skip


def _only_step(loop: Loop, flag: Carried, values: Collection[Carried]) -> Node | None:
    """The branch that changes all these values if the flag holds, and none if it does not."""
    made = {loop.maker(c.after) for c in values}
    node = made.pop() if len(made) == 1 else None
    if node is None or not isinstance(node.primitive, Cond) or node.inputs[0] is not flag.after:
        return None
    cond = node.primitive
    same = dict(zip(cond.on_false.inputs, (node.inputs[1 + i] for i in cond.false_takes)))
    left = [same.get(v) for v in cond.on_false.outputs]
    kept = all(left[node.outputs.index(c.after)] is c.before for c in values)
    return node if kept else None


# --- Code motion ----------------------------------------------------------------------------------


class Loop:
    """A Scan node taken apart, to be changed and reassembled.

    Rows are Vars of the body, stacks those of all rows outside. scanned: the stack of each row that
    a step reads; captured: the outer Vars of invariants of the body; rows: pairs (row, stack) of
    the outputs of a step. before, after: nodes of the outer graph, whose constants are
    `constants`; zeros: Vars that are known to be zero there.
    """

    def __init__(self, node: Node, constants: list[Var] | None = None, zeros: Collection[Var] = ()):
        scan = node.primitive
        assert isinstance(scan, Scan)
        self.scan: Scan = scan
        self.where, self.zeros = node.where, zeros
        self.constants = [] if constants is None else constants
        self.body: Graph = scan.body
        self.nodes: list[Node] = list(self.body.nodes)
        first, last = scan.carried, scan.carried + scan.scanned
        taken = [*zip(self.body.inputs, node.inputs, strict=True)]
        given = [*zip(self.body.outputs, node.outputs, strict=True)]
        self.carried = [
            Carried(before, after, begin, end)
            for (before, begin), (after, end) in zip(taken[:first], given, strict=False)
        ]
        self.scanned: dict[Var, Var] = dict(taken[first:last])
        self.captured: dict[Var, Var] = dict(taken[last:])
        self.rows: list[tuple[Var, Var]] = given[first:]
        self.before: list[Node] = []
        self.after: list[Node] = []

    def finish(self) -> list[Node]:
        """The nodes that replace the Scan."""
        before, after, first, last = zip(*self.carried, strict=True) if self.carried else [()] * 4
        rows, stacks = zip(*self.rows, strict=True) if self.rows else [()] * 2
        inputs = *before, *self.scanned, *self.captured
        body = replace(self.body, inputs=inputs, nodes=tuple(self.nodes), outputs=(*after, *rows))
        sizes = self.scan.length, len(self.carried), len(self.scanned), self.scan.reverse
        given = *first, *self.scanned.values(), *self.captured.values()
        loop = Node(Scan(body, *sizes), given, (*last, *stacks), (), self.where)
        return [*self.before, loop, *self.after]

    def call(self, nodes: list[Node], primitive: Primitive, *inputs: Var) -> Var:
        """A call outside of the loop."""
        (out,) = infer(primitive, tuple([v.abstract for v in inputs]))
        nodes.append(Node(primitive, inputs, (Var(out),), (), self.where))
        return nodes[-1].outputs[0]

    def known(self, row: Var) -> bool:
        """True if the stack of the row exists."""
        return row in self.scanned or any(row is r for r, _ in self.rows)

    def stack(self, row: Var) -> Var:
        """The stack of a row, for a node after the loop."""
        if row in self.scanned:
            return self.scanned[row]
        if not self.known(row):
            self.rows.append((row, Var(_stacked(self, row))))
        return dict(self.rows)[row]

    def flat(self, nodes: list[Node], stack: Var) -> Var:
        """A stack of matrices as one matrix."""
        length, rows, columns = stack.abstract.shape
        return self.call(nodes, Reshape((length * rows, columns)), stack)

    def maker(self, var: Var) -> Node | None:
        """The node of the body that makes a Var."""
        return next((n for n in self.nodes if var in n.outputs), None)

    def readers(self, var: Var) -> int:
        """Number of uses of a Var in the body, as an output too."""
        given = [*(c.after for c in self.carried), *(row for row, _ in self.rows)]
        return sum(n.inputs.count(var) for n in self.nodes) + given.count(var)


class Carried(NamedTuple):
    """A carried value: before and after a step, and the first and last one outside."""

    before: Var
    after: Var
    first: Var
    last: Var


def _stacked(loop: Loop, row: Var) -> Abstract:
    return Abstract((loop.scan.length, *row.abstract.shape), row.abstract.dtype)


def move(loop: Loop) -> None:
    """Move all that can be computed outside of the loop."""
    for change in (hoist, gathers_before, products_before, rows_as_given):
        change(loop)
    sums_after(loop, _is_scatter, _of_stacks)
    products_after(loop)
    sums_after(loop, _is_gram, _gram)
    sums_after(loop, _is_sum, _of_stacks)


def hoist(loop: Loop) -> None:
    """Loop-invariant code motion: nodes of captures alone are computed once, before the loop."""
    fixed = _fixed(loop) if loop.scan.length else []  # without steps, nothing may raise
    read = {v for n in fixed for v in n.inputs}
    outside = loop.captured | {v: Var(v.abstract) for v in loop.body.constants if v in read}
    loop.constants += [outside[v] for v in loop.body.constants if v in read]
    for node in fixed:
        inputs = tuple([outside[v] for v in node.inputs])
        made = replace(node, inputs=inputs, outputs=tuple([Var(v.abstract) for v in node.outputs]))
        outside.update(zip(node.outputs, made.outputs, strict=True))
        loop.captured.update(zip(node.outputs, made.outputs, strict=True))
        loop.before.append(made)
        loop.nodes.remove(node)


def _fixed(loop: Loop) -> list[Node]:
    """The invariant nodes, without views that only other nodes read."""
    varying: set[Var] = {*(c.before for c in loop.carried), *loop.scanned}
    fixed: list[Node] = []
    for node in loop.nodes:
        if varying.isdisjoint(node.inputs) and node.effect == "pure":
            fixed.append(node)
        else:
            varying.update(node.outputs)
    outside: set[Var] = set()
    for node in reversed(fixed.copy()):
        # Views cost a step nothing, and kernels may read an operand through one.
        view = type(node.primitive).view not in (None, "same")
        if view and outside.isdisjoint(node.outputs):
            fixed.remove(node)
        else:
            outside.update(node.inputs)
    return fixed


def gathers_before(loop: Loop) -> None:
    """Look up the rows of a captured table at scanned indices for all steps at once."""
    for node in loop.nodes.copy():
        gathers = isinstance(node.primitive, Gather) and node.primitive.axis == 0
        if gathers and node.inputs[0] in loop.captured and node.inputs[1] in loop.scanned:
            (out,) = node.outputs
            inputs = loop.captured[node.inputs[0]], loop.scanned[node.inputs[1]]
            loop.scanned[out] = Var(_stacked(loop, out))
            loop.before.append(replace(node, inputs=inputs, outputs=(loop.scanned[out],)))
            loop.nodes.remove(node)


def products_before(loop: Loop) -> None:
    """Compute products of scanned rows and a captured matrix as one product of all rows."""
    for node in loop.nodes.copy():
        if _by_matrix(loop, node) and node.inputs[0] in loop.scanned:
            (out,) = node.outputs
            loop.scanned[out] = _all_rows(loop, loop.before, node, loop.scanned[node.inputs[0]])
            loop.nodes.remove(node)


def products_after(loop: Loop) -> None:
    """Compute products with a captured matrix that only the outside reads as one product."""
    for row, stack in loop.rows.copy():
        node = loop.maker(row)
        if node is not None and _by_matrix(loop, node) and loop.readers(row) == 1:
            loop.rows.remove((row, stack))
            loop.nodes.remove(node)
            nodes: list[Node] = []
            _all_rows(loop, nodes, node, loop.stack(node.inputs[0]))
            nodes[-1] = replace(nodes[-1], outputs=(stack,))
            loop.after[:0] = nodes  # others there may read it


def _by_matrix(loop: Loop, node: Node) -> bool:
    """True for x y or x y^T, where y is a captured matrix."""
    matrices = all(len(v.abstract.shape) == 2 for v in node.inputs)
    kind = isinstance(node.primitive, MatMul) and not node.primitive.transpose_x
    return kind and matrices and node.inputs[1] in loop.captured


def _all_rows(loop: Loop, nodes: list[Node], node: Node, stack: Var) -> Var:
    """The stack of a product, from the stack of its first factor."""
    shape = loop.scan.length, *node.outputs[0].abstract.shape
    factor = loop.captured[node.inputs[1]]
    product = loop.call(nodes, node.primitive, loop.flat(nodes, stack), factor)
    return loop.call(nodes, Reshape(shape), product)


def rows_as_given(loop: Loop) -> None:
    """Replace the stack of a row that a step returns as scanned by the scanned stack."""
    for row, stack in loop.rows.copy():
        if row in loop.scanned:
            loop.rows.remove((row, stack))
            same = Reshape(stack.abstract.shape)
            loop.after.append(Node(same, (loop.scanned[row],), (stack,), (), loop.where))


def sums_after(
    loop: Loop, kind: Callable[[Loop, Node], bool], total: Callable[[Loop, Node], Var]
) -> None:
    """Compute carried sums of terms of a kind, such as updates at indices, products x^T y and sums
    over rows whose stacks exist, as the `total` of all rows."""
    for carried in loop.carried.copy():
        term = _term(loop, carried)
        if term is not None and kind(loop, term):
            value = total(loop, term)
            loop.carried.remove(carried)
            loop.nodes = [n for n in loop.nodes if carried.after not in n.outputs]
            if not loop.readers(term.outputs[0]):
                loop.nodes.remove(term)
            _add(loop, carried, value)


def _term(loop: Loop, carried: Carried) -> Node | None:
    """The node whose output a step adds to the carried value, if that is its only use."""
    add = loop.maker(carried.after)
    if add is None or not isinstance(add.primitive, Add) or carried.before not in add.inputs:
        return None
    if loop.readers(carried.before) > 1 or loop.readers(carried.after) > 1:
        return None
    term = loop.maker(add.inputs[add.inputs[0] is carried.before])
    same = term is not None and term.outputs[0].abstract == carried.after.abstract
    return term if same else None


def _is_gram(loop: Loop, term: Node) -> bool:
    matrices = all(len(v.abstract.shape) == 2 for v in term.inputs)
    return term.primitive == MatMul(True, False) and matrices


def _gram(loop: Loop, term: Node) -> Var:
    x, y = (loop.flat(loop.after, loop.stack(v)) for v in term.inputs)
    return loop.call(loop.after, term.primitive, x, y)


def _is_scatter(loop: Loop, term: Node) -> bool:
    one = len({v.abstract.shape for v in term.inputs[1:]}) == 1
    return isinstance(term.primitive, IndexAdd) and term.primitive.at == 0 and one


def _of_stacks(loop: Loop, term: Node) -> Var:
    return loop.call(loop.after, term.primitive, *map(loop.stack, term.inputs))


def _is_sum(loop: Loop, term: Node) -> bool:
    return isinstance(term.primitive, SumTo) and loop.known(term.inputs[0])


def _add(loop: Loop, carried: Carried, value: Var) -> None:
    """The last carried value: `value` added to the first one."""
    if carried.first not in loop.zeros:
        value = loop.call(loop.after, Add(), carried.first, value)
    loop.after[-1] = replace(loop.after[-1], outputs=(carried.last,))


def trim(loop: Loop, needed: Collection[Var]) -> None:
    """Drop values that neither the Vars `needed` outside of the loop nor later steps depend on."""
    loop.rows = [(row, stack) for row, stack in loop.rows if stack in needed]
    live = [c for c in loop.carried if c.last in needed]
    while True:
        read = {*(c.after for c in live), *(row for row, _ in loop.rows)}
        for node in reversed(loop.nodes):
            if node.effect != "pure" or not read.isdisjoint(node.outputs):
                read.update(narrowed(node, read).inputs)
        grown = [c for c in loop.carried if c in live or c.before in read]
        if len(grown) == len(live):
            break
        live = grown
    loop.carried = live
    stays = [n for n in loop.nodes if n.effect != "pure" or not read.isdisjoint(n.outputs)]
    loop.nodes = [narrowed(n, read) for n in stays]
    loop.scanned = {row: stack for row, stack in loop.scanned.items() if row in read}
    loop.captured = {var: outer for var, outer in loop.captured.items() if var in read}
