"""What the tests of the core share."""

import pytest

import miniml as ml
from miniml.backends import registry
from miniml.primitive import primitives


@pytest.fixture
def tables_as_before():
    """The table is as before after each test; programs see that it changed."""
    table = {key: list(entries) for key, entries in registry.table.items()}
    specs, known = dict(registry.specs), dict(primitives)
    yield
    for now, before in ((registry.table, table), (registry.specs, specs), (primitives, known)):
        now.clear()
        now.update(before)
    registry.version += 1


@pytest.fixture(params=["eager", "graph mode", "jit"])
def run(request):
    """Calls a function in one of the modes."""
    mode = ml.GRAPH_MODE if request.param == "graph mode" else ml.PYNATIVE_MODE
    with ml.context(mode=mode):
        yield ml.jit if request.param == "jit" else lambda f: f
