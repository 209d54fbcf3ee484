"""Nothing in miniml.ops is half done: each primitive has all that the others have."""

import pytest

from miniml import Primitive
from miniml.core.primitive import primitives
from miniml.grad import bprop_getters
from miniml.testing import OpInfo
from tests.faults.planted import binary_samples
from tests.frame.completeness import lacks, library, unclaimed
from tests.opinfo import COMPLEX_ROWS, ROWS

EVERY = (*ROWS, *COMPLEX_ROWS)
LIBRARY = {p.name: p for p in library()}


@pytest.mark.parametrize("name", LIBRARY)
def test_primitive_is_whole(name):
    found = lacks(LIBRARY[name], EVERY)
    assert not found, "\n".join(found)


def test_rows_and_functions_belong():
    found = unclaimed(EVERY)
    assert not found, "\n".join(found)


def whole(**changes):
    """A primitive as the library would define it, but for `changes`."""

    def same(self, x, y):
        return x

    body = {
        "infer_shape": same, "infer_dtype": same, "__doc__": "x * y.", "__module__": __name__,
        **changes,
    }  # fmt: skip
    return type("PlantedWhole", (Primitive,), body)


@pytest.fixture(autouse=True)
def _forget_planted():
    yield
    primitives.pop("PlantedWhole", None)


def test_nothing_that_is_missing_goes_unseen():
    bare = whole()
    assert "PlantedWhole has 0 rows in tests/opinfo, not one" in lacks(bare, ())
    row = OpInfo(bare, binary_samples, dtypes="d")
    found = lacks(bare, (row, row))
    assert any("has 2 rows" in f for f in found)
    assert any("neither a bprop nor differentiable = False" in f for f in found)
    assert any("has no CPU kernel for bool" in f for f in found)


def test_a_docstring_says_more_than_the_name():
    mute = whole(__doc__="The planted whole.")
    assert any("only restates its name" in f for f in lacks(mute, ()))


def test_a_bprop_that_is_never_used_is_refused(monkeypatch):
    constant = whole(differentiable=False)
    monkeypatch.setitem(bprop_getters._by_class, constant, lambda self: None)  # as of a base class
    assert any("keeps from being used" in f for f in lacks(constant, ()))
