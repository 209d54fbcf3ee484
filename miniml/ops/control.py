"""Control-flow primitives (cond, while loop, scan), assignment of state, fused nodes.

In order: `assign`, `barrier` and `Fused`; `cond`; `while_loop`, which with a bound on its
iterations is a scan; `scan`, a loop of a known number of steps, which has a gradient; the tracing
of branches and bodies as graphs inside graphs; checks that their types agree.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
import optree

from ..core.abstract import FLOATS, Abstract, DType, Shape, bool_, canonical, float32, is_complex
from ..core.errors import (
    DTypeError,
    GraphError,
    ImmutableError,
    ShapeError,
    TracedValueError,
    note_step,
)
from ..core.options import count, flag, integer
from ..core.primitive import Primitive, orders
from ..core.settings import current
from ..core.trace import Partition, computes_at_once, current_trace, partition
from .checks import Tensor, function, needs_float
from .create import full
from .elementwise import add, cast
from .logic import logical_and
from .rules import Move
from .shape import reshape, stack, unstack

__all__ = [
    "Assign", "Barrier", "Cond", "Fused", "WhileLoop",
    "assign", "barrier", "cond", "while_loop",
    "Scan", "scan",
]  # fmt: skip


Tree = Any
Step = Callable[[Tree, Tree], Tree]


class Assign(Move):
    """Make `value`, of its shape, the parameter's data for all that read it later; returns it.

    ShapeError and DTypeError for a value of another shape or dtype: a parameter keeps both.
    """

    effect = "state"

    def infer_shape(self, parameter: Shape, value: Shape) -> Shape:
        if parameter != value:
            raise ShapeError(
                f"Assign got a value of shape {value} for a parameter of shape {parameter}; "
                "a parameter keeps its shape"
            )
        return value

    def infer_dtype(self, parameter: DType, value: DType) -> DType:
        if parameter != value:
            raise DTypeError(
                f"Assign got a value of {value.name} for a parameter of {parameter.name}; cast it"
            )
        return value


def assign(parameter: Any, value: Any) -> Tensor:
    """Make `value`, of its shape, the parameter's data for all that read it later; returns it.

    Shapes and dtypes must be equal: a parameter keeps both. ImmutableError for a tensor that is
    no Parameter.
    """
    if not hasattr(parameter, "set_data"):
        raise ImmutableError(
            f"Assign got {type(parameter).__name__} to assign to, which never changes; give a "
            "Parameter"
        )
    return _ASSIGN(parameter, value)


_ASSIGN = Assign()


class Barrier(Move):
    """x itself, as a new value, which exists only once `after` does; both are floats.

    So what a graph computes from it is not merged by CSE with what it computes from x, and is
    scheduled later.
    """

    def infer_shape(self, x: Shape, after: Shape) -> Shape:
        return x

    def infer_dtype(self, x: DType, after: DType) -> DType:
        for dtype in (after, x):
            if not is_complex(dtype):
                needs_float("Barrier", dtype)
        return x


def barrier(x: Any, after: Any) -> Tensor:
    """x itself, of any shape, in a graph as a value that exists only once `after` does; floats."""
    return Barrier()(x, after)


class Nested(Primitive, abstract=True):
    """A primitive that runs graphs, its attributes. takes: by their names, the attributes with the
    positions of the operands that they get; None for all operands in order."""

    takes_complex = True
    outputs = "*parts"
    takes: ClassVar[dict[str, str | None]] = {"body": None}

    def fed(self, operands: tuple[Any, ...]) -> None:
        """ShapeError or DTypeError unless the shapes, or dtypes, are those that the graphs take."""
        for label, name in self.takes.items():
            every = tuple(range(len(operands)))
            takes = every if name is None else getattr(self, name)
            feeds(self.name, label, getattr(self, label), takes, operands)

    def infer_dtype(self, *operands: DType) -> tuple[DType, ...]:
        self.fed(operands)
        return tuple(v.abstract.dtype for v in getattr(self, next(iter(self.takes))).outputs)


class Fused(Nested):
    """The outputs of the graph `body`, nodes that lowering has fused.

    Inputs: those of `body`, which reads no parameter. There is no gradient.
    """

    any_format = True
    differentiable = False
    body: Any

    def infer_shape(self, *operands: Shape) -> tuple[Shape, ...]:
        self.fed(operands)
        return tuple(v.abstract.shape for v in self.body.outputs)


# --- Branches -------------------------------------------------------------------------------------


class Cond(Nested):
    """The outputs of the graph `on_true` if pred holds, of the graph `on_false` if not.

    Inputs: pred, a bool of shape (), then operands; a branch gets those at the positions
    `true_takes` or `false_takes`. Both branches have outputs of equal shapes and dtypes. ShapeError
    and DTypeError where pred is something else.
    """

    takes: ClassVar[dict[str, str | None]] = {"on_true": "true_takes", "on_false": "false_takes"}
    on_true: Any
    on_false: Any
    true_takes: tuple[int, ...]
    false_takes: tuple[int, ...]

    def infer_shape(self, pred: Shape, *operands: Shape) -> tuple[Shape, ...]:
        if pred != ():
            raise ShapeError(f"Cond needs pred of shape (); got {pred}; reduce it, as with .all()")
        self.fed(operands)
        ours, theirs = types(self.on_true.outputs), types(self.on_false.outputs)
        agree(self.name, "on_true", ours, "on_false", theirs)
        return tuple(v.abstract.shape for v in self.on_true.outputs)

    def infer_dtype(self, *operands: DType) -> tuple[DType, ...]:
        if (pred := operands[0]) != bool_:
            raise DTypeError(f"Cond needs pred of bool; got {pred.name}; compare it with something")
        return super().infer_dtype(*operands[1:])


def cond(
    pred: Any, on_true: Callable[..., Tree], on_false: Callable[..., Tree], *operands: Tree
) -> Tree:
    """`on_true(*operands)` if pred is true, else `on_false(*operands)`; only one is computed.

    pred: a bool tensor of one element, or a Python bool, else DTypeError. operands and results are
    trees of tensors. Where pred is known, eagerly that is, the branch is called as it is. In a
    graph both are traced, and return equal structures, with dicts in one order, shapes and dtypes,
    else ShapeError; they may use values from outside, but not assign parameters; and both draw
    equally many random numbers or none, else GraphError. A compiled program may compute both where
    they are cheap, have no effect and cannot fail: that shows in nothing but time.

    >>> cond(True, lambda x: x + 1.0, lambda x: x * 2.0, 5.0)
    Tensor(6., shape=(), dtype=float32)
    """
    function("Cond", "on_true", on_true)
    function("Cond", "on_false", on_false)
    chosen = known_truth("Cond", pred)
    if chosen is not None:
        return outcome("Cond", (on_true if chosen else on_false)(*operands))
    given = tensor_leaves(operands)
    leaves = given.taken()
    yes = traced(lambda *xs: outcome("Cond", on_true(*given.filled(xs))), leaves, "on_true")
    no = traced(lambda *xs: outcome("Cond", on_false(*given.filled(xs))), leaves, "on_false")
    shown = [b.structure.unflatten(["*"] * len(b.graph.outputs)) for b in (yes, no)]
    if yes.structure != no.structure or orders(shown[0]) != orders(shown[1]):
        raise ShapeError(
            f"Cond got on_true, which returns {shown[0]}, and on_false, which returns {shown[1]}; "
            "branches return equal structures, with dicts in one order"
        )
    if yes.blocks != no.blocks:
        raise GraphError(
            f"Cond got branches that draw {_counted(yes)} and {_counted(no)} blocks of random "
            "numbers; in a graph both draw equally many of each generator: draw before the cond, "
            "and pass the draws to it"
        )
    for generator, blocks in yes.blocks.items():
        current_trace().reserve(blocks, generator)
    inputs, takes = merged(leaves, yes, no)
    return yes.structure.unflatten(Cond(yes.graph, no.graph, *takes)(truth(pred), *inputs))


def _counted(branch: Traced) -> str:
    return " + ".join(map(str, branch.blocks.values())) or "0"


# --- While loops ----------------------------------------------------------------------------------


class WhileLoop(Nested):
    """The values that the graph `body` leaves once the graph `condition` no longer holds of them.

    Inputs: the loop's first values, one per output of `body`, then what the two graphs capture;
    each gets those at the positions `condition_takes` or `body_takes`. `condition` gives one bool
    of shape (); `body` gives values of the same shapes and dtypes. most: the loop ends after so
    many runs of the body, whatever the condition says; None if it does not. ShapeError for a
    condition that gives something else.
    """

    takes: ClassVar[dict[str, str | None]] = {"condition": "condition_takes", "body": "body_takes"}
    condition: Any
    body: Any
    condition_takes: tuple[int, ...]
    body_takes: tuple[int, ...]
    most: int | None = None

    def infer_shape(self, *values: Shape) -> tuple[Shape, ...]:
        self.fed(values)
        going = [str(v.abstract) for v in self.condition.outputs]
        if going != ["bool[]"]:
            raise ShapeError(
                f"WhileLoop condition gives {', '.join(going) or 'nothing'}; it must give "
                "one bool[]"
            )
        return self._carried(values)

    def infer_dtype(self, *values: DType) -> tuple[DType, ...]:
        self.fed(values)
        return self._carried(values)

    def _carried(self, values: tuple[Any, ...]) -> tuple[Any, ...]:
        """Shapes or dtypes of the carried values; an error if the body returns other types."""
        count = len(self.body.outputs)
        taken = {i: v for i, v in zip(self.body_takes, self.body.inputs, strict=True) if i < count}
        given = {i: v for i, v in enumerate(self.body.outputs) if i in taken}
        agree(self.name, "the loop", types(taken.values()), "body", types(given.values()))
        return values[:count]


def while_loop(
    cond_fn: Callable[[Tree], Any],
    body_fn: Callable[[Tree], Tree],
    init: Tree,
    max_iterations: int | None = None,
) -> Tree:
    """The last state of: state = init; while cond_fn(state): state = body_fn(state).

    init: a tree of tensors (Python numbers become tensors); body_fn keeps its structure, shapes
    and dtypes. cond_fn gives a bool tensor of one element, or a Python bool. Where that is known,
    eagerly that is, the loop is a Python loop, through which gradients pass. In a graph the body
    is traced once; it may use values from outside, but neither assign parameters nor draw random
    numbers.

    max_iterations: the loop ends after so many, whatever cond_fn says. With it the loop has a
    gradient in a graph too: it is a scan over that many steps; those after the end compute
    next to nothing, but keep a row of values each. Without a gradient it ends there.

    >>> while_loop(lambda x: x < 100.0, lambda x: x * 2.0, 3.0)
    Tensor(192., shape=(), dtype=float32)
    """
    function("WhileLoop", "cond_fn", cond_fn)
    function("WhileLoop", "body_fn", body_fn)
    value = tensors("WhileLoop", init)
    checked = _steady(lambda before, after: kept("WhileLoop", "value", before, after))

    def step(before: Tree) -> Tree:
        return checked(before, body_fn(before))

    done, bound = 0, max_iterations
    if bound is not None:
        bound = count("WhileLoop", "max_iterations", bound, 0)
    while bound is None or done < bound:
        try:
            going = known_truth("WhileLoop", cond_fn(value))
            if going:
                value, done = step(value), done + 1
        except Exception as error:
            note_step(error, "loop", done)
            raise
        if going is None:
            if bound is None:
                return _unbounded(cond_fn, step, value)
            return _bounded(cond_fn, step, value, bound - done)
        if not going:
            break
    return value


def _bounded(
    cond_fn: Callable[[Tree], Any], step: Callable[[Tree], Tree], value: Tree, count: int
) -> Tree:
    """The loop as a scan that carries a flag, true while the loop goes on."""

    given = tensor_leaves(value)
    _refuse_draws(traced(lambda *xs: step(given.filled(xs)), given.taken(), "body").blocks)

    def advance(carry: Tree, _: None) -> Tree:
        going = logical_and(carry[0], truth(cond_fn(carry[1])))
        return (going, cond(going, step, lambda same: same, carry[1])), None

    return scan(advance, (True, value), length=count)[1][1]


def _unbounded(cond_fn: Callable[[Tree], Any], step: Callable[[Tree], Tree], value: Tree) -> Tree:
    """The loop as one primitive, from the values that it has reached."""
    given = tensor_leaves(value)
    leaves = given.taken()
    condition = traced(lambda *xs: truth(cond_fn(given.filled(xs))), leaves, "condition")
    body = traced(lambda *xs: step(given.filled(xs)), leaves, "body")
    _refuse_draws(condition.blocks | body.blocks)
    inputs, (condition_takes, body_takes) = merged(leaves, condition, body)
    outs = WhileLoop(condition.graph, body.graph, condition_takes, body_takes)(*inputs)
    return given.filled(tuple(outs))


def _refuse_draws(blocks: object) -> None:
    if blocks:
        raise GraphError(
            "WhileLoop draws random numbers in its body; in a graph it cannot, because its trip "
            "count is unknown: draw before the loop, or use ops.scan, all of whose steps run"
        )


# --- Scan -----------------------------------------------------------------------------------------


class Scan(Nested):
    """The graph `body`, run `length` times: the carry at the end, and the stacked rows.

    Inputs: `carried` initial values; `scanned` arrays of which step t gets row t, or, with
    `reverse`, row length - 1 - t; then values that every step gets as they are. The body takes
    these in this order, and gives the next carried values, then rows of the outputs. ShapeError
    where a scanned array has not `length` rows.
    """

    body: Any
    length: int
    carried: int
    scanned: int
    reverse: bool = False

    def infer_shape(self, *values: Shape) -> tuple[Shape, ...]:
        first, last = self.carried, self.carried + self.scanned
        for i, shape in enumerate(values[first:last], first):
            if shape[:1] != (self.length,):
                raise ShapeError(
                    f"Scan of length {self.length} got input {i} of shape {shape} to scan over; "
                    f"its first extent is {self.length}"
                )
        rows = [shape[1:] for shape in values[first:last]]
        self.fed((*values[:first], *rows, *values[last:]))
        stacked = [(self.length, *v.abstract.shape) for v in self.body.outputs[first:]]
        return (*values[:first], *stacked)

    def fed(self, operands: tuple[Any, ...]) -> None:
        """Refuse a body that changes the carried types, too."""
        super().fed(operands)
        carried = slice(self.carried)
        before, after = types(self.body.inputs[carried]), types(self.body.outputs[carried])
        agree(self.name, "the loop", before, "body", after)


def scan(
    f: Step, init: Tree, xs: Tree = None, length: int | None = None, reverse: bool = False
) -> tuple[Tree, Tree]:
    """(ys, carry): f(carry, x) -> (carry, y) for each row x of xs, beginning with carry = init.

    ys stacks the y of all steps along a new first axis; the carry returned is the last. init, xs
    and y are trees of tensors (Python numbers in init and y become tensors) or None; f keeps
    structure, shapes and dtypes of the carry. length: of the first axis of xs, and needed where
    xs has no leaf. reverse: begin with the last row; ys has the order of xs.

    Eagerly this is a Python loop. In a graph f is traced and compiled once, whatever the length,
    with a gradient, which is a scan of its own; f may use values from outside and draw random
    numbers, but not assign parameters. ShapeError or DTypeError, naming the leaf, where the carry
    changes its type or rows do not fit.

    >>> ys, total = scan(lambda carry, x: (carry + x, carry), 0.0, np.arange(4, dtype=np.float32))
    >>> ys.tolist(), total.item()
    ([0.0, 0.0, 1.0, 3.0], 6.0)
    """
    function("Scan", "f", f)
    first, reverse = tensors("Scan", init), flag("Scan", "reverse", reverse)
    steps = _length(xs, length)
    loop = _stepped if computes_at_once() and steps else _traced
    carry, ys = loop(f, first, xs, steps, reverse)
    return ys, carry


def _length(xs: Tree, length: int | None) -> int:
    """The number of steps; ShapeError unless all leaves of xs agree with it."""
    named = {} if length is None else {"length": integer("Scan", "length", length)}
    for accessor, leaf in zip(optree.tree_accessors(xs), optree.tree_leaves(xs), strict=True):
        if not hasattr(leaf, "dtype") or not np.shape(leaf):
            raise ShapeError(
                f"Scan got {accessor.codify('xs')} = {leaf!r}, which has no axis to scan over; give"
                " an array with one row for each step, and let f use all else from outside"
            )
        named[accessor.codify("xs")] = np.shape(leaf)[0]
    if not named:
        raise ShapeError("Scan got neither xs nor a length; give one of them")
    if len(set(named.values())) > 1:
        got = ", ".join(f"{name} of {n}" for name, n in named.items())
        raise ShapeError(f"Scan got different lengths: {got}; all first extents are equal")
    count = next(iter(named.values()))
    if count < 0:
        raise ShapeError(f"Scan got length={count}; a number of steps is not below 0")
    return count


def _stepped(f: Step, carry: Tree, xs: Tree, count: int, reverse: bool) -> tuple[Tree, Tree]:
    """The loop in Python, op by op."""
    leaves, structure = optree.tree_flatten(xs)
    rows = [unstack(x) for x in leaves]
    ys: list[Tree] = []
    checked = _steady(lambda carry, result: _pair(carry, result, ys))
    for t in reversed(range(count)) if reverse else range(count):
        try:
            x = structure.unflatten([row[t] for row in rows])
            carry, y = checked(carry, f(carry, x))
        except Exception as error:
            note_step(error, "scan", t)
            raise
        ys.append(y)
    if reverse:
        ys.reverse()
    return carry, optree.tree_map(lambda *parts: stack(parts), *ys)


def _traced(f: Step, carry: Tree, xs: Tree, count: int, reverse: bool) -> tuple[Tree, Tree]:
    """The loop as one primitive."""
    before, rows = tensor_leaves(carry), tensor_leaves(xs)
    first, scanned = before.taken(), rows.taken()
    given = [*first, *(Abstract(np.shape(x)[1:], canonical(x.dtype)) for x in scanned)]

    def step(*leaves: Any) -> Tree:
        value = before.filled(leaves[: len(first)])
        return _pair(value, f(value, rows.filled(leaves[len(first) :])))

    body = traced(step, given, "body")
    graph, per_step, captures = _drawing(body, len(given), count, reverse)
    scanned = [*scanned, *per_step]
    primitive = Scan(graph, count, len(first), len(scanned), reverse)
    return body.structure.unflatten(primitive(*first, *scanned, *captures))  # type: ignore[no-any-return]


def _drawing(
    body: Traced, first: int, count: int, reverse: bool
) -> tuple[Any, list[Any], list[Any]]:
    """The body's graph; the generator states per step to scan over, one array for each random
    stream that it draws from; and its other captures. first: the captures' position in the inputs.
    """
    inputs, captures, trace = list(body.graph.inputs), list(body.captures), current_trace()
    states = []
    for generator, blocks in body.blocks.items():
        steps = np.arange(count)[::-1] if reverse else np.arange(count)
        state, _ = trace.reserve(0, generator)
        at = next(i for i, value in enumerate(captures) if value is state)
        inputs.insert(first, inputs.pop(first + at))
        skipped = np.stack([np.zeros_like(steps), steps * blocks], 1).astype(np.uint64)
        states.append(add(captures.pop(at), skipped))
        trace.reserve(blocks * count, generator)
        first += 1
    return replace(body.graph, inputs=tuple(inputs)), states, captures


def _pair(carry: Tree, result: Any, ys: Sequence[Tree] = ()) -> tuple[Tree, Tree]:
    """The pair that f returned for the carry, checked, y against the first of the ys before."""
    if not isinstance(result, tuple) or len(result) != 2:
        raise ShapeError(
            f"Scan f returned {type(result).__name__}; it returns a pair (carry, y), with None for "
            "a y that nobody needs"
        )
    after, y = kept("Scan", "carry", carry, result[0]), tensors("Scan", result[1])
    return after, keeps("Scan", "y", ys[0], y) if ys else y


# --- Tracing of branches and bodies ---------------------------------------------------------------


@dataclass(frozen=True)
class Traced:
    """A function as a graph. structure: of its result. blocks: the number of blocks of random
    numbers that it draws from each generator."""

    graph: Any
    captures: list[Any]
    blocks: dict[Any, int]
    structure: Any


def traced(fn: Callable[..., Tree], leaves: Sequence[Any], name: str) -> Traced:
    """The function of tensors as a graph of the current trace."""
    structures: list[Any] = []

    def body(*tensors: Any) -> list[Any]:
        outputs, structure = optree.tree_flatten(fn(*tensors))
        structures.append(structure)
        return outputs

    body.__name__ = name
    return Traced(*current_trace().graph_of(body, leaves), structures[0])


def merged(leaves: list[Any], *parts: Traced) -> tuple[list[Any], list[tuple[int, ...]]]:
    """The leaves and all captures, each once, and the positions of those that each part takes."""
    inputs, position = list(leaves), {}
    takes = []
    for part in parts:
        for value in part.captures:
            if id(value) not in position:
                position[id(value)] = len(inputs)
                inputs.append(value)
        takes.append((*range(len(leaves)), *(position[id(v)] for v in part.captures)))
    return inputs, takes


def tensor_leaves(tree: Tree) -> Partition:
    """The tree, its tensors and arrays apart."""
    return partition(tree, lambda leaf: hasattr(leaf, "dtype"))


def known_truth(name: str, pred: Any) -> bool | None:
    """The truth of a bool of one element, None where a graph that is being traced computes it."""
    shape = getattr(pred, "shape", ())
    if any(n != 1 for n in shape):
        raise ShapeError(
            f"{name} needs a condition of one element; got shape {shape}; reduce it, as with .all()"
        )
    if not isinstance(pred, (bool, np.bool_)) and getattr(pred, "dtype", None) != bool_:
        raise DTypeError(
            f"{name} needs a bool as its condition; got {_kind(pred)}; compare it with something, "
            "as in x > 0"
        )
    try:
        return bool(pred)
    except TracedValueError:
        return None


def checked_truth(name: str, check: Any) -> bool | None:
    """`known_truth` of a check, which a plan makes sure of whenever it runs."""
    return current_trace().assume(check) or known_truth(name, check)


def _kind(value: Any) -> str:
    if hasattr(value, "dtype"):
        return f"{value.dtype}[{', '.join(map(str, np.shape(value)))}]"
    return f"{type(value).__name__} {value!r}"


def truth(pred: Any) -> Any:
    """The condition, a bool of one element, as one of shape ()."""
    return pred if np.shape(pred) == () else reshape(pred, ())


def tensors(name: str, tree: Tree) -> Tree:
    """The tree with Python numbers as tensors, and parameters as the values they have now;
    DTypeError for leaves that are not tensors."""

    def tensor(value: Any) -> Any:
        if type(value) is Tensor:  # the common case
            return value
        if hasattr(type(value), "set_data"):  # a tensor has a hint for a name that it lacks
            return current_trace().stand_in(value)
        if hasattr(value, "dtype"):
            return value
        if not isinstance(value, (bool, int, float)):
            raise DTypeError(
                f"{name} got {value!r} of type {type(value).__name__} among its values; they are "
                "tensors, arrays and numbers; what does not change belongs in the functions"
            )
        return full((), value)

    return optree.tree_map(tensor, tree)


def outcome(name: str, tree: Tree) -> Tree:
    """The results of a branch, as tensors; under autocast, 16-bit floats are cast to float32, so
    that branches agree whichever of them multiplies."""
    results, low = tensors(name, tree), current().autocast
    if not low:
        return results
    return optree.tree_map(lambda x: cast(x, float32) if x.dtype == low else x, results)


def kept(name: str, what: str, before: Tree, after: Tree) -> Tree:
    """`after`, which the body of a loop returned for `before`, with floats that autocast brought
    to 16 bits cast back, and dicts in the order of `before`. ShapeError or DTypeError, naming the
    leaf of `what`, where types differ, or where they are no tensors."""
    after = tensors(name, after)
    if current().autocast and optree.tree_structure(before) == optree.tree_structure(after):
        after = optree.tree_map(_as_before, before, after)
    return keeps(name, what, before, after)


def _as_before(before: Any, after: Any) -> Any:
    narrowed = after.dtype == current().autocast and before.dtype in FLOATS
    return cast(after, before.dtype) if narrowed and before.dtype != after.dtype else after


# --- Checks of types ------------------------------------------------------------------------------


def _steady(check: Callable[[Tree, Tree], Tree]) -> Callable[[Tree, Tree], Tree]:
    """`check(before, after)`, which is asked only for an `after` that has not the structure and the
    types of the last one that it gave."""
    structure: Any = None
    known: object = None

    def checked(before: Tree, after: Tree) -> Tree:
        nonlocal structure, known
        leaves, given = optree.tree_flatten(after)
        if given == structure and _kinds(leaves) == known:
            return structure.unflatten(leaves)
        after = check(before, after)
        leaves, structure = optree.tree_flatten(after)
        known = _kinds(leaves)
        return after

    return checked


def _kinds(leaves: Sequence[Any]) -> object:
    """An object that is equal for tensors of equal types, and for no arrays and numbers."""
    try:
        return [x._kind or x._abstract for x in leaves]
    except AttributeError:
        return object()


def keeps(name: str, what: str, before: Tree, after: Tree) -> Tree:
    """`after` in the very structure of `before`. ShapeError or DTypeError, naming the leaf of
    `what`, unless both have the same types."""
    left, structure = optree.tree_flatten(before)
    right, other = optree.tree_flatten(after)
    if structure != other:
        raise ShapeError(
            f"{name} body returns {other} for {structure}; it keeps the structure of its {what}"
        )

    agree(
        name, "the loop", list(map(typed, left)), "body", list(map(typed, right)),
        lambda i: optree.tree_accessors(before)[i].codify(what),
    )  # fmt: skip
    return structure.unflatten(right)


def typed(value: Any) -> tuple[str, Shape]:
    """The dtype's name and the shape."""
    return value.dtype.name, tuple(value.shape)


def types(variables: Any) -> list[tuple[str, Shape]]:
    """The dtypes' names and the shapes of a graph's values."""
    return [typed(v.abstract) for v in variables]


def agree(
    name: str,
    left: str,
    ours: Sequence[Any],
    right: str,
    theirs: Sequence[Any],
    leaf: Callable[[int], str] = "value {}".format,
) -> None:
    """ShapeError or DTypeError for the first difference between two lists of types; leaf: the name
    of the value at an index."""
    if len(ours) != len(theirs):
        raise ShapeError(f"{name} {left} has {len(ours)} values and {right} {len(theirs)}")
    for i, (one, two) in enumerate(zip(ours, theirs, strict=True)):
        if one != two:
            shown = [f"{dtype}[{', '.join(map(str, shape))}]" for dtype, shape in (one, two)]
            raise (DTypeError if one[1] == two[1] else ShapeError)(
                f"{name} {leaf(i)} is {shown[0]} in {left} and {shown[1]} in {right}; make them "
                "equal, as with ops.cast or ops.reshape"
            )


def feeds(
    name: str, label: str, graph: Any, takes: tuple[int, ...], given: tuple[Any, ...]
) -> None:
    """ShapeError or DTypeError unless `given` (shapes, or dtypes) has what the graph takes."""
    if len(takes) != len(graph.inputs) or any(not 0 <= i < len(given) for i in takes):
        raise ShapeError(
            f"{name} {label} takes {len(graph.inputs)} inputs, from positions {takes} of the "
            f"{len(given)} given; give a position for each"
        )
    for i, var in zip(takes, graph.inputs, strict=True):
        got = given[i]
        by_shape = isinstance(got, tuple)
        if got != (var.abstract.shape if by_shape else var.abstract.dtype):
            raise (ShapeError if by_shape else DTypeError)(
                f"{name} {label} was traced for {var.abstract} at position {i}; got "
                f"{got if by_shape else got.name}; trace it for that"
            )
