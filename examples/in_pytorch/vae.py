"""vae.py in PyTorch: the same network and bound."""

import numpy as np
import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.nn.functional import softplus
from torch.utils.data import DataLoader

HIDDEN, LATENT = 128, 2


class VAE(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = nn.Sequential(
            nn.Linear(64, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, 2 * LATENT)
        )
        self.decoder = nn.Sequential(nn.Linear(LATENT, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, 64))

    def forward(self, x):
        """The logits of each pixel, and mean and log of the variance of the code."""
        mean, log_var = self.encoder(x).chunk(2, dim=1)
        code = mean + torch.exp(log_var / 2) * torch.randn_like(mean)
        return self.decoder(code), mean, log_var


def bound(out, x):
    """Reconstruction plus KL divergence of the code from a standard normal, a digit."""
    logits, mean, log_var = out
    pixels = (softplus(logits) - x * logits).sum(1)
    divergence = (log_var.exp() + mean**2 - 1 - log_var).sum(1) / 2
    return (pixels + divergence).mean()


def main(epochs=60):
    torch.manual_seed(0)
    x = torch.from_numpy((load_digits().data[:1437] / 16).astype(np.float32))
    net = VAE()
    optimizer = torch.optim.Adam(net.parameters(), lr=0.003)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, epochs * (len(x) // 64))
    loader = DataLoader(x, batch_size=64, shuffle=True, drop_last=True)
    for _ in range(epochs):
        losses = []
        for batch in loader:
            loss = bound(net(batch), batch)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
            losses.append(loss.item())
    return float(np.mean(losses))


if __name__ == "__main__":
    print(f"at most {main():.2f} nats a digit")
