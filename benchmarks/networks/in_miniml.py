"""The networks in miniml, as its users write them."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import miniml as ml
from benchmarks.networks.problems import LR, Problem, blocks
from miniml import nn, ops, optim

VERSION = f"miniml {ml.__version__}"


def mlp(p: Any, x: Any) -> Any:
    count = len(p) // 2
    for i in range(count):
        x = x @ p[f"w{i}"] + p[f"b{i}"]
        x = ops.relu(x) if i < count - 1 else x
    return x


def lenet(p: Any, x: Any) -> Any:
    for i in range(2):
        x = ops.max_pool2d(ops.relu(ops.conv2d(x, p[f"k{i}"], p[f"c{i}"])), 2)
    x = ops.reshape(x, (x.shape[0], -1))
    for i in range(3):
        x = x @ p[f"w{i}"] + p[f"b{i}"]
        x = ops.relu(x) if i < 2 else x
    return x


def resnet(p: Any, x: Any, again: bool = False) -> Any:
    def norm(x: Any, name: str) -> Any:
        return ops.batch_norm(x, p["g" + name], p["h" + name], training=True)[0]

    def block(x: Any, i: int) -> Any:
        stride = 2 if f"s{i}" in p else 1
        y = ops.relu(norm(ops.conv2d(x, p[f"k{i}a"], stride=stride, padding=1), f"{i}a"))
        y = norm(ops.conv2d(y, p[f"k{i}b"], padding=1), f"{i}b")
        x = ops.conv2d(x, p[f"s{i}"], stride=stride) if stride == 2 else x
        return ops.relu(x + y)

    x = ops.relu(norm(ops.conv2d(x, p["k"], padding=1), ""))
    for i in range(blocks(p)):
        x = ml.recompute(partial(block, i=i))(x) if again else block(x, i)
    return ops.mean(x, (2, 3)) @ p["w"] + p["b"]


def cell(p: Any, carry: Any, x: Any) -> Any:
    """One step of the LSTM: the new (h, c), and h."""
    h, c = carry
    gates = ops.gather(p["e"], x) @ p["wx"] + h @ p["wh"] + p["b"]
    i, g, o, f = ops.split(gates, 4, 1)
    c = ops.sigmoid(f) * c + ops.sigmoid(i) * ops.tanh(g)
    h = ops.sigmoid(o) * ops.tanh(c)
    return (h, c), h


def lstm(p: Any, x: Any) -> Any:
    zero = ops.zeros((x.shape[1], p["wh"].shape[0]))
    carry, outs = (zero, zero), []
    for t in range(x.shape[0]):
        carry, h = cell(p, carry, x[t])
        outs.append(h)
    return ops.concat(outs) @ p["w"] + p["c"]


def scanned(p: Any, x: Any) -> Any:
    zero = ops.zeros((x.shape[1], p["wh"].shape[0]))
    outs, _ = ops.scan(lambda carry, xt: cell(p, carry, xt), (zero, zero), x)
    return ops.reshape(outs, (-1, outs.shape[2])) @ p["w"] + p["c"]


def transformer(p: Any, x: Any, again: bool = False) -> Any:
    batch, tokens = x.shape
    width = p["e"].shape[1]

    def heads(x: Any) -> Any:
        return ops.transpose(ops.reshape(x, (batch, tokens, 4, width // 4)), (0, 2, 1, 3))

    def block(h: Any, i: int) -> Any:
        a = ops.layer_norm(h, p[f"g{i}a"], p[f"h{i}a"]) @ p[f"qkv{i}"]
        q, k, v = map(heads, ops.split(a, 3, 2))
        a = ops.scaled_dot_product_attention(q, k, v, is_causal=True)
        h = h + ops.reshape(ops.transpose(a, (0, 2, 1, 3)), (batch, tokens, width)) @ p[f"o{i}"]
        a = ops.layer_norm(h, p[f"g{i}b"], p[f"h{i}b"])
        return h + ops.gelu(a @ p[f"u{i}"] + p[f"bu{i}"], True) @ p[f"d{i}"] + p[f"bd{i}"]

    h = ops.gather(p["e"], x) + p["p"]
    for i in range(len(p) // 10):
        h = ml.recompute(partial(block, i=i))(h) if again else block(h, i)
    return ops.reshape(h @ p["w"], (batch * tokens, -1))


NETWORKS = {
    "mlp": mlp, "lenet": lenet, "resnet": resnet, "lstm": lstm, "scanned": scanned,
    "transformer": transformer,
}  # fmt: skip


def function(problem: Problem) -> Callable[[Any, Any], Any]:
    """The logits of weights and a batch."""
    network = NETWORKS[problem.network]
    return partial(network, again=True) if problem.again else network


def training(problem: Problem) -> Callable[[], Any]:
    """One step of SGD; it returns the loss."""
    p = {name: ml.Parameter(w, name=name) for name, w in problem.weights.items()}
    network = function(problem)
    step = ml.train_step(
        lambda x: network(p, x), nn.CrossEntropyLoss(), optim.SGD(list(p.values()), lr=LR)
    )
    x, y = ml.Tensor(problem.x), ml.Tensor(problem.y)
    return lambda: step(x, y)


def inference(problem: Problem) -> Callable[[], Any]:
    """The logits."""
    p = {name: ml.Parameter(w, name=name) for name, w in problem.weights.items()}
    network, x = function(problem), ml.Tensor(problem.x)
    run = ml.jit(lambda x: network(p, x))
    return lambda: run(x)


def threads(count: int) -> None:
    """Compute on at most that many threads."""
    ml.set_context(threads=count)
