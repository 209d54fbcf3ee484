"""Abstract evaluation: the three tracks of a primitive's inference, joined in one place."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from operator import index
from typing import Any, TypeVar

import numpy as np

from . import epoch
from .abstract import Abstract, Shape
from .dtype import DType, as_dtype
from .errors import DeclarationError, MinimlError, ShapeError
from .primitive import Primitive, PrimitiveWithCheck, definition_checks, named_by, primitives

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

    inputs: one Abstract per tensor input and the value itself per const input, in order.
    Errors of the primitive's own rules pass through; a note names the rule and what it got.
    """
    if primitive._by_dictionary:
        return _from_dictionaries(primitive, inputs)
    shapes = tuple([i.shape if isinstance(i, Abstract) else i for i in inputs])
    dtypes = tuple([i.dtype if isinstance(i, Abstract) else i for i in inputs])
    if isinstance(primitive, PrimitiveWithCheck):
        return _checked(primitive, inputs, shapes, dtypes)
    out_shapes = _outputs(primitive, "infer_shape", _ruled(primitive, "infer_shape", shapes))
    out_dtype = _ruled(primitive, "infer_dtype", dtypes)
    if not primitive._single and not isinstance(out_dtype, (tuple, list)):
        out_dtype = (out_dtype,) * len(out_shapes)
    out_dtypes = _outputs(primitive, "infer_dtype", out_dtype)
    if len(out_shapes) != len(out_dtypes):
        raise DeclarationError(
            f"{primitive.name} infer_shape gives {len(out_shapes)} outputs and infer_dtype "
            f"{len(out_dtypes)}; both give one entry per output"
        )
    return tuple(
        [
            _possible(primitive, Abstract(_shape(primitive, s), _dtype(primitive, d)))
            for s, d in zip(out_shapes, out_dtypes, strict=True)
        ]
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
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    names = () if trace is None else trace.tb_frame.f_code.co_consts
    return any(isinstance(name, str) and name in _ENTRIES for name in names)


def _from_dictionaries(primitive: Primitive, inputs: tuple[Any, ...]) -> tuple[Abstract, ...]:
    """The outputs by `__infer__`; as in eager calls, only const inputs have a value."""
    types = [Abstract(i.shape, i.dtype) if isinstance(i, Abstract) else i for i in inputs]
    return tuple([_output(primitive, d) for d in _by_dictionary(primitive, types)])


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
    """What `__infer__` gives, one dictionary per output."""
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


def _output(primitive: Primitive, given: dict[str, Any]) -> Abstract:
    shape, dtype = _shape(primitive, given["shape"]), _dtype(primitive, given["dtype"])
    return _possible(primitive, Abstract(shape, dtype))


def _checked(
    primitive: PrimitiveWithCheck,
    inputs: tuple[Any, ...],
    shapes: tuple[Any, ...],
    dtypes: tuple[Any, ...],
) -> tuple[Abstract, ...]:
    known = tuple(map(_dictionary, inputs))
    for name, values in (("check_shape", shapes), ("check_dtype", dtypes), ("__check__", known)):
        if hasattr(primitive, name):
            _ruled(primitive, name, values)
    if primitive._types is not None:
        return primitive._types
    rule = _rules.get(primitive.name)
    taken = named_by(rule, primitive.attributes) if rule else {}
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


def _like_first(primitive: Primitive, inputs: tuple[Any, ...]) -> Abstract:
    first = next((i for i in inputs if isinstance(i, Abstract)), None)
    if first is None:
        raise DeclarationError(
            f"{primitive.name} has no infer_rule, and no tensor that its outputs are like; "
            f"register a rule with @infer_rule({primitive.name!r})"
        )
    return Abstract(first.shape, first.dtype)


def _outputs(primitive: Primitive, rule: str, result: Any) -> tuple[Any, ...]:
    """What a rule gave, one entry per output: bare where the primitive has one output."""
    if primitive._single:
        return (result,)
    expected = len(primitive.outputs) if isinstance(primitive.outputs, tuple) else None
    if not isinstance(result, (tuple, list)) or expected not in (None, len(result)):
        raise DeclarationError(
            f"{primitive.name} {rule} returned {result!r}; it has outputs {primitive.outputs!r}, "
            "so it returns a tuple with one entry for each"
        )
    return tuple(result)


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


def _possible(primitive: Primitive, out: Abstract) -> Abstract:
    """The output; ShapeError if NumPy could not represent such an array, whatever the memory."""
    nbytes = prod([max(n, 1) for n in out.shape]) * out.dtype.itemsize
    if len(out.shape) > _AXES or nbytes >= 2**63:
        what = f"{out.ndim} axes" if out.ndim > _AXES else f"shape {out.shape}"
        raise ShapeError(
            f"{primitive.name} gives an array of {what}; one has at most {_AXES} axes and "
            "less than 2**63 bytes"
        )
    return out


def _dtype(primitive: Primitive, dtype: Any) -> DType:
    if not isinstance(dtype, (np.dtype, type)):
        raise DeclarationError(
            f"{primitive.name} infer_dtype returned {dtype!r}; return a dtype, such as ml.float32"
        )
    return as_dtype(dtype)
