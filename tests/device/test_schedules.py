"""Every CUDA kernel of the library in every order in which threads may run: clean, and right."""

import pytest

from miniml.backends.cuda.sim import memory
from tests.frame.calls import rng_of
from tests.frame.device import check_device, chosen
from tests.opinfo import ROWS


@pytest.mark.parametrize("schedule", ["reverse", "shuffled"])
@pytest.mark.parametrize("row", ROWS, ids=[row.primitive.name for row in ROWS])
def test_kernel(row, schedule, on_simulator):
    """In check mode, where a race, a diverging barrier or a stray access raises."""
    name, dtype = row.primitive.name, chosen(row, every=False)[0]
    with memory.using(schedule=schedule, seed=11):
        check_device(row, dtype, rng_of(name, schedule), on_simulator)
