"""What is inside a network while it computes: outputs of layers, and gradients of parameters."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

import numpy as np
import optree

from ..errors import MinimlError
from ..grad import value_and_grad
from ..nn import Cell
from ..settings import PYNATIVE_MODE, context
from ..tensor import Array, Tensor
from ..undo import logged

Named = dict[str, Array]


def activations(net: Cell, *inputs: Any) -> Named:
    """What each layer without layers inside it gives in one call of the net, by "path (Class)".

    Runs op by op, in the net's mode; parameters and random stream are as before. A layer that is
    called again, or that gives several tensors, has an entry for each, with a number: "0 (GRU) 2".
    MinimlError for what is not a network.
    """
    _check("activations", net)
    found: dict[str, list[Array]] = {}
    with ExitStack() as hooks, _unchanged():
        for prefix, cell in net._walk("", set()):
            if not any(isinstance(value, Cell) for value in vars(cell).values()):
                name = " ".join(filter(None, [prefix[:-1], f"({type(cell).__name__})"]))
                handle = cell.register_forward_hook(_noting(found.setdefault(name, [])))
                hooks.callback(handle.remove)
        net(*inputs)
    return {
        name if i == 0 else f"{name} {i + 1}": array
        for name, arrays in found.items()
        for i, array in enumerate(arrays)
    }


def gradients(net: Cell, loss: Callable[..., Any], x: Any, *labels: Any) -> Named:
    """The gradient of loss(net(x), *labels), as a training step takes it, by each of the trainable
    parameters: by name. Parameters, running statistics and random stream are as before."""
    _check("gradients", net)
    if not callable(loss):
        raise MinimlError(
            f"gradients got {type(loss).__name__} for the loss; it takes net, loss, x, *labels"
        )
    trained = {name: p for name, p in net.parameters_dict().items() if p.requires_grad}

    def value(*given: Any) -> Any:
        out = loss(net(*given), *labels)
        return out[0] if isinstance(out, tuple) else out

    with _unchanged():
        given = x if type(x) is tuple else (x,)
        _, found = value_and_grad(value, argnums=None, weights=trained)(*given)
    return {name: gradient.asnumpy() for name, gradient in found.items()}


def _check(who: str, net: object) -> None:
    if not isinstance(net, Cell):
        raise MinimlError(f"{who} got {net!r} of type {type(net).__name__}; give a network")


class _unchanged(ExitStack):
    """The block in which calls run op by op, and after which parameters are as before it."""

    def __enter__(self) -> _unchanged:
        super().__enter__()
        log = self.enter_context(logged())
        self.callback(log.restore)
        self.enter_context(context(mode=PYNATIVE_MODE, jit=False))
        return self


def _noting(found: list[Array]) -> Callable[..., None]:
    def note(cell: Any, inputs: Any, output: Any) -> None:
        leaves = [x for x in optree.tree_leaves(output) if isinstance(x, Tensor)]
        found.extend(np.asarray(x.asnumpy()) for x in leaves)

    return note
