"""A graph network by segment sums (Kipf, Welling 2017): the share of nodes whose group it finds.

Two hundred people in four groups know each other more often within a group; twelve say where they
belong. What neighbours say travels along the edges, which are two arrays of indices.
"""

import numpy as np

import miniml as ml
from miniml import nn, ops, optim

PEOPLE, GROUPS, TOLD = 200, 4, 12


def friendships(rng):
    """Groups, and the two ends of each edge, both directions and each node with itself."""
    groups = np.repeat(np.arange(GROUPS), PEOPLE // GROUPS)
    chance = np.where(groups[:, None] == groups, 0.12, 0.012)
    known = np.triu(rng.uniform(size=chance.shape) < chance, 1)
    ends = np.nonzero(known | known.T | np.eye(PEOPLE, dtype=bool))
    return groups, *ends


class GraphLayer(nn.Cell):
    """Each node's new features: a dense layer of the weighted sum of its neighbours'."""

    def __init__(self, n_in, n):
        super().__init__()
        self.dense = nn.Dense(n_in, n)

    def construct(self, x, source, target, weight):
        messages = x[source] * weight[:, None]
        return self.dense(ops.segment_sum(messages, target, PEOPLE))


class Net(nn.Cell):
    def __init__(self, width=16):
        super().__init__()
        self.first, self.second = GraphLayer(PEOPLE, width), GraphLayer(width, GROUPS)

    def construct(self, x, *edges):
        return self.second(ops.relu(self.first(x, *edges)), *edges)


def main(picture=None, steps=200):
    ml.manual_seed(0)
    rng = np.random.default_rng(0)
    groups, source, target = friendships(rng)
    degree = np.bincount(target, minlength=PEOPLE)
    weight = (degree[source] * degree[target]) ** -0.5
    told = np.concatenate(
        [rng.choice(np.nonzero(groups == g)[0], TOLD // GROUPS, replace=False) for g in range(4)]
    )
    net = Net()
    step = ml.train_step(
        net, lambda out, labels: ops.cross_entropy(out[told], labels),
        optim.Adam(net.trainable_params(), lr=0.02, weight_decay=5e-3),
    )  # fmt: skip
    graph = np.eye(PEOPLE, dtype=np.float32), source, target, weight.astype(np.float32)
    for _ in range(steps):
        step(graph, groups[told])
    out = net(*graph).asnumpy()
    if picture:
        draw(out, groups, told, picture)
    return float((out.argmax(1) == groups).mean())


def draw(out, groups, told, picture):
    from matplotlib.figure import Figure

    flat = np.linalg.svd(out - out.mean(0), full_matrices=False)
    x, y = (flat[0] * flat[1])[:, :2].T
    axes = Figure(figsize=(3.6, 3.2), layout="constrained").subplots()
    axes.scatter(x, y, c=groups, s=12, cmap="tab10", vmax=9)
    axes.plot(x[told], y[told], "ko", mfc="none", label="told")
    axes.legend(fontsize=7)
    axes.figure.savefig(picture, dpi=80)


if __name__ == "__main__":
    print(f"{main('gnn.png'):.1%} of the people are put into their group")
