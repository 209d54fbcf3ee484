"""Program: a graph with its kernels chosen, its memory planned and its steps written out."""

from __future__ import annotations

from dataclasses import dataclass

from ..access import Access
from ..backends.device import Array, Device, get_device
from ..graph.ir import Graph, Node
from ..location import point_at
from ..settings import Settings, current, enter
from ..undo import keep_readings
from .captured import Capture, CapturedInstance, obstacle
from .codegen import Instance
from .device_steps import DeviceInstance
from .launch import Prepared, note_kernel, prepare
from .legalize import legalize
from .planner import Plan
from .schedule import Schedule, schedule
from .storage import Layout, lay_out


@dataclass(frozen=True, slots=True)
class Options:
    """What compilation depends on besides the graph."""

    device: str = "cpu"
    providers: tuple[str, ...] = ()
    check_nan: bool = False
    sim: str = "check"
    cuda_graphs: str = "auto"

    @classmethod
    def of(cls, device: str, settings: Settings) -> Options:
        """Those of a device under some settings."""
        s = settings
        return cls(device, s.providers, s.check_nan, s.sim, s.cuda_graphs)


class Program:
    """A compiled graph: `program(*arrays)` gives a list of fresh arrays.

    It may run in several threads at once, with an arena each, except that a call that writes
    parameters does so alone. A step happens wholly or not at all: they change at the very end.
    """

    def __init__(self, graph: Graph, options: Options = Options()):
        self.options, self._settings = options, current()
        self.device: Device = get_device(options.device, options.sim)
        self.graph = legalize(graph, options.device, options.providers)
        self.prepared: dict[Node, Prepared] = {n: self._prepare(n) for n in self.graph.nodes}
        self.schedule: Schedule = schedule(self.graph, self.prepared)
        self.layout: Layout = lay_out(self.graph, self.prepared, self.schedule)
        # Built-in kernels write to no input; others shall not be able to.
        on_cpu = options.device == "cpu"
        self._guarded = on_cpu and not all(p.entry.built_in for p in self.prepared.values())
        why = (options.device, options.check_nan, options.cuda_graphs)
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

    def _prepare(self, node: Node) -> Prepared:
        inputs = tuple(v.abstract for v in node.inputs)
        outputs = tuple(v.abstract for v in node.outputs)
        try:
            return prepare(
                node.primitive, inputs, outputs, node.attrs,
                self.device, self.options.providers,
            )  # fmt: skip
        except Exception as error:
            point_at(error, node.where, f"{node.primitive.name} was called")
            raise

    def _instance(self) -> Instance | DeviceInstance:
        made_of = self.layout, self.device, self.options.check_nan
        made: Instance | DeviceInstance
        if self.options.device == "cpu":
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
        if self.options.device == "cpu":
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
            note_kernel(error, self.layout.prepared[node])
            point_at(error, node.where, f"{node.primitive.name} was called")


def _read_only(array: Array) -> Array:
    if array.flags.writeable:
        array = array.view()
        array.flags.writeable = False
    return array
