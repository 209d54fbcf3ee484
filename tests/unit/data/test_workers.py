"""Worker processes: the same batches, their errors, what they cannot be given, and how they end."""

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from miniml import data
from miniml.data import DataLoader
from miniml.errors import MinimlError

PIXELS = np.random.default_rng(0).integers(0, 255, (24, 1, 6, 6)).astype(np.uint8)
AUGMENTED = data.chain(
    data.random_crop(6, padding=1), data.random_flip(), data.random_affine(20.0),
    data.random_color(0.3, 0.3),
    data.random_erase(), data.normalize(128, 64),
)  # fmt: skip


class Squares:
    """A dataset of pairs, whose item 13 is broken."""

    def __len__(self):
        return 24

    def __getitem__(self, i):
        if i == 13:
            raise LookupError("no item 13")
        return np.full(2, i * i, np.float32), i


def noisy(images, draw):
    """What uses the streams of its process."""
    return images + np.random.random() + random.random()  # noqa: NPY002


def dies(images, draw):
    os._exit(3)


def test_workers_make_the_batches_that_this_process_makes():
    options = {"size": 6, "seed": 0, "transform": AUGMENTED, "mix": data.mixup(24)}
    ours = DataLoader(PIXELS, np.arange(24), **options)
    theirs = DataLoader(PIXELS, np.arange(24), **options, workers=2)
    for epoch, start in ((0, 0), (1, 2), (0, 0)):  # one pool serves all
        pairs = zip(ours.batches(epoch, start), theirs.batches(epoch, start), strict=True)
        assert all(np.array_equal(a, b) for pair in pairs for a, b in zip(*pair, strict=True))
    some = theirs.batches(2)
    next(some)
    some.close()  # left in the middle
    assert len(list(theirs.batches(3))) == 4


class Times:
    """A dataset and a transform with a state."""

    def __init__(self, by):
        self.by = by

    def __len__(self):
        return 6

    def __getitem__(self, i):
        return i * self.by

    def __call__(self, rows, draw):
        return rows * self.by + draw.integers(10)


def test_workers_see_what_is_changed_between_epochs():
    loaders = [
        DataLoader(Times(1), size=3, transform=Times(1), workers=workers) for workers in (0, 1)
    ]
    for change in (
        lambda loader: None,
        lambda loader: setattr(loader, "transform", Times(100)),
        lambda loader: setattr(loader.sources[0], "by", 7),
    ):
        for loader in loaders:
            change(loader)
        ours, theirs = (np.concatenate([x for (x,) in loader]).tolist() for loader in loaders)
        assert ours == theirs


def test_errors_have_the_traceback_of_the_worker_and_draws_do_not_depend_on_it():
    loader = DataLoader(Squares(), size=3, workers=2)
    with pytest.raises(LookupError, match="no item 13") as caught:
        list(loader.batches(0))
    assert "in __getitem__" in str(caught.value.__cause__)
    assert next(loader.batches(0))[0].tolist() == [[0, 0], [1, 1], [4, 4]]
    noise = DataLoader(PIXELS, size=8, seed=1, transform=noisy, workers=1)
    first, again = ([x for (x,) in noise.batches(0)] for _ in range(2))
    assert all(map(np.array_equal, first, again))
    assert not np.array_equal(first[0] % 1, first[1] % 1)


def test_a_worker_that_dies_is_said():
    with pytest.raises(MinimlError, match=r"a worker process of the DataLoader ended; .*__main__"):
        list(DataLoader(PIXELS, size=8, transform=dies, workers=1))


def test_what_does_not_pickle_is_refused_before_the_first_batch():
    with pytest.raises(MinimlError, match=r"does not pickle .* at the top of a module"):
        DataLoader(PIXELS, size=8, transform=lambda x, draw: x, workers=1)


SCRIPT = """
import time, numpy as np
from miniml.data import DataLoader
class Slow:
    def __len__(self): return 1000
    def __getitem__(self, i): time.sleep(0.01); return np.zeros(2)
if __name__ == "__main__":
    for i, batch in enumerate(DataLoader(Slow(), size=5, workers=2)):
        print(i, flush=True)
"""


@pytest.mark.deep
def test_ctrl_c_ends_the_workers_too(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    child = subprocess.Popen(
        [sys.executable, str(script)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        start_new_session=True,
    )  # fmt: skip
    for _ in range(3):
        child.stdout.readline()
    os.killpg(child.pid, signal.SIGINT)  # as a terminal does: all of the group
    _, errors = child.communicate(timeout=60)
    assert errors.count("Traceback") == 1
    assert errors.rstrip().endswith("KeyboardInterrupt")
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline and _group(child.pid):
        time.sleep(0.1)
    assert not _group(child.pid)


def _group(leader):
    """The processes of a group that are not yet over."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[2]) == leader and fields[0] != "Z":
            found.append(stat)
    return found
