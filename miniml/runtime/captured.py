"""Programs whose launches are recorded once as a CUDA graph and repeated with one call."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

from ..backends.device import Array, Device
from ..backends.kernel import Expression, KernelEntry, RawSource
from ..graph.ir import Graph, Node
from ..uninterrupted import uninterrupted
from .device_steps import DeviceInstance
from .launch import BoundKernel
from .storage import Layout

# A launch from Python takes some microseconds, in which a GPU copies a few MiB.
BYTES_PER_LAUNCH = 4 << 20


@dataclass(slots=True)
class Capture:
    """What the instances of a program know of graphs. why_not: why its launches become none."""

    why_not: str


def obstacle(
    graph: Graph,
    prepared: Mapping[Node, BoundKernel],
    device: str,
    check_nan: bool,
    cuda_graphs: str,
) -> str:
    """Why the launches of a program become no CUDA graph; "" when nothing stands in the way."""
    if cuda_graphs == "off":
        return "cuda_graphs='off'"
    if cuda_graphs == "auto" and device != "cuda":
        return "the simulator makes a CUDA graph only with cuda_graphs='on'"
    if check_nan:
        return "check_nan looks at what each kernel made"
    launched = launches(graph, prepared)
    for node in launched:
        if not repeats(prepared[node].entry):
            return f"{node.primitive.name} runs Python of its own at each call"
    count, copies = len(launched), len(graph.inputs)
    if count < 2 or count <= copies:
        return f"a graph of {count} launches saves nothing when {copies} inputs are copied first"
    nbytes = sum(v.abstract.nbytes for v in graph.inputs)
    if nbytes > BYTES_PER_LAUNCH * count:
        return f"copying {nbytes} bytes of inputs first costs more than {count} launches"
    return ""


def launches(graph: Graph, prepared: Mapping[Node, BoundKernel]) -> list[Node]:
    """The nodes that launch something."""
    return [n for n in graph.nodes if prepared[n].entry.view is None and not prepared[n].empty]


def repeats(entry: KernelEntry) -> bool:
    """True when a kernel launches the same at each call, so that its Python may be left out."""
    body = entry.body
    if isinstance(body, (Expression, RawSource)):
        return True
    said = getattr(body, "capturable", None)
    return entry.built_in if said is None else bool(said)


class CapturedInstance(DeviceInstance):
    """A DeviceInstance in which everything stands in the same place at every call.

    Inputs are copied into buffers of its own, so one graph serves all calls: the first call
    launches step by step, which compiles what compiles at its first launch; the second records,
    and from then on a call is the copies of the inputs, one launch of the graph, and the copies
    of the outputs, whose memory is taken first. State that stays on the host is read before the
    graph and written after it.
    """

    def __init__(self, layout: Layout, device: Device, check_nan: bool, capture: Capture):
        super().__init__(layout, device, check_nan)
        self.capture = capture
        self.warm = False
        self.replay: Callable[[], None] | None = None
        self.results: list[Array] = []

    def run(self, *arrays: Any) -> list[Any]:
        """One call."""
        if self.warm and self.replay is None and not self.capture.why_not:
            self._record()
        device = self.device
        if self.replay is None:
            self._receive(arrays)
            outs = super().run(*self.buffers)
            self.warm = True
            return outs
        outs = [device.empty(v.abstract.shape, v.abstract.dtype) for v in self.graph.outputs]
        self._receive(arrays)
        for buffer, parameter in self.uploads:
            device.copy_into(buffer, parameter._data)
        with uninterrupted() if self.writes else nullcontext():
            self.replay()
            for step in self.handed:
                step(self.fixed)
        for out, result in zip(outs, self.results, strict=True):
            device.copy_into(out, result)
        return outs

    def _receive(self, arrays: tuple[Any, ...]) -> None:
        for buffer, array in zip(self.buffers, arrays, strict=True):
            self.device.copy_into(buffer, array)

    def _bind_inputs(self) -> None:
        given = [v.abstract for v in self.graph.inputs]
        self.buffers = [self.device.empty(a.shape, a.dtype) for a in given]
        for var, buffer in zip(self.graph.inputs, self.buffers, strict=True):
            self._fix(var, buffer)

    def _record(self) -> None:
        """Record the steps, or note why they cannot be."""
        device, outputs = self.device, self.graph.outputs
        results = [self.fixed[self.place[v]] for v in outputs]
        kept = []
        for i, var in enumerate(outputs):
            if self.writes and self.layout.storage[var].kind == "parameter":
                results[i] = device.empty(var.abstract.shape, var.abstract.dtype)
                kept.append((results[i], self.fixed[self.place[var]]))
        running = ""

        def launches() -> None:
            nonlocal running
            for node, step in self.main:
                running = node.primitive.name
                step(self.fixed)
            for target, source in kept:  # before the parameter changes
                device.copy_into(target, source)
            for node, step in self.updates:
                running = node.primitive.name
                step(self.fixed)
            for step in (*self.saved, *self.published):
                step(self.fixed)

        try:
            self.replay = device.capture(launches)
            self.results = results
        except Exception as error:
            self.capture.why_not = f"{running} could not be recorded ({error})"
