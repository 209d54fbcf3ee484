"""The drivers: the simulator's memory, stream and figures; the names of cupy that a GPU's uses."""

from __future__ import annotations

import ast
import gc
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from miniml.backends.cuda import driver as drivers
from miniml.backends.cuda.sim.memory import MODES, occupied, set_limit, using
from miniml.errors import DeviceMemoryError, KernelFaultError, LaunchError
from tests.device import emucupy as cp

BACKEND = Path(drivers.__file__).parent
f32 = np.float32

# The names of cupy that the backend may use, by what has them: these and no others.
PARTS = {
    "": "RawModule empty from_dlpack get_default_memory_pool ndarray",
    "RawModule.": "get_function get_global",
    "RawKernel.": "__call__ max_dynamic_shared_size_bytes",
    "ndarray.": "__dlpack__ __dlpack_device__ __getitem__ copy data dtype fill flags get nbytes "
    "reshape set shape view",
    "cuda.": "Device Stream get_current_stream",
    "cuda.Device.": "attributes compute_capability id mem_info",
    "cuda.Graph.": "launch",
    "cuda.MemoryPool.": "get_limit used_bytes",
    "cuda.Stream.": "__enter__ __exit__ begin_capture end_capture from_external ptr synchronize",
    "cuda.runtime.": "driverGetVersion getDeviceCount runtimeGetVersion",
}
SURFACE = [owner + name for owner, names in PARTS.items() for name in names.split()]
# What a device with the feature "cublas" has besides; cupy only loads the library.
CUBLAS = ["cuda.cublas"]

TEXT = """
extern "C" __global__ void put(float* y, float v) { y[threadIdx.x] = v; }
extern "C" __global__ void copy(const float* x, float* y) { y[threadIdx.x] = x[threadIdx.x]; }
"""


@pytest.fixture
def simulator():
    return drivers.Simulator("check")


@pytest.fixture
def kernels(simulator) -> Any:
    module = simulator.load(TEXT, ())
    return module.function("put"), module.function("copy")


def test_arrays_are_views_of_flat_memory(simulator):
    bytes_ = simulator.allocate(96)
    assert bytes_.address % 256 == 0
    simulator.write(bytes_, np.arange(24, dtype=np.int32).view(np.uint8))
    x = bytes_.view(np.int32)
    assert (tuple(x.shape), x.nbytes, x.dtype) == ((24,), 96, np.int32)
    row = bytes_[48:96].view(np.int32)
    assert row.address == x.address + 48
    row[2:4].fill(7)
    assert simulator.read(x[14:16]).tolist() == [7, 7]
    assert x.view(np.uint8).shape == (96,)
    x[20:].set(np.ones(4, np.int32))
    assert simulator.read(row).tolist() == [12, 13, 7, 7, 16, 17, 18, 19, 1, 1, 1, 1]
    assert simulator.allocate(0).address == x[3:3].address == 0


def test_what_an_array_refuses(simulator):
    x = simulator.allocate(12).view(f32)
    with pytest.raises(ValueError, match="do not fit"):
        x.set(np.zeros(2, f32))
    with pytest.raises(ValueError, match="do not fit"):
        x.set(np.zeros(3))
    with pytest.raises(ValueError, match="no step"):
        x[::2]
    with pytest.raises(ValueError, match="whole elements of float64"):
        x.view(np.float64)


def test_memory_begins_as_nan_poison(simulator):
    x = simulator.allocate(8)
    assert np.isnan(x.view(f32).get()).all()
    assert np.isnan(x.view(np.float16).get()).all()


def test_a_kernel_that_leaves_a_gap_in_its_output_shows(simulator, kernels):
    put, _ = kernels
    with using(mode="check"):
        y = simulator.allocate(32).view(f32)
        put((1,), (6,), (y, f32(1)))
        assert y.unwritten() == 8
        assert y[:6].unwritten() == 0
        y[2:4].forget()
        assert y.unwritten() == 16
        assert np.isnan(y.get()[2:4]).all()
    with using(mode="fast"):
        assert simulator.allocate(8).unwritten() == 0


def test_memory_is_counted_and_ends_where_it_is_told(simulator):
    gc.collect()
    before, size = simulator.occupied()
    assert size == 80 * 10**9
    x = simulator.allocate(4000)
    assert simulator.occupied()[0] == before + 4000
    part = x[10:20]
    del x
    assert simulator.occupied()[0] == before + 4000
    del part
    assert simulator.occupied()[0] == before
    set_limit(before + 1000)
    try:
        with pytest.raises(
            DeviceMemoryError, match=f"4000 more bytes: {before} of {before + 1000}"
        ):
            simulator.allocate(4000)
        assert occupied()[0] == before
        simulator.allocate(1000)
    finally:
        set_limit(None)


def test_deferred_launches_wait_for_the_stream(simulator, kernels):
    put, copy = kernels
    x, y = (simulator.allocate(16).view(f32) for _ in "xy")
    x.fill(0)
    with using(deferred=True):
        put((1,), (4,), (x, f32(1)))
        copy((1,), (4,), (x, y))
        assert not x.allocation.bytes.any()
        assert y.get().tolist() == [1] * 4
        put((1,), (4,), (y, f32(3)))
        assert y.unwritten() == 0
        simulator.synchronize()
        assert y.allocation.bytes.view(f32).tolist() == [3] * 4


def test_deferred_errors_surface_late_but_bad_sizes_at_once(simulator, kernels):
    put, _ = kernels
    with using(deferred=True):
        y = simulator.allocate(16).view(f32)
        with pytest.raises(LaunchError):
            put((1,), (2000,), (y, f32(1)))
        put((1,), (5,), (y, f32(1)))
        with pytest.raises(KernelFaultError, match="out-of-bounds"):
            y.get()
        y.get()  # said once


@pytest.mark.parametrize("ambient", MODES)
@pytest.mark.parametrize(("mode", "fault"), [("check", "out-of-bounds"), ("fast", "overrun")])
def test_a_module_runs_in_the_mode_of_its_driver(ambient, mode, fault):
    """Whatever the settings are; what was written is known in check mode afterwards."""
    driver = drivers.Simulator(mode)
    put, copy = map(driver.load(TEXT, ()).function, ("put", "copy"))
    with using(mode="check"):
        both = driver.allocate(32).view(f32)
    with using(mode=ambient):
        put((1,), (4,), (both[:4], f32(1)))
        copy((1,), (4,), (both[:4], both[4:]))
        assert both.get().tolist() == [1] * 8
        assert both.unwritten() == 0
        with pytest.raises(KernelFaultError) as caught:
            put((1,), (5,), (driver.allocate(16).view(f32), f32(1)))
    assert caught.value.faults[0].kind == fault


def test_the_device_has_the_limits_of_a_gpu(simulator):
    assert (simulator.capability, simulator.shared_limit) == ("90", 232448)


def reached(module: Any, name: str) -> bool:
    for part in name.split("."):
        if not hasattr(module, part):
            return False
        module = getattr(module, part)
    return True


def test_every_name_of_the_surface_exists_in_the_double():
    double = SimpleNamespace(**vars(cp.double()), RawKernel=cp.RawKernel)
    double.cuda.Graph, double.cuda.MemoryPool, double.ndarray = cp.Graph, cp.MemoryPool, cp.ndarray
    assert [name for name in SURFACE if not reached(double, name)] == []
    assert [name for name in CUBLAS if reached(double, name)] == []


def test_every_name_of_the_surface_exists_in_cupy():
    cupy = pytest.importorskip("cupy", reason="no cupy on this machine")
    # A stream of cupy gets its pointer when it is made: one that exists has it, the class has not.
    names = [name.replace("Stream.ptr", "Stream.null.ptr") for name in SURFACE]
    assert [name for name in names if not reached(cupy, name)] == []


def test_every_name_of_cublas_exists_in_cupy():
    cupy = pytest.importorskip("cupy", reason="no cupy on this machine")
    try:
        assert [name for name in CUBLAS if not reached(cupy, name)] == []
    except ImportError:
        pytest.skip("no cuBLAS on this machine")


# What the names in the driver of a GPU stand for; in other modules only the first does.
ROOTS = {
    "module": "", "cupy": "", "runtime": "cuda.runtime.", "pool": "cuda.MemoryPool.",
    "stream": "cuda.Stream.", "graph": "cuda.Graph.", "memory": "ndarray.", "loaded": "RawModule.",
    "_function": "RawKernel.",
}  # fmt: skip


def names_used(tree: ast.AST, roots: dict[str, str]) -> set[str]:
    """What follows one of the roots in chains of attributes, with what the root stands for; an
    attribute of what a call returns is one of what is called."""
    used = set()
    inner = {id(owner_of(n)) for n in ast.walk(tree) if isinstance(n, ast.Attribute)}
    for node in ast.walk(tree):
        if not isinstance(node, ast.Attribute) or id(node) in inner:
            continue
        chain: list[str] = []
        part: ast.AST = node
        while isinstance(part, ast.Attribute):
            chain.insert(0, part.attr)
            part = owner_of(part)
        chain.insert(0, part.id if isinstance(part, ast.Name) else "")
        for root, owner in roots.items():
            if root in chain[:-1]:
                used.add(owner + ".".join(chain[chain.index(root) + 1 :]))
    return used


def owner_of(node: ast.Attribute) -> ast.AST:
    return node.value.func if isinstance(node.value, ast.Call) else node.value


def test_the_backend_uses_no_other_name():
    """A name may go on after one of the surface: what that is an attribute of is ours to know."""
    own = BACKEND / "driver.py"
    of_cupy = [
        n for n in ast.parse(own.read_text()).body
        if isinstance(n, (ast.ClassDef, ast.FunctionDef)) and n.name not in ("Simulator", "placed")
    ]  # fmt: skip
    used = set().union(*(names_used(n, ROOTS) for n in of_cupy))
    others = {*BACKEND.glob("*.py"), *BACKEND.glob("text/*.py"), *BACKEND.glob("kernels/*.py")}
    for path in others - {own}:
        used |= names_used(ast.parse(path.read_text()), {"module": ""})
    known = (*SURFACE, *CUBLAS)
    strange = [n for n in used if not any(n == s or s.startswith(n + ".") for s in known)]
    assert strange == []
    unused = {s for s in SURFACE if not any(u == s or u.startswith(s + ".") for u in used)}
    # What kernels and views of arrays use, cuBLAS of its stream; what `with` and calls do.
    names = PARTS["ndarray."].split()
    of_arrays = {f"ndarray.{n}" for n in names if n not in ("get", "set")}
    called = {"RawKernel.__call__", "cuda.Stream.__enter__", "cuda.Stream.__exit__"}
    assert unused == of_arrays | called | {"cuda.Stream.ptr"}


def test_the_search_for_names_finds_them():
    tree = ast.parse("def f(self, x): return self.module.empty(3), stream.end_capture().launch()")
    assert names_used(tree, ROOTS) == {"empty", "cuda.Stream.end_capture.launch"}
    assert names_used(ast.parse("self.module.cuda.Graph.x"), ROOTS) == {"cuda.Graph.x"}
