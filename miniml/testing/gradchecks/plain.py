"""From a plain NumPy function, and a pull-back written by hand, to a Map."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import optree

from .maps import Arrays, Map, Pull, Saved, WrongGradientForm, floats_of, is_float_leaf
from .problem import Problem, as_array, dtype_of, name_of, nothing_in
from .rounding import Step, off

Function = Callable[..., Any]


def of_numpy(f: Function, backward: Function, args: Sequence[Any]) -> Problem:
    """The Problem of a function of arrays with a pull-back written by hand."""
    name, args = name_of(f), [as_array(a) for a in args]
    places = [i for i, a in enumerate(args) if is_float_leaf(a)]
    point = [np.array(args[i], dtype=dtype_of(args[i])) for i in places]
    if not sum(a.size for a in point):
        raise nothing_in(f"gradcheck_vjp of {name}", args, "array")
    wants_out = _wants_out(backward, len(args))
    inexact: list[tuple[Step, np.random.Generator]] = []

    def filled(arrays: Arrays) -> list[Any]:
        given = list(args)
        for i, a in zip(places, arrays, strict=True):
            given[i] = a
        return given

    def run(arrays: Arrays) -> Arrays:
        out = f(*filled(arrays))
        found = floats_of(name, out if isinstance(out, (tuple, list)) else [out])
        return [np.asarray(o) for o in found]

    def linearize(arrays: Arrays) -> Pull:
        given = filled(arrays)
        out = f(*given)
        if inexact:
            out = _off(out, *inexact[0])

        outs = [o for o in (out if isinstance(out, (tuple, list)) else [out]) if is_float_leaf(o)]
        saved = Saved([*arrays, *outs], "an argument of the function, or its output")

        def pull(douts: Arrays) -> list[Any]:
            dout = _like_output(out, douts)
            result = saved.after(
                backward(*given, out, dout) if wants_out else backward(*given, dout)
            )
            result = result if isinstance(result, (tuple, list)) else (result,)
            if len(result) not in (len(args), len(places)):
                raise WrongGradientForm(
                    -1, f"the vjp returns {len(result)} gradients for {len(args)} arguments"
                )
            return [result[i] for i in places] if len(result) == len(args) else list(result)

        return pull

    @contextmanager
    def rounding(step: Step, rng: np.random.Generator) -> Iterator[None]:
        """Of a plain function only the output can be seen, which the vjp may take."""
        inexact.append((step, rng))
        yield
        inexact.clear()

    names = tuple((i, "", f"argument {i}") for i in places)
    return Problem(name, point, lambda order, at: Map(name, run, linearize, names, rounding))


def _off(out: Any, step: Step, rng: np.random.Generator) -> Any:
    """The floats of an output, each off by `step` of itself."""
    tree: Any = out
    return optree.tree_map(lambda o: off(o, step, rng) if is_float_leaf(o) else o, tree)


def _like_output(out: Any, douts: Arrays) -> Any:
    """Cotangents in the form of the output, None for outputs that are no floats."""
    if not isinstance(out, (tuple, list)):
        return douts[0]
    left = iter(douts)
    return tuple(next(left) if is_float_leaf(o) else None for o in out)


def _wants_out(backward: Function, count: int) -> bool:
    try:
        parameters = inspect.signature(backward).parameters.values()
    except (TypeError, ValueError):
        return False
    required = [
        p for p in parameters
        if p.default is p.empty and p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)
    ]  # fmt: skip
    return len(required) == count + 2
