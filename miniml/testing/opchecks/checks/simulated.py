"""Running CUDA kernels on calls in the simulator, which checks their use of memory."""

from __future__ import annotations

from functools import cache, partial
from typing import Any, NamedTuple, cast

import numpy as np

from ....backends import registry
from ....backends.cuda.array import DeviceArray
from ....backends.cuda.sim import settings
from ....backends.devices import get_device
from ....backends.kernel import KernelEntry, KernelNode
from ....backends.selection import Target
from ....errors import DeviceError
from ....primitive import Primitive
from ...calls import Array, Arrays, Call, as_tuple, node_of

_SECONDS = 4.0  # seconds after which a launch counts as hung


class Run(NamedTuple):
    """The result of a launch: outputs, the number of unwritten elements of each, the inputs it
    changed."""

    outs: Arrays
    unwritten: tuple[int, ...]
    changed: tuple[int, ...]


@cache
def available() -> str:
    """Why there is no simulator, in a sentence; "" if there is one. The call registers the
    library's CUDA kernels."""
    try:
        get_device("cuda-sim")
    except DeviceError as error:
        return str(error)
    return ""


def registered(primitive: Primitive) -> list[KernelEntry]:
    """The CUDA kernels of a primitive. For a user's primitive without any, nothing is loaded."""
    if type(primitive).__module__.startswith("miniml."):
        available()
    return registry.table.get((primitive.name, "cuda"), [])


def entries(call: Call) -> list[KernelEntry]:
    """Those that take and give the dtypes of a call as they are, and that the simulator can run."""
    plain = [e for e in registered(call.primitive) if not e.signature.arranged]
    fitting = [e for e in plain if e.signature.accepts(call.dtypes)]
    if call.primitive.dynamic_outputs or not fitting or available():
        return []
    outs = tuple(o.dtype for o in call.inferred)
    simulator = Target(get_device("cuda-sim"))
    return [e for e in fitting if e.signature.gives(outs) and simulator.supports(e)]


def run(
    entry: KernelEntry,
    call: Call,
    arrays: Arrays | None = None,
    schedule: str = "forward",
) -> Run:
    """Launch a kernel on a call's inputs (or other arrays of the same shapes), in any strides.

    schedule: the order of blocks and threads. Raises what the kernel's rule and the simulator
    raise: CompileError, LaunchError, KernelFaultError with the faults.
    """
    device: Any = get_device("cuda-sim", "check")
    given = tuple(_uploaded(device, a) for a in (call.arrays if arrays is None else arrays))
    if not device.takes_strides(entry):
        given = tuple(map(device.contiguous, given))
    before = [device.to_host(x).tobytes() for x in given]
    with settings.using(schedule=schedule, seed=1, seconds=_SECONDS):
        outs = _launched(device, entry, call, given)
    return Run(
        tuple(map(device.to_host, outs)),
        tuple(-(-device.module.unwritten(o.flat) // o.dtype.itemsize) for o in outs),
        tuple(i for i, x in enumerate(given) if device.to_host(x).tobytes() != before[i]),
    )


def _launched(device: Any, entry: KernelEntry, call: Call, given: tuple[Any, ...]) -> Any:
    node = node_of(call, call.arrays, call.inferred, call.attrs_of(entry), Target(device))
    if entry.view is not None:
        return tuple(map(device.contiguous, as_tuple(_look(entry, node)(*given))))
    kernel = device.bare_kernel(entry)
    kernel.prepare(node)
    try:
        scratch, outs = (
            tuple(device.empty(s.shape, s.dtype) for s in specs)
            for specs in (kernel.workspace(), node.outputs)
        )
        kernel.launch(given, scratch, outs, device.stream)
    finally:
        kernel.release()
    return outs


def _look(entry: KernelEntry, node: KernelNode) -> Any:
    """The function of arrays alone that a view kernel is for a node."""
    made, body = entry.made(), cast(Any, entry.body)
    if made is None:
        return partial(body, **node.attrs)
    made.prepare(node)
    return made.call


def _uploaded(device: Any, a: Array) -> DeviceArray:
    """The array on the device, with its strides."""
    steps = [(n - 1) * s for n, s in zip(a.shape, a.strides)]
    if a.flags.c_contiguous or not a.size:
        made: DeviceArray = device.from_host(a)
        return made
    start = -sum(min(s, 0) for s in steps)
    memory = np.zeros(start + sum(max(s, 0) for s in steps) + a.itemsize, np.uint8)
    np.ndarray(a.shape, a.dtype, memory, start, a.strides)[...] = a
    block = device.module.empty(memory.nbytes, np.uint8)
    block.set(memory)
    return DeviceArray(device, block, start, a.shape, a.dtype, a.strides)
