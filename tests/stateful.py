"""Small random programs that read and assign parameters, and two ways to run each of them.

`Stateful` runs a program as users write it: parameters are read where they stand and changed by
`ops.assign`. `Functional` runs the same program as a pure function, with what the parameters hold
passed by hand; it can be differentiated by miniml, and by HIPS autograd, which knows nothing of
parameters at all.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import autograd
import autograd.numpy as anp
import numpy as np
from autograd.builtins import tuple as autograd_tuple
from autograd.core import make_vjp
from autograd.extend import vspace
from autograd.tracer import getval

import miniml as ml
from miniml import ops
from miniml.grad import value_and_grad, vjp

PARAMETERS, SIZE = 3, 2
Ref = tuple[str, int]  # ("p", k): parameter k, read here; ("v", i): the value of statement i
Statement = tuple[Any, ...]


@dataclass(frozen=True)
class Block:
    """Statements, each of which gives one value, and the value of the whole."""

    statements: tuple[Statement, ...]
    result: Ref


def draw(rng: np.random.Generator, length: int = 6) -> Block:
    """A program of one input, which is its value 0. It first reads every parameter."""
    kinds = rng.integers(3, size=PARAMETERS)
    reads = tuple(("binary", int(kind), ("v", 0), ("p", k)) for k, kind in enumerate(kinds))
    rest = _block(rng, 1 + PARAMETERS, length, 2, assigns=True)
    return Block((*reads, *rest.statements), rest.result)


def _block(rng: Any, known: int, length: int, depth: int, assigns: bool) -> Block:
    statements = []
    for _ in range(length):
        made = _statement(rng, known, depth, assigns)
        statements.append(made)
        known += 2 if made[0] == "pull" else 1
    return Block(tuple(statements), ("v", known - 1) if rng.random() < 0.7 else _ref(rng, known))


def _ref(rng: Any, known: int) -> Ref:
    if rng.random() < 0.4:
        return "p", int(rng.integers(PARAMETERS))
    return "v", max(0, known - 1 - int(rng.geometric(0.5)) + 1)


def _statement(rng: Any, known: int, depth: int, assigns: bool) -> Statement:
    kinds = ["unary", "binary", "binary"] + ["assign"] * 3 * assigns
    kinds += ["cond", "pull"] * (depth > 0) + ["for"] * (depth > 0 and assigns)
    kind = kinds[rng.integers(len(kinds))]
    one, two = _ref(rng, known), _ref(rng, known)
    if kind == "unary":
        return kind, int(rng.integers(2)), one
    if kind == "binary":
        return kind, int(rng.integers(4)), one, two
    if kind == "assign":
        return kind, int(rng.integers(PARAMETERS)), one
    if kind == "cond":
        yes, no = (_block(rng, known, 2, depth - 1, assigns=False) for _ in "ab")
        return kind, one, yes, no
    if kind == "for":
        return kind, int(rng.integers(1, 4)), _block(rng, known, 2, depth - 1, assigns=True)
    inner = _block(rng, known + 1, 3, depth - 1, assigns)
    between = _block(rng, known + 1, 2, 0, assigns)
    return kind, one, inner, between, two


class Stateful:
    """The program as it is: parameters are read and assigned."""

    sin, tanh = staticmethod(ops.sin), staticmethod(ops.tanh)

    def __init__(self, parameters: Sequence[ml.Parameter]):
        self.parameters = parameters

    def read(self, k: int) -> Any:
        return self.parameters[k]

    def assign(self, k: int, value: Any) -> Any:
        return ops.assign(self.parameters[k], value)

    def cond(self, of: Any, yes: Callable[[], Any], no: Callable[[], Any]) -> Any:
        return ops.cond(ops.sum(of) > 0.3, yes, no)

    def vjp(self, fn: Callable[[Any], Any], at: Any) -> tuple[Any, Callable[[Any], Any]]:
        out, pull = vjp(fn, at)
        return out, lambda dout: pull(dout)[0]


class Functional:
    """The same as a pure function: `state` is what the parameters hold, `assign` replaces it."""

    sin, tanh = staticmethod(ops.sin), staticmethod(ops.tanh)

    def __init__(self, state: Sequence[Any]):
        self.state = list(state)

    def read(self, k: int) -> Any:
        return self.state[k]

    def assign(self, k: int, value: Any) -> Any:
        self.state[k] = value
        return value

    def cond(self, of: Any, yes: Callable[[], Any], no: Callable[[], Any]) -> Any:
        return yes() if float(ops.sum(of)) > 0.3 else no()

    def threaded(self, fn: Callable[[Any], Any]) -> Callable[[Any], tuple[Any, ...]]:
        """fn as a function that gives the state it leaves, too."""
        before = list(self.state)

        def pure(at: Any) -> tuple[Any, ...]:
            self.state = list(before)
            return fn(at), *self.state

        return pure

    def vjp(self, fn: Callable[[Any], Any], at: Any) -> tuple[Any, Callable[[Any], Any]]:
        (out, *self.state), pull = vjp(self.threaded(fn), at)
        return out, lambda dout: pull((dout, *[None] * PARAMETERS))[0]


class Autograd(Functional):
    """The pure function for HIPS autograd."""

    sin, tanh = staticmethod(anp.sin), staticmethod(anp.tanh)

    def cond(self, of: Any, yes: Callable[[], Any], no: Callable[[], Any]) -> Any:
        while hasattr(of, "_value"):
            of = getval(of)
        return yes() if of.sum() > 0.3 else no()

    def vjp(self, fn: Callable[[Any], Any], at: Any) -> tuple[Any, Callable[[Any], Any]]:
        pure = self.threaded(fn)
        pull, outs = make_vjp(lambda x: autograd_tuple(pure(x)), at)
        out, *self.state = (outs[i] for i in range(1 + PARAMETERS))
        zeros = [vspace(np.zeros(SIZE)).zeros() for _ in range(PARAMETERS)]
        return out, lambda dout: pull(autograd_tuple((dout, *zeros)))


def run(machine: Any, block: Block, values: Sequence[Any]) -> Any:
    """The value of a block where these values are known."""
    kind, which = block.result
    known = execute(machine, block.statements, values)
    return machine.read(which) if kind == "p" else known[which]


def execute(machine: Any, statements: Sequence[Statement], values: Sequence[Any]) -> list[Any]:
    """These values, and those that the statements give."""
    known = list(values)
    for statement in statements:
        known += _executed(machine, statement, known)
    return known


def _executed(machine: Any, statement: Statement, known: list[Any]) -> list[Any]:
    kind, *rest = statement

    def at(ref: Ref) -> Any:
        return machine.read(ref[1]) if ref[0] == "p" else known[ref[1]]

    if kind == "unary":
        return [(machine.sin, machine.tanh)[rest[0]](at(rest[1]))]
    if kind == "binary":
        return [_binary(machine, rest[0], at(rest[1]), at(rest[2]))]
    if kind == "assign":
        return [machine.assign(rest[0], at(rest[1]))]
    if kind == "cond":
        of, yes, no = rest
        branches = [lambda b=b: run(machine, b, known) for b in (yes, no)]
        return [machine.cond(at(of), *branches)]
    if kind == "for":
        return [machine.tanh(run(machine, rest[1], known)) for _ in range(rest[0])][-1:]
    point, inner, between, dout = rest
    out, pull = machine.vjp(lambda y: run(machine, inner, [*known, y]), at(point))
    machine.tanh(run(machine, between, [*known, out]))
    return [pull(at(dout)), out]


def _binary(machine: Any, which: int, x: Any, y: Any) -> Any:
    if which == 0:
        return x * y
    if which == 1:
        return x / (1.0 + y * y)
    return x * (1.0 - 0.5 * y) if which == 2 else machine.sin(x + y)


def start(rng: np.random.Generator) -> list[Any]:
    """An input, and what the parameters hold at first."""
    return [rng.uniform(-1.5, 1.5, SIZE) for _ in range(1 + PARAMETERS)]


def loss(machine: Any, block: Block, x: Any, total: Callable[[Any], Any]) -> Any:
    """One number of all that the program computes and of what it leaves in the parameters."""
    terms = [machine.tanh(v) for v in execute(machine, block.statements, [x])]
    terms += [machine.sin(machine.read(k)) * x for k in range(PARAMETERS)]
    return total(sum(terms[1:], terms[0]))


WEIGHTS = (np.array([0.7, -1.3]), np.array([0.4, 0.9]))  # which second derivatives are looked at


def derivatives(
    value_and_gradients: Callable[..., Any], total: Callable[[Any], Any]
) -> Callable[..., Any]:
    """From a function that gives (value, gradients) to one that gives a number that depends on all
    gradients, whose own gradient is of order 2."""

    def slope(*args: Any) -> Any:
        gradients = value_and_gradients(*args)[1]
        return sum(total(g * WEIGHTS[i % 2]) for i, g in enumerate(gradients))

    return slope


@dataclass
class Found:
    """What a run gave: value, gradients by input and parameters, and what these hold then."""

    value: Any
    gradients: list[Any]
    state: list[Any]

    def compare(self, other: Found, rtol: float = 1e-9, atol: float = 1e-10) -> None:
        """AssertionError where the other differs."""
        for name in ("value", "gradients", "state"):
            one, two = getattr(self, name), getattr(other, name)
            np.testing.assert_allclose(one, two, rtol, atol, err_msg=name)


def by_hand(block: Block, given: Sequence[Any], weights: int, order: int) -> Found:
    """The pure function, differentiated by miniml in its input and so many of the parameters."""

    def pure(x: Any, *state: Any) -> Any:
        machine = Functional(state)
        return loss(machine, block, x, ops.sum), machine.state

    every = tuple(range(1 + weights))
    first = value_and_grad(pure, argnums=every, has_aux=True)
    (value, state), gradients = first(*map(ml.Tensor, given))
    if order == 2:
        slope = derivatives(first, ops.sum)
        value, gradients = value_and_grad(slope, argnums=every)(*map(ml.Tensor, given))
    return _found(value, gradients, state)


def by_autograd(block: Block, given: Sequence[Any], weights: int, order: int) -> Found:
    """The same by HIPS autograd."""
    left: list[Any] = []

    def pure(*args: Any) -> Any:
        machine = Autograd(args[1:])
        value = loss(machine, block, args[0], anp.sum)
        left[:] = machine.state
        return value

    every = tuple(range(1 + weights))
    pure(*given)
    state = list(left)

    def first(*args: Any) -> Any:
        return None, autograd.grad(pure, every)(*args)

    if order == 1:
        return _found(pure(*given), first(*given)[1], state)
    slope = derivatives(first, anp.sum)
    return _found(slope(*given), autograd.grad(slope, every)(*given), state)


def with_parameters(
    block: Block,
    given: Sequence[Any],
    weights: int,
    order: int,
    mode: Callable[..., Any],
    calls: int = 1,
) -> Found:
    """The program with parameters, in some mode: what its last call of several gives, each from
    the same values."""
    params = [ml.Parameter(v, name=f"p{i}") for i, v in enumerate(given[1:])]
    x = ml.Tensor(given[0])
    first = value_and_grad(
        lambda x: loss(Stateful(params), block, x, ops.sum), argnums=0, weights=params[:weights]
    )

    def gradients(x: Any) -> Any:
        value, (dx, by_weight) = first(x)
        return value, (dx, *by_weight)

    slope = value_and_grad(derivatives(gradients, ops.sum), argnums=0, weights=params[:weights])
    fn = mode(first if order == 1 else slope)
    for _ in range(calls):
        for p, v in zip(params, given[1:], strict=True):
            p.set_data(v)
        value, (dx, by_weight) = fn(x)
    return _found(value, (dx, *by_weight), params)


def _found(value: Any, gradients: Sequence[Any], state: Sequence[Any]) -> Found:
    return Found(float(value), [np.array(g) for g in gradients], [np.array(s) for s in state])
