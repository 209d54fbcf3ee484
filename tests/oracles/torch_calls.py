"""Calls of PyTorch's operators in the words of `ops`, for the samples that PyTorch tests itself
with."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import numpy as np

import miniml as ml
from miniml import ops


class LacksError(Exception):
    """A sample uses an option that `ops` does not have."""


# Names of arguments in PyTorch that are others here.
RENAMED = {"dim": "axis", "keepdim": "keepdims", "input": "x", "dims": "axis"}

# Operators whose functions here take the same arguments, some by another name.
SAME = """
abs acos acosh add:sub= amax:max amin:min argmax argmin asin asinh atan atan2 atanh
broadcast_to ceil cos cosh count_nonzero cumsum cumprod cummax cummin erf erfc exp exp2 expm1 floor
flip isfinite isinf isnan log log10 log1p log2 logaddexp
logsumexp masked_fill maximum minimum
mul neg outer:outer pow prod reciprocal relu:relu roll rsqrt sigmoid sign
sin sinh sqrt square sub tan tanh tile tril triu trunc unbind:unstack xlogy hypot
eq:equal ge:greater_equal gt:greater le:less_equal lt:less ne:not_equal
log_softmax softmax remainder:mod mean reshape
matmul bmm:matmul mm:matmul mv:matmul sum all any unsqueeze:expand_dims
nn.functional.celu:celu nn.functional.elu:elu nn.functional.hardsigmoid:hard_sigmoid
nn.functional.hardswish:hard_swish nn.functional.logsigmoid:log_sigmoid
nn.functional.mish:mish nn.functional.prelu:prelu nn.functional.relu:relu
nn.functional.relu6:relu6 nn.functional.selu:selu nn.functional.silu:silu
lgamma digamma erfinv
bitwise_and bitwise_not bitwise_or bitwise_xor bitwise_left_shift:left_shift
bitwise_right_shift:right_shift copysign frac isclose lerp logcumsumexp
nan_to_num nanmean nansum sinc special.xlog1py:xlog1py
nn.functional.softshrink:softshrink nn.functional.threshold:threshold
linalg.cholesky linalg.det linalg.inv linalg.slogdet
nn.functional.softsign:softsign nn.functional.gelu:gelu
nn.functional.cosine_similarity
"""

CALLS: dict[str, Callable[..., Any]] = {}


def calls(*names: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Register what stands for these operators."""

    def register(function: Callable[..., Any]) -> Callable[..., Any]:
        CALLS.update(dict.fromkeys(names, function))
        return function

    return register


def _same(function: Callable[..., Any]) -> Callable[..., Any]:
    known = inspect.signature(function).parameters

    def call(*args: Any, **named: Any) -> Any:
        given = {RENAMED.get(name, name): value for name, value in named.items()}
        unknown = [name for name in given if name not in known]
        if unknown and known.keys() & {"args", "kwargs"} == set():
            raise LacksError(", ".join(unknown))
        return function(*args, **given)

    return call


for entry in SAME.split():
    theirs, _, ours = entry.partition(":")
    if "=" not in ours:
        CALLS[theirs] = _same(getattr(ops, ours or theirs.rsplit(".", 1)[-1]))


@calls("add")
def add(x: Any, y: Any, alpha: Any = 1) -> Any:
    return x + alpha * y


@calls("sub")
def sub(x: Any, y: Any, alpha: Any = 1) -> Any:
    return x - alpha * y


def _logical(function: Callable[..., Any]) -> Callable[..., Any]:
    return lambda *xs: function(*(ops.not_equal(x, 0) for x in xs))


for entry in ("logical_and", "logical_not", "logical_or", "logical_xor"):
    CALLS[entry] = _logical(getattr(ops, entry))


@calls("where")
def where(x: Any, condition: Any, y: Any) -> Any:
    return ops.where(condition, x, y)


@calls("take_along_dim")
def take_along_dim(x: Any, indices: Any, dim: int | None = None) -> Any:
    if dim is None:
        return ops.take_along_axis(x.reshape(-1), indices.reshape(-1), 0)
    return ops.take_along_axis(x, indices, dim)


@calls("div:no_rounding_mode", "div:floor_rounding", "div:trunc_rounding")
def div(x: Any, y: Any, rounding_mode: str | None = None) -> Any:
    modes = {None: ops.div, "floor": ops.floor_div, "trunc": lambda x, y: ops.trunc(x / y)}
    return modes[rounding_mode](x, y)


@calls("addmm")
def addmm(c: Any, a: Any, b: Any, beta: float = 1, alpha: float = 1) -> Any:
    return beta * c + alpha * (a @ b)


@calls("clamp")
def clamp(x: Any, min: Any = None, max: Any = None) -> Any:
    if min is None and max is None:
        raise LacksError("no bound")
    return ops.clip(x, min, max)


@calls("cat")
def cat(xs: Any, dim: int = 0) -> Any:
    return ops.concat(xs, dim)


@calls("stack")
def stack(xs: Any, dim: int = 0) -> Any:
    return ops.stack(xs, dim)


@calls("einsum")
def einsum(xs: Any, equation: str) -> Any:
    return ops.einsum(equation, *xs)


@calls("diag")
def diag(x: Any, diagonal: int = 0) -> Any:
    return ops.diag(x, diagonal)


@calls("permute")
def permute(x: Any, dims: Any) -> Any:
    return ops.transpose(x, tuple(dims))


@calls("transpose")
def transpose(x: Any, dim0: int, dim1: int) -> Any:
    return ops.swapaxes(x, dim0, dim1)


@calls("movedim")
def movedim(x: Any, source: Any, destination: Any) -> Any:
    return ops.moveaxis(x, source, destination)


@calls("squeeze", "squeeze:multiple")
def squeeze(x: Any, dim: Any = None) -> Any:
    dims = (dim,) if isinstance(dim, int) else dim
    if dims is not None:
        dims = tuple(d for d in dims if x.ndim and x.shape[d] == 1)
    return ops.squeeze(x, dims)


@calls("index_select")
def index_select(x: Any, dim: int, index: Any) -> Any:
    if not x.ndim:
        raise LacksError("an axis of a 0-d tensor")
    return ops.gather(x, index.reshape(-1), dim)


@calls("gather")
def gather(x: Any, dim: int, index: Any) -> Any:
    if not x.ndim or index.ndim != x.ndim or index.shape[:dim] != x.shape[:dim]:
        raise LacksError("indices of fewer rows")
    return ops.take_along_axis(x, index, dim)


@calls("index_add")
def index_add(x: Any, dim: int, index: Any, source: Any, alpha: float = 1) -> Any:
    if not x.ndim:
        raise LacksError("an axis of a 0-d tensor")
    return ops.scatter_add(x, index.reshape(-1), alpha * source, dim)


@calls("sort")
def sort(x: Any, dim: int = -1, descending: bool = False, stable: bool = False) -> Any:
    if not x.ndim:
        raise LacksError("an axis of a 0-d tensor")
    return ops.sort(x, dim, descending), ops.argsort(x, dim, descending)


@calls("topk")
def topk(x: Any, k: int, dim: int = -1, largest: bool = True, sorted: bool = True) -> Any:
    if not x.ndim or not sorted:
        raise LacksError("no order")
    return ops.topk(x, k, dim, largest)


def _spread(function: Callable[..., Any]) -> Callable[..., Any]:
    def call(
        x: Any, dim: Any = None, unbiased: Any = None, keepdim: bool = False, correction: Any = 1
    ) -> Any:
        if isinstance(dim, bool):
            dim, unbiased = None, dim
        count = correction if unbiased is None else int(unbiased)
        axes = None if dim == () else dim
        return function(x, axes, keepdim, 1 if count is None else count)

    return call


CALLS["var"] = CALLS["var:unbiased"] = _spread(ops.var)
CALLS["std"] = CALLS["std:unbiased"] = _spread(ops.std)


@calls("linalg.vector_norm")
def vector_norm(
    x: Any, ord: float = 2, dim: Any = None, keepdim: bool = False, dtype: Any = None
) -> Any:
    if dtype is not None or dim == []:
        raise LacksError("dtype")
    return ops.norm(x, ord, dim, keepdim)


@calls("repeat_interleave")
def repeat_interleave(x: Any, repeats: Any, dim: int | None = None) -> Any:
    counts = tuple(repeats.asnumpy().tolist()) if isinstance(repeats, ml.Tensor) else repeats
    return ops.repeat(x, counts, dim)


@calls("nn.functional.hardtanh")
def hardtanh(x: Any, min_val: float = -1.0, max_val: float = 1.0, inplace: bool = False) -> Any:
    return ops.hard_tanh(x, min_val, max_val)


@calls("nn.functional.leaky_relu")
def leaky_relu(x: Any, negative_slope: float = 0.01, inplace: bool = False) -> Any:
    return ops.leaky_relu(x, negative_slope)


@calls("nn.functional.softplus")
def softplus(x: Any, beta: float = 1, threshold: float = 20) -> Any:
    return ops.where(beta * x > threshold, x, ops.softplus(beta * x) / beta)


@calls("nn.functional.layer_norm")
def layer_norm(x: Any, shape: Any, weight: Any = None, bias: Any = None, eps: float = 1e-5) -> Any:
    gamma = ops.ones(shape, x.dtype) if weight is None else weight
    beta = ops.zeros(shape, x.dtype) if bias is None else bias
    return ops.layer_norm(x, gamma, beta, eps)


def _batched(rank: int, function: Callable[..., Any]) -> Callable[..., Any]:
    """Of a function of x (N, C, *rank axes) with PyTorch's arguments."""

    def call(x: Any, *args: Any, **named: Any) -> Any:
        if x.ndim != rank + 2:
            raise LacksError("no batch")
        if named.pop("return_indices", False):
            raise LacksError("return_indices")
        return function(x, *args, **named)

    return call


def _average(function: Callable[..., Any]) -> Callable[..., Any]:
    def call(
        x: Any,
        kernel_size: Any,
        stride: Any = None,
        padding: Any = 0,
        ceil_mode: bool = False,
        count_include_pad: bool = True,
        divisor_override: int | None = None,
    ) -> Any:
        if divisor_override:
            raise LacksError("divisor_override")
        if padding == (2,):
            raise LacksError("one number for several axes in a tuple")
        return function(x, kernel_size, stride or None, padding, ceil_mode, count_include_pad)

    return call


def _adaptive(function: Callable[..., Any]) -> Callable[..., Any]:
    def call(x: Any, output_size: Any, return_indices: bool = False) -> Any:
        if return_indices:
            raise LacksError("return_indices")
        return function(x, output_size)

    return call


for rank in (1, 2, 3):
    made = {entry: getattr(ops, f"{entry}{rank}d") for entry in ("conv", "conv_transpose")}
    made["avg_pool"] = _average(getattr(ops, f"avg_pool{rank}d"))
    made["max_pool"] = getattr(ops, f"max_pool{rank}d")
    made["adaptive_avg_pool"] = _adaptive(getattr(ops, f"adaptive_avg_pool{rank}d"))
    made["adaptive_max_pool"] = _adaptive(getattr(ops, f"adaptive_max_pool{rank}d"))
    CALLS.update({f"nn.functional.{n}{rank}d": _batched(rank, f) for n, f in made.items()})


@calls("nn.functional.unfold")
def unfold(x: Any, *args: Any, **named: Any) -> Any:
    if x.ndim != 4:
        raise LacksError("no batch")
    return ops.unfold(x, *args, **named)


@calls(
    *(
        f"nn.functional.interpolate:{mode}"
        for mode in ("nearest", "linear", "bilinear", "trilinear", "bicubic")
    )
)
def interpolate(
    x: Any,
    size: Any = None,
    scale_factor: Any = None,
    mode: str = "nearest",
    align_corners: bool | None = None,
    recompute_scale_factor: bool | None = None,
    antialias: bool = False,
) -> Any:
    if antialias or recompute_scale_factor or scale_factor is not None:
        raise LacksError("antialias; a factor that is not the ratio of the sizes")
    mode = {"bilinear": "linear", "trilinear": "linear", "bicubic": "cubic"}.get(mode, mode)
    return ops.resize(x, size, None, mode, bool(align_corners))


@calls("nn.functional.group_norm")
def group_norm(
    x: Any, num_groups: int, weight: Any = None, bias: Any = None, eps: float = 1e-5
) -> Any:
    return ops.group_norm(x, num_groups, weight, bias, eps)


@calls("nn.functional.instance_norm")
def instance_norm(
    x: Any,
    running_mean: Any = None,
    running_var: Any = None,
    weight: Any = None,
    bias: Any = None,
    use_input_stats: bool = True,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> Any:
    if x.ndim < 3 or not use_input_stats:
        raise LacksError("no batch")
    return ops.instance_norm(x, weight, bias, eps)


@calls("nn.functional.rms_norm")
def rms_norm(x: Any, shape: Any, weight: Any = None, eps: float | None = None) -> Any:
    if len(shape) != 1 or x.ndim == 0:
        raise LacksError("several axes")
    small = float(np.finfo(np.float64).eps) if eps is None else eps
    return ops.rms_norm(x, ops.ones(shape, x.dtype) if weight is None else weight, small)


@calls("nn.functional.scaled_dot_product_attention")
def attention(
    q: Any,
    k: Any,
    v: Any,
    attn_mask: Any = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Any:
    if dropout_p or enable_gqa:
        raise LacksError("dropout, groups of heads")
    return ops.scaled_dot_product_attention(q, k, v, attn_mask, 0.0, is_causal, scale)


@calls("linalg.pinv")
def pinv(a: Any, rtol: Any = None, atol: Any = None, hermitian: bool = False) -> Any:
    if isinstance(rtol, ml.Tensor) or atol is not None:
        raise LacksError("tolerances as tensors, atol")
    return ops.pinv(a, rtol)


@calls("linalg.solve")
def solve(a: Any, b: Any) -> Any:
    if 1 < b.ndim < a.ndim:
        raise LacksError("stacks of vectors, which NumPy takes for matrices")
    return ops.solve(a, b)


@calls("linalg.solve_triangular")
def solve_triangular(
    a: Any, b: Any, upper: bool, left: bool = True, unitriangular: bool = False
) -> Any:
    if not left:
        raise LacksError("left")
    return ops.triangular_solve(a, b, upper, False, unitriangular)


@calls("linalg.qr")
def qr(a: Any, mode: str = "reduced") -> Any:
    if mode != "reduced":
        raise LacksError(mode)
    return ops.qr(a)


@calls("linalg.eigh")
def eigh(a: Any, UPLO: str = "L") -> Any:
    return ops.eigh(a)


@calls("linalg.svd")
def svd(a: Any, full_matrices: bool = True) -> Any:
    if full_matrices and a.ndim > 1 and a.shape[-1] != a.shape[-2]:
        raise LacksError("full_matrices")
    return ops.svd(a)


@calls("polygamma:polygamma_n_0", *(f"polygamma:polygamma_n_{n}" for n in (1, 2, 3, 4)))
def polygamma(x: Any, n: int) -> Any:
    return ops.polygamma(n, x)


@calls("nn.functional.cross_entropy")
def cross_entropy(x: Any, y: Any, weight: Any = None, **named: Any) -> Any:
    if x.ndim < 2:
        raise LacksError("no batch")
    return ops.cross_entropy(x, y, weight=weight, **named)


@calls("nn.functional.nll_loss")
def nll_loss(x: Any, y: Any, weight: Any = None, **named: Any) -> Any:
    if x.ndim < 2:
        raise LacksError("no batch")
    return ops.nll_loss(x, y, weight=weight, **named)


@calls("nn.functional.ctc_loss")
def ctc_loss(x: Any, *args: Any, **named: Any) -> Any:
    """Of logits: PyTorch's gradient is right only where its input comes from log_softmax."""
    return ops.ctc_loss(ops.log_softmax(x), *args, **named)


@calls("nn.functional.mse_loss")
def mse_loss(x: Any, y: Any, reduction: str = "mean") -> Any:
    return ops.mse_loss(x, y, reduction)


@calls("nn.functional.l1_loss")
def l1_loss(x: Any, y: Any, reduction: str = "mean") -> Any:
    return ops.l1_loss(x, y, reduction)


@calls("nn.functional.huber_loss")
def huber_loss(x: Any, y: Any, reduction: str = "mean", delta: float = 1.0) -> Any:
    return ops.huber_loss(x, y, reduction, delta)


@calls("nn.functional.binary_cross_entropy")
def bce(x: Any, y: Any, weight: Any = None, reduction: str = "mean") -> Any:
    return ops.bce(x, y, reduction, weight)


@calls("nn.functional.binary_cross_entropy_with_logits")
def bce_with_logits(
    x: Any, y: Any, weight: Any = None, reduction: str = "mean", pos_weight: Any = None
) -> Any:
    return ops.bce_with_logits(x, y, reduction, weight, pos_weight)


@calls("nn.functional.smooth_l1_loss")
def smooth_l1_loss(x: Any, y: Any, reduction: str = "mean", beta: float = 1.0) -> Any:
    return ops.smooth_l1_loss(x, y, reduction, beta)


@calls("nn.functional.gaussian_nll_loss")
def gaussian_nll_loss(x: Any, y: Any, variance: Any, **named: Any) -> Any:
    if x.shape != y.shape:
        raise LacksError("a target that broadcasts")
    if len(variance.shape) == len(x.shape) - 1:
        variance = ops.expand_dims(variance, -1)
    return ops.gaussian_nll_loss(x, y, variance, **named)


@calls("nn.functional.poisson_nll_loss")
def poisson_nll_loss(x: Any, y: Any, **named: Any) -> Any:
    return ops.poisson_nll_loss(x, y, **named)


@calls("nn.functional.triplet_margin_loss")
def triplet_margin_loss(x: Any, y: Any, z: Any, **named: Any) -> Any:
    return ops.triplet_margin_loss(x, y, z, **named)


@calls("nn.functional.cosine_embedding_loss")
def cosine_embedding_loss(x: Any, y: Any, target: Any, **named: Any) -> Any:
    return ops.cosine_embedding_loss(x, y, target, **named)


@calls("nn.functional.margin_ranking_loss")
def margin_ranking_loss(x: Any, y: Any, target: Any, **named: Any) -> Any:
    return ops.margin_ranking_loss(x, y, target, **named)


@calls("nn.functional.embedding_bag")
def embedding_bag(
    weight: Any, indices: Any, offsets: Any = None, padding_idx: Any = None,
    per_sample_weights: Any = None, mode: str = "mean", **rest: Any,
) -> Any:  # fmt: skip
    if any(rest.values()):
        raise LacksError(", ".join(rest))
    return ops.embedding_bag(weight, indices, offsets, mode, per_sample_weights, padding_idx)


@calls("nn.functional.grid_sample")
def grid_sample(
    x: Any, grid: Any, mode: str = "bilinear", padding_mode: str = "zeros",
    align_corners: bool | None = None,
) -> Any:  # fmt: skip
    kind = {"bilinear": "linear", "bicubic": "cubic"}.get(mode, mode)
    return ops.grid_sample(x, grid, kind, padding_mode, bool(align_corners))


CALLS["nn.functional.pixel_shuffle"] = ops.pixel_shuffle
CALLS["nn.functional.pixel_unshuffle"] = ops.pixel_unshuffle
PADS = {"reflect": "reflect", "replicate": "edge", "circular": "wrap"}


@calls(*(f"nn.functional.pad:{mode}" for mode in PADS))
def pad(x: Any, pads: Any, mode: str = "constant") -> Any:
    """Pairs begin with the last axis."""
    pairs = [*zip(pads[::2], pads[1::2], strict=True)][::-1]
    if min(pads) < 0:
        raise LacksError("a negative padding cuts off")
    return ops.pad(x, (*((0, 0),) * (x.ndim - len(pairs)), *pairs), 0, PADS[mode])


@calls("nn.functional.kl_div")
def kl_div(x: Any, y: Any, reduction: str = "mean", log_target: bool = False) -> Any:
    if log_target:
        raise LacksError("log_target")
    return ops.kl_div(x, y, reduction)


@calls("searchsorted")
def searchsorted(
    x: Any,
    values: Any,
    out_int32: bool = False,
    right: bool = False,
    side: Any = None,
    sorter: Any = None,
) -> Any:
    if sorter is not None or out_int32:
        raise LacksError("sorter, out_int32")
    return ops.searchsorted(x, values, side or ("right" if right else "left"))


@calls("bincount")
def bincount(x: Any, weights: Any = None, minlength: int = 0) -> Any:
    count = max(minlength, int(x.asnumpy().max(initial=-1)) + 1)
    return ops.bincount(x, count, weights)


@calls("nonzero")
def nonzero(x: Any, as_tuple: bool = False) -> Any:
    if as_tuple:
        raise LacksError("as_tuple")
    return ops.nonzero(x)


@calls("nn.functional.one_hot")
def one_hot(x: Any, num_classes: int = -1) -> Any:
    if num_classes < 0:
        raise LacksError("the number of classes is counted")
    return ops.one_hot(x, num_classes, ml.int64)
