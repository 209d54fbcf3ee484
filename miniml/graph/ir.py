"""The graph: a typed, single-assignment program as a frozen value."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from itertools import chain
from typing import Any

from ..abstract import Abstract
from ..attributes import key
from ..location import Location
from ..parameter import Parameter
from ..primitive import Primitive


class Var:
    """One value of a graph, compared by identity; a constant if its abstract has a value."""

    __slots__ = ("abstract",)

    def __init__(self, abstract: Abstract):
        self.abstract = abstract

    def __repr__(self) -> str:
        return f"Var({self.abstract})"


@dataclass(frozen=True, eq=False, slots=True)
class Node:
    """One call of a primitive: tensors by position, const inputs by name."""

    primitive: Primitive
    inputs: tuple[Var, ...]
    outputs: tuple[Var, ...]
    consts: tuple[tuple[str, Any], ...] = ()
    where: Location | None = None

    @property
    def attrs(self) -> dict[str, Any]:
        """Attributes and const inputs together: the kernel's keyword arguments."""
        return {**self.primitive.attributes, **dict(self.consts)}

    @property
    def writes(self) -> bool:
        """True where the node makes a new version of the parameter that its first input is a
        version of."""
        return self.primitive.effect == "state" and bool(self.inputs)

    @property
    def abstracts(self) -> tuple[tuple[Abstract, ...], tuple[Abstract, ...]]:
        """What is known of the inputs and of the outputs."""
        inputs, outputs = self.inputs, self.outputs
        return tuple([v.abstract for v in inputs]), tuple([v.abstract for v in outputs])

    def rule_inputs(self) -> tuple[Any, ...]:
        """Inputs in the order of the primitive's rules: Abstracts, with const values in place."""
        return interleave(self.primitive, [v.abstract for v in self.inputs], dict(self.consts))

    def subgraphs(self) -> Iterator[tuple[str, Graph]]:
        """The graphs among the attributes, also inside tuples, labelled: `branches[1]`."""
        for name, value in self.primitive.attributes.items():
            yield from _inside(name, value)

    def map_subgraphs(self, change: Callable[[Graph], Graph]) -> Node:
        """The node with `change` applied to each of its graphs; itself where it has none."""
        if not any(True for _ in self.subgraphs()):
            return self
        values = {k: _changed(v, change) for k, v in self.primitive.attributes.items()}
        return replace(self, primitive=self.primitive.with_attributes(values))


@dataclass(frozen=True, eq=False)
class Graph:
    """inputs -> nodes, in program order -> outputs.

    constants: the Vars that carry a value. state: (Parameter, Var) pairs, the values parameters
    have when the graph starts; a node whose primitive has effect "state" and whose first input is
    a version of a parameter gives its next version as first output. input_names, output_names:
    one for each, or none.

    A graph is a function of tensors: `graph(*tensors)` checks their types, compiles it once and
    gives its output, or a tuple of them if there are several; inputs that have names may be given
    by name. Inside another trace its calls become part of that.
    """

    inputs: tuple[Var, ...]
    nodes: tuple[Node, ...]
    outputs: tuple[Var, ...]
    constants: tuple[Var, ...] = ()
    state: tuple[tuple[Parameter, Var], ...] = ()
    name: str = field(default="graph")
    input_names: tuple[str, ...] = ()
    output_names: tuple[str, ...] = ()

    def __call__(self, *args: Any, **named: Any) -> Any:
        return self._run(*args, **named)

    @cached_property
    def _run(self) -> Callable[..., Any]:
        return _runner(self)

    def trainable_params(self) -> list[Parameter]:
        """The parameters that it reads and that have `requires_grad`: what an optimizer takes."""
        return [p for p, _ in self.state if p.requires_grad]

    def __getstate__(self) -> dict[str, Any]:  # without what was computed from it
        return {f.name: getattr(self, f.name) for f in fields(self)}

    @cached_property
    def key(self) -> tuple[object, ...]:
        """The graph up to the names of its Vars and the source lines of its nodes.

        Vars that nothing defines, in a graph that `verify` would refuse, stand for themselves.
        """
        number: dict[Var, int] = {}
        for var in self.definitions():
            number.setdefault(var, len(number))
        body = tuple(
            (n.primitive, key(n.consts), tuple(number.get(v, v) for v in n.inputs), _formats(n))
            for n in self.nodes
        )
        return (
            tuple(v.abstract.key() for v in self.inputs),
            tuple(v.abstract.key() for v in self.constants),
            tuple((id(p), v.abstract.key()) for p, v in self.state),
            body,
            tuple(number.get(v, v) for v in self.outputs),
        )

    def uses(self) -> Counter[Var]:
        """How often nodes read each Var, or it is an output."""
        return Counter(chain(self.outputs, *[n.inputs for n in self.nodes]))

    def definitions(self) -> Iterator[Var]:
        """Every Var in the order in which it gets its value."""
        yield from self.inputs
        yield from (v for _, v in self.state)
        yield from self.constants
        for node in self.nodes:
            yield from node.outputs

    def makers(self) -> dict[Var, Node]:
        """The node that makes each Var, for all that nodes make."""
        return {v: n for n in self.nodes for v in n.outputs}

    def readers(self) -> dict[Var, list[Node]]:
        """The nodes that read each Var, as often as they do, for all that nodes read or make."""
        found: dict[Var, list[Node]] = {v: [] for n in self.nodes for v in n.outputs}
        for node in self.nodes:
            for var in node.inputs:
                found.setdefault(var, []).append(node)
        return found

    def __str__(self) -> str:
        return _text(self)

    def __repr__(self) -> str:
        return f"<Graph {self.name}: {len(self.nodes)} nodes>"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Graph) and self.key == other.key

    def __hash__(self) -> int:
        return hash(self.key)


def _formats(node: Node) -> tuple[str | None, ...]:
    return tuple([v.abstract.format for v in node.outputs])


_text: Callable[[Graph], str] = repr
_runner: Callable[[Graph], Callable[..., Any]]


def print_by(text: Callable[[Graph], str]) -> None:
    """Set the function behind `str(graph)`; the printer, which imports this module, calls it."""
    global _text
    _text = text


def run_by(runner: Callable[[Graph], Callable[..., Any]]) -> None:
    """Set the function that makes a callable of a graph; the runtime, which imports this module,
    calls it."""
    global _runner
    _runner = runner


def _inside(label: str, value: Any) -> Iterator[tuple[str, Graph]]:
    if isinstance(value, Graph):
        yield label, value
    elif isinstance(value, tuple):
        for i, part in enumerate(value):
            yield from _inside(f"{label}[{i}]", part)


def _changed(value: Any, change: Callable[[Graph], Graph]) -> Any:
    if isinstance(value, Graph):
        return change(value)
    return tuple(_changed(v, change) for v in value) if isinstance(value, tuple) else value


def interleave(primitive: Primitive, tensors: list[Any], consts: dict[str, Any]) -> tuple[Any, ...]:
    """Tensors and const values in the order of the primitive's inputs."""
    if not consts:
        return tuple(tensors)
    const_values = {i: consts[name] for i, name in primitive._const}
    rest = iter(tensors)
    count = len(tensors) + len(const_values)
    return tuple(const_values[i] if i in const_values else next(rest) for i in range(count))
