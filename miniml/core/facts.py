"""Facts: class variables that say what a primitive does, to code that does not know its name.

Passes, kernels and checkers read them from the class, so that a user's primitive which states one
gets what the library's get. They are checked where the class is defined, and `opcheck` compares
with the kernels what they claim of numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar, Literal

from .abstract import Abstract
from .errors import DeclarationError


def _flops(primitive: Any, inputs: Sequence[Abstract], outputs: Sequence[Abstract]) -> int:
    cls = type(primitive)
    return 0 if cls.view else sum(x.size for x in (inputs if cls.reduces else outputs))


class Facts:
    """What is known of a class of primitives; a subclass inherits it, or says otherwise.

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
    matrices. images: the names
    of the inputs and outputs that are images (N, C, H, W). rounds: True where a result is rounded
    even if it equals an input, as a sum may be; False where no result ever is; with None, results
    that equal no input are. implicit: True where gradients are those of the distribution of the
    outputs, not of their numbers, which jump, as of draws by rejection: differences do not show
    them. refuses: True where a kernel raises for some values of its inputs, as
    for an index outside an axis: under `vmap` a branch with such a call is computed only for the
    examples that take it. autocast: where a context asks for 16 bits, "low" computes in them,
    "wide" in float32, and None as the inputs come. takes_complex: True where it is defined for
    complex numbers too; others refuse them. flops: `flops(self, inputs, outputs)` counts the
    floating-point operations of a call from what is known of its tensors; by default one for each
    number of the outputs, for each that a reduction takes, and none for a view.
    """

    view: ClassVar[Literal["reshape", "broadcast", "transpose", "same"] | None] = None
    reduces: ClassVar[Literal["sum", "mean", "prod", "max", "min", "any", "all"] | None] = None
    elementwise: ClassVar[bool] = False
    linear: ClassVar[tuple[str, ...]] = ()
    batch: ClassVar[Literal["leading"] | None] = None
    images: ClassVar[tuple[str, ...]] = ()
    rounds: ClassVar[bool | None] = None
    implicit: ClassVar[bool] = False
    refuses: ClassVar[bool] = False
    autocast: ClassVar[Literal["low", "wide"] | None] = None
    takes_complex: ClassVar[bool] = False
    flops: ClassVar[Callable[..., int]] = _flops


_TRUTH = (False, True)
# The values that a fact can have, and what they mean.
_CHOICES: dict[str, tuple[tuple[object, ...], str]] = {
    "view": (
        (None, "reshape", "broadcast", "transpose", "same"),
        '"reshape" is the input in another shape, "broadcast" repeats it, "transpose" permutes its '
        'axes, "same" is the input itself, None is no view',
    ),
    "reduces": (
        (None, "sum", "mean", "prod", "max", "min", "any", "all"),
        '"sum", "mean", "prod", "max", "min", "any" and "all" reduce their input along `axis`, '
        "None does something else",
    ),
    "elementwise": (_TRUTH, "True computes each element from those at its place, False does not"),
    "batch": (
        (None, "leading"),
        '"leading" takes further axes in front of every input, None has a batch rule or is looped',
    ),
    "rounds": ((None, *_TRUTH), "True rounds every result, False none, None those that are new"),
    "implicit": (_TRUTH, "True has gradients of a distribution, False those that differences show"),
    "refuses": (_TRUTH, "True raises for some values of its inputs, False computes all of them"),
    "takes_complex": (_TRUTH, "True takes complex numbers too, False refuses them"),
    "autocast": (
        (None, "low", "wide"),
        '"low" computes in the 16 bits that a context asks for, "wide" in float32, None as the '
        "inputs come",
    ),
}


def check_facts(cls: Any, tensors: tuple[str, ...] | None) -> None:
    """DeclarationError for a fact of a class that cannot be true. tensors: its inputs that are
    tensors; None for any number."""

    def refuse(name: str, says: str) -> None:
        raise DeclarationError(f"{cls.__name__} has {name} = {getattr(cls, name)!r}; {says}")

    for name, (allowed, says) in _CHOICES.items():
        if getattr(cls, name) not in allowed:
            refuse(name, says)
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


def told(cls: type[Facts]) -> list[str]:
    """The facts of a class in words, where it says another than most do."""
    said = {name: getattr(cls, name) for name in (*_CHOICES, "linear", "images")}
    return [
        f"{name}: {', '.join(value) if isinstance(value, tuple) else value}"
        for name, value in said.items()
        if value != getattr(Facts, name)
    ]
