"""C of solvers and matrix decompositions, by plain algorithms: elimination with partial pivoting,
substitution, Cholesky's and Householder's factors, and rotations for eigenvalues and singular
values. A matrix without a result gets NaN, as in Python.

Source: Golub, Van Loan, "Matrix Computations" (2013), sections 3.4, 4.2, 5.2, 8.5 and 8.6.3.
"""

from __future__ import annotations

import re
from math import prod
from pathlib import Path

from ...core.dtype import DType, float64
from ...graph.ir import Node
from .registering import Loop, loop


@loop("Solve")
def _solve(node: Node) -> Loop:
    n, k = node.outputs[0].abstract.shape[-2:]
    body = f"""\
memcpy(work, x, {n * n} * sizeof(REAL));
memcpy(out, y, {n * k} * sizeof(REAL));
found = miniml_eliminate_REAL(work, {n}, out, {k}) &&
        miniml_substitute_REAL(work, {n}, 1, {n}, 1, 0, out, {k});"""
    return _of_stacks(node, body, n * n)


@loop("TriangularSolve")
def _triangular_solve(node: Node) -> Loop:
    (n, k), attrs = node.outputs[0].abstract.shape[-2:], node.attrs
    steps = f"1, {n}" if attrs["transpose"] else f"{n}, 1"
    upwards, unit = int(attrs["upper"] != attrs["transpose"]), int(attrs["unit_diagonal"])
    body = f"""\
memcpy(out, y, {n * k} * sizeof(REAL));
found = miniml_substitute_REAL(x, {steps}, {n}, {upwards}, {unit}, out, {k});"""
    return _of_stacks(node, body, checked=False)


@loop("Cholesky")
def _cholesky(node: Node) -> Loop:
    n = node.outputs[0].abstract.shape[-1]
    return _of_stacks(node, f"found = miniml_cholesky_REAL(x, {n}, out);")


@loop("Det")
def _det(node: Node) -> Loop:
    n = node.inputs[0].abstract.shape[-1]
    body = f"""\
memcpy(work, x, {n * n} * sizeof(REAL));
out[0] = miniml_eliminate_REAL(work, {n}, 0, 0);
for (long i = 0; i < {n}; ++i) out[0] *= work[i * {n + 1}];"""
    return _of_stacks(node, body, n * n)


@loop("SlogDet")
def _slogdet(node: Node) -> Loop:
    n = node.inputs[0].abstract.shape[-1]
    body = f"""\
memcpy(work, x, {n * n} * sizeof(REAL));
out[0] = miniml_eliminate_REAL(work, {n}, 0, 0);
out1[0] = out[0] == 0 ? -INFINITY : 0;
for (long i = 0; i < {n} && out[0] != 0; ++i) {{
  const REAL pivot = work[i * {n + 1}];
  out[0] *= pivot < 0 ? -1 : 1;
  out1[0] += LOG(FABS(pivot));
}}"""
    return _of_stacks(node, body, n * n)


@loop("QR")
def _qr(node: Node) -> Loop:
    m, n = node.inputs[0].abstract.shape[-2:]
    body = f"""\
memcpy(work, x, {m * n} * sizeof(REAL));
miniml_qr_REAL(work, {m}, {n}, out, out1, work + {m * n});"""
    return _of_stacks(node, body, m * n + min(m, n) * m, ("qr",))


@loop("Eigh")
def _eigh(node: Node) -> Loop:
    n = node.inputs[0].abstract.shape[-1]
    body = f"""\
for (long i = 0; i < {n}; ++i)
  for (long j = 0; j < {n}; ++j) work[i * {n} + j] = x[i * {n} + j] / 2 + x[j * {n} + i] / 2;
miniml_eigh_REAL(work, {n}, out, out1);"""
    return _of_stacks(node, body, n * n, ("jacobi",))


@loop("SVD")
def _svd(node: Node) -> Loop:
    """Rotations turn columns, or rows if these are fewer; they become the left vectors."""
    m, n = node.inputs[0].abstract.shape[-2:]
    k = min(m, n)
    u, v = ("left", "right") if m >= n else ("right", "left")
    body = f"""\
{_factored(m, n, "out1")}
for (long i = 0; i < {k}; ++i) {{
  const REAL sign = miniml_sign_REAL({u} + i * {m}, 1, {m});
  for (long j = 0; j < {m}; ++j) out[j * {k} + i] = sign * {u}[i * {m} + j];
  for (long j = 0; j < {n}; ++j) out2[i * {n} + j] = sign * {v}[i * {n} + j];
}}"""
    return _of_stacks(node, body, m * n + k * k, ("jacobi",))


@loop("Pinv")
def _pinv(node: Node) -> Loop:
    m, n = node.inputs[0].abstract.shape[-2:]
    k = min(m, n)
    u, v = ("left", "right") if m >= n else ("right", "left")
    body = f"""\
REAL *const s = work + {m * n + k * k};
{_factored(m, n, "s")}
for (long i = 0; i < {n}; ++i)
  for (long j = 0; j < {m}; ++j) {{
    REAL sum = 0;
    for (long l = 0; l < {k} && s[l] > (REAL){float(node.attrs["rtol"])!r} * s[0]; ++l)
      sum += {v}[l * {n} + i] / s[l] * {u}[l * {m} + j];
    out[i * {m} + j] = sum;
  }}"""
    return _of_stacks(node, body, m * n + k * k + k, ("jacobi",))


def _factored(m: int, n: int, s: str) -> str:
    """The singular values s, and as rows the vectors `left`, of the longer side, and `right`."""
    k, rows = min(m, n), max(m, n)
    place = f"i * {n} + j" if m < n else f"j * {m} + i"
    return f"""\
REAL *const left = work, *const right = work + {m * n};
for (long i = 0; i < {m}; ++i)
  for (long j = 0; j < {n}; ++j) left[{place}] = x[i * {n} + j];
miniml_svd_REAL(left, {rows}, {k}, {s}, right);"""


def _of_stacks(
    node: Node, body: str, work: int = 0, files: tuple[str, ...] = (), checked: bool = True
) -> Loop:
    """The loop over stacks, of whose matrices `body` takes one after the other.

    It computes out, out1 and out2 from x and y, where `found` may become 0 for NaN, with `work`
    elements of scratch memory. checked: x must be finite."""
    dtype = node.inputs[0].abstract.dtype
    shapes = [v.abstract.shape for v in (*node.inputs, *node.outputs)]
    stacks = prod(shapes[0][:-2])
    names = [*"xy"[: len(node.inputs)], *("out", "out1", "out2")[: len(node.outputs)]]
    sizes = {name: prod(shape) // max(stacks, 1) for name, shape in zip(names, shapes, strict=True)}
    first = f"miniml_finite_REAL(x, {sizes['x']})" if checked else "1"
    lines = []
    for i, (name, size) in enumerate(sizes.items()):
        const = "const " * (i < len(node.inputs))
        lines.append(f"{const}REAL *const {name} = ({const}REAL *)at[{i}] + stack * {size}L;")
    lines += [f"REAL *const work = (REAL *)at[{len(shapes)}];"] if work else []
    lines += [f"int found = {first};", "if (found) {"]
    lines += [f"  {line}" for line in body.splitlines()]
    lines += ["}"]
    for name in names[len(node.inputs) :]:
        lines += [f"if (!found) miniml_fill_REAL({name}, {sizes[name]}, NAN);"]
    whole = "\n".join(f"    {line}" for line in lines)
    text = f"""\
void KERNEL(char *const *at) {{
  for (long stack = 0; stack < {stacks}L; ++stack) {{
{whole}
  }}
}}
"""
    shared = tuple(_in(dtype, _file(name)) for name in ("factors", *files))
    return Loop(_in(dtype, text), shared, work * dtype.itemsize)


_WORDS = ("REAL", "EPS", "FABS", "SQRT", "LOG", "FREXP", "LDEXP")
_FLOAT = dict(
    zip(_WORDS, ("float", "0x1p-23f", "fabsf", "sqrtf", "logf", "frexpf", "ldexpf"), strict=True)
)
_DOUBLE = dict(
    zip(_WORDS, ("double", "0x1p-52", "fabs", "sqrt", "log", "frexp", "ldexp"), strict=True)
)


def _in(dtype: DType, text: str) -> str:
    """The text for float32 or float64."""
    words = _DOUBLE if dtype == float64 else _FLOAT
    return re.sub("|".join(_WORDS), lambda found: words[found[0]], text)


def _file(name: str) -> str:
    return Path(__file__).with_name(f"{name}.c").read_text("utf-8")
