"""The networks in PyTorch, eager, as most of its users run them."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch.utils.checkpoint import checkpoint

from benchmarks.networks.problems import LR, Problem, blocks

VERSION = f"PyTorch {torch.__version__}"


def mlp(p: Any, x: Any) -> Any:
    count = len(p) // 2
    for i in range(count):
        x = torch.addmm(p[f"b{i}"], x, p[f"w{i}"])
        x = F.relu(x) if i < count - 1 else x
    return x


def lenet(p: Any, x: Any) -> Any:
    for i in range(2):
        x = F.max_pool2d(F.relu(F.conv2d(x, p[f"k{i}"], p[f"c{i}"])), 2)
    x = x.reshape(x.shape[0], -1)
    for i in range(3):
        x = torch.addmm(p[f"b{i}"], x, p[f"w{i}"])
        x = F.relu(x) if i < 2 else x
    return x


def resnet(p: Any, x: Any, again: bool = False) -> Any:
    def norm(x: Any, name: str) -> Any:
        return F.batch_norm(x, None, None, p["g" + name], p["h" + name], training=True)

    def block(x: Any, i: int) -> Any:
        stride = 2 if f"s{i}" in p else 1
        y = F.relu(norm(F.conv2d(x, p[f"k{i}a"], stride=stride, padding=1), f"{i}a"))
        y = norm(F.conv2d(y, p[f"k{i}b"], padding=1), f"{i}b")
        x = F.conv2d(x, p[f"s{i}"], stride=stride) if stride == 2 else x
        return F.relu(x + y)

    x = F.relu(norm(F.conv2d(x, p["k"], padding=1), ""))
    for i in range(blocks(p)):
        x = checkpoint(block, x, i, use_reentrant=False) if again else block(x, i)
    return torch.addmm(p["b"], x.mean((2, 3)), p["w"])


def lstm(p: Any, x: Any) -> Any:
    steps, batch = x.shape
    h = c = torch.zeros(batch, p["wh"].shape[0])
    outs = []
    for t in range(steps):
        gates = p["e"][x[t]] @ p["wx"] + torch.addmm(p["b"], h, p["wh"])
        i, g, o, f = gates.chunk(4, 1)
        c = f.sigmoid() * c + i.sigmoid() * g.tanh()
        h = o.sigmoid() * c.tanh()
        outs.append(h)
    return torch.addmm(p["c"], torch.cat(outs), p["w"])


def transformer(p: Any, x: Any, again: bool = False) -> Any:
    batch, tokens = x.shape
    width = p["e"].shape[1]

    def heads(x: Any) -> Any:
        return x.reshape(batch, tokens, 4, width // 4).transpose(1, 2)

    def block(h: Any, i: int) -> Any:
        a = F.layer_norm(h, (width,), p[f"g{i}a"], p[f"h{i}a"]) @ p[f"qkv{i}"]
        q, k, v = map(heads, a.chunk(3, 2))
        a = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2)
        h = h + a.reshape(batch, tokens, width) @ p[f"o{i}"]
        a = F.layer_norm(h, (width,), p[f"g{i}b"], p[f"h{i}b"])
        u = F.gelu(a @ p[f"u{i}"] + p[f"bu{i}"], approximate="tanh")
        return h + u @ p[f"d{i}"] + p[f"bd{i}"]

    h = p["e"][x] + p["p"]
    for i in range(len(p) // 10):
        h = checkpoint(block, h, i, use_reentrant=False) if again else block(h, i)
    return (h @ p["w"]).reshape(batch * tokens, -1)


NETWORKS = {
    "mlp": mlp, "lenet": lenet, "resnet": resnet, "lstm": lstm, "scanned": lstm,
    "transformer": transformer,
}  # fmt: skip


def function(problem: Problem) -> Callable[[Any, Any], Any]:
    """The logits of weights and a batch."""
    network = NETWORKS[problem.network]
    return partial(network, again=True) if problem.again else network


def training(problem: Problem) -> Callable[[], Any]:
    """One step of SGD; it returns the loss."""
    p = {n: torch.tensor(w, requires_grad=True) for n, w in problem.weights.items()}
    network, optimizer = function(problem), torch.optim.SGD(p.values(), lr=LR)
    x, y = torch.from_numpy(problem.x), torch.from_numpy(problem.y)

    def step() -> Any:
        optimizer.zero_grad()
        loss = F.cross_entropy(network(p, x), y)
        loss.backward()
        optimizer.step()
        return loss

    return step


def inference(problem: Problem) -> Callable[[], Any]:
    """The logits."""
    p = {n: torch.from_numpy(w) for n, w in problem.weights.items()}
    network, x = function(problem), torch.from_numpy(problem.x)

    def run() -> Any:
        with torch.inference_mode():
            return network(p, x)

    return run


def threads(count: int) -> None:
    """Compute on at most that many threads."""
    torch.set_num_threads(count)
