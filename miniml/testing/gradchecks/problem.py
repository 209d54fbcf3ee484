"""From a function of Tensors to a Map: the leaves to differentiate, and how the function runs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any, cast

import numpy as np
import optree

from ...dtype import DType, float64
from ...grad.transforms import vjp
from ...holes import Holes
from ...parameter import Parameter
from ...primitive import Primitive
from ...runtime.jit import jit
from ...settings import GRAPH_MODE, current
from ...tensor import Tensor
from ...trace import use_trace
from .maps import Map, Name, Pull, floats_of, guarded, is_float_leaf, nothing_in
from .report import Array, Arrays
from .rounding import Perturbation, Rounding
from .substitute import held_of, run_with

Function = Callable[..., Any]


def of_miniml(
    fn: Function,
    args: Sequence[Any],
    argnums: int | tuple[int, ...] | None,
    weights: Sequence[Parameter] = (),
) -> tuple[Map, Arrays]:
    """The Map of a function of Tensors, and its point, to which the weights belong."""
    name = name_of(fn)
    args = [as_array(a) for a in args] if isinstance(fn, Primitive) else args
    leaves, names, filled = _chosen(fn, args, argnums, weights)
    point = [np.array(leaf, dtype=dtype_of(leaf)) for leaf in leaves]
    if not sum(a.size for a in point):
        every = optree.tree_leaves(cast(Any, tuple(args)), none_is_leaf=True)
        raise nothing_in(f"gradcheck of {name}", every, "array or Tensor")
    devices = [leaf.device if isinstance(leaf, Tensor) else None for leaf in leaves]
    held, out_names = held_of(fn, args), list[str]()

    def outputs(*xs: Any) -> tuple[Any, ...]:
        replaced = [(p, x) for p, x in zip(leaves, xs) if isinstance(p, Parameter)]
        wide = all(x.dtype == float64 for x in xs)
        result = run_with(fn, filled(xs), replaced, held, wide)
        found, spec = optree.tree_flatten(result, none_is_leaf=True)
        floats = [p for p, leaf in zip(spec.paths(), found, strict=True) if is_float_leaf(leaf)]
        out_names[:] = [f"output{_inner(p)}" for p in floats]
        return tuple(floats_of(name, found))

    return _map(name, outputs, tuple(names), out_names, len(args), devices), point


def _chosen(
    fn: Function,
    args: Sequence[Any],
    argnums: int | tuple[int, ...] | None,
    weights: Sequence[Parameter],
) -> tuple[list[Any], list[Name], Callable[[Sequence[Any]], Any]]:
    """The leaves to differentiate, weights last; their names; a function that replaces them in the
    arguments."""
    tree: Any = tuple(args)
    leaves, spec = optree.tree_flatten(tree, none_is_leaf=True)
    paths, numbers = spec.paths(), _numbers(fn, len(args), argnums)
    positions = [i for i, a in enumerate(leaves) if paths[i][0] in numbers and is_float_leaf(a)]
    own = [leaves[i] for i in positions]
    more = [w for w in weights if not any(w is leaf for leaf in own)]
    names: list[Name] = [_leaf_name(paths[i]) for i in positions]
    names += [(None, w.name, f"weight {w.name}") for w in more]
    holes = Holes(leaves, spec, positions)
    return [*own, *more], names, lambda xs: holes.filled(xs[: len(positions)])


def _map(
    name: str,
    function: Function,
    names: tuple[Name, ...],
    out_names: list[str],
    next_argnum: int,
    devices: Sequence[str | None],
    order: int = 1,
) -> Map:
    """The Map of a function of tensors. out_names: filled once it has run."""
    pulled = _pulled(function, len(names))
    compiled = current().mode == GRAPH_MODE
    run_it, backward = (jit(function), jit(pulled)) if compiled else (function, None)

    def tensors(arrays: Arrays) -> list[Tensor]:
        return [Tensor(a, device=d) for a, d in zip(arrays, devices, strict=True)]

    def run(arrays: Arrays) -> Arrays:
        return [np.asarray(o) for o in run_it(*tensors(arrays))]

    def linearize(arrays: Arrays) -> Pull:
        xs = tensors(arrays)
        if backward is not None:
            return lambda douts: list(backward(*xs, *map(Tensor, douts)))
        out, pull = vjp(function, *xs)
        return guarded(lambda douts: list(pull(tuple(map(_tensor, douts)))), [*xs, *out])

    def rounding(by: Perturbation, rng: np.random.Generator) -> AbstractContextManager[Any]:
        return use_trace(Rounding(by, rng))

    def following() -> Map:
        more: list[Name] = [
            (next_argnum + i, "", f"cotangent of {out}") for i, out in enumerate(out_names)
        ]
        gradients = [f"the gradient by {shown}" for _, _, shown in names]
        where = [*devices, *([None] * len(more))]
        after = next_argnum + len(more)
        return _map(name, pulled, (*names, *more), gradients, after, where, order + 1)

    return Map(name, run, linearize, names, rounding, order, following)


def _pulled(function: Function, count: int) -> Function:
    """(x..., dout...) -> dx...: the function that the next order differentiates."""

    def pulled(*xs: Any) -> tuple[Any, ...]:
        _, pull = vjp(function, *xs[:count])
        return tuple(pull(tuple(xs[count:])))

    return pulled


def _tensor(array: Array) -> Tensor:
    """A Tensor of a cotangent; on the CPU with its own strides."""
    on_cpu = current().device_target == "cpu" and not array.flags.c_contiguous
    return Tensor.wrap(array.view(), "cpu") if on_cpu else Tensor(array)


def device_of(args: Sequence[Any], weights: Sequence[Parameter]) -> str:
    """The device of the first Tensor of all; the context's device if there is none."""
    tree: Any = tuple(args)
    leaves: list[Any] = [*optree.tree_leaves(tree, none_is_leaf=True), *weights]
    devices = [leaf.device for leaf in leaves if isinstance(leaf, Tensor)]
    return devices[0] if devices else current().device_target


def _numbers(fn: Function, count: int, argnums: int | tuple[int, ...] | None) -> set[int]:
    if argnums is None:
        const = {i for i, _ in fn._const} if isinstance(fn, Primitive) else set()
        return set(range(count)) - const
    numbers = (argnums,) if isinstance(argnums, int) else argnums
    return {n % count for n in numbers}


def as_array(value: Any) -> Any:
    """The array of nested lists of Python floats, as NumPy reads them; any other value
    unchanged."""
    return np.array(value, np.float64) if is_list_of_floats(value) else value


def is_list_of_floats(value: Any) -> bool:
    """True for nested lists of numbers, rectangular, with a Python float among them."""
    if not isinstance(value, (list, tuple)):
        return False
    leaves: list[Any] = optree.tree_leaves(cast(Any, value), none_is_leaf=True)
    if not all(isinstance(a, (int, float)) for a in leaves) or not any(map(is_float_leaf, leaves)):
        return False
    try:
        return bool(np.array(value).size)
    except ValueError:  # ragged lists
        return False


def dtype_of(leaf: Any) -> DType:
    """The dtype in which a leaf is differentiated: Python floats in float64."""
    return float64 if isinstance(leaf, float) and not isinstance(leaf, np.generic) else leaf.dtype


def _leaf_name(path: tuple[Any, ...]) -> Name:
    inner = _inner(path[1:])
    return path[0], inner, f"argument {path[0]}{inner}"


def _inner(path: tuple[Any, ...]) -> str:
    return "".join(f"[{p!r}]" for p in path)


def name_of(fn: Any) -> str:
    """The name of a function in a report."""
    if isinstance(fn, Primitive):
        return repr(fn)
    return getattr(fn, "__name__", None) or type(fn).__name__
