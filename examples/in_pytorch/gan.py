"""gan.py in PyTorch: the same two networks, an optimizer each."""

import numpy as np
import torch
from torch import nn
from torch.nn.functional import softplus

BATCH, NOISE = 256, 4
CENTRES = np.stack([np.cos(np.arange(8) * np.pi / 4), np.sin(np.arange(8) * np.pi / 4)], 1)


def real(rng, count):
    return (CENTRES[rng.integers(0, 8, count)] + 0.05 * rng.normal(size=(count, 2))).astype("f")


def mlp(n_in, n_out, width=64):
    return nn.Sequential(
        nn.Linear(n_in, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(),
        nn.Linear(width, n_out),
    )  # fmt: skip


def main(steps=4000):
    torch.manual_seed(0)
    painter, judge = mlp(NOISE, 2), mlp(2, 1)
    paint = torch.optim.Adam(painter.parameters(), lr=5e-4, betas=(0.5, 0.9))
    learn = torch.optim.Adam(judge.parameters(), lr=1e-3, betas=(0.5, 0.9))

    def step(x):
        fake = painter(torch.randn(BATCH, NOISE)).detach()
        loss = (softplus(-judge(x)) + softplus(judge(fake))).mean()
        learn.zero_grad()
        loss.backward()
        learn.step()
        fooled = softplus(-judge(painter(torch.randn(BATCH, NOISE)))).mean()
        paint.zero_grad()
        fooled.backward()
        paint.step()
        return loss

    rng = np.random.default_rng(0)
    for _ in range(steps):
        step(torch.from_numpy(real(rng, BATCH)))
    with torch.no_grad():
        points = painter(torch.randn(2000, NOISE)).numpy()
    distance = np.linalg.norm(points[:, None] - CENTRES, axis=2)
    found = len(np.unique(distance.argmin(1)[distance.min(1) < 0.2]))
    return float((distance.min(1) < 0.2).mean() * found / 8)


if __name__ == "__main__":
    print(f"{main():.1%} of the points lie in a cloud, times the share of clouds found")
