"""Small random programs over values and parameters: how they are drawn, and executed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

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


def draw_exchange(rng: np.random.Generator) -> Block:
    """A program of one input that computes little and assigns much, also what others hold."""
    statements: list[Statement] = []
    for known in range(1, int(rng.integers(5, 15))):
        one, two = _ref(rng, known), _ref(rng, known)
        if rng.random() < 0.5:
            statements.append(("assign", int(rng.integers(PARAMETERS)), one))
        else:
            statements.append(("binary", int(rng.integers(3)), one, two))
    return Block(tuple(statements), ("v", int(rng.integers(len(statements)))))


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
    return "v", max(0, known - int(rng.geometric(0.5)))


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
