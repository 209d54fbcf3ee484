"""gradcheck: is a gradient the derivative of the function, at a point, element by element?"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ...errors import GradientArgumentError, MinimlError, TracedValueError
from ...grad.weights import Given, Weights
from ...nn.cell import Cell
from ...parameter import Parameter
from ...primitive import Primitive
from ...settings import context
from ...undo import logged
from ..budget import lasting
from ..calls import without_c
from .maps import Map
from .orders import check_orders
from .plain import of_numpy
from .problem import device_of, is_list_of_floats, name_of, of_miniml
from .report import Arrays, GradientError, GradReport

Function = Callable[..., Any]


def gradcheck(
    fn: Function,
    *args: Any,
    order: int | None = None,
    argnums: int | tuple[int, ...] | None = None,
    weights: Given | None = None,
    mode: int | None = None,
    strict: bool = False,
    raise_error: bool = True,
    seed: int = 0,
    budget: float | None = None,
) -> GradReport:
    """Check the gradients of `fn` at `args` against differences of `fn`.

    fn: a function of trees of tensors to a tree of tensors, a Primitive or a Cell. args: Tensors,
    NumPy arrays, Python floats, or trees of these; everything else in them, including const inputs
    of a Primitive, is passed on unchanged. argnums: the arguments to differentiate, all by default.
    weights: Parameters that fn reads, to differentiate too: a Cell, a Parameter, a list or a dict;
    fn's own where fn is a Cell; no Parameter is changed. order: derivatives up to this one
    are checked; 2 by default for a Primitive, else 1. mode: PYNATIVE_MODE or GRAPH_MODE, by
    default the context's. seed: of the random directions. budget: seconds, after which elements not
    yet judged are listed as such.

    Differences run in float64, with an error bar of their own; a backward pass in a narrower
    dtype is compared with the float64 one, element by element. Raises GradientError, which has
    the `report`, if a gradient is wrong, if nothing could be judged, or with `strict` if anything
    could not be; `raise_error=False` returns the report. GradientArgumentError: `fn` returns no
    float, changes its arguments, raises at the point, or has nothing to differentiate.

    >>> from miniml import ops
    >>> gradcheck(ops.sin, np.array([0.3, 2.0])).ok
    True
    """
    highest = order if order is not None else 2 if isinstance(fn, Primitive) else 1
    parameters = _weights_of(fn, weights)
    device = device_of(args, parameters)
    with without_c(), context(mode=mode, device_target=device), lasting(budget), logged() as log:
        try:
            map_, point = of_miniml(fn, args, argnums, parameters)
            return _checked(map_, point, highest, strict, raise_error, seed)
        except TracedValueError as error:
            if not any(map(is_list_of_floats, args)):
                raise
            raise _of_lists(fn, args) from error
        finally:
            log.restore()


def _weights_of(fn: Function, weights: Given | None) -> tuple[Parameter, ...]:
    """The Parameters to differentiate: those given, or the trainable ones of a Cell."""
    if weights is None:
        return tuple(fn.trainable_params()) if isinstance(fn, Cell) else ()
    return Weights.of(weights).parameters


def _of_lists(fn: Function, args: tuple[Any, ...]) -> MinimlError:
    """The error for a function that got a list of numbers which it treats as an array."""
    first = next(i for i, a in enumerate(args) if is_list_of_floats(a))
    return GradientArgumentError(
        f"gradcheck of {name_of(fn)} got a list for argument {first}, which is a tree of scalars, "
        "and the function makes an array of it; pass np.array([...])"
    )


def gradcheck_vjp(
    f: Function,
    vjp: Function,
    *args: Any,
    strict: bool = False,
    raise_error: bool = True,
    seed: int = 0,
    budget: float | None = None,
) -> GradReport:
    """Check a hand-written vector-Jacobian product of a plain NumPy function.

    f(*args) returns an array or a tuple of arrays. vjp(*args, dout), or vjp(*args, out, dout),
    returns the gradient, or a tuple with one for each argument (None for no gradient); dout and out
    are tuples where f returns one. Report, errors and options are those of `gradcheck`.

    >>> gradcheck_vjp(np.sin, lambda x, dout: dout * np.cos(x), np.array([0.3, 2.0])).ok
    True
    """
    with lasting(budget):
        return _checked(*of_numpy(f, vjp, args), 1, strict, raise_error, seed)


def _checked(
    map_: Map, point: Arrays, highest: int, strict: bool, raise_error: bool, seed: int
) -> GradReport:
    report = GradReport(map_.name, strict=strict)
    rng = np.random.default_rng(seed)
    with np.errstate(all="ignore"):
        check_orders(map_, point, highest, rng, report)
    report.sort()
    if raise_error and not report.ok:
        raise GradientError(report)
    return report
