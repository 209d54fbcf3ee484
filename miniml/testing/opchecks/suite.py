"""The checks of opcheck, in the order in which they run."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import chain
from math import inf

from ...dtype import int64, is_float
from ..calls import Call
from .checks.attributes import attributes
from .checks.derivatives import (
    gradient,
    gradient_at_other_numbers,
    gradient_of_long_inputs,
    gradient_with_other_attributes,
)
from .checks.devices import devices, on_devices
from .checks.gradients import bprop, graded, has_bprop, in_float64, narrow, unchanged
from .checks.in_c import compile_all, in_c
from .checks.kernels import kernels
from .checks.launches import launched
from .checks.memory import memory
from .checks.numbers import isolated_values, overflow, own_numbers, precision
from .checks.programs import compilable, pairs
from .checks.relations import related
from .checks.rules import kernels_run, refusals, rules, unusual
from .checks.sizes import follow, sizes
from .checks.special import special
from .checks.state import state
from .draws.values import BENT, LONGEST, NEGATIVE, SMOOTH
from .session import Check, Remark


def _floats(call: Call, most: float = inf) -> bool:
    """True for calls with a number in a float input, and at most that many in each."""
    return any(is_float(a.dtype) and a.size for a in call.arrays) and _at_most(call, most)


def _at_most(call: Call, most: float) -> bool:
    return all(a.size <= most for a in call.arrays)


def _small(call: Call) -> bool:
    return _floats(call, 512) and all(a.size for a in call.arrays)


def _bent(call: Call) -> bool:
    """Ties, zeros, large numbers and negative integers in float64; in narrower dtypes, only large
    numbers, which overflow soonest there."""
    usable = _small(call) and call.kind in (*BENT, NEGATIVE)
    return usable and (in_float64(call) or (narrow(call) and call.kind == "large"))


def _plain(call: Call) -> bool:
    return own_numbers(call) and call.kind in SMOOTH and _small(call)


def _batched(call: Call) -> bool:
    """True where the OpInfo claims that the call works row by row."""
    return call.info is not None and call.info.batch_axes is not None and launched(call)


def _threadable(call: Call) -> bool:
    """True for calls whose numbers can also be put in another order."""
    return launched(call) and any(1 < a.size <= 64 for a in call.arrays)


def _narrow_integers(call: Call) -> bool:
    """True for calls of integers alone, some of them narrower than int64, without a reference."""
    narrower = any(d.itemsize < int64.itemsize for d in call.dtypes)
    only = {d.kind for d in call.dtypes} <= set("biu")
    return narrower and only and not call.referenced and launched(call)


def _both(*checks: Callable[[Call], Iterator[Remark]]) -> Callable[[Call], Iterator[Remark]]:
    return lambda call: chain.from_iterable(check(call) for check in checks)


ALL = 10**6  # calls: more than an OpInfo has samples
# These see every call that the rules accept; the others only those that every kernel can run.
FIRST = (
    Check("rules", rules, 200, few=ALL),
    Check("refusals", refusals, 40, few=8),
    Check("kernels run", kernels_run, 200, unusual),
)
# Causes before their consequences.
REST = (
    Check("memory", _both(memory, related("memory")), 80, few=ALL),
    Check("repeat", related("repeat"), 80, few=ALL),
    Check("kernels", kernels, 200, trusted=True, few=ALL),
    Check("sizes", sizes, 24, follow, few=8),
    Check("integers", related("integers"), 24, _narrow_integers, trusted=True),
    Check("layouts", related("layouts"), 100, lambda c: c.kind != LONGEST, few=200),
    Check("special", special, 24, _floats, trusted=True, few=12),
    Check("devices", devices, 60, on_devices, trusted=True, enough=12, share=0.35, few=3),
    Check("in C", related("in C"), 6, in_c, trusted=True, few=2, first=compile_all),
    Check("infer_value", related("infer_value"), 40, lambda c: type(c.primitive)._infers_value),
    Check("batching", related("batching"), 40, _batched),
    Check("attributes", _both(attributes, related("attributes")), 6, few=2),
    Check("graph", related("graph"), 8, compilable, trusted=True, few=8),
    Check("state", state, 2, few=1),
    Check("threads", related("threads"), 2, _threadable, few=1),
    Check(
        "one array twice", related("one array twice"), 4,
        lambda c: launched(c) and any(pairs(c)), trusted=True, few=2,
    ),
    Check("bprop", bprop, 24, lambda c: graded(c) and _at_most(c, 64), trusted=True, few=8),
    Check(
        "gradient cotangents", _both(unchanged, related("gradient cotangents")), 16,
        lambda c: has_bprop(c) and _at_most(c, 4096), trusted=True, few=4,
    ),
    Check(
        "gradient", gradient, 12, lambda c: c.smooth and in_float64(c) and _small(c), trusted=True,
        enough=2, few=1,
    ),
    Check(
        "gradient in narrow dtypes", gradient, 8, lambda c: c.smooth and narrow(c) and _small(c),
        trusted=True, enough=2, after="gradient", few=3,
    ),
    Check(
        "gradient at other numbers", gradient_at_other_numbers, 6, _bent, trusted=True, enough=2,
        after="gradient",
    ),
    Check(
        "gradient with other attributes", gradient_with_other_attributes, 4,
        lambda c: c.smooth and in_float64(c) and _small(c), trusted=True, enough=1,
        after="gradient", few=1,
    ),
    Check(
        "gradient of long inputs", gradient_of_long_inputs, 2,
        lambda c: c.kind == LONGEST and _floats(c) and in_float64(c), after="gradient",
    ),
    Check("precision", precision, 6, _plain, trusted=True, enough=2),
    Check(
        "overflow", overflow, 6, lambda c: c.kind in SMOOTH and _small(c) and launched(c),
        trusted=True, enough=2,
    ),
    Check("isolated values", isolated_values, 6, _plain, trusted=True, enough=2),
)  # fmt: skip
# A call with an issue of these checks has no outputs for later checks.
SETTLING = ("memory", "repeat")
CHECKS = tuple(check.name for check in (*FIRST, *REST))
