"""Custom operators: `Custom`, known by its type's name, and `custom`, primitives from functions.

In order: `Custom`, whose attributes are named byte strings; `custom`, which makes a primitive of a
NumPy function, a C function or a CUDA C expression, and the kernels that call such functions;
packing of attributes as bytes, and back.
"""

from __future__ import annotations

import ctypes
import inspect
import re
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import count
from math import prod
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from ..backends.expressions import C_WORDS, WORDS, unknown_calls
from ..backends.registry import elementwise_kernel, kernel, redefinition
from ..core.abstract import Abstract, Shape, Signature, as_dtype, canonical, parse
from ..core.bprop import bprop_getters
from ..core.errors import (
    AttributeRefusedError,
    DeclarationError,
    DTypeError,
    DuplicateError,
    ShapeError,
)
from ..core.primitive import SELF, Primitive, PrimitiveWithCheck, primitives
from ..core.scope import user_location
from ..ops.checks import Tensor, as_shape, function

__all__ = [
    "Custom", "pack_attribute", "unpack_attribute",
    "custom",
]  # fmt: skip


_TYPE = re.compile(r"[\w.:/-]{1,200}")


class Custom(PrimitiveWithCheck, abstract=True):
    """An operator given by data alone: the name of its type, and byte strings by name.

    Its name elsewhere is `type`: `@kernel(type, ...)`, `@infer_rule(type)` and
    `bprop_getters.register(type)` register for it as for any primitive. A function kernel, and the
    rule, get those attributes by keyword that they name, as bytes; `self.attributes` and
    `node.attrs` hold all. `unpack_attribute` reads them, `pack_attribute` makes them.

    outputs: their number; or their types, each with a shape and a dtype (such as a Tensor), from
    which this instance is inferred. Without these and without a rule, one output has the
    shape and dtype of the first input; several are refused with DeclarationError when it is called.
    AttributeRefusedError for other types and attributes than these, DuplicateError where a
    primitive has the name already.

    >>> add = Custom("Doc_AddN", {"input_num": pack_attribute(3, "<i4")})
    >>> add
    Custom('Doc_AddN', {'input_num': b'\\x03\\x00\\x00\\x00'})
    >>> unpack_attribute(add.attributes, "input_num", "<i4")
    3
    """

    outputs = "*outs"
    if TYPE_CHECKING:
        attributes: dict[str, bytes]

        def __call__(self, *xs: Any) -> Tensor: ...

    def __new__(cls, type: str, *_: Any, **__: Any) -> Custom:
        return object.__new__(_class_of(type))

    def __init__(
        self, type: str, attrs: Mapping[str, bytes] | None = None, outputs: int | Sequence[Any] = 1
    ):
        count, types = _declared(type, outputs)
        given = _mapping(type, attrs)
        values = {k: _bytes(type, k, given[k]) for k in sorted(given, key=str)}
        names = ("out",) if count == 1 else tuple(f"out{i}" for i in range(count))
        key = self.__class__, tuple(values.items()), count, types
        self.__dict__.update(
            attributes=values, outputs=names, _single=count == 1, _types=types, _key=key,
            _hash=hash(key),
        )  # fmt: skip

    __init__._miniml_classic = True  # type: ignore[attr-defined]  # attributes are the instance's

    def check_shape(self, *xs: Shape) -> None:
        """Accept any inputs: nothing is known about them."""

    def __getattr__(self, name: str) -> Any:
        if name in self.__dict__.get("attributes", ()):
            return self.attributes[name]
        return super().__getattr__(name)

    def __repr__(self) -> str:
        outputs = "" if self._declared == 1 else f", outputs={self._declared}"
        return f"Custom({self.name!r}, {self.attributes!r}{outputs})"

    def with_attributes(self, values: dict[str, bytes]) -> Custom:
        return Custom(self.name, values, self._declared)

    def __reduce__(self) -> tuple[Any, ...]:
        return Custom, (self.name, self.attributes, self._declared)

    @property
    def _declared(self) -> int | tuple[Abstract, ...]:
        return len(self.outputs) if self._types is None else self._types


def _class_of(type_: Any) -> type[Custom]:
    """The one class of all operators of a type, so that lookups by class and by name agree."""
    known = primitives.get(type_) if isinstance(type_, str) else None
    if known is not None and issubclass(known, Custom):
        return known
    if known is not None:
        raise DuplicateError(
            f"Custom type {type_!r} is taken by the primitive {known.__module__}."
            f"{known.__qualname__}, defined at {known.defined_at}; call that, or use another type"
        )
    if not isinstance(type_, str) or not _TYPE.fullmatch(type_):
        raise AttributeRefusedError(
            f"Custom got the type {type_!r:.200}; it is a name of letters, digits and _ . : / -, "
            "at most 200"
        )
    body = {"__qualname__": Custom.__qualname__, "__doc__": f"The custom operator {type_!r}."}
    made: type[Custom] = type(type_, (Custom,), body)
    made.defined_at = str(user_location() or made.defined_at)
    return made


def _declared(type_: str, outputs: Any) -> tuple[int, tuple[Abstract, ...] | None]:
    """The number of outputs, and their types if these are given."""
    if isinstance(outputs, (tuple, list)):
        return len(outputs), tuple(map(_typed, outputs))
    if not isinstance(outputs, int) or isinstance(outputs, bool) or outputs < 0:
        raise AttributeRefusedError(
            f"{type_} got outputs={outputs!r:.200}; give their number, or a list with a value of "
            "the shape and dtype of each"
        )
    return outputs, None


def _typed(given: Any) -> Abstract:
    """The shape and dtype of an output, declared by a value that has both."""
    shape, dtype = getattr(given, "shape", None), getattr(given, "dtype", None)
    if not isinstance(shape, tuple) or not isinstance(dtype, np.dtype):
        raise AttributeRefusedError(
            f"Custom got outputs with {given!r:.200}; give their number, or a value with a shape "
            "and a dtype for each"
        )
    return Abstract(shape, canonical(dtype))


def _mapping(type_: str, attrs: Any) -> Mapping[Any, Any]:
    """The attributes by name, checked; empty for None."""
    if attrs is not None and not isinstance(attrs, Mapping):
        raise AttributeRefusedError(
            f"{type_} got the attributes {attrs!r:.200}; give bytes by name, as in "
            "{'input_num': b'\\x03\\x00'}"
        )
    return attrs or {}


def _bytes(type_: str, name: Any, value: Any) -> bytes:
    if not isinstance(name, str) or not name or name == "out":
        raise AttributeRefusedError(
            f"{type_} got an attribute named {name!r}; a name is a string, and not 'out', which "
            "kernels fill"
        )
    if not isinstance(value, (bytes, bytearray, memoryview)):
        raise AttributeRefusedError(
            f"{type_} got attribute {name}={value!r:.200} of type {type(value).__name__}; its "
            "attributes are bytes: ops.pack_attribute(value, '<i4') packs numbers, with str a text"
        )
    return bytes(value)


# --- Primitives made of a function ----------------------------------------------------------------


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
    cuda: a C expression for one element in the names of the inputs, such as "x * x"; those of a C
    function are x0, x1 and so on. It also joins fused code on the CPU. For another kernel,
    `ml.raw_kernel(op.name, ...)`.
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
    if type(outputs) is not int or outputs < 1 or not isinstance(name, str | None):
        raise DeclarationError(
            f"custom got outputs={outputs!r} and name={name!r}; they are an int from 1 on, and a "
            "string"
        )
    if bprop is not None:
        function("custom", "bprop", bprop)
    parsed = None if signature is None else parse(signature)
    inputs = _inputs(fn, (shape, dtype), parsed, cuda)
    chosen = _name(fn, name)
    body = {
        "__module__": sys._getframe(1).f_globals.get("__name__", "custom"),  # for unpickling
        "__doc__": getattr(fn, "__doc__", None),
        "_fn": staticmethod(fn) if fn else None,
        "outputs": ("out",) if outputs == 1 else tuple(f"out{i}" for i in range(outputs)),
        "infer_shape": _rule("shape", shape, inputs, outputs),
        "infer_dtype": _rule(
            "dtype", dtype if callable(dtype) else _dtypes(dtype), inputs, outputs
        ),
    }
    return _defined(chosen, body, fn, parsed, inputs, bprop, cuda)()


class _OfFunction(Primitive, abstract=True):
    """A primitive that `custom` made; unpickling finds it by its name."""

    _fn: ClassVar[Callable[..., Any] | None] = None

    def __reduce__(self) -> tuple[Any, ...]:
        return _found, (self.name, type(self)._fn)


def _found(name: str, fn: Any) -> Primitive:
    """The pickled primitive of this name; the module of its function, imported by now, made it."""
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
    """True if `fn` redefines the function of `other`, as when a notebook cell runs twice; closures
    that the same code makes are different functions."""
    if not issubclass(other, _OfFunction):
        return False
    before = other._fn
    if before is fn:
        return True
    same = all(getattr(before, a, 0) == getattr(fn, a, 1) for a in ("__module__", "__qualname__"))
    old, new = getattr(before, "__code__", None), getattr(fn, "__code__", None)
    # Two lambdas may be on one line: the same one, of a cell that ran again, has equal code.
    return same and old is not new and (fn.__name__ != "<lambda>" or old == new)


def _inputs(
    fn: Any, rules: tuple[Any, ...], signature: Signature | None, cuda: str | None
) -> list[inspect.Parameter]:
    """The inputs, from the first of these that names them: fn, a rule, the signature, `cuda`."""
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
        own = {*C_WORDS, *unknown_calls(cuda)}
        names = dict.fromkeys(w for w in WORDS.findall(cuda) if w not in own)
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
        rule = lambda *xs: given  # noqa: E731
    elif inputs:
        rule = lambda *xs: xs[0] if single else (xs[0],) * outputs  # noqa: E731
    else:
        raise DeclarationError(f"custom got a function without inputs; say {what}=")

    def infer(self: Primitive, *xs: Any) -> Any:
        return rule(*xs)

    infer.__signature__ = inspect.Signature([SELF, *inputs])  # type: ignore[attr-defined]
    return infer


def _dtypes(given: Any) -> Any:
    """Constant dtypes as those of miniml."""
    if isinstance(given, (tuple, list)):
        return tuple(map(as_dtype, given))
    return None if given is None else as_dtype(given)


def _defined(name: str, body: dict[str, Any], *given: Any) -> type[_OfFunction]:
    """The class, with its kernels; a refused one leaves what had the name as it was."""
    before = primitives.get(name)
    with redefinition(name, again=before is not None):
        try:
            made: type[_OfFunction] = type(name, (_OfFunction,), body)
            made.defined_at = str(user_location() or made.defined_at)
            _register(made, *given)
        except Exception:
            primitives.pop(name, None)
            if before is not None:
                primitives[name] = before
            raise
    if before is not None:
        bprop_getters.unregister(before)
    return made


def _register(
    made: type[_OfFunction],
    fn: Any,
    signature: Signature | None,
    inputs: list[inspect.Parameter],
    bprop: Callable[..., tuple[Any, ...]] | None,
    cuda: str | None,
) -> None:
    """Register the kernels and the gradient of a class."""
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

    get.__wrapped__ = bprop  # type: ignore[attr-defined]  # inspect finds its source
    return get


# --- Functions as kernels of the CPU --------------------------------------------------------------


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
        if isinstance(kind, type) and issubclass(kind, _POINTER) and np.dtype(kind._type_) != dtype:
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


# --- Packed attributes ----------------------------------------------------------------------------


def pack_attribute(value: Any, kind: Any) -> bytes:
    """The bytes of an attribute: of numbers in the dtype `kind`, or of a text if kind is str.

    Numbers may be a scalar or nested sequences, kept in row-major order and without their shape.
    Byte order is little-endian unless the dtype says '>'; text is UTF-8. AttributeRefusedError for
    numbers that the dtype cannot hold.

    >>> pack_attribute(3, "<i4"), pack_attribute((1, 2), "u1"), pack_attribute("sum", str)
    (b'\\x03\\x00\\x00\\x00', b'\\x01\\x02', b'sum')
    """
    if kind is str and isinstance(value, str):
        return value.encode()
    dtype = _fixed(kind)
    try:
        given = np.asarray(value)
        with np.errstate(over="ignore"):
            packed = given.astype(dtype)
        lost = given.dtype.kind not in "biuf" or (
            dtype.kind in "biu" and not np.array_equal(packed, given)
        )
    except (TypeError, ValueError, OverflowError):
        lost = True
    if lost:
        raise AttributeRefusedError(f"pack_attribute got {value!r:.200}; {kind} cannot hold it")
    return packed.tobytes()


def unpack_attribute(
    attributes: Mapping[str, bytes], name: str, kind: Any, shape: tuple[int, ...] = ()
) -> Any:
    """The attribute `name` as numbers of the dtype `kind`, or as text if kind is str.

    attributes: those of a primitive or a node. shape: of the numbers, given as nested tuples; one
    -1 in it stands for as many as there are; () is one number. AttributeRefusedError, with the
    attribute, the bytes it has and those expected, unless they agree exactly.

    >>> unpack_attribute({"pads": b"\\x01\\x02\\x03\\x04"}, "pads", "u1", (-1, 2))
    ((1, 2), (3, 4))
    """
    if not isinstance(attributes, Mapping):
        raise AttributeRefusedError(
            f"unpack_attribute got {attributes!r:.200}; give the attributes of a primitive or a "
            "node, bytes by name"
        )
    if str(name) not in attributes:
        raise AttributeRefusedError(
            f"attribute {name!r} is missing; there are {', '.join(map(str, attributes)) or 'none'}"
        )
    data = _bytes("unpack_attribute", name, attributes[name])
    shape = as_shape(shape, "unpack_attribute")
    if kind is str:
        try:
            return data.decode()
        except UnicodeDecodeError as error:
            raise AttributeRefusedError(f"attribute {name!r} is no UTF-8 text: {error}") from None
    dtype = _fixed(kind)
    known = prod([n for n in shape if n >= 0]) * dtype.itemsize
    # Beside an extent of 0, -1 could stand for any number.
    fits = known and len(data) % known == 0 if -1 in shape else len(data) == known
    if not fits or shape.count(-1) > 1 or min(shape, default=0) < -1:
        expected = f"a multiple of {known}" if -1 in shape else str(known)
        raise AttributeRefusedError(
            f"attribute {name!r} has {len(data)} bytes; expected {expected}, for {dtype.name} of "
            f"shape {shape}"
        )
    return _tuples(np.frombuffer(data, dtype).reshape(shape).tolist())


def _fixed(kind: Any) -> np.dtype[Any]:
    """The dtype with a fixed byte order, little-endian unless it says otherwise."""
    try:
        dtype: np.dtype[Any] = np.dtype(kind)
        canonical(dtype)
    except (TypeError, ValueError):
        raise AttributeRefusedError(
            f"an attribute got the kind {kind!r:.200}; give a dtype, such as '<i4', or str"
        ) from None
    if dtype.byteorder != ">":
        dtype = dtype.newbyteorder("<")
    return dtype


def _tuples(value: Any) -> Any:
    return tuple(map(_tuples, value)) if isinstance(value, list) else value
