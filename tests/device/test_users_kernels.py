"""Kernels of users: expressions, CUDA C with a launch rule, classes; and what is refused."""

import subprocess
import sys

import numpy as np
import pytest

import miniml as ml
from miniml import ArraySpec, Kernel, Launch, Primitive, elementwise_kernel, kernel, raw_kernel
from miniml.backends.cuda import driver
from miniml.core.scope import epoch
from miniml.errors import (
    CompileError,
    DeclarationError,
    DeviceError,
    KernelFaultError,
    KernelNotFoundError,
    LaunchError,
    ShapeError,
)
from miniml.ops import Unary

ROW_SUM = """
extern "C" __global__ void row_sum(const T* x, T_OUT0* out, long long n) {
  __shared__ float parts[128];
  float sum = 0;
  for (long long i = threadIdx.x; i < n; i += blockDim.x) sum += x[blockIdx.x * n + i];
  parts[threadIdx.x] = sum;
  __syncthreads();
  for (int half = 64; half > 0; half /= 2) {
    if (threadIdx.x < half) parts[threadIdx.x] += parts[threadIdx.x + half];
    __syncthreads();
  }
  if (threadIdx.x == 0) out[blockIdx.x] = parts[0];
}
"""


class Swish2(Unary):
    """x / (1 + exp(-beta x))."""

    beta: float = 1.0


class SumOfRows(Primitive):
    """The sum of each row of a matrix."""

    def infer_shape(self, x):
        return x[:1]

    def infer_dtype(self, x):
        return x


def rows(node):
    n = node.inputs[0].shape
    return Launch(grid=(n[0],), block=(128,), args=(np.int64(n[1]),), shared=0, workspace=())


elementwise_kernel("Swish2", "x / (1.0f + exp(-beta * x))", "f->f", "d->d", "e->e")
raw_kernel("SumOfRows", "f->f", "d->d", entry="row_sum", source=ROW_SUM, defines={}, launch=rows)


class HalfOf(Primitive):
    """x / 2, without its rest for integers."""

    like = "x"


raw_kernel(
    "HalfOf", "f->f", "i->i", entry="halve",
    source="""extern "C" __global__ void halve(const T* x, T* out) {
      out[threadIdx.x] = x[threadIdx.x] / 2;
    }""",
    launch=lambda node: Launch((1,), (node.inputs[0].size,)),
)  # fmt: skip


class ThirdOf(Unary):
    """x / 3, for which there is a kernel in float64 alone."""


elementwise_kernel("ThirdOf", "x / 3", "d->d")


class Doubled(Unary):
    """2 x, by way of a workspace."""


@kernel("Doubled", "cuda", "f->f")
class DoubledKernel(Kernel):
    """Two launches with scratch memory between them; the factor is uploaded once."""

    text = """
    extern "C" __global__ void scaled(const float* x, const float* by, float* out, long long n) {
      long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x;
      if (i < n) out[i] = x[i] * *by;
    }
    """

    def prepare(self, node):
        super().prepare(node)
        self.function = node.device.compiler.function(self.text, "scaled")
        self.factor = node.device.from_host(np.array(np.sqrt(2), np.float32))

    def workspace(self):
        return (ArraySpec(self.node.outputs[0].shape, np.dtype(np.float32)),)

    def launch(self, inputs, workspace, outputs, stream):
        for x, out in ((inputs[0], workspace[0]), (workspace[0], outputs[0])):
            args = x.flat, self.factor.flat, out.flat, np.int64(x.size)
            self.function((-(-x.size // 64),), (64,), args)


class CountedInto(Primitive):
    """How many of the numbers of x, which are 0 to 7, are equal to each."""

    differentiable = False

    def infer_shape(self, x):
        return (8,)

    def infer_dtype(self, x):
        return ml.int32


COUNT = """
#ifndef STEP
#define STEP 7
#endif
extern "C" __global__ void count(const int* x, int* out, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) atomicAdd(out + x[i], STEP);
}
"""


def counted(node, **more):
    n = node.inputs[0].size
    return Launch(grid=(-(-n // 32),), block=(32,), args=(np.int32(n),), **more)


raw_kernel(
    "CountedInto", "i->i", entry="count", source=COUNT, options=("-DSTEP=1", "--use_fast_math"),
    launch=lambda node: counted(node, zero=(0,)),
)  # fmt: skip


class Smoothed(Unary):
    """x * 3 and, in a second text, that minus x."""


@kernel("Smoothed", "cuda", "f->f")
class SmoothedKernel(Kernel):
    """Two texts, the first of which reads a constant that the host sets."""

    first = """
    __constant__ float taps[3];
    extern "C" __global__ void convolved(const float* x, float* out) {
      out[threadIdx.x] = x[threadIdx.x] * (taps[0] + taps[1] + taps[2]);
    }
    """
    second = """
    // minus x
    extern "C" __global__ void __launch_bounds__(64) difference(const float* x, float* out) {
      out[threadIdx.x] -= x[threadIdx.x];
    }
    """

    def prepare(self, node):
        super().prepare(node)
        compiler, module = node.device.compiler, node.device.module
        self.functions = [
            compiler.function(self.first, "convolved"),
            compiler.function(self.second, "difference"),
        ]
        taps = module.ndarray((3,), np.float32, self.functions[0].get_global("taps"))
        taps.set(np.array([0.5, 2.0, 0.5], np.float32))

    def launch(self, inputs, workspace, outputs, stream):
        for function in self.functions:
            function((1,), (outputs[0].size,), (inputs[0].flat, outputs[0].flat))


class TestUsersKernels:
    @pytest.mark.parametrize("jit", [True, False], ids=["graph", "eager"])
    @pytest.mark.parametrize("mode", ["check", "fast"])
    def test_an_output_that_atomics_add_to_is_zeroed_first(self, on_device, jit, mode):
        f = ml.jit(CountedInto()) if jit else CountedInto()
        with ml.context(sim=mode):
            for seed in range(3):
                x = np.random.default_rng(seed).integers(0, 8, 100).astype(np.int32)
                expected = np.bincount(x, minlength=8)
                np.testing.assert_array_equal(f(ml.Tensor(x)).asnumpy(), expected)

    @pytest.mark.parametrize("mode", ["check", "fast"])
    def test_a_class_sets_constants_of_its_text(self, on_device, mode):
        x = np.arange(5, dtype=np.float32)
        with ml.context(sim=mode):
            np.testing.assert_array_equal(Smoothed()(ml.Tensor(x)).asnumpy(), 2 * x)

    def test_a_fault_names_the_text_that_it_is_in(self, on_simulator):
        before = SmoothedKernel.second
        SmoothedKernel.second = before.replace("-= x[threadIdx.x]", "-= x[threadIdx.x + 3]")
        try:
            epoch.bump("kernels")
            with (
                ml.context(device_target="cuda-sim"),
                pytest.raises(KernelFaultError, match=r"difference\.cu:4: read of 4 bytes"),
            ):
                Smoothed()(ml.Tensor(np.arange(7, dtype=np.float32)))
        finally:
            SmoothedKernel.second = before
            epoch.bump("kernels")

    @pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
    def test_a_wider_kernel_serves_a_narrow_dtype(self, on_device, dtype):
        x = ml.Tensor(np.arange(6.0).reshape(2, 3), getattr(ml, dtype)).T
        right = (np.arange(6.0).reshape(2, 3).T / 3).astype(x.dtype)
        for run in (ThirdOf(), ml.jit(ThirdOf())):
            got = run(x)
            assert got.dtype == x.dtype
            assert np.array_equal(got.asnumpy(), right)

    @pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
    def test_an_expression(self, on_device, dtype):
        x = np.linspace(-3, 3, 12).reshape(3, 4).astype(dtype)
        got = Swish2(0.5)(ml.Tensor(x).T).asnumpy()
        wide = x.T.astype(np.float64)
        assert got.dtype == x.dtype
        assert np.allclose(got, wide / (1 + np.exp(-0.5 * wide)), rtol=2e-3)

    def test_attributes_are_arguments_not_text(self, on_device):
        x = ml.Tensor([1.0])
        compiler = ml.backends.selection.get_device(on_device).compiler
        Swish2(0.1)(x)
        before = len(compiler._functions)
        Swish2(0.2)(x)
        assert len(compiler._functions) == before

    @pytest.mark.parametrize("jit", [True, False], ids=["graph", "eager"])
    def test_cuda_text_with_a_launch_rule(self, on_device, jit):
        x = np.random.default_rng(0).standard_normal((5, 300)).astype(np.float32)
        f = ml.jit(SumOfRows()) if jit else SumOfRows()
        assert np.allclose(f(ml.Tensor(x)).asnumpy(), x.sum(1), rtol=1e-4, atol=1e-4)
        turned = ml.Tensor(x.T.copy()).T  # the framework makes it contiguous
        assert np.allclose(f(turned).asnumpy(), x.sum(1), rtol=1e-4, atol=1e-4)

    @pytest.mark.parametrize(("dtype", "half"), [("float32", 1.5), ("int32", 1)])
    def test_one_text_serves_each_of_its_signatures(self, on_device, dtype, half):
        x = ml.Tensor(np.array([3, 4, -8], dtype))
        assert HalfOf()(x).tolist() == ml.jit(HalfOf())(x).tolist() == [half, 2, -4]

    def test_texts_of_one_key_are_told_apart_by_what_they_require(self):
        text = 'extern "C" __global__ void put(const T* x, T* out) { *out = WHICH; }'
        for which, feature in ((3, "cublas"), (2, "wmma"), (1, "")):
            raw_kernel(
                "Told", "f->f", entry="put", source=text, defines={"WHICH": which},
                launch=lambda node: Launch((1,), (1,)),
                requires=(feature,) if feature else (), priority=which,
            )  # fmt: skip
        type("Told", (Swish2,), {"__doc__": "x", "__module__": __name__})
        with ml.context(device_target="cuda-sim", without="cublas"):
            assert ml.core.primitive.primitives["Told"](1.0)(ml.Tensor([0.0])).item() == 2.0

    def test_an_empty_launch_is_skipped(self, on_device):
        assert SumOfRows()(ml.Tensor(np.zeros((0, 3), np.float32))).shape == (0,)

    @pytest.mark.parametrize("jit", [True, False], ids=["graph", "eager"])
    def test_a_class_with_workspace(self, on_device, jit):
        f = ml.jit(Doubled()) if jit else Doubled()
        assert np.allclose(f(ml.Tensor([1.0, 2.0, 3.0])).asnumpy(), [2, 4, 6])


def broken(name, source, launch=rows, entry="f", options=()):
    """A primitive with a kernel of that text."""
    made = type(name, (SumOfRows,), {"__doc__": "x", "__module__": __name__})
    raw_kernel(name, "f->f", entry=entry, source=source, launch=launch, options=options)
    return made()


def test_a_header_that_was_edited_is_compiled_anew(on_device, tmp_path):
    """It is not in the text, which is the name of what was compiled."""
    text = (
        '#include "outer.cuh"\n'
        'extern "C" __global__ void f(const T* x, T* out, long long n) {\n'
        "  if (threadIdx.x == 0) out[blockIdx.x] = SHARE * x[blockIdx.x * n];\n}\n"
    )
    (tmp_path / "outer.cuh").write_text('#include "inner.cuh"\n')
    for share in (2, 3):
        (tmp_path / "inner.cuh").write_text(f"#define SHARE {share}\n")
        first = broken("Headed", text, options=(f"-I{tmp_path}",))
        assert first(ml.Tensor(MATRIX)).tolist() == [share] * 2


def recounted(name, **launch):
    """CountedInto with another rule for its launch."""
    type(name, (CountedInto,), {"__doc__": "x", "__module__": __name__})
    raw_kernel(
        name, "i->i", entry="count", source=COUNT, defines={"STEP": 1},
        launch=lambda node: counted(node, **launch),
    )  # fmt: skip
    return ml.core.primitive.primitives[name]()


MATRIX = np.ones((2, 3), np.float32)


class TestRefusals:
    def test_an_output_that_nothing_zeroed_is_uninitialised(self, on_simulator):
        with (
            ml.context(device_target="cuda-sim", sim="check"),
            pytest.raises(KernelFaultError, match="uninitialised in kernel count"),
        ):
            recounted("CountedIntoNothing")(ml.Tensor(np.zeros(3, np.int32)))

    @pytest.mark.parametrize("zero", [(1,), (0, -1)])
    def test_an_output_to_zero_that_is_not_there(self, on_device, zero):
        with pytest.raises(DeclarationError, match=r"zero=\(.*; its outputs are numbered 0 to 0"):
            recounted(f"CountedZero{len(zero)}", zero=zero)(ml.Tensor(np.zeros(3, np.int32)))

    @pytest.mark.parametrize("options", ["--use_fast_math", ("-DA=1", "use_fast_math")])
    def test_options_that_are_none(self, options):
        with pytest.raises(DeclarationError, match=r"options has '(--)?use_fast_math'; give a tu"):
            raw_kernel(
                "CountedInto", "l->i", entry="count", source=COUNT, launch=counted, options=options
            )

    def test_a_kernel_that_does_not_compile_shows_the_log_and_the_users_line(self, on_device):
        text = 'extern "C" __global__ void f(const T* x, T* out, long long n) {\n  out[0] = y;\n}\n'
        with pytest.raises(CompileError, match=r"f\.cu[:(]2.*y") as e:
            broken("NoCompile", text)(ml.Tensor(MATRIX))
        assert "NoCompile was called" in e.value.__notes__[0]

    def test_an_expression_that_does_not_compile_names_its_primitive(self, on_device):
        type("Unbalanced", (Swish2,), {"__doc__": "x", "__module__": __name__})
        elementwise_kernel("Unbalanced", "x +* beta", "f->f")
        with pytest.raises(CompileError, match=r"Unbalanced expression[:(]1"):
            ml.core.primitive.primitives["Unbalanced"](1.0)(ml.Tensor([1.0]))

    def test_a_launch_out_of_limits(self, on_device):
        text = 'extern "C" __global__ void f(const T* x, T* out, long long n) {}'
        wide = broken("TooWide", text, lambda node: Launch((1,), (2048,), (np.int64(1),)))
        with pytest.raises(DeclarationError, match="gives 2048 threads a block; 1024 is the limit"):
            wide(ml.Tensor(MATRIX))
        empty = broken("NoGrid", text, lambda node: Launch((0,), (32,), (np.int64(1),)))
        with pytest.raises(DeclarationError, match=r"gives grid \(0,\)"):
            empty(ml.Tensor(MATRIX))

    def test_wrong_arguments_in_the_simulator(self):
        text = 'extern "C" __global__ void f(const T* x, T* out, long long n) {}'
        few = broken("FewArguments", text, lambda node: Launch((1,), (32,)))
        with ml.context(device_target="cuda-sim"), pytest.raises(LaunchError, match="3 parameters"):
            few(ml.Tensor(MATRIX))
        narrow = broken("Narrow", text, lambda node: Launch((1,), (32,), (np.int32(3),)))
        with ml.context(device_target="cuda-sim"), pytest.raises(LaunchError, match="int32"):
            narrow(ml.Tensor(MATRIX))

    def test_more_axes_than_kernels_take(self, on_device):
        x = ml.Tensor(np.zeros((2, 1) * 10, np.float32))
        y = ml.Tensor(np.zeros((1, 2) * 10, np.float32))
        with pytest.raises(ShapeError, match="Add needs 20 axes that do not merge"):
            x + y

    def test_a_primitive_without_a_kernel(self, on_device):
        type("Homeless", (Swish2,), {"__doc__": "x", "__module__": __name__})
        with pytest.raises(KernelNotFoundError, match="Homeless has no kernel on cuda"):
            ml.core.primitive.primitives["Homeless"](1.0)(ml.Tensor([1.0]))

    def test_no_cupy(self, monkeypatch):
        monkeypatch.setitem(sys.modules, "cupy", None)
        with pytest.raises(
            DeviceError, match=r"'cuda' is not available: it needs cupy.*pip install 'miniml"
        ):
            driver.gpu()

    def test_no_driver(self):
        cupy = pytest.importorskip("cupy", reason="no cupy on this machine")
        if cupy.cuda.runtime.driverGetVersion():
            pytest.skip("a driver is here, so none can be missing")
        with pytest.raises(DeviceError) as e:
            ml.Tensor([1.0], device="cuda")
        assert str(e.value).splitlines()[0] == (
            "device 'cuda' is not available: cupy is here, NVIDIA's driver is not; install it "
            "where there is a GPU, or use device_target='cuda-sim'"
        )

    def test_a_driver_that_is_too_old(self, monkeypatch):
        class runtime:
            @staticmethod
            def getDeviceCount():
                raise RuntimeError("cudaErrorInsufficientDriver")

            @staticmethod
            def driverGetVersion():
                return 11040

        module = type(sys)("cupy")
        module.cuda = type("cuda", (), {"runtime": runtime})
        monkeypatch.setitem(sys.modules, "cupy", module)
        with pytest.raises(DeviceError, match=r"driver.*cudaErrorInsufficientDriver.*a newer one"):
            driver.gpu()

    def test_no_compiler(self, tmp_path):
        text = (
            "import miniml as ml\n"
            "try: ml.Tensor([1.0], device='cuda-sim')\n"
            "except ml.errors.DeviceError as error: print(error)"
        )
        run = subprocess.run(
            [sys.executable, "-c", text],
            env={"PATH": "/nowhere", "MINIML_CACHE": str(tmp_path)},
            capture_output=True,
            text=True,
        )
        assert "needs a C++ compiler" in run.stdout, run.stderr

    def test_nothing_of_cuda_is_loaded_before_it_is_used(self):
        text = (
            "import sys, miniml as ml; ml.ops.add(ml.Tensor([1.0]), 1.0);"
            "print([m for m in sys.modules if 'cupy' in m or 'backends.cuda' in m])"
        )
        run = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True)
        assert run.stdout.strip() == "[]", run.stdout + run.stderr


class Backwards(Unary):
    """Its input from the last row to the first."""

    step: int = -1


def test_a_class_may_pick_a_view(on_device):
    @ml.view_kernel("Backwards", "cuda")
    class Picked(Kernel):
        def prepare(self, node):
            step = node.attrs["step"]
            self.call = lambda x: x.seen(lambda a: a[::step])

    x = np.arange(6, dtype=np.float32).reshape(3, 2)
    for run in (Backwards(), ml.jit(Backwards())):
        assert run(ml.Tensor(x)).tolist() == x[::-1].tolist()


def test_a_class_that_picks_no_view_or_one_of_another_shape_is_refused(on_device):
    @ml.view_kernel("Swish2", "cuda", "i->i")
    class Launches(Kernel):
        def launch(self, inputs, workspace, outputs, stream):
            outputs[0][...] = inputs[0]

    @ml.view_kernel("Swish2", "cuda", "l->l")
    class Shorter(Kernel):
        def prepare(self, node):
            self.call = lambda x: x.seen(lambda a: a[:1])

    with pytest.raises(DeclarationError, match="Launches of Swish2 picks no function; set self"):
        Swish2()(ml.Tensor(np.zeros(3, np.int32)))
    with pytest.raises(DeclarationError, match=r"'Shorter' returned a view of shape \(1,\)"):
        Swish2()(ml.Tensor(np.zeros(3, np.int64)))
