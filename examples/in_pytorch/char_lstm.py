"""char_lstm.py in PyTorch: the same network, data and schedule."""

import codecs
import contextlib
import importlib
import io

import numpy as np
import torch
from torch import nn

LENGTH, BATCH = 32, 16


def text():
    """The aphorisms that Python carries, as plain text."""
    with contextlib.redirect_stdout(io.StringIO()):
        this = importlib.import_module("this")  # prints them, too
    return codecs.decode(this.s, "rot13")


class Writer(nn.Module):
    def __init__(self, letters, width=96):
        super().__init__()
        self.embed = nn.Embedding(letters, 24)
        self.lstm = nn.LSTM(24, width, batch_first=True)
        self.out = nn.Linear(width, letters)

    def forward(self, tokens, state=None):
        h, state = self.lstm(self.embed(tokens), state)
        return self.out(h), state


def main(steps=400):
    torch.manual_seed(0)
    said = text()
    letters = sorted(set(said))
    codes = np.array([letters.index(c) for c in said])
    net = Writer(len(letters))
    optimizer = torch.optim.Adam(net.parameters(), lr=0.01)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
    rng, losses = np.random.default_rng(0), []
    for _ in range(steps):
        at = rng.integers(0, len(codes) - LENGTH - 1, BATCH)[:, None] + np.arange(LENGTH + 1)
        batch = torch.from_numpy(codes[at])
        scores, _ = net(batch[:, :-1])
        loss = nn.functional.cross_entropy(
            scores.reshape(-1, len(letters)), batch[:, 1:].reshape(-1)
        )
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        losses.append(loss.item())
    return float(np.mean(losses[-20:]))


if __name__ == "__main__":
    print(f"loss {main():.3f} nats a letter")
