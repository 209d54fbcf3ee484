"""Users' kernels are right and clean in every order; each planted fault is named on its line."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytest

from miniml.backends.cuda.sim.memory import using
from miniml.errors import KernelFaultError
from tests.device import emucupy as cp

from .corpus.users import KERNELS, UserKernel

pytestmark = pytest.mark.deep
BY_NAME = {kernel.name: kernel for kernel in KERNELS}
PLANTS = [(kernel.name, plant) for kernel in KERNELS for plant in range(len(kernel.plants))]
ORDERS = [("forward", 0), ("reverse", 0), ("shuffled", 1), ("shuffled", 2), ("shuffled", 3)]


@cache
def right() -> Any:
    return cp.RawModule(code="".join(kernel.source() for kernel in KERNELS))


@cache
def planted(name: str) -> tuple[str, Any]:
    kernel = BY_NAME[name]
    text = "".join(kernel.source(plant) for plant in range(len(kernel.plants)))
    return text, cp.RawModule(code=text)


@pytest.mark.parametrize("order", ORDERS, ids=str)
@pytest.mark.parametrize("name", BY_NAME)
def test_the_kernel_is_right_and_clean(name, order):
    schedule, seed = order
    with using(mode="check", schedule=schedule, seed=seed):
        got = BY_NAME[name].launch(right())
    expected = BY_NAME[name].expected()
    if name == "compaction":  # in the order of warps
        got, expected = np.sort(got), np.sort(expected)
    np.testing.assert_allclose(got, expected, rtol=2e-4, atol=2e-5)


@pytest.mark.parametrize(("name", "plant"), PLANTS)
def test_a_planted_fault_is_named_on_its_line(name, plant):
    kernel: UserKernel = BY_NAME[name]
    text, unit = planted(name)
    with using(mode="check", seconds=0.5), pytest.raises(KernelFaultError) as caught:
        kernel.launch(unit, plant)
    kind = kernel.plants[plant][0]
    found = [fault for fault in caught.value.faults if fault.kind == kind]
    assert found, str(caught.value)
    lines = text.splitlines()
    assert any(fault.line and "//!" in lines[fault.line - 1] for fault in found), str(caught.value)
