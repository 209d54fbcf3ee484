"""miniml and its peers, each with the same operations by the same names."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

import miniml as ml
from miniml import Primitive, elementwise_kernel, ops
from miniml.backends.selection import get_device

Call = Callable[[], object]


class Library:
    """name, version; ops by the names of cases; array: from NumPy to the device; seconds: how
    long calls take, one after another; steps: kinds of training step."""

    name: str
    version: str
    ops: dict[str, Callable[..., object]]
    steps: tuple[str, ...] = ()

    def array(self, array: np.ndarray) -> Any:
        raise NotImplementedError

    def seconds(self, calls: Sequence[Call]) -> float:
        raise NotImplementedError

    def copies(self, nbytes: int) -> list[Call]:
        """Calls that copy so many bytes between two pairs of arrays."""
        raise NotImplementedError


class Events(Library):
    """Base of those that time with cupy's events."""

    module: Any

    def seconds(self, calls: Sequence[Call]) -> float:
        cuda = self.module.cuda
        start, end = cuda.Event(), cuda.Event()
        start.record()
        for call in calls:
            call()
        end.record()
        end.synchronize()
        return float(cuda.get_elapsed_time(start, end)) / 1e3

    def copies(self, nbytes: int) -> list[Call]:
        data = np.random.default_rng(0).integers(0, 255, nbytes, np.uint8)
        pairs = [(self.module.empty(nbytes, np.uint8), self.module.asarray(data)) for _ in "ab"]
        return [lambda to=to, of=of: to.__setitem__(..., of) for to, of in pairs]


class GpuCheckChain(Primitive):
    """tanh(2 x + 1) x."""

    def infer_shape(self, x: Any) -> Any:
        return x

    def infer_dtype(self, x: Any) -> Any:
        return x


elementwise_kernel("GpuCheckChain", "tanh(x * 2.0f + 1.0f) * x", "f->f")


class Miniml(Events):
    """miniml on the device, op by op; a transpose is made contiguous."""

    name, version = "miniml", ml.__version__
    steps = (" with a CUDA graph", " without")

    def __init__(self, device: str):
        ml.set_context(device_target=device, sim="fast")  # the process is this library's
        self.device: Any = get_device(device, "fast")
        self.module = self.device.module
        self.ops = {
            "add": ops.add,
            "fused": GpuCheckChain(),
            "chain": lambda x: ops.tanh(x * 2.0 + 1.0) * x,
            "softmax": ops.softmax,
            "layer_norm": ops.layer_norm,
            "sum_rows": lambda x: ops.sum(x, 1),
            "sum_columns": lambda x: ops.sum(x, 0),
            "sum_all": ops.sum,
            "transpose": lambda x: self.device.contiguous(x.T._data),
            "matmul": ops.matmul,
            "conv": lambda x, w: ops.conv2d(x, w, padding=1),
        }

    def array(self, array: np.ndarray) -> Any:
        return ml.Tensor(array, device=self.device.name)

    def seconds(self, calls: Sequence[Call]) -> float:
        """By the clock in the simulator, which has no events."""
        if self.device.name == "cuda":
            return super().seconds(calls)
        start = time.perf_counter()
        for call in calls:
            call()
        self.device.synchronize()
        return time.perf_counter() - start

    def copies(self, nbytes: int) -> list[Call]:
        if self.device.name == "cuda":
            return super().copies(nbytes)
        x = self.device.from_host(np.zeros(nbytes, np.uint8))
        return [lambda: self.device.copy(x)]


class Cupy(Events):
    """cupy, with an ElementwiseKernel for the chain."""

    name = "cupy"

    def __init__(self, device: str):
        import cupy  # noqa: PLC0415 - there is none on most machines

        self.module, self.version = cupy, cupy.__version__
        fused = cupy.ElementwiseKernel("T x", "T y", "y = tanh(x * T(2) + T(1)) * x", "check_chain")

        def softmax(x: Any) -> Any:
            e = cupy.exp(x - x.max(1, keepdims=True))
            return e / e.sum(1, keepdims=True)

        def layer_norm(x: Any, gamma: Any, beta: Any) -> Any:
            d = x - x.mean(1, keepdims=True)
            return d / cupy.sqrt((d * d).mean(1, keepdims=True) + 1e-5) * gamma + beta

        self.ops = {
            "add": cupy.add, "fused": fused, "softmax": softmax, "layer_norm": layer_norm,
            "chain": lambda x: cupy.tanh(x * 2 + 1) * x, "sum_rows": lambda x: x.sum(1),
            "sum_columns": lambda x: x.sum(0), "sum_all": lambda x: x.sum(),
            "transpose": lambda x: cupy.ascontiguousarray(x.T), "matmul": cupy.matmul,
        }  # fmt: skip

    def array(self, array: np.ndarray) -> Any:
        return self.module.asarray(array)


class Torch(Library):
    """PyTorch, op by op, with float32 products as float32."""

    name, steps = "torch", ("",)

    def __init__(self, device: str):
        import torch  # noqa: PLC0415 - measured where installed

        if not torch.cuda.is_available():
            raise ImportError("this PyTorch sees no GPU")
        f = torch.nn.functional
        self.torch, self.version = torch, torch.__version__
        torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
        self.ops = {
            "add": torch.add,
            "fused": torch.compile(lambda x: torch.tanh(x * 2 + 1) * x),
            "chain": lambda x: torch.tanh(x * 2 + 1) * x,
            "softmax": lambda x: f.softmax(x, 1),
            "layer_norm": lambda x, g, b: f.layer_norm(x, g.shape, g, b),
            "sum_rows": lambda x: x.sum(1),
            "sum_columns": lambda x: x.sum(0),
            "sum_all": lambda x: x.sum(),
            "transpose": lambda x: x.t().contiguous(),
            "matmul": torch.matmul,
            "conv": lambda x, w: f.conv2d(x, w, padding=1),
        }

    def array(self, array: np.ndarray) -> Any:
        return self.torch.from_numpy(array).cuda()

    def seconds(self, calls: Sequence[Call]) -> float:
        start, end = (self.torch.cuda.Event(enable_timing=True) for _ in "ab")
        start.record()
        for call in calls:
            call()
        end.record()
        end.synchronize()
        return float(start.elapsed_time(end)) / 1e3

    def copies(self, nbytes: int) -> list[Call]:
        pairs = [[self.torch.zeros(nbytes // 4, device="cuda") for _ in "ab"] for _ in "ab"]
        return [lambda to=to, of=of: to.copy_(of) for to, of in pairs]


class Jax(Library):
    """JAX, every operation jitted; it has no events, so the clock of the host waits for the last
    result."""

    name, steps = "jax", ("",)

    def __init__(self, device: str):
        import jax  # noqa: PLC0415 - measured where installed
        import jax.numpy as jnp  # noqa: PLC0415

        if jax.default_backend() != "gpu":
            raise ImportError("this JAX sees no GPU")
        self.jax, self.version = jax, jax.__version__
        jax.config.update("jax_default_matmul_precision", "highest")

        def layer_norm(x: Any, gamma: Any, beta: Any) -> Any:
            d = x - x.mean(1, keepdims=True)
            return d * jax.lax.rsqrt((d * d).mean(1, keepdims=True) + 1e-5) * gamma + beta

        plain: dict[str, Callable[..., object]] = {
            "add": jnp.add, "fused": lambda x: jnp.tanh(x * 2 + 1) * x,
            "softmax": lambda x: jax.nn.softmax(x, 1), "layer_norm": layer_norm,
            "sum_rows": lambda x: x.sum(1), "sum_columns": lambda x: x.sum(0),
            "sum_all": jnp.sum, "transpose": jnp.transpose, "matmul": jnp.matmul,
            "conv": lambda x, w: jax.lax.conv(x, w, (1, 1), "SAME"),
        }  # fmt: skip
        self.ops = {name: jax.jit(fn) for name, fn in plain.items()}

    def array(self, array: np.ndarray) -> Any:
        return self.jax.device_put(array)

    def seconds(self, calls: Sequence[Call]) -> float:
        last = None
        start = time.perf_counter()
        for call in calls:
            last = call()
        self.jax.block_until_ready(last)
        return time.perf_counter() - start

    def copies(self, nbytes: int) -> list[Call]:
        arrays = [
            self.array(np.random.default_rng(0).random(nbytes // 4, np.float32)) for _ in "ab"
        ]
        copy = self.jax.jit(self.jax.numpy.copy)
        return [lambda a=a: copy(a) for a in arrays]


LIBRARIES: dict[str, type[Any]] = {"miniml": Miniml, "cupy": Cupy, "torch": Torch, "jax": Jax}
