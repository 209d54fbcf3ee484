"""What a gradient check works on: a function of one long float64 vector, with its pull-back."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ...dtype import DType
from ...errors import BpropError, GradientArgumentError, MinimlError
from ...random import default_generator
from ..budget import TimeIsUpError, go_on
from ..tolerance import unit_roundoff
from .maps import Arrays, Leaf, Map, Pull, WrongGradientForm
from .rounding import Step, off

Array = np.ndarray[Any, Any]

JUMP = 64.0


@dataclass(slots=True)
class Subject:
    """A Map at a point, in long vectors. `dtypes`: what the function is called with.

    forward_calls counts calls of the function, linearizations included. raised: the last error
    the function raised away from the point. unlike: how far two equal calls differ. inside: how
    far roundings inside the function move each output, once `settle` has measured it.
    """

    map: Map
    point: Arrays
    dtypes: tuple[DType, ...]
    leaves: tuple[Leaf, ...] = ()
    x: Array = field(default_factory=lambda: np.zeros(0))
    y: Array = field(default_factory=lambda: np.zeros(0))
    unit: Array = field(default_factory=lambda: np.zeros(0))
    unlike: float = 0.0
    inside: Array | float = 0.0
    settled: bool = False
    shapes: tuple[tuple[tuple[int, ...], DType], ...] = ()
    forward_calls: int = 0
    raised: str = ""
    _pull: Pull | None = None

    def __post_init__(self) -> None:
        start, leaves = 0, []
        for (argnum, path, shown), a, dtype in zip(
            self.map.names, self.point, self.dtypes, strict=True
        ):
            leaves.append(Leaf(argnum, path, shown, a.shape, dtype, start))
            start += a.size
        self.leaves = tuple(leaves)
        self.x = _joined(self.point)
        outs = self._run(self.x)
        self.shapes = tuple((o.shape, o.dtype) for o in outs)
        self.y = _joined(outs)
        with np.errstate(invalid="ignore"):
            apart = np.abs(_joined(self._run(self.x)) - self.y)
        self.unlike = float(np.max(apart, where=np.isfinite(apart), initial=0.0))
        units = [np.full(o.size, unit_roundoff(o.dtype)) for o in outs]
        self.unit = np.concatenate(units) if units else np.zeros(0)

    def arrays(self, x: Array) -> Arrays:
        """The long vector cut into arrays of the dtypes that the function takes."""
        return [x[f.part].reshape(f.shape).astype(f.dtype) for f in self.leaves]

    def _run(self, x: Array) -> Arrays:
        self.forward_calls += 1
        given = self.arrays(x)
        kept = [a.tobytes() for a in given]
        with _same_random_state(), np.errstate(all="ignore"):
            outs = self.map.run(given)
        for leaf, array, before in zip(self.leaves, given, kept, strict=True):
            if array.tobytes() != before:
                raise GradientArgumentError(
                    f"{self.map.name} changes its {leaf.argument}; a function whose gradient is "
                    "checked leaves its arguments as they are: copy before writing"
                )
        return outs

    def __call__(self, x: Array) -> Array:
        """The outputs at x as one float64 vector; NaN where the function raises."""
        go_on()
        try:
            outs = self._run(x)
        except (GradientArgumentError, TimeIsUpError):
            raise
        except Exception as error:  # a function may refuse values that differences reach
            self.raised = f"{type(error).__name__}: {error}"
            return np.full(self.y.shape, np.nan)
        y = _joined(outs)
        if y.shape != self.y.shape:
            self.raised = "the shape of its output changes"
            return np.full(self.y.shape, np.nan)
        return y

    @property
    def repeatable(self) -> bool:
        """Two equal calls give the same, up to roundings in another order."""
        return self.unlike <= 1e4 * float(
            (self.unit * np.abs(self.y))[np.isfinite(self.y)].max(initial=0.0)
        )

    @property
    def grain(self) -> Array:
        """How exactly the outputs are known at the point, as far as it was measured."""
        y = np.where(np.isfinite(self.y), np.abs(self.y), 0.0)
        return np.asarray(np.maximum(self.unit * y, self.inside))

    def settle(self, rng: np.random.Generator) -> bool:
        """Measure, once, what roundings inside the function do to its outputs.

        True if it is news: an output is known far less exactly than its own last place.
        """
        if self.settled:
            return False
        self.settled = True
        before, step = self.grain, self.step
        moved = [np.zeros_like(before)]
        for _ in range(2):
            with self.map.rounding(step, rng):
                moved.append(without_jumps(self(self.x) - self.y, step, self.x, self.y))
        self.inside = np.max(moved, axis=0)
        return bool((self.inside > 8 * before).any())

    @property
    def step(self) -> Step:
        """A relative change by which numbers of the arguments' dtypes surely move."""
        return Step(2 * max(unit_roundoff(f.dtype) for f in self.leaves))

    @property
    def natural(self) -> Array:
        """The size of what each output is made of: its own, or that of terms that cancel in it."""
        return np.asarray(self.grain / self.unit)

    def rounded(self, v: Array, step: Step, rng: np.random.Generator) -> Array:
        """pull(v) where the point, v and every operation that can be seen are off by `step`."""
        with self.map.rounding(step, rng):
            return self.pulled(self.linearize_at(off(self.x, step, rng)), off(v, step, rng))

    def cut(self, v: Array) -> Arrays:
        """A long cotangent cut into arrays like the outputs."""
        parts, start = [], 0
        for shape, dtype in self.shapes:
            n = math.prod(shape)
            parts.append(v[start : start + n].reshape(shape).astype(dtype))
            start += n
        return parts

    def pull(self, v: Array) -> Array:
        """The gradient of <v, f> at the point, as one float64 vector."""
        if self._pull is None:
            self._pull = self.linearize_at(self.x)
        return self.pulled(self._pull, v)

    def linearize_at(self, x: Array) -> Pull:
        """The pull-back at another point."""
        self.forward_calls += 1
        with _same_random_state(), np.errstate(all="ignore"):
            return self.map.linearize(self.arrays(x))

    def pull_arrays(self, douts: Arrays) -> Array:
        """The gradient for cotangents in the outputs' shapes, with the strides that they have."""
        if self._pull is None:
            self._pull = self.linearize_at(self.x)
        kinds = [dtype for _, dtype in self.shapes]
        given = [d if d.dtype == k else d.astype(k) for d, k in zip(douts, kinds, strict=True)]
        return self._pulled(self._pull, given)

    def pulled(self, pull: Pull, v: Array) -> Array:
        """What a pull-back gives for a long cotangent; WrongGradientForm for a wrong form."""
        return self._pulled(pull, self.cut(v))

    def _pulled(self, pull: Pull, douts: Arrays) -> Array:
        kept = [d.tobytes() for d in douts]
        with _same_random_state(), np.errstate(all="ignore"):
            try:
                gradients = pull(douts)
            except BpropError as error:
                raise WrongGradientForm(-1, str(error)) from error
        if any(d.tobytes() != k for d, k in zip(douts, kept, strict=True)):
            raise WrongGradientForm(-1, "the pull-back writes into its cotangent dout")
        return _joined([self._formed(i, g) for i, g in enumerate(gradients)])

    def _formed(self, i: int, gradient: Any) -> Array:
        leaf = self.leaves[i]
        if gradient is None:
            return np.zeros(leaf.shape)
        array = np.asarray(gradient)
        if array.shape == leaf.shape:
            if array.dtype != leaf.dtype:
                raise WrongGradientForm(
                    i, f"the gradient has dtype {array.dtype.name}, its input {leaf.dtype.name}"
                )
            return array
        said = f"the gradient has shape {array.shape}, the {leaf.argument} has {leaf.shape}"
        if array.ndim >= len(leaf.shape) and _broadcasts(leaf.shape, array.shape):
            said += "; a sum over the broadcast axes is missing"
        raise WrongGradientForm(i, said)


def jump(step: Step, x: Array, *numbers: Array) -> float:
    """More than a change by `step` does to products of three of these numbers: a jump.

    Among them are 1/x: the derivatives of 1/x or x/|x| have such terms, also where they cancel.
    """
    with np.errstate(divide="ignore", over="ignore"):
        sizes = [np.abs(a) for a in (1 / x, x, *numbers)]
        largest = max(float(np.max(a, where=np.isfinite(a), initial=0.0)) for a in sizes)
        return JUMP * step.relative * largest * max(1.0, np.float64(largest)) ** 2


def without_jumps(change: Array, step: Step, *numbers: Array) -> Array:
    """How far results change, 0 where they jump: another choice is no rounding."""
    with np.errstate(invalid="ignore", over="ignore"):
        return np.where(np.abs(change) <= jump(step, *numbers), np.abs(change), 0.0)


def _broadcasts(small: tuple[int, ...], large: tuple[int, ...]) -> bool:
    try:
        return np.broadcast_shapes(small, large) == large
    except ValueError:
        return False


def _joined(arrays: Sequence[Array]) -> Array:
    parts = [np.asarray(a).reshape(-1).astype(np.float64) for a in arrays]
    return np.concatenate(parts) if parts else np.zeros(0)


@contextmanager
def _same_random_state() -> Iterator[None]:
    """Draws inside are the same each time, from miniml's generator and from NumPy's global one."""
    state, legacy = default_generator.state.asnumpy(), np.random.get_state()  # noqa: NPY002
    try:
        yield
    finally:
        default_generator.state.set_data(state)
        np.random.set_state(legacy)  # noqa: NPY002


def at_point(map_: Map, point: Arrays, dtypes: tuple[DType, ...]) -> Subject:
    """The Subject; GradientArgumentError, with the cause, if the function raises at the point."""
    try:
        return Subject(map_, point, dtypes)
    except (MinimlError, TimeIsUpError):
        raise
    except Exception as error:
        raise GradientArgumentError(
            f"{map_.name} raises {type(error).__name__} at the point where its gradient is to be "
            f"checked: {error}"
        ) from error
