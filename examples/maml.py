"""MAML (Finn, Abbeel, Levine 2017): weights from which a few steps fit a new sine wave.

Each task is a sine of its own height and phase, of which ten points are seen. The outer gradient
passes through the inner steps: a gradient of a gradient. The number is the error after five steps.
"""

import numpy as np

import miniml as ml
from miniml import nn, ops, optim
from miniml.grad import grad, value_and_grad

TASKS, SHOTS, INNER = 16, 10, 0.05


def waves(rng, count):
    """x and y of two sets of points a task, one to fit and one to judge: (count, SHOTS, 1)."""
    height, phase = rng.uniform(0.5, 2, (count, 1, 1)), rng.uniform(0, np.pi, (count, 1, 1))
    x = rng.uniform(-3, 3, (2, count, SHOTS, 1))
    return x.astype("f"), (height * np.sin(x + phase)).astype("f")


def main(picture=None, steps=2000):
    ml.manual_seed(0)
    net = nn.Sequential(nn.Dense(1, 40), nn.Tanh(), nn.Dense(40, 40), nn.Tanh(), nn.Dense(40, 1))

    def error(weights, x, y):
        return ops.mean((nn.functional_call(net, weights, x) - y) ** 2)

    def adapted(weights, x, y, times=1):
        """The weights after steps of gradient descent on these points."""
        for _ in range(times):
            slopes = grad(error)(weights, x, y)
            weights = {name: w - INNER * slopes[name] for name, w in weights.items()}
        return weights

    def outer(fit_x, fit_y, test_x, test_y):
        """The mean error of all tasks on points that the step has not seen."""
        weights = dict(net.parameters_dict())

        def one(fx, fy, tx, ty):
            return error(adapted(weights, fx, fy), tx, ty)

        return ops.mean(ml.vmap(one)(fit_x, fit_y, test_x, test_y))

    optimizer = optim.Adam(net.trainable_params(), lr=optim.cosine(0.005, steps))

    @ml.jit
    def step(*points):
        loss, gradients = value_and_grad(outer, argnums=None, weights=net)(*points)
        optimizer.update(gradients)
        return loss

    rng = np.random.default_rng(0)
    for _ in range(steps):
        x, y = waves(rng, TASKS)
        step(x[0], y[0], x[1], y[1])
    x, y = (ml.Tensor(a) for a in waves(rng, 100))
    weights = dict(net.parameters_dict())
    judged = ml.jit(ml.vmap(lambda a, b, c, d: error(adapted(weights, a, b, 5), c, d)))
    errors = judged(x[0], y[0], x[1], y[1]).asnumpy()
    if picture:
        line = ml.Tensor(np.linspace(-3, 3, 100, dtype="f")[:, None])
        curves = [
            nn.functional_call(net, adapted(weights, x[0][0], y[0][0], n), line).asnumpy()
            for n in (0, 1, 5)
        ]
        draw(line.asnumpy(), curves, x[0][0].asnumpy(), y[0][0].asnumpy(), picture)
    return float(errors.mean())


def draw(line, curves, x, y, picture):
    from matplotlib.figure import Figure

    axes = Figure(figsize=(4.8, 3.2), layout="constrained").subplots()
    for curve, name in zip(curves, ("before", "after 1 step", "after 5 steps")):
        axes.plot(line, curve, label=name)
    axes.plot(x, y, "ko", ms=4, label="seen")
    axes.legend(fontsize=7)
    axes.figure.savefig(picture, dpi=80)


if __name__ == "__main__":
    print(f"mean squared error {main('maml.png'):.3f} after five steps on ten points")
