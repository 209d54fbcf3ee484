"""fit with weights of rows and classes: Keras's mean, against a step written in NumPy."""

import numpy as np
import pytest

import miniml as ml
from miniml import data, nn, ops, optim, train
from miniml.errors import MinimlError, ShapeError, ValueRefusedError

DRAW = np.random.default_rng(0)
X, Y = DRAW.normal(size=(24, 4)).astype(np.float32), np.arange(24) % 3
W = DRAW.uniform(0.0, 3.0, 24).astype(np.float32)
CLASSES = {0: 0.5, 2: 4.0}
OF_CLASSES = np.array([0.5, 1.0, 4.0], np.float32)
CE = nn.CrossEntropyLoss()


def model(loss=CE, metrics=(), outputs=3, every=1, weighted=()):
    ml.manual_seed(0)
    net = nn.Dense(4, outputs)
    optimizer = optim.SGD(net.trainable_params(), lr=0.3)
    if every > 1:
        optimizer = optim.Accumulate(optimizer, every=every)
    return train.Model(net, loss, optimizer, metrics=metrics, weighted_metrics=weighted)


def fit(fitted, *sources, size=8, **named):
    named = {"epochs": 2, "seed": None, "show": False, "batch_size": size, **named}
    return fitted.fit(*sources, **named)


def held(fitted):
    return [p.asnumpy() for p in fitted.net.get_parameters()]


def by_hand(net, weights):
    """Softmax regression: sum(weight * loss) / N of each batch, by the formula of its gradient."""
    w, b = (p.astype(np.float64) for p in net)
    w = w if w.shape[0] == 4 else w.T
    losses = []
    for _ in range(2):
        for rows in np.split(np.arange(24), 3):
            scores = X[rows] @ w + b
            p = np.exp(scores - scores.max(1, keepdims=True))
            p /= p.sum(1, keepdims=True)
            losses.append(-(weights[rows] * np.log(p[np.arange(8), Y[rows]])).mean())
            p[np.arange(8), Y[rows]] -= 1
            p *= weights[rows, None] / 8
            w, b = w - 0.3 * X[rows].T @ p, b - 0.3 * p.sum(0)
    return np.mean(np.reshape(losses, (2, 3)), 1), w, b


@pytest.mark.parametrize(
    ("named", "weights"),
    [
        ({"sample_weight": W}, W),
        ({"class_weight": CLASSES}, OF_CLASSES[Y]),
        ({"class_weight": OF_CLASSES}, OF_CLASSES[Y]),
        ({"class_weight": CLASSES, "sample_weight": W[:, None]}, W * OF_CLASSES[Y]),
    ],
)
def test_the_mean_is_over_rows_as_in_keras(named, weights):
    fitted = model(metrics=["accuracy"])
    losses, w, b = by_hand(held(fitted), weights)
    rows = fit(fitted, X, Y, **named)
    got_w, got_b = held(fitted)
    np.testing.assert_allclose([row["loss"] for row in rows], losses, 1e-5)
    np.testing.assert_allclose(got_w if got_w.shape == w.shape else got_w.T, w, 1e-4, 1e-6)
    np.testing.assert_allclose(got_b, b, 1e-4, 1e-6)


def test_weights_of_one_change_nothing_and_of_zero_leave_rows_out():
    plain, ones = model(), model()
    fit(plain, X, Y)
    fit(ones, (X, Y), class_weight={1: 1.0}, sample_weight=np.ones(24))
    for a, b in zip(held(plain), held(ones), strict=True):
        np.testing.assert_allclose(a, b, 1e-6)
    other = Y.copy()
    other[::2] = 0
    one, two = model(), model()
    half = np.arange(24) % 2
    fit(one, X, Y, sample_weight=half)
    fit(two, X, other, sample_weight=half)
    assert all(map(np.array_equal, held(one), held(two)))


@pytest.mark.parametrize(
    ("loss", "y"),
    [
        (CE, np.eye(3, dtype=np.float32)[Y]),
        (nn.BCEWithLogitsLoss(), (Y > 1).astype(np.float32)[:, None]),
        (nn.MSELoss(), Y.astype(np.float32)[:, None]),
        (nn.CrossEntropyLoss(reduction="sum"), Y),
        (lambda out, y: ops.sum((out - ops.cast(y, ml.float32)) ** 2, axis=1), Y[:, None]),
        (lambda out, y: (ops.mean((out - y) ** 2, axis=1), {"n": ops.mean(y)}), Y[:, None] * 1.0),
    ],
)
def test_labels_and_losses_of_other_forms(loss, y):
    y = y.astype(np.float32) if y.dtype == np.float64 else y
    outputs = 3 if loss is CE or getattr(loss, "reduction", "") == "sum" else 1
    numbers = y.argmax(1) if y.shape[1:] == (3,) else y.reshape(24).astype(int)
    one, two = model(loss, outputs=outputs), model(loss, outputs=outputs)
    first = fit(one, X, y, class_weight=OF_CLASSES)
    second = fit(two, X, y, sample_weight=OF_CLASSES[numbers])
    assert first[-1]["loss"] == pytest.approx(second[-1]["loss"], rel=1e-6)
    for a, b in zip(held(one), held(two), strict=True):
        np.testing.assert_allclose(a, b, 1e-5, 1e-7)


def test_labels_of_each_element_weigh_its_own_loss():
    """Against the gradient of mean(weight * (x W + b - y)^2) in float64."""
    y = np.stack([Y, Y[::-1]], 1)
    one = model(lambda out, labels: (out - ops.cast(labels, ml.float32)) ** 2, outputs=2)
    w, b = (p.astype(np.float64) for p in held(one))
    error = 2.0 * OF_CLASSES[y] * (X @ w + b - y) / y.size
    fit(one, X, y, size=24, epochs=1, class_weight=OF_CLASSES)
    expected = w - 0.3 * X.T @ error, b - 0.3 * error.sum(0)
    for found, by_formula in zip(held(one), expected, strict=True):
        np.testing.assert_allclose(found, by_formula, 1e-5, 1e-7)


def test_two_halves_accumulated_are_the_whole_batch():
    whole, halves = model(), model(every=2)
    fit(whole, X, Y, size=8, sample_weight=W, class_weight=CLASSES)
    fit(halves, X, Y, size=4, sample_weight=W, class_weight=CLASSES)
    for a, b in zip(held(whole), held(halves), strict=True):
        np.testing.assert_allclose(a, b, 1e-5, 1e-6)


def test_metrics_and_validation_count_rows_alike_and_evaluate_takes_weights():
    fitted = model(metrics=["accuracy"])
    row = fit(fitted, X, Y, sample_weight=W, validation=(X, Y), epochs=1)[0]
    plain = fitted.evaluate(X, Y)
    assert [row["val_loss"], row["val_accuracy"]] == [plain["loss"], plain["accuracy"]]
    weighted = fitted.evaluate(X, Y, sample_weight=W, batch_size=5)
    scores = fitted.predict(X).astype(np.float64)
    nll = np.log(np.exp(scores).sum(1)) - scores[np.arange(24), Y]
    assert weighted["loss"] == pytest.approx((W * nll).mean(), rel=1e-5)
    assert weighted["accuracy"] == plain["accuracy"]


def judged(scores, w):
    """Keras's loss, a sum over the number of rows, and accuracy, over the sum of the weights."""
    scores = scores.astype(np.float64)
    nll = np.log(np.exp(scores).sum(1)) - scores[np.arange(len(w)), Y]
    return (w * nll).mean(), w[scores.argmax(1) == Y].sum() / w.sum()


@pytest.mark.parametrize("sources", [(X, Y), ((X, Y),), (data.DataLoader(X, Y, size=8),)])
def test_a_validation_has_weights_of_its_own(sources):
    fitted = model(metrics=["accuracy"], weighted=["accuracy"])
    size = None if len(sources) == 1 and not isinstance(sources[0], tuple) else 8
    row = fit(fitted, *sources, validation=(X, Y, W), epochs=1, size=size)[0]
    loss, share = judged(fitted.predict(X), W)
    assert row["val_loss"] == pytest.approx(loss, rel=1e-5)
    assert row["val_weighted_accuracy"] == pytest.approx(share)
    assert row["val_accuracy"] == (fitted.predict(X).argmax(1) == Y).mean() != share
    got = fitted.evaluate(X, Y, sample_weight=W, batch_size=7)
    assert [got["loss"], got["weighted_accuracy"]] == pytest.approx([loss, share], rel=1e-5)


@pytest.mark.parametrize(
    ("named", "weights"),
    [
        ({}, np.ones(24)),
        ({"sample_weight": W}, W),
        ({"class_weight": CLASSES}, OF_CLASSES[Y]),
        ({"class_weight": OF_CLASSES, "sample_weight": W}, W * OF_CLASSES[Y]),
    ],
)
def test_weighted_metrics_of_the_rows_one_learns_from(named, weights):
    fitted = model(weighted=["accuracy", train.mean("surprise", surprise)])
    before = fitted.predict(X)  # one step: the row is of the outputs before it
    row = fit(fitted, X, Y, epochs=1, size=24, validation=(X, Y), **named)[0]
    _, share = judged(before, weights)
    assert row["accuracy"] == pytest.approx(share, rel=1e-6)
    own = (weights * surprise(before, Y)).sum() / weights.sum()
    assert row["surprise"] == pytest.approx(own, rel=1e-5)
    assert row["val_accuracy"] == (fitted.predict(X).argmax(1) == Y).mean()


def surprise(out, y):
    return (out[np.arange(len(y)), y] - 1.0) ** 2


def test_weighted_metrics_take_the_weights_of_a_weighted_loss():
    of_rows = nn.SampleWeighted(nn.CrossEntropyLoss(reduction="none"))
    fitted = model(of_rows, weighted=["accuracy"])
    row = fit(fitted, X, Y, W, validation=(X, Y, W), epochs=1)[0]
    assert row["val_accuracy"] == pytest.approx(judged(fitted.predict(X), W)[1])


def test_classes_of_one_hot_labels_weigh_metrics():
    of_hot = train.mean("right", lambda out, y: out.argmax(1) == y.argmax(1))
    fitted = model(weighted=[of_hot])
    share = judged(fitted.predict(X), OF_CLASSES[Y])[1]
    hot = np.eye(3, dtype=np.float32)[Y]
    row = fit(fitted, X, hot, class_weight=CLASSES, epochs=1, size=24)[0]
    assert row["right"] == pytest.approx(share, rel=1e-6)


def test_heads_compare_without_the_weights():
    class Two(nn.Cell):
        def __init__(self):
            self.a, self.b = nn.Dense(4, 3), nn.Dense(4, 3)

        def construct(self, x):
            return self.a(x), self.b(x)

    ml.manual_seed(0)
    net, of_rows = Two(), nn.CrossEntropyLoss(reduction="none")
    fitted = train.Model(
        net,
        lambda out, y, z: of_rows(out[0], y) + of_rows(out[1], z),
        optim.SGD(net.trainable_params(), lr=0.1),
        metrics={0: ["accuracy"], 1: [train.accuracy()]},
    )
    row = fit(fitted, X, Y, (Y + 1) % 3, sample_weight=W)[-1]
    assert {"0_accuracy", "1_accuracy"} < row.keys()


def test_a_weighted_run_resumes_to_the_same_bits(tmp_path):
    class Stop(train.Callback):
        def on_epoch(self, run, row):
            raise KeyboardInterrupt

    whole, parts = model(), model()
    fit(whole, X, Y, sample_weight=W)
    path = tmp_path / "run.safetensors"
    with pytest.raises(KeyboardInterrupt):
        fit(parts, X, Y, sample_weight=W, resume=path, callbacks=[Stop()])
    fit(parts, X, Y, sample_weight=W, resume=path)
    assert all(map(np.array_equal, held(whole), held(parts)))


def test_batches_of_a_loader_take_weights_of_classes():
    one, two = model(), model()
    fit(one, X, Y, class_weight=CLASSES)
    two.fit(data.DataLoader(X, Y, size=8), epochs=2, class_weight=CLASSES, show=False)
    assert all(map(np.array_equal, held(one), held(two)))


class Own(train.Model):
    def training_step(self, x, y):
        return super().training_step(x, y)


@pytest.mark.parametrize(
    ("call", "error", "says"),
    [
        (lambda: fit(model(), X, Y, sample_weight=W[:5]), ShapeError, "5 weights for 24 rows"),
        (lambda: fit(model(), X, Y, validation=(X, Y, -W)), ValueRefusedError, "validation got"),
        (
            lambda: model(weighted=[train.Metric("own", (), lambda out, y: 0.0, float)]),
            MinimlError,
            "'own', whose count takes no weights",
        ),
        (lambda: fit(model(), X, Y, sample_weight=X), ValueRefusedError, r"float32\[24, 4\]"),
        (lambda: fit(model(), X, Y, sample_weight=-W), ValueRefusedError, "finite number >= 0"),
        (lambda: fit(model(), X, Y, sample_weight=W / 0), ValueRefusedError, "finite"),
        (lambda: fit(model(), X, Y, class_weight={"a": 1.0}), MinimlError, "the key 'a'"),
        (lambda: fit(model(), X, Y, class_weight=2.0), ValueRefusedError, "by class"),
        (
            lambda: model().fit(data.DataLoader(X, Y, size=8), epochs=1, sample_weight=W),
            MinimlError,
            "sample_weight beside a DataLoader",
        ),
        (
            lambda: fit(model(nn.CrossEntropyLoss(weight=OF_CLASSES)), X, Y, sample_weight=W),
            MinimlError,
            r"CrossEntropyLoss\(weight=.*weighted already",
        ),
        (
            lambda: fit(model(nn.CrossEntropyLoss(ignore_index=0)), X, Y, class_weight=CLASSES),
            MinimlError,
            "ignore_index",
        ),
        (
            lambda: fit(model(lambda out, y: ops.mean(out)), X, Y, class_weight=CLASSES),
            ShapeError,
            r"gives \(\) for 24|gives \(\) for 8",
        ),
        (
            lambda: fit(model(nn.MSELoss()), X, X[:, :3], class_weight=CLASSES),
            ShapeError,
            r"labels of shape \(8, 3\)",
        ),
        (
            lambda: fit(
                Own(net := nn.Dense(4, 3), CE, optim.SGD(net.trainable_params(), lr=1.0)),
                X, Y, sample_weight=W,
            ),
            MinimlError,
            "Own has a training_step of its own",
        ),
    ],
)  # fmt: skip
def test_it_refuses(call, error, says):
    with np.errstate(all="ignore"), pytest.raises(error, match=says):
        call()


def test_metrics_by_name():
    names = ["accuracy", "mse", "r2"]
    assert [m.name for m in model(metrics=names).metrics] == [
        "accuracy", "mean_squared_error", "r2",
    ]  # fmt: skip
    with pytest.raises(ValueRefusedError, match=r"'f1'; by name there are accuracy, .*classes=10"):
        model(metrics=["f1"])
    with pytest.raises(MinimlError, match=r"metrics=\["):
        model(metrics="accuracy")
