"""Data parallel steps on 1, 2 and 4 processes of this machine, beside what the simulation predicts:
`python -m benchmarks.scale`, where mpi4py and an mpiexec are.

The constants of the simulation are measured in the same processes: seconds of all-reduces of
several sizes, packed and unpacked as a step does it, and of steps without a group on two numbers of
rows, which all ranks make at once. Every process computes on one thread. Besides seconds that pass
there are those of the CPU, in which ranks wait too, as they ask for messages: on a busy machine
only these mean something.

`demo` as an argument compares two ranks on the network of the demo with the sum of its parts: a
step without a group and MPI's Allreduce of as many bytes as its gradients have, in turns.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

import miniml as ml
from benchmarks.measure import machine
from miniml import distributed, nn, ops, optim
from miniml.cli import demo
from miniml.cli.scale import Network, Workload, simulate

BATCH, WIDTH = 256, 512
SIZES = 4_096, 65_536, 1_048_576, 4_194_304
PROCESSES = 1, 2, 4
Clock = Callable[[], float]
CLOCKS: dict[str, Clock] = {"wall": time.perf_counter, "CPU": time.process_time}


def main() -> None:
    """Run the measurement in each number of processes, and print a line for each."""
    print(machine())
    if sys.argv[1:] == ["demo"]:
        print(_ranks(2, "parts"), end="")
        return
    one = dict[str, float]()
    for count in PROCESSES:
        for clock, found in json.loads(_ranks(count, "rank").splitlines()[-1]).items():
            one[clock] = one.get(clock) or found["step"]
            print(
                f"{count} processes, {clock}: {found['step'] * 1e3:.2f} ms a step of {BATCH} rows, "
                f"{one[clock] / found['step']:.2f} x one; predicted {found['predicted'] * 1e3:.2f} "
                f"ms; {found['calls']} collective calls a step, {found['sent']} bytes sent by a "
                f"rank, {found['least']} at least"
            )
            print(f"  {json.dumps(found)}")


def _ranks(count: int, what: str) -> str:
    """Start so many ranks of one thread each; what they print."""
    mpiexec = str(Path(sys.executable).with_name("mpiexec"))
    command = [mpiexec, "-n", str(count), sys.executable, "-m", "mpi4py", "-m", __spec__.name, what]
    env = {**os.environ, "OMP_NUM_THREADS": "1", "MPIEXEC_TIMEOUT": "300"}
    done = subprocess.run(command, env=env, capture_output=True, text=True)
    if done.returncode:
        sys.exit(done.stderr)
    return done.stdout


def rank() -> None:
    """Measure as one rank; rank 0 prints what was found."""
    group = distributed.init()
    found = {name: _found(group, clock) for name, clock in CLOCKS.items()}
    if group.rank == 0:
        print(json.dumps(found), flush=True)


def _found(group: Any, clock: Clock) -> dict[str, Any]:
    """Constants, the step and its prediction, by a clock."""
    n, own = group.size, BATCH // group.size
    step, alone = _step(group), _step(None)
    rows, few_rows = _rows(own), _rows(own // 2)
    few = _least(lambda: alone(*few_rows), clock)
    many = _least(lambda: alone(*rows), clock)
    row = (many - few) / (own - own // 2)
    moved = [_all_reduce(size, group, clock) for size in SIZES] if n > 1 else []
    network = _network(moved, n)
    gradients = 4 * (64 * WIDTH + WIDTH * WIDTH + 2 * WIDTH + WIDTH * 10 + 10)
    work = Workload(BATCH, row, many - own * row, (gradients + 4,))
    together = _least(lambda: step(*rows), clock)
    calls, sent = _counted(lambda: step(*rows), group)
    return {
        "cores": os.cpu_count(), "ranks": n, "row": row, "fixed": work.fixed, "step": together,
        "bytes": work.bytes, "alpha": network.alpha, "beta": network.beta,
        "all_reduce": dict(zip(map(str, SIZES), moved)),
        "predicted": simulate(work, network, n).seconds, "calls": calls, "sent": sent,
        "least": 2 * (n - 1) * work.bytes // n,
    }  # fmt: skip


def _step(group: Any) -> Any:
    ml.manual_seed(0)
    net = nn.Sequential(
        nn.Dense(64, WIDTH), nn.ReLU(), nn.Dense(WIDTH, WIDTH), nn.ReLU(), nn.Dense(WIDTH, 10)
    )
    optimizer = optim.SGD(net.trainable_params(), lr=0.01)
    return ml.train_step(net, nn.CrossEntropyLoss(), optimizer, group=group)


def _rows(count: int) -> tuple[Any, Any]:
    rng = np.random.default_rng(0)
    return rng.normal(size=(count, 64)).astype(np.float32), np.arange(count) % 10


def _least(fn: Callable[[], object], clock: Clock, times: int = 200) -> float:
    """The least seconds of a call, the largest of all ranks."""
    for _ in range(5):
        fn()
    spans = []
    for _ in range(times):
        distributed.all_reduce(0.0)  # all begin together
        begun = clock()
        fn()
        spans.append(clock() - begun)
    return float(distributed.all_reduce(min(spans), "max").item())


def _all_reduce(size: int, group: Any, clock: Clock) -> float:
    """Seconds to average eight arrays that have `size` bytes together, as a step does."""
    arrays = [ml.Tensor(np.ones(size // 32, np.float32)) for _ in range(8)]

    @ml.jit
    def averaged(*xs: Any) -> Any:
        return ops.split(distributed.all_reduce(ops.concat(xs), "mean", group), len(xs))

    return _least(lambda: averaged(*arrays), clock)


def _network(moved: list[float], n: int) -> Network:
    """alpha and beta by the shortest and the longest of the all-reduces; additions are in beta."""
    if n == 1:
        return Network(0.0, 0.0)
    slope = max(moved[-1] - moved[0], 0.0) / (SIZES[-1] - SIZES[0])
    rounds = (n - 1).bit_length()
    messages = rounds + (1 if n == 2 else 2 * (n - 1))
    share = 1.0 if n == 2 else 2 * (n - 1) / n
    return Network(max(moved[0] - slope * SIZES[0], 0.0) / messages, slope / share, 0.0)


def _counted(fn: Callable[[], object], group: Any) -> tuple[int, int]:
    """Collective calls, and the bytes that this rank sends in them."""
    calls, sent, kept = [0], [0], (group.agree, group.gather, group.swap)

    def agree(call: str) -> None:
        calls[0] += 1
        kept[0](call)

    def gather(x: Any, out: Any) -> None:
        sent[0] += x.nbytes * (group.size - 1)
        kept[1](x, out)

    def swap(x: Any, out: Any) -> None:
        sent[0] += x.nbytes * (group.size - 1) // group.size
        kept[2](x, out)

    group.agree, group.gather, group.swap = agree, gather, swap
    fn()
    group.agree, group.gather, group.swap = kept
    return calls[0], sent[0]


def parts() -> None:
    """Print the seconds of a step of the demo's network on all ranks, and of its parts."""
    group = distributed.init()
    for rows in 16, 32, 64, 256:
        found = _beside_parts(group, rows)
        if group.rank == 0:
            print(found)


def _beside_parts(group: Any, rows: int) -> str:
    """A step with so many rows on each rank, and its parts, in turns."""
    world = import_module("mpi4py.MPI").COMM_WORLD  # which starts MPI: in ranks alone
    x = np.random.default_rng(0).normal(size=(rows, 1, 8, 8)).astype(np.float32)
    y = np.arange(rows) % 10
    step, alone = _demo_step(group), _demo_step(None)
    sent = np.zeros(sum(p.size for p in demo.network().trainable_params()), np.float32)
    received = np.zeros_like(sent)

    def in_parts() -> None:
        alone(x, y)
        world.Allreduce(sent, received)

    sides: dict[str, Callable[[], object]] = {
        "step": lambda: step(x, y),
        "parts": in_parts,
        "alone": lambda: alone(x, y),
        "all-reduce": lambda: world.Allreduce(sent, received),
    }
    spans = {name: list[float]() for name in sides}
    for _ in range(400):
        for name, side in sides.items():
            world.Barrier()
            begun = time.perf_counter()
            side()
            spans[name].append(time.perf_counter() - begun)
    ratio = statistics.median(a / b for a, b in zip(spans["step"], spans["parts"]))
    least = ", ".join(f"{name} {min(each) * 1e6:.0f}" for name, each in spans.items())
    return f"{rows} rows a rank: {ratio:.2f} x its parts in the median; least us: {least}"


def _demo_step(group: Any) -> Any:
    ml.manual_seed(0)
    net = demo.network()
    optimizer = optim.Adam(net.trainable_params(), lr=1e-3)
    return ml.train_step(net, nn.CrossEntropyLoss(), optimizer, group=group)


if __name__ == "__main__":
    {"rank": rank, "parts": parts}.get((sys.argv[1:] or [""])[0], main)()
