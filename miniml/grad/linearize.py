"""A function at a point: its value, and the pull-back of cotangents to its inputs and weights."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import numpy as np
import optree

from .. import ops
from ..abstract import typed
from ..dtype import is_float
from ..errors import GradientArgumentError
from ..graph.ir import Var
from ..graph.record import RecordTrace
from ..graph.trees import refuse_dataclass
from ..ops.inference.devices import on_device_of
from ..parameter import Parameter
from ..tensor import Tensor
from ..trace import computes_at_once, current_trace
from .reverse import backward

Tree = Any
_NONE: Mapping[str, Any] = MappingProxyType({})


@dataclass(slots=True)
class Linearized:
    """What `linearize` found. `out` and `aux` are trees of values of the trace around.

    wrt: one list of input Vars per differentiated argument; weights: one Var per parameter.
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

        reaching: the name of what must reach a weight in a graph, else GradientArgumentError.
        """
        # Rules make zeros and constants: they belong where the cotangents are.
        with on_device_of(next((dout for dout in douts if dout is not None), None)):
            return self._pulled(douts, reaching)

    def _pulled(
        self, douts: Sequence[Any], reaching: str
    ) -> tuple[tuple[Tree, ...], tuple[Any, ...]]:
        seeds: dict[Var, Any] = {}
        for target, dout in zip(self.targets, douts, strict=True):
            if target is not None and dout is not None:
                seeds[target] = ops.add(seeds[target], dout) if target in seeds else dout
        found = backward(self.trace.calls, seeds)
        # Computed at once, it may be that the branch taken for these values uses no weight.
        traced = reaching and self.weights and not computes_at_once()
        if traced and found.keys().isdisjoint(self.weights):
            raise GradientArgumentError(
                f"{reaching} reaches none of its {len(self.weights)} parameters, so nothing would "
                "be learnt; take out the stop_gradient, float() or asnumpy() on the way, or give "
                "the parameters that it uses"
            )

        def gradient(var: Var) -> Any:
            abstract = var.abstract
            return found[var] if var in found else ops.zeros(abstract.shape, abstract.dtype)

        trees = tuple([spec.unflatten([gradient(v) for v in vs]) for vs, spec in self.wrt])
        return trees, tuple([gradient(v) for v in self.weights])


def linearize(
    fn: Callable[..., Any],
    args: Sequence[Any],
    argnums: Sequence[int],
    weights: Sequence[Parameter] = (),
    has_aux: bool = False,
    named: Mapping[str, Any] = _NONE,
) -> Linearized:
    """Run `fn(*args, **named)` once, recording what depends on the chosen arguments and weights.

    Raises GradientArgumentError, naming the argument, where one is not made of floats.
    """
    trace = RecordTrace(current_trace())
    try:
        traced, wrt = list(args), []
        if len(argnums) > 1:
            _refuse_twice(fn, args, argnums)
        device = weights[0].device if weights and computes_at_once() else None
        for argnum in argnums:
            leaves, spec = _float_leaves(fn, args, argnum, named, device)
            symbols = [trace.input(leaf) for leaf in leaves]
            traced[argnum] = spec.unflatten(symbols)
            wrt.append((tuple([s.var for s in symbols]), spec))
        weight_vars = tuple([trace.weight(p).var for p in weights])
        try:
            result: Any = trace.record(fn, traced, named)
        except Exception as error:
            _note_lists(error, fn, args, argnums)
            raise
        aux: Any
        out, aux = _split(fn, result) if has_aux else (result, None)
        returned, out_spec = _flattened(out)
        for leaf in (*returned, *optree.tree_leaves(aux)) if has_aux else returned:
            if not isinstance(leaf, Tensor):
                refuse_dataclass(f"{name_of(fn)} returned", leaf, GradientArgumentError)
        if trace.numbers_left:
            _refuse_left(fn, returned)
        targets, outs = trace.split(returned)
        values = out_spec.unflatten([o if isinstance(o, Tensor) else _tensor(o) for o in outs])
        kept = None if aux is None else optree.tree_map(trace.value, aux, none_is_leaf=True)
    finally:
        trace.end()
    return Linearized(values, kept, trace, tuple(targets), out_spec, tuple(wrt), weight_vars)


_LEAF = {nothing: optree.treespec_leaf(none_is_leaf=nothing) for nothing in (False, True)}


def _flattened(tree: Tree, none_is_leaf: bool = True) -> tuple[list[Any], Any]:
    """The leaves of a tree and its structure; most often it is one tensor."""
    if isinstance(tree, Tensor):
        return [tree], _LEAF[none_is_leaf]
    return optree.tree_flatten(tree, none_is_leaf=none_is_leaf)


def _refuse_twice(fn: Any, args: Sequence[Any], argnums: Sequence[int]) -> None:
    if len({n % len(args) if args else n for n in argnums}) < len(argnums):
        raise GradientArgumentError(
            f"argnums {tuple(argnums)} names an argument of {name_of(fn)} twice; name each once"
        )


def _float_leaves(
    fn: Any, args: Sequence[Any], argnum: int, named: Mapping[str, Any], device: str | None
) -> tuple[list[Tensor], Any]:
    """The tensors of an argument, arrays on the device; and its structure, in which None is an
    empty tree."""
    if not -len(args) <= argnum < len(args):
        also = f" by position and {len(named)} by keyword" if named else ""
        raise GradientArgumentError(
            f"argnums {argnum} names no argument: {name_of(fn)} was called with {len(args)} of them"
            f"{also}; pass by position what is differentiated, or argnums=None for weights alone"
        )
    leaves, spec = _flattened(args[argnum], none_is_leaf=False)
    tensors = []
    for leaf in leaves:
        if not isinstance(leaf, (Tensor, np.ndarray, np.generic, float)):
            who = f"argument {argnum} of {name_of(fn)} holds"
            refuse_dataclass(who, leaf, GradientArgumentError)
            listed = ", as np.array([...], float)" if isinstance(args[argnum], list) else ""
            raise GradientArgumentError(
                f"{who} {type(leaf).__name__} {leaf!r}, which has no gradient; pass a float "
                f"tensor{listed}, or leave it out of argnums"
            )
        tensor = leaf if isinstance(leaf, Tensor) else Tensor(leaf, device=device)
        if not is_float(tensor.dtype):
            what = typed(tensor)
            raise GradientArgumentError(
                f"argument {argnum} of {name_of(fn)} is {what}, which has no gradient; cast it to "
                "a float dtype, or leave it out of argnums"
            )
        tensors.append(tensor)
    return tensors, spec


def _split(fn: Any, result: Any) -> tuple[Any, Any]:
    if not isinstance(result, tuple) or len(result) != 2:
        raise GradientArgumentError(
            f"{name_of(fn)} returned {type(result).__name__}; has_aux=True expects a pair "
            "(value, aux)"
        )
    return result


def _note_lists(error: Exception, fn: Any, args: Sequence[Any], argnums: Sequence[int]) -> None:
    """Say in an error of the function which of its arguments may be meant as an array."""
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


def _refuse_left(fn: Any, leaves: Sequence[Any]) -> None:
    """A Python number that was made from one taken out of a tensor has lost its gradient."""
    for leaf in leaves:
        if isinstance(leaf, (int, float, np.generic)):
            raise GradientArgumentError(
                f"{name_of(fn)} returned the {type(leaf).__name__} {leaf!r} after float(), int() "
                "or item() of a tensor, which leaves the gradient behind; return a Tensor"
            )


def _tensor(value: Any) -> Any:
    return Tensor(value) if isinstance(value, (np.ndarray, np.generic, int, float)) else value


def name_of(fn: Any) -> str:
    """What errors call a function."""
    return getattr(fn, "__name__", None) or type(fn).__name__


_USES = {"vjp": "vjp(f, x)", "jvp": "jvp(f, (x,), (t,))", "hvp": "hvp(f, x, v)"}


def checked_function(who: str, fn: Any) -> Callable[..., Any]:
    """`fn`; GradientArgumentError unless it can be called."""
    if callable(fn):
        return fn  # type: ignore[no-any-return]
    raise GradientArgumentError(
        f"{who} got {fn!r} of type {type(fn).__name__}; give the function that computes it, as in "
        f"{_USES.get(who, f'{who}(f)(x)')}"
    )
