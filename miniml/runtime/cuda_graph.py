"""CUDA graph executor: launches are captured once and replayed with one call."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

from ..backends.kernel import Expression, KernelEntry, RawSource
from ..core.access import uninterrupted
from ..graph.ir import Graph, Node, Var
from .executor import Function, write
from .memory import Copy, KernelLaunch, Look, Memory, Publish, Stage, Step, Steps

# A launch from Python takes some microseconds, in which a GPU copies a few MiB.
BYTES_PER_LAUNCH = 4 << 20

Run = Callable[..., list[Any]]


@dataclass(slots=True)
class Capture:
    """State shared by the executables of a program. why_not: the reason why it does not run as a
    CUDA graph."""

    why_not: str


def obstacle(steps: Steps, graph: Graph, device: str, cuda_graphs: str) -> str:
    """Reason why the launches of a program cannot become a CUDA graph; "" if they can."""
    if device == "cpu":
        return "the CPU has no launches"
    if cuda_graphs == "off":
        return "cuda_graphs='off'"
    if cuda_graphs == "auto" and device != "cuda":
        return "the simulator makes a CUDA graph only with cuda_graphs='on'"
    if any(isinstance(step, Look) for step in steps.compute):
        return "check_nan looks at the outputs of each kernel"
    launched = [s for s in (*steps.compute, *steps.publish) if isinstance(s, KernelLaunch)]
    for step in launched:
        if not repeats(step.kernel.entry):
            return f"{step.node.primitive.name} runs Python of its own at each call"
    count, copies = len(launched), len(graph.inputs)
    if count < 2 or count <= copies:
        return f"a graph of {count} launches saves nothing when {copies} inputs are copied first"
    nbytes = sum(v.abstract.nbytes for v in graph.inputs)
    if nbytes > BYTES_PER_LAUNCH * count:
        return f"copying {nbytes} bytes of inputs first costs more than {count} launches"
    return ""


def repeats(entry: KernelEntry) -> bool:
    """True if a kernel makes the same launches at each call, so that its Python can be skipped."""
    if isinstance(entry.body, (Expression, RawSource)):
        return True
    capturable = getattr(entry.body, "capturable", None)
    return entry.built_in if capturable is None else bool(capturable)


class CudaGraph:
    """The steps of a program, recorded once and repeated with one launch.

    Inputs are copied into buffers of its own, so one graph serves all calls: the first call
    launches step by step, so that kernels compiled at their first launch are compiled; the second
    records, and from then on a call copies the inputs, launches the graph once, and copies the
    outputs, whose memory is allocated first. State that stays on the host is read before the graph
    and written after it.
    """

    def __init__(self, steps: Steps, memory: Memory, graph: Graph, capture: Capture):
        self.steps, self.memory, self.graph, self.capture = steps, memory, graph, capture
        self.device = memory.device
        self.one_by_one = self._written(steps, graph.inputs)
        self.recorded: Run | None = None
        self.warm = False

    @property
    def source(self) -> str:
        """The function that launches step by step."""
        return self.one_by_one.source

    def nodes_of(self, error: Exception) -> Iterator[Node]:
        """The nodes whose steps were running when the error was raised."""
        return self.one_by_one.nodes_of(error)

    def run(self, *arrays: Any) -> list[Any]:
        if self.warm and self.recorded is None and not self.capture.why_not:
            self._record()
        if self.recorded is not None:
            return self.recorded(*arrays)
        outs = self.one_by_one.run(*arrays)
        self.warm = True
        return outs

    def _record(self) -> None:
        """Record the steps, or note why that is impossible."""
        compute = [s for s in self.steps.compute if not isinstance(s, Copy)]
        kept = {v: self._keep(v) for v in self.graph.outputs if self._changes(v)}
        compute += [Stage(source, target) for source, target in kept.items()]
        publish = [s for s in self.steps.publish if not self._is_hosted(s)]
        launches = self._written(Steps(tuple(compute), tuple(publish)))
        try:
            replay = self.device.capture(launches.run)
        except Exception as error:
            names = [node.primitive.name for node in launches.nodes_of(error)]
            self.capture.why_not = f"{names[0] if names else 'it'} could not be recorded ({error})"
        else:
            results = [self.memory.arrays[kept.get(v, v)] for v in self.graph.outputs]
            self.recorded = self._repeated(replay, results)

    def _repeated(self, replay: Callable[[], None], results: list[Any]) -> Run:
        """A call that launches the graph. results: where the graph leaves the outputs."""
        device = self.device
        receive = self._written(Steps(), self.graph.inputs).run
        hosted = tuple(s for s in self.steps.publish if self._is_hosted(s))
        hand_over = self._written(Steps((), hosted)).run
        writes = bool(self.steps.publish)

        def run(*arrays: Any) -> list[Any]:
            outs = [device.empty(r.shape, r.dtype) for r in results]
            receive(*arrays)
            with uninterrupted() if writes else nullcontext():
                replay()
                hand_over()
            for out, result in zip(outs, results, strict=True):
                device.copy_into(out, result)
            return outs

        return run

    def _written(self, steps: Steps, inputs: Sequence[Var] | None = None) -> Function:
        return write(steps, self.memory, self.graph.name, inputs)

    def _is_hosted(self, step: Step) -> bool:
        return isinstance(step, Publish) and step.parameter.device != self.device.name

    def _changes(self, var: Var) -> bool:
        """True for an output in the memory of a parameter, which publishing may overwrite."""
        kind = self.memory.buffers.allocation[var].kind
        return bool(self.steps.publish) and kind in ("parameter", "upload")

    def _keep(self, var: Var) -> Var:
        """Memory for an output, to which it is copied before the parameter changes."""
        kept = Var(var.abstract)
        array = self.device.empty(var.abstract.shape, var.abstract.dtype)
        self.memory.targets[kept] = self.memory.arrays[kept] = array
        return kept
