"""`scale`: predicts the time of data parallel steps, and says where more ranks stop paying.

By a simulation of discrete events. A message of b bytes takes alpha + beta b seconds, whatever else
is under way (the alpha-beta model: Hockney 1994); gradients are all-reduced in buckets, one after
the other, after the backward pass or while it goes on. What it predicts is as good as the
constants: `benchmarks/scale.py` measures them.

In order: the command; what is simulated; `simulate`, the events of steps; `all_reduce_seconds`;
`sweep` over numbers of ranks, where it stops paying, and what would help there; the picture.
"""

from __future__ import annotations

import heapq
import math
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from html import escape
from itertools import pairwise
from pathlib import Path
from typing import Literal

import numpy as np

from ..core.errors import MinimlError
from ..core.files import write
from ..core.options import choice

Algorithm = Literal["direct", "ring", "tree"]
ALGORITHMS: tuple[Algorithm, ...] = ("direct", "ring", "tree")
RANKS = tuple([2**i for i in range(13)])  # 1 to 4,096


def add_scale(command: ArgumentParser) -> None:
    command.description = (
        "Predict, by a simulation of discrete events, how long a data parallel step takes on 1 to "
        "4,096 ranks of a network, where more ranks stop paying, and what would help. It is as "
        "good as its constants, which `mpiexec -n 2 python -m benchmarks.scale` measures."
    )
    command.add_argument(
        "--network", default="ethernet-10g", metavar="NAME",
        help=f"{', '.join(NETWORKS)}; or seconds of latency and bytes a second, as 25e-6,1.25e9",
    )  # fmt: skip
    command.add_argument("--batch", type=int, default=4096, help="rows of a step, of all ranks")
    command.add_argument("--row", type=float, default=5e-5, help="seconds a row, on one rank")
    command.add_argument(
        "--fixed", type=float, default=5e-4, help="seconds of a step whatever its rows are"
    )
    command.add_argument("--parameters", type=int, default=10**6, help="numbers that are trained")
    command.add_argument("--buckets", type=int, default=8, help="in which gradients are reduced")
    command.add_argument(
        "--spread", type=float, default=0.02, help="relative deviation of a rank's time"
    )
    command.add_argument("--algorithm", choices=ALGORITHMS, default="direct")
    command.add_argument(
        "--overlap", action="store_true", help="reduce while the backward pass goes on"
    )
    command.add_argument("--picture", metavar="FILE", help="write it as SVG")
    command.set_defaults(run=run_scale)


def run_scale(options: Namespace) -> int:
    """Print a line for each number of ranks, and the advice; returns the exit code."""
    network = _network(options.network)
    work = _workload(options)
    steps = sweep(work, network, options.algorithm, options.overlap)
    best = pays_until(steps)
    print(f"{'ranks':>6} {'ms a step':>10} {'waiting':>8} {'faster':>7} {'of ideal':>8}")
    for step in steps:
        faster = steps[0].seconds / step.seconds
        print(
            f"{step.ranks:6d} {step.seconds * 1e3:10.3f} {step.waiting / step.seconds:8.0%} "
            f"{faster:7.1f} {faster / step.ranks:8.0%}"
        )
    advice = advised(work, network, options.algorithm, steps, best)
    print(advice)
    if options.picture:
        path = Path(options.picture)
        write(path, iter([picture(steps, best, advice).encode()]), path)
        print(f"written: {path}")
    return 0


def _network(text: str) -> Network:
    if text in NETWORKS:
        return NETWORKS[text]
    try:
        latency, bandwidth = map(float, text.split(","))
        return Network(latency, 1 / bandwidth)
    except (ValueError, ZeroDivisionError):
        raise MinimlError(
            f"scale got --network {text!r}; give one of {', '.join(NETWORKS)}, or the seconds of "
            "latency and the bytes a second, as 25e-6,1.25e9"
        ) from None


def _workload(options: Namespace) -> Workload:
    positive = {n: getattr(options, n) for n in ("batch", "row", "parameters", "buckets")}
    for name, value in positive.items():
        if not value > 0:
            raise MinimlError(f"scale got --{name} {value}; give a number above 0")
    size = 4 * options.parameters
    buckets = tuple([size // options.buckets] * options.buckets)
    return Workload(options.batch, options.row, max(options.fixed, 0.0), buckets, options.spread)


def advised(
    work: Workload, network: Network, algorithm: str, steps: Sequence[Step], best: Step
) -> str:
    """Two sentences: where data parallel stops paying, and what would help on twice as many."""
    faster = steps[0].seconds / best.seconds
    if best is steps[-1]:
        return f"More ranks pay up to {best.ranks}: {faster:.1f} times as fast as one."
    beyond = steps[steps.index(best) + 1].ranks
    stops = (
        f"Data parallel stops paying at {best.ranks} ranks, {faster:.1f} times as fast as one: "
        f"{beyond} save less than a tenth of a step."
    )
    helps = [(what, gain) for what, gain in remedies(work, network, algorithm, beyond)  # type: ignore[arg-type]
             if gain > 1.05]  # fmt: skip
    listed = ", ".join(f"{what} ({gain:.1f} times as fast)" for what, gain in helps[:4])
    return f"{stops} On {beyond} would help: {listed or 'nothing that is tried here'}."


# --- The simulation -------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Network:
    """alpha: seconds for the shortest message; beta: seconds a byte; gamma: seconds to add a byte
    of two arrays."""

    alpha: float
    beta: float
    gamma: float = 1e-10

    def __post_init__(self) -> None:
        if not (self.alpha >= 0 and self.beta >= 0 and self.gamma >= 0):
            raise MinimlError(f"a Network has seconds >= 0; got {self}")


# Typical values of their kind; those of shared memory are near what benchmarks/scale.py measures.
NETWORKS = {
    "shared-memory": Network(10e-6, 5e-10),
    "ethernet-1g": Network(50e-6, 8e-9),
    "ethernet-10g": Network(25e-6, 8e-10),
    "ethernet-100g": Network(10e-6, 8e-11),
    "infiniband-400g": Network(2e-6, 2e-11),
}


@dataclass(frozen=True, slots=True)
class Workload:
    """A training step on a batch of `batch` rows, which the ranks divide.

    row: seconds for forward and backward of one row. fixed: seconds of a step whatever its rows
    are, the update among them. buckets: bytes of the gradients in the order in which the backward
    pass, two thirds of a row's time, makes them, in equal times. spread: the relative standard
    deviation of a rank's time for its rows: all wait for the slowest.
    """

    batch: int
    row: float
    fixed: float
    buckets: tuple[int, ...]
    spread: float = 0.0

    @property
    def bytes(self) -> int:
        """Bytes of all gradients."""
        return sum(self.buckets)


@dataclass(frozen=True, slots=True)
class Step:
    """ranks, and seconds: of a step, of its computation by the slowest rank, and of the network
    while nothing else goes on."""

    ranks: int
    seconds: float
    computing: float

    @property
    def waiting(self) -> float:
        """Seconds in which ranks wait for the network."""
        return self.seconds - self.computing


def simulate(
    workload: Workload,
    network: Network,
    ranks: int,
    algorithm: Algorithm = "direct",
    overlap: bool = False,
    steps: int = 5,
) -> Step:
    """The mean step of several, with draws of the ranks' times that are the same in every run.

    algorithm: "direct" is what miniml does, each rank adds up one part and gets those of the
    others; "ring" and "tree" are those of MPI and NCCL. overlap: buckets are reduced while the
    backward pass goes on; miniml reduces one after it.

    >>> work = Workload(batch=64, row=1e-4, fixed=1e-3, buckets=(4_000_000,))
    >>> alone, eight = (simulate(work, NETWORKS["ethernet-10g"], n) for n in (1, 8))
    >>> round(alone.seconds * 1e3, 2), round(eight.seconds * 1e3, 2)
    (7.4, 8.23)
    """
    choice("simulate", "algorithm", algorithm, ALGORITHMS)
    if ranks < 1 or ranks > workload.batch:
        raise MinimlError(
            f"simulate got {ranks} ranks for a batch of {workload.batch} rows; each rank has a row"
        )
    rng = np.random.default_rng(0)
    share = math.ceil(workload.batch / ranks) * workload.row
    seconds = computing = 0.0
    for _ in range(steps):
        slowest = float(np.max(rng.normal(1.0, workload.spread, ranks), initial=0.0))
        rows = share * (slowest if workload.spread else 1.0)
        ready = _ready(workload.buckets, rows, overlap)
        seconds += _step(workload, network, ranks, algorithm, ready, rows) / steps
        computing += (rows + workload.fixed) / steps
    return Step(ranks, seconds, computing)


def _ready(buckets: Sequence[int], rows: float, overlap: bool) -> list[tuple[float, int]]:
    """When the slowest rank has each bucket, and its bytes."""
    if not overlap:
        return [(rows, sum(buckets))]
    each = rows * 2 / 3 / max(len(buckets), 1)
    return [(rows / 3 + (i + 1) * each, size) for i, size in enumerate(buckets)]


def _step(
    workload: Workload,
    network: Network,
    ranks: int,
    algorithm: Algorithm,
    ready: Sequence[tuple[float, int]],
    rows: float,
) -> float:
    """Seconds of one step: the events in which a bucket is ready, or the network has moved one."""
    events = [(at, "ready", size) for at, size in ready]
    heapq.heapify(events)
    waiting: list[int] = []
    busy, now = False, rows
    while events:
        now, what, size = heapq.heappop(events)
        if what == "ready":
            waiting.append(size)
        else:
            busy = False
        if waiting and not busy:
            busy = True
            taken = all_reduce_seconds(waiting.pop(0), network, ranks, algorithm)
            heapq.heappush(events, (now + taken, "moved", 0))
    return max(now, rows) + workload.fixed


def all_reduce_seconds(size: int, network: Network, ranks: int, algorithm: Algorithm) -> float:
    """Seconds to all-reduce `size` bytes.

    ring: 2 (n - 1) messages of 1/n of the bytes, one after the other, and tree: 2 log2(n) of all of
    them (Thakur, Rabenseifner, Gropp 2005). direct: the ranks agree on the call, by log2(n)
    messages, two ranks exchange all bytes, and more exchange parts twice, by as many messages as a
    ring's.
    """
    if ranks == 1:
        return 0.0
    rounds = math.ceil(math.log2(ranks))
    if algorithm == "tree":
        return 2 * rounds * (network.alpha + size * network.beta) + rounds * size * network.gamma
    part = size / ranks
    ring = 2 * (ranks - 1) * (network.alpha + part * network.beta)
    if algorithm == "ring":
        return ring + (ranks - 1) * part * network.gamma
    agreeing = rounds * network.alpha
    if ranks == 2:
        return agreeing + network.alpha + size * (network.beta + network.gamma)
    return agreeing + ring + size * network.gamma


# --- Numbers of ranks -----------------------------------------------------------------------------


def sweep(
    workload: Workload,
    network: Network,
    algorithm: Algorithm = "direct",
    overlap: bool = False,
    ranks: Sequence[int] = RANKS,
) -> list[Step]:
    """The step for each number of ranks that has a row for every rank."""
    numbers = [n for n in ranks if n <= workload.batch]
    return [simulate(workload, network, n, algorithm, overlap) for n in numbers]


def pays_until(steps: Sequence[Step]) -> Step:
    """The step after which more ranks do not pay: twice as many save less than a tenth."""
    for step, next_step in pairwise(steps):
        if next_step.seconds > 0.9 * step.seconds:
            return step
    return steps[-1]


def remedies(
    workload: Workload, network: Network, algorithm: Algorithm, ranks: int
) -> list[tuple[str, float]]:
    """Changes that would help on that many ranks, the best first, and how many times faster a row
    is with each."""
    now = simulate(workload, network, ranks, algorithm).seconds

    def tried() -> Iterator[tuple[str, float]]:
        for other in ALGORITHMS:
            if other != algorithm:
                found = simulate(workload, network, ranks, other)
                yield f"a {other} all-reduce", now / found.seconds
        overlapping = simulate(workload, network, ranks, algorithm, overlap=True)
        yield "reducing while the backward pass goes on", now / overlapping.seconds
        halves = replace(workload, buckets=tuple([b // 2 for b in workload.buckets]))
        yield "gradients of 16 bits", now / simulate(halves, network, ranks, algorithm).seconds
        larger = replace(workload, batch=4 * workload.batch)
        each = simulate(larger, network, ranks, algorithm).seconds / 4
        yield "a batch of four times as many rows", now / each
        prompt = replace(network, alpha=network.alpha / 10)
        yield "a tenth of the latency", now / simulate(workload, prompt, ranks, algorithm).seconds
        wide = replace(network, beta=network.beta / 10)
        yield "ten times the bandwidth", now / simulate(workload, wide, ranks, algorithm).seconds

    return sorted(tried(), key=lambda pair: -pair[1])


# --- The picture ----------------------------------------------------------------------------------

_WIDTH, _HEIGHT, _LEFT, _TOP = 640, 380, 70, 20
_RIGHT, _BOTTOM = _WIDTH - 20, _HEIGHT - 110


def picture(steps: Sequence[Step], best: Step, advice: str) -> str:
    """An SVG: seconds of a step, of its computation and of the ideal, over ranks, both axes
    logarithmic, with a mark where more ranks stop paying."""
    ideal = [steps[0].seconds / s.ranks for s in steps]
    lines = {
        "step": ("#1f77b4", [s.seconds for s in steps]),
        "computing": ("#2ca02c", [s.computing for s in steps]),
        "ideal": ("#999999", ideal),
    }
    every = [value for _, values in lines.values() for value in values]
    low, high = math.log10(min(every)), math.log10(max(every)) + 1e-9
    last = max(math.log2(steps[-1].ranks), 1e-9)

    def at(ranks: int, seconds: float) -> tuple[float, float]:
        x = _LEFT + (_RIGHT - _LEFT) * math.log2(ranks) / last
        return x, _BOTTOM - (_BOTTOM - _TOP) * (math.log10(seconds) - low) / (high - low)

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{_WIDTH}" height="{_HEIGHT}" '
        'font-family="sans-serif" font-size="12">',
        f'<rect width="{_WIDTH}" height="{_HEIGHT}" fill="white"/>',
    ]
    for power in range(math.ceil(low), math.floor(high) + 1):
        _, y = at(1, 10.0**power)
        parts.append(f'<path d="M{_LEFT} {y:.1f}H{_RIGHT}" stroke="#eee"/>')
        parts.append(_text(_LEFT - 6, y + 4, f"{10.0 ** (power + 3):g} ms", "end"))
    parts += [_text(at(s.ranks, 1.0)[0], _BOTTOM + 18, str(s.ranks), "middle") for s in steps]
    for i, (name, (colour, values)) in enumerate(lines.items()):
        points = " ".join(f"{x:.1f},{y:.1f}" for x, y in (
            at(s.ranks, v) for s, v in zip(steps, values, strict=True)))  # fmt: skip
        parts.append(
            f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="2"/>'
        )
        left, top = _LEFT + 16, _BOTTOM - 44 + 16 * i
        parts.append(f'<path d="M{left} {top}h16" stroke="{colour}" stroke-width="2"/>')
        parts.append(_text(left + 22, top + 4, name))
    x, y = at(best.ranks, best.seconds)
    parts.append(
        f'<circle cx="{x:.1f}" cy="{y:.1f}" r="6" fill="none" stroke="#d62728" stroke-width="2"/>'
    )
    parts += [_text(_LEFT, _BOTTOM + 44 + 16 * i, row) for i, row in enumerate(_rows(advice))]
    return "\n".join([*parts, "</svg>\n"])


def _text(x: float, y: float, text: str, anchor: str = "start") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(text)}</text>'


def _rows(text: str, width: int = 88) -> list[str]:
    rows = [""]
    for word in text.split():
        if len(rows[-1]) + len(word) >= width:
            rows.append("")
        rows[-1] = f"{rows[-1]} {word}".strip()
    return rows
