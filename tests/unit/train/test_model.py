"""Model: fit trains as the loop by hand does, evaluates, predicts and refuses bad data."""

import json
import sys
from types import SimpleNamespace

import numpy as np
import pytest

import miniml as ml
from miniml import nn, ops, optim, train
from miniml.data import DataLoader
from miniml.errors import (
    ArityError,
    ImmutableError,
    MinimlError,
    NonFiniteError,
    OutOfRangeError,
    ShapeError,
)

DRAW = np.random.default_rng(0)
X, Y = DRAW.normal(size=(70, 4)).astype(np.float32), np.arange(70) % 3


def network():
    ml.manual_seed(0)
    return nn.Sequential(nn.Dense(4, 6), nn.ReLU(), nn.Dropout(0.5), nn.Dense(6, 3))


def model(metrics=(), lr=0.01, net=None):
    net = net or network()
    return train.Model(
        net, nn.CrossEntropyLoss(), optim.Adam(net.trainable_params(), lr=lr), metrics
    )


def weights(net):
    return [p.asnumpy() for p in net.get_parameters()]


def loader():
    return DataLoader(X, Y, size=16, seed=1)


def test_fit_is_the_loop_by_hand_bit_by_bit():
    fitted = model([train.accuracy()])
    rows = fitted.fit(loader(), epochs=3, validation=DataLoader(X, Y, size=32), show=False)
    net = network()
    step = ml.train_step(net, nn.CrossEntropyLoss(), optim.Adam(net.trainable_params(), lr=0.01))
    losses = [float(step(*batch)) for epoch in range(3) for batch in loader().batches(epoch)]
    assert all(map(np.array_equal, weights(fitted.net), weights(net)))
    assert [row["loss"] for row in rows] == pytest.approx(np.reshape(losses, (3, 4)).mean(1))
    assert list(rows[0]) == ["epoch", "loss", "accuracy", "val_loss", "val_accuracy", "seconds"]


def test_evaluation_takes_every_row_without_dropout_and_leaves_modes_alone():
    fitted = model([train.accuracy()])
    fitted.net[0].set_train(False)
    scores = fitted.predict(X, batch_size=32)
    found = fitted.evaluate(DataLoader(X, Y, size=16))
    shifted = scores - scores.max(1, keepdims=True)
    nll = np.log(np.exp(shifted).sum(1)) - shifted[np.arange(70), Y]
    assert scores.shape == (70, 3)
    assert found["loss"] == pytest.approx(nll.mean(), rel=1e-5)
    assert found["accuracy"] == pytest.approx((scores.argmax(1) == Y).mean())
    assert [c.training for c in fitted.net.cells()] == [True, False, True, True, True]


def test_without_an_optimizer_a_model_evaluates_and_predicts():
    trained = model([train.accuracy()])
    judge = train.Model(trained.net, trained.loss, metrics=[train.accuracy()])
    assert judge.evaluate(loader()) == trained.evaluate(loader())
    assert np.array_equal(judge.predict(X), trained.predict(X))
    with pytest.raises(MinimlError, match=r"no optimizer, .* Model\(net, loss, optim\.Adam\("):
        judge.fit(loader(), epochs=1)
    with pytest.raises(MinimlError, match="got Adam for the loss"):
        train.Model(trained.net, trained.optimizer)


def test_predict_joins_only_what_has_a_row_for_each():
    lstm = nn.LSTM(4, 3, batch_first=True)
    x = np.zeros((5, 2, 4), np.float32)
    learner = train.Model(lstm, nn.MSELoss())
    out, (h, _) = learner.predict(x)
    assert out.shape == (5, 2, 3)
    assert h.shape == (1, 5, 3)
    with pytest.raises(ShapeError, match=r"shape \(1, 2, 3\) for a batch of 2 rows; .*batch first"):
        learner.predict(x, batch_size=2)


def test_a_dataset_of_pairs_gives_inputs_and_labels():
    pairs = list(zip(X, Y, strict=True))
    rows = [
        model().fit(DataLoader(*data, size=16, seed=1), epochs=2, show=False)
        for data in ((pairs,), (X, Y))
    ]
    assert [row["loss"] for row in rows[0]] == [row["loss"] for row in rows[1]]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda m: m.fit(loader(), epochs=1, callbacks=train.EarlyStopping()),
            r"callbacks=\[train\.Early",
        ),
        (
            lambda m: m.fit(loader(), epochs=1, callbacks=[train.EarlyStopping]),
            r"make one: EarlyStopping\(",
        ),
        (
            lambda m: m.fit(loader(), epochs=1, callbacks=[train.EarlyStopping()]),
            "; give fit validation=",
        ),
        (lambda m: model(train.accuracy()), r"got a Metric; give a list, as metrics=\[train\.acc"),
        (lambda m: m.predict(loader()), "predict got a DataLoader; give it the inputs"),
    ],
)
def test_what_belongs_elsewhere_is_sent_there(call, message):
    with pytest.raises(MinimlError, match=message):
        call(model())


def test_several_inputs_and_labels_and_lists_of_batches():
    class Sum(nn.Cell):
        def __init__(self):
            self.dense = nn.Dense(4, 3)

        def construct(self, a, b):
            return self.dense(a + b)

    both = model(net=Sum())
    both.fit(DataLoader((X, X), Y, size=16), epochs=1, show=False)
    assert both.predict((X, X)).shape == (70, 3)
    rows = both.fit([((X, X), Y), ((X, X), Y)], epochs=2, show=False)
    assert len(rows) == 2


def test_arrays_are_the_loader_of_them():
    def fit(data, *labels, **options):
        fitted = model([train.accuracy()])
        rows = fitted.fit(data, *labels, epochs=2, show=False, **options)
        return [{**row, "seconds": 0} for row in rows], fitted

    options = {"validation": DataLoader(X, Y, size=70)}
    rows, loaded = fit(DataLoader(X, Y, size=32, seed=0), **options)
    ordered, _ = fit(DataLoader(X, Y, size=16), **options)
    options = {"validation": (X, Y)}
    assert fit((X, Y), **options)[0] == fit(X, Y, **options)[0] == rows
    assert fit(ml.Tensor(X), list(Y), batch_size=16, seed=None, **options)[0] == ordered
    (row, _), _ = fit((X[:5], Y[:5]))  # one batch of all five
    assert 0 < row["loss"] < 2
    judged = loaded.evaluate(DataLoader(X, Y, size=16))
    assert loaded.evaluate(X, Y, batch_size=16) == loaded.evaluate((X, Y), batch_size=16) == judged


def test_arrays_in_dicts_and_tuples_are_several_inputs():
    class Sum(nn.Cell):
        def __init__(self):
            self.dense = nn.Dense(4, 3)

        def construct(self, a, b=None):
            return self.dense(a["u"] + a["v"] if b is None else a + b)

    losses = []
    for x in ({"u": X, "v": X}, (X, X)):
        ml.manual_seed(0)
        (row,) = model(net=Sum()).fit(x, Y, epochs=1, batch_size=35, show=False, validation=(x, Y))
        losses.append((row["loss"], row["val_loss"]))
    assert losses[0] == losses[1]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda m: m.fit(loader(), epochs=1, batch_size=8), "batch_size=8 beside a DataLoader"),
        (lambda m: m.evaluate([(X, Y)], batch_size=8), "batch_size=8 beside a list"),
        (lambda m: m.fit(loader(), 3, epochs=1), "got a DataLoader and 1 more; .*epochs=3"),
        (lambda m: m.fit(X, Y, epochs=1, batch_size=0), "fit got batch_size=0; expected an int"),
        (lambda m: m.fit(X, 3, epochs=1), "DataLoader got a int"),
    ],
)
def test_what_does_not_go_with_batches_or_arrays_is_refused(call, message):
    with pytest.raises(MinimlError, match=message):
        call(model())


@pytest.mark.parametrize(
    ("data", "epochs", "message"),
    [
        (3, 1, r"got a int, which is neither arrays, as \(x, y\), nor a series of batches"),
        (X, 1, "has one source only"),
        ((X, Y[:60]), 1, r"sources of \[70, 60\] rows"),
        (iter([(X, Y)]), 2, "read once only, for 2 epochs"),
        ([], 1, "without a batch"),
        ([X], 1, r"a batch is a tuple \(x, \*labels\); got a ndarray"),
        (loader(), 0, "epochs=0"),
        (DataLoader(X, size=16), 1, "has one source only"),
        (loader(), 1.5, r"epochs=1\.5; expected an int >= 1"),
        ([(X[:, :3], Y)], 1, r"Dense\(4, 6\) got input of shape \(70, 3\)"),
        (DataLoader(X[:, :3], Y, size=16), 1, r"Dense\(4, 6\) got input of shape \(16, 3\)"),
        (DataLoader(X, Y[:, None], size=16), 1, r"labels of shape \(16, 1\)"),
    ],
)
def test_what_is_no_data_is_refused(data, epochs, message):
    with pytest.raises(MinimlError, match=message):
        model().fit(data, epochs=epochs, show=False)


def test_labels_out_of_range_are_named_before_the_first_step():
    net, labels = network(), Y.copy()
    labels[[5, 9]] = 3
    before = weights(net)
    with pytest.raises(OutOfRangeError, match=r"2 labels .* 3 classes .* row 5: 3"):
        model(net=net).fit(DataLoader(X, labels, size=16), epochs=1, show=False)
    with pytest.raises(OutOfRangeError, match="row 5"):
        model(net=net).evaluate(DataLoader(X, labels, size=16))
    batches = list(DataLoader(X, labels, size=16))
    for data in (batches, DataLoader(X, list(labels), size=16)):
        with pytest.raises(OutOfRangeError, match=r"2 labels .* row 5: 3"):
            model(net=net).fit(data, epochs=1, show=False)
    assert all(map(np.array_equal, before, weights(net)))


def test_scores_with_the_classes_last_are_refused_as_such():
    class Last(nn.Cell):
        def construct(self, x):
            return ops.zeros((*x.shape, 90))

    x, labels = np.zeros((32, 8)), np.full((32, 8), 60)
    for data in (DataLoader(x, labels, size=4), [(x, labels)]):
        with pytest.raises(ShapeError, match=r"\(., 8, 90\) .*axis=-1|\(32, 8, 90\) .*axis=-1"):
            train.Model(Last(), nn.CrossEntropyLoss()).evaluate(data)


def test_the_layer_that_inputs_do_not_fit_is_named():
    with pytest.raises(ShapeError) as caught:
        model().fit(DataLoader(X[:, :3], Y, size=16), epochs=1, show=False)
    assert "in layer 0 (Dense)" in caught.value.__notes__


@pytest.mark.parametrize("kind", [np.float32, np.int64, np.array, ml.Tensor])
def test_numbers_of_all_kinds_are_numbers_of_an_epoch(kind, tmp_path):
    class Adds(train.Callback):
        def on_epoch(self, run, row):
            row["own"] = kind(2)

    best, log = train.SaveBest(tmp_path / "best", "own", "min"), train.Log(tmp_path / "log")
    data = DataLoader(X, Y, size=16)
    model().fit(data, epochs=1, callbacks=[Adds(), best, log], show=False)
    assert best.state["best"] == json.loads((tmp_path / "log").read_text())["own"] == 2


def test_a_model_of_the_wrong_parts_is_refused():
    net = network()
    adam = optim.Adam(net.trainable_params())
    with pytest.raises(MinimlError, match=r"got a function; expected a Metric, such as train\.acc"):
        train.Model(net, nn.CrossEntropyLoss(), adam, [train.accuracy])
    with pytest.raises(MinimlError, match="callbacks got a function; expected a Callback"):
        model().fit(DataLoader(X, Y, size=16), epochs=1, callbacks=[lambda run: None])
    with pytest.raises(MinimlError, match="EarlyStopping got patience=0"):
        train.EarlyStopping(0)
    with pytest.raises(ArityError, match=r"does not take larger_is_better=True .*mode="):
        train.EarlyStopping(larger_is_better=True)
    with pytest.raises(MinimlError, match="mode='upwards'; expected one of 'auto', 'min', 'max'"):
        train.SaveBest("best", mode="upwards")
    with pytest.raises(MinimlError, match="names differ"):
        train.Model(net, nn.CrossEntropyLoss(), adam, [train.accuracy(), train.accuracy()])
    with pytest.raises(MinimlError, match=r"give an nn\.Cell"):
        train.Model(lambda x: x, nn.CrossEntropyLoss(), adam)


def test_the_parts_of_a_model_and_of_a_step_stay():
    """They are compiled of them, and would compute with the old ones."""
    net = nn.Dense(2, 1)
    parts = {"net": net, "loss": nn.MSELoss(), "metrics": ()}
    model = train.Model(**parts, optimizer=optim.SGD(net.trainable_params(), lr=0.1))
    for name in parts:
        with pytest.raises(
            ImmutableError, match=f"Model refuses another {name}; make another Model"
        ):
            setattr(model, name, nn.L1Loss())
        setattr(model, name, getattr(model, name))
    for name in ("net", "loss_fn", "optimizer"):
        with pytest.raises(ImmutableError, match=f"TrainStep refuses another {name}"):
            setattr(model.step, name, nn.L1Loss())


def test_a_nan_stops_the_run_and_keeps_the_last_good_state(tmp_path):
    bad, path = X.copy(), tmp_path / "run.safetensors"
    bad[40] = np.nan
    fitted = model()
    data = DataLoader(bad, Y, size=16)
    message = r"loss is nan in epoch 1, step 3; it began where .*: a callback sets .* in on_start"
    with pytest.raises(NonFiniteError, match=message):
        fitted.fit(data, epochs=1, resume=path, save_every=2, show=False)
    expected = model()
    for batch in list(data)[:2]:
        expected.step(*batch)
    assert all(map(np.array_equal, weights(fitted.net), weights(expected.net)))
    ok = model()
    ok.fit(DataLoader(X, Y, size=16), epochs=1, resume=path, show=False)
    assert all(np.isfinite(w).all() for w in weights(ok.net))


def test_a_callback_sets_another_rate_than_that_of_the_file(tmp_path):
    path, data = tmp_path / "run.safetensors", DataLoader(X, Y, size=16)

    class Rate(train.Callback):
        def on_start(self, run):
            seen.append(float(run.model.optimizer.lr))
            run.model.optimizer.lr = 0.25

    seen = []
    model(lr=0.5).fit(data, epochs=1, resume=path, show=False)
    again = model(lr=0.125)
    again.fit(data, epochs=2, resume=path, show=False, callbacks=[Rate()])
    assert [*seen, float(again.optimizer.lr)] == [0.5, 0.25]


def test_weights_that_are_not_finite_are_never_saved(tmp_path):
    path = tmp_path / "run.safetensors"
    fitted = model(lr=1e38)
    with pytest.raises(NonFiniteError, match="training stopped"):
        fitted.fit(loader(), epochs=2, resume=path, save_every=1, show=False)
    assert all(np.isfinite(w).all() for w in weights(fitted.net))


BETTER_IF_LARGER = {
    "loss": False, "seconds": False, "accuracy": True, "top_2": True, "f1": True,
    "perplexity": False, "mean_absolute_error": False, "mean_squared_error": False,
}  # fmt: skip
METRICS = [
    train.accuracy(), train.top_k(2), train.f1(3), train.perplexity(),
    train.mean_absolute_error(), train.mean_squared_error(),
]  # fmt: skip


@pytest.mark.parametrize("prefix", ["", "val_"])
@pytest.mark.parametrize("name", BETTER_IF_LARGER)
def test_callbacks_look_for_larger_accuracies_and_smaller_losses(name, prefix):
    run = SimpleNamespace(steps=0, model=SimpleNamespace(metrics=METRICS), stopped=0, rank=0)
    run.stop = lambda: setattr(run, "stopped", run.stopped + 1)
    larger = BETTER_IF_LARGER[name]
    for mode, wanted in (("auto", larger), ("max", True), ("min", False)):
        for rising in (True, False):
            patient, run.stopped = train.EarlyStopping(2, prefix + name, mode), 0
            for value in np.random.default_rng(0).random(9).cumsum() * (1 if rising else -1):
                patient.on_epoch(run, {prefix + name: float(value)})
            assert run.stopped == (0 if rising is wanted else 7)


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("mode", ["min", "max"])
def test_a_nan_is_never_better_and_leaves_the_best(mode, seed, tmp_path, monkeypatch):
    """Every epoch is saved that is better than all numbers before it."""
    rng = np.random.default_rng(seed)
    values = np.where(rng.random(20) < 0.4, np.nan, rng.integers(0, 9, 20))
    saved, run = list[int](), SimpleNamespace(steps=0, model=SimpleNamespace(net=None), rank=0)
    monkeypatch.setattr(
        train.callbacks, "save_checkpoint", lambda net, path: saved.append(len(seen))
    )
    best, seen, expected = train.SaveBest(tmp_path / "best", "own", mode), [], []
    for value in values:
        before = [v for v in seen if v == v]
        if value == value and all((value < v) if mode == "min" else (value > v) for v in before):
            expected.append(len(seen))
        best.on_epoch(run, {"own": float(value)})
        seen.append(value)
    assert saved == expected
    assert abs(best.state["best"]) == (np.nanmin if mode == "min" else np.nanmax)(values)


def test_a_number_of_unknown_direction_is_asked_for():
    own = train.Metric("own", (), lambda out, y: 0.0, float)
    with pytest.raises(MinimlError, match=r"EarlyStopping follows 'own', .*mode='max' or mode='mi"):
        model([own]).fit(loader(), epochs=1, callbacks=[train.EarlyStopping(2, "own")], show=False)
    risen = train.Metric("own", (), lambda out, y: 0.0, float, larger_is_better=True)
    model([risen]).fit(loader(), epochs=1, callbacks=[train.EarlyStopping(2, "own")], show=False)


def test_a_line_an_epoch_where_there_is_no_terminal(capsys):
    model([train.accuracy()]).fit(loader(), epochs=2)
    lines = capsys.readouterr().out.splitlines()
    assert [line.split("  ")[0] for line in lines] == ["epoch 1/2", "epoch 2/2"]
    assert "accuracy 0." in lines[0]


def test_a_run_that_is_over_says_so(tmp_path, capsys):
    for _ in range(2):
        rows = model().fit(loader(), epochs=2, resume=tmp_path / "run.safetensors")
    assert rows == []
    assert capsys.readouterr().out.splitlines()[2:] == [
        "nothing to train: the run that was resumed ended after epoch 2 of 2; for another one "
        "give resume= another file"
    ]


def test_callbacks_have_methods_that_are_called():
    class Lightning(train.Callback):
        def on_epoch_end(self, run):
            raise AssertionError

    with pytest.raises(MinimlError, match=r"whose on_epoch_end no run .* on_end, on_epoch, on_epo"):
        model().fit(loader(), epochs=1, callbacks=[Lightning()])


def test_a_model_is_shown_with_its_parts():
    text = repr(model([train.accuracy()]))
    assert text.startswith("Model(Sequential(\n  (0): Dense(4, 6)")
    assert text.endswith("CrossEntropyLoss(), Adam(4 parameters, 51 numbers), metrics=[accuracy])")


def test_a_bar_in_a_terminal(capsys, monkeypatch):
    pytest.importorskip("tqdm")
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    model([train.accuracy()]).fit(loader(), epochs=2)
    out, bars = capsys.readouterr()
    assert not out
    assert "epoch 2/2: 100%" in bars
    assert "accuracy 0." in bars


def test_logs_are_whole_and_early_stopping_counts(tmp_path):
    logs = [train.Log(tmp_path / "log.jsonl"), train.Log(tmp_path / "log.csv")]
    patient = train.EarlyStopping(patience=1, monitor="loss", mode="max")
    best = train.SaveBest(tmp_path / "best.safetensors", monitor="loss")
    fitted = model([train.confusion_matrix(3)], lr=0.0)
    fitted.net.set_train(False)  # no dropout: with lr=0 all epochs are equal up to their order
    rows = fitted.fit(
        DataLoader(X, Y, size=70), epochs=9, callbacks=[*logs, best, patient], show=False
    )
    assert len(rows) == 2
    fitted.fit(DataLoader(X, Y, size=70), epochs=1, callbacks=[patient], show=False)
    assert patient.state["waited"] == 0
    read = [json.loads(line) for line in (tmp_path / "log.jsonl").read_text().splitlines()]
    assert [row["epoch"] for row in read] == [1, 2]
    assert np.array_equal(read[0]["confusion_matrix"], rows[0]["confusion_matrix"])
    head, *lines = (tmp_path / "log.csv").read_text().splitlines()
    assert head == "epoch,loss,confusion_matrix,seconds"
    assert len(lines) == 2
    ml.load_checkpoint(tmp_path / "best.safetensors", network())
    with pytest.raises(MinimlError, match=r"follows 'val_loss'.*there are loss, seconds"):
        fitted.fit(loader(), epochs=1, callbacks=[train.EarlyStopping()], show=False)
