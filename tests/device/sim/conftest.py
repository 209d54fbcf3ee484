"""The tests of the simulator need a C++ compiler."""

import pytest

from tests.conftest import HAS_CXX


@pytest.fixture(autouse=True)
def _compiler():
    """Every test here compiles CUDA C for the CPU."""
    if not HAS_CXX:
        pytest.skip("no C++ compiler on this machine")
