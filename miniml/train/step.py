"""train_step: forward, backward and update as one step, which happens wholly or not at all."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from ..access import Access
from ..errors import MinimlError, NonFiniteError
from ..grad import value_and_grad
from ..nn import Cell
from ..optim import Optimizer
from ..random import default_generator
from ..runtime.jit import jit
from ..runtime.staged import together
from ..settings import context, current
from ..tensor import Parameter, Tensor
from ..undo import logged

Loss = Callable[..., Any]


def train_step(net: Loss, loss_fn: Loss, optimizer: Optimizer) -> Callable[..., Tensor]:
    """The function `step(x, *labels)` that updates the optimizer's parameters once.

    The step computes loss_fn(net(x), *labels), its gradients and the update, and returns the
    loss before the update, a float Tensor of shape (). It is compiled for each shape and dtype of
    its arguments; `ml.context(jit=False)` runs it op by op. It happens wholly or not at all:
    when it raises, or a signal's handler does, parameters, running statistics, optimizer state
    and the random stream are as before it, or as after it if the signal came at its very end;
    Adam's step count, for one, says which. In several threads, steps of the same parameters take
    turns, and what is saved or evaluated meanwhile is one state. InUseError for a step that is
    called inside itself, by a handler.
    """
    return _Step(net, loss_fn, optimizer)


class _Step:
    """One training step of a net; equal to no other, so it has a cache of programs of its own."""

    def __init__(self, net: Loss, loss_fn: Loss, optimizer: Optimizer):
        _check(net, loss_fn, optimizer)
        self.net, self.loss_fn, self.optimizer = net, loss_fn, optimizer
        self._gradient = value_and_grad(self._forward, argnums=None, weights=optimizer.params)
        self._program = jit(self.train_step)

    def __call__(self, x: Any, *labels: Any) -> Tensor:
        if current().jit:
            return self._program(x, *labels)
        access = Access("train_step", self._written())
        return access.run(together, self.train_step, x, *labels)  # type: ignore[no-any-return]

    def _written(self) -> Iterator[Parameter]:
        """What a step may write, as far as that is known before it runs."""
        yield from self.optimizer.written()
        for cell in (self.net, self.loss_fn):
            yield from cell.get_parameters() if isinstance(cell, Cell) else ()
        yield default_generator.state

    def __reduce__(self) -> tuple[Any, ...]:
        """Copies, and those sent to another process, are compiled anew."""
        return _Step, (self.net, self.loss_fn, self.optimizer)

    def train_step(self, x: Any, *labels: Any) -> Tensor:
        loss, gradients = self._gradient(x, *labels)
        self.optimizer.update(gradients)
        return loss  # type: ignore[no-any-return]

    def _forward(self, x: Any, *labels: Any) -> Any:
        return self.loss_fn(self.net(x), *labels)


def _check(net: object, loss_fn: object, optimizer: object) -> None:
    """MinimlError for arguments in another order, or an optimizer that never touches the net."""
    if not isinstance(optimizer, Optimizer) or not callable(loss_fn):
        raise MinimlError(
            f"train_step got {type(net).__name__}, {type(loss_fn).__name__} and "
            f"{type(optimizer).__name__}; it takes a net, a loss function and an Optimizer"
        )
    cells = [c for c in (net, loss_fn) if isinstance(c, Cell)]
    own = {id(p) for cell in cells for p in cell.trainable_params()}
    if isinstance(net, Cell) and own and not any(id(p) in own for p in optimizer.params):
        raise MinimlError(
            f"train_step got {type(optimizer).__name__} for {len(optimizer.params)} parameters, "
            f"none of which {type(net).__name__} has; make it with net.trainable_params(), "
            "after net.to(device)"
        )


def locate_nonfinite(
    step: Callable[..., Any], batches: Iterable[Sequence[Any]]
) -> NonFiniteError | None:
    """The error of the first operation that makes a NaN or an infinity in `step(*batch)`.

    Runs the step op by op on each batch in turn, from the values parameters have now, and
    stops at the first; None if there is none. The error names the primitive, the ranges of its
    inputs and the user's line. Parameters and random stream are as before afterwards.
    """
    with logged() as before, context(jit=False, check_nan=True):
        try:
            for batch in batches:
                step(*batch)
        except NonFiniteError as error:
            return error
        finally:
            before.restore()
    return None
