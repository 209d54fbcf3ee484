"""A residual network (He et al. 2016) on digits that ship in a wheel: the share it gets right."""

import miniml as ml
from miniml import nn, ops, optim
from miniml.data import DataLoader, load_digits, random_crop
from miniml.train import Model, accuracy


class Residual(nn.Cell):
    """relu(x + f(x)), where f is two convolutions; a third fits x to other channels or strides."""

    def __init__(self, n_in, n, stride=1):
        super().__init__()
        self.path = nn.Sequential(
            nn.Conv2d(n_in, n, 3, stride, padding=1, bias=False), nn.BatchNorm2d(n), nn.ReLU(),
            nn.Conv2d(n, n, 3, padding=1, bias=False), nn.BatchNorm2d(n),
        )  # fmt: skip
        same = n_in == n and stride == 1
        self.skip = nn.Identity() if same else nn.Conv2d(n_in, n, 1, stride=stride, bias=False)

    def construct(self, x):
        return ops.relu(self.skip(x) + self.path(x))


def main(picture=None, epochs=8):
    ml.manual_seed(0)
    digits = load_digits()
    net = nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1, bias=False), nn.BatchNorm2d(16), nn.ReLU(),
        Residual(16, 16), Residual(16, 32, stride=2), Residual(32, 32),
        nn.GlobalAvgPool(), nn.Dense(32, 10),
    )  # fmt: skip
    loader = DataLoader(
        digits.images, digits.labels, size=64, seed=0, transform=random_crop(8, padding=1)
    )
    optimizer = optim.SGD(
        net.trainable_params(), lr=optim.one_cycle(0.1, epochs * len(loader)), momentum=0.9,
        weight_decay=5e-4,
    )  # fmt: skip
    model = Model(net, nn.CrossEntropyLoss(), optimizer, metrics=[accuracy()])
    test = DataLoader(digits.test_images, digits.test_labels, size=64, drop_last=False)
    rows = model.fit(loader, epochs=epochs, validation=test, show=False)
    if picture:
        draw(rows, picture)
    return model.evaluate(test)["accuracy"]


def draw(rows, picture):
    from matplotlib.figure import Figure

    axes = Figure(figsize=(4.8, 3.2), layout="constrained").subplots()
    axes.plot([row["epoch"] for row in rows], [row["val_accuracy"] for row in rows], "o-")
    axes.set(xlabel="epoch", ylabel="share of test digits right")
    axes.figure.savefig(picture, dpi=80)


if __name__ == "__main__":
    print(f"{main('resnet.png'):.1%} of the test digits are read right")
