"""User rewrite rules: a pattern and its replacement, both plain functions, as a Rule of `simplify`.

Patterns: calls to find in a graph, written as a function of variables. Matching: the ways in which
a call of a graph matches a pattern.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NoReturn

from ...core.abstract import Abstract, typed
from ...core.errors import DeclarationError, GraphError, point_at
from ...core.infer import constant, interleave
from ...core.primitive import Primitive, key, primitives, show
from ...core.tensor import Operators, Tensor
from ...core.trace import Trace, use_trace
from ..ir import Graph, Var
from ..tracing import trace_graph
from .simplify import Proposal, Rule, Site

Bound = Mapping[str, Any]  # values of a pattern's variables: a Var, a primitive or a constant
_NUMBER = (bool, int, float)


def rule(
    pattern: Callable[..., Any],
    replacement: Callable[..., Any],
    where: Callable[..., Any] | None = None,
    name: str | None = None,
) -> Rule:
    """The Rule that replaces matches of `pattern` by `replacement`; see `register_rule`."""
    for what, fn in (("pattern", pattern), ("replacement", replacement)):
        if not callable(fn):
            raise DeclarationError(f"a rule got {fn!r} for its {what}, which is a function")
    root, names, says = pattern_of(pattern, name)
    make = _by_name(says, replacement, names)
    holds = _by_name(says, where or _always, [*names, "out"])

    def propose(site: Site, primitive: Primitive, *inputs: Var) -> Proposal:
        out = site.node.outputs[0].abstract
        for bound in matches(root, primitive, inputs, dict(site.node.consts), site, {}):
            known = {n: v.abstract if isinstance(v, Var) else v for n, v in bound.items()}
            try:
                if holds({**known, "out": out}):
                    operands = [v for v in bound.values() if isinstance(v, Var)]
                    return _replacement(out, bound, make), *operands
            except Exception as error:
                raise _refusal(says, site, error) from error
        return None

    return Rule(says, (root.kind,), propose)


def _always() -> bool:
    return True


def _by_name(says: str, fn: Callable[..., Any], names: list[str]) -> Callable[[Bound], Any]:
    """The function as one of a dictionary: its parameters get the values of their names; `*xs` gets
    all but the primitives, in the order of the pattern. DeclarationError for an unknown name.
    """
    taken = inspect.signature(fn).parameters.values()
    if any(p.kind is p.VAR_POSITIONAL for p in taken):
        return lambda bound: fn(*[v for n in names if not isinstance(v := bound[n], Primitive)])
    needed = [p.name for p in taken if p.default is p.empty]
    unknown = [name for name in needed if name not in names]
    if unknown:
        raise DeclarationError(
            f"rule {says!r} has a function of {', '.join(unknown)}; its pattern has "
            f"{', '.join(names)}; use these names"
        )
    return lambda bound: fn(**{name: bound[name] for name in needed})


def _replacement(out: Abstract, bound: Bound, make: Callable[[Bound], Any]) -> Graph:
    """The graph of the replacement for these values, whose inputs are the tensors among them.

    GraphError if the type of its output is not that of `out`, or if it is no pure function.
    """
    tensors = {
        name: Abstract(v.abstract.shape, v.abstract.dtype)
        for name, v in bound.items()
        if isinstance(v, Var)
    }

    def body(*traced: Tensor) -> list[Tensor]:
        made = make({**bound, **dict(zip(tensors, traced, strict=True))})
        if not isinstance(made, Tensor):
            raise GraphError(f"its replacement is {made!r}, which is not a tensor")
        return [made]

    graph, _ = trace_graph(body, list(tensors.values()), "cpu", "replacement")
    _check(out, graph)
    return graph


def _check(expected: Abstract, graph: Graph) -> None:
    (out,) = graph.outputs
    if graph.state or any(n.effect != "pure" for n in graph.nodes):
        raise GraphError("its replacement reads or writes parameters or random streams")
    if (out.abstract.shape, out.abstract.dtype) != (expected.shape, expected.dtype):
        raise GraphError(f"the call gives {typed(expected)}, its replacement {typed(out.abstract)}")


def _refusal(says: str, site: Site, error: Exception) -> GraphError:
    """The error for a rule that fails on a call, at the user's line of that call."""
    called = site.node.primitive
    reason = error if isinstance(error, GraphError) else f"it raises {error!r}"
    refusal = GraphError(
        f"rule {says!r} cannot replace {called!r}: {reason}; correct the rule, or leave such calls "
        "out with where="
    )
    point_at(refusal, site.node.where)
    return refusal


# --- Patterns -------------------------------------------------------------------------------------


def pattern_of(fn: Callable[..., Any], name: str | None = None) -> tuple[Call, list[str], str]:
    """The call that a function returns for its variables, their names, and the rule's name: `name`,
    or the call's text. DeclarationError, or GraphError, if it is no pattern."""
    variables = _variables(fn)
    with use_trace(PatternTrace()):
        root = fn(*variables)
    says = name or str(root)
    if not isinstance(root, Call) or not root.single:
        raise DeclarationError(
            f"rule {says!r} has a pattern that gives {root!s}; it gives a call of a primitive "
            "with one output, which is what the rule replaces"
        )
    for v in variables:
        if v.name not in _names(root):
            raise DeclarationError(
                f"rule {says!r} has a pattern in which its variable {v.name} does not occur; take "
                "it out"
            )
    return root, [v.name for v in variables], says


def _variables(pattern: Callable[..., Any]) -> list[Any]:
    """One per parameter of a pattern: a Variable, or Captured if its default is a class of
    primitives."""
    found: list[Any] = []
    for p in inspect.signature(pattern).parameters.values():
        if p.kind not in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD):
            raise DeclarationError(f"a pattern takes its variables by position; got {p}")
        if p.name == "out":
            raise DeclarationError("a pattern has a variable out; in where, out is the call itself")
        if p.default is p.empty:
            found.append(Variable(p.name))
        elif isinstance(p.default, type) and p.default in primitives.values():
            found.append(Captured(p.name, p.default))
        else:
            raise DeclarationError(
                f"a pattern has the parameter {p}; a default is the class of a primitive (not an "
                "abstract one), as in lambda x, t=ops.Transpose: t(x)"
            )
    return found


def _names(term: Any) -> set[str]:
    if isinstance(term, Variable):
        return {term.name}
    if not isinstance(term, Call):
        return set()
    own = {term.primitive.name} if isinstance(term.primitive, Captured) else set()
    return own.union(*map(_names, term.args))


class PatternTrace(Trace):
    """A trace in which calls become Terms; nothing is inferred or computed."""

    parent = None
    at_once = False

    def bind(self, primitive: Primitive, args: Sequence[Any]) -> tuple[Any, ...]:
        return _bind(primitive, type(primitive), args)

    def stand_in(self, parameter: Any) -> NoReturn:
        raise GraphError("a pattern has no parameters; take a variable for the value of one")

    def reserve(self, blocks: int, generator: Any = None) -> NoReturn:
        raise GraphError("a pattern draws no random numbers; take a variable for the draw")


def _bind(
    primitive: Primitive | Captured, kind: type[Primitive], args: Sequence[Any]
) -> tuple[Any, ...]:
    """The Terms of a call."""
    if kind._inputs is not None and len(args) != len(kind._inputs):
        raise DeclarationError(
            f"a pattern calls {kind.name} with {len(args)} inputs; it takes "
            f"{', '.join(kind._inputs) or 'none'}"
        )
    outputs = kind.outputs if isinstance(primitive, Captured) else primitive.outputs
    if kind.effect != "pure" or isinstance(outputs, str):
        raise DeclarationError(
            f"a pattern calls {kind.name}, which "
            + ("has an effect" if kind.effect != "pure" else "gives any number of outputs")
            + "; a rule replaces calls that compute a value from their inputs alone"
        )
    const = {i for i, _ in kind._const}
    given = [_operand(kind, i in const, i, a) for i, a in enumerate(args)]
    return tuple([Call(primitive, kind, given, i, len(outputs) == 1) for i in range(len(outputs))])


def _operand(kind: type[Primitive], const: bool, index: int, given: Any) -> Any:
    if isinstance(given, Variable) or (not const and isinstance(given, (Call, *_NUMBER))):
        return given
    if const:
        return constant(kind, dict(kind._const)[index], given)  # type: ignore[arg-type]
    raise DeclarationError(
        f"a pattern passes {given!r} to {kind.name}; it is made of its variables, calls of them "
        "and numbers; take a variable, and look at its value in where"
    )


class Term(Operators):
    """A value in a pattern: it has no shape, only the calls that make it."""

    __slots__ = ()

    @property
    def shape(self) -> NoReturn:
        raise GraphError(
            "a pattern is a structure of calls, whose values have no shape; call a primitive that "
            "does not ask for one, as in ops.Transpose((1, 0))(x), or capture it: lambda x, "
            "t=ops.Transpose: t(x)"
        )

    def __bool__(self) -> bool:
        return bool(self._host("bool"))

    def _host(self, operation: str) -> NoReturn:
        raise GraphError(
            f"{operation} needs numbers, which a value of a pattern does not have; say in where "
            "what must hold"
        )


class Variable(Term):
    """A tensor, or a const input, of any kind."""

    __slots__ = ("name",)

    def __init__(self, name: str):
        self.name = name

    def __str__(self) -> str:
        return self.name


class Captured:
    """A primitive of one class, with any attributes."""

    def __init__(self, name: str, kind: type[Primitive]):
        self.name, self.kind = name, kind

    def __call__(self, *args: Any) -> Any:
        outs = _bind(self, self.kind, args)
        return outs[0] if self.kind._single else outs


class Call(Term):
    """One output of a call of a primitive, given itself or as Captured; args has Terms, numbers
    and the values of const inputs. single: it is the only output."""

    __slots__ = ("primitive", "kind", "args", "index", "single")

    def __init__(
        self,
        primitive: Primitive | Captured,
        kind: type[Primitive],
        args: Sequence[Any],
        index: int,
        single: bool,
    ):
        self.primitive, self.kind, self.args = primitive, kind, tuple(args)
        self.index, self.single = index, single

    def __str__(self) -> str:
        named = isinstance(self.primitive, Captured)
        shown = f"{self.kind.name}(...)" if named else repr(self.primitive).removesuffix("()")
        operands = (str(a) if isinstance(a, Term) else show(a) for a in self.args)
        return f"{shown}({', '.join(operands)})"


# --- Matching -------------------------------------------------------------------------------------


def matches(
    term: Call,
    primitive: Primitive,
    inputs: Sequence[Var],
    consts: dict[str, Any],
    site: Site,
    bound: Bound,
) -> Iterator[Bound]:
    """Bindings under which a call matches; the inputs of a commutative primitive in any order."""
    if isinstance(term.primitive, Captured):
        name = term.primitive.name
        if type(primitive) is not term.kind or bound.get(name, primitive) != primitive:
            return
        bound = {**bound, name: primitive}
    elif primitive != term.primitive:
        return
    found = interleave(primitive, list(inputs), consts)
    if len(found) != len(term.args):
        return
    for order in (found, found[::-1]) if primitive.commutative else (found,):
        yield from _match_all(term.args, order, site, bound)


def _match_all(
    terms: Sequence[Any], found: Sequence[Any], site: Site, bound: Bound
) -> Iterator[Bound]:
    if not terms:
        yield bound
        return
    for first in _match(terms[0], found[0], site, bound):
        yield from _match_all(terms[1:], found[1:], site, first)


def _match(term: Any, found: Any, site: Site, bound: Bound) -> Iterator[Bound]:
    """Bindings under which a term matches a Var, or the value of a const input, beyond `bound`."""
    if isinstance(term, Variable):
        if term.name not in bound:
            yield {**bound, term.name: found}
        elif bound[term.name] is found or (
            not isinstance(found, Var) and (key(bound[term.name]) == key(found))
        ):
            yield bound
    elif not isinstance(found, Var):
        if key(term) == key(found):
            yield bound
    elif isinstance(term, Call):
        node = site.made_by(found, term.kind)
        if node is not None and node.outputs[term.index] is found:
            consts = dict(node.consts)
            yield from matches(term, node.primitive, node.inputs, consts, site, bound)
    elif site.is_all(found, term):
        yield bound
