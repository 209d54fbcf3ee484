"""Batches made by a thread: the same ones in the same order, and the thread never stays."""

import os
import signal
import threading
import time

import numpy as np
import pytest

import miniml as ml
from miniml import nn, optim, train
from miniml.core.settings import current
from miniml.data import DataLoader, random_crop
from miniml.data.loader import prefetched
from tests.frame.moments import Moments


def threads():
    return [t for t in threading.enumerate() if t.name == "miniml prefetch"]


def test_batches_are_the_same_in_the_same_order():
    x, y = np.arange(48.0).reshape(3, 1, 4, 4).repeat(9, 0), np.arange(27)
    options = {"size": 4, "seed": 3, "transform": random_crop(4, padding=2)}
    plain, ahead = DataLoader(x, y, **options), DataLoader(x, y, **options, prefetch=2)
    for epoch, start in ((0, 0), (1, 2)):
        both = zip(plain.batches(epoch, start), ahead.batches(epoch, start), strict=True)
        assert all(np.array_equal(a, b) for p, q in both for a, b in zip(p, q, strict=True))
    assert len(list(ahead.every_row())) == 7
    assert not threads()


def test_no_more_than_so_many_are_made_ahead():
    made = []
    items = prefetched((made.append(i) or i for i in range(100)), 3)
    for taken in range(5):
        assert next(items) == taken
        deadline = time.monotonic() + 10
        while len(made) < taken + 4 and time.monotonic() < deadline:
            time.sleep(1e-3)
        time.sleep(2e-3)
        assert len(made) == taken + 4
    assert len(threads()) == 1
    items.close()
    assert not threads()


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="no timers here")
def test_an_exception_at_any_moment_leaves_nobody_waiting():
    """A handler that raises inside Semaphore.release leaves it locked for the thread, for ever."""

    def run():
        assert list(prefetched(iter(range(3)), 2)) == [0, 1, 2]

    with Moments() as moments:
        codes = moments.count(run)
        for at, code in enumerate(codes):
            began = time.monotonic()
            moments.during(run, at, KeyboardInterrupt, again=5.0)
            assert time.monotonic() - began < 4.0, f"waits for ever after {code.co_qualname}"
    assert len(codes) > 50


def test_an_error_comes_in_its_place_and_settings_are_those_of_the_caller():
    def items():
        yield current().check_nan
        raise OSError("batch 2 is gone")

    with ml.context(check_nan=True):
        made = prefetched(items(), 4)
        assert next(made) is True
    with pytest.raises(OSError, match="batch 2"):
        next(made)
    assert not threads()


def test_a_loop_that_is_left_leaves_no_thread():
    loader = DataLoader(np.arange(100), size=1, prefetch=2)
    for _ in loader:
        break
    del _
    assert not threads()

    def fails():
        for _ in loader:
            raise ValueError("in the loop")

    with pytest.raises(ValueError, match="in the loop"):
        fails()
    assert not threads()


class Rows:
    """Rows that take their time; `action` is called for the tenth."""

    def __init__(self, action=lambda: None):
        self.action = action

    def __len__(self):
        return 24

    def __getitem__(self, i):
        if i == 10:
            self.action()
        return np.full(3, i, np.float32)


def fit(path, rows, prefetch, callbacks=()):
    ml.manual_seed(0)
    net = nn.Sequential(nn.Dense(3, 4), nn.Dropout(0.5), nn.Dense(4, 2))
    model = train.Model(net, nn.CrossEntropyLoss(), optim.Adam(net.trainable_params()))
    data = DataLoader(rows, np.arange(24) % 2, size=1, seed=5, prefetch=prefetch)
    with ml.context(full_tracebacks=True):
        model.fit(data, epochs=3, resume=path, save_every=1, callbacks=callbacks, show=False)


def test_ctrl_c_and_errors_in_the_thread_stop_a_fit_that_goes_on_with_the_same_bits(tmp_path):
    straight, broken = tmp_path / "straight", tmp_path / "broken"
    fit(straight, Rows(), prefetch=0)

    def gone():
        raise OSError("row 10 cannot be read")

    def fails(run, losses):
        raise ValueError("of a callback")

    def interrupt():
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(0.05)

    for action, raised in ((gone, OSError), (interrupt, KeyboardInterrupt)):
        with pytest.raises(raised) as caught:
            fit(broken, Rows(action), prefetch=3)
        assert not threads()  # though the error keeps the frames of the loop
        assert "goes on there" in f"{caught.value}{getattr(caught.value, '__notes__', ())}"
    failing = train.Callback()
    failing.on_steps = fails
    with pytest.raises(ValueError, match="callback") as caught:
        fit(broken, Rows(), 3, [failing])
    assert not threads()
    del caught
    fit(broken, Rows(), prefetch=3)
    assert broken.read_bytes() == straight.read_bytes()
    assert not threads()


@pytest.mark.deep
def test_ctrl_c_while_waiting_for_a_batch_is_heard():
    """In a loop of one's own: KeyboardInterrupt at once, once the item that is made is done."""
    timer = threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT))
    timer.start()
    with pytest.raises(KeyboardInterrupt):
        for _ in prefetched((time.sleep(0.5) for _ in range(100)), 1):
            pass
    timer.join()
    assert not threads()
