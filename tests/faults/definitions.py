"""Primitives with wrong rules, wrong gradients or wrong attributes, found by opcheck."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from miniml import Primitive, float32, kernel, ops
from miniml.errors import ShapeError
from miniml.grad import bprop_getters
from miniml.ops.checks import normal_axis

from .planted import PRODUCT, SCALE, TOTAL, WAVE, Planted, bprop_of, rebuild_without, sine


def rule(gradients: Callable[..., Any]) -> Any:
    """A getter of a bprop of two inputs that needs neither `self` nor `out`."""
    return bprop_of(lambda self, x, y, out, dout: gradients(x, y, dout))


def worse_in(dtype: str, factor: float) -> Any:
    """The gradient of x y, times a factor in one dtype only."""
    return rule(
        lambda x, y, dout: (dout * y * (factor if x.dtype.name == dtype else 1.0), dout * x)
    )


def last_of_square(self: Primitive, x: Any) -> Any:
    """Right where both extents are equal, as in the sample that the author tried."""
    axis = normal_axis(self.name, self.axis, len(x))
    return (x[axis],) if len(x) == 2 else (*x[:axis], *x[axis + 1 :])


def rank_two_only(self: Primitive, x: Any) -> Any:
    if not x:
        raise ShapeError(f"{self.name} needs a rank of at least 1; got {x}; add an axis")
    return x[1:] if len(x) <= 2 else x[2:]


def one_more(self: Primitive, x: Any) -> Any:
    return (*x[:-1], x[-1] + 1) if x else x


def fraction(self: Primitive, x: Any) -> Any:
    return tuple(n / 1 for n in x)


def turned(self: Primitive, x: Any) -> Any:
    return x[::-1]


def careless_of_rank(self: Primitive, x: Any) -> Any:
    return (x[0], *x[1:])  # an IndexError for 0-d


def unchecked(self: Primitive, x: Any, y: Any) -> Any:
    return x if len(x) >= len(y) else y


def always_float32(self: Primitive, *dtypes: Any) -> Any:
    return float32


def any_axis(self: Primitive, x: Any) -> Any:
    return x[:-1]


def last_axis(x, *, axis, out):
    np.einsum("...i->...", x, out=out)


def only_one_shape(self: Primitive, x: Any) -> Any:
    if x != (13, 7, 11):
        raise ShapeError(f"{self.name} works on shape (13, 7, 11); got {x}; reshape it")
    return x


def centred(x, *, out):
    """Works on the whole array, so not row by row."""
    sine(x - x.mean(dtype=np.float64).astype(x.dtype) if x.size else x, out=out)


def off_by_one_value(self: Primitive, x: Any) -> Any:
    return None if x is None else np.sin(np.asarray(x)) + 1


def along_another(self: Primitive, x: Any, out: Any, dout: Any) -> Any:
    """Spreads over the last axis in place of its own wherever the shapes allow it."""
    fits = len(x.shape) > 1 and x.shape[-1] == x.shape[self.axis]
    return (ops.broadcast_to(ops.expand_dims(dout, -1 if fits else self.axis), x.shape),)


def clobbers(x, dout, *, out):
    np.multiply(dout, np.cos(x), out=out)
    x *= 0


def in_memory_order(x, dout, *, out):
    np.multiply(dout.ravel("K").reshape(dout.shape), np.cos(x), out=out)


def by_helper(fn: Any) -> Any:
    """A bprop of sin that leaves the work to another primitive, whose kernel is `fn`."""
    return bprop_of(lambda self, x, out, dout: (HELPERS[fn](x, dout),))


class ClobberingSlope(Primitive):
    """dout cos(x), for the gradient of a planted primitive; writes into x."""

    def infer_shape(self, x, dout):
        return x

    def infer_dtype(self, x, dout):
        return x


class MemoryOrderSlope(ClobberingSlope):
    """dout cos(x), for the gradient of a planted primitive; reads dout in the order of memory."""


@bprop_getters.register(ClobberingSlope)
def get_bprop_slope(self: Primitive) -> Any:
    return lambda x, d, out, dout: (-dout * d * ops.sin(x), dout * ops.cos(x))


kernel("ClobberingSlope", "cpu", "ff->f", "dd->d")(clobbers)
kernel("MemoryOrderSlope", "cpu", "ff->f", "dd->d")(in_memory_order)
HELPERS: dict[Any, Primitive] = {clobbers: ClobberingSlope(), in_memory_order: MemoryOrderSlope()}

RULES = (
    Planted("ShapeOfSquares", TOTAL, "rules|kernels run|refusals",
        body={"infer_shape": last_of_square}),
    Planted("ShapeUpToRankTwo", TOTAL, "rules|kernels run|refusals",
        body={"infer_shape": rank_two_only}),
    Planted("ShapeOneTooLong", WAVE, "rules|kernels run|refusals", body={"infer_shape": one_more}),
    Planted("ShapeOfFractions", WAVE, "rule|refusals", "tuple of ints",
        body={"infer_shape": fraction}),
    Planted("ShapeTurned", WAVE, "rules", body={"infer_shape": turned}),
    Planted("IndexErrorForASentence", WAVE, "refusals", body={"infer_shape": careless_of_rank},
        severity="warning"),
    Planted("AcceptsAnyShapes", PRODUCT, "refusals|kernels run", body={"infer_shape": unchecked}),
    Planted("AcceptsZeroD", TOTAL, "refusals|kernels run", body={"infer_shape": any_axis},
        fn=last_axis, letters="fd"),
    Planted("DTypeAlwaysFloat32", WAVE, "rules|kernels run", body={"infer_dtype": always_float32}),
    Planted("OneOutputForTwo", WAVE, "rules|refusals|draws", body={"outputs": ("a", "b")},
        outs="{0}{0}"),
    Planted("WantsOneShape", WAVE, "draws", "OpInfo", body={"infer_shape": only_one_shape},
        severity="any"),
    Planted("WrongKnownValue", WAVE, "infer_value", body={"infer_value": off_by_one_value}),
    Planted("NotRowByRow", WAVE, "batching", fn=centred, bprop="none",
        body={"differentiable": False}, row={"batch_axes": (0,), "reference": None}),
)  # fmt: skip

GRADIENTS = (
    Planted("TwiceTheGradient", WAVE, "gradient", "2",
        bprop=bprop_of(lambda self, x, out, dout: (2.0 * dout * ops.cos(x),))),
    Planted("NegatedGradient", PRODUCT, "gradient",
        bprop=rule(lambda x, y, dout: (dout * y, -dout * x))),
    Planted("SwappedGradients", PRODUCT, "gradient", "swap",
        bprop=rule(lambda x, y, dout: (dout * x, dout * y))),
    Planted("IgnoresDout", PRODUCT, "gradient|bprop",
        bprop=rule(lambda x, y, dout: (y + 0.0 * dout, dout * x))),
    Planted("MissesAGradient", PRODUCT, "gradient",
        bprop=rule(lambda x, y, dout: (dout * y, None))),
    Planted("OneGradientTooFew", PRODUCT, "bprop|gradient",
        bprop=rule(lambda x, y, dout: (dout * y,))),
    Planted("OneGradientTooMany", WAVE, "bprop",
        bprop=bprop_of(lambda self, x, out, dout: (dout, dout))),
    Planted("GradientWithoutATuple", WAVE, "bprop",
        bprop=bprop_of(lambda self, x, out, dout: dout)),
    Planted("GradientOfAnotherShape", PRODUCT, "bprop|gradient", "shape",
        bprop=rule(lambda x, y, dout: (ops.sum(dout * y), dout * x))),
    Planted("GradientOfAnotherDType", PRODUCT, "bprop|gradient", "float64",
        bprop=rule(lambda x, y, dout: (ops.cast(dout * y, "float64"), dout * x))),
    Planted("WrongInOrderTwo", PRODUCT, "gradient",
        bprop=rule(lambda x, y, dout: (dout * ops.stop_gradient(y), dout * x))),
    Planted("WrongInFloat32", PRODUCT, "gradient", "float32", bprop=worse_in("float32", 1.01)),
    Planted("WrongInFloat16", PRODUCT, "gradient", "float16", bprop=worse_in("float16", 1.1)),
    Planted("WrongInRankThree", PRODUCT, "gradient",
        bprop=rule(lambda x, y, dout: (dout * y * (1.0 if len(x.shape) < 3 else 0.5), dout * x))),
    Planted("NotLinear", PRODUCT, "gradient",
        bprop=rule(lambda x, y, dout: (dout * ops.abs(dout) * y, dout * x))),
    Planted("NoGradientAtAll", WAVE, "gradient|bprop", bprop="none"),
    Planted("SpreadsAlongAnotherAxis", TOTAL, "gradient", bprop=bprop_of(along_another)),
    Planted("ForgetsAlpha", SCALE, "gradient", bprop=bprop_of(lambda self, x, out, dout: (dout,))),
    Planted("GradientWritesSavedInput", WAVE, "memory|cotangents", bprop=by_helper(clobbers),
        letters="fd"),
    Planted("GradientReadsMemoryOrder", WAVE, "cotangents", bprop=by_helper(in_memory_order),
        letters="fd"),
)  # fmt: skip

ATTRIBUTES = (
    Planted("EqualWhateverItsAttribute", SCALE, "attributes",
        body={"__eq__": lambda s, o: type(s) is type(o), "__hash__": lambda s: 1}),
    Planted("LosesItsAttributeInPickle", SCALE, "attributes", "pickl",
        body={"__reduce__": rebuild_without}),
    Planted("Unhashable", SCALE, "attributes", "hash", body={"__hash__": None}),
)  # fmt: skip

DEFINITIONS = RULES + GRADIENTS + ATTRIBUTES
