"""The checks of opcheck, in the order in which they run."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import chain

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
from .checks.kernels import kernels
from .checks.launches import launched
from .checks.memory import memory
from .checks.numbers import isolated_values, overflow, own_numbers, precision
from .checks.programs import compilable, pairs
from .checks.relations import related
from .checks.rules import kernels_run, refusals, rules, unusual
from .checks.special import special
from .checks.state import state
from .draws.values import BENT, LONGEST, NEGATIVE, SMOOTH
from .session import Check, Said


def _floats(call: Call) -> bool:
    return any(is_float(a.dtype) and a.size for a in call.arrays)


def _graded_once(call: Call) -> bool:
    return graded(call) and all(a.size <= 64 for a in call.arrays)


def _pulled(call: Call) -> bool:
    return has_bprop(call) and all(a.size <= 4096 for a in call.arrays)


def _smooth(call: Call) -> bool:
    return in_float64(call) and _differentiable(call)


def _smooth_narrow(call: Call) -> bool:
    return narrow(call) and _differentiable(call)


def _bent(call: Call) -> bool:
    """Ties, zeros, large numbers and negative integers in float64; in narrower dtypes, where large
    numbers overflow soonest, these alone."""
    usable = _small_floats(call) and call.kind in (*BENT, NEGATIVE)
    return usable and (in_float64(call) or (narrow(call) and call.kind == "large"))


def _plain(call: Call) -> bool:
    return own_numbers(call) and call.kind in SMOOTH and _small_floats(call)


def _growing(call: Call) -> bool:
    return call.kind in SMOOTH and _small_floats(call) and launched(call)


def _differentiable(call: Call) -> bool:
    return call.smooth and _small_floats(call)


def _long(call: Call) -> bool:
    return call.kind == LONGEST and _floats(call) and in_float64(call)


def _small_floats(call: Call) -> bool:
    return _floats(call) and all(0 < a.size <= 512 for a in call.arrays)


def _not_long(call: Call) -> bool:
    return call.kind != LONGEST


def _known(call: Call) -> bool:
    return type(call.primitive)._infers_value


def _batched(call: Call) -> bool:
    """True where the OpInfo claims that the call works row by row."""
    return call.info is not None and call.info.batch_axes is not None and launched(call)


def _shareable(call: Call) -> bool:
    return launched(call) and next(pairs(call), None) is not None


def _threadable(call: Call) -> bool:
    """True for calls of which there is another with the same numbers in another order."""
    return launched(call) and any(1 < a.size <= 64 for a in call.arrays)


def _narrow_integers(call: Call) -> bool:
    """True for calls of integers alone, some of them narrower than int64, and no reference."""
    referred = call.info is not None and call.info.reference is not None
    narrower = any(d.itemsize < int64.itemsize for d in call.dtypes)
    only = {d.kind for d in call.dtypes} <= set("biu")
    return narrower and only and not referred and launched(call)


def _both(*checks: Callable[[Call], Iterator[Said]]) -> Callable[[Call], Iterator[Said]]:
    return lambda call: chain.from_iterable(check(call) for check in checks)


# These see every call that the rules accept; the others only those that every kernel can run.
FIRST = (
    Check("rules", rules, 200),
    Check("refusals", refusals, 40, few=8),
    Check("kernels run", kernels_run, 200, unusual),
)
# Causes before what follows from them.
REST = (
    Check("memory", _both(memory, related("memory")), 80, few=200),
    Check("repeat", related("repeat"), 80, few=200),
    Check("kernels", kernels, 200, trusted=True, few=400),
    Check("integers", related("integers"), 24, _narrow_integers, trusted=True),
    Check("layouts", related("layouts"), 100, _not_long, few=200),
    Check("special", special, 24, _floats, trusted=True, few=12),
    Check("devices", devices, 60, on_devices, trusted=True, enough=12, share=0.35, few=4),
    Check("infer_value", related("infer_value"), 40, _known),
    Check("batching", related("batching"), 40, _batched),
    Check("attributes", _both(attributes, related("attributes")), 6, few=2),
    Check("graph", related("graph"), 8, compilable, trusted=True, few=10),
    Check("state", state, 2, few=1),
    Check("threads", related("threads"), 2, _threadable, few=1),
    Check("one array twice", related("one array twice"), 4, _shareable, trusted=True, few=2),
    Check("bprop", bprop, 24, _graded_once, trusted=True, few=8),
    Check(
        "gradient cotangents", _both(unchanged, related("gradient cotangents")), 16, _pulled,
        trusted=True, few=4,
    ),
    Check("gradient", gradient, 12, _smooth, trusted=True, enough=2, few=1),
    Check(
        "gradient in narrow dtypes", gradient, 8, _smooth_narrow, trusted=True, enough=2,
        after="gradient", few=3,
    ),
    Check(
        "gradient at other numbers", gradient_at_other_numbers, 6, _bent, trusted=True, enough=2,
        after="gradient",
    ),
    Check(
        "gradient with other attributes", gradient_with_other_attributes, 4, _smooth, trusted=True,
        enough=1, after="gradient", few=1,
    ),
    Check("gradient of long inputs", gradient_of_long_inputs, 2, _long, after="gradient"),
    Check("precision", precision, 6, _plain, trusted=True, enough=2),
    Check("overflow", overflow, 6, _growing, trusted=True, enough=2),
    Check("isolated values", isolated_values, 6, _plain, trusted=True, enough=2),
)  # fmt: skip
# A call with an issue of these has no outputs that later checks could look at.
SETTLING = ("memory", "repeat")
CHECKS = tuple(check.name for check in (*FIRST, *REST))
