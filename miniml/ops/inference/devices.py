"""On which device a composition makes its tensors: that of the tensors it is called with."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from functools import wraps
from typing import Any, ParamSpec, TypeVar

import numpy as np

from ...settings import context, current

P = ParamSpec("P")
R = TypeVar("R")


def on_one_device(function: Callable[P, R]) -> Callable[P, R]:
    """A composition whose arrays and constants follow the first tensor among its arguments, as
    those of a primitive do: without it, the first primitive that sees an array alone would put it
    on the context's device."""

    @wraps(function)
    def call(*args: P.args, **named: P.kwargs) -> R:
        device = _device_of((args, *named.values()) if named else args)
        if device is None or device == current().device_target:
            return function(*args, **named)
        with context(device_target=device):
            return function(*args, **named)

    return call


def on_device_of(x: Any) -> AbstractContextManager[object]:
    """A context in which new tensors are made on x's device, if x is a tensor."""
    device = _device_of((x,))
    if device is None or device == current().device_target:
        return nullcontext()
    return context(device_target=device)


def _device_of(xs: Any) -> str | None:
    for x in xs:
        if isinstance(x, (np.ndarray, np.generic)):  # they follow, though they have a device
            continue
        found = _device_of(x) if isinstance(x, (list, tuple)) else getattr(x, "device", None)
        if isinstance(found, str):
            return found
    return None
