"""Program: a graph with its kernels chosen, its memory planned and its steps written out."""

from __future__ import annotations

from ..access import Access
from ..backends.device import Array
from ..backends.selection import Target
from ..errors import KernelNotFoundError
from ..graph.ir import Graph, Node
from ..location import point_at
from ..settings import current, enter
from ..undo import keep_readings
from .captured import Capture, CapturedInstance, obstacle
from .codegen import Instance
from .device_steps import DeviceInstance
from .launch import BoundKernel, prepare, target_for
from .lowering import lower
from .planner import Plan
from .schedule import Schedule, schedule
from .storage import Layout, lay_out


class Program:
    """A compiled graph: `program(*arrays)` gives a list of fresh arrays.

    It may run in several threads at once, with an arena each, except that a call that writes
    parameters does so alone. A step happens wholly or not at all: they change at the very end.
    """

    def __init__(self, graph: Graph, target: Target | None = None):
        self.target, self._settings = target or target_for("cpu"), current()
        self.device, settings = self.target.device, self._settings
        self.graph = lower(graph, self.target, settings.disabled_passes, settings.verify_passes)
        self.prepared: dict[Node, BoundKernel] = {n: self._prepare(n) for n in self.graph.nodes}
        self.schedule: Schedule = schedule(self.graph, self.prepared)
        self.layout: Layout = lay_out(self.graph, self.prepared, self.schedule)
        # Built-in kernels write to no input; others shall not be able to.
        on_cpu = self.device.name == "cpu"
        self._guarded = on_cpu and not all(p.entry.built_in for p in self.prepared.values())
        why = (self.device.name, settings.check_nan, settings.cuda_graphs)
        self.capture = Capture("" if on_cpu else obstacle(self.graph, self.prepared, *why))
        self._written = tuple(p for p, _ in self.schedule.writes)
        self._access = self._used()
        self._idle: list[Instance | DeviceInstance] = [self._instance()]

    @property
    def plan(self) -> Plan:
        """The arena: offsets, size and the largest sum of bytes alive at once."""
        return self.layout.plan

    @property
    def source(self) -> str:
        """The straight-line function that a call runs."""
        return self._instance().source

    def _prepare(self, node: Node) -> BoundKernel:
        inputs = tuple([v.abstract for v in node.inputs])
        outputs = tuple([v.abstract for v in node.outputs])
        try:
            prepared = prepare(node.primitive, inputs, outputs, node.attrs, self.target)
            if prepared.selection.cast is not None:
                raise KernelNotFoundError(
                    f"{node.primitive.name}: {prepared.selection.why} by the pass 'legalize', "
                    "which disabled_passes switches off; cast the inputs"
                )
        except Exception as error:
            point_at(error, node.where, f"{node.primitive.name} was called")
            raise
        return prepared

    def _instance(self) -> Instance | DeviceInstance:
        made_of = self.layout, self.device, self._settings.check_nan
        made: Instance | DeviceInstance
        if self.device.name == "cpu":
            made = Instance(*made_of)
        elif self.capture.why_not:
            made = DeviceInstance(*made_of)
        else:
            made = CapturedInstance(*made_of, self.capture)
        made.quiet.run(enter, self._settings)  # kernels see those of compilation
        return made

    @property
    def launched(self) -> str:
        """How kernels reach the device; "" on the CPU."""
        if self.device.name == "cpu":
            return ""
        if self.capture.why_not:
            return f"launched one by one: {self.capture.why_not}"
        return "launched one by one at the first call, as one CUDA graph from then on"

    def _used(self) -> Access | None:
        """The parameters that a call writes and reads; None where there are none to care for."""
        writes, reads = self.schedule.writes, self.graph.state
        if not reads:
            return None
        return Access(self.graph.name, [p for p, _ in writes], [p for p, _ in reads])

    def __call__(self, *arrays: Array) -> list[Array]:
        if self._access is None:
            return self._run(arrays)
        return self._access.run(self._stateful, arrays)

    def _stateful(self, arrays: tuple[Array, ...]) -> list[Array]:
        keep_readings(self._written)
        return self._run(arrays)

    def _run(self, arrays: tuple[Array, ...]) -> list[Array]:
        if self._guarded:
            arrays = tuple(map(_read_only, arrays))
        try:
            instance = self._idle.pop()
        except IndexError:
            instance = self._instance()
        try:
            return instance.quiet.run(instance.run, *arrays)
        except Exception as error:
            self._locate(instance, error)
            raise
        finally:
            self._idle.append(instance)

    def _locate(self, instance: Instance | DeviceInstance, error: Exception) -> None:
        """Point at the user's line of the node whose kernel raised."""
        for node in instance.nodes_of(error):
            point_at(error, node.where, f"{node.primitive.name} was called")


def _read_only(array: Array) -> Array:
    if array.flags.writeable:
        array = array.view()
        array.flags.writeable = False
    return array
