"""The one interception point: the current trace decides what a call of a primitive does.

Then partition of a tree, by which a trace takes the tensors out of what functions are called with.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

import optree

from .errors import GraphError, MinimlError
from .scope import Block, Scoped


class Stream(Protocol):
    """A stream of random numbers, ml.Generator. state: (key, offset), a Parameter."""

    @property
    def state(self) -> Any: ...

    def reserve(self, blocks: int) -> Any:
        """The state before a draw of `blocks` blocks, which are taken from the stream."""


class Trace(Protocol):
    """The interpreter of calls: the eager trace runs them, a graph trace records them.

    The defaults here are those of a trace that computes at once.
    differentiates: True where calls are recorded to pass a gradient through them. at_once: False
    where values are not known when calls are made (of a trace without a parent). plans: True in a
    plan whose kernels check values. parent: the trace that this one passes calls on to, or None.
    """

    differentiates: bool = False
    at_once: bool = True
    plans: bool = False
    parent: Trace | None = None

    def bind(self, primitive: Any, args: Sequence[Any]) -> tuple[Any, ...]:
        """One call of a primitive; always a tuple of outputs."""

    def assume(self, check: Any) -> bool:
        """True in a plan, which looks at the check, a bool, each time that it runs."""
        return False

    def callee(self, fn: Callable[..., Any]) -> Callable[..., Any]:
        """The function to call for a cell or gradient, `fn`: its compiled form when eager in
        GRAPH_MODE, fn itself otherwise. The caller calls it: nested cells take no frame of the
        trace."""
        return fn

    def compose(self, fn: Callable[..., Any], args: Sequence[Any], named: Mapping[str, Any]) -> Any:
        """`fn(*args, **named)`, a composition: a pure function of tensors, made of primitives."""
        return fn(*args, **named)

    def calls_of(
        self,
        fn: Callable[..., Any],
        args: Sequence[Any],
        named: Mapping[str, Any],
        recorded: tuple[bool, ...],
    ) -> tuple[Any, Sequence[Any], Sequence[Any]] | None:
        """The calls that a composition makes with these arguments, known from earlier ones, the
        tensors and arrays among these as tensors, and the values that a record of the calls holds,
        computed now; None where a plan does not know them.

        recorded: of each tensor or array, True for one that a gradient passes to."""
        return None

    def call_with_bprop(
        self, name: str, fn: Callable[..., Any], bprop: Callable[..., Any], args: Sequence[Any]
    ) -> Any:
        """`fn(*args)`, a function of trees whose gradient is `bprop(*args, out, dout)`."""
        return fn(*args)

    def call_recomputed(
        self, name: str, fn: Callable[..., Any], pull: Callable[..., Any], args: Sequence[Any]
    ) -> Any:
        """`fn(*args)`, of tensors; a gradient keeps these alone, and computes the rest again.

        pull(again, values, dout) gives the gradients of values, of which fn is `again(values)`.
        """
        return fn(*args)

    def graph_of(
        self, fn: Callable[..., Any], operands: Sequence[Any]
    ) -> tuple[Any, list[Any], dict[Any, int]]:
        """The graph of a branch or loop body, the live outer values it captured (its last inputs),
        and how many random blocks it draws of each generator; they are not reserved yet."""
        raise GraphError(f"{type(self).__name__} runs branches and loops at once, without a graph")

    def stand_in(self, parameter: Any) -> Any:
        """The value that a parameter has now inside this trace: a tensor that keeps this value when
        the parameter is written to, and is the same object until then."""

    def reserve(self, blocks: int, generator: Stream | None = None) -> tuple[Any, int]:
        """Random state to draw from: a (key, offset) tensor, and how many blocks to skip.

        generator: whose stream it is; None for the default one."""

    def blocks_for(self, blocks: int) -> int:
        """The number of random blocks that a draw of `blocks` takes: more where it is made for
        several examples."""
        return blocks

    def guard(self, owner: Any, state: object) -> None:
        """Note that what is traced depends on `owner`, such as a cell, being in `state`."""
        return

    def remark(self, where: object, text: str) -> None:
        """Note for `ml.explain` how a call at that place in the user's code was traced."""
        return


class Keyed(NamedTuple):
    """An argument of a composition that is made of tensors: these, and the key of all else.

    filled: makes the value of tensors in their places.
    """

    key: object
    tensors: Sequence[Any]
    filled: Callable[[Sequence[Any]], Any]
    value: Any


class Guarded:
    """An object that a compiled program depends on besides its arguments: a cell.

    signature: changes, with a new epoch, whenever tracing through the object would give another
    program. silent: True where it may change without a new epoch, so that it is compared at each
    call. born: the tick of `epoch` at which the object was made, 0 for before any trace.
    """

    __slots__ = ()
    silent: bool = False
    born: int = 0

    @property
    def signature(self) -> object:
        """The state for which programs that depend on the object were compiled."""
        raise NotImplementedError

    def outgrown(self, signature: object) -> bool:
        """True if the object can never have this signature again, as where it counts changes."""
        return signature != self.signature


_current: Scoped[Trace] = Scoped("miniml_trace")
_block = _current.variable.get  # fast where no trace is current, the common case
in_trace = _block  # () is None outside every trace: the quickest way to know
_eager: Trace | None = None


def install_eager(trace: Trace) -> None:
    """Set the trace that is current by default."""
    global _eager
    _eager = trace


def eager_trace() -> Trace:
    """The trace that computes at once, whichever trace is current."""
    if _eager is None:
        raise MinimlError("no trace is installed; `import miniml` installs the eager one")
    return _eager


def current_trace() -> Trace:
    """The innermost trace of this thread or task."""
    block = _block()
    if block is None and _eager is not None:
        return _eager
    if block is not None and (block.way_out is None or block.way_out() is not None):
        return block.value  # in force for sure
    return _current.get() or eager_trace()


def computes_at_once() -> bool:
    """True where every call is computed as it is made: eagerly, a gradient's recording included."""
    trace = _current.get()
    while trace is not None and trace.parent is not None:
        trace = trace.parent
    return trace is None or trace.at_once


def is_tracing() -> bool:
    """True inside a trace other than the eager one."""
    return _block() is not None and _current.get() not in (None, _eager)


def use_trace(trace: Trace) -> Block[Trace]:
    """Make `trace` current inside the `with` block."""
    return Block(_current, lambda: trace)


# --- Trees of arguments ---------------------------------------------------------------------------


class Partition(NamedTuple):
    """A tree as its leaves, some of which are selected by position."""

    leaves: list[Any]
    spec: Any
    positions: list[int]

    def taken(self) -> list[Any]:
        """The leaves in these positions."""
        return [self.leaves[i] for i in self.positions]

    def left(self) -> list[Any]:
        """The leaves in all other positions."""
        inside = set(self.positions)
        return [leaf for i, leaf in enumerate(self.leaves) if i not in inside]

    def emptied(self) -> Partition:
        """The same tree with these positions emptied."""
        inside = set(self.positions)
        rest = [None if i in inside else leaf for i, leaf in enumerate(self.leaves)]
        return self._replace(leaves=rest)

    def filled(self, values: Sequence[Any]) -> Any:
        """The tree with these values in the positions, one for each."""
        leaves = list(self.leaves)
        for position, value in zip(self.positions, values, strict=True):
            leaves[position] = value
        return self.spec.unflatten(leaves)


def partition(tree: Any, chosen: Callable[[Any], bool], none_is_leaf: bool = False) -> Partition:
    """The tree, with the positions of the leaves that are chosen."""
    leaves, spec = optree.tree_flatten(tree, none_is_leaf=none_is_leaf)
    return Partition(leaves, spec, [i for i, leaf in enumerate(leaves) if chosen(leaf)])
