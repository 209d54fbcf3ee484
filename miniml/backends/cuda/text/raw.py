"""Kernels of CUDA C text with a launch rule, and plain functions of device arrays."""

from __future__ import annotations

from functools import partial
from math import prod
from typing import Any

from ....core.errors import DeclarationError
from ...kernel import Kernel, KernelEntry, KernelNode, Launch, RawSource
from ...signature import ArraySpec
from ..move import fill
from .source import MAX_BLOCK, MAX_GRID, MAX_THREADS, STATIC_SHARED, unit


class Raw(Kernel):
    """The kernel of a RawSource for one node, on the device that the node names.

    Its function gets pointers to inputs, outputs and workspace, then the launch's args.
    """

    def __init__(self, entry: KernelEntry):
        self.entry = entry

    def prepare(self, node: KernelNode) -> None:
        super().prepare(node)
        body = self.entry.body
        assert isinstance(body, RawSource)
        self.rule = checked(node.name, body.launch(node))
        code = text(body, node)
        self.function = node.device.compiler.function(code, body.entry, body.options)
        absent = [i for i in self.rule.zero if not 0 <= i < len(node.outputs)]
        if absent:
            raise DeclarationError(
                f"{node.name} launch gives zero={self.rule.zero}; its outputs are numbered 0 to "
                f"{len(node.outputs) - 1}"
            )
        if self.rule.shared > STATIC_SHARED:
            limit = node.device.shared_limit
            if self.rule.shared > limit:
                raise DeclarationError(
                    f"{node.name} launch gives {self.rule.shared} bytes of shared memory; a block "
                    f"has at most {limit} here"
                )
            self.function.max_dynamic_shared_size_bytes = self.rule.shared

    def workspace(self) -> tuple[ArraySpec, ...]:
        return self.rule.workspace

    def launch(self, inputs: Any, workspace: Any, outputs: Any, stream: object) -> None:
        rule = self.rule
        for i in rule.zero:
            fill(outputs[i], 0)
        arrays = [a.flat for a in (*inputs, *outputs, *workspace)]
        self.function(rule.grid, rule.block, (*arrays, *rule.args), shared_mem=rule.shared)


def text(body: RawSource, node: KernelNode) -> str:
    """The source as a unit, its own lines counted from 1. T_IN0, T_OUT0 and so on are the types of
    inputs and outputs, T that of the first."""
    names: dict[str, Any] = {f"T_IN{i}": spec.dtype for i, spec in enumerate(node.inputs)}
    names |= {f"T_OUT{i}": spec.dtype for i, spec in enumerate(node.outputs)}
    names = {"T": next(iter(names.values())), **names, **dict(body.defines)}
    return unit(f'#line 1 "{body.entry}.cu"\n{body.source}', **names)


def checked(name: str, rule: Any) -> Launch:
    """The completed launch rule; DeclarationError for one that no GPU can launch."""
    if not isinstance(rule, Launch):
        raise DeclarationError(f"{name} launch gives {type(rule).__name__}; return a Launch")
    for what, extents in (("grid", rule.grid), ("block", rule.block)):
        if not 1 <= len(extents) <= 3 or any(int(n) != n or n < 1 for n in extents):
            raise DeclarationError(
                f"{name} launch gives {what} {extents}; it is one to three ints of at least 1"
            )
    if prod(rule.block) > MAX_THREADS:
        raise DeclarationError(
            f"{name} launch gives {prod(rule.block)} threads a block; {MAX_THREADS} is the limit"
        )
    for what, extents, most in (("grid", rule.grid, MAX_GRID), ("block", rule.block, MAX_BLOCK)):
        if any(n > limit for n, limit in zip(extents, most, strict=False)):
            raise DeclarationError(f"{name} launch gives {what} {extents}; {most} is the limit")
    if rule.shared < 0:
        raise DeclarationError(f"{name} launch gives {rule.shared} bytes of shared memory")
    return rule._replace(
        grid=tuple(map(int, rule.grid)), block=tuple(map(int, rule.block)), args=tuple(rule.args)
    )


class FunctionKernel(Kernel):
    """A Python function as a CUDA kernel: it gets arrays of the device and fills `out`."""

    def __init__(self, entry: KernelEntry):
        self.entry = entry

    def prepare(self, node: KernelNode) -> None:
        super().prepare(node)
        body: Any = self.entry.body
        self.call = partial(body, **node.attrs)
