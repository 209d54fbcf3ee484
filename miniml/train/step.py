"""train_step: forward, backward and update as one atomic step, and the search for a NaN in it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from textwrap import indent
from typing import Any, ClassVar, TypeVar

import numpy as np
import optree

from .. import ops
from ..backends.group import Group, of_several
from ..core.abstract import is_float, typed
from ..core.access import Access
from ..core.errors import (
    ArityError,
    GradientArgumentError,
    ImmutableError,
    MinimlError,
    NonFiniteError,
    ShapeError,
    TrainingWarning,
    warn_user,
)
from ..core.hints import hide_frames
from ..core.parameter import Parameter, logged
from ..core.settings import context, current
from ..core.tensor import Tensor
from ..core.trace import current_trace, use_trace
from ..grad import value_and_grad
from ..graph.ir import signature_of
from ..graph.tracing import SubstitutingTrace
from ..nn import Cell
from ..nn.state import layer_of
from ..optim import LBFGS, LossScale, Optimizer
from ..optim.wrappers import Clip, clipping
from ..runtime.eager import together
from ..runtime.jit import jit
from ..runtime.observe import debug_nans
from .ranks import Ranks

__all__ = ["locate_nonfinite", "train_step"]

Loss = Callable[..., Any]
Result = TypeVar("Result", bound=Tensor | tuple[Tensor, Any])


def train_step(
    net: Loss,
    loss_fn: Callable[..., Result],
    optimizer: Optimizer,
    clip: Clip | None = None,
    loss_scale: LossScale | None = None,
    group: Group | None = None,
) -> Callable[..., Result]:
    """The function `step(x, *labels)` that updates the optimizer's parameters once.

    The step computes loss_fn(net(x), *labels), its gradients and the update, and returns the
    loss before the update, a float Tensor of shape (). A plain tuple for x is several inputs:
    `step((a, b), y)` calls net(a, b); a net whose one input is a tuple gets `step(((a, b),), y)`.
    Keywords of the step go to loss_fn. Where loss_fn returns a pair (loss, aux), the step returns
    that pair: aux is a tree of other values of this step, such as the accuracy.

    clip: the largest norm that all gradients together may have, a finite number > 0; larger ones
    are scaled down before the update (see `optim.clip_by_global_norm`). Or a function of the
    gradients that gives those to update with, as `lambda grads: optim.clip_by_value(grads, 1.0)`.

    loss_scale: an `optim.LossScale`, for gradients in float16, as `ml.context(autocast=ml.float16)`
    makes them. The loss that the step returns is not scaled; gradients are clipped after they are
    divided by the scale. A step whose gradients are not all finite changes neither parameters, nor
    running statistics, nor the optimizer's state.

    group: the ranks that train together, as `ml.distributed.init()` gives it. Each calls the step
    with rows of its own: losses and gradients are averaged over the ranks, weighted with their
    rows, before they are clipped, and all make the same update, which is that of one rank with all
    of the rows. Also averaged are the floats of shape () in aux, and what the net assigns to
    parameters itself, as running statistics; so all that is saved is equal on all ranks. Rows are
    counted along axis 0 of the labels or, where their leaves differ, of x; where these do too, the
    ranks count alike. DistributedError, naming the parameter and the ranks, where these begin with
    different values.

    It is compiled for each shape and dtype of its arguments; `ml.context(jit=False)` runs it op by
    op. It is atomic: when it raises, or a signal's handler does, parameters, running statistics,
    optimizer state and the random stream are as before it, or as after it if the signal came at its
    very end; Adam's step count, for one, says which. In several threads, steps of the same
    parameters take turns, and a save or an evaluation meanwhile sees a consistent state. InUseError
    for a step that is called inside itself, by a handler.
    """
    return TrainStep(net, loss_fn, optimizer, clip, loss_scale, group)


class OfParts:
    """Base of what is compiled of its parts: ImmutableError for another part later."""

    _parts: ClassVar[tuple[str, ...]] = ("net", "loss_fn", "optimizer", "clip", "loss_scale")

    def __setattr__(self, name: str, value: Any) -> None:
        if name in self._parts and vars(self).get(name, value) is not value:
            raise ImmutableError(
                f"{type(self).__name__} refuses another {name}; make another {type(self).__name__}"
            )
        super().__setattr__(name, value)


class TrainStep(OfParts):
    """One training step of a net; equal to no other, so it has its own cache of programs."""

    __name__ = "train_step"  # the name of its graphs

    def __init__(
        self,
        net: Loss,
        loss_fn: Loss,
        optimizer: Optimizer,
        clip: Clip | None,
        loss_scale: LossScale | None,
        group: Group | None = None,
    ):
        _check(net, loss_fn, optimizer)
        several = of_several("train_step", group)
        self.ranks = None if several is None else Ranks(several)
        self.loss_scale = _checked_scale(loss_scale, optimizer)
        self.net, self.loss_fn, self.optimizer = net, loss_fn, optimizer
        self.clip, self._clipping = clip, clipping("train_step", clip)
        self._forward = _Forward(net, loss_fn, self.loss_scale, self.ranks)
        self._gradient = value_and_grad(self._forward, None, True, optimizer.params)
        self._searches = isinstance(optimizer, LBFGS) and optimizer.line_search > 0
        if self._searches and (clip, loss_scale, group) != (None, None, None):
            raise MinimlError(
                "train_step got LBFGS with line_search, which takes no clip, loss_scale or group"
            )
        self._program = jit(self.train_step)
        self._left: list[str] = []

    @property
    def group(self) -> Group | None:
        """The ranks that train together, if there are several."""
        return None if self.ranks is None else self.ranks.group

    def __call__(self, x: Any, *labels: Any, **named: Any) -> Any:
        try:
            if self.ranks is not None:
                self.ranks.check_equal(self.held, (x, *labels))
            if current().jit:
                return self._program(x, *labels, **named)
            access = Access("train_step", self._written())
            return access.run(together, partial(self.train_step, x, *labels, **named))
        except Exception as error:
            hide_frames(error)
            raise

    def held(self) -> list[tuple[str, Parameter]]:
        """All that is equal on all ranks, with its name."""
        found = {id(p): (p.name, p) for p in self.optimizer.params}
        for part in (self.optimizer, self.net, self.loss_fn):
            if isinstance(part, (Optimizer, Cell)):
                for name, p in part.parameters_dict().items():
                    found.setdefault(id(p), (name, p))
        return [*found.values()]

    def _written(self) -> Iterator[Parameter]:
        """The parameters that a step may write, as far as is known before it runs; the state of the
        random stream is claimed by the first draw."""
        yield from self.optimizer.written()
        for cell in (self.net, self.loss_fn, self.loss_scale):
            yield from cell.get_parameters() if isinstance(cell, Cell) else ()

    def __reduce__(self) -> tuple[Any, ...]:
        """Copies and pickles are compiled anew."""
        parts = self.net, self.loss_fn, self.optimizer, self.clip, self.loss_scale
        return TrainStep, (*parts, self.group)

    def __repr__(self) -> str:
        parts = {"net": self.net, "loss": self.loss_fn, "optimizer": self.optimizer}
        shown = [f"({name}): {_shown(part)}" for name, part in parts.items()]
        shown += [] if self.clip is None else [f"(clip): {_name(self.clip)}"]
        shown += [] if self.loss_scale is None else [f"(loss_scale): {self.loss_scale}"]
        shown += [] if self.group is None else [f"(group): {self.group}"]
        return "train_step(\n" + indent("\n".join(shown), "  ") + "\n)"

    def train_step(self, x: Any, *labels: Any, **named: Any) -> Any:
        self._check_batch(x, labels)
        if self._searches:
            return self._searched(x, labels, named)
        alone = self.loss_scale is None and self.ranks is None
        before = [] if alone else [(p, _now(p)) for p in self._assigned()]
        (_, (loss, *aux)), gradients = self._gradient(x, *labels, **named)
        if self.ranks is not None:
            moved = [p for p, old in before if _now(p) is not old and is_float(p.dtype)]
            weight = self.ranks.weight((x, *labels))
            loss, aux, gradients = self._averaged(loss, aux, gradients, moved, weight)
        finite = None
        if self.loss_scale is not None:
            gradients, finite = self.loss_scale.unscaled(gradients)
            self.loss_scale.update(finite)
        self.optimizer.update(self._clipping(gradients), finite)
        for parameter, old in before:
            if finite is not None and _now(parameter) is not old:
                ops.assign(parameter, ops.where(finite, parameter, old))
        return (loss, *aux) if aux else loss

    def _averaged(
        self, loss: Any, aux: list[Any], gradients: Any, moved: list[Parameter], weight: float
    ) -> tuple[Any, list[Any], list[Any]]:
        """The loss, the numbers of aux and the gradients of a weighted loss as means over the
        ranks, of which `moved` parameters are given theirs."""
        tree: Any = aux
        values, spec = optree.tree_flatten(tree)
        tensors = [(i, value) for i, value in enumerate(values) if isinstance(value, Tensor)]
        numbers = [i for i, value in tensors if value.shape == () and is_float(value.dtype)]
        own = [loss, *(values[i] for i in numbers), *moved]
        weighted = own if weight == 1.0 else [x * weight for x in own]
        means = self.ranks.averaged([*weighted, *gradients], weight)  # type: ignore[union-attr]
        for i, mean in zip(numbers, means[1:]):
            values[i] = mean
        for parameter, mean in zip(moved, means[1 + len(numbers) :]):
            ops.assign(parameter, mean)
        beside: Any = optree.tree_unflatten(spec, values)
        return means[0], beside, means[len(own) :]

    def _searched(self, x: Any, labels: tuple[Any, ...], named: dict[str, Any]) -> Any:
        """A step of an optimizer that computes the loss at several values of its parameters."""
        optimizer: Any = self.optimizer

        def at(values: Sequence[Tensor]) -> Any:
            given = {id(p): v for p, v in zip(optimizer.params, values, strict=True)}
            with use_trace(SubstitutingTrace(given)):
                return self._forward(x, *labels, **named)

        loss, *aux = optimizer.search(at)
        return (loss, *aux) if aux else loss

    def _check_batch(self, x: Any, labels: tuple[Any, ...]) -> None:
        """Refuse what cannot be learnt from, or with; warn of what is not learnt."""
        _check_rows(x, labels)
        _check_frozen(self.net, self.optimizer)
        left = _left_out(self.net, self.loss_fn, self.optimizer)
        if left != self._left:  # warn once, until others are left out
            self._left = left
            _warn_of_left_out(left, self.net, self.optimizer)

    def _assigned(self) -> Iterator[Parameter]:
        """The parameters that the net itself may assign: those that are not trained."""
        for cell in (self.net, self.loss_fn):
            if isinstance(cell, Cell):
                yield from (p for p in cell.get_parameters() if not p.requires_grad)

    @property
    def recompilations(self) -> list[str]:
        """The reason why each version of the step was compiled, in sentences."""
        return self._program.recompilations  # type: ignore[attr-defined, no-any-return]


class OwnStep(TrainStep):
    """A training step that is a function of the user's, compiled; updates are its own."""

    def __init__(
        self,
        own: Callable[..., Any],
        net: Loss,
        loss_fn: Loss,
        optimizer: Optimizer,
        ranks: Ranks | None = None,
    ):
        super().__init__(net, loss_fn, optimizer, None, None)
        self._own, self.ranks = own, ranks

    def __reduce__(self) -> tuple[Any, ...]:
        return OwnStep, (self._own, self.net, self.loss_fn, self.optimizer, self.ranks)

    def train_step(self, x: Any, *labels: Any, **named: Any) -> Any:
        """The function's result, (loss,) or (loss, aux)."""
        self._check_batch(x, labels)
        parts = parted("training_step", self._own(x, *labels, **named))
        return parts if len(parts) > 1 else parts[0]


def _now(parameter: Parameter) -> Any:
    """The value of a parameter inside the step; the same object until it is assigned."""
    return current_trace().stand_in(parameter)


def _name(fn: Any) -> str:
    return type(fn).__name__ if isinstance(fn, Cell) else getattr(fn, "__name__", repr(fn))


def _shown(part: Any) -> str:
    return repr(part) if isinstance(part, (Cell, Optimizer)) else _name(part)


def locate_nonfinite(
    step: Callable[..., Any], batches: Iterable[Sequence[Any]]
) -> NonFiniteError | None:
    """The error of the first operation that makes a NaN or an infinity in `step(*batch)`.

    Runs the step op by op on each batch in turn, from the present values of parameters, and
    stops at the first; None if there is none. The error names the primitive, the ranges of its
    inputs and the user's line. Parameters and random stream are as before afterwards. Of a step
    with a group all ranks call it, and the error names the rank.
    """
    ranks = step.ranks if isinstance(step, TrainStep) else None
    with logged() as before, context(jit=False), debug_nans():
        try:
            if ranks is not None:
                ranks.searching = True
            for batch in batches:
                _told(step, batch, ranks)
        except NonFiniteError as error:
            return error
        finally:
            before.restore()
            if ranks is not None:
                ranks.searching = False
    return None


def _told(step: Callable[..., Any], batch: Sequence[Any], ranks: Ranks | None) -> None:
    """Take the step; an error of this rank is told to the others, which wait for it."""
    try:
        step(*batch)
    except NonFiniteError as error:
        if ranks is not None and ranks.searching:
            ranks.heed_others(error)
        raise


# --- The forward pass -----------------------------------------------------------------------------


class _Forward:
    """The function to differentiate: returns the loss, weighted and scaled if that is asked for,
    and as its aux the plain loss with what loss_fn returned beside it, if anything."""

    def __init__(self, net: Loss, loss_fn: Loss, scale: LossScale | None, ranks: Ranks | None):
        self.net, self.loss_fn, self.scale, self.ranks = net, loss_fn, scale, ranks
        self.__name__ = f"train_step's loss function {_name(loss_fn)}"

    def __call__(self, x: Any, *labels: Any, **named: Any) -> tuple[Tensor, tuple[Any, ...]]:
        out = self.net(*_inputs(self.net, x)) if type(x) is tuple else self.net(x)
        loss, *aux = parted(self.__name__, self.loss_fn(out, *labels, **named))
        # The weight is on the loss, as gradients may pass through other ranks, of other weights.
        weight = 1.0 if self.ranks is None else self.ranks.weight((x, *labels))
        weighted = loss if weight == 1.0 else loss * weight
        return (weighted if self.scale is None else self.scale(weighted)), (loss, *aux)


def _inputs(net: Loss, x: tuple[Any, ...]) -> tuple[Any, ...]:
    """The inputs of the net; ArityError if it does not take that many."""
    try:
        signature_of(net).bind(*x)
    except ValueError:  # a function without a signature
        return x
    except TypeError as error:
        raise ArityError(
            f"train_step got a tuple of {len(x)} for the inputs of {_name(net)}: {error}; labels "
            "come after it, as in step(x, labels), and one input that is a tuple is step((x,))"
        ) from None
    return x


def parted(who: str, result: Any) -> tuple[Any, ...]:
    """The result of a loss function as (loss,) or (loss, aux); GradientArgumentError unless the
    loss is one float in a Tensor."""
    parts = result if isinstance(result, tuple) and len(result) == 2 else (result,)
    loss = parts[0]
    if isinstance(loss, Tensor) and loss.size == 1 and is_float(loss.dtype):
        return parts
    raise GradientArgumentError(
        f"{who} returned {_what(loss)}; return one float Tensor, as ops.mean gives, or a pair "
        "(loss, aux)"
    )


def _what(value: Any) -> str:
    if isinstance(value, Tensor):
        return typed(value)
    if isinstance(value, (tuple, list, dict)):
        return f"a {type(value).__name__} of {len(value)}"
    return repr(value)


# --- Checks of arguments --------------------------------------------------------------------------


def _check(net: object, loss_fn: object, optimizer: object) -> None:
    """MinimlError for arguments in the wrong order, or an optimizer that never touches the net."""
    if not isinstance(optimizer, Optimizer) or not callable(loss_fn):
        raise MinimlError(
            f"train_step got {type(net).__name__}, {type(loss_fn).__name__} and "
            f"{type(optimizer).__name__}; it takes a net, a loss function and an Optimizer"
        )
    for part in (net, loss_fn):
        if isinstance(part, type) and issubclass(part, Cell):
            raise MinimlError(
                f"train_step got the class {part.__name__}; make one, as in {part.__name__}()"
            )
    _check_frozen(net, optimizer)
    own = {id(p) for cell in _cells(net, loss_fn) for p in cell.trainable_params()}
    if isinstance(net, Cell) and own and not any(id(p) in own for p in optimizer.params):
        raise MinimlError(
            f"train_step got {type(optimizer).__name__} for {len(optimizer.params)} parameters, "
            f"none of which {type(net).__name__} has; make it with net.trainable_params(), "
            "after net.to(device)"
        )
    _left_out(net, loss_fn, optimizer)


def _cells(*parts: object) -> list[Cell]:
    return [part for part in parts if isinstance(part, Cell)]


def _checked_scale(scale: object, optimizer: Optimizer) -> LossScale | None:
    """The loss scale, on the optimizer's device; MinimlError for anything else."""
    if scale is None:
        return None
    if not isinstance(scale, LossScale):
        raise MinimlError(
            f"train_step got loss_scale={scale!r}; give optim.LossScale(), or "
            "optim.LossScale(1024.0, dynamic=False) for one that stays"
        )
    return scale.to(optimizer.params[0].device)


def _check_rows(x: Any, labels: tuple[Any, ...]) -> None:
    """ShapeError for a batch without rows, the mean over which is NaN."""
    batch: Any = x, labels
    shapes = [shape for shape in map(np.shape, optree.tree_leaves(batch)) if shape]
    if shapes and all(0 in shape for shape in shapes):
        listed = ", ".join(map(str, shapes))
        raise ShapeError(f"train_step got a batch without rows, of shapes {listed}; leave it out")


def _check_frozen(net: object, optimizer: Optimizer) -> None:
    """MinimlError for an optimizer of parameters that were frozen after it was made."""
    frozen = [p for p in optimizer.params if not p.requires_grad]
    if not frozen:
        return
    if isinstance(net, Cell) and not net.trainable_params():
        owners = {name.rpartition(".")[0] for name, _ in net.named_parameters()}
        layers = [layer_of(c, net) for prefix, c in net._walk("", set()) if prefix[:-1] in owners]
        raise MinimlError(
            f"train_step got a {type(net).__name__} with nothing to train: all parameters of "
            f"{', '.join(layers)} are frozen; net.unfreeze() undoes net.freeze()"
        )
    raise MinimlError(
        f"train_step got {type(optimizer).__name__} for {', '.join(p.name for p in frozen)}, which "
        "do not learn (requires_grad is False); make the optimizer after net.freeze(), or call "
        "net.unfreeze()"
    )


def _left_out(net: object, loss_fn: object, optimizer: Optimizer) -> list[str]:
    """The names of the net's parameters with requires_grad that the optimizer lacks; MinimlError
    where it has others instead, as after a layer was replaced, or beside them, unless a function
    may use these."""
    if not isinstance(net, Cell):
        return []
    held = {id(p) for p in optimizer.params}
    left = [name for name, p in net.named_parameters() if p.requires_grad and id(p) not in held]
    known = {id(p) for cell in _cells(net, loss_fn) for p in cell.get_parameters()}
    other = [p.name for p in optimizer.params if id(p) not in known]
    name = type(net).__name__
    if other and not left and not any(map(_holds_function, (net, loss_fn))):
        raise MinimlError(
            f"train_step got {type(optimizer).__name__} with {', '.join(other)}, which neither "
            f"{name} nor {_name(loss_fn)} has; make it with net.trainable_params()"
        )
    if left and other:
        raise MinimlError(
            f"train_step got {type(optimizer).__name__} without {', '.join(left)} of {name}, and "
            f"with {', '.join(other)}, which {name} does not have: a layer was replaced after the "
            "optimizer was made; make it, and the step, after that; net.freeze() leaves out what "
            "is not to learn"
        )
    return left


def _holds_function(part: object) -> bool:
    """True for a function, and for a cell that holds one, which may use any parameters."""
    cells = part.cells() if isinstance(part, Cell) else ()
    own = [vars(cell).items() for cell in cells] if cells else [[("", part)]]
    found = [v for items in own for name, v in items if not name.startswith("_")]
    return any(callable(v) and not isinstance(v, Cell) for v in found)


def _warn_of_left_out(left: Sequence[str], net: object, optimizer: Optimizer) -> None:
    if left:
        warn_user(
            TrainingWarning(
                f"{type(optimizer).__name__} does not have {', '.join(left)} of "
                f"{type(net).__name__}, so the step leaves them as they are; where that is meant, "
                "net.freeze(*names) says so, else make the optimizer with net.trainable_params()"
            )
        )
