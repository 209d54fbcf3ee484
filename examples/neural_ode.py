"""A neural ODE (Chen et al. 2018) finds a vector field from trajectories: its largest error."""

import numpy as np

import miniml as ml
from miniml import nn, ops, optim
from miniml.grad import value_and_grad

A = np.array([[-0.1, 2.0], [-2.0, -0.1]], np.float32)
H, STEPS = 0.1, 10


def trajectory(velocity, start, steps):
    """Runge and Kutta's method: the states after each step, in one scan."""

    def step(z, _):
        k1 = velocity(z)
        k2 = velocity(z + H / 2 * k1)
        k3 = velocity(z + H / 2 * k2)
        k4 = velocity(z + H * k3)
        z = z + H / 6 * (k1 + 2 * k2 + 2 * k3 + k4)
        return z, z

    return ops.scan(step, start, length=steps)[0]


def main(picture=None, iterations=600):
    ml.manual_seed(0)
    rng = np.random.default_rng(0)
    starts = ml.Tensor(rng.uniform(-1.4, 1.4, (100, 2)).astype(np.float32))
    observed = trajectory(lambda z: z**3 @ A.T, starts, STEPS)
    net = nn.Sequential(nn.Dense(2, 32), nn.Tanh(), nn.Dense(32, 32), nn.Tanh(), nn.Dense(32, 2))
    optimizer = optim.Adam(net.trainable_params(), lr=optim.cosine(0.02, iterations))

    @ml.jit
    def learn():
        def error():
            return ops.mean((trajectory(net, starts, STEPS) - observed) ** 2)

        loss, gradients = value_and_grad(error, argnums=None, weights=net)()
        optimizer.update(gradients)
        return loss

    for _ in range(iterations):
        learn()
    new = ml.Tensor([[1.3, 0.0], [-1.0, 1.1], [0.0, -0.8]])
    true = trajectory(lambda z: z**3 @ A.T, new, 3 * STEPS).asnumpy()
    found = trajectory(net, new, 3 * STEPS).asnumpy()
    if picture:
        draw(true, found, picture)
    return float(np.abs(true - found).max())


def draw(true, found, picture):
    from matplotlib.figure import Figure

    axes = Figure(figsize=(3.6, 3.2), layout="constrained").subplots()
    for i in range(true.shape[1]):
        axes.plot(*true[:, i].T, "k-", lw=3, alpha=0.3, label="true" if i == 0 else None)
        axes.plot(*found[:, i].T, "C1--", label="learnt" if i == 0 else None)
    axes.set(aspect="equal")
    axes.legend(fontsize=7)
    axes.figure.savefig(picture, dpi=80)


if __name__ == "__main__":
    print(f"at most {main('neural_ode.png'):.3f} away, three times as far as it has seen")
