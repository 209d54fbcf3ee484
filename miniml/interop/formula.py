"""elementwise: a whole primitive from the text of one element, in C.

The text is parsed once. What it says in `ops` is the definition, from which the gradient is
derived; the same tree in NumPy is the CPU kernel, and the text itself the code of fused loops in C
and of CUDA.
"""

from __future__ import annotations

import inspect
import keyword
import operator
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from math import isfinite
from typing import Any, NoReturn

import numpy as np

from .. import ops
from ..core.errors import DeclarationError
from ..core.options import number
from ..core.primitive import Primitive
from ..grad.transforms import vjp

Node = Any  # a float, a name, or (function, *arguments)


def elementwise(
    name: str,
    expression: str,
    *,
    doc: str = "",
    dtypes: str = "fd",
    bprop: Callable[..., tuple[Any, ...]] | None = None,
    **attributes: float,
) -> type[Primitive]:
    """A class of primitives: `expression`, in C, of each element of its inputs.

    The names in it that are no attributes are the inputs, in the order in which they come first;
    they broadcast, and integers are cast to a float. attributes: numbers with their defaults, as in
    Snake(alpha=0.5). Its gradient is derived, for any order, unless `bprop(self, *inputs, out,
    dout)` gives it; kinks have the conventions of `ops`: a tie of fmin or fmax halves it. dtypes:
    type codes of floats. The expression has + - * /, comparisons, && || !, a ? b : c, and the
    functions of `FORMULAS`. Numbers have the dtype of the inputs, whole ones too, and a truth is
    1 or 0 where a number is due. DeclarationError, with the place in the text, for anything else.

    >>> Cube = elementwise("DocCube", "scale * x * x * x", scale=1.0)
    >>> Cube(scale=2.0)(3.0)
    Tensor(54., shape=(), dtype=float32)
    """
    tree = _Parser(name, expression).parsed()
    for key, value in attributes.items():
        number(name, key, value)
    used = list(dict.fromkeys(_names(tree)))
    for key in (name, *used):
        if not key.isidentifier() or keyword.iskeyword(key) or key in _TAKEN:
            raise DeclarationError(
                f"{name} got the name {key!r}; give one that is no word of Python or of C"
            )
    inputs = tuple([n for n in used if n not in attributes])
    for key in attributes:
        if key not in used:
            raise DeclarationError(f"{name} has the attribute {key}, which {expression!r} lacks")
    if not inputs:
        raise DeclarationError(f"{name} got {expression!r}, which names no input, such as x")
    frame = sys._getframe(1)
    body: dict[str, Any] = {
        "__doc__": doc or f"{expression}, of each element.",
        "__module__": frame.f_globals.get("__name__", __name__),
        "__annotations__": dict.fromkeys(attributes, float),
        **attributes,
        "expression": _in_c(tree, inputs),
        "inputs": inputs,
        "dtypes": dtypes,
        "elementwise": True,
        "promote": "float",
        "compute": _computing(tree, inputs, tuple(attributes)),
        "bprop": bprop or _derived(tree, inputs),
    }
    made: type[Primitive] = type(name, (Primitive,), body)
    made.defined_at = f"{frame.f_code.co_filename}:{frame.f_lineno}"
    return made


def _in_c(node: Node, inputs: tuple[str, ...]) -> str:
    """A tree in C: numbers and attributes have the type of the inputs, T."""
    if isinstance(node, float):
        return f"T({node!r})"
    if isinstance(node, str):
        return node if node in inputs else f"T({node})"
    function, *parts = node[0], *[_in_c(part, inputs) for part in node[1:]]
    if function.isidentifier() and function != "negative":
        return f"{function}({', '.join(parts)})"
    forms = {1: "{0}({1})", 2: "({1} {0} {2})", 3: "({1} ? {2} : {3})"}
    special = {"negative": "(-{1})", "of truth": "({1} ? T(1) : T(0))"}
    return special.get(function, forms[len(parts)]).format(function, *parts)


def _computing(tree: Node, inputs: tuple[str, ...], attributes: tuple[str, ...]) -> Any:
    """The CPU kernel: the tree in NumPy."""

    def compute(self: Any, *arrays: Any, out: Any, **given: Any) -> None:
        values = {**dict(zip(inputs, arrays, strict=True)), **given, "T": out.dtype}
        with np.errstate(all="ignore"):
            out[...] = _value(tree, values, 1)

    one, named = inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY
    compute.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
        [inspect.Parameter(n, one) for n in ("self", *inputs)]
        + [inspect.Parameter(n, named) for n in (*attributes, "out")]
    )
    return compute


def _derived(tree: Node, inputs: tuple[str, ...]) -> Any:
    """The bprop: the pull-back of the tree in `ops`."""

    def bprop(self: Any, *given: Any) -> tuple[Any, ...]:
        *xs, _, dout = given

        def formula(*xs: Any) -> Any:
            values = {**self.attributes, **dict(zip(inputs, xs, strict=True)), "T": dout.dtype}
            return ops.cast(_value(tree, values, 0), dout.dtype)  # of numbers alone it is another

        gradients: tuple[Any, ...] = vjp(formula, *xs)[1](dout)
        return gradients

    return bprop


def formula(name: str, expression: str) -> Callable[..., Any]:
    """(attributes and inputs by name) to the value of an expression in `ops`; DeclarationError for
    one with words that `FORMULAS` lacks."""
    tree = _Parser(name, expression).parsed()

    def value(values: Mapping[str, Any]) -> Any:
        dtype = next(v.dtype for v in values.values() if hasattr(v, "dtype"))
        return _value(tree, {**values, "T": dtype}, 0)

    return value


def _value(node: Node, values: Mapping[str, Any], language: int) -> Any:
    """The value of a tree: language 0 is `ops`, 1 is NumPy. values: of names, and of "T" the dtype
    of numbers that are made of truths."""
    if isinstance(node, float):
        return node
    if isinstance(node, str):
        return values[node]
    parts = [_value(n, values, language) for n in node[1:]]
    if node[0] == "of truth":
        return (ops.cast, np.asarray)[language](parts[0], values["T"])
    return FORMULAS[node[0]][language](*parts)


def _names(node: Node) -> Iterator[str]:
    if isinstance(node, str):
        yield node
    elif isinstance(node, tuple):
        for part in node[1:]:
            yield from _names(part)


# --- What an expression knows ---------------------------------------------------------------------


def _special(name: str) -> Callable[..., Any]:
    def call(*args: Any) -> Any:
        from scipy import special

        return getattr(special, name)(*args)

    return call


def _beside_nan(least: Callable[..., Any]) -> Callable[..., Any]:
    """The smaller or larger one, as C says: a number beside NaN."""

    def call(x: Any, y: Any) -> Any:
        return ops.where(ops.isnan(y), x, ops.where(ops.isnan(x), y, least(x, y)))

    return call


# By the name in C: the function in `ops`, and the one in NumPy or SciPy.
FORMULAS: dict[str, tuple[Callable[..., Any], Callable[..., Any]]] = {
    "+": (ops.add, operator.add), "-": (ops.sub, operator.sub),
    "*": (ops.mul, operator.mul), "/": (ops.div, operator.truediv),
    "negative": (ops.neg, operator.neg), "T": (lambda x: x, lambda x: x),
    "<": (ops.less, operator.lt), "<=": (ops.less_equal, operator.le),
    ">": (ops.greater, operator.gt), ">=": (ops.greater_equal, operator.ge),
    "==": (ops.equal, operator.eq), "!=": (ops.not_equal, operator.ne),
    "&&": (ops.logical_and, np.logical_and), "||": (ops.logical_or, np.logical_or),
    "!": (ops.logical_not, np.logical_not), "?": (ops.where, np.where),
    **{n: (getattr(ops, n), getattr(np, n)) for n in (
        "sin cos tan sinh cosh tanh exp exp2 expm1 log log2 log10 log1p sqrt floor ceil trunc hypot"
    ).split()},
    **{n: (getattr(ops, n), getattr(np, f"arc{n[1:]}")) for n in (
        "asin acos atan atan2 asinh acosh atanh"
    ).split()},
    "fabs": (ops.abs, np.abs), "abs": (ops.abs, np.abs), "rint": (ops.round, np.rint),
    "pow": (ops.pow, np.power), "rsqrt": (ops.rsqrt, lambda x: 1 / np.sqrt(x)),
    "fmin": (_beside_nan(ops.minimum), np.fmin), "fmax": (_beside_nan(ops.maximum), np.fmax),
    "nan_min": (ops.minimum, np.minimum), "nan_max": (ops.maximum, np.maximum),
    "isnan": (ops.isnan, np.isnan), "isinf": (ops.isinf, np.isinf),
    "isfinite": (ops.isfinite, np.isfinite),
    "erf": (ops.erf, _special("erf")), "erfc": (ops.erfc, _special("erfc")),
    "erfinv": (ops.erfinv, _special("erfinv")), "lgamma": (ops.lgamma, _special("gammaln")),
}  # fmt: skip
_TAKES = dict.fromkeys("pow hypot atan2 fmin fmax nan_min nan_max".split(), 2)


_TRUTHS = frozenset("< <= > >= == != && || ! isnan isinf isfinite".split())


def _typed(node: Node) -> tuple[Node, bool]:
    """The tree with C's conversions between numbers and truths, and True where it is a truth."""
    if not isinstance(node, tuple):
        return node, False
    function, *given = node
    logical = len(given) if function in ("&&", "||", "!") else int(function == "?")
    parts = [
        (_as_truth if i < logical else _as_number)(*_typed(part)) for i, part in enumerate(given)
    ]
    return (function, *parts), function in _TRUTHS


def _as_truth(node: Node, truth: bool) -> Node:
    return node if truth else ("!=", node, 0.0)


def _as_number(node: Node, truth: bool) -> Node:
    return ("of truth", node) if truth else node


# --- The parser -----------------------------------------------------------------------------------

_TOKEN = re.compile(
    r"\s*(?:(?P<number>(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?[fF]?)|(?P<name>[A-Za-z_]\w*)"
    r"|(?P<sign>&&|\|\||[<>=!]=|[-+*/<>!?:(),]))"
)
_TAKEN = frozenset(  # words of C and C++, and names in the code around an expression
    "auto bool case catch char const default delete do double enum explicit extern float friend"
    " goto inline int long mutable namespace new operator private protected public register"
    " restrict short signed sizeof static struct switch template this throw typedef typename union"
    " unsigned using virtual void volatile self out index T U".split()
)
_CONSTANT = re.compile("M_[A-Z0-9_]+|NAN|INFINITY|HUGE_VALF?")
_BINARY = (("||",), ("&&",), ("==", "!="), ("<", "<=", ">", ">="), ("+", "-"), ("*", "/"))


class _Parser:
    """The tree of an expression, by recursive descent: C's operators in C's order."""

    def __init__(self, name: str, text: str):
        if not isinstance(text, str):
            raise DeclarationError(f"{name} got {text!r}; its expression is a string, in C")
        self.name, self.text, self.at = name, text, 0
        self.tokens: list[tuple[str, str, int]] = []
        position = 0
        while text[position:].strip():
            found = _TOKEN.match(text, position)
            if found is None:
                start = position + len(text[position:]) - len(text[position:].lstrip())
                self._refuse(start, f"{text[start]!r} is nothing that it knows")
            kind = str(found.lastgroup)
            self.tokens.append((kind, found[kind], found.start(kind)))
            position = found.end()
        self.tokens.append(("end", "", len(text)))

    def parsed(self) -> Node:
        """The whole expression, of which truths are numbers where C makes them numbers."""
        tree = self._choice()
        if self._next != "":
            self._refuse(self.tokens[self.at][2], f"{self._next!r} follows a whole expression")
        return _as_number(*_typed(tree))

    @property
    def _next(self) -> str:
        return self.tokens[self.at][1]

    def _take(self, expected: str = "") -> tuple[str, str, int]:
        token = self.tokens[self.at]
        if expected and token[1] != expected:
            got = repr(token[1]) if token[1] else "its end"
            self._refuse(token[2], f"it has {got} where {expected!r} is due")
        self.at += 1
        return token

    def _choice(self) -> Node:
        tree = self._binary(0)
        if self._next != "?":
            return tree
        self._take()
        yes = self._choice()
        self._take(":")
        return "?", tree, yes, self._choice()

    def _binary(self, level: int) -> Node:
        if level == len(_BINARY):
            return self._unary()
        tree, whole = self._operand(level)
        while self._next in _BINARY[level]:
            _, sign, at = self._take()
            right, other = self._operand(level)
            if sign == "/" and whole and other:
                self._refuse(at, "C divides two whole numbers without fractions; write 1.0 / 2.0")
            tree, whole = (sign, tree, right), whole and other
        return tree

    def _operand(self, level: int) -> tuple[Node, bool]:
        """An operand, and whether it is one whole number."""
        kind, text, _ = self.tokens[self.at]
        begin = self.at
        tree = self._binary(level + 1)
        return tree, kind == "number" and text.isdigit() and self.at == begin + 1

    def _unary(self) -> Node:
        if self._next in ("-", "+", "!"):
            sign = self._take()[1]
            tree = self._unary()
            return tree if sign == "+" else ("negative" if sign == "-" else "!", tree)
        kind, text, at = self._take()
        if kind == "number":
            value = float(text.rstrip("fF"))
            return value if isfinite(value) else self._refuse(at, f"{text} is no float64")
        if text == "(":
            tree = self._choice()
            self._take(")")
            return tree
        if kind != "name":
            self._refuse(at, f"a number, a name or ( is due, not {text!r}" if text else "it ends")
        if _CONSTANT.fullmatch(text):
            self._refuse(at, f"{text} is a constant of C, not of this language; write the number")
        return self._call(text, at) if self._next == "(" else text

    def _call(self, function: str, at: int) -> Node:
        if function not in FORMULAS:
            known = ", ".join(sorted(n for n in FORMULAS if n.isidentifier() and n != "negative"))
            self._refuse(at, f"{function} is no function that it knows: {known}")
        self._take("(")
        given = [self._choice()]
        while self._next == ",":
            self._take()
            given.append(self._choice())
        self._take(")")
        if len(given) != _TAKES.get(function, 1):
            self._refuse(at, f"{function} takes {_TAKES.get(function, 1)}; it has {len(given)}")
        return function, *given

    def _refuse(self, at: int, why: str) -> NoReturn:
        raise DeclarationError(
            f"{self.name} got an expression that cannot be read: {why}\n  {self.text}\n"
            f"  {' ' * at}^"
        )
