"""The MLP's training step in PyTorch and JAX, on any device of theirs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]


def torch_step(weights: list[Array], device: str = "cpu") -> Callable[[Any, Any], Any]:
    """One step of SGD on the MLP in PyTorch, with nn and optim as its users write it."""
    import torch  # noqa: PLC0415 - measured where installed, needed by nothing else

    layers: list[Any] = []
    for w, b in zip(weights[::2], weights[1::2], strict=True):
        layer = torch.nn.Linear(*w.shape)
        layer.weight.data.copy_(torch.from_numpy(w.T.copy()))
        layer.bias.data.copy_(torch.from_numpy(b))
        layers += [layer, torch.nn.ReLU()]
    net = torch.nn.Sequential(*layers[:-1]).to(device)
    loss_fn, optimizer = torch.nn.CrossEntropyLoss(), torch.optim.SGD(net.parameters(), lr=0.01)

    def step(x: Any, labels: Any) -> Any:
        optimizer.zero_grad()
        loss = loss_fn(net(x), labels)
        loss.backward()
        optimizer.step()
        return loss

    return step


def jax_step(weights: list[Array]) -> tuple[Callable[[Any, Any], Any], Callable[[Any], Any]]:
    """One jitted step of SGD in JAX, parameters donated; and what waits for a result."""
    import jax  # noqa: PLC0415 - measured where installed, needed by nothing else
    import jax.numpy as jnp  # noqa: PLC0415

    def loss_fn(params: Any, x: Any, labels: Any) -> Any:
        for i in range(0, len(params), 2):
            x = x @ params[i] + params[i + 1]
            x = jax.nn.relu(x) if i < len(params) - 2 else x
        return -jnp.take_along_axis(jax.nn.log_softmax(x), labels[:, None], 1).mean()

    def update(params: Any, x: Any, labels: Any) -> Any:
        loss, grads = jax.value_and_grad(loss_fn)(params, x, labels)
        return [p - 0.01 * g for p, g in zip(params, grads, strict=True)], loss

    jitted = jax.jit(update, donate_argnums=0)
    state = [[jnp.asarray(w) for w in weights]]

    def step(x: Any, labels: Any) -> Any:
        state[0], loss = jitted(state[0], x, labels)
        return loss

    return step, jax.block_until_ready
