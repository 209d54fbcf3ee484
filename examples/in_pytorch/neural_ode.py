"""neural_ode.py in PyTorch: the same integrator, as a Python loop."""

import numpy as np
import torch
from torch import nn

A = torch.tensor([[-0.1, 2.0], [-2.0, -0.1]])
H, STEPS = 0.1, 10


def trajectory(velocity, start, steps):
    """Runge and Kutta's method: the states after each step."""
    z, states = start, []
    for _ in range(steps):
        k1 = velocity(z)
        k2 = velocity(z + H / 2 * k1)
        k3 = velocity(z + H / 2 * k2)
        k4 = velocity(z + H * k3)
        z = z + H / 6 * (k1 + 2 * k2 + 2 * k3 + k4)
        states.append(z)
    return torch.stack(states)


def main(iterations=600):
    torch.manual_seed(0)
    rng = np.random.default_rng(0)
    starts = torch.from_numpy(rng.uniform(-1.4, 1.4, (100, 2)).astype(np.float32))
    observed = trajectory(lambda z: z**3 @ A.T, starts, STEPS)
    net = nn.Sequential(nn.Linear(2, 32), nn.Tanh(), nn.Linear(32, 32), nn.Tanh(), nn.Linear(32, 2))
    optimizer = torch.optim.Adam(net.parameters(), lr=0.02)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, iterations)

    def learn():
        loss = ((trajectory(net, starts, STEPS) - observed) ** 2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
        return loss

    for _ in range(iterations):
        learn()
    new = torch.tensor([[1.3, 0.0], [-1.0, 1.1], [0.0, -0.8]])
    with torch.no_grad():
        true = trajectory(lambda z: z**3 @ A.T, new, 3 * STEPS)
        found = trajectory(net, new, 3 * STEPS)
    return float((true - found).abs().max())


if __name__ == "__main__":
    print(f"at most {main():.3f} away, three times as far as it has seen")
