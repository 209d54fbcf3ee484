"""Write docs/operations.md, the table of the functions of `ops`: `python -m docs.operations`."""

import inspect
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np
import optree

import miniml as ml
from miniml import ops
from miniml.grad import grad

PAGE = Path(__file__).with_name("operations.md")
INTRODUCTION = """\
# The operations of `ops`

Written by `python -m docs.operations` from the docstrings, from calls of every function and from
its table of names; `help(ops.softmax)` says more, and `python -m miniml show Softmax` prints a
primitive's definition, gradient, kernels and tests.

- **dtypes**: those of the numbers that the example in the last column may take. b is bool, i the
  integers (int8 to int64 and uint8), h float16 and bfloat16, f float32, d float64.
- **gradient**: how many derivatives were taken; *zero* where it is zero everywhere, *none* where
  the result is no float or is drawn.
- **devices**: where the example ran: CPU, and CUDA by the simulator, which runs the same text as
  a GPU.
- The names are those of `numpy`, `torch` (F is `torch.nn.functional`), `jax` (jnp is `jax.numpy`)
  and `mindspore.ops`, whose arguments may differ; "-" where nothing does the same in one call.
"""

# A line `# Title` begins a section. function | example | NumPy | PyTorch | JAX | MindSpore; "=" is
# the function's own name in the usual place: np, torch, jnp and mindspore.ops; "F" is that in
# torch.nn.functional, and in the last column PyTorch's.
TABLE = """
# Arithmetic
abs | abs(x) | = | = | = | =
add | add(x, y) | = | = | = | =
ceil | ceil(x) | = | = | = | =
clip | clip(x, 0, 1) | = | clamp | = | clamp
cast | cast(x, ml.float64) | astype | Tensor.to | astype | =
div | div(x, y) | divide | = | divide | =
floor | floor(x) | = | = | = | =
floor_div | floor_div(x, y) | floor_divide | floor_divide | floor_divide | =
maximum | maximum(x, y) | = | = | = | =
minimum | minimum(x, y) | = | = | = | =
mod | mod(x, y) | = | remainder | = | floor_mod
mul | mul(x, y) | multiply | = | multiply | =
neg | neg(x) | negative | = | negative | =
reciprocal | reciprocal(x) | = | = | = | =
round | round(x) | = | = | = | =
sign | sign(x) | = | = | = | =
square | square(x) | = | = | = | =
sub | sub(x, y) | subtract | = | subtract | =
trunc | trunc(x) | = | = | = | =
# Exponentials, powers and logarithms
exp | exp(x) | = | = | = | =
exp2 | exp2(x) | = | = | = | exp2
expm1 | expm1(x) | = | = | = | =
hypot | hypot(x, y) | = | = | = | =
log | log(x) | = | = | = | =
log10 | log10(x) | = | = | = | =
log1p | log1p(x) | = | = | = | =
log2 | log2(x) | = | = | = | =
logaddexp | logaddexp(x, y) | = | = | = | =
pow | pow(x, y) | power | = | power | =
rsqrt | rsqrt(x) | - | = | lax.rsqrt | =
sqrt | sqrt(x) | = | = | = | =
xlogy | xlogy(x, y) | - | = | scipy.special.xlogy | =
# Trigonometric and hyperbolic functions
acos | acos(x) | arccos | = | arccos | =
acosh | acosh(x) | arccosh | = | arccosh | =
asin | asin(x) | arcsin | = | arcsin | =
asinh | asinh(x) | arcsinh | = | arcsinh | =
atan | atan(x) | arctan | = | arctan | =
atan2 | atan2(x, y) | arctan2 | = | arctan2 | =
atanh | atanh(x) | arctanh | = | arctanh | =
cos | cos(x) | = | = | = | =
cosh | cosh(x) | = | = | = | =
sin | sin(x) | = | = | = | =
sinh | sinh(x) | = | = | = | =
tan | tan(x) | = | = | = | =
tanh | tanh(x) | = | = | = | =
# Activations and special functions
celu | celu(x) | - | F.celu | nn.celu | =
elu | elu(x) | - | F.elu | nn.elu | =
erf | erf(x) | - | = | scipy.special.erf | =
erfc | erfc(x) | - | = | scipy.special.erfc | =
gelu | gelu(x) | - | F.gelu | nn.gelu | =
hard_sigmoid | hard_sigmoid(x) | - | F.hardsigmoid | nn.hard_sigmoid | hardsigmoid
hard_swish | hard_swish(x) | - | F.hardswish | nn.hard_swish | hardswish
hard_tanh | hard_tanh(x) | - | F.hardtanh | nn.hard_tanh | hardtanh
leaky_relu | leaky_relu(x) | - | F.leaky_relu | nn.leaky_relu | =
log_sigmoid | log_sigmoid(x) | - | F.logsigmoid | nn.log_sigmoid | logsigmoid
mish | mish(x) | - | F.mish | nn.mish | =
prelu | prelu(x, s) | - | F.prelu | - | =
relu | relu(x) | - | = | nn.relu | =
relu6 | relu6(x) | - | F.relu6 | nn.relu6 | =
relu_grad | relu_grad(x, y) | - | - | - | -
selu | selu(x) | - | F.selu | nn.selu | =
sigmoid | sigmoid(x) | - | = | nn.sigmoid | =
silu | silu(x) | - | F.silu | nn.silu | =
softplus | softplus(x) | - | F.softplus | nn.softplus | softplus
softsign | softsign(x) | - | F.softsign | nn.soft_sign | =
digamma | digamma(x) | - | = | scipy.special.digamma | =
erfinv | erfinv(x - 0.5) | - | = | scipy.special.erfinv | =
lgamma | lgamma(x) | - | = | scipy.special.gammaln | =
polygamma | polygamma(1, x) | - | = | scipy.special.polygamma | =
# Comparisons and choices
equal | equal(x, y) | = | eq | = | =
greater | greater(x, y) | = | gt | = | =
greater_equal | greater_equal(x, y) | = | ge | = | =
isfinite | isfinite(x) | = | = | = | =
isinf | isinf(x) | = | = | = | =
isnan | isnan(x) | = | = | = | =
less | less(x, y) | = | lt | = | =
less_equal | less_equal(x, y) | = | le | = | =
logical_and | logical_and(x, y) | = | = | = | =
logical_not | logical_not(x) | = | = | = | =
logical_or | logical_or(x, y) | = | = | = | =
logical_xor | logical_xor(x, y) | = | = | = | =
masked_fill | masked_fill(x, m, 0) | - | = | - | =
not_equal | not_equal(x, y) | = | ne | = | =
select | select(m, x, y) | where | where | where | where
where | where(m, x, y) | = | = | = | =
# Reductions, running results and statistics
all | all(x, axis=1) | = | = | = | =
any | any(x, axis=1) | = | = | = | =
argmax | argmax(x, axis=1) | = | = | = | =
argmin | argmin(x, axis=1) | = | = | = | =
count_nonzero | count_nonzero(x) | = | = | = | =
cumsum | cumsum(x, axis=1) | = | = | = | =
logsumexp | logsumexp(x, axis=1) | - | = | scipy.special.logsumexp | =
max | max(x, axis=1) | = | amax | = | amax
mean | mean(x, axis=1) | = | = | = | =
min | min(x, axis=1) | = | amin | = | amin
norm | norm(x, axis=1) | linalg.norm | linalg.vector_norm | linalg.norm | =
prod | prod(x, axis=1) | = | = | = | =
std | std(x, axis=1) | = | = | = | =
sum | sum(x, axis=1) | = | = | = | =
sum_to | sum_to(x, (1, 3)) | - | Tensor.sum_to_size | - | -
var | var(x, axis=1) | = | = | = | =
# Shapes
broadcast_to | broadcast_to(x, (4, 2, 3)) | = | = | = | =
expand_dims | expand_dims(x, 0) | = | unsqueeze | = | =
flip | flip(x, 0) | = | = | = | =
moveaxis | moveaxis(x, 0, 1) | = | = | = | =
reshape | reshape(x, (3, 2)) | = | = | = | =
squeeze | squeeze(x[:1], 0) | = | = | = | =
swapaxes | swapaxes(x, 0, 1) | = | = | = | =
tile | tile(x, (2, 1)) | = | = | = | =
transpose | transpose(x) | = | permute | = | =
# Putting together, taking apart and moving
concat | concat([x, y], axis=0) | = | cat | concatenate | =
diag | diag(x[0]) | = | = | = | =
meshgrid | meshgrid(x[0], y[0]) | = | = | = | =
pad | pad(x, ((0, 0), (1, 1))) | = | F.pad | = | =
repeat | repeat(x, 2, axis=0) | = | repeat_interleave | = | repeat_interleave
roll | roll(x, 1, axis=1) | = | = | = | =
slice | slice(x, (0, 1), (2, 3)) | - | - | lax.slice | strided_slice
split | split(x, 3, axis=1) | = | tensor_split | = | tensor_split
stack | stack([x, y]) | = | = | = | =
tril | tril(x) | = | = | = | =
triu | triu(x) | = | = | = | =
unstack | unstack(x) | = | unbind | = | unbind
# Indices, sorting and searching
argsort | argsort(x) | = | = | = | =
gather | gather(x, i, axis=1) | take | index_select | take | =
getitem | getitem(x, (0, i)) | - | - | - | -
scatter | scatter(x, (0, i), 1) | - | index_put | - | -
scatter_add | scatter_add(x, i, y, axis=1) | - | index_add | - | index_add
sort | sort(x) | = | = | = | =
take_along_axis | take_along_axis(x, j, axis=1) | = | take_along_dim | = | gather_elements
topk | topk(x, 2) | - | = | lax.top_k | =
# Making tensors
arange | arange(5) | = | = | = | =
eye | eye(3) | = | = | = | =
full | full((2, 3), 1.5) | = | = | = | =
full_like | full_like(x, 1) | = | = | = | =
linspace | linspace(0, 1, 5) | = | = | = | =
one_hot | one_hot(i, 3) | - | F.one_hot | nn.one_hot | =
ones | ones((2, 3)) | = | = | = | =
ones_like | ones_like(x) | = | = | = | =
zeros | zeros((2, 3)) | = | = | = | =
zeros_like | zeros_like(x) | = | = | = | =
# Random draws
bernoulli | bernoulli((2, 3)) | random.binomial | = | random.bernoulli | =
dropout | dropout(x, 0.5) | - | F.dropout | - | =
normal | normal((2, 3)) | random.normal | = | random.normal | =
uniform | uniform((2, 3)) | random.uniform | rand | random.uniform | =
# Products of matrices
einsum | einsum("ij,kj->ik", x, y) | = | = | = | =
matmul | matmul(x, y.T) | = | = | = | =
outer | outer(x[0], y[0]) | = | = | = | =
# Linear algebra
cholesky | cholesky(spd) | linalg.cholesky | linalg.cholesky | linalg.cholesky | =
det | det(matrix) | linalg.det | linalg.det | linalg.det | =
eigh | eigh(spd) | linalg.eigh | linalg.eigh | linalg.eigh | -
inv | inv(spd) | linalg.inv | linalg.inv | linalg.inv | inverse
lstsq | lstsq(tall, x[0, :2]) | linalg.lstsq | linalg.lstsq | linalg.lstsq | lstsq
pinv | pinv(tall) | linalg.pinv | linalg.pinv | linalg.pinv | =
qr | qr(tall) | linalg.qr | linalg.qr | linalg.qr | =
slogdet | slogdet(matrix) | linalg.slogdet | linalg.slogdet | linalg.slogdet | =
solve | solve(spd, matrix) | linalg.solve | linalg.solve | linalg.solve | -
svd | svd(tall) | linalg.svd | linalg.svd | linalg.svd | =
triangular_solve | triangular_solve(spd, matrix) | - | linalg.solve_triangular | scipy.linalg.solve_triangular | -
# Windows
avg_pool2d | avg_pool2d(image, 2) | - | F.avg_pool2d | - | =
conv2d | conv2d(image, filters) | - | F.conv2d | lax.conv | =
max_pool2d | max_pool2d(image, 2) | - | F.max_pool2d | - | =
conv1d | conv1d(series, taps) | - | F.conv1d | lax.conv | =
conv3d | conv3d(volume, cubes) | - | F.conv3d | lax.conv | =
conv_transpose1d | conv_transpose1d(series, taps) | - | F.conv_transpose1d | lax.conv_transpose | -
conv_transpose2d | conv_transpose2d(image, filters) | - | F.conv_transpose2d | lax.conv_transpose | -
conv_transpose3d | conv_transpose3d(volume, cubes) | - | F.conv_transpose3d | lax.conv_transpose | -
adaptive_avg_pool1d | adaptive_avg_pool1d(series, 3) | - | F.adaptive_avg_pool1d | - | =
adaptive_avg_pool2d | adaptive_avg_pool2d(image, 3) | - | F.adaptive_avg_pool2d | - | =
adaptive_avg_pool3d | adaptive_avg_pool3d(volume, 2) | - | F.adaptive_avg_pool3d | - | =
adaptive_max_pool1d | adaptive_max_pool1d(series, 3) | - | F.adaptive_max_pool1d | - | =
adaptive_max_pool2d | adaptive_max_pool2d(image, 3) | - | F.adaptive_max_pool2d | - | =
adaptive_max_pool3d | adaptive_max_pool3d(volume, 2) | - | F.adaptive_max_pool3d | - | -
avg_pool1d | avg_pool1d(series, 2) | - | F.avg_pool1d | - | =
avg_pool3d | avg_pool3d(volume, 2) | - | F.avg_pool3d | - | =
fold | fold(columns, 3, 2) | - | F.fold | - | =
max_pool1d | max_pool1d(series, 2) | - | F.max_pool1d | - | -
max_pool3d | max_pool3d(volume, 2) | - | F.max_pool3d | - | =
resize | resize(image, 8) | - | F.interpolate | jax.image.resize | interpolate
unfold | unfold(image, 3) | - | F.unfold | - | =
# Norms and softmax
batch_norm | batch_norm(x, s, s, training=True) | - | F.batch_norm | - | =
layer_norm | layer_norm(x, s, s) | - | F.layer_norm | - | =
group_norm | group_norm(image, 2) | - | F.group_norm | - | =
instance_norm | instance_norm(image) | - | F.instance_norm | - | -
log_softmax | log_softmax(x) | - | = | nn.log_softmax | =
rms_norm | rms_norm(x, s) | - | F.rms_norm | - | =
scaled_dot_product_attention | scaled_dot_product_attention(q, q, q) | - | F | nn.dot_product_attention | -
softmax | softmax(x) | - | = | nn.softmax | =
# Losses
bce | bce(ops.sigmoid(x), t) | - | F.binary_cross_entropy | - | binary_cross_entropy
bce_with_logits | bce_with_logits(x, t) | - | F.binary_cross_entropy_with_logits | - | F
cosine_similarity | cosine_similarity(x, y) | - | = | - | =
cross_entropy | cross_entropy(x, labels) | - | F.cross_entropy | - | =
ctc_loss | ctc_loss(frames, labels[None], 4, 2) | - | F.ctc_loss | - | =
hinge | hinge(x, t) | - | - | - | -
huber_loss | huber_loss(x, y) | - | F.huber_loss | - | =
kl_div | kl_div(ops.log_softmax(x), t) | - | F.kl_div | - | =
l1_loss | l1_loss(x, y) | - | F.l1_loss | - | =
mse_loss | mse_loss(x, y) | - | F.mse_loss | - | =
nll_loss | nll_loss(ops.log_softmax(x), labels) | - | F.nll_loss | - | =
# Control
assign | - | - | Tensor.copy_ | - | =
barrier | barrier(x, y) | - | - | lax.optimization_barrier | depend
cond | cond(m[0, 0], ops.sin, ops.cos, x) | - | cond | lax.cond | -
scan | scan(lambda c, row: (c + row, c * row), x[0], x) | - | - | lax.scan | -
stop_gradient | stop_gradient(x) | - | Tensor.detach | lax.stop_gradient | =
while_loop | while_loop(lambda v: v < 9, exp, a, max_iterations=8) | - | - | lax.while_loop | -
# Own operations
custom | - | frompyfunc | library.custom_op | jax.pure_callback | Custom
pack_attribute | - | - | - | - | -
unpack_attribute | - | - | - | - | -
"""

KINDS = {
    "b": ("bool",),
    "i": ("int8", "int16", "int32", "int64", "uint8"),
    "h": ("float16", "bfloat16"),
    "f": ("float32",),
    "d": ("float64",),
}
HEAD = "function formula dtypes gradient devices NumPy PyTorch JAX MindSpore example".split()
DEVICES = {"CPU": "cpu", "CUDA": "cuda-sim"}
PLACES = {0: "np.", 1: "torch.", 2: "jnp.", 3: ""}


@dataclass(frozen=True)
class Row:
    """One function: an example of a call, and what it is called elsewhere, "" for nothing."""

    section: str
    name: str
    example: str
    others: tuple[str, ...]

    @property
    def formula(self) -> str:
        """The first paragraph of its docstring, without the examples in backquotes."""
        text = inspect.getdoc(getattr(ops, self.name)) or ""
        return " ".join(text.split("\n\n")[0].split())


def rows() -> Iterator[Row]:
    """The lines of the table."""
    section = ""
    for line in TABLE.strip().splitlines():
        if line.startswith("# "):
            section = line[2:]
            continue
        name, example, *others = (part.strip() for part in line.split(" | "))
        others[1] = f"F.{name}" if others[1] == "F" else others[1]
        others[3] = others[1].removeprefix("F.") if others[3] == "F" else others[3]
        spelled = tuple(_spelled(name, other, i) for i, other in enumerate(others))
        yield Row(section, name, "" if example == "-" else example, spelled)


def _spelled(name: str, other: str, i: int) -> str:
    if other == "-":
        return ""
    other = name if other == "=" else other
    if other.startswith(("F.", "lax.", "nn.", "scipy.", "jax.")):
        return other
    return (PLACES[i] if not (i == 2 and other.startswith("random.")) else "jax.") + other


def values(dtype: str) -> dict[str, Any]:
    """What the examples are made of; the numbers have this dtype."""
    numbers = np.random.default_rng(0)

    def some(*shape: int) -> ml.Tensor:
        drawn = numbers.integers(1, 4, shape) / (1 if dtype in ("bool", *KINDS["i"]) else 4)
        return ml.Tensor(drawn.astype(np.float64)).astype(dtype)

    return {
        "a": some(),
        "x": some(2, 3),
        "y": some(2, 3),
        "s": some(3),
        "t": some(2, 3),
        "image": some(1, 2, 5, 5),
        "filters": some(2, 2, 3, 3),
        "series": some(1, 2, 7),
        "volume": some(1, 2, 3, 4, 4),
        "matrix": some(2, 2),
        "spd": some(2, 2) * 0 + ml.Tensor([[4, 1], [1, 3]]).astype(dtype),
        "tall": some(3, 2) * 0 + ml.Tensor([[1, 0], [1, 1], [0, 2]]).astype(dtype),
        "taps": some(2, 2, 3),
        "cubes": some(2, 2, 2, 2, 2),
        "columns": some(1, 4, 4),
        "frames": some(4, 1, 3),
        "q": some(1, 2, 3),
        "i": ml.Tensor([2, 0, 1]),
        "j": ml.Tensor([[2, 0], [0, 1]]),
        "m": ml.Tensor([[True, False, True], [False, False, True]]),
        "labels": ml.Tensor([2, 0]),
    }


def call(row: Row, given: dict[str, Any]) -> Callable[..., Any]:
    """The example as a function of the numbers in `given`."""
    names = {"ops": ops, "ml": ml, **{name: getattr(ops, name) for name in dir(ops)}}
    code = compile(row.example, f"<{row.name}>", "eval")
    return lambda **numbers: eval(code, names, {**given, **numbers})


def numbers(row: Row, given: dict[str, Any]) -> dict[str, Any]:
    """The tensors of numbers that the example uses, by name: those whose dtype may be another."""
    used = set(compile(row.example, row.name, "eval").co_names) & given.keys()
    return {name: given[name] for name in sorted(used - {"i", "j", "m", "labels"})}


def dtypes(row: Row) -> str:
    """The kinds of dtypes that the example's numbers may have."""
    if not numbers(row, values("float32")):
        return "-"
    return "".join(kind for kind, names in KINDS.items() if all(_takes(row, n) for n in names))


def _takes(row: Row, dtype: str) -> bool:
    given = values(dtype)
    try:
        call(row, given)()
    except (ml.errors.DTypeError, ml.errors.KernelNotFoundError):
        return False
    return True


def gradient(row: Row) -> str:
    """none, zero, or how many derivatives with respect to the numbers there are, up to two."""
    given = values("float64")
    x = numbers(row, given)

    def total(*at: Any) -> Any:
        parts = optree.tree_leaves(call(row, given)(**dict(zip(x, at))))
        return ops.sum(ops.stack([(p * p).sum() for p in parts if p.dtype == ml.float64]))

    def slope(*at: Any) -> Any:
        return ops.sum(ops.stack([(g * g).sum() for g in every(total)(*at)]))

    def every(f: Callable[..., Any]) -> Callable[..., tuple[ml.Tensor, ...]]:
        return grad(f, argnums=tuple(range(len(x))))

    if not x:
        return "none"
    found = 0
    try:
        for function in (total, slope):
            slopes = every(function)(*x.values())
            if not found and not any(g.asnumpy().any() for g in slopes):
                return "zero"
            found += 1
    except ml.errors.MinimlError:
        pass
    return str(found or "none")


def devices(row: Row) -> str:
    """Those that have kernels for all that the example's program consists of."""
    given = values("bool" if row.name.startswith("logical") else "float32")
    example = call(row, given)
    try:
        ml.trace(example, **numbers(row, given))
    except ml.errors.GraphError:
        return "CPU, eagerly"
    return ", ".join(text for text, device in DEVICES.items() if _runs(row, device))


def _runs(row: Row, device: str) -> bool:
    with ml.context(device_target=device, providers=("miniml",)):
        given = values("bool" if row.name.startswith("logical") else "float32")
        try:
            ml.explain(call(row, given), **numbers(row, given))
        except ml.errors.KernelNotFoundError:
            return False
    return True


def page() -> str:
    """The whole document."""
    lines = [INTRODUCTION]
    for section, group in groupby(rows(), key=lambda row: row.section):
        lines += [f"## {section}", "", f"| {' | '.join(HEAD)} |", "|---" * len(HEAD) + "|"]
        lines += [_line(row) for row in group] + [""]
    return "\n".join(lines)


def _line(row: Row) -> str:
    measured = (dtypes(row), gradient(row), devices(row)) if row.example else ("-",) * 3
    others = (f"`{name}`" if name else "-" for name in row.others)
    example = f"`{row.example}`" if row.example else "-"
    cells = (f"`{row.name}`", row.formula.replace("|", "\\|"), *measured, *others, example)
    return f"| {' | '.join(cells)} |"


if __name__ == "__main__":
    PAGE.write_text(page(), "utf-8")
