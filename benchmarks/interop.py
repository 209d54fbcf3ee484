"""Cost of a call by way of PyTorch or JAX over miniml's own: `OMP_NUM_THREADS=1 python -m
benchmarks.interop`, where they are installed. The aim: 8 us for `to_torch`."""

from __future__ import annotations

import importlib.util
import time
from collections.abc import Callable

import numpy as np

import miniml as ml
from benchmarks.measure import machine
from miniml import ops

AIM = 8.0  # microseconds


def least(fn: Callable[[], object], calls: int = 50, rounds: int = 400) -> float:
    """The least time of a call in microseconds: what others on the machine add is left out."""
    fn()
    best = float("inf")
    for _ in range(rounds):
        start = time.perf_counter()
        for _ in range(calls):
            fn()
        best = min(best, (time.perf_counter() - start) / calls)
    return best * 1e6


def of_torch() -> None:
    """Calls of `to_torch(ops.Tanh())`."""
    import torch  # noqa: PLC0415 - measured where installed, needed by nothing else

    from miniml.interop import from_torch, to_torch  # noqa: PLC0415

    torch.set_num_threads(1)
    x = torch.ones(10)
    recorded, own = x.clone().requires_grad_(), ml.Tensor(x.numpy())
    here, there, back = ops.Tanh(), to_torch(ops.Tanh()), from_torch(torch.tanh)
    base = least(lambda: here(own))
    print(f"miniml's own Tanh of 10 float32: {base:.1f} us")
    overload = there.overload
    for name, fn, aim in (
        ("to_torch", lambda: there(x), AIM),
        ("to_torch, recorded by autograd", lambda: there(recorded), AIM),
        ("to_torch, through the dispatcher", lambda: overload(x), None),
    ):
        over = least(fn) - base
        aimed = "" if aim is None else f" (aim {aim:.0f}{'' if over <= aim else ', MISSED'})"
        print(f"{name}: {over:.1f} us over it{aimed}")
    theirs = least(lambda: torch.tanh(x))
    print(f"from_torch: {least(lambda: back(own)) - theirs:.1f} us over torch's own")


def of_jax() -> None:
    """Calls of `to_jax(ops.Tanh())`, which go through XLA's callback."""
    import jax  # noqa: PLC0415 - as above

    from miniml.interop import from_jax, to_jax  # noqa: PLC0415

    x = jax.numpy.ones(10, np.float32)
    compiled, back = jax.jit(to_jax(ops.Tanh())), from_jax(jax.numpy.tanh)
    own, theirs = ml.Tensor(np.asarray(x)), jax.jit(jax.numpy.tanh)
    base = least(lambda: theirs(x).block_until_ready(), 20, 100)
    over = least(lambda: compiled(x).block_until_ready(), 20, 100) - base
    print(f"to_jax under jit: {over:.1f} us over JAX's own tanh of {base:.1f} us")
    print(f"from_jax: {least(lambda: back(own), 20, 100) - base:.1f} us over it")


if __name__ == "__main__":
    print(machine())
    for package, measured in (("torch", of_torch), ("jax", of_jax)):
        if importlib.util.find_spec(package):
            measured()
        else:
            print(f"no {package} here")
