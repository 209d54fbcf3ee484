"""Reverse-mode differentiation: record a function's calls, then apply their bprops backwards.

First `linearize`, which runs a function at a point and returns its value with the pull-back of
cotangents to its arguments and weights; then `backward`, which walks recorded calls in reverse and
lets each bprop turn dout into gradients of the inputs. An error of a bprop gets a note with the
line of the user's bprop that it comes from.
"""

from __future__ import annotations

import dis
import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass
from functools import lru_cache
from inspect import unwrap
from operator import index
from types import CodeType, MappingProxyType
from typing import Any

import numpy as np
import optree

from .. import ops
from ..core.abstract import is_complex, is_inexact, typed
from ..core.bprop import Bprop, bprop_getters
from ..core.errors import BpropError, GradientArgumentError, ShapeError, point_at
from ..core.hints import hide_frames, steps_of
from ..core.infer import interleave
from ..core.parameter import Parameter
from ..core.primitive import Primitive
from ..core.primitive import key as attribute_key
from ..core.scope import Location, epoch, is_own_file, pinned
from ..core.settings import context, current
from ..core.tensor import Tensor
from ..core.trace import Keyed, computes_at_once, current_trace, eager_trace, use_trace
from ..graph.ir import Graph, Var, refuse_dataclass
from ..graph.record import Call, RecordTrace
from ..graph.tracing import Called
from ..ops.checks import broadcasts_to, dtype_of

Tree = Any
_NONE: Mapping[str, Any] = MappingProxyType({})


def linearize(
    fn: Callable[..., Any],
    args: Sequence[Any],
    argnums: Sequence[int],
    weights: Sequence[Parameter] = (),
    has_aux: bool = False,
    named: Mapping[str, Any] = _NONE,
) -> Linearized:
    """Run `fn(*args, **named)` once and record what depends on the chosen arguments and weights.

    Raises GradientArgumentError, naming the argument, where one is not made of floats.
    """
    trace = RecordTrace(current_trace())
    try:
        traced, wrt = list(args), []
        if len(argnums) > 1:
            _refuse_twice(fn, args, argnums)
        device = weights[0].device if weights and computes_at_once() else None
        for argnum in argnums:
            leaves, spec = float_leaves(fn, args, argnum, named, device)
            symbols = [trace.input(leaf) for leaf in leaves]
            traced[argnum] = spec.unflatten(symbols)
            wrt.append((tuple([s.var for s in symbols]), spec))
        weight_vars = tuple([trace.weight(p).var for p in weights])
        try:
            with use_trace(trace):
                result: Any = fn(*traced, **named)
        except Exception as error:
            note_lists(error, fn, args, argnums)
            raise
        aux: Any
        out, aux = _split(fn, result) if has_aux else (result, None)
        returned, out_spec = _flattened(out)
        for leaf in (*returned, *optree.tree_leaves(aux)) if has_aux else returned:
            if not isinstance(leaf, Tensor):
                refuse_dataclass(f"{name_of(fn)} returned", leaf, GradientArgumentError)
        if trace.numbers_left:
            refuse_left(fn, returned)
        targets, outs = trace.split(returned)
        values = out_spec.unflatten([o if isinstance(o, Tensor) else as_result(o) for o in outs])
        kept = None if aux is None else optree.tree_map(trace.value, aux, none_is_leaf=True)
    finally:
        trace.end()
    return Linearized(values, kept, trace, tuple(targets), out_spec, tuple(wrt), weight_vars)


def _refuse_twice(fn: Any, args: Sequence[Any], argnums: Sequence[int]) -> None:
    if len({n + len(args) if n < 0 else n for n in argnums}) < len(argnums):
        raise GradientArgumentError(
            f"argnums {tuple(argnums)} names an argument of {name_of(fn)} twice; name each once"
        )


def float_leaves(
    fn: Any,
    args: Sequence[Any],
    argnum: int,
    named: Mapping[str, Any] = _NONE,
    device: str | None = None,
) -> tuple[list[Tensor], Any]:
    """The leaves of an argument as tensors, arrays on `device`; and its structure, in which None is
    an empty tree."""
    if not -len(args) <= argnum < len(args):
        also = f" by position and {len(named)} by keyword" if named else ""
        raise GradientArgumentError(
            f"argnums {argnum} names no argument: {name_of(fn)} was called with {len(args)} of them"
            f"{also}; pass by position what is differentiated, or argnums=None for weights alone"
        )
    leaves, spec = _flattened(args[argnum], none_is_leaf=False)
    tensors = []
    for leaf in leaves:
        if not isinstance(leaf, (Tensor, np.ndarray, np.generic, float, complex)):
            who = f"argument {argnum} of {name_of(fn)} holds"
            refuse_dataclass(who, leaf, GradientArgumentError)
            listed = ", as np.array([...], float)" if isinstance(args[argnum], list) else ""
            raise GradientArgumentError(
                f"{who} {type(leaf).__name__} {leaf!r}, which has no gradient; pass a float "
                f"tensor{listed}, or leave it out of argnums"
            )
        tensor = leaf if isinstance(leaf, Tensor) else Tensor(leaf, device=device)
        if not is_inexact(tensor.dtype):
            what = typed(tensor)
            raise GradientArgumentError(
                f"argument {argnum} of {name_of(fn)} is {what}, which has no gradient; cast it to "
                "a float dtype, or leave it out of argnums"
            )
        tensors.append(tensor)
    return tensors, spec


_LEAF = {nothing: optree.treespec_leaf(none_is_leaf=nothing) for nothing in (False, True)}


def _flattened(tree: Tree, none_is_leaf: bool = True) -> tuple[list[Any], Any]:
    """The leaves of a tree and its structure; most often it is one tensor."""
    if isinstance(tree, Tensor):
        return [tree], _LEAF[none_is_leaf]
    return optree.tree_flatten(tree, none_is_leaf=none_is_leaf)


def _split(fn: Any, result: Any) -> tuple[Any, Any]:
    if not isinstance(result, tuple) or len(result) != 2:
        raise GradientArgumentError(
            f"{name_of(fn)} returned {type(result).__name__}; has_aux=True expects a pair "
            "(value, aux)"
        )
    return result


def refuse_left(fn: Any, leaves: Sequence[Any]) -> None:
    """GradientArgumentError for a returned Python number: one taken out of a tensor has lost its
    gradient."""
    for leaf in leaves:
        if isinstance(leaf, (int, float, complex, np.generic)):
            raise GradientArgumentError(
                f"{name_of(fn)} returned the {type(leaf).__name__} {leaf!r} after float(), int() "
                "or item() of a tensor, which leaves the gradient behind; return a Tensor"
            )


def as_result(value: Any) -> Any:
    numbers = np.ndarray, np.generic, int, float, complex
    return Tensor(value) if isinstance(value, numbers) else value


def note_lists(error: Exception, fn: Any, args: Sequence[Any], argnums: Sequence[int]) -> None:
    """Add notes to an error of the function for list arguments that may be meant as arrays."""
    for argnum in argnums:
        if _is_list_of_numbers(args[argnum]):
            error.add_note(
                f"argument {argnum} of {name_of(fn)} is a list, a tree of numbers with a gradient "
                "for each; for one array give np.array([...])"
            )


def _is_list_of_numbers(value: Any) -> bool:
    if not isinstance(value, list) or not value:
        return False
    return all(isinstance(v, (float, np.floating)) or _is_list_of_numbers(v) for v in value)


@dataclass(slots=True)
class Linearized:
    """A function at a point. `out` and `aux` are trees of values of the enclosing trace.

    targets: one Var per leaf of `out`, None for a leaf without a gradient. wrt: the input Vars and
    the structure of each differentiated argument. weights: one Var per parameter.
    """

    out: Tree
    aux: Tree
    trace: RecordTrace
    targets: tuple[Any, ...]
    out_spec: Any
    wrt: tuple[tuple[tuple[Var, ...], Any], ...]
    weights: tuple[Var, ...]

    def pull(
        self, douts: Sequence[Any], reaching: str = ""
    ) -> tuple[tuple[Tree, ...], tuple[Any, ...]]:
        """Gradients per argument (in its own structure) and per weight; zeros where none passes.

        reaching: the name of a function that in a graph must reach a weight, else
        GradientArgumentError.
        """
        device = target = current().device_target
        for dout in douts:
            if dout is not None:
                device = dout.device
                break
        if device == target:
            return self._pulled(douts, reaching)
        with context(device_target=device):  # rules make zeros and constants: they belong there
            return self._pulled(douts, reaching)

    def _pulled(
        self, douts: Sequence[Any], reaching: str
    ) -> tuple[tuple[Tree, ...], tuple[Any, ...]]:
        seeds: dict[Var, Any] = {}
        for target, dout in zip(self.targets, douts, strict=True):
            if target is not None and dout is not None:
                seeds[target] = ops.add(seeds[target], dout) if target in seeds else dout
        wrt = [v for vs, _ in self.wrt for v in vs] + list(self.weights)
        found = self._found(seeds)
        # Eagerly, the branch that was taken for these values may use no weight.
        traced = reaching and self.weights and not computes_at_once()
        if traced and found.keys().isdisjoint(self.weights):
            raise GradientArgumentError(
                f"{reaching} reaches none of its {len(self.weights)} parameters, so nothing would "
                "be learnt; take out the stop_gradient, float() or asnumpy() on the way, or give "
                "the parameters that it uses"
            )

        for var in wrt:
            if var not in found:
                found[var] = ops.zeros(var.abstract.shape, var.abstract.dtype)
        trees = tuple([spec.unflatten([found[v] for v in vs]) for vs, spec in self.wrt])
        return trees, tuple([found[v] for v in self.weights])

    def _found(self, cotangents: dict[Var, Any]) -> dict[Var, Any]:
        """The gradients of what is differentiated, by Var; eagerly as planned compositions, in each
        of which cotangents of what calls read take the place of those of their outputs."""
        trace, calls = current_trace(), self.trace.calls
        if trace is not eager_trace():
            return backward(calls, cotangents)
        end = len(calls)
        while end:
            part = _last_planned(calls, end)
            end -= len(part) or 1
            if part:
                tape, read = taped(part, cotangents)
                found = trace.compose(gradients_of, (tape,), _NONE)
                cotangents.update([(v, g) for v, g in zip(read, found) if g is not None])
            else:
                backward(calls[end : end + 1], cotangents)
        return cotangents


def cotangents(spec: Any, out: Any, dout: Any) -> list[Any]:
    """The leaves of a dout that a user gave, checked against `out`, whose structure is `spec`."""
    outs = spec.flatten_up_to(out)
    given = flattened(spec, dout, "pull got a dout")
    return [None if d is None else tensor_like(o, d) for o, d in zip(outs, given, strict=True)]


def flattened(spec: Any, tree: Any, what: str) -> list[Any]:
    """The leaves of a tree that has the structure `spec`; ShapeError where it has another."""
    try:
        return list(spec.flatten_up_to(tree))
    except ValueError as error:
        raise ShapeError(f"{what} of another structure than it belongs to: {error}") from None


def tensor_like(like: Any, value: Any) -> Any:
    """The value as a tensor of like's shape and dtype; ShapeError where it has another."""
    like = like if isinstance(like, Tensor) else Tensor(like)
    if isinstance(value, Parameter):
        value = current_trace().stand_in(value)
    if not isinstance(value, Tensor):
        dtype_of(value)  # refuses what is no number
        whole = np.iscomplexobj(value) and not is_complex(like.dtype)  # as it is, to be refused
        value = Tensor(value if whole else np.asarray(value, like.dtype))
    if value.shape != like.shape or value.dtype != like.dtype:
        raise ShapeError(
            f"got {typed(value)} where {typed(like)} "
            "is expected: a cotangent or tangent has the shape and dtype of its value"
        )
    return value


def name_of(fn: Any) -> str:
    """The name of a function in errors."""
    return getattr(fn, "__name__", None) or type(fn).__name__


def called(
    gradient: Callable[..., Any], fn: Callable[..., Any], part: Callable[..., Any] | None = None
) -> Callable[..., Any]:
    """The function that has the current trace call `gradient`, with the arguments of `fn`.

    part: what is made of its result."""

    def derived(*args: Any, **named: Any) -> Any:
        try:
            result = current_trace().callee(gradient)(*args, **named)
            return result if part is None else part(result)
        except Exception as error:
            hide_frames(error)
            raise

    derived.__name__ = derived.__qualname__ = gradient.__name__  # errors name it
    derived.__wrapped__ = fn  # type: ignore[attr-defined]  # its arguments have names
    return derived


_USES = {
    "vjp": "vjp(f, x)",
    "jvp": "jvp(f, (x,), (t,))",
    "linearize": "linearize(f, x)",
    "hvp": "hvp(f, x, v)",
}


def checked_function(who: str, fn: Any) -> Callable[..., Any]:
    """`fn`; GradientArgumentError unless it can be called."""
    if callable(fn):
        return fn  # type: ignore[no-any-return]
    raise GradientArgumentError(
        f"{who} got {fn!r} of type {type(fn).__name__}; give the function that computes it, as in "
        f"{_USES.get(who, f'{who}(f)(x)')}"
    )


def checked_argnums(argnums: Any) -> int | tuple[int, ...] | None:
    """`argnums` as an int, a tuple of ints or None; GradientArgumentError for anything else."""
    try:
        return None if argnums is None else index(argnums)
    except TypeError:
        with suppress(TypeError):
            return tuple(map(index, argnums))
    raise GradientArgumentError(
        f"argnums is {argnums!r}; it is an int, or a tuple of them: the positions of arguments"
    )


# --- Tapes as arguments ---------------------------------------------------------------------------


_PART = 128  # calls on a tape that are planned together; parts of a long loop are alike, and share


def _last_planned(calls: Sequence[Call], end: int) -> Sequence[Call]:
    """The last calls before `end`, as long as their rules are the library's: others may do
    anything."""
    version, start = epoch.now.bprops, end
    least = max(end - _PART, 0)
    while start > least and _has_own_rule(type(calls[start - 1].primitive), version):  # type: ignore[arg-type]
        start -= 1
    return calls[start:end]


@lru_cache(1024)
def _has_own_rule(cls: type[Primitive], version: int) -> bool:
    """True for a primitive of the library with a gradient rule of the library, which calls no bprop
    of a user's. version: of the rules in force."""
    names = (cls.__module__, getattr(bprop_getters.find(cls), "__module__", ""))
    return cls is not Called and all(name.startswith("miniml.") for name in names)


def taped(calls: Sequence[Call], cotangents: dict[Var, Any]) -> tuple[Keyed, list[Var]]:
    """The calls, with the cotangents of their Vars, which are taken out, as the argument of
    `gradients_of`, whose key tells all but the numbers; and the Vars of its gradients."""
    slots: dict[Var, int] = {}
    read: list[Var] = []
    key: list[object] = [epoch.now.bprops]
    tensors: list[Any] = []
    for call in calls:
        key.append(call.primitive._key)
        for var in call.inputs:
            if var is None:
                key.append(None)
                continue
            if var not in slots:
                slots[var] = len(slots)
                read.append(var)
            key.append(slots[var])
        for value in call.given:
            if isinstance(value, Tensor):
                tensors.append(value)
            else:
                key += (len(tensors), attribute_key(value))
        for var in call.outputs:
            slots[var] = len(slots)
        tensors += call.outs
    seeds = {var: cotangents.pop(var) for var in slots if var in cotangents}
    for var, seed in seeds.items():
        key.append(slots[var])
        tensors.append(seed)

    def filled(given: Sequence[Any]) -> Tape:
        values = iter(given)
        replaced = [_with_values(call, values) for call in calls]
        return replaced, dict(zip(seeds, values, strict=True)), read

    return Keyed(tuple(key), tensors, filled, (calls, seeds, read)), read


Tape = tuple[Sequence[Call], Mapping[Var, Any], Sequence[Var]]


def _with_values(call: Call, values: Iterator[Any]) -> Call:
    """The call with other tensors, in order."""
    given = [next(values) if isinstance(v, Tensor) else v for v in call.given]
    outs = tuple([next(values) for _ in call.outs])
    return Call(call.primitive, given, call.inputs, outs, call.outputs, call.place)


def gradients_of(tape: Keyed) -> list[Any]:
    """The gradients of a tape's calls, None where none passes: a composition."""
    calls, seeds, wrt = tape.value
    found = backward(calls, dict(seeds))
    return [found.get(var) for var in wrt]


# --- The backward pass ----------------------------------------------------------------------------


def backward(calls: Sequence[Call], cotangents: dict[Var, Any]) -> dict[Var, Any]:
    """Gradients of every Var that the seeds reach, by the chain rule.

    calls: in the order they were made; their values belong to the current trace, in which the
    gradients are computed too, without autocast: in the dtypes of the calls. cotangents: the seeds,
    by output Var; it is extended and returned.
    Raises BpropNotFoundError or BpropError, pointing at the forward call.
    """
    plainly = nullcontext() if current().autocast is None else context(autocast=False)
    with plainly, pinned() as pin:
        for call in reversed(calls):
            if cotangents.keys().isdisjoint(call.outputs):
                continue
            pin.move(call.where)
            try:
                _pull(call, cotangents)
            except Exception as error:
                point_at(error, call.where)
                note_bprop(error, call.primitive)
                raise
    return cotangents


def _pull(call: Call, cotangents: dict[Var, Any]) -> None:
    """Accumulate the gradients of the recorded inputs of a call, checked."""
    gradients = _gradients(call, cotangents)
    checked = not _has_own_rule(type(call.primitive), epoch.now.bprops)  # type: ignore[arg-type]
    for i, (gradient, x, var) in enumerate(zip(gradients, call.given, call.inputs, strict=True)):
        if gradient is None or (var is None and not checked):
            continue
        if var is None or type(gradient) is not Tensor or gradient._kind is not x._kind:
            gradient = _fitted(call, i, gradient, x)
        elif not x._kind.is_inexact:
            continue
        if var is not None and gradient is not None:
            known = cotangents.get(var)
            cotangents[var] = gradient if known is None else known + gradient


def _gradients(call: Call, cotangents: dict[Var, Any]) -> tuple[Any, ...]:
    """The gradients that the bprop of a call returns, one for each input."""
    primitive, given = call.primitive, call.given
    bprop = bprop_getters.get(primitive)
    out: Any = call.outs
    dout: Any
    if primitive._single:
        (out,), (var,) = call.outs, call.outputs
        dout = cotangents[var]
    else:
        dout = Cotangents(call.outputs, cotangents, call.inputs)
    try:
        gradients: Any = bprop(*given, out, dout)
    except TypeError:
        _check_arguments(primitive, bprop, len(given))
        raise
    if not isinstance(gradients, tuple):
        raise BpropError(
            f"{primitive.name} bprop returned {_what(gradients)}; return a tuple with one gradient "
            f"per input, {len(given)} here, as (dx,)"
        )
    if len(gradients) != len(given):
        raise BpropError(
            f"{primitive.name} bprop returned {len(gradients)} gradients for {len(given)} inputs; "
            "return one per input, None where there is none"
        )
    return gradients


def _check_arguments(primitive: Primitive, bprop: Bprop, count: int) -> None:
    """BpropError for a bprop that is not a function, or does not take the inputs, out and dout."""
    if not callable(bprop):
        raise BpropError(
            f"{primitive.name} has a getter that returned {_what(bprop)}; it returns the bprop: "
            "def get_bprop(self): return lambda x, out, dout: (dx,)"
        )
    taken = inspect.signature(bprop)
    try:
        taken.bind(*range(count + 2))
    except TypeError:
        named = primitive.input_names or [f"x{i}" for i in range(count)]
        raise BpropError(
            f"{primitive.name} bprop takes {taken}; it gets ({', '.join(named)}, out, dout)"
        ) from None


class Cotangents(tuple[Any, ...]):
    """The cotangents of a call's outputs. used: True for each output that has one, not just zeros.
    needed: True for each input that is differentiated."""

    used: tuple[bool, ...]
    needed: tuple[bool, ...]

    def __new__(
        cls, outputs: Sequence[Var], cotangents: dict[Var, Any], inputs: Sequence[Var | None]
    ) -> Cotangents:
        made = super().__new__(cls, [_dout(v, cotangents) for v in outputs])
        made.used = tuple([v in cotangents for v in outputs])
        made.needed = tuple([v is not None for v in inputs])
        return made


def _dout(var: Var, cotangents: dict[Var, Any]) -> Any:
    """The cotangent of one output; zeros for a float that nothing uses, None for integers."""
    if var in cotangents:
        return cotangents[var]
    abstract = var.abstract
    return ops.zeros(abstract.shape, abstract.dtype) if is_inexact(abstract.dtype) else None


def used(dout: tuple[Any, ...], index: int) -> bool:
    """False where nothing uses that output: its cotangent is zeros and terms can be skipped."""
    return dout.used[index] if isinstance(dout, Cotangents) else True


def needed(dout: tuple[Any, ...], index: int) -> bool:
    """False where that input is not differentiated: its gradient need not be computed."""
    return dout.needed[index] if isinstance(dout, Cotangents) else True


def _fitted(call: Call, index: int, gradient: Any, x: Any) -> Any:
    """The gradient in the input's shape: summed where it has the output's broadcast shape."""
    if not isinstance(x, Tensor) or not is_inexact(x.dtype):  # a const input, or integers
        return None
    expected = x._abstract
    if not isinstance(gradient, Tensor):
        raise BpropError(
            f"{call.primitive.name} bprop returned {_what(gradient)} for input {index}; return a "
            f"tensor {expected}, or None"
        )
    if gradient.dtype != expected.dtype:
        raise BpropError(
            f"{call.primitive.name} bprop returned {_what(gradient)} for input {index}, which is "
            f"{expected}; cast the gradient to {expected.dtype.name}"
        )
    if gradient.shape == expected.shape:
        return gradient
    if gradient.shape == call.outs[0].shape and broadcasts_to(expected.shape, gradient.shape):
        return ops.sum_to(gradient, expected.shape)
    raise BpropError(
        f"{call.primitive.name} bprop returned {_what(gradient)} for input {index}, which is "
        f"{expected}; a gradient has its input's shape (or the output's, if that input was "
        "broadcast)"
    )


def _what(value: Any) -> str:
    shown = f" {value!r}" if isinstance(value, (int, float)) else ""
    return typed(value) if isinstance(value, Tensor) else f"{type(value).__name__}{shown}"


def pull_graph(graph: Graph, inputs: Sequence[Any], douts: Sequence[Any]) -> list[Any]:
    """Gradients of a graph without state, in the current trace: one per input, zeros where none
    passes and None for integers. Its inner values are recomputed."""
    found = pull_values(graph, dict(zip(graph.inputs, inputs, strict=True)), douts)
    return [_dout(v, found) for v in graph.inputs]


def pull_values(graph: Graph, known: dict[Var, Any], douts: Sequence[Any]) -> dict[Var, Any]:
    """Gradients of a graph without state, in the current trace, for every Var that one reaches.

    known: the values of the inputs, and of those inner Vars that need not be recomputed.
    douts: one per output, None where there is none.
    """
    values = dict(known)
    values.update((v, Tensor(v.abstract.value)) for v in graph.constants)
    trace = current_trace()
    depends, calls = set(graph.inputs), []
    with pinned() as pin:
        for node in graph.nodes:
            given = interleave(node.primitive, [values[v] for v in node.inputs], dict(node.consts))
            pin.move(node.where)
            if any(v not in values for v in node.outputs):
                outs = trace.bind(node.primitive, given)
                values.update(zip(node.outputs, outs, strict=True))
            outs = tuple([values[v] for v in node.outputs])
            if node.primitive.differentiable and not depends.isdisjoint(node.inputs):
                varying: list[Any] = [v if v in depends else None for v in node.inputs]
                inputs = interleave(node.primitive, varying, dict.fromkeys(dict(node.consts)))
                depends.update(node.outputs)
                calls.append(Call(node.primitive, given, inputs, outs, node.outputs, node.where))
    cotangents: dict[Var, Any] = {}
    for var, dout in zip(graph.outputs, douts, strict=True):
        if dout is not None:
            cotangents[var] = ops.add(cotangents[var], dout) if var in cotangents else dout
    return backward(calls, cotangents)


def note_bprop(error: Exception, primitive: Primitive) -> None:
    """Add to an error of a pull-back a note with the line of the user's bprop that raised it, or
    that returns what it must not. miniml's own bprops are not named."""
    code = _code_of(primitive)
    if code is None or is_own_file(code.co_filename):
        return
    where = _raised_in(error, code)
    if where is None and isinstance(error, BpropError):
        where = _returns(code)
    if where is not None:
        error.add_note(f"in the bprop of {primitive.name}, at\n{where.render()}")


def _code_of(primitive: Primitive) -> CodeType | None:
    getter = bprop_getters.find(type(primitive))
    try:
        return getattr(unwrap(getter(primitive)), "__code__", None) if getter else None
    except Exception:  # of the getter itself, which is then the error that is being raised
        return getattr(getter, "__code__", None)


def _raised_in(error: Exception, code: CodeType) -> Location | None:
    steps = [s for s in steps_of(error.__traceback__) if s.tb_frame.f_code is code]
    return Location(code, steps[-1].tb_lasti) if steps else None


def _returns(code: CodeType) -> Location:
    """The last return of a function."""
    returns = [i for i in dis.get_instructions(code) if i.opname.startswith("RETURN_")]
    return Location(code, returns[-1].offset)
