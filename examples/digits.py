"""A small convolutional network reads handwritten digits: the share it gets right."""

import miniml as ml
from miniml import nn, optim
from miniml.data import DataLoader, load_digits, random_crop
from miniml.train import Model, accuracy


def network():
    return nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(16, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Dense(128, 64), nn.ReLU(), nn.Dropout(0.2), nn.Dense(64, 10),
    )  # fmt: skip


def main(picture=None, epochs=15):
    ml.manual_seed(0)
    digits = load_digits()
    loader = DataLoader(
        digits.images, digits.labels, size=64, seed=0, transform=random_crop(8, padding=1)
    )
    rate = optim.cosine(0.003, len(loader) * epochs)
    net = network()
    optimizer = optim.AdamW(net.trainable_params(), lr=rate, weight_decay=0.01)
    model = Model(net, nn.CrossEntropyLoss(label_smoothing=0.05), optimizer, metrics=[accuracy()])
    model.fit(loader, epochs=epochs, show=False)
    guess = model.predict(digits.test_images).argmax(1)
    right = guess == digits.test_labels
    if picture:
        draw(digits, guess, right, picture)
    return float(right.mean())


def draw(digits, guess, right, picture):
    """The first digits that it misread, and some that it got right."""
    from matplotlib.figure import Figure

    rows = [*(~right).nonzero()[0][:12], *right.nonzero()[0][:12]][:12]
    axes = Figure(figsize=(4.8, 2.4), layout="constrained").subplots(2, 6)
    for ax, i in zip(axes.flat, rows):
        ax.imshow(digits.test_images[i, 0], cmap="gray_r")
        ax.set_title(f"{digits.test_labels[i]} read as {guess[i]}", fontsize=6)
        ax.axis("off")
    axes.flat[0].figure.savefig(picture, dpi=80)


if __name__ == "__main__":
    print(f"{main('digits.png'):.1%} of the test digits are read right")
