"""Sorting, searching, running sums and extrema, and indices of extrema in C, along one axis.

Sorting first, by radix of keys in the order of the elements, then what goes along an axis once. All
give the bits of NumPy's kernels, but for logarithms of sums of exponentials.
"""

from __future__ import annotations

from math import prod

import numpy as np

from ...core.abstract import ArraySpec, DType, bool_, is_float, uint8, uint64
from ...core.signature import ANY, INT, WHOLE, WIDE, same
from ..expressions import ends
from ..kernel import KernelNode
from ..registry import kernel
from .native import NativeKernel
from .scalars import STORED, accumulator, in_c, register_bytes
from .units import defined, header, template

_NAMES = "order", "extrema", "running", "search"
_TEXT, _EXTREMA, _RUNNING, _SEARCH = (template(f"text/{name}.c") for name in _NAMES)
_MOST = 8  # parts of a kernel, each with room of its own
_LANES = 64  # elements, or rows, side by side
_FEW = 64  # elements that are sorted by insertion, and not by counts of digits
_LONG = 2048  # elements from which on digits have 11 bits, and not 8: as many as their values
_CHOSEN = 2048  # counts by which the greatest elements are chosen
_SPLIT = 30_000  # elements, some 50 us, from which on rows are divided


def _axis(node: KernelNode) -> tuple[int, int, int]:
    """Rows outside of the axis, its extent, and elements inside of it, which are its step."""
    shape, axis = node.inputs[0].shape, node.attrs["axis"]
    if axis is None:
        return 1, prod(shape), 1
    at = axis % max(len(shape), 1)
    return prod(shape[:at]), prod(shape[at : at + 1]), prod(shape[at + 1 :])


def _parts(rows: int, size: int) -> int:
    """In how many parts rows of this size are computed."""
    return max(1, min(rows, _MOST, rows * size // _SPLIT))


# --- Sorting --------------------------------------------------------------------------------------


class Sort(NativeKernel):
    """A stable sort of each row, or its first elements."""

    def prepare(self, node: KernelNode) -> None:
        super().prepare(node)
        (x,), (outer, n, step) = node.inputs, _axis(node)
        size, rows = 8 * x.dtype.itemsize, outer * step
        self.taken = node.outputs[0].shape[node.attrs["axis"]] if n else 0
        self.parts = _parts(rows, n)
        digit = 11 if n >= _LONG else 8
        counts = max(-(-size // digit) << digit, _CHOSEN) // 2 if n > _FEW else 0
        part = 2 * (n + 1) * (2 if size == 64 else 1) + counts
        self.words = self.parts * part
        names = {
            "T": f"uint{size}_t", "BITS": size, "N": f"{n}L", "STEP": f"{step}L",
            "TAKEN": f"{self.taken}L", "ROWS": f"{rows}L", "PARTS": f"{self.parts}L",
            "PART": f"{part}L", "FEW": _FEW, "DIGIT": digit,
            "KEY": _key(x.dtype, node.attrs.get("descending", node.attrs.get("largest"))),
        }  # fmt: skip
        self.source = defined(names, _TEXT, header("types"))

    def workspace(self) -> tuple[ArraySpec, ...]:
        return (ArraySpec((self.words,), uint64),)


def _key(dtype: DType, backwards: bool) -> str:
    """C that returns the key of the element at x: 0 and -0 are equal, and so are NaN."""
    size, turned = 8 * dtype.itemsize, "~" if backwards else ""
    c, top = f"uint{size}_t", f"((uint{size}_t)1 << {size - 1})"
    if not is_float(dtype):
        return f"return ({c}){turned}(*x ^ {top if dtype.kind == 'i' else 0});"
    infinite = f"{np.array(np.inf, dtype).view(f'u{dtype.itemsize}'):#x}ull"
    return (
        f"const {c} size = *x & ({top} - 1), sign = *x & {top};"
        f" const {c} key = size == 0 ? {top} : sign ? ({c})~*x : *x | {top};"
        f" return ({c}){turned}(size > {infinite} ? ({c})-1 : key);"
    )


class Search(NativeKernel):
    """The number of elements of a sorted row that are less, or not greater, than each value."""

    def prepare(self, node: KernelNode) -> None:
        super().prepare(node)
        x, values = node.inputs
        n, rows, count = x.shape[-1], prod(x.shape[:-1]), prod(values.shape)
        names = {
            "T": STORED[x.dtype], "I": "int32_t" if rows * n < 2**31 else "int64_t", "N": f"{n}L",
            "ROWS": rows, "EACH": count // max(rows, 1), "COUNT": f"{count}L", "LANES": 32,
            "PARTS": _parts(count, n.bit_length()),
            "COMES": "(x < v) | ((v != v) & (x == x))" if node.attrs["side"] == "left"
            else "(x <= v) | (v != v)",
        }  # fmt: skip
        self.source = defined(names, _SEARCH)


# --- Along an axis --------------------------------------------------------------------------------


# Of a running operation: how it starts, its result for nothing, and how it goes on from a to b. A
# sum starts from -0, which changes no number.
_STEPS = {
    "CumSum": ("-0.0", "0", "a + b"),
    "CumProd": ("1", "1", "a * b"),
    "CumMax": ("LOWEST", "0", "KERNEL_BETTER ? b : a"),
    "CumMin": ("HIGHEST", "0", "KERNEL_BETTER ? b : a"),
    "LogCumSumExp": ("LOWEST", "0", "log_add(a, b)"),
}
_BETTER_THAN = {"CumMax": "((b > a) | (b != b))", "CumMin": "((b < a) | (b != b))"}
_ADDING = {"CumSum": "Sum", "CumProd": "Prod"}  # of integers modulo 2^bits


class Running(NativeKernel):
    """The results of each element with those before it, from one end of the axis."""

    def prepare(self, node: KernelNode) -> None:
        super().prepare(node)
        (x,), (out,), (outer, n, step) = node.inputs, node.outputs, _axis(node)
        first, nothing, combined = _STEPS[node.name]
        low, high = ends(uint8 if x.dtype == bool_ else x.dtype)
        first = first.replace("LOWEST", low).replace("HIGHEST", high)
        vectors = step == 1 and n >= _LANES and node.name in _BETTER_THAN
        combined, shared = in_c(combined, {})
        width = register_bytes(node.masked) // x.dtype.itemsize
        names = {
            "T": STORED[x.dtype], "O": STORED[out.dtype], "I": f"int{8 * x.dtype.itemsize}_t",
            "A": STORED[accumulator(_ADDING.get(node.name, "Max"), out.dtype)],
            "OUTER": f"{outer}L", "N": f"{n}L", "STEP": f"{step}L",
            "SIDE": min(outer, 5) if step == 1 else 1,
            "LANES": _LANES if vectors else min(step, _LANES),
            "PARTS": f"{_parts(outer, n * step)}L", "FIRST": first, "NOTHING": nothing,
            "REVERSE": int(node.attrs.get("reverse", False)),
            "EXCLUSIVE": int(node.attrs.get("exclusive", False)),
            "BYTES": width * x.dtype.itemsize, "WIDTH": width, "ROUNDS": _rounds(width),
            "LAST": ", ".join([str(width - 1)] * width),
            "BETTER": _BETTER_THAN.get(node.name, "0"), "COMBINED": combined,
        }  # fmt: skip
        self.source = defined(names, _EXTREMA if vectors else _RUNNING, shared)


def _rounds(width: int) -> str:
    """C that combines the lanes of w with all those before them."""
    lines = []
    for d in (1 << k for k in range(width.bit_length() - 1)):
        lanes = ", ".join(str(width - d + i) for i in range(width))
        lines.append(f"w = KERNEL_of(__builtin_shufflevector(none, w, {lanes}), w);")
    return " ".join(lines)


# Lanes of a row, or of neighbouring rows, each with its extremum so far and the index of that. The
# first of equals wins, and the first NaN whatever follows.
_BETTER = """
static inline int KERNEL_better(KERNEL_T v, KERNEL_T best) {
  return ((v KERNEL_THAN best) | (v != v)) & (best == best);
}
"""
_ACROSS = """
static void KERNEL_row(const KERNEL_T *restrict row, int64_t *restrict out) {
  for (long c = 0; c < KERNEL_STEP; c += KERNEL_LANES) {
    const KERNEL_T *restrict x = row + c;
    const long lanes = KERNEL_STEP - c < KERNEL_LANES ? KERNEL_STEP - c : KERNEL_LANES;
    KERNEL_T best[KERNEL_LANES];
    KERNEL_I where[KERNEL_LANES];
    for (long l = 0; l < lanes; ++l) best[l] = x[l], where[l] = 0;
    for (long i = 1; i < KERNEL_N; ++i)
      for (long l = 0; l < lanes; ++l) {
        const KERNEL_T v = x[i * KERNEL_STEP + l];
        const int better = KERNEL_better(v, best[l]);
        best[l] = better ? v : best[l];
        where[l] = better ? (KERNEL_I)i : where[l];
      }
    for (long l = 0; l < lanes; ++l) out[c + l] = where[l];
  }
}
"""
_ALONG = """
static void KERNEL_row(const KERNEL_T *restrict x, int64_t *restrict out) {
  KERNEL_T best[KERNEL_LANES];
  KERNEL_I where[KERNEL_LANES];
  for (long l = 0; l < KERNEL_LANES; ++l) best[l] = x[l], where[l] = (KERNEL_I)l;
  for (long b = KERNEL_LANES; b < KERNEL_N; b += KERNEL_LANES) {
    const long lanes = KERNEL_N - b < KERNEL_LANES ? KERNEL_N - b : KERNEL_LANES;
    for (long l = 0; l < lanes; ++l) {
      const KERNEL_T v = x[b + l];
      const int better = KERNEL_better(v, best[l]);
      best[l] = better ? v : best[l];
      where[l] = better ? (KERNEL_I)(b + l) : where[l];
    }
  }
  for (long w = KERNEL_LANES / 2; w; w /= 2)
    for (long l = 0; l < w; ++l) {
      const KERNEL_T v = best[l + w], known = best[l];
      const int equal = (v == known) | ((v != v) & (known != known));
      const int better = KERNEL_better(v, known) | (equal & (where[l + w] < where[l]));
      best[l] = better ? v : known;
      where[l] = better ? where[l + w] : where[l];
    }
  *out = where[0];
}
"""
_WHOLE = """
static void KERNEL_part(void *data, long part) {
  char *const *at = (char *const *)data;
  const long end = KERNEL_OUTER * (part + 1) / KERNEL_PARTS;
  for (long r = KERNEL_OUTER * part / KERNEL_PARTS; r < end; ++r)
    KERNEL_row((const KERNEL_T *)at[0] + r * KERNEL_N * KERNEL_STEP,
               (int64_t *)at[1] + r * KERNEL_STEP);
}
void KERNEL(char *const *at) { miniml.parallel(KERNEL_part, (void *)at, KERNEL_PARTS); }
"""


class Extremum(NativeKernel):
    """The index of the first extremum of each row."""

    def prepare(self, node: KernelNode) -> None:
        super().prepare(node)
        (x,), (outer, n, step) = node.inputs, _axis(node)
        lanes = 16 if n < 8 * _LANES else _LANES
        along = step == 1 and n >= lanes
        names = {
            "T": STORED[x.dtype], "I": f"int{8 * max(x.dtype.itemsize, 4)}_t",
            "OUTER": f"{outer}L", "N": f"{n}L", "STEP": f"{step}L",
            "LANES": lanes if along else min(step, _LANES),
            "PARTS": f"{_parts(outer, n * step)}L", "THAN": ">" if node.name == "ArgMax" else "<",
        }  # fmt: skip
        rows = _ALONG if along else _ACROSS
        self.source = defined(names, _BETTER + rows + _WHOLE, header("types"))


_wide = f"?{INT}{WIDE}"  # floats of 16 bits are cast to float32, by vector code
for _kernel, _names, _signatures in (
    (Sort, "Sort TopK", [f"{c}->{c}l" for c in ANY]),
    (Running, "CumSum CumProd", [*same(1, WIDE), *WHOLE]),
    (Running, "CumMax CumMin", same(1, _wide)),
    (Running, "LogCumSumExp", same(1, WIDE)),
    (Extremum, "ArgMax ArgMin", same(1, _wide, "l")),
    (Search, "SearchSorted", [f"{c}{c}->l" for c in _wide]),
):
    for _name in _names.split():
        kernel(_name, "cpu", *_signatures, provider="cc", total=True)(_kernel)
