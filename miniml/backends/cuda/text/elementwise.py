"""Elementwise kernels made from scalar expressions, with broadcasting by strides."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache
from math import prod
from typing import Any

import numpy as np

from ....core import epoch
from ....core.dtype import DType
from ... import registry
from ...expressions.table import Expression, computed, unsigned
from ...kernel import Kernel, KernelEntry, KernelNode
from .source import C_TYPES, PER_THREAD, collapsed, layout, packs, prelude, spread, starts_of


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
        types = scalar_types(self.entry)
        self.scalars = tuple(expression(self.entry).scalar_values(node, types))
        self.size, self.width = prod(node.outputs[0].shape), pack_width(self.entry)
        self.grid, self.block = spread(self.size, max(self.width, PER_THREAD))
        self.rest: dict[object, tuple[Any, ...]] = {}

    def launch(self, inputs: Any, workspace: Any, outputs: Any, stream: object) -> None:
        (out,) = outputs
        key = (out.offset % 16, *[(a.offset % 16, a.strides) for a in inputs])
        rest = self.rest.get(key)
        if rest is None:
            axes = collapsed(inputs, out.shape, self.entry.name)
            where = (layout(axes, starts_of(inputs)),) if inputs else ()
            count = np.int64(packs(axes, inputs, out, self.width))
            rest = self.rest[key] = (*self.scalars, *where, count, np.int64(self.size))
        self.function(self.grid, self.block, (*[a.flat for a in inputs], out.flat, *rest))


def expression(entry: KernelEntry) -> Expression:
    """The entry's body."""
    assert isinstance(entry.body, Expression)
    return entry.body


def dtypes_of(entry: KernelEntry) -> tuple[list[DType], DType]:
    """The dtypes of the inputs and of the output."""
    s = entry.signature
    (out,) = [d for d in s.outputs if d is not None]
    return [d for d in s.inputs if d is not None], out


def scalar_types(entry: KernelEntry) -> dict[str, DType]:
    """The scalar arguments of the kernel and their dtypes."""
    spec = registry.specs.get(entry.name)
    attributes = spec.attributes if spec is not None else None
    return expression(entry).scalar_types(entry.signature, attributes or ())


def input_names(entry: KernelEntry) -> tuple[str, ...]:
    """The names of the inputs in the expression."""
    spec = registry.specs.get(entry.name)
    if spec is not None and spec.inputs is not None:
        return spec.inputs
    return tuple(f"x{i}" for i in range(len(entry.signature.inputs)))


def pack_width(entry: KernelEntry) -> int:
    """The number of elements of an expression's widest array that fill 16 bytes, the best width for
    a thread; at most 8, because compilers unroll each of them."""
    ins, out = dtypes_of(entry)
    return min(8, 16 // max(d.itemsize for d in (*ins, out)))


def kernel_name(entry: KernelEntry) -> str:
    """The C name of an expression's kernel."""
    signature = str(entry.signature).replace("?", "Z")
    return re.sub(r"[^A-Za-z0-9]", "_", f"{entry.name}_{signature}")


def unit_of(entry: KernelEntry) -> str:
    """The text of the unit in which the expression is compiled: alone, or with all built-in
    expressions that name the same unit, because compilers start slowly."""
    unit = expression(entry).unit
    members = members_of(unit, epoch.now.kernels) if unit else ()
    if entry not in members:
        members = (entry,)
    dtypes = {d for e in members for ins, out in (dtypes_of(e),) for d in (*ins, out)}
    return prelude(dtypes) + "using namespace miniml;\n" + "".join(map(kernel_text, members))


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


def kernel_text(entry: KernelEntry) -> str:
    """The text of an expression's kernel; a Layout gives the addresses of its inputs' elements.

    A thread computes a pack of neighbours where there are packs, and single elements elsewhere.
    """
    (ins, out), name, width = dtypes_of(entry), kernel_name(entry), pack_width(entry)
    count, result = len(ins), C_TYPES[out]
    scalars = [(n, C_TYPES[d]) for n, d in scalar_types(entry).items()]
    given = [f"const {C_TYPES[d]}* in{k}" for k, d in enumerate(ins)] + [f"{result}* out"]
    given += [f"{t} a_{n}" for n, t in scalars] + [f"Layout<{count}> where"] * bool(count)
    given += ["long long packs", "long long n"]

    def value(index: str, loads: list[str]) -> str:
        passed = [*loads, *[f"a_{n}" for n, _ in scalars], index]
        return f"store<{result}>({name}_value({', '.join(passed)}))"

    def located(index: str) -> str:
        return f"    long long at[{count}];\n    locate(where, {index}, at);\n" * bool(count)

    packed = "".join(
        f"    const Pack<{C_TYPES[d]}, {width}> p{k} = "
        f"pack_of<{width}>(in{k} + at[{k}], where, {k});\n"
        for k, d in enumerate(ins)
    )
    each = value(f"p * {width} + v", [f"load(p{k}.at[v])" for k in range(count)])
    one = value("i", [f"load(in{k}[at[{k}]])" for k in range(count)])
    return f"""{_value(entry)}extern "C" __global__ void {name}({", ".join(given)}) {{
#pragma unroll 1
  MINIML_FOR(p, packs) {{
{located(f"p * {width}")}{packed}    Pack<{result}, {width}> made;
#pragma unroll
    for (int v = 0; v < {width}; ++v) made.at[v] = {each};
    *(Pack<{result}, {width}>*)(out + p * {width}) = made;
  }}
#pragma unroll 1
  MINIML_FOR_FROM(i, packs * {width}, n) {{
{located("i")}    out[i] = {one};
  }}
}}
"""


def _value(entry: KernelEntry) -> str:
    """The expression of an entry as a function."""
    ins, out = dtypes_of(entry)
    takes = tuple(zip(input_names(entry), ins, strict=True))
    scalars = tuple(scalar_types(entry).items())
    name = f"{kernel_name(entry)}_value"
    return value_text(name, entry.name, expression(entry), takes, scalars, out)


def value_text(
    name: str,
    primitive: str,
    body: Expression,
    inputs: Sequence[tuple[str, DType]],
    scalars: Sequence[tuple[str, DType]],
    out: DType,
) -> str:
    """An expression as the function `name` of scalars and of the element's index; T and U are the
    types it may use. It returns the type in which the output is computed; casts from floats are
    left to `store`."""
    first = inputs[0][1] if inputs else out
    known = {"T": computed(first), "U": unsigned(first)}
    types = "".join(f"  typedef {C_TYPES[d]} {n};\n" for n, d in known.items() if n in body.words)
    takes = [f"{C_TYPES[computed(d)]} {n}" for n, d in inputs]
    takes += [f"{C_TYPES[d]} {n}" for n, d in scalars]
    takes.append("long long" + " index" * ("index" in body.words))
    gives = C_TYPES[computed(first if primitive == "Cast" else out)]
    return f"""static __device__ __forceinline__ {gives} {name}({", ".join(takes)}) {{
{types}#line 1 "{primitive} expression"
  return ({body.text});
#line 1 "{name}.cu"
}}
"""
