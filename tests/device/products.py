"""Products of matrices on a device, by one kernel, and what they are compared with."""

import numpy as np
import pytest

from miniml import ArraySpec, bool_
from miniml.backends import registry
from miniml.backends.kernel import KernelNode
from miniml.backends.selection import Target, get_device
from miniml.core.abstract import is_float
from miniml.testing.tolerance import mismatch, unit_roundoff
from tests.opinfo.draws import numbers
from tests.opinfo.linalg import matmul, turned

TURNS = ((False, False), (True, False), (False, True), (True, True))
ODD = (((1, 17), (17, 15)), ((33, 1), (1, 65)), ((15, 33), (33, 1)), ((65, 17), (17, 33)))
# Which axes of the batch run together decides how often gemm is called.
BATCHES = (
    ((4, 2, 3, 5), (4, 2, 5, 6)), ((4, 1, 3, 5), (1, 2, 5, 6)), ((4, 2, 3, 5), (2, 5, 6)),
    ((3, 5), (4, 2, 5, 6)), ((2, 1, 1, 5), (7, 5, 1)), ((1, 3, 5), (1, 5, 6)),
)  # fmt: skip


def made(kernel, device, name, attrs, inputs, shape, ready=None):
    """What a kernel gives, and the kernel."""
    specs = tuple(ArraySpec(a.shape, a.dtype) for a in inputs)
    out = ArraySpec(shape, inputs[0].dtype)
    instance = kernel()
    instance.prepare(KernelNode(name, specs, (out,), attrs, Target(device)))
    arrays = tuple(map(device.from_host, inputs))
    filled = device.empty(out.shape, out.dtype)
    if ready is not None:
        ready([*arrays, filled])
    scratch = tuple(device.empty(s.shape, s.dtype) for s in instance.workspace())
    instance.launch(arrays, scratch, (filled,), device.stream)
    return device.to_host(filled), instance


def run(kernel, device, x, y, transpose_x=False, transpose_y=False, ready=None):
    """The product by that kernel; skips where the device lacks what it requires."""
    device = get_device(device) if isinstance(device, str) else device
    (entry,) = (
        e for e in registry.table["MatMul", "cuda"]
        if issubclass(kernel, e.body) and e.signature.accepts((x.dtype, y.dtype))
    )  # fmt: skip
    for feature in entry.requires:
        if not device.has(feature):
            pytest.skip(f"{device.name} has no {feature}")
    attrs = {"transpose_x": transpose_x, "transpose_y": transpose_y}
    shape = matmul(x, y, **attrs).shape
    return made(kernel, device, "MatMul", attrs, (x, y), shape, ready)[0]


def check(out, x, y, transpose_x=False, transpose_y=False):
    """Right up to the rounding of k products and their sum."""
    wide = [a.astype(np.float64 if is_float(a.dtype) or a.dtype == bool_ else a.dtype)
            for a in (x, y)]  # fmt: skip
    expected = matmul(*wide, transpose_x, transpose_y)
    spread = 0.0
    if is_float(x.dtype):
        spread = unit_roundoff(x.dtype) * matmul(*map(np.abs, wide), transpose_x, transpose_y)
    assert out.dtype == x.dtype
    wrong = mismatch(out, np.asarray(expected), max(x.size, y.size, 1), spread)
    assert wrong is None, (x.shape, y.shape, transpose_x, transpose_y, wrong)


def operands(rng, x, y, turns, dtype):
    return numbers(rng, turned(x, turns[0]), dtype), numbers(rng, turned(y, turns[1]), dtype)
