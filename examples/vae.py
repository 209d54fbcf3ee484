"""A variational autoencoder of digits (Kingma, Welling 2014): a bound on nats a digit."""

import numpy as np

import miniml as ml
from miniml import nn, ops, optim
from miniml.data import DataLoader, load_digits

HIDDEN, LATENT = 128, 2


class VAE(nn.Cell):
    def __init__(self):
        super().__init__()
        self.encoder = nn.Sequential(nn.Dense(64, HIDDEN), nn.ReLU(), nn.Dense(HIDDEN, 2 * LATENT))
        self.decoder = nn.Sequential(nn.Dense(LATENT, HIDDEN), nn.ReLU(), nn.Dense(HIDDEN, 64))

    def construct(self, x):
        """The logits of each pixel, and mean and log of the variance of the code."""
        mean, log_var = ops.split(self.encoder(x), 2, axis=1)
        code = mean + ops.exp(log_var / 2) * ops.normal(mean.shape)
        return self.decoder(code), mean, log_var


def bound(out, x):
    """Reconstruction plus KL divergence of the code from a standard normal, a digit."""
    logits, mean, log_var = out
    pixels = ops.sum(ops.softplus(logits) - x * logits, axis=1)
    divergence = ops.sum(ops.exp(log_var) + mean**2 - 1 - log_var, axis=1) / 2
    return ops.mean(pixels + divergence)


def main(picture=None, epochs=60):
    ml.manual_seed(0)
    digits = load_digits()
    lowest = digits.images.min()
    x = ((digits.images - lowest) / (digits.images.max() - lowest)).reshape(-1, 64)
    net = VAE()
    optimizer = optim.Adam(net.trainable_params(), lr=optim.cosine(0.003, epochs * len(x) // 64))
    step, losses = ml.train_step(net, bound, optimizer), []
    loader = DataLoader(x, size=64, seed=0)
    for _ in range(epochs):
        losses = [float(step(batch, batch)) for (batch,) in loader]
    if picture:
        draw(net, picture)
    return float(np.mean(losses))


def draw(net, picture):
    """What the decoder draws on a grid of the two numbers of the code."""
    from matplotlib.figure import Figure

    side = np.linspace(-2, 2, 12)
    grid = np.stack(np.meshgrid(side, side), -1).reshape(-1, 2).astype(np.float32)
    drawn = ops.sigmoid(net.decoder(grid)).asnumpy().reshape(12, 12, 8, 8)
    axes = Figure(figsize=(3.2, 3.2), layout="constrained").subplots()
    axes.imshow(drawn.transpose(0, 2, 1, 3).reshape(96, 96), cmap="gray_r")
    axes.axis("off")
    axes.figure.savefig(picture, dpi=80)


if __name__ == "__main__":
    print(f"at most {main('vae.png'):.2f} nats a digit")
