"""Facts: class variables that say what a primitive does, to code that does not know its name.

Passes, kernels and checkers read them from the class, so that a user's primitive which states one
gets what the library's get. They are checked where the class is defined, and `opcheck` compares
with the kernels what they claim of numbers.

In order: the facts; the row of a primitive, which is the kernels that its class says itself:
`expression` is the C of one element, `numpy` a ufunc by name, `compute` a method that fills `out`,
and `dtypes` what they are for; `row_of` makes plain data of them for the registry; what a class
leaves out, or spells in another way: `check_spelling` refuses the second, `complete` gives an
elementwise class its inputs and shape, `fill_in` any class the shape and dtype of the input that
its outputs are like.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from difflib import get_close_matches
from types import NoneType
from typing import Any, ClassVar, Literal, get_args, get_origin, get_type_hints

import numpy as np

from ..backends.registry import Expression, Row, in_float32, parse
from .abstract import Abstract, Shape, broadcast
from .errors import DeclarationError
from .signature import LOW


def _flops(primitive: Any, inputs: Sequence[Abstract], outputs: Sequence[Abstract]) -> int:
    cls = type(primitive)
    return 0 if cls.view else sum(x.size for x in (inputs if cls.reduces else outputs))


class Facts:
    """Facts about a class of primitives; a subclass inherits them, or says otherwise.

    view: the output is the input x in another shape or order, and so is its gradient, and nothing
    need be computed where a loop can read x so: "reshape" in another shape, in row-major order;
    "broadcast" by NumPy's rule; "transpose" with the axes in the order of the attribute `axes`;
    "same" in its own shape, whatever the gradient. reduces: "sum", "mean", "prod", "max", "min",
    "any" or "all" of the elements of x along the attribute `axis`, which is an int, a tuple or None
    for all axes; without one, x is reduced to the shape of the output, which broadcasts to that of
    x. elementwise: each element of the outputs depends on the elements at its place in the inputs,
    broadcast, and not on the place itself. linear: the inputs in which it is linear while the rest
    stays, as ("x", "y") for x * y; ("x y",) is linear in both at once, as x + y. batch: "leading"
    where further axes in front of every input are axes in front of every output, as in a product of
    matrices. images: the names of the inputs and outputs that are images (N, C, H, W). any_format:
    True where kernels take images in whatever memory formats they have: `node.inputs[i].format`
    says which, and arrays have the `stored` shape; an elementwise one need not look. rounds: True
    where a result is rounded even if it equals an input, as a sum may be; False where no result
    ever is; with None, results that equal no input are. implicit: True where gradients are those of
    the distribution of the outputs, not of their numbers, which jump, as of draws by rejection:
    differences do not show them. refuses: True where a kernel raises for some values of its inputs,
    as for an index outside an axis: under `vmap` a branch with such a call is computed only for the
    examples that take it. ordered: inputs whose rows, along the last axis, are sorted: `opcheck`
    calls it with no others. bounds: of a copy of integers that refuses those outside a range, a
    property of the instance: the least integer, the end, and one that is taken besides, or None; C
    then looks for them, and calls the kernel if there is one. autocast: where a context asks for 16
    bits, "low" computes in them, "wide" in float32, and None as the inputs come. takes_complex:
    True where it is defined for complex numbers too; others refuse them. by_element: the type codes
    of inputs or outputs for which NumPy's kernel computes one element after another, with branches
    or by a call, so that C takes a fraction of its time, even for few. flops: `flops(self, inputs,
    outputs)` counts the floating-point operations of a call from what is known of its
    tensors; by default one for each number of the outputs, for each that a reduction takes, and
    none for a view.
    """

    view: ClassVar[Literal["reshape", "broadcast", "transpose", "same"] | None] = None
    reduces: ClassVar[Literal["sum", "mean", "prod", "max", "min", "any", "all"] | None] = None
    elementwise: ClassVar[bool] = False
    linear: ClassVar[tuple[str, ...]] = ()
    batch: ClassVar[Literal["leading"] | None] = None
    images: ClassVar[tuple[str, ...]] = ()
    any_format: ClassVar[bool] = False
    rounds: ClassVar[bool | None] = None
    implicit: ClassVar[bool] = False
    refuses: ClassVar[bool] = False
    ordered: ClassVar[tuple[str, ...]] = ()
    bounds: ClassVar[Any] = None
    autocast: ClassVar[Literal["low", "wide"] | None] = None
    takes_complex: ClassVar[bool] = False
    by_element: ClassVar[str] = ""
    flops: ClassVar[Callable[..., int]] = _flops


# What the values of a fact mean.
MEANINGS = {
    "view": '"reshape" is the input in another shape, "broadcast" repeats it, "transpose" permutes '
    'its axes, "same" is the input itself, None is no view',
    "reduces": '"sum", "mean", "prod", "max", "min", "any" and "all" reduce their input along '
    "`axis`, None does something else",
    "elementwise": "True computes each element from those at its place, False does not",
    "batch": '"leading" takes further axes in front of every input, None has a batch rule or is '
    "looped",
    "any_format": "True has kernels that look at the memory formats of images, False gets "
    "row-major ones",
    "rounds": "True rounds every result, False none, None those that are new",
    "implicit": "True has gradients of a distribution, False those that differences show",
    "refuses": "True raises for some values of its inputs, False computes all of them",
    "takes_complex": "True takes complex numbers too, False refuses them",
    "autocast": '"low" computes in the 16 bits that a context asks for, "wide" in float32, None as '
    "the inputs come",
}


def _values(kind: Any) -> tuple[object, ...]:
    """The values of an annotated type, one of None, bool, Literal, and unions of these."""
    if get_origin(kind) is Literal:
        return get_args(kind)
    known = {NoneType: (None,), bool: (False, True)}.get(kind)
    return known or tuple(value for part in get_args(kind) for value in _values(part))


_ALLOWED = {name: _values(get_type_hints(Facts)[name]) for name in MEANINGS}


def check_facts(cls: Any, tensors: tuple[str, ...] | None) -> None:
    """DeclarationError for a fact of a class that cannot be true. tensors: its inputs that are
    tensors; None for any number."""

    def refuse(name: str, says: str) -> None:
        raise DeclarationError(f"{cls.__name__} has {name} = {getattr(cls, name)!r}; {says}")

    for name, says in MEANINGS.items():
        if getattr(cls, name) not in _ALLOWED[name]:
            refuse(name, says)
    if not isinstance(cls.by_element, str):
        refuse("by_element", "it is a string of type codes, as in 'fd'")
    if not callable(cls.flops):
        refuse("flops", "flops(self, inputs, outputs) gives a number of operations")
    outputs = cls.outputs if isinstance(cls.outputs, tuple) else ()
    for name in ("view", "reduces"):
        if getattr(cls, name) and (tensors is None or len(tensors) != 1 or len(outputs) != 1):
            takes = "any number of inputs" if tensors is None else ", ".join(tensors) or "no inputs"
            gives = ", ".join(outputs) or "any number of outputs"
            refuse(name, f"that is said of one input and one output; it has {takes} -> {gives}")
    if cls.view == "transpose" and "axes" not in {field.name for field in cls._fields}:
        refuse("view", "its order is the attribute axes, which it lacks: axes: tuple[int, ...]")
    _check_names(cls, "images", (*(tensors or ()), *outputs), "inputs and outputs")
    _check_names(cls, "linear", tensors or (), "inputs")
    _check_names(cls, "ordered", tensors or (), "inputs")
    for group in map(str.split, cls.linear):
        if not group or len(set(group)) < len(group):
            refuse("linear", "each entry names inputs in which it is linear at once, each one once")
    for name in ("elementwise", "batch"):
        if getattr(cls, name) and cls.dynamic_outputs:
            refuse(name, "with dynamic_outputs = True its shapes depend on values; take one out")


def _check_names(cls: Any, fact: str, known: tuple[str, ...], of: str) -> None:
    """DeclarationError unless a fact is a tuple of known names."""
    given = getattr(cls, fact)
    words = isinstance(given, tuple) and all(isinstance(name, str) for name in given)
    if not words or not set(known).issuperset(" ".join(given).split()):
        raise DeclarationError(
            f"{cls.__name__} has {fact} = {given!r}; it is a tuple of names of {of}: "
            f"{', '.join(known) or 'there are none'}"
        )


# --- The row of a primitive -----------------------------------------------------------------------


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

_METHODS = ("infer_shape", "infer_dtype", "infer_value", "bprop", "compute", "flops")
# What other systems call these, or what is registered from outside here.
_ELSEWHERE = {
    "forward": "compute(self, *arrays, out) is its kernel",
    "backward": "bprop(self, *inputs, out, dout) is its gradient",
    "vjp": "bprop(self, *inputs, out, dout) is its gradient",
    "jvp": "a rule of forward mode is registered: @miniml.grad.jvp_rules.register({})",
    "vmap": "a rule of vmap is registered: @miniml.grad.batch_rules.register({})",
}


def check_spelling(cls: type[Any]) -> None:
    """DeclarationError for what the body of a class defines under a public name that nothing reads,
    and which is nearly one that is read, or another system's name for it."""
    base = cls.__base__
    values = [n for n in dir(base) if n[0] != "_" and not callable(getattr(base, n))]
    for name, given in vars(cls).items():
        if name.startswith("_") or hasattr(base, name) or name in _METHODS:
            continue
        near = get_close_matches(name, _METHODS if callable(given) else values, 1, 0.8)
        meant = _ELSEWHERE.get(name, "").format(cls.__name__) if callable(given) else ""
        if near and abs(len(near[0]) - len(name)) <= 1:
            meant = f"did you mean {near[0]}?"
        if meant:
            raise DeclarationError(
                f"{cls.__name__} defines {name}, which miniml does not read; {meant} (a helper of "
                f"your own: _{name})"
            )


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
        cls.infer_dtype = cls._like_of


def _shapes_like(name: str) -> Callable[..., Any]:
    def infer_shape(self: Any, *shapes: Any) -> Any:
        shape = self._like_of(*shapes)
        return shape if self._single else (shape,) * len(self.outputs)

    infer_shape.inputs = (name,)  # type: ignore[attr-defined]  # where the class lists none
    return infer_shape
