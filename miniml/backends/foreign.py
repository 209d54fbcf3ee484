"""Foreign functions as CPU kernels: NumPy functions that return arrays, and C functions."""

from __future__ import annotations

import ctypes
import inspect
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ..core.errors import DeclarationError, DTypeError, ShapeError
from .signature import Signature

Array = np.ndarray[Any, Any]
CFunction: Any = ctypes._CFuncPtr  # type: ignore[attr-defined]  # the base of every library's
_POINTER = ctypes._Pointer


def numpy_kernel(name: str, fn: Callable[..., Any], single: bool) -> Callable[..., None]:
    """A kernel that fills `out` with the array, or the tuple of arrays, that `fn` returns.

    ShapeError or DTypeError where that is not what the rules gave.
    """

    def fill(*arrays: Array, out: Array) -> None:
        result = fn(*arrays)
        if type(result) is not np.ndarray:
            result = _array(name, result, out)
        if result.shape != out.shape or result.dtype != out.dtype:
            raise _misfit(name, result, out)
        out[...] = result

    def fill_all(*arrays: Array, out: tuple[Array, ...]) -> None:
        results = fn(*arrays)
        if not isinstance(results, (tuple, list)) or len(results) != len(out):
            raise DeclarationError(
                f"{name} returned {type(results).__name__}; return a tuple of {len(out)} arrays"
            )
        for result, target in zip(results, out, strict=True):
            array = _array(name, result, target)
            if array.shape != target.shape or array.dtype != target.dtype:
                raise _misfit(name, array, target)
            target[...] = array

    return _like(fn, fill if single else fill_all)


def _array(name: str, result: Any, out: Array) -> Array:
    if isinstance(result, (bool, int, float)) and not isinstance(result, np.generic):
        return np.asarray(result, out.dtype)
    if not isinstance(result, (np.ndarray, np.generic)):
        raise DeclarationError(
            f"{name} returned {type(result).__name__}; it takes arrays and returns an array"
        )
    return np.asarray(result)


def _misfit(name: str, result: Array, out: Array) -> Exception:
    if result.shape != out.shape:
        return ShapeError(
            f"{name} returned shape {result.shape}; its shape rule gives {out.shape}; return that, "
            "or say shape= of the inputs' shapes"
        )
    return DTypeError(
        f"{name} returned {result.dtype.name}; its dtype rule gives {out.dtype.name}; return that, "
        "or say dtype= of the inputs' dtypes"
    )


def c_kernel(name: str, fn: Any, signature: Signature) -> Callable[..., None]:
    """A kernel that calls `void f(const T0 *x, ..., U0 *out, ..., int64_t x_size, ...)`.

    The pointers are those of the inputs, then of the outputs, in row-major order; then as many
    element counts of the same arrays. If `fn.argtypes` is set, it may ask for fewer counts, and its
    pointers must be of the signature's dtypes, else DeclarationError.
    """
    dtypes: list[Any] = [*signature.inputs, *signature.outputs]
    if signature.any_dtype or signature.repeats_input or signature.repeats_output:
        raise DeclarationError(
            f"{name} is a C function with the signature {signature}; say one dtype for each of its "
            "pointers, as in 'ff->f'"
        )
    counts = _counts(name, fn, dtypes)
    address = ctypes.cast(fn, ctypes.c_void_p).value
    prototype = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * len(dtypes), *[ctypes.c_int64] * counts)
    if not address:
        raise DeclarationError(f"{name} got a C function at no address")
    call = prototype(address)

    def fill(*arrays: Array, out: Any, library: Any = fn) -> None:
        outs = out if isinstance(out, tuple) else (out,)
        given = [*map(np.ascontiguousarray, arrays), *outs]
        call(*[a.ctypes.data for a in given], *[a.size for a in given[:counts]])

    return _like(fn, fill)


def _counts(name: str, fn: Any, dtypes: Sequence[Any]) -> int:
    """The number of element counts that the function takes."""
    argtypes = fn.argtypes
    if argtypes is None:
        return len(dtypes)
    counts = argtypes[len(dtypes) :]
    wrong = len(argtypes) < len(dtypes) or len(counts) > len(dtypes)
    if wrong or any(kind is not ctypes.c_int64 for kind in counts):
        raise DeclarationError(
            f"{name} got a C function with {len(argtypes)} argtypes; it takes {len(dtypes)} "
            f"pointers, then up to {len(dtypes)} counts of c_int64"
        )
    for i, (kind, dtype) in enumerate(zip(argtypes, dtypes, strict=False)):
        if isinstance(kind, type) and issubclass(kind, _POINTER):
            if np.dtype(kind._type_) != dtype:
                raise DeclarationError(
                    f"{name} argument {i} points to {kind._type_.__name__}; its signature says "
                    f"{dtype.name}"
                )
    return len(counts)


def _like(fn: Any, kernel: Callable[..., None]) -> Callable[..., None]:
    """The kernel, under the name of the function: registering that again replaces it."""
    kernel.__module__ = getattr(fn, "__module__", None) or "c"
    kernel.__name__ = getattr(fn, "__name__", "function")
    kernel.__qualname__ = getattr(fn, "__qualname__", kernel.__name__)
    kernel.__signature__ = inspect.signature(kernel)  # type: ignore[attr-defined]
    kernel.__wrapped__ = fn  # type: ignore[attr-defined]  # for readers of its source
    return kernel
