"""Random networks of images, forward and backward, in every memory format, against row-major."""

import numpy as np
import pytest

import miniml as ml
from miniml import ops
from miniml.core.abstract import FORMATS
from miniml.grad import value_and_grad

ORDERS = ((), *((name,) for name in FORMATS))


def channels(x):
    """A number of each channel, of shape (C, 1, 1)."""
    return np.linspace(0.5, 1.5, x.shape[1], dtype=np.float32).reshape(-1, 1, 1)


def normalized(x):
    gamma = channels(x).reshape(-1)
    return ops.batch_norm(x, gamma, gamma, training=True, eps=1e-2)[0]


# What may follow; the last four read the images in an order of their own.
STEPS = {
    "relu": lambda x: ops.relu(x - 0.1),
    "bias": lambda x: x + channels(x),
    "square": lambda x: x * x * 0.5,
    "exp": lambda x: ops.where(x > 0, x, ops.exp(ops.minimum(x, 0.0)) - 1.0),
    "norm": normalized,
    "mean": lambda x: x - ops.mean(x, (0, 2, 3), True),
    "max": lambda x: x - ops.max(x),
    "planes": lambda x: x * ops.mean(x, (2, 3), True),
    "pixels": lambda x: x * np.linspace(0, 1, x.shape[3], dtype=np.float32),
    "images": lambda x: x * np.linspace(0.5, 1, x.shape[0], dtype=np.float32)[:, None, None, None],
    "max pool": lambda x: ops.max_pool2d(x, 2, 1),
    "mean pool": lambda x: ops.avg_pool2d(x, 2, 1, padding=1, count_include_pad=False),
    "blocks": lambda x: ops.Convert("NC16HW")(x) * 1.5,
    "twice": lambda x: ops.concat([x, ops.tanh(x)], 1),
    "slice": lambda x: x[:, 1:] if x.shape[1] > 1 else x,
    "turn": lambda x: ops.transpose(x, (0, 1, 3, 2)),
    "flat": lambda x: ops.reshape(ops.reshape(x, (-1,)) * 0.5, x.shape),
}


def network(seed):
    """A function of images and filters, its arguments, and what it does."""
    rng = np.random.default_rng(seed)
    shape = [int(rng.choice(n)) for n in ((1, 2, 3, 16), (1, 3, 16, 20, 32), (5, 8), (6, 7))]
    x, filters = rng.standard_normal(shape).astype(np.float32), []
    names = [str(n) for n in rng.choice(["conv", *STEPS], rng.integers(4, 9))]
    back = [int(rng.integers(0, 3)) for _ in names]
    count = shape[1]
    for name in names:
        if name == "conv":
            out, size = int(rng.choice((4, 16, 20, 32))), int(rng.choice((1, 3)))
            scale = np.sqrt(1 / (count * size * size))
            filters.append((out, size, scale))
    seeds = rng.integers(0, 2**31, len(filters))

    def fn(x, *ws):
        values, given = [x], iter(ws)
        for name, steps in zip(names, back, strict=True):
            v = values[-1]
            if name == "conv":
                w = next(given)
                v = ops.conv2d(v, _fitting(w, v.shape[1]), padding=w.shape[2] // 2)
            elif min(v.shape[2:]) > 1 or "pool" not in name:
                v = STEPS[name](v)
            earlier = values[max(0, len(values) - 1 - steps)]
            values.append(v + earlier if earlier.shape == v.shape else v)
        return values[-1], values[len(values) // 2]

    ws = [
        (np.random.default_rng(s).standard_normal((o, 64, k, k)) * scale).astype(np.float32)
        for s, (o, k, scale) in zip(seeds, filters, strict=True)
    ]
    return fn, (x, *ws), names


def _fitting(w, count):
    """The filters for so many channels, of 64."""
    return w[:, :count] if count <= 64 else ops.concat([w] * (count // 64 + 1), 1)[:, :count]


def results(seed):
    """All numbers that a network gives, and those of its gradients."""
    fn, args, _ = network(seed)

    def loss(*args):
        return sum((ops.mean(ops.square(y)) for y in fn(*args)), 0.0)

    def both(*args):
        value, grads = value_and_grad(loss, argnums=tuple(range(len(args))))(*args)
        return (*fn(*args), value, *grads)

    return [y.asnumpy() for y in ml.jit(both)(*args)]


def check(seed, provider):
    with ml.context(providers=("miniml",)):
        expected = results(seed)
    for ranked in ORDERS:
        with ml.context(providers=(provider,), formats=ranked, verify_passes=True):
            got = results(seed)
        for one, right in zip(got, expected, strict=True):
            # Steps that square what came before let rounding grow.
            far = np.abs(one - right).max(initial=0) / max(np.abs(right).max(initial=0), 1e-3)
            assert far < 2e-4, (ranked, network(seed)[2])


@pytest.mark.parametrize("seed", range(6))
def test_numpy_in_every_format(seed):
    check(seed, "miniml")


@pytest.mark.parametrize("seed", range(2))
def test_c_in_every_format(seed):
    check(seed, "cc")


@pytest.mark.deep
@pytest.mark.parametrize("provider", ["miniml", "cc"])
@pytest.mark.parametrize("seed", range(10, 60))
def test_more_networks(seed, provider):
    check(seed, provider)
