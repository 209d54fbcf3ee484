"""Loops: scans of the same steps run once, sums of products over time become one product, what no
step changes is computed before the loop, and what nothing reads is not computed."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import replace

from ...abstract import Abstract
from ...ops.arithmetic import Add
from ...ops.linalg import MatMul
from ...ops.scan import Scan
from ...ops.shape import BroadcastTo, ExpandDims, Reshape, Squeeze, Transpose
from ..ir import Graph, Node, Var
from .prune import prune

VIEWS = (BroadcastTo, ExpandDims, Reshape, Squeeze, Transpose)


def loops(graph: Graph) -> Graph:
    """The graph with every Scan simplified, up to the order in which products are summed.

    Scans with equal inputs and steps become one with the outputs of all: the rule of their
    gradient asks for a second one that keeps more. A carried sum of products x^T y is one product
    of all rows, stacked. Nodes of the body that depend on captures alone go before the loop; views
    stay, since kernels may take them into account. Outputs, carried values, and inputs that
    nothing needs are dropped.
    """
    if not any(isinstance(n.primitive, Scan) for n in graph.nodes):
        return graph
    return _trim(_hoist(_stack(_merge(graph))))


def _parts(node: Node) -> tuple[Scan, Graph]:
    assert isinstance(node.primitive, Scan)
    return node.primitive, node.primitive.body


def _scan(node: Node, body: Graph, carried: int, scanned: int, inputs: Iterable[Var]) -> Node:
    """The node with another body and its inputs; it has fresh outputs."""
    scan = node.primitive
    made = Scan(body, scan.length, carried, scanned, scan.reverse)  # type: ignore[attr-defined]
    given = tuple(inputs)
    shapes = made.infer_shape(*(v.abstract.shape for v in given))
    dtypes = made.infer_dtype(*(v.abstract.dtype for v in given))
    outputs = tuple([Var(Abstract(s, d)) for s, d in zip(shapes, dtypes, strict=True)])
    return Node(made, given, outputs, (), node.where)


def _renamed(graph: Graph, nodes: Iterable[Node], names: dict[Var, Var]) -> Graph:
    """The graph with these nodes, and other Vars in place of some."""
    made = [
        replace(n, inputs=tuple(names.get(v, v) for v in n.inputs))
        if not names.keys().isdisjoint(n.inputs)
        else n
        for n in nodes
    ]
    outputs = tuple([names.get(v, v) for v in graph.outputs])
    return replace(graph, nodes=tuple(made), outputs=outputs)


def _merge(graph: Graph) -> Graph:
    """Scans of the same steps over the same inputs as one, with the outputs of all of them."""
    groups: dict[object, list[Node]] = {}
    for node in graph.nodes:
        if isinstance(node.primitive, Scan):
            scan, body = _parts(node)
            steps = replace(body, outputs=body.outputs[: scan.carried])
            how = scan.length, scan.carried, scan.scanned, scan.reverse
            groups.setdefault((node.inputs, how, steps.key), []).append(node)
    joined = {group[0]: group for group in groups.values() if len(group) > 1}
    gone = {node for group in joined.values() for node in group[1:]}
    nodes, names = [], dict[Var, Var]()
    for node in graph.nodes:
        if node in joined:
            node = _join(joined[node], names)
        if node not in gone:
            nodes.append(node)
    return _renamed(graph, nodes, names) if gone else graph


def _join(group: list[Node], names: dict[Var, Var]) -> Node:
    """The nodes as one. names: gets their outputs, with those of the new node."""
    scan, body = _parts(group[0])
    outputs = list(body.outputs[: scan.carried])
    places: list[list[int]] = []
    for node in group:
        _, other = _parts(node)
        ours = dict(zip(other.definitions(), body.definitions(), strict=True))
        rows = [ours[v] for v in other.outputs[scan.carried :]]
        outputs += [v for v in dict.fromkeys(rows) if v not in outputs[scan.carried :]]
        found = [outputs.index(v, scan.carried) for v in rows]
        places.append([*range(scan.carried), *found])
    longer = replace(body, outputs=tuple(outputs))
    made = _scan(group[0], longer, scan.carried, scan.scanned, group[0].inputs)
    for node, at in zip(group, places, strict=True):
        names.update(zip(node.outputs, [made.outputs[i] for i in at], strict=True))
    return made


def _stack(graph: Graph) -> Graph:
    """Carried sums of products as one product of what the steps multiply, stacked."""
    nodes, names = list[Node](), dict[Var, Var]()
    for node in graph.nodes:
        nodes += _stacked(node, names) if isinstance(node.primitive, Scan) else [node]
    return _renamed(graph, nodes, names) if names else graph


def _stacked(node: Node, names: dict[Var, Var]) -> list[Node]:
    scan, body = _parts(node)
    products = {i: p for i in range(scan.carried) if (p := _summed_product(body, i)) is not None}
    if not products:
        return [node]
    kept = [i for i in range(len(body.outputs)) if i not in products]
    rows = list(dict.fromkeys(v for p in products.values() for v in p.inputs))
    first, last = scan.carried, scan.carried + scan.scanned
    read = dict(zip(body.inputs[first:last], node.inputs[first:last], strict=True))
    ready = {body.outputs[i] for i in kept if i >= first}
    made = [v for v in rows if v not in read and v not in ready]
    outputs = (*(body.outputs[i] for i in kept), *made)
    inputs = [i for i in range(len(body.inputs)) if i not in products]
    shorter = replace(body, inputs=tuple(body.inputs[i] for i in inputs), outputs=outputs)
    count = scan.carried - len(products)
    loop = _scan(node, shorter, count, scan.scanned, [node.inputs[i] for i in inputs])
    names.update((node.outputs[i], v) for i, v in zip(kept, loop.outputs, strict=False))
    read.update(zip(outputs[count:], loop.outputs[count:], strict=True))
    found = [loop]
    for i, product in products.items():
        x, y = (_long(read[v], node, found) for v in product.inputs)
        total = _call(product.primitive, (x, y), node.outputs[i].abstract, node)
        added = _call(Add(), (node.inputs[i], total.outputs[0]), node.outputs[i].abstract, node)
        names[node.outputs[i]] = added.outputs[0]
        found += [total, added]
    return found


def _summed_product(body: Graph, i: int) -> Node | None:
    """The product x^T y that is added to carried value i, if nothing else happens to it."""
    before, after = body.inputs[i], body.outputs[i]
    maker = {v: n for n in body.nodes for v in n.outputs}
    add = maker.get(after)
    readers = [n for n in body.nodes if before in n.inputs]
    if add is None or not isinstance(add.primitive, Add) or readers != [add]:
        return None
    if any(after in n.inputs for n in body.nodes) or body.outputs.count(after) > 1:
        return None
    if before in body.outputs or add.inputs.count(before) > 1:
        return None
    product = maker.get(add.inputs[add.inputs[0] is before])
    if product is None or product.primitive != MatMul(True, False):
        return None
    flat = all(len(v.abstract.shape) == 2 for v in product.inputs)
    return product if flat and product.outputs[0].abstract == after.abstract else None


def _long(stack: Var, node: Node, found: list[Node]) -> Var:
    """All rows of a stack of matrices as one matrix."""
    length, rows, columns = stack.abstract.shape
    shape = length * rows, columns
    found.append(_call(Reshape(shape), (stack,), Abstract(shape, stack.abstract.dtype), node))
    return found[-1].outputs[0]


def _call(primitive: Reshape | Add | MatMul, inputs: tuple[Var, ...], out: Abstract, node: Node) -> Node:
    return Node(primitive, inputs, (Var(Abstract(out.shape, out.dtype)),), (), node.where)


def _hoist(graph: Graph) -> Graph:
    """What depends on captures alone is computed once, before the loop."""
    nodes, constants = list[Node](), list(graph.constants)
    for node in graph.nodes:
        nodes += _hoisted(node, constants) if isinstance(node.primitive, Scan) else [node]
    if len(nodes) == len(graph.nodes):
        return graph
    return replace(graph, nodes=tuple(nodes), constants=tuple(constants))


def _hoisted(node: Node, constants: list[Var]) -> list[Node]:
    scan, body = _parts(node)
    fixed = _fixed(body, scan.carried + scan.scanned) if scan.length else []
    if not fixed:
        return [node]
    outside = dict(zip(body.inputs, node.inputs, strict=True))
    used = {v for n in fixed for v in n.inputs}
    outside.update((v, Var(v.abstract)) for v in body.constants if v in used)
    constants += [outside[v] for v in body.constants if v in used]
    outside.update((v, Var(v.abstract)) for n in fixed for v in n.outputs)
    before = [
        replace(n, inputs=tuple(outside[v] for v in n.inputs), outputs=tuple(outside[v] for v in n.outputs))
        for n in fixed
    ]
    made = [v for n in fixed for v in n.outputs]
    rest = tuple([n for n in body.nodes if n not in fixed])
    smaller = replace(body, inputs=(*body.inputs, *made), nodes=rest)
    given = (*node.inputs, *(outside[v] for v in made))
    loop = replace(node, primitive=_with(scan, smaller), inputs=given)
    return [*before, loop]


def _with(scan: Scan, body: Graph) -> Scan:
    return Scan(body, scan.length, scan.carried, scan.scanned, scan.reverse)


def _fixed(body: Graph, varying: int) -> list[Node]:
    """The nodes that give the same at each step, without views that the others read."""
    depends = set(body.inputs[:varying])
    fixed = []
    for node in body.nodes:
        if depends.isdisjoint(node.inputs) and node.primitive.effect == "pure" and node.inputs:
            fixed.append(node)
        else:
            depends.update(node.outputs)
    stays = {v for n in body.nodes if n not in fixed for v in n.inputs} | {*body.outputs}
    for node in reversed(fixed.copy()):
        if isinstance(node.primitive, VIEWS) and not stays.isdisjoint(node.outputs):
            fixed.remove(node)
            stays.update(node.inputs)
    return fixed


def _trim(graph: Graph) -> Graph:
    """Scans without the outputs, carried values and inputs that nothing needs."""
    needed = set(graph.outputs)
    nodes = []
    for node in reversed(graph.nodes):
        if isinstance(node.primitive, Scan) and not needed.isdisjoint(node.outputs):
            node = _trimmed(node, needed)
        if node.primitive.effect == "state" or not needed.isdisjoint(node.outputs):
            needed.update(node.inputs)
            nodes.append(node)
    return replace(graph, nodes=tuple(reversed(nodes)))


def _trimmed(node: Node, needed: Collection[Var]) -> Node:
    scan, body = _parts(node)
    live = {i for i, v in enumerate(node.outputs) if v in needed}
    read: set[Var] = set()
    while True:
        read = _read(body, [body.outputs[i] for i in live])
        grown = live | {i for i in range(scan.carried) if body.inputs[i] in read}
        if grown == live:
            break
        live = grown
    last = scan.carried + scan.scanned
    taken = [i for i, v in enumerate(body.inputs) if (i in live if i < scan.carried else v in read)]
    if len(live) == len(node.outputs) and len(taken) == len(body.inputs):
        return node
    left = sorted(live)
    smaller = replace(
        body,
        inputs=tuple([body.inputs[i] for i in taken]),
        outputs=tuple([body.outputs[i] for i in left]),
    )
    carried = sum(i < scan.carried for i in left)
    made = Scan(prune(smaller), scan.length, carried, sum(i < last for i in taken) - carried, scan.reverse)
    given, outputs = (tuple([vs[i] for i in at]) for vs, at in ((node.inputs, taken), (node.outputs, left)))
    return Node(made, given, outputs, (), node.where)


def _read(body: Graph, outputs: Iterable[Var]) -> set[Var]:
    """All Vars that these depend on."""
    read = set(outputs)
    for node in reversed(body.nodes):
        if not read.isdisjoint(node.outputs):
            read.update(node.inputs)
    return read
