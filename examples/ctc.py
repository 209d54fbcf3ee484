"""CTC (Graves et al. 2006) reads rows of digits without being told where each stands.

A picture is eight pixels high and shows three to five digits side by side, with gaps. The number is
the share of letters that need no correction: 1 - edit distance / length.
"""

import numpy as np

import miniml as ml
from miniml import nn, ops, optim
from miniml.data import load_digits

WIDTH, MOST = 64, 5


def rows(rng, images, labels, count):
    """Pictures (count, WIDTH, 8), a column a step; targets (count, MOST) and their lengths."""
    pictures = np.full((count, 8, WIDTH), images.min(), np.float32)
    targets, lengths = np.zeros((count, MOST), np.int64), rng.integers(3, MOST + 1, count)
    for i, length in enumerate(lengths):
        chosen, at = rng.integers(0, len(images), length), 0
        for j, digit in enumerate(chosen):
            at += rng.integers(0, 4)
            pictures[i, :, at : at + 8] = images[digit, 0]
            targets[i, j], at = labels[digit], at + 8
    return pictures.transpose(0, 2, 1), targets, lengths


class Reader(nn.Cell):
    def __init__(self):
        super().__init__()
        self.look = nn.Conv1d(8, 64, 7, padding=3)
        self.read = nn.LSTM(64, 64, bidirectional=True, batch_first=True)
        self.out = nn.Dense(128, 11)

    def construct(self, x):
        seen = ops.relu(self.look(ops.transpose(x, (0, 2, 1))))
        return self.out(self.read(ops.transpose(seen, (0, 2, 1)))[0])


def read(scores):
    """The likeliest class of each column, runs merged, blanks dropped; digit d is class d + 1."""
    best = scores.argmax(-1)
    return [[int(c) - 1 for c, b in zip(row, np.r_[0, row]) if c not in (0, b)] for row in best]


def distance(a, b):
    """Insertions, deletions and replacements from a to b (Levenshtein 1966)."""
    before = list(range(len(b) + 1))
    for i, x in enumerate(a, 1):
        now = [i]
        for j, y in enumerate(b, 1):
            now.append(min(before[j] + 1, now[-1] + 1, before[j - 1] + (x != y)))
        before = now
    return before[-1]


def main(picture=None, steps=400):
    ml.manual_seed(0)
    digits, rng, net = load_digits(), np.random.default_rng(0), Reader()

    def loss(scores, labels):
        log_p = ops.transpose(ops.log_softmax(scores), (1, 0, 2))
        return ops.ctc_loss(log_p, labels[0] + 1, np.full(len(scores), WIDTH), labels[1])

    optimizer = optim.Adam(net.trainable_params(), lr=optim.one_cycle(0.01, steps))
    step = ml.train_step(net, loss, optimizer, clip=1.0)
    for _ in range(steps):
        x, targets, lengths = rows(rng, digits.images, digits.labels, 32)
        step(x, (targets, lengths))
    x, targets, lengths = rows(rng, digits.test_images, digits.test_labels, 200)
    scores = net(x).asnumpy()
    pairs = [(list(t[:n]), r) for t, n, r in zip(targets, lengths, read(scores))]
    if picture:
        draw(x[0], ops.softmax(scores[0]).asnumpy(), picture)
    return 1 - sum(distance(*pair) for pair in pairs) / int(lengths.sum())


def draw(x, probability, picture):
    from matplotlib.figure import Figure

    above, below = Figure(figsize=(4.8, 2.8), layout="constrained").subplots(2, 1, sharex=True)
    above.imshow(x.T, cmap="gray_r", aspect="auto")
    for digit in range(1, 11):
        if probability[:, digit].max() > 0.3:
            below.plot(probability[:, digit], label=str(digit - 1))
    below.set(xlabel="column", ylabel="probability")
    below.legend(fontsize=7)
    above.figure.savefig(picture, dpi=80)


if __name__ == "__main__":
    print(f"{main('ctc.png'):.1%} of the letters need no correction")
