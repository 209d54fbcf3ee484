"""Primitives as a user writes them, with points where their gradients are asked for."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from miniml import Primitive
from miniml.errors import ShapeError
from miniml.ops.checks import broadcast, needs_float

from .planted import Planted, Subject, bprop_of
from .rows import Draw

WIDTHS = (2, 3, 4, 7)
SCALES = (0.1, 1.0, 1.0, 3.0, 10.0)


@dataclass(frozen=True)
class Natural(Planted):
    """A primitive with NumPy kernels, and draw(rng) of inputs for it, in float64.

    says: of a wrong one, a regular expression for gradcheck's report. given: the dtype in which a
    wrong one shows.
    """

    draw: Draw = lambda rng: ()
    given: Any = np.float64


def natural(
    name: str,
    shape: Callable[..., Any],
    f: Callable[..., Any],
    gradient: Callable[..., Any],
    draw: Draw,
    outs: str = "",
    says: str = "",
    given: Any = np.float64,
    **attrs: Any,
) -> Natural:
    """The primitive of out = f(*inputs, **attrs) and of gradient(*inputs, out, dout, **attrs).

    f gets NumPy arrays, gradient gets tensors. attrs: the attributes, with the values they have.
    says: that of a wrong one.
    """

    def body(*xs: Any, out: Any, **given: Any) -> None:
        if isinstance(out, tuple):
            for place, result in zip(out, f(*xs, **given), strict=True):
                place[...] = result
        else:
            out[...] = f(*xs, **given)

    def rule(self: Primitive, *args: Any) -> Any:
        found = gradient(*args, **self.attributes)
        return found if isinstance(found, tuple) else (found,)

    arity = len(draw(np.random.default_rng(0)))
    fields = {
        "__annotations__": {k: type(v) for k, v in attrs.items()},
        "infer_shape": shape,
        "infer_dtype": DTYPES[arity, bool(outs)],
        "promote": True,
        **attrs,
    }
    if outs:
        fields["outputs"] = ("a", "b")
    subject = Subject(fields, body, bprop_of(rule), f, _no_samples, arity, attrs)
    check, letters = "gradient" if says else "", "fd" if given is np.float64 else "efd"
    return Natural(name, subject, check, says, letters=letters, outs=outs, draw=draw, given=given)


def _no_samples(rng: np.random.Generator, dtype: Any) -> Any:
    return iter(())


# Rules for dtypes: those of one input, of two, of three, and of two outputs.
def one(self: Primitive, x: Any) -> Any:
    return needs_float(self.name, x)


def two(self: Primitive, x: Any, y: Any) -> Any:
    return needs_float(self.name, x)


def three(self: Primitive, x: Any, y: Any, z: Any) -> Any:
    return needs_float(self.name, x)


def pair_of_two(self: Primitive, x: Any, y: Any) -> Any:
    return needs_float(self.name, x), x


DTYPES = {(1, False): one, (2, False): two, (3, False): three, (2, True): pair_of_two}


# Rules for shapes.
def refuse(self: Primitive, wants: str, *shapes: Any) -> Any:
    raise ShapeError(f"{self.name} needs {wants}; got {', '.join(map(str, shapes))}; reshape them")


def same(self: Primitive, x: Any) -> Any:
    return x


def alike(self: Primitive, x: Any, y: Any) -> Any:
    return x if x == y else refuse(self, "two equal shapes", x, y)


def both(self: Primitive, x: Any, y: Any) -> Any:
    return broadcast(self.name, x, y)


def rows(self: Primitive, x: Any) -> Any:
    return x if x and x[-1] else refuse(self, "rows of one number at least", x)


def reduced(self: Primitive, x: Any) -> Any:
    return rows(self, x)[:-1]


def reduced_pair(self: Primitive, x: Any, y: Any) -> Any:
    return reduced(self, alike(self, x, y))


def matrices(self: Primitive, x: Any, w: Any) -> Any:
    if len(x) != 2 or len(w) != 2 or x[1] != w[0] or not x[1] or not w[1]:
        return refuse(self, "matrices (n, k) and (k, m)", x, w)
    return x[0], w[1]


def layer(self: Primitive, x: Any, w: Any, b: Any) -> Any:
    out = matrices(self, x, w)
    return out if b == out[1:] else refuse(self, "a bias for each column", x, w, b)


def attention(self: Primitive, q: Any, k: Any, v: Any) -> Any:
    if not len(q) == len(k) == len(v) == 2 or q[1] != k[1] or k[0] != v[0] or 0 in (*q, *k, *v):
        return refuse(self, "matrices (n, d), (m, d) and (m, e)", q, k, v)
    return q[0], v[1]


def two_sets(self: Primitive, x: Any, y: Any) -> Any:
    if len(x) != 2 or len(y) != 2 or x[1] != y[1] or not x[1]:
        return refuse(self, "matrices (n, d) and (m, d)", x, y)
    return x[0], y[0]


def form(self: Primitive, x: Any, a: Any) -> Any:
    if len(x) != 1 or a != (*x, *x) or not x[0]:
        return refuse(self, "shapes (n,) and (n, n)", x, a)
    return ()


def bilinear(self: Primitive, x: Any, a: Any, y: Any) -> Any:
    if len(x) != 1 or len(y) != 1 or a != (*x, *y) or not x[0] or not y[0]:
        return refuse(self, "shapes (n,), (n, m) and (m,)", x, a, y)
    return ()


def square(self: Primitive, a: Any) -> Any:
    return a if len(a) == 2 and a[0] == a[1] and a[0] else refuse(self, "a square matrix", a)


def system(self: Primitive, a: Any, b: Any) -> Any:
    return b if len(b) == 1 and square(self, a) == b * 2 else refuse(self, "(n, n), (n,)", a, b)


def table(self: Primitive, x: Any, y: Any) -> Any:
    return (*x, *y) if len(x) == len(y) == 1 else refuse(self, "two vectors", x, y)


def pair(self: Primitive, x: Any, y: Any) -> Any:
    return (alike(self, x, y),) * 2


# Draws: the shapes are drawn, too, and the scale, so that functions saturate and cancel.
def _scale(rng: np.random.Generator) -> float:
    return float(rng.choice(SCALES))


def _shape(rng: np.random.Generator) -> tuple[int, ...]:
    width = int(rng.choice(WIDTHS))
    return (width,) if rng.random() < 0.5 else (int(rng.integers(1, 4)), width)


def numbers(count: int = 1, few: bool = False) -> Draw:
    """Arrays of one shape, of normal numbers of one scale; few: also of a single number."""

    def draw(rng: np.random.Generator) -> Any:
        shape, scale = _shape(rng), _scale(rng)
        if few and rng.random() < 0.3:
            shape = (1,)
        return tuple(scale * rng.normal(size=shape) for _ in range(count))

    return draw


def inside(low: float, high: float, count: int = 1) -> Draw:
    """Numbers of a domain."""

    def draw(rng: np.random.Generator) -> Any:
        shape = _shape(rng)
        return tuple(rng.uniform(low, high, size=shape) for _ in range(count))

    return draw


def across(low: float, high: float, count: int = 1) -> Draw:
    """Numbers of a domain, in which every third is a normal number that may lie outside of it."""

    def draw(rng: np.random.Generator) -> Any:
        found = inside(low, high, count)(rng)
        return tuple(
            np.where(rng.random(a.shape) < 1 / 3, rng.normal(size=a.shape), a) for a in found
        )

    return draw


def shapes(*letters: str) -> Draw:
    """Normal numbers of a drawn scale in shapes such as "nk" and "km", an extent a letter."""

    def draw(rng: np.random.Generator) -> Any:
        extents = {c: int(rng.integers(1, 5)) for c in sorted(set("".join(letters)))}
        scale = _scale(rng)
        return tuple(scale * rng.normal(size=[extents[c] for c in s]) for s in letters)

    return draw
