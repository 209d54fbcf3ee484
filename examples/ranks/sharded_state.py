"""Weights and Adam's state divided among the ranks: each keeps and updates 1/n of them.

A step gathers the weights, and the gradient of that, its transpose, is a reduce-scatter: it leaves
each rank the sum of all ranks' gradients for the part that it keeps (ZeRO: Rajbhandari and others
2020). The number is the last loss, which is that of one rank, to rounding.
"""

import numpy as np

import miniml as ml
from miniml import Parameter, distributed, nn, ops, optim
from miniml.data import load_digits
from miniml.grad import value_and_grad

BATCH = 96


def main(group, steps=60):
    net = nn.Sequential(nn.Dense(64, 50), nn.Tanh(), nn.Dense(50, 10))
    names, whole = zip(*net.parameters_dict().items())
    ends = np.cumsum([w.size for w in whole])
    flat = np.random.default_rng(0).normal(size=ends[-1], scale=0.1).astype("f")
    flat = np.pad(flat, (0, -len(flat) % group.size))  # n equal parts
    kept = Parameter(np.split(flat, group.size)[group.rank], name="kept")
    optimizer = optim.Adam([kept], lr=0.01, eps=1e-5)  # its moments have the size of `kept`
    loss_fn = nn.CrossEntropyLoss()

    def loss(x, y):
        """This rank's share of the mean over the batch: gradients are those of the ranks' sum."""
        every = distributed.all_gather(kept, group)
        weights = {
            name: ops.reshape(every[end - w.size : end], w.shape)
            for name, w, end in zip(names, whole, ends)
        }
        return loss_fn(nn.functional_call(net, weights, x), y) / group.size

    @ml.jit
    def step(x, y):
        value, (gradient,) = value_and_grad(loss, None, weights=[kept])(x, y)
        optimizer.update([gradient])
        return distributed.all_reduce(value, group=group)

    digits = load_digits()
    for i in range(steps):
        start = BATCH * (i % 14)
        rows = slice(start + group.rank, start + BATCH, group.size)
        last = step(digits.images.reshape(-1, 64)[rows], digits.labels[rows])
    return last.item()


if __name__ == "__main__":
    ranks = distributed.init()
    found = main(ranks)
    if ranks.rank == 0:
        print(f"loss {found:.4f} on {ranks.size} ranks, which keep 1/{ranks.size} each")
