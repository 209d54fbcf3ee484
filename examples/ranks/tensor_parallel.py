"""Tensor parallel layers: products of matrices divided among ranks, by columns, then by rows.

Of the hidden layer each rank computes some units, from its columns of the first matrix; by its rows
of the second it has a part of the outputs, which one all-reduce adds up (Megatron: Shoeybi and
others 2019). The number is the last loss, which is that of one rank, to rounding.
"""

import numpy as np

import miniml as ml
from miniml import Parameter, distributed, nn, ops, optim
from miniml.data import load_digits


class ColumnDense(nn.Cell):
    """Some columns of a Dense: x, equal on all ranks, to this rank's part of the outputs."""

    def __init__(self, whole, group):
        part = np.split(whole, group.size, axis=1)[group.rank]
        self.weight, self.bias = Parameter(part), Parameter(0 * part[0])

    def construct(self, x):
        return ops.matmul(x, self.weight) + self.bias


class RowDense(nn.Cell):
    """Some rows of a Dense: this rank's part of x to all outputs. The bias is rank 0's alone."""

    def __init__(self, whole, group):
        part = np.split(whole, group.size)[group.rank]
        self.weight, self.group = Parameter(part), group
        self.bias = None if group.rank else Parameter(0 * part[0])

    def construct(self, x):
        part = ops.matmul(x, self.weight)
        biased = part if self.bias is None else part + self.bias
        return distributed.all_reduce(biased, group=self.group)


def main(group, steps=60):
    rng = np.random.default_rng(0)  # equal on all ranks, which keep their parts
    first, second = (rng.normal(size=s, scale=0.1).astype("f") for s in ((64, 48), (48, 10)))
    net = nn.Sequential(ColumnDense(first, group), nn.ReLU(), RowDense(second, group))
    entropy = nn.CrossEntropyLoss()

    def loss(out, y):
        """Every rank has the whole loss; gradients are those of the ranks' sum."""
        return entropy(out, y) / group.size

    step = ml.train_step(net, loss, optim.SGD(net.trainable_params(), lr=0.1, momentum=0.9))
    digits = load_digits()
    for i in range(steps):
        rows = slice(96 * (i % 14), 96 * (i % 14) + 96)
        last = step(digits.images.reshape(-1, 64)[rows], digits.labels[rows])
    return last.item() * group.size


if __name__ == "__main__":
    found = main(ranks := distributed.init())
    print(f"loss {found:.4f} on rank {ranks.rank} of {ranks.size}")
