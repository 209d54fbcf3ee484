"""What the tests of the core share."""

import pytest

import miniml as ml
import miniml.backends.cuda.kernels  # once: what a test registers is gone after it
from miniml.backends import registry
from miniml.backends.expressions import table as expressions
from miniml.core.primitive import primitives
from miniml.core.scope import epoch


@pytest.fixture
def tables_as_before():
    """The table is as before after each test; programs see that it changed."""
    table = {key: list(entries) for key, entries in registry.table.items()}
    others = registry.specs, primitives, expressions, registry.replaced
    copies = [table, *map(dict, others)]
    yield
    for now, before in zip((registry.table, *others), copies, strict=True):
        now.clear()
        now.update(before)
    epoch.bump("kernels")


@pytest.fixture(params=["eager", "graph mode", "jit"])
def run(request):
    """Calls a function in one of the modes."""
    mode = ml.GRAPH_MODE if request.param == "graph mode" else ml.PYNATIVE_MODE
    with ml.context(mode=mode):
        yield ml.jit if request.param == "jit" else lambda f: f
