"""The operators and methods of tensors; each is one call of `ops`."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from inspect import isfunction
from typing import TYPE_CHECKING, Any

import numpy as np

from . import ops
from .errors import DTypeError
from .hints import unknown
from .ops.inference.shapes import normal_axis

if TYPE_CHECKING:
    from .tensor import Tensor

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
}  # fmt: skip


def _call(name: str) -> Callable[..., Tensor]:
    """The bound `__call__` of that function of `ops`. Bound once: looking up an object's `__call__`
    takes about as long as NumPy takes to add two small arrays."""
    function = getattr(ops, name)
    return function if isfunction(function) else function.__call__


# fmt: off
_add, _sub, _mul, _div, _pow = map(_call, ("add", "sub", "mul", "div", "pow"))
_floor_div, _mod, _matmul, _getitem = map(_call, ("floor_div", "mod", "matmul", "getitem"))
_neg, _abs, _logical_not = map(_call, ("neg", "abs", "logical_not"))
_logical_and, _logical_or, _logical_xor = map(_call, ("logical_and", "logical_or", "logical_xor"))
_equal, _not_equal, _less = map(_call, ("equal", "not_equal", "less"))
_less_equal, _greater, _greater_equal = map(_call, ("less_equal", "greater", "greater_equal"))
# fmt: on


class Operators:
    """What `+`, `[]`, `.sum()` and NumPy's functions mean on a tensor."""

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
    def __invert__(self) -> Tensor: return _logical_not(self)
    def __and__(self, other: Any) -> Tensor: return _logical_and(self, other)
    def __rand__(self, other: Any) -> Tensor: return _logical_and(other, self)
    def __or__(self, other: Any) -> Tensor: return _logical_or(self, other)
    def __ror__(self, other: Any) -> Tensor: return _logical_or(other, self)
    def __xor__(self, other: Any) -> Tensor: return _logical_xor(self, other)
    def __rxor__(self, other: Any) -> Tensor: return _logical_xor(other, self)
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

    @property
    def T(self) -> Tensor:
        """All axes reversed."""
        return ops.transpose(self, tuple(reversed(range(len(self.shape)))))

    def astype(self, dtype: object) -> Tensor:
        """The same values in another dtype."""
        return ops.cast(self, dtype)

    def reshape(self, *shape: Any) -> Tensor:
        """The same elements in another shape; one extent may be -1."""
        return ops.reshape(self, shape[0] if len(shape) == 1 else shape)

    def transpose(self, *axes: Any) -> Tensor:
        """The axes in another order, reversed by default."""
        order = axes[0] if len(axes) == 1 and not isinstance(axes[0], int) else axes
        return ops.transpose(self, order or tuple(reversed(range(len(self.shape)))))

    def flatten(self, start_dim: int = 0, end_dim: int = -1) -> Tensor:
        """The axes start_dim to end_dim, both included, as one; by default all of them."""
        shape = self.shape or (1,)
        start, end = (normal_axis("flatten", axis, len(shape)) for axis in (start_dim, end_dim))
        merged = math.prod(shape[start : end + 1])
        return ops.reshape(self, (*shape[:start], merged, *shape[max(start, end) + 1 :]))

    squeeze = ops.squeeze
    sum, mean, prod, max, min = ops.sum, ops.mean, ops.prod, ops.max, ops.min
    argmax = ops.argmax
