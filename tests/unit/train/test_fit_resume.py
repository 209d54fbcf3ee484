"""A fit that is killed, interrupted or broken goes on in one line and ends in the same bits."""

import errno
import os
import signal
import subprocess
import sys
import textwrap
import time

import numpy as np
import pytest

import miniml as ml
from miniml import nn, ops, optim, train
from miniml.data import DataLoader, random_flip
from miniml.errors import CheckpointError
from tests.conftest import DEEP

DRAW = np.random.default_rng(0)
X, Y = DRAW.normal(size=(64, 1, 4, 4)).astype(np.float32), np.arange(64) % 3


class Decay(train.Callback):
    """Another learning rate in each epoch, and a state that is saved."""

    def __init__(self):
        self.state = {"epochs": 0}

    def on_epoch_start(self, run):
        run.model.optimizer.lr = 0.01 / (1 + run.epoch)

    def on_epoch(self, run, row):
        self.state["epochs"] += 1


class Breaks(train.Callback):
    """Raises, or does something else, in one method at one epoch or number of steps."""

    def __init__(self, method, at, action):
        self.at, self.action = at, action
        setattr(self, method, self.look)

    def look(self, run, seen):
        if (seen["epoch"] if isinstance(seen, dict) else run.steps) == self.at:
            self.action()


class LateError(Exception):
    """Raised by a signal's handler."""


def fails():
    raise OSError("the disk of the callback is full")


def interrupt():
    os.kill(os.getpid(), signal.SIGINT)


def model(features=12):
    ml.manual_seed(0)
    net = nn.Sequential(
        nn.Conv2d(1, 3, 3),
        nn.BatchNorm2d(3),
        nn.ReLU(),
        nn.Flatten(),
        nn.Dropout(0.5),
        nn.Dense(features, 3),
    )
    adam = optim.Adam(net.trainable_params(), lr=0.01)
    return train.Model(net, nn.CrossEntropyLoss(), adam, [train.accuracy(), train.f1(3)])


def fit(path, extra=(), learner=None, **options):
    learner = learner or model()
    ahead = {"transform": random_flip(), "prefetch": options.pop("prefetch", 0)}
    data = DataLoader(X, Y, size=16, seed=options.pop("seed", 1), **ahead)
    callbacks = [Decay(), train.EarlyStopping(1000, "loss"), *extra]
    options = {"epochs": 4, "validation": data, "save_every": 1, "show": False} | options
    return learner.fit(data, callbacks=callbacks, resume=path, **options)


@pytest.fixture
def whole(tmp_path_factory):
    """The file and the last row of a run without interruption."""
    path = tmp_path_factory.mktemp("whole") / "run.safetensors"
    return path, fit(path)[-1]


def compare(path, row, whole):
    assert path.read_bytes() == whole[0].read_bytes()
    assert {**row, "seconds": 0} == {**whole[1], "seconds": 0}
    assert os.listdir(path.parent) == [path.name]


@pytest.mark.parametrize(
    ("method", "at"), [("on_epoch", 2), ("on_steps", 3), ("on_steps", 8), ("on_epoch", 4)]
)
def test_a_callback_that_raises_loses_nothing(method, at, tmp_path, whole):
    path = tmp_path / "run.safetensors"
    with pytest.raises(OSError, match="the disk of the callback") as caught:
        fit(path, [Breaks(method, at, fails)])
    notes = "\n".join(caught.value.__notes__)
    assert f"raised by Breaks.{method}" in notes
    assert "goes on there" in notes
    compare(path, fit(path)[-1], whole)


@pytest.mark.parametrize(("method", "at"), [("on_epoch", 2), ("on_steps", 3), ("on_steps", 8)])
def test_ctrl_c_saves_and_the_next_call_goes_on(method, at, tmp_path, whole):
    path = tmp_path / "run.safetensors"
    with pytest.raises(KeyboardInterrupt, match="goes on there"):
        fit(path, [Breaks(method, at, interrupt)])
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    compare(path, fit(path)[-1], whole)


@pytest.mark.larger
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # in a finalizer
def test_a_handler_that_raises_at_any_moment_loses_nothing(tmp_path, whole):
    path, moments, raised = tmp_path / "run.safetensors", np.random.default_rng(0), 0

    def late(number, frame):
        raise LateError

    old = signal.signal(signal.SIGALRM, late)
    try:
        for _ in range(200 if DEEP else 20):
            learner = model()
            try:
                signal.setitimer(signal.ITIMER_REAL, moments.uniform(1e-3, 0.03))
                try:
                    fit(path, learner=learner, epochs=3)
                finally:
                    signal.setitimer(signal.ITIMER_REAL, 0.0)
            except LateError:  # also at the very end, before the timer is off
                raised += 1
    finally:
        signal.signal(signal.SIGALRM, old)
    assert raised > 0
    compare(path, fit(path)[-1], whole)


def test_ctrl_c_in_a_step_takes_effect_after_it(tmp_path, whole):
    path, learner = tmp_path / "run.safetensors", model()
    plain, calls = learner.step, []

    class Interrupted:
        loss_scale, optimizer = None, learner.optimizer

        def __call__(self, *batch):
            calls.append(interrupt() if len(calls) == 5 else None)
            return plain(*batch)

    learner._step = Interrupted()
    with pytest.raises(KeyboardInterrupt, match="step 2 of epoch 2"):
        fit(path, learner=learner, save_every=1000)
    compare(path, fit(path)[-1], whole)


def test_data_that_raises_loses_nothing(tmp_path):
    path = tmp_path / "run.safetensors"
    batches = list(DataLoader(X, Y, size=16))

    class Data:
        broken = True

        def __iter__(self):
            yield from batches[:2]
            if self.broken:
                raise OSError("the file of batch 3 is gone")
            yield from batches[2:]

    data, learner = Data(), model()
    with pytest.raises(OSError, match="batch 3") as caught:
        learner.fit(data, epochs=2, resume=path, show=False)
    assert "saved as it was after step" in caught.value.__notes__[-1]
    data.broken = False
    learner = model()
    learner.fit(data, epochs=2, resume=path, show=False)
    straight = model()
    straight.fit(batches, epochs=2, show=False)
    both = zip(learner.net.get_parameters(), straight.net.get_parameters(), strict=True)
    assert all(np.array_equal(a.asnumpy(), b.asnumpy()) for a, b in both)


def test_a_full_disk_is_named_and_the_older_file_stays(tmp_path, whole, monkeypatch):
    path, synced, sync = tmp_path / "run.safetensors", [], os.fsync

    def full(descriptor):
        synced.append(descriptor)
        if len(synced) > 12:  # of a file and its folder, at each save
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        sync(descriptor)

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(CheckpointError, match="cannot be saved: No space left on device") as caught:
        fit(path)
    assert "the run could not be saved: " in caught.value.__notes__[-1]
    monkeypatch.undo()
    assert os.listdir(tmp_path) == [path.name]
    compare(path, fit(path)[-1], whole)


def test_more_epochs_go_on_from_a_finished_run_and_none_do_nothing(tmp_path, whole):
    path = tmp_path / "run.safetensors"
    fit(path, epochs=3)
    compare(path, fit(path)[-1], whole)
    assert fit(path) == []


def test_the_log_of_a_resumed_run_has_each_epoch_once(tmp_path):
    path, log = tmp_path / "run.safetensors", tmp_path / "log.jsonl"
    with pytest.raises(OSError, match="disk"):
        fit(path, [train.Log(log), Breaks("on_epoch", 3, fails)])
    fit(path, [train.Log(log)])
    assert [line[:11] for line in log.read_text().splitlines()] == [
        f'{{"epoch": {n}' for n in (1, 2, 3, 4)
    ]


def test_arrays_that_a_callback_writes_into_are_undone(tmp_path):
    class Sums(train.Callback):
        def __init__(self):
            self.state = {"losses": np.zeros(2)}

        def on_epoch(self, run, row):
            self.state["losses"] += row["loss"]

    path, whole, broken, resumed = tmp_path / "run.safetensors", Sums(), Sums(), Sums()
    fit(None, [whole])
    with pytest.raises(OSError, match="disk"):
        fit(path, [broken, Breaks("on_epoch", 2, fails)])
    fit(path, [resumed])
    assert np.array_equal(resumed.state["losses"], whole.state["losses"])


def test_a_file_that_is_no_log_is_named(tmp_path):
    for name, text in (("log.csv", "a,b\n1,2\n"), ("log.jsonl", "epoch 1\n"), ("l", "[1]\n")):
        (tmp_path / name).write_text(text)
        fit(tmp_path / "run.safetensors", epochs=1)
        with pytest.raises(CheckpointError, match=rf"{name} is not the log of a run; give Log ano"):
            fit(tmp_path / "run.safetensors", [train.Log(tmp_path / name)])
        assert (tmp_path / name).read_text() == text


@pytest.mark.parametrize("kind", [train.Log, train.SaveBest])
def test_a_folder_that_is_missing_is_named_before_the_first_step(kind, tmp_path):
    learner = model()
    with pytest.raises(CheckpointError, match="there is no folder"):
        fit(None, [kind(tmp_path / "none" / "log.csv")], learner)
    assert int(learner.optimizer.parameters_dict()["step"]) == 0


def test_every_callback_is_told_of_the_end_whatever_others_raise(tmp_path, whole):
    ended = []

    class Ends(train.Callback):
        def on_end(self, run):
            ended.append(run.steps)
            raise OSError("the folder of the callback is gone")

    path = tmp_path / "run.safetensors"
    with pytest.raises(OSError, match="the folder of") as caught:
        fit(path, [Ends(), Ends()])
    assert ended == [16, 16]
    assert "raised by Ends.on_end" in caught.value.__notes__
    compare(path, whole[1], whole)


def test_batches_of_another_number_are_of_another_run(tmp_path):
    path, batches = tmp_path / "run.safetensors", list(DataLoader(X, Y, size=16))
    with pytest.raises(OSError, match="disk"):
        model().fit(
            batches, epochs=1, callbacks=[Breaks("on_epoch", 1, fails)], resume=path, show=False
        )
    with pytest.raises(CheckpointError, match=r"'done': 4, .* in the file, 3 batches here"):
        model().fit(batches[:3], epochs=1, resume=path, show=False)
    path.unlink()
    model().fit(DataLoader(X[:30], Y[:30], size=16), epochs=1, resume=path, show=False)
    rest = DataLoader(X[:30], Y[:30], size=16, drop_last=False)
    with pytest.raises(CheckpointError, match=r"data\.batches 1 in the file, 2 here"):
        model().fit(rest, epochs=2, resume=path, show=False)


def test_files_of_other_runs_are_refused_and_nothing_changes(tmp_path, whole):
    learner = model(features=12)
    before = [p.asnumpy() for p in learner.net.get_parameters()]
    with pytest.raises(CheckpointError, match=r"other data: data\.seed 1 in the file, 2 here"):
        fit(whole[0], learner=learner, seed=2)
    after = [p.asnumpy() for p in learner.net.get_parameters()]
    assert all(map(np.array_equal, before, after))
    ml.manual_seed(0)
    other = nn.Sequential(nn.Flatten(), nn.Dense(16, 3))
    sgd = optim.SGD(other.trainable_params(), lr=0.1)
    with pytest.raises(CheckpointError, match=r"net\.1\.weight .*nothing was loaded") as caught:
        fit(whole[0], learner=train.Model(other, nn.CrossEntropyLoss(), sgd))
    assert any("the same network, optimizer" in note for note in caught.value.__notes__)
    with pytest.raises(CheckpointError, match="no folder"):
        fit(tmp_path / "none" / "run.safetensors")


CHILD = """
    import sys
    from miniml import train
    from tests.unit.train.test_fit_resume import fit

    class Tells(train.Callback):
        def on_steps(self, run, losses):
            print("step", flush=True)

    fit(sys.argv[1], [Tells()], epochs=int(sys.argv[2]), save_every=3, prefetch=int(sys.argv[3]))
"""


def start(path, epochs, prefetch=0):
    words = [sys.executable, "-c", textwrap.dedent(CHILD), str(path), str(epochs), str(prefetch)]
    return subprocess.Popen(words, stdout=subprocess.PIPE, text=True)


@pytest.mark.larger
@pytest.mark.timeout(900)
@pytest.mark.parametrize("seed", [0, *(pytest.param(s, marks=pytest.mark.deep) for s in (1, 2, 3))])
def test_a_fit_that_is_killed_ends_in_the_same_bits(seed, tmp_path):
    """At any moment: in a step, between steps, in a save, while a thread prefetches."""
    kills, epochs = (20, 300) if DEEP else (2, 40)
    broken, straight = tmp_path / "broken", tmp_path / "straight"
    moments = np.random.default_rng(seed)
    for _ in range(kills):
        process = start(broken, epochs, prefetch=2)
        for _ in range(moments.integers(1, 12)):
            assert process.stdout.readline() == "step\n"
        time.sleep(moments.uniform(0.0, 0.01))
        process.kill()
        process.communicate()
        assert process.returncode == -signal.SIGKILL
    for path in (broken, straight):
        process = start(path, epochs)
        process.communicate()
        assert process.returncode == 0
    assert broken.read_bytes() == straight.read_bytes()
    assert sorted(os.listdir(tmp_path)) == ["broken", "straight"]


class Noisy(nn.Cell):
    """A layer that draws from a generator of its own."""

    def __init__(self):
        self.stream, self.dense = ml.Generator(3), nn.Dense(16, 3)

    def construct(self, x):
        x = ops.reshape(x, (-1, 16))
        return self.dense(x + ops.normal(x.shape, generator=self.stream))


def test_the_stream_of_a_layer_is_saved_and_goes_on_with_the_run(tmp_path):
    def run(name, *callbacks):
        ml.manual_seed(0)
        net = nn.Sequential(Noisy())
        learner = train.Model(net, nn.CrossEntropyLoss(), optim.SGD(net.trainable_params(), lr=0.1))
        data, path = DataLoader(X, Y, size=16, seed=1), tmp_path / name
        learner.fit(data, epochs=3, callbacks=callbacks, resume=path, save_every=1, show=False)
        return path.read_bytes(), net[0].stream.state.tolist()

    with pytest.raises(OSError, match="callback"):
        run("cut", Breaks("on_steps", 5, fails))
    assert run("cut") == run("whole")
