"""Values, gradients and final parameters of a program, by its pure function and in each mode."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import autograd
import autograd.numpy as anp
import numpy as np

import miniml as ml
from miniml import ops
from miniml.grad import value_and_grad
from tests.stateful.machines import Autograd, Functional, Stateful
from tests.stateful.programs import PARAMETERS, SIZE, Block, execute, run

Function = Callable[..., Any]


def at_once(fn: Function) -> Function:
    return fn


def op_by_op(fn: Function) -> Function:
    def run(*args: Any) -> Any:
        with ml.context(jit=False):
            return fn(*args)

    return run


def in_graph_mode(fn: Function) -> Function:
    def run(*args: Any) -> Any:
        with ml.context(mode=ml.GRAPH_MODE):
            return fn(*args)

    return run


MODES = {"eager": at_once, "jit": ml.jit, "graph mode": in_graph_mode, "jit=False": op_by_op}
"""How a function may be run."""


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


def exchanges(block: Block, given: Sequence[Any], calls: int = 3) -> None:
    """AssertionError unless a compiled program computes and leaves what the pure function does, at
    each of several calls; it runs where the context says."""
    params = [ml.Parameter(v) for v in given[1:]]
    program = ml.jit(lambda x: run(Stateful(params), block, [x]) * 1.0)
    x, machine = ml.Tensor(given[0]), Autograd(given[1:])
    for _ in range(calls):
        out, expected = program(x), run(machine, block, [given[0]])
        np.testing.assert_allclose(out, expected, 1e-9)
        np.testing.assert_allclose([p.asnumpy() for p in params], machine.state, 1e-9)


def _found(value: Any, gradients: Sequence[Any], state: Sequence[Any]) -> Found:
    return Found(float(value), [np.array(g) for g in gradients], [np.array(s) for s in state])
