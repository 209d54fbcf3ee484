"""Abstract evaluation: the three tracks of a primitive's inference, joined in one place."""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from operator import index
from typing import Any, TypeVar

import numpy as np

from . import epoch
from .abstract import Abstract, Shape, listed
from .classic import PrimitiveWithCheck
from .dtype import DType, as_dtype
from .errors import DeclarationError, MinimlError, ShapeError
from .primitive import Primitive
from .signatures import named_by

Rule = Callable[..., Any]
R = TypeVar("R", bound=Rule)
_rules: dict[str, Rule] = {}
_AXES = 64  # of an array of NumPy


def infer_rule(name: str) -> Callable[[R], R]:
    """Decorator: register `rule(*abstracts) -> Abstract` (or a tuple) as the inference of the
    PrimitiveWithCheck, or the Custom, called `name`; const inputs arrive as their values, and
    attributes that the rule names by keyword."""

    def register(rule: R) -> R:
        _rules[name] = rule
        epoch.bump("kernels")
        return rule

    return register


def infer(primitive: Primitive, inputs: tuple[Any, ...]) -> tuple[Abstract, ...]:
    """The outputs of a call, as Abstracts.

    inputs: one Abstract per tensor input and the value itself per const input, in order.
    Errors of the primitive's own rules pass through; a note names the rule and what it got.
    """
    shapes = tuple([i.shape if isinstance(i, Abstract) else i for i in inputs])
    dtypes = tuple([i.dtype if isinstance(i, Abstract) else i for i in inputs])
    if isinstance(primitive, PrimitiveWithCheck):
        return _checked(primitive, inputs, shapes, dtypes)
    out_shapes = _outputs(primitive, "infer_shape", shapes)
    out_dtypes = _outputs(primitive, "infer_dtype", dtypes)
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
        if not isinstance(error, MinimlError):
            error.add_note(f"{rule} of {primitive!r} got {', '.join(map(str, given))}")
        raise


def _checked(
    primitive: PrimitiveWithCheck,
    inputs: tuple[Any, ...],
    shapes: tuple[Any, ...],
    dtypes: tuple[Any, ...],
) -> tuple[Abstract, ...]:
    for name, values in (("check_shape", shapes), ("check_dtype", dtypes)):
        if hasattr(primitive, name):
            _ruled(primitive, name, values)
    if primitive._types is not None:
        return primitive._types
    rule = _rules.get(primitive.name)
    if rule is None and primitive._needs_rule:
        raise DeclarationError(
            f"{primitive.name} has no inference, so what it gives for {listed(inputs)} is unknown; "
            f"register a rule with @infer_rule({primitive.name!r}): def rule(*xs): return xs[0]"
        )
    taken = named_by(rule, primitive.attributes) if rule else {}
    result = rule(*inputs, **taken) if rule else Abstract(inputs[0].shape, inputs[0].dtype)
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


def _outputs(primitive: Primitive, rule: str, given: tuple[Any, ...]) -> tuple[Any, ...]:
    """What a rule gives, one entry per output: bare where the primitive has one output."""
    result = _ruled(primitive, rule, given)
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
