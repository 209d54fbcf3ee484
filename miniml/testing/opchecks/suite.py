"""The checks of opcheck, in the order in which they run."""

from __future__ import annotations

from ...dtype import is_float
from ..calls import Call
from .checks_attributes import attributes
from .checks_devices import devices, on_devices
from .checks_gradients import bprop, cotangents, graded, gradient, has_bprop, in_float64, narrow
from .checks_kernels import kernels, layouts
from .checks_memory import memory, repeat
from .checks_programs import batched, batching, compilable, graph, infer_value
from .checks_rules import kernels_run, refusals, rules, unusual
from .checks_special import special
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


def _differentiable(call: Call) -> bool:
    return call.smooth and _floats(call) and all(0 < a.size <= 512 for a in call.arrays)


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
    Check("layouts", layouts, 100),
    Check("special", special, 24, _floats, trusted=True),
    Check("devices", devices, 60, on_devices, trusted=True, enough=12, share=0.35),
    Check("infer_value", infer_value, 40, _known),
    Check("batching", batching, 40, batched),
    Check("attributes", attributes, 6),
    Check("graph", graph, 8, compilable),
    Check("bprop", bprop, 24, _graded_once),
    Check("gradient cotangents", cotangents, 16, _pulled, trusted=True),
    Check("gradient", gradient, 12, _smooth, trusted=True, enough=2),
    Check("gradient in narrow dtypes", gradient, 8, _smooth_narrow, trusted=True, enough=2),
)
# A call with a problem of these has no outputs that later checks could look at.
SETTLING = ("memory", "repeat")
CHECKS = tuple(check.name for check in (*FIRST, *REST))
