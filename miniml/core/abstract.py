"""Types of values, known before an array exists: dtypes, abstract values and memory formats.

First the dtypes by name, and the lattice in which they are promoted; then abstract values, which
have a shape, a dtype and perhaps the value; the memory formats, the orders in which images
(N, C, H, W) may lie in memory; last what kernels see of this: arrays, and signatures, the dtypes
that a kernel takes and gives, as "ff->f" or spelt out in a KernelAttr.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import cache, reduce
from math import prod
from typing import Any, ClassVar, NamedTuple, TypeVar

import ml_dtypes
import numpy as np

from .errors import DeclarationError, DTypeError, ShapeError

# --- Dtypes ---------------------------------------------------------------------------------------


DType = np.dtype[Any]

bool_: DType = np.dtype(np.bool_)
int8: DType = np.dtype(np.int8)
int16: DType = np.dtype(np.int16)
int32: DType = np.dtype(np.int32)
int64: DType = np.dtype(np.int64)
uint8: DType = np.dtype(np.uint8)
uint16: DType = np.dtype(np.uint16)
uint32: DType = np.dtype(np.uint32)
uint64: DType = np.dtype(np.uint64)
float16: DType = np.dtype(np.float16)
bfloat16: DType = np.dtype(ml_dtypes.bfloat16)
float32: DType = np.dtype(np.float32)
float64: DType = np.dtype(np.float64)
complex64: DType = np.dtype(np.complex64)
complex128: DType = np.dtype(np.complex128)

SIGNED = (int8, int16, int32, int64)
UNSIGNED = (uint8, uint16, uint32, uint64)
INTEGERS = SIGNED + UNSIGNED
HALVES = (float16, bfloat16)
FLOATS = (*HALVES, float32, float64)
COMPLEX = (complex64, complex128)
REAL = (bool_, *INTEGERS, *FLOATS)
ALL = (*REAL, *COMPLEX)
_FLOATS = frozenset(FLOATS)
_INEXACT = frozenset((*FLOATS, *COMPLEX))

# NumPy's type codes; bfloat16 has the one ml_dtypes gave it. 'l' and 'q' are both int64 here.
_BY_CODE = {c: np.dtype(c) for c in "?bhilqBHILQefdFD"} | {bfloat16.char: bfloat16}
_SCALARS: dict[type, DType] = {bool: bool_, int: int64, float: float32, complex: complex64}
_NAMES = {d.name: d for d in ALL}
# Python's types by name are those types: NumPy's "float" is float64, and here float is float32.
_SPELLINGS = _NAMES | {kind.__name__: d for kind, d in _SCALARS.items()}


def from_type_code(type_code: str) -> DType:
    """The dtype of one NumPy type code, as signatures spell it."""
    try:
        return _BY_CODE[type_code]
    except KeyError:
        raise DTypeError(
            f"type code {type_code!r} is unknown; known are {' '.join(_BY_CODE)}"
        ) from None


def type_code(dtype: DType) -> str:
    """The type code of a dtype, one spelling each ('l' for int64)."""
    return dtype.char if dtype is not int64 else "l"


def as_dtype(spec: object) -> DType:
    """The miniml dtype of a NumPy dtype, scalar type, Python type or name.

    bool, int, float and complex, as types and as names, mean bool, int64, float32 and complex64.
    Raises DTypeError for anything that miniml does not compute with: strings, objects, dates, long
    doubles.

    >>> as_dtype("bfloat16"), as_dtype(float), as_dtype("float")
    (dtype(bfloat16), dtype('float32'), dtype('float32'))
    """
    if isinstance(spec, np.dtype):
        return canonical(spec)
    if isinstance(spec, type) and spec in _SCALARS:
        return _SCALARS[spec]
    if isinstance(spec, str) and spec in _SPELLINGS:
        return _SPELLINGS[spec]
    try:
        if spec is None:  # NumPy's default, float64, is not miniml's
            raise TypeError
        dtype = np.dtype(spec)  # type: ignore[call-overload]
    except (TypeError, ValueError):
        shape = "; a shape is one tuple, as in (2, 3)" if isinstance(spec, int) else ""
        raise DTypeError(
            f"dtype {spec!r} is unknown; use one of {', '.join(_NAMES)}{shape}"
        ) from None
    return canonical(dtype)


@cache
def canonical(dtype: DType) -> DType:
    """The one dtype object that stands for `dtype` in every table (byte order, l and q unified)."""
    found = _NAMES.get(dtype.name)
    if found is None:
        raise DTypeError(f"dtype {dtype} is not supported; use one of {', '.join(_NAMES)}")
    return found


def is_float(dtype: DType) -> bool:
    """True for the floats, which are real numbers."""
    return dtype in _FLOATS


def wide(dtype: DType) -> DType:
    """The dtype in which sums and updates of floats are computed: float32 for those of 16 bits."""
    return float32 if dtype in HALVES else dtype


def is_complex(dtype: DType) -> bool:
    """True for complex64 and complex128."""
    return dtype in COMPLEX


def is_inexact(dtype: DType) -> bool:
    """True for the dtypes that carry gradients: floats and complex numbers."""
    return dtype in _INEXACT


def real_dtype(dtype: DType) -> DType:
    """The float dtype of the real and imaginary parts of a complex one; another one itself.

    >>> real_dtype(complex64), real_dtype(float64)
    (dtype('float32'), dtype('float64'))
    """
    return {complex64: float32, complex128: float64}.get(dtype, dtype)


def complex_dtype(dtype: DType) -> DType:
    """The complex dtype whose parts hold numbers of this one: complex128 for float64 and
    complex128, complex64 for others, as integers are cast to float32."""
    return complex128 if dtype in (float64, complex128) else complex64


@cache
def holds(wide: DType, narrow: DType) -> bool:
    """True when every value of dtype `narrow` is one of dtype `wide`.

    False is 0 and True is 1. A float holds the integers whose binary digits it has all of, a
    complex number what its parts hold.

    >>> holds(bfloat16, uint8), holds(float64, int64), holds(float16, bfloat16)
    (True, False, False)
    """
    if narrow in (wide, bool_):
        return True
    if is_complex(wide):
        return holds(real_dtype(wide), real_dtype(narrow))
    if not is_float(wide) or is_complex(narrow):
        return not is_inexact(narrow) and bool(np.can_cast(narrow, wide, "safe"))
    if is_float(narrow):
        return narrow.itemsize < wide.itemsize
    digits = 8 * narrow.itemsize - (narrow in SIGNED)
    return digits <= int(ml_dtypes.finfo(wide).nmant) + 1  # type: ignore[no-untyped-call]


def scalar_dtype(value: object, beside: tuple[DType, ...] = ()) -> DType:
    """The dtype a weak Python scalar takes beside tensors of the given dtypes.

    A scalar has only a class (bool < int < float < complex). It takes the promoted dtype of the
    tensors when that is of its class or a higher one, and the default dtype of its own class
    otherwise; a complex one beside float64 is complex128.

    >>> scalar_dtype(2.0, (float16,)), scalar_dtype(2.0, (int32,)), scalar_dtype(2, (bool_,))
    (dtype('float16'), dtype('float32'), dtype('int64'))
    >>> scalar_dtype(2j, (float64,)), scalar_dtype(2j, (int64,))
    (dtype('complex128'), dtype('complex64'))
    """
    own = next((d for kind, d in _SCALARS.items() if isinstance(value, kind)), float32)
    if not beside:
        return own
    joined = promote(*beside)
    if _rank(joined) >= _rank(own):
        return joined
    return complex_dtype(joined) if is_complex(own) else own


def _rank(dtype: DType) -> int:
    if is_inexact(dtype):
        return 3 if is_complex(dtype) else 2
    return 0 if dtype == bool_ else 1


@cache
def promote(*dtypes: DType) -> DType:
    """The least dtype above all of `dtypes` in miniml's lattice.

    bool < integers < floats < complex. Integers promote as in NumPy; an integer beside a float
    takes the float's dtype, as in PyTorch and JAX; float16 and bfloat16, neither of which holds the
    other, meet in float32; complex128 is above float64 and complex64, and complex64 above all
    others. uint64 beside a signed integer has no integer above it and is refused.

    >>> promote(bfloat16, float16), promote(int64, float16), promote(uint8, int8)
    (dtype('float32'), dtype('float16'), dtype('int16'))
    """
    if any(map(is_complex, dtypes)):
        return complex128 if complex128 in map(complex_dtype, dtypes) else complex64
    floats = [d for d in dtypes if is_float(d)]
    if floats:
        return reduce(_join_floats, floats)
    joined = reduce(np.promote_types, dtypes)
    if joined.kind == "f":
        names = ", ".join(sorted({d.name for d in dtypes}))
        raise DTypeError(f"{names} have no common integer dtype; cast one of them first")
    return canonical(joined)


def _join_floats(a: DType, b: DType) -> DType:
    if a == b:
        return a
    if {a, b} == {float16, bfloat16}:
        return float32
    return a if a.itemsize > b.itemsize else b


# --- Abstract values ------------------------------------------------------------------------------


Shape = tuple[int, ...]


@dataclass(frozen=True, eq=False, slots=True)
class Abstract:
    """A typed shape, such as float32[2, 3]; `value` is the array when it is a constant.

    `format` names the memory format ("NHWC") of images (N, C, H, W) in a lowered graph; None is
    row-major order.
    """

    shape: Shape
    dtype: DType
    value: np.ndarray[Any, Any] | None = None
    format: str | None = None

    @property
    def size(self) -> int:
        """The number of elements."""
        count = 1
        for n in self.shape:
            count *= n
        return count

    @property
    def stored(self) -> Shape:
        """The shape of the array that holds it in its memory format."""
        return self.shape if self.format is None else stored(self.shape, self.format)

    @property
    def nbytes(self) -> int:
        """The number of bytes of that array, dense."""
        if self.format is not None:
            return prod(self.stored) * self.dtype.itemsize
        return self.size * self.dtype.itemsize

    @property
    def ndim(self) -> int:
        """The number of axes."""
        return len(self.shape)

    def key(self) -> tuple[object, ...]:
        """The identity of an abstract value; constants count by their bytes."""
        value = None if self.value is None else self.value.tobytes()
        return self.shape, self.dtype, value, self.format

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Abstract) and self.key() == other.key()

    def __hash__(self) -> int:
        return hash(self.key())

    def __str__(self) -> str:
        return typed(self) if self.format is None else f"{typed(self)} {self.format}"


class Kind:
    """Everything about a tensor but its elements: its class, type and device.

    Compared by identity: `Kind.of` gives one object for all tensors of a kind, as long as it is
    cached.
    """

    __slots__ = ("abstract", "device", "is_inexact")
    _known: ClassVar[dict[tuple[object, ...], Kind]] = {}
    _LIMIT: ClassVar[int] = 4096

    def __init__(self, abstract: Abstract, device: str):
        self.abstract, self.device = abstract, device
        self.is_inexact = is_inexact(abstract.dtype)

    @staticmethod
    def of(kind: type, shape: Shape, dtype: DType, device: str) -> Kind:
        """The kind of the tensors of a class, shape, dtype and device."""
        key = kind, shape, dtype, device
        found = Kind._known.get(key)
        if found is None:
            if len(Kind._known) >= Kind._LIMIT:
                Kind._known.clear()
            found = Kind(Abstract(shape, canonical(dtype)), device)
            Kind._known[key] = found
        return found


def broadcast(name: str, *shapes: Shape) -> Shape:
    """The shape that all of `shapes` broadcast to, by NumPy's rule; ShapeError naming them."""
    if len(set(shapes)) == 1:
        return tuple(shapes[0])
    try:
        return tuple(np.broadcast_shapes(*shapes))
    except ValueError:
        got = " and ".join(map(str, shapes))
        raise ShapeError(
            f"{name} cannot broadcast shapes {got}; axes are matched from the last, and two "
            "extents must be equal or one of them 1"
        ) from None


def typed(value: Any) -> str:
    """The name in messages of anything that has a dtype and a shape: float32[2, 3]."""
    return f"{value.dtype.name}{list(value.shape)}"


def listed(values: Iterable[Any]) -> str:
    """The names of several, as `typed` gives them: int64[], float32[2, 3]; "nothing" for none."""
    return ", ".join(map(typed, values)) or "nothing"


# --- Memory formats -------------------------------------------------------------------------------


PLAIN = "NCHW"


class Format(NamedTuple):
    """order: the axes of images, the outermost in memory first. block: so many channels lie
    together innermost, the last ones beside zeros; 0 for none."""

    order: tuple[int, int, int, int]
    block: int = 0


FORMATS = {
    PLAIN: Format((0, 1, 2, 3)),
    "NHWC": Format((0, 2, 3, 1)),
    "CHWN": Format((1, 2, 3, 0)),
    "NC16HW": Format((0, 1, 2, 3), 16),
}
OTHERS = tuple(f for f in FORMATS if f != PLAIN)


def known(name: object) -> bool:
    """True for the name of a format."""
    return isinstance(name, str) and name in FORMATS


def unknown(name: object) -> str:
    """The refusal of one that is not known."""
    return f"memory format {name!r} is unknown; the formats are {', '.join(FORMATS)}"


def stored(shape: Shape, name: str | None) -> Shape:
    """The shape of the array in memory that holds images of this shape.

    >>> stored((2, 20, 8, 9), "NHWC"), stored((2, 20, 8, 9), "NC16HW")
    ((2, 8, 9, 20), (2, 2, 8, 9, 16))
    """
    if name is None or name == PLAIN:
        return shape
    if len(shape) != 4:
        raise ShapeError(f"format {name} is for images (N, C, H, W); got shape {shape}")
    order, block = FORMATS[name]
    if block:
        return (shape[0], -(-shape[1] // block), *shape[2:], block)
    return tuple([shape[a] for a in order])


def moves(shape: Shape, source: str | None, target: str | None) -> bool:
    """True where images change their order in memory from one format to the other."""
    return source != target and _order(shape, source) != _order(shape, target)


def _order(shape: Shape, name: str | None) -> tuple[object, ...]:
    """The axes that have an extent, as they lie in memory; the block's among them."""
    order, block = FORMATS[name or PLAIN]
    axes: list[object] = [a for a in order if shape[a] != 1]
    if not block or (shape[1] % block == 0 and shape[2] * shape[3] == 1):
        return tuple(axes)
    return (*axes, shape[1])


Look = Callable[[Any], Any]  # from an array to a view of it


def images(name: str | None) -> Look:
    """From an array in a format without blocks to its images (N, C, H, W)."""
    order = FORMATS[name or PLAIN].order
    axes = tuple([order.index(a) for a in range(4)])
    return lambda array: array.transpose(axes)


def pairs(source: str | None, target: str | None, channels: int) -> list[tuple[Look, Look]]:
    """Views of arrays in two formats that show the same images; together they show all."""
    block = max(FORMATS[f or PLAIN].block for f in (source, target))
    if not block:
        return [(images(source), images(target))]
    halves = [_halves(f, channels, block) for f in (source, target)]
    some = channels // block, channels % block
    return [pair for pair, any_of in zip(zip(*halves, strict=True), some, strict=True) if any_of]


def _halves(name: str | None, channels: int, block: int) -> tuple[Look, Look]:
    """The whole blocks (N, C // block, block, H, W), and the channels left (N, C % block, H, W)."""
    whole, rest = channels // block, channels % block
    if FORMATS[name or PLAIN].block:
        return (
            lambda array: array.transpose(0, 1, 4, 2, 3)[:, :whole],
            lambda array: array.transpose(0, 1, 4, 2, 3)[:, -1, :rest],
        )
    seen = images(name)

    def blocks(array: Any) -> Any:
        x = seen(array)[:, : whole * block]
        return x.reshape(x.shape[0], whole, block, *x.shape[2:])

    return blocks, lambda array: seen(array)[:, whole * block :]


def padding(name: str | None, channels: int) -> Look | None:
    """The zeros beside the last channels, where there are any."""
    block = FORMATS[name or PLAIN].block
    if not block or channels % block == 0:
        return None
    return lambda array: array.transpose(0, 1, 4, 2, 3)[:, -1, channels % block :]


# --- Signatures -----------------------------------------------------------------------------------


class ArraySpec(NamedTuple):
    """Shape and dtype of one input or output of a node, as kernels see it.

    format: the memory format of images (N, C, H, W); None, as for most primitives always, is
    row-major order. The shape is that of the images; that of the array is `stored`.
    """

    shape: Shape
    dtype: DType
    format: str | None = None

    @property
    def stored(self) -> Shape:
        """The shape of the array."""
        return stored(self.shape, self.format)

    @property
    def size(self) -> int:
        """The number of elements of the array, as launch rules need it."""
        return prod(self.stored)

    @property
    def nbytes(self) -> int:
        """The bytes of the array."""
        return self.size * self.dtype.itemsize


Entries = tuple[DType | None, ...]
Formats = tuple[str | None, ...]
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Signature:
    """Dtypes of inputs and outputs; a repeated last entry stands for any number of them.

    None stands for any dtype, as in the kernels that run other graphs; it is spelt '.'. arranged:
    it names a memory format other than row-major order.
    """

    inputs: tuple[DType | None, ...]
    outputs: tuple[DType | None, ...]
    repeats_input: bool = False
    repeats_output: bool = False
    input_formats: tuple[str | None, ...] = ()
    output_formats: tuple[str | None, ...] = ()
    any_dtype: bool = field(init=False)
    arranged: bool = field(init=False)

    def __post_init__(self) -> None:
        # Not `None in`: to NumPy, float64 == None. So this is part of equality, too.
        free = any(d is None for d in (*self.inputs, *self.outputs))
        named = any(f not in (None, PLAIN) for f in (*self.input_formats, *self.output_formats))
        object.__setattr__(self, "any_dtype", free)
        object.__setattr__(self, "arranged", named)

    def arrangement(self, inputs: int, outputs: int) -> tuple[Formats, Formats]:
        """The memory formats of that many inputs and outputs."""
        takes = self.input_formats or (None,) * len(self.inputs)
        gives = self.output_formats or (None,) * len(self.outputs)
        return (
            _expand(takes, self.repeats_input, inputs),
            _expand(gives, self.repeats_output, outputs),
        )

    def accepts(self, dtypes: tuple[DType, ...]) -> bool:
        """True when inputs of exactly these dtypes fit."""
        return self._fits(_expand(self.inputs, self.repeats_input, len(dtypes)), dtypes)

    def gives(self, dtypes: tuple[DType, ...]) -> bool:
        """True when the outputs have exactly these dtypes."""
        return self._fits(_expand(self.outputs, self.repeats_output, len(dtypes)), dtypes)

    def _fits(self, entries: Entries, dtypes: tuple[DType, ...]) -> bool:
        if not self.any_dtype or len(entries) != len(dtypes):
            return entries == dtypes
        return all(e is None or e == d for e, d in zip(entries, dtypes, strict=True))

    def expanded(self, inputs: int, outputs: int) -> tuple[tuple[DType, ...], tuple[DType, ...]]:
        """The dtypes of that many inputs and outputs; DeclarationError if they may be any."""
        if self.any_dtype:
            raise DeclarationError(
                "a signature with '.' names no dtype, so nothing can be cast to it"
            )
        takes = _expand(self.inputs, self.repeats_input, inputs)
        gives = _expand(self.outputs, self.repeats_output, outputs)
        return takes, gives  # type: ignore[return-value]

    def __str__(self) -> str:
        ins = "".join(map(_spelling, self.inputs)) + "*" * self.repeats_input
        spelt = f"{ins}->{''.join(map(_spelling, self.outputs))}{'*' * self.repeats_output}"
        if not self.arranged:
            return spelt
        every = self.arrangement(len(self.inputs), len(self.outputs))
        takes, gives = (",".join(f or PLAIN for f in formats) for formats in every)
        return f"{spelt} {takes}->{gives}"


def _expand(entries: tuple[T, ...], repeats: bool, count: int) -> tuple[T, ...]:
    if not repeats:
        return entries
    return entries[:-1] + entries[-1:] * max(0, count - len(entries) + 1)


def _spelling(dtype: DType | None) -> str:
    return "." if dtype is None else type_code(dtype)


class KernelAttr:
    """A signature built entry by entry, in the order of the primitive's tensor inputs.

    >>> str(KernelAttr().add_input_attr("float32").add_output_attr("float32").signature)
    'f->f'
    """

    def __init__(self) -> None:
        self._inputs: list[tuple[DType, str | None]] = []
        self._outputs: list[tuple[DType, str | None]] = []
        self._all_same = False

    def add_input_attr(self, dtype: object, format: str | None = None) -> KernelAttr:
        """Append one input of `dtype`; of images, the kernel gets the array in memory format
        `format` ("NHWC") if one is given. Returns the KernelAttr."""
        self._inputs.append((as_dtype(dtype), _format(format)))
        return self

    def add_output_attr(self, dtype: object, format: str | None = None) -> KernelAttr:
        """Append one output of `dtype`, likewise; returns the KernelAttr."""
        self._outputs.append((as_dtype(dtype), _format(format)))
        return self

    def add_all_same_attr(self, all_same: bool = True) -> KernelAttr:
        """Let the last input stand for any number of its dtype; returns the KernelAttr."""
        self._all_same = all_same
        return self

    @property
    def signature(self) -> Signature:
        """The finished signature; DeclarationError if it has no output."""
        if not self._outputs:
            raise DeclarationError("KernelAttr has no output; call add_output_attr")
        return Signature(
            tuple(d for d, _ in self._inputs),
            tuple(d for d, _ in self._outputs),
            self._all_same,
            False,
            _formats(self._inputs),
            _formats(self._outputs),
        )


def _format(name: str | None) -> str | None:
    if name in (None, "DefaultFormat"):
        return None
    if not known(name):
        raise DeclarationError(f"KernelAttr: {unknown(name)}")
    return name


def _formats(arrays: list[tuple[DType, str | None]]) -> tuple[str | None, ...]:
    """The memory formats; () if none is required, as in a signature given as a string."""
    return tuple(f for _, f in arrays) if any(f for _, f in arrays) else ()


def parse(spec: str | KernelAttr | Signature) -> Signature:
    """The Signature of "?ff->f", "f*->f", "f->f*", "?.*->.*" or of a KernelAttr."""
    if isinstance(spec, Signature):
        return spec
    return spec.signature if isinstance(spec, KernelAttr) else _parsed(spec)


@cache
def _parsed(spec: str) -> Signature:
    head, arrow, tail = spec.partition("->")
    if not arrow or not tail:
        raise DeclarationError(f"signature {spec!r} has no '->' with outputs behind it, as 'ff->f'")
    try:
        inputs, repeats_input = _codes(head)
        outputs, repeats_output = _codes(tail)
    except (DeclarationError, DTypeError) as error:
        raise DeclarationError(f"signature {spec!r}: {error}") from None
    return Signature(inputs, outputs, repeats_input, repeats_output)


def _codes(text: str) -> tuple[Entries, bool]:
    repeats = text.endswith("*")
    codes = text[:-1] if repeats else text
    if "*" in codes or (repeats and not codes):
        raise DeclarationError("'*' may be used once, after the last type code")
    return tuple(None if c == "." else from_type_code(c) for c in codes), repeats
