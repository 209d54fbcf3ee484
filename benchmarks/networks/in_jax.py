"""The networks in JAX, the whole step under `jit`, weights donated."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp

from benchmarks.networks.problems import LR, Problem, blocks

VERSION = f"JAX {jax.__version__}"


def mlp(p: Any, x: Any) -> Any:
    count = len(p) // 2
    for i in range(count):
        x = x @ p[f"w{i}"] + p[f"b{i}"]
        x = jax.nn.relu(x) if i < count - 1 else x
    return x


def _conv(x: Any, k: Any, stride: int = 1, padding: int = 0) -> Any:
    return jax.lax.conv_general_dilated(x, k, (stride, stride), [(padding, padding)] * 2)


def lenet(p: Any, x: Any) -> Any:
    for i in range(2):
        x = jax.nn.relu(_conv(x, p[f"k{i}"]) + p[f"c{i}"][:, None, None])
        x = jax.lax.reduce_window(x, -jnp.inf, jax.lax.max, (1, 1, 2, 2), (1, 1, 2, 2), "VALID")
    x = x.reshape(x.shape[0], -1)
    for i in range(3):
        x = x @ p[f"w{i}"] + p[f"b{i}"]
        x = jax.nn.relu(x) if i < 2 else x
    return x


def resnet(p: Any, x: Any, again: bool = False) -> Any:
    def norm(x: Any, name: str) -> Any:
        mean = x.mean((0, 2, 3), keepdims=True)
        scaled = (x - mean) * jax.lax.rsqrt(x.var((0, 2, 3), keepdims=True) + 1e-5)
        return scaled * p["g" + name][:, None, None] + p["h" + name][:, None, None]

    def block(x: Any, i: int) -> Any:
        stride = 2 if f"s{i}" in p else 1
        y = jax.nn.relu(norm(_conv(x, p[f"k{i}a"], stride, 1), f"{i}a"))
        y = norm(_conv(y, p[f"k{i}b"], 1, 1), f"{i}b")
        x = _conv(x, p[f"s{i}"], stride) if stride == 2 else x
        return jax.nn.relu(x + y)

    x = jax.nn.relu(norm(_conv(x, p["k"], 1, 1), ""))
    for i in range(blocks(p)):
        x = jax.checkpoint(partial(block, i=i))(x) if again else block(x, i)
    return x.mean((2, 3)) @ p["w"] + p["b"]


def lstm(p: Any, x: Any) -> Any:
    batch, hidden = x.shape[1], p["wh"].shape[0]

    def step(carry: Any, xt: Any) -> Any:
        h, c = carry
        gates = p["e"][xt] @ p["wx"] + h @ p["wh"] + p["b"]
        i, g, o, f = jnp.split(gates, 4, 1)
        c = jax.nn.sigmoid(f) * c + jax.nn.sigmoid(i) * jnp.tanh(g)
        h = jax.nn.sigmoid(o) * jnp.tanh(c)
        return (h, c), h

    zero = jnp.zeros((batch, hidden))
    outs = jax.lax.scan(step, (zero, zero), x)[1]
    return outs.reshape(-1, hidden) @ p["w"] + p["c"]


def transformer(p: Any, x: Any, again: bool = False) -> Any:
    batch, tokens = x.shape
    width = p["e"].shape[1]
    mask = jnp.where(jnp.tril(jnp.ones((tokens, tokens), bool)), 0.0, -1e9)

    def norm(x: Any, g: Any, h: Any) -> Any:
        mean, var = x.mean(-1, keepdims=True), x.var(-1, keepdims=True)
        return (x - mean) * jax.lax.rsqrt(var + 1e-5) * g + h

    def heads(x: Any) -> Any:
        return x.reshape(batch, tokens, 4, width // 4).swapaxes(1, 2)

    def block(h: Any, i: int) -> Any:
        q, k, v = map(heads, jnp.split(norm(h, p[f"g{i}a"], p[f"h{i}a"]) @ p[f"qkv{i}"], 3, 2))
        scores = q @ k.swapaxes(2, 3) * (width // 4) ** -0.5 + mask
        a = (jax.nn.softmax(scores) @ v).swapaxes(1, 2)
        h = h + a.reshape(batch, tokens, width) @ p[f"o{i}"]
        u = jax.nn.gelu(norm(h, p[f"g{i}b"], p[f"h{i}b"]) @ p[f"u{i}"] + p[f"bu{i}"])
        return h + u @ p[f"d{i}"] + p[f"bd{i}"]

    h = p["e"][x] + p["p"]
    for i in range(len(p) // 10):
        h = jax.checkpoint(partial(block, i=i))(h) if again else block(h, i)
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
    network = function(problem)

    def loss_of(p: Any, x: Any, y: Any) -> Any:
        rows = jax.nn.log_softmax(network(p, x))
        return -jnp.take_along_axis(rows, y[:, None], 1).mean()

    def update(p: Any, x: Any, y: Any) -> Any:
        loss, grads = jax.value_and_grad(loss_of)(p, x, y)
        return jax.tree.map(lambda w, g: w - LR * g, p, grads), loss

    jitted = jax.jit(update, donate_argnums=0)
    state = [{n: jnp.asarray(w) for n, w in problem.weights.items()}]
    x, y = jnp.asarray(problem.x), jnp.asarray(problem.y)

    def step() -> Any:
        state[0], loss = jitted(state[0], x, y)
        return jax.block_until_ready(loss)

    return step


def inference(problem: Problem) -> Callable[[], Any]:
    """The logits."""
    p = {n: jnp.asarray(w) for n, w in problem.weights.items()}
    run, x = jax.jit(function(problem)), jnp.asarray(problem.x)
    return lambda: jax.block_until_ready(run(p, x))


def threads(count: int) -> None:
    """The processors that the process may use decide; the worker sets them."""
