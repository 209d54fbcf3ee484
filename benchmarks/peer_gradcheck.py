"""Other systems' gradient checkers, given a NumPy function and its hand-written pull-back."""

from __future__ import annotations

import importlib.util
import logging
import re
import time
import warnings
from collections.abc import Callable
from importlib.metadata import version
from typing import Any, NamedTuple

import numpy as np

from miniml.testing import gradcheck_vjp
from tests.faults.rows import Arrays, Pair, WrongPair

LARGEST_JACOBIAN = 4_000_000
SYSTEMS = ("torch", "jax", "autograd")


class Said(NamedTuple):
    """Verdict of a checker on a pair: a fault or none, the element, and how long it took."""

    found: bool
    named: bool
    seconds: float
    text: str


class Checker(NamedTuple):
    """One system's check. run(row, xs) raises where it finds a fault; takes: can it try at all."""

    name: str
    run: Callable[[Pair, Arrays], object]
    takes: Callable[[Pair, Arrays], bool]


def ask(
    checker: Checker, row: Pair, seed: int, index: tuple[int, ...] | None = None
) -> Said | None:
    """The checker's word on a row at the points of a seed; None where it cannot try."""
    xs = row.draw(np.random.default_rng(seed))
    if not checker.takes(row, xs):
        return None
    start = time.perf_counter()
    text = ""
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        try:
            checker.run(row, xs)
        except Exception as error:  # whatever a system raises is its way to complain
            text = str(error) or type(error).__name__
    place = "" if index is None else ", ?".join(map(str, index))
    named = bool(text and place and re.search(rf"[\[(]{place},?[\])]", text))
    return Said(bool(text), named, time.perf_counter() - start, text)


def wide(row: Pair, xs: Arrays) -> bool:
    """Floats of 32 or 64 bits and integers: what every system has."""
    return all(x.dtype in (np.float64, np.float32) or x.dtype.kind in "ib" for x in xs)


def split(xs: Arrays) -> tuple[list[int], Callable[..., Arrays]]:
    """Which inputs are floats, and how to put all together again from those."""
    floats = [i for i, x in enumerate(xs) if x.dtype.kind not in "ib"]

    def whole(given: Any) -> Arrays:
        full = list(xs)
        for i, value in zip(floats, given, strict=True):
            full[i] = value
        return tuple(full)

    return floats, whole


def ours() -> Checker:
    """miniml.testing.gradcheck_vjp."""

    def run(row: Pair, xs: Arrays) -> object:
        return gradcheck_vjp(row.f, row.vjp, *xs)

    return Checker("miniml gradcheck", run, lambda row, xs: True)


def torch_checker(fast: bool) -> Checker:
    """torch.autograd.gradcheck, default tolerances, in one of its two modes."""
    import torch  # noqa: PLC0415

    def run(row: Pair, xs: Arrays) -> None:
        floats, whole = split(xs)

        class Planted(torch.autograd.Function):
            @staticmethod
            def forward(ctx: Any, *tensors: Any) -> Any:
                ctx.inputs = whole([t.detach().numpy() for t in tensors])
                return torch.from_numpy(np.array(row.f(*ctx.inputs)))

            @staticmethod
            def backward(ctx: Any, dout: Any) -> Any:
                gradients = row.vjp(*ctx.inputs, dout.numpy())
                picked = [gradients[i] for i in floats]
                return tuple(None if g is None else torch.from_numpy(np.array(g)) for g in picked)

        tensors = [torch.from_numpy(np.array(xs[i])).requires_grad_() for i in floats]
        torch.autograd.gradcheck(Planted.apply, tensors, fast_mode=fast)

    def takes(row: Pair, xs: Arrays) -> bool:
        size = sum(x.size for x in xs) * np.size(row.f(*xs))
        return wide(row, xs) and (fast or size <= LARGEST_JACOBIAN)

    return Checker(f"torch gradcheck, {'fast' if fast else 'full'}", run, takes)


def jax_checker(x64: bool) -> Checker:
    """jax.test_util.check_grads in reverse mode and order 1, its default tolerances."""
    import jax  # noqa: PLC0415
    from jax.test_util import check_grads  # noqa: PLC0415

    logging.getLogger("jax").setLevel(logging.CRITICAL)  # it prints what it also raises

    def like(value: Any) -> Any:
        dtype = np.asarray(value).dtype
        narrow = not x64 and dtype == np.float64
        return jax.ShapeDtypeStruct(np.shape(value), np.dtype(np.float32) if narrow else dtype)

    def as_jax(row: Pair, xs: Arrays) -> tuple[Any, list[Any]]:
        floats, whole = split(xs)
        result, inputs = like(row.f(*xs)), tuple(like(xs[i]) for i in floats)

        def value(*arrays: Any) -> Any:
            return np.asarray(row.f(*whole(map(np.asarray, arrays))), result.dtype)

        def pulled(*arrays: Any) -> Any:
            *saved, dout = map(np.asarray, arrays)
            gradients = row.vjp(*whole(saved), dout)
            return tuple(
                np.zeros(s.shape, s.dtype)
                if gradients[i] is None
                else np.asarray(gradients[i], None if x64 else s.dtype)
                for i, s in zip(floats, inputs, strict=True)
            )

        def call(*arrays: Any) -> Any:
            return jax.pure_callback(value, result, *arrays, vmap_method="sequential")

        def back(saved: Any, dout: Any) -> Any:
            return jax.pure_callback(pulled, inputs, *saved, dout, vmap_method="sequential")

        f = jax.custom_vjp(call)
        f.defvjp(lambda *arrays: (call(*arrays), arrays), back)
        return f, [jax.numpy.asarray(xs[i]) for i in floats]

    def run(row: Pair, xs: Arrays) -> None:
        jax.config.update("jax_enable_x64", x64)  # for all threads: callbacks run in another
        f, given = as_jax(row, xs)
        check_grads(f, given, order=1, modes=("rev",))

    def takes(row: Pair, xs: Arrays) -> bool:
        if x64 or all(x.dtype != np.float64 for x in xs):
            return wide(row, xs)
        return isinstance(row, WrongPair) and "float32" not in row.name  # the others need float64

    return Checker(f"JAX check_grads, {'x64' if x64 else 'float32'}", run, takes)


def hips_checker() -> Checker:
    """autograd.test_util.check_grads in reverse mode and order 1, its fixed tolerances."""
    from autograd.extend import defvjp, primitive  # noqa: PLC0415
    from autograd.test_util import check_grads  # noqa: PLC0415

    def run(row: Pair, xs: Arrays) -> None:
        floats, whole = split(xs)
        f = primitive(lambda *given: row.f(*whole(given)))

        def pull(i: int) -> Callable[..., Any]:
            return lambda out, *given: lambda dout: row.vjp(*whole(given), np.asarray(dout))[i]

        defvjp(f, *map(pull, floats))
        check_grads(f, modes=["rev"], order=1)(*[xs[i] for i in floats])

    return Checker("HIPS autograd check_grads", run, wide)


def present(package: str) -> bool:
    return importlib.util.find_spec(package) is not None


def checkers() -> list[Checker]:
    """miniml's and those of the systems that are installed."""
    found = [ours()]
    if present("torch"):
        found += [torch_checker(fast=True), torch_checker(fast=False)]
    if present("jax"):
        found += [jax_checker(x64=True), jax_checker(x64=False)]
    if present("autograd"):
        found.append(hips_checker())
    return found


def versions() -> str:
    """The systems that are installed, with their versions."""
    return ", ".join(f"{p} {version(p)}" for p in SYSTEMS if present(p))
