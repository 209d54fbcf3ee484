"""Rows of state, of the flow of gradients, and of branches and loops."""

from __future__ import annotations

import numpy as np

import miniml as ml
from miniml import ops
from miniml.errors import DTypeError, ShapeError
from miniml.testing import OpInfo, Refusal, Sample

from .draws import SHAPES, apart, numbers


def assign_samples(rng, dtype):
    for shape in SHAPES:
        yield Sample((numbers(rng, shape, dtype), numbers(rng, shape, dtype)))


def stop_gradient_samples(rng, dtype):
    for shape in SHAPES:
        yield Sample((numbers(rng, shape, dtype),))


def product(x, y):
    return x * y, ops.sum(x)


def waves(y):
    return ops.ones((2, 3), y.dtype) * ops.sin(y), ops.max(y)


BRANCHES = {
    "product": lambda x, y: (x * y, x.sum()),
    "waves": lambda x, y: (np.ones((2, 3)) * np.sin(y), y.max()),
}


def cond_attrs(x, y):
    return {
        "on_true": ml.trace(product, x, y),
        "on_false": ml.trace(waves, y),
        "true_takes": (0, 1),
        "false_takes": (1,),
    }


def cond_samples(rng, dtype):
    for pred in (True, False):
        x, y = numbers(rng, (2, 3), dtype), apart(rng, (3,), dtype)
        yield Sample((np.array(pred), x, y), cond_attrs(x, y))


def cond(pred, x, y, on_true, on_false, **_):
    return BRANCHES[(on_true if pred else on_false).name](x, y)


def below(count, x, limit):
    return ops.logical_and(count < limit, ops.sum(x) < 100.0)


def grow(count, x, factor):
    return count + 1, x * factor


def loop_attrs(count, x, factor, limit):
    return {
        "condition": ml.trace(below, count, x, limit),
        "body": ml.trace(grow, count, x, factor),
        "condition_takes": (0, 1, 3),
        "body_takes": (0, 1, 2),
    }


def loop_samples(rng, dtype):
    for limit, factor in ((0, 2.0), (3, 0.5), (50, 3.0)):
        x = numbers(rng, (2, 3), np.dtype(np.float64), 0.5, 1.0)
        values = np.array(0, dtype), x, np.array(factor), np.array(limit, dtype)
        yield Sample(values, loop_attrs(*values))


def while_loop(count, x, factor, limit, **_):
    while count < limit and x.sum() < 100.0:
        count, x = count + 1, x * factor
    return count, x


def shares(x, y):
    top = ops.exp(x * y - ops.max(x * y, 1, True))
    return top / ops.sum(top, 1, True), ops.sum(x, 0)


def fused_samples(rng, dtype):
    for shape in ((2, 3), (1, 1), (5, 40)):
        x, y = numbers(rng, shape, dtype), numbers(rng, shape[1:], dtype)
        yield Sample((x, y), {"body": ml.trace(shares, x, y)})


def fused(x, y, body, **_):
    top = np.exp(x * y - (x * y).max(1, keepdims=True))
    return top / top.sum(1, keepdims=True), x.sum(0)


X, Y, YES = np.ones((2, 3)), np.ones(3), np.array(True)
ONE, TWO = np.array(1), np.array(2.0)

CONTROL_ROWS = (
    OpInfo(
        ops.Assign,
        assign_samples,
        reference=lambda parameter, value: value,
        nan="handled",  # what the parameter held before is gone
        refused=(
            Refusal((np.ones(3), np.ones(2)), r"shape \(2,\)", error=ShapeError),
            Refusal((np.ones(3), np.ones(3, np.int64)), "int64.*float64", error=DTypeError),
        ),
    ),
    OpInfo(
        ops.Barrier,
        assign_samples,
        reference=lambda x, after: x,
        nan="handled",
        refused=(Refusal((ONE, X), "int64", error=DTypeError),),
    ),
    OpInfo(ops.StopGradient, stop_gradient_samples, reference=lambda x: x),
    OpInfo(
        ops.Cond,
        cond_samples,
        reference=cond,
        dtypes="d",  # its graphs are traced for one dtype
        nan="handled",  # in a branch that is not taken
        refused=(
            Refusal((np.array([True]), X, Y), r"pred of shape \(\)", cond_attrs(X, Y), ShapeError),
            Refusal((np.array(1), X, Y), "pred of bool; got int64", cond_attrs(X, Y), DTypeError),
            Refusal((YES, X.T, Y), "on_true was traced for float64", cond_attrs(X, Y), ShapeError),
            Refusal((YES, X, Y.astype(int)), "got int64", cond_attrs(X, Y), DTypeError),
            Refusal((YES, X), "given; give a position for each", cond_attrs(X, Y), ShapeError),
            Refusal(
                (YES, X, Y),
                r"value 0 is float64\[2, 3\] in on_true and float64\[3\] in on_false",
                {**cond_attrs(X, Y), "on_false": ml.trace(lambda y: (y, y), Y)},
                ShapeError,
            ),
        ),
    ),
    OpInfo(
        ops.Fused,
        fused_samples,
        reference=fused,
        dtypes="fd",
        refused=(
            Refusal(
                (X,),
                "given; give a position for each",
                {"body": ml.trace(shares, X, Y)},
                ShapeError,
            ),
            Refusal((X.T, Y), "was traced for", {"body": ml.trace(shares, X, Y)}, ShapeError),
        ),
    ),
    OpInfo(
        ops.WhileLoop,
        loop_samples,
        reference=while_loop,
        dtypes="il",
        nan="handled",  # a NaN may end the loop before it meets anything
        refused=(
            Refusal(
                (ONE, X, TWO, ONE),
                r"condition gives float64\[2, 3\]; it must give one bool",
                {
                    **loop_attrs(ONE, X, TWO, ONE),
                    "condition": ml.trace(lambda count, x, limit: x, ONE, X, ONE),
                },
                ShapeError,
            ),
            Refusal(
                (ONE, X, TWO, ONE),
                r"value 1 is float64\[2, 3\] in the loop and float64\[\] in body",
                {
                    **loop_attrs(ONE, X, TWO, ONE),
                    "body": ml.trace(lambda count, x, factor: (count, factor), ONE, X, TWO),
                },
                ShapeError,
            ),
            Refusal((ONE, X, TWO, TWO), "got float64", loop_attrs(ONE, X, TWO, ONE), DTypeError),
        ),
    ),
)


# --- scan -----------------------------------------------------------------------------------------
# Rows of loops whose number of steps is known.


def step(carry, x, weight):
    after = ops.tanh(carry * weight + x)
    return after, after * x


def attrs(carry, xs, weight, reverse=False):
    body = ml.trace(step, carry, np.zeros(xs.shape[1:], xs.dtype), weight)
    return {"body": body, "length": len(xs), "carried": 1, "scanned": 1, "reverse": reverse}


def samples(rng, dtype):
    for length, reverse in ((4, False), (3, True), (1, False), (0, False)):
        values = [numbers(rng, s, dtype) for s in ((2, 3), (length, 2, 3), (3,))]
        yield Sample(tuple(values), attrs(*values, reverse))


def scan(carry, xs, weight, reverse, **_):
    ys = np.zeros(xs.shape)
    for t in reversed(range(len(xs))) if reverse else range(len(xs)):
        carry = np.tanh(carry * weight + xs[t])
        ys[t] = carry * xs[t]
    return carry, ys


CARRY, XS, WEIGHT = np.ones((2, 3)), np.ones((4, 2, 3)), np.ones(3)
PLAIN = attrs(CARRY, XS, WEIGHT)

SCAN_ROWS = (
    OpInfo(
        ops.Scan,
        samples,
        reference=scan,
        dtypes="d",  # its graph is traced for one dtype
        refused=(
            Refusal((CARRY, XS[:3], WEIGHT), r"shape \(3, 2, 3\) to scan over", PLAIN, ShapeError),
            Refusal((CARRY, XS, np.ones(2)), "body was traced for float64", PLAIN, ShapeError),
            Refusal((CARRY, XS, WEIGHT.astype(int)), "got int64", PLAIN, DTypeError),
            Refusal((CARRY, XS), "given; give a position for each", PLAIN, ShapeError),
            Refusal(
                (CARRY, XS, WEIGHT),
                r"value 0 is float64\[2, 3\] in the loop and float64\[\] in body",
                {**PLAIN, "body": ml.trace(lambda c, x, w: (c.sum(), x), CARRY, XS[0], WEIGHT)},
                ShapeError,
            ),
        ),
    ),
)

ROWS = (*CONTROL_ROWS, *SCAN_ROWS)
