# ---
# jupyter:
#   jupytext:
#     formats: ipynb,py:percent
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # 09. Networks that draw
#
# At the end you will have
#
# - a GAN: two networks with an optimizer each, which learn from each other, in one compiled step,
#   with a penalty on a gradient, so that the step holds gradients of gradients,
# - a variational autoencoder that puts handwritten digits on a map and draws new ones from it.
#
# The guide to training is `docs/training.md`.

# %%
from itertools import pairwise
from statistics import NormalDist

import matplotlib.pyplot as plt
import numpy as np

import miniml as ml
from miniml import nn, ops, optim
from miniml.data import DataLoader, load_digits
from miniml.grad import grad, value_and_grad
from miniml.train import Model

plt.rcParams.update({"figure.dpi": 90, "figure.constrained_layout.use": True})

# %% [markdown]
# ## A GAN on a ring
#
# Eight small clouds of points. A GAN learns to make such points from random numbers, and its
# well-known disease is to make those of a few clouds only.

# %%
CLOUDS, SPREAD = 8, 0.1
rng = np.random.default_rng(0)
turn = 2 * np.pi * np.arange(CLOUDS) / CLOUDS
centers = 2.0 * np.stack([np.cos(turn), np.sin(turn)], 1).astype(np.float32)
data = centers[rng.integers(CLOUDS, size=20_000)]
data += SPREAD * rng.normal(size=data.shape).astype(np.float32)


def mlp(*sizes):
    layers = [(nn.Dense(a, b), nn.LeakyReLU(0.2)) for a, b in pairwise(sizes)]
    return nn.Sequential(*[cell for pair in layers for cell in pair][:-1])


ml.manual_seed(0)
NOISE = 8
generator, critic = mlp(NOISE, 64, 64, 2), mlp(2, 64, 64, 1)

# %% [markdown]
# ## Two optimizers in one step
#
# The critic tells true points from made ones; the generator makes points that the critic takes for
# true. Each loss is differentiated by the weights of one network, and each optimizer updates one.
#
# The critic must not become too steep where the data is, or the two chase each other in circles. So
# its loss holds the squared gradient of its score by the true points (the R1 penalty of Mescheder
# and others, 2018). Its training is then the gradient of a gradient: nothing else needs to be said.
#
# `EMA` keeps a moving average of the generator's weights, which makes better points than they do.

# %%
SIZE, EPOCHS = 256, 50
loader = DataLoader(data, size=SIZE, seed=0)  # each time in another order
batches = [batch for _ in range(EPOCHS) for (batch,) in loader]


def adam(net, lr):
    schedule = optim.cosine(lr, len(batches))
    return optim.Adam(net.trainable_params(), lr=schedule, betas=(0.5, 0.99))


average, critics = optim.EMA(adam(generator, 2e-3), 0.99), adam(critic, 4e-3)


def critics_loss(true, made):
    slope = grad(lambda x: ops.sum(critic(x)))(true)
    penalty = ops.mean(ops.sum(slope * slope, axis=1))
    judged = ops.mean(ops.softplus(-critic(true))) + ops.mean(ops.softplus(critic(made)))
    return judged + 0.02 * penalty, penalty


def generators_loss(noise):
    return ops.mean(ops.softplus(-critic(generator(noise))))


judge = value_and_grad(critics_loss, argnums=None, has_aux=True, weights=critics.params)
make = value_and_grad(generators_loss, argnums=None, weights=average.params)


@ml.jit
def step(true):
    made = generator(ops.normal((SIZE, NOISE)))
    (of_critic, penalty), gradients = judge(true, made)
    critics.update(gradients)
    of_generator, gradients = make(ops.normal((SIZE, NOISE)))
    average.update(gradients)
    return of_critic, of_generator, penalty


# %%
def made_points(count=2000):
    with average.averaged():
        return generator(ops.normal((count, NOISE))).asnumpy()


history, pictures = [], {0: made_points()}
for i, batch in enumerate(batches):
    history.append([value.item() for value in step(batch)])
    if i + 1 in (300, 1000, len(batches)):
        pictures[i + 1] = made_points()

# %%
figure, places = plt.subplots(1, 4, figsize=(9, 2.6), sharex=True, sharey=True)
for axes, (done, points) in zip(places, pictures.items(), strict=True):
    axes.scatter(*data[:2000].T, s=2, color="0.8", label="true")
    axes.scatter(*points[:1000].T, s=2, color="C1", alpha=0.5, label="made")
    axes.set(title=f"{done} steps", aspect="equal", xlim=(-3, 3), ylim=(-3, 3), xlabel="x")
places[0].set_ylabel("y")
places[0].legend(loc="upper left", fontsize=7, markerscale=3)
plt.show()

# %% [markdown]
# No cloud is left out, and few points are between them:

# %%
points = made_points(4000)
distance = np.linalg.norm(points[:, None] - centers, axis=2)
share = np.bincount(distance.argmin(1), minlength=CLOUDS) / len(points)
near = (distance.min(1) < 4 * SPREAD).mean()
print(f"near a cloud: {near:.0%}; share of each:", *(f"{s:.0%}" for s in share))
assert near > 0.75
assert share.min() > 0.04
assert step.recompilations == ["first call"]

# %% [markdown]
# ## A map of the digits
#
# A variational autoencoder squeezes each digit into two numbers and draws it from them. The encoder
# gives a small cloud on the map, its mean and its width, and the decoder draws from a point of this
# cloud. The loss is how far the drawing is from the digit, plus the Kullback-Leibler divergence of
# the cloud from a normal distribution around 0, so that the clouds fill one round patch: whatever
# is drawn from there looks like a digit.

# %%
digits = load_digits()
NOISE_OF_PIXELS = 0.5  # standard deviation of what the decoder need not draw


class Autoencoder(nn.Cell):
    def __init__(self):
        self.encoder = nn.Sequential(nn.Flatten(), mlp(64, 256, 128, 4))
        self.decoder = mlp(2, 128, 256, 64)

    def draw(self, places):
        return ops.reshape(self.decoder(places), (-1, 1, 8, 8))

    def construct(self, images):
        """Drawings, and the clouds' means and logarithms of the widths."""
        mean, width = ops.split(self.encoder(images), 2, axis=1)
        noise = ops.normal(mean.shape) if self.training else 0.0
        return self.draw(mean + ops.exp(width) * noise), mean, width


def negative_bound(out, images):
    """-log p(image), bounded from above, up to a constant: per digit."""
    drawn, mean, width = out
    apart = ops.sum((drawn - images) ** 2, axis=(1, 2, 3)) / (2 * NOISE_OF_PIXELS**2)
    divergence = ops.sum(0.5 * (mean**2 + ops.exp(2 * width) - 1) - width, axis=1)
    return ops.mean(apart + divergence)


ml.manual_seed(0)
net = Autoencoder()
vae_loader = DataLoader(digits.images, digits.images, size=64, seed=0)
rate = optim.warmup(50, optim.cosine(3e-3, 120 * len(vae_loader)))
model = Model(net, negative_bound, optim.AdamW(net.trainable_params(), lr=rate))
rows = model.fit(vae_loader, epochs=120, show=False)

# %% [markdown]
# Held-out digits are drawn better from their two numbers than from the two of a principal component
# analysis, the best that a linear map can do:

# %%
held_out = digits.test_images
drawn, mean, _ = model.predict(held_out)
flat = digits.images.reshape(-1, 64)
_, _, directions = np.linalg.svd(flat - flat.mean(0), full_matrices=False)
centred = held_out.reshape(-1, 64) - flat.mean(0)
linear = centred - centred @ directions[:2].T @ directions[:2]
left_over, linear = np.mean((drawn - held_out) ** 2), np.mean(linear**2)
print(f"mean squared error of a pixel: {left_over:.2f}, of two components {linear:.2f}")
assert left_over < 0.9 * linear

# %%
figure, places = plt.subplots(2, 12, figsize=(9, 1.8))
for (above, below), image, drawing in zip(places.T, held_out, drawn, strict=False):
    above.imshow(image[0], cmap="gray_r")
    below.imshow(drawing[0], cmap="gray_r")
for axes in places.flat:
    axes.set(xticks=[], yticks=[])
places[0, 0].set_ylabel("digit")
places[1, 0].set_ylabel("drawn")
plt.show()

# %% [markdown]
# It was never given the labels; the digits found their regions by themselves. Beside the map
# is what the decoder draws at its points, at equal steps of probability.

# %%
_, mean, _ = model.predict(digits.images)
SIDE, WHITE = 12, digits.images.min()
steps = [NormalDist().inv_cdf(q) for q in np.linspace(0.03, 0.97, SIDE)]
x, y = np.meshgrid(steps, steps[::-1])
drawings = net.draw(np.stack([x, y], -1).reshape(-1, 2).astype(np.float32)).asnumpy()
framed = np.pad(drawings[:, 0], ((0, 0), (1, 1), (1, 1)), constant_values=WHITE)
whole = framed.reshape(SIDE, SIDE, 10, 10).swapaxes(1, 2).reshape(10 * SIDE, 10 * SIDE)

figure, (left, right) = plt.subplots(1, 2, figsize=(9, 4.2))
shown = left.scatter(*mean.T, c=digits.labels, cmap="tab10", vmin=-0.5, vmax=9.5, s=8)
left.set(xlabel="first number", ylabel="second number", aspect="equal", xlim=(-3, 3), ylim=(-3, 3))
figure.colorbar(shown, ax=left, ticks=range(10), label="digit")
right.imshow(whole, cmap="gray_r", vmin=WHITE)
right.set(xticks=[], yticks=[], xlabel="first number", ylabel="second number")
plt.show()

# %% [markdown]
# That the map means something can be measured: the nearest digit on it is mostly of the same kind,
# where guessing is right once in ten times.

# %%
_, held_mean, _ = model.predict(held_out)
nearest = np.linalg.norm(held_mean[:, None] - mean, axis=2).argmin(1)
same = (digits.labels[nearest] == digits.test_labels).mean()
print(f"{same:.0%} of the held-out digits lie next to one of their kind")
assert same > 0.6
