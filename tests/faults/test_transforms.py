"""Faults in batch rules, jvp rules and facts of the library: opcheck's checks find each."""

from contextlib import contextmanager

import numpy as np
import pytest

from miniml import float64, int64, ops
from miniml.errors import MinimlError
from miniml.grad import batch_rules, jvp_rules
from miniml.testing.calls import calls
from miniml.testing.opchecks.relations import as_batch, as_linear, as_tangent

from ..opinfo import ROWS

ROW = {row.primitive.name: row for row in ROWS}
CALLS = 12  # of a row that are tried


def found(name):
    """True where a batched call, a tangent or a sum is another than the check expects."""
    for dtype in (float64, int64):
        try:
            tried = list(calls(ROW[name], dtype, np.random.default_rng(0)))[:CALLS]
        except (MinimlError, TypeError):
            continue
        for call in tried:
            for check in (as_batch, as_tangent, as_linear):
                if any(differs(variant) for variant in check(call)):
                    return True
    return False


def differs(variant):
    try:
        got = variant.got()
    except (MinimlError, ValueError):
        return True
    expected = variant.run(variant.arrays)
    return any(
        a.shape != b.shape or not np.allclose(a, b, rtol=1e-6, atol=1e-9, equal_nan=True)
        for a, b in zip(got, expected)
    )


def each(change):
    """A rule whose results are changed, each by itself."""

    def changed(rule, primitive):
        def faulty(*given):
            outs = rule(*given)
            if isinstance(outs, (tuple, list)):
                return tuple(None if o is None else change(o) for o in outs)
            return None if outs is None else change(outs)

        return faulty

    return changed


def first(x):
    return ops.broadcast_to(x[:1], x.shape)


FLIPPED = each(lambda x: ops.flip(x, 0))  # the examples in the wrong order
SHARED = each(first)  # every example gets the result of the first
MOVED = each(lambda x: ops.moveaxis(x, 0, -1))  # the axis of the examples comes last
TWICE = each(lambda x: x + x)
NEGATIVE = each(ops.neg)


def unshifted(rule, primitive):
    """The primitive itself, without regard to the axis of the examples."""
    return lambda batched, *xs: primitive(*xs)


def without_tangents_of_the_first(rule, primitive):
    def faulty(primals, tangents, out):
        return rule(primals, (ops.zeros_like(tangents[0]), *tangents[1:]), out)

    return faulty


RULES = {
    "Sum": (batch_rules, unshifted),
    "Softmax": (batch_rules, FLIPPED),
    "CumSum": (batch_rules, unshifted),
    "Transpose": (batch_rules, SHARED),
    "Gather": (batch_rules, FLIPPED),
    "TakeAlongAxis": (batch_rules, SHARED),
    "ScatterAdd": (batch_rules, FLIPPED),
    "Conv2D": (batch_rules, SHARED),
    "MaxPool2D": (batch_rules, FLIPPED),
    "LayerNorm": (batch_rules, TWICE),
    "MatMul": (batch_rules, FLIPPED),
    "ArgMax": (batch_rules, unshifted),
    "Sort": (batch_rules, MOVED),
    "Solve": (batch_rules, FLIPPED),
    "Concat": (jvp_rules, TWICE),
    "Pad": (jvp_rules, NEGATIVE),
    "Index": (jvp_rules, TWICE),
    "Scatter": (jvp_rules, without_tangents_of_the_first),
    "TopK": (jvp_rules, NEGATIVE),
    "Einsum": (jvp_rules, without_tangents_of_the_first),
}
FACTS = {
    "Exp": {"linear": ("x",)},
    "Mul": {"linear": ("x y",)},
    "Tanh": {"linear": ("x",)},
    "LogSoftmax": {"elementwise": True},
    "Max": {"linear": ("x",)},
    "Reciprocal": {"view": "same"},
}


@contextmanager
def planted(registry, name, change):
    """The rule of a primitive, changed."""
    cls = ROW[name].primitive
    right = registry.find(cls)
    registry.unregister(cls)
    registry._by_class[cls] = lambda self: change(right(self), self)
    try:
        yield
    finally:
        registry._by_class[cls] = right
        registry._found.clear()


@pytest.mark.parametrize("name", RULES)
def test_a_fault_in_a_rule_is_found(name):
    assert not found(name)
    with planted(*RULES[name][:1], name, RULES[name][1]):
        assert found(name)
    assert not found(name)


@pytest.mark.parametrize("name", FACTS)
def test_a_false_fact_is_found(name, monkeypatch):
    cls = ROW[name].primitive
    assert not found(name)
    for fact, value in FACTS[name].items():
        monkeypatch.setattr(cls, fact, value)
    assert found(name)
