"""Small eager calls against PyTorch, an eager gradient against autograd, where they are installed;
and how many Python functions a first compilation calls."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable
from operator import itemgetter
from types import FrameType
from typing import Any

import numpy as np

import miniml as ml
from benchmarks.measure import Ratio, compare
from miniml import nn, ops
from miniml.grad import grad, value_and_grad

A = np.random.default_rng(0).random((8, 8), np.float32)
B = np.random.default_rng(1).random((8, 8), np.float32)
CALLS: dict[str, Callable[[Any, Any, Any], Any]] = {
    "x + y": lambda x, y, p: x + y,
    "x + 1.0": lambda x, y, p: x + 1.0,
    "x + parameter": lambda x, y, p: x + p,
    "x[2]": lambda x, y, p: x[2],
    "x @ y": lambda x, y, p: x @ y,
}

# Compositions, which are plans: ours, then PyTorch's, of two 8 x 8 tensors.
COMPOSED: dict[str, tuple[Callable[[Any, Any], Any], str]] = {
    "hard_swish": (lambda x, y: ops.hard_swish(x), "F.hardswish(x)"),
    "norm": (lambda x, y: ops.norm(x), "torch.norm(x)"),
    "var": (lambda x, y: ops.var(x, correction=1), "torch.var(x)"),
    "std": (lambda x, y: ops.std(x, 1, correction=1), "torch.std(x, 1)"),
    "stack": (lambda x, y: ops.stack([x, y]), "torch.stack([x, y])"),
    "roll": (lambda x, y: ops.roll(x, 1, 0), "torch.roll(x, 1, 0)"),
    "tril": (lambda x, y: ops.tril(x), "torch.tril(x)"),
    "x.T": (lambda x, y: x.T, "x.T"),
    "softmax": (lambda x, y: ops.softmax(x), "torch.softmax(x, -1)"),
    "mse_loss": (ops.mse_loss, "F.mse_loss(x, y)"),
    "huber_loss": (ops.huber_loss, "F.huber_loss(x, y)"),
    "cosine_similarity": (ops.cosine_similarity, "F.cosine_similarity(x, y)"),
    "dropout": (lambda x, y: ops.dropout(x, 0.5), "F.dropout(x, 0.5)"),
    "normal": (lambda x, y: ops.normal((8, 8)), "torch.randn(8, 8)"),
    "uniform": (lambda x, y: ops.uniform((8, 8)), "torch.rand(8, 8)"),
    "randint": (lambda x, y: ops.randint((8, 8), 0, 10), "torch.randint(0, 10, (8, 8))"),
    "permutation": (lambda x, y: ops.permutation(8), "torch.randperm(8)"),
}
DRAWS = ("dropout", "normal", "uniform", "randint", "permutation")


def compositions() -> list[tuple[str, Ratio]]:
    """Compositions of 8 x 8 float32 tensors, and layers with the gradients of their weights, in
    one thread."""
    if not importlib.util.find_spec("torch"):
        return []
    import torch  # noqa: PLC0415 - measured where installed, needed by nothing else

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    ours, theirs = (ml.Tensor(A), ml.Tensor(B)), (torch.tensor(A), torch.tensor(B))
    names = {"torch": torch, "F": torch.nn.functional}
    found = []
    for name, (call, text) in COMPOSED.items():
        theirs_call = eval(f"lambda x, y: {text}", names)
        if name not in DRAWS:
            np.testing.assert_allclose(call(*ours).asnumpy(), theirs_call(*theirs), rtol=1e-4)
        ratio = compare(lambda: call(*ours), lambda: theirs_call(*theirs), 1.0, 2000)  # noqa: B023
        found.append((f"eager {name}, against PyTorch {torch.__version__}", ratio))
    found += _layers(torch, ours[0], theirs[0])
    torch.set_num_threads(threads)
    return found


def _layers(torch: Any, x: Any, y: Any) -> list[tuple[str, Ratio]]:
    """Layers and the gradients of their weights, on x and on the same of PyTorch's, y."""
    images = np.random.default_rng(2).random((2, 4, 8, 8), np.float32)
    rows = np.random.default_rng(3).random((4, 10, 8), np.float32)
    both = {"images": (ml.Tensor(images), torch.tensor(images))}
    both |= {"rows": (ml.Tensor(rows), torch.tensor(rows)), "matrix": (x, y)}
    cases = {
        "Dense": (nn.Dense(8, 8), torch.nn.Linear(8, 8), "matrix"),
        "LayerNorm": (nn.LayerNorm(8), torch.nn.LayerNorm(8), "matrix"),
        "BatchNorm2d": (nn.BatchNorm2d(4), torch.nn.BatchNorm2d(4), "images"),
        "GroupNorm": (nn.GroupNorm(2, 4), torch.nn.GroupNorm(2, 4), "images"),
        "LSTM": (nn.LSTM(8, 8), torch.nn.LSTM(8, 8), "rows"),
        "GRU": (nn.GRU(8, 8), torch.nn.GRU(8, 8), "rows"),
    }
    found = []
    for name, (net, other, given) in cases.items():
        mine, theirs = _differentiated(torch, net, other, name in ("LSTM", "GRU"))
        ours, peers = both[given]
        forward = compare(lambda: net(ours), lambda: other(peers), 1.0, 500)  # noqa: B023
        backward = compare(lambda: mine(ours), lambda: theirs(peers), 1.0, 500)  # noqa: B023
        found.append((f"eager {name}, against PyTorch", forward))
        found.append((f"eager gradient of {name}, against PyTorch", backward))
    return found


def _differentiated(
    torch: Any, net: Any, other: Any, several: bool
) -> tuple[Callable[[Any], object], Callable[[Any], object]]:
    """The gradients of both layers' weights, of the sum of the output, or of the first of several,
    as functions of the input."""
    first: Callable[[Any], Any] = itemgetter(0) if several else lambda out: out

    def theirs(x: Any) -> object:
        return torch.autograd.grad(first(other(x)).sum(), list(other.parameters()))

    weights = net.trainable_params()
    ours = value_and_grad(lambda x: ops.sum(first(net(x))), argnums=None, weights=weights)
    return ours, theirs


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
