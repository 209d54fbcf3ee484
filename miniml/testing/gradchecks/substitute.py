"""Parameters as arguments: while a function runs, its reads of parameters give other tensors."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import optree

from ...dtype import float64, is_float
from ...graph.forwarding import ForwardingTrace
from ...graph.state import written
from ...nn.cell import Cell
from ...parameter import Parameter
from ...primitive import Primitive
from ...random import default_generator
from ...settings import PYNATIVE_MODE, context
from ...tensor import Tensor
from ...trace import current_trace, use_trace
from ...undo import logged
from .maps import is_float_leaf
from .report import Array

Function = Callable[..., Any]


class Substitution(ForwardingTrace):
    """The enclosing trace, except that reads of parameters give other tensors.

    An assignment to such a parameter changes its substitute, never the parameter.
    """

    def __init__(self, tensors: Mapping[int, Any]):
        super().__init__(current_trace())
        self.tensors = dict(tensors)

    def bind(self, primitive: Primitive, args: Sequence[Any]) -> tuple[Any, ...]:
        target = written(primitive, args)
        outs = self.parent.bind(primitive, list(map(self._replaced, args)))
        if id(target) in self.tensors:
            self.tensors[id(target)] = outs[0]
        return outs

    def stand_in(self, parameter: Any) -> Any:
        found = self.tensors.get(id(parameter))
        return self.parent.stand_in(parameter) if found is None else found

    def call_with_bprop(self, name: str, fn: Function, bprop: Function, args: Sequence[Any]) -> Any:
        tree: Any = tuple(args)
        given: Any = optree.tree_map(self._replaced, tree, none_is_leaf=True)
        return super().call_with_bprop(name, fn, bprop, given)

    def _replaced(self, value: Any) -> Any:
        return self.tensors.get(id(value), value)


def run_with(
    fn: Function,
    args: Sequence[Any],
    replaced: Sequence[tuple[Parameter, Any]],
    held: Sequence[tuple[Parameter, Array]],
    wide: bool,
) -> Any:
    """fn(*args) with other tensors substituted for parameters.

    held: further parameters and the values that fn gets for them, in float64 if `wide` and they are
    floats; assignments of fn to them have no effect.
    """
    if not replaced and not held:
        return fn(*args)
    tensors = {id(p): t for p, t in replaced}
    for p, value in held:
        dtype = float64 if wide and is_float(p.dtype) else p.dtype
        tensors.setdefault(id(p), Tensor(value.astype(dtype), device=p.device))
    with use_trace(Substitution(tensors)):
        return fn(*args)


def held_of(fn: Function, args: Sequence[Any]) -> list[tuple[Parameter, Array]]:
    """The Parameters that have the same values in all calls: a Cell's own, or those that fn
    writes."""
    if isinstance(fn, Cell):
        return [(p, p.asnumpy()) for p in fn.get_parameters()]
    return [] if isinstance(fn, Primitive) else _written(fn, args)


def _written(fn: Function, args: Sequence[Any]) -> list[tuple[Parameter, Array]]:
    """The Parameters that fn writes, such as running statistics, with their previous values.

    The call is not compiled, since the writes of a compiled call would not be seen.
    """
    tree: Any = tuple(args)
    given: Any = optree.tree_map(_as_tensor, tree, none_is_leaf=True)
    with context(mode=PYNATIVE_MODE), logged() as log:
        try:
            fn(*given)
        except Exception:
            return []  # reported when its gradient is checked
        finally:
            log.restore()
    return [(p, value) for p, value in log.written() if p is not default_generator.state]


def _as_tensor(value: Any) -> Any:
    return Tensor(value) if isinstance(value, np.ndarray) and is_float_leaf(value) else value
