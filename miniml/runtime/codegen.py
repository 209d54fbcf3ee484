"""A scheduled, laid-out graph as one straight-line Python function over preallocated buffers."""

from __future__ import annotations

import keyword
from collections.abc import Callable, Iterator
from contextvars import Context
from functools import partial
from operator import call
from typing import Any

import numpy as np

from ..backends.device import Array, Device
from ..dtype import is_float
from ..errors import NonFiniteError
from ..graph.ir import Node, Var
from ..tensor import Parameter
from ..uninterrupted import consume
from .launch import BoundKernel
from .storage import Layout, Storage

# NumPy takes a third positional argument of these for a mistake.
_KEYWORD_OUT = (np.maximum, np.minimum)


class Instance:
    """One set of buffers and the function over them; it serves one call at a time.

    run(*arrays) -> list of fresh output arrays; call it as quiet.run(run, *arrays). nodes: the
    node of each source line.
    """

    def __init__(self, layout: Layout, device: Device, check_nan: bool):
        self.layout, self.device, self.check_nan = layout, device, check_nan
        self.graph, self.prepared, self.order = layout.graph, layout.prepared, layout.order
        self.arena = device.arena(layout.plan.size)
        self.names: dict[str, Any] = {"call": call, "consume": consume, "partial": partial}
        self.lines: list[str] = []
        self.nodes: dict[int, Node] = {}
        self.static: dict[Var, Array] = {}
        self.text: dict[Var, str] = {}
        self._bind_given()
        for node in self.order.main:
            self._step(node)
        outs = self._copies()
        self._updates()
        self.lines.append(f"return [{', '.join(outs)}]")
        self.source = self._source()
        code = compile(self.source, f"<miniml program {self.graph.name}>", "exec")
        exec(code, self.names)
        self.run: Callable[..., list[Array]] = self.names["program"]
        self.quiet = quiet_context()

    def _source(self) -> str:
        arguments = ", ".join(f"x{i}" for i in range(len(self.graph.inputs)))
        body = "\n    ".join(self.lines)
        return f"def program({arguments}):\n    {body}\n"

    def nodes_of(self, error: Exception) -> Iterator[Node]:
        """The nodes that the function was running when the error was raised."""
        trace, code = error.__traceback__, self.run.__code__
        while trace is not None:
            if trace.tb_frame.f_code is code and trace.tb_lineno in self.nodes:
                yield self.nodes[trace.tb_lineno]
            trace = trace.tb_next

    def _name(self, stem: str, value: Any) -> str:
        name = f"{stem}{len(self.names)}"
        self.names[name] = value
        return name

    def _emit(self, line: str, node: Node | None = None) -> None:
        self.lines.append(line)
        if node is not None:
            self.nodes[len(self.lines) + 1] = node

    def _bind_given(self) -> None:
        for i, var in enumerate(self.graph.inputs):
            self.text[var] = f"x{i}"
        for var in self.graph.constants:
            self._fix(var, np.asarray(var.abstract.value), "c")
        for parameter, var in self.graph.state:
            self._fix(var, parameter._data, "p")

    def _fix(self, var: Var, array: Array, stem: str) -> None:
        """Note that a Var is always this array, which kernels may only read."""
        if array.flags.writeable:
            array = array.view()
            array.flags.writeable = False
        self.static[var] = array
        self.text[var] = self._name(stem, array)

    def _carve(self, storage: Storage, shape: tuple[int, ...], dtype: Any) -> Array:
        if storage.parameter is not None:
            array: Array = storage.parameter._buffer
        else:
            offset = self.layout.offsets[storage]
            array = self.device.carve(self.arena, offset, shape, dtype)
        return array

    def _outputs(self, node: Node) -> tuple[Array, ...]:
        """The buffers a node fills, noting what later steps read."""
        found = []
        for var in node.outputs:
            array = self._carve(self.layout.storage[var], var.abstract.shape, var.abstract.dtype)
            self._fix(var, array, "b")
            found.append(array)
        return tuple(found)

    def _step(self, node: Node) -> None:
        prepared = self.prepared[node]
        if prepared.entry.view is not None:
            self._view(node, prepared)
            return
        outs = self._outputs(node)
        if not prepared.empty:
            self._emit(self._call(node, prepared, outs), node)
            if self.check_nan and any(is_float(v.abstract.dtype) for v in node.outputs):
                self._emit(f"{self._name('check', partial(_check, node, outs))}()", node)

    def _view(self, node: Node, prepared: BoundKernel, thunks: list[Any] | None = None) -> None:
        var, look = node.outputs[0], prepared.function
        if all(v in self.static for v in node.inputs):
            given = [self.static[v] for v in node.inputs]
            seen = look(*given)
            self._fix(var, seen, "v")
            if seen.size and not any(np.may_share_memory(seen, g) for g in given):
                target = seen.reshape(given[0].shape)
                self._copied(node, partial(target.__setitem__, ..., given[0]), thunks)
            return
        self.text[var] = f"v{len(self.names)}_"
        seen = ", ".join(self.text[v] for v in node.inputs)
        self._emit(f"{self.text[var]} = {self._name('view', look)}({seen})", node)

    def _copied(self, node: Node, copy: Callable[[], None], thunks: list[Any] | None) -> None:
        """Not every reshape is a view: where no strides describe it, each run copies."""
        if thunks is None:
            self._emit(f"{self._name('copy', copy)}()", node)
        else:
            thunks.append(copy)

    def _call(self, node: Node, prepared: BoundKernel, outs: tuple[Array, ...]) -> str:
        """The source of one kernel call."""
        given = [self.text[v] for v in node.inputs]
        if prepared.instance is not None:
            launch = self._name("k", prepared.instance.launch)
            scratch = self._name("w", self._scratch(node, prepared))
            inputs = f"({', '.join(given)},)" if given else "()"
            return f"{launch}({inputs}, {scratch}, {self._name('o', outs)}, None)"
        out = self._name("o", outs[0] if prepared.single else outs)
        stem = node.primitive.name if node.primitive.name.isidentifier() else "kernel"
        if isinstance(prepared.function, np.ufunc):
            given.append(f"out={out}" if prepared.function in _KEYWORD_OUT else out)
            return f"{self._name(stem, prepared.function)}({', '.join(given)})"
        attrs = prepared.node.attrs
        keywords: list[str] = []
        function: Any = prepared.function
        picked = isinstance(prepared.entry.body, type)  # the function that a Kernel class picked
        if not picked and not any(map(keyword.iskeyword, attrs)):
            keywords = [f"{k}={self._name('a', v)}" for k, v in attrs.items()]
            function = prepared.entry.body  # quicker than a partial with keywords
        return f"{self._name(stem, function)}({', '.join([*given, *keywords, f'out={out}'])})"

    def _scratch(self, node: Node, prepared: BoundKernel) -> tuple[Array, ...]:
        assert prepared.instance is not None
        specs = prepared.instance.workspace()
        storages = self.layout.workspaces[node]
        return tuple(self._carve(s, w.shape, w.dtype) for s, w in zip(storages, specs, strict=True))

    def _copies(self) -> list[str]:
        """What the caller receives is its own memory, taken before any parameter changes."""
        names = []
        for i, var in enumerate(self.graph.outputs):
            self._emit(f"out{i} = {self._name('copy', np.array)}({self.text[var]})")
            names.append(f"out{i}")
        return names

    def _updates(self) -> None:
        """The new values of parameters: one call into C, so that no interrupt comes between."""
        thunks: list[Any] = []
        stages: list[str] = []
        for node in self.order.updates:
            prepared = self.prepared[node]
            if prepared.entry.view is not None:
                self._view(node, prepared, thunks)
            elif not prepared.empty:
                self._thunk(node, self._outputs(node), thunks)
            else:
                self._outputs(node)
        for parameter, var in self.order.writes:
            self._publish(parameter, var, thunks, stages)
        if thunks:
            for line in stages:
                self._emit(line)
            if all(isinstance(t, partial) for t in thunks):
                self._emit(f"consume(map(call, {self._name('u', tuple(thunks))}))")
            else:
                shown = [t if isinstance(t, str) else self._name("u", t) for t in thunks]
                self._emit(f"consume(map(call, ({', '.join(shown)},)))")

    def _thunk(self, node: Node, outs: tuple[Array, ...], thunks: list[Any]) -> None:
        function = self.prepared[node].function
        if all(v in self.static for v in node.inputs):
            thunks.append(partial(function, *[self.static[v] for v in node.inputs], out=outs[0]))
            return
        bound = self._name("k", partial(function, out=outs[0]))
        thunks.append(f"partial({bound}, {', '.join(self.text[v] for v in node.inputs)})")

    def _publish(
        self, parameter: Parameter, var: Var, thunks: list[Any], stages: list[str]
    ) -> None:
        """Copy a finished value into its parameter, unless it was computed there."""
        storage = self.layout.storage[var]
        fresh = self.layout.computed_in_parameter(var)
        if fresh and storage.parameter is parameter:
            return
        if storage.kind == "parameter" and not fresh:  # another parameter's old value: save it
            staged = f"s{len(self.names)}_"
            stages.append(f"{staged} = {self._name('copy', np.array)}({self.text[var]})")
            thunks.append(f"partial({self._target(parameter)}, ..., {staged})")
        elif var in self.static:
            thunks.append(partial(parameter._buffer.__setitem__, ..., self.static[var]))
        else:
            thunks.append(f"partial({self._target(parameter)}, ..., {self.text[var]})")

    def _target(self, parameter: Parameter) -> str:
        """A name for what writes to a parameter: a slot of C, where np.copyto runs Python first."""
        return self._name("t", parameter._buffer.__setitem__)


def quiet_context() -> Context:
    """A context in which NumPy warns of no floating-point error: cheaper to enter than errstate."""
    context = Context()
    context.run(lambda: np.seterr(all="ignore"))
    return context


def _check(node: Node, outs: tuple[Array, ...]) -> None:
    """NonFiniteError when an output of the node holds a NaN or an infinity."""
    for out in outs:
        if out.dtype.kind in "fV" and not np.isfinite(out.astype(np.float64)).all():
            kind = "NaN" if np.isnan(out.astype(np.float64)).any() else "an infinity"
            raise NonFiniteError(
                f"{node.primitive.name} made {kind}; its output is "
                f"{out.dtype.name}{list(out.shape)}"
            )
