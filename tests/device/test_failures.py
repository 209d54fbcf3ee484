"""How a device is absent, full or lost: one sentence each, on the simulator and with a module that
raises cupy's own errors."""

import gc
from types import SimpleNamespace

import numpy as np
import pytest

import miniml as ml
from miniml import Launch, ops
from miniml.backends import selection as devices
from miniml.backends.cuda import driver
from miniml.backends.cuda.driver import CublasLibrary
from miniml.errors import (
    CompileError,
    DeviceError,
    DeviceLostError,
    DeviceMemoryError,
    KernelFaultError,
    MinimlError,
)
from tests.device import emucupy
from tests.device.as_gpu import (
    ILLEGAL,
    CompileException,
    CUDADriverError,
    CUDARuntimeError,
    OutOfMemoryError,
    first_line,
    raising,
)
from tests.device.gemm import BAD, Library
from tests.device.test_users_kernels import MATRIX, broken


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
        message = self.refusal(r"compute capability 7\.0, and CUDA 13 compiles for 7\.5 and newer")
        assert "pip install 'miniml[cuda12]'" in message
        cupy.cuda.runtime.runtimeGetVersion = lambda: 12080
        assert driver.gpu().name == "cuda"

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


OUTSIDE = 'extern "C" __global__ void f(const T* x, T* out, long long n) { out[n] = x[0]; }'


class TestMemory:
    @pytest.fixture
    def pool(self):
        pool = emucupy.double().get_default_memory_pool()
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

    def test_a_step_that_finds_no_room_changes_nothing(self, on_simulator, pool):
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
    def test_the_process_survives_in_the_simulator(self, on_simulator):
        with ml.context(device_target="cuda-sim"):
            with pytest.raises(KernelFaultError, match=r"out-of-bounds in kernel f.*f\.cu:1"):
                broken("Outside", OUTSIDE, lambda node: Launch((1,), (32,), (np.int64(7),)))(
                    ml.Tensor(MATRIX)
                )
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

    def test_from_cublas(self, gpu):
        library = Library()
        library.status = BAD
        devices.get_device("cuda").driver.cublas = CublasLibrary(library, 80)
        x = ml.Tensor(MATRIX)
        with pytest.raises(DeviceError, match="failed at a product by cuBLAS: CUBLAS_STATUS_EXEC"):
            ops.matmul(x, x.T)

    def test_from_a_graph(self, gpu, monkeypatch):
        with ml.context(cuda_graphs="on"):
            f, x = ml.jit(lambda x: ops.exp(ops.exp(x))), ml.Tensor([0.0])
            for _ in range(3):
                f(x)
            monkeypatch.setattr(emucupy.Graph, "_run", raising(ILLEGAL))
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
