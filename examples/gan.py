"""Two networks with an optimizer each, a GAN on a ring of clouds: the share of good points."""

import numpy as np

import miniml as ml
from miniml import nn, ops, optim
from miniml.grad import value_and_grad

BATCH, NOISE = 256, 4
CENTRES = np.stack([np.cos(np.arange(8) * np.pi / 4), np.sin(np.arange(8) * np.pi / 4)], 1)


def real(rng, count):
    return (CENTRES[rng.integers(0, 8, count)] + 0.05 * rng.normal(size=(count, 2))).astype("f")


def mlp(n_in, n_out, width=64):
    return nn.Sequential(
        nn.Dense(n_in, width), nn.ReLU(), nn.Dense(width, width), nn.ReLU(), nn.Dense(width, n_out)
    )


def main(picture=None, steps=4000):
    ml.manual_seed(0)
    painter, judge = mlp(NOISE, 2), mlp(2, 1)
    paint = optim.Adam(painter.trainable_params(), lr=5e-4, betas=(0.5, 0.9))
    learn = optim.Adam(judge.trainable_params(), lr=1e-3, betas=(0.5, 0.9))

    def judged(x, fake):
        """The judge's loss: real points should score high, painted ones low."""
        return ops.mean(ops.softplus(-judge(x)) + ops.softplus(judge(fake)))

    def fooled():
        return ops.mean(ops.softplus(-judge(painter(ops.normal((BATCH, NOISE))))))

    @ml.jit
    def step(x):
        fake = painter(ops.normal((BATCH, NOISE)))
        loss, gradients = value_and_grad(judged, argnums=None, weights=judge)(x, fake)
        learn.update(gradients)
        _, gradients = value_and_grad(fooled, argnums=None, weights=painter)()
        paint.update(gradients)
        return loss

    rng = np.random.default_rng(0)
    for _ in range(steps):
        step(real(rng, BATCH))
    points = painter(ops.normal((2000, NOISE))).asnumpy()
    distance = np.linalg.norm(points[:, None] - CENTRES, axis=2)
    if picture:
        draw(real(rng, 500), points, picture)
    found = len(np.unique(distance.argmin(1)[distance.min(1) < 0.2]))
    return float((distance.min(1) < 0.2).mean() * found / 8)


def draw(true, points, picture):
    from matplotlib.figure import Figure

    axes = Figure(figsize=(3.2, 3.2), layout="constrained").subplots()
    axes.plot(*true.T, ".", ms=2, label="real")
    axes.plot(*points[:500].T, ".", ms=2, label="painted")
    axes.set(aspect="equal", xlim=(-1.5, 1.5), ylim=(-1.5, 1.5))
    axes.legend(fontsize=7)
    axes.figure.savefig(picture, dpi=80)


if __name__ == "__main__":
    print(f"{main('gan.png'):.1%} of the points lie in a cloud, times the share of clouds found")
