"""The CUDA device: cupy on a GPU, or its emulation on the simulator."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from math import prod
from typing import Any
from weakref import WeakSet

import numpy as np

from ...dtype import DType
from ..kernel import Expression, Kernel, KernelEntry, KernelNode, RawSource
from ..selection import Target
from ..signature import ArraySpec
from .array import DeviceArray
from .capture import recorded, refuse_recording
from .emulator.watched import Watched
from .failures import explained, no_memory, raise_as
from .features import FEATURES
from .move import move
from .text import rows
from .text.compile import Compiler
from .text.elementwise import Elementwise
from .text.raw import FunctionKernel, Raw

Shape = tuple[int, ...]
HostArray = np.ndarray[Any, Any]


class Cuda:
    """Memory and kernels of one GPU, or of the simulator of one.

    module: cupy or its emulation; the backend uses only the names that
    tests/device/sim/test_emucupy.py lists.
    around: entered for every compilation and launch. checks: launches are synchronous, so kernels
    may look at the values of their inputs first.
    rows: what prints row programs.
    Everything runs in order on the module's current stream; copies to the host wait for it.
    """

    rows = rows

    def __init__(self, name: str, module: Any, around: Any = None, checks: bool = False):
        self.name, self.module, self.checks = name, module, checks
        self.compiler = Compiler(self, around)
        self.moves: dict[object, Any] = {}
        self.features: dict[str, bool] = {}
        self.arenas: WeakSet[Any] = WeakSet()  # arenas, whose memory is reused; for Watched

    def empty(self, shape: Shape, dtype: DType) -> DeviceArray:
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
        with self._outside_graphs("a copy to the host"):
            flat: HostArray = source.get()
        return flat.view(buffer.dtype).reshape(buffer.shape)

    def set(self, block: Any, array: HostArray) -> None:
        """Overwrite a block with the elements of a host array."""
        with self._outside_graphs("a copy from the host"):
            block.set(as_bytes(array))

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

    def converted(self, array: DeviceArray, dtype: DType) -> DeviceArray:
        if array.dtype == dtype:
            return array
        made = self.empty(array.shape, dtype)
        if made.size:
            target = Target(self)
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
        """The same without that check."""
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
        with self._outside_graphs("waiting for the stream"):
            self.stream.synchronize()

    def capture(self, launches: Callable[[], object]) -> Callable[[], None]:
        """The launches of `launches` as one CUDA graph: a function that repeats them."""
        launch = recorded(self.module, launches)

        def again() -> None:
            with self._outside_graphs("the launch of a CUDA graph"):
                launch()

        return again

    @cached_property
    def shared_limit(self) -> int:
        """Bytes of shared memory that a block may have."""
        attributes = self.module.cuda.Device().attributes
        return int(attributes["MaxSharedMemoryPerBlockOptin"])

    @property
    def stream(self) -> Any:
        """The stream on which everything is launched."""
        return self.module.cuda.get_current_stream()

    @contextmanager
    def _outside_graphs(self, doing: str) -> Iterator[None]:
        """The block does what no CUDA graph can record; CUDA errors become miniml's."""
        refuse_recording(doing)
        try:
            yield
        except Exception as error:
            raise_as(explained(error, self, doing), error)

    def _block(self, nbytes: int) -> Any:
        refuse_recording("an allocation")
        try:
            return self.module.empty(nbytes, np.uint8)
        except Exception as error:
            raise_as(no_memory(error, self, nbytes), error)


def as_bytes(array: HostArray) -> HostArray:
    """The elements in row-major order, as bytes."""
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8)
