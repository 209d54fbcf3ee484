"""Tensors of lists, numbers and other libraries' memory, by the array API standard.

In order: what shares or copies memory; tensors of a shape; ranges.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Any

import numpy as np

from .. import ops
from ..backends import dlpack
from ..core.abstract import Kind, Shape
from ..core.dtype import as_dtype, canonical, float32
from ..core.errors import DTypeError, ValueRefusedError
from ..core.settings import context, current, device_name
from ..core.tensor import Array, Tensor


def asarray(
    obj: Any,
    /,
    *,
    dtype: object = None,
    device: str | None = None,
    copy: bool | None = None,
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
    return any(
        isinstance(x, Tensor) or (type(x) in (list, tuple) and _has_tensors(x)) for x in rows
    )


def _copies(what: str) -> ValueRefusedError:
    return ValueRefusedError(
        f"asarray with copy=False refuses a {what}, which takes a copy; leave copy out"
    )


def from_dlpack(x: Any, /, *, device: str | None = None, copy: bool | None = None) -> Tensor:
    """The Tensor around the memory of another library's array: NumPy's, PyTorch's, JAX's, CuPy's.

    x: an object with `__dlpack__`, of any strides, bool, bfloat16 and complex too. Memory of the
    CPU is shared, and lives as long as the Tensor: what its owner writes to it changes the tensor,
    and a compiled program may have read it before, so write no more, or give copy=True. A tensor
    that gradients are recorded on must be detached first, as its library says.

    device: "cpu" also brings memory of another device there, where its owner can. For another
    device there is a copy. ValueRefusedError for copy=False where there would be one; DeviceError
    for memory of another device; DTypeError for a dtype that is not one of miniml's.

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
    if name not in (None, "cpu"):
        if copy is False:
            raise ValueRefusedError(
                f"from_dlpack with copy=False and device={name!r} would copy; leave copy out"
            )
        return Tensor(_memory(x, None, True), device=name)
    return around(_memory(x, copy, name == "cpu"))


def _memory(x: Any, copy: bool | None, move: bool) -> Array:
    if isinstance(x, (np.ndarray, np.generic)):  # bfloat16 and odd strides too
        canonical(x.dtype)
        native = np.asarray(x).view()
        if native.dtype.isnative:
            return native.copy() if copy else native
        if copy is False:
            raise ValueRefusedError(
                f"from_dlpack with copy=False refuses {native.dtype}, of another byte order"
            )
        return native.astype(canonical(native.dtype))
    return dlpack.imported(x, copy, move)


def around(array: Array) -> Tensor:
    """A Tensor around an array of the CPU; the view becomes read-only, not what it looks at."""
    dtype = canonical(array.dtype)
    return Tensor.of_kind(array, Kind.of(Tensor, array.shape, dtype, "cpu"))


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
