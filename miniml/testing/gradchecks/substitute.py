"""Parameters as arguments: while a function runs, other tensors stand where it reads them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import optree

from ...dtype import float64, is_float
from ...errors import GradientArgumentError
from ...graph.forwarding import ForwardingTrace
from ...graph.state import written
from ...nn.cell import Cell
from ...primitive import Primitive
from ...random import default_generator
from ...settings import PYNATIVE_MODE, context
from ...tensor import Parameter, Tensor
from ...trace import current_trace, use_trace
from ...undo import logged

Array = np.ndarray[Any, Any]
Function = Callable[..., Any]


class StandIns(ForwardingTrace):
    """The trace around it, except that parameters are other tensors there.

    An assignment to such a parameter changes what stands for it, so the
    parameter itself is never written to.
    """

    def __init__(self, tensors: Mapping[int, Any]):
        super().__init__(current_trace())
        self.standing = dict(tensors)

    def bind(self, primitive: Primitive, args: Sequence[Any]) -> tuple[Any, ...]:
        target = written(primitive, args)
        outs = self.parent.bind(primitive, list(map(self._standing, args)))
        if id(target) in self.standing:
            self.standing[id(target)] = outs[0]
        return outs

    def stand_in(self, parameter: Any) -> Any:
        found = self.standing.get(id(parameter))
        return self.parent.stand_in(parameter) if found is None else found

    def call_with_bprop(self, name: str, fn: Function, bprop: Function, args: Sequence[Any]) -> Any:
        tree: Any = tuple(args)
        given: Any = optree.tree_map(self._standing, tree, none_is_leaf=True)
        return super().call_with_bprop(name, fn, bprop, given)

    def _standing(self, value: Any) -> Any:
        return self.standing.get(id(value), value)


def run_with(
    fn: Callable[..., Any],
    args: Sequence[Any],
    standing: Sequence[tuple[Parameter, Any]],
    held: Sequence[tuple[Parameter, Array]],
    wide: bool,
) -> Any:
    """fn(*args) where other tensors stand for parameters.

    held: parameters and their values, which fn gets, in float64 if `wide` and they are floats;
    fn can assign to them without effect.
    """
    if not standing and not held:
        return fn(*args)
    tensors = {id(p): t for p, t in standing}
    for p, value in held:
        if id(p) not in tensors:
            dtype = float64 if wide and is_float(p.dtype) else p.dtype
            tensors[id(p)] = Tensor(value.astype(dtype), device=p.device)
    with use_trace(StandIns(tensors)):
        return fn(*args)


def weights_of(
    fn: Callable[..., Any], weights: Sequence[Parameter] | Parameter | None
) -> tuple[Parameter, ...]:
    """The Parameters to differentiate: those given, or the trainable ones of a Cell."""
    if weights is None:
        return tuple(fn.trainable_params()) if isinstance(fn, Cell) else ()
    given = (weights,) if isinstance(weights, Parameter) else tuple(weights)
    for weight in list[Any](given):
        if not (isinstance(weight, Parameter) and is_float(weight.dtype)):
            raise GradientArgumentError(
                f"weights holds {weight!r}; give float Parameters, such as net.trainable_params()"
            )
    return given


def held_of(fn: Callable[..., Any], args: Sequence[Any]) -> list[tuple[Parameter, Array]]:
    """The Parameters of a Cell, and those that fn writes to, with their values."""
    own = fn.get_parameters() if isinstance(fn, Cell) else []
    held = [(p, p.asnumpy()) for p in own]
    if not isinstance(fn, (Cell, Primitive)):
        held += [(p, value) for p, value in _written(fn, args) if p is not default_generator.state]
    return held


def _written(fn: Callable[..., Any], args: Sequence[Any]) -> list[tuple[Parameter, Array]]:
    """What fn writes to, such as running statistics: it would be another function each time."""
    tree: Any = tuple(args)
    given: Any = optree.tree_map(
        lambda a: Tensor(a) if isinstance(a, np.ndarray) and is_float(a.dtype) else a,
        tree,
        none_is_leaf=True,
    )
    with context(mode=PYNATIVE_MODE), logged() as log:
        try:
            fn(*given)
        except Exception:
            return []  # said where its gradient is checked
        finally:
            log.restore()
    return log.written()
