"""Short calls of every kind that two commits are compared on (`python -m tools.compare_commits`).

Run as a script, with the package of a commit on PYTHONPATH: it reads names of cases, a line each,
and answers each with the seconds of one call, the least of many rounds; or with the error of a
commit that cannot run it. It uses the public names alone, so that one file serves all commits.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np

import miniml as ml
from miniml import nn, ops, optim
from miniml.grad import grad

Call = Callable[[], object]
SECONDS, ROUNDS = 0.02, 4  # of one answer: turns are short, since a machine is slow for seconds


def _tensor(*shape: int) -> ml.Tensor:
    return ml.Tensor(np.random.default_rng(len(shape)).random(shape, np.float32))


def _eagerly(fn: Callable[..., object], *more: Any) -> Callable[[], Call]:
    """A case: the eager call of fn on one 8 x 8 tensor and more arguments."""
    x = _tensor(8, 8)
    return lambda: lambda: fn(x, *more)


def _compiled(fn: Callable[..., Any], *shapes: tuple[int, ...]) -> Callable[[], Call]:
    """A case: the call of the compiled fn on tensors of these shapes."""

    def made() -> Call:
        step, given = ml.jit(fn), [_tensor(*shape) for shape in shapes]
        return lambda: step(*given)

    return made


def _trained() -> Call:
    net = nn.Sequential(nn.Dense(16, 32), nn.ReLU(), nn.Dense(32, 4))
    step = ml.train_step(net, nn.CrossEntropyLoss(), optim.SGD(net.trainable_params(), lr=0.1))
    x, labels = _tensor(32, 16), ml.Tensor(np.arange(32) % 4)
    return lambda: step(x, labels)


def _mlp() -> Call:
    net = nn.Sequential(nn.Dense(8, 8), nn.ReLU(), nn.Dense(8, 8))
    x = _tensor(8, 8)
    return lambda: net(x)


def _scanned(step: Callable[[Any, Any], Any]) -> Callable[..., Any]:
    return lambda h, xs: ops.scan(lambda h, x: (step(h, x), ()), h, xs)[1]


def _root(x: Any) -> Any:
    """Newton's iteration for sqrt(x)."""
    return ops.while_loop(
        lambda s: s[0] < 50, lambda s: (s[0] + 1, 0.5 * (s[1] + x / s[1])), (ml.Tensor(0), x)
    )[1]


CASES: dict[str, Callable[[], Call]] = {
    "eager x + y": _eagerly(lambda x, y: x + y, _tensor(8, 8)),
    "eager x + 1.0": _eagerly(lambda x: x + 1.0),
    "eager x + parameter": _eagerly(lambda x, p: x + p, ml.Parameter(np.ones((8, 8), np.float32))),
    "eager x[2]": _eagerly(lambda x: x[2]),
    "eager x @ y": _eagerly(lambda x, y: x @ y, _tensor(8, 8)),
    "eager x.T": _eagerly(lambda x: x.T),
    "eager sum": _eagerly(ops.sum),
    "eager softmax": _eagerly(ops.softmax),
    "eager hard_swish": _eagerly(ops.hard_swish),
    "eager var": _eagerly(ops.var),
    "eager three layers": _mlp,
    "eager grad of sum(sin(x) * x)": _eagerly(grad(lambda x: ops.sum(ops.sin(x) * x))),
    "compiled x + y": _compiled(lambda x, y: x + y, (8, 8), (8, 8)),
    "compiled tanh": _compiled(ops.tanh, (300, 300)),
    "compiled softmax": _compiled(ops.softmax, (64, 300)),
    "compiled product": _compiled(lambda x, y: x @ y, (128, 128), (128, 128)),
    "train_step of two layers": _trained,
    "scan, tanh": _compiled(_scanned(lambda h, x: ops.tanh(h + x)), (16,), (200, 16)),
    "scan, cond": _compiled(
        _scanned(lambda h, x: ops.cond(ops.sum(h) < 1.0, lambda: h + x, lambda: h - x)),
        (16,), (200, 16),
    ),
    "while_loop, 50 rounds": _compiled(_root, (16,)),
}  # fmt: skip


def seconds(call: Call) -> float:
    """The seconds of one call: the least of some rounds, each of many calls."""
    call()
    call()
    begun = time.process_time()
    call()
    once = time.process_time() - begun
    calls = max(1, int(SECONDS / ROUNDS / max(once, 1e-7)))
    best = float("inf")
    for _ in range(ROUNDS):
        begun = time.process_time()
        for _ in range(calls):
            call()
        best = min(best, (time.process_time() - begun) / calls)
    return best


def main() -> None:
    """Answer each line of the input."""
    print(json.dumps({"package": ml.__file__}), flush=True)
    made: dict[str, Call] = {}
    for line in sys.stdin:
        name = line.strip()
        answer: dict[str, object]
        try:
            if name not in made:
                made[name] = CASES[name]()
            answer = {"seconds": seconds(made[name])}
        except Exception as error:  # a commit that lacks it
            answer = {"error": f"{type(error).__name__}: {error}".splitlines()[0]}
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
