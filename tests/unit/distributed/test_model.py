"""Model with a group: fit, evaluate and predict on several ranks as on one."""

import json

import numpy as np
import pytest
from safetensors.numpy import load_file

import miniml as ml
from miniml import nn, ops, optim, train
from miniml.data import DataLoader
from miniml.distributed import loopback
from miniml.errors import DistributedError, MinimlError, ValueRefusedError

from .launch import needs_mpi, ranks

RNG = np.random.default_rng(0)
X = RNG.normal(size=(26, 4)).astype(np.float32)
Y = (X[:, 0] * X[:, 1] > 0).astype(np.int64)
HELD = RNG.normal(size=(11, 4)).astype(np.float32), RNG.integers(0, 2, 11)
FIT = {"batch_size": 6, "epochs": 3, "seed": 1, "validation": HELD, "show": False}


def network(scale=1.0):
    """Equal on all ranks: threads would draw from one stream."""
    net = nn.Sequential(nn.Dense(4, 6), nn.Tanh(), nn.Dense(6, 2))
    for i, p in enumerate(net.trainable_params()):
        p.set_data((scale * np.cos(np.arange(p.size) + i)).reshape(p.shape).astype(np.float32))
    return net


def cross_entropy(out, y):
    return nn.CrossEntropyLoss()(out, y), {"largest": ops.max(ops.abs(out))}


def model(group=None, loss=cross_entropy, **options):
    net = network()
    adam = optim.Adam(net.trainable_params(), lr=0.05)
    metrics = [train.accuracy(), train.perplexity()]
    return train.Model(net, loss, adam, metrics, group=group, **options)


def weights(of):
    return [p.asnumpy() for p in of.net.get_parameters()]


def plain(rows):
    """The rows without what takes other times."""
    return [{k: v for k, v in row.items() if k != "seconds"} for row in rows]


def fitted(group=None, loss=nn.CrossEntropyLoss(), **options):  # noqa: B008
    own = model(group, loss)
    return plain(own.fit(X, Y, **{**FIT, **options})), weights(own)


def assert_near(found, expected):
    (rows, values), (own_rows, own_values) = found, expected
    assert [row.keys() for row in rows] == [row.keys() for row in own_rows]
    for row, own in zip(rows, own_rows):
        np.testing.assert_allclose([*row.values()], [*own.values()], rtol=1e-5, err_msg=str(row))
    for one, other in zip(values, own_values):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5)


def assert_same(found, expected):
    assert found[0] == expected[0]
    assert all(map(np.array_equal, found[1], expected[1]))


# --- As on one rank -------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [2, 3])
def test_ranks_fit_as_one(size):
    """11 rows of a validation have no equal parts for 2 or 3 ranks."""
    found = loopback(fitted, size)
    assert_near(found[0], fitted())
    for other in found[1:]:
        assert_same(other, found[0])
    assert_same(loopback(fitted, size)[0], found[0])  # every run


@pytest.mark.parametrize("rows", [11, 2])  # fewer rows than ranks, too
def test_ranks_evaluate_and_predict_as_one(rows):
    x, y = HELD[0][:rows], HELD[1][:rows]

    def on(group):
        own = model(group)
        loader = DataLoader(x, y, size=rows, group=None) if group is None else (x, y)
        return own.evaluate(x, y, batch_size=4), own.evaluate(loader), own.predict(x, batch_size=3)

    judged, _, scores = on(None)
    for found, by_default, predicted in loopback(on, 3):
        assert found.keys() == judged.keys()
        for name in ("loss", "accuracy", "perplexity"):
            assert np.isclose(found[name], judged[name], rtol=1e-6)
            assert np.isclose(by_default[name], judged[name], rtol=1e-6)
        np.testing.assert_allclose(predicted, scores, rtol=1e-6)


def test_batches_of_other_sizes_are_weighted_with_their_rows():
    """Each rank gives batches of its own; the last one of rank 1 is shorter."""
    cuts = [(0, 4, 8), (8, 12, 16), (16, 18, 19)]  # rows of rank 0 and 1

    def on(group):
        batches = [(X[a:m], Y[a:m]) if group.rank == 0 else (X[m:b], Y[m:b]) for a, m, b in cuts]
        own = model(group)
        return plain(own.fit(batches, epochs=2, show=False)), weights(own)

    own = model()
    whole = [(X[a:b], Y[a:b]) for a, _, b in cuts]
    expected = plain(own.fit(whole, epochs=2, show=False)), weights(own)
    for rows, _ in (expected, *(found := loopback(on, 2))):
        for row in rows:
            row.pop("largest")  # no mean over rows, but over ranks
    assert_near(found[0], expected)
    assert_same(found[1], found[0])


def test_a_step_weights_its_parts_with_their_rows():
    parts = (slice(0, 5), slice(5, 6), slice(6, 13))

    def on(group, **options):
        net = network()
        sgd = optim.SGD(net.trainable_params(), lr=0.5)
        scale = optim.LossScale(256.0) if options else None
        step = ml.train_step(net, cross_entropy, sgd, loss_scale=scale, group=group)
        own = slice(0, 13) if group is None else parts[group.rank]
        loss, _ = step(X[own], Y[own])
        return [loss.asnumpy(), *(p.asnumpy() for p in net.trainable_params())]

    alone = on(None)
    for found in (*loopback(on, 3), *loopback(lambda g: on(g, scaled=True), 3)):
        for one, other in zip(found, alone):
            np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)


# --- Weights of rows and classes ------------------------------------------------------------------

W = RNG.uniform(0.0, 3.0, 26).astype(np.float32)
OF_HELD = RNG.uniform(0.0, 3.0, 11).astype(np.float32)
WEIGHED = {"class_weight": {1: 4.0}, "sample_weight": W, "validation": (*HELD, OF_HELD)}


def weighted(group=None):
    """Metrics of all rows, of weighted ones, and one that is no mean of rows."""
    net = network()
    adam = optim.Adam(net.trainable_params(), lr=0.05)
    names = ["accuracy", train.f1(2), train.mean("score", lambda out, y: out[:, 1])]
    return train.Model(
        net, nn.CrossEntropyLoss(), adam, ["accuracy"], group=group, weighted_metrics=names
    )


@pytest.mark.parametrize("size", [2, 3])
def test_ranks_weigh_rows_and_metrics_as_one(size):
    def on(group=None):
        own = weighted(group)
        rows = plain(own.fit(X, Y, **{**FIT, **WEIGHED}))
        return rows, weights(own), own.evaluate(*HELD, sample_weight=OF_HELD, batch_size=4)

    rows, values, judged = on()
    assert {"accuracy", "weighted_accuracy", "val_f1", "val_weighted_accuracy"} < rows[0].keys()
    for found_rows, found_values, found in loopback(on, size):
        assert_near((found_rows, found_values), (rows, values))
        assert found == pytest.approx(judged, rel=1e-5)


def test_weighted_metrics_of_ranks_are_those_of_the_formula():
    """sum(weight * value) / sum(weight) of all rows; the loss is over their number, as Keras's."""
    scores = network()(HELD[0]).asnumpy().astype(np.float64)
    nll = np.log(np.exp(scores).sum(1)) - scores[np.arange(11), HELD[1]]
    right = scores.argmax(1) == HELD[1]
    counts = np.zeros((2, 2))  # true class, class that was said
    np.add.at(counts, (HELD[1], scores.argmax(1)), OF_HELD.astype(np.float64))
    f1 = np.mean([2 * counts[c, c] / (counts[c].sum() + counts[:, c].sum()) for c in (0, 1)])
    expected = {
        "loss": (OF_HELD * nll).sum() / 11,
        "accuracy": right.mean(),
        "weighted_accuracy": OF_HELD[right].sum() / OF_HELD.sum(),
        "f1": f1,
        "score": (OF_HELD * scores[:, 1]).sum() / OF_HELD.sum(),
    }

    def on(group):
        return weighted(group).evaluate(*HELD, sample_weight=OF_HELD, batch_size=3)

    for found in loopback(on, 2):
        assert found == pytest.approx(expected, rel=1e-5)


# --- Ranks decide alike ---------------------------------------------------------------------------


class Seen(train.Callback):
    """Counts its calls; its rows are those of all."""

    def __init__(self):
        self.rows, self.steps = [], []

    def on_steps(self, run, losses):
        self.steps.append((run.steps, *losses))

    def on_epoch(self, run, row):
        self.rows.append({**row, "rank": run.rank})


class Shown(Seen):
    rank_0_only = True


def test_callbacks_decide_alike_and_one_rank_writes(tmp_path, capsys):
    def on(group):
        own, seen, shown = model(group), Seen(), Shown()
        best = train.SaveBest(tmp_path / "best.safetensors", "val_accuracy")
        callbacks = [
            train.EarlyStopping(1, "val_accuracy"), best, train.ReduceRate(0.5, 1, "val_loss"),
            train.Log(tmp_path / "log.jsonl"), seen, shown,
        ]  # fmt: skip
        data = DataLoader(X, Y, size=6, seed=1, group=group)
        rows = own.fit(data, epochs=9, validation=HELD,
                       callbacks=callbacks)  # fmt: skip
        loaded = network(0.0)
        ml.load_checkpoint(tmp_path / "best.safetensors", loaded)  # is there once fit returns
        return plain(rows), float(own.optimizer.lr), seen, shown, best.state

    first, second = loopback(on, 2)
    assert first[0] == second[0]
    assert 1 <= len(first[0]) < 9
    assert first[1] == second[1]
    assert first[4] == second[4]
    assert first[2].steps == second[2].steps  # read at the same steps
    assert [row["rank"] for row in second[2].rows] == [1] * len(first[0])
    assert first[3].rows
    assert not second[3].rows
    logged = [json.loads(line) for line in (tmp_path / "log.jsonl").read_text().splitlines()]
    assert [row["epoch"] for row in logged] == [row["epoch"] for row in first[0]]
    assert capsys.readouterr().out.count("epoch 1/9") == 1


class Norm(nn.Cell):
    def __init__(self):
        self.norm, self.out = nn.BatchNorm1d(4), nn.Dense(4, 2)

    def construct(self, x):
        return self.out(self.norm(x))


def test_running_statistics_and_aux_are_averaged():
    nets = [Norm() for _ in range(2)]
    for p, other in zip(nets[0].trainable_params(), nets[1].trainable_params()):
        other.set_data(p.asnumpy())

    def on(group):
        net = nets[group.rank]
        sgd = optim.SGD(net.trainable_params(), lr=0.1)
        step = ml.train_step(net, cross_entropy, sgd, group=group)
        own = slice(0, 4) if group.rank else slice(4, 12)
        largest = np.abs(net(X[own]).asnumpy()).max()
        net.norm.running_mean.set_data(np.zeros(4, np.float32))
        net.norm.running_var.set_data(np.ones(4, np.float32))
        _, aux = step(X[own], Y[own])
        return largest, aux["largest"].item(), net.norm.running_mean.asnumpy()

    (a, found, mean), (b, same, other) = loopback(on, 2)
    assert found == same
    assert np.isclose(found, (8 * a + 4 * b) / 12, rtol=1e-6)
    assert np.array_equal(mean, other)
    expected = 0.1 * (8 * X[4:12].mean(0) + 4 * X[:4].mean(0)) / 12
    np.testing.assert_allclose(mean, expected, rtol=1e-5, atol=1e-7)


# --- Resuming -------------------------------------------------------------------------------------


class Stops(train.Callback):
    """Raises on one rank, once, after so many steps."""

    def __init__(self, rank, steps):
        self.rank, self.steps = rank, steps

    def on_steps(self, run, losses):
        if run.rank == self.rank and run.steps >= self.steps:
            raise ValueError("bad luck")


def resumed(path, size, stopped=None, epochs=3):
    """The last rows of a run in a file, and its weights; stopped by a callback if that is given."""
    callbacks = [] if stopped is None else [Stops(*stopped)]

    def on(group):
        return fitted(group, epochs=epochs, resume=path, save_every=3, callbacks=callbacks)

    return loopback(on, size)


@pytest.mark.parametrize("steps", [1, 5, 8])
@pytest.mark.parametrize("size", [1, 2, 3])
def test_a_run_resumes_to_the_same_bits_whichever_rank_stopped_it(tmp_path, size, steps):
    whole = resumed(tmp_path / "whole.safetensors", size)
    path = tmp_path / "stopped.safetensors"
    with pytest.raises(ValueError, match="bad luck"):
        resumed(path, size, (size - 1, steps))
    assert path.exists()
    found = resumed(path, size)
    for own, expected in zip(found, whole):
        done = len(expected[0]) - len(own[0])
        assert_same(own, (expected[0][done:], expected[1]))
    assert load_file(path).keys() == load_file(tmp_path / "whole.safetensors").keys()
    kept = load_file(tmp_path / "whole.safetensors")
    found = {n: v for n, v in load_file(path).items() if "random" not in n}  # nobody draws
    assert [n for n, v in found.items() if not np.array_equal(kept[n], v)] == []


@pytest.mark.parametrize(("before", "after"), [(1, 2), (2, 1), (2, 3), (3, 2)])
def test_a_run_goes_on_with_another_number_of_ranks(tmp_path, before, after):
    path = tmp_path / "run.safetensors"
    with pytest.raises(ValueError, match="bad luck"):
        resumed(path, before, (0, 7))  # saved after 6 steps, in the middle of an epoch
    assert load_file(path)["done"] in (2, 3)
    found = resumed(path, after)
    assert_near((found[0][0], found[0][1]), (fitted()[0][-len(found[0][0]) :], fitted()[1]))
    for other in found[1:]:
        assert_same(other, found[0])


def test_what_a_file_does_not_fit_is_said_on_all_ranks(tmp_path):
    path = tmp_path / "run.safetensors"
    resumed(path, 2)

    def on(group):
        try:
            fitted(group, resume=path, batch_size=4)
        except MinimlError as error:
            return str(error)

    for said in loopback(on, 2):
        assert "of a run on other data: data.size 6 in the file, 4 here" in said


# --- What fails -----------------------------------------------------------------------------------


def errors(fn, size=2):
    """The errors of all ranks."""
    found = {}

    def on(group):
        try:
            fn(group)
        except Exception as error:
            found[group.rank] = error
            raise

    with pytest.raises(Exception):  # noqa: B017, PT011
        loopback(on, size, timeout=5.0)
    return found


class Raises(train.Callback):
    def on_epoch(self, run, row):
        if run.rank == 1:
            raise ValueError("bad luck")


def test_a_callback_that_raises_on_one_rank_ends_all(tmp_path):
    path = tmp_path / "run.safetensors"
    found = errors(lambda g: fitted(g, callbacks=[Raises()], resume=path))
    assert str(found[1]) == "bad luck"
    assert str(found[0]).startswith("rank 1 raised ValueError: bad luck")
    assert any("goes on where all ranks were saved last" in note for note in found[1].__notes__)
    assert load_file(path)["steps"] == 0


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"epochs": 4}, "rank 0: fit of 3 epochs.*rank 1: fit of 4 epochs"),
        ({"batch_size": 4}, "fit of 3 epochs of 4 batches.*fit of 3 epochs of 6 batches"),
        ({"save_every": 7}, "save_every=1000.*save_every=7"),
    ],
)
def test_ranks_that_fit_other_things_are_told_before_the_first_step(options, says):
    found = errors(lambda g: fitted(g, **options if g.rank else {}))
    for error in found.values():
        with pytest.raises(DistributedError, match=says):
            raise error


def test_a_rank_with_another_number_of_steps_is_named():
    batches = [(X[:4], Y[:4])] * 3

    def on(group):
        model(group).fit(iter(batches[group.rank :]), epochs=1, show=False)

    for error in errors(on).values():
        with pytest.raises(DistributedError, match="rank 1: the end of epoch 1 after 2 steps"):
            raise error


PROGRAM = """
    import sys
    import numpy as np
    import miniml as ml
    from miniml import nn, optim, train
    from miniml.errors import NonFiniteError

    ml.set_context(providers=("miniml",))
    group = ml.distributed.init(timeout=60.0)
    x, y = np.load("x.npy"), np.load("y.npy")

    def model():
        ml.manual_seed(3)
        net = nn.Sequential(nn.Dense(4, 6), nn.Tanh(), nn.Dropout(0.25), nn.Dense(6, 2))
        ml.manual_seed(group.rank)
        adam = optim.Adam(net.trainable_params(), lr=0.05)
        metrics = [train.accuracy()]
        return train.Model(net, nn.CrossEntropyLoss(), adam, metrics, group=group)

    class Stops(train.Callback):
        def on_steps(self, run, losses):
            if run.steps >= 7:
                raise KeyboardInterrupt

    def fit(path, *callbacks):
        own = model()
        options = {"batch_size": 6, "epochs": 3, "save_every": 3, "validation": (x[:7], y[:7])}
        rows = own.fit(x, y, callbacks=callbacks, resume=path, **options)
        return own, [row["val_loss"] for row in rows]

    whole, losses = fit("whole.safetensors")
    try:
        fit("stopped.safetensors", Stops())
    except KeyboardInterrupt:
        pass
    resumed, own = fit("stopped.safetensors")
    assert own == losses[-len(own):] and len(own) == 2
    for one, other in zip(whole.net.get_parameters(), resumed.net.get_parameters()):
        assert np.array_equal(one.asnumpy(), other.asnumpy())
    everywhere = ml.distributed.all_gather(resumed.predict(x[:5])[None]).asnumpy()
    assert everywhere.shape == (2, 5, 2) and np.array_equal(*everywhere)

    for rank in (0, 1):
        for compiled in (True, False):
            own, bad = model(), x.copy()
            if group.rank == rank:
                bad[14:] = np.inf
            batches = [(bad[i : i + 6], y[i : i + 6]) for i in range(0, 24, 6)]
            try:
                with ml.context(jit=compiled):
                    own.fit(batches, epochs=1, show=False)
            except NonFiniteError as error:
                assert f"(on rank {rank})" in str(error), error
                assert "epoch 1, step 3" in str(error), error
                own.fit([(x[:6], y[:6])], epochs=1, show=False)  # goes on
                print("named", flush=True)
"""


@needs_mpi
def test_processes_fit_resume_and_name_the_rank_of_a_nan(tmp_path):
    """With dropout, which draws other numbers on each rank."""
    np.save(tmp_path / "x.npy", X)
    np.save(tmp_path / "y.npy", Y)
    ended = ranks(2, PROGRAM, tmp_path)
    assert ended.status == 0, ended.err
    assert ended.out.count("named") == 8
    assert ended.out.count("epoch 1/3") == 2
    whole, stopped = (load_file(tmp_path / f"{n}.safetensors") for n in ("whole", "stopped"))
    assert [n for n, v in whole.items() if not np.array_equal(stopped[n], v)] == []


class Apart(train.Model):
    """Forgets to average gradients."""

    def training_step(self, x, *labels):
        loss, gradients = self.gradient(x, *labels)
        self.optimizer.update(gradients)
        return loss


class Together(Apart):
    def training_step(self, x, *labels):
        loss, gradients = self.gradient(x, *labels)
        mean = [ml.distributed.all_reduce(g, "mean", self.group) for g in gradients]
        self.optimizer.update(mean)
        return ml.distributed.all_reduce(loss, "mean", self.group)


class Plain(train.Model):
    def training_step(self, x, *labels):
        return super().training_step(x, *labels)


def own_steps(kind, group):
    net = network()
    made = kind(net, nn.CrossEntropyLoss(), optim.SGD(net.trainable_params(), 0.1), group=group)
    if kind is not Plain:
        forward = lambda x, y: nn.CrossEntropyLoss()(net(x), y)  # noqa: E731
        made.gradient = ml.grad.value_and_grad(forward, None, False, net.trainable_params())
    return plain(made.fit(X, Y, **FIT)), weights(made)


@pytest.mark.parametrize("kind", [Together, Plain])
def test_a_training_step_of_ones_own(kind):
    found = loopback(lambda group: own_steps(kind, group), 2)
    assert_near(found[0], own_steps(Plain, None))
    assert_same(found[1], found[0])


def test_a_training_step_that_forgets_the_others_is_found():
    for error in errors(lambda group: own_steps(Apart, group)).values():
        with pytest.raises(DistributedError, match=r"fit got after step 4 other values of 0\.weig"):
            raise error


def test_what_is_refused():
    with pytest.raises(MinimlError, match="Model got group=2 of type int"):
        model(2)
    own = DataLoader(X, Y, size=6)
    for call in (lambda m: m.fit(own, epochs=1), lambda m: m.evaluate(own)):
        with pytest.raises(
            MinimlError, match=r"of no group, and the Model has Loopback.*group=group"
        ):
            loopback(lambda group, call=call: call(model(group)), 2)
    with pytest.raises(ValueRefusedError, match="batches of 5 rows, which 2 ranks cannot divide"):
        loopback(lambda group: model(group).fit(X, Y, epochs=1, batch_size=5), 2)
    with pytest.raises(ValueRefusedError, match="batches of 2 rows, which 3 ranks cannot divide"):
        loopback(lambda group: model(group).fit(X[:2], Y[:2], epochs=1), 3)
    assert model(ml.distributed.init("self")).group is None
