"""Tracing: a Python function runs once on traced tensors and leaves a graph behind."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from .. import random
from ..abstract import Abstract, listed
from ..arguments import arguments
from ..errors import DeclarationError, GraphError, TraceEndedError
from ..infer import infer, infer_value
from ..location import point_at, user_location
from ..ops.arithmetic import Add
from ..ops.control import Assign
from ..parameter import Parameter
from ..primitive import Primitive
from ..settings import context, current
from ..tensor import Tensor, two_devices
from ..trace import use_trace
from .ir import Graph, Node, Var, interleave
from .state import written
from .traced import TracedTensor, live


class GraphTrace:
    """Records every call into a graph; values are not known.

    outer: for the body of a branch or loop, the trace around it, whose live tensors and
    parameters become captures (extra inputs); None for a whole function, where parameters become
    state and outer traced tensors cannot occur.
    """

    differentiates = False
    at_once = False
    parent = None

    def __init__(self, device: str, outer: Any = None):
        self.device, self.outer, self.ended = device, outer, False
        self.inputs: list[Var] = []
        self.nodes: list[Node] = []
        self.constants: dict[object, Var] = {}
        self.state: dict[int, tuple[Parameter, Var]] = {}
        self.versions: dict[int, TracedTensor] = {}
        self.captures: dict[int, tuple[Any, TracedTensor]] = {}
        self.guards: dict[int, tuple[Any, object]] = {}
        self.blocks: dict[random.Generator, int] = {}

    def input(self, abstract: Abstract) -> TracedTensor:
        """One more input of the graph."""
        var = Var(abstract)
        self.inputs.append(var)
        return TracedTensor(var, self, self.device)

    def bind(self, primitive: Primitive, args: Sequence[Any]) -> tuple[Any, ...]:
        where = user_location(primitive.name)
        try:
            if primitive.dynamic_outputs:
                raise GraphError(
                    f"{primitive.name} gives shapes that depend on values, so it runs only eagerly;"
                    " call it outside the compiled function, or keep the shape, as ops.where, "
                    "ops.masked_fill, ops.sort and sums of masks do"
                )
            tensors, consts = arguments(primitive, args, self.bind)
            self._same_device(primitive, tensors)
            known = self._known(primitive, tensors, consts)
            if known is not None:
                return known
            inputs = tuple([self.lift(t).var for t in tensors])
            abstracts = [v.abstract for v in inputs]
            outs = infer(primitive, interleave(primitive, abstracts, consts))
        except Exception as error:
            point_at(error, where)
            raise
        variables = tuple(map(Var, outs))
        self.nodes.append(Node(primitive, inputs, variables, tuple(consts.items()), where))
        results = tuple([TracedTensor(v, self, self.device) for v in variables])
        target = written(primitive, tensors)
        if target is not None:
            self._new_version(target, results[0])
        return results

    def _same_device(self, primitive: Primitive, tensors: Sequence[Tensor]) -> None:
        """DeviceError for a tensor on another device than the graph's, except beside the state of
        a random stream, which lives on the host and serves every device."""
        for t in tensors:
            if t.device != self.device:
                if any(map(self._of_stream, tensors)):
                    return
                raise two_devices(primitive.name, self.device, t.device)

    def _of_stream(self, tensor: Tensor) -> bool:
        return any(tensor is s.state for s in (random.default_generator, *self.blocks))

    def _known(
        self, primitive: Primitive, tensors: list[Tensor], consts: dict[str, Any]
    ) -> tuple[Any, ...] | None:
        """The result of infer_value where every input is constant: it feeds const inputs."""
        if not primitive._infers_value or any(
            isinstance(t, (TracedTensor, Parameter)) for t in tensors
        ):
            return None
        return known_value(primitive, tensors, consts)

    def _new_version(self, parameter: Parameter, version: TracedTensor) -> None:
        if self.outer is not None:
            raise GraphError(
                f"Parameter {parameter.name!r} is assigned inside a branch or loop of the graph; "
                "return the new value from it and assign it afterwards"
            )
        self.versions[id(parameter)] = version

    def lift(self, value: Tensor) -> TracedTensor:
        """The traced tensor for a value in this graph."""
        if isinstance(value, TracedTensor):
            if value.trace is self:
                return value
            live(value)
            return self._capture(value)
        if isinstance(value, Parameter):
            return self._capture(value) if self.outer is not None else self._read(value)
        return self.constant(value)

    def constant(self, value: Tensor) -> TracedTensor:
        """A constant of the graph; equal small constants are shared."""
        array = value._constant()
        small = array.nbytes <= 64
        name = (array.dtype, array.shape, array.tobytes()) if small else id(array)
        if name not in self.constants:
            self.constants[name] = Var(Abstract(value.shape, value.dtype, array))
        return TracedTensor(self.constants[name], self, self.device)

    def _read(self, parameter: Parameter) -> TracedTensor:
        if id(parameter) not in self.versions:
            if parameter.device != self.device and not self._of_stream(parameter):
                raise two_devices("a graph", self.device, parameter.device)
            var = Var(parameter._abstract)
            self.state[id(parameter)] = (parameter, var)
            self.versions[id(parameter)] = TracedTensor(var, self, self.device)
        return self.versions[id(parameter)]

    def _capture(self, value: Tensor) -> TracedTensor:
        if self.outer is None:
            raise TraceEndedError(
                "a traced tensor of another trace was used in a function traced on its own; pass "
                "it as an argument"
            )
        if id(value) not in self.captures:
            self.captures[id(value)] = (value, self.input(value._abstract))
        return self.captures[id(value)][1]

    def call(self, fn: Callable[..., Any], args: Sequence[Any], named: Mapping[str, Any]) -> Any:
        return fn(*args, **named)

    def call_with_bprop(
        self, name: str, fn: Callable[..., Any], bprop: Callable[..., Any], args: Sequence[Any]
    ) -> Any:
        if self._differentiated():
            raise GraphError(
                f"{name} has a bprop of its own, and is called in a branch or loop of a graph that "
                "is differentiated, where that bprop would be lost; call it outside of the branch "
                "or loop, or differentiate a cond eagerly, in PYNATIVE_MODE without jit"
            )
        return fn(*args)

    def call_recomputed(
        self, name: str, fn: Callable[..., Any], pull: Callable[..., Any], args: Sequence[Any]
    ) -> Any:
        return fn(*args)

    def _differentiated(self) -> bool:
        """True for a body whose graph is recorded as a whole by a gradient."""
        trace = self.outer
        while trace is not None and not trace.differentiates:
            trace = trace.outer if isinstance(trace, GraphTrace) else trace.parent
        return trace is not None

    def guard(self, owner: Any, state: object) -> None:
        """Note that what is traced depends on `owner` (a cell) being in `state`."""
        self.guards[id(owner)] = (owner, state)
        if self.outer is not None:
            self.outer.guard(owner, state)

    def graph_of(
        self, fn: Callable[..., Any], operands: Sequence[Any]
    ) -> tuple[Graph, list[Any], dict[Any, int]]:
        return trace_body(self, fn, operands)

    def stand_in(self, parameter: Any) -> Any:
        return self.lift(parameter)

    def reserve(self, blocks: int, generator: Any = None) -> tuple[Any, int]:
        # A body draws from the outer trace's state; whoever traces the body reserves the blocks.
        stream = generator or random.default_generator
        state, start = (stream.state, 0) if self.outer is None else self.outer.reserve(0, stream)
        drawn = self.blocks.get(stream, 0)
        self.blocks[stream] = drawn + blocks
        return state, start + drawn

    def anchored(self) -> bool:
        """True where the graph reads parameters, which all are on its device."""
        return not all(self._of_stream(parameter) for parameter, _ in self.state.values())

    def drawn(self) -> dict[Any, int]:
        """The generators drawn from, with the number of blocks."""
        return {stream: blocks for stream, blocks in self.blocks.items() if blocks}

    def finish(self, outputs: Sequence[Any], name: str = "graph") -> Graph:
        """End the trace, which is current: the graph with these outputs. Random blocks drawn are
        written once for each stream."""
        outs = tuple([self.lift(as_tensor(o)).var for o in outputs])
        for stream, blocks in self.drawn().items() if self.outer is None else ():
            (after,) = self.bind(Add(), (stream.state, np.array([0, blocks], np.uint64)))
            self.bind(Assign(), (stream.state, after))
        self.ended = True
        constants = tuple(self.constants.values())
        state_pairs = tuple(self.state.values())
        return Graph(tuple(self.inputs), tuple(self.nodes), outs, constants, state_pairs, name)


def as_tensor(value: Any) -> Tensor:
    """The value itself if it is a Tensor, else a Tensor of it."""
    return value if isinstance(value, Tensor) else Tensor(value)


def known_value(
    primitive: Primitive, tensors: Sequence[Tensor], consts: dict[str, Any]
) -> tuple[Tensor, ...] | None:
    """The outputs of a primitive whose `infer_value` computes them from constant inputs, or None.

    DeclarationError where it gives other shapes or another number than the rules.
    """
    known = [Abstract(t.shape, t.dtype, Tensor._host(t, "infer_value")) for t in tensors]
    result = infer_value(primitive, interleave(primitive, known, consts))
    if result is None:
        return None
    abstracts = [t._abstract for t in tensors]
    outs = infer(primitive, interleave(primitive, abstracts, consts))
    results = (result,) if primitive._single else tuple(result)
    given = [np.asarray(r) for r in results]
    if [g.shape for g in given] != [a.shape for a in outs]:
        raise DeclarationError(
            f"{primitive.name} infer_value gave {listed(given)}; its rules say {listed(outs)}; "
            "make them agree"
        )
    return tuple(Tensor(g.astype(a.dtype)) for g, a in zip(given, outs, strict=True))


def trace_body(
    outer: Any, fn: Callable[..., Any], operands: Sequence[Any]
) -> tuple[Graph, list[Any], dict[Any, int]]:
    """The graph of a branch or loop body, whose inputs are the operands, then the captures; the
    captures; and the number of random blocks it draws of each generator. operands: tensors, or
    types of such."""
    typed = [o if isinstance(o, Abstract) else as_tensor(o)._abstract for o in operands]
    devices = [o.device for o in operands if isinstance(o, Tensor)]
    inner = GraphTrace(devices[0] if devices else current().device_target, outer)
    try:
        with use_trace(inner):
            result = fn(*map(inner.input, typed))
            outs = tuple(result) if isinstance(result, (tuple, list)) else (result,)
            graph = inner.finish(outs, getattr(fn, "__name__", "body"))
    finally:
        inner.ended = True
    return graph, [value for value, _ in inner.captures.values()], inner.drawn()


def trace_graph(
    fn: Callable[..., Sequence[Any]], abstracts: Sequence[Abstract], device: str, name: str
) -> tuple[Graph, GraphTrace]:
    """Trace `fn(*tensors) -> sequence of tensors` on inputs of the given types."""
    trace = GraphTrace(device)
    try:
        # Tensors that the function creates are created on the device.
        with context(device_target=device), use_trace(trace):
            outs = fn(*[trace.input(a) for a in abstracts])
            return trace.finish(outs, name), trace
    finally:
        trace.ended = True
