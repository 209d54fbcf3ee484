"""What the rows of fit and evaluate hold: metrics of each output, and what losses return."""

import copy

import numpy as np
import pytest

import miniml as ml
from miniml import nn, ops, optim, train
from miniml.data import DataLoader
from miniml.errors import MinimlError

DRAW = np.random.default_rng(0)
X = DRAW.normal(size=(50, 4)).astype(np.float32)
KIND, SIZE = DRAW.integers(0, 3, 50), DRAW.normal(size=(50, 2)).astype(np.float32)


class Heads(nn.Cell):
    """Scores of three classes, and two numbers."""

    def __init__(self, arrange):
        self.kind, self.size, self.arrange = nn.Dense(4, 3), nn.Dense(4, 2), arrange

    def construct(self, x):
        return self.arrange(self.kind(x), self.size(x))


def by_key(kind, size):
    return {"size": size, "kind": kind}


def by_place(kind, size):
    return kind, size


def loss_of(kind, size, k, s):
    return nn.CrossEntropyLoss()(kind, k) + nn.MSELoss()(size, s)


def dict_loss(out, y):
    return loss_of(out["kind"], out["size"], y["kind"], y["size"])


ARRANGED = {
    "dicts": (by_key, dict_loss, ("kind", "size"), lambda k, s: [{"kind": k, "size": s}]),
    "tuples": (
        by_place, lambda out, y: loss_of(*out, *y), (0, 1), lambda k, s: [(k, s)]
    ),
    "labels one by one": (by_place, lambda out, *y: loss_of(*out, *y), (0, 1), lambda k, s: [k, s]),
    "nested lists": (
        lambda k, s: [k, s], lambda out, *y: loss_of(*out, *y), (0, 1), lambda k, s: [k, s]
    ),
}  # fmt: skip


def without_times(rows):
    return [{k: v for k, v in row.items() if k != "seconds"} for row in rows]


def expected(net):
    scores = X @ net.kind.weight.asnumpy() + net.kind.bias.asnumpy()
    sizes = X @ net.size.weight.asnumpy() + net.size.bias.asnumpy()
    return (scores.argmax(1) == KIND).mean(), np.abs(sizes - SIZE).mean(), (sizes - SIZE) ** 2


@pytest.mark.parametrize("kind", ARRANGED)
def test_each_output_has_metrics_of_its_own(kind):
    arrange, loss, (first, second), labels = ARRANGED[kind]
    net = Heads(arrange)
    metrics = {
        first: [train.accuracy()],
        second: [train.mean_absolute_error(), train.mean_squared_error()],
    }
    model = train.Model(net, loss, optim.SGD(net.trainable_params(), lr=0.0), metrics)
    data = [(X[part], *labels(KIND[part], SIZE[part])) for part in (slice(33), slice(33, 50))]
    right, error, squares = expected(net)
    found = {
        f"{first}_accuracy": right,
        f"{second}_mean_absolute_error": error,
        f"{second}_mean_squared_error": squares.mean(),
    }
    judged = model.evaluate(data)
    assert {k: judged[k] for k in found} == pytest.approx(found, rel=1e-5)
    (row,) = copy.deepcopy(model).fit(data, epochs=1, validation=data, show=False)
    found |= {f"val_{name}": value for name, value in found.items()}
    assert {k: row[k] for k in found} == pytest.approx(found, rel=1e-5)


def test_one_array_of_labels_is_compared_with_each_output():
    class Deep(nn.Cell):
        def __init__(self):
            self.early, self.late = nn.Dense(4, 3), nn.Dense(4, 3)

        def construct(self, x):
            return {"early": self.early(x), "late": self.late(x)}

    net, ce = Deep(), nn.CrossEntropyLoss()
    model = train.Model(
        net,
        lambda out, y: ce(out["early"], y) + ce(out["late"], y),
        metrics={"early": [train.accuracy()], "late": [train.accuracy()]},
    )
    found = model.evaluate([(X, KIND)])
    for name in ("early", "late"):
        scores = net(X)[name].asnumpy()
        assert found[f"{name}_accuracy"] == pytest.approx((scores.argmax(1) == KIND).mean())


@pytest.mark.parametrize(
    ("metrics", "labels", "message"),
    [
        ([train.accuracy()], [{"kind": KIND, "size": SIZE}], r"gives a dict; .*\{'size': \[train"),
        ({"sort": [train.accuracy()]}, [KIND], "output 'sort'; the network gives a dict of 'size'"),
        ({0: [train.accuracy()]}, [KIND], "output 0; the network gives a dict"),
        ({"kind": [train.accuracy()]}, [KIND, SIZE], "'kind'; the labels are a tuple of 2"),
        ({"kind": [train.accuracy()]}, [{"size": SIZE}], "the labels are a dict of 'size'"),
    ],
)
def test_heads_that_are_not_there_are_refused(metrics, labels, message):
    model = train.Model(Heads(by_key), lambda out, *y: ops.mean(out["size"]), metrics=metrics)
    with pytest.raises(MinimlError, match=message):
        model.evaluate([(X, *labels)])


def test_metrics_of_heads_are_listed():
    with pytest.raises(MinimlError, match=r"metrics\['kind'\] got a Metric; give a list"):
        train.Model(Heads(by_key), dict_loss, metrics={"kind": train.accuracy()})


def with_aux(out, y):
    right = ops.mean(ops.cast(ops.argmax(out, -1) == y, ml.float32))
    return nn.CrossEntropyLoss()(out, y), {"right": right, "largest": ops.max(out)}


def aux_model(metrics=()):
    ml.manual_seed(0)
    net = nn.Sequential(nn.Dense(4, 3), nn.Dropout(0.3))
    return train.Model(net, with_aux, optim.Adam(net.trainable_params(), lr=0.1), metrics)


@pytest.mark.parametrize("metrics", [[], [train.accuracy()]])
def test_aux_of_the_loss_is_averaged_into_the_rows(metrics):
    model = aux_model(metrics)
    data = DataLoader(X, KIND, size=16, seed=1, drop_last=False)
    rows = model.fit(data, epochs=2, validation=data, show=False)
    by_hand = aux_model()  # which seeds the stream of dropout anew
    for epoch, row in enumerate(rows):
        steps = [by_hand.step(*batch)[1] for batch in data.batches(epoch)]
        for name in ("right", "largest"):
            assert row[name] == pytest.approx(np.mean([float(aux[name]) for aux in steps]))
    scores, judged = model.predict(X), model.evaluate(data)
    assert judged["right"] == pytest.approx((scores.argmax(1) == KIND).mean())
    assert rows[-1]["val_right"] == judged["right"]
    cut = [scores[i : i + 16].max() for i in range(0, 50, 16)]
    assert judged["largest"] == pytest.approx(np.average(cut, weights=[16, 16, 16, 2]))
    assert list(judged)[:3] == ["loss", "right", "largest"]


@pytest.mark.parametrize("stop_after", range(1, 9))
def test_aux_of_a_run_that_goes_on_is_that_of_one_that_was_not_stopped(stop_after, tmp_path):
    data = DataLoader(X, KIND, size=16, seed=1, drop_last=False)

    class Stops(train.Callback):
        def on_steps(self, run, losses):
            if run.steps == stop_after:
                raise InterruptedError

    whole = aux_model().fit(data, epochs=2, show=False)
    path, rows = tmp_path / "run.safetensors", []
    log = train.Log(tmp_path / "log.jsonl")
    options = {"epochs": 2, "resume": path, "save_every": 1, "show": False}
    with pytest.raises(InterruptedError):
        aux_model().fit(data, callbacks=[log, Stops()], **options)
    rows = aux_model().fit(data, callbacks=[log], **options)
    assert without_times(rows) == without_times(whole[-len(rows) :] if rows else [])
    assert len((tmp_path / "log.jsonl").read_text().splitlines()) == 2


@pytest.mark.parametrize(
    ("aux", "message"),
    [
        (lambda out: out, r"got a Tensor; ml\.train_step takes any aux"),
        (lambda out: {"scores": out}, r"an array of shape \(50, 3\) at 'scores'"),
        (lambda out: {"accuracy": ops.max(out)}, "a name that is taken at 'accuracy'"),
        (lambda out: {"loss": ops.max(out)}, "a name that is taken at 'loss'"),
    ],
)
def test_aux_that_is_no_number_is_refused(aux, message):
    def loss(out, y):
        return nn.CrossEntropyLoss()(out, y), aux(out)

    net = nn.Dense(4, 3)
    model = train.Model(net, loss, optim.SGD(net.trainable_params(), 0.1), [train.accuracy()])
    for call in (model.evaluate, lambda data: model.fit(data, epochs=1, show=False)):
        with pytest.raises(MinimlError, match=message):
            call([(X, KIND)])


def test_early_stopping_follows_aux_in_the_direction_it_is_told():
    patient = train.EarlyStopping(1, "val_right", mode="max")
    aux_model().fit([(X, KIND)], epochs=2, validation=[(X, KIND)], callbacks=[patient], show=False)
    assert patient.state["best"] < 0
