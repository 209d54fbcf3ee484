"""Jacobians, gradients of each example and products with a Hessian, compiled, against JAX and
torch.func: `OMP_NUM_THREADS=1 python -m benchmarks.transforms`, where they are installed."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from typing import Any

os.environ.setdefault(  # one thread, as NumPy's; read when JAX is imported
    "XLA_FLAGS", "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"
)

import numpy as np

import miniml as ml
from benchmarks.measure import Ratio, compare, machine
from miniml import Primitive, kernel, ops
from miniml.grad import grad, hvp, jacobian

DRAW = np.random.default_rng(0)
BATCH = 128
AIMS = {"JAX": 1.0, "torch.func": 0.5, "the call by hand": 1.2}


def _draw(*shape: int) -> Any:
    return (DRAW.normal(size=shape) * 0.1).astype(np.float32)


W1, W2, X, V = _draw(200, 300), _draw(300, 200), _draw(200), _draw(200)
A, B, ROWS, LABELS = _draw(64, 128), _draw(128, 10), _draw(BATCH, 64), np.arange(BATCH) % 10
K, L, IMAGES = _draw(8, 1, 3, 3), _draw(800, 10), _draw(BATCH, 1, 12, 12)
A_WIDE, B_WIDE, ROWS_WIDE = _draw(784, 256), _draw(256, 10), _draw(BATCH, 784)
EACH = (0, 0, None, None)


def ours() -> dict[str, tuple[Callable[..., Any], tuple[Any, ...]]]:
    """Each computation in miniml, compiled, with its arguments."""

    def net(x: Any) -> Any:
        return ops.tanh(x @ W1) @ W2

    def mlp(x: Any, label: Any, a: Any, b: Any) -> Any:
        scores = ops.tanh(x @ a) @ b
        return ops.logsumexp(scores) - scores[label]

    def cnn(x: Any, label: Any, k: Any, w: Any) -> Any:
        scores = ops.reshape(ops.relu(ops.conv2d(x[None], k)), (-1,)) @ w
        return ops.logsumexp(scores) - scores[label]

    def square(x: Any) -> Any:
        return ops.sum(net(x) ** 2)

    return {
        "jacobian, 200 x 200, of an MLP": (ml.jit(jacobian(net)), (X,)),
        "gradient of each example, MLP": (
            ml.jit(ml.vmap(grad(mlp, (2, 3)), EACH)),
            (ROWS, LABELS, A, B),
        ),
        "gradient of each example, wide MLP": (
            ml.jit(ml.vmap(grad(mlp, (2, 3)), EACH)),
            (ROWS_WIDE, LABELS, A_WIDE, B_WIDE),
        ),
        "gradient of each example, CNN": (
            ml.jit(ml.vmap(grad(cnn, (2, 3)), EACH)),
            (IMAGES, LABELS, K, L),
        ),
        "product with a Hessian": (ml.jit(lambda x, v: hvp(square, x, v)), (X, V)),
    }


def in_jax() -> dict[str, tuple[Callable[..., Any], tuple[Any, ...]]]:
    """The same in JAX."""
    import jax  # noqa: PLC0415 - measured where installed, needed by nothing else
    import jax.numpy as jnp  # noqa: PLC0415

    def net(x: Any) -> Any:
        return jnp.tanh(x @ W1) @ W2

    def mlp(x: Any, label: Any, a: Any, b: Any) -> Any:
        scores = jnp.tanh(x @ a) @ b
        return jax.nn.logsumexp(scores) - scores[label]

    def cnn(x: Any, label: Any, k: Any, w: Any) -> Any:
        scores = jax.nn.relu(jax.lax.conv(x[None], k, (1, 1), "VALID")).reshape(-1) @ w
        return jax.nn.logsumexp(scores) - scores[label]

    def square(x: Any) -> Any:
        return jnp.sum(net(x) ** 2)

    along = jax.jit(lambda x, v: jax.jvp(jax.grad(square), (x,), (v,))[1])
    made = {
        "jacobian, 200 x 200, of an MLP": (jax.jit(jax.jacobian(net)), (X,)),
        "gradient of each example, MLP": (
            jax.jit(jax.vmap(jax.grad(mlp, (2, 3)), EACH)),
            (ROWS, LABELS, A, B),
        ),
        "gradient of each example, wide MLP": (
            jax.jit(jax.vmap(jax.grad(mlp, (2, 3)), EACH)),
            (ROWS_WIDE, LABELS, A_WIDE, B_WIDE),
        ),
        "gradient of each example, CNN": (
            jax.jit(jax.vmap(jax.grad(cnn, (2, 3)), EACH)),
            (IMAGES, LABELS, K, L),
        ),
        "product with a Hessian": (along, (X, V)),
    }
    return {name: (fn, tuple(map(jnp.asarray, args))) for name, (fn, args) in made.items()}


def in_torch() -> dict[str, tuple[Callable[..., Any], tuple[Any, ...]]]:
    """The gradients of each example in torch.func, as its users write them."""
    import torch  # noqa: PLC0415 - measured where installed, needed by nothing else

    torch.set_num_threads(1)

    def mlp(x: Any, label: Any, a: Any, b: Any) -> Any:
        scores = torch.tanh(x @ a) @ b
        return torch.logsumexp(scores, 0) - torch.gather(scores, 0, label[None])[0]

    def cnn(x: Any, label: Any, k: Any, w: Any) -> Any:
        scores = torch.relu(torch.nn.functional.conv2d(x[None], k)).reshape(-1) @ w
        return torch.logsumexp(scores, 0) - torch.gather(scores, 0, label[None])[0]

    made = {
        "gradient of each example, MLP": (mlp, (ROWS, LABELS, A, B)),
        "gradient of each example, wide MLP": (mlp, (ROWS_WIDE, LABELS, A_WIDE, B_WIDE)),
        "gradient of each example, CNN": (cnn, (IMAGES, LABELS, K, L)),
    }
    return {
        name: (
            torch.func.vmap(torch.func.grad(fn, (2, 3)), EACH),
            tuple(map(torch.from_numpy, args)),
        )
        for name, (fn, args) in made.items()
    }


class Gain(Primitive):
    """x / (1 + max |x|) along the last axis."""

    batch = "leading"

    def infer_shape(self, x: Any) -> Any:
        return x

    def infer_dtype(self, x: Any) -> Any:
        return x


@kernel("Gain", "cpu", "f->f")
def gain_cpu(x: Any, *, out: Any) -> None:
    """NumPy's kernel."""
    np.divide(x, 1.0 + np.abs(x).max(-1, keepdims=True), out=out)


def _arrays(outs: Any) -> list[Any]:
    return [np.asarray(o) for o in (outs if isinstance(outs, tuple) else (outs,))]


def run(seconds: float = 3.0) -> Iterator[tuple[str, str, Ratio]]:
    """The computation, what it is held against, and the ratio; the values agree."""
    mine = {name: (fn, tuple(map(ml.Tensor, args))) for name, (fn, args) in ours().items()}
    for peer, make in (("JAX", in_jax), ("torch.func", in_torch)):
        try:
            theirs = make()
        except ImportError:
            continue
        for name, (fn, args) in theirs.items():
            own, given = mine[name]
            for a, b in zip(_arrays(own(*given)), _arrays(fn(*args)), strict=True):
                np.testing.assert_allclose(a, b, atol=1e-4)
            yield (
                name,
                peer,
                compare(
                    lambda own=own, given=given: _arrays(own(*given)),
                    lambda fn=fn, args=args: _arrays(fn(*args)),
                    seconds,
                ),
            )
    gain, x = Gain(), ml.Tensor(_draw(BATCH, 64))
    for how, mapped, whole in (
        ("compiled", ml.jit(ml.vmap(gain)), ml.jit(gain)),
        ("eager", ml.vmap(gain), gain),
    ):
        yield (
            f"vmap of an own primitive, {how}",
            "the call by hand",
            compare(lambda m=mapped: m(x), lambda w=whole: w(x), seconds),
        )


def main() -> None:
    """Print one line a measurement, after a line on the machine."""
    print(machine())
    for name, peer, found in run():
        met = "met" if found.ratio <= AIMS[peer] else "MISSED"
        print(f"{name}, against {peer}: {found}; aim {AIMS[peer]}: {met}")


if __name__ == "__main__":
    main()
