"""From a plain NumPy function, and a pull-back written by hand, to a Map."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from .maps import Map, Pull, WrongGradientForm, floats_of, guarded, is_float_leaf, nothing_in
from .problem import as_array, dtype_of, name_of
from .report import Arrays
from .rounding import Perturbation

Function = Callable[..., Any]


def of_numpy(f: Function, backward: Function, args: Sequence[Any]) -> tuple[Map, Arrays]:
    """The Map of a function of arrays with a pull-back written by hand, and its point."""
    name, args = name_of(f), [as_array(a) for a in args]
    positions = [i for i, a in enumerate(args) if is_float_leaf(a)]
    point = [np.array(args[i], dtype=dtype_of(args[i])) for i in positions]
    if not sum(a.size for a in point):
        raise nothing_in(f"gradcheck_vjp of {name}", args, "array")
    wants_out = _wants_out(backward, len(args))
    inexact: list[tuple[Perturbation, np.random.Generator]] = []

    def filled(arrays: Arrays) -> list[Any]:
        given = list(args)
        for i, a in zip(positions, arrays, strict=True):
            given[i] = a
        return given

    def run(arrays: Arrays) -> Arrays:
        return [np.asarray(o) for o in floats_of(name, _outputs(f(*filled(arrays))))]

    def linearize(arrays: Arrays) -> Pull:
        given = filled(arrays)
        out = f(*given)
        for by, rng in inexact:
            outs = [by.of(o, rng) if is_float_leaf(o) else o for o in _outputs(out)]
            out = tuple(outs) if isinstance(out, (tuple, list)) else outs[0]

        def pull(douts: Arrays) -> list[Any]:
            dout = _like_output(out, douts)
            result = _outputs(backward(*given, out, dout) if wants_out else backward(*given, dout))
            if len(result) == len(args):
                return [result[i] for i in positions]
            if len(result) != len(positions):
                raise WrongGradientForm(
                    f"the vjp returns {len(result)} gradients for {len(args)} arguments"
                )
            return list(result)

        return guarded(pull, [*arrays, *filter(is_float_leaf, _outputs(out))])

    @contextmanager
    def rounding(by: Perturbation, rng: np.random.Generator) -> Iterator[None]:
        """Of a plain function only the output is visible, which the vjp may take."""
        inexact.append((by, rng))
        try:
            yield
        finally:
            inexact.clear()

    names = tuple((i, "", f"argument {i}") for i in positions)
    return Map(name, run, linearize, names, rounding), point


def _outputs(out: Any) -> Sequence[Any]:
    return out if isinstance(out, (tuple, list)) else (out,)


def _like_output(out: Any, douts: Arrays) -> Any:
    """Cotangents in the form of the output, None for outputs that are not floats."""
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
        p
        for p in parameters
        if p.default is p.empty and p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)
    ]
    return len(required) == count + 2
