"""The page of operations lists every function of `ops`, as it is now."""

import importlib
import inspect
import re
from functools import reduce

import pytest

from docs import operations
from miniml import ops
from miniml.errors import MinimlError

ROWS = list(operations.rows())
ROOTS = {"np": "numpy", "jnp": "jax.numpy", "F": "torch.nn.functional", "lax": "jax.lax"}
ROOTS |= {"nn": "jax.nn", "scipy": "jax.scipy"}


def test_every_function_has_one_row():
    functions = {
        name
        for name in dir(ops)
        if callable(getattr(ops, name)) and not inspect.isclass(getattr(ops, name))
    }
    assert sorted(row.name for row in ROWS) == sorted(functions)


def test_the_page_has_the_rows_and_their_formulas():
    page = operations.PAGE.read_text("utf-8")
    for row in ROWS:
        start = f"| `{row.name}` | {row.formula.replace('|', chr(92) + '|')} |"
        assert start in page, f"{row.name}: run python -m docs.operations"


@pytest.mark.deep
def test_the_page_says_what_calls_do_now():
    assert operations.PAGE.read_text("utf-8") == operations.page(), "run python -m docs.operations"


@pytest.mark.parametrize(("place", "library"), [(0, "numpy"), (1, "torch"), (2, "jax")])
def test_the_other_libraries_have_the_names(place, library):
    pytest.importorskip(library, reason=f"no {library}")
    for row in ROWS:
        if row.others[place]:
            first, *rest = row.others[place].split(".")
            root = importlib.import_module(ROOTS.get(first, first))
            assert reduce(getattr, rest, root), row.name


@pytest.mark.parametrize("wrong", [None, "a", {"a": 1}], ids=["None", "str", "dict"])
def test_what_is_no_tensor_is_refused_by_every_function(wrong):
    """In place of each tensor that an example passes as it is; `while_loop` compares it first."""
    given = operations.values("float32")
    for row in ROWS:
        for name in operations.numbers(row, given) if row.example else ():
            uses = re.findall(rf"(?<![=\w]){name}(?!\w).?", row.example)
            if row.name == "while_loop" or not {use[-1] for use in uses} <= set(",)]"):
                continue
            try:
                operations.call(row, given)(**{name: wrong})
            except MinimlError:
                continue
            pytest.fail(f"{row.example} takes {name}={wrong!r}")
