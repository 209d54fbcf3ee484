"""Throwaway primitives: a correct subject with pieces replaced, filed while a test runs."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from miniml import Primitive, kernel, ops, view_kernel
from miniml.backends import registry
from miniml.core.primitive import primitives
from miniml.grad import bprop_getters
from miniml.ops.checks import broadcast, needs_float, normal_axis
from miniml.testing import OpInfo, Sample
from tests.opinfo.draws import SHAPES, numbers

FLOATS = "efdE"  # E is bfloat16
Filed = tuple[Callable[..., Any], str, dict[str, Any]]  # a kernel, its letters, its options


@dataclass(frozen=True)
class Subject:
    """A correct primitive in its parts, each of which a fault may replace.

    body: rules, attributes and class variables. fn: the kernel of every letter of `letters`,
    used with `arity` inputs. samples, reference: what an OpInfo of it would say.
    """

    body: dict[str, Any]
    fn: Callable[..., Any]
    bprop: Callable[..., Any] | None
    reference: Callable[..., Any]
    samples: Callable[..., Any]
    arity: int = 1
    attrs: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Planted:
    """One faulty primitive and the finding that it must produce.

    check: a regular expression for the finding's check; says: one for its message. body, fn,
    bprop: what replaces the subject's part ("none" takes the bprop away). letters: dtypes with
    kernels. others: more kernels, as (function, letters, options of @kernel). row: what the
    OpInfo given to the checker says beside samples; None for no OpInfo at all. cuda: files the
    CUDA kernels for the primitive's name. signatures: those of fn, in place of letters.
    """

    name: str
    subject: Subject
    check: str
    says: str = ""
    body: dict[str, Any] = field(default_factory=dict)
    fn: Callable[..., Any] | None = None
    bprop: Any = None
    letters: str = FLOATS
    outs: str = ""
    others: tuple[Filed, ...] = ()
    options: dict[str, Any] = field(default_factory=dict)
    row: dict[str, Any] | None = None
    severity: str = "fault"
    cuda: Callable[[str], None] | None = None
    signatures: tuple[str, ...] = ()


REFERENCE: dict[str, Any] = {}  # row=REFERENCE: an OpInfo with the subject's own reference


@contextmanager
def planted(row: Planted) -> Iterator[tuple[Primitive, OpInfo | None]]:
    """The primitive of a row and the OpInfo to give with it, filed until the block ends.

    The class stands in this module while it is filed, so that it can be pickled like any other.
    """
    module = sys.modules[__name__]
    cls = _define(row)
    setattr(module, row.name, cls)
    info = None
    if row.row is not None:
        message = {"reference": row.subject.reference, "samples": row.subject.samples, **row.row}
        info = OpInfo(cls, **message)
    try:
        yield cls(**row.subject.attrs), info
    finally:
        delattr(module, row.name)
        bprop_getters.unregister(cls)
        primitives.pop(row.name)
        registry.specs.pop(row.name, None)
        for device in ("cpu", "cuda"):
            registry.table.pop((row.name, device), None)


def _define(row: Planted) -> type[Primitive]:
    subject = row.subject
    body = {
        "__module__": __name__, "__qualname__": row.name, "__doc__": f"{row.name}: planted.",
        **subject.body, **row.body,
    }  # fmt: skip
    cls = type(row.name, (Primitive,), body)
    taken = {letter for _, letters, options in row.others for letter in letters if not options}
    own = [letter for letter in row.letters if letter not in taken]
    outs = row.outs or "{}"
    filed = [(row.fn or subject.fn, own, row.options), *row.others]
    for fn, letters, options in filed:
        signatures = [f"{c * subject.arity}->{outs.format(c)}" for c in letters]
        if signatures:
            register = view_kernel if "of" in options else kernel
            register(row.name, "cpu", *signatures, **options)(fn)
    if row.signatures:
        kernel(row.name, "cpu", *row.signatures)(row.fn or subject.fn)
    if row.cuda is not None:
        row.cuda(row.name)
    bprop = row.bprop or subject.bprop
    if bprop is not None and bprop != "none":
        bprop_getters.register(cls)(bprop)
    return cls


def bprop_of(rule: Callable[..., Any]) -> Callable[..., Any]:
    """A getter from rule(self, *inputs, out, dout)."""

    def getter(self: Primitive) -> Callable[..., Any]:
        return lambda *args: rule(self, *args)

    return getter


def rebuild_without(self: Primitive) -> Any:
    """A `__reduce__` that forgets the attributes."""
    return type(self), ()


# sin(x), element by element.
def same(self: Primitive, x: Any) -> Any:
    return x


def floats(self: Primitive, x: Any) -> Any:
    return needs_float(self.name, x)


def sine(x, *, out):
    np.sin(x.astype(np.float32) if x.dtype.itemsize == 2 else x, out=out, casting="unsafe")


def unary_samples(rng, dtype):
    for shape in SHAPES:
        yield Sample((numbers(rng, shape, dtype),))


WAVE = Subject(
    {"infer_shape": same, "infer_dtype": floats},
    sine,
    bprop_of(lambda self, x, out, dout: (dout * ops.cos(x),)),
    np.sin,
    unary_samples,
)


# x * y, broadcast.
def both(self: Primitive, x: Any, y: Any) -> Any:
    return broadcast(self.name, x, y)


def first(self: Primitive, x: Any, y: Any) -> Any:
    return needs_float(self.name, x)


def product(x, y, *, out):
    np.multiply(x, y, out=out)


def binary_samples(rng, dtype):
    for x, y in (
        *zip(SHAPES, SHAPES),
        ((2, 1), (3,)),
        ((3,), (2, 1)),
        ((), (4,)),
        ((2, 3), (1, 1)),
    ):
        yield Sample((numbers(rng, x, dtype), numbers(rng, y, dtype)))


PRODUCT = Subject(
    {"infer_shape": both, "infer_dtype": first, "promote": True},
    product,
    bprop_of(lambda self, x, y, out, dout: (dout * y, dout * x)),
    np.multiply,
    binary_samples,
    arity=2,
)


# alpha * x, with the attribute alpha.
def times(x, *, alpha, out):
    wide = x.astype(np.float32) if x.dtype.itemsize == 2 else x
    np.multiply(wide, wide.dtype.type(alpha), out=out, casting="unsafe")


def scale_samples(rng, dtype):
    for shape in SHAPES:
        for alpha in (2.5, -1.0):
            yield Sample((numbers(rng, shape, dtype),), {"alpha": alpha})


SCALE = Subject(
    {"__annotations__": {"alpha": float}, "alpha": 1.0, "infer_shape": same, "infer_dtype": floats},
    times,
    bprop_of(lambda self, x, out, dout: (dout * self.alpha,)),
    lambda x, alpha: x * alpha,
    scale_samples,
    attrs={"alpha": 2.5},
)


# The sum over one axis.
def without_axis(self: Primitive, x: Any) -> Any:
    axis = normal_axis(self.name, self.axis, len(x))
    return (*x[:axis], *x[axis + 1 :])


def total(x, *, axis, out):
    wide = np.float32 if x.dtype.itemsize == 2 else x.dtype
    out[...] = np.add.reduce(x, axis=axis, dtype=wide)


def total_samples(rng, dtype):
    for shape, axis in (((4,), 0), ((2, 3, 5), 1), ((3, 5), 0), ((0, 3), 0), ((1,), 0)):
        yield Sample((numbers(rng, shape, dtype),), {"axis": axis})


def spread(self, x, out, dout):
    return (ops.broadcast_to(ops.expand_dims(dout, self.axis), x.shape),)


TOTAL = Subject(
    {
        "__annotations__": {"axis": int}, "axis": 0,
        "infer_shape": without_axis, "infer_dtype": floats,
    },
    total,
    bprop_of(spread),
    np.sum,
    total_samples,
    attrs={"axis": 0},
)  # fmt: skip


# x and x^2, two outputs.
def twice(self: Primitive, x: Any) -> Any:
    return x, x


def two_powers(x, *, out):
    out[0][...] = x
    np.multiply(x, x, out=out[1])


POWERS = Subject(
    {"outputs": ("x", "square"), "infer_shape": twice, "infer_dtype": twice},
    two_powers,
    bprop_of(lambda self, x, out, dout: (dout[0] + 2.0 * x * dout[1],)),
    lambda x: (x, x * x),
    unary_samples,
)

CORRECT = (
    Planted("RightWave", WAVE, ""),
    Planted("RightWaveWithReference", WAVE, "", row=REFERENCE),
    Planted("RightProduct", PRODUCT, ""),
    Planted("RightScale", SCALE, ""),
    Planted("RightTotal", TOTAL, ""),
    Planted("RightTotalWithReference", TOTAL, "", row=REFERENCE),
    Planted("RightPowers", POWERS, "", outs="{0}{0}"),
    Planted("RightInPlace", PRODUCT, "", options={"inplace": (0, 1)}),
)
