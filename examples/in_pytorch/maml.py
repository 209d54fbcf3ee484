"""maml.py in PyTorch, by torch.func: the same networks, tasks and steps."""

import numpy as np
import torch
from torch import nn
from torch.func import functional_call, grad, vmap

TASKS, SHOTS, INNER = 16, 10, 0.05


def waves(rng, count):
    """x and y of two sets of points a task, one to fit and one to judge: (count, SHOTS, 1)."""
    height, phase = rng.uniform(0.5, 2, (count, 1, 1)), rng.uniform(0, np.pi, (count, 1, 1))
    x = rng.uniform(-3, 3, (2, count, SHOTS, 1))
    y = height * np.sin(x + phase)
    return torch.from_numpy(x.astype("f")), torch.from_numpy(y.astype("f"))


def main(steps=2000):
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(1, 40), nn.Tanh(), nn.Linear(40, 40), nn.Tanh(), nn.Linear(40, 1))

    def error(weights, x, y):
        return ((functional_call(net, weights, x) - y) ** 2).mean()

    def adapted(weights, x, y, times=1):
        """The weights after steps of gradient descent on these points."""
        for _ in range(times):
            slopes = grad(error)(weights, x, y)
            weights = {name: w - INNER * slopes[name] for name, w in weights.items()}
        return weights

    def outer(fit_x, fit_y, test_x, test_y):
        """The mean error of all tasks on points that the step has not seen."""
        weights = dict(net.named_parameters())

        def one(fx, fy, tx, ty):
            return error(adapted(weights, fx, fy), tx, ty)

        return vmap(one)(fit_x, fit_y, test_x, test_y).mean()

    optimizer = torch.optim.Adam(net.parameters(), lr=0.005)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
    rng = np.random.default_rng(0)
    for _ in range(steps):
        x, y = waves(rng, TASKS)
        loss = outer(x[0], y[0], x[1], y[1])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
    x, y = waves(rng, 100)
    weights = {name: p.detach() for name, p in net.named_parameters()}
    judged = vmap(lambda a, b, c, d: error(adapted(weights, a, b, 5), c, d))
    return float(judged(x[0], y[0], x[1], y[1]).mean())


if __name__ == "__main__":
    print(f"mean squared error {main():.3f} after five steps on ten points")
