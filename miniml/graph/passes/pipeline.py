"""Pass pipeline: the passes, their order, and the registration of users' passes and rules.

Rewrite rules of users: a pattern and its replacement, both plain functions, as a Rule of
`simplify`. Patterns: calls to find in a graph, written as a function of variables. Matching: the
ways in which a call of a graph matches a pattern.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, NoReturn

from ...core.abstract import Abstract, typed
from ...core.errors import DeclarationError, DuplicateError, GraphError, point_at
from ...core.infer import constant, interleave
from ...core.primitive import Primitive, key, primitives, show
from ...core.scope import epoch
from ...core.tensor import Operators, Tensor
from ...core.trace import Trace, use_trace
from ..ir import Graph, Var
from ..tracing import trace_graph
from .batch_products import lookups, slices, stack
from .loops import loops
from .rewrite import check, everywhere, fold, prune, share
from .simplify import Proposal, Rule, Site, by_kind, rewritten, scale, simplify

__all__ = [
    "PIPELINE", "Pass", "add_stage", "pipeline", "register_pass", "register_rule", "run_passes",
    "run_stage", "schedule_pass", "unregister_pass",
]  # fmt: skip


class Pass(NamedTuple):
    """A named function from graph to graph. It gets one level at a time: the graphs inside
    attributes go through it on their own, before the enclosing graph. Passes of LOWERING get the
    target as well, and the graphs inside attributes when these are compiled."""

    name: str
    fn: Callable[..., Graph]


class UserPass(NamedTuple):
    """A pass registered by a user. author: tells a notebook cell that is run again from another
    pass of the same name. pairs: it takes the target as well."""

    entry: Pass
    author: object
    pairs: bool


PIPELINE = (
    Pass("fold", fold),
    Pass("share", share),
    Pass("loops", loops),
    Pass("simplify", simplify),
    Pass("scale", scale),
    Pass("slices", slices),
    Pass("stack", stack),
    Pass("lookups", lookups),
    Pass("prune", prune),
)

Stage = tuple[Pass, ...]
_stages: list[Stage] = [PIPELINE]
_registered: dict[str, UserPass] = {}
_scheduled: dict[str, list[str]] = {}  # names of passes by position, in the order in which they run


def add_stage(stage: Stage) -> Stage:
    """Add a stage of built-in passes, which runs after the earlier stages; users' passes may join
    it."""
    _stages.append(stage)
    return stage


def run_passes(graph: Graph, disabled: Collection[str] = (), verified: bool = False) -> Graph:
    """The graph after every pass of `pipeline()` except those named in `disabled`.

    After each pass of a user, and, if `verified`, after each built-in one, the graph is verified,
    and its inputs, outputs and effects are compared with those before. GraphError names the pass
    that broke a rule, or a disabled name that is not a pass.
    """
    return run_stage(PIPELINE, everywhere, graph, disabled, verified)


def run_stage(
    stage: Stage,
    apply: Callable[[Callable[..., Graph], Graph], Graph],
    graph: Graph,
    disabled: Collection[str],
    verified: bool,
) -> Graph:
    """The graph after the passes of any stage. apply: from a pass's function and a graph to the new
    graph."""
    if disabled:
        _check_disabled(disabled)
    for name, fn in pipeline(stage):
        if name in disabled:
            continue
        try:
            changed = apply(fn, graph)
        except Exception as error:
            error.add_note(f"in pass {name!r}")
            raise
        if not isinstance(changed, Graph):
            raise GraphError(f"pass {name!r} returned {changed!r}; a pass returns a Graph")
        if changed is not graph and (verified or name in _registered):
            check(name, graph, changed)
        graph = changed
    return graph


def _check_disabled(disabled: Collection[str]) -> None:
    running = [p.name for stage in _stages for p in pipeline(stage)]
    names = dict.fromkeys([*running, *_registered])
    unknown = set(disabled) - set(names)
    if unknown:
        raise GraphError(
            f"disabled_passes names {', '.join(sorted(unknown))}; the passes are {', '.join(names)}"
        )


def register_pass(name: str, fn: Callable[..., Graph], position: str | None = "end") -> None:
    """Give a pass a name, and run it at a position on every graph that is compiled from now on.

    fn: from a graph to a graph; one of two parameters gets the target as well, and runs beside
    passes of LOWERING only. position: "begin", "end", or "before:" or "after:" one of the built-in
    passes; passes with one position run in the order in which they were scheduled there. None: it
    runs nowhere until `schedule_pass`. The graph is verified after it, and the error names it.
    The same function registered again (a notebook cell run twice) replaces the first;
    DuplicateError for another of the same name.
    """
    _register(name, fn, position, _author(fn), _pairs(name, fn))


def schedule_pass(name: str, position: str) -> None:
    """Run a registered pass at one more position, after the passes that are scheduled there.

    GraphError for a name that is not registered, or a position that does not exist;
    DeclarationError for several names at once.
    """
    if not isinstance(name, str):
        raise DeclarationError(
            f"schedule_pass got {name!r}; it takes the name of one pass, so call it for each"
        )
    if name not in _registered:
        raise GraphError(
            f"pass {name!r} is not registered, so it cannot be scheduled; registered are "
            f"{', '.join(_registered) or 'none'}"
        )
    _schedule(name, position, _registered[name].pairs)
    epoch.bump("passes")


def unregister_pass(name: str) -> None:
    """Remove a registered pass or rule from all positions; does nothing if there is none of that
    name."""
    _registered.pop(name, None)
    for names in _scheduled.values():
        if name in names:
            names.remove(name)
    epoch.bump("passes")


def register_rule(
    pattern: Callable[..., Any],
    replacement: Callable[..., Any],
    *,
    where: Callable[..., Any] | None = None,
    name: str | None = None,
    position: str = "after:simplify",
) -> str:
    """Replace calls that match `pattern` by `replacement`, in every graph that is compiled from now
    on; returns the name of the rule, by default the text of the pattern.

    pattern: a function whose parameters stand for any values, and which returns calls of
    primitives on them, as in `lambda x, y, z: x + y + z`. A parameter whose default is a class of
    primitives stands for one of that class with any attributes: `lambda x, t=ops.Transpose: t(x)`.
    replacement: a function of the same names, or some of them, traced on values of the types found.
    where: a function of the same names and of `out`, true if the rule may be applied: it gets the
    shape and dtype of tensors, and the primitives themselves.

    A rule is a pass of this name: it is scheduled, disabled and unregistered like a pass.
    GraphError, at the user's line, if a replacement has another type than the call it replaces.
    """
    made = rule(pattern, replacement, where, name)
    table = by_kind([made])

    def apply(graph: Graph) -> Graph:
        changed = rewritten(graph, table)
        return graph if changed is graph else prune(changed)

    _register(made.says, apply, position, (_author(pattern), _author(replacement)), False)
    return made.says


def _register(
    name: Any, fn: Callable[..., Graph], position: str | None, author: object, pairs: bool
) -> None:
    if not isinstance(name, str) or not name:
        raise DeclarationError(f"a pass got the name {name!r}; a name is a string")
    other = _registered.get(name)
    built_in = any(p.name == name for stage in _stages for p in stage)
    if built_in or (other is not None and other.author != author):
        instead = "" if built_in else f", or take that one back with ml.unregister_pass({name!r})"
        raise DuplicateError(f"there is a pass {name!r} already; use another name{instead}")
    if position is not None:
        _schedule(name, position, pairs)
    entry = Pass(name, fn if pairs else lambda graph, *target: fn(graph))
    _registered[name] = UserPass(entry, author, pairs)
    for at, names in _scheduled.items():
        if name in names and at != position:
            names.remove(name)
    epoch.bump("passes")


def _schedule(name: str, position: str, pairs: bool) -> None:
    """Schedule a pass last at a position, or leave it where it is there already."""
    target = [p for stage in _stages if stage is not PIPELINE for p in _positions(stage)]
    positions = ["begin", *_positions(PIPELINE), *target, "end"]
    if position not in positions:
        raise GraphError(f"pass position {position!r} is unknown; use {', '.join(positions)}")
    if pairs and position not in target:
        raise GraphError(
            f"pass {name!r} takes a target, which there is not at position {position!r}; use "
            f"{', '.join(target)}"
        )
    names = _scheduled.setdefault(position, [])
    if name not in names:
        names.append(name)


def _pairs(name: str, fn: Callable[..., Graph]) -> bool:
    """True for fn(graph, target), False for fn(graph); DeclarationError for others."""
    try:
        takes = inspect.signature(fn)
    except (TypeError, ValueError):  # not callable, or without a signature
        raise DeclarationError(
            f"pass {name!r} is {fn!r}; a pass is a function from a graph to a graph"
        ) from None
    by_position = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    needed = [p.kind in by_position for p in takes.parameters.values() if p.default is p.empty]
    if len(needed) not in (1, 2) or not all(needed):
        raise DeclarationError(
            f"pass {name!r} takes {takes}; a pass takes a graph, or a graph and a target"
        )
    return len(needed) == 2


def pipeline(stage: Stage = PIPELINE) -> Stage:
    """All passes of a stage, users' included, in the order in which they run."""
    if not _registered:
        return stage
    return tuple(_in_order(stage))


def _in_order(stage: Stage) -> Iterator[Pass]:
    if stage is PIPELINE:
        yield from _at("begin")
    for built_in in stage:
        yield from _at(f"before:{built_in.name}")
        yield built_in
        yield from _at(f"after:{built_in.name}")
    if stage is PIPELINE:
        yield from _at("end")


def _positions(stage: Stage) -> Iterator[str]:
    return (f"{side}:{p.name}" for p in stage for side in ("before", "after"))


def _at(position: str) -> Iterator[Pass]:
    for name in list(_scheduled.get(position, ())):
        if name in _registered:  # another thread may just have taken it back
            yield _registered[name].entry


def _author(fn: Any) -> tuple[object, ...]:
    """Identity of a function that its redefinition by the same cell or module shares; lambdas, all
    of one name, are distinguished by their code."""
    name = getattr(fn, "__qualname__", fn)
    code = fn.__code__ if str(name).endswith("<lambda>") else None
    return getattr(fn, "__module__", None), name, code


# --- Rewrite rules of users -----------------------------------------------------------------------


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
    holds = _by_name(says, where or (lambda: True), [*names, "out"])

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
    """One per parameter of a pattern: a Variable, or Captured if its default is a primitive."""
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
