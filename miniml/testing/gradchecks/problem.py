"""Problem of a gradient check: a function, its pull-back, and its point as one float64 vector.

In order: a function of Tensors becomes a Map, a function of float arrays with its pull-back; while
it runs, its reads of Parameters give other tensors; the values that arguments and outputs may be;
the Subject, a Map at a point, in long vectors; the leaves among the arguments, and the form that
their gradients must have.
"""

from __future__ import annotations

import ctypes
import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import optree

from ... import ops
from ...core.abstract import DType, complex128, float64, is_complex, is_float, is_inexact, typed
from ...core.errors import BpropError, GradientArgumentError, MinimlError
from ...core.parameter import Parameter, default_generator, logged
from ...core.primitive import Primitive
from ...core.settings import GRAPH_MODE, PYNATIVE_MODE, context, current
from ...core.tensor import Tensor
from ...core.trace import Partition, use_trace
from ...grad.reverse import checked_argnums
from ...grad.transforms import vjp
from ...graph.tracing import SubstitutingTrace
from ...nn.cell import Cell
from ...runtime.jit import jit
from ..calls import TimeIsUpError, go_on
from ..report import NOTHING, WRONG, Arrays, GradFinding, Numbers
from ..tolerance import FUNCTION, Array, Perturbation, Tuned, largest_of, of_one_size, unit_roundoff
from .derivative import Forward, Rounding, Tangents

Function = Callable[..., Any]
Pull = Callable[[Arrays], list[Any]]
Name = tuple[int | None, str, str]


@dataclass(frozen=True, slots=True)
class Map:
    """A function of float arrays to float arrays, and its linearization at a point.

    run(arrays): the outputs. linearize(arrays): the pull-back, from cotangents to gradients;
    each is a list, in the order of `names`, (argnum, path, shown name) of each input.
    rounding(by, rng): inside it, the results of visible operations are perturbed.
    forward: its tangents, of order 1.
    order: of the derivatives that the pull-back gives. following(): once it has run, the Map of the
    next order: this pull-back, as a function of its inputs and of one cotangent for each output.
    """

    name: str
    run: Callable[[Arrays], Arrays]
    linearize: Callable[[Arrays], Pull]
    names: tuple[Name, ...]
    rounding: Callable[[Perturbation, np.random.Generator], AbstractContextManager[Any]]
    order: int = 1
    following: Callable[[], Map] | None = None
    forward: Tangents | None = None


def of_miniml(
    fn: Function,
    args: Sequence[Any],
    argnums: int | tuple[int, ...] | None,
    weights: Sequence[Parameter] = (),
) -> tuple[Map, Arrays]:
    """The Map of a function of Tensors, and its point, to which the weights belong."""
    name = name_of(fn)
    args = [as_array(a) for a in args] if isinstance(fn, Primitive) else args
    leaves, names, filled = _chosen(fn, args, argnums, weights)
    parts = _Parts.of(leaves)
    point = parts.apart([np.array(leaf, dtype=dtype_of(leaf)) for leaf in leaves])
    names = parts.named(names)
    if not sum(a.size for a in point):
        every = optree.tree_leaves(cast(Any, tuple(args)), none_is_leaf=True)
        raise nothing_in(f"gradcheck of {name}", every, "array or Tensor")
    devices = [leaves[i].device if isinstance(leaves[i], Tensor) else None for i in parts.of_leaf]
    held, out_names = _held_of(fn, args), list[str]()

    def outputs(*reals: Any) -> tuple[Any, ...]:
        xs = parts.together(reals)
        replaced = [(p, x) for p, x in zip(leaves, xs) if isinstance(p, Parameter)]
        wide = all(x.dtype == float64 for x in reals)
        result = _run_with(fn, filled(xs), replaced, held, wide)
        found, spec = optree.tree_flatten(result, none_is_leaf=True)
        shown = [f"output{_inner(p)}" for p in spec.paths()]
        split = _Parts.of(found)
        floats, kinds = split.apart(found), [shown[i] + part for i, part in split.shown()]
        out_names[:] = [k for k, leaf in zip(kinds, floats, strict=True) if is_float_leaf(leaf)]
        return tuple(floats_of(name, floats))

    return _map(name, outputs, tuple(names), out_names, len(args), devices), point


@dataclass(frozen=True, slots=True)
class _Parts:
    """Leaves of which the complex ones are two: their real and their imaginary part. A gradient
    df/dx - i df/dy is checked by both derivatives.

    of_leaf: the leaf of each part. complex: True for each leaf that is complex.
    """

    of_leaf: tuple[int, ...]
    complex: tuple[bool, ...]

    @staticmethod
    def of(leaves: Sequence[Any]) -> _Parts:
        split = tuple([is_complex_leaf(leaf) for leaf in leaves])
        return _Parts(tuple([i for i, two in enumerate(split) for _ in range(1 + two)]), split)

    def apart(self, leaves: Sequence[Any]) -> list[Any]:
        """The parts of all leaves, of tensors or of arrays."""
        return [
            part
            for leaf, two in zip(leaves, self.complex, strict=True)
            for part in (_real_and_imag(leaf) if two else (leaf,))
        ]

    def together(self, parts: Sequence[Any]) -> list[Any]:
        """The leaves, of tensors."""
        left = iter(parts)
        return [ops.complex(next(left), next(left)) if two else next(left) for two in self.complex]

    def shown(self) -> list[tuple[int, str]]:
        """The leaf of each part, and what it is of a complex one."""
        return [
            (i, part)
            for i, two in enumerate(self.complex)
            for part in ((", real part", ", imaginary part") if two else ("",))
        ]

    def named(self, names: Sequence[Name]) -> list[Name]:
        """The names of the parts, for those of the leaves."""
        return [(*names[i][:2], names[i][2] + part) for i, part in self.shown()]


def _real_and_imag(leaf: Any) -> tuple[Any, Any]:
    if isinstance(leaf, Tensor):
        return ops.real(leaf), ops.imag(leaf)
    return np.ascontiguousarray(leaf.real), np.ascontiguousarray(leaf.imag)


def device_of(args: Sequence[Any], weights: Sequence[Parameter]) -> str:
    """The device of the first Tensor of all; the context's device if there is none."""
    tree: Any = tuple(args)
    leaves: list[Any] = [*optree.tree_leaves(tree, none_is_leaf=True), *weights]
    devices = [leaf.device for leaf in leaves if isinstance(leaf, Tensor)]
    return devices[0] if devices else current().device_target


def _chosen(
    fn: Function,
    args: Sequence[Any],
    argnums: int | tuple[int, ...] | None,
    weights: Sequence[Parameter],
) -> tuple[list[Any], list[Name], Callable[[Sequence[Any]], Any]]:
    """Return the leaves to differentiate, weights last; their names; and a function that replaces
    them in the arguments."""
    tree: Any = tuple(args)
    leaves, spec = optree.tree_flatten(tree, none_is_leaf=True)
    paths, numbers = spec.paths(), _numbers(fn, len(args), argnums)
    positions = [i for i, a in enumerate(leaves) if paths[i][0] in numbers and _varies(a)]
    for n in numbers - {paths[i][0] for i in positions} if argnums is not None else ():
        raise GradientArgumentError(
            f"gradcheck of {name_of(fn)} got argnums {argnums!r}, and argument {n} is "
            f"{shown([args[n]])}, which has no gradient; leave it out of argnums"
        )
    own = [leaves[i] for i in positions]
    more = [w for w in weights if not any(w is leaf for leaf in own)]
    names: list[Name] = [_leaf_name(paths[i]) for i in positions]
    names += [(None, w.name, f"weight {w.name}") for w in more]
    taken = Partition(leaves, spec, positions)
    return [*own, *more], names, lambda xs: taken.filled(xs[: len(positions)])


def _numbers(fn: Function, count: int, argnums: int | tuple[int, ...] | None) -> set[int]:
    given = checked_argnums(argnums)
    if given is None:
        const = {i for i, _ in fn._const} if isinstance(fn, Primitive) else set()
        return set(range(count)) - const
    numbers = [n + count if n < 0 else n for n in ((given,) if isinstance(given, int) else given)]
    if len(set(numbers)) < len(numbers) or not set(numbers) <= set(range(count)):
        raise GradientArgumentError(
            f"gradcheck of {name_of(fn)} got argnums {argnums!r} for {count} arguments; name each "
            "one to differentiate once, by its position"
        )
    return set(numbers)


def _leaf_name(path: tuple[Any, ...]) -> Name:
    inner = _inner(path[1:])
    return path[0], inner, f"argument {path[0]}{inner}"


def _inner(path: tuple[Any, ...]) -> str:
    return "".join(f"[{p!r}]" for p in path)


def _map(
    name: str,
    function: Function,
    names: tuple[Name, ...],
    out_names: list[str],
    next_argnum: int,
    devices: Sequence[str | None],
    order: int = 1,
) -> Map:
    """The Map of a function of tensors. out_names: filled once it has run."""
    pulled = _pulled(function, len(names))
    compiled = current().mode == GRAPH_MODE
    run_it, backward = (jit(function), jit(pulled)) if compiled else (function, None)

    def tensors(arrays: Arrays) -> list[Tensor]:
        return [Tensor(a, device=d) for a, d in zip(arrays, devices, strict=True)]

    def run(arrays: Arrays) -> Arrays:
        return [np.asarray(o) for o in run_it(*tensors(arrays))]

    def linearize(arrays: Arrays) -> Pull:
        xs = tensors(arrays)
        if backward is not None:
            return lambda douts: list(backward(*xs, *map(Tensor, douts)))
        out, pull = vjp(function, *xs)
        return guarded(lambda douts: list(pull(tuple(map(_tensor, douts)))), [*xs, *out])

    def rounding(by: Perturbation, rng: np.random.Generator) -> AbstractContextManager[Any]:
        return use_trace(Rounding(by, rng))

    def following() -> Map:
        more: list[Name] = [
            (next_argnum + i, "", f"cotangent of {out}") for i, out in enumerate(out_names)
        ]
        gradients = [f"the gradient by {shown}" for _, _, shown in names]
        where = [*devices, *([None] * len(more))]
        after = next_argnum + len(more)
        return _map(name, pulled, (*names, *more), gradients, after, where, order + 1)

    forward = Forward(function, tensors) if order == 1 else None
    return Map(name, run, linearize, names, rounding, order, following, forward)


def _pulled(function: Function, count: int) -> Function:
    """The function (x..., dout...) -> dx... that the next order differentiates."""

    def pulled(*xs: Any) -> tuple[Any, ...]:
        _, pull = vjp(function, *xs[:count])
        return tuple(pull(tuple(xs[count:])))

    return pulled


def _tensor(array: Array) -> Tensor:
    """A Tensor of a cotangent; on the CPU with its own strides."""
    on_cpu = current().device_target == "cpu" and not array.flags.c_contiguous
    return Tensor.wrap(array.view(), "cpu") if on_cpu else Tensor(array)


# --- Parameters as arguments ----------------------------------------------------------------------


def _run_with(
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
        dtype = p.dtype
        if wide and is_inexact(dtype):
            dtype = complex128 if is_complex(dtype) else float64
        tensors.setdefault(id(p), Tensor(value.astype(dtype), device=p.device))
    with use_trace(SubstitutingTrace(tensors)):
        return fn(*args)


def _held_of(fn: Function, args: Sequence[Any]) -> list[tuple[Parameter, Array]]:
    """The Parameters that keep their values in all calls: a Cell's own, or those that fn writes."""
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


# --- Arguments and outputs ------------------------------------------------------------------------


def as_array(value: Any) -> Any:
    """The array of nested lists of Python floats, as NumPy reads them; any other value
    unchanged."""
    return np.array(value, np.float64) if is_list_of_floats(value) else value


def is_list_of_floats(value: Any) -> bool:
    """True for nested lists of numbers, rectangular, with a Python float among them."""
    if not isinstance(value, (list, tuple)):
        return False
    leaves: list[Any] = optree.tree_leaves(cast(Any, value), none_is_leaf=True)
    if not all(isinstance(a, (int, float)) for a in leaves) or not any(map(is_float_leaf, leaves)):
        return False
    try:
        return bool(np.array(value).size)
    except ValueError:  # ragged lists
        return False


def is_float_leaf(leaf: Any) -> bool:
    """True for float tensors, arrays and Python scalars: they carry gradients."""
    if isinstance(leaf, (Tensor, np.ndarray, np.generic)):
        return is_float(leaf.dtype)
    return isinstance(leaf, float)


def is_complex_leaf(leaf: Any) -> bool:
    """True for complex tensors, arrays and Python scalars."""
    if isinstance(leaf, (Tensor, np.ndarray, np.generic)):
        return is_complex(leaf.dtype)
    return isinstance(leaf, complex)


def _varies(leaf: Any) -> bool:
    return is_float_leaf(leaf) or is_complex_leaf(leaf)


def dtype_of(leaf: Any) -> DType:
    """The dtype in which a leaf is differentiated: Python's numbers in 64 bits a part."""
    if isinstance(leaf, (float, complex)) and not isinstance(leaf, np.generic):
        return complex128 if isinstance(leaf, complex) else float64
    return leaf.dtype  # type: ignore[no-any-return]


def floats_of(name: str, leaves: Sequence[Any]) -> list[Any]:
    """The float outputs of a function; GradientArgumentError if there is none."""
    floats = [leaf for leaf in leaves if is_float_leaf(leaf)]
    if not floats:
        raise GradientArgumentError(
            f"{name} returns {shown(leaves) or 'nothing'}; a gradient is checked of functions that "
            "return floats"
        )
    return floats


def nothing_in(what: str, leaves: Sequence[Any], expected: str) -> GradientArgumentError:
    """The error for arguments without any float array."""
    return GradientArgumentError(
        f"{what} has nothing to differentiate: it got {shown(leaves) or 'no arguments'}; give at "
        f"least one non-empty {expected} of floats"
    )


def name_of(fn: Any) -> str:
    """The name of a function in a report."""
    if isinstance(fn, Primitive):
        return repr(fn)
    return getattr(fn, "__name__", None) or type(fn).__name__


def shown(values: Sequence[Any]) -> str:
    """Values in a sentence: dtype and shape of arrays, else type and value."""
    return ", ".join(
        typed(v) if isinstance(v, (Tensor, np.ndarray, np.generic)) else f"{type(v).__name__} {v!r}"
        for v in values
    )


# --- Subject --------------------------------------------------------------------------------------


Cotangent = Array | Sequence[Array]
LongPull = Callable[[Cotangent], Array]


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


class Subject:
    """A Map at a point, in long vectors. `dtypes`: those of the arrays that the function gets.

    rng: the source of all random numbers of its check. x, y: the point and the outputs there. unit:
    the unit roundoff of each output. unlike: how far two equal calls differ. remembers: they differ
    only if other calls come between. inside: how far roundings inside the function move each
    output, once `settle` has measured it. forward_calls counts calls of the function,
    linearizations included. raised: the last error the function raised away from the point.
    """

    def __init__(
        self, map_: Map, point: Arrays, dtypes: tuple[DType, ...], rng: np.random.Generator
    ):
        self.map, self.point, self.dtypes, self.rng = map_, point, dtypes, rng
        self.forward_calls, self.raised, self.settled = 0, "", False
        self.inside: Array | float = 0.0
        self._pull: LongPull | None = None
        _Legacy.known = b"", None  # since then a number may have been made to wait
        starts = np.cumsum([0, *(a.size for a in point)]).tolist()
        each = zip(map_.names, point, dtypes, starts)
        self.leaves = tuple(Leaf(*name, a.shape, dtype, start) for name, a, dtype, start in each)
        self.x = joined(point)
        outs = self._run(self.arrays(self.x))
        self.shapes = tuple((o.shape, o.dtype) for o in outs)
        self.y = joined(outs)
        self.unit = joined([np.full(o.size, unit_roundoff(o.dtype)) for o in outs])
        with np.errstate(invalid="ignore"):
            self.unlike = largest_of(joined(self._run(self.arrays(self.x))) - self.y)
        self.remembers = False

    def leaf_of(self, position: int) -> Leaf:
        """The argument that an element belongs to."""
        return next(f for f in self.leaves if position < f.start + f.size)

    def sizes(self, uniform: bool) -> Array:
        """The distance that each element moves for a step of 1.

        It is the element's own size (so that a step never crosses 0), or with `uniform` the typical
        size in its array; 1 in an array of zeros. Of numbers above 1 it is only the square root, or
        a thousandth if that is more: sin bends at 1e6 as it does at 1.
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
        """Numbers of either sign and of one size."""
        return of_one_size(self.rng, shape)

    def finding(
        self, verdict: str, message: str, position: int, numbers: Numbers = NOTHING
    ) -> GradFinding:
        """A finding on one element."""
        return self.leaf_of(position).finding(verdict, self.map.order, message, position, numbers)

    def arrays(self, x: Array) -> Arrays:
        """The long vector cut into arrays of the dtypes that the function takes."""
        return [x[f.part].reshape(f.shape).astype(f.dtype) for f in self.leaves]

    def _run(self, given: Arrays) -> Arrays:
        self.forward_calls += 1
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
        return self._values(self.arrays(x))

    def _values(self, given: Arrays) -> Array:
        go_on()
        try:
            y = joined(self._run(given))
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
        return self.unlike <= Tuned.REPEATS * largest_of(self.unit * self.y)

    @property
    def grain(self) -> Array:
        """The precision to which the outputs are known at the point, as far as measured."""
        y = np.where(np.isfinite(self.y), np.abs(self.y), 0.0)
        return np.asarray(np.maximum(self.unit * y, self.inside))

    def elsewhere(self, factor: float) -> None:
        """Call the function at other numbers, for what it may keep of a call."""
        raised = self.raised
        self(self.x * factor)
        self.raised = raised

    def recall(self, times: int) -> None:
        """Call the function elsewhere and at the point in turn, and compare with its first outputs.

        The arguments lie in the same memory each time: a cache whose key is the address of an array
        takes one for another. It is memory that no argument had before, as the arrays that are held
        meanwhile take the places of those that are gone.
        """
        held = [np.empty(0) for _ in range(1000)]
        alike, raised, memory = self.repeatable, self.raised, self.arrays(self.x)
        for k in range(times):  # of two calls or three, so that few counters keep step
            for x in (self.x * self.random(self.x.size), self.x, self.x)[: 3 - k % 5 % 2]:
                for array, value in zip(memory, self.arrays(x), strict=True):
                    array[...] = value
                y = self._values(memory)
                with np.errstate(invalid="ignore"):
                    apart = largest_of(y - self.y) if x is self.x else 0.0
                self.unlike = max(self.unlike, apart)
        self.remembers |= alike and not self.repeatable
        self.raised = raised
        del held

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
        return bool((self.inside > FUNCTION * before).any())

    @property
    def roundoff(self) -> float:
        """The unit roundoff of the narrowest argument."""
        return max(unit_roundoff(f.dtype) for f in self.leaves)

    @property
    def step(self) -> Perturbation:
        """A relative change large enough to move any number of the arguments' dtypes."""
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

    def tangent(self, t: Array) -> Array:
        """J t at the point, by forward mode, for a long vector t."""
        assert self.map.forward is not None
        with _same_random_state(), np.errstate(all="ignore"):
            return joined(self.map.forward.moved(self.arrays(self.x), self.arrays(t)))

    def entry(self, output: int, position: int) -> float:
        """The derivative of one output by one element, according to the pull-back."""
        one = np.zeros(self.y.size)
        one[output] = 1.0
        return float(self.pull(one)[position])

    def linearized(self, x: Array) -> LongPull:
        """The pull-back at another point; WrongGradientForm for results that cannot be
        gradients."""
        self.forward_calls += 1
        with _same_random_state(), np.errstate(all="ignore"):
            pull = self.map.linearize(self.arrays(x))

        def long_pull(v: Cotangent) -> Array:
            douts = self.cut(v) if isinstance(v, np.ndarray) else list(v)
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
    """Restore the states of miniml's generator and NumPy's global one after the block, which so
    draws the same numbers each time."""
    own, legacy = default_generator.state, _Legacy()
    before = own.asnumpy()
    try:
        yield
    finally:
        if own.asnumpy().tobytes() != before.tobytes():
            own.set_data(before)
        legacy.restore()


_MERSENNE = 4 * 625  # bytes of a Mersenne Twister in memory: its words, and how many it has given


class _Legacy:
    """The state of NumPy's global generator, which NumPy gives and takes word by word: slower than
    most functions. So its memory is compared with that of the state read last."""

    known: tuple[bytes, Any] = b"", None

    def __init__(self) -> None:
        memory = self._memory()
        before, state = self.known
        if not memory or memory != before:
            state = np.random.get_state(legacy=False)  # noqa: NPY002
            # A normal number that waits is no part of that memory.
            _Legacy.known = (b"" if state["has_gauss"] else memory), state
        self.memory, self.state = memory, state

    def restore(self) -> None:
        if not self.memory or self.state["has_gauss"] or self.memory != self._memory():
            np.random.set_state(self.state)  # noqa: NPY002

    @staticmethod
    def _memory() -> bytes:
        """The memory of the generator; empty if it is none of NumPy's own kind."""
        generator = np.random.get_bit_generator()  # type: ignore[attr-defined]
        if type(generator) is not np.random.MT19937:
            return b""
        return ctypes.string_at(generator.ctypes.state_address, _MERSENNE)


# --- Leaves and their gradients -------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Leaf:
    """One float array among the arguments, whose elements begin at `start` in the long vector."""

    argnum: int | None
    path: str
    argument: str
    shape: tuple[int, ...]
    dtype: DType
    start: int

    @property
    def size(self) -> int:
        """Elements."""
        return math.prod(self.shape)

    @property
    def part(self) -> slice:
        """Its elements in the long vector."""
        return slice(self.start, self.start + self.size)

    def among(self, positions: Array) -> Array:
        """Its own elements among these of the long vector."""
        return positions[(self.start <= positions) & (positions < self.start + self.size)]

    def finding(
        self,
        verdict: str,
        order: int,
        diagnosis: str,
        position: int | None = None,
        numbers: Numbers = NOTHING,
    ) -> GradFinding:
        """A finding on it: on one element of the long vector, or on all of it."""
        index: tuple[int, ...] | None = None
        if position is not None:
            index = tuple(map(int, np.unravel_index(position - self.start, self.shape)))
        return GradFinding(
            verdict, order, diagnosis, self.argument, self.argnum, self.path, index, *numbers
        )

    def formed(self, gradient: Any) -> Array:
        """Its gradient as an array (None: zeros); WrongGradientForm if it cannot be one."""
        if gradient is None:
            return np.zeros(self.shape)
        array = np.asarray(gradient)
        if array.shape != self.shape:
            message = f"the gradient has shape {array.shape}, the {self.argument} has {self.shape}"
            if array.ndim >= len(self.shape) and _broadcasts(self.shape, array.shape):
                message += "; a sum over the broadcast axes is missing"
            raise WrongGradientForm(message, self)
        if array.dtype != self.dtype:
            message = f"the gradient has dtype {array.dtype.name}, its input {self.dtype.name}"
            raise WrongGradientForm(message, self)
        return array


def _broadcasts(small: tuple[int, ...], large: tuple[int, ...]) -> bool:
    try:
        return np.broadcast_shapes(small, large) == large
    except ValueError:
        return False


class WrongGradientForm(Exception):
    """A pull-back returned something that cannot be a gradient of its input (`leaf`, if it is
    one)."""

    def __init__(self, message: str, leaf: Leaf | None = None):
        super().__init__(message)
        self.leaf = leaf

    def finding(self, order: int, where: str = "") -> GradFinding:
        """The finding that it is wrong. where: words before the message."""
        message = f"{where}{self}"
        if self.leaf is None:
            return GradFinding(WRONG, order, message, "gradient")
        return self.leaf.finding(WRONG, order, message)


def guarded(pull: Pull, values: Sequence[Any]) -> Pull:
    """The pull-back, with WrongGradientForm if it writes to its inputs."""
    kept = Kept(values)

    def checked(douts: Arrays) -> list[Any]:
        gradients = pull(douts)
        if kept.changed():
            raise WrongGradientForm(
                "the pull-back writes into an argument of the function, or its output"
            )
        return gradients

    return checked


class Kept:
    """Arrays that a function may read but must not write to."""

    def __init__(self, values: Sequence[Any]):
        self.values = [v for v in values if not isinstance(v, Tensor) or v.device == "cpu"]
        self.bytes = [np.asarray(v).tobytes() for v in self.values]

    def changed(self) -> list[int]:
        """The positions of those that have changed."""
        now = [np.asarray(v).tobytes() for v in self.values]
        return [i for i, (a, b) in enumerate(zip(now, self.bytes, strict=True)) if a != b]
