"""Devices of this machine, by name; CUDA is imported when one of its devices is first requested."""

from __future__ import annotations

from functools import cache
from importlib import import_module

from ..core.errors import DeviceError
from .kernel import CPU, Device

_CPU = CPU()


def get_device(name: str, sim: str = "check") -> Device:
    """The device of that canonical name; DeviceError, with advice, if it is absent.

    sim: the mode of the simulator of "cuda-sim", "check" or "fast".
    """
    return _CPU if name == "cpu" else _cuda(name, sim if name == "cuda-sim" else "")


@cache
def _cuda(name: str, sim: str) -> Device:
    try:
        device: Device = import_module(".cuda.device", __package__).load(name, sim)
    except ImportError as error:
        raise DeviceError(f"device {name!r} is not available: {error}") from error
    return device
