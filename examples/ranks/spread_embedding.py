"""An embedding table spread over ranks: each has some of its rows, and a part of every batch.

The ranks gather all the indices that are asked for; each looks up those of its rows, and a
reduce-scatter gives every rank the rows that it asked for. The gradient takes the way back, and
arrives where the rows are kept. The number is the last loss, that of one rank, to rounding.
"""

import numpy as np

import miniml as ml
from miniml import Parameter, distributed, nn, ops, optim
from miniml.grad import value_and_grad

WORDS, FEATURES, LENGTH, BATCH = 240, 8, 5, 48


class SpreadEmbedding(nn.Cell):
    """Rows of a table of which this rank has the r-th part of n, for indices of its own (B, L)."""

    def __init__(self, table, group):
        self.weight, self.group = Parameter(np.split(table, group.size)[group.rank]), group

    def construct(self, indices):
        rows = self.weight.shape[0]
        own = distributed.all_gather(indices, self.group) - self.group.rank * rows
        here = ops.logical_and(own >= 0, own < rows)
        found = ops.gather(self.weight, ops.where(here, own, 0), 0)
        found = ops.where(ops.expand_dims(here, -1), found, 0.0)
        return distributed.reduce_scatter(found, self.group)


def main(group, steps=60):
    rng = np.random.default_rng(0)
    classes = rng.integers(0, 4, WORDS)  # of each word; that of a text is its most frequent one
    texts = rng.integers(0, WORDS, (steps, BATCH, LENGTH))
    labels = np.array([[np.bincount(classes[t], minlength=4).argmax() for t in b] for b in texts])
    embedding = SpreadEmbedding(rng.normal(size=(WORDS, FEATURES)).astype("f"), group)
    head, entropy = Parameter(np.zeros((FEATURES, 4), "f")), nn.CrossEntropyLoss()
    weights = [embedding.weight, head]
    optimizer = optim.Adam(weights, lr=0.05)

    @ml.jit
    def step(x, y):
        def loss(x, y):
            return entropy(ops.mean(embedding(x), axis=1) @ head, y) / group.size

        value, (rows, shared) = value_and_grad(loss, None, weights=weights)(x, y)
        optimizer.update([rows, distributed.all_reduce(shared, group=group)])
        return distributed.all_reduce(value, group=group)

    for x, y in zip(texts[:, group.rank :: group.size], labels[:, group.rank :: group.size]):
        last = step(x, y)
    return last.item()


if __name__ == "__main__":
    found = main(ranks := distributed.init())
    print(f"loss {found:.4f} on rank {ranks.rank}, which has 1/{ranks.size} of the table")
