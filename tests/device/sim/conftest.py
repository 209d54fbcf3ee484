import shutil

import pytest


@pytest.fixture(autouse=True)
def _compiler():
    """Every test here compiles CUDA C for the CPU."""
    if not any(map(shutil.which, ("c++", "g++", "clang++"))):
        pytest.skip("no C++ compiler on this machine")
