"""Launches are recorded as a CUDA graph, by the simulator's driver and by cupy's on its double, and
what a graph cannot repeat is refused meanwhile."""

import gc
import threading

import numpy as np
import pytest

from miniml.backends.cuda.device import Cuda
from miniml.backends.cuda.driver import Cupy, Simulator
from miniml.backends.cuda.sim.memory import using
from miniml.errors import CaptureError, KernelFaultError
from tests.device import emucupy
from tests.device.as_gpu import CUDARuntimeError

TEXT = 'extern "C" __global__ void put(float* y, float v) { y[threadIdx.x] = v; }'
ZEROS = np.zeros(4, np.float32)


@pytest.fixture(params=["simulator", "cupy"])
def device(request):
    return Cuda(Simulator("check") if request.param == "simulator" else Cupy(emucupy.double()))


@pytest.fixture
def put(device):
    function = device.compiler.function(TEXT, "put")
    return lambda y, v=3: function((1,), (4,), (y.flat, np.float32(v)))


def test_launches_are_kept_and_repeated(device, put):
    y = device.from_host(ZEROS)
    launch = device.capture(lambda: put(y))
    assert device.to_host(y).tolist() == [0] * 4
    for _ in range(2):
        put(y, 0)
        launch()
        assert device.to_host(y).tolist() == [3] * 4
    with using(deferred=True):
        put(y, 0)
        launch()
        assert y.block.allocation.bytes.any()
        assert device.to_host(y).tolist() == [3] * 4


def test_another_thread_launches_meanwhile(device, put):
    x, y = device.from_host(ZEROS), device.from_host(ZEROS)

    def both():
        other = threading.Thread(target=lambda: put(x, 5))
        other.start()
        other.join()
        put(y)

    launch = device.capture(both)
    assert device.to_host(x).tolist() == [5] * 4
    put(x, 0)
    launch()
    assert (device.to_host(x).tolist(), device.to_host(y).tolist()) == ([0] * 4, [3] * 4)


@pytest.mark.parametrize("caught", [False, True], ids=["", "caught"])
@pytest.mark.parametrize(
    "forbidden",
    [
        lambda d, y: d.synchronize(),
        lambda d, y: d.to_host(y),
        lambda d, y: d.copy_into(y, ZEROS),
        lambda d, y: d.copy(y),
        lambda d, y: d.empty((4,), np.dtype("f")),
        lambda d, y: y.flat.get(),
        lambda d, y: y.flat.set(ZEROS),
        lambda d, y: d.capture(lambda: None)(),
    ],
    ids=["synchronize", "to_host", "copy_into", "copy", "empty", "get", "set", "graph"],
)
def test_what_a_graph_cannot_repeat_spoils_it(device, put, forbidden, caught):
    y = device.from_host(ZEROS)

    def launches():
        put(y)
        try:
            forbidden(device, y)
        except CaptureError:
            if not caught:
                raise

    with pytest.raises(CaptureError, match="a CUDA graph only launches; got "):
        device.capture(launches)
    assert device.to_host(y).tolist() == [0] * 4


def test_the_stream_itself_refuses_to_wait(device, put):
    y = device.from_host(ZEROS)
    with pytest.raises((CaptureError, CUDARuntimeError), match=r"waiting|Unsupported"):
        device.capture(lambda: [device.stream.synchronize()])
    device.to_host(y)


def test_a_graph_keeps_no_memory(device, put):
    kept = [device.from_host(ZEROS)]
    launch = device.capture(lambda: put(kept[0]))
    kept.clear()
    gc.collect()
    with pytest.raises(KernelFaultError, match=r"illegal-access in kernel put: .* has been freed"):
        launch()


def test_a_capture_of_the_double_begins_and_ends_in_order():
    stream = emucupy.Stream()
    with pytest.raises(CUDARuntimeError, match="default stream"):
        emucupy.current_stream().begin_capture()
    with pytest.raises(CUDARuntimeError, match="not being captured"):
        stream.end_capture()
    stream.begin_capture()
    with pytest.raises(CUDARuntimeError, match="is being captured"):
        stream.begin_capture()
