"""The tables of docs/layers.md name every layer, loss and optimizer, as it is called."""

import inspect
import math
import re
from pathlib import Path

import pytest

from miniml import data, nn, optim, train

PAGE = Path(__file__).resolve().parents[2] / "docs" / "layers.md"
TABLES = PAGE.read_text("utf-8").split("## Layers")[1]
CALLS = re.findall(r"(?:\| |(?=`[A-Z]))`(\w+)(\(.*?\))`", TABLES)


def public(module, is_kind):
    """Names of what a module defines, re-exports of its own submodules included."""
    return {
        name
        for name, value in inspect.getmembers(module, is_kind)
        if not name.startswith("_") and value.__module__.startswith(module.__name__)
    }


def arguments(signature):
    """What a caller sees: names, kinds and defaults."""
    return [(p.name, p.kind, p.default) for p in signature.parameters.values()]


@pytest.mark.parametrize(
    ("module", "is_kind"),
    [(nn, inspect.isclass), (optim, inspect.isclass), (nn.init, inspect.isfunction)],
)
def test_tables_name_everything_public(module, is_kind):
    assert public(module, is_kind) <= set(re.findall(r"`([A-Za-z]\w*)[(`]", TABLES))


@pytest.mark.parametrize(("name", "written"), CALLS)
def test_tables_give_signatures(name, written):
    written_as: dict[str, object] = {"math": math}
    exec(f"def call{written}: ...", written_as)
    owner = next(module for module in (nn, optim, train, data, nn.init) if hasattr(module, name))
    found = inspect.signature(getattr(owner, name))
    assert arguments(inspect.signature(written_as["call"])) == arguments(found)
