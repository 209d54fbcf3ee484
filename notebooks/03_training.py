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
# # 03. Training with a loop of your own
#
# At the end you will have a small convolutional network that reads handwritten digits, and a loop
# with all that a real run has: a schedule, clipping, validation, a picture, and a checkpoint from
# which it goes on with the same bits. The guide is `docs/training.md`.

# %%
import math
from pathlib import Path
from tempfile import TemporaryDirectory

import matplotlib.pyplot as plt
import numpy as np

import miniml as ml
from miniml import nn, ops, optim
from miniml.data import load_digits, minibatches
from miniml.grad import value_and_grad

# %% [markdown]
# ## Data
#
# The digits ship inside scikit-learn: 1,797 images of 8 x 8 pixels, 360 of them held out. They are
# float32 already. NumPy's default is float64, which would make the whole network compute in it.

# %%
digits = load_digits()
train = digits.images[:1200], digits.labels[:1200]
validation = digits.images[1200:], digits.labels[1200:]
digits.images.shape, digits.images.dtype, digits.labels.dtype

# %% [markdown]
# ## Network
#
# A cell has its layers as attributes, and `construct` says what they compute.


# %%
class Block(nn.Cell):
    """Convolution, batch norm, ReLU; half as many rows and columns come out."""

    def __init__(self, channels, out_channels):
        self.conv = nn.Conv2d(channels, out_channels, 3, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(out_channels)
        self.pool = nn.MaxPool2d(2)

    def construct(self, x):
        return self.pool(ops.relu(self.norm(self.conv(x))))


def make():
    """The network and its optimizer, as they are before training."""
    net = nn.Sequential(Block(1, 8), Block(8, 16), nn.Flatten(), nn.Dropout(0.2), nn.Dense(64, 10))
    return net, optim.SGD(net.trainable_params(), lr=0.1, momentum=0.9, weight_decay=1e-4)


ml.manual_seed(0)  # before the layers are made: they draw their weights
net, optimizer = make()
net

# %% [markdown]
# ## One step
#
# `value_and_grad` with `argnums=None` and `weights=` gives the gradients by the parameters, as a
# tuple. What is done to them before the update is ours to say: here their global norm is limited.


# %%
def clip(gradients, limit):
    """The gradients, scaled down together where their global norm is above the limit."""
    norm = ops.sqrt(sum(ops.sum(g * g) for g in gradients))
    scale = ops.minimum(limit / (norm + 1e-6), 1.0)
    return [g * scale for g in gradients], norm


# %%
def make_step(net, optimizer, limit=2.0):
    loss_fn = nn.CrossEntropyLoss(label_smoothing=0.05)
    gradient = value_and_grad(
        lambda x, y: loss_fn(net(x), y), argnums=None, weights=optimizer.params
    )

    @ml.jit
    def step(x, y):
        loss, gradients = gradient(x, y)
        gradients, norm = clip(gradients, limit)
        optimizer.update(gradients)
        return loss, norm

    return step


# %% [markdown]
# ## The loop
#
# The learning rate rises for one epoch and then falls along a cosine. It is state, so setting it
# compiles nothing anew. In evaluation dropout is off and batch norm uses its running statistics.

# %%
EPOCHS, SIZE = 8, 40
STEPS = len(train[0]) // SIZE


def rate(done, peak=0.1):
    """The learning rate after so many steps."""
    if done < STEPS:
        return peak * (done + 1) / STEPS
    return 0.5 * peak * (1 + math.cos(math.pi * (done - STEPS) / (STEPS * (EPOCHS - 1))))


def evaluate(net, images, labels):
    """The share of digits that are read right."""
    net.set_train(False)
    right = net(images).asnumpy().argmax(1) == labels
    net.set_train(True)
    return right.mean()


# %%
def run_epoch(net, optimizer, step, epoch):
    """Loss and norm of the gradient at each step of an epoch."""
    history = []
    for i, batch in enumerate(minibatches(*train, size=SIZE, seed=0, epoch=epoch)):
        optimizer.lr = rate(epoch * STEPS + i)
        history.append([float(value) for value in step(*batch)])
    return history


# %% [markdown]
# All that the run needs to go on stands in one dict, and is saved to one file after each epoch.

# %%
folder = TemporaryDirectory()
step = make_step(net, optimizer)
run = {"net": net, "optimizer": optimizer, "random": ml.random_state, "epoch": 0}
history, shares = [], []
while run["epoch"] < EPOCHS:
    history += run_epoch(net, optimizer, step, run["epoch"])
    shares.append(evaluate(net, *validation))
    run["epoch"] += 1
    ml.save_checkpoint(run, Path(folder.name) / f"epoch{run['epoch']}.safetensors")
    print(f"epoch {run['epoch']}: loss {history[-1][0]:.3f}, {shares[-1]:.1%} right")

# %% [markdown]
# The step was compiled once:

# %%
step.recompilations

# %%
losses, norms = np.array(history).T
figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3), layout="constrained")
left.semilogy(losses, lw=1, label="loss")
left.semilogy(norms, lw=0.7, alpha=0.6, label="norm of the gradient")
left.axhline(2.0, color="gray", lw=0.7, ls="--", label="limit of the norm")
left.set_xlabel("step")
left.legend()
right.plot(np.arange(1, EPOCHS + 1), 100 * np.array(shares), "o-")
right.set_xlabel("epoch")
right.set_ylabel("% right in validation")
plt.show()

# %% [markdown]
# ## Going on from a checkpoint
#
# Suppose the machine had stopped after the fourth epoch. A new process makes network and optimizer
# again, loads the file, and goes on. Here other initial weights and another random stream stand for
# the new process; loading replaces both.

# %%
ml.manual_seed(1)
resumed, its_optimizer = make()
run = {"net": resumed, "optimizer": its_optimizer, "random": ml.random_state, "epoch": 0}
ml.load_checkpoint(Path(folder.name) / "epoch4.safetensors", run)
its_step = make_step(resumed, its_optimizer)
for epoch in range(run["epoch"], EPOCHS):
    run_epoch(resumed, its_optimizer, its_step, epoch)

pairs = zip(net.get_parameters(), resumed.get_parameters(), strict=True)
assert all(np.array_equal(a, b) for a, b in pairs)
print("the same bits")

# %% [markdown]
# Weights and running statistics are equal to the last bit. The test images have not been looked at
# so far:

# %%
print(f"{evaluate(resumed, digits.test_images, digits.test_labels):.1%} of the test digits right")
folder.cleanup()
