"""C of sums of products, of memory formats, and of solvers and decompositions of matrices.

Einstein sums are taken two operands at a time; products of integers wrap around, and those of bools
are such sums. Then the memory formats of images. Solvers and decompositions are plain algorithms:
elimination with partial pivoting, substitution, Cholesky's and Householder's factors, and rotations
for eigenvalues and singular values. A matrix without a result gets NaN, as in Python.

Source: Golub, Van Loan, "Matrix Computations" (2013), sections 3.4, 4.2, 5.2, 8.5 and 8.6.3.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from math import prod
from pathlib import Path
from typing import NamedTuple

from ..backends.cc.scalars import STORED, loaded, stored, value_type
from ..backends.cc.units import header
from ..backends.cpu.linalg import order
from ..core.abstract import FORMATS, PLAIN, Abstract, DType, bool_, float64
from ..graph.ir import Node
from ..ops.linalg import parse
from .loops import Loop, loop, nest, offset, pointers, strides, sum_type


class _Operand(NamedTuple):
    """An array: its labels, the step of each, and its element in C, in which {} is the offset."""

    labels: str
    steps: Sequence[int]
    element: str

    def at(self, counters: str) -> str:
        """The element at the counters of these labels; of one that it has twice on the diagonal."""
        every = [0] * len(counters)
        for label, step in zip(self.labels, self.steps, strict=True):
            every[counters.index(label)] += step
        return self.element.format(offset(every))


@loop("Einsum")
def _einsum(node: Node) -> Loop:
    """The operands are taken in the order in which NumPy's kernel does; what is made of two lies in
    scratch memory."""
    shapes = tuple(v.abstract.shape for v in node.inputs)
    dtype = node.inputs[0].abstract.dtype
    equation = parse(node.attrs["equation"], shapes)
    names = [f"x{i}" for i in range(len(shapes))]
    left = [
        _Operand(labels, strides(shape, shape), loaded(dtype, f"{name}[{{}}]"))
        for labels, shape, name in zip(equation.operands, shapes, names, strict=True)
    ]
    c, lines, scratch = value_type(dtype), [pointers(node, *names, "out")], 0
    for takes in order(list(equation.operands), equation.output, equation.extents):
        taken = [left.pop(i) for i in takes]
        if not left:
            lines.append(_contracted(taken, equation.output, equation.extents, dtype, "out"))
            break
        read = "".join((equation.output, *(x.labels for x in left)))
        labels = "".join(dict.fromkeys(c for x in taken for c in x.labels if c in read))
        shape = tuple(equation.extents[label] for label in labels)
        name = f"part{len(lines)}"
        lines.append(f"  {c} *const {name} = ({c} *)at[{len(shapes) + 1}] + {scratch}L;")
        lines.append(_contracted(taken, labels, equation.extents, dtype, name))
        left.append(_Operand(labels, strides(shape, shape), f"{name}[{{}}]"))
        scratch += prod(shape)
    text = "\n".join(lines)
    size = 8 if c == "double" or dtype.itemsize == 8 else 4
    return Loop(f"void KERNEL(char *const *at) {{\n{text}\n}}\n", header("convert"), scratch * size)


@loop("MatMul")
def _matmul(node: Node) -> Loop | str:
    """A product of integers, which wrap around as NumPy's do, or of bools."""
    x, y = (v.abstract for v in node.inputs)
    out, attrs = node.outputs[0].abstract, node.attrs
    if out.dtype.kind not in "iu":
        return _product(node)
    rows_x = x.shape if len(x.shape) > 1 else (1, *x.shape)
    rows_y = y.shape if len(y.shape) > 1 else (*y.shape, 1)
    m, k = rows_x[-2:][:: -1 if attrs["transpose_x"] and len(x.shape) > 1 else 1]
    n = rows_y[-2 if attrs["transpose_y"] and len(y.shape) > 1 else -1]
    by_row, by_term = (1, m) if attrs["transpose_x"] and len(x.shape) > 1 else (k, 1)
    term, by_column = (1, k) if attrs["transpose_y"] and len(y.shape) > 1 else (n, 1)
    batch = out.shape[: len(out.shape) - (len(x.shape) > 1) - (len(y.shape) > 1)]
    at_x = offset([s * m * k for s in strides(rows_x[:-2], batch)])
    at_y = offset([s * k * n for s in strides(rows_y[:-2], batch)])
    c, wide = STORED[out.dtype], "uint64_t" if out.dtype.itemsize == 8 else "uint32_t"
    return f"""\
void KERNEL(char *const *at) {{
  {c} *out = ({c} *)at[2];
{nest(batch)}
  {{
    const {c} *x = (const {c} *)at[0] + {at_x}, *y = (const {c} *)at[1] + {at_y};
    for (long r = 0; r < {m}L; ++r)
      for (long c = 0; c < {n}L; ++c) {{
        {wide} sum = 0;
        for (long t = 0; t < {k}L; ++t)
          sum += ({wide})x[r * {by_row}L + t * {by_term}L] *
                 ({wide})y[t * {term}L + c * {by_column}L];
        *out++ = ({c})sum;
      }}
  }}
}}
"""


def _product(node: Node) -> Loop:
    """A product of matrices of bools as an Einstein sum."""
    x, y = (v.abstract for v in node.inputs)
    out, attrs = node.outputs[0].abstract, node.attrs
    batch = "abcdefghijklmnopqrstuvw"[: max(len(x.shape), len(y.shape), 2) - 2]
    rows, columns = ("x" if len(x.shape) > 1 else ""), ("y" if len(y.shape) > 1 else "")
    left, right = f"{rows}z", f"z{columns}"
    if attrs["transpose_x"]:
        left = left[::-1]
    if attrs["transpose_y"]:
        right = right[::-1]
    labels = [
        batch[len(batch) + len(own) - len(a.shape) :] + own
        for own, a in ((left, x), (right, y))
    ]  # fmt: skip
    extents: dict[str, int] = {}
    for term, a in zip(labels, (x, y), strict=True):
        for label, n in zip(term, a.shape, strict=True):
            extents[label] = max(n, extents.get(label, 1))
    operands = [
        _Operand(term, strides(a.shape, a.shape), loaded(a.dtype, f"{name}[{{}}]"))
        for name, term, a in zip("xy", labels, (x, y), strict=True)
    ]
    body = _contracted(operands, batch + rows + columns, extents, out.dtype, "out")
    arrays = pointers(node, "x", "y", "out")
    return Loop(f"void KERNEL(char *const *at) {{\n{arrays}\n{body}\n}}\n", header("convert"))


def _contracted(
    operands: Sequence[_Operand], labels: str, extents: dict[str, int], dtype: DType, out: str
) -> str:
    """The loops that fill `out`, of these labels, with sums of products of the operands."""
    summed = "".join(dict.fromkeys(c for x in operands for c in x.labels if c not in labels))
    counters, c = labels + summed, sum_type(dtype)
    terms = [x.at(counters) for x in operands]
    if dtype == bool_:
        term = f"sum |= {' & '.join(terms)};"
    else:
        term = f"sum += {' * '.join(f'({c}){t}' for t in terms)};"
    value = f"({value_type(dtype)})sum"
    heads = nest([extents[label] for label in counters]).splitlines()
    outer, inner = heads[: len(labels)], [f"  {head}" for head in heads[len(labels) :]]
    return "\n".join(
        [
            "  {",
            "  long o = 0;",
            *outer,
            "  {",
            f"    {c} sum = 0;",
            *inner,
            f"    {term}",
            f"    {out}[o++] = {stored(dtype, value) if out == 'out' else value};",
            "  }",
            "  }",
        ]
    )


# --- Memory formats -------------------------------------------------------------------------------


@loop("Convert")
def _convert(node: Node) -> str:
    x, out = node.inputs[0].abstract, node.outputs[0].abstract
    here = "i0", "i1", "i2", "i3"
    return f"""\
void KERNEL(char *const *at) {{
{pointers(node, "x", "out")}
  memset(out, 0, {prod(out.stored) * out.dtype.itemsize}L);
{nest(x.shape)}
    out[{_place(out, here)}] = x[{_place(x, here)}];
}}
"""


def _place(images: Abstract, at: Sequence[str]) -> str:
    """The offset of the pixel (n, c, h, w) in the memory format of images."""
    axes, block = FORMATS[images.format or PLAIN]
    n, c, h, w = at
    if block:
        _, blocks, height, width, _ = images.stored
        row = f"(({n} * {blocks}L + {c} / {block}) * {height}L + {h}) * {width}L + {w}"
        return f"({row}) * {block}L + {c} % {block}"
    steps = strides(images.stored, images.stored)
    return " + ".join(f"{name} * {steps[axes.index(k)]}L" for k, name in enumerate(at))


# --- Solvers and decompositions -------------------------------------------------------------------


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


_FUNCTIONS = {
    name: (f"{name.lower()}f", name.lower()) for name in "FABS SQRT LOG FREXP LDEXP".split()
}
_WORDS = {"REAL": ("float", "double"), "EPS": ("0x1p-23f", "0x1p-52"), **_FUNCTIONS}


def _in(dtype: DType, text: str) -> str:
    """The text for float32 or float64."""
    return re.sub("|".join(_WORDS), lambda found: _WORDS[found[0]][dtype == float64], text)


def _file(name: str) -> str:
    return Path(__file__).with_name(f"{name}.c").read_text("utf-8")
