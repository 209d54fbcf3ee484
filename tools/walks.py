"""Count of the functions and files that a call passes: `python -m tools.walks`.

Each walk runs in a process of its own, since the first call is the one that a reader follows: what
has been imported, planned or compiled before would hide the way. Calls are counted by
`sys.setprofile`; a function is one of the package's own, a file the module in which it stands.
"""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

ROOT = Path(__file__).parents[1]
PACKAGE = str(ROOT / "miniml")


@dataclass(frozen=True)
class Walk:
    """A call whose way is counted: what is prepared before, and the call itself."""

    name: str
    prepared: str
    call: str


MLP = """
net = nn.Sequential(nn.Dense(4, 8), nn.ReLU(), nn.Dense(8, 3))
x, y = np.ones((5, 4), np.float32), np.zeros(5, np.int64)
step = ml.train_step(net, nn.CrossEntropyLoss(), optim.SGD(net.trainable_params(), lr=0.1))
"""
TENSORS = "x, y = ml.Tensor([1.0, 2.0]), ml.Tensor([3.0, 4.0])"
LOSS = TENSORS + "\ndef loss(x): return ops.sum(ops.tanh(x))"
LAZY = "ml.backends.selection.get_device('cuda-sim')"  # modules run as they are imported: no walk
WALKS = (
    Walk("x + y, first call", TENSORS, "x + y"),
    Walk("x + y, second call", TENSORS + "\nx + y", "x + y"),
    Walk("step of two layers, first call", MLP, "step(x, y)"),
    Walk("step of two layers, third call", MLP + "step(x, y)\nstep(x, y)", "step(x, y)"),
    Walk("grad of sum(tanh(x)), first call", LOSS, "grad(loss)(x)"),
    Walk("gradcheck of tanh", "", "gradcheck(ops.tanh, np.array([0.5, 1.0]))"),
    Walk("opcheck of Tanh", LAZY, "opcheck(ops.Tanh())"),
)
IMPORTS = """
import numpy as np
import miniml as ml
from miniml import nn, ops, optim
from miniml.grad import grad
from miniml.testing import gradcheck, opcheck
"""


def walked(walk: Walk) -> dict[str, int]:
    """Calls, functions and files of a walk, in this process."""
    names: dict[str, Any] = {}
    exec(IMPORTS + walk.prepared, names)
    passed = passed_by(compile(walk.call, "<walk>", "exec"), names)
    files = {code.co_filename for code in passed}
    return {"calls": sum(passed.values()), "functions": len(passed), "files": len(files)}


def passed_by(call: CodeType, names: dict[str, Any]) -> dict[CodeType, int]:
    """The package's functions that a call enters, with how often."""
    passed: dict[CodeType, int] = {}

    def note(frame: FrameType, event: str, argument: object) -> None:
        if event == "call" and frame.f_code.co_filename.startswith(PACKAGE):
            passed[frame.f_code] = passed.get(frame.f_code, 0) + 1

    sys.setprofile(note)
    try:
        exec(call, names)
    finally:
        sys.setprofile(None)
    return passed


def count(walk: Walk) -> dict[str, int]:
    """Calls, functions and files of a walk, in a fresh process."""
    command = [sys.executable, "-m", "tools.walks", walk.name]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    counted: dict[str, int] = json.loads(done.stdout)
    return counted


def main() -> None:
    """The walk that is named as JSON, or a table of all."""
    if sys.argv[1:]:
        (walk,) = [walk for walk in WALKS if walk.name == sys.argv[1]]
        print(json.dumps(walked(walk)))
        return
    print(f"{'walk':34}{'calls':>10}{'functions':>11}{'files':>7}")
    for walk in WALKS:
        counts = count(walk)
        print(f"{walk.name:34}{counts['calls']:>10}{counts['functions']:>11}{counts['files']:>7}")


if __name__ == "__main__":
    main()
