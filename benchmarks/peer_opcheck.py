"""The planted primitives given to torch.library.opcheck as custom operators, where torch is."""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks.peer_gradcheck import present
from miniml.core.abstract import Abstract
from miniml.core.infer import infer
from miniml.core.primitive import Primitive
from miniml.grad import vjp
from miniml.testing import opcheck
from tests.faults.definitions import ATTRIBUTES, GRADIENTS, RULES
from tests.faults.kernels import DETERMINISM, LAYOUTS, MEMORY, NUMBERS
from tests.faults.planted import CORRECT, Planted, planted

GROUPS = {
    "rules": RULES,
    "layouts and shapes": LAYOUTS,
    "memory": MEMORY,
    "numbers": NUMBERS,
    "determinism": DETERMINISM,
    "gradients": GRADIENTS,
    "attributes": ATTRIBUTES,
    "correct": CORRECT,
}
_NUMBERS = itertools.count()


def torch_says(row: Planted) -> bool | None:
    """True where torch's opcheck complains about the row's primitive; None where it cannot try.

    It gets two samples, float32 and float64, dense, of rank 2, which require gradients. The
    kernel, the rules and the gradient are the primitive's own, behind a custom operator.
    """
    import torch  # noqa: PLC0415

    letters = [c for c in "fd" if c in row.letters]
    if not letters or row.outs:
        return None
    with planted(row) as (primitive, _):
        op = _operator(torch, primitive, row.subject.arity)
        rng = np.random.default_rng(0)
        for type_code in letters:
            arrays = [rng.normal(size=(3, 4)).astype(type_code) for _ in range(row.subject.arity)]
            sample = tuple(torch.from_numpy(a).requires_grad_() for a in arrays)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                try:
                    torch.library.opcheck(op, sample)
                except Exception:  # every complaint counts, whatever its class
                    return True
    return False


def _operator(torch: Any, primitive: Primitive, arity: int) -> Any:
    name = f"miniml_corpus::planted{next(_NUMBERS)}"
    names = [f"x{i}" for i in range(arity)]
    takes = ", ".join(f"Tensor {n}" for n in names)
    forward = torch.library.custom_op(
        name, _forward(torch, primitive), mutates_args=(), schema=f"({takes}) -> Tensor"
    )
    backward = torch.library.custom_op(
        f"{name}_backward", _backward(torch, primitive), mutates_args=(),
        schema=f"({takes}, Tensor dout) -> Tensor[]",
    )  # fmt: skip
    forward.register_fake(_rule(torch, primitive))
    backward.register_fake(lambda *args: [torch.empty_like(a) for a in args[:-1]])

    def save(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.save_for_backward(*inputs)

    def pull(ctx: Any, dout: Any) -> Any:
        gradients = backward(*ctx.saved_tensors, dout)
        return tuple(gradients) if arity > 1 else gradients[0]

    forward.register_autograd(pull, setup_context=save)
    return forward


def _forward(torch: Any, primitive: Primitive) -> Callable[..., Any]:
    def forward(*tensors: Any) -> Any:
        return torch.from_numpy(primitive(*(t.detach().numpy() for t in tensors)).asnumpy())

    return forward


def _backward(torch: Any, primitive: Primitive) -> Callable[..., Any]:
    def backward(*args: Any) -> Any:
        *tensors, dout = (t.detach().numpy() for t in args)
        _, pull_back = vjp(primitive, *tensors)
        return [torch.from_numpy(g.asnumpy()) for g in pull_back(np.ascontiguousarray(dout))]

    return backward


def _rule(torch: Any, primitive: Primitive) -> Callable[..., Any]:
    def fake(*tensors: Any) -> Any:
        kinds = {torch.float32: np.float32, torch.float64: np.float64}
        given = tuple(Abstract(tuple(t.shape), np.dtype(kinds[t.dtype])) for t in tensors)
        (out,) = infer(primitive, given)
        dtype = torch.float32 if out.dtype == np.float32 else torch.float64
        return tensors[0].new_empty(out.shape, dtype=dtype)

    return fake


def ours_says(row: Planted) -> bool:
    """True where miniml's opcheck has a finding."""
    with planted(row) as (primitive, info):
        return bool(opcheck(primitive, info=info, raise_error=False).findings)


def table() -> str:
    """Counts of each group that both find; empty where torch is not installed."""
    if not present("torch"):
        return ""
    lines = ["| planted primitives | torch opcheck | miniml opcheck |", "|---|---|---|"]
    for name, rows in GROUPS.items():
        said = [torch_says(row) for row in rows]
        tried = [s for s in said if s is not None]
        own = [ours_says(row) for row in rows]
        lines.append(f"| {name} | {sum(tried)} of {len(tried)} | {sum(own)} of {len(own)} |")
    return "\n".join(lines)
