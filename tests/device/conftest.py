import pytest

import miniml as ml
from tests.conftest import HAS_CXX

if HAS_CXX:
    DEVICES = ["cuda-sim"]
else:
    DEVICES = [pytest.param("cuda-sim", marks=pytest.mark.skip(reason="no C++ compiler here"))]


@pytest.fixture(params=DEVICES)
def on_simulator(request):
    """The simulator alone, for what a GPU cannot be told."""
    return request.param


@pytest.fixture(params=[*DEVICES, pytest.param("cuda", marks=pytest.mark.gpu)])
def device(request):
    """Every CUDA device, where it can be had."""
    return request.param


@pytest.fixture
def on_device(device):
    """The device, as the one where tensors are made."""
    with ml.context(device_target=device):
        yield device
