"""Arguments: from what a caller passes to the tensors and constants of the primitive.

Weak scalars take the type of the tensors beside them, `promote` inserts casts, and autocast, at the
end, says which primitives compute in 16 bits and which in float32 where a context asks for it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from functools import lru_cache
from operator import attrgetter
from typing import Any

import numpy as np

from ..ops.elementwise import Cast
from .abstract import Kind, typed
from .dtype import (
    FLOATS,
    DType,
    as_dtype,
    bfloat16,
    float16,
    float32,
    float64,
    is_float,
    promote,
    scalar_dtype,
)
from .errors import NONE, ArityError, ConstInputError, DTypeError, ShapeError, TracedValueError
from .primitive import Primitive, freeze
from .settings import current
from .tensor import Tensor, host_array

Weak = (bool, int, float)
_kind = attrgetter("_kind")


def arguments(
    primitive: Primitive, args: Sequence[Any], cast: Callable[[Primitive, list[Any]], Any]
) -> tuple[list[Tensor], dict[str, Any]]:
    """The tensors of a call, in order, and its const inputs by name.

    Arrays become Tensors; weak scalars take their dtype from the tensors beside them; where the
    context casts, and where the primitive promotes, `cast(Cast(dtype), [x])` brings inputs to the
    dtype in which it computes. Raises
    ArityError, DTypeError or ConstInputError.
    """
    names = primitive._inputs
    if names is not None and len(args) != len(names):
        expected = ", ".join(names) or "none"
        inputs = "input" if len(names) == 1 else "inputs"
        raise ArityError(
            f"{primitive.name} takes {len(names)} {inputs} ({expected}); got {len(args)}"
        )
    consts: dict[str, Any] = {}
    if primitive._const:
        consts = {name: constant(primitive, name, args[i]) for i, name in primitive._const}
        taken = {i for i, _ in primitive._const}
        args = [a for i, a in enumerate(args) if i not in taken]
    for a in args:
        if not isinstance(a, Tensor):
            tensors = _tensors(primitive, args)
            break
    else:
        tensors = list(args)
    low = current().autocast
    if low is not None:
        tensors = autocast(primitive, tensors, low, cast)
    return (_promoted(primitive, tensors, cast) if primitive.promote else tensors), consts


def as_they_are(primitive: Primitive, values: Sequence[Any]) -> bool:
    """True where `arguments` would give back these very values, all of them known tensors."""
    try:
        kinds = tuple(map(_kind, values))
        return _stay(type(primitive), kinds, current().autocast)  # type: ignore[arg-type]
    except AttributeError:  # not all are tensors
        return False


@lru_cache(4096)
def _stay(primitive: type[Primitive], kinds: tuple[Kind | None, ...], low: DType | None) -> bool:
    names = primitive._inputs
    if primitive._const or None in kinds or (names is not None and len(kinds) != len(names)):
        return False
    dtypes = {k.abstract.dtype for k in kinds if k is not None}
    if low is not None and computed_in(primitive, dtypes, low) is not None:
        return False
    floats = primitive.promote != "float" or all(map(is_float, dtypes))
    return not primitive.promote or (len(dtypes) == 1 and floats)


def constant(primitive: Primitive, name: str, value: Any) -> Any:
    """The frozen value of a const input: nested tuples of Python scalars, strings, dtypes, None."""
    return freeze(_untensored(primitive, name, value), primitive.name, name)


def _untensored(primitive: Primitive, name: str, value: Any) -> Any:
    if isinstance(value, (list, tuple)):
        return tuple(_untensored(primitive, name, v) for v in value)
    if not isinstance(value, Tensor):
        return value
    try:
        return value._host("const input").tolist()
    except TracedValueError:
        raise ConstInputError(
            f"{primitive.name} needs {name!r} to be a constant; got a traced tensor of "
            f"{typed(value)}; pass a tuple or a Tensor made outside "
            "the traced function"
        ) from None


def _tensors(primitive: Primitive, given: Sequence[Any]) -> list[Tensor]:
    device = next((a.device for a in given if isinstance(a, Tensor)), None)
    found: list[Any] = [
        a if isinstance(a, Tensor) or _is_weak(a) else _to_tensor(primitive, a, device)
        for a in given
    ]
    together = primitive._promoted or range(len(found))
    beside = tuple(found[i].dtype for i in together if isinstance(found[i], Tensor))
    weak = [found[i] for i in together if not isinstance(found[i], Tensor)]
    strongest = max(weak, key=_rank, default=None)
    for i, a in enumerate(found):
        if not isinstance(a, Tensor):
            if i in together:
                dtype = scalar_dtype(a if beside else strongest, beside)
            else:
                dtype = scalar_dtype(a)
            kind = Kind.of(Tensor, (), dtype, device or current().device_target)
            found[i] = weak_tensor(primitive, a, kind)
    return found


def _rank(scalar: Any) -> int:
    return Weak.index(next(w for w in Weak if isinstance(scalar, w)))


def _is_weak(value: Any) -> bool:
    return isinstance(value, Weak) and not isinstance(value, np.generic)


def weak_tensor(primitive: Primitive, value: Any, kind: Kind) -> Tensor:
    """The tensor of a weak scalar, with the dtype and device of `kind`."""
    dtype = kind.abstract.dtype
    try:
        array = np.array(value, dtype)
    except OverflowError:
        raise DTypeError(
            f"{primitive.name} got the scalar {value}, which {dtype.name} cannot hold; cast the "
            "tensor beside it to a wider dtype"
        ) from None
    return Tensor.of_host(array, kind)


def _to_tensor(primitive: Primitive, value: Any, device: str | None) -> Tensor:
    if value is None:
        raise DTypeError(f"{primitive.name} got None where it takes a tensor; {NONE}")
    if isinstance(value, (str, bytes, dict, set)) or callable(value):
        raise DTypeError(
            f"{primitive.name} got {value!r} of type {type(value).__name__} for a tensor; give a "
            "Tensor, an array or a number"
        )
    try:
        return Tensor(host_array(value, None), device=device)
    except (DTypeError, ShapeError) as error:
        raise type(error)(f"{primitive.name}: {error}") from None


def _alike(primitive: Primitive, tensors: list[Tensor]) -> bool:
    """True where all share one dtype that needs no promotion, which is the common case."""
    dtype = tensors[0].dtype if tensors else float32
    for t in tensors:
        if t.dtype is not dtype:
            return False
    return primitive.promote != "float" or is_float(dtype)


def _promoted(
    primitive: Primitive, tensors: list[Tensor], cast: Callable[[Primitive, list[Any]], Any]
) -> list[Tensor]:
    group = primitive._promoted
    if group is None and _alike(primitive, tensors):
        return tensors
    dtypes = {t.dtype for t in (tensors if group is None else [tensors[i] for i in group])}
    try:
        target = promote(*dtypes) if dtypes else None
    except DTypeError as error:
        raise DTypeError(f"{primitive.name}: {error}") from None
    if target is not None and primitive.promote == "float" and not is_float(target):
        target = as_dtype(float)
    if target is None or dtypes <= {target}:
        return tensors
    return [
        t if t.dtype == target or (group is not None and i not in group)
        else cast(Cast(target), [t])[0]
        for i, t in enumerate(tensors)
    ]  # fmt: skip


# --- Autocast -------------------------------------------------------------------------------------


_NARROW = float16, bfloat16


def autocast(
    primitive: Primitive,
    tensors: list[Tensor],
    low: DType,
    cast: Callable[[Primitive, list[Any]], Any],
) -> list[Tensor]:
    """The tensors of a call, brought to the dtype in which the primitive computes.

    A class with `autocast = "low"` gets its floats in `low`, unless one is float64: such are
    products, which take the time and sum in float32 inside, so that 11 or 8 bits of input are
    enough. "wide" ones get 16 bits as float32: they overflow float16 (from 65504 on), or lose in
    sums and near 1 what 16 bits do not hold, or have no kernels for less. All others get what they
    are given, and promote it where they do. Integers stay.
    """
    to = computed_in(type(primitive), {t.dtype for t in tensors}, low)
    if to is None:
        return tensors
    change = FLOATS if to == low else _NARROW
    return [cast(Cast(to), [t])[0] if t.dtype in change and t.dtype != to else t for t in tensors]


def computed_in(primitive: type[Primitive], dtypes: Collection[DType], low: DType) -> DType | None:
    """The dtype to which inputs of these dtypes are cast; None where they stay."""
    if primitive.autocast == "low":
        others = float64 not in dtypes and any(d in FLOATS and d != low for d in dtypes)
        return low if others else None
    return float32 if primitive.autocast == "wide" and any(d in _NARROW for d in dtypes) else None
