"""State and control: assign, stop_gradient, and the branches and loops of graphs."""

from __future__ import annotations

from collections.abc import Callable
from operator import index
from typing import TYPE_CHECKING, Any

from ..abstract import Shape
from ..dtype import DType, bool_
from ..errors import DTypeError, GraphError, ImmutableError, ShapeError
from ..location import note_step
from ..primitive import Primitive
from ..trace import current_trace
from .compare import logical_and
from .inference.bases import Unary
from .inference.bodies import (
    Traced,
    Tree,
    agree,
    feeds,
    kept,
    known_truth,
    merged,
    outcome,
    tensor_leaves,
    tensors,
    traced,
    truth,
    types,
)
from .inference.shapes import needs_float
from .scan import scan

if TYPE_CHECKING:
    from ..tensor import Tensor

__all__ = [
    "Assign", "Barrier", "Cond", "Fused", "StopGradient", "WhileLoop",
    "assign", "barrier", "cond", "stop_gradient", "while_loop",
]  # fmt: skip


class Assign(Primitive):
    """Make `value` the parameter's data, for everything that reads it later; returns the value.

    Shapes and dtypes must be equal: a parameter keeps both.
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


class StopGradient(Unary):
    """x itself, through which no gradient passes."""

    differentiable = False


class Barrier(Primitive):
    """x itself, as a value of its own, which exists only when `after` does; both are floats.

    So what a graph computes of it is not shared with what it computes of x, and comes later.
    """

    def infer_shape(self, x: Shape, after: Shape) -> Shape:
        return x

    def infer_dtype(self, x: DType, after: DType) -> DType:
        needs_float("Barrier", after)
        return needs_float("Barrier", x)


def barrier(x: Any, after: Any) -> Tensor:
    """x itself, in a graph as a new value that is not there before `after` is; both are floats."""
    return Barrier()(x, after)


def assign(parameter: Any, value: Any) -> Tensor:
    """Make `value` the parameter's data, for everything that reads it later; returns the value.

    Shapes and dtypes must be equal: a parameter keeps both. ImmutableError for a tensor that is
    no Parameter.
    """
    if not hasattr(parameter, "set_data"):
        raise ImmutableError(
            f"Assign got {type(parameter).__name__} to assign to, which never changes; give a "
            "Parameter"
        )
    return Assign()(parameter, value)


stop_gradient = StopGradient()


class Cond(Primitive):
    """The outputs of the graph `on_true` where pred holds, of the graph `on_false` where not.

    Inputs: pred, a bool of shape (), then operands; a branch gets those whose positions stand in
    `true_takes` or `false_takes`. Both branches have outputs of equal shapes and dtypes.
    """

    outputs = "*parts"
    on_true: Any
    on_false: Any
    true_takes: tuple[int, ...]
    false_takes: tuple[int, ...]

    def infer_shape(self, pred: Shape, *operands: Shape) -> tuple[Shape, ...]:
        if pred != ():
            raise ShapeError(f"Cond needs pred of shape (); got {pred}; reduce it, as with .all()")
        feeds(self.name, "on_true", self.on_true, self.true_takes, operands)
        feeds(self.name, "on_false", self.on_false, self.false_takes, operands)
        agree(
            self.name,
            "on_true",
            types(self.on_true.outputs),
            "on_false",
            types(self.on_false.outputs),
        )
        return tuple(v.abstract.shape for v in self.on_true.outputs)

    def infer_dtype(self, pred: DType, *operands: DType) -> tuple[DType, ...]:
        if pred != bool_:
            raise DTypeError(f"Cond needs pred of bool; got {pred.name}; compare it with something")
        feeds(self.name, "on_true", self.on_true, self.true_takes, operands)
        feeds(self.name, "on_false", self.on_false, self.false_takes, operands)
        return tuple(v.abstract.dtype for v in self.on_true.outputs)


class WhileLoop(Primitive):
    """The values that the graph `body` leaves when the graph `condition` no longer holds of them.

    Inputs: the loop's first values, one per output of `body`, then what the two graphs capture;
    each gets those whose positions stand in `condition_takes` or `body_takes`. `condition` gives
    one bool of shape (); `body` gives values of the same shapes and dtypes.
    """

    outputs = "*parts"
    condition: Any
    body: Any
    condition_takes: tuple[int, ...]
    body_takes: tuple[int, ...]

    def infer_shape(self, *values: Shape) -> tuple[Shape, ...]:
        feeds(self.name, "condition", self.condition, self.condition_takes, values)
        feeds(self.name, "body", self.body, self.body_takes, values)
        going = [str(v.abstract) for v in self.condition.outputs]
        if going != ["bool[]"]:
            raise ShapeError(
                f"WhileLoop condition gives {', '.join(going) or 'nothing'}; it must give "
                "one bool[]"
            )
        return self._carried(values)

    def infer_dtype(self, *values: DType) -> tuple[DType, ...]:
        feeds(self.name, "condition", self.condition, self.condition_takes, values)
        feeds(self.name, "body", self.body, self.body_takes, values)
        return self._carried(values)

    def _carried(self, values: tuple[Any, ...]) -> tuple[Any, ...]:
        """What the loop carries, if the body gives back what it takes."""
        count = len(self.body.outputs)
        taken = {i: v for i, v in zip(self.body_takes, self.body.inputs, strict=True) if i < count}
        given = {i: v for i, v in enumerate(self.body.outputs) if i in taken}
        agree(self.name, "the loop", types(taken.values()), "body", types(given.values()))
        return values[:count]


class Fused(Primitive):
    """The outputs of the graph `body`, whose nodes run one after another.

    Inputs: those of `body`, which reads no parameter. Lowering makes such nodes; they have no
    gradient.
    """

    outputs = "*parts"
    differentiable = False
    body: Any

    def infer_shape(self, *operands: Shape) -> tuple[Shape, ...]:
        feeds(self.name, "body", self.body, tuple(range(len(operands))), operands)
        return tuple(v.abstract.shape for v in self.body.outputs)

    def infer_dtype(self, *operands: DType) -> tuple[DType, ...]:
        feeds(self.name, "body", self.body, tuple(range(len(operands))), operands)
        return tuple(v.abstract.dtype for v in self.body.outputs)


def cond(
    pred: Any, on_true: Callable[..., Tree], on_false: Callable[..., Tree], *operands: Tree
) -> Tree:
    """`on_true(*operands)` if pred is true, else `on_false(*operands)`; only one is computed.

    pred: a bool tensor of one element, or a Python bool, else DTypeError. operands and results are
    trees of tensors. Where pred is known, eagerly that is, the branch is called as it is. In a
    graph both are traced, and return equal structures, shapes and dtypes; they may use values from
    outside, but not assign parameters; and both draw equally many random numbers or none.

    >>> cond(True, lambda x: x + 1.0, lambda x: x * 2.0, 5.0)
    Tensor(6., shape=(), dtype=float32)
    """
    chosen = known_truth("Cond", pred)
    if chosen is not None:
        return outcome("Cond", (on_true if chosen else on_false)(*operands))
    given = tensor_leaves(operands)
    leaves = given.taken()
    yes = traced(lambda *xs: outcome("Cond", on_true(*given.filled(xs))), leaves, "on_true")
    no = traced(lambda *xs: outcome("Cond", on_false(*given.filled(xs))), leaves, "on_false")
    if yes.structure != no.structure:
        raise ShapeError(
            f"Cond got on_true, which returns {yes.structure}, and on_false, which returns "
            f"{no.structure}; branches return equal structures"
        )
    if yes.blocks != no.blocks:
        raise GraphError(
            f"Cond got branches that draw {_counted(yes)} and {_counted(no)} blocks of random "
            "numbers; in a graph both draw equally many of each generator: draw before the cond, "
            "and pass the draws to it"
        )
    for generator, blocks in yes.blocks.items():
        current_trace().reserve(blocks, generator)
    inputs, (true_takes, false_takes) = merged(leaves, yes, no)
    outs = Cond(yes.graph, no.graph, true_takes, false_takes)(truth(pred), *inputs)
    return yes.structure.unflatten(outs)


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
    gradient in a graph too: it is a scan over that many steps, of which those after the end do
    next to nothing, but keep a row of values each.

    >>> while_loop(lambda x: x < 100.0, lambda x: x * 2.0, 3.0)
    Tensor(192., shape=(), dtype=float32)
    """
    value = tensors("WhileLoop", init)

    def step(before: Tree) -> Tree:
        return kept("WhileLoop", "value", before, tensors("WhileLoop", body_fn(before)))

    done, bound = 0, None if max_iterations is None else index(max_iterations)
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
    """The loop as a scan that carries whether it is still going on."""

    def drawless(before: Tree) -> Tree:
        _, drawn = current_trace().reserve(0)
        after = step(before)
        _refuse_draws(current_trace().reserve(0)[1] - drawn)
        return after

    def advance(carry: Tree, _: None) -> Tree:
        going = logical_and(carry[0], truth(cond_fn(carry[1])))
        return (going, cond(going, drawless, lambda same: same, carry[1])), None

    return scan(advance, (True, value), length=count)[1][1]


def _unbounded(cond_fn: Callable[[Tree], Any], step: Callable[[Tree], Tree], value: Tree) -> Tree:
    """The loop as one primitive, for the values it has reached."""
    given = tensor_leaves(value)
    leaves = given.taken()
    condition = traced(lambda *xs: truth(cond_fn(given.filled(xs))), leaves, "condition")
    body = traced(lambda *xs: step(given.filled(xs)), leaves, "body")
    _refuse_draws(condition.blocks | body.blocks)
    inputs, takes = merged(leaves, condition, body)
    outs = WhileLoop(condition.graph, body.graph, *takes)(*inputs)
    return given.filled(tuple(outs))


def _counted(branch: Traced) -> str:
    return " + ".join(map(str, branch.blocks.values())) or "0"


def _refuse_draws(blocks: object) -> None:
    if blocks:
        raise GraphError(
            "WhileLoop draws random numbers in its body; in a graph it cannot, because its trip "
            "count is unknown: draw before the loop, or use ops.scan, all of whose steps run"
        )
