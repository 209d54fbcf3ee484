"""tools/public_names.py: what it lists, and what it rewrites."""

import pytest

from tools import public_names
from tools.public_names import INTERNAL, PRIVATE, ROOT, imports, problems, rewritten


@pytest.fixture
def listed(tmp_path, monkeypatch):
    """The problems of a text that stands in tests/<folder>/test_it.py."""

    def of(text, folder="unit/nn"):
        path = tmp_path / "tests" / folder / "test_it.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        monkeypatch.setattr(public_names, "ROOT", tmp_path)
        return list(problems([path]))

    return of


def test_public_names_by_public_paths_are_fine(listed):
    assert not listed(
        "import miniml as ml\nfrom miniml import nn, ops\nfrom miniml.grad import vjp"
    )


def test_a_public_name_from_where_it_is_defined_is_listed(listed):
    (found,) = listed("import numpy\nfrom miniml.core.tensor import Tensor\n")
    assert found == (
        "tests/unit/nn/test_it.py:2: miniml.core.tensor.Tensor is public: from miniml import "
        "Tensor (--fix writes it)"
    )


def test_internals_are_listed_where_no_row_allows_them(listed):
    text = "from miniml.graph.record import replay\nfrom miniml.nn.cell import hook\n"
    (found,) = listed(text)
    assert ":1: miniml.graph.record.replay is internal; test what is public" in found
    assert not listed(text.splitlines()[0], folder="unit/graph")


def test_names_with_an_underscore_need_a_line_of_their_own(listed):
    (found,) = listed("from miniml.nn.cell import _METHODS", folder="unit/nn")
    assert "miniml.nn.cell._METHODS is internal" in found


def test_imports_are_rewritten_line_by_line():
    text = (
        "import numpy as np\n\n"
        "from miniml.core.abstract import (\n    float32 as f,\n    is_float,\n)\n"
        "def f():\n    from miniml.core.errors import ShapeError\n"
    )
    assert rewritten(text) == (
        "import numpy as np\n\n"
        "from miniml import float32 as f\nfrom miniml.core.abstract import is_float\n"
        "def f():\n    from miniml.errors import ShapeError\n"
    )
    assert rewritten(rewritten(text)) == rewritten(text)


def test_every_row_is_needed():
    paths = sorted((ROOT / "tests").rglob("*.py"))
    taken = [
        (f"{i.module}.{i.name}.", f"{path.relative_to(ROOT / 'tests').as_posix()}/")
        for path in paths
        for i in imports(path)
    ]
    for row in INTERNAL:
        for folder in row.tests.split():
            wanted = tuple(f"{module}." for module in row.modules.split())
            assert any(
                full.startswith(wanted) and where.startswith(f"{folder}/") for full, where in taken
            ), (row.modules, folder)
    assert {f"{name}." for name in PRIVATE} <= {full for full, _ in taken}
