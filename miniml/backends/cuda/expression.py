"""Elementwise kernels written from scalar expressions, with broadcasting by strides."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from math import prod
from typing import Any

import numpy as np

from ...dtype import DType, bool_, float64
from ...errors import ShapeError
from .. import registry
from ..kernel import Expression, Kernel, KernelEntry, KernelNode
from .array import DeviceArray
from .source import C_TYPES, computed_in, prelude, unsigned

MAX_RANK = 8
BLOCK = 256
PER_THREAD = 4
_WORDS = re.compile(r"(?<![\w.])[A-Za-z_]\w*")
_LETTERS = {"?": "Z"}
Axis = tuple[int, tuple[int, ...]]


class Elementwise(Kernel):
    """The kernel of one expression for one node, on the device that the node names.

    Inputs may have any strides and shapes that broadcast to the output's; the output is
    contiguous, and may be an input's memory where that has its shape and is contiguous.
    """

    def __init__(self, entry: KernelEntry):
        self.entry = entry

    def prepare(self, node: KernelNode) -> None:
        super().prepare(node)
        compiler = node.device.compiler
        self.call = compiler.function(unit_of(self.entry), kernel_name(self.entry))
        self.scalars = tuple(scalars(self.entry, node))
        self.size = prod(node.outputs[0].shape)
        self.grid, self.block = spread(self.size)
        self.rest: dict[object, tuple[Any, ...]] = {}

    def launch(self, inputs: Any, workspace: Any, outputs: Any, stream: object) -> None:
        (out,) = outputs
        key = tuple([a.strides for a in inputs])
        rest = self.rest.get(key)
        if rest is None:
            axes = collapsed(inputs, out.shape, self.entry.name)
            where = (layout(axes, inputs),) if inputs else ()
            rest = self.rest[key] = (*self.scalars, *where, np.int64(self.size))
        self.call(self.grid, self.block, (*[a.flat for a in inputs], out.flat, *rest))


def spread(size: int) -> tuple[tuple[int], tuple[int]]:
    """Grid and block for `size` elements, of which a thread takes a few, a whole grid apart."""
    threads = min(BLOCK, -(-max(size, 1) // 32) * 32)
    return (min(-(-max(size, 1) // (threads * PER_THREAD)), 1 << 20),), (threads,)


def collapsed(inputs: tuple[DeviceArray, ...], shape: tuple[int, ...], name: str) -> list[Axis]:
    """The output's axes (extent, elements from one to the next of each input), neighbours merged
    where all inputs run through both as through one. ShapeError for more than 8 that remain."""
    axes: list[Axis] = []
    lead = [len(shape) - a.ndim for a in inputs]
    for d, extent in enumerate(shape):
        if extent == 1:
            continue
        steps = tuple(
            0 if d < gap or a.shape[d - gap] == 1 else a.strides[d - gap] // a.dtype.itemsize
            for a, gap in zip(inputs, lead, strict=True)
        )
        if axes and all(p == s * extent for p, s in zip(axes[-1][1], steps, strict=True)):
            axes[-1] = (axes[-1][0] * extent, steps)
        else:
            axes.append((extent, steps))
    if len(axes) > MAX_RANK:
        raise ShapeError(
            f"{name} needs {len(axes)} axes that do not merge; kernels of CUDA take {MAX_RANK}: "
            "reshape the inputs, or make them contiguous"
        )
    return axes or [(1, (0,) * len(inputs))]


def layout(axes: list[Axis], inputs: tuple[DeviceArray, ...]) -> Any:
    """The struct Layout<K> that says where each element of the inputs stands."""
    record = np.zeros(1, layout_dtype(len(inputs)))
    record["rank"] = len(axes)
    record["extent"] = 1
    for d, (extent, steps) in enumerate(axes):
        record["extent"][0, d] = extent
        record["step"][0, :, d] = steps
    for k, a in enumerate(inputs):
        record["start"][0, k] = (a.offset - a.bounds()[0]) // a.dtype.itemsize
    return record


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
template <int K> struct Layout {{
  long long rank, extent[{MAX_RANK}], step[K][{MAX_RANK}], start[K];
}};
template <int K> __device__ __forceinline__ void locate(
    const Layout<K>& at, long long i, long long* place) {{
  for (int k = 0; k < K; ++k) place[k] = at.start[k];
  for (int d = (int)at.rank - 1; d > 0; --d) {{
    long long above = i / at.extent[d], here = i - above * at.extent[d];
    for (int k = 0; k < K; ++k) place[k] += here * at.step[k][d];
    i = above;
  }}
  for (int k = 0; k < K; ++k) place[k] += i * at.step[k][0];
}}
"""


def kernel_name(entry: KernelEntry) -> str:
    """The C name of an expression's kernel."""
    letters = (_LETTERS.get(c, c) for c in str(entry.signature))
    signature = "".join(c if c.isalnum() else "_" for c in letters)
    return f"{re.sub(r'[^A-Za-z0-9]', '_', entry.name)}_{signature}"


def unit_of(entry: KernelEntry) -> str:
    """The text of the unit in which the expression is compiled: alone, or with all the built-in
    expressions that name the same unit, because compilers take long to begin."""
    body = entry.body
    assert isinstance(body, Expression)
    members = (entry,) if not body.unit else members_of(body.unit, registry.version)
    if entry not in members:
        members = (entry,)
    signatures = [e.signature for e in members]
    dtypes = {d for s in signatures for d in (*s.inputs, *s.outputs) if d is not None}
    return (
        prelude(dtypes) + LAYOUT + "using namespace miniml;\n" + "".join(map(kernel_text, members))
    )


@cache
def members_of(unit: str, version: int) -> tuple[KernelEntry, ...]:
    """The expressions that are compiled together, in an order that never changes."""
    found = [
        e
        for (_, device), entries in registry.table.items()
        if device == "cuda"
        for e in entries
        if isinstance(e.body, Expression) and e.body.unit == unit
    ]
    return tuple(sorted(found, key=kernel_name))


def scalars(entry: KernelEntry, node: KernelNode) -> list[Any]:
    """The numeric attributes an expression names, in the types of its kernel's parameters."""
    types = scalar_types(entry)
    body = entry.body
    assert isinstance(body, Expression)
    given: Mapping[str, Any] = node.attrs if body.scalars is None else body.scalars(node)
    return [dtype.type(given[name]) for name, dtype in types.items()]


def scalar_types(entry: KernelEntry) -> dict[str, DType]:
    """The names that are attributes, with the dtypes of their parameters: the dtype in which the
    expression is computed where that is a float; bool, int64 or float64 as the body says."""
    body = entry.body
    assert isinstance(body, Expression)
    used = set(_WORDS.findall(body.text))
    if body.types is not None:
        return dict(body.types)
    spec = registry.specs.get(entry.name)
    names = () if spec is None or spec.attributes is None else spec.attributes
    first = next((d for d in entry.signature.inputs if d is not None and d.kind in "fV"), None)
    wide = first is None or first == float64
    return {n: np.dtype(np.float64 if wide else np.float32) for n in names if n in used}


def input_names(entry: KernelEntry) -> tuple[str, ...]:
    """What the expression calls its inputs."""
    spec = registry.specs.get(entry.name)
    if spec is not None and spec.inputs is not None:
        return spec.inputs
    return tuple(f"x{i}" for i in range(len(entry.signature.inputs)))


def kernel_text(entry: KernelEntry) -> str:
    """The text of an expression's kernel; a Layout says where the elements of its inputs are."""
    body, s = entry.body, entry.signature
    assert isinstance(body, Expression)
    ins: list[DType] = [d for d in s.inputs if d is not None]
    (out,) = [d for d in s.outputs if d is not None]
    name, names = kernel_name(entry), input_names(entry)
    values = [(n, C_TYPES[d]) for n, d in scalar_types(entry).items()]
    indexed = "index" in _WORDS.findall(body.text)
    parameters = [f"{computed_in(d)} {n}" for d, n in zip(ins, names, strict=True)]
    parameters += [f"{t} {n}" for n, t in values] + ["long long index"] * indexed
    count, first = len(ins), (ins or [out])[0]
    arrays = [f"const {C_TYPES[d]}* in{k}" for k, d in enumerate(ins)] + [f"{C_TYPES[out]}* out"]
    arrays += [f"{t} a_{n}" for n, t in values]
    tail = [f"a_{n}" for n, _ in values] + ["i"] * indexed

    before = f"    long long at[{count}]; locate(where, i, at);\n" if count else ""
    loads = [f"load(in{k}[at[{k}]])" for k in range(count)]
    where = [f"Layout<{count}> where"] if count else []
    return (
        f"{_value(entry, parameters, first, out)}"
        f'extern "C" __global__ void {name}('
        f"{', '.join([*arrays, *where, 'long long n'])}) {{\n"
        "  const long long step = (long long)gridDim.x * blockDim.x;\n"
        "  for (long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x; i < n; "
        f"i += step) {{\n{before}"
        f"    out[i] = store<{C_TYPES[out]}>({name}_value({', '.join([*loads, *tail])}));\n"
        "  }\n}\n"
    )


def _value(entry: KernelEntry, parameters: list[str], first: DType, out: DType) -> str:
    """The expression as a function of scalars; T and U are the types it may speak of."""
    assert isinstance(entry.body, Expression)
    words = _WORDS.findall(entry.body.text)
    known = {"T": computed_in(first), "U": unsigned(first)}
    types = "".join(f"  typedef {t} {n};\n" for n, t in known.items() if n in words)
    name = kernel_name(entry)
    return (
        f"static __device__ __forceinline__ {_result(entry, out)} {name}_value("
        f"{', '.join(parameters)}) {{\n{types}"
        f'#line 1 "{entry.name} expression"\n  return ({entry.body.text});\n'
        f'#line 1 "{name}.cu"\n}}\n'
    )


def _result(entry: KernelEntry, out: DType) -> str:
    """The C type of the expression's value: what the output is computed in, except that casts
    from floats are left to `store`."""
    ins = entry.signature.inputs
    if entry.name == "Cast" and ins and ins[0] is not None:
        return computed_in(ins[0])
    return "bool" if out == bool_ else computed_in(out)
