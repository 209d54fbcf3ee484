"""Primitives made of functions: NumPy's, C's, or a text in CUDA C."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Iterable
from itertools import count
from typing import Any, ClassVar

import numpy as np

from ..backends.expressions.functions import C_WORDS
from ..backends.expressions.table import WORDS
from ..backends.foreign import CFunction, c_kernel, numpy_kernel
from ..backends.registry import elementwise_kernel, forget, kernel
from ..backends.signature import Signature, parse
from ..bprop import bprop_getters
from ..dtype import as_dtype
from ..errors import DeclarationError, DuplicateError
from ..location import user_location
from ..primitive import Primitive, primitives
from ..signatures import SELF

__all__ = ["custom"]

_PLAIN = inspect.Parameter.POSITIONAL_OR_KEYWORD


def custom(
    fn: Callable[..., Any] | None = None,
    shape: Any = None,
    dtype: Any = None,
    bprop: Callable[..., tuple[Any, ...]] | None = None,
    cuda: str | None = None,
    *,
    outputs: int = 1,
    signature: str | None = None,
    name: str | None = None,
) -> Primitive:
    """A primitive made of a function: a Python one of arrays, one in a C library, or CUDA C.

    fn: a NumPy function of arrays that returns an array, or a tuple of `outputs` arrays; or a C
    function (of ctypes) `void f(const float *x, ..., float *out, ..., int64_t x_size, ...)` that is
    given the addresses of inputs and outputs in row-major order, then their element counts.
    shape, dtype: of the output, or for several a tuple of them; a value, or a function of the
    inputs' shapes, or dtypes. By default they are those of the first input.
    bprop: `bprop(*inputs, out, dout)` gives a tuple with a gradient for each input, or None.
    cuda: a C expression for one element in the names of the inputs, such as "x * x"; it also joins
    fused code on the CPU. For another kernel, `ml.raw_kernel(op.name, ...)`.
    signature: the dtypes that fn takes and gives, such as "ff->f"; a C function needs it.
    name: of the primitive, by default that of fn; defining one again replaces it.

    DeclarationError where these contradict each other, DuplicateError for a name that is taken;
    when it runs, ShapeError or DTypeError if fn returns something else than the rules say.

    >>> def square(x):
    ...     return x * x
    >>> op = custom(square, bprop=lambda x, out, dout: (2.0 * x * dout,), cuda="x * x")
    >>> op(3.0)
    Tensor(9., shape=(), dtype=float32)
    """
    parsed = None if signature is None else parse(signature)
    inputs = _inputs(fn, (shape, dtype), parsed, cuda)
    chosen = _name(fn, name)
    if chosen in primitives:
        forget(chosen)
        bprop_getters.unregister(primitives[chosen])
    body = {
        "__module__": sys._getframe(1).f_globals.get("__name__", "custom"),  # what to import
        "__doc__": getattr(fn, "__doc__", None),
        "_fn": staticmethod(fn) if fn else None,
        "outputs": ("out",) if outputs == 1 else tuple(f"out{i}" for i in range(outputs)),
        "infer_shape": _rule("shape", shape, inputs, outputs),
        "infer_dtype": _rule(
            "dtype", dtype if callable(dtype) else _dtypes(dtype), inputs, outputs
        ),
    }
    made: type[_OfFunction] = type(chosen, (_OfFunction,), body)
    made.defined_at = str(user_location() or made.defined_at)
    try:
        _register(made, fn, parsed, inputs, bprop, cuda)
    except DeclarationError:
        del primitives[chosen]
        forget(chosen)
        raise
    return made()


class _OfFunction(Primitive, abstract=True):
    """A primitive that `custom` made; found again, when it is unpickled, by its name."""

    _fn: ClassVar[Callable[..., Any] | None] = None

    def __reduce__(self) -> tuple[Any, ...]:
        return _found, (self.name, type(self)._fn)


def _found(name: str, fn: Any) -> Primitive:
    """The primitive of a function that is importable, and so has been imported by now."""
    cls = primitives.get(name)
    if cls is None or not issubclass(cls, _OfFunction):
        raise DeclarationError(
            f"{name} was pickled, and is not defined here; call ops.custom in the module of its "
            "function"
        )
    return cls()


def _name(fn: Any, name: str | None) -> str:
    """The name of the primitive: that of the function, unless another function has it."""
    plain = getattr(fn, "__name__", None)
    if plain == "<lambda>":
        plain = f"lambda_{fn.__code__.co_firstlineno}"
    chosen = base = name or plain
    if base is None:
        raise DeclarationError("custom got nothing that has a name; say name='...'")
    if name and name in primitives and not _again(primitives[name], fn):
        raise DuplicateError(
            f"primitive name {name!r} is taken, by what is defined at {primitives[name].defined_at}"
            "; use another name="
        )
    for number in count(2):
        if chosen not in primitives or _again(primitives[chosen], fn):
            break
        chosen = f"{base}_{number}"
    return str(chosen)


def _again(other: type[Primitive], fn: Any) -> bool:
    """True where the same function is defined again, as when a notebook cell runs twice; functions
    that the same code makes, such as closures, are different ones."""
    if not issubclass(other, _OfFunction):
        return False
    before = other._fn
    if before is fn:
        return True
    same = all(getattr(before, a, 0) == getattr(fn, a, 1) for a in ("__module__", "__qualname__"))
    old, new = getattr(before, "__code__", None), getattr(fn, "__code__", None)
    # Two lambdas may stand on one line: the same one, of a cell that ran again, has equal code.
    return same and old is not new and (fn.__name__ != "<lambda>" or old == new)


def _inputs(
    fn: Any, rules: tuple[Any, ...], signature: Signature | None, cuda: str | None
) -> list[inspect.Parameter]:
    """The inputs, by the first of these that names them: fn, a rule, the signature, the text."""
    for named in (fn, *rules):
        if callable(named) and not isinstance(named, (CFunction, np.dtype, type)):
            try:
                taken = inspect.signature(named).parameters.values()
            except ValueError:
                continue
            return [
                p.replace(kind=_PLAIN if p.kind is not p.VAR_POSITIONAL else p.kind)
                for p in taken
                if p.default is p.empty and p.kind not in (p.KEYWORD_ONLY, p.VAR_KEYWORD)
            ]
    if signature is not None:
        names: Iterable[str] = [f"x{i}" for i in range(len(signature.inputs))]
    elif cuda is not None:
        names = dict.fromkeys(w for w in WORDS.findall(cuda) if w not in C_WORDS)
    else:
        raise DeclarationError(
            f"custom got {fn!r}, which does not say what it takes; say signature='ff->f'"
        )
    return [inspect.Parameter(name, _PLAIN) for name in names]


def _rule(what: str, given: Any, inputs: list[inspect.Parameter], outputs: int) -> Any:
    """The inference rule: `given` as a function, as a constant, or like the first input."""
    single = outputs == 1
    if callable(given) and not isinstance(given, type):
        rule = given
        variadic = any(p.kind is p.VAR_POSITIONAL for p in inputs)
        try:
            inspect.signature(given).bind(*inputs) if not variadic else None
        except TypeError as error:
            raise DeclarationError(
                f"custom got {what}= as a function that does not take the inputs "
                f"{', '.join(p.name for p in inputs)}: {error}"
            ) from None
    elif given is not None:
        rule = _constantly(given)
    elif inputs:
        rule = _first if single else lambda *xs: (xs[0],) * outputs
    else:
        raise DeclarationError(f"custom got a function without inputs; say {what}=")

    def infer(self: Primitive, *xs: Any) -> Any:
        return rule(*xs)

    infer.__signature__ = inspect.Signature([SELF, *inputs])  # type: ignore[attr-defined]
    return infer


def _first(*xs: Any) -> Any:
    return xs[0]


def _constantly(value: Any) -> Callable[..., Any]:
    return lambda *xs: value


def _dtypes(given: Any) -> Any:
    """A rule as it is; constant dtypes as those of miniml."""
    if callable(given) and not isinstance(given, type):
        return given
    if isinstance(given, (tuple, list)):
        return tuple(map(as_dtype, given))
    return None if given is None else as_dtype(given)


def _register(
    made: type[_OfFunction],
    fn: Any,
    signature: Signature | None,
    inputs: list[inspect.Parameter],
    bprop: Callable[..., tuple[Any, ...]] | None,
    cuda: str | None,
) -> None:
    """The kernels and the gradient of a class."""
    name, count = made.name, len(inputs)
    repeats = any(p.kind is p.VAR_POSITIONAL for p in inputs)
    if isinstance(fn, CFunction):
        if signature is None:
            raise DeclarationError(f"{name} is a C function; say signature=, such as 'f->f'")
        kernel(name, "cpu", signature)(c_kernel(name, fn, signature))
    elif fn is not None:
        anything = f"{'.' * count}{'*' * repeats}->{'.' * len(made.outputs)}"
        kernel(name, "cpu", signature or anything)(numpy_kernel(name, fn, made._single))
    if cuda is not None:
        each = [signature] if signature else [f"{c * count}->{c}" for c in "fd"]
        elementwise_kernel(name, cuda, *each)
    if bprop is not None:
        bprop_getters.register(made)(_getter(bprop))


def _getter(bprop: Callable[..., tuple[Any, ...]]) -> Callable[[Primitive], Any]:
    def get(self: Primitive) -> Any:
        return bprop

    get.__wrapped__ = bprop  # type: ignore[attr-defined]  # for who wants to see its source
    return get
