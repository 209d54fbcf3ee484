"""The gradient of a scan: a scan in the other direction over what the forward steps keep."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from ... import ops
from ...bprop import Bprop, bprop_getters
from ...dtype import is_float
from ...graph.ir import Graph, Var
from ...graph.passes import run_passes
from ...graph.tracer import trace_graph
from ...settings import current
from ..reverse import pull_values, used

# Made again in the backward step, as they cost no more than reading the rows that would be kept.
_REMADE = (ops.Reshape, ops.ExpandDims, ops.Squeeze, ops.Transpose, ops.BroadcastTo, ops.Cast)


class _Step(NamedTuple):
    """One step backward as a graph.

    known: Vars of the forward body, whose values are its first inputs; then follow the cotangents
    of the outputs that are `reached`, then a running sum for each of `summed`. Its outputs are the
    gradients of the forward inputs `given`: of what is carried, of captures (the sums), of rows.
    """

    graph: Graph
    known: list[Var]
    reached: list[int]
    summed: list[int]
    given: list[int]


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


def _floats(variables: Sequence[Var]) -> list[int]:
    return [i for i, v in enumerate(variables) if is_float(v.abstract.dtype)]


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


def _kept(body: Graph, varying: int) -> list[Var]:
    """The inner values of the body that a backward step may read: those that depend on the first
    inputs, which differ from step to step, and that are not remade."""
    depends = set(body.inputs[:varying])
    kept: list[Var] = []
    for node in body.nodes:
        if not depends.isdisjoint(node.inputs):
            depends.update(node.outputs)
            kept += [] if isinstance(node.primitive, _REMADE) else node.outputs
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
    """The values that these Vars of the body have at all steps, from the same scan with more
    outputs, with which the pass `loops` replaces the one there is."""
    body = scan.body
    known = dict(zip(body.outputs[scan.carried :], out[scan.carried :], strict=True))
    missing = [v for v in kept if v not in known]
    if missing:
        longer = replace(body, outputs=(*body.outputs, *missing))
        outs = ops.Scan(longer, scan.length, scan.carried, scan.scanned, scan.reverse)(*inputs)
        known.update(zip(missing, outs[len(body.outputs) :], strict=True))
    return [known[v] for v in kept]
