"""Small eager calls against PyTorch, an eager gradient against autograd, where they are installed;
and how many Python functions a first compilation calls."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

import numpy as np

import miniml as ml
from benchmarks.measure import Ratio, compare
from miniml import ops
from miniml.grad import grad

A = np.random.default_rng(0).random((8, 8), np.float32)
B = np.random.default_rng(1).random((8, 8), np.float32)
CALLS: dict[str, Callable[[Any, Any, Any], Any]] = {
    "x + y": lambda x, y, p: x + y,
    "x + 1.0": lambda x, y, p: x + 1.0,
    "x + parameter": lambda x, y, p: x + p,
    "x[2]": lambda x, y, p: x[2],
    "x @ y": lambda x, y, p: x @ y,
}


def calls() -> list[tuple[str, Ratio]]:
    """Calls of 8 x 8 float32 tensors, in one thread."""
    if not importlib.util.find_spec("torch"):
        return []
    import torch  # noqa: PLC0415 - measured where installed, needed by nothing else

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    ours = ml.Tensor(A), ml.Tensor(B), ml.Parameter(B)
    theirs = torch.tensor(A), torch.tensor(B), torch.nn.Parameter(torch.tensor(B))
    found = []
    for name, call in CALLS.items():
        np.testing.assert_allclose(call(*ours).asnumpy(), call(*theirs).detach(), rtol=1e-5)
        ratio = compare(lambda: call(*ours), lambda: call(*theirs), 2.0, 5000)  # noqa: B023
        found.append((f"eager {name}, against PyTorch {torch.__version__}", ratio))
    torch.set_num_threads(threads)
    return found


def gradient() -> list[tuple[str, Ratio]]:
    """The gradient of sum(sin(x) * x)."""
    if not importlib.util.find_spec("autograd"):
        return []
    import autograd  # noqa: PLC0415
    import autograd.numpy as anp  # noqa: PLC0415

    x, ours = ml.Tensor(A), grad(lambda x: ops.sum(ops.sin(x) * x))
    theirs = autograd.grad(lambda x: anp.sum(anp.sin(x) * x))
    np.testing.assert_allclose(ours(x).asnumpy(), theirs(A), rtol=1e-5)
    ratio = compare(lambda: ours(x), lambda: theirs(A), 2.0, 5000)
    return [("eager grad of sum(sin(x) * x), against autograd", ratio)]


def own_functions() -> list[tuple[str, Ratio]]:
    """A primitive made of a NumPy function against the built-in one of the same arithmetic."""
    x, y = ml.Tensor(A), ml.Tensor(B)
    added = ops.custom(lambda x, y: x + y)
    return [
        ("ops.custom x + y, against ops.add", compare(lambda: added(x, y), lambda: ops.add(x, y)))
    ]


def frames_of_first_jit() -> int:
    """Python functions called, generators' steps counted, by the first call of a compiled a + b."""
    x = ml.Tensor(A)
    ml.jit(lambda a, b: a + b)(x, x)
    return frames(lambda: ml.jit(lambda a, b: a + b)(x, x))


def frames(call: Callable[[], object]) -> int:
    """Python functions that a call enters."""
    count = 0

    def entered(frame: FrameType, event: str, arg: object) -> None:
        nonlocal count
        count += event == "call"

    sys.setprofile(entered)
    try:
        call()
    finally:
        sys.setprofile(None)
    return count
