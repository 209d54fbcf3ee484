"""Programs of one function for several sizes: what they share, and whose turn it is."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from threading import RLock
from typing import Any, NamedTuple, TypeVar
from weakref import WeakKeyDictionary, WeakSet, ref

from ..attributes import key
from ..backends.kernel import KernelNode
from ..errors import InUseError
from ..graph.ir import Graph, Node
from ..location import point_at
from .launch import BoundKernel, note_kernel
from .lives import Life

T = TypeVar("T")
Prepared = Mapping[Node, BoundKernel]


class Turns:
    """The kernel objects that several programs share: they are of the size of one program at a
    time, which is theirs while it runs."""

    def __init__(self) -> None:
        self._lock, self._busy = RLock(), False
        self._of: ref[Graph] | None = None  # the program that all of them fit, if there is one
        self._at: WeakKeyDictionary[Life, KernelNode] = WeakKeyDictionary()  # the size of each
        _all.add(self)

    def prepare(self, graph: Graph, call: Callable[[], Iterable[BoundKernel]]) -> None:
        """`call()`, which prepares and resizes kernels for a new program, and gives these."""
        with self._lock:
            self._refuse(graph.name)
            before, self._of, self._at = self._at, None, WeakKeyDictionary()
            now = {k.life: k.node for k in call() if k.life is not None}
            self._at = WeakKeyDictionary({**before, **now})  # unless `call` raised midway

    def run(self, graph: Graph, prepared: Prepared, call: Callable[..., T], *args: Any) -> T:
        """`call(*args)`, with the objects of that program's sizes, while no other program runs."""
        with self._lock:
            self._refuse(graph.name)
            self._busy = True
            try:
                if self._of is None or self._of() is not graph:
                    self._resize(graph, prepared)
                return call(*args)
            finally:
                self._busy = False

    def _resize(self, graph: Graph, prepared: Prepared) -> None:
        self._of = None
        for node, kernel in prepared.items():
            life, instance = kernel.life, kernel.instance
            if life is None or instance is None or not instance.follows:
                continue
            if self._at.pop(life, None) is not kernel.node:
                try:
                    instance.resize(kernel.node)
                except Exception as error:
                    note_kernel(error, kernel)
                    point_at(error, node.where)
                    raise
            self._at[life] = kernel.node
        self._of = ref(graph)

    def _refuse(self, name: str) -> None:
        """InUseError for a call from inside a call, which would resize kernels that run."""
        if self._busy:
            raise InUseError(
                f"{name} is called inside a call of itself, by a handler or a kernel, while its "
                "kernels are at work; set a flag there, and call it afterwards"
            )

    def free(self) -> None:
        """In the child of a fork: whoever held the objects is not there."""
        self._lock, self._busy, self._of = RLock(), False, None
        self._at.clear()


_all: WeakSet[Turns] = WeakSet()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=lambda: _free(_all))


def _free(every: Iterable[Turns]) -> None:
    for turns in every:
        turns.free()


class Sibling(NamedTuple):
    """A program of a function for some sizes, as those for other sizes know it."""

    graph: Graph
    prepared: Prepared
    turns: Turns | None


class Sharing:
    """What the program of a graph shares with others of the same function: with the first that has
    the same operations, the kernels of equal calls and the objects of those that follow to other
    sizes. others: None where there may be no other sizes.

    turns: what it takes turns with, if kernels follow. words: what is shared, in one sentence; ""
    where there may be no other sizes.
    """

    def __init__(
        self, graph: Graph, prepared: dict[Node, BoundKernel], others: Sequence[Sibling] | None
    ):
        self._graph, self._prepared, self._others = graph, prepared, others
        self.turns: Turns | None = None
        self.words = ""
        self._like: dict[Node, BoundKernel] = {}
        self._kept: set[Node] = set()
        if others is not None:
            self._find(others)

    def _find(self, others: Sequence[Sibling]) -> None:
        # Those of empty arrays launch nothing, so they have no objects to share.
        able = sorted(others, key=lambda o: o.turns is None)
        like = next((o for o in able if not difference(self._graph, o.graph)), None)
        self.turns = (like and like.turns) or Turns()
        if like is None:
            return
        for node, other in zip(self._graph.nodes, like.graph.nodes, strict=True):
            self._like[node] = like.prepared[other]
            if is_same(node, other):
                self._kept.add(node)

    def kernel(self, node: Node) -> tuple[BoundKernel | None, BoundKernel | None]:
        """The kernel of an equal call, which serves this one; and that of the same call in another
        size."""
        like = self._like.get(node)
        return like if node in self._kept else None, like

    def prepare(self, call: Callable[[], object]) -> None:
        """`call()`, which prepares the kernels; if it raises, those are released, the last one
        first, that no other program has."""
        try:
            if self.turns is None:
                call()
            else:
                self.turns.prepare(self._graph, lambda: self._resized(call))
                self._settle()
        except BaseException:
            others = {kernel.life for kernel in self._like.values()}
            for life in [k.life for k in self._prepared.values()][::-1]:
                if life is not None and life not in others:
                    life.end()
            raise

    def _resized(self, call: Callable[[], object]) -> list[BoundKernel]:
        call()
        return [k for n, k in self._prepared.items() if n not in self._kept and follows(k)]

    def _settle(self) -> None:
        """Say what is shared."""
        following = {n for n, k in self._prepared.items() if follows(k)}
        self.turns = self.turns if following else None
        if not self._others:
            self.words = "no other size yet"
        elif not self._like and self._graph.nodes:
            why = difference(self._graph, self._others[0].graph)
            self.words = f"nothing is shared with other sizes: {why}"
        else:
            kept, resized = len(self._kept), len(following - self._kept)
            self.words = (
                f"shared with other sizes: {kept} kernels as they are, {resized} that are resized; "
                f"{len(self._prepared) - kept - resized} are this size's own"
            )


def follows(kernel: BoundKernel) -> bool:
    """True for a kernel object that is resized for other sizes."""
    return kernel.instance is not None and kernel.instance.follows


def difference(graph: Graph, other: Graph) -> str:
    """The first difference of two graphs, as a clause, beside sizes; "" where there is none."""
    for a, b in zip(graph.nodes, other.nodes, strict=False):
        if type(a.primitive) is not type(b.primitive):
            return f"{a.primitive.name} stands where {b.primitive.name} stood"
        if _types(a) != _types(b):
            return f"{a.primitive.name} has other dtypes"
    if len(graph.nodes) != len(other.nodes):
        return f"it has {len(graph.nodes)} operations, not {len(other.nodes)}"
    return ""


def _types(node: Node) -> Sequence[object]:
    return [
        [(v.abstract.dtype, v.abstract.format) for v in vs] for vs in (node.inputs, node.outputs)
    ]


def is_same(node: Node, other: Node) -> bool:
    """True for calls that need the same kernel, prepared alike."""
    pairs = zip(node.inputs, other.inputs, strict=True)
    return (
        node.primitive == other.primitive
        and _consts(node) == _consts(other)
        and _shapes(node) == _shapes(other)
        and all(a.abstract.value is b.abstract.value for a, b in pairs)
    )


def _consts(node: Node) -> Sequence[object]:
    return [(name, key(value)) for name, value in node.consts]


def _shapes(node: Node) -> Sequence[object]:
    return [[v.abstract.shape for v in vs] for vs in (node.inputs, node.outputs)]
