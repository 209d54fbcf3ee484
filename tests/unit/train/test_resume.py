"""A run that is killed again and again ends in the same bits as one that is not."""

import os
import signal
import subprocess
import sys
import textwrap
import time

import numpy as np
import pytest

from tests.conftest import DEEP

TRAIN = """
    import itertools, os, sys
    import numpy as np
    import miniml as ml
    from miniml import nn, optim
    from miniml.data import minibatches

    path, epochs = sys.argv[1], int(sys.argv[2])
    draw = np.random.default_rng(0)
    x, y = draw.normal(size=(64, 1, 4, 4)).astype(np.float32), np.arange(64) % 3
    ml.manual_seed(0)
    net = nn.Sequential(
        nn.Conv2d(1, 3, 3), nn.BatchNorm2d(3), nn.ReLU(), nn.Flatten(), nn.Dropout(0.5),
        nn.Dense(12, 3),
    )
    optimizer = optim.Adam(net.trainable_params(), lr=0.01)
    step = ml.train_step(net, nn.CrossEntropyLoss(), optimizer)
    run = {"net": net, "optimizer": optimizer, "random": ml.random_state, "epoch": 0, "done": 0}
    if os.path.exists(path):
        ml.load_checkpoint(path, run)
    for epoch in range(run["epoch"], epochs):
        batches = minibatches(x, y, size=16, seed=1, epoch=epoch)
        for batch in itertools.islice(batches, run["done"], None):
            step(*batch)
            run["done"] += 1
            ml.save_checkpoint(run, path)
            print("saved", flush=True)
        run.update(epoch=epoch + 1, done=0)
    ml.save_checkpoint(run, path)
"""


def start(path, epochs: int) -> subprocess.Popen[str]:
    words = [sys.executable, "-c", textwrap.dedent(TRAIN), str(path), str(epochs)]
    return subprocess.Popen(words, stdout=subprocess.PIPE, text=True)


def kill_at_random(path, epochs: int, moments: np.random.Generator) -> None:
    """Starts the run and kills it some saves later, at any moment of a step or of a save."""
    process = start(path, epochs)
    for _ in range(moments.integers(1, 60)):
        assert process.stdout.readline() == "saved\n"
    time.sleep(moments.uniform(0.0, 0.004))
    process.kill()
    process.communicate()
    assert process.returncode == -signal.SIGKILL


@pytest.mark.larger
@pytest.mark.timeout(900)
def test_a_run_that_is_killed_goes_on_bit_by_bit(tmp_path):
    """Adam, Dropout, BatchNorm, the order of batches; no draft is left."""
    kills, epochs = (50, 2000) if DEEP else (2, 60)
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    unbroken, moments = start(whole, epochs), np.random.default_rng(0)
    for _ in range(kills):
        kill_at_random(broken, epochs, moments)
    for process in (start(broken, epochs), unbroken):
        process.communicate()
        assert process.returncode == 0
    assert broken.read_bytes() == whole.read_bytes()
    assert sorted(os.listdir(tmp_path)) == ["broken", "whole"]
