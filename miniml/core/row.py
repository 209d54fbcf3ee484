"""The row of a primitive: the kernels that its class says itself, and the rules that it leaves out.

`expression` is the C of one element, `numpy` a ufunc by name, `compute` a method that fills `out`,
and `dtypes` what they are for. `row_of` makes plain data of them for the registry. `complete` gives
an elementwise class the inputs and the shape that it leaves out, `fill_in` any class the shape and
dtype of the input that its outputs are like.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping
from difflib import get_close_matches
from typing import Any

import numpy as np

from ..backends.registry import LOW, Expression, Row, in_float32, parse
from .abstract import Shape, broadcast
from .errors import ArityError, DeclarationError
from .facts import Facts

_SHAPE_RULES = ("infer_shape", "__infer__", "check_shape", "__check__")


def row_of(cls: type[Any]) -> Row:
    """The kernels that a class says, by device and signature; DeclarationError for what is none."""
    row: dict[tuple[str, str], tuple[Any, bool]] = {}
    by = _function(cls)
    if cls.expression is not None:
        for signature, text in _each(cls, "expression", cls.expression):
            row["cuda", signature] = Expression(text), "expression" not in vars(cls)
    if by == "numpy":
        for signature, name in _each(cls, by, cls.numpy):
            row["cpu", signature] = _looping(cls, name, signature), by not in vars(cls)
    elif by:
        body = with_self(cls)
        low = in_float32(body)  # two bodies at most, which `show` prints once
        for signature in _signatures(cls, cls.dtypes):
            narrow = any(c in LOW for c in signature)
            row["cpu", signature] = low if narrow else body, by not in vars(cls)
    return row


def _function(cls: type[Any]) -> str:
    """Which of the two a class says, or the base next to it: `numpy`, `compute`, or ""."""
    for base in cls.__mro__:
        found = [n for n in ("numpy", "compute") if vars(base).get(n) is not None]
        if len(found) == 2:
            raise DeclarationError(
                f"{cls.name} says numpy = {vars(base)['numpy']!r} and defines compute; one of them "
                "is its kernel, so take the other out"
            )
        if found:
            return found[0]
    return ""


def _each(cls: type[Any], what: str, given: Any) -> Iterator[tuple[str, str]]:
    """(signature, text) of what is said for all dtypes of the class, or for each by type codes."""
    for codes, text in (given if isinstance(given, Mapping) else {cls.dtypes: given}).items():
        if not isinstance(text, str):
            raise DeclarationError(
                f"{cls.name} says {what} = {given!r}; it is a string, or strings by type codes, as "
                "in {'fd': ...}"
            )
        for signature in _signatures(cls, codes):
            yield signature, text


def _signatures(cls: type[Any], codes: Any) -> list[str]:
    """The signatures that are listed; of a type code that in which everything has it."""
    if isinstance(codes, tuple):
        return [s for c in codes for s in _signatures(cls, c)]
    if not isinstance(codes, str):
        raise DeclarationError(
            f"{cls.name} says dtypes = {codes!r}; they are type codes, as in 'fd', or a tuple of "
            "signatures, as in ('ff->?', 'dd->?')"
        )
    if "->" in codes:
        return [str(parse(codes))]
    takes = 1 if cls._inputs is None else len(cls._inputs) - len(cls.const_inputs)
    gives = cls.outputs if isinstance(cls.outputs, tuple) else ("*",)
    many, parts = "*" * (cls._inputs is None), "*" * isinstance(cls.outputs, str)
    return [str(parse(f"{c * takes}{many}->{c * len(gives)}{parts}")) for c in codes]


def _looping(cls: type[Any], name: str, signature: str) -> np.ufunc:
    """The ufunc of NumPy of that name; DeclarationError unless it has a loop for the dtypes."""
    ufunc: Any = getattr(np, name, None)
    takes, gives = parse(signature).inputs, parse(signature).outputs
    if not isinstance(ufunc, np.ufunc):
        known = [n for n in dir(np) if isinstance(getattr(np, n), np.ufunc)]
        near = " or ".join(get_close_matches(name, known, 2)) or "tanh"
        raise DeclarationError(
            f"{cls.name} says numpy = {name!r}, which is no ufunc of NumPy; it is the name of one, "
            f"such as {near}, and other kernels are a method compute"
        )
    try:
        found = ufunc.resolve_dtypes((*takes, *[None] * len(gives)))[len(takes) :]
        fits = all(np.can_cast(a, b, "same_kind") for a, b in zip(found, gives) if b is not None)
    except (TypeError, ValueError):
        fits = False
    if not fits or cls._fields:
        reason = "takes no attributes" if cls._fields else f"computes no {signature}"
        raise DeclarationError(
            f"{cls.name} says numpy = {name!r}, and np.{name} {reason}; say what it is for, as in "
            "dtypes = 'fd', or define compute"
        )
    return ufunc


def with_self(cls: type[Any]) -> Callable[..., Any]:
    """The method `compute` as a kernel: its `self` is the primitive with the call's attributes."""
    given = inspect.getattr_static(cls, "compute")
    if isinstance(given, staticmethod):
        return given.__func__
    if not inspect.isfunction(given) or cls._classic:
        raise DeclarationError(
            f"{cls.name}.compute is no method that a kernel can be, def compute(self, x, *, alpha, "
            "out); where __init__ records the attributes, it is a @staticmethod without self"
        )

    def kernel(*arrays: Any, out: Any, **attributes: Any) -> Any:
        made = object.__new__(cls)
        made._finish({k: v for k, v in attributes.items() if k not in cls.const_inputs})
        return given(made, *arrays, out=out, **attributes)

    kernel.__name__, kernel.__qualname__ = given.__name__, given.__qualname__
    kernel.__module__, kernel.__wrapped__ = given.__module__, given  # type: ignore[attr-defined]
    kernel.__signature__ = inspect.signature(_bound(cls, "compute"))  # type: ignore[attr-defined]
    return kernel


def _bound(cls: type[Any], method: str) -> Any:
    """A method without its `self`."""
    return inspect.getattr_static(cls, method).__get__(cls, cls)


# --- What a class leaves out ----------------------------------------------------------------------


def complete(cls: type[Any]) -> None:
    """Give a class with an expression or a ufunc, and without a rule, the shape that its inputs
    broadcast to; their names are those of `compute` or `bprop`, else x, or x and y, of a ufunc.
    Such a class is elementwise, unless it or a base of it says otherwise."""
    if not (cls.expression or cls.numpy) or cls.like or any(hasattr(cls, n) for n in _SHAPE_RULES):
        return
    names = cls.inputs or tuple(_input_names(cls))
    if names:
        cls.inputs, cls.infer_shape = names, _broadcast
        if not any("elementwise" in vars(base) for base in cls.__mro__ if base is not Facts):
            cls.elementwise = True


def _broadcast(self: Any, /, *shapes: Shape) -> Shape:
    return broadcast(self.name, *shapes)


def _input_names(cls: type[Any]) -> Iterable[str]:
    for method, others in (("compute", ("out",)), ("bprop", ("out", "dout"))):
        if callable(getattr(cls, method, None)):
            taken = inspect.signature(_bound(cls, method)).parameters.values()
            by_position = [p.name for p in taken if p.kind is p.POSITIONAL_OR_KEYWORD]
            return [n for n in by_position if n not in others]
    ufunc = getattr(np, str(cls.numpy), None)
    return "xy"[: ufunc.nin] if isinstance(ufunc, np.ufunc) else ()


def fill_in(cls: type[Any]) -> None:
    """Give a class the rules that it leaves out: those of the input that its outputs are like."""
    if cls._checks or hasattr(cls, "__infer__"):
        return
    if not hasattr(cls, "infer_shape"):
        if isinstance(cls.outputs, str):
            raise DeclarationError(
                f"{cls.name} defines no infer_shape, and its number of outputs depends on the "
                "instance; define infer_shape, which says how many there are"
            )
        cls.infer_shape = _shapes_like(cls.like)
    if not hasattr(cls, "infer_dtype"):
        if cls._like is None:
            raise DeclarationError(
                f"{cls.name} defines no infer_dtype and has no tensor input, whose dtype its "
                "outputs would have; say what dtype comes out: def infer_dtype(self): "
                "return ml.float32"
            )
        cls.infer_dtype = _like


def _like(self: Any, /, *given: Any) -> Any:
    """The shape or dtype of the input that the outputs are like."""
    if not given:
        raise ArityError(f"{self.name} got no input; give at least one")
    return given[self._like or 0]


def _shapes_like(name: str) -> Callable[..., Any]:
    def infer_shape(self: Any, *shapes: Any) -> Any:
        shape = _like(self, *shapes)
        return shape if self._single else (shape,) * len(self.outputs)

    infer_shape.inputs = (name,)  # type: ignore[attr-defined]  # where the class lists none
    return infer_shape
