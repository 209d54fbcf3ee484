"""Elementwise kernels written from scalar expressions, with broadcasting by strides."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from math import prod
from typing import Any

import numpy as np

from .... import epoch
from ....dtype import DType, bool_, float64
from ... import registry
from ...kernel import Expression, Kernel, KernelEntry, KernelNode
from .layout import LAYOUT, PER_THREAD, collapsed, layout, packs, spread
from .source import C_TYPES, computed_in, prelude, unsigned

_WORDS = re.compile(r"(?<![\w.])[A-Za-z_]\w*")
_LETTERS = {"?": "Z"}


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
        self.function = compiler.function(unit_of(self.entry), kernel_name(self.entry))
        self.scalars = tuple(scalars(self.entry, node))
        self.size, self.width = prod(node.outputs[0].shape), pack_width(self.entry)
        self.grid, self.block = spread(self.size, max(self.width, PER_THREAD))
        self.rest: dict[object, tuple[Any, ...]] = {}

    def launch(self, inputs: Any, workspace: Any, outputs: Any, stream: object) -> None:
        (out,) = outputs
        key = (out.offset % 16, *[(a.offset % 16, a.strides) for a in inputs])
        rest = self.rest.get(key)
        if rest is None:
            axes = collapsed(inputs, out.shape, self.entry.name)
            where = (layout(axes, inputs),) if inputs else ()
            count = np.int64(packs(axes, inputs, out, self.width))
            rest = self.rest[key] = (*self.scalars, *where, count, np.int64(self.size))
        self.function(self.grid, self.block, (*[a.flat for a in inputs], out.flat, *rest))


def pack_width(entry: KernelEntry) -> int:
    """How many elements of an expression's widest array fill 16 bytes, what a thread moves best;
    8 at most, because compilers write each of them out."""
    s = entry.signature
    return min(8, 16 // max(d.itemsize for d in (*s.inputs, *s.outputs) if d is not None))


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
    members = (entry,) if not body.unit else members_of(body.unit, epoch.now.kernels)
    if entry not in members:
        members = (entry,)
    signatures = [e.signature for e in members]
    dtypes = {d for s in signatures for d in (*s.inputs, *s.outputs) if d is not None}
    return (
        prelude(dtypes) + LAYOUT + "using namespace miniml;\n" + "".join(map(kernel_text, members))
    )


@cache
def members_of(unit: str, kernels: int) -> tuple[KernelEntry, ...]:
    """The expressions that are compiled together, in an order that never changes."""
    found = [
        e
        for (_, device), entries in list(registry.table.items())
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
    """The text of an expression's kernel; a Layout says where the elements of its inputs are.

    A thread computes a pack of neighbours where there are packs, and single elements elsewhere.
    """
    body, s = entry.body, entry.signature
    assert isinstance(body, Expression)
    ins: list[DType] = [d for d in s.inputs if d is not None]
    (out,) = [d for d in s.outputs if d is not None]
    name, names, width = kernel_name(entry), input_names(entry), pack_width(entry)
    values = [(n, C_TYPES[d]) for n, d in scalar_types(entry).items()]
    indexed = "index" in _WORDS.findall(body.text)
    parameters = [f"{computed_in(d)} {n}" for d, n in zip(ins, names, strict=True)]
    parameters += [f"{t} {n}" for n, t in values] + ["long long index"] * indexed
    count, first, result = len(ins), (ins or [out])[0], C_TYPES[out]
    given = [f"const {C_TYPES[d]}* in{k}" for k, d in enumerate(ins)] + [f"{result}* out"]
    given += [f"{t} a_{n}" for n, t in values] + [f"Layout<{count}> where"] * bool(count)

    def value(index: str, loads: list[str]) -> str:
        passed = [*loads, *[f"a_{n}" for n, _ in values], *[index] * indexed]
        return f"store<{result}>({name}_value({', '.join(passed)}))"

    place = f"    long long at[{count}];\n    locate(where, {{}}, at);\n" if count else ""
    packs = "".join(_pack(d, k, width) for k, d in enumerate(ins))
    each = value(f"p * {width} + v", [f"load(p{k}.at[v])" for k in range(count)])
    one = value("i", [f"load(in{k}[at[{k}]])" for k in range(count)])
    return (
        f"{_value(entry, parameters, first, out)}"
        f'extern "C" __global__ void {name}({", ".join([*given, "long long packs, long long n"])}) '
        "{\n  const long long step = (long long)gridDim.x * blockDim.x;\n"
        "  const long long first = (long long)blockIdx.x * blockDim.x + threadIdx.x;\n"
        "#pragma unroll 1\n  for (long long p = first; p < packs; p += step) {\n"
        f"{place.format(f'p * {width}')}{packs}    Pack<{result}, {width}> made;\n"
        f"#pragma unroll\n    for (int v = 0; v < {width}; ++v) made.at[v] = {each};\n"
        f"    *(Pack<{result}, {width}>*)(out + p * {width}) = made;\n  }}\n"
        f"#pragma unroll 1\n  for (long long i = packs * {width} + first; i < n; i += step) {{\n"
        f"{place.format('i')}    out[i] = {one};\n  }}\n}}\n"
    )


def _pack(dtype: DType, k: int, width: int) -> str:
    """Input k's elements of a pack."""
    return (
        f"    const Pack<{C_TYPES[dtype]}, {width}> p{k} = "
        f"pack_of<{width}>(in{k} + at[{k}], where, {k});\n"
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
