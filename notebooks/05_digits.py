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
# # 05. What a network for digits sees
#
# At the end you will have a network that reads 98 of 100 handwritten digits it has never seen, and
# pictures of what it is made of: its filters, what they make of a digit, which digits it takes for
# which, and the pixels that misled it. It trains in seconds, with `train.Model`; a loop of your own
# is in `notebooks/03_training.py`.

# %%
import matplotlib.pyplot as plt
import numpy as np

import miniml as ml
from miniml import nn, ops, optim, viz
from miniml.data import DataLoader, load_digits, stratified_split
from miniml.grad import grad
from miniml.train import Model, accuracy, confusion_matrix, top_k

plt.rcParams.update({"figure.dpi": 90, "figure.constrained_layout.use": True})


# %% [markdown]
# ## The data
#
# 1,797 digits of 8 x 8 pixels, which ship inside scikit-learn. Half of each class is held out: that
# leaves few to learn from, but mistakes to look at.

# %%
digits = load_digits()
images = np.concatenate([digits.images, digits.test_images])
labels = np.concatenate([digits.labels, digits.test_labels])
learnt, held = stratified_split(labels, 0.5, seed=0)
images, test_images = images[learnt], images[held]
labels, test_labels = labels[learnt], labels[held]
print(images.shape, test_images.shape, images.dtype)

# %%
figure, places = plt.subplots(3, 12, figsize=(9, 2.7))
for axes, image, label in zip(places.flat, images, labels, strict=False):
    axes.imshow(image[0], cmap="gray_r")
    axes.set_title(label, fontsize=9)
    axes.axis("off")
plt.show()

# %% [markdown]
# ## The network
#
# Two convolutions of 3 x 3 pixels, each followed by a ReLU; the largest of each 2 x 2 pixels; ten
# scores. Dropout keeps it from learning the training digits by heart.

# %%
ml.manual_seed(0)
net = nn.Sequential(
    nn.Conv2d(1, 16, 3, padding=1),
    nn.ReLU(),
    nn.Conv2d(16, 32, 3, padding=1),
    nn.ReLU(),
    nn.MaxPool2d(2),
    nn.Flatten(),
    nn.Dropout(0.25),
    nn.Dense(32 * 4 * 4, 10),
)

# %% [markdown]
# ## Training
#
# `Model` is a network with what it learns from. The learning rate is a function of the step; the
# metrics are counted on the outputs that training computes anyway, and on the held-out digits.

# %%
EPOCHS = 15
train = DataLoader(images, labels, size=32, seed=0)
held_out = DataLoader(test_images, test_labels, size=120)

rate = optim.warmup(45, optim.cosine(3e-3, EPOCHS * len(train)))
model = Model(
    net,
    nn.CrossEntropyLoss(label_smoothing=0.05),
    optim.AdamW(net.trainable_params(), lr=rate),
    metrics=[accuracy(), top_k(2), confusion_matrix(10)],
)
rows = model.fit(train, epochs=EPOCHS, validation=held_out, show=False)

judged = model.evaluate(held_out)
print(f"{judged['accuracy']:.1%} right; {judged['top_2']:.1%} among its first two")
assert judged["accuracy"] > 0.97
assert judged["top_2"] > 0.98

# %% [markdown]
# At first it reads the held-out digits better than those it learns from: in training, dropout takes
# a quarter of what it sees.

# %%
figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3))
epochs = np.arange(1, EPOCHS + 1)
for key, name in (("", "training"), ("val_", "held out")):
    left.plot(epochs, [row[f"{key}loss"] for row in rows], "o-", ms=3, label=name)
    right.plot(epochs, [100 * row[f"{key}accuracy"] for row in rows], "o-", ms=3, label=name)
left.set(xlabel="epoch", ylabel="loss", ylim=(0.3, 1))
right.set(xlabel="epoch", ylabel="% right", ylim=(90, 100.5))
left.legend()
plt.show()

# %% [markdown]
# ## Filters
#
# The sixteen filters of the first layer. Red pixels count for, blue ones against: a filter with red
# above and blue below looks for the lower edge of a stroke.

# %%
filters = net[0].weight.asnumpy()[:, 0]
limit = np.abs(filters).max()
figure, places = plt.subplots(2, 8, figsize=(9, 2.5))
for axes, weight in zip(places.flat, filters, strict=True):
    shown = axes.imshow(weight, cmap="RdBu_r", vmin=-limit, vmax=limit)
    axes.axis("off")
figure.colorbar(shown, ax=places, label="weight")
plt.show()

# %% [markdown]
# ## Feature maps
#
# A slice of a Sequential is a network, too: `net[:2]` ends after the first ReLU, `net[:5]` after
# the pooling. Bright is where a filter found what it looks for in this 6.

# %%
digit = test_images[test_labels == 6][:1]
viz.feature_maps(net[:2](digit).asnumpy()[0], "After the first convolution and ReLU")

# %%
viz.feature_maps(net[:5](digit).asnumpy()[0], "After the second one and the pooling")

# %% [markdown]
# ## What it takes for what
#
# The metric has counted it: rows are what a digit is, columns what it was read as.

# %%
counts = judged["confusion_matrix"]
assert counts.sum() == len(test_labels)
assert counts.trace() / counts.sum() == judged["accuracy"]

viz.confusion_matrix(counts)

# %% [markdown]
# ## The errors, and the pixels that misled it
#
# Here is each digit that was misread. Which pixels speak for the wrong reading? How far the wrong
# score is above the right one has a gradient by the *image*, a number for each pixel. Darker ink at
# red pixels, and less at blue ones, make the wrong reading more likely.

# %%
net.set_train(False)
scores = model.predict(test_images)
wrong = np.flatnonzero(scores.argmax(1) != test_labels)
misread, truth, read = test_images[wrong], test_labels[wrong], scores[wrong].argmax(1)


def lead(images):
    """How far the wrong score is above the right one, summed over the images."""
    out, row = net(images), np.arange(len(wrong))
    return ops.sum(out[row, read] - out[row, truth])


slope = grad(lead)(misread).asnumpy()
assert slope.shape == misread.shape

figure, places = plt.subplots(2, len(wrong), figsize=(9, 3), squeeze=False)
limit = np.abs(slope).max()
for i, (above, below) in enumerate(places.T):
    above.imshow(misread[i, 0], cmap="gray_r")
    above.set_title(f"a {truth[i]},\nread as {read[i]}", fontsize=9)
    shown = below.imshow(slope[i, 0], cmap="RdBu_r", vmin=-limit, vmax=limit)
    above.axis("off")
    below.axis("off")
plt.show()

# %% [markdown]
# If the picture is right, changing the images against it must help. Twenty small steps do: then all
# are read correctly, and each has changed less than it differs from the most similar digit that was
# learnt.

# %%
repaired = misread.copy()
for _ in range(20):
    slope = grad(lead)(repaired).asnumpy()
    repaired -= 0.1 * slope / np.linalg.norm(slope, axis=(2, 3), keepdims=True)


def distance(x, y):
    """The root of the mean squared difference of pixels, whose standard deviation is 1."""
    return np.sqrt(((x - y) ** 2).mean((-3, -2, -1)))


change, nearest = distance(repaired, misread), distance(misread[:, None], images).min(1)
print(f"changed by {change.max():.2f} at most; the most similar digit is {nearest.min():.2f} away")
assert (net(repaired).asnumpy().argmax(1) == truth).all()
assert (change < nearest).all()
