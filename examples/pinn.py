"""A network that solves a differential equation (Raissi et al. 2019): its largest error.

Poisson's equation in a square, -(u_xx + u_yy) = 2 pi^2 sin(pi x) sin(pi y) and u = 0 on the edge,
has the solution sin(pi x) sin(pi y). The network sees the equation alone, at random points.
"""

import numpy as np

import miniml as ml
from miniml import nn, ops, optim
from miniml.grad import jvp, value_and_grad

PI = np.pi


def true(x, y):
    return np.sin(PI * x) * np.sin(PI * y)


def main(picture=None, steps=1500):
    ml.manual_seed(0)
    net = nn.Sequential(nn.Dense(2, 32), nn.Tanh(), nn.Dense(32, 32), nn.Tanh(), nn.Dense(32, 1))
    optimizer = optim.Adam(net.trainable_params(), lr=optim.cosine(0.01, steps))

    def u(x, y):
        """Zero on the edge, by a factor that is."""
        edge = x * (1 - x) * y * (1 - y)
        return 4 * edge * net(ops.stack([x, y], axis=-1))[..., 0]

    def second(f, x):
        """d^2 f / dx^2 of each element: forward mode over forward mode."""
        one = ops.ones_like(x)

        def slope(x):
            return jvp(f, (x,), (one,))[1]

        return jvp(slope, (x,), (one,))[1]

    def residual(x, y):
        """The mean square of what the equation lacks."""
        bends = second(lambda x: u(x, y), x) + second(lambda y: u(x, y), y)
        source = 2 * PI**2 * ops.sin(PI * x) * ops.sin(PI * y)
        return ops.mean((bends + source) ** 2)

    @ml.jit
    def step(x, y):
        loss, gradients = value_and_grad(residual, argnums=None, weights=net)(x, y)
        optimizer.update(gradients)
        return loss

    rng = np.random.default_rng(0)
    for _ in range(steps):
        step(*rng.uniform(0, 1, (2, 128)).astype(np.float32))
    x, y = np.meshgrid(*[np.linspace(0, 1, 41, dtype=np.float32)] * 2)
    found = u(ml.Tensor(x), ml.Tensor(y)).asnumpy()
    if picture:
        draw(found, found - true(x, y), picture)
    return float(np.abs(found - true(x, y)).max())


def draw(found, error, picture):
    from matplotlib.figure import Figure

    figure = Figure(figsize=(4.8, 2.4), layout="constrained")
    for ax, field, title in zip(figure.subplots(1, 2), (found, error), ("solution", "error")):
        figure.colorbar(ax.imshow(field, extent=(0, 1, 0, 1), origin="lower"), ax=ax, shrink=0.8)
        ax.set_title(title)
    figure.savefig(picture, dpi=80)


if __name__ == "__main__":
    print(f"at most {main('pinn.png'):.4f} away from the solution, which reaches 1")
