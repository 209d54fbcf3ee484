"""Compiled operations beside PyTorch and JAX: a table, and those slower than the best peer.

`python -m benchmarks.operations [--peers PYTHON] [--only TEXT] [--rounds 3] [--json FILE]`; then
`--write FILE` puts the counts of a whole run that was kept into docs/performance.md. Every library
runs in a process of its own, on one core, and they take turns; PyTorch and JAX run by the
interpreter PYTHON, which needs NumPy besides. Times are CPU time, the least of all rounds.

First the table of operations, then how one library runs a case, then the turns and the report.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from datetime import date
from importlib import import_module
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from benchmarks.measure import machine
from benchmarks.networks.turns import Process

# --- The table ------------------------------------------------------------------------------------


class Case(NamedTuple):
    """One operation. inputs: Python text of NumPy arrays, by the functions of INPUTS; ours, torch,
    jax: the operation on x, y, z in the names of each library; "" where it has none. gradient: of
    the sum of the first result, weighted, in all inputs of floats, instead of the result."""

    group: str
    ours: str
    inputs: str
    torch: str
    jax: str
    gradient: bool = False

    @property
    def name(self) -> str:
        """The case as one line."""
        return f"{self.group}: {self.ours} of {self.inputs}{' - gradient' * self.gradient}"


def cases() -> list[Case]:
    """All operations, forward, and with gradients where the table says so."""
    found = []
    for group, inputs, rows in TABLE:
        for given, row in product(inputs, re.split(r"\n +(?=[^|\s])", rows.strip())):
            text, _, mark = row.partition(" !")
            ours, torch, jax = ([part.strip() for part in text.split("|")] * 3)[:3]
            peers = ("" if torch == "-" else torch, "" if jax == "-" else jax)
            kinds = (False, True) if "g" in mark else (False,)
            found += [Case(group, ours, given, *peers, gradient) for gradient in kinds]
    return found


# Rows: one text for all libraries, or one for each after "|"; "-" where a library has none; "!g":
# its gradient too.
TABLE: list[tuple[str, list[str], str]] = [
    ("elementwise", ["f(300, 300)", "f(32, 32)", "d(300, 300)"], """
        x + x
        x * 2 + 1 !g
        sin(x) !g
        cos(x)
        exp(x) !g
        tanh(x) !g
        erf(x)
        sigmoid(x) !g
        relu(x) !g
        gelu(x) | gelu(x) | gelu(x, approximate=False) !g
        silu(x)
        elu(x)
        softplus(x)
        expm1(x)
        x ** 3 !g
        x ** 2
        atan(x) | atan(x) | arctan(x) !g
        tan(x) !g
        sinh(x) !g
        cosh(x)
        asinh(x) | asinh(x) | arcsinh(x)
        floor(x)
        round(x)
        sign(x)
        abs(x)
        mod(x, 0.7) | remainder(x, 0.7) | x % 0.7
        floor_div(x, 0.7) | x // 0.7 | x // 0.7
        clip(x, -1, 1)
        where(x > 0, x, 0.0)"""),
    ("elementwise of (0, 1)", ["u(300, 300)", "u(32, 32)"], """
        log(x) !g
        log1p(x)
        log2(x)
        log10(x)
        sqrt(x) !g
        rsqrt(x) | rsqrt(x) | jax.lax.rsqrt(x)
        x ** 2.5 !g
        x ** 0.5
        1 / x
        asin(x) | asin(x) | arcsin(x) !g
        acos(x) | acos(x) | arccos(x)
        atanh(x) | atanh(x) | arctanh(x)
        acosh(x + 1) | acosh(x + 1) | arccosh(x + 1)
        erfinv(x) !g
        lgamma(x) | lgamma(x) | jax.scipy.special.gammaln(x) !g
        digamma(x)"""),
    ("elementwise of two", ["f(300, 300), f(300, 300)", "f(1000, 1000), f(1000)",
                            "f(1000, 1000), f(1000, 1)"], """
        x + y
        x * y !g
        x / y
        maximum(x, y)
        atan2(x, y) | atan2(x, y) | arctan2(x, y)
        x > y"""),
    ("integers", ["i(100, 300, 300), i(9, 300, 300) + 1"], """
        x + y
        x * y
        x // y
        x % y"""),
    ("16 bits", ["h(300, 300)"], """
        x + x
        relu(x) !g
        gelu(x) | gelu(x) | gelu(x, approximate=False)
        softmax(x, -1)
        x @ x"""),
    ("reductions", ["f(64, 128, 96)", "f(8, 100000)", "f(10, 10)"], """
        sum(x)
        sum(x, -1)
        sum(x, 0)
        mean(x, -1) !g
        max(x) | amax(x) | max(x)
        max(x, -1) | amax(x, -1) | max(x, -1) !g
        max(x, 0) | amax(x, 0) | max(x, 0)
        argmax(x, -1)
        argmax(x, 0)
        prod(x) !g
        prod(x, -1)
        var(x, -1) | var(x, -1, correction=0) | var(x, -1)
        logsumexp(x, -1) !g
        softmax(x, -1) !g
        log_softmax(x, -1) !g
        any(x > 3, -1)"""),
    ("reductions apart", ["f(8, 32, 56, 56)"], """
        mean(reshape(x, (8, 32, 28, 2, 28, 2)), (3, 5)) !g
        max(reshape(x, (8, 32, 28, 2, 28, 2)), (3, 5))
            | amax(reshape(x, (8, 32, 28, 2, 28, 2)), (3, 5))
            | max(reshape(x, (8, 32, 28, 2, 28, 2)), (3, 5)) !g
        sum(x, (0, 2, 3))
        sum(x, (1, 3))
        repeat(repeat(x, 2, 2), 2, 3)
            | repeat_interleave(repeat_interleave(x, 2, 2), 2, 3)
            | repeat(repeat(x, 2, 2), 2, 3) !g"""),
    ("cumulative", ["f(300, 300)", "f(10, 20000)"], """
        cumsum(x, -1) !g
        cumsum(x, 0)
        cumprod(x, -1)
        cummax(x, -1) | cummax(x, -1)[0] | jax.lax.cummax(x, 1)"""),
    ("sorting", ["f(64, 1000)", "f(32, 10)", "f(1, 50000)"], """
        sort(x) | sort(x)[0] | sort(x) !g
        argsort(x)
        topk(x, 5)[0] | topk(x, 5)[0] | jax.lax.top_k(x, 5)[0] !g
        median(x, -1) | median(x, -1)[0] | median(x, -1)"""),
    ("draws", ["f(1)"], """
        x + normal((300, 300)) | x + randn((300, 300)) | x + jax.random.normal(key, (300, 300))
        x + normal((32, 8)) | x + randn((32, 8)) | x + jax.random.normal(key, (32, 8))
        x + uniform((300, 300)) | x + rand((300, 300)) | x + jax.random.uniform(key, (300, 300))
        randint((300, 300), 0, 50)
            | randint(0, 50, (300, 300))
            | jax.random.randint(key, (300, 300), 0, 50)
        permutation(10000) | randperm(10000) | jax.random.permutation(key, 10000)
        dropout(x + ones((300, 300)), 0.5) | dropout(x + ones((300, 300)), 0.5) | -"""),
    ("index", ["f(512, 1000), i(512, 2048), i(1000, 512, 1)"], """
        x[y] !g
        x[:, 1:] - x[:, :-1] !g
        take_along_axis(x, z, 1) | gather(x, 1, z) | take_along_axis(x, z, 1) !g
        scatter_add(zeros((512, 1000)), y, x[y])
            | zeros((512, 1000)).index_add(0, y, x[y])
            | zeros((512, 1000)).at[y].add(x[y])
        bincount(y, 512) | bincount(y, minlength=512) | bincount(y, length=512)
        one_hot(y, 512, dtype=float32) | one_hot(y, 512).float() | one_hot(y, 512)
        where(x > 0, x, 0)"""),
    ("motion", ["f(32, 32, 28, 28)"], """
        transpose(x, (0, 2, 3, 1))
            | permute(x, (0, 2, 3, 1)).contiguous()
            | transpose(x, (0, 2, 3, 1))
        concat((x, x), 1) | cat((x, x), 1) | concatenate((x, x), 1) !g
        stack((x, x), 1)
        pad(x, ((0, 0), (0, 0), (1, 1), (1, 1)))
            | pad(x, (1, 1, 1, 1))
            | pad(x, ((0, 0), (0, 0), (1, 1), (1, 1)))
        roll(x, 1, -1)
        flip(x, (2,)) | flip(x, (2,)) | flip(x, 2)
        rot90(x, 1, (2, 3)) | rot90(x, 1, (2, 3)).contiguous() | rot90(x, 1, (2, 3)) !g
        pixel_shuffle(x, 2) | pixel_shuffle(x, 2) | -
        reshape(transpose(x, (1, 0, 2, 3)), (32, -1))
            | reshape(permute(x, (1, 0, 2, 3)), (32, -1))
            | reshape(transpose(x, (1, 0, 2, 3)), (32, -1))"""),
    ("products", ["f(256, 256), f(256, 256)", "f(64, 1024), f(1024, 1024)",
                  "d(128, 128), d(128, 128)", "f(64, 32, 64), f(64, 64, 32)"], """
        matmul(x, y) !g"""),
    ("products of odd shapes", ["f(1, 100), f(100, 257)", "f(3, 257), f(257, 100)",
                                "f(7, 257), f(257, 257)", "f(7, 100), f(100, 10)"], """
        matmul(x, y) !g"""),
    ("products by a vector", ["f(1000, 1000), f(1000)"], """
        matmul(x, y) !g"""),
    ("einsum", ["f(300, 300), f(300, 300)"], """
        einsum('ij->ji', x) | einsum('ij->ji', x).contiguous() | einsum('ij->ji', x)
        einsum('ij->i', x)
        einsum('ii->i', x) !g
        einsum('ij,jk->ik', x, y)
        einsum('ij,ij->i', x, y) !g
        einsum('ij,ij->', x, y)
        outer(x[0], y[0])"""),
    ("einsum of batches", ["f(64, 100, 100), f(64, 100)"], """
        einsum('bij,bj->bi', x, y) !g
        einsum('bi,bj->bij', y, y)
        einsum('bij->bji', x) | einsum('bij->bji', x).contiguous() | einsum('bij->bji', x)"""),
    ("linear algebra", ["s(1000, 4), f(1000, 4, 4)", "s(1, 10), f(1, 10, 3)",
                        "s(1, 100), f(1, 100, 100)"], """
        solve(x, y) | linalg.solve(x, y) | linalg.solve(x, y) !g
        cholesky(x) | linalg.cholesky(x) | linalg.cholesky(x) !g
        inv(x) | linalg.inv(x) | linalg.inv(x)
        det(x) | linalg.det(x) | linalg.det(x)"""),
    ("convolution", ["f(8, 16, 28, 28), f(16, 16, 3, 3)", "f(1, 64, 56, 56), f(64, 64, 1, 1)"], """
        conv2d(x, y) | conv2d(x, y) | jax.lax.conv(x, y, (1, 1), 'VALID') !g"""),
    ("convolution of small planes", ["f(8, 60, 2, 2), f(60, 60, 3, 3)",
        "f(4, 60, 4, 4), f(20, 60, 3, 3)", "f(1, 20, 8, 8), f(60, 20, 3, 3)",
        "f(16, 3, 8, 8), f(20, 3, 3, 3)", "f(8, 20, 6, 6), f(3, 20, 3, 3)"], """
        conv2d(x, y, padding=1)
            | conv2d(x, y, padding=1)
            | jax.lax.conv(x, y, (1, 1), 'SAME') !g"""),
    ("pooling", ["f(8, 16, 28, 28)"], """
        max_pool2d(x, 2) | max_pool2d(x, 2) | - !g
        avg_pool2d(x, 2) | avg_pool2d(x, 2) | - !g"""),
    ("norms", ["f(64, 256), f(256)"], """
        layer_norm(x, y, y) | layer_norm(x, (256,), y, y) | - !g
        cross_entropy(x, i(256, 64)) | cross_entropy(x, i(256, 64)) | - !g"""),
    ("neighbours", ["f(512, 512)"], """
        x[1:-1, 1:-1] * 4 - x[:-2, 1:-1] - x[2:, 1:-1] - x[1:-1, :-2] - x[1:-1, 2:] !g
        (x[1:, :-1] - x[:-1, :-1]) ** 2 + (x[:-1, 1:] - x[:-1, :-1]) ** 2 !g
        concat((x[:, :1], x[:, 1:] - x[:, :-1]), 1)
            | cat((x[:, :1], x[:, 1:] - x[:, :-1]), 1)
            | concatenate((x[:, :1], x[:, 1:] - x[:, :-1]), 1) !g"""),
    ("classes of pixels", ["f(8, 21, 64, 64)"], """
        cross_entropy(x, i(21, 8, 64, 64)) | cross_entropy(x, i(21, 8, 64, 64)) | - !g
        softmax(x, 1) !g"""),
    ("overlap of classes", ["f(8, 21, 64, 64), i(21, 8, 64, 64)"], """
        sum(sum(softmax(x, 1) * moveaxis(one_hot(y, 21), -1, 1), (0, 2, 3)) ** 2) !g"""),
    ("norms of channels", ["f(8, 64, 32, 32), f(64)"], """
        moveaxis(layer_norm(moveaxis(x, 1, -1), y, y), -1, 1)
            | moveaxis(layer_norm(moveaxis(x, 1, -1), (64,), y, y), -1, 1)
            | - !g"""),
]  # fmt: skip

RANDOM = ("draws",)  # groups whose results differ


class Inputs:
    """The functions that the table's inputs are made by, each with its own draws."""

    def __init__(self) -> None:
        self.rng = np.random.default_rng(0)

    def f(self, *shape: int) -> Any:
        """Normal float32."""
        return self.rng.standard_normal(shape, np.float32)

    def d(self, *shape: int) -> Any:
        """Normal float64."""
        return self.rng.standard_normal(shape)

    def h(self, *shape: int) -> Any:
        """Normal float16."""
        return self.f(*shape).astype(np.float16)

    def u(self, *shape: int) -> Any:
        """Uniform float32 in (0.01, 0.99)."""
        return self.rng.uniform(0.01, 0.99, shape).astype(np.float32)

    def i(self, n: int, *shape: int) -> Any:
        """int64 below n."""
        return self.rng.integers(0, n, shape)

    def s(self, count: int, n: int) -> Any:
        """Symmetric positive definite matrices."""
        a = self.f(count, n, n)
        return a @ a.transpose(0, 2, 1) + n * np.eye(n, dtype=np.float32)


def inputs_of(case: Case) -> tuple[Any, ...]:
    """The arrays of a case."""
    found = eval(case.inputs, {n: getattr(Inputs(), n) for n in "fdhuis"})
    return found if isinstance(found, tuple) else (found,)


# --- One library ----------------------------------------------------------------------------------


class Worker:
    """One library, and the case that it has at hand."""

    def __init__(self, library: str):
        self.load: Callable[[str, bool, tuple[Any, ...]], Callable[[], Any]]
        self.load = {"miniml": in_miniml, "torch": in_torch, "jax": in_jax}[library]
        self.library = library
        self.call: Callable[[], Any] = tuple

    def answer(self, request: dict[str, Any]) -> dict[str, Any]:
        """Make a case, whose answer is a number that all libraries share, or time it."""
        if "time" in request:
            return {"seconds": self.time(request["time"])}
        case = Case(*request["make"])
        text = {"miniml": case.ours, "torch": case.torch, "jax": case.jax}[self.library]
        if not text:
            return {"absent": True}
        try:
            self.call = self.load(text, case.gradient, inputs_of(case))
            found = self.call()
        except Exception as error:
            return {"absent": True, "error": f"{type(error).__name__}: {error}"[:300]}
        for part in (0, 0):
            found = found[part] if isinstance(found, (tuple, list)) else found
        found = found.detach() if hasattr(found, "detach") else found
        return {"result": float(np.abs(np.asarray(found, np.float64)).mean())}

    def time(self, seconds: float) -> float:
        """The least CPU time of a call among short runs."""
        begin = time.process_time()
        self.call()
        once = max(time.process_time() - begin, 1e-6)
        calls, least = max(1, int(seconds / 8 / once)), float("inf")
        for _ in range(8 if calls > 1 else max(1, int(seconds / once))):
            begin = time.process_time()
            for _ in range(calls):
                self.call()
            least = min(least, (time.process_time() - begin) / calls)
        return least


def in_miniml(text: str, gradient: bool, arrays: tuple[Any, ...]) -> Callable[[], Any]:
    """A case as a call of miniml, under jit."""
    ml, ops = import_module("miniml"), import_module("miniml.ops")
    names = {**vars(ops), "float32": ml.float32, "i": _integers(ml.Tensor)}
    fn, given = _function(text, names, len(arrays)), [ml.Tensor(a) for a in arrays]
    if gradient:
        plain, at = fn, _floats(arrays)
        given.append(ml.Tensor(_weights(plain(*given).shape, arrays)))
        fn = ml.grad.grad(lambda *xs: ops.sum(plain(*xs[:-1]) * xs[-1]), at)
    run = ml.jit(fn)
    return lambda: run(*given)


def in_torch(text: str, gradient: bool, arrays: tuple[Any, ...]) -> Callable[[], Any]:
    """A case as a call of PyTorch, eagerly."""
    torch = import_module("torch")
    torch.set_num_threads(1)
    names = {**vars(torch.nn.functional), **vars(torch), "torch": torch}
    names |= {n: getattr(torch.nn.functional, n) for n in ("gelu", "layer_norm", "dropout", "pad")}
    names["i"] = _integers(torch.from_numpy)
    fn, given = _function(text, names, len(arrays)), [torch.from_numpy(a) for a in arrays]
    if not gradient:
        return lambda: fn(*given)
    at = _floats(arrays)
    for k in at:
        given[k].requires_grad_()
    weights = torch.from_numpy(_weights(tuple(fn(*given).shape), arrays))
    leaves = [given[k] for k in at]
    return lambda: torch.autograd.grad((fn(*given) * weights).sum(), leaves, allow_unused=True)


def in_jax(text: str, gradient: bool, arrays: tuple[Any, ...]) -> Callable[[], Any]:
    """A case as a call of JAX, under jit."""
    jax, jnp = import_module("jax"), import_module("jax.numpy")
    jax.config.update("jax_enable_x64", True)
    special = import_module("jax.scipy.special")
    names = {**vars(special), **vars(jax.nn), **vars(jnp), "jax": jax, "key": jax.random.key(0)}
    fn, given = _function(text, names, len(arrays)), [jnp.asarray(a) for a in arrays]
    if gradient:
        plain, at = fn, _floats(arrays)
        given.append(jnp.asarray(_weights(plain(*given).shape, arrays)))
        fn = jax.grad(lambda *xs: (plain(*xs[:-1]) * xs[-1]).sum(), at)
    run = jax.jit(fn)
    return lambda: jax.block_until_ready(run(*given))


def _function(text: str, names: dict[str, Any], count: int) -> Callable[..., Any]:
    return eval(f"lambda {', '.join('xyz'[:count])}: {text}", names)  # type: ignore[no-any-return]


def _integers(made: Callable[[Any], Any]) -> Callable[..., Any]:
    """Labels for a loss, the same at each call."""
    return lambda n, *shape: made(np.arange(np.prod(shape)).reshape(shape) % n)


def _floats(arrays: Sequence[Any]) -> tuple[int, ...]:
    return tuple(k for k, a in enumerate(arrays) if a.dtype.kind == "f")


def _weights(shape: Sequence[int], arrays: Sequence[Any]) -> Any:
    return np.linspace(0.5, 1.5, int(np.prod(shape))).reshape(shape).astype(arrays[0].dtype)


def work(library: str) -> None:
    """Answer requests until there are no more."""
    if hasattr(os, "sched_setaffinity"):  # before the library counts processors
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[-1:])
    worker = Worker(library)
    for line in sys.stdin:
        print(json.dumps(worker.answer(json.loads(line))), flush=True)


# --- Turns and the report -------------------------------------------------------------------------

SECONDS = 0.03  # of one library's turn
ABOVE = (10.0, 3.0, 1.5, 1.2)


class Row(NamedTuple):
    """Microseconds of a call; None where a library lacks the case. note: a difference or error."""

    case: str
    miniml: float
    torch: float | None
    jax: float | None
    note: str

    @property
    def ratio(self) -> float | None:
        """miniml's time over that of the best peer."""
        peers = [t for t in (self.torch, self.jax) if t is not None]
        return self.miniml / min(peers) if peers else None

    def __str__(self) -> str:
        peers = " / ".join("-" if t is None else f"{t:.1f}" for t in self[1:4])
        ratio = "" if self.ratio is None else f"{self.ratio:.2f}"
        return f"{ratio:>7}  {self.case}: {peers} us{'; ' * bool(self.note)}{self.note}"


def rows(found: Sequence[Case], python: str, rounds: int) -> Iterator[Row]:
    """Every case in all libraries, in turns."""
    libraries = {"miniml": sys.executable} | ({"torch": python, "jax": python} if python else {})
    with ExitStack() as stack:
        workers = {
            name: stack.enter_context(Process(name, 1, "benchmarks.operations", interpreter))
            for name, interpreter in libraries.items()
        }
        for case in found:
            yield _row(case, workers, rounds)


def _row(case: Case, workers: dict[str, Process], rounds: int) -> Row:
    made = {name: worker.ask(make=case) for name, worker in workers.items()}
    there = [name for name, answer in made.items() if "absent" not in answer]
    least: dict[str, float] = {}
    for _ in range(rounds):
        for name in there:
            seconds = workers[name].ask(time=SECONDS)["seconds"]
            least[name] = min(least.get(name, seconds), seconds)
    notes = [f"{name}: {a['error']}" for name, a in made.items() if "error" in a]
    results = [made[name]["result"] for name in there]
    scale = 2e-2 * max([1e-3, *map(abs, results)])
    if case.group not in RANDOM and results and max(results) - min(results) > scale:
        notes.append(f"results differ: {results}")
    times = [least[n] * 1e6 if n in least else None for n in ("miniml", "torch", "jax")]
    return Row(case.name, times[0] or float("nan"), *times[1:], "; ".join(notes))


def report(found: Sequence[Row]) -> Iterator[str]:
    """Counts of those above each ratio, and each of them, the worst first."""
    judged = sorted((r for r in found if r.ratio), key=lambda r: -(r.ratio or 0))
    yield f"{len(judged)} cases, {_shares(judged)}"
    yield from (str(r) for r in judged if (r.ratio or 0) > ABOVE[-1])
    yield from (f"cannot be compared: {r}" for r in found if r.note)


def _shares(judged: Sequence[Row]) -> str:
    counts = [sum((r.ratio or 0) > a for r in judged) for a in ABOVE]
    return ", ".join(f"{n} above {a:g}" for n, a in zip(counts, ABOVE, strict=True))


BEGIN = "<!-- operations: written by benchmarks.operations --write -->"
END = "<!-- end of operations -->"
DOCUMENT = Path(__file__).parents[1] / "docs" / "performance.md"


def table(found: Sequence[Row]) -> Iterator[str]:
    """The counts of a whole run, and for each group its cases, those above 1.5 and the worst."""
    judged = [r for r in found if r.ratio]
    yield f"Of {len(judged)} cases **{_shares(judged)}** times the quicker peer's time."
    yield "\n| group | cases | above 3 | above 1.5 | the slowest, and its ratio |"
    yield "|---|---|---|---|---|"
    groups = dict.fromkeys(r.case.partition(":")[0] for r in judged)
    for group in groups:
        own = sorted((r.ratio or 0, r.case) for r in judged if r.case.startswith(f"{group}:"))
        above = [sum(ratio > a for ratio, _ in own) for a in (3, 1.5)]
        ratio, case = own[-1]
        slowest = f"`{case.partition(': ')[2]}` {ratio:.1f}"
        yield f"| {group} | {len(own)} | {above[0]} | {above[1]} | {slowest} |"


def write(kept: Path) -> None:
    """Put the table of a whole run into the document."""
    found = [Row(**row) for row in json.loads(kept.read_text())]
    if [r.case for r in found] != [c.name for c in cases()]:
        raise SystemExit(f"{kept} has {len(found)} cases and is no run of all {len(cases())}")
    day = date.fromtimestamp(kept.stat().st_mtime)
    before, _, rest = DOCUMENT.read_text("utf-8").partition(BEGIN)
    after = rest.partition(END)[2]
    lines = "\n".join([f"{machine()}; {day}.", *table(found)])
    DOCUMENT.write_text(f"{before}{BEGIN}\n{lines}\n{END}{after}", "utf-8")
    picture([r for r in found if r.ratio], DOCUMENT.with_name("operations.png"))


def picture(judged: Sequence[Row], path: Path) -> None:
    """The ratios of all cases, sorted, with the names of those at both ends and of the middle."""
    import matplotlib.pyplot as plt  # noqa: PLC0415 - slow, and only this needs it

    ratios, names = zip(*sorted((r.ratio or 0, r.case.partition(": ")[2]) for r in judged))
    fig, ax = plt.subplots(figsize=(5, 5), layout="constrained")
    ax.fill_between(range(len(ratios)), ratios, 1, step="mid", color="#2a7f62", linewidth=0)
    for level in (1, 1.5):
        ax.axhline(level, color="grey", linewidth=0.8, linestyle="-" if level == 1 else ":")
    last = len(ratios) - 1
    labels = (
        (0, "", 0, (8, 0), "left"),
        (last // 2, "the median, ", last, (-4, -44), "right"),  # beside the bars, below them
        (last, "", last, (-8, 6), "right"),
    )
    for at, what, beside, apart, side in labels:
        text = f"{what}{ratios[at]:.2g}: {names[at].partition(' of ')[0]}"
        ax.annotate(text, (beside, ratios[at]), apart, textcoords="offset points", fontsize=9,
                    ha=side)  # fmt: skip
    ax.set(yscale="log", xlabel=f"{len(ratios)} compiled operations and gradients, sorted",
           ylabel="time of miniml / time of the best peer")  # fmt: skip
    ticks = [
        t for t in (0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 1.5, 3, 10) if t >= ratios[0]
    ]
    ax.set_yticks(ticks, [str(t) for t in ticks])
    ax.minorticks_off()
    ax.margins(x=0.02, y=0.08)
    fig.savefig(path, dpi=130)


def main() -> None:
    """Time what is asked for, and print what lies above the best peer."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--peers", default="", help="an interpreter with PyTorch and JAX")
    parser.add_argument("--only", default="", help="cases whose name has this text")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--write", type=Path, help="a file of a whole run, to be put into the docs")
    given = parser.parse_args()
    if given.write:
        write(given.write)
        return
    chosen = [c for c in cases() if given.only.lower() in c.name.lower()]
    found: list[Row] = []
    for row in rows(chosen, given.peers, given.rounds):
        print(row, flush=True)
        found.append(row)
        if given.json:
            given.json.write_text(json.dumps([r._asdict() for r in found], indent=1) + "\n")
    print(*report(found), sep="\n")


if __name__ == "__main__":
    if len(sys.argv) > 1 and sys.argv[1] in ("miniml", "torch", "jax"):
        work(sys.argv[1])
    else:
        main()
