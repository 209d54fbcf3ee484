"""Hooks of cells: functions that are called before and after construct, and for the gradient."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from inspect import signature
from typing import Any, NamedTuple

from ..core.errors import BpropError, DeclarationError, MinimlError
from ..core.tensor import Tensor
from ..core.trace import current_trace, partition
from ..grad.transforms import _returned, checked, named


class Hook(NamedTuple):
    """One registration: equal to no other, though the function may be."""

    kind: str
    fn: Callable[..., Any]
    token: object

    def on(self, cell: Any) -> str:
        """The name of the hook in errors."""
        return f"the {self.kind} {named(self.fn)} of {cell.describe()}"


class Handle:
    """A registered hook of a cell; `remove()` unregisters it, and does nothing a second time."""

    def __init__(self, cell: Any, registered: Hook):
        self._cell, self._hook = cell, registered

    def remove(self) -> None:
        """Unregister the hook."""
        if self._hook in self._cell._hooks:
            self._cell._hooks = tuple(h for h in self._cell._hooks if h != self._hook)


def hook(cell: Any, kind: str, fn: Callable[..., Any]) -> Handle:
    """Register a hook of that kind."""
    if not callable(fn):
        raise DeclarationError(f"{cell.describe()} got {fn!r} for a {kind}; give a function")
    registered = Hook(kind, fn, object())
    cell._hooks = (*cell._hooks, registered)
    return Handle(cell, registered)


Run = Callable[[tuple[Any, ...], dict[str, Any]], Any]


def run_hooked(cell: Any, run: Run, args: tuple[Any, ...], by_name: dict[str, Any]) -> Any:
    """`run(args, by_name)` of a cell, with its hooks before and after it."""
    kinds: dict[str, list[Hook]] = {}
    for one in cell._hooks:
        kinds.setdefault(one.kind, []).append(one)
    args, by_name = _in_order(cell, args, by_name)
    replaced_by = ""
    for one in kinds.get("forward pre-hook", ()):
        found = _returned(one.on(cell), one.fn, cell, args)
        if found is not None:
            args, replaced_by = found if isinstance(found, tuple) else (found,), one.on(cell)
    backward = [_Backward(cell, one) for one in kinds.get("backward hook", ())]
    for watch in backward:
        args = watch.enter(args)
    try:
        out = run(args, by_name)
    except Exception as error:
        if replaced_by:
            error.add_note(f"with inputs from {replaced_by}")
        raise
    for one in kinds.get("forward hook", ()):
        found = _returned(one.on(cell), one.fn, cell, args, out)
        if found is not None:
            out = checked(one.on(cell), MinimlError, found, out)
    for watch in reversed(backward):
        out = watch.leave(out)
    return out


def _in_order(
    cell: Any, args: tuple[Any, ...], by_name: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The inputs by position, which hooks see, as far as the signature allows; and the others by
    name."""
    if not by_name:
        return args, by_name
    try:
        given = signature(cell.construct).bind(*args, **by_name)
    except TypeError:  # the call raises a better error
        return args, by_name
    return given.args, given.kwargs


class _Backward:
    """A backward hook in one call of the cell: a backward pass reaches the output first and the
    inputs last, unless no gradient passes to them."""

    def __init__(self, cell: Any, registered: Hook):
        self.cell, self.fn, self.who = cell, registered.fn, registered.on(cell)
        self.dout: Any = None
        self.reaches_inputs = False

    def enter(self, args: tuple[Any, ...]) -> tuple[Any, ...]:
        self.inputs = partition(args, _is_tensor, none_is_leaf=True)
        given = self.inputs.taken()
        passed = current_trace().call_with_bprop(self.who, _same, self._entered, given)
        # Where a gradient is recorded, the tensors returned are not those given.
        self.reaches_inputs = any(p is not g for p, g in zip(passed, given, strict=True))
        return self.inputs.filled(passed)  # type: ignore[no-any-return]

    def leave(self, out: Any) -> Any:
        self.outputs = partition(out, _is_tensor, none_is_leaf=True)
        given = self.outputs.taken()
        return self.outputs.filled(
            current_trace().call_with_bprop(self.who, _same, self._left, given)
        )

    def _left(self, *values: Any) -> tuple[Any, ...]:
        douts: Sequence[Any] = values[-1]
        self.dout = _only(self.outputs, douts)
        if not self.reaches_inputs:
            self._call([None] * len(self.inputs.positions))
        return tuple(douts)

    def _entered(self, *values: Any) -> tuple[Any, ...]:
        return self._call(values[-1])

    def _call(self, douts: Sequence[Any]) -> tuple[Any, ...]:
        gradients = _only(self.inputs, douts)
        found = _returned(self.who, self.fn, self.cell, gradients, self.dout)
        if found is None:
            return tuple(douts)
        changed = checked(self.who, BpropError, found, gradients)
        leaves = self.inputs.spec.flatten_up_to(changed)
        return tuple(leaves[i] for i in self.inputs.positions)


def _is_tensor(leaf: Any) -> bool:
    return isinstance(leaf, Tensor)


def _same(*values: Any) -> tuple[Any, ...]:
    return values


def _only(tree: Any, values: Sequence[Any]) -> Any:
    """The tree with these values at its tensors, and None elsewhere."""
    return tree._replace(leaves=[None] * len(tree.leaves)).filled(values)
