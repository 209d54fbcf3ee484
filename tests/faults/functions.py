"""Functions of tensors: correct ones for gradcheck, wrong ones, and ones it must refuse."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

import miniml as ml
from miniml import nn, ops

from .definitions import GRADIENTS
from .kernels import DETERMINISM, MEMORY
from .planted import Planted
from .rows import Draw, apart, exactly, in_dtype, normal, signed
from .shaped import LABELS, ROWS
from .smooth import ZEROS

SEED = 5


@dataclass(frozen=True)
class Function:
    """A function of tensors, where it is checked, and to what order. kink, scales: see Pair."""

    name: str
    f: Callable[..., Any]
    draw: Draw
    order: int = 2
    kink: bool = False
    scales: str = ""

    @property
    def most_calls(self) -> int:
        """The forward calls that gradcheck may need for all its orders."""
        return self.order * (150 if self.scales else 60)


@dataclass(frozen=True)
class WrongFunction(Function):
    """The finding that a wrong function must produce: see WrongPair. plant: the primitive that f
    is made of, filed while it is checked; f then takes it as its first argument."""

    diagnosis: str = ""
    argnum: int | None = None
    index: tuple[int, ...] | None = None
    plant: Planted | None = None


@dataclass(frozen=True)
class Refused:
    """A call that gradcheck refuses with a sentence that `says` finds."""

    name: str
    f: Callable[..., Any]
    args: tuple[Any, ...]
    says: str


def noisy(x: Any) -> Any:
    """Random, but the same for equal seeds."""
    return x * ops.uniform(x.shape, dtype=x.dtype)


def dropped(x: Any) -> Any:
    return ops.dropout(ops.sin(x), 0.4)


def dense(x: Any, w: Any, b: Any) -> Any:
    return ops.tanh(x @ w + b)


def of_dictionary(tree: Any) -> Any:
    return {"sum": tree["a"] + tree["b"][0], "products": [tree["a"] * tree["b"][0]]}


def convolved(x: Any, w: Any) -> Any:
    return ops.conv2d(x, w, padding=1)


V, M = (6,), (3, 4)
SECOND = exactly([1.0, 3.0], [2.0, 2.0])

RIGHT = (
    Function("sin", ops.sin, normal(V)),
    Function("sin(2000 x)", lambda x: ops.sin(2000.0 * x), normal(V),
        scales="it bends over 1/2000 of x"),
    Function("exp(20 x)", lambda x: ops.exp(20.0 * x), normal(V)),
    Function("1e18 x^3", lambda x: 1e18 * x * x * x, normal(V)),
    Function("x^4 to order 3", lambda x: x * x * x * x, normal(V), order=3),
    Function("relu at 0", ops.relu, exactly(ZEROS), kink=True),
    Function("abs at 0", ops.abs, exactly(ZEROS), kink=True),
    Function("maximum of equals", ops.maximum, SECOND, kink=True),
    Function("max with ties", lambda x: ops.max(x, axis=0), exactly([1.0, 3.0, 3.0]), kink=True),
    Function("clip at its edges", lambda x: ops.clip(x, -1.3, 0.7), exactly(ZEROS), kink=True),
    Function("softmax", ops.softmax, normal(M)),
    Function("log softmax of large values", ops.log_softmax, normal(M, shift=1000.0),
        scales="it bends over 1/1000 of x"),
    Function("logsumexp", ops.logsumexp, normal(M)),
    Function("sort", ops.sort, apart(M)),
    Function("topk", lambda x: ops.topk(x, 2)[0], apart(M)),
    Function("norm", lambda x: ops.sqrt(ops.sum(x * x)), normal(M)),
    Function("prod with zeros", lambda x: ops.prod(x, axis=1), exactly([[2.0, 0.0, 3.0]])),
    Function("cumsum", lambda x: ops.cumsum(x, 1), normal(M)),
    Function("matmul", ops.matmul, normal(M, (4, 2))),
    Function("einsum", lambda a, b: ops.einsum("ij,jk->k", a, b), normal(M, (4, 2))),
    Function("conv2d", convolved, normal((1, 2, 4, 5), (3, 2, 3, 3))),
    Function("layer norm", ops.layer_norm, normal(M, (4,), (4,))),
    Function("gelu", ops.gelu, normal(V)),
    Function("erf", ops.erf, normal(V)),
    Function("atan2", ops.atan2, signed(0.2, 2, V, V)),
    Function("pow", ops.pow, lambda rng: (rng.uniform(0.5, 2, 5), rng.uniform(-2, 2, 5))),
    Function("where", lambda x, y: ops.where(x > 0, x * y, ops.sin(y)), signed(0.2, 2, V, V)),
    Function("gather with repeats", lambda x: ops.gather(x, ROWS, 0), normal((4, 3))),
    Function("cross entropy", lambda x: ops.cross_entropy(x, LABELS), normal(M)),
    Function("integers beside floats", ops.cross_entropy, lambda rng: (rng.normal(size=M), LABELS)),
    Function("a broadcast product", ops.mul, normal((3, 1), (4,))),
    Function("a dense layer", dense, normal(M, (4, 2), (2,))),
    Function("a cell", nn.Sequential(nn.Dense(4, 3), nn.Tanh(), nn.Dense(3, 2)),
        in_dtype(np.float32, normal(M)), order=1),
    Function("trees", of_dictionary,
        lambda rng: ({"a": rng.normal(size=3), "b": [rng.normal(size=3)]},), order=1),
    Function("compiled", ml.jit(lambda x: ops.sum(ops.sin(x) * x)), normal(V)),
    Function("uniform noise", noisy, normal(V), order=1),
    Function("dropout", dropped, normal(V), order=1),
    Function("float32", lambda x: ops.tanh(x) * x, in_dtype(np.float32, normal(V))),
    Function("float16", lambda x: ops.tanh(x) * x, in_dtype(np.float16, normal(V)), order=1),
    Function("bfloat16", lambda x: ops.tanh(x) * x, in_dtype(ml.dtype.bfloat16, normal(V)),
        order=1),
    Function("20,000 elements", ops.sin, normal((20_000,)), order=1),
    Function("0-d", ops.sin, normal(())),
    Function("an empty input beside another", lambda x, y: ops.sum(x) + ops.sum(y),
        exactly(np.zeros((0, 3)), np.ones(2))),
)  # fmt: skip

PLANTS = {row.name: row for row in GRADIENTS + MEMORY + DETERMINISM}


def planted_function(name: str, diagnosis: str, draw: Draw, order: int = 1) -> WrongFunction:
    return WrongFunction(name, lambda p, *xs: p(*xs), draw, order, diagnosis=diagnosis,
                         plant=PLANTS[name])  # fmt: skip


TWO = normal(V, V)
WRONG_FUNCTIONS = (
    planted_function("TwiceTheGradient", "factor.*2", normal(V)),
    planted_function("NegatedGradient", "factor.*-1|sign", TWO),
    planted_function("SwappedGradients", "swap", TWO),
    planted_function("IgnoresDout", "dout", TWO),
    planted_function("MissesAGradient", "(?i)zero|none|factor.*0", TWO),
    planted_function("WrongInOrderTwo", "wrong +2 ", TWO, order=2),
    planted_function("WrongInFloat32", "1.01", in_dtype(np.float32, normal((6,), (6,)))),
    planted_function("WrongInFloat16", r"1\.(1|09)", in_dtype(np.float16, normal((6,), (6,)))),
    planted_function("NotLinear", "linear", TWO),
    planted_function("GradientReadsMemoryOrder", "(?i)strid|contiguous|order", normal((3, 4))),
    planted_function("CountsItsCalls", "repeatable", TWO),
    planted_function("AddsNoise", "repeatable", TWO),
    WrongFunction("a factor stopped", lambda x: ops.sin(x) * ops.stop_gradient(x), normal(V), 1,
        argnum=0),
    WrongFunction("stopped only in order 2",
        lambda x: ops.sum(ml.grad.grad(lambda y: ops.sum(y * y * y))(ops.stop_gradient(x))),
        normal(V), 1, argnum=0),
)  # fmt: skip


def changes_its_input(x: Any) -> Any:
    np.multiply(x, 2, out=x)
    return x


def sometimes_raises(x: Any) -> Any:
    if float(ops.max(x)) > 1.00001:
        raise ValueError("out of the domain")
    return ops.sin(x)


ONES = np.ones(3)
REFUSED = (
    Refused("an integer result", lambda x: ops.argmax(x, axis=0), (ONES,),
        "(?i)float|differentiable"),
    Refused("no tensor returned", lambda x: "text", (ONES,), "(?i)return|str"),
    Refused("None returned", lambda x: None, (ONES,), "(?i)return|None"),
    Refused("no differentiable argument", lambda i: ops.cast(i, "float64"), (np.arange(3),),
        "(?i)argument|float"),
    Refused("no argument at all", lambda: ops.ones((2,)), (), "(?i)argument"),
    Refused("raises near the point", sometimes_raises, (ONES,), "(?i)raise|domain"),
    Refused("raises at the point", lambda x: ops.matmul(x, np.ones((4, 4))), (ONES,),
        "(?i)MatMul|shape"),
)  # fmt: skip
REFUSED_NUMPY = (
    Refused("changes its input", changes_its_input, (ONES,), "(?i)chang|wr(ite|ote)|read-only"),
    Refused("an integer result", lambda x: np.arange(3), (ONES,), "(?i)float|int"),
    Refused("no float argument", lambda i: i * 1.0, (np.arange(3),), "(?i)argument|float"),
)  # fmt: skip
