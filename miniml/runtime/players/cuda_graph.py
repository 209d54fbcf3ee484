"""Programs whose launches are recorded once as a CUDA graph and repeated with one call."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any, NamedTuple

from ...backends.kernel import Expression, KernelEntry, RawSource
from ...graph.ir import Graph, Node, Var
from ...uninterrupted import uninterrupted
from ..launch import Prepared
from ..steps import Copy, Publish, Stage, Step, Steps
from .function import Function, write
from .memory import Memory

# A launch from Python takes some microseconds, in which a GPU copies a few MiB.
BYTES_PER_LAUNCH = 4 << 20


@dataclass(slots=True)
class Capture:
    """What the executables of a program share. why_not: why its launches become no CUDA graph."""

    why_not: str


def obstacle(
    graph: Graph,
    prepared: Mapping[Node, Prepared],
    device: str,
    check_nan: bool,
    cuda_graphs: str,
) -> str:
    """Why the launches of a program become no CUDA graph; "" when nothing stands in the way."""
    if device == "cpu":
        return "the CPU launches nothing"
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


def launches(graph: Graph, prepared: Mapping[Node, Prepared]) -> list[Node]:
    """The nodes that launch something."""
    return [n for n in graph.nodes if prepared[n].entry.view is None and not prepared[n].empty]


def repeats(entry: KernelEntry) -> bool:
    """True when a kernel launches the same at each call, so that its Python may be left out."""
    body = entry.body
    if isinstance(body, (Expression, RawSource)):
        return True
    capturable = getattr(body, "capturable", None)
    return entry.built_in if capturable is None else bool(capturable)


class Recorded(NamedTuple):
    """What a call is from then on. results: where the graph leaves the outputs."""

    receive: Function
    replay: Callable[[], None]
    hand_over: Function
    results: list[Any]


class CudaGraph:
    """The steps of a program, recorded once and repeated with one launch.

    Inputs are copied into buffers of its own, so one graph serves all calls: the first call
    launches step by step, which compiles what compiles at its first launch; the second records,
    and from then on a call is the copies of the inputs, one launch of the graph, and the copies
    of the outputs, whose memory is taken first. State that stays on the host is read before the
    graph and written after it.
    """

    def __init__(self, steps: Steps, memory: Memory, graph: Graph, capture: Capture):
        self.steps, self.memory, self.graph, self.capture = steps, memory, graph, capture
        self.device = memory.device
        self.one_by_one = self._written(steps, graph.inputs)
        self.recorded: Recorded | None = None
        self.warm = False

    @property
    def source(self) -> str:
        """The function that launches step by step."""
        return self.one_by_one.source

    def nodes_of(self, error: Exception) -> Iterator[Node]:
        """The nodes whose steps were running when the error was raised."""
        return self.one_by_one.nodes_of(error)

    def run(self, *arrays: Any) -> list[Any]:
        """One call."""
        if self.warm and self.recorded is None and not self.capture.why_not:
            self.recorded = self._record()
        recorded = self.recorded
        if recorded is None:
            outs = self.one_by_one.run(*arrays)
            self.warm = True
            return outs
        device = self.device
        outs = [device.empty(v.abstract.shape, v.abstract.dtype) for v in self.graph.outputs]
        recorded.receive.run(*arrays)
        with uninterrupted() if self.steps.publish else nullcontext():
            recorded.replay()
            recorded.hand_over.run()
        for out, result in zip(outs, recorded.results, strict=True):
            device.copy_into(out, result)
        return outs

    def _written(self, steps: Steps, inputs: Sequence[Var] | None = None) -> Function:
        return write(steps, self.memory, self.graph.name, inputs)

    def _record(self) -> Recorded | None:
        """The steps, recorded; None where they cannot be, which `capture` then says."""
        compute = [s for s in self.steps.compute if not isinstance(s, Copy)]
        kept = {v: self._keep(v) for v in self.graph.outputs if self._changes(v)}
        compute += [Stage(source, target) for source, target in kept.items()]
        publish = [s for s in self.steps.publish if not self._is_hosted(s)]
        hosted = [s for s in self.steps.publish if self._is_hosted(s)]
        launches = self._written(Steps(tuple(compute), tuple(publish)))
        try:
            replay = self.device.capture(launches.run)
        except Exception as error:
            names = [node.primitive.name for node in launches.nodes_of(error)]
            self.capture.why_not = f"{names[0] if names else 'it'} could not be recorded ({error})"
            return None
        if replay is None:
            return None
        return Recorded(
            self._written(Steps(), self.graph.inputs),
            replay,
            self._written(Steps((), tuple(hosted))),
            [self.memory.arrays[kept.get(v, v)] for v in self.graph.outputs],
        )

    def _is_hosted(self, step: Step) -> bool:
        return isinstance(step, Publish) and step.parameter.device != self.device.name

    def _changes(self, var: Var) -> bool:
        """True for an output that is in a parameter when the graph has run, and may be another."""
        kind = self.memory.buffers.allocation[var].kind
        return bool(self.steps.publish) and kind in ("parameter", "upload")

    def _keep(self, var: Var) -> Var:
        """Memory for an output, which is copied there before the parameter changes."""
        kept = Var(var.abstract)
        array = self.device.empty(var.abstract.shape, var.abstract.dtype)
        self.memory.targets[kept] = self.memory.arrays[kept] = array
        return kept
