"""A child forked while another thread launches kernels can launch its own."""

import os
import signal
import threading

import numpy as np
import pytest

import miniml as ml
from miniml import ops


def doubled_in_a_child():
    """The exit code of a child that launches a kernel; it is killed after 20 seconds."""
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            signal.alarm(20)
            x = ml.Tensor(np.ones(4, np.float32), device="cuda-sim")
            code = 0 if ops.add(x, x).tolist() == [2.0] * 4 else 2
        finally:
            os._exit(code)
    _, status = os.waitpid(pid, 0)
    return status


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_child_forked_in_the_midst_of_a_launch_launches():
    x = ml.Tensor(np.ones((64, 64), np.float32), device="cuda-sim")
    ops.add(x, x)
    over = threading.Event()

    def launches():
        while not over.is_set():
            ops.matmul(x, x)

    thread = threading.Thread(target=launches)
    thread.start()
    try:
        assert [doubled_in_a_child() for _ in range(4)] == [0] * 4
    finally:
        over.set()
        thread.join()
