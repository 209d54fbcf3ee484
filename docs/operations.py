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
from miniml import Primitive, ops
from miniml.grad import grad, jvp_rules
from miniml.grad.forward import joint

PAGE = Path(__file__).with_name("operations.md")
TABLE = Path(__file__).with_name("operations.txt")
INTRODUCTION = """\
# The operations of `ops`

Every function: what it computes, for which dtypes, and its name elsewhere. `help(ops.softmax)` says
more, and `python -m miniml show Softmax` prints a primitive's definition, gradient, kernels and
tests. `python -m docs.operations` writes this page from docstrings, calls and `operations.txt`.

- **dtypes**: those of the numbers that the example in the last column may take. b is bool, i the
  integers (int8 to int64 and uint8), h float16 and bfloat16, f float32, d float64.
- **gradient**: how many derivatives were taken; *zero* where it is zero everywhere, *none* where
  the result is no float or is drawn.
- **vmap**: *one call* where it batches by facts and rules, *loop* where a part of it runs one
  example at a time, *refused* where the shape depends on values.
- **jvp**: *rules* where all of its parts have a tangent by a fact or a rule, *bprop* where some
  tangent is the transpose of a bprop; *none* where there is no gradient.
- **devices**: those with kernels for the example, compiled: CPU, and CUDA, on a GPU or in the
  simulator; "op by op" where a graph refuses it, as the shape depends on values.
- The names are those of `numpy`, `torch` (F is `torch.nn.functional`), `jax` (jnp is `jax.numpy`)
  and `mindspore.ops`, whose arguments may differ; "-" where nothing does the same in one call.

What to know beforehand; the docstrings have the details:

- `nonzero`, `unique` and `unique_all` run op by op only, since their shapes depend on values; a
  graph refuses them by name. `bincount` therefore takes its `length`.
- `quantile` and `percentile` take the values of q when they are called: in a traced function it may
  be a number or an array, but no traced tensor.
- Linear algebra takes float32 and float64, and gives NaN for a matrix that has no result.
- The second derivative of `det` is not reliable where a matrix is singular; the gradient of
  `slogdet` is NaN there, and that of `qr` means nothing where the first columns are dependent. What
  uses the vectors of `svd` or `eigh` has no gradient where two singular values or eigenvalues are
  equal, and what uses the values no second one: they are NaN or infinite.
- `scaled_dot_product_attention` computes large results and gradients in blocks, but its second
  derivative holds all scores.
- `while_loop` has a gradient in a graph only with `max_iterations`.
- `conv3d` copies its input once for each plane of its filters.
- Values are exact to a few units of the last digit ([native.md](native.md#equal-numbers) has the
  exceptions), and so are gradients, except:
  - those of `sigmoid` and `tanh`, out (1 - out) and 1 - out^2 as PyTorch's, have the rounding of 1:
    they are 0 from x = 17 on (float64: 37), and from |x| = 9 on (19), where exp(-x) and
    4 exp(-2 |x|) would be right. Those take one more exponential in the backward pass: 6 to 9 % of
    the compiled step of a perceptron 64-128-128-10, 15 % of the eager step of an LSTM;
  - where terms cancel to 0, as in that of `mish` at -1.197 and those of `lgamma` below 0, they are
    off by units of these terms.
- Sums of numbers of both signs next to the ends of the range (float32 of 1e38) overflow or not as
  the order of their terms has it, which is not the same eagerly, compiled, and in NumPy.
- `lgamma(-inf)` is inf as in C and PyTorch (SciPy: -inf), and `erfinv(-0.0)` is -0.0 (SciPy: 0.0).
- Complex numbers are on the CPU alone, for the linear part: [complex.md](complex.md).
"""


KINDS = {
    "b": ("bool",),
    "i": ("int8", "int16", "int32", "int64", "uint8"),
    "h": ("float16", "bfloat16"),
    "f": ("float32",),
    "d": ("float64",),
}
HEAD = (
    "function formula dtypes gradient vmap jvp devices NumPy PyTorch JAX MindSpore example".split()
)
DEVICES = {"CPU": "cpu", "CUDA": "cuda-sim"}
SHORT = {1: ("F.",), 2: ("lax.", "nn.", "scipy.", "jax.")}  # as they are
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
        """The first paragraph of its docstring, on one line."""
        text = inspect.getdoc(getattr(ops, self.name)) or ""
        return " ".join(text.split("\n\n")[0].split())


def rows() -> Iterator[Row]:
    """The lines of the table, and the functions that are primitives and stand in no line, by what
    their classes say."""
    listed = list(_listed())
    yield from listed
    known = {row.name for row in listed}
    for name, function in sorted(vars(ops).items()):
        if isinstance(function, Primitive) and name not in known:
            said = function.numpy
            ufuncs = [said] if isinstance(said, str) else list(said.values()) if said else []
            ufunc = f"np.{ufuncs[0]}" if len(ufuncs) == 1 else ""
            example = f"{name}({', '.join(function.input_names or 'x')})"
            yield Row("Further", name, example, (ufunc, "", "", ""))


def _listed() -> Iterator[Row]:
    section = ""
    for line in TABLE.read_text("utf-8").partition("\n\n")[2].splitlines():
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
    if other.startswith(SHORT.get(i, ())):
        return other
    return ("jax." if i == 2 and other.startswith("random.") else PLACES[i]) + other


def values(dtype: str) -> dict[str, Any]:
    """What the examples are made of; the numbers have this dtype."""
    rng = np.random.default_rng(0)

    def some(*shape: int, top: int = 3) -> ml.Tensor:
        drawn = rng.integers(1, top + 1, shape) / (1 if dtype in ("bool", *KINDS["i"]) else 4)
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
        "pairs": some(1, 2, 4),
        "i": ml.Tensor([2, 0, 1]),
        "j": ml.Tensor([[2, 0], [0, 1]]),
        "m": ml.Tensor([[True, False, True], [False, False, True]]),
        "labels": ml.Tensor([2, 0]),
        "p": some(2, 3, top=1),  # probabilities
    }


def call(row: Row, given: dict[str, Any]) -> Callable[..., Any]:
    """The example as a function of the numbers in `given`."""
    names = {"ops": ops, "ml": ml, **vars(ops)}
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
        reals = [abs(p) if p.dtype == ml.complex128 else p for p in parts]
        return ops.sum(ops.stack([(p * p).sum() for p in reals if p.dtype == ml.float64]))

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


def batched(row: Row) -> str:
    """The way it runs under vmap, with two examples of its numbers."""
    given = given_to(row)
    x = numbers(row, given)
    mapped = ml.vmap(lambda *at: call(row, given)(**dict(zip(x, at))))
    if not x:
        return "-"
    try:
        with ml.context(providers=("miniml",)):
            looped = ml.explain(mapped, *(ops.stack([v, v]) for v in x.values())).looped
    except ml.errors.MinimlError:
        return "refused"
    return "loop" if looped else "one call"


def tangent(row: Row) -> str:
    """What its tangents are made by."""
    given = values("float64")
    x = numbers(row, given)
    try:
        graph = ml.trace(call(row, given), **x)
    except ml.errors.MinimlError:
        return "none"
    kinds = {
        type(node.primitive)
        for node in graph.nodes
        if node.primitive.differentiable
        and any(v.abstract.dtype.kind in "fc" for v in (*node.inputs, *node.outputs))
    }
    stated = [
        jvp_rules.find(k) is not None or k in joint or k.view or k.linear or k.elementwise
        for k in kinds
    ]
    return "rules" if all(stated) else "bprop"


def devices(row: Row) -> str:
    """Those that have kernels for all that the example's program consists of, or run it eagerly."""
    given = given_to(row)
    try:
        ml.trace(call(row, given), **numbers(row, given))
        compiled = True
    except ml.errors.GraphError:
        compiled = False
    found = [text for text, device in DEVICES.items() if _runs(row, device, compiled)]
    return ", ".join(found) + ("" if compiled else ", op by op")


def given_to(row: Row) -> dict[str, Any]:
    """The values for its example, of the usual dtype, or of the first that it takes."""
    return values(next((d for d in ("float32", "int64", "bool") if _takes(row, d)), "float32"))


def _runs(row: Row, device: str, compiled: bool) -> bool:
    with ml.context(device_target=device, providers=("miniml",)):
        given = given_to(row)
        try:
            if compiled:
                ml.explain(call(row, given), **numbers(row, given))
            else:
                call(row, given)()
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
    measured = ["-"] * 5
    if row.example:
        derivatives = gradient(row)
        tangents = tangent(row) if derivatives.isdigit() else "none"
        measured = [dtypes(row), derivatives, batched(row), tangents, devices(row)]
    others = (f"`{name}`" if name else "-" for name in row.others)
    example = f"`{row.example}`" if row.example else "-"
    cells = (f"`{row.name}`", row.formula.replace("|", "\\|"), *measured, *others, example)
    return f"| {' | '.join(cells)} |"


if __name__ == "__main__":
    PAGE.write_text(page(), "utf-8")
