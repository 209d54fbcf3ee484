"""The subject of a gradient check: a function of one long float64 vector, with its pull-back."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import numpy as np

from ...dtype import DType
from ...errors import BpropError, GradientArgumentError, MinimlError
from ...random import default_generator
from ..budget import TimeIsUpError, go_on
from ..tolerance import unit_roundoff
from .maps import Kept, Leaf, Map, WrongGradientForm
from .report import NOTHING, Array, Arrays, GradFinding, Numbers
from .rounding import Perturbation, largest_in

Cotangent = Array | Arrays
LongPull = Callable[[Cotangent], Array]

REPEATS = 1e4  # roundings by which sums of some 1e8 terms may differ in another order
LESS_EXACT = 8  # roundings: the error of a library function


class Subject:
    """A Map at a point, in long vectors. `dtypes`: those of the arrays that the function gets.

    rng: the source of all random numbers of its check. x, y: the point and the outputs there. unit:
    the unit roundoff of each output. unlike: how far two equal calls differ. inside: how far
    roundings inside the function move each output, once `settle` has measured it. forward_calls
    counts calls of the function, linearizations included. raised: the last error the function
    raised away from the point.
    """

    def __init__(
        self, map_: Map, point: Arrays, dtypes: tuple[DType, ...], rng: np.random.Generator
    ):
        self.map, self.point, self.dtypes, self.rng = map_, point, dtypes, rng
        self.forward_calls, self.raised, self.settled = 0, "", False
        self.inside: Array | float = 0.0
        self._pull: LongPull | None = None
        starts = np.cumsum([0, *(a.size for a in point)]).tolist()
        each = zip(map_.names, point, dtypes, starts)
        self.leaves = tuple(Leaf(*name, a.shape, dtype, start) for name, a, dtype, start in each)
        self.x = joined(point)
        outs = self._run(self.x)
        self.shapes = tuple((o.shape, o.dtype) for o in outs)
        self.y = joined(outs)
        self.unit = joined([np.full(o.size, unit_roundoff(o.dtype)) for o in outs])
        with np.errstate(invalid="ignore"):
            self.unlike = largest_in(joined(self._run(self.x)) - self.y)

    def leaf_of(self, position: int) -> Leaf:
        """The argument that an element belongs to."""
        return next(f for f in self.leaves if position < f.start + f.size)

    def sizes(self, uniform: bool) -> Array:
        """How far each element moves for a step of 1.

        Its own size (so that a step never crosses 0), or with `uniform` the typical size in its
        array; 1 in an array of zeros. Of numbers above 1 only the square root, or a thousandth if
        that is more: sin bends at 1e6 as it does at 1.
        """
        sizes = np.ones(self.x.shape)
        for leaf in self.leaves:
            part = np.abs(self.x[leaf.part])
            known = part[np.isfinite(part) & (part > 0)]
            largest = float(known.max(initial=0.0))
            typical = float(np.sqrt(np.mean((known / largest) ** 2)) * largest) if largest else 1.0
            sizes[leaf.part] = typical if uniform else np.where(part > 0, part, typical)
        return np.minimum(sizes, np.maximum(np.sqrt(sizes), 1e-3 * sizes))

    def random(self, shape: int | tuple[int, ...]) -> Array:
        """Numbers of either sign and of size 0.5 to 1.5: none is small enough to hide a fault."""
        signs = self.rng.choice([-1.0, 1.0], size=shape)
        return np.asarray(signs * self.rng.uniform(0.5, 1.5, size=shape))

    def finding(
        self, verdict: str, message: str, position: int, numbers: Numbers = NOTHING
    ) -> GradFinding:
        """A finding on one element."""
        return self.leaf_of(position).finding(verdict, self.map.order, message, position, numbers)

    def arrays(self, x: Array) -> Arrays:
        """The long vector cut into arrays of the dtypes that the function takes."""
        return [x[f.part].reshape(f.shape).astype(f.dtype) for f in self.leaves]

    def _run(self, x: Array) -> Arrays:
        self.forward_calls += 1
        given = self.arrays(x)
        kept = Kept(given)
        with _same_random_state(), np.errstate(all="ignore"):
            outs = self.map.run(given)
        for i in kept.changed():
            raise GradientArgumentError(
                f"{self.map.name} changes its {self.leaves[i].argument}; a function whose gradient "
                "is checked leaves its arguments as they are: copy before writing"
            )
        return outs

    def __call__(self, x: Array) -> Array:
        """The outputs at x as one float64 vector; NaN where the function raises."""
        go_on()
        try:
            y = joined(self._run(x))
        except (GradientArgumentError, TimeIsUpError):
            raise
        except Exception as error:  # a function may refuse values that differences reach
            self.raised = f"{type(error).__name__}: {error}"
            return np.full(self.y.shape, np.nan)
        if y.shape != self.y.shape:
            self.raised = "the shape of its output changes"
            return np.full(self.y.shape, np.nan)
        return y

    @property
    def repeatable(self) -> bool:
        """Two equal calls give equal results, up to roundings in another order."""
        return self.unlike <= REPEATS * largest_in(self.unit * self.y)

    @property
    def grain(self) -> Array:
        """How exactly the outputs are known at the point, as far as measured."""
        y = np.where(np.isfinite(self.y), np.abs(self.y), 0.0)
        return np.asarray(np.maximum(self.unit * y, self.inside))

    def settle(self) -> bool:
        """Measure, once, the effect of roundings inside the function on its outputs.

        True if that is far more than their own last digits, so that earlier conclusions may change.
        """
        if self.settled:
            return False
        self.settled = True
        before, step = self.grain, self.step
        moved = [np.zeros_like(before)]
        for _ in range(2):
            with self.map.rounding(step, self.rng):
                moved.append(step.without_jumps(self(self.x) - self.y, self.x, self.y))
        self.inside = np.max(moved, axis=0)
        return bool((self.inside > LESS_EXACT * before).any())

    @property
    def roundoff(self) -> float:
        """The unit roundoff of the narrowest argument."""
        return max(unit_roundoff(f.dtype) for f in self.leaves)

    @property
    def step(self) -> Perturbation:
        """A relative change that surely moves numbers of the arguments' dtypes."""
        return Perturbation(2 * self.roundoff)

    @property
    def natural(self) -> Array:
        """The size of the terms of each output: its own, or that of terms that cancel in it."""
        return np.asarray(self.grain / self.unit)

    def rounded(self, v: Array, by: Perturbation) -> Array:
        """pull(v) with the point, v and every visible operation perturbed."""
        with self.map.rounding(by, self.rng):
            return self.linearized(by.of(self.x, self.rng))(by.of(v, self.rng))

    def pull(self, v: Cotangent) -> Array:
        """The gradient of <v, f> at the point, as one float64 vector.

        v: one long vector, or arrays like the outputs, which keep their strides.
        """
        if self._pull is None:
            self._pull = self.linearized(self.x)
        return self._pull(v)

    def linearized(self, x: Array) -> LongPull:
        """The pull-back at another point; WrongGradientForm for results that cannot be
        gradients."""
        self.forward_calls += 1
        with _same_random_state(), np.errstate(all="ignore"):
            pull = self.map.linearize(self.arrays(x))

        def long_pull(v: Cotangent) -> Array:
            douts = self.cut(v) if isinstance(v, np.ndarray) else v
            kept = Kept(douts)
            with _same_random_state(), np.errstate(all="ignore"):
                try:
                    gradients = pull(douts)
                except BpropError as error:
                    raise WrongGradientForm(str(error)) from error
            if kept.changed():
                raise WrongGradientForm("the pull-back writes into its cotangent dout")
            formed = [f.formed(g) for f, g in zip(self.leaves, gradients, strict=True)]
            return joined(formed)

        return long_pull

    def cut(self, v: Array) -> Arrays:
        """A long cotangent cut into arrays like the outputs."""
        ends = np.cumsum([math.prod(shape) for shape, _ in self.shapes])
        parts = zip(np.split(v, ends[:-1]), self.shapes, strict=True)
        return [part.reshape(shape).astype(dtype) for part, (shape, dtype) in parts]


def joined(arrays: Sequence[Array]) -> Array:
    """Arrays as one long float64 vector."""
    return np.concatenate([np.zeros(0), *(np.asarray(a, np.float64).reshape(-1) for a in arrays)])


@contextmanager
def _same_random_state() -> Iterator[None]:
    """The block draws the same numbers each time, from miniml's generator and NumPy's global
    one."""
    state, legacy = default_generator.state.asnumpy(), np.random.get_state()  # noqa: NPY002
    try:
        yield
    finally:
        default_generator.state.set_data(state)
        np.random.set_state(legacy)  # noqa: NPY002


def at_point(
    map_: Map, point: Arrays, dtypes: tuple[DType, ...], rng: np.random.Generator
) -> Subject:
    """The Subject; GradientArgumentError, with the cause, if the function raises at the point."""
    try:
        return Subject(map_, point, dtypes, rng)
    except (MinimlError, TimeIsUpError):
        raise
    except Exception as error:
        raise GradientArgumentError(
            f"{map_.name} raises {type(error).__name__} at the point where its gradient is to be "
            f"checked: {error}"
        ) from error
