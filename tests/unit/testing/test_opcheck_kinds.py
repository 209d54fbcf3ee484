"""Kinds of faults that opcheck must see in any primitive, each beside right ones it must pass."""

from typing import Literal

import ml_dtypes
import numpy as np
import pytest

from miniml import ops
from miniml.errors import ShapeError
from miniml.testing import opcheck
from miniml.testing.opchecks.draws import drawn
from miniml.testing.opchecks.rules import variations
from miniml.testing.tolerance import systematic
from tests.faults.planting import plant

DTYPES = (np.float16, ml_dtypes.bfloat16, np.float32)
FUNCTIONS = {
    "sin": lambda x: np.sin(3 * x), "exp": np.exp, "cube": lambda x: x * x * x,
    "swish": lambda x: x / (1 + np.exp(-x)), "arctan": np.arctan, "bell": lambda x: np.exp(-x * x),
}  # fmt: skip
FACTORS = {np.float16: 1.005, ml_dtypes.bfloat16: 1.03, np.float32: 1.00001}


def cut(values, bits):
    """bfloat16 with that many bits of the mantissa cut off."""
    kept = np.uint16(0xFFFF ^ ((1 << bits) - 1))
    return (values.astype(ml_dtypes.bfloat16).view(np.uint16) & kept).view(ml_dtypes.bfloat16)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_an_error_that_most_numbers_share_is_known_from_rounding(name, dtype):
    """Over random numbers: right kernels round the result, or after each operation."""
    f = FUNCTIONS[name]
    for seed in range(20):
        x = np.random.default_rng(seed).uniform(-2, 2, 100).astype(dtype)
        right = f(x.astype(np.float64))
        u = float(ml_dtypes.finfo(dtype).eps) / 2
        moved = np.abs(f(x.astype(np.float64) * (1 + u)) - right)
        for good in (right.astype(dtype), f(x.astype(np.float32)).astype(dtype), f(x)):
            assert systematic(good, right, moved) is None
        bad = systematic((right * FACTORS[dtype]).astype(dtype), right, moved)
        assert bad is not None
        assert (bad.how, bad.severity) == ("too large", "fault")


def test_bits_that_are_cut_off_are_an_error_of_one_sign():
    for seed in range(20):
        right = np.random.default_rng(seed).uniform(0.5, 2, 100)
        found = systematic(cut(right, 3), right, 0.0)
        assert found is not None
        assert (found.how, found.severity) == ("too small", "fault")
        assert systematic(cut(right, 0), right, 0.0) is None


@pytest.mark.parametrize("seed", [None, 1, 2])
@pytest.mark.parametrize("dtype", DTYPES)
def test_a_kernel_of_few_bits_that_is_off_by_a_factor_is_a_fault(dtype, seed):
    def body(x, *, alpha, out, factor=1.0):
        out[...] = np.sin(3 * x.astype(np.float64)) * (factor if x.dtype == dtype else 1.0)

    def off(x, *, alpha, out):
        body(x, alpha=alpha, out=out, factor=FACTORS[dtype])

    for fn, faulty in (
        (off, True),
        (lambda x, *, alpha, out: body(x, alpha=alpha, out=out), False),
    ):
        with plant(fn=fn, bprop=None, letters=["f->f", "d->d", "e->e", "E->E"]) as primitive:
            report = opcheck(primitive, checks=["kernels"], seed=seed, raise_error=False)
        assert bool(report.faults) is faulty, str(report)


def stretched_back(x, g, reduce):
    """g summed over what x was stretched along; `reduce` gives the sum over kept axes."""
    lead = len(g.shape) - len(x.shape)
    g = ops.sum(g, tuple(range(lead))) if lead else g
    for axis, (n, m) in enumerate(zip(x.shape, g.shape, strict=True)):
        g = reduce(g, axis, len(x.shape)) if n == 1 and m != 1 else g
    return g


def summed(g, axis, rank):
    return ops.sum(g, (axis,), True)


REDUCES = {
    "right": summed,
    "averages": lambda g, axis, rank: ops.mean(g, (axis,), True),
    "averages rows of matrices": lambda g, axis, rank: (
        ops.mean(g, (0,), True) if (rank, axis) == (2, 0) else summed(g, axis, rank)
    ),
    "averages columns": lambda g, axis, rank: (
        ops.mean(g, (1,), True) if (rank, axis) == (2, 1) else summed(g, axis, rank)
    ),
    "takes the first": lambda g, axis, rank: (
        g[:, :1] if (rank, axis) == (2, 1) else summed(g, axis, rank)
    ),
}


def both(self, x, y):
    try:
        return np.broadcast_shapes(x, y)
    except ValueError:
        raise ShapeError(f"{self.name} broadcasts; got {x} and {y}; reshape them") from None


@pytest.mark.parametrize(
    ("name", "seed"),
    [("right", 1), ("right", 2), *((name, None) for name in REDUCES)]
    + [pytest.param(n, s, marks=pytest.mark.deep) for n in REDUCES for s in (1, 2) if n != "right"],
)
def test_gradients_of_stretched_axes_are_checked(name, seed):
    def rule(self):
        return lambda x, y, out, dout: (
            stretched_back(x, dout * y, summed),
            stretched_back(y, dout * x, REDUCES[name]),
        )

    with plant(
        fn=lambda x, y, *, alpha, out: np.multiply(x, y, out=out), bprop=rule,
        infer_shape=both, infer_dtype=lambda self, x, y: x, letters=["dd->d"],
    ) as primitive:  # fmt: skip
        shapes = {
            tuple(a.shape for a in c.arrays) for c in drawn(primitive, seed, lambda call: True)
        }
        names = ["gradient", "gradient of broadcast inputs"]
        report = opcheck(primitive, checks=names, seed=seed, raise_error=False)
    assert {((2, 1), (2, 3)), ((1, 3), (2, 3)), ((2, 3), (2, 1)), ((2, 1), (1, 3))} <= shapes
    assert bool(report.faults) is (name != "right"), str(report)


SAVED = {}


def remembers(x, *, alpha, out):
    SAVED[x.shape] = x > 0
    np.maximum(x, 0, out=out)


@pytest.mark.parametrize("saved", [True, False])
def test_what_the_last_call_saved_is_not_read_by_a_pull_back(saved):
    def rule(self):
        def bprop(x, out, dout):
            mask = SAVED[x.shape] if saved else x.asnumpy() > 0
            return (dout * mask.astype(x.dtype),)

        return bprop

    with plant(fn=remembers, bprop=rule) as primitive:
        report = opcheck(primitive, checks=["gradient cotangents"], raise_error=False)
    assert bool(report.faults) is saved, str(report)
    assert any("depends on later calls" in f.message for f in report.faults) is saved


def words_in_literal(self, x):
    return x if self.kind == "none" else ()


def words_in_refusal(self, x):
    if self.kind not in {"none": 0, "sum": 1, "mean": 2}:
        raise ValueError("kind must be 'none', 'sum' or 'mean'")
    return words_in_literal(self, x)


def reduced(x, *, alpha, kind, axis, keep, out):
    y = x * x
    out[...] = y if kind == "none" else y.sum() if kind == "sum" else y.sum() / max(y.size, 1)


@pytest.mark.parametrize("annotation", [Literal["none", "sum", "mean"], str])
@pytest.mark.parametrize("right", [True, False])
def test_words_that_a_class_takes_are_tried(annotation, right):
    rule = words_in_refusal if annotation is str else words_in_literal
    body = {"__annotations__": {"alpha": float, "kind": annotation, "axis": int, "keep": bool},
            "kind": "sum", "axis": 0, "keep": False}  # fmt: skip

    def get_bprop(self):
        def bprop(x, out, dout):
            n = float(np.prod(x.shape)) if right and self.kind == "mean" else 1.0
            return (2.0 * x * dout / n,)

        return bprop

    with plant(fn=reduced, infer_shape=rule, body=body, bprop=get_bprop) as primitive:
        tried = {(twin.kind, twin.axis, twin.keep) for twin, _ in variations(primitive)}
        report = opcheck(primitive, checks=["gradient with other attributes"], raise_error=False)
    assert {("none", 0, False), ("mean", 0, False), ("sum", 1, False), ("sum", -1, False),
            ("sum", 0, True)} <= tried  # fmt: skip
    assert bool(report.faults) is not right, str(report)


def test_an_attribute_of_the_other_sign_is_a_warning():
    """|x|^p + x, whose gradient takes the p of its rule for positive."""

    def get_bprop(sign):
        return lambda self: (
            lambda x, out, dout: (
                dout * (sign(self.alpha) * ops.abs(x) ** (self.alpha - 1.0) * ops.sign(x) + 1.0),
            )
        )

    def power(x, *, alpha, out):
        out[...] = np.abs(x) ** alpha + x

    for sign, wrong in ((abs, True), (float, False)):
        with plant(fn=power, bprop=get_bprop(sign), body={"alpha": 2.0}) as primitive:
            report = opcheck(primitive, checks=["gradient with other attributes"])
        assert bool(report.warnings) is wrong, str(report)


@pytest.mark.parametrize("wrong", [True, False])
@pytest.mark.parametrize("axis", [0, -1])
def test_gradients_of_long_odd_inputs_are_judged_by_element(axis, wrong):
    """The middle element of more than 32, an odd number, is 1 % too large."""

    def get_bprop(self):
        def bprop(x, out, dout):
            n = x.shape[axis]
            weights = np.ones(n)
            weights[n // 2] += 0.01 * (wrong and n % 2 == 1 and n > 32)
            shape = [1] * len(x.shape)
            shape[axis] = n
            return (ops.flip(dout, axis) * weights.reshape(shape),)

        return bprop

    def row(self, x):
        if not x:
            raise ShapeError(f"{self.name} needs an axis; got {x}; reshape it")
        return x

    with plant(
        fn=lambda x, *, alpha, out: np.copyto(out, np.flip(x, axis)),
        bprop=get_bprop, infer_shape=row, letters=["d->d"],
    ) as primitive:  # fmt: skip
        report = opcheck(primitive, checks=["gradient of long inputs"], raise_error=False)
    assert bool(report.faults) is wrong, str(report)
    assert all("1.01" in f.message for f in report.faults)


def test_a_gradient_for_whole_numbers_is_a_warning():
    def rule(returned):
        return lambda self: lambda x, i, out, dout: (dout, returned(dout))

    with_index = {
        "fn": lambda x, i, *, alpha, out: np.add(x, i, out=out),
        "infer_shape": lambda self, x, i: x if x == i else both(self, (2,), (3,)),
        "infer_dtype": lambda self, x, i: x, "letters": ["dl->d"],
    }  # fmt: skip
    for returned, wrong in (
        (lambda d: d, True),
        (lambda d: None, False),
        (lambda d: 0.0 * d, False),
    ):
        with plant(bprop=rule(returned), **with_index) as primitive:
            report = opcheck(primitive, checks=["bprop"])
        assert bool(report.warnings) is wrong, str(report)


def naive_swish(x, *, alpha, out):
    out[...] = x / (1 + np.exp(-x))


@pytest.mark.parametrize(("fn", "lost"), [
    (naive_swish, True),
    (lambda x, *, alpha, out: np.multiply(x, np.exp(-np.abs(x)), out=out), True),
    (lambda x, *, alpha, out: np.arctan(x, out=out), False),
    (lambda x, *, alpha, out: np.sin(x, out=out), False),
    (lambda x, *, alpha, out: np.subtract(x, x.mean(), out=out), False),
    (lambda x, *, alpha, out: np.add(x * x, x, out=out), False),
    (lambda x, *, alpha, out: np.copyto(out, soft(x)), False),
    (lambda x, *, alpha, out: np.copyto(out, np.where(x < -800, 0, naive(x))), False),
])  # fmt: skip
def test_a_nan_at_an_infinity_that_has_a_limit_is_a_warning(fn, lost):
    with plant(fn=fn, bprop=None, body={"differentiable": False}) as primitive:
        report = opcheck(primitive, checks=["special"], inputs=(np.array([0.3, -0.5]),))
    assert any("numbers from" in f.message for f in report.warnings) is lost, str(report)


def test_a_limit_lost_in_the_eleventh_input_is_found():
    def first(self, a, b, c, d, e, f, g, h, i, j, k):
        return a

    with plant(
        fn=lambda *xs, alpha, out: np.copyto(out, naive(xs[10]) + sum(xs[:10])),
        bprop=None, infer_shape=first, infer_dtype=first, letters=["d" * 11 + "->d"],
        body={"differentiable": False},
    ) as primitive:  # fmt: skip
        inputs = (np.array([0.3, -0.5]),) * 11
        report = opcheck(primitive, checks=["special"], inputs=inputs, raise_error=False)
    found = [f.message for f in report.warnings if "numbers from" in f.message]
    assert any("in input 10: output 0" in message for message in found), str(report)


def soft(x):
    e = np.exp(x - x.max())
    return e / e.sum()


def naive(x):
    return x / (1 + np.exp(-x))
