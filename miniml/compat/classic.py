"""GradOperation, MindSpore's factory of gradient functions."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import optree

from .. import ops
from ..core.abstract import is_complex, is_inexact, typed
from ..core.errors import GradientArgumentError, ShapeError
from ..core.hints import hides_frames
from ..core.options import flag
from ..core.parameter import Parameter
from ..core.tensor import Tensor
from ..core.trace import current_trace
from ..grad.reverse import checked_function, flattened, linearize, name_of
from ..grad.transforms import Given, Weights
from ..ops.checks import dtype_of


class GradOperation:
    """A factory of gradient functions: `GradOperation(...)(fn, weights=None)(*inputs)`.

    get_all: gradients with respect to all tensor inputs, as a tuple (zeros for integer ones);
    by default the first input's alone, bare. get_by_list: gradients of `weights` as a tuple; with
    get_all, (input gradients, weight gradients). sens_param: the last argument is the output's
    cotangent, of its shape, and is cast to its dtype; by default that is ones.
    GradientArgumentError for get_by_list without weights.

    >>> net = lambda x, y: x * y
    >>> GradOperation(get_all=True)(net)(2.0, 3.0)
    (Tensor(3., shape=(), dtype=float32), Tensor(2., shape=(), dtype=float32))
    """

    def __init__(self, get_all: bool = False, get_by_list: bool = False, sens_param: bool = False):
        self.get_all = flag("GradOperation", "get_all", get_all)
        self.get_by_list = flag("GradOperation", "get_by_list", get_by_list)
        self.sens_param = flag("GradOperation", "sens_param", sens_param)

    def __call__(self, fn: Callable[..., Any], weights: Given | None = None) -> Callable[..., Any]:
        """The gradient function of `fn`, which may be a Cell."""
        if self.get_by_list and weights is None:
            raise GradientArgumentError(
                "GradOperation(get_by_list=True) needs weights; pass net.trainable_params()"
            )
        chosen = weights if self.get_by_list and weights is not None else ()
        parameters = Weights.of(chosen).parameters
        name = name_of(checked_function("GradOperation", fn))

        def derive(*args: Any, **named: Any) -> Any:
            return self._derive(fn, parameters, args, named)

        @hides_frames
        def derived(*args: Any, **named: Any) -> Any:
            return current_trace().callee(derive)(*args, **named)

        derive.__name__ = derived.__name__ = derived.__qualname__ = f"GradOperation({name})"
        return derived

    def _derive(
        self,
        fn: Any,
        weights: tuple[Parameter, ...],
        args: tuple[Any, ...],
        named: Mapping[str, Any],
    ) -> Any:
        if self.sens_param and not args:
            raise GradientArgumentError(
                "GradOperation(sens_param=True) got no arguments; the last one is the cotangent"
            )
        inputs, sens = (args[:-1], args[-1]) if self.sens_param else (args, None)
        numbers = self._numbers(inputs)
        found = linearize(fn, inputs, numbers, weights, named=named)
        outs = found.out_spec.flatten_up_to(found.out)
        if sens is None:
            _refuse_complex(fn, outs)
            douts = [ops.ones_like(o) if _varies(o) else None for o in outs]
        else:
            given = flattened(found.out_spec, sens, "GradOperation got sens")
            douts = [_as_sens(d, o) for d, o in zip(given, outs, strict=True)]
        trees, by_weight = found.pull(douts)
        if not self.get_all:
            return by_weight if self.get_by_list else trees[0]
        slots = dict(zip(numbers, trees, strict=True))
        by_input = tuple(
            slots[i] if i in slots else optree.tree_map(ops.zeros_like, x)
            for i, x in enumerate(inputs)
            if _is_tensor(x)
        )
        return (by_input, by_weight) if self.get_by_list else by_input

    def _numbers(self, inputs: tuple[Any, ...]) -> tuple[int, ...]:
        if not self.get_all:
            return () if self.get_by_list else (0,)
        return tuple(i for i, x in enumerate(inputs) if _is_tensor(x) and _all_float(x))


def _refuse_complex(fn: Any, outs: Sequence[Any]) -> None:
    for out in outs:
        if isinstance(out, Tensor) and is_complex(out.dtype):
            raise GradientArgumentError(
                f"GradOperation of {name_of(fn)} needs float outputs; it returned {typed(out)}; "
                "give its cotangent, with sens_param=True, or use vjp"
            )


def _is_tensor(value: Any) -> bool:
    leaves = optree.tree_leaves(value)
    return bool(leaves) and all(
        isinstance(x, (Tensor, np.ndarray, np.generic, float, complex)) for x in leaves
    )


def _all_float(value: Any) -> bool:
    return all(
        isinstance(x, (float, complex)) or is_inexact(x.dtype) for x in optree.tree_leaves(value)
    )


def _as_sens(value: Any, out: Any) -> Any:
    """The cotangent as a tensor of the output's dtype; ShapeError where it has another shape."""
    if value is None or not _varies(out):
        return None
    dtype_of(value)  # refuses what is no number
    sens = value if isinstance(value, Tensor) else Tensor(np.asarray(value, out.dtype))
    if sens.shape != out.shape:
        raise ShapeError(
            f"GradOperation got sens of shape {sens.shape} for an output of shape {out.shape}; "
            "they are equal"
        )
    return sens if sens.dtype == out.dtype else ops.cast(sens, out.dtype)


def _varies(out: Any) -> bool:
    return isinstance(out, Tensor) and is_inexact(out.dtype)
