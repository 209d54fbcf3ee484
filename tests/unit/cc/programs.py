"""Random functions of arrays, for tests that compile them in two ways."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import accumulate
from typing import Any

import numpy as np

import miniml as ml
from miniml import ArraySpec, ops
from miniml.backends.cc import units
from miniml.backends.cc.native import NativeKernel
from miniml.core.abstract import is_float
from miniml.runtime.program import Program

UNARY: tuple[Callable[[Any], Any], ...] = (
    ops.neg, ops.exp, ops.tanh, ops.sigmoid, ops.relu, ops.square, ops.abs, ops.softplus,
    lambda x: ops.log(ops.square(x) + 0.5), lambda x: ops.clip(x, -1.5, 2.0),
    lambda x: ops.sqrt(ops.abs(x) + 0.25), lambda x: ops.cast(ops.cast(x, ml.float64), x.dtype),
    lambda x: x * 0.5 + 1.0, ops.stop_gradient, ops.gelu,
    lambda x: ops.cast(ops.cast(ops.clip(x * 8.0, -99.0, 99.0), ml.int32) // 3, x.dtype),
    lambda x: ops.cast(ops.any(x > 1.0, -1, True), x.dtype) if x.shape else x,
    lambda x: ops.select(ops.logical_and(x > 0.0, ops.isfinite(x)), x, ops.floor(x)),
)  # fmt: skip
BINARY: tuple[Callable[[Any, Any], Any], ...] = (
    ops.add, ops.sub, ops.mul, ops.maximum, ops.minimum,
    lambda x, y: x / (ops.square(y) + 1.0), lambda x, y: ops.select(x > y, x, y * 0.5),
)  # fmt: skip
REDUCTIONS = (ops.sum, ops.mean, ops.max, ops.min, ops.logsumexp)
SHAPES = ((5,), (1, 7), (4, 6), (2, 3, 4), (3, 1, 5), (2, 2, 3, 2), (40, 17), (3, 600), (33, 1))


def inputs_for(seed: int, dtype: Any) -> list[Any]:
    """A full array, one along the last axis, one along the first, and a number."""
    rng = np.random.default_rng(seed)
    shape = SHAPES[seed % len(SHAPES)]
    shapes = (shape, shape, shape[-1:], (shape[0], *(1,) * (len(shape) - 1)), ())
    return [rng.normal(size=s).astype(dtype) for s in shapes]


def function(seed: int, length: int = 12) -> Callable[..., Any]:
    """A function of such arrays: the same calls each time, drawn from a seed."""

    def drawn(*given: Any) -> Any:
        rng = np.random.default_rng((seed, 1))
        values = list(given)
        for _ in range(length):
            values.append(ops.tanh(step(rng, values)) if rng.random() < 0.3 else step(rng, values))
        return tuple(values[len(given) :][-4:])

    return drawn


def step(rng: np.random.Generator, values: Sequence[Any]) -> Any:
    """One more value from those there are."""
    x = values[rng.integers(len(values))] if rng.random() < 0.5 else values[-1]
    draw = rng.random()
    if draw < 0.3:
        return UNARY[rng.integers(len(UNARY))](x)
    if draw < 0.7:
        fitting = [v for v in values if fits(v.shape, x.shape)]
        return BINARY[rng.integers(len(BINARY))](x, fitting[rng.integers(len(fitting))])
    if draw < 0.85 and x.shape:
        axes = [i for i in range(len(x.shape)) if rng.random() < 0.5]
        kept = bool(rng.random() < 0.6)
        return REDUCTIONS[rng.integers(len(REDUCTIONS))](x, tuple(axes), kept)
    if draw < 0.89 and x.shape and x.shape[-1] > 2:
        return x[..., 1:] if rng.random() < 0.5 else x[..., ::2]
    if draw < 0.92 and x.shape:
        return joined(rng, x, [v for v in values if v.shape == x.shape])
    if draw < 0.95 and len(x.shape) > 1:
        return ops.transpose(x, tuple(int(i) for i in rng.permutation(len(x.shape))))
    return ops.reshape(x, (-1, *x.shape[1:][-1:]))


def joined(rng: np.random.Generator, x: Any, alike: Sequence[Any]) -> Any:
    """x beside values of its shape along an axis, which is a new one for some."""
    parts = [x * 2, *(drawn(rng, alike) for _ in range(rng.integers(1, 3)))]
    join = ops.stack if len(x.shape) < 4 and rng.random() < 0.5 else ops.concat
    return join([ops.cast(p, x.dtype) for p in parts], int(rng.integers(len(x.shape))))


def fits(one: Sequence[int], other: Sequence[int]) -> bool:
    """True where the shapes broadcast."""
    pairs = zip(reversed(one), reversed(other), strict=False)
    return all(a == b or 1 in (a, b) for a, b in pairs)


def axes_inputs(seed: int) -> list[Any]:
    """Arrays over some of four axes, in any order, some longer than any block."""
    rng = np.random.default_rng((seed, 2))
    extents = rng.choice([1, 2, 3, 5, 8, 17, 33, 103, 600], 4)
    while np.prod(extents) > 60_000:
        extents[extents.argmax()] = rng.integers(1, 20)
    sizes = dict(zip("abcd", extents.tolist(), strict=True))
    names = ["".join(rng.permutation([*"abcd"])[: rng.integers(2, 5)]) for _ in range(3)]
    return [(axes, rng.normal(size=[sizes[a] for a in axes])) for axes in names]


def of_axes(seed: int, length: int = 9) -> Callable[..., Any]:
    """A function that multiplies arrays over named axes, turns them, moves along them and reduces
    over any; its results are what nothing in it reads."""
    given = [axes for axes, _ in axes_inputs(seed)]

    def drawn(*arrays: Any) -> Any:
        rng, values = np.random.default_rng((seed, 3)), [*zip(given, arrays, strict=True)]
        ends = [True] * (len(given) + length)
        for _ in range(length):
            read = [int(rng.integers(max(0, len(values) - 4), len(values)))]
            if rng.random() < 0.2:
                read.append(int(rng.integers(len(values))))
            values.append(axes_step(rng, *[values[i] for i in read]))
            for i in read:
                ends[i] = False
        return tuple(x for (_, x), end in zip(values, ends, strict=True) if end)

    return drawn


def axes_step(rng: np.random.Generator, one: Any, other: Any = None) -> tuple[str, Any]:
    """One more value, with the names of its axes: of two others, or of one."""
    (axes, x), draw = one, rng.random()
    if other:
        every = "".join(rng.permutation(sorted({*axes, *other[0]})))
        if draw < 0.5:
            return every, placed(every, *one) * placed(every, *other)
        left = "".join(a for a in every if draw < 0.7 or a not in axes or a not in other[0])
        return left, ops.tanh(ops.einsum(f"{axes},{other[0]}->{left}", x, other[1]) * 0.2)
    if not axes:
        return axes, ops.tanh(x)
    if draw < 0.4 and len(axes) > 1:
        gone = rng.permutation(len(axes))[: rng.integers(1, len(axes))].tolist()
        reduce = (ops.sum, ops.max, ops.mean, ops.var, ops.logsumexp)[rng.integers(5)]
        return "".join(a for i, a in enumerate(axes) if i not in gone), reduce(x, gone)
    if draw < 0.55:
        turned = rng.permutation(len(axes)).tolist()
        return "".join(axes[i] for i in turned), ops.transpose(x, turned)
    if draw < 0.65:
        return axes, ops.tanh(x) if draw < 0.6 else ops.reshape(ops.reshape(x, -1) + 0.5, x.shape)
    return axes, ALONG[rng.integers(len(ALONG))](x, int(rng.integers(len(axes))))


def cut(x: Any, axis: int, *ends: int | None) -> Any:
    return x[(slice(None),) * axis + (slice(*ends),)]


ALONG: tuple[Callable[[Any, int], Any], ...] = (
    ops.softmax,
    lambda x, axis: ops.cumsum(x, axis) * 0.3,
    ops.flip,
    lambda x, axis: ops.roll(x, 2, axis),
    lambda x, axis: ops.concat([cut(x, axis, 1, None), ops.sin(cut(x, axis, 0, 1))], axis),
    lambda x, axis: x / ops.sqrt(ops.mean(ops.square(x), axis, True) + 0.1),
    lambda x, axis: cut(
        ops.pad(x, [(int(i == axis), 0) for i in range(x.ndim)]), axis, 0, x.shape[axis]
    ) - x,
)  # fmt: skip


def placed(every: str, axes: str, x: Any) -> Any:
    """An array over some of the axes, with the others at extent 1."""
    x = ops.transpose(x, [axes.index(a) for a in every if a in axes])
    return ops.expand_dims(x, [i for i, a in enumerate(every) if a not in axes])


def with_gradient(fn: Callable[..., Any]) -> Callable[..., Any]:
    """The outputs and the gradient of the sum of their squares."""

    def both(*given: Any) -> Any:
        def loss(*xs: Any) -> Any:
            return sum((ops.sum(ops.tanh(y)) for y in fn(*xs)), start=ops.zeros((), given[0].dtype))

        return fn(*given), ml.grad.grad(loss, argnums=tuple(range(len(given))))(*given)

    return both


def load_all(programs: Sequence[Program]) -> None:
    """Compile the native kernels of all programs as one unit."""
    natives = [b.native for p in programs for b in p.prepared.values() if b.native is not None]
    units.load([native.source for native in natives if native.source is not None])


def in_c(calls: Sequence[tuple[Callable[..., Any], Sequence[Any]]]) -> list[Any]:
    """The result of each function of its arguments, as one program, whose kernels are one unit."""
    ends = [*accumulate(len(args) for _, args in calls)]

    def every(*given: Any) -> Any:
        return [fn(*given[e - len(a) : e]) for (fn, a), e in zip(calls, ends, strict=True)]

    with ml.context(providers=("cc", "miniml")):
        return ml.jit(every)(*(arg for _, args in calls for arg in args))  # type: ignore[no-any-return]


# Dtypes in which every operation below is bit for bit NumPy's.
DTYPES = (
    ml.float32, ml.float64, ml.float16, ml.bfloat16, ml.int32, ml.int64, ml.uint8, ml.int8, ml.bool_
)  # fmt: skip


def exact_inputs(seed: int) -> list[Any]:
    """Arrays as `inputs_for` gives them, of several dtypes."""
    rng = np.random.default_rng((seed, 2))
    return [converted(ml.Tensor(a), drawn(rng, DTYPES)) for a in inputs_for(seed, np.float64)]


def exact(seed: int, length: int = 9) -> Callable[..., Any]:
    """A function of such arrays that rounds as NumPy does: arithmetic, comparisons, casts, views,
    and reductions in which no order counts."""

    def run(*given: Any) -> Any:
        rng = np.random.default_rng((seed, 3))
        values = list(given)
        for _ in range(length):
            x = values[rng.integers(len(values))] if rng.random() < 0.4 else values[-1]
            values.append(exact_step(rng, x, [v for v in values if fits(v.shape, x.shape)]))
        return tuple(values[len(given) :][-5:])

    return run


def exact_step(rng: np.random.Generator, x: Any, fitting: Sequence[Any]) -> Any:
    draw, floating = rng.random(), is_float(x.dtype)
    y = converted(drawn(rng, fitting), x.dtype)
    if draw < 0.15:
        return converted(x, drawn(rng, DTYPES))
    if draw < 0.25:
        return drawn(rng, (ops.less, ops.equal, ops.greater_equal))(x, y)
    if draw < 0.35:
        truth = drawn(rng, [v for v in fitting if v.shape in (x.shape, ())])
        return ops.select(converted(truth, ml.bool_), x, y)
    if draw < 0.45 and x.shape:
        axes = tuple(i for i in range(len(x.shape)) if rng.random() < 0.5)
        summed = () if floating else (ops.sum, ops.any, ops.all)
        return drawn(rng, (ops.max, ops.min, *summed))(x, axes, bool(rng.random() < 0.7))
    if draw < 0.55 and len(x.shape) > 1:
        return ops.transpose(x, tuple(int(i) for i in rng.permutation(len(x.shape))))
    if draw < 0.6 and x.shape and x.shape[-1] > 2:
        return x[..., 1:] if rng.random() < 0.5 else x[..., ::2]
    if draw < 0.64 and x.shape and x.dtype != ml.bool_:
        return joined(
            rng, x, [x, *(v for v in fitting if (v.shape, v.dtype) == (x.shape, x.dtype))]
        )
    if x.dtype == ml.bool_:
        return drawn(rng, (ops.logical_and, ops.logical_or, ops.logical_xor))(x, y)
    if draw < 0.7:
        return drawn(rng, (ops.abs, ops.sign, ops.square, ops.floor, ops.relu))(x)
    if draw < 0.8:  # nothing divides by zero, whose sign is free after maximum and minimum
        return drawn(rng, (ops.floor_div, ops.mod))(x, ops.maximum(y, y * 0 + 1))
    if draw < 0.85 and floating:
        return ops.sqrt(ops.abs(x)) / (ops.abs(y) + 1)
    return drawn(rng, (ops.add, ops.sub, ops.mul, ops.maximum, ops.minimum))(x, y)


def drawn(rng: np.random.Generator, some: Sequence[Any]) -> Any:
    return some[rng.integers(len(some))]


def converted(x: Any, dtype: Any) -> Any:
    """In another dtype, which can hold the numbers."""
    if is_float(x.dtype) and not is_float(dtype) and dtype != ml.bool_:
        x = ops.clip(ops.select(ops.isfinite(x), x, ops.zeros_like(x)), 0.0, 100.0)
    return ops.cast(x, dtype)


def keep_to_their_arrays(program: Program) -> bool:
    """False where a kernel of the program writes beside its outputs and its scratch arrays."""
    natives = (b for b in program.prepared.values() if isinstance(b.instance, NativeKernel))
    bound = [b for b in natives if b.instance.source is not None]
    return all(_keeps(b.instance, (*b.node.inputs, *b.node.outputs)) for b in bound)


def _keeps(kernel: NativeKernel, specs: Sequence[ArraySpec]) -> bool:
    memory, arrays = [], []
    for s in (*specs, *kernel.workspace()):
        size = int(np.prod(s.shape)) * s.dtype.itemsize
        memory.append(np.full(size + 2 * _FENCE, 0xA5, np.uint8))
        arrays.append(memory[-1][_FENCE : _FENCE + size].view(s.dtype).reshape(s.shape))
        arrays[-1][...] = 1
    units.run(kernel.source, arrays)
    return all((m[:_FENCE] == 0xA5).all() and (m[-_FENCE:] == 0xA5).all() for m in memory)


_FENCE = 4096  # bytes before and after each array
