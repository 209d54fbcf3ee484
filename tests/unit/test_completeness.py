"""Nothing in miniml.ops is half done: each primitive has all that the others have."""

import pytest

from tests.frame.completeness import lacks, library, unclaimed
from tests.opinfo import ROWS

LIBRARY = {p.name: p for p in library()}


@pytest.mark.parametrize("name", LIBRARY)
def test_primitive_is_whole(name):
    found = lacks(LIBRARY[name], ROWS)
    assert not found, "\n".join(found)


def test_rows_and_functions_belong():
    found = unclaimed(ROWS)
    assert not found, "\n".join(found)
