"""The checks of opcheck, in the order in which they run."""

from __future__ import annotations

from ...dtype import is_float
from ..calls import Call
from .checks.attributes import attributes
from .checks.derivatives import (
    gradient,
    gradient_at_other_numbers,
    gradient_of_long_inputs,
    gradient_with_other_attributes,
)
from .checks.devices import devices, on_devices
from .checks.gradients import bprop, cotangents, graded, has_bprop, in_float64, narrow
from .checks.integers import integers, narrow_integers
from .checks.kernels import kernels
from .checks.launches import launched
from .checks.layouts import layouts
from .checks.memory import memory, repeat
from .checks.numbers import isolated_values, overflow, own_numbers, precision
from .checks.programs import batched, batching, compilable, graph, infer_value
from .checks.rules import kernels_run, refusals, rules, unusual
from .checks.sharing import one_array_twice, several_threads, shareable, threadable
from .checks.special import special
from .checks.state import state
from .draws.values import BENT, LONGEST, NEGATIVE, SMOOTH
from .session import Check


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


# These see every call that the rules accept; the others only those that every kernel can run.
FIRST = (
    Check("rules", rules, 200),
    Check("refusals", refusals, 40),
    Check("kernels run", kernels_run, 200, unusual),
)
# Causes before what follows from them.
REST = (
    Check("memory", memory, 80),
    Check("repeat", repeat, 80),
    Check("kernels", kernels, 200, trusted=True),
    Check("integers", integers, 24, narrow_integers, trusted=True),
    Check("layouts", layouts, 100, _not_long),
    Check("special", special, 24, _floats, trusted=True),
    Check("devices", devices, 60, on_devices, trusted=True, enough=12, share=0.35),
    Check("infer_value", infer_value, 40, _known),
    Check("batching", batching, 40, batched),
    Check("attributes", attributes, 6),
    Check("graph", graph, 8, compilable, trusted=True),
    Check("state", state, 2),
    Check("threads", several_threads, 2, threadable),
    Check("one array twice", one_array_twice, 4, shareable, trusted=True),
    Check("bprop", bprop, 24, _graded_once, trusted=True),
    Check("gradient cotangents", cotangents, 16, _pulled, trusted=True),
    Check("gradient", gradient, 12, _smooth, trusted=True, enough=2),
    Check("gradient in narrow dtypes", gradient, 8, _smooth_narrow, trusted=True, enough=2),
    Check(
        "gradient at other numbers", gradient_at_other_numbers, 6, _bent, trusted=True, enough=2,
        after="gradient",
    ),
    Check(
        "gradient with other attributes", gradient_with_other_attributes, 4, _smooth, trusted=True,
        enough=1, after="gradient",
    ),
    Check("gradient of long inputs", gradient_of_long_inputs, 2, _long, after="gradient"),
    Check("precision", precision, 6, _plain, trusted=True, enough=2),
    Check("overflow", overflow, 6, _growing, trusted=True, enough=2),
    Check("isolated values", isolated_values, 6, _plain, trusted=True, enough=2),
)  # fmt: skip
# A call with a problem of these has no outputs that later checks could look at.
SETTLING = ("memory", "repeat")
CHECKS = tuple(check.name for check in (*FIRST, *REST))
