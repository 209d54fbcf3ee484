"""CUDA C that every kernel may use, its compilation, and the launch geometry that goes with it.

Parts: units, a prelude, parameters and a text; compilation to launchable functions, each text once;
the check of arguments against the parameters in a text; layouts, the addresses of the elements of
strided arrays; groups of threads that work on one row and combine their results; kernels of strided
copies and filling.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from functools import cache
from math import prod
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ....core.abstract import DType, bfloat16, float16
from ....core.errors import LaunchError, ShapeError
from ... import expressions
from ...compiled import digest
from ...expressions import Row, accumulation, computed, ends
from ...product import Axis, Shape, broadcast_steps
from ...product import merged as merge
from ..array import DeviceArray

# --- Units ----------------------------------------------------------------------------------------


C_TYPES = expressions.C_TYPES | {float16: "__half", bfloat16: "__nv_bfloat16"}
# For 16-bit types: the header, and the functions to and from float.
_HALVES = {
    float16: ("cuda_fp16.h", "__half2float", "__float2half"),
    bfloat16: ("cuda_bf16.h", "__bfloat162float", "__float2bfloat16"),
}


def unit(text: str, /, **names: DType | int | str) -> str:
    """The text below the prelude and its names: a dtype's is the C type, a record's the struct with
    its fields, any other value's a macro."""
    dtypes = (value for value in names.values() if isinstance(value, np.dtype))
    return prelude(dtypes) + "".join(map(_named, names, names.values())) + text


def _named(name: str, value: DType | int | str) -> str:
    if isinstance(value, np.dtype):
        return struct(name, value) if value.names else f"typedef {C_TYPES[value]} {name};\n"
    return f"#define {name} {value}\n"


def struct(name: str, record: DType) -> str:
    """The C struct of a record of numbers, and of arrays of them."""
    fields = {field: record[field] for field in record.names or ()}
    extents = {field: "".join(f"[{n}]" for n in d.shape) for field, d in fields.items()}
    rows = (f"{C_TYPES[d.base]} {field}{extents[field]};" for field, d in fields.items())
    return f"struct {name} {{ {' '.join(rows)} }};\n"


def prelude(dtypes: Iterable[DType]) -> str:
    """The text above a kernel that uses these dtypes."""
    known = set(dtypes)
    halves = [d for d in _HALVES if d in known]
    includes = "".join(f"#include <{_HALVES[d][0]}>\n" for d in halves)
    own = expressions.definitions("template <typename A> __device__ __forceinline__ ")
    library = f"namespace miniml {{\n{own}{LAYOUT}{GROUPS}}}  // namespace miniml\n"
    return includes + PRELUDE + "".join(map(_of_16_bits, halves)) + library


def _of_16_bits(dtype: DType) -> str:
    """The definitions for a 16-bit type, which is loaded as float and stored from float."""
    c, (_, to_float, from_float) = C_TYPES[dtype], _HALVES[dtype]
    return f"""namespace miniml {{
template <> struct Compute<{c}> {{ typedef float type; }};
__device__ __forceinline__ float load({c} x) {{ return {to_float}(x); }}
template <typename S> struct Convert<{c}, S> {{
  static __device__ __forceinline__ {c} from(S x) {{ return {from_float}((float)x); }}
}};
}}  // namespace miniml
"""


# NVRTC has no host headers, so it lacks the names that they define.
PRELUDE = r"""
#ifndef INFINITY
#define INFINITY __int_as_float(0x7f800000)
#endif
#ifndef NAN
#define NAN __int_as_float(0x7fffffff)
#endif
#ifndef M_PI
#define M_PI 3.14159265358979323846
#endif
// A thread's share of the numbers from `first` (0) to n: those a whole grid apart.
#define MINIML_FOR_FROM(i, first, n)                                                            \
  for (long long i = (first) + (long long)blockIdx.x * blockDim.x + threadIdx.x,                \
                 i##_step = (long long)gridDim.x * blockDim.x;                                  \
       i < (n); i += i##_step)
#define MINIML_FOR(i, n) MINIML_FOR_FROM(i, 0, n)
namespace miniml {
template <typename A> struct Compute { typedef A type; };
template <typename A> __device__ __forceinline__ A load(A x) { return x; }
template <typename A> constexpr bool is_float = A(0.5f) != A(0) && A(0.5f) != A(1);
template <typename A> constexpr bool is_integer = A(0.5f) == A(0);
// The integers of a type as floating-point bounds: [low, past).
template <typename D> __device__ __forceinline__ double past() {
  double top = 1.0;
  for (int i = 0; i < 8 * (int)sizeof(D) - (D(-1) < D(1) ? 1 : 0); ++i) top *= 2.0;
  return top;
}
// From floating point to integers: towards zero, the nearest end of the range outside, 0 for NaN.
template <typename D> __device__ __forceinline__ D saturate(double x) {
  const bool is_signed = D(-1) < D(1);
  const double top = past<D>(), bottom = is_signed ? -top : 0.0;
  if (x != x) return D(0);
  if (x >= top) return D(is_signed ? ~(1ULL << (8 * sizeof(D) - 1)) : ~0ULL);
  if (x <= bottom) return D(is_signed ? 1ULL << (8 * sizeof(D) - 1) : 0ULL);
  return D(x);
}
template <typename D, typename S> struct Convert {
  static __device__ __forceinline__ D from(S x) {
    if constexpr (is_float<S> && is_integer<D>) return saturate<D>(x);
    else if constexpr (!is_float<D> && !is_integer<D>) return x != S(0);
    else return D(x);
  }
};
// A computed number as a stored one.
template <typename D, typename S> __device__ __forceinline__ D store(S x) {
  return Convert<D, S>::from(x);
}
}  // namespace miniml
"""


# --- Compilation ----------------------------------------------------------------------------------


OPTIONS = ("--std=c++17",)
_KERNEL = re.compile(r"__global__\b[^;{]*?\b(?!__)([A-Za-z_]\w*)\s*\([^;{]*\)\s*\{")


class Compiler:
    """The kernels of one device by their text; cupy and the simulator keep them on disk, too."""

    def __init__(self, driver: Any):
        self._driver = driver
        self._units: dict[tuple[str, ...], Any] = {}
        self._functions: dict[tuple[str, ...], Any] = {}

    def function(self, code: str, entry: str, options: Sequence[str] = ()) -> Any:
        """The `extern "C" __global__` function `entry` of the text.

        It is called as f(grid, block, arguments, shared_mem=bytes); f.get_global(name) is the
        address of a variable of the text, as in cupy's RawModule, for an array of the module's:
        `node.device.module.ndarray(shape, dtype, f.get_global(name)).set(values)`. options: further
        ones of the compiler. Messages call the text by its first kernel, unless it has a #line of
        its own. CompileError, with the compiler's log, when the text does not compile.
        """
        if options or '#include "' in code:
            code = _with_headers(code, options)
        key = code, entry, *options
        found = self._functions.get(key)
        if found is None:
            loaded = self._unit(_titled(code), *options)
            found = self._functions[key] = loaded.function(entry)
        return found

    def functions(self, code: str, *entries: str) -> list[Any]:
        """Several functions of one text."""
        return [self.function(code, entry) for entry in entries]

    def _unit(self, *key: str) -> Any:
        if key not in self._units:
            code, *options = key
            self._units[key] = self._driver.load(code, (*OPTIONS, *options))
        return self._units[key]


def _with_headers(code: str, options: Sequence[str]) -> str:
    """The text with a hash of the headers that it includes from the folders among the options: it
    is the name of what was compiled of it, here and on disk, and headers change."""
    found = re.findall(r"(?:-I|--include-path=) *(.+)", "\n".join(options))
    contents = _headers(code, (".", *found), {})
    return f"{code}\n// headers: {digest(*contents.values())}\n" if contents else code


def _headers(code: str, folders: Sequence[str | Path], seen: dict[Path, str]) -> dict[Path, str]:
    """`seen` with the headers in these folders that a text includes, and theirs, by their paths."""
    for name in INCLUDE_LINE.findall(code):
        paths = (Path(folder, name) for folder in folders)
        path = next(filter(Path.is_file, paths), None)
        if path is not None and path not in seen:
            seen[path] = path.read_text("utf-8", "replace")
            _headers(seen[path], (path.parent, *folders), seen)
    return seen


INCLUDE_LINE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*[<"]([^>"]+)[>"]', re.MULTILINE)


def _titled(code: str) -> str:
    """The text with a #line that names it after its first kernel in messages."""
    first = None if "#line" in code else _KERNEL.search(code)
    return f'#line 1 "{first[1]}.cu"\n{code}' if first else code


# --- Arguments against parameters -----------------------------------------------------------------


def fits(dtype: np.dtype[Any], kind: str, size: int, array: bool) -> bool:
    """True where a parameter of a NumPy kind (b, i, u or f) and size may get a value of the dtype;
    array: where a pointer to it may get an array.

    A value of an integer may change its sign, as in `size_t n`. An array may not, as C++ converts
    no such pointers: negative numbers would be read as huge ones. A bool is an unsigned byte, too.
    """
    same = dtype.kind == kind or (dtype.kind == "b" and kind == "u")
    signs = not array and {dtype.kind, kind} == {"i", "u"}
    return dtype.itemsize == size and (same or signs)


def misfit(kernel: str, i: int, parameter: object, dtype: Any, array: bool) -> LaunchError:
    """The error for an argument that does not fit."""
    got = f"got an array of {dtype}" if array else f"got a value of {dtype}"
    does = "; a kernel that reads it as another type casts the pointer itself" if array else ""
    return LaunchError(f"argument {i} of {kernel} is {parameter}; {got}{does}")


# cupy compares no arguments with the parameters of a kernel.
_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
_QUALIFIERS = re.compile(r"\b(?:const|volatile|__restrict__|__restrict|__grid_constant__)\b")
# Kind and bytes of the types that C spells out; other types are not checked.
_TYPES = {
    "bool": ("b", 1), "char": ("i", 1), "signed char": ("i", 1), "unsigned char": ("u", 1),
    "short": ("i", 2), "unsigned short": ("u", 2), "int": ("i", 4), "unsigned": ("u", 4),
    "unsigned int": ("u", 4), "long long": ("i", 8), "unsigned long long": ("u", 8),
    "size_t": ("u", 8), "float": ("f", 4), "double": ("f", 8),
}  # fmt: skip


class TextParameter(NamedTuple):
    """A parameter of a kernel.

    text: as written. type: its known type, or the type it points to; None for others.
    """

    text: str
    pointer: bool
    type: tuple[str, int] | None


def parameters(code: str, entry: str) -> tuple[TextParameter, ...] | None:
    """The parameters of the `__global__` function `entry`; None if they cannot be parsed, as when
    macros define them."""
    plain = _COMMENT.sub(" ", code)
    for found in re.finditer(rf"\b{re.escape(entry)}\s*\(", plain):
        if "__global__" not in plain[: found.start()].rpartition("}")[2].rpartition(";")[2]:
            continue
        pieces = _pieces(plain, found.end())
        if pieces is None or any("#" in p or len(p.split()) < 2 for p in pieces):
            return None
        return tuple(map(_parameter, pieces))
    return None


def _pieces(text: str, start: int) -> list[str] | None:
    """The pieces between the commas up to the closing parenthesis; None where a `<` is no bracket.

    Between parentheses none is: `Tile<(N < 4)>`."""
    pieces, begin = [], start
    depth = angles = 0
    for i in range(start, len(text)):
        c = text[i]
        if depth == 0 and (c == ")" or (c == "," and angles == 0)):
            pieces.append(" ".join(text[begin:i].split()))
            begin = i + 1
            if c == ")":
                return None if angles else [p for p in pieces if p not in ("", "void")]
        depth += (c in "([") - (c in ")]")
        angles += (depth == 0) * ((c == "<") - (c == ">"))
    return None


def _parameter(text: str) -> TextParameter:
    pointer = "*" in text or "[" in text
    head = text.partition("[")[0] if "*" not in text else text.partition("*")[0] + " x"
    words = _QUALIFIERS.sub(" ", head).split()
    known = None if text.count("*") > 1 else _TYPES.get(" ".join(words[:-1]))
    return TextParameter(text, pointer, known)


def check(entry: str, expected: Sequence[TextParameter], args: Sequence[Any]) -> None:
    """LaunchError when arguments do not fit the parameters in number or type."""
    if len(args) != len(expected):
        raise LaunchError(f"{entry} has {len(expected)} parameters; got {len(args)} arguments")
    for i, (argument, parameter) in enumerate(zip(args, expected, strict=True)):
        is_array = _on_device(argument)
        dtype = argument.dtype if is_array else scalar(entry, i, argument).dtype
        if is_array == parameter.pointer:
            passes = parameter.type is None or fits(dtype, *parameter.type, is_array)
        else:  # a null pointer is an integer
            null = parameter.pointer and dtype.kind in "iu" and dtype.itemsize == 8
            passes = null and int(argument) == 0
        if not passes:
            raise misfit(entry, i, parameter.text, dtype, is_array)


def _on_device(argument: Any) -> bool:
    """True for an array that is not a NumPy array."""
    return hasattr(argument, "dtype") and not (
        isinstance(argument, np.generic) or type(argument) is np.ndarray
    )


def scalar(entry: str, i: int, argument: Any) -> np.ndarray[Any, Any]:
    """A number or a structure as an array of one element; Python's int becomes int64, its float
    float64, as in cupy."""
    if isinstance(argument, np.ndarray) and argument.size != 1:
        raise LaunchError(
            f"argument {i} of {entry} is a NumPy array of {argument.size} elements; "
            "put it into device memory first"
        )
    if isinstance(argument, (np.generic, np.ndarray)):
        return np.ascontiguousarray(argument).reshape(1)
    for python, dtype in ((bool, np.bool_), (int, np.int64), (float, np.float64)):
        if isinstance(argument, python):
            return np.array([argument], dtype)
    raise LaunchError(f"argument {i} of {entry} cannot be a {type(argument).__name__}")


# --- Layouts of strided arrays --------------------------------------------------------------------


# Limits of a launch that every GPU supported by CUDA allows.
MAX_THREADS = 1024  # of a block
MAX_BLOCK = (1024, 1024, 64)
MAX_GRID = (2**31 - 1, 65535, 65535)
STATIC_SHARED = 48 * 1024  # bytes of shared memory of a block; more must be asked for
MAX_RANK = 8
BLOCK = 256
PER_THREAD = 4


def spread(size: int, per_thread: int = PER_THREAD) -> tuple[tuple[int], tuple[int]]:
    """Grid and block for `size` elements, a few per thread."""
    threads = min(BLOCK, -(-max(size, 1) // 32) * 32)
    return (min(-(-max(size, 1) // (threads * per_thread)), 1 << 20),), (threads,)


def merged(shape: Shape, steps: Sequence[Shape], name: str) -> list[Axis]:
    """The axes of `shape`, merged, with their steps in each of several arrays; ShapeError, which
    names the primitive, if more than 8 remain."""
    return bounded(merge(shape, steps), name)


def bounded(axes: list[Axis], name: str) -> list[Axis]:
    """These axes; ShapeError, which names the primitive, if there are more than 8."""
    if len(axes) > MAX_RANK:
        raise ShapeError(
            f"{name} needs {len(axes)} axes that do not merge; kernels of CUDA take {MAX_RANK}: "
            "reshape the inputs, or make them contiguous"
        )
    return axes


def collapsed(inputs: Sequence[DeviceArray], shape: Shape, name: str) -> list[Axis]:
    """The output's axes, merged, with the steps of each input, which broadcasts to it."""
    steps = [
        broadcast_steps(a.shape, shape, tuple(s // a.dtype.itemsize for s in a.strides))
        for a in inputs
    ]
    return merged(shape, steps, name)


def layout(axes: Sequence[Axis], starts: Sequence[int] = ()) -> Any:
    """The struct Layout<K> of K arrays: their steps along some axes, and their starts."""
    record = np.zeros(1, layout_dtype(len(axes[0][1])))
    record["rank"], record["extent"] = len(axes), 1
    for d, (extent, steps) in enumerate(axes):
        record["extent"][0, d] = extent
        record["step"][0, :, d] = steps
    record["start"][0, : len(starts)] = starts
    return record


def starts_of(inputs: Sequence[DeviceArray]) -> list[int]:
    """The index of the first element of each in the memory that `flat` points to."""
    return [(a.offset - a.bounds()[0]) // a.dtype.itemsize for a in inputs]


@cache
def layout_dtype(count: int) -> np.dtype[Any]:
    """The NumPy dtype of Layout<count>."""
    return np.dtype(
        [
            ("rank", np.int64), ("extent", np.int64, MAX_RANK),
            ("step", np.int64, (count, MAX_RANK)), ("start", np.int64, (count,)),
        ]
    )  # fmt: skip


LAYOUT = f"""
// a / b where neither is negative: 32 bits are divided in a quarter of the time of 64.
__device__ __forceinline__ long long quotient(long long a, long long b) {{
  return ((a | b) >> 32) == 0 ? (unsigned)a / (unsigned)b : a / b;
}}
// V neighbours, moved by one instruction.
template <typename A, int V> struct alignas(sizeof(A) * V) Pack {{ A at[V]; }};
template <int K> struct Layout {{
  long long rank, extent[{MAX_RANK}], step[K][{MAX_RANK}], start[K];
}};
template <int K> __device__ __forceinline__ void locate(
    const Layout<K>& at, long long i, long long* found) {{
  for (int k = 0; k < K; ++k) found[k] = at.start[k];
  for (int d = (int)at.rank - 1; d > 0; --d) {{
    const long long above = quotient(i, at.extent[d]), here = i - above * at.extent[d];
    for (int k = 0; k < K; ++k) found[k] += here * at.step[k][d];
    i = above;
  }}
  for (int k = 0; k < K; ++k) found[k] += i * at.step[k][0];
}}
// The V elements of input k along the last axis from x on: neighbours, or one element V times.
template <int V, typename A, int K> __device__ __forceinline__ Pack<A, V> pack_of(
    const A* x, const Layout<K>& where, int k) {{
  if (where.step[k][where.rank - 1]) return *(const Pack<A, V>*)x;
  Pack<A, V> all;
  for (int v = 0; v < V; ++v) all.at[v] = *x;
  return all;
}}
"""


def packs(axes: list[Axis], inputs: tuple[DeviceArray, ...], out: DeviceArray, width: int) -> int:
    """The number of packs of `width` elements in the output, if in each input the elements of a
    pack are aligned neighbours or one element repeated; else 0."""
    extent, steps = axes[-1]
    whole = len(axes) == 1 or extent % width == 0
    if width == 1 or not whole or out.offset % (width * out.dtype.itemsize):
        return 0
    for k, a in enumerate(inputs):
        apart = [steps[k] for _, steps in axes[:-1]]
        if steps[k] == 0:
            continue
        if steps[k] != 1 or any(s % width for s in apart) or a.offset % (width * a.dtype.itemsize):
            return 0
    return out.size // width


# --- Groups of threads ----------------------------------------------------------------------------


THREADS = 1 << 18  # about as many as a large GPU runs at a time

# A group is one thread, a warp or a block. All threads of its warps take part in a shuffle, so a
# block has whole warps and its loops run equally often in all threads of a group.
GROUPS = r"""
template <typename Op> __device__ __forceinline__ typename Op::A combined(
    typename Op::A a, int lanes) {
  typedef typename Op::A A;
  if (lanes == 1) return a;
  for (int o = 16; o > 0; o >>= 1) a = Op::combine(a, Op::crossed(a, o));
  if (lanes == 32) return a;
  __shared__ A warps[32];
  const int warp = threadIdx.x >> 5, lane = threadIdx.x & 31, count = blockDim.x >> 5;
  __syncthreads();
  if (lane == 0) warps[warp] = a;
  __syncthreads();
  a = warps[0];
  for (int w = 1; w < count; ++w) a = Op::combine(a, warps[w]);
  return a;
}
// The number of this thread's group among all groups of the grid, and how many there are.
__device__ __forceinline__ long long group_index(int lanes) {
  return quotient((long long)blockIdx.x * blockDim.x + threadIdx.x, lanes);
}
__device__ __forceinline__ long long group_count(int lanes) {
  return quotient((long long)gridDim.x * blockDim.x, lanes);
}
// Group g of those that share rows of n elements, each row cut in `split` parts of `length`. Lone
// threads that are neighbours have rows that are, so that they read along with each other.
struct Part { long long row, number, begin, end; };
__device__ __forceinline__ Part part_of(
    long long g, long long rows, long long n, long long split, long long length, int lanes) {
  if (split == 1) return {g, 0, 0, n};
  const long long all = quotient(g, lanes == 1 ? rows : split);
  const long long row = lanes == 1 ? g - all * rows : all;
  const long long number = lanes == 1 ? all : g - all * split, begin = number * length;
  return {row, number, begin, begin + length < n ? begin + length : n};
}
// Operations of `combined` on numbers; `structure` writes those with an identity and elements.
template <typename S> struct OfNumbers {
  typedef S A;
  static __device__ __forceinline__ S crossed(S a, int o) {
    return __shfl_xor_sync(0xffffffffu, a, o);
  }
};
template <typename S> struct Total : OfNumbers<S> {
  static __device__ __forceinline__ S combine(S a, S b) { return a + b; }
};
template <typename S> struct Largest : OfNumbers<S> {
  static __device__ __forceinline__ S combine(S a, S b) { return a > b ? a : b; }
};
"""


def structure(name: str, row: Row, dtype: DType) -> str:
    """The C struct of a reduction of elements of a dtype: what `combined` takes, and where to
    begin."""
    low, high = ends(computed(dtype))
    c, s = C_TYPES[computed(dtype)], C_TYPES[accumulation(dtype)]
    fields = {"value": row.value, "other": row.other}
    types = {f: {"C": c, "S": s}.get(t, t) for f, t in fields.items()}

    def made(*texts: str) -> str:
        return ", ".join(f"({t})({text})" for t, text in zip(types.values(), texts))

    def shuffled(field: str) -> str:
        return f"__shfl_xor_sync(0xffffffffu, a.{field}, o)"

    held = list(types)[: len(row.identity)]
    method = "  static __device__ __forceinline__ A"
    return f"""struct {name} {{
  typedef {c} C;
  typedef {s} S;
  struct A {{ {" ".join(f"{types[f]} {f};" for f in held)} }};
{method} identity() {{ return {{{made(*row.identity)}}}; }}
{method} element(C x, long long i = 0) {{ (void)i; return {{{made(*row.element)}}}; }}
{method} combine(A a, A b) {{ return {{{made(*row.combine)}}}; }}
{method} crossed(A a, int o) {{ return {{{made(*map(shuffled, held))}}}; }}
}};
""".replace("LOWEST", low).replace("HIGHEST", high)


def lanes_for(length: int, neighbours: int) -> int:
    """The number of threads that share a row: one if rows are short, or interleaved in memory so
    that neighbouring threads read neighbouring elements; else a warp or a block."""
    if length <= 8 or (neighbours >= 32 and length <= 1024):
        return 1
    return 32 if length <= 2048 else BLOCK


def grid_for(groups: int, lanes: int) -> tuple[tuple[int], tuple[int]]:
    """Grid and block for that many groups of threads; at least one of each."""
    threads = max(groups, 1) * lanes
    block = BLOCK if lanes == BLOCK else min(BLOCK, -(-threads // 32) * 32)
    return (min(-(-threads // block), 1 << 20),), (block,)


def parts(rows: int, n: int, lanes: int) -> int:
    """The number of parts into which rows are cut to keep a GPU busy: THREADS threads with at least
    64 elements each."""
    return max(1, min(THREADS // max(rows * lanes, 1), n // (lanes * 64)))


def along(shape: tuple[int, ...], axis: int) -> tuple[int, int, int]:
    """(outer, n, inner): element i of row (o, j) is number (o * n + i) * inner + j."""
    axis %= len(shape)
    return prod(shape[:axis]), shape[axis], prod(shape[axis + 1 :])


# --- Strided copies and filling -------------------------------------------------------------------
# Only bytes matter here, so one text serves all dtypes of one size.


_TILE = 32
_MOVES = r"""
using namespace miniml;
extern "C" __global__ void move(
    const E* x, E* out, Layout<2> where, long long packs, long long n) {
  long long at[2];
  MINIML_FOR(p, packs) {
    locate(where, p * WIDTH, at);
    *(Pack<E, WIDTH>*)(out + at[1]) = pack_of<WIDTH>(x + at[0], where, 0);
  }
  MINIML_FOR_FROM(i, packs * WIDTH, n) {
    locate(where, i, at);
    out[at[1]] = x[at[0]];
  }
}
// x has its neighbours along one axis (a), out along another (b): through tiles of shared memory,
// so that both are read and written by rows of 32. Elements there have 4 bytes at least.
extern "C" __global__ void turn(const E* x, E* out, Layout<2> where, Turn s) {
  __shared__ WORD tile[32][33];
  const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
  for (long long g = blockIdx.x; g < s.batch * s.tiles_a * s.tiles_b; g += gridDim.x) {
    const long long row = quotient(g, s.tiles_a), number = quotient(row, s.tiles_b);
    const long long a = (g - row * s.tiles_a) * 32, b = (row - number * s.tiles_b) * 32;
    long long at[2];
    locate(where, number, at);
    for (int r = warp; r < 32; r += 8)
      if (a + lane < s.a && b + r < s.b) tile[r][lane] = x[at[0] + a + lane + (b + r) * s.x_step];
    __syncthreads();
    for (int r = warp; r < 32; r += 8)
      if (a + r < s.a && b + lane < s.b)
        out[at[1] + (a + r) * s.out_step + b + lane] = (E)tile[lane][r];
    __syncthreads();
  }
}
extern "C" __global__ void fill(E* out, E value, long long packs, long long n) {
  Pack<E, WIDTH> all;
  for (int v = 0; v < WIDTH; ++v) all.at[v] = value;
  MINIML_FOR(p, packs) *(Pack<E, WIDTH>*)(out + p * WIDTH) = all;
  MINIML_FOR_FROM(i, packs * WIDTH, n) out[i] = value;
}
"""
_TURN = np.dtype([(f, np.int64) for f in "a b x_step out_step tiles_a tiles_b batch".split()])


@cache
def carrier(nbytes: int) -> DType:
    """The unsigned integers of that size."""
    return np.dtype(f"u{nbytes}")


@cache
def _moving(nbytes: int) -> str:
    """The unit for elements of that size."""
    word = carrier(max(nbytes, 4))
    return unit(_MOVES, E=carrier(nbytes), WORD=word, WIDTH=16 // nbytes, Turn=_TURN)


def move(source: DeviceArray, target: DeviceArray) -> None:
    """Copy an array into one of its dtype to whose shape it broadcasts; they do not overlap."""
    if not target.size:
        return
    device, nbytes = target.device, target.dtype.itemsize
    key = (
        nbytes, source.shape, source.strides, target.shape, target.strides, source.offset % 16,
        target.offset % 16,
    )  # fmt: skip
    planned = device.moves.get(key)
    if planned is None:
        if len(device.moves) >= 4096:
            device.moves.clear()
        planned = device.moves[key] = _plan(source, target)
    entry, grid, block, args = planned
    function = device.compiler.function(_moving(nbytes), entry)
    bits = carrier(nbytes)
    function(grid, block, (source.flat.view(bits), target.flat.view(bits), *args))


def _plan(source: DeviceArray, target: DeviceArray) -> tuple[str, Any, Any, tuple[Any, ...]]:
    """The kernel that copies, its grid, block and arguments after the arrays."""
    axes, both = collapsed((source, target), target.shape, "a copy"), (source, target)
    turned = next((d for d, (n, s) in enumerate(axes[:-1]) if s[0] == 1 and n >= _TILE // 2), None)
    last, (x_step, out_step) = axes[-1]
    if turned is not None and out_step == 1 and x_step > 1 and last >= _TILE // 2:
        return ("turn", *_turned(axes, turned, both))
    width = 16 // target.dtype.itemsize
    count = packs(axes, both, target, width) if out_step == 1 else 0
    size = target.size
    where = layout(axes, starts_of(both))
    return "move", *spread(size, max(width, 4)), (where, np.int64(count), np.int64(size))


def _turned(axes: list[Axis], turned: int, both: tuple[DeviceArray, ...]) -> tuple[Any, Any, Any]:
    """Grid, block and arguments for the tiles of two axes: `turned`, and the last one."""
    rest = [axis for d, axis in enumerate(axes[:-1]) if d != turned] or [(1, (0, 0))]
    (a, (_, out_step)), (b, (x_step, _)) = axes[turned], axes[-1]
    tiles, batch = (-(-a // _TILE), -(-b // _TILE)), prod(n for n, _ in rest)
    sizes = np.array([(a, b, x_step, out_step, *tiles, batch)], _TURN)
    blocks = min(prod(tiles) * batch, 1 << 20)
    return (blocks,), (8 * _TILE,), (layout(rest, starts_of(both)), sizes)


def fill(target: DeviceArray, value: Any) -> None:
    """Overwrite a contiguous array with one number."""
    if target.size:
        bits = carrier(target.dtype.itemsize)
        function = target.device.compiler.function(_moving(bits.itemsize), "fill")
        size, number = target.size, np.asarray(value).astype(target.dtype).view(bits)[()]
        width = 16 // bits.itemsize
        count = 0 if target.offset % 16 else size // width
        args = (target.flat.view(bits), number, np.int64(count), np.int64(size))
        function(*spread(size, max(width, 4)), args)
