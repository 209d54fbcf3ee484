"""The double of cupy: arrays, streams, events, the memory's figures, and its names."""

from __future__ import annotations

import ast
import gc
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from miniml.backends.cuda import emulator as cp
from miniml.backends.cuda.sim.memory import using
from miniml.core.errors import KernelFaultError, LaunchError

BACKEND = Path(cp.__file__).parent
f32, i32 = np.float32, np.int32

# The part of cupy that the CUDA backend may use, by what has the names: these and no others.
PARTS = {
    "": "RawModule asarray empty get_default_memory_pool ndarray zeros",
    "RawModule.": "get_function get_global",
    "RawKernel.": "__call__ max_dynamic_shared_size_bytes",
    "ndarray.": "__getitem__ __setitem__ copy data dtype fill get itemsize nbytes ndim reshape set "
    "shape size view",
    "cuda.": "Device Event Stream get_current_stream get_elapsed_time",
    "cuda.Device.": "attributes compute_capability mem_info synchronize use",
    "cuda.Event.": "record synchronize",
    "cuda.Graph.": "launch",
    "cuda.MemoryPool.": "free_all_blocks get_limit set_limit total_bytes used_bytes",
    "cuda.Stream.": "begin_capture end_capture is_capturing null record synchronize wait_event",
    "cuda.memory.": "OutOfMemoryError",
    "cuda.runtime.": "CUDARuntimeError driverGetVersion getDeviceCount runtimeGetVersion",
}
SURFACE = [owner + name for owner, names in PARTS.items() for name in names.split()]
# What a device with the feature "cublas" has besides; emucupy has none of it.
CUBLAS = [
    "cuda.cublas",
    "cuda.cublas.gemmStridedBatchedEx",
    "cuda.cublas.getMathMode",
    "cuda.cublas.setMathMode",
    "cuda.get_cublas_handle",
]

TEXT = """
extern "C" __global__ void put(float* y, float v) { y[threadIdx.x] = v; }
extern "C" __global__ void copy(const float* x, float* y) { y[threadIdx.x] = x[threadIdx.x]; }
"""


@pytest.fixture(scope="module")
def kernels() -> Any:
    module = cp.RawModule(code=TEXT)
    return module.get_function("put"), module.get_function("copy")


def test_arrays_are_views_of_flat_memory():
    x = cp.asarray(np.arange(24, dtype=i32).reshape(2, 12))
    assert (x.shape, x.size, x.ndim, x.nbytes, x.itemsize, len(x)) == ((2, 12), 24, 2, 96, 4, 2)
    assert x.data.ptr % 256 == 0
    row = x[1]
    assert row.data.ptr == x.data.ptr + 48
    row[2:4].fill(7)
    assert x.reshape(-1)[14:16].get().tolist() == [7, 7]
    assert x.reshape(4, 6).shape == x.reshape((4, -1)).shape == (4, 6)
    assert x.view(np.uint8).shape == (2, 48)
    assert x[...] is x
    y = x.copy()
    x.fill(0)
    assert y.get()[0].tolist() == list(range(12))
    y[0:1] = x[1:2]
    y[1] = 5
    assert y.get().tolist() == [[0] * 12, [5] * 12]
    assert cp.empty(0).data.ptr == 0


def test_what_an_array_refuses():
    x = cp.zeros((2, 3))
    with pytest.raises(TypeError, match=r"use \.get"):
        np.asarray(x)
    with pytest.raises(ValueError, match="do not fit"):
        x.set(np.zeros((3, 2), f32))
    with pytest.raises(ValueError, match="do not fit"):
        x.set(np.zeros((2, 3)))
    with pytest.raises(ValueError, match="no step"):
        x[::2]
    with pytest.raises(ValueError, match="whole ones of float64"):
        x.view(np.float64)
    with pytest.raises(ValueError, match="cannot reshape"):
        x.reshape(4)
    with pytest.raises(IndexError):
        x[2]


def test_memory_begins_as_nan_poison():
    assert np.isnan(cp.empty(4).get()).all()
    assert np.isnan(cp.empty(4, np.float16).get()).all()


def test_a_kernel_that_leaves_a_gap_in_its_output_shows(kernels):
    put, _ = kernels
    with using(mode="check"):
        y = cp.empty(8)
        put((1,), (6,), (y, f32(1)))
        assert cp.unwritten(y) == 8
        assert cp.unwritten(y[:6]) == 0
        cp.forget(y[2:4])
        assert cp.unwritten(y) == 16
        assert np.isnan(y.get()[2:4]).all()
    with using(mode="fast"):
        assert cp.unwritten(cp.empty(8)) == 0


def test_the_pool_counts_and_ends_where_it_is_told():
    pool = cp.get_default_memory_pool()
    gc.collect()
    before = pool.used_bytes()
    x = cp.empty(1000)
    assert pool.used_bytes() == before + 4000
    part = x[10:20]
    del x
    assert pool.used_bytes() == before + 4000
    del part
    assert pool.used_bytes() == before
    pool.set_limit(before + 1000)
    try:
        with pytest.raises(cp.cuda.memory.OutOfMemoryError, match="4000 more were asked for"):
            cp.empty(1000)
        assert pool.used_bytes() == before
        cp.empty(250)
    finally:
        pool.set_limit(None)


def test_deferred_launches_wait_for_their_stream(kernels):
    put, _ = kernels
    with using(deferred=True):
        y = cp.zeros(4)
        stream = cp.cuda.Stream(non_blocking=True)
        put((1,), (4,), (y, f32(1)), stream=stream)
        assert y.get().tolist() == [0] * 4  # the default stream has nothing to wait for
        stream.synchronize()
        assert y.get().tolist() == [1] * 4
        with stream:
            put((1,), (4,), (y, f32(2)))
            assert cp.cuda.get_current_stream() is stream
            assert y.get().tolist() == [2] * 4
        put((1,), (4,), (y, f32(3)))
        cp.cuda.Device().synchronize()
        assert y.get().tolist() == [3] * 4


def test_each_thread_has_a_stream_of_its_own():
    """Threads that are inside of one stream together leave it in any order."""
    one, two = cp.cuda.Stream(), cp.cuda.Stream()
    inside, left = threading.Barrier(3, timeout=30), threading.Event()

    def enter(first: bool) -> list[Any]:
        with one, two, one:
            inside.wait()
            assert first or left.wait(30)
            seen = [cp.cuda.get_current_stream()]
        seen.append(cp.cuda.get_current_stream())
        if first:
            left.set()
        return seen

    with ThreadPoolExecutor(2) as pool, two:
        found = [pool.submit(enter, first) for first in (True, False)]
        inside.wait()
        assert [f.result() for f in found] == [[one, cp.cuda.Stream.null]] * 2
        assert cp.cuda.get_current_stream() is two
        with one, one:
            assert cp.cuda.get_current_stream() is one
        assert cp.cuda.get_current_stream() is two
    assert cp.cuda.get_current_stream() is cp.cuda.Stream.null


def test_deferred_errors_surface_late_but_bad_sizes_at_once(kernels):
    put, _ = kernels
    with using(deferred=True, mode="check"):
        y = cp.zeros(4)
        with pytest.raises(LaunchError):
            put((1,), (2000,), (y, f32(1)))
        put((1,), (5,), (y, f32(1)))
        with pytest.raises(KernelFaultError, match="out-of-bounds"):
            y.get()
        y.get()  # said once


def test_events_order_streams_and_take_times(kernels):
    put, copy = kernels
    with using(deferred=True):
        x, y = cp.zeros(4), cp.zeros(4)
        first, second = cp.cuda.Stream(non_blocking=True), cp.cuda.Stream(non_blocking=True)
        start = first.record()
        put((1,), (4,), (x, f32(6)), stream=first)
        done = first.record(cp.cuda.Event())
        second.wait_event(done)
        copy((1,), (4,), (x, y), stream=second)
        second.synchronize()
        assert y.get().tolist() == [6] * 4
        assert 0 < cp.cuda.get_elapsed_time(start, done) < 60_000


def test_the_device_has_the_limits_of_a_gpu():
    assert cp.cuda.runtime.getDeviceCount() == 1
    with cp.cuda.Device(0) as device:
        assert device.compute_capability == "90"
        assert device.attributes["MaxSharedMemoryPerBlockOptin"] == 232448
    with pytest.raises(cp.cuda.runtime.CUDARuntimeError, match="InvalidDevice"):
        cp.cuda.Device(1)


def reached(module: Any, name: str) -> bool:
    for part in name.split("."):
        if not hasattr(module, part):
            return False
        module = getattr(module, part)
    return True


def test_every_name_of_the_surface_exists_here():
    assert [name for name in SURFACE if not reached(cp, name)] == []
    assert [name for name in CUBLAS if reached(cp, name)] == []


def test_every_name_of_the_surface_exists_in_cupy():
    cupy = pytest.importorskip("cupy", reason="no cupy on this machine")
    assert [name for name in SURFACE if not reached(cupy, name)] == []


def test_every_name_of_cublas_exists_in_cupy():
    cupy = pytest.importorskip("cupy", reason="no cupy on this machine")
    try:
        assert [name for name in CUBLAS if not reached(cupy, name)] == []
    except ImportError:
        pytest.skip("no cuBLAS on this machine")


def names_used(tree: ast.AST) -> set[str]:
    """What follows `module.`, `_module.` or `cupy.` in chains of attributes."""
    used = set()
    inner = {id(n.value) for n in ast.walk(tree) if isinstance(n, ast.Attribute)}
    for node in ast.walk(tree):
        if not isinstance(node, ast.Attribute) or id(node) in inner:
            continue
        chain: list[str] = []
        part: ast.AST = node
        while isinstance(part, ast.Attribute):
            chain.insert(0, part.attr)
            part = part.value
        chain.insert(0, part.id if isinstance(part, ast.Name) else "")
        for root in ("module", "_module", "cupy"):
            if root in chain[:-1]:
                used.add(".".join(chain[chain.index(root) + 1 :]))
    return used


def test_the_backend_uses_no_other_name():
    """A name may go on after one of the surface: what that is an attribute of is ours to know."""
    own = [p for p in BACKEND.glob("*.py") if p.stem != "emulator"]
    sources = [*own, *BACKEND.glob("text/*.py"), *BACKEND.glob("kernels/*.py")]
    used = set().union(*(names_used(ast.parse(p.read_text())) for p in sources))
    known = (*SURFACE, *CUBLAS)
    strange = [n for n in used if not any(n == s or s.startswith(n + ".") for s in known)]
    assert strange == []


def test_the_search_for_names_finds_them():
    tree = ast.parse(
        "def f(self, x): return self.module.cuda.Graph(x).launch() + self.module.empty(3)"
    )
    assert names_used(tree) >= {"empty"}
    assert any(
        n.startswith("cuda.Graph") for n in names_used(ast.parse("self.module.cuda.Graph.x"))
    )
