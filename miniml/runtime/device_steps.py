"""A scheduled, laid-out graph as launches on a device, over buffers that are made once."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextvars import Context
from typing import Any

import numpy as np

from ..backends.device import Array, Device
from ..dtype import is_float
from ..errors import NonFiniteError
from ..graph.ir import Node, Var
from ..tensor import Parameter
from ..uninterrupted import uninterrupted
from .codegen import quiet_context
from .launch import BoundKernel
from .storage import Layout, Storage

Slots = list[Any]
Step = Callable[[Slots], None]


class DeviceInstance:
    """One set of buffers of a program on a device; it serves one call at a time.

    run(*arrays) -> list of fresh output arrays of the device; NumPy arrays among the inputs are
    brought there. Values that stand in the same memory at every call are bound when the instance
    is made; the others, the inputs and views of them, pass through `slots`. Everything is launched
    in order on one stream and nothing waits for it, except that parameters which stay on the host
    (the state of random streams) are read at the beginning and written at the end, by `handed`.
    """

    def __init__(self, layout: Layout, device: Device, check_nan: bool):
        self.layout, self.device, self.check_nan = layout, device, check_nan
        self.graph, self.prepared, order = layout.graph, layout.prepared, layout.order
        self.arena = device.arena(layout.plan.size)
        self.place: dict[Var, int] = {}
        self.fixed: Slots = []
        self.moving: set[Var] = set()
        self.uploads: list[tuple[Any, Parameter]] = []
        self.quiet: Context = quiet_context()
        self.running: Node | None = None
        self._bind_given()
        self.main = [(node, step) for node in order.main for step in self._steps(node)]
        self.updates = [(node, step) for node in order.updates for step in self._steps(node)]
        self.saved: list[Step] = []
        self.handed: list[Step] = []
        self.published = [p for w in order.writes for p in self._publish(*w)]

    def run(self, *arrays: Any) -> list[Any]:
        """One call: launches, copies of the outputs, then the updates of state."""
        slots = self.fixed.copy()
        device = self.device
        for i, array in enumerate(arrays):
            slots[i] = device.from_host(array) if isinstance(array, np.ndarray) else array
        for buffer, parameter in self.uploads:
            device.copy_into(buffer, parameter._data)
        for node, step in self.main:
            self.running = node
            step(slots)
        self.running = None
        outs = [slots[self.place[v]].copy() for v in self.graph.outputs]
        if self.writes:
            with uninterrupted():
                for node, step in self.updates:
                    self.running = node
                    step(slots)
                for step in (*self.saved, *self.published, *self.handed):
                    step(slots)
        self.running = None
        return outs

    @property
    def writes(self) -> bool:
        """True when a call changes parameters."""
        return bool(self.updates or self.published or self.handed)

    @property
    def source(self) -> str:
        """The primitives in the order they are launched."""
        return "\n".join(repr(node.primitive) for node, _ in (*self.main, *self.updates))

    def nodes_of(self, error: Exception) -> Iterator[Node]:
        """The node that was running when the error was raised."""
        if self.running is not None:
            yield self.running
        self.running = None

    def _bind_inputs(self) -> None:
        for var in self.graph.inputs:
            self._moves(var)

    def _bind_given(self) -> None:
        self._bind_inputs()
        for var in self.graph.constants:
            self._fix(var, self.device.from_host(np.asarray(var.abstract.value)))
        for parameter, var in self.graph.state:
            if parameter.device == self.device.name:
                self._fix(var, parameter._data)
            else:  # it stays on the host, and is small
                buffer = self.device.from_host(parameter._data)
                self.uploads.append((buffer, parameter))
                self._fix(var, buffer)

    def _fix(self, var: Var, array: Any) -> None:
        """Note that a Var is always this array."""
        self.place[var] = len(self.fixed)
        self.fixed.append(array)

    def _moves(self, var: Var) -> None:
        """Note that a Var may be another array at each call."""
        self._fix(var, None)
        self.moving.add(var)

    def _carve(self, storage: Storage, shape: tuple[int, ...], dtype: Any) -> Any:
        if storage.parameter is None:
            return self.device.carve(self.arena, self.layout.offsets[storage], shape, dtype)
        if storage.parameter.device == self.device.name:
            return storage.parameter._buffer
        return next(b for b, p in self.uploads if p is storage.parameter)

    def _steps(self, node: Node) -> list[Step]:
        prepared = self.prepared[node]
        if prepared.entry.view is not None:
            return self._view(node, prepared)
        outs = tuple(
            self._carve(self.layout.storage[v], v.abstract.shape, v.abstract.dtype)
            for v in node.outputs
        )
        if prepared.empty:
            steps = []
        else:
            steps = [self._launch(node, prepared, outs)]
            if self.check_nan and any(is_float(v.abstract.dtype) for v in node.outputs):
                steps.append(lambda slots: check(node, outs, self.device))
        for var, array in zip(node.outputs, outs, strict=True):
            self._fix(var, array)
        return steps

    def _view(self, node: Node, prepared: BoundKernel) -> list[Step]:
        var, look = node.outputs[0], prepared.function
        places = [self.place[v] for v in node.inputs]
        if any(v in self.moving for v in node.inputs):
            self._moves(var)
            target = self.place[var]

            def again(slots: Slots) -> None:
                slots[target] = look(*[slots[p] for p in places])

            return [again]
        given = [self.fixed[p] for p in places]
        seen = look(*[a.planned() for a in given]).view()
        self._fix(var, seen)
        if not seen.size or any(seen.block is g.block for g in given):
            return []
        # Not every reshape is a view: where no strides describe it, each run copies.
        target_array, source = seen.reshape(given[0].shape), given[0]
        return [lambda slots: self.device.copy_into(target_array, source)]

    def _launch(self, node: Node, prepared: BoundKernel, outs: tuple[Any, ...]) -> Step:
        instance, device = prepared.instance, self.device
        assert instance is not None
        launch = instance.launch
        storages = self.layout.workspaces[node]
        scratch = tuple(
            self._carve(s, w.shape, w.dtype)
            for s, w in zip(storages, instance.workspace(), strict=True)
        )
        places = [self.place[v] for v in node.inputs]
        strided = device.takes_strides(prepared.entry)
        if any(v in self.moving for v in node.inputs):

            def moving(slots: Slots) -> None:
                inputs = tuple([slots[p] for p in places])
                if not strided:
                    inputs = tuple(map(device.contiguous, inputs))
                launch(inputs, scratch, outs, device.stream)

            return moving
        inputs = tuple(self.fixed[p] for p in places)
        if strided or all(a.contiguous for a in inputs):
            return lambda slots: launch(inputs, scratch, outs, device.stream)
        dense = tuple(a if a.contiguous else device.empty(a.shape, a.dtype) for a in inputs)
        copies = [(d, a) for d, a in zip(dense, inputs, strict=True) if d is not a]

        def copied(slots: Slots) -> None:
            for target, array in copies:
                device.copy_into(target, array)
            launch(dense, scratch, outs, device.stream)

        return copied

    def _publish(self, parameter: Parameter, var: Var) -> list[Step]:
        """Copy a finished value into its parameter, unless it was computed there."""
        device, place = self.device, self.place[var]
        storage = self.layout.storage[var]
        if parameter.device != device.name:
            self.handed.append(
                lambda slots: np.copyto(parameter._buffer, device.to_host(slots[place]))
            )
            return []
        fresh = self.layout.computed_in_parameter(var)
        if fresh and storage.parameter is parameter:
            return []
        if storage.kind == "parameter" and not fresh:  # another parameter's old value: save it
            staged = device.empty(var.abstract.shape, var.abstract.dtype)
            self.saved.append(lambda slots: device.copy_into(staged, slots[place]))
            return [lambda slots: device.copy_into(parameter._buffer, staged)]
        return [lambda slots: device.copy_into(parameter._buffer, slots[place])]


def check(node: Node, outs: Sequence[Any], device: Device) -> None:
    """NonFiniteError when an output of the node holds a NaN or an infinity."""
    for out in outs:
        array: Array = device.to_host(out)
        if array.dtype.kind in "fV" and not np.isfinite(array.astype(np.float64)).all():
            kind = "NaN" if np.isnan(array.astype(np.float64)).any() else "an infinity"
            raise NonFiniteError(
                f"{node.primitive.name} made {kind}; its output is "
                f"{array.dtype.name}{list(array.shape)}"
            )
