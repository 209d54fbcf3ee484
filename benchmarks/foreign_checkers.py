"""Planted faults of torch and JAX given to miniml's checkers and to torch's and JAX's own."""

from __future__ import annotations

import contextlib
import io
import sys
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from benchmarks.measure import machine
from benchmarks.peer_gradcheck import present, versions
from miniml.testing import gradcheck, opcheck
from tests.faults import foreign_functions, foreign_operators
from tests.faults.foreign_functions import Row, in_jax, in_torch
from tests.faults.foreign_operators import OperatorRow, operator

DOCUMENT = Path(__file__).resolve().parents[1] / "docs" / "checking.md"
BEGIN, END = "<!-- foreign checkers: begin -->", "<!-- foreign checkers: end -->"


def complains(check: Callable[[], object]) -> bool:
    """True where a check raises or returns something false other than None."""
    with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
        warnings.simplefilter("ignore")
        try:
            found = check()
        except Exception:
            return True
    return found is not None and not found


def by_us_in_torch(row: Row) -> bool:
    function, xs = in_torch(row)
    return complains(lambda: gradcheck(function, *[x.detach() for x in xs]))


def by_torch(row: Row) -> bool:
    import torch  # noqa: PLC0415

    function, xs = in_torch(row)
    return complains(lambda: torch.autograd.gradcheck(function, xs))


def by_us_in_jax(row: Row) -> bool:
    import jax  # noqa: PLC0415

    with jax.enable_x64(True):
        function, xs = in_jax(row)
        return complains(lambda: gradcheck(function, *xs))


def by_jax(row: Row) -> bool:
    import jax  # noqa: PLC0415
    from jax.test_util import check_grads  # noqa: PLC0415

    with jax.enable_x64(True):
        function, xs = in_jax(row)
        return complains(lambda: check_grads(function, tuple(xs), 1, modes=["rev"]))


def by_us_of_operators(row: OperatorRow) -> bool:
    import torch  # noqa: PLC0415

    inputs = tuple(map(torch.tensor, row.point()))
    report = opcheck(operator(row), inputs=inputs, raise_error=False)
    return bool(report.findings) if row.check else not report.ok


def by_torch_of_operators(row: OperatorRow) -> bool:
    import torch  # noqa: PLC0415

    follows = row.backward is not None
    inputs = [torch.tensor(x, requires_grad=follows) for x in row.point()]
    return complains(lambda: torch.library.opcheck(operator(row), inputs) and None)


def by_both_of_torch(row: OperatorRow) -> bool:
    import torch  # noqa: PLC0415

    if by_torch_of_operators(row):
        return True
    inputs = [torch.tensor(x, requires_grad=True) for x in row.point()]
    op = operator(row)
    return row.backward is not None and complains(lambda: torch.autograd.gradcheck(op, inputs))


GROUPS: dict[str, tuple[Any, Sequence[tuple[str, Any]]]] = {
    "`torch.autograd.Function`": (
        foreign_functions,
        [("miniml gradcheck", by_us_in_torch), ("torch.autograd.gradcheck", by_torch)],
    ),
    "JAX `custom_vjp`": (
        foreign_functions,
        [("miniml gradcheck", by_us_in_jax), ("jax check_grads", by_jax)],
    ),
    "`torch.library` operator": (
        foreign_operators,
        [
            ("miniml opcheck", by_us_of_operators),
            ("torch.library.opcheck", by_torch_of_operators),
            ("torch.library.opcheck and torch.autograd.gradcheck", by_both_of_torch),
        ],
    ),
}


def table() -> str:
    """The table, and under it what each checker missed or complained about, by name."""
    lines = [
        "| planted in | checker | found | missed | alarms on right ones |",
        "|---|---|---|---|---|",
    ]
    named = []
    for group, (corpus, checkers) in GROUPS.items():
        for name, says in checkers:
            missed = [row.name for row in corpus.WRONG if not says(row)]
            alarms = [row.name for row in corpus.RIGHT if says(row)]
            count = len(corpus.WRONG)
            found = f"{count - len(missed)} of {count} | {len(missed)}"
            lines.append(f"| {group} | {name} | {found} | {len(alarms)} of {len(corpus.RIGHT)} |")
            for what, names in (("missed", missed), ("alarms", alarms)):
                if names:
                    named.append(f"- {name}, {group}, {what}: {', '.join(names)}")
    return "\n".join([*lines, "", *named])


def run() -> None:
    """Print the table, and store it in docs/checking.md."""
    if not (present("torch") and present("jax")):
        sys.exit("this needs torch and jax, whose checkers are compared")
    new = f"Measured on {machine()}; {versions()}.\n\n{table()}"
    print(new)
    old = DOCUMENT.read_text("utf-8")
    before, rest = old.split(BEGIN)
    DOCUMENT.write_text(f"{before}{BEGIN}\n\n{new}\n\n{END}{rest.split(END)[1]}", "utf-8")


if __name__ == "__main__":
    run()
