"""Tracing: a Python function runs once on traced tensors, and its calls are recorded as a graph.

Functions: arguments and results are pytrees, whose tensors are traced. The graph trace: records
every call. Traced tensors: stand-ins without values. Forwarding: the defaults of a trace on top of
another. Custom gradients: the call of a function with a gradient of its own as one node.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from copy import copy
from dataclasses import replace
from inspect import signature
from operator import itemgetter
from typing import Any, ClassVar

import numpy as np
import optree

from .. import ops
from ..core.abstract import Abstract, DType, canonical, listed, typed
from ..core.errors import (
    DeclarationError,
    DeviceError,
    GradientArgumentError,
    GraphError,
    TracedValueError,
    TraceEndedError,
    point_at,
)
from ..core.infer import arguments, infer, infer_value, interleave, written
from ..core.parameter import Generator, Parameter, default_generator
from ..core.primitive import Primitive
from ..core.scope import user_location
from ..core.settings import context, current
from ..core.tensor import Tensor, common_device, two_devices
from ..core.trace import Partition, Trace, current_trace, partition, use_trace
from ..ops.control import Assign
from ..ops.elementwise import Add
from .ir import (
    Graph,
    Node,
    Rebuild,
    Var,
    flatten_arguments,
    input_names,
    is_result,
    output_names,
    refuse_dataclass,
)

Function = Callable[..., Any]


# --- Tracing of functions -------------------------------------------------------------------------


def trace(fn: Function, *example_args: Any, **named: Any) -> Graph:
    """The graph of `fn` for arguments of these types; nothing is computed and no pass has run.

    Arguments, by position or by keyword, and results are trees (tuples, lists, dicts ...). Tensors
    and arrays in them become inputs and outputs of the graph; Python scalars, strings, None and
    dtypes are part of the program, so pass a Tensor for a number that varies. Parameters are
    state, wherever `fn` meets them. The graph's inputs have the names of fn's parameters, or, in a
    tree, their paths, such as "batch.x"; its outputs are "out", or their paths.

    >>> import numpy as np
    >>> from miniml import ops
    >>> print(trace(ops.exp, np.zeros((2, 3), np.float32)))
    Exp(%0: float32[2, 3]):
      %1: float32[2, 3] = Exp() %0
      return %1
    """
    leaves, _, rebuild = flatten_arguments((example_args, named))
    abstracts = [Abstract(leaf.shape, canonical(leaf.dtype)) for leaf in leaves]
    tensors = [leaf for leaf in leaves if isinstance(leaf, Tensor)]
    device = common_device("trace", tensors)
    graph, result, _ = trace_call(fn, rebuild, abstracts, device, placed=bool(tensors))
    inputs = input_names(fn, rebuild, len(graph.inputs))
    return replace(graph, input_names=inputs, output_names=output_names(result, len(graph.outputs)))


def trace_call(
    fn: Function, rebuild: Rebuild, abstracts: Sequence[Abstract], device: str, placed: bool = True
) -> tuple[Graph, Rebuild, GraphTrace]:
    """Trace fn on inputs of these types, which `rebuild` puts into (args, named).

    placed: True if some input is a tensor, which decides the device. Arrays alone follow the
    tensors that fn finds: where these are elsewhere, fn is traced again for their device.

    Returns the graph, `rebuild(output values)`, the result of fn with these values for its tensors,
    and the ended trace with its guards.
    """
    if not callable(fn):
        raise GraphError(f"trace got {fn!r}, of type {type(fn).__name__}; give a function")
    results: list[Partition] = []

    def body(*tensors: Tensor) -> list[Any]:
        by_position, by_keyword = rebuild(tensors)
        results[:] = [partition(fn(*by_position, **by_keyword), is_result)]
        return results[0].taken()

    traced = trace_graph if placed else trace_anywhere
    graph, ended = traced(body, abstracts, device, function_name(fn))
    for leaf in results[0].left():
        refuse_dataclass(f"{function_name(fn)} returned", leaf)
    return graph, rebuild_of(results[0]), ended


def rebuild_of(result: Partition) -> Rebuild:
    """A function that puts values in place of a result's tensors, without keeping those alive."""
    if result.positions == [0] and result.spec.is_leaf():
        return itemgetter(0)
    if result.spec.type in (list, tuple) and result.spec.num_nodes == len(result.positions) + 1:
        return result.spec.type  # type: ignore[no-any-return]  # of tensors alone
    return result.emptied().filled


def function_name(fn: Any) -> str:
    """The name of a graph of `fn`."""
    name = getattr(fn, "__name__", None) or getattr(fn, "name", None)
    name = name if isinstance(name, str) else type(fn).__name__
    return name if name.isidentifier() else "graph"


def trace_anywhere(
    fn: Callable[..., Sequence[Any]], abstracts: Sequence[Abstract], device: str, name: str
) -> tuple[Graph, GraphTrace]:
    """`trace_graph`, on the device of the tensors that fn finds, where these are elsewhere."""
    try:
        return trace_graph(fn, abstracts, device, name)
    except DeviceError as error:
        elsewhere = error.other
        if elsewhere is None:
            raise
    return trace_graph(fn, abstracts, elsewhere, name)  # outside of the handler: without a context


def trace_graph(
    fn: Callable[..., Sequence[Any]], abstracts: Sequence[Abstract], device: str, name: str
) -> tuple[Graph, GraphTrace]:
    """Trace `fn(*tensors) -> sequence of tensors` on inputs of the given types."""
    trace = GraphTrace(device)
    try:
        # Tensors that the function creates are created on the device.
        with context(device_target=device), use_trace(trace):
            return trace.finish(fn(*[trace.input(a) for a in abstracts]), name), trace
    finally:
        trace.ended = True


def trace_body(
    outer: Any, fn: Function, operands: Sequence[Any]
) -> tuple[Graph, list[Any], dict[Any, int]]:
    """Trace a branch or loop body.

    Returns its graph, whose inputs are the operands, then the captures; the captures; and the
    number of random blocks it draws of each generator. operands: tensors, or their types.
    """
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


# --- Graph trace ----------------------------------------------------------------------------------


class GraphTrace(Trace):
    """A trace that records every call in a graph; values are not known.

    outer: for the body of a branch or loop, the trace around it, whose live tensors and
    parameters become captures (extra inputs); None for a whole function, where parameters become
    state and outer traced tensors cannot occur. values_asked: True once Python code asked for a
    value, which nobody knows.
    """

    at_once = False
    graph_of = trace_body

    def __init__(self, device: str, outer: Any = None):
        self.device, self.outer, self.ended = device, outer, False
        self.values_asked = False
        self.inputs: list[Var] = []
        self.nodes: list[Node] = []
        self.constants: dict[object, Var] = {}
        self.state: dict[int, tuple[Parameter, Var]] = {}
        self.versions: dict[int, TracedTensor] = {}
        self.captures: dict[int, tuple[Any, TracedTensor]] = {}
        self.guards: dict[int, tuple[Any, object]] = {}
        self.remarks: dict[tuple[Any, str], None] = {}  # in order, each once
        self.blocks: dict[Generator, int] = {}
        self.streams: dict[Generator, tuple[Any, int]] = {}  # of a body: where each one begins

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
        own = any(tensor is s.state for s in (default_generator, *self.blocks))
        return own or self._begins(tensor)

    def _begins(self, tensor: Tensor) -> bool:
        """True for the state in which a stream is where this body begins."""
        return any(tensor is state for state, _ in self.streams.values())

    def _known(
        self, primitive: Primitive, tensors: list[Tensor], consts: dict[str, Any]
    ) -> tuple[Any, ...] | None:
        """The result of infer_value if every input is constant: it feeds const inputs."""
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
        return self._capture(value) if self._begins(value) else self.constant(value)

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

    def call_with_bprop(self, name: str, fn: Function, bprop: Function, args: Sequence[Any]) -> Any:
        if self._differentiated():
            raise GraphError(
                f"{name} has a bprop of its own, and is called in a branch or loop of a graph that "
                "is differentiated, where that bprop would be lost; call it outside of the branch "
                "or loop, or differentiate a cond eagerly, in PYNATIVE_MODE without jit"
            )
        return fn(*args)

    def _differentiated(self) -> bool:
        """True for a body whose graph is recorded as a whole by a gradient."""
        trace = self.outer
        while trace is not None and not trace.differentiates:
            trace = trace.outer if isinstance(trace, GraphTrace) else trace.parent
        return trace is not None

    def guard(self, owner: Any, state: object) -> None:
        """Note that the trace depends on `owner` (a cell) being in `state`."""
        self.guards[id(owner)] = (owner, state)
        if self.outer is not None:
            self.outer.guard(owner, state)

    def remark(self, where: object, text: str) -> None:
        self.remarks[where, text] = None
        if self.outer is not None:
            self.outer.remark(where, text)

    def remarked(self) -> tuple[str, ...]:
        """The remarks, each with the place that it is about."""
        return tuple([f"{text} (at {where})" for where, text in self.remarks])

    def stand_in(self, parameter: Any) -> Any:
        return self.lift(parameter)

    def reserve(self, blocks: int, generator: Any = None) -> tuple[Any, int]:
        # A body draws from the outer trace's state; the caller of `graph_of` reserves the blocks.
        stream = generator or default_generator
        if self.outer is not None and stream not in self.streams:
            with use_trace(self.outer):  # an eager one reads the state now
                self.streams[stream] = self.outer.reserve(0, stream)
        state, start = self.streams.get(stream, (stream.state, 0))
        taken = self.blocks.get(stream, 0)
        self.blocks[stream] = taken + self.blocks_for(blocks)
        return state, start + taken

    def blocks_for(self, blocks: int) -> int:
        return blocks if self.outer is None else int(self.outer.blocks_for(blocks))

    def anchored(self) -> bool:
        """True if the graph reads parameters, which all are on its device."""
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

    DeclarationError if their shapes or number are not those of the rules.
    """
    known = [Abstract(t.shape, t.dtype, t._stored()) for t in tensors]
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


# --- Traced tensors -------------------------------------------------------------------------------

_INSTEAD = {
    "bool": "use ops.select or ops.where for a choice by element, ops.cond for a branch, "
    "ops.while_loop for a loop",
    "Parameter": "make parameters, and layers, which draw theirs, in __init__ and not in "
    "construct, where they would be new ones at each call",
    "set_data": "use ops.assign(parameter, value)",
    "index": "pass a Python int, or a Tensor to ops.gather",
}


class TracedTensor(Tensor):
    """A tensor inside a trace: typed, and without data of its own.

    `value` is its counterpart one trace further out, if that is known: the real tensor when a
    gradient is recorded eagerly.
    """

    __slots__ = ("var", "trace", "device", "value")
    _kind = None  # type: ignore[assignment]  # call plans are for real tensors

    def __init__(self, var: Var, trace: Any, device: str, value: Any = None):
        self.var, self.trace, self.value = var, trace, value
        self.device = device  # type: ignore[misc]  # a slot here, a property there

    @property
    def shape(self) -> tuple[int, ...]:
        return self.var.abstract.shape

    @property
    def dtype(self) -> DType:
        return self.var.abstract.dtype

    @property
    def _abstract(self) -> Abstract:
        known = self.var.abstract
        return known if known.value is None else Abstract(known.shape, known.dtype)

    def _array(self, operation: str) -> Any:
        live(self)
        if operation in ("repr", "bool", "int", "float", "item()", "index", "format"):
            if self.value is not None:
                self.trace.numbers_left |= operation in ("int", "float", "item()")
                with use_trace(self.trace.parent):  # the outer trace has its value
                    return self.value._array(operation)
        elif self.value is not None:
            instead = "use ops functions on it, or stop_gradient(t) to leave on purpose"
            raise TracedValueError(
                f"{operation} on a tensor under a gradient would lose the gradient; "
                f"{_INSTEAD.get(operation, instead)}"
            )
        self.trace.values_asked = True
        what = typed(self)
        raise TracedValueError(
            f"{operation} on a traced tensor {what}: its value is not known while the graph is "
            f"traced; {_instead(operation)}"
        )

    def __repr__(self) -> str:
        if self.value is not None and not self.trace.ended:
            return f"Traced({self.value!r})"
        return f"Traced({typed(self)})"

    def to(self, device: str) -> Tensor:
        raise TracedValueError(f"a traced tensor stays on {self.device}; move the inputs instead")

    def __reduce__(self) -> tuple[Any, ...]:
        raise TracedValueError("a traced tensor cannot be pickled; return it from the function")


def _instead(operation: str) -> str:
    """Advice on what to use in place of a value."""
    name = operation.removeprefix("np.")
    if name != operation and name in dir(ops):
        return f"use ops.{name}"
    return _INSTEAD.get(operation, "return it from the traced function, or use ops functions")


def live(tensor: TracedTensor) -> None:
    """Raise TraceEndedError if the trace that made the tensor is over."""
    if tensor.trace.ended:
        raise TraceEndedError(
            f"a traced tensor {typed(tensor)} outlived its trace; return "
            "it from the traced function instead of storing it outside"
        )


# --- Forwarding -----------------------------------------------------------------------------------


class ForwardingTrace(Trace):
    """Base of the traces that pass calls on to a `parent`; subclasses override the differences.

    Functions are just called, so that their calls arrive here again; graphs of branches and
    loop bodies are traced with this trace around them.
    """

    parent: Trace
    graph_of = trace_body

    def __init__(self, parent: Trace):
        self.parent = parent

    def owns(self, value: Any) -> bool:
        """True for a value of this trace alone, whose `value` is its counterpart in the parent."""
        return False

    def known(self, value: Any) -> Any:
        """The counterpart of a value in the parent."""
        return value.value if self.owns(value) else value

    def bind(self, primitive: Primitive, args: Sequence[Any]) -> tuple[Any, ...]:
        return self.parent.bind(primitive, list(map(self.known, args)))

    def call_with_bprop(self, name: str, fn: Function, bprop: Function, args: Sequence[Any]) -> Any:
        given = map_tree(self.known, tuple(args))
        with use_trace(self.parent):
            return self.parent.call_with_bprop(name, self._within(fn), self._within(bprop), given)

    def call_recomputed(self, name: str, fn: Function, pull: Function, args: Sequence[Any]) -> Any:
        given = list(map(self.known, args))
        with use_trace(self.parent):
            return self.parent.call_recomputed(name, self._within(fn), pull, given)

    def _within(self, fn: Function) -> Function:
        """The function, run in this trace on top of the one that is current at the call."""

        def within(*args: Any) -> Any:
            trace = copy(self)
            trace.parent = current_trace()
            with use_trace(trace):
                return fn(*args)

        return within

    def stand_in(self, parameter: Any) -> Any:
        return self.parent.stand_in(parameter)

    def reserve(self, blocks: int, generator: Any = None) -> tuple[Any, int]:
        return self.parent.reserve(blocks, generator)

    def blocks_for(self, blocks: int) -> int:
        return self.parent.blocks_for(blocks)

    def guard(self, owner: Any, state: object) -> None:
        self.parent.guard(owner, state)

    def remark(self, where: object, text: str) -> None:
        self.parent.remark(where, text)


class SubstitutingTrace(ForwardingTrace):
    """The enclosing trace, except that reads of parameters, known by id, give other tensors.

    An assignment to such a parameter changes its substitute for the rest of the trace, never the
    parameter; with `assigns` it is a GraphError, which that function of the parameter makes.
    """

    def __init__(
        self, tensors: Mapping[int, Any], assigns: Callable[[Parameter], GraphError] | None = None
    ):
        super().__init__(current_trace())
        self.tensors, self.assigns = dict(tensors), assigns

    def bind(self, primitive: Primitive, args: Sequence[Any]) -> tuple[Any, ...]:
        target = written(primitive, args)
        given = target is not None and id(target) in self.tensors
        if target is not None and given and self.assigns:
            raise self.assigns(target)
        outs = super().bind(primitive, args)
        if given:
            self.tensors[id(target)] = outs[0]
        return outs

    def stand_in(self, parameter: Any) -> Any:
        found = self.tensors.get(id(parameter))
        return self.parent.stand_in(parameter) if found is None else found

    def known(self, value: Any) -> Any:
        return self.tensors.get(id(value), value)


# --- Custom gradients -----------------------------------------------------------------------------


class Called(Primitive, abstract=True):
    """A recorded call of a function with a bprop of its own.

    Its inputs are the tensors among the leaves of the arguments, its outputs those of the result;
    `args` and `out` are the trees around them.
    """

    _single: ClassVar[bool] = False

    def __init__(self, name: str, bprop: Function, args: Partition, out: Partition):
        self.__dict__.update(name=name, bprop=bprop, args=args, out=out, attributes={})
        self.__dict__.update(_key=(Called, object()), _hash=id(self))  # equal to nothing else


def by_position(
    name: str, fn: Function, args: Sequence[Any], named: Mapping[str, Any]
) -> Sequence[Any]:
    """The arguments of fn(*args, **named) as its bprop takes them, up to the last one given.

    TypeError as from the call itself; GradientArgumentError for a keyword that has no position.
    """
    if not named:
        return args
    try:
        bound = signature(fn).bind(*args, **named)
    except TypeError as error:
        raise TypeError(f"{name}() {error}") from None
    last = max(i for i, given in enumerate(signature(fn).parameters) if given in bound.arguments)
    bound.apply_defaults()
    if bound.kwargs:
        raise GradientArgumentError(
            f"{name} got {next(iter(bound.kwargs))!r} by keyword alone, but has a bprop, which "
            "takes all by position; declare it before the *"
        )
    return bound.args[: max(last + 1, len(args))]


def map_tree(fn: Function, tree: Any) -> Any:
    """The tree with `fn` applied to each leaf, None included."""
    return optree.tree_map(fn, tree, none_is_leaf=True)
