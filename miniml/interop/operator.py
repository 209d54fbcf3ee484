"""Operators: pure functions of tensors, as other frameworks call them.

A primitive, a function and a network become the same thing here, before PyTorch or JAX is known: a
function from tensors to a tuple of tensors, which knows the types of its results without running,
its pull-back, which is again an operator, and itself for many examples.

In order: `Operator`; how a primitive, a function of trees, and a network with its parameters become
one; the pull-back; arrays that are handed out.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from sys import getrefcount
from typing import Any, TypeVar

import numpy as np
import optree

from .. import ops
from ..core.abstract import Abstract, float32, is_float
from ..core.errors import DTypeError, GraphError, MinimlError
from ..core.infer import interleave, ready
from ..core.parameter import Parameter, default_generator
from ..core.primitive import Primitive
from ..core.scope import Layer, layers
from ..core.settings import context, current
from ..core.tensor import Array, Tensor
from ..core.trace import Partition, current_trace, use_trace
from ..grad.batching import vmap
from ..grad.reverse import backward, name_of
from ..grad.transforms import jvp, vjp
from ..graph.ir import Graph, Var, is_result, static_key, versions
from ..graph.record import Call
from ..graph.tracing import SubstitutingTrace, as_tensor, trace_anywhere
from ..nn.cell import Cell
from ..ops.control import Assign
from ..runtime.jit import jit

Tensors = Sequence[Tensor]
Types = tuple[Abstract, ...]
Function = Callable[..., tuple[Any, ...]]
R = TypeVar("R")

ABSENT = Abstract((0,), float32)  # stands for the gradient by an input that is not a float
_KNOWN = 1024  # types of calls whose results are remembered


def casts() -> bool:
    """True under an autocast."""
    return current().autocast is not None


class Operator:
    """A pure function of tensors that gives a tuple of tensors, under the autocast of the context
    that it was made in: other frameworks call it, and its pull-back, elsewhere.

    name: for messages, and the operator of another framework. fn(*tensors): the function. inputs:
    names of them. count: how many outputs it has. compiled: run as one program. pull: the function
    (*inputs, *outputs, *cotangents) that gives a gradient for each input; without one it is derived
    from fn, and computes that again. broadcasts: the outputs have the shape to which the inputs
    broadcast. likes: for each output the input that it is like, where that is known.
    """

    broadcasts = False

    def __init__(
        self,
        name: str,
        fn: Function,
        inputs: Sequence[str],
        count: int,
        compiled: bool = False,
        pull: Function | None = None,
        likes: tuple[int, ...] | None = None,
    ):
        self.name, self.inputs, self.count = name, tuple(inputs), count
        self.compiled, self.pull, self.likes = compiled, pull, likes
        self.autocast = current().autocast
        self.fn = self._in_context(fn)
        self.differentiable = True
        self._types: dict[Types, Types] = {}
        self._mapped: dict[tuple[bool, ...], Operator] = {}
        self.run: Function = jit(self.fn) if compiled else self.fn

    def _in_context(self, fn: Callable[..., R]) -> Callable[..., R]:
        """The function, called under the operator's autocast."""

        def called(*xs: Any) -> R:
            if current().autocast == self.autocast:
                return fn(*xs)
            with context(autocast=self.autocast or False):
                return fn(*xs)

        return called

    def types(self, inputs: Types) -> Types:
        """The types of the outputs for inputs of these types; nothing is computed."""
        found = self._types.get(inputs)
        if found is None:
            if len(self._types) >= _KNOWN:
                self._types.clear()
            found = self._types[inputs] = self._inferred(inputs)
        return found

    def _inferred(self, inputs: Types) -> Types:
        if self.likes is not None:
            return tuple([_gradient_type(inputs[i]) for i in self.likes])
        graph = trace_anywhere(self.fn, inputs, "cpu", self.name)[0]
        return tuple([v.abstract for v in graph.outputs])

    @cached_property
    def pulled(self) -> Operator:
        """The pull-back: of the inputs, the outputs and their cotangents, as an operator that gives
        a gradient for each input. For one that is not a float it gives an empty array."""
        count = len(self.inputs)
        rule = self.pull or derived(self.fn, count)
        outs = [f"out{i}" for i in range(self.count)] if self.count != 1 else ["out"]
        names = _different((*self.inputs, *outs, *(f"d{o}" for o in outs)))
        likes = tuple(range(count))
        made = self._in_context(Operator)
        return made(f"{self.name}_bprop", rule, names, count, self.compiled, None, likes)

    @cached_property
    def pushed(self) -> Operator:
        """The forward mode: of the inputs and their tangents, as an operator that gives the tangent
        of each output. Tangents of what is not a float do not count."""
        count = len(self.inputs)

        def push(*values: Any) -> tuple[Any, ...]:
            xs, tangents = values[:count], values[count:]
            floats = [i for i, x in enumerate(xs) if is_float(x.dtype)]
            fn = of_floats(self.fn, xs, floats)
            outs, moved = jvp(fn, [xs[i] for i in floats], [tangents[i] for i in floats])
            each = zip(moved, outs, strict=True)
            return tuple([ops.zeros_like(o) if t is None else t for t, o in each])

        names = _different((*self.inputs, *(f"t_{n}" for n in self.inputs)))
        made = self._in_context(Operator)
        return made(f"{self.name}_jvp", push, names, self.count, self.compiled)

    def mapped(self, flags: tuple[bool, ...]) -> Operator:
        """The operator for many examples, whose axis is the first of the inputs with a flag, and of
        every output."""
        found = self._mapped.get(flags)
        if found is None:
            name = f"{self.name}_vmap{''.join(map(str, map(int, flags)))}"
            every = vmap(self.fn, tuple([0 if flag else None for flag in flags]))
            made = self._in_context(Operator)
            found = made(name, every, self.inputs, self.count, self.compiled)
            found.differentiable = self.differentiable
            self._mapped[flags] = found
        return found

    def __repr__(self) -> str:
        return f"Operator({self.name}({', '.join(self.inputs)}))"


def _gradient_type(like: Abstract) -> Abstract:
    return Abstract(like.shape, like.dtype) if is_float(like.dtype) else ABSENT


def _different(names: Sequence[str]) -> tuple[str, ...]:
    """The names, those that occur twice with a number behind them."""
    found: list[str] = []
    for name in names:
        free = (name, *(f"{name}{i}" for i in range(1, len(names) + 1)))
        found.append(next(n for n in free if n not in found))
    return tuple(found)


# --- From primitives and functions ----------------------------------------------------------------


def refuse_primitive(primitive: Primitive | type[Primitive], who: str) -> None:
    """GraphError for a primitive that is not a function of its inputs with shapes that are known
    before it runs."""
    if primitive.effect != "pure":
        does = "updates a parameter" if primitive.effect == "state" else "is computed by all ranks"
        raise GraphError(f"{who} refuses {primitive.name}, which {does}; give a function of values")
    if primitive.dynamic_outputs:
        raise GraphError(
            f"{who} refuses {primitive.name}, whose shapes depend on values; call it on arrays"
        )


def of_primitive(primitive: Primitive, consts: dict[str, Any], count: int, outs: int) -> Operator:
    """The operator of a primitive with its const inputs. count: of its tensors; outs: of its
    outputs."""
    names = primitive.input_names
    tensors = [n for n in names if n not in consts] if names else [f"x{i}" for i in range(count)]

    def plain(*xs: Any) -> tuple[Any, ...]:
        return current_trace().bind(primitive, xs)

    def with_consts(*xs: Any) -> tuple[Any, ...]:
        return current_trace().bind(primitive, interleave(primitive, list(xs), consts))

    fn = with_consts if consts else plain

    pull = _pull_of(primitive, consts, fn, count)
    made = Operator(primitive.name, fn, _different(tensors), outs, pull=pull)
    made.broadcasts = primitive.elementwise and outs == 1
    made.differentiable = primitive.differentiable
    return made


def _pull_of(primitive: Primitive, consts: dict[str, Any], fn: Function, count: int) -> Function:
    """The bprop of a primitive as a function (*inputs, *outputs, *cotangents)."""
    again = derived(fn, count)

    def pull(*values: Any) -> tuple[Any, ...]:
        xs = values[:count]
        if ready(primitive, xs) is None and primitive.promote:  # casts are part of the gradient
            return again(*values)
        rest = values[count:]
        outs, douts = rest[: len(rest) // 2], rest[len(rest) // 2 :]
        inputs, outputs = ([Var(x._abstract) for x in group] for group in (xs, outs))
        seeds = {v: d for v, o, d in zip(outputs, outs, douts) if is_float(o.dtype)}
        given = interleave(primitive, list(xs), consts)
        recorded = interleave(primitive, inputs, dict.fromkeys(consts))
        call = Call(primitive, given, recorded, tuple(outs), tuple(outputs), None)
        found = backward([call], seeds)
        return tuple([_present(found.get(v), x) for v, x in zip(inputs, xs, strict=True)])

    return pull


def derived(fn: Function, count: int) -> Function:
    """The pull-back of a function of `count` tensors, by its vjp: it computes fn again."""

    def pull(*values: Any) -> tuple[Any, ...]:
        xs, rest = values[:count], values[count:]
        douts = rest[len(rest) // 2 :]
        floats = [i for i, x in enumerate(xs) if is_float(x.dtype)]
        found: list[Any] = [None] * count
        if floats:
            outs, back = vjp(of_floats(fn, xs, floats), *[xs[i] for i in floats])
            each = [d if is_float(o.dtype) else None for o, d in zip(outs, douts, strict=True)]
            for i, gradient in zip(floats, back(tuple(each)), strict=True):
                found[i] = gradient
        return tuple([_present(g, x) for g, x in zip(found, xs, strict=True)])

    return pull


def of_floats(fn: Function, xs: Sequence[Any], floats: Sequence[int]) -> Function:
    """The function of those of its inputs that are floats."""

    def moved(*wanted: Any) -> tuple[Any, ...]:
        given = list(xs)
        for i, x in zip(floats, wanted, strict=True):
            given[i] = x
        return fn(*given)

    return moved


def _present(gradient: Any, x: Any) -> Any:
    """A gradient, with zeros where there is none; an empty array for what is not a float."""
    if not is_float(x.dtype):
        return ops.zeros(ABSENT.shape, ABSENT.dtype)
    return ops.zeros_like(x) if gradient is None else gradient


class Traced:
    """A function of trees, or a network, for arguments of one structure and types: an operator, and
    how the results are put together.

    state: the parameters that it reads, which are its first inputs; updated: those that it gives
    new values, its last outputs. rebuild(outputs): the result as the function gives it.
    """

    def __init__(self, name: str, fn: Callable[..., Any], spec: Any, leaves: Sequence[Any]):
        self.positions = [i for i, leaf in enumerate(leaves) if isinstance(leaf, Abstract)]
        self.result: Any = None
        parts = Partition(list(leaves), spec, self.positions)
        types = parts.taken()

        def flat(*tensors: Any) -> list[Any]:
            args, named = parts.filled(tensors)
            out = fn(*args, **named)
            found, self.result = optree.tree_flatten(out, none_is_leaf=out is None)
            bad = next((leaf for leaf in found if not is_result(leaf)), None)
            if bad is not None:
                raise DTypeError(
                    f"{name} returned a {type(bad).__name__}; it returns trees of tensors"
                )
            return found

        with layers.use(lambda: Layer(name)):  # parameters may yet get values of other dtypes
            graph = trace_anywhere(flat, types, "cpu", name)[0]
        self.state = tuple([p for p, _ in graph.state])
        self.updated = _updated(name, graph)
        self.count = len(graph.outputs)
        inputs = [f"p{i}" for i in range(len(self.state))] + [f"x{i}" for i in range(len(types))]
        total = self.count + len(self.updated)
        self.operator = Operator(name, self._functional(flat), inputs, total, compiled=True)

    @staticmethod
    def key(who: str, leaves: Sequence[Any]) -> tuple[object, ...]:
        """The types of arguments, constants and the autocast, on which it depends; GraphError for a
        constant that cannot be hashed."""
        seen = [x.key() if isinstance(x, Abstract) else static_key(x, who) for x in leaves]
        return *seen, current().autocast

    def rebuild(self, outputs: Sequence[Any]) -> Any:
        """The result of the function, with these outputs in it."""
        return self.result.unflatten(outputs[: self.count])

    def _functional(self, flat: Callable[..., list[Any]]) -> Function:
        """The function of its state and inputs that gives its outputs and its new state."""
        count = len(self.state)

        def fn(*values: Any) -> tuple[Any, ...]:
            held = dict(zip(map(id, self.state), values[:count], strict=True))
            trace = Substitution(held)
            with use_trace(trace):
                outs = [trace.known(o) for o in flat(*values[count:])]
            return (*outs, *map(trace.latest, self.updated))

        return fn if count else lambda *xs: tuple(flat(*xs))


class Substitution(SubstitutingTrace):
    """The enclosing trace, in which parameters have other values, and are not written to."""

    def __init__(self, values: dict[int, Any]):
        super().__init__(values)
        self.drawn = dict[int, int]()

    def bind(self, primitive: Primitive, args: Sequence[Any]) -> tuple[Any, ...]:
        if isinstance(primitive, Assign) and id(args[0]) in self.tensors:
            value = self.tensors[id(args[0])] = as_tensor(self.known(args[1]))
            return (value,)
        return super().bind(primitive, args)

    def latest(self, parameter: Parameter) -> Any:
        """The value of a parameter at the end: of a random stream, after what was drawn."""
        value, blocks = self.tensors[id(parameter)], self.drawn.get(id(parameter), 0)
        return ops.add(value, np.array([0, blocks], np.uint64)) if blocks else value

    def reserve(self, blocks: int, generator: Any = None) -> tuple[Any, int]:
        state = (generator or default_generator).state
        before = self.drawn.get(id(state), 0)
        self.drawn[id(state)] = before + blocks
        return self.tensors[id(state)], before


def _updated(name: str, graph: Graph) -> tuple[Parameter, ...]:
    """The parameters that a graph gives new values; GraphError for any other effect."""
    for node in graph.nodes:
        if node.effect != "pure" and not isinstance(node.primitive, Assign):
            raise GraphError(
                f"{name} calls {node.primitive.name}, which has an effect besides its value; "
                "another framework would repeat it or leave it out: take it out of the function"
            )
    return tuple([parameter for parameter, _ in versions(graph).final])


def refuse_parameters(who: str, fn: Any, traced: Traced) -> None:
    """GraphError for a function that reads parameters: to the other framework they would be
    constants."""
    if traced.state:
        names = ", ".join(repr(p.name) for p in traced.state)
        raise GraphError(
            f"{who} of {name_of(fn)} reads {names}, which would be a constant there, without a "
            "gradient; give the Cell that has it, or pass its value as an argument"
        )


def known(who: str, obj: Any) -> str:
    """ "primitive", "cell" or "function"; MinimlError for anything else."""
    if isinstance(obj, Primitive) or (isinstance(obj, type) and issubclass(obj, Primitive)):
        refuse_primitive(obj, who)
        return "primitive"
    if isinstance(obj, Cell):
        return "cell"
    if callable(obj) and not isinstance(obj, type):
        return "function"
    raise MinimlError(
        f"{who} got {obj!r}; it takes a primitive, an nn.Cell, or a function of tensors"
    )


# --- Arrays ---------------------------------------------------------------------------------------


def owned(outs: list[Any]) -> list[Array]:
    """The arrays of results, which the caller may write to: their own memory where nobody else
    holds it, else copies. The list, which holds them alone, is emptied."""
    found: list[Any] = []
    outs.reverse()
    while outs:
        tensor = outs.pop()
        array = tensor._data
        if tensor._kind.device != "cpu":
            found.append(array if _alone(tensor, array) else array.copy())
            continue
        # A view belongs to its base, and a tensor that others hold must not change under them.
        if getrefcount(tensor) == _MINE and getrefcount(array) == _HELD and array.base is None:
            array.setflags(True)  # write
            found.append(array)
        else:
            found.append(np.array(array, order="C"))
    return found


def _alone(tensor: Tensor, array: Any) -> bool:
    """True for an array of a device that nobody but this tensor of the caller's has, with all of
    its block."""
    held = getrefcount(tensor) == _MINE + 1 and getrefcount(array) == _HELD + 1
    return held and bool(array.owns_block())


def _references() -> int:
    """The references that `getrefcount` counts for an object that a local name holds alone."""
    value = object()
    return getrefcount(value)


_MINE = _references()
_HELD = _MINE + 1  # by its tensor, too
