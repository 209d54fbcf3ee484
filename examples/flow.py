"""A normalizing flow (Dinh et al. 2017) learns the density of two moons: nats a point."""

import numpy as np

import miniml as ml
from miniml import nn, ops, optim


def moons(rng, count):
    """Two half circles that hold each other, with noise."""
    angle, upper = rng.uniform(0, np.pi, count), rng.integers(0, 2, count)
    x = np.where(upper, np.cos(angle), 1 - np.cos(angle))
    y = np.where(upper, np.sin(angle), 0.5 - np.sin(angle))
    return (np.stack([x, y], 1) + 0.08 * rng.normal(size=(count, 2)) - (0.5, 0.25)).astype("f")


class Coupling(nn.Cell):
    """One coordinate stays, and says how the other is scaled and moved: it can be undone."""

    def __init__(self, kept, width=48):
        super().__init__()
        self.kept = kept
        self.net = nn.Sequential(
            nn.Dense(1, width), nn.Tanh(), nn.Dense(width, width), nn.Tanh(), nn.Dense(width, 2)
        )

    def construct(self, x):
        """The new point, and the log of how much its surroundings grew."""
        kept, other = x[:, self.kept : self.kept + 1], x[:, 1 - self.kept : 2 - self.kept]
        scale, shift = ops.split(self.net(kept), 2, axis=1)
        scale = 2 * ops.tanh(scale)
        moved = other * ops.exp(scale) + shift
        return ops.concat([kept, moved] if self.kept == 0 else [moved, kept], axis=1), scale[:, 0]

    def inverse(self, y):
        kept, moved = y[:, self.kept : self.kept + 1], y[:, 1 - self.kept : 2 - self.kept]
        scale, shift = ops.split(self.net(kept), 2, axis=1)
        other = (moved - shift) * ops.exp(-2 * ops.tanh(scale))
        return ops.concat([kept, other] if self.kept == 0 else [other, kept], axis=1)


class Flow(nn.Cell):
    def __init__(self, layers=6):
        super().__init__()
        self.layers = nn.CellList([Coupling(i % 2) for i in range(layers)])

    def construct(self, x):
        """log p(x): a standard normal of where x goes, times how much space grew on the way."""
        grown = 0.0
        for layer in self.layers:
            x, growth = layer(x)
            grown = grown + growth
        return grown - ops.sum(x**2, axis=1) / 2 - np.log(2 * np.pi)

    def sample(self, count):
        x = ops.normal((count, 2))
        for layer in reversed(list(self.layers)):
            x = layer.inverse(x)
        return x


def main(picture=None, steps=1500):
    ml.manual_seed(0)
    net, rng = Flow(), np.random.default_rng(0)
    optimizer = optim.Adam(net.trainable_params(), lr=optim.cosine(0.005, steps))
    step = ml.train_step(net, lambda log_p, _: -ops.mean(log_p), optimizer, clip=5.0)
    for _ in range(steps):
        x = moons(rng, 256)
        step(x, x)
    if picture:
        draw(moons(rng, 1000), net.sample(1000).asnumpy(), picture)
    return -float(net(moons(rng, 5000)).asnumpy().mean())


def draw(true, drawn, picture):
    from matplotlib.figure import Figure

    figure = Figure(figsize=(4.8, 2.4), layout="constrained")
    for ax, points, title in zip(figure.subplots(1, 2), (true, drawn), ("data", "drawn")):
        ax.plot(*points.T, ".", ms=1)
        ax.set(title=title, xlim=(-2, 2), ylim=(-1.5, 1.5), aspect="equal")
    figure.savefig(picture, dpi=80)


if __name__ == "__main__":
    print(f"{main('flow.png'):.3f} nats a point")
