"""An LSTM learns to write like a text, letter by letter: the loss of a letter, in nats."""

import codecs
import contextlib
import importlib
import io

import numpy as np

import miniml as ml
from miniml import nn, ops, optim

LENGTH, BATCH = 32, 16


def text():
    """The aphorisms that Python carries, as plain text."""
    with contextlib.redirect_stdout(io.StringIO()):
        this = importlib.import_module("this")  # prints them, too
    return codecs.decode(this.s, "rot13")


class Writer(nn.Cell):
    def __init__(self, letters, width=96):
        super().__init__()
        self.embed = nn.Embedding(letters, 24)
        self.lstm = nn.LSTM(24, width, batch_first=True)
        self.out = nn.Dense(width, letters)

    def construct(self, tokens, state=None):
        h, state = self.lstm(self.embed(tokens), state)
        return self.out(h), state


def main(picture=None, steps=400):
    ml.manual_seed(0)
    said = text()
    letters = sorted(set(said))
    codes = np.array([letters.index(c) for c in said])
    net = Writer(len(letters))

    def loss(out, labels):
        return ops.cross_entropy(ops.reshape(out[0], (-1, len(letters))), labels.reshape(-1))

    optimizer = optim.Adam(net.trainable_params(), lr=optim.cosine(0.01, steps))
    step = ml.train_step(net, loss, optimizer, clip=1.0)
    rng, losses = np.random.default_rng(0), []
    for _ in range(steps):
        at = rng.integers(0, len(codes) - LENGTH - 1, BATCH)[:, None] + np.arange(LENGTH + 1)
        losses.append(float(step(codes[at[:, :-1]], codes[at[:, 1:]])))
    if picture:
        draw(losses, write(net, letters), picture)
    return float(np.mean(losses[-20:]))


def write(net, letters, start="Beautiful ", count=120):
    """The likeliest continuation, one letter at a time: the state carries what was read."""
    net.set_train(False)
    run = ml.jit(net)
    said, state = start, None
    scores, state = net(np.array([[letters.index(c) for c in start]]))
    for _ in range(count):
        token = int(scores[0, -1].asnumpy().argmax())
        said += letters[token]
        scores, state = run(np.array([[token]]), state)
    return said


def draw(losses, said, picture):
    from matplotlib.figure import Figure

    axes = Figure(figsize=(4.8, 3.2), layout="constrained").subplots()
    axes.plot(losses)
    axes.set(xlabel="step", ylabel="loss, nats a letter", ylim=(0, None))
    axes.text(0.25, 0.45, said, transform=axes.transAxes, fontsize=6, family="monospace")
    axes.figure.savefig(picture, dpi=80)


if __name__ == "__main__":
    print(f"loss {main('char_lstm.png'):.3f} nats a letter")
