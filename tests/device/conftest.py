"""Devices that run CUDA, for the tests of kernels: the simulator, and a GPU where there is one."""

import sys

import pytest

import miniml as ml
from miniml.backends import selection as devices
from miniml.core.scope import epoch
from tests.conftest import HAS_CXX
from tests.device.emucupy import double

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


@pytest.fixture
def cupy(on_simulator, monkeypatch):
    """A GPU by name, the simulator in truth."""
    module = double()
    monkeypatch.setitem(sys.modules, "cupy", module)
    devices._cuda.cache_clear()
    epoch.bump("kernels")  # no kernel that was prepared for another device
    yield module
    devices._cuda.cache_clear()
    epoch.bump("kernels")


@pytest.fixture
def gpu(cupy):
    with ml.context(device_target="cuda"):
        yield cupy
