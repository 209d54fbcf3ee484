"""A Model whose training step is its own: several optimizers, rows, resuming, what is refused."""

import copy

import numpy as np
import pytest

import miniml as ml
from miniml import nn, ops, optim, train
from miniml.errors import MinimlError
from miniml.grad import value_and_grad

X = np.random.default_rng(0).normal(size=(48, 2)).astype(np.float32)
Y = np.arange(48) % 3
LABELS = np.repeat(np.float32([1, 0]), 16)[:, None]


class GAN(train.Model):
    """A critic and a generator, each with an optimizer, that learn in one step."""

    def training_step(self, real):
        generator, critic = self.net["generator"], self.net["critic"]
        makes, judges = self.optimizer
        noise = ops.normal((real.shape[0], 2))

        def judged():
            pairs = ops.concat([real, ops.stop_gradient(generator(noise))], 0)
            return self.loss(critic(pairs), LABELS)

        def fooled():
            return self.loss(critic(generator(noise)), LABELS[:16])

        loss, gradients = value_and_grad(judged, None, weights=judges.params)()
        judges.update(gradients)
        other, gradients = value_and_grad(fooled, None, weights=makes.params)()
        makes.update(gradients)
        return loss, {"generator": other}


def gan():
    ml.manual_seed(0)
    critic = nn.Sequential(nn.Dense(2, 4), nn.Tanh(), nn.Dense(4, 1))
    net = nn.CellDict({"generator": nn.Dense(2, 2), "critic": critic})
    both = [optim.Adam(net[n].trainable_params(), lr=0.01) for n in ("generator", "critic")]
    return GAN(net, nn.BCEWithLogitsLoss(), optim.Groups(*both))


def weights(model):
    return [p.asnumpy() for p in model.net.get_parameters()]


def by_hand(epochs):
    """The same training as two calls of train_step a batch."""
    model = gan()
    generator, critic = model.net["generator"], model.net["critic"]
    makes, judges = model.optimizer
    losses = []
    for epoch in range(epochs):
        for (real,) in ml.data.DataLoader(X, size=16, seed=0).batches(epoch):
            noise = ops.normal((16, 2))
            fake = generator(noise).asnumpy()
            judge = ml.train_step(critic, model.loss, judges)
            losses.append(float(judge(np.concatenate([real, fake]), LABELS)))
            critic.freeze()
            make = ml.train_step(lambda z: critic(generator(z)), model.loss, makes)
            make(noise, LABELS[:16])
            critic.unfreeze()
    return model, losses


def test_two_optimizers_in_one_step_are_two_steps_by_hand():
    fitted = gan()
    rows = fitted.fit(X, epochs=2, batch_size=16, show=False)
    expected, losses = by_hand(2)
    assert list(rows[0]) == ["epoch", "loss", "generator", "seconds"]
    assert [row["loss"] for row in rows] == pytest.approx(np.reshape(losses, (2, 3)).mean(1), 1e-5)
    for got, wanted in zip(weights(fitted), weights(expected), strict=True):
        np.testing.assert_allclose(got, wanted, 1e-4, 1e-6)
    assert fitted.step.recompilations == ["first call"]


class Stops(train.Callback):
    def on_epoch(self, run, row):
        if run.epoch == 1:
            raise RuntimeError("stopped")


def test_it_resumes_to_the_same_bits_and_is_copied(tmp_path):
    path, options = tmp_path / "run.safetensors", {"batch_size": 16, "show": False}
    straight = gan()
    straight.fit(X, epochs=3, **options)
    again = gan()
    copied = copy.deepcopy(again)
    with pytest.raises(RuntimeError, match="stopped"):
        again.fit(X, epochs=3, resume=path, callbacks=[Stops()], **options)
    gan().fit(X, epochs=1, **options)  # moves the random stream
    again.fit(X, epochs=3, resume=path, **options)
    assert all(map(np.array_equal, weights(straight), weights(again)))
    ml.manual_seed(0)
    before = weights(straight)
    copied.fit(X, epochs=1, **options)
    assert all(map(np.array_equal, weights(straight), before))
    assert not np.array_equal(weights(copied)[0], weights(gan())[0])


class Same(train.Model):
    def training_step(self, x, *labels):
        return super().training_step(x, *labels)


class Doubled(train.Model):
    def training_step(self, x, y):
        loss = super().training_step(x, y)
        return loss[0] if self.metrics else 2.0 * loss


def supervised(kind, metrics=()):
    ml.manual_seed(0)
    net = nn.Dense(2, 3)
    optimizer = optim.SGD(net.trainable_params(), lr=0.1)
    return kind(net, nn.CrossEntropyLoss(), optimizer, metrics, clip=0.1)


@pytest.mark.parametrize("metrics", [(), [train.accuracy()]])
def test_the_ordinary_step_may_be_called_in_it(metrics):
    models = [supervised(kind, metrics) for kind in (train.Model, Same)]
    rows = [m.fit(X, Y, epochs=2, validation=(X, Y), show=False) for m in models]
    for one, other in zip(*rows, strict=True):
        assert {**one, "seconds": 0} == {**other, "seconds": 0}
    assert all(map(np.array_equal, *map(weights, models)))


def test_what_a_step_must_return():
    (row,), (twice,) = (supervised(k).fit(X, Y, epochs=1, show=False) for k in (Same, Doubled))
    assert twice["loss"] == pytest.approx(2 * row["loss"])
    with pytest.raises(MinimlError, match=r"training_step returned .*; return loss, \(output"):
        supervised(Doubled, [train.accuracy()]).fit(X, Y, epochs=1, show=False)

    class Nothing(train.Model):
        def training_step(self, x, y):
            super().training_step(x, y)

    with pytest.raises(MinimlError, match="training_step returned None; return one float Tensor"):
        supervised(Nothing).fit(X, Y, epochs=1, show=False)
