"""`scale`: predicts the time of data parallel steps, and says where more ranks stop paying."""

from __future__ import annotations

import math
from argparse import ArgumentParser, Namespace
from collections.abc import Sequence
from html import escape
from pathlib import Path

from ..core.errors import MinimlError
from ..core.files import write
from ..distributed.simulation import (
    ALGORITHMS,
    NETWORKS,
    Network,
    Step,
    Workload,
    pays_until,
    remedies,
    sweep,
)


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
