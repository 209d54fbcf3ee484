"""Launches that do not end: the time limit and Ctrl-C, in both modes, wherever they loop."""

from __future__ import annotations

import os
import signal
import threading
from functools import cache
from typing import Any

import numpy as np
import pytest

from miniml.backends.cuda.sim.memory import MODES, using
from miniml.errors import KernelFaultError
from tests.device import emucupy as cp

TEXT = """
extern "C" __global__ void computes(float* y) {
  float v = y[0];
  while (v < 1e30f)
    v = v * 0.999f + 0.001f;
  y[0] = v;
}
extern "C" __global__ void calls_libm(float* y) {
  float v = y[0];
  while (v < 1e30f)
    v = sinf(v) + 1;
  y[0] = v;
}
extern "C" __global__ void meets(float* y) {
  while (y[0] < 1e30f)
    __syncthreads();
}
extern "C" __global__ void locks(float* y) {
  while (atomicAdd(y, 0.0f) < 1e30f)
    __nanosleep(100);
}
extern "C" __global__ void doubles(float* y) { y[threadIdx.x] *= 2; }
"""
LOOPS = {
    "computes": range(4, 6),
    "calls_libm": range(10, 12),
    "meets": range(15, 17),
    "locks": range(19, 21),
}


@cache
def unit() -> Any:
    return cp.RawModule(code=TEXT)


def works_afterwards() -> None:
    y = cp.asarray(np.arange(4, dtype=np.float32))
    unit().get_function("doubles")((1,), (4,), (y,))
    assert y.get().tolist() == [0, 2, 4, 6]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", LOOPS)
def test_a_loop_without_end_is_a_fault_on_its_line(name, mode):
    seconds = 0.04 if mode == "check" else 0.004
    with using(mode=mode, seconds=seconds):
        with pytest.raises(KernelFaultError, match=r"has not ended in 0\.04 seconds of") as caught:
            unit().get_function(name)((1,), (2,), (cp.zeros(1),))
        (fault,) = caught.value.faults
        assert fault.kind == "hang"
        assert fault.line in LOOPS[name]
        works_afterwards()


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", LOOPS)
def test_control_c_ends_a_loop_without_end(name, mode):
    kernel = unit().get_function("doubles")  # compiled
    with using(mode=mode):
        kernel = unit().get_function(name)
        before = signal.getsignal(signal.SIGINT)
        timer = threading.Timer(0.03, os.kill, (os.getpid(), signal.SIGINT))
        timer.start()
        with pytest.raises(KeyboardInterrupt):
            kernel((1,), (2,), (cp.zeros(1),))
        timer.join()
        assert signal.getsignal(signal.SIGINT) is before
        works_afterwards()


def test_a_handler_that_only_notes_the_signal_lets_the_launch_end():
    """Half of a kernel's work may not be passed off as all of it."""
    noted = []
    kernel = unit().get_function("computes")
    y = cp.zeros(1)
    before = signal.signal(signal.SIGINT, lambda *args: noted.append(args))
    timer = threading.Timer(0.02, os.kill, (os.getpid(), signal.SIGINT))
    try:
        timer.start()
        with using(seconds=0.2), pytest.raises(KernelFaultError, match="hang"):
            kernel((1,), (1,), (y,))
        timer.join()
        assert len(noted) == 1
    finally:
        signal.signal(signal.SIGINT, before)


def test_the_limit_holds_in_other_threads_with_all_signals_blocked():
    raised: list[BaseException] = []

    def launch() -> None:
        signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
        try:
            with using(seconds=0.04):
                unit().get_function("computes")((1,), (1,), (cp.zeros(1),))
        except KernelFaultError as error:
            raised.append(error)
        assert signal.SIGUSR1 in signal.pthread_sigmask(signal.SIG_BLOCK, ())

    thread = threading.Thread(target=launch)
    thread.start()
    thread.join(20)
    assert len(raised) == 1
    works_afterwards()
