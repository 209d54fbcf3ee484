"""The CUDA device: memory, kernels and graphs, on a GPU or on the simulator.

Parts: the device; the probes of optional features; the wrapper that checks in the simulator's check
mode which memory a kernel writes; kernels of CUDA C text with a launch rule, and plain functions of
device arrays.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from functools import cached_property, partial
from math import prod
from typing import Any
from weakref import WeakSet

import numpy as np

from ...core.abstract import ArraySpec, DType, bfloat16, canonical, float16
from ...core.errors import CompileError, DeclarationError, DTypeError
from ..kernel import Expression, Kernel, KernelEntry, KernelNode, Launch, RawSource
from ..product import Shape
from . import kernels as kernels  # registers the library's kernels
from .array import DeviceArray
from .driver import Driver, Simulator, gpu
from .sim.memory import Fault, current, error, recorded, refuse_recording
from .text import loops
from .text.loops import Elementwise
from .text.source import MAX_BLOCK, MAX_GRID, MAX_THREADS, STATIC_SHARED, Compiler, fill, move, unit

HostArray = np.ndarray[Any, Any]


def load(name: str, sim: str) -> Cuda:
    """The device "cuda" or "cuda-sim"; DeviceError, with a remedy, if it is absent."""
    return Cuda(Simulator(sim) if name == "cuda-sim" else gpu())


_ALIGNED = 16  # bytes that kernels read at once


class Cuda:
    """Memory and kernels of one GPU, or of the simulator of one.

    module: cupy, for kernels of users. checks: launches are synchronous, so kernels may look at the
    values of their inputs first. rows: the printer of row programs.
    Everything runs in order on the driver's stream; copies to the host wait for it.
    """

    rows = loops

    def __init__(self, driver: Driver):
        self.driver, self.name, self.checks = driver, driver.name, driver.checks
        self.module = driver.module
        self.compiler = Compiler(driver)
        self.moves: dict[object, Any] = {}
        self.features: dict[str, bool] = {}
        self.arenas: WeakSet[Any] = WeakSet()  # memory that is reused; for Watched

    def empty(self, shape: Shape, dtype: DType) -> DeviceArray:
        if dtype.kind == "c":
            raise DTypeError(
                f"{self.name} holds no {dtype.name}; complex numbers are on the cpu alone: "
                "move the tensors with .to('cpu'), or real and imaginary parts as two tensors"
            )
        return DeviceArray(self, self._block(prod(shape) * dtype.itemsize), 0, shape, dtype)

    def arena(self, nbytes: int) -> Any:
        """A block of bytes; memory of CUDA begins at multiples of 256."""
        block = self._block(nbytes)
        if self.checks:
            self.arenas.add(block)
        return block

    def carve(self, arena: Any, offset: int, shape: Shape, dtype: DType) -> DeviceArray:
        return DeviceArray(self, arena, offset, shape, dtype)

    def from_host(self, array: HostArray) -> DeviceArray:
        made = self.empty(array.shape, array.dtype)
        if array.size:
            self.set(made.block, array)
        return made

    def to_host(self, buffer: DeviceArray) -> HostArray:
        """A copy on the host; waits until all launches are done."""
        if not buffer.size:
            return np.empty(buffer.shape, buffer.dtype)
        source = self.contiguous(buffer).flat
        refuse_recording("a copy to the host")
        return self.driver.read(source).view(buffer.dtype).reshape(buffer.shape)

    def set(self, block: Any, array: HostArray) -> None:
        """Overwrite a block with the elements of a host array."""
        refuse_recording("a copy from the host")
        self.driver.write(block, np.ascontiguousarray(array).reshape(-1).view(np.uint8))

    @property
    def number(self) -> int:
        """The number of cupy's current GPU."""
        return int(self.module.cuda.Device().id)

    def borrowed(self, lent: Any, copy: bool) -> tuple[DeviceArray, bool]:
        """An array around the memory of this device that an object lends by DLPack, and True if it
        had to be copied: kernels read row-major order, from multiples of 16 bytes on. What launches
        next waits for the object's stream. lent: a dlpack.Lent; copy: make one anyway."""
        refuse_recording("memory of another library")
        array = self.module.from_dlpack(lent)
        copied = not array.flags.c_contiguous or array.data.ptr % _ALIGNED != 0
        if copied or copy:
            array = array.copy()
        dtype = bfloat16 if lent.narrow else canonical(array.dtype)
        shape = tuple(array.shape)
        return DeviceArray(self, array.reshape(-1).view(np.uint8), 0, shape, dtype), copied

    def lent(self, array: DeviceArray) -> Any:
        """The elements of a row-major array as one of cupy's, which lends them by DLPack; bfloat16
        are numbers of 16 bits there."""
        refuse_recording("memory for another library")
        return array.flat.reshape(array.shape)

    def following(self, stream: int) -> AbstractContextManager[object]:
        """A block in which everything is launched on the stream of another library, which has that
        handle: memory that either frees is reused in its order."""
        found: AbstractContextManager[object] = self.module.cuda.Stream.from_external(
            _Handle(stream)
        )
        return found

    def contiguous(self, array: DeviceArray) -> DeviceArray:
        return array if array.contiguous else self.copy(array)

    def copy(self, array: DeviceArray) -> DeviceArray:
        made = self.empty(array.shape, array.dtype)
        self.copy_into(made, array)
        return made

    def seen(self, look: Callable[..., Any], arrays: Sequence[DeviceArray]) -> tuple[Any, bool]:
        """The view that `look` makes of the arrays, which are not read; and whether it is new
        memory."""
        found = look(*[a.planned() for a in arrays]).view()
        return found, not any(found.block is a.block for a in arrays)

    def copy_into(self, target: DeviceArray, source: DeviceArray | HostArray) -> None:
        """Overwrite a contiguous array with one of the same shape and dtype."""
        if not target.size:
            return
        if isinstance(source, np.ndarray):
            low, high = target.bounds()
            self.set(target.block[low:high], source)
            return
        move(source, target)

    def converted(self, array: DeviceArray, dtype: DType, target: Any) -> DeviceArray:
        if array.dtype == dtype:
            return array
        made = self.empty(array.shape, dtype)
        if made.size:
            source, cast = ((ArraySpec(a.shape, a.dtype),) for a in (array, made))
            run: Any = self.kernel(target.select("Cast", source, cast).entry)
            run.prepare(KernelNode("Cast", source, cast, {"dtype": dtype}, target))
            run.launch((array,), (), (made,), self.stream)
        return made

    def kernel(self, entry: KernelEntry) -> Kernel:
        """A registered kernel, not yet prepared; in check mode it must fill its outputs."""
        made = self.bare_kernel(entry)
        return Watched(made, self) if self.checks else made

    def bare_kernel(self, entry: KernelEntry) -> Kernel:
        """A registered kernel, not yet prepared, without that check."""
        if isinstance(entry.body, Expression):
            return Elementwise(entry)
        if isinstance(entry.body, RawSource):
            return Raw(entry)
        return entry.made() or FunctionKernel(entry)

    def takes_strides(self, entry: KernelEntry) -> bool:
        return entry.strided or isinstance(entry.body, Expression)

    def has(self, feature: str) -> bool:
        """True for a feature of `features.FEATURES` that a probe finds; each is probed once."""
        found = self.features.get(feature)
        if found is None:
            probe = FEATURES.get(feature)
            found = self.features[feature] = probe is not None and probe(self)
        return found

    def synchronize(self) -> None:
        """Wait until all launches are done."""
        refuse_recording("waiting for the stream")
        self.driver.synchronize()

    def capture(self, launches: Callable[[], object]) -> Callable[[], None]:
        """The launches of `launches` as one CUDA graph: a function that repeats them."""
        launch = self.driver.capture(launches)

        def again() -> None:
            refuse_recording("the launch of a CUDA graph")
            launch()

        return again

    @cached_property
    def shared_limit(self) -> int:
        """Bytes of shared memory that a block may have."""
        return self.driver.shared_limit

    @property
    def stream(self) -> Any:
        """The stream on which everything is launched."""
        return self.driver.stream

    def _block(self, nbytes: int) -> Any:
        refuse_recording("an allocation")
        return self.driver.allocate(nbytes)


class _Handle:
    """A stream of another library, as cupy takes it."""

    def __init__(self, stream: int):
        self.stream = stream

    def __cuda_stream__(self) -> tuple[int, int]:
        return 0, self.stream  # the version of this protocol, and the handle


# --- Optional features ----------------------------------------------------------------------------


# Optional features are libraries and hardware units that kernels may require. A probe shows each,
# so a machine that lacks a library or a header uses the kernels that do without it.

# Compiles where the compiler finds mma.h and the architecture multiplies matrices of the type:
# __half from sm_70 on, __nv_bfloat16 from sm_80 on.
PROBE = r"""
#include <mma.h>
extern "C" __global__ void probe(const T* x, float* out) {
  using namespace nvcuda::wmma;
  fragment<matrix_a, 16, 16, 16, T, row_major> a;
  fragment<matrix_b, 16, 16, 16, T, row_major> b;
  fragment<accumulator, 16, 16, 16, float> sum;
  load_matrix_sync(a, x, 16);
  load_matrix_sync(b, x, 16);
  fill_fragment(sum, 0.0f);
  mma_sync(sum, a, b, sum);
  store_matrix_sync(out, sum, 16, mem_row_major);
}
"""


def tensor_cores(device: Any, dtype: DType) -> bool:
    """True when a kernel with products of 16 x 16 matrices of the dtype compiles."""
    try:
        device.compiler.function(unit(PROBE, T=dtype), "probe")
    except CompileError:
        return False
    return True


FEATURES: dict[str, Callable[[Any], bool]] = {
    "cublas": lambda device: device.driver.cublas is not None,
    "wmma": partial(tensor_cores, dtype=float16),
    "wmma_bfloat16": partial(tensor_cores, dtype=bfloat16),
}


# --- Check of writes ------------------------------------------------------------------------------


class Watched(Kernel):
    """A kernel of check mode: its outputs and workspace in an arena are uninitialised when it
    begins, as in the first call of a program, and its outputs must all be written when it ends.

    Memory shared with an input is left unchanged: the kernel may read it first. So are outputs in
    parameters, which keep their values if the launch is refused. kernel: the one that runs.
    """

    def __init__(self, kernel: Kernel, device: Any):
        self.kernel, self._device = kernel, device

    def prepare(self, node: KernelNode) -> None:
        super().prepare(node)
        self.kernel.prepare(node)
        self.reason, self.inplace = self.kernel.reason, self.kernel.inplace

    def workspace(self) -> tuple[ArraySpec, ...]:
        return self.kernel.workspace()

    def launch(self, inputs: Any, workspace: Any, outputs: Any, stream: Any) -> None:
        if current().deferred or recorded() is not None:  # nothing has run when `launch` returns
            self.kernel.launch(inputs, workspace, outputs, stream)
            return
        read = [_extent(a) for a in inputs]
        for array in (*outputs, *workspace):
            if array.block in self._device.arenas and not _overlaps(_extent(array), read):
                array.flat.forget()
        self.kernel.launch(inputs, workspace, outputs, stream)
        counts = [-(-a.flat.unwritten() // a.dtype.itemsize) for a in outputs]
        if any(counts):
            found = zip(counts, outputs, strict=True)
            raise error(
                _half_written(self.node.name, i, n, a) for i, (n, a) in enumerate(found) if n
            )

    def resize(self, node: KernelNode) -> None:
        super().prepare(node)
        self.kernel.resize(node)

    def can_run(self, node: KernelNode) -> bool:
        return self.kernel.can_run(node)

    @property
    def follows(self) -> bool:
        return self.kernel.follows

    def release(self) -> None:
        self.kernel.release()


def _extent(array: Any) -> tuple[int, int]:
    """The addresses where an array begins and ends; 0, 0 for one without elements."""
    start: int = array.flat.address
    return start, start + array.flat.nbytes


def _overlaps(own: tuple[int, int], others: list[tuple[int, int]]) -> bool:
    return any(own[0] < end and start < own[1] for start, end in others)


def _half_written(name: str, i: int, count: int, array: Any) -> Fault:
    message = f"{count} of the {array.size} elements of output {i} are unwritten when it ends"
    return Fault("unwritten", name, message)


# --- Kernels of text, and functions of device arrays ----------------------------------------------


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
        code = raw_text(body, node)
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


def raw_text(body: RawSource, node: KernelNode) -> str:
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
