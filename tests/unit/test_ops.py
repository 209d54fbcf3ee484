"""Every primitive through every check, generated from the rows in tests/opinfo.

One family or primitive:  pytest tests/unit/test_ops.py -k Add
One check of all:         pytest tests/unit/test_ops.py -k second_gradient
One dtype:                pytest tests/unit/test_ops.py -k "Add and bfloat16"

The checks are plain functions in tests/frame; a failure says which call it was and what came.
"""

import pytest

from tests.frame import cases, name_of
from tests.frame.calls import rng_of
from tests.opinfo import ROWS

CASES = {
    f"{row.primitive.name}-{dtype.name if dtype else 'any'}-{name_of(check)}": (row, dtype, check)
    for row, dtype, check in cases(ROWS)
}


@pytest.mark.parametrize("case", CASES)
def test_ops(case):
    row, dtype, check = CASES[case]
    check(row, dtype, rng_of(case))
