"""A call before it is computed: its arguments, and what its outputs will be.

`arguments` makes tensors and constants of what a caller passes: weak scalars take the type of the
tensors beside them, `promote` inserts casts, and autocast says which primitives compute in 16 bits
and which in float32 where a context asks for it. `infer` is the abstract evaluation: the three
tracks of a primitive's rules, joined in one place. Then the facts that a class of a user's claims
are held against its rules, where it is defined; last, instances of classes that were replaced.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import lru_cache
from math import prod
from operator import index
from traceback import walk_tb
from types import FunctionType
from typing import Any, TypeVar

import numpy as np

from ..ops.elementwise import Cast
from .abstract import (
    COMPLEX,
    FLOATS,
    HALVES,
    Abstract,
    DType,
    Kind,
    Shape,
    as_dtype,
    float32,
    float64,
    is_complex,
    is_inexact,
    promote,
    scalar_dtype,
    typed,
)
from .errors import (
    NONE,
    ArityError,
    ConstInputError,
    DeclarationError,
    DTypeError,
    MinimlError,
    ShapeError,
    TracedValueError,
)
from .options import brief
from .parameter import Parameter
from .primitive import Primitive, PrimitiveWithCheck, definition_checks, freeze, key, primitives
from .scope import epoch
from .settings import current
from .tensor import Tensor

Weak = (bool, int, float, complex)
Values = tuple[Any, ...]


def arguments(
    primitive: Primitive, args: Sequence[Any], cast: Callable[[Primitive, list[Any]], Any]
) -> tuple[list[Tensor], dict[str, Any]]:
    """The tensors of a call, in order, and its const inputs by name.

    Arrays become Tensors; weak scalars take their dtype from the tensors beside them; where the
    context casts, and where the primitive promotes, `cast(Cast(dtype), [x])` brings inputs to the
    dtype in which it computes. Raises ArityError, DTypeError or ConstInputError.
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
            tensors = in_tensors(primitive, args)
            break
    else:
        tensors = list(args)
    low = current().autocast
    if low is not None:
        tensors = autocast(primitive, tensors, low, cast)
    if primitive.promote:
        tensors = _to_common_dtype(primitive, tensors, cast)
    return tensors, consts


def interleave(primitive: Primitive, tensors: list[Any], consts: dict[str, Any]) -> tuple[Any, ...]:
    """Tensors and const values in the order of the primitive's inputs."""
    if not consts:
        return tuple(tensors)
    at = {i: consts[name] for i, name in primitive._const}
    rest = iter(tensors)
    return tuple([at[i] if i in at else next(rest) for i in range(len(tensors) + len(at))])


def written(primitive: Primitive, args: Sequence[Any]) -> Parameter | None:
    """The parameter that a call of the primitive on these arguments writes to, if any."""
    if primitive.effect != "state" or not args:
        return None
    return args[0] if isinstance(args[0], Parameter) else None


_weak: dict[object, Sequence[tuple[int, Kind]] | None] = {}  # by class of primitive and kinds


def ready(primitive: Primitive, values: Sequence[Any]) -> Sequence[Any] | None:
    """The tensors that `arguments` would give, quickly, where they are known ones as they are, and
    made of weak scalars; None where it has more to do."""
    kinds = tuple([getattr(v, "_kind", type(v)) for v in values])
    key = type(primitive), kinds, current().autocast
    try:
        made = _weak[key]
    except KeyError:
        if len(_weak) > 4096:
            _weak.clear()
        made = _weak[key] = None if None in kinds else _weak_kinds(primitive, values)
    if not made:
        return None if made is None else values
    tensors = list(values)
    for i, kind in made:
        tensors[i] = weak_tensor(primitive, values[i], kind)
    return tensors


def _weak_kinds(primitive: Primitive, values: Sequence[Any]) -> Sequence[tuple[int, Kind]] | None:
    """The positions of weak scalars, and the kinds of their tensors."""

    def cast(*_: Any) -> Any:
        raise DTypeError("a call that casts is not ready")

    try:
        tensors, consts = arguments(primitive, values, cast)
    except MinimlError:  # the call itself will raise it, unless it is the one above
        return None
    made = [(i, t._kind) for i, t in enumerate(tensors) if t is not values[i]]
    return None if consts or any(type(values[i]) not in Weak for i, _ in made) else made


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
            f"{typed(value)}; pass a tuple or a Tensor made outside the traced function"
        ) from None


def as_tensors(primitive: Primitive, given: Sequence[Any]) -> list[Any]:
    """The arguments of a call, with tensors in place of all but weak scalars."""
    device = next((a.device for a in given if isinstance(a, Tensor)), None)
    return [
        a
        if isinstance(a, (Tensor, *Weak)) and not isinstance(a, np.generic)
        else _to_tensor(primitive, a, device)
        for a in given
    ]


def in_tensors(primitive: Primitive, given: Sequence[Any]) -> list[Tensor]:
    """The tensors of a call, before any cast."""
    found = as_tensors(primitive, given)
    device = next((a.device for a in found if isinstance(a, Tensor)), current().device_target)
    together = primitive._promoted or range(len(found))
    beside = tuple(found[i].dtype for i in together if isinstance(found[i], Tensor))
    weak = [found[i] for i in together if not isinstance(found[i], Tensor)]
    strongest = max(weak, key=lambda s: [isinstance(s, w) for w in Weak].index(True), default=None)
    for i, a in enumerate(found):
        if not isinstance(a, Tensor):
            joins = i in together
            dtype = scalar_dtype(strongest if joins and not beside else a, beside if joins else ())
            found[i] = weak_tensor(primitive, a, Kind.of(Tensor, (), dtype, device))
    return found


def weak_tensor(primitive: Primitive, value: Any, kind: Kind, first: Kind | None = None) -> Tensor:
    """The tensor of a weak scalar, of `kind`; by way of the kind `first`, if a cast follows it."""
    dtype, last = (first or kind).abstract.dtype, kind.abstract.dtype
    try:
        array = np.array(value, dtype)
    except OverflowError:
        raise DTypeError(
            f"{primitive.name} got the scalar {brief(value)}, which {dtype.name} cannot hold; cast "
            "the tensor beside it to a wider dtype"
        ) from None
    return Tensor.of_host(array if dtype is last else array.astype(last), kind)


def _to_tensor(primitive: Primitive, value: Any, device: str | None) -> Tensor:
    if value is None:
        raise DTypeError(f"{primitive.name} got None where it takes a tensor; {NONE}")
    if isinstance(value, (str, bytes, dict, set)) or callable(value):
        raise DTypeError(
            f"{primitive.name} got {value!r} of type {type(value).__name__} for a tensor; give a "
            "Tensor, an array or a number"
        )
    try:
        return Tensor(value, device=device)
    except (DTypeError, ShapeError) as error:
        raise type(error)(f"{primitive.name}: {error}") from None


def _to_common_dtype(
    primitive: Primitive, tensors: list[Tensor], cast: Callable[[Primitive, list[Any]], Any]
) -> list[Tensor]:
    group = primitive._promoted
    dtypes = {t.dtype for t in (tensors if group is None else [tensors[i] for i in group])}
    if len(dtypes) == 1 and (primitive.promote != "float" or is_inexact(*dtypes)):
        return tensors  # the common case
    try:
        target = promote(*dtypes) if dtypes else None
    except DTypeError as error:
        raise DTypeError(f"{primitive.name}: {error}") from None
    if target is not None and primitive.promote == "float" and not is_inexact(target):
        target = as_dtype(float)
    if target is None or dtypes <= {target}:
        return tensors
    return [
        t if t.dtype == target or (group is not None and i not in group)
        else cast(Cast(target), [t])[0]
        for i, t in enumerate(tensors)
    ]  # fmt: skip


# --- Autocast -------------------------------------------------------------------------------------


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
    are given, and promote it where they do. Integers stay, and products of complex numbers.
    """
    to = computed_in(type(primitive), {t.dtype for t in tensors}, low)
    if to is None:
        return tensors
    change = FLOATS if to == low else HALVES
    return [cast(Cast(to), [t])[0] if t.dtype in change and t.dtype != to else t for t in tensors]


def computed_in(primitive: type[Primitive], dtypes: Collection[DType], low: DType) -> DType | None:
    """The dtype to which inputs of these dtypes are cast; None where they stay."""
    if primitive.autocast == "low":
        wide = any(d in (float64, *COMPLEX) for d in dtypes)
        return low if not wide and any(d in FLOATS and d != low for d in dtypes) else None
    return float32 if primitive.autocast == "wide" and any(d in HALVES for d in dtypes) else None


# --- Abstract evaluation --------------------------------------------------------------------------

Rule = Callable[..., Any]
R = TypeVar("R", bound=Rule)
_rules: dict[str, Rule] = {}
_UNASKED = (
    "infer_rule is for a PrimitiveWithCheck or a Custom; {0.name} (defined at {where}) infers by "
    "itself and would never ask it; change its infer_shape and infer_dtype, or register the rule "
    "under the name of another class"
)
_AXES = 64  # of an array of NumPy
_ENTRIES = frozenset({"shape", "dtype", "value"})  # of a dictionary of `__infer__`


def infer_rule(name: str) -> Callable[[R], R]:
    """Decorator: register `rule(*abstracts) -> Abstract` (or a tuple) as the inference of the
    PrimitiveWithCheck, or the Custom, called `name`; const inputs arrive as their values, and
    attributes that the rule names by keyword.

    The class may come later. DeclarationError for one that infers by itself, which would not ask.
    """
    known = primitives.get(name)
    if known is not None and not issubclass(known, PrimitiveWithCheck):
        raise DeclarationError(_UNASKED.format(known, where=known.defined_at))

    def register(rule: R) -> R:
        _rules[name] = rule
        epoch.bump("kernels")
        return rule

    return register


def _asks_its_own_rules(cls: type[Primitive]) -> None:
    """DeclarationError where a rule waits for a class that would not ask it; a class that is
    defined again drops the rule of the one before."""
    if cls.name not in _rules or issubclass(cls, PrimitiveWithCheck):
        return
    if cls.name not in primitives:
        raise DeclarationError(_UNASKED.format(cls, where=cls.defined_at))
    del _rules[cls.name]


definition_checks.append(_asks_its_own_rules)


def has_rule(name: str) -> bool:
    """True where an inference is registered under that name."""
    return name in _rules


def infer(primitive: Primitive, inputs: tuple[Any, ...]) -> tuple[Abstract, ...]:
    """The outputs of a call, as Abstracts.

    inputs: one Abstract per tensor input and the value itself per const input, in order. What the
    library's own rules gave for types alone is kept.
    Errors of the primitive's own rules pass through; a note names the rule and what it got.
    DTypeError for complex inputs of one that does not take them.
    """
    if primitives.get(primitive.name, type(primitive)) is not type(primitive):
        _refuse_older(primitive)
    if not primitive.takes_complex:
        refuse_complex(primitive, inputs)
    if primitive._by_dictionary:  # as in eager calls, only const inputs have a value
        types = [Abstract(i.shape, i.dtype) if isinstance(i, Abstract) else i for i in inputs]
        found = _by_dictionary(primitive, types)
        return tuple([_output(primitive, d["shape"], d["dtype"]) for d in found])
    shapes = tuple([i.shape if isinstance(i, Abstract) else i for i in inputs])
    dtypes = tuple([i.dtype if isinstance(i, Abstract) else i for i in inputs])
    if isinstance(primitive, PrimitiveWithCheck):
        return _checked(primitive, inputs, shapes, dtypes)
    by_rules = _kept_by_rules if primitive._pure and primitive._plain else _by_rules
    return by_rules(primitive, shapes, dtypes)


def _by_rules(primitive: Primitive, shapes: Values, dtypes: Values) -> tuple[Abstract, ...]:
    out_shapes = _per_output(primitive, "infer_shape", _ruled(primitive, "infer_shape", shapes))
    out_dtype = _ruled(primitive, "infer_dtype", dtypes)
    if not primitive._single and not isinstance(out_dtype, (tuple, list)):
        out_dtype = (out_dtype,) * len(out_shapes)
    out_dtypes = _per_output(primitive, "infer_dtype", out_dtype)
    if len(out_shapes) != len(out_dtypes):
        raise DeclarationError(
            f"{primitive.name} infer_shape gives {len(out_shapes)} outputs and infer_dtype "
            f"{len(out_dtypes)}; both give one entry per output"
        )
    return tuple([_output(primitive, s, d) for s, d in zip(out_shapes, out_dtypes, strict=True)])


_kept_by_rules = lru_cache(maxsize=4096)(_by_rules)


def refuse_complex(primitive: Primitive, inputs: Sequence[Any]) -> None:
    """DTypeError for an Abstract that is complex, of a primitive that does not take such."""
    for x in inputs:
        if isinstance(x, Abstract) and is_complex(x.dtype):
            raise DTypeError(
                f"{primitive.name} refuses {typed(x)}; it takes real numbers, such as ops.real(x), "
                "ops.imag(x) or ops.abs(x); a class that is defined for complex numbers says "
                "takes_complex = True"
            )


def _ruled(primitive: Primitive, rule: str, given: tuple[Any, ...]) -> Any:
    """The result of a rule of the primitive for these shapes or dtypes."""
    try:
        return getattr(primitive, rule)(*given)
    except Exception as error:
        if isinstance(error, MinimlError):
            raise
        if not rule.startswith("__") and _takes_dictionaries(error):
            raise DeclarationError(
                f"{primitive.name} {rule} takes its inputs for dictionaries, as in x['shape']; it "
                f"got {', '.join(map(str, given))}; read these, or rename the rule to __infer__, "
                "which gets and returns dictionaries of 'shape', 'dtype' and 'value'"
            ) from error
        error.add_note(f"{rule} of {primitive!r} got {', '.join(map(str, given))}")
        raise


def _takes_dictionaries(error: Exception) -> bool:
    """True if the frame that raised asks for an entry of a dictionary of inference by its name."""
    if not isinstance(error, (TypeError, KeyError, IndexError)):
        return False
    names = [f.f_code.co_consts for f, _ in walk_tb(error.__traceback__)][-1]
    return any(isinstance(name, str) and name in _ENTRIES for name in names)


def infer_value(primitive: Primitive, inputs: tuple[Any, ...]) -> Any:
    """The outputs themselves where the primitive's rules know them without a kernel, else None.

    inputs: as for `infer`, each Abstract with its value.
    """
    if not primitive._by_dictionary:
        given = tuple([i.value if isinstance(i, Abstract) else i for i in inputs])
        return primitive.infer_value(*given)
    values = [d.get("value") for d in _by_dictionary(primitive, inputs)]
    if any(value is None for value in values):
        return None
    return values[0] if primitive._single else values


def _dictionary(given: Any) -> dict[str, Any]:
    """An input as `__infer__` gets it; const inputs have a value only."""
    if isinstance(given, Abstract):
        return {"shape": given.shape, "dtype": given.dtype, "value": given.value}
    return {"shape": None, "dtype": None, "value": given}


def _by_dictionary(primitive: Primitive, inputs: Sequence[Any]) -> tuple[dict[str, Any], ...]:
    """The result of `__infer__`, one dictionary per output."""
    found = _ruled(primitive, "__infer__", tuple(map(_dictionary, inputs)))
    outs = tuple(found) if isinstance(found, (tuple, list)) else (found,)
    expected = len(primitive.outputs) if isinstance(primitive.outputs, tuple) else len(outs)
    if len(outs) != expected or not all(
        isinstance(o, dict) and {"shape", "dtype"} <= o.keys() <= _ENTRIES for o in outs
    ):
        raise DeclarationError(
            f"{primitive.name} __infer__ returned {found!r} for outputs {primitive.outputs!r}; "
            "return a dictionary {'shape': ..., 'dtype': ..., 'value': None} for each"
        )
    return outs


def _checked(
    primitive: PrimitiveWithCheck, inputs: Values, shapes: Values, dtypes: Values
) -> tuple[Abstract, ...]:
    known = tuple(map(_dictionary, inputs))
    for name, values in (("check_shape", shapes), ("check_dtype", dtypes), ("__check__", known)):
        if hasattr(primitive, name):
            _ruled(primitive, name, values)
    if primitive._types is not None:
        return primitive._types
    rule = _rules.get(primitive.name)
    taken = _named_by(rule, primitive.attributes) if rule else {}
    result = rule(*inputs, **taken) if rule else _like_first(primitive, inputs)
    outs = result if isinstance(result, tuple) else (result,)
    expected = len(primitive.outputs) if isinstance(primitive.outputs, tuple) else len(outs)
    if len(outs) != expected or not all(isinstance(o, Abstract) for o in outs):
        rule_name = "infer_rule gave" if rule else "has no infer_rule, which gives"
        raise DeclarationError(
            f"{primitive.name} {rule_name} {', '.join(map(str, outs))} for outputs "
            f"{primitive.outputs!r}; register a rule with @infer_rule({primitive.name!r}) that "
            "returns an Abstract for each"
        )
    return outs


@lru_cache(512)
def _keywords(rule: Any) -> tuple[bool, frozenset[str]]:
    """True if a function takes any keyword; and those that it names."""
    taken = inspect.signature(rule).parameters.values()
    named = frozenset(p.name for p in taken if p.kind is p.KEYWORD_ONLY)
    return any(p.kind is p.VAR_KEYWORD for p in taken), named


def _named_by(rule: Callable[..., Any], attributes: Mapping[str, Any]) -> Mapping[str, Any]:
    """Those of the attributes that a rule takes by keyword."""
    takes_all, named = _keywords(rule)
    return attributes if takes_all else {k: v for k, v in attributes.items() if k in named}


def _like_first(primitive: Primitive, inputs: tuple[Any, ...]) -> Abstract:
    first = next((i for i in inputs if isinstance(i, Abstract)), None)
    if first is None:
        raise DeclarationError(
            f"{primitive.name} has no infer_rule, and no tensor that its outputs are like; "
            f"register a rule with @infer_rule({primitive.name!r})"
        )
    return Abstract(first.shape, first.dtype)


def _per_output(primitive: Primitive, rule: str, result: Any) -> tuple[Any, ...]:
    """The result of a rule, one entry per output: bare where the primitive has one output."""
    if primitive._single:
        return (result,)
    expected = len(primitive.outputs) if isinstance(primitive.outputs, tuple) else None
    if not isinstance(result, (tuple, list)) or expected not in (None, len(result)):
        raise DeclarationError(
            f"{primitive.name} {rule} returned {result!r}; it has outputs {primitive.outputs!r}, "
            "so it returns a tuple with one entry for each"
        )
    return tuple(result)


def _output(primitive: Primitive, shape: Any, dtype: Any) -> Abstract:
    """The output; ShapeError if NumPy could not represent such an array, whatever the memory."""
    out = Abstract(_shape(primitive, shape), _dtype(primitive, dtype))
    nbytes = prod([max(n, 1) for n in out.shape]) * out.dtype.itemsize
    if len(out.shape) > _AXES or nbytes >= 2**63:
        what = f"{out.ndim} axes" if out.ndim > _AXES else f"shape {out.shape}"
        raise ShapeError(
            f"{primitive.name} gives an array of {what}; one has at most {_AXES} axes and "
            "less than 2**63 bytes"
        )
    return out


def _shape(primitive: Primitive, shape: Any) -> Shape:
    try:
        dims = tuple(map(index, shape))
    except TypeError:
        dims = (-1,)
    if min(dims, default=0) < 0 or not isinstance(shape, (tuple, list)):
        raise DeclarationError(
            f"{primitive.name} infer_shape returned {shape!r}; a shape is a tuple of ints >= 0"
        )
    return dims


def _dtype(primitive: Primitive, dtype: Any) -> DType:
    if not isinstance(dtype, (np.dtype, type)):
        raise DeclarationError(
            f"{primitive.name} infer_dtype returned {dtype!r}; return a dtype, such as ml.float32"
        )
    return as_dtype(dtype)


# --- Facts that the shapes contradict -------------------------------------------------------------

# Extents that tell axes apart; what a rule refuses is not tried.
_TRIED: tuple[Shape, ...] = ((3,), (2, 3), (3, 3), (4, 2, 3), (4, 3, 3), (2, 4, 3, 3))
_IN_PAIRS: tuple[tuple[Shape, ...], ...] = (((2, 3), (3, 2)), ((3, 3), (3,)), ((2, 3), (3,)))
_MORE = 5  # the extent of a further axis in front


def _check_claims(cls: type[Primitive]) -> None:
    """DeclarationError for a fact of a class that its own rules contradict. The library's classes
    are tried by a test; those whose attributes have no defaults when they are called."""
    own = cls.__module__.startswith("miniml.")
    claims = cls.elementwise or cls.batch or cls.linear
    if own or not claims or cls._const or cls._inputs == ():
        return
    try:
        primitive = cls()
    except Exception:  # it needs attributes
        return
    count = 2 if cls._inputs is None else len(cls._inputs)
    every = [(shape,) * count for shape in _TRIED] + [*_IN_PAIRS] * (count == 2)
    found = [_of_shapes(primitive, shapes) for shapes in every]
    tried = [texts for texts in found if texts is not None]
    for fact in ("elementwise", "linear", "batch"):
        wrong = [texts[fact] for texts in tried if fact in texts]
        # A rule may take shapes that the primitive does not, such as a vector for a matrix.
        if wrong and (fact != "batch" or len(wrong) == len(tried)):
            raise DeclarationError(wrong[-1])


def _of_shapes(primitive: Primitive, shapes: Sequence[Shape]) -> dict[str, str] | None:
    """The contradictions for inputs of these shapes, of the first dtype that the rules take."""
    for dtype in (float32, as_dtype(int), as_dtype(bool)):
        found = contradictions(primitive, [Abstract(shape, dtype) for shape in shapes])
        if found is not None:
            return found
    return None


def contradictions(
    primitive: Primitive, inputs: Sequence[Abstract], consts: Mapping[str, Any] | None = None
) -> dict[str, str] | None:
    """The facts of a primitive that its rules contradict for these inputs, each with a sentence;
    None where the rules refuse them. consts: the values of its const inputs."""
    cls, given = type(primitive), dict(consts or {})
    try:
        outs = infer(primitive, interleave(primitive, list(inputs), given))
    except Exception:  # whatever the rules of a user raise
        return None
    found: dict[str, str] = {}
    takes, gives = [i.shape for i in inputs], [o.shape for o in outs]
    said = f"its infer_shape of {_listed(takes)} gives {_listed(gives)}"
    plain = cls.elementwise and cls.view is None and len(set(takes)) == 1
    if plain and any(shape != takes[0] for shape in gives):
        found["elementwise"] = (
            f"{cls.name} has elementwise = True; {said}, and it would be {takes[0]}, an element "
            "for each element; take the fact out, or correct the rule"
        )
    wide = [Abstract((_MORE, *i.shape), i.dtype) for i in inputs]
    after = _with_more(primitive, wide, given) if cls.batch == "leading" else None
    if after is not None and after != [(_MORE, *s) for s in gives]:
        found["batch"] = (
            f'{cls.name} has batch = "leading"; {said}, and of {_listed([i.shape for i in wide])} '
            f"{after if isinstance(after, str) else f'gives {_listed(after)}'}, where one more "
            "axis in front of every input is one in front of every output; take the fact out, or "
            f"register a batch rule: @batch_rules.register({cls.__name__})"
        )
    integers = [o.dtype.name for o in outs if not is_inexact(o.dtype)]
    if cls.linear and integers and all(is_inexact(i.dtype) for i in inputs):
        found["linear"] = (
            f"{cls.name} has linear = {cls.linear!r}; its infer_dtype of {inputs[0].dtype.name} "
            f"gives {integers[0]}, and a linear function of floats gives floats; take the fact out"
        )
    return found


def _with_more(
    primitive: Primitive, wide: Sequence[Abstract], consts: dict[str, Any]
) -> list[Shape] | str:
    """The shapes of the outputs where every input has one more axis in front, or the refusal."""
    try:
        return [o.shape for o in infer(primitive, interleave(primitive, list(wide), consts))]
    except Exception as error:
        return f"raises {type(error).__name__}: {error}"


def _listed(shapes: Sequence[Shape]) -> str:
    return " and ".join(map(str, shapes))


definition_checks.append(_check_claims)


# --- Primitives that a function has defined again -------------------------------------------------


def _refuse_older(primitive: Primitive) -> None:
    """DeclarationError for an instance of a class that the same code, a function or a loop, has
    defined again with other values around it: kernels are found by name, and are those of the last
    one. A cell that is run again is other code, whose definition an instance follows."""
    older, last = type(primitive), primitives[primitive.name]
    if older._made_by is None or older._made_by is not last._made_by:
        return
    said, now = vars(older), vars(last)
    other = [n for n in said if n[0] != "_" or n == "__infer__" if not _alike(said[n], now.get(n))]
    if other:
        raise DeclarationError(
            f"{older.__name__} was defined again by {older._made_by.co_name} with another "
            f"{other[0]}, and kernels belong to the last class of a name; make what differs an "
            f"attribute, as factor: float, or the name, as name = f'{older.__name__}{{factor}}'"
        )


def _alike(a: Any, b: Any) -> bool:
    """False for values, such as functions and what these close over, that are not surely equal."""
    a, b = getattr(a, "__func__", a), getattr(b, "__func__", b)  # of static methods
    try:
        if isinstance(a, FunctionType) and isinstance(b, FunctionType) and a is not b:
            return a.__code__ is b.__code__ and all(map(_alike, _around(a), _around(b)))
        return bool(key(a) == key(b))
    except (ValueError, RecursionError):  # arrays, names without a value, functions of themselves
        return a is b


def _around(function: FunctionType) -> list[Any]:
    """The values that a function closes over, but for its class, and its defaults."""
    cells = zip(function.__code__.co_freevars, function.__closure__ or ())
    closed = [cell.cell_contents for name, cell in cells if name != "__class__"]
    return [*closed, *(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values()]
