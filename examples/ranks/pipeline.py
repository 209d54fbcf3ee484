"""Pipeline stages: each rank has some layers, and parts of the batch pass from rank to rank.

At every tick each rank sends what it made at the last one to the next rank, so that ranks work on
different parts at once; backwards the gradient of `send_recv` passes them the other way (GPipe:
Huang and others 2019). The number is the last loss, which is that of one rank, to rounding.
"""

import numpy as np

import miniml as ml
from miniml import Parameter, distributed, nn, ops, optim
from miniml.data import load_digits

LAYERS, WIDTH, PARTS = 4, 64, 6  # ranks: a divisor of LAYERS


def main(group, steps=60):
    weights = np.random.default_rng(0).normal(size=(LAYERS, WIDTH, WIDTH), scale=0.15).astype("f")
    own = [Parameter(w) for w in np.split(weights, group.size)[group.rank]]
    last_rank = group.size - 1
    onwards = [(rank, rank + 1) for rank in range(last_rank)]
    first = float(group.rank == 0)
    entropy = nn.CrossEntropyLoss()

    def forward(x):
        """The outputs of the last stage for all parts, in their order; of other ranks what nobody
        reads."""
        parts = ops.split(x, PARTS)
        received, outs = ops.zeros_like(parts[0]), []
        for tick in range(PARTS + last_rank):
            # Read on rank 0 too, so that all ranks make the same calls backwards.
            out = first * parts[min(tick, PARTS - 1)] + (1.0 - first) * received
            for weight in own:
                out = ops.tanh(ops.matmul(out, weight))
            outs.append(out)
            received = distributed.send_recv(out, onwards, group)
        return ops.concat(outs[last_rank:])

    def loss(out, y):
        """The loss on the last rank, 0 on the others; the same collectives on all."""
        return entropy(out[:, :10] * 5.0, y) * float(group.rank == last_rank)

    step = ml.train_step(forward, loss, optim.SGD(own, lr=0.1, momentum=0.9))
    digits = load_digits()
    for i in range(steps):
        rows = slice(96 * (i % 14), 96 * (i % 14) + 96)
        last = step(digits.images.reshape(-1, 64)[rows], digits.labels[rows])
    return distributed.all_reduce(last, group=group).item()


if __name__ == "__main__":
    ranks = distributed.init()
    found = main(ranks)
    if ranks.rank == 0:
        print(f"loss {found:.4f} with {LAYERS} layers on {ranks.size} ranks")
