"""The search for a learning rate, and the callback that lowers it."""

import numpy as np
import pytest

import miniml as ml
from miniml import nn, optim, train
from miniml.errors import MinimlError

X = np.random.default_rng(0).normal(size=(64, 4)).astype(np.float32)
TARGET = X @ np.float32([[1.0], [-2.0], [0.5], [3.0]])


def model(optimizer=None, net=None):
    ml.manual_seed(0)
    net = net or nn.Dense(4, 1)
    optimizer = optimizer or optim.SGD(net.trainable_params(), lr=0.5)
    return train.Model(net, nn.MSELoss(), optimizer)


def test_the_search_is_steps_at_growing_rates_and_leaves_no_trace():
    searched, hand = model(), model()
    before = searched.net.state_dict(), ml.random_state.asnumpy()
    found = train.find_rate(searched, X, TARGET, low=1e-4, high=100.0, steps=50, batch_size=16)
    assert all(np.array_equal(v, before[0][k]) for k, v in searched.net.state_dict().items())
    assert np.array_equal(ml.random_state.asnumpy(), before[1])
    assert float(searched.optimizer.lr) == 0.5
    np.testing.assert_allclose(found.rates, np.geomspace(1e-4, 100, 50)[: len(found.rates)], 1e-12)
    batches = list(ml.data.DataLoader(X, TARGET, size=16, seed=0))
    for i, rate in enumerate(found.rates[:4]):
        hand.optimizer.lr = float(rate)
        assert float(hand.step(*batches[i])) == pytest.approx(found.losses[i], rel=1e-5)
    mean = total = 0.0
    for loss, smoothed in zip(found.losses, found.smoothed, strict=True):
        mean, total = 0.9 * mean + 0.1 * loss, 0.9 * total + 0.1
        assert smoothed == pytest.approx(mean / total)


def test_the_suggestion_lies_where_the_loss_falls_and_the_search_ends_where_it_explodes():
    found = train.find_rate(model(), X, TARGET, low=1e-4, high=100.0, steps=60)
    assert found.rates[-1] < 50.0
    assert 1e-3 < found.suggestion < 1.0  # 2 / the largest eigenvalue of the Hessian is about 1
    assert found.suggestion < found.rates[np.argmin(found.smoothed)]
    pytest.importorskip("matplotlib")
    assert found.picture()[:8] == b"\x89PNG\r\n\x1a\n"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"low": 0.0}, "find_rate got low=0.0"),
        ({"low": 1.0, "high": 0.5}, "find_rate got high=0.5; expected a number > 1"),
        ({"steps": 3}, "steps=3; expected an int >= 4"),
        ({"low": 1e6, "high": 1e9}, "losses before they grew beyond all bounds"),
    ],
)
def test_what_gives_no_search_is_refused(options, message):
    with pytest.raises(MinimlError, match=message):
        train.find_rate(model(), X, TARGET, **options)
    with pytest.raises(MinimlError, match="without a batch"):
        train.find_rate(model(), [])


def test_the_rate_falls_after_epochs_without_a_better_number():
    class Numbers(train.Callback):
        def on_epoch(self, run, row):
            row["own"] = [3.0, 2.0, 2.0, 2.5, 1.0, 1.0, 1.0, 1.0, 1.0][run.epoch]
            rates.append(float(run.model.optimizer.lr))

    rates = []
    callbacks = [Numbers(), train.ReduceRate(0.5, patience=2, monitor="own", mode="min", low=0.2)]
    model().fit(X, TARGET, epochs=9, callbacks=callbacks, show=False)
    assert rates == [0.5, 0.5, 0.5, 0.5, 0.25, 0.25, 0.25, pytest.approx(0.2), pytest.approx(0.2)]


def test_the_rate_of_each_group_falls():
    net = nn.Dense(4, 1)
    groups = optim.Groups(optim.SGD([net.weight], lr=0.0), optim.SGD([net.bias], lr=0.0))
    groups[0].lr, groups[1].lr = 1e-9, 2e-9
    reduce = train.ReduceRate(patience=1, monitor="loss")
    options = {"epochs": 3, "batch_size": 64, "seed": None, "show": False}
    model(groups, net).fit(X, TARGET, callbacks=[reduce], **options)
    assert float(groups[1].lr) == pytest.approx(2 * float(groups[0].lr))
    assert float(groups[0].lr) <= 1e-9
