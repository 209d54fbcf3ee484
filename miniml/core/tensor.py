"""Tensor, an immutable array on a device.

First its operators and methods, each of which is one call of `ops`; then the class, and how NumPy
arrays, numbers and lists become tensors.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from inspect import isfunction
from types import ModuleType
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from .. import ops
from ..backends.kernel import once
from ..backends.selection import get_device
from . import hints
from .abstract import (
    Abstract,
    DType,
    Kind,
    as_dtype,
    bfloat16,
    canonical,
    complex64,
    float32,
    int64,
    is_complex,
)
from .errors import NONE, DeviceError, DTypeError, ImmutableError, ShapeError, UnsizedError
from .hints import unknown
from .settings import current, device_name

_UFUNCS = {
    np.add: "add", np.subtract: "sub", np.multiply: "mul", np.true_divide: "div",
    np.floor_divide: "floor_div", np.remainder: "mod", np.power: "pow", np.negative: "neg",
    np.absolute: "abs", np.sign: "sign", np.exp: "exp", np.expm1: "expm1", np.log: "log",
    np.log1p: "log1p", np.log2: "log2", np.log10: "log10", np.exp2: "exp2",
    np.sqrt: "sqrt", np.square: "square", np.reciprocal: "reciprocal", np.sin: "sin",
    np.cos: "cos", np.tan: "tan", np.arcsin: "asin", np.arccos: "acos",
    np.arctan: "atan", np.arctan2: "atan2", np.arcsinh: "asinh",
    np.arccosh: "acosh", np.arctanh: "atanh", np.sinh: "sinh", np.cosh: "cosh", np.tanh: "tanh",
    np.rint: "round", np.trunc: "trunc",
    np.maximum: "maximum", np.minimum: "minimum", np.floor: "floor", np.ceil: "ceil",
    np.equal: "equal", np.not_equal: "not_equal", np.less: "less", np.less_equal: "less_equal",
    np.greater: "greater", np.greater_equal: "greater_equal", np.logical_and: "logical_and",
    np.logical_or: "logical_or", np.logical_not: "logical_not", np.logical_xor: "logical_xor",
    np.isnan: "isnan", np.isinf: "isinf", np.isfinite: "isfinite", np.matmul: "matmul",
    np.bitwise_and: "bitwise_and", np.bitwise_or: "bitwise_or", np.bitwise_xor: "bitwise_xor",
    np.bitwise_not: "bitwise_not", np.left_shift: "left_shift", np.right_shift: "right_shift",
    np.copysign: "copysign", np.hypot: "hypot", np.logaddexp: "logaddexp", np.divmod: "divmod",
    np.conjugate: "conj",
}  # fmt: skip


def _call(name: str) -> Callable[..., Tensor]:
    """The bound `__call__` of that function of `ops`. Bound once: looking up an object's `__call__`
    takes about as long as NumPy takes to add two small arrays."""
    function = getattr(ops, name)
    return function if isfunction(function) else function.__call__


# fmt: off
_add, _sub, _mul, _div, _pow = map(_call, ("add", "sub", "mul", "div", "pow"))
_floor_div, _mod, _matmul, _getitem = map(_call, ("floor_div", "mod", "matmul", "getitem"))
_neg, _abs, _bitwise_not = map(_call, ("neg", "abs", "bitwise_not"))
_bitwise_and, _bitwise_or, _bitwise_xor = map(_call, ("bitwise_and", "bitwise_or", "bitwise_xor"))
_left_shift, _right_shift = map(_call, ("left_shift", "right_shift"))
_equal, _not_equal, _less = map(_call, ("equal", "not_equal", "less"))
_less_equal, _greater, _greater_equal = map(_call, ("less_equal", "greater", "greater_equal"))
# fmt: on


class Operators:
    """The meanings of `+`, `[]`, `.sum()` and NumPy's functions on a tensor."""

    __slots__ = ()
    __array_priority__ = 1000
    if TYPE_CHECKING:

        @property
        def shape(self) -> tuple[int, ...]: ...

        def _host(self, operation: str) -> np.ndarray[Any, Any]: ...

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **options: Any) -> Tensor:
        name = _UFUNCS.get(ufunc)
        if method != "__call__" or options or name is None:
            called = f"np.{ufunc.__name__}" + ("" if method == "__call__" else f".{method}")
            given = f" with {', '.join(options)}" if options else ""
            hint = f"ops.{name}" if name and method == "__call__" else "the function of miniml.ops"
            raise DTypeError(
                f"{called}{given} is NumPy's and would leave the graph; use {hint}, or t.asnumpy() "
                "to leave it on purpose"
            )
        return getattr(ops, name)(*inputs)  # type: ignore[no-any-return]

    def __array_function__(self, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
        if func is np.shape and isinstance(args[0], Operators):
            return args[0].shape

        # NumPy's functions see arrays; a traced tensor refuses to become one, by name.
        def seen(value: Any) -> Any:
            if isinstance(value, Operators):
                return value._host(f"np.{func.__name__}")
            return type(value)(map(seen, value)) if type(value) in (list, tuple) else value

        return func(*map(seen, args), **{k: seen(v) for k, v in kwargs.items()})

    if not TYPE_CHECKING:  # it would hide misspelt names from the type checker

        def __getattr__(self, name: str) -> Any:
            raise unknown(type(self).__name__, name, self)

    # fmt: off
    def __add__(self, other: Any) -> Tensor: return _add(self, other)
    def __radd__(self, other: Any) -> Tensor: return _add(other, self)
    def __sub__(self, other: Any) -> Tensor: return _sub(self, other)
    def __rsub__(self, other: Any) -> Tensor: return _sub(other, self)
    def __mul__(self, other: Any) -> Tensor: return _mul(self, other)
    def __rmul__(self, other: Any) -> Tensor: return _mul(other, self)
    def __truediv__(self, other: Any) -> Tensor: return _div(self, other)
    def __rtruediv__(self, other: Any) -> Tensor: return _div(other, self)
    def __floordiv__(self, other: Any) -> Tensor: return _floor_div(self, other)
    def __rfloordiv__(self, other: Any) -> Tensor: return _floor_div(other, self)
    def __mod__(self, other: Any) -> Tensor: return _mod(self, other)
    def __rmod__(self, other: Any) -> Tensor: return _mod(other, self)
    def __pow__(self, other: Any) -> Tensor: return _pow(self, other)
    def __rpow__(self, other: Any) -> Tensor: return _pow(other, self)
    def __matmul__(self, other: Any) -> Tensor: return _matmul(self, other)
    def __rmatmul__(self, other: Any) -> Tensor: return _matmul(other, self)
    def __neg__(self) -> Tensor: return _neg(self)
    def __pos__(self) -> Tensor: return self  # type: ignore[return-value]
    def __abs__(self) -> Tensor: return _abs(self)
    def __invert__(self) -> Tensor: return _bitwise_not(self)
    def __and__(self, other: Any) -> Tensor: return _bitwise_and(self, other)
    def __rand__(self, other: Any) -> Tensor: return _bitwise_and(other, self)
    def __or__(self, other: Any) -> Tensor: return _bitwise_or(self, other)
    def __ror__(self, other: Any) -> Tensor: return _bitwise_or(other, self)
    def __xor__(self, other: Any) -> Tensor: return _bitwise_xor(self, other)
    def __rxor__(self, other: Any) -> Tensor: return _bitwise_xor(other, self)
    def __lshift__(self, other: Any) -> Tensor: return _left_shift(self, other)
    def __rlshift__(self, other: Any) -> Tensor: return _left_shift(other, self)
    def __rshift__(self, other: Any) -> Tensor: return _right_shift(self, other)
    def __rrshift__(self, other: Any) -> Tensor: return _right_shift(other, self)
    def __divmod__(self, other: Any) -> tuple[Tensor, Tensor]: return ops.divmod(self, other)
    def __rdivmod__(self, other: Any) -> tuple[Tensor, Tensor]: return ops.divmod(other, self)
    def __eq__(self, other: Any) -> Tensor: return _equal(self, other)  # type: ignore[override]
    def __ne__(self, other: Any) -> Tensor: return _not_equal(self, other)  # type: ignore[override]
    def __lt__(self, other: Any) -> Tensor: return _less(self, other)
    def __le__(self, other: Any) -> Tensor: return _less_equal(self, other)
    def __gt__(self, other: Any) -> Tensor: return _greater(self, other)
    def __ge__(self, other: Any) -> Tensor: return _greater_equal(self, other)
    # fmt: on

    __hash__ = object.__hash__

    def __getitem__(self, index: Any) -> Tensor:
        return _getitem(self, index)

    def __iter__(self) -> Iterator[Tensor]:
        return (ops.getitem(self, i) for i in range(len(self)))  # type: ignore[arg-type]

    def __contains__(self, value: Any) -> bool:
        return bool(ops.any(_equal(self, value)))

    @property
    def T(self) -> Tensor:
        """All axes reversed."""
        return ops.transpose(self)

    @property
    def mT(self) -> Tensor:
        """The last two axes exchanged: each matrix of a stack transposed. ShapeError below 2
        axes."""
        if len(self.shape) < 2:
            raise ShapeError(f"mT of a tensor of shape {self.shape}; it takes two axes at least")
        return ops.swapaxes(self, -2, -1)

    @property
    def real(self) -> Tensor:
        """The real part; a real tensor itself."""
        return ops.real(self)

    @property
    def imag(self) -> Tensor:
        """The imaginary part; zeros for a real tensor."""
        return ops.imag(self)

    def conj(self) -> Tensor:
        """The complex conjugate; a real tensor itself."""
        return ops.conj(self)

    def astype(self, dtype: object) -> Tensor:
        """The same values in another dtype."""
        return ops.cast(self, dtype)

    def reshape(self, *shape: Any) -> Tensor:
        """The same elements in another shape; one extent may be -1."""
        return ops.reshape(self, shape[0] if len(shape) == 1 else shape)

    def transpose(self, *axes: Any) -> Tensor:
        """The axes in another order, reversed by default."""
        order = axes[0] if len(axes) == 1 and not isinstance(axes[0], int) else axes
        return ops.transpose(self, order) if order else ops.transpose(self)

    flatten, squeeze = ops.flatten, ops.squeeze
    sum, mean, prod, max, min = ops.sum, ops.mean, ops.prod, ops.max, ops.min
    argmax = ops.argmax


# --- Tensor ---------------------------------------------------------------------------------------


Array = np.ndarray[Any, Any]
_new = object.__new__


class Tensor(Operators):
    """An immutable array with a dtype and a device.

    data: nested sequences, Python scalars, NumPy arrays, Tensors or anything with DLPack; it is
    copied. Python floats give float32, ints int64, bools bool, complex numbers complex64; arrays
    keep their dtype unless `dtype` says otherwise. device: by default the context's
    `device_target`.

    >>> Tensor([[1.0, 2.0]])
    Tensor([[1., 2.]], shape=(1, 2), dtype=float32)
    """

    __slots__ = ("_data", "_kind", "__weakref__")
    _instead_of_writing: ClassVar[str] = (
        "tensors do not change: use ops.scatter(t, index, value) or ops.where(mask, value, t) for "
        "a new one"
    )
    _data: Any
    _kind: Kind

    def __init__(self, data: Any, dtype: object = None, device: str | None = None):
        array = host_array(data, None if dtype is None else as_dtype(dtype), type(self).__name__)
        name = device_name(device) if device else current().device_target
        self._data = data = get_device(name).from_host(array)
        self._kind = Kind.of(type(self), data.shape, data.dtype, name)
        self._seal()

    @classmethod
    def wrap(cls, data: Any, device: str) -> Tensor:
        """A Tensor around a device array that nobody else will write to; nothing is copied."""
        return Tensor.of_kind(data, Kind.of(Tensor, data.shape, data.dtype, device))

    @staticmethod
    def of_kind(data: Any, kind: Kind) -> Tensor:
        """A Tensor of a known kind around such an array: `wrap` without a look at it."""
        tensor = _new(Tensor)
        tensor._data, tensor._kind = data, kind
        data.setflags(False)  # write=False; a keyword takes longer
        return tensor

    def _seal(self) -> None:
        self._data.setflags(write=False)

    @staticmethod
    def of_host(array: Array, kind: Kind) -> Tensor:
        """A Tensor of this kind around a NumPy array that nobody else will write to."""
        there = array if kind.device == "cpu" else get_device(kind.device).from_host(array)
        return Tensor.of_kind(there, kind)

    @property
    def shape(self) -> tuple[int, ...]:
        """The extents of the axes."""
        return self._kind.abstract.shape

    @property
    def dtype(self) -> DType:
        """The dtype, one of miniml's."""
        return self._kind.abstract.dtype

    @property
    def device(self) -> str:
        """The device that holds the data: "cpu", "cuda" or "cuda-sim"."""
        return self._kind.device

    @property
    def _abstract(self) -> Abstract:
        return self._kind.abstract

    @property
    def ndim(self) -> int:
        """The number of axes."""
        return len(self.shape)

    @property
    def size(self) -> int:
        """The number of elements."""
        return self._abstract.size

    @property
    def nbytes(self) -> int:
        """The number of bytes of the elements."""
        return self.size * self.dtype.itemsize

    def _host(self, operation: str) -> Array:
        """The data as a NumPy array. operation: what needs them, for a traced tensor's error."""
        array = self._array(operation)
        return array if self.device == "cpu" else get_device(self.device).to_host(array)

    def _array(self, operation: str) -> Any:
        """The data as an array of their device. operation: as above."""
        return self._data

    def _stored(self) -> Array:
        """The data as a NumPy array, whatever is traced."""
        return self._data if self.device == "cpu" else get_device(self.device).to_host(self._data)

    def _constant(self) -> Array:
        """The data as a NumPy array that lives as long as they do, the same for all that ask."""
        if self.device == "cpu" or type(self) is not Tensor:
            return self._host("constant")
        return once(self._data, get_device(self.device).to_host)

    def asnumpy(self) -> Array:
        """A fresh NumPy array with the data."""
        return np.array(self._host("asnumpy()"), order="C", copy=True)

    def item(self) -> bool | int | float | complex:
        """The only element, as a Python scalar; ShapeError if there are more or none."""
        return self._scalar("item()")  # type: ignore[no-any-return]

    def tolist(self) -> Any:
        """The data as nested lists of Python scalars."""
        return self._host("tolist()").tolist()

    def to(self, device: str) -> Tensor:
        """This tensor on another device; itself if it is there already."""
        name = device_name(device)
        if name == self.device:
            return self
        return Tensor.wrap(get_device(name).from_host(self._host("to()")), name)

    def to_device(self, device: str, /, *, stream: None = None) -> Tensor:
        """`to`, by the array API standard's name; DeviceError for a stream, as those are
        miniml's."""
        if stream is not None:
            raise DeviceError(
                f"to_device got stream={stream!r}; miniml orders its streams itself: leave it out"
            )
        return self.to(device)

    def __array_namespace__(self, /, *, api_version: str | None = None) -> ModuleType:
        """`miniml.array_api`, the functions of the array API standard."""
        found: ModuleType = hints.elsewhere(__name__, "namespace")(api_version)
        return found

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:
        array = self._host("np.asarray")
        if dtype is not None and np.dtype(dtype) != array.dtype:
            if copy is False:
                raise ValueError(
                    f"a Tensor of {self.dtype} cannot be seen as {dtype} without a copy"
                )
            return array.astype(dtype)
        return array.copy() if copy else array

    def __dlpack__(self, **options: Any) -> Any:
        """The data for another library: a copy, since many of them write to read-only memory too.

        copy=False gives the memory itself, for consumers that do not write to it. Memory of a GPU
        stays there, and the consumer's stream waits for it.
        """
        shared = options.get("copy") is False
        exported = hints.elsewhere(__name__, "exported")
        return exported(self._lent(), options if shared else options | {"copy": True})

    def __dlpack_device__(self) -> tuple[int, int]:
        found: tuple[int, int] = hints.elsewhere(__name__, "device_of")(self._lent())
        return found

    def _lent(self) -> Any:
        on_gpu = self.device == "cuda"  # memory of the simulator is known to nobody else
        return self._array("DLPack") if on_gpu else self._host("DLPack")

    def _scalar(self, operation: str) -> Any:
        array = self._host(operation)
        if array.size != 1:
            raise ShapeError(
                f"Tensor of shape {self.shape} has {array.size} elements, so {operation} has no "
                "single value; index it or reduce it first"
            )
        return array.item()

    # fmt: off
    def __bool__(self) -> bool: return bool(self._scalar("bool"))
    def __int__(self) -> int: return int(self._scalar("int"))
    def __float__(self) -> float: return float(self._scalar("float"))
    def __complex__(self) -> complex: return complex(self._scalar("complex"))
    # fmt: on

    def __index__(self) -> int:
        if self.dtype.kind not in "iu":
            raise DTypeError(
                f"Tensor of {self.dtype} cannot be used as an index; use an integer tensor"
            )
        return int(self._scalar("index"))

    def __len__(self) -> int:
        if not self.shape:
            raise UnsizedError("Tensor of shape () has no length; it is a single value")
        return self.shape[0]

    def __format__(self, spec: str) -> str:
        return format(self._scalar("format"), spec) if spec else str(self)

    def __repr__(self) -> str:
        return self._show("Tensor")

    def _show(self, kind: str, extra: str = "") -> str:
        array = self._host("repr")
        array = array.astype(float32) if array.dtype == bfloat16 else array  # NumPy prints 1.0 as 1
        body = np.array2string(array, separator=", ", prefix=kind + "(", threshold=100)
        where = "" if self.device == "cpu" else f", device={self.device}"
        return f"{kind}({body}, shape={self.shape}, dtype={self.dtype.name}{extra}{where})"

    def __setitem__(self, index: Any, value: Any) -> None:
        raise ImmutableError(
            f"{type(self).__name__} refuses item assignment [{index!r}]; {self._instead_of_writing}"
        )

    def __reduce__(self) -> tuple[Any, ...]:
        return _restore, (self.asnumpy(), self.device)

    def __deepcopy__(self, memo: dict[int, Any]) -> Tensor:
        return self


def around(array: Any) -> Tensor:
    """A Tensor around an array of the CPU, whatever its strides, or of a GPU; nothing is copied.

    The array is a view that nobody else has: it becomes read-only, what it looks at does not.
    """
    device = "cpu" if isinstance(array, np.ndarray) else array.device.name
    return Tensor.of_kind(array, Kind.of(Tensor, array.shape, canonical(array.dtype), device))


def host_array(data: Any, dtype: DType | None, operation: str = "Tensor") -> Array:
    """User data as a NumPy array, by the rules of Tensor; DTypeError if that is impossible.

    operation: what needs it, for the error of a traced tensor.
    """
    if isinstance(data, Tensor):
        array = data._host(operation)
    elif isinstance(data, (np.ndarray, np.generic)):
        if isinstance(data, np.ma.MaskedArray):
            raise DTypeError(
                "Tensor refuses a masked array, whose mask would be lost; give data.filled(value), "
                "and the mask as a tensor of its own"
            )
        array = np.asarray(data)
    elif hasattr(data, "__dlpack__"):
        found = hints.elsewhere(__name__, "imported")(data)
        array = found if isinstance(found, np.ndarray) else found.device.to_host(found)
    else:
        array = _from_python(data)
    known = canonical(array.dtype)  # refuses dtypes that miniml does not compute with
    if dtype is not None and is_complex(known) and not is_complex(dtype):
        raise DTypeError(
            f"{operation} refuses to make {dtype.name} of {known.name}, whose imaginary part would "
            "be lost; give the real part, x.real"
        )
    return array.astype(dtype or known, copy=False)


def _from_python(data: Any) -> Array:
    if data is None:
        raise DTypeError(f"Tensor got None where it takes numbers; {NONE}")
    try:
        array = np.array(data)
    except ValueError as error:
        raise ShapeError(f"Tensor needs rows of equal length; {error}") from None
    if array.dtype.kind not in "biufcV":
        raise DTypeError(f"Tensor refuses {type(data).__name__} {data!r}; give numbers or arrays")
    first = data
    while isinstance(first, (list, tuple)) and first:
        first = first[0]
    if array.dtype.kind in "fc" and not isinstance(first, (np.generic, np.ndarray)):
        return array.astype(complex64 if array.dtype.kind == "c" else float32)
    return array.astype(int64) if array.dtype.kind == "i" and isinstance(first, int) else array


def common_device(name: str, tensors: list[Tensor]) -> str:
    """The device all tensors are on, or the context's for none; DeviceError for two, and for one
    that is absent."""
    if not tensors:
        get_device(current().device_target)
        return current().device_target
    device = tensors[0].device
    for tensor in tensors:
        if tensor.device != device:
            raise two_devices(name, device, tensor.device)
    return device


def two_devices(name: str, device: str, other: str) -> DeviceError:
    """The error for a call with tensors on two devices, of which it knows the second."""
    error = DeviceError(
        f"{name} got tensors on two devices, {device} and {other}; move one with .to({device!r})"
    )
    error.other = other
    return error


def _restore(array: Array, device: str) -> Tensor:
    return Tensor(array, device=device)


hints.refuse_calls(__name__, "is a module; the class in it is ml.Tensor(data)")
