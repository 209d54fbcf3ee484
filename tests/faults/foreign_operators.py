"""Operators of torch.library, right and wrong in schema, fake, layout, numbers or gradient."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

_NUMBERS = itertools.count()


class OperatorRow(NamedTuple):
    """fn(torch, *xs), fake(torch, *xs) and backward(ctx, torch, *douts) of one operator.

    check: opcheck's check that must find it, "" for a right one. warns: a warning is what it gets.
    """

    name: str
    fn: Callable[..., Any]
    check: str = ""
    fake: Callable[..., Any] | None = lambda torch, x, *_: torch.empty(x.shape, dtype=x.dtype)
    backward: Callable[..., Any] | None = None
    inputs: int = 1
    outputs: int = 1
    mutates: tuple[str, ...] = ()
    shape: tuple[int, ...] = (3, 4)
    warns: bool = False

    def point(self) -> tuple[np.ndarray, ...]:
        rng = np.random.default_rng(5)
        return tuple([rng.uniform(-1.7, 1.7, self.shape) for _ in range(self.inputs)])


def operator(row: OperatorRow) -> Any:
    """The operator, under a name of its own."""
    import torch  # noqa: PLC0415 - optional

    names = ["xyz"[i] for i in range(row.inputs)]
    args = ", ".join(f"Tensor({n}!) {n}" if n in row.mutates else f"Tensor {n}" for n in names)
    result = "Tensor" if row.outputs == 1 else f"({', '.join(['Tensor'] * row.outputs)})"
    op = torch.library.custom_op(
        f"planted::op{next(_NUMBERS)}", lambda *xs: row.fn(torch, *xs),
        mutates_args=row.mutates, schema=f"({args}) -> {result}",
    )  # fmt: skip
    if row.fake is not None:
        op.register_fake(lambda *xs: row.fake(torch, *xs))
    if row.backward is not None:

        def setup_context(ctx, inputs, output):
            ctx.save_for_backward(*inputs)

        op.register_autograd(
            lambda ctx, *douts: row.backward(ctx, torch, *douts), setup_context=setup_context
        )
    return op


def sine(torch, x):
    return torch.sin(x.contiguous())


def cosine(ctx, torch, d):
    return d * torch.cos(ctx.saved_tensors[0])


def flat(torch, x):
    """The numbers of x's memory, as if it were dense."""
    return torch.as_strided(x, x.shape, x.new_empty(x.shape).stride(), x.storage_offset())


def from_start(torch, x):
    """The numbers of a dense x, as if its memory began with them."""
    return torch.as_strided(x, x.shape, x.stride(), 0)


def at(torch, x, value):
    """x with another first element."""
    x = x.contiguous().clone()
    x.view(-1)[:1] = value
    return x


def writes(torch, x):
    x.mul_(2.0)
    return x.clone()


def turns(torch, x):
    out = torch.sin(x).contiguous()
    x.transpose_(0, 1)
    return out


def fills_nan(torch, x):
    out = torch.sin(x).contiguous()
    if x.shape[0] != 3:
        x.zero_()
    return out


def noisy(torch, x):
    return sine(torch, x) + 1e-3 * torch.rand(x.shape, dtype=x.dtype)


_calls = itertools.count()
_held: dict[Any, Any] = {}


def counting(torch, x):
    return sine(torch, x) * (1.0 + 1e-3 * next(_calls))


def same_memory(torch, x):
    key = tuple(x.shape), x.dtype
    out = _held.setdefault(key, torch.empty(x.shape, dtype=x.dtype))
    out.copy_(torch.sin(x) + 1e-3 * next(_calls))
    return out


def unwritten(torch, x):
    out = torch.empty(x.shape, dtype=x.dtype)
    out.view(-1)[:-1] = torch.sin(x).reshape(-1)[:-1]
    return out


def unwritten_if_long(torch, x):
    out = torch.empty(x.shape, dtype=x.dtype)
    if x.numel() > 12:
        out.view(-1)[:12] = torch.sin(x).reshape(-1)[:12]
    else:
        out.copy_(torch.sin(x))
    return out


def turned(torch, x):
    return torch.sin(x).T.contiguous().T if x.ndim == 2 else sine(torch, x)


def by_rows(torch, x):
    return torch.stack([torch.sin(r) for r in x])


def writes_to_cotangent(ctx, torch, d):
    d.mul_(torch.cos(ctx.saved_tensors[0]))
    return d.clone()


def writes_to_saved(ctx, torch, d):
    x = ctx.saved_tensors[0].detach()
    x.cos_()
    return d * x


def dense_cotangent(ctx, torch, d):
    return flat(torch, d) * torch.cos(ctx.saved_tensors[0])


def by_need(ctx, torch, d):
    x, y = ctx.saved_tensors
    if not ctx.needs_input_grad[0]:
        return None, d * y
    return d * y, d * x


def with_sizes(ctx, torch, d):
    x = ctx.saved_tensors[0]
    return d * torch.cos(x) * (1.0 if x.shape[-1] == 4 else 2.0)


def product(torch, x, y):
    return (x * y).contiguous()


def both(ctx, torch, d):
    x, y = ctx.saved_tensors
    return d * y, d * x


def pair(torch, x):
    return torch.sin(x).contiguous(), torch.cos(x).contiguous()


def pair_fake(torch, x):
    return torch.empty(x.shape, dtype=x.dtype), torch.empty(x.shape, dtype=x.dtype)


def pair_back(ctx, torch, d, e):
    x = ctx.saved_tensors[0]
    return d * torch.cos(x) - e * torch.sin(x)


def rows(torch, x):
    return x.sum(-1)


def rows_fake(torch, x):
    return x.sum(-1)


def rows_back(ctx, torch, d):
    x = ctx.saved_tensors[0]
    return d.unsqueeze(-1).expand(x.shape)


def doubles(torch, x):
    x.mul_(2.0)
    return x + 1.0


def of_shape(shape):
    return lambda torch, x: torch.empty(shape(x), dtype=x.dtype)


def _of_float64(torch, x):
    if x.dtype != torch.float64:
        raise TypeError("it takes float64")
    return sine(torch, x)


def _softmax_back(ctx, torch, d):
    out = ctx.saved_tensors[0].softmax(-1)
    return out * (d - (d * out).sum(-1, keepdim=True))


def _logistic_back(ctx, torch, d):
    out = torch.sigmoid(ctx.saved_tensors[0])
    return d * out * (1 - out)


WRONG = [
    OperatorRow("fake: turned shape", sine, "fake", of_shape(lambda x: x.shape[::-1])),
    OperatorRow("fake: the sample's shape", sine, "fake", of_shape(lambda x: (3, 4))),
    OperatorRow("fake: wrong shape if empty", sine, "fake",
                of_shape(lambda x: x.shape if x.shape[0] else (1, *x.shape[1:]))),
    OperatorRow("fake: float32", sine, "fake", lambda torch, x: torch.empty(x.shape)),
    OperatorRow("fake: dtype of float64", sine, "fake",
                lambda torch, x: torch.empty(x.shape, dtype=torch.float64)),
    OperatorRow("fake: strides", turned, "fake"),
    OperatorRow("fake: follows strides, the call does not", sine, "fake",
                lambda torch, x: torch.empty_like(x)),
    OperatorRow("fake: none", sine, "fake", None),
    OperatorRow("writes to its input", writes, "schema"),
    OperatorRow("writes to its input at other sizes", fills_nan, "schema"),
    OperatorRow("turns its input", turns, "schema"),
    OperatorRow("returns its input", lambda torch, x: x, "runs"),
    OperatorRow("returns a view", lambda torch, x: x.view(-1), "runs", of_shape(lambda x: (12,))),
    OperatorRow("declares a write that is none", sine, "schema", mutates=("x",), warns=True),
    OperatorRow("reads transposed ones as dense", lambda torch, x: torch.sin(flat(torch, x)),
                "layouts"),
    OperatorRow("ignores the offset", lambda torch, x: torch.sin(from_start(torch, x)).contiguous(),
                "layouts"),
    OperatorRow("random", noisy, "determinism"),
    OperatorRow("counts its calls", counting, "determinism"),
    OperatorRow("gives the same memory again", same_memory, "determinism"),
    OperatorRow("last element unwritten", unwritten, "determinism"),
    OperatorRow("unwritten after 12", unwritten_if_long, "determinism"),
    OperatorRow("float32 inside", lambda torch, x: sine(torch, x.float()).to(x.dtype), "dtypes",
                warns=True),
    OperatorRow("NaN becomes 0", lambda torch, x: torch.where(x > -9.0, x, 0.0).contiguous(),
                "special values", warns=True),
    OperatorRow("fails for no rows", by_rows, "sizes", warns=True),
    OperatorRow("gradient: twice", sine, "gradient",
                backward=lambda *a: 2 * cosine(*a)),
    OperatorRow("gradient: first element", sine, "gradient",
                backward=lambda ctx, t, d: at(t, cosine(ctx, t, d), 0.3)),
    OperatorRow("gradient: at other sizes", sine, "gradient", backward=with_sizes),
    OperatorRow("gradient: dense cotangents", sine, "gradient", backward=dense_cotangent),
    OperatorRow("gradient: writes to the cotangent", sine, "gradient",
                backward=writes_to_cotangent),
    OperatorRow("gradient: writes to the input", sine, "gradient", backward=writes_to_saved),
    OperatorRow("gradient: of one input alone", product, "gradient", backward=by_need, inputs=2),
    OperatorRow("gradient: swapped", product, "gradient", inputs=2,
                backward=lambda *a: both(*a)[::-1]),
    OperatorRow("gradient: of one output alone", pair, "gradient", pair_fake, outputs=2,
                backward=lambda ctx, t, d, e: cosine(ctx, t, d)),
]  # fmt: skip

RIGHT = [
    OperatorRow("sin", sine, backward=cosine),
    OperatorRow("sin without a gradient", sine),
    OperatorRow("sin that follows strides", lambda torch, x: torch.sin(x),
                fake=lambda torch, x: torch.empty_like(x), backward=cosine),
    OperatorRow("product", product, backward=both, inputs=2),
    OperatorRow("two outputs", pair, fake=pair_fake, outputs=2, backward=pair_back),
    OperatorRow("sum of rows", rows, fake=rows_fake, backward=rows_back),
    OperatorRow("writes as declared", doubles, mutates=("x",)),
    OperatorRow("exp", lambda torch, x: torch.exp(x).contiguous(),
                backward=lambda ctx, t, d: d * t.exp(ctx.saved_tensors[0])),
    OperatorRow("tanh", lambda torch, x: torch.tanh(x).contiguous(),
                backward=lambda ctx, t, d: d * (1 - t.tanh(ctx.saved_tensors[0]) ** 2)),
    OperatorRow("square", lambda torch, x: (x * x).contiguous(),
                backward=lambda ctx, t, d: 2 * d * ctx.saved_tensors[0]),
    OperatorRow("turned matrix", lambda torch, x: x.transpose(0, 1).contiguous().clone(),
                fake=of_shape(lambda x: (x.shape[1], x.shape[0])),
                backward=lambda ctx, t, d: d.transpose(0, 1)),
    OperatorRow("absolute value", lambda torch, x: x.abs().contiguous(),
                backward=lambda ctx, t, d: d * ctx.saved_tensors[0].sign()),
    OperatorRow("signs of a comparison", lambda torch, x: (x > 0).contiguous(),
                fake=lambda torch, x: torch.empty(x.shape, dtype=torch.bool)),
    OperatorRow("cumulative sum", lambda torch, x: x.cumsum(0).contiguous(),
                backward=lambda ctx, t, d: d.flip(0).cumsum(0).flip(0)),
    OperatorRow("largest of rows", lambda torch, x: x.amax(-1).contiguous(),
                fake=lambda torch, x: x.amax(-1)),
    OperatorRow("only float64", _of_float64, backward=cosine),
    OperatorRow("softmax", lambda torch, x: x.softmax(-1).contiguous(),
                backward=_softmax_back),
    OperatorRow("square matrices alone", lambda torch, x: (x @ x).contiguous(), shape=(3, 3),
                backward=lambda ctx, t, d: d @ ctx.saved_tensors[0].mT
                + ctx.saved_tensors[0].mT @ d),
    OperatorRow("logistic", lambda torch, x: torch.sigmoid(x).contiguous(),
                backward=_logistic_back),
    OperatorRow("sum of all", lambda torch, x: x.sum(), fake=lambda torch, x: x.sum(),
                backward=lambda ctx, t, d: d.expand(ctx.saved_tensors[0].shape)),
]  # fmt: skip
