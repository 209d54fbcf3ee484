"""Every text that kernels have compiled, found by preparing and launching them.

They run on the backend's own device, whose driver computes nothing and takes down what it is to
load: so no text is put together a second time.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from functools import cache
from math import prod
from types import SimpleNamespace
from typing import Any

import numpy as np

from miniml import ArraySpec, int8, uint64
from miniml.backends import registry
from miniml.backends.cuda import kernels as kernels
from miniml.backends.cuda.device import FEATURES, Cuda
from miniml.backends.cuda.driver import Simulator
from miniml.backends.kernel import Expression, KernelEntry, KernelNode, RawSource
from miniml.backends.selection import Target
from miniml.core.abstract import FLOATS, DType
from miniml.core.primitive import primitives
from miniml.errors import MinimlError
from miniml.runtime.control import Composed
from miniml.testing import OpInfo
from miniml.testing.calls import Call, calls
from tests import opinfo

from ..frame.calls import rng_of

ROWS = {row.primitive.name: row for row in opinfo.ROWS}

# Their kernels run other graphs, or pass through the host, and have no text of their own.
CONTROL = (
    "AllGather", "AllReduce", "AllToAll", "Broadcast", "Cond", "Fused", "Reduce", "ReduceScatter",
    "Scan", "SendRecv", "WhileLoop",
)  # fmt: skip
# Kernels that require one of these call it; they have no text of their own either.
LIBRARIES = {"cublas"}
# Their texts depend on whether 32 bits number the elements of a row.
LONG_ROWS = ("Sort", "TopK")
LAUNCHED = 1 << 31  # elements; nothing is stored for them, but addresses are taken


class Constant(np.ndarray):
    """Memory on the host that is set as a device's is."""

    def set(self, values: np.ndarray) -> None:
        self[...] = values


class Unlaunched:
    """In the place of a compiled module, and of a function of it."""

    max_dynamic_shared_size_bytes = 0

    def function(self, name: str) -> Unlaunched:
        return self

    def get_global(self, name: str) -> None:
        """No address: nothing is stored there."""

    def __call__(self, *args: Any, **kwargs: Any) -> None:
        pass


class Recorder:
    """A driver with memory on the host, which no kernel fills, and the texts to be compiled."""

    name, checks, cublas, stream = "cuda-sim", False, None, None
    shared_limit = Simulator.shared_limit

    def __init__(self) -> None:
        self.module = SimpleNamespace(
            ndarray=lambda shape, dtype, at: np.zeros(shape, dtype).view(Constant)
        )
        self.texts: list[str] = []

    def allocate(self, nbytes: int) -> np.ndarray:
        return np.zeros(nbytes, np.uint8)

    def read(self, memory: np.ndarray) -> np.ndarray:
        return memory

    def write(self, memory: np.ndarray, array: np.ndarray) -> None:
        memory[...] = array

    def load(self, code: str, options: tuple[str, ...]) -> Unlaunched:
        self.texts.append(code)
        return Unlaunched()


def texts_of(entry: KernelEntry, node: KernelNode) -> list[str]:
    """What is compiled when a kernel runs for a node (whose device is ours to choose); when it is
    prepared, for arrays that no memory holds."""
    driver = Recorder()
    device = Cuda(driver)
    # Texts for tensor cores are found through the kernels that require them.
    device.features.update(dict.fromkeys(FEATURES, False))
    kernel = device.kernel(entry)
    kernel.prepare(KernelNode(node.name, node.inputs, node.outputs, node.attrs, Target(device)))
    if any(prod(spec.shape) > LAUNCHED for spec in (*node.inputs, *node.outputs)):
        return driver.texts
    groups = node.inputs, kernel.workspace(), node.outputs
    ins, scratch, outs = (tuple(device.empty(s.shape, s.dtype) for s in specs) for specs in groups)
    kernel.launch(ins, scratch, outs, device.stream)
    return driver.texts


def node_of(entry: KernelEntry, call: Call) -> KernelNode:
    """A call with the dtypes of a kernel's signature instead of its own."""
    s = entry.signature
    ins = specs([a.shape for a in call.arrays], s.inputs)
    outs = specs([a.shape for a in call.inferred], s.outputs)
    return KernelNode(entry.name, ins, outs, call.attrs)


def specs(shapes: list[tuple[int, ...]], dtypes: tuple[DType | None, ...]) -> tuple[ArraySpec, ...]:
    """Arrays of these shapes; the last dtype is that of all that follow."""
    own = (*dtypes, *dtypes[-1:] * len(shapes))
    return tuple(ArraySpec(shape, dtype) for shape, dtype in zip(shapes, own))


def entries_of(name: str) -> list[KernelEntry]:
    """The library's CUDA kernels of a primitive that compute something; of compositions with labels
    those for the narrowest and the widest: the others differ in a type alone."""
    entries = [] if name in CONTROL else registry.table.get((name, "cuda"), [])
    entries = [e for e in entries if e.built_in and e.view is None]
    few = [e for e in entries if e.body is Composed and e.signature.inputs[1:]]
    left = {e for e in few if e.signature.inputs[1] not in (*FLOATS, int8, uint64)}
    return [e for e in entries if e not in left and not LIBRARIES & {*e.requires}]


@cache
def units(name: str) -> dict[str, KernelEntry]:
    """The texts that the CUDA kernels of a primitive have compiled for the samples of its row,
    each with the first kernel that has. AssertionError for a kernel that never has any."""
    found: dict[str, KernelEntry] = {}
    for entry in entries_of(name):
        texts = [text for node in nodes(entry, ROWS[name]) for text in texts_of(entry, node)]
        assert texts, f"no sample of the row of {name} runs {entry.describe()}"
        for text in texts:
            found.setdefault(text, entry)
    return found


def nodes(entry: KernelEntry, row: OpInfo) -> Iterator[KernelNode]:
    """What a kernel is prepared for: the samples of a row and the same ones enlarged; a single
    node where its text cannot depend on it."""
    working = (entry.signature.inputs or entry.signature.outputs)[0]
    assert working is not None
    for call in calls(row, working, rng_of(entry.name, working)):
        yield node_of(entry, call)
        if isinstance(entry.body, (Expression, RawSource)):
            return
        choices = [(slice(2), 16), (slice(None), 16)]  # images of more channels; everything
        if entry.name in LONG_ROWS:
            choices.append((slice(-1, None), 1 << 33))
        for axes, times in choices:
            with suppress(MinimlError):  # attributes may speak of the sample's own extents
                yield node_of(entry, enlarged(call, axes, times))


def enlarged(call: Call, axes: slice, times: int) -> Call:
    """The call on arrays that are so many times as long along some axes, and hold nothing."""
    arrays = []
    for a in call.arrays:
        shape = list(a.shape)
        shape[axes] = [times * n for n in shape[axes]]
        arrays.append(np.broadcast_to(np.zeros((), a.dtype), shape))
    return call.on(tuple(arrays))


def declared() -> dict[str, KernelEntry]:
    """The texts of the CUDA kernels that users have filed in this process, for small inputs."""
    found: dict[str, KernelEntry] = {}
    for (name, device), filed in list(registry.table.items()):
        for entry in filed:
            if device == "cuda" and not entry.built_in:
                primitive = primitives[name]()
                dtypes = entry.signature.inputs
                arrays = tuple(np.ones((4, 8), dtype) for dtype in dtypes)
                for text in texts_of(entry, node_of(entry, Call(primitive, arrays))):
                    found.setdefault(text, entry)
    return found


def all_units() -> dict[str, list[KernelEntry]]:
    """The texts of all primitives, each with the kernels, one of a primitive, that compile it."""
    found: dict[str, list[KernelEntry]] = {}
    for name in ROWS:
        for text, entry in units(name).items():
            found.setdefault(text, []).append(entry)
    return found
