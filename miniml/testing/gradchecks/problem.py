"""From a function and its arguments to Maps: which leaves are differentiated, and how it runs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import optree

from ...dtype import DType, float64
from ...errors import GradientArgumentError
from ...grad.transforms import vjp
from ...holes import Holes
from ...primitive import Primitive
from ...runtime.jit import jit
from ...settings import GRAPH_MODE, current
from ...tensor import Parameter, Tensor
from ...trace import use_trace
from .maps import Arrays, Map, Name, Pull, Saved, floats_of, is_float_leaf, shown_leaf
from .rounding import Rounding, Step
from .subject import Array
from .substitute import held_of, run_with, weights_of

Function = Callable[..., Any]


@dataclass(frozen=True, slots=True)
class Problem:
    """A function's float arguments, and the Map of each order.

    maps(order, point): point holds the arguments and, from order 2 on, the cotangents of the
    orders before, in which the pull-back of the order before is a function, too.
    """

    name: str
    point: Arrays
    maps: Callable[[int, Arrays], Map]


@dataclass(frozen=True, slots=True)
class _Given:
    """The arguments of a call, with holes for what is differentiated of them.

    chosen: the leaves that were there, then the weights. names: of the chosen.
    """

    holes: Holes
    chosen: list[Any]
    names: list[Name]

    def filled(self, xs: Sequence[Any]) -> Any:
        """The arguments with xs in place of what was chosen."""
        return self.holes.filled(xs[: len(self.holes.positions)])


def of_miniml(
    fn: Function,
    args: Sequence[Any],
    argnums: int | tuple[int, ...] | None,
    weights: Sequence[Parameter] | Parameter | None = None,
) -> Problem:
    """The Problem of a function of Tensors; `weights` are differentiated like arguments."""
    name = name_of(fn)
    args = [as_array(a) for a in args] if isinstance(fn, Primitive) else args
    given = _given(fn, args, argnums, weights)
    point = [np.array(leaf, dtype=dtype_of(leaf)) for leaf in given.chosen]
    if not sum(a.size for a in point):
        raise nothing_in(f"gradcheck of {name}", given.holes.leaves, "array or Tensor")
    devices = [leaf.device if isinstance(leaf, Tensor) else None for leaf in given.chosen]
    held, out_paths, counts = held_of(fn, args), list[str](), list[int]()

    def outputs(*xs: Any) -> tuple[Any, ...]:
        standing = [(p, x) for p, x in zip(given.chosen, xs) if isinstance(p, Parameter)]
        wide = all(x.dtype == float64 for x in xs)
        result = run_with(fn, given.filled(xs), standing, held, wide)
        found, out_spec = optree.tree_flatten(result, none_is_leaf=True)
        which = [i for i, leaf in enumerate(found) if is_float_leaf(leaf)]
        out_paths[:] = [_inner(out_spec.paths()[i]) for i in which]
        return tuple(floats_of(name, found))

    def maps(order: int, at: Arrays) -> Map:
        function, labels, results = outputs, list(given.names), [f"output{p}" for p in out_paths]
        del counts[order - 1 :]
        counts.append(len(at))
        for before in counts[:-1]:
            first = len(args) + len(labels) - len(given.names)
            function = _pulled(function, before)
            labels += [(first + i, "", f"cotangent of {what}") for i, what in enumerate(results)]
            results = [f"the gradient by {label[2]}" for label in labels[:before]]
        return _map(name, function, tuple(labels), devices)

    return Problem(name, point, maps)


def _given(
    fn: Function,
    args: Sequence[Any],
    argnums: int | tuple[int, ...] | None,
    weights: Sequence[Parameter] | Parameter | None,
) -> _Given:
    tree: Any = tuple(args)
    leaves, spec = optree.tree_flatten(tree, none_is_leaf=True)
    paths, numbers = spec.paths(), _chosen(fn, len(args), argnums)
    places = [i for i, leaf in enumerate(leaves) if paths[i][0] in numbers and is_float_leaf(leaf)]
    own = [leaves[i] for i in places]
    more = [w for w in weights_of(fn, weights) if not any(w is leaf for leaf in own)]
    names = [*(_leaf_name(paths[i]) for i in places), *map(_weight_name, more)]
    return _Given(Holes(leaves, spec, places), [*own, *more], names)


def nothing_in(what: str, leaves: Sequence[Any], wanted: str) -> GradientArgumentError:
    """The refusal of arguments among which there is no float array."""
    shown = ", ".join(map(shown_leaf, leaves)) or "no arguments"
    return GradientArgumentError(
        f"{what} has nothing to differentiate: it got {shown}; give at least one non-empty "
        f"{wanted} of floats"
    )


def _pulled(function: Function, count: int) -> Function:
    """(x..., dout...) -> dx...: what the next order differentiates."""

    def pulled(*xs: Any) -> tuple[Any, ...]:
        _, pull = vjp(function, *xs[:count])
        return tuple(pull(tuple(xs[count:])))

    return pulled


def _map(
    name: str,
    function: Function,
    names: tuple[Name, ...],
    devices: Sequence[str | None],
) -> Map:
    compiled = current().mode == GRAPH_MODE
    run_it = jit(function) if compiled else function
    backward = jit(_pulled(function, len(names))) if compiled else None
    where = [*devices, *([None] * (len(names) - len(devices)))]

    def tensors(arrays: Arrays) -> list[Tensor]:
        return [Tensor(a, device=d) for a, d in zip(arrays, where, strict=True)]

    def run(arrays: Arrays) -> Arrays:
        return [np.asarray(o) for o in run_it(*tensors(arrays))]

    def linearize(arrays: Arrays) -> Pull:
        xs = tensors(arrays)
        if backward is not None:
            return lambda douts: list(backward(*xs, *map(Tensor, douts)))
        out, pull = vjp(function, *xs)
        saved = Saved([*xs, *out], "an argument of the function, or its output")
        return lambda douts: saved.after(list(pull(tuple(map(_tensor, douts)))))

    def rounding(step: Step, rng: np.random.Generator) -> AbstractContextManager[Any]:
        return use_trace(Rounding(step, rng))

    return Map(name, run, linearize, names, rounding)


def _tensor(array: Array) -> Tensor:
    """A Tensor of a cotangent; on the CPU with the strides that it has."""
    on_cpu = current().device_target == "cpu" and not array.flags.c_contiguous
    return Tensor.wrap(array.view(), "cpu") if on_cpu else Tensor(array)


def device_of(args: Sequence[Any], weights: Sequence[Parameter]) -> str:
    """Where the first Tensor of all is; the context's device if there is none."""
    tree: Any = tuple(args)
    leaves: list[Any] = [*optree.tree_leaves(tree, none_is_leaf=True), *weights]
    devices = [leaf.device for leaf in leaves if isinstance(leaf, Tensor)]
    return devices[0] if devices else current().device_target


def _chosen(fn: Function, count: int, argnums: int | tuple[int, ...] | None) -> set[int]:
    const = {i for i, _ in fn._const} if isinstance(fn, Primitive) else set()
    if argnums is None:
        return set(range(count)) - const
    numbers = (argnums,) if isinstance(argnums, int) else argnums
    return {n % count for n in numbers}


def as_array(value: Any) -> Any:
    """The array that nested lists of Python floats are, as NumPy takes them; else the value."""
    return np.array(value, np.float64) if is_list_of_floats(value) else value


def is_list_of_floats(value: Any) -> bool:
    """True for nested lists of numbers with a Python float among them, of one length each."""
    if not isinstance(value, (list, tuple)):
        return False
    leaves: list[Any] = optree.tree_leaves(cast(Any, value), none_is_leaf=True)
    if not all(isinstance(a, (int, float)) for a in leaves) or not any(map(is_float_leaf, leaves)):
        return False
    try:
        return bool(np.array(value).size)
    except ValueError:  # lists of several lengths
        return False


def dtype_of(leaf: Any) -> DType:
    """The dtype in which a leaf is differentiated: Python floats in float64."""
    return float64 if isinstance(leaf, float) and not isinstance(leaf, np.generic) else leaf.dtype


def _leaf_name(path: tuple[Any, ...]) -> Name:
    inner = _inner(path[1:])
    return path[0], inner, f"argument {path[0]}{inner}"


def _inner(path: tuple[Any, ...]) -> str:
    return "".join(f"[{p!r}]" for p in path)


def _weight_name(weight: Parameter) -> Name:
    return None, weight.name, f"weight {weight.name}"


def name_of(fn: Any) -> str:
    """What a report calls a function."""
    if isinstance(fn, Primitive):
        return repr(fn)
    return getattr(fn, "__name__", None) or type(fn).__name__
