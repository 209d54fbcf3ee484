"""Functions whose signature or name the array API standard has otherwise than `ops`.

In order: elements; shapes; elements by index; sets; sums and statistics; products. Each is a call
or two of `ops`, so that gradients, graphs and vmap pass as there. Last the creation of tensors:
what shares or copies memory; tensors of a shape; ranges.
"""

from __future__ import annotations

import builtins
from contextlib import AbstractContextManager, nullcontext
from typing import Any, NamedTuple

import numpy as np

from .. import ops
from ..core.abstract import (
    UNSIGNED,
    Shape,
    as_dtype,
    bool_,
    float32,
    int64,
    is_complex,
    is_float,
    is_inexact,
    uint64,
)
from ..core.errors import DTypeError, ShapeError, ValueRefusedError
from ..core.options import integer
from ..core.settings import context, current, device_name
from ..core.tensor import Tensor, around
from ..interop import dlpack

Axes = int | tuple[int, ...] | None


# --- Elements -------------------------------------------------------------------------------------


def positive(x: Tensor, /) -> Tensor:
    """x itself."""
    return +x


def signbit(x: Tensor, /) -> Tensor:
    """True where a float has a minus sign, also of -0.0 and NaN; DTypeError for other dtypes."""
    if not is_float(x.dtype):
        raise DTypeError(f"signbit got {x.dtype.name}; it takes floats: use x < 0")
    return ops.less(ops.copysign(ops.ones_like(x), x), 0)


def sign(x: Tensor, /) -> Tensor:
    """-1, 0 or 1; of complex numbers x / |x|, and 0 at 0."""
    if not is_complex(x.dtype):
        return ops.sign(x)
    size = ops.abs(x)
    return ops.where(ops.equal(size, 0), ops.zeros_like(x), ops.div(x, size))


def clip(x: Tensor, /, min: Any = None, max: Any = None) -> Tensor:
    """x kept within [min, max], in x's dtype; bounds are numbers, tensors or None."""
    found = ops.clip(x, min, max)
    return found if found.dtype == x.dtype else ops.cast(found, x.dtype)


# --- Shapes ---------------------------------------------------------------------------------------


def broadcast_shapes(*shapes: Shape) -> Shape:
    """The shape to which tensors of these shapes broadcast together; ShapeError for none.

    >>> broadcast_shapes((3, 1), (4,))
    (3, 4)
    """
    try:
        return np.broadcast_shapes(*shapes)
    except ValueError:
        given = ", ".join(map(str, shapes))
        raise ShapeError(
            f"broadcast_shapes got {given}, which do not broadcast; extents must agree or be 1"
        ) from None


def broadcast_arrays(*arrays: Tensor) -> list[Tensor]:
    """Each repeated to the shape that they broadcast to together."""
    return list(ops.broadcast_arrays(*arrays))


def concat(arrays: Any, /, *, axis: int | None = 0) -> Tensor:
    """Tensors one after the other along `axis`; for None each is flattened first."""
    if axis is None:
        return ops.concat([ops.reshape(x, (-1,)) for x in arrays], 0)
    return ops.concat(arrays, axis)


def stack(arrays: Any, /, *, axis: int = 0) -> Tensor:
    """Tensors of one shape joined along a new axis."""
    return ops.stack(arrays, axis)


def unstack(x: Tensor, /, *, axis: int = 0) -> tuple[Tensor, ...]:
    """The slices of x along `axis`, without that axis."""
    return ops.unstack(x, axis)


def expand_dims(x: Tensor, /, *, axis: int | tuple[int, ...] = 0) -> Tensor:
    """x with axes of extent 1 at these positions of the result."""
    return ops.expand_dims(x, axis)


def squeeze(x: Tensor, /, axis: int | tuple[int, ...]) -> Tensor:
    """x without these axes, each of extent 1."""
    return ops.squeeze(x, axis)


def flip(x: Tensor, /, *, axis: Axes = None) -> Tensor:
    """x with the order of its elements reversed along `axis`, along all for None."""
    return ops.flip(x, axis)


def roll(x: Tensor, /, shift: int | tuple[int, ...], *, axis: Axes = None) -> Tensor:
    """x with its elements moved by `shift`; those beyond the end re-enter in front."""
    return ops.roll(x, shift, axis)


def reshape(x: Tensor, /, shape: Shape, *, copy: bool | None = None) -> Tensor:
    """The elements in another shape. copy changes nothing: nobody can write to a tensor."""
    return ops.reshape(x, shape)


def repeat(x: Tensor, repeats: Any, /, *, axis: int | None = None) -> Tensor:
    """Each slice repeated; repeats: an int, or a tensor of one for each slice, known as a value."""
    if isinstance(repeats, Tensor):
        repeats = tuple(repeats.tolist()) if repeats.shape else int(repeats)
    if isinstance(repeats, tuple) and len(repeats) == 1:
        repeats = repeats[0]
    return ops.repeat(x, repeats, axis)


def permute_dims(x: Tensor, /, axes: tuple[int, ...]) -> Tensor:
    """x with its axes in this order."""
    return ops.transpose(x, axes)


def matrix_transpose(x: Tensor, /) -> Tensor:
    """The last two axes exchanged."""
    return x.mT


# --- Elements by index ----------------------------------------------------------------------------


def take(x: Tensor, indices: Tensor, /, *, axis: int | None = None) -> Tensor:
    """The slices of x along `axis` selected by integers; the axis may be left out for a vector."""
    return ops.gather(x, indices, _only_axis("take", x, axis))


def take_along_axis(x: Tensor, indices: Tensor, /, *, axis: int = -1) -> Tensor:
    """One element of x per entry of `indices`, which index `axis`."""
    return ops.take_along_axis(x, indices, axis)


def nonzero(x: Tensor, /) -> tuple[Tensor, ...]:
    """For each axis the indices of the elements that are not 0, in row-major order.

    It runs eagerly only, since the shape depends on values. ShapeError for a single value.
    """
    if not x.shape:
        raise ShapeError("nonzero got a tensor of shape (); it takes one axis at least")
    return ops.unstack(ops.nonzero(x), 1)


def searchsorted(
    x1: Tensor, x2: Any, /, *, side: str = "left", sorter: Tensor | None = None
) -> Tensor:
    """The number of elements of sorted x1 that are < each of x2; with side="right" <=.

    sorter: the indices that sort x1.
    """
    return ops.searchsorted(x1 if sorter is None else ops.gather(x1, sorter, 0), x2, side)


def argsort(
    x: Tensor, /, *, axis: int = -1, descending: bool = False, stable: bool = True
) -> Tensor:
    """The indices that sort x along `axis`; every sort here is stable."""
    return ops.argsort(x, axis, descending)


def sort(x: Tensor, /, *, axis: int = -1, descending: bool = False, stable: bool = True) -> Tensor:
    """x sorted along `axis`."""
    return ops.sort(x, axis, descending)


# --- Sets -----------------------------------------------------------------------------------------


class UniqueAll(NamedTuple):
    """Distinct values, where each comes first, where each element's is, how many there are."""

    values: Tensor
    indices: Tensor
    inverse_indices: Tensor
    counts: Tensor


class UniqueCounts(NamedTuple):
    """Distinct values, and how many there are of each."""

    values: Tensor
    counts: Tensor


class UniqueInverse(NamedTuple):
    """Distinct values, and the index of each element's."""

    values: Tensor
    inverse_indices: Tensor


def unique_all(x: Tensor, /) -> UniqueAll:
    """All four of `UniqueAll`, of the sorted distinct elements. Eagerly only; all NaN are one."""
    return UniqueAll(*ops.unique_all(x))


def unique_counts(x: Tensor, /) -> UniqueCounts:
    """The sorted distinct elements and their numbers. Eagerly only; all NaN are one."""
    found = unique_all(x)
    return UniqueCounts(found.values, found.counts)


def unique_inverse(x: Tensor, /) -> UniqueInverse:
    """The sorted distinct elements, and where each element's is. Eagerly only; all NaN are one."""
    found = unique_all(x)
    return UniqueInverse(found.values, found.inverse_indices)


def unique_values(x: Tensor, /) -> Tensor:
    """The sorted distinct elements. Eagerly only; all NaN are one."""
    return ops.unique(x)


def isin(x1: Any, x2: Any, /, *, invert: bool = False) -> Tensor:
    """True where an element of x1 is one of x2; NaN is none. It compares each with each."""
    candidates = ops.reshape(x2, (-1,))
    found = ops.any(ops.equal(ops.expand_dims(x1, -1), candidates), -1)
    return ops.logical_not(found) if invert else found


# --- Sums and statistics --------------------------------------------------------------------------


def sum(x: Tensor, /, *, axis: Axes = None, dtype: object = None, keepdims: bool = False) -> Tensor:
    """The sum over `axis`, in `dtype`: by default 64 bits for integers, x's own for others."""
    return ops.sum(_summed(x, dtype), axis, keepdims)


def prod(
    x: Tensor, /, *, axis: Axes = None, dtype: object = None, keepdims: bool = False
) -> Tensor:
    """The product over `axis`, in `dtype`, as for `sum`."""
    return ops.prod(_summed(x, dtype), axis, keepdims)


def cumulative_sum(
    x: Tensor, /, *, axis: int | None = None, dtype: object = None, include_initial: bool = False
) -> Tensor:
    """x_0 + ... + x_i along `axis`, which only a vector leaves out; include_initial: 0 in front."""
    along = _only_axis("cumulative_sum", x, axis)
    found = ops.cumsum(_summed(x, dtype), along)
    return _with_first(found, along, 0) if include_initial else found


def cumulative_prod(
    x: Tensor, /, *, axis: int | None = None, dtype: object = None, include_initial: bool = False
) -> Tensor:
    """x_0 * ... * x_i along `axis`, which only a vector leaves out; include_initial: 1 in front."""
    along = _only_axis("cumulative_prod", x, axis)
    found = ops.cumprod(_summed(x, dtype), along)
    return _with_first(found, along, 1) if include_initial else found


def _summed(x: Tensor, dtype: object) -> Tensor:
    """x in the dtype in which it is summed."""
    if dtype is not None:
        return ops.cast(x, dtype)
    if is_inexact(x.dtype):
        return x
    return ops.cast(x, uint64 if x.dtype in UNSIGNED else int64)


def _only_axis(who: str, x: Tensor, axis: int | None) -> int:
    if axis is None and len(x.shape) != 1:
        raise ShapeError(f"{who} got x of shape {x.shape} and no axis; give axis=")
    return 0 if axis is None else axis


def _with_first(x: Tensor, axis: int, value: int) -> Tensor:
    shape = list(x.shape)
    shape[axis] = 1
    return ops.concat([ops.broadcast_to(ops.cast(value, x.dtype), tuple(shape)), x], axis)


def _statistic(name: str) -> Any:
    function = getattr(ops, name)

    def statistic(x: Tensor, /, *, axis: Axes = None, keepdims: bool = False) -> Tensor:
        return function(x, axis, keepdims)  # type: ignore[no-any-return]

    statistic.__name__ = statistic.__qualname__ = name
    statistic.__doc__ = f"`ops.{name}`, with the standard's keywords."
    return statistic


max, min, mean, all, any, count_nonzero, argmax, argmin = map(
    _statistic, ("max", "min", "mean", "all", "any", "count_nonzero", "argmax", "argmin")
)


def std(
    x: Tensor, /, *, axis: Axes = None, correction: float = 0.0, keepdims: bool = False
) -> Tensor:
    """The standard deviation: the square root of `var`."""
    return ops.std(x, axis, keepdims, correction)


def var(
    x: Tensor, /, *, axis: Axes = None, correction: float = 0.0, keepdims: bool = False
) -> Tensor:
    """The sum of |x - mean|^2, divided by n - correction."""
    return ops.var(x, axis, keepdims, correction)


def diff(
    x: Tensor,
    /,
    *,
    axis: int = -1,
    n: int = 1,
    prepend: Tensor | None = None,
    append: Tensor | None = None,
) -> Tensor:
    """x[i + 1] - x[i] along `axis`, n times; of bools where they differ. For n = 0 x alone.

    >>> from miniml import Tensor
    >>> diff(Tensor([1, 4, 9])).tolist()
    [3, 5]
    """
    times = integer("diff", "n", n, 0)
    ends = [end for end in (prepend, x, append) if end is x or (times and end is not None)]
    found = x if len(ends) == 1 else ops.concat(ends, axis)
    for _ in range(times):
        extent = found.shape[axis]
        later = ops.gather(found, ops.arange(1, builtins.max(extent, 1)), axis)
        earlier = ops.gather(found, ops.arange(builtins.max(extent - 1, 0)), axis)
        found = (ops.not_equal if found.dtype == bool_ else ops.sub)(later, earlier)
    return found


# --- Products -------------------------------------------------------------------------------------


def vecdot(x1: Tensor, x2: Tensor, /, *, axis: int = -1) -> Tensor:
    """The sum of conj(x1) x2 along `axis`, as long in both; the other axes broadcast. ShapeError
    where it is not."""
    first, second = ops.moveaxis(x1, axis, -1), ops.moveaxis(x2, axis, -1)
    if first.shape[-1] != second.shape[-1]:
        raise ShapeError(
            f"vecdot got shapes {x1.shape} and {x2.shape}, of other extents along axis {axis}; "
            "only the other axes broadcast: use sum(conj(x1) * x2, axis)"
        )
    return ops.sum(ops.mul(ops.conj(first), second), -1)


def tensordot(x1: Tensor, x2: Tensor, /, *, axes: Any = 2) -> Tensor:
    """The sum of products over axes: the last of x1 and first of x2 for a number, else two lists.

    >>> from miniml import ops
    >>> tensordot(ops.ones((2, 3, 4)), ops.ones((3, 4, 5))).shape
    (2, 5)
    """
    rank1, rank2 = len(x1.shape), len(x2.shape)
    if isinstance(axes, int):
        if axes < 0 or axes > rank1 or axes > rank2:
            raise ValueRefusedError(
                f"tensordot got axes={axes} for shapes {x1.shape} and {x2.shape}; expected 0 to "
                f"{builtins.min(rank1, rank2)}"
            )
        first, second = list(range(rank1 - axes, rank1)), list(range(axes))
    else:
        first, second = ([a] if isinstance(a, int) else list(a) for a in axes)
        first, second = [a % rank1 for a in first], [a % rank2 for a in second]
    extents = [x1.shape[a] for a in first]
    if len(first) != len(second) or extents != [x2.shape[a] for a in second]:
        raise ShapeError(
            f"tensordot got axes={axes} for shapes {x1.shape} and {x2.shape}; the extents of the "
            "axes must agree in pairs"
        )
    kept1 = [a for a in range(rank1) if a not in first]
    kept2 = [a for a in range(rank2) if a not in second]
    summed = int(np.prod(extents))
    out1, out2 = [x1.shape[a] for a in kept1], [x2.shape[a] for a in kept2]
    left = ops.reshape(ops.transpose(x1, (*kept1, *first)), (int(np.prod(out1)), summed))
    right = ops.reshape(ops.transpose(x2, (*second, *kept2)), (summed, int(np.prod(out2))))
    return ops.reshape(ops.matmul(left, right), (*out1, *out2))


# --- Creation -------------------------------------------------------------------------------------


def asarray(
    obj: Any, /, *, dtype: object = None, device: str | None = None, copy: bool | None = None
) -> Tensor:
    """The Tensor of a tensor, a number, nested lists, or of another library's array.

    A tensor is itself, where dtype and device are right: nobody can write to it. What others own is
    copied; copy=False shares memory instead, as `from_dlpack` does, and is refused with
    ValueRefusedError where that cannot be.

    >>> asarray([1, 2]), asarray(np.arange(2.0)).dtype
    (Tensor([1, 2], shape=(2,), dtype=int64), dtype('float64'))
    """
    if isinstance(obj, Tensor):
        moved = obj if device is None else obj.to(device)
        wanted = moved.dtype if dtype is None else as_dtype(dtype)
        if copy is False and (moved is not obj or wanted != obj.dtype):
            raise _copies(f"Tensor of {obj.dtype.name} on {obj.device}")
        return moved if wanted == moved.dtype else ops.cast(moved, wanted)
    if copy is False:
        if not hasattr(obj, "__dlpack__"):
            raise _copies(type(obj).__name__)
        shared = from_dlpack(obj, device=device, copy=False)
        if dtype is not None and as_dtype(dtype) != shared.dtype:
            raise _copies(f"{type(obj).__name__} of {shared.dtype.name}")
        return shared
    with on(device):
        if isinstance(obj, (list, tuple)) and _has_tensors(obj):
            found = ops.stack([asarray(x) for x in obj])
            return found if dtype is None else ops.cast(found, dtype)
        return Tensor(obj, dtype)


def _has_tensors(rows: Any) -> bool:
    return builtins.any(
        isinstance(x, Tensor) or (type(x) in (list, tuple) and _has_tensors(x)) for x in rows
    )


def _copies(what: str) -> ValueRefusedError:
    return ValueRefusedError(
        f"asarray with copy=False refuses a {what}, which takes a copy; leave copy out"
    )


def from_dlpack(x: Any, /, *, device: str | None = None, copy: bool | None = None) -> Tensor:
    """The Tensor around the memory of another library's array: NumPy's, PyTorch's, JAX's, CuPy's.

    x: an object with `__dlpack__`, of any strides, bool, bfloat16 and complex too. Its memory is
    shared, and lives as long as the Tensor: what its owner writes to it changes the tensor, and a
    compiled program may have read it before, so write no more, or give copy=True. A tensor that
    gradients are recorded on must be detached first, as its library says. Memory of the GPU that
    cupy uses stays there, on device "cuda": what is not in row-major order is copied, and what is
    launched next waits for its owner's stream.

    device: "cpu" also brings memory of another device there, where its owner can. For another
    device there is a copy. ValueRefusedError for copy=False where there would be one; DeviceError
    for memory of a device that is not here; DTypeError for a dtype that is not one of miniml's.

    >>> owner = np.arange(3.0)
    >>> from_dlpack(owner), np.shares_memory(from_dlpack(owner), owner)
    (Tensor([0., 1., 2.], shape=(3,), dtype=float64), True)
    """
    if copy not in (None, True, False):
        raise ValueRefusedError(f"from_dlpack got copy={copy!r}; expected True, False or None")
    name = None if device is None else device_name(device)
    if isinstance(x, Tensor):
        return x if name is None else asarray(x, device=name, copy=False if copy is False else None)
    if not hasattr(x, "__dlpack__") or not hasattr(x, "__dlpack_device__"):
        raise DTypeError(
            f"from_dlpack got {type(x).__name__}, which has no __dlpack__; ml.Tensor(x) copies "
            "numbers and lists"
        )
    found = around(dlpack.imported(x, copy, move=name not in (None, "cuda")))
    if name in (None, found.device):
        return found
    if copy is False:
        raise ValueRefusedError(
            f"from_dlpack with copy=False and device={name!r} would copy; leave copy out"
        )
    return found.to(name)


def on(device: str | None) -> AbstractContextManager[object]:
    """A context in which tensors are made on that device; the context's own for None."""
    if device is None or device_name(device) == current().device_target:
        return nullcontext()
    return context(device_target=device)


# --- Of a shape -----------------------------------------------------------------------------------


def zeros(shape: int | Shape, *, dtype: object = None, device: str | None = None) -> Tensor:
    """Zeros, float32 by default."""
    with on(device):
        return ops.zeros(shape, _or_float(dtype))


def ones(shape: int | Shape, *, dtype: object = None, device: str | None = None) -> Tensor:
    """Ones, float32 by default."""
    with on(device):
        return ops.ones(shape, _or_float(dtype))


def full(
    shape: int | Shape, fill_value: Any, *, dtype: object = None, device: str | None = None
) -> Tensor:
    """A tensor filled with a number, of the number's own dtype by default."""
    with on(device):
        return ops.full(shape, fill_value, dtype)


def zeros_like(x: Tensor, /, *, dtype: object = None, device: str | None = None) -> Tensor:
    """Zeros of x's shape, dtype and device."""
    return _moved(ops.zeros_like(x, dtype), device)


def ones_like(x: Tensor, /, *, dtype: object = None, device: str | None = None) -> Tensor:
    """Ones of x's shape, dtype and device."""
    return _moved(ops.ones_like(x, dtype), device)


def full_like(
    x: Tensor, /, fill_value: Any, *, dtype: object = None, device: str | None = None
) -> Tensor:
    """A tensor of x's shape, dtype and device, filled with a number."""
    return _moved(ops.full_like(x, fill_value, dtype), device)


def eye(
    n_rows: int,
    n_cols: int | None = None,
    /,
    *,
    k: int = 0,
    dtype: object = None,
    device: str | None = None,
) -> Tensor:
    """Ones on diagonal k, above the main one where k > 0, and zeros elsewhere; float32."""
    columns = n_rows if n_cols is None else n_cols
    with on(device):
        if k == 0:
            return ops.eye(n_rows, columns, _or_float(dtype))
        rows = ops.expand_dims(ops.arange(n_rows), 1)
        return ops.cast(ops.equal(ops.arange(columns), ops.add(rows, k)), _or_float(dtype))


def _or_float(dtype: object) -> object:
    return float32 if dtype is None else dtype


def _moved(x: Tensor, device: str | None) -> Tensor:
    return x if device is None else x.to(device)


# Nothing is made without values: a tensor that nobody can write to would stay as it is for ever.
empty, empty_like = zeros, zeros_like


# --- Ranges ---------------------------------------------------------------------------------------


def arange(
    start: Any,
    /,
    stop: Any = None,
    step: Any = 1,
    *,
    dtype: object = None,
    device: str | None = None,
) -> Tensor:
    """start, start + step, ... up to `stop`, which is left out; arange(n) counts from 0."""
    with on(device):
        return ops.arange(start, stop, step, dtype)


def linspace(
    start: Any,
    stop: Any,
    /,
    num: int,
    *,
    dtype: object = None,
    device: str | None = None,
    endpoint: bool = True,
) -> Tensor:
    """`num` numbers at equal distances from `start` to `stop`, which endpoint=False leaves out."""
    wanted = _or_float(dtype)
    with on(device):
        if endpoint:
            return ops.linspace(start, stop, num, wanted)
        return ops.linspace(start, stop, num + 1, wanted)[:num]


def meshgrid(*arrays: Tensor, indexing: str = "xy") -> list[Tensor]:
    """Coordinates of a grid: for each vector a tensor in which it runs along its own axis."""
    return list(ops.meshgrid(*arrays, indexing=indexing))


def tril(x: Tensor, /, *, k: int = 0) -> Tensor:
    """Matrices with 0 above diagonal k."""
    return ops.tril(x, k)


def triu(x: Tensor, /, *, k: int = 0) -> Tensor:
    """Matrices with 0 below diagonal k."""
    return ops.triu(x, k)
