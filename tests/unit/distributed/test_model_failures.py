"""A run on processes of which one fails or is killed: all end, and it resumes to the same bits."""

import os
import random
import signal
import subprocess
import time
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file

from .launch import environment, needs_mpi, ranks, write

pytestmark = [needs_mpi, pytest.mark.deep]

PROGRAM = """
    import os, signal, sys, time
    import numpy as np
    import miniml as ml
    from miniml import nn, optim, train

    ml.set_context(providers=("miniml",))  # no C is compiled
    path, epochs, how = sys.argv[1], int(sys.argv[2]), sys.argv[3]
    group = ml.distributed.init(timeout=5.0)
    with open(f"pid{group.rank}", "w") as file:
        file.write(f"{os.getpid()}\\n")
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(64, 8)).astype(np.float32), rng.integers(0, 3, 64)

    ml.manual_seed(0)
    norm = nn.BatchNorm1d(16, group=group)
    net = nn.Sequential(nn.Dense(8, 16), norm, nn.Dropout(0.2), nn.Dense(16, 3))
    ml.manual_seed(group.rank)
    adam = optim.Adam(net.trainable_params(), lr=0.01)
    model = train.Model(net, nn.CrossEntropyLoss(), adam, [train.accuracy()], group=group)

    class Fails(train.Callback):
        def on_epoch(self, run, row):
            if run.rank != 1 or run.epoch != 2:
                return
            if how == "raises":
                raise ValueError("bad luck")
            if how == "ends":
                sys.exit()
            if how == "hangs":
                time.sleep(300)
            if how == "dies":
                os.kill(os.getpid(), signal.SIGKILL)
            if how == "other weights":
                net[0].bias.set_data(net[0].bias.asnumpy() + 1)

    class Slow(train.Callback):
        def on_steps(self, run, losses):
            time.sleep(0.002)

    calls = [Fails(), train.SaveBest(path + ".best"), train.Log(path + ".jsonl")]
    calls += [Slow()] if how == "slowly" else []
    model.fit(x, y, batch_size=8, epochs=epochs, validation=(x[:9], y[:9]), callbacks=calls,
              resume=path, save_every=3, show=False)
    print("whole", flush=True)
"""
SAYS = {
    "raises": "rank 1: raised ValueError: bad luck",
    "ends": "rank 1: has ended",
    "hangs": "waited 5 s at",
    "dies": "",  # MPI says it
    "other weights": "fit got after step 24 other values of 0.bias on rank 1 than on rank 0",
}


def assert_equal_files(one, other):
    found, expected = load_file(one), load_file(other)
    assert found.keys() == expected.keys()
    assert [n for n, v in found.items() if not np.array_equal(expected[n], v)] == []


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    folder = tmp_path_factory.mktemp("whole")
    ended = ranks(2, PROGRAM, folder, "run", "5", "-")
    assert ended.out.count("whole") == 2, ended.err
    return folder / "run"


@pytest.mark.parametrize("how", SAYS)
def test_a_rank_that_fails_ends_all_and_the_run_resumes_to_the_same_bits(how, tmp_path, whole):
    begun = time.monotonic()
    ended = ranks(2, PROGRAM, tmp_path, "run", "5", how)
    assert time.monotonic() - begun < 60
    assert ended.status != 0
    assert SAYS[how] in ended.err, ended.err
    assert "whole" not in ended.out
    assert 0 < load_file(tmp_path / "run")["epoch"] < 5
    ended = ranks(2, PROGRAM, tmp_path, "run", "5", "-")
    assert ended.out.count("whole") == 2, ended.err
    assert_equal_files(tmp_path / "run", whole)
    assert_equal_files(tmp_path / "run.best", whole.with_suffix(".best"))


def process(path):
    """The number of a process that has begun, which it writes into a file; the file goes."""
    deadline = time.monotonic() + 60
    while not (path.exists() and path.read_text().endswith("\n")):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    found = int(path.read_text())
    path.unlink()
    return found


def running(pid):
    """True while a process runs, and is no zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@pytest.mark.parametrize("seed", range(1))
def test_a_rank_that_is_killed_leaves_no_process_and_no_damaged_file(seed, tmp_path):
    """Killed at random moments until the run is whole; with the bits of one that was not."""
    rng, expected = random.Random(seed), tmp_path / "expected"
    expected.mkdir()
    assert ranks(2, PROGRAM, expected, "run", "12", "-").status == 0
    command = write(2, PROGRAM, tmp_path, "run", "12", "slowly")
    killed = 0
    for attempt in range(3):
        with subprocess.Popen(
            command, cwd=tmp_path, env=environment(), stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        ) as launcher:  # fmt: skip
            pids = [process(tmp_path / f"pid{rank}") for rank in range(2)]
            time.sleep(rng.uniform(0.0, 1.5))
            victim = pids[rng.randrange(2)]
            if running(victim):
                os.kill(victim, signal.SIGKILL)
            said, _ = launcher.communicate(timeout=60)
        assert launcher.returncode in (0, 9), said
        killed += launcher.returncode == 9
        deadline = time.monotonic() + 10
        while any(map(running, pids)) and time.monotonic() < deadline:
            time.sleep(0.05)
        assert not any(map(running, pids)), attempt
        for name in ("run", "run.best"):
            if (tmp_path / name).exists():
                load_file(tmp_path / name)
    ended = ranks(2, PROGRAM, tmp_path, "run", "12", "-")
    assert ended.status == 0, ended.err
    assert_equal_files(tmp_path / "run", expected / "run")
    assert_equal_files(tmp_path / "run.best", expected / "run.best")
    assert [p.name for p in tmp_path.glob(".run*")] == []  # no drafts of files
    assert (tmp_path / "run.jsonl").read_text().count("\n") == 12
    print(f"killed {killed} times")


def test_the_demo_runs_on_two_ranks(tmp_path):
    program = """
        import sys
        from miniml.cli import main

        sys.exit(main(["demo", "--epochs", "1"]))
    """
    ended = ranks(2, program, tmp_path)
    assert ended.status == 0, ended.err
    assert ended.out.count("held-out digits read right") == 1
    assert "on 2 ranks" in ended.out
    assert (tmp_path / "digits.png").exists()
