"""Gradient rules of state, branches and loops, and of calls that carry their own bprop.

Then of collectives: each one's transpose, a collective of the same group.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import optree

from ... import ops
from ...core.abstract import Abstract, is_inexact
from ...core.bprop import Bprop, bprop_getters, rule
from ...core.errors import BpropError, BpropNotFoundError
from ...core.settings import current
from ...core.tensor import Tensor
from ...core.trace import current_trace, use_trace
from ...graph.ir import Graph, Node, Var
from ...graph.passes import run_passes
from ...graph.record import replay
from ...graph.tracing import Called, trace_graph
from ...ops.checks import on_device_of
from ..batching import Batched, BatchTrace, Mapped, all_in_front, batches, in_front, padded
from ..forward import jointly, moved_or_zeros, moves_along, of_duals
from ..reverse import pull_graph, pull_values, used


@bprop_getters.register(ops.Assign)
def get_bprop_assign(self: ops.Assign) -> Bprop:
    return lambda parameter, value, out, dout: (None, dout)


@bprop_getters.register(ops.Barrier)
def get_bprop_barrier(self: ops.Barrier) -> Bprop:
    return lambda x, after, out, dout: (dout, None)


@bprop_getters.register(ops.Cond)
def get_bprop_cond(self: ops.Cond) -> Bprop:
    def bprop(pred: Any, *rest: Any) -> tuple[Any, ...]:
        *operands, _, dout = rest
        positions = [i for i, x in enumerate(operands) if is_inexact(x.dtype)]

        def pull(graph: Any, takes: tuple[int, ...]) -> Callable[[], list[Any]]:
            def branch() -> list[Any]:
                found = pull_graph(graph, [operands[i] for i in takes], dout)
                by_position = dict(zip(takes, found, strict=True))
                return [by_position.get(i, ops.zeros_like(operands[i])) for i in positions]

            return branch

        yes, no = pull(self.on_true, self.true_takes), pull(self.on_false, self.false_takes)
        gradients = dict(zip(positions, ops.cond(pred, yes, no), strict=True)) if positions else {}
        return (None, *(gradients.get(i) for i in range(len(operands))))

    return bprop


@bprop_getters.register(ops.WhileLoop)
def get_bprop_while_loop(self: ops.WhileLoop) -> Bprop:
    raise BpropNotFoundError(
        "WhileLoop in a graph has no gradient, because its trip count is unknown; give it "
        "max_iterations=, use ops.scan, or differentiate eagerly, in PYNATIVE_MODE without jit"
    )


# --- Scan -----------------------------------------------------------------------------------------


@bprop_getters.register(ops.Scan)
def get_bprop_scan(self: ops.Scan) -> Bprop:
    def bprop(*args: Any) -> tuple[Any, ...]:
        *inputs, out, dout = args
        floats = _floats(self.body.outputs)
        reached = [i for i in floats if i < self.carried or used(dout, i)]
        step = _step(self, reached, inputs[0].device if inputs else "cpu")
        gradients = dict(zip(step.given, _run(self, step, inputs, out, dout), strict=True))
        return tuple(map(gradients.get, range(len(inputs))))

    return bprop


class _Step(NamedTuple):
    """A backward step as a graph.

    Its inputs are the values of `known`, Vars of the forward body, then the cotangents of the
    outputs `reached`, then a running sum for each of the captures `summed`. Its outputs are the
    gradients of the forward inputs `given`: carried values, captures (the sums), rows.
    """

    graph: Graph
    known: list[Var]
    reached: list[int]
    summed: list[int]
    given: list[int]


def _step(scan: ops.Scan, reached: list[int], device: str) -> _Step:
    body, first, last = scan.body, scan.carried, scan.carried + scan.scanned
    floats = _floats(body.inputs)
    carried, rows, summed = (
        [i for i in floats if i in part]
        for part in (range(first), range(first, last), range(last, len(body.inputs)))
    )
    known = [*body.inputs, *_kept(body, last)]
    given: list[int] = []

    def backward(*values: Any) -> list[Any]:
        forward = dict(zip(known, values, strict=False))
        rest = values[len(known) :]
        douts = dict(zip(reached, rest, strict=False))
        sums = dict(zip(summed, rest[len(reached) :], strict=True))
        found = pull_values(body, forward, [douts.get(i) for i in range(len(body.outputs))])
        for i in carried:
            if body.inputs[i] not in found:
                found[body.inputs[i]] = ops.zeros_like(values[i])
        given[:] = [i for i in (*carried, *summed, *rows) if body.inputs[i] in found]
        gradients = {i: found[body.inputs[i]] for i in given}
        return [ops.add(sums[i], g) if i in sums else g for i, g in gradients.items()]

    inputs = [*known, *(body.outputs[i] for i in reached), *(body.inputs[i] for i in summed)]
    graph, _ = trace_graph(backward, [v.abstract for v in inputs], device, "backward")
    return _Step(run_passes(graph, current().disabled_passes), known, reached, summed, given)


def _floats(variables: Sequence[Var]) -> list[int]:
    return [i for i, v in enumerate(variables) if is_inexact(v.abstract.dtype)]


def _kept(body: Graph, varying: int) -> list[Var]:
    """The inner values of the body that a backward step may read: those that depend on the first
    `varying` inputs, which differ from step to step, and that are not recomputed."""
    depends = set(body.inputs[:varying])
    kept: list[Var] = []
    for node in body.nodes:
        if not depends.isdisjoint(node.inputs):
            depends.update(node.outputs)
            # Views and casts are computed again: that costs no more than to read stacked rows.
            cheap = type(node.primitive).view not in (None, "same")
            kept += [] if cheap or isinstance(node.primitive, ops.Cast) else node.outputs
    return kept


def _run(
    scan: ops.Scan, step: _Step, inputs: Sequence[Any], out: Sequence[Any], dout: Sequence[Any]
) -> Sequence[Any]:
    """The scan of the backward step, in the other direction: the gradients of `step.given`."""
    graph, first, last = step.graph, scan.carried, scan.carried + scan.scanned
    values = dict(zip(graph.inputs, step.known, strict=False))
    rest = graph.inputs[len(step.known) :]
    douts = dict(zip(rest, step.reached, strict=False))
    sums = dict(zip(rest[len(step.reached) :], step.summed, strict=True))
    needed = {*graph.outputs, *(v for node in graph.nodes for v in node.inputs)}
    stacks = dict(zip(scan.body.inputs[first:last], inputs[first:last], strict=True))
    captured = dict(zip(scan.body.inputs[last:], inputs[last:], strict=True))
    read = {v: forward for v, forward in values.items() if v in needed}
    missing = [f for f in read.values() if f not in stacks and f not in captured]
    stacks.update(zip(missing, _stacks(scan, missing, inputs, out), strict=True))

    carried = [(v, dout[i]) for v, i in douts.items() if i < first]
    carried += [(v, ops.zeros_like(inputs[i])) for v, i in sums.items() if i in step.given]
    rows = [(v, dout[i]) for v, i in douts.items() if i >= first and v in needed]
    rows += [(v, stacks[f]) for v, f in read.items() if f in stacks]
    taken = [*carried, *rows, *((v, captured[f]) for v, f in read.items() if f in captured)]
    backward = replace(graph, inputs=tuple([v for v, _ in taken]))
    primitive = ops.Scan(backward, scan.length, len(carried), len(rows), not scan.reverse)
    return tuple(primitive(*[value for _, value in taken])) if step.given else ()


def _stacks(
    scan: ops.Scan, kept: Sequence[Var], inputs: Sequence[Any], out: Sequence[Any]
) -> list[Any]:
    """The values of these Vars of the body at all steps, from the same scan with more outputs; the
    pass `loops` replaces the forward scan by it."""
    body = scan.body
    known = dict(zip(body.outputs[scan.carried :], out[scan.carried :], strict=True))
    missing = [v for v in kept if v not in known]
    if missing:
        longer = replace(body, outputs=(*body.outputs, *missing))
        outs = ops.Scan(longer, scan.length, scan.carried, scan.scanned, scan.reverse)(*inputs)
        known.update(zip(missing, outs[len(body.outputs) :], strict=True))
    return [known[v] for v in kept]


# --- Calls with their own gradient ----------------------------------------------------------------


@rule(Called)
def called_bprop(self: Called, *values: Any) -> tuple[Any, ...]:
    *inputs, out, dout = values
    args = self.args.filled(inputs)
    douts = self.out._replace(leaves=[None] * len(self.out.leaves)).filled(dout)
    found = _run_call(self, args, (*args, self.out.filled(out), douts))
    leaves = _leaves(self, found, args)
    return tuple(leaves[i] for i in self.args.positions)


def _run_call(call: Called, args: Sequence[Any], given: Sequence[Any]) -> Any:
    """The result of the bprop; BpropError where it does not take its arguments."""
    try:
        return call.bprop(*given)
    except TypeError:
        taken = inspect.signature(call.bprop)
        try:
            taken.bind(*given)
        except TypeError:
            named = ", ".join(f"x{i}" for i in range(len(args))) or "no inputs"
            raise BpropError(
                f"{call.name} bprop takes {taken}; it gets ({named}, out, dout)"
            ) from None
        raise


def _leaves(call: Called, found: Any, args: Sequence[Any]) -> list[Any]:
    """The gradients of all leaves of the arguments, None where there is none."""
    count = len(args)
    if not isinstance(found, tuple):
        raise BpropError(
            f"{call.name} bprop returned {_kind(found)}; return a tuple with one gradient per "
            f"argument, {count} here, as (dx,)"
        )
    if len(found) != count:
        raise BpropError(
            f"{call.name} bprop returned {len(found)} gradients for {count} arguments; return one "
            "per argument, None where there is none"
        )
    return [leaf for i in range(count) for leaf in _fitted(call, i, found[i], args[i])]


def _kind(value: object) -> str:
    return "a tensor" if isinstance(value, Tensor) else type(value).__name__


def _fitted(call: Called, index: int, gradient: Any, argument: Any) -> list[Any]:
    """The gradient's leaves, in the structure of the argument."""
    spec = optree.tree_structure(argument, none_is_leaf=True)
    if gradient is None:
        return [None] * spec.num_leaves
    try:
        return list(spec.flatten_up_to(gradient))
    except ValueError as error:
        raise BpropError(
            f"{call.name} bprop returned a gradient of another structure than argument {index} "
            f"has: {error}"
        ) from None


# --- Batching -------------------------------------------------------------------------------------


@batches(ops.Barrier)
def batch_barrier(self: ops.Barrier, batched: Batched, x: Any, after: Any) -> Any:
    return self(x if batched[0] else in_front(x, batched.size), after)


@batches(ops.Cond)
def batch_cond(self: ops.Cond, batched: Batched, pred: Any, *operands: Any) -> Any:
    """A condition that differs between examples computes both branches, and selects."""
    flags, device = batched[1:], operands[0].device if operands else pred.device
    branches = (self.on_true, self.true_takes), (self.on_false, self.false_takes)
    if not batched[0]:
        spread = [True] * len(self.on_true.outputs)
        on_true, on_false = (
            _batched_graph(graph, [flags[i] for i in takes], batched.mapped, device, spread)[0]
            for graph, takes in branches
        )
        return ops.Cond(on_true, on_false, self.true_takes, self.false_takes)(pred, *operands)
    yes, no = (
        _branch(graph, [flags[i] for i in takes], [operands[i] for i in takes], taken, batched)
        for (graph, takes), taken in zip(branches, (pred, ops.logical_not(pred)), strict=True)
    )
    return tuple([
        ops.where(padded(pred, len(a.shape) - 1), a, b) for a, b in zip(yes, no, strict=True)
    ])  # fmt: skip


def _branch(
    graph: Graph, flags: Sequence[bool], values: Sequence[Any], taken: Any, batched: Batched
) -> Any:
    """The outputs of a branch for all examples; `taken` is True for those that take it. One that
    may raise is computed at their values alone, and not at all if none takes it."""
    if not batched.size or not any(_refusing(graph)):
        return _of_graph(graph, flags, values, batched.mapped)

    def zeros() -> list[Any]:
        with on_device_of(taken):
            types = [out.abstract for out in graph.outputs]
            return [ops.zeros((batched.size, *t.shape), t.dtype) for t in types]

    def outs() -> list[Any]:
        given = _of_taking(taken, flags, values, batched)
        return _of_graph(graph, flags, given, batched.mapped)

    return ops.cond(ops.any(taken), outs, zeros)


def _of_taking(
    taken: Any, flags: Sequence[bool], values: Sequence[Any], batched: Batched
) -> list[Any]:
    """The values of the examples for which `taken` is True, and in place of the others those of
    the first such example: theirs may be ones for which the computation raises."""
    with on_device_of(taken):
        own = ops.arange(batched.size)
    rows = ops.where(taken, own, ops.argmax(ops.cast(taken, own.dtype), 0))
    return [ops.gather(v, rows, 0) if f else v for v, f in zip(values, flags, strict=True)]


def _refusing(graph: Graph) -> Iterator[Node]:
    """The nodes, inner ones too, that raise for some values, if these may differ by example."""
    fixed = set(graph.constants)
    for node in graph.nodes:
        whole = [v for v in node.inputs if not is_inexact(v.abstract.dtype)]
        if node.primitive.refuses and not fixed.issuperset(whole or node.inputs):
            yield node
        for value in node.primitive.attributes.values():
            if isinstance(value, Graph):
                yield from _refusing(value)


@batches(ops.WhileLoop)
def batch_while_loop(self: ops.WhileLoop, batched: Batched, *values: Any) -> Any:
    """The loop goes on until it is over for every example; those that are done keep their
    values. A body that may raise for these computes another example's step in their place."""
    count, mapped = len(self.body.outputs), batched.mapped
    flags = [True] * count + list(batched[count:])
    captured = values[count:]
    refuses = batched.size > 0 and any(_refusing(self.body))

    def run(graph: Graph, takes: tuple[int, ...], known: Sequence[Any]) -> list[Any]:
        return _of_graph(graph, [flags[i] for i in takes], [known[i] for i in takes], mapped)

    def goes_on(carried: Sequence[Any]) -> Any:
        return run(self.condition, self.condition_takes, (*carried, *captured))[0]

    def step(carried: Sequence[Any]) -> tuple[Any, ...]:
        going, known = goes_on(carried), [*carried, *captured]
        if refuses:
            known = _of_taking(going, flags, known, batched)
        after = run(self.body, self.body_takes, known)
        return tuple([
            ops.where(padded(going, len(a.shape) - 1), a, b)
            for a, b in zip(after, carried, strict=True)
        ])  # fmt: skip

    first = all_in_front(Batched(batched[:count], mapped), values[:count])
    going = lambda carried: ops.any(goes_on(carried))  # noqa: E731
    return ops.while_loop(going, step, tuple(first), self.most)


@batches(ops.Scan)
def batch_scan(self: ops.Scan, batched: Batched, *values: Any) -> Any:
    """A scan whose steps are made for all examples. A carried value differs between them if its
    first one does, or the step's."""
    first, last = self.carried, self.carried + self.scanned
    device = values[0].device if values else "cpu"
    carried, flags = list(batched[:first]), list(batched)
    rows = [False] * (len(self.body.outputs) - first)
    while True:
        differ, spread = [*carried, *flags[first:]], [*carried, *rows]
        body, found = _batched_graph(self.body, differ, batched.mapped, device, spread)
        if found[:first] == carried:
            break
        carried = found[:first]
    given = [
        in_front(v, batched.size) if wanted and not flag else v
        for v, wanted, flag in zip(values[:first], carried, flags, strict=False)
    ]
    given += [
        ops.moveaxis(v, 0, 1) if flag else v
        for v, flag in zip(values[first:last], flags[first:last], strict=True)
    ]
    primitive = ops.Scan(body, self.length, first, self.scanned, self.reverse)
    outs = primitive(*given, *values[last:])
    whole = all_in_front(Batched(carried, batched.mapped), [*outs[:first]])
    for v, flag in zip(outs[first:], found[first:], strict=True):
        whole.append(ops.moveaxis(v, 1, 0) if flag else in_front(v, batched.size))
    return tuple(whole)


def _batched_graph(
    graph: Graph, flags: Sequence[bool], mapped: Mapped, device: str, spread: Sequence[bool]
) -> tuple[Graph, list[bool]]:
    """A graph, such as the body of a loop, for all examples.

    flags: which of its inputs differ between them. spread: for each output, whether it must have
    the axis of all even if it does not differ; and back come those that have it.
    """
    inputs = [
        Abstract((mapped.size, *v.abstract.shape), v.abstract.dtype) if flag else v.abstract
        for v, flag in zip(graph.inputs, flags, strict=True)
    ]
    found: list[bool] = []

    def body(*tensors: Any) -> list[Any]:
        trace = BatchTrace(current_trace(), mapped)
        with use_trace(trace):
            given = [trace.wrap(t) if flag else t for t, flag in zip(tensors, flags, strict=True)]
            outs = replay(graph, given)
        found[:] = [trace.owns(o) or s for o, s in zip(outs, spread, strict=True)]
        return [trace.whole(o) if f else o for o, f in zip(outs, found, strict=True)]

    made, ended = trace_graph(body, inputs, device, graph.name)
    for where, text in ended.remarks:
        current_trace().remark(where, text)
    return made, found


def _of_graph(
    graph: Graph, flags: Sequence[bool], values: Sequence[Any], mapped: Mapped
) -> list[Any]:
    """The outputs of a graph for all examples, computed in the current trace."""
    trace = BatchTrace(current_trace(), mapped)
    with use_trace(trace):
        given = [trace.wrap(v) if flag else v for v, flag in zip(values, flags, strict=True)]
        outs = replay(graph, given)
    return [trace.whole(out) for out in outs]


# --- Tangents -------------------------------------------------------------------------------------


@moves_along(ops.Barrier)
def jvp_barrier(self: ops.Barrier, primals: Any, tangents: Any, out: Any) -> Any:
    return ops.zeros_like(out) if tangents[0] is None else self(tangents[0], primals[1])


@moves_along(ops.Assign)
def jvp_assign(self: ops.Assign, primals: Any, tangents: Any, out: Any) -> Any:
    return tangents[1]


Pair = tuple[list[Any], list[Any]]  # values and tangents


@jointly(ops.Cond)
def dual_cond(self: ops.Cond, primals: Any, tangents: Any) -> Pair:
    pred, *operands = primals

    def branch(graph: Graph, takes: tuple[int, ...]) -> Callable[[], Any]:
        return lambda: of_duals(graph, [(operands[i], tangents[1 + i]) for i in takes])

    yes, no = branch(self.on_true, self.true_takes), branch(self.on_false, self.false_takes)
    return ops.cond(pred, yes, no)  # type: ignore[no-any-return]


@jointly(ops.WhileLoop)
def dual_while_loop(self: ops.WhileLoop, primals: Any, tangents: Any) -> Pair:
    count = len(self.body.outputs)
    captured = list(zip(primals[count:], tangents[count:], strict=True))

    def taken(carried: Any, takes: tuple[int, ...]) -> list[tuple[Any, Any]]:
        known = [*zip(*carried, strict=True), *captured]
        return [known[i] for i in takes]

    def goes_on(carried: Any) -> Any:
        return of_duals(self.condition, taken(carried, self.condition_takes))[0][0]

    first = list(primals[:count]), list(map(moved_or_zeros, tangents[:count], primals[:count]))
    step = lambda carried: of_duals(self.body, taken(carried, self.body_takes))  # noqa: E731
    return ops.while_loop(goes_on, step, first, self.most)  # type: ignore[no-any-return]


@jointly(ops.Scan)
def dual_scan(self: ops.Scan, primals: Any, tangents: Any) -> Pair:
    first, last = self.carried, self.carried + self.scanned
    captured = list(zip(primals[last:], tangents[last:], strict=True))

    def step(carried: Any, rows: Any) -> tuple[Any, Any]:
        given = [*zip(*carried, strict=True), *zip(*rows, strict=True), *captured]
        outs, moved = of_duals(self.body, given)
        return (outs[:first], moved[:first]), (outs[first:], moved[first:])

    begin, xs = (
        (list(part), list(map(moved_or_zeros, moving, part)))
        for part, moving in (
            (primals[:first], tangents[:first]),
            (primals[first:last], tangents[first:last]),
        )
    )
    rows, carried = ops.scan(step, begin, xs, self.length, self.reverse)
    return [*carried[0], *rows[0]], [*carried[1], *rows[1]]


# --- Collectives ----------------------------------------------------------------------------------


@rule(ops.AllReduce)
def all_reduce_bprop(self: ops.AllReduce, x: Any, out: Any, dout: Any) -> tuple[Any]:
    """A maximum passes its gradient to the largest of the ranks, in equal parts where several
    are."""
    if self.op != "max":
        return (self(dout),)
    return (_shares(self, x, out) * ops.AllReduce("sum", self.group, self.size)(dout),)


def _shares(self: ops.AllReduce, x: Any, out: Any) -> Any:
    """The share of each element in the maximum: 1 over the number of ranks that have it, else 0."""
    largest = ops.cast(ops.equal(x, out), x.dtype)
    return largest / ops.AllReduce("sum", self.group, self.size)(largest)


@moves_along(ops.AllReduce)
def jvp_all_reduce(self: ops.AllReduce, primals: Any, tangents: Any, out: Any) -> Any:
    if self.op != "max":
        return self(tangents[0])
    share = _shares(self, primals[0], out)
    return ops.AllReduce("sum", self.group, self.size)(share * tangents[0])


_TRANSPOSES = {
    ops.Reduce: ops.Broadcast, ops.Broadcast: ops.Reduce, ops.AllGather: ops.ReduceScatter,
    ops.ReduceScatter: ops.AllGather, ops.AllToAll: ops.AllToAll,
}  # fmt: skip


@rule(*_TRANSPOSES)
def collective_bprop(self: Any, x: Any, out: Any, dout: Any) -> tuple[Any]:
    return (_TRANSPOSES[type(self)](**self.attributes)(dout),)


@rule(ops.SendRecv)
def send_recv_bprop(self: ops.SendRecv, x: Any, out: Any, dout: Any) -> tuple[Any]:
    back = tuple([(to, source) for source, to in self.pairs])
    return (ops.SendRecv(back, self.group, self.size)(dout),)


@batches(ops.AllGather, ops.ReduceScatter, ops.AllToAll)
def batch_blocks(self: Any, batched: Batched, x: Any) -> Any:
    """The blocks of all examples at once, behind which the examples stand meanwhile."""
    return ops.moveaxis(self(ops.moveaxis(x, 0, 1)), 1, 0)
