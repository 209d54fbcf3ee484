"""Planned compositions: a function made of primitives, called eagerly, as one call plan.

Tracing: the composition is run once without values, as the eager trace would run it. Sequences: its
kernels, the same that the calls one by one would get, as one straight-line Python function.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache, partial
from itertools import compress
from operator import itemgetter
from typing import Any, NamedTuple

import numpy as np

from ..backends.kernel import PAGE
from ..backends.selection import get_device
from ..core.abstract import Abstract, DType, Kind, Shape
from ..core.infer import interleave
from ..core.parameter import Parameter, Reading, default_generator
from ..core.primitive import Primitive
from ..core.settings import current
from ..core.tensor import Tensor, common_device
from ..core.trace import Keyed, Partition, partition, use_trace
from ..graph.ir import Node, Rebuild, Var, is_result
from ..graph.tracing import GraphTrace, TracedTensor, as_tensor, rebuild_of
from .launch import BoundKernel, eager_kernel, ignore_errors, quietly, target_for

Composition = Callable[..., Any]
Plan = Callable[[Sequence[Tensor]], Any]  # from the tensors of a call to its result
_MOST = 2000  # calls of one plan, which holds a kernel and a line for each
_FOLDED = 1 << 14  # bytes of a constant that a plan computes once

# --- Tracing --------------------------------------------------------------------------------------


class Unplanned(Exception):
    """A composition that has to be run call by call."""


class _Array(TracedTensor):
    """The stand-in for an array: Python code that treats arrays apart from tensors takes it for
    one, and then asks for its elements, which no plan knows."""

    __slots__ = ()

    __class__ = property(lambda self: np.ndarray)  # what isinstance asks


def kind_of_array(array: Any) -> Kind:
    """The kind of an array; DTypeError for one of which no tensor can be made."""
    return Kind.of(np.ndarray, array.shape, array.dtype, "cpu")


def of_array(kind: Kind, device: str) -> Callable[[Any], Tensor]:
    """A function from arrays of a kind to tensors: copies, since the caller may write to them."""
    dtype, copied = kind.abstract.dtype, get_device(device).from_host
    own = Kind.of(Tensor, kind.abstract.shape, dtype, device)
    if device == "cpu" and kind.abstract.shape and kind.abstract.nbytes < PAGE:
        return lambda array: Tensor.of_kind(array.astype(dtype, "C"), own)  # in half of the time
    return lambda array: Tensor.of_kind(copied(np.asarray(array, dtype)), own)


class _Planning(GraphTrace):
    """The trace of a composition that is to be planned: branches of Python code that ask whether
    calls run at once go as they go eagerly, and nothing but its arguments may be read."""

    at_once = True
    has_bprops = False

    def __init__(self, device: str):
        super().__init__(device)
        self.plans = device == "cpu"  # kernels elsewhere do not look at values
        self.assumed: list[Var] = []

    def assume(self, check: Any) -> bool:
        if self.plans:
            self.assumed.append(self.lift(as_tensor(check)).var)
        return self.plans

    def stand_in_for(self, given: Any) -> TracedTensor:
        """The input that stands for a tensor or an array of a call."""
        if isinstance(given, Tensor):
            return self.input(given._abstract)
        traced = self.input(kind_of_array(given).abstract)
        return _Array(traced.var, self, self.device)

    def call_with_bprop(
        self, name: str, fn: Composition, bprop: Composition, args: Sequence[Any]
    ) -> Any:
        self.has_bprops = True
        return fn(*args)

    call_recomputed = call_with_bprop  # type: ignore[assignment]  # of another parameter name

    def draws_beside_others(self) -> bool:
        """True where a call takes the state of the random stream beside other inputs: it may be
        recorded, and then keeps the state, which no call of the plan gives."""
        states = {var for _, var in self.state.values()}
        return any(len(n.inputs) > 1 and not states.isdisjoint(n.inputs) for n in self.nodes)

    def _read(self, parameter: Parameter) -> TracedTensor:
        if parameter is not default_generator.state:
            raise Unplanned(f"it reads the parameter {parameter.name}")
        return super()._read(parameter)

    def _new_version(self, parameter: Parameter, version: TracedTensor) -> None:
        raise Unplanned(f"it writes to the parameter {parameter.name}")


def tensors_of(given: Sequence[Any]) -> list[Tensor]:
    """The tensors and arrays of a call as tensors; arrays follow the first tensor."""
    tensors = [g for g in given if isinstance(g, Tensor)]
    device = tensors[0].device if tensors else current().device_target
    return [g if isinstance(g, Tensor) else of_array(kind_of_array(g), device)(g) for g in given]


def plan_of(
    fn: Composition, args: Sequence[Any], named: Mapping[str, Any], given: Sequence[Any]
) -> Plan | None:
    """The plan of a call with these kinds of arguments, to be run in a context of its own unless it
    is a partial, whose kernels are calm; None where its Python code asks for values, where it
    writes to a parameter, and where each call has to be seen, by watchers or for NaN.
    given: the tensors and arrays among the arguments, in order, as the plan takes them."""
    made = _sequence(fn, args, named, given)
    return None if made is None else made.plan()


class Calls(NamedTuple):
    """The calls of a composition, for a trace that records them.

    Their values are numbered: first the tensors of a call, then the fixed ones, then those outputs
    of calls, in order, that a record or the result holds, which `run` computes of the tensors, in a
    context of its own. outs: the numbers of the tensors in the result; result: makes it of these.
    """

    name: str
    fixed: Sequence[Any]
    made: Sequence[Made]
    outs: Sequence[int]
    result: Rebuild
    run: Plan


class Made(NamedTuple):
    """One call through which a gradient may pass, by the numbers of its arguments, const ones too,
    and of the first and behind the last of its outputs."""

    primitive: Primitive
    arguments: Sequence[int]
    first: int
    end: int
    outputs: Sequence[Abstract]


def calls_of(
    fn: Composition,
    args: Sequence[Any],
    named: Mapping[str, Any],
    tensors: Sequence[Tensor],
    recorded: tuple[bool, ...],
) -> Calls | None:
    """The calls of a composition with these kinds of arguments, of which some are recorded; None as
    for `plan_of`, and where one of its functions has a gradient of its own."""
    made = _sequence(fn, args, named, tensors)
    if made is None or made.trace.has_bprops or made.trace.draws_beside_others():
        return None
    trace, returned = made.trace, made.outs
    kept = _reached(trace, recorded)
    held = {v for node in kept for v in (*node.inputs, *node.outputs)}.union(returned)
    computed = [v for node in trace.nodes for v in node.outputs if v in held]
    name, result = getattr(fn, "__name__", "composition"), rebuild_of(made.result)
    made.outs, made.result = computed, partition(computed, lambda _: True)
    run = made.plan()
    if run is None:
        return None
    constants = list(trace.constants.values())
    fixed: list[Any] = [Tensor.wrap(made._there(v), trace.device) for v in constants]
    known = {v: i for i, v in enumerate([*trace.inputs, *constants])}
    places = [len(known) + sum(len(n.consts) for n in kept[:i]) for i in range(len(kept))]
    fixed += [value for node in kept for _, value in node.consts]
    first = len(trace.inputs) + len(fixed)
    numbers = known | {v: first + i for i, v in enumerate(computed)}
    calls = [_made(node, numbers, at) for node, at in zip(kept, places, strict=True)]
    return Calls(name, fixed, calls, [numbers[v] for v in returned], result, run)


def _reached(trace: _Planning, recorded: tuple[bool, ...]) -> list[Node]:
    """The nodes through which a gradient passes to inputs that are recorded."""
    reached, nodes = set(compress(trace.inputs, recorded)), []
    for node in trace.nodes:
        if node.primitive.differentiable and not reached.isdisjoint(node.inputs):
            reached.update(node.outputs)
            nodes.append(node)
    return nodes


def _made(node: Node, numbers: Mapping[Var, int], place: int) -> Made:
    """The call of a node, whose const inputs have the numbers from `place` on."""
    consts = {name: place + i for i, (name, _) in enumerate(node.consts)}
    arguments = interleave(node.primitive, [numbers[v] for v in node.inputs], consts)
    first = numbers[node.outputs[0]]
    abstracts = [v.abstract for v in node.outputs]
    return Made(node.primitive, arguments, first, first + len(abstracts), abstracts)


def _sequence(
    fn: Composition, args: Sequence[Any], named: Mapping[str, Any], given: Sequence[Any]
) -> _Sequence | None:
    settings = current()
    if settings.check_nan or settings.watchers:
        return None
    try:
        tensors = [g for g in given if isinstance(g, Tensor)]
        device = common_device(getattr(fn, "__name__", "composition"), tensors)
        trace = _Planning(device)
        sequence = _Sequence(trace, given, *_traced(trace, fn, args, named, given))
        arrays = {v for v, g in zip(trace.inputs, given) if not isinstance(g, Tensor)}
        return sequence if arrays.isdisjoint(sequence.outs) else None  # it returns one as it is
    except Exception:  # the call itself will raise it, unless it asks for values
        return None


def _traced(
    trace: _Planning,
    fn: Composition,
    args: Sequence[Any],
    named: Mapping[str, Any],
    given: Sequence[Any],
) -> tuple[Partition, list[Var]]:
    """The result of the composition on traced tensors, and the variables of the tensors in it."""
    stand_ins = iter([trace.stand_in_for(g) for g in given])
    try:
        with use_trace(trace):
            replaced = _replaced((args, named), stand_ins)
            result = partition(fn(*replaced[0], **replaced[1]), is_result)
            outs = [trace.lift(as_tensor(leaf)).var for leaf in result.taken()]
    finally:
        trace.ended = True
    if trace.values_asked:
        raise Unplanned("it asks for values")
    if len(trace.nodes) > _MOST:
        raise Unplanned(f"it makes {len(trace.nodes)} calls")
    return result, outs


def _replaced(value: Any, stand_ins: Iterable[Any]) -> Any:
    """The arguments, as the key of a call walks them, with stand-ins for tensors and arrays."""
    if isinstance(value, (Tensor, np.ndarray)):
        return next(iter(stand_ins))
    if isinstance(value, Keyed):
        return value._replace(value=value.filled([next(iter(stand_ins)) for _ in value.tensors]))
    if isinstance(value, (tuple, list)):
        return type(value)([_replaced(v, stand_ins) for v in value])
    if isinstance(value, dict):
        return {name: _replaced(v, stand_ins) for name, v in value.items()}
    return value


# --- Sequences ------------------------------------------------------------------------------------


_code = lru_cache(256)(compile)  # most shapes and dtypes of a composition give one text


class _Sequence:
    """The kernels of a traced composition, being written as the source of one function."""

    def __init__(self, trace: _Planning, given: Sequence[Any], result: Partition, outs: list[Var]):
        self.trace, self.given, self.result, self.outs = trace, given, result, outs
        self.target = target_for(trace.device)
        self.names: dict[Var, str] = {v: f"a{i}" for i, v in enumerate(trace.inputs)}
        self.objects: dict[str, Any] = {"ignore_errors": ignore_errors, "of_kind": Tensor.of_kind}
        self.objects["Unplanned"] = Unplanned
        self.lines: list[str] = []
        self.owned: set[str] = set()  # names of arrays that the function allocates, without views
        # Small arrays that the function allocates, and those of them that a call may fill anew.
        self.sizes: dict[str, tuple[Shape, DType]] = {}
        self.free: dict[tuple[Shape, DType], list[str]] = {}
        self.last: dict[Var, int] = {}  # the last call that reads a value
        self.results, self.held = set[Var](), set[str]()  # what is returned, and the names of that
        # Memory that a view may not show to the caller: parameters change, constants must not.
        changing = (Parameter, Reading)
        pairs = zip(trace.inputs, given, strict=True)
        self.changing = {v for v, t in pairs if isinstance(t, changing)}
        self.kept = set(trace.constants.values())
        trace.nodes = [node for node in trace.nodes if not self._folded(node)]

    def _folded(self, node: Node) -> bool:
        """True for a small call of constants, whose outputs are constants from now on."""
        large = any(v.abstract.nbytes > _FOLDED for v in node.outputs)
        if large or not self.kept.issuperset(node.inputs):
            return False
        kernel = self._kernel(node)
        if not kernel.entry.built_in:
            return False
        outs = quietly(kernel.into_fresh, tuple(map(self._there, node.inputs)))
        for var, out in zip(node.outputs, outs, strict=True):
            value = self.target.device.to_host(out)
            var.abstract = Abstract(value.shape, value.dtype, value)
            self.trace.constants[var] = var
        self.kept.update(node.outputs)
        return True

    def _there(self, constant: Var) -> Any:
        """The array of a constant on the device."""
        value: Any = constant.abstract.value
        return self.target.device.from_host(value)

    def plan(self) -> Plan | None:
        """The function, None for a composition with a kernel that cannot be planned."""
        try:
            return self._written()
        except Exception:  # the call itself will raise it
            return None

    def _written(self) -> Plan:
        for var in self.trace.constants.values():
            self.names[var] = self._object("c", self._there(var))
        if any(v in self.kept and not v.abstract.value for v in self.trace.assumed):
            raise Unplanned("a check fails")
        calls, self.results = self._calls(), set(self.outs)
        self.last = {v: i for i, (node, _) in enumerate(calls) for v in node.inputs}
        draws = self._draw()
        for i, (node, kernel) in enumerate(calls):
            self._call(node, kernel, i)
            checks = [self.names[v] for v in node.outputs if v in self.trace.assumed]
            self.lines += [f"if not {name}: raise Unplanned" for name in checks]
            self._release(node, i)
        rebuilt = self._rebuilt([self._output(v) for v in self.outs])
        heads = [f"x{i}" for i in range(len(self.given))]
        unpacked = [f"{', '.join(heads)}, = tensors"] if heads else []
        read = [i for i, v in enumerate(self.trace.inputs) if v in self.last]
        loaded = [f"a{i} = {self._tensor(i)}._data" for i in read]
        body = [*unpacked, *loaded, *self.lines, f"return {rebuilt}"]
        calm = all(kernel.calm for _, kernel in calls)
        body = [*([] if calm else ["ignore_errors()"]), *(self._drawing(body) if draws else body)]
        source = "def run(tensors):\n    " + "\n    ".join(body)
        exec(_code(source, "<composition>", "exec"), self.objects)
        run: Plan = self.objects["run"]
        return partial(run) if calm else run

    def _tensor(self, i: int) -> str:
        """The expression of an argument as a tensor."""
        given = self.given[i]
        if isinstance(given, Tensor):
            return f"x{i}"
        return f"{self._object('m', of_array(kind_of_array(given), self.trace.device))}(x{i})"

    def _calls(self) -> list[tuple[Node, BoundKernel]]:
        """The calls and their kernels, without those that nothing reads and that do not raise, such
        as gradients of what is not differentiated: of numbers alone they would have raised before.
        """
        nodes, used = self.trace.nodes, {*self.outs, *self.trace.assumed}
        kept = []
        for node, kernel in reversed([(node, self._kernel(node)) for node in nodes]):
            may_raise = node.inputs and not kernel.cannot_fail
            if may_raise or not used.isdisjoint(node.outputs):
                used.update(node.inputs)
                kept.append((node, kernel))
        return kept[::-1]

    def _object(self, letter: str, value: Any) -> str:
        """A name for an object in the function."""
        name = f"{letter}{len(self.objects)}"
        self.objects[name] = value
        return name

    def _draw(self) -> bool:
        """Name the state of the random stream; True for a composition that draws."""
        state = next((v for _, v in self.trace.state.values()), None)
        if state is None:
            return False
        blocks = self.trace.drawn().get(default_generator, 0)
        self.objects["take"] = default_generator.taking(blocks)
        self.objects["give_back"] = lambda before: default_generator.give_back(before, blocks)
        self.objects["there"] = self.target.device.from_host
        self.names[state] = "before" if self.target.device.name == "cpu" else "s"
        return True

    def _drawing(self, lines: Sequence[str]) -> Sequence[str]:
        """The lines with the random blocks of the composition, taken from the stream at once; where
        one raises, the calls one by one take these blocks again."""
        tried = [f"    {line}" for line in lines]
        if self.target.device.name != "cpu":
            tried = ["    s = there(before)", *tried]
        failed = ["except Exception:", "    give_back(before)", "    raise"]
        return ["before = take()", "try:", *tried, *failed]

    def _kernel(self, node: Node) -> BoundKernel:
        """The kernel of one call: the one that it would get by itself."""
        primitive, attrs = node.primitive, {**node.primitive.attributes, **dict(node.consts)}
        if primitive.effect != "pure" or (primitive._infers_value and node.inputs):
            raise Unplanned(f"{primitive.name} is not planned")
        inputs = tuple([Abstract(v.abstract.shape, v.abstract.dtype) for v in node.inputs])
        outs = tuple([v.abstract for v in node.outputs])
        call = primitive, inputs, outs, attrs, self.trace.device
        kernel: BoundKernel = quietly(eager_kernel, *call)
        return kernel

    def _call(self, node: Node, kernel: BoundKernel, i: int) -> None:
        """Add the lines of one call."""
        given = [self.names[v] for v in node.inputs]
        if kernel.entry.view is not None:
            self._view(node, kernel, given)
        elif kernel.calls_function and kernel.entry.built_in:
            self._fill(node, kernel, given, i)
        else:
            launch = self._object("f", kernel.into_fresh)
            made = [self._array(v) for v in node.outputs]
            self.lines.append(f"{', '.join(made)}, = {launch}(({', '.join(given)},))")

    def _view(self, node: Node, kernel: BoundKernel, given: list[str]) -> None:
        if not kernel.entry.built_in:
            raise Unplanned(f"{node.primitive.name} has a view of the user's own")
        (out,) = node.outputs
        self._object("k", kernel.owned)  # kept: the function may be a method of that object
        look = self._object("f", kernel.function)
        changing = any(v in self.changing for v in node.inputs)
        name = self._array(out, owns=False)
        self.lines.append(f"{name} = {look}({', '.join(given)}){'.copy()' if changing else ''}")
        self.owned.difference_update(given)
        if any(v in self.kept for v in node.inputs):
            self.kept.add(out)

    def _fill(self, node: Node, kernel: BoundKernel, given: list[str], i: int) -> None:
        over = self._overwritten(node, kernel, i) if kernel.single else None
        if over is None:
            outputs = zip(node.outputs, kernel.shapes, kernel.dtypes, strict=True)
            unread = {v for v in node.outputs if v not in self.last and v not in self.results}
            skipped = unread.intersection([node.outputs[i] for i in kernel.entry.skips])
            names: list[Any] = [
                "None" if o[0] in skipped else self._empty(kernel, *o) for o in outputs
            ]
        else:
            names = [self.names.pop(over)]
            self.names[node.outputs[0]] = names[0]
        inputs: list[Any] = list(given)  # names in place of the arrays, which are not there yet
        function, positional, by_name = kernel.call(tuple(inputs), (), tuple(names), None)
        called = self._object("f", function)
        words = [*positional, *(f"{k}={_listed(v)}" for k, v in by_name.items())]
        self.lines.append(f"{called}({', '.join(words)})")

    def _empty(self, kernel: BoundKernel, var: Var, shape: Shape, dtype: DType) -> str:
        """Add the line that allocates an output, unless a small one is free; its name."""
        size = shape, dtype
        if self.free.get(size):
            name = self.names[var] = self.free[size].pop()
            return name
        name = self._array(var)
        if var.abstract.nbytes <= _FOLDED:
            self.sizes[name] = size
        empty, of = self._object("e", kernel.device.empty), self._object("d", dtype)
        self.lines.append(f"{name} = {empty}({self._object('n', shape)}, {of})")
        return name

    def _overwritten(self, node: Node, kernel: BoundKernel, i: int) -> Var | None:
        """The input whose memory the output takes: an array made here that nothing reads later."""
        (out,) = node.outputs
        for position in kernel.inplace:
            v = node.inputs[position]
            same = (v.abstract.shape, v.abstract.dtype) == (out.abstract.shape, kernel.dtypes[0])
            free = self.names[v] in self.owned and v not in self.results and self.last[v] == i
            if same and free:
                return v
        return None

    def _array(self, var: Var, owns: bool = True) -> str:
        name = self.names[var] = f"t{len(self.names)}_{len(self.lines)}"
        if owns:
            self.owned.add(name)
        return name

    def _release(self, node: Node, i: int) -> None:
        """Let go of arrays that nothing reads later."""
        self.held.update(self.names[v] for v in node.outputs if v in self.results)
        ended = {*node.inputs, *node.outputs}
        names = {self.names[v] for v in ended if v in self.names and self.last.get(v, i) <= i}
        for name in sorted(n for n in names - self.held if n.startswith("t")):
            if name in self.sizes and name in self.owned:
                self.free.setdefault(self.sizes[name], []).append(name)
            else:
                self.lines.append(f"del {name}")

    def _output(self, var: Var) -> str:
        """The expression of one tensor of the result."""
        if var in self.trace.inputs:
            return f"x{self.trace.inputs.index(var)}"
        kind = Kind.of(Tensor, var.abstract.shape, var.abstract.dtype, self.trace.device)
        copied = ".copy()" if var in self.kept else ""
        return f"of_kind({self.names[var]}{copied}, {self._object('k', kind)})"

    def _rebuilt(self, outputs: list[str]) -> str:
        """The expression of the result: a tree with these tensors, one for each variable."""
        first: dict[Var, str] = {}
        for i, (var, text) in enumerate(zip(self.outs, outputs, strict=True)):
            if var not in first:
                first[var] = f"r{i}"
                self.lines.append(f"r{i} = {text}")
        values = [first[v] for v in self.outs]
        rebuild = rebuild_of(self.result)
        if type(rebuild) is itemgetter:
            return values[0]
        made = f"[{', '.join(values)}]"
        return made if rebuild is list else f"{self._object('b', rebuild)}({made})"


def _listed(names: Any) -> str:
    """One name, or a tuple of them, as text."""
    return names if isinstance(names, str) else f"({', '.join(map(str, names))},)"
