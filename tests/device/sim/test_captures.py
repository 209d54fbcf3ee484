"""The double of cupy records launches, and refuses while it does what CUDA refuses."""

import gc

import numpy as np
import pytest

from miniml.backends.cuda import emulator as emucupy
from miniml.backends.cuda import emulator as emustreams
from miniml.backends.cuda.sim.memory import using

TEXT = 'extern "C" __global__ void put(float* y, float v) { y[threadIdx.x] = v; }'


class TestTheDouble:
    """What a capture of CUDA forbids, the double of cupy forbids too."""

    @pytest.fixture
    def put(self):
        return emucupy.RawModule(code=TEXT).get_function("put")

    def test_launches_are_kept_and_repeated(self, put):
        y, stream = emucupy.zeros(4), emucupy.cuda.Stream(non_blocking=True)
        with stream:
            stream.begin_capture()
            put((1,), (4,), (y, np.float32(3)))
            assert stream.is_capturing()
            graph = stream.end_capture()
        assert y.get().tolist() == [0] * 4
        for _ in range(2):
            y.fill(0)
            graph.launch()
            assert y.get().tolist() == [3] * 4
        with using(deferred=True):
            y.fill(0)
            graph.launch(stream)
            assert y.get().tolist() == [0] * 4
            stream.synchronize()
            assert y.get().tolist() == [3] * 4

    @pytest.mark.parametrize(
        "forbidden",
        [
            lambda y, s: s.synchronize(),
            lambda y, s: y.get(),
            lambda y, s: y.set(np.zeros(4, np.float32)),
            lambda y, s: y.copy(),
            lambda y, s: emucupy.empty(4),
            lambda y, s: s.record(),
            lambda y, s: emustreams.Graph([]).launch(),
        ],
        ids=["synchronize", "get", "set", "copy", "empty", "event", "graph"],
    )
    def test_what_a_capture_forbids_spoils_it(self, put, forbidden):
        y, stream = emucupy.zeros(4), emucupy.cuda.Stream(non_blocking=True)
        with stream:
            stream.begin_capture()
            put((1,), (4,), (y, np.float32(3)))
            with pytest.raises(emucupy.cuda.runtime.CUDARuntimeError, match="Unsupported"):
                forbidden(y, stream)
            with pytest.raises(emucupy.cuda.runtime.CUDARuntimeError, match="Invalidated"):
                stream.end_capture()
            y.get()

    def test_captures_begin_and_end_in_order(self):
        stream, error = emucupy.cuda.Stream(), emucupy.cuda.runtime.CUDARuntimeError
        with pytest.raises(error, match="default stream"):
            emucupy.cuda.Stream.null.begin_capture()
        with pytest.raises(error, match="not being captured"):
            stream.end_capture()
        stream.begin_capture()
        with pytest.raises(error, match="is being captured"):
            stream.begin_capture()

    def test_a_graph_keeps_no_memory(self, put):
        y, stream = emucupy.zeros(4), emucupy.cuda.Stream()
        with stream:
            stream.begin_capture()
            put((1,), (4,), (y, np.float32(3)))
            graph = stream.end_capture()
        del y
        gc.collect()
        with pytest.raises(emucupy.cuda.runtime.CUDARuntimeError, match="has been freed"):
            graph.launch()
