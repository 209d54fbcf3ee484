"""Launches of single kernels on calls, and the reasons why one raises.

In order: kernels on the CPU; CUDA kernels in the simulator, which checks their use of memory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import cache, partial
from itertools import chain
from math import prod
from typing import Any, NamedTuple, cast

import numpy as np

from ....backends import registry
from ....backends.cuda.array import DeviceArray
from ....backends.cuda.sim import memory as settings
from ....backends.devices import get_device
from ....backends.kernel import KernelEntry, KernelNode
from ....backends.selection import Target
from ....core.abstract import Shape
from ....core.dtype import float64, is_float
from ....core.errors import DeviceError, MinimlError, OutOfRangeError, ShapeError
from ....core.primitive import Primitive
from ...budget import go_on
from ...calls import Array, Arrays, Call, as_tuple, node_of, poisoned, prepared, run_entry


def launch(entry: KernelEntry, call: Call, arrays: Arrays | None = None, byte: int = 0) -> Arrays:
    """The outputs of one kernel, in buffers that are filled with `byte` before; TimeIsUpError when
    the time of the check is up."""
    go_on()
    return run_entry(entry, call, copies(call) if arrays is None else arrays, poisoned(call, byte))


def copies(call: Call) -> Arrays:
    """Writable copies of the inputs, so that writes of a kernel into them show."""
    return tuple(np.array(a, order="C") for a in call.arrays)


def launched(call: Call) -> bool:
    """False if the framework skips the kernels, because no output has an element."""
    return call.primitive.dynamic_outputs or any(o.size for o in call.inferred)


def kernels_of(call: Call) -> list[KernelEntry]:
    """The CPU kernels that take and give the dtypes of a call, if the framework would run them."""
    return call.entries() if launched(call) else []


def wide_kernel(call: Call, arrays: Arrays) -> KernelEntry | None:
    """The kernel for a call of other dtypes; None if it would have to cast them."""
    try:
        return next(iter(call.on(arrays).entries()), None)
    except MinimlError:
        return None


def failure(entry: KernelEntry, call: Call) -> Exception | None:
    """The exception of a kernel; None if it runs."""
    try:
        launch(entry, call)
    except Exception as error:
        return error
    return None


def gives_no_number(call: Call) -> bool:
    """True when a kernel gives NaN or infinity for these numbers."""
    entries = [entry for entry in call.entries()[:1] if failure(entry, call) is None]
    outs = [o for entry in entries for o in launch(entry, call) if is_float(o.dtype)]
    return any(not np.isfinite(o.astype(float64)).all() for o in outs)


def refused_by_value(call: Call) -> bool:
    """True when a kernel refuses these numbers rather than these shapes.

    That is so if it raises an error made for that (an index out of range, a matrix that is not
    definite), and either plain numbers pass or the error allows no other reading.
    """
    if not launched(call):
        return False
    errors = [(e, failure(e, call)) for e in call.entries()]
    for entry, error in errors:
        if error is None or not _about_values(call, error):
            continue
        if isinstance(error, (OutOfRangeError, np.linalg.LinAlgError)):
            return True
        if failure(entry, call.on(tuple(map(_plain, call.arrays)))) is None:
            return True
    return False


def _about_values(call: Call, error: Exception) -> bool:
    if isinstance(error, MinimlError):
        return not isinstance(error, ShapeError)
    if isinstance(error, np.linalg.LinAlgError):
        return True
    indices = any(not is_float(a.dtype) and a.size for a in call.arrays)
    return indices and isinstance(error, (IndexError, ValueError))


def _plain(a: Array) -> Array:
    return np.ones(a.shape, a.dtype) if is_float(a.dtype) else np.zeros(a.shape, a.dtype)


def other_shape(entry: KernelEntry, call: Call) -> Shape | None:
    """An output shape with which a kernel runs that raises with the inferred one; None if there is
    none."""
    if not call.primitive._single or entry.view is not None or call.primitive.dynamic_outputs:
        return None
    (out,) = call.inferred
    fitting = []
    for shape in _plausible(call):
        if shape == out.shape:
            continue
        with suppress(Exception):  # whatever it raises, this is not the shape
            run_entry(entry, call, copies(call), (np.zeros(shape, out.dtype),))
            fitting.append(shape)
    # Results are broadcast into larger outputs, so the smallest is what the kernel computes.
    return min(fitting, key=lambda shape: (prod(shape), len(shape)), default=None)


def _plausible(call: Call) -> Iterator[Shape]:
    """Output shapes that operations have for inputs like these, each once."""
    shapes = [a.shape for a in call.arrays]
    tried: dict[Any, None] = dict.fromkeys(shapes)
    with suppress(ValueError):
        tried[np.broadcast_shapes(*shapes)] = None
    if len(shapes) == 2 and all(shapes):
        tried[shapes[0][:-1] + shapes[1][1:]] = None
        tried[shapes[0][:-2] + shapes[0][-2:-1] + shapes[1][-1:]] = None
        tried[shapes[0] + shapes[1]] = None
    for shape in list(tried):
        dropped = [shape[:a] + shape[a + 1 :] for a in range(len(shape))]
        thinned = [shape[:a] + (1,) + shape[a + 1 :] for a in range(len(shape))]
        tried.update(dict.fromkeys(chain([shape[::-1]], dropped, thinned)))
    yield from tried
    yield ()


# --- CUDA kernels in the simulator ----------------------------------------------------------------


_SECONDS = 4.0  # seconds after which a launch counts as hung


@cache
def available() -> str:
    """The reason why there is no simulator, in a sentence; "" if there is one. The call registers
    the library's CUDA kernels."""
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
    """The CUDA kernels that take and give the dtypes of a call unchanged, and that the simulator
    can run."""
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
    raise: CompileError, LaunchError, KernelFaultError with the faults; TimeIsUpError when the time
    of the check is up.
    """
    go_on()
    device: Any = get_device("cuda-sim", "check")
    given = tuple(_uploaded(device, a) for a in (call.arrays if arrays is None else arrays))
    if not device.takes_strides(entry):
        given = tuple(map(device.contiguous, given))
    before = [device.to_host(x).tobytes() for x in given]
    with settings.using(schedule=schedule, seed=1, seconds=_SECONDS):
        outs = _launched(device, entry, call, given)
    return Run(
        tuple(map(device.to_host, outs)),
        tuple(-(-o.flat.unwritten() // o.dtype.itemsize) for o in outs),
        tuple(i for i, x in enumerate(given) if device.to_host(x).tobytes() != before[i]),
    )


class Run(NamedTuple):
    """The result of a launch: outputs, the number of unwritten elements of each, and the numbers of
    the inputs that it changed."""

    outs: Arrays
    unwritten: tuple[int, ...]
    changed: tuple[int, ...]


def _launched(device: Any, entry: KernelEntry, call: Call, given: tuple[Any, ...]) -> Any:
    node = node_of(call, call.arrays, call.inferred, call.attrs_of(entry), Target(device))
    if entry.view is not None:
        with _look(entry, node) as look:
            return tuple(map(device.contiguous, as_tuple(look(*given))))
    kernel = device.bare_kernel(entry)
    with prepared(kernel, node):
        scratch, outs = (
            tuple(device.empty(s.shape, s.dtype) for s in specs)
            for specs in (kernel.workspace(), node.outputs)
        )
        kernel.launch(given, scratch, outs, device.stream)
    return outs


@contextmanager
def _look(entry: KernelEntry, node: KernelNode) -> Iterator[Callable[..., Any]]:
    """A view kernel for a node, as a function of arrays alone."""
    made, body = entry.made(), cast(Any, entry.body)
    if made is None:
        yield partial(body, **node.attrs)
        return
    with prepared(made, node):
        yield made.call


def _uploaded(device: Any, a: Array) -> DeviceArray:
    """The array on the device, with its strides."""
    steps = [(n - 1) * s for n, s in zip(a.shape, a.strides)]
    if a.flags.c_contiguous or not a.size:
        made: DeviceArray = device.from_host(a)
        return made
    start = -sum(min(s, 0) for s in steps)
    memory = np.zeros(start + sum(max(s, 0) for s in steps) + a.itemsize, np.uint8)
    np.ndarray(a.shape, a.dtype, memory, start, a.strides)[...] = a
    block = device.arena(memory.nbytes)
    device.set(block, memory)
    return DeviceArray(device, block, start, a.shape, a.dtype, a.strides)
