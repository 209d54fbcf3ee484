"""What a device refuses and how it fails: one sentence each, on the simulator and with a cupy that
raises cupy's own errors."""

import gc
import sys
from types import SimpleNamespace

import numpy as np
import pytest

import miniml as ml
from miniml import Launch, ops
from miniml.backends import device as devices
from miniml.backends import registry
from miniml.backends.cuda import emucupy, load
from miniml.backends.cuda.parameters import check, parameters
from miniml.errors import (
    CompileError,
    DeclarationError,
    DeviceError,
    DeviceLostError,
    DeviceMemoryError,
    KernelFaultError,
    LaunchError,
    MinimlError,
)
from tests.device.test_users_kernels import MATRIX, broken


class CUDARuntimeError(RuntimeError):
    """As cupy has it: the name, a colon, the driver's words; and the number."""

    def __init__(self, status, text):
        super().__init__(text)
        self.status = status


class CUDADriverError(CUDARuntimeError):
    """The same for the driver's interface."""


class OutOfMemoryError(MemoryError):
    """cupy's pool has no more."""


class CompileException(Exception):
    """NVRTC's log."""


ILLEGAL = CUDARuntimeError(700, "cudaErrorIllegalAddress: an illegal memory access was encountered")


def double():
    """A module with the names of cupy, on the simulator; a test breaks what it wants to break."""
    names = {n: getattr(emucupy, n) for n in dir(emucupy) if not n.startswith("_")}
    own = {**vars(emucupy.cuda), "runtime": SimpleNamespace(**vars(emucupy.cuda.runtime))}
    return SimpleNamespace(**{**names, "cuda": SimpleNamespace(**own)})


@pytest.fixture
def cupy(monkeypatch):
    """A GPU by name, the simulator in truth."""
    module = double()
    monkeypatch.setitem(sys.modules, "cupy", module)
    devices._cuda.cache_clear()
    registry.version += 1  # no kernel that was prepared for another device
    yield module
    devices._cuda.cache_clear()
    registry.version += 1


@pytest.fixture
def gpu(cupy):
    with ml.context(device_target="cuda"):
        yield cupy


def raising(error):
    def call(*args, **kwargs):
        raise error

    return call


def function(text="", **attributes):
    """A compiled module whose one function is as given."""
    kernel = SimpleNamespace(max_dynamic_shared_size_bytes=0, **attributes)
    return lambda code, options: SimpleNamespace(get_function=lambda name: kernel)


def first_line(error):
    return str(error.value).splitlines()[0]


class TestNoDevice:
    def refusal(self, match):
        with pytest.raises(DeviceError, match=match) as error:
            ml.Tensor([1.0], device="cuda")
        assert "\n" not in str(error.value).partition("\nrefused at")[0]
        return str(error.value)

    def test_no_device(self, cupy):
        cupy.cuda.runtime.getDeviceCount = raising(
            CUDARuntimeError(100, "cudaErrorNoDevice: no CUDA-capable device is detected")
        )
        self.refusal("'cuda' is not available: there is no GPU; use device_target='cuda-sim'")

    def test_a_count_of_none(self, cupy):
        cupy.cuda.runtime.getDeviceCount = lambda: 0
        self.refusal("there is no GPU")

    def test_a_gpu_older_than_the_compiler(self, cupy):
        cupy.cuda.Device = lambda: SimpleNamespace(compute_capability="70")
        said = self.refusal(r"compute capability 7\.0, and CUDA 13 compiles for 7\.5 and newer")
        assert "pip install 'miniml[cuda12]'" in said
        cupy.cuda.runtime.runtimeGetVersion = lambda: 12080
        assert load.gpu().name == "cuda"

    def test_no_code_for_this_gpu(self, gpu):
        gpu.RawModule = lambda code, options: SimpleNamespace(
            get_function=raising(
                CUDADriverError(
                    209,
                    "CUDA_ERROR_NO_BINARY_FOR_GPU: no kernel image is available for execution "
                    "on the device",
                )
            )
        )
        with pytest.raises(DeviceError, match=r"compiled for this GPU, of compute capability 9\.0"):
            ops.exp(ml.Tensor([1.0]))

    def test_a_compiler_that_does_not_know_the_gpu(self, gpu):
        log = "nvrtc: error: invalid value for --gpu-architecture (-arch)"
        gpu.RawModule = lambda code, options: SimpleNamespace(
            get_function=raising(CompileException(log))
        )
        with pytest.raises(DeviceError, match=r"invalid value.*pip install 'miniml\[cuda12\]'"):
            ops.exp(ml.Tensor([1.0]))


class TestCompile:
    def test_the_log_and_the_users_lines(self, gpu):
        log = 'f.cu(2): error: identifier "y" is undefined\n'
        gpu.RawModule = lambda code, options: SimpleNamespace(
            get_function=raising(CompileException(log))
        )
        text = 'extern "C" __global__ void f(const T* x, T* out, long long n) { out[0] = y; }'
        with pytest.raises(CompileError, match=r"the kernel f does not compile:\nf\.cu\(2\): err"):
            broken("LogOfNVRTC", text)(ml.Tensor(MATRIX))


EMPTY = 'extern "C" __global__ void f(const T* x, T* out, long long n) {}'
OUTSIDE = 'extern "C" __global__ void f(const T* x, T* out, long long n) { out[n] = x[0]; }'


def launch(*args, grid=(1,), block=(32,), shared=0):
    return lambda node: Launch(grid, block, args, shared)


class TestLaunches:
    @pytest.fixture(params=["cuda-sim", "as a GPU"])
    def either(self, request):
        """Simulator and GPU refuse in the same words."""
        if request.param == "cuda-sim":
            with ml.context(device_target="cuda-sim"):
                yield
        else:
            request.getfixturevalue("gpu")
            yield

    @pytest.mark.parametrize(
        ("name", "source", "rule", "message"),
        [
            ("Few", EMPTY, launch(), "f has 3 parameters; 2 arguments came"),
            ("Many", EMPTY, launch(np.int64(1), 2), "f has 3 parameters; 4 arguments came"),
            ("Short", EMPTY, launch(np.int32(1)), "argument 2 of f is .*; a value of int32 came"),
            ("Real", EMPTY, launch(1.0), "argument 2 of f is .*; a value of float64 came"),
            ("Text", EMPTY, launch("n"), "argument 2 of f cannot be a str"),
            (
                "Host",
                EMPTY,
                launch(np.zeros(3)),
                "argument 2 of f is a NumPy array of 3 elements; put it into device memory",
            ),
            (
                "Pointer",
                EMPTY.replace("const T* x", "const double* x"),
                launch(1),
                "argument 0 of f is .*; an array of float32 came",
            ),
            (
                "Value",
                EMPTY.replace("const T* x", "float x"),
                launch(1),
                "argument 0 of f is .*; an array of float32 came",
            ),
        ],
        ids=lambda v: v if isinstance(v, str) and v.isalpha() else "",
    )
    def test_arguments(self, either, name, source, rule, message):
        kind = broken(f"{name}In{ml.settings.current().device_target[4:]}s", source, rule)
        with pytest.raises(LaunchError, match=message):
            kind(ml.Tensor(MATRIX))

    @pytest.mark.parametrize(
        ("rule", "message"),
        [
            (launch(1, block=(2048,)), "2048 threads a block; 1024 is the limit"),
            (launch(1, block=(1, 1, 128)), r"block \(1, 1, 128\); \(1024, 1024, 64\) is the limit"),
            (launch(1, grid=(1, 70000)), r"grid \(1, 70000\); \(2147483647, 65535, 65535\) is"),
            (launch(1, shared=300000), "300000 bytes of shared memory; a block has at most 232448"),
            (launch(1, shared=-1), "-1 bytes of shared memory"),
            (launch(1, grid=(0,)), r"gives grid \(0,\); it is one to three ints of at least 1"),
        ],
        ids=["threads", "block", "grid", "shared", "negative", "none"],
    )
    def test_limits(self, either, rule, message):
        with pytest.raises(DeclarationError, match=message):
            broken("OutOfLimits", EMPTY, rule)(ml.Tensor(MATRIX))

    def test_too_many_registers(self, gpu):
        error = CUDADriverError(
            701, "CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES: too many resources requested for launch"
        )
        gpu.RawModule = lambda code, options: SimpleNamespace(
            get_function=lambda name: raising(error)
        )
        with pytest.raises(LaunchError) as caught:
            broken("Registers", EMPTY, launch(1, block=(1024,)))(ml.Tensor(MATRIX))
        assert first_line(caught) == (
            "kernel f cannot be launched with grid (1,), block (1024,) and 0 bytes of dynamic "
            "shared memory (CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES: too many resources requested for "
            "launch); fewer threads a block need fewer registers, and __launch_bounds__ makes the "
            "compiler save some"
        )


class TestMemory:
    @pytest.fixture
    def pool(self):
        pool = emucupy.get_default_memory_pool()
        yield pool
        pool.set_limit(None)

    def test_sizes_are_named_and_nothing_is_left(self, on_device, pool):
        if on_device == "cuda":
            pool = devices.get_device("cuda").module.get_default_memory_pool()
        x = ml.Tensor(np.zeros(1000, np.float32))
        f = ml.jit(lambda x: ops.exp(ops.exp(ops.broadcast_to(x, (100, 1000)) + 1)))
        ops.exp(x)
        gc.collect()
        pool.free_all_blocks()
        before = pool.used_bytes()
        pool.set_limit(before + 300_000)
        try:
            for call in (lambda: ops.exp(ops.broadcast_to(x, (100, 1000))), lambda: f(x)):
                with pytest.raises(DeviceMemoryError) as caught:
                    call()
                assert first_line(caught).startswith(
                    f"device '{on_device}' has no room for 400000 more bytes: "
                )
                assert f" of {before + 300_000} are in use; smaller batches" in first_line(caught)
                assert isinstance(caught.value, MemoryError)
                assert any("test_failures.py" in note for note in caught.value.__notes__)
                del caught
                gc.collect()
                assert pool.used_bytes() == before
        finally:
            pool.set_limit(None)
        assert f(x).shape == (100, 1000)

    def test_a_step_that_finds_no_room_changes_nothing(self, pool):
        with ml.context(device_target="cuda-sim", cuda_graphs="on"):
            p = ml.Parameter(np.zeros(1000, np.float32))

            def step(x):
                ops.assign(p, p + x)
                return ops.exp(ops.exp(x) + p)

            f = ml.jit(step)
            x = ml.Tensor(np.ones(1000, np.float32))
            for _ in range(3):
                f(x)
            gc.collect()
            pool.set_limit(pool.used_bytes() + 1000)
            with pytest.raises(DeviceMemoryError, match="no room for 4000 more bytes"):
                f(x)
            pool.set_limit(None)
            assert set(p.tolist()) == {3.0}
            f(x)
            assert set(p.tolist()) == {4.0}

    def test_cupys_own_error(self, gpu):
        gpu.empty = raising(
            OutOfMemoryError("Out of memory allocating 12 bytes (allocated so far: 0 bytes).")
        )
        with pytest.raises(DeviceMemoryError, match=r"no room for 12 more bytes: \d+ of 800000000"):
            ml.Tensor([1.0, 2.0, 3.0])


class TestFaults:
    def test_the_process_survives_in_the_simulator(self):
        with ml.context(device_target="cuda-sim"):
            with pytest.raises(KernelFaultError, match=r"out-of-bounds in kernel f.*f\.cu:1"):
                broken("Outside", OUTSIDE, launch(7))(ml.Tensor(MATRIX))
            assert ops.exp(ml.Tensor([0.0])).item() == 1

    @pytest.mark.parametrize(
        ("status", "name"),
        [
            (700, "cudaErrorIllegalAddress: an illegal memory access was encountered"),
            (716, "cudaErrorMisalignedAddress: misaligned address"),
            (719, "CUDA_ERROR_LAUNCH_FAILED: unspecified launch failure"),
            (710, "cudaErrorAssert: device-side assert triggered"),
        ],
        ids=["address", "alignment", "launch", "assert"],
    )
    def test_a_gpu_is_declared_lost(self, gpu, monkeypatch, status, name):
        x = ml.Tensor([1.0])
        error = CUDARuntimeError(status, name)
        monkeypatch.setattr(emucupy.ndarray, "get", raising(error))
        with pytest.raises(DeviceLostError) as caught:
            x.asnumpy()
        assert first_line(caught) == (
            f"device 'cuda' is lost: a kernel launched before faulted ({name}), and nothing that "
            "is there can be used any more; start the process anew, and run the same with "
            "device_target='cuda-sim', which names the kernel, the thread and the line"
        )

    @pytest.mark.parametrize("where", ["empty", "set", "synchronize", "launch"])
    def test_wherever_it_surfaces(self, gpu, monkeypatch, where):
        x = ml.Tensor([1.0])
        gpu_device = devices.get_device("cuda")
        if where == "empty":
            gpu.empty = raising(ILLEGAL)
        elif where == "set":
            monkeypatch.setattr(emucupy.ndarray, "set", raising(ILLEGAL))
        elif where == "synchronize":
            gpu.cuda.get_current_stream = lambda: SimpleNamespace(synchronize=raising(ILLEGAL))
        else:
            monkeypatch.setattr(emucupy.RawKernel, "__call__", raising(ILLEGAL))
        with pytest.raises(DeviceLostError, match="device 'cuda' is lost"):
            gpu_device.synchronize() if where == "synchronize" else ops.exp(ml.Tensor([2.0]) + x)

    def test_from_a_graph(self, gpu, monkeypatch):
        with ml.context(cuda_graphs="on"):
            f, x = ml.jit(lambda x: ops.exp(ops.exp(x))), ml.Tensor([0.0])
            for _ in range(3):
                f(x)
            monkeypatch.setattr(emucupy.cuda.Graph, "_run", raising(ILLEGAL))
            with pytest.raises(DeviceLostError, match="device 'cuda' is lost"):
                f(x)
            monkeypatch.undo()
            assert abs(f(x).item() - np.e) < 1e-6

    def test_other_errors_say_what_was_done(self, gpu, monkeypatch):
        other = CUDARuntimeError(3, "cudaErrorInitializationError: initialization error")
        monkeypatch.setattr(emucupy.ndarray, "set", raising(other))
        with pytest.raises(DeviceError, match="'cuda' failed at a copy from the host: cudaErrorIn"):
            ml.Tensor([1.0])
        monkeypatch.setattr(emucupy.ndarray, "set", raising(ValueError("not of CUDA")))
        with pytest.raises(ValueError, match="not of CUDA"):
            ml.Tensor([1.0])

    def test_the_users_line_is_shown(self, gpu, monkeypatch):
        x = ml.Tensor([1.0])
        monkeypatch.setattr(emucupy.RawKernel, "__call__", raising(ILLEGAL))
        with pytest.raises(MinimlError) as caught:
            ops.tanh(x)
        assert "ops.tanh(x)" in "".join(caught.value.__notes__)


class TestParameters:
    """Parameters are read from the text only where that is sure."""

    def read(self, text):
        found = parameters(text, "f")
        return None if found is None else [(p.pointer, p.type) for p in found]

    def test_what_is_read(self):
        text = """
        // void f(int wrong)
        void other() { f(1); }
        template <int A, int B> struct Pair {};
        extern "C" __global__ void __launch_bounds__(128) f(
            const float* __restrict__ x, /* , */ T *out, unsigned long long n, const int k,
            Pair<2, 3> pair, long long at[4], float** rows) { g(x, out); }
        """
        assert self.read(text) == [
            (True, ("f", 4)), (True, None), (False, ("u", 8)), (False, ("i", 4)), (False, None),
            (True, ("i", 8)), (True, None),
        ]  # fmt: skip

    @pytest.mark.parametrize(
        "text",
        [
            "__global__ void g(int n) {}",
            "__global__ void f(ARGUMENTS) {}",
            "__global__ void f(\n#ifdef A\n int n,\n#endif\n int m) {}",
        ],
    )
    def test_what_is_not(self, text):
        assert self.read(text) is None

    def test_none(self):
        assert self.read("__global__ void f() {}") == self.read("__global__ void f(void) {}") == []
        check("f", (), ())
