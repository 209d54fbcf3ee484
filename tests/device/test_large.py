"""Arrays of more than 2^31 elements: no index is cut to 32 bits."""

import numpy as np
import pytest

import miniml as ml
from miniml import ops

# Some 2 GiB each, and a minute of the simulator without its checks.
pytestmark = [pytest.mark.deep, pytest.mark.timeout(600)]
SIZE = 2**31 + 37


def test_every_element_is_reached(device):
    with ml.context(device_target=device, sim="fast"):
        x = ops.full((SIZE,), 1, ml.uint8)
        assert int(ops.sum(x)) == SIZE
        assert np.array_equal(ops.add(x[-5:], 1).asnumpy(), [2] * 5)
        y = ops.concat([x[: 2**31], ops.full((37,), 3, ml.uint8)])
        assert int(ops.sum(y)) == SIZE + 2 * 37
        assert np.array_equal(y[-38:].asnumpy(), [1] + [3] * 37)
