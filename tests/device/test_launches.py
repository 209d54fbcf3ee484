"""Launches that are refused: wrong arguments, beyond the limits; in the same words everywhere."""

import itertools
from contextlib import nullcontext, suppress
from types import SimpleNamespace

import numpy as np
import pytest

import miniml as ml
from miniml import Launch, bfloat16
from miniml.backends.cuda.text.source import check, parameters
from miniml.errors import DeclarationError, LaunchError
from tests.device import emucupy as cp
from tests.device.as_gpu import CUDADriverError, first_line, raising
from tests.device.test_users_kernels import MATRIX, broken

EMPTY = 'extern "C" __global__ void f(const T* x, T* out, long long n) {}'


def launch(*args, grid=(1,), block=(32,), shared=0):
    return lambda node: Launch(grid, block, args, shared)


class TestLaunches:
    @pytest.fixture(params=["cuda-sim", "as a GPU"])
    def either(self, on_simulator, request):
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
            ("Few", EMPTY, launch(), "f has 3 parameters; got 2 arguments"),
            ("Many", EMPTY, launch(np.int64(1), 2), "f has 3 parameters; got 4 arguments"),
            ("Short", EMPTY, launch(np.int32(1)), "argument 2 of f is .*; got a value of int32"),
            ("Real", EMPTY, launch(1.0), "argument 2 of f is .*; got a value of float64"),
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
                "argument 0 of f is .*; got an array of float32",
            ),
            (
                "Value",
                EMPTY.replace("const T* x", "float x"),
                launch(1),
                "argument 0 of f is .*; got an array of float32",
            ),
        ],
        ids=lambda v: v if isinstance(v, str) and v.isalpha() else "",
    )
    def test_arguments(self, either, name, source, rule, message):
        kind = broken(f"{name}In{ml.core.settings.current().device_target[4:]}s", source, rule)
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


NUMBERS = {
    "bool": "bool", "int8": "signed char", "uint8": "unsigned char", "int16": "short",
    "uint16": "unsigned short", "int32": "int", "uint32": "unsigned int", "int64": "long long",
    "uint64": "unsigned long long", "float32": "float", "float64": "double",
}  # fmt: skip


@pytest.mark.parametrize("array", [True, False])
def test_gpu_and_simulator_take_the_same_arguments(array):
    """Arrays of the pointer's type alone; integers of either sign; bools as unsigned bytes."""
    star = "*" * array
    text = "".join(
        f'extern "C" __global__ void of_{name}({c}{star} x) {{}}\n' for name, c in NUMBERS.items()
    )
    on_simulator = cp.RawModule(code=text)
    on_gpu, simulated = set(), set()
    for parameter, got in itertools.product(NUMBERS, (*NUMBERS, bfloat16)):
        f, pair = f"of_{parameter}", (str(np.dtype(got)), parameter)
        argument = cp.zeros(1, got) if array else np.zeros((), got)[()]
        with suppress(LaunchError):
            check(f, parameters(text, f), (argument,))
            on_gpu.add(pair)
        with suppress(LaunchError):
            on_simulator.get_function(f)((1,), (1,), (argument,))
            simulated.add(pair)
    same = {(n, n) for n in NUMBERS} | {("bool", "uint8")}
    signs = (("int{}", "uint{}"), ("uint{}", "int{}"))
    either = {(a.format(n), b.format(n)) for n in (8, 16, 32, 64) for a, b in signs}
    assert on_gpu == simulated == (same if array else same | either)


@pytest.mark.parametrize("argument", [0, np.intp(0), np.uint64(0), 8, np.int32(0), 0.0])
def test_a_null_pointer_passes_everywhere(argument):
    text = 'extern "C" __global__ void f(float* x) {}'
    fits = argument == 0 and type(argument) not in (float, np.int32)
    for call in (
        lambda: check("f", parameters(text, "f"), (argument,)),
        lambda: cp.RawModule(code=text).get_function("f")((1,), (1,), (argument,)),
    ):
        with nullcontext() if fits else pytest.raises(LaunchError, match="got a value of"):
            call()


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
            "__global__ void f(Tile<1 << 3> tile, int n) { g(n, 1); }",
            "__global__ void f(Tile<N < 4> tile, int n) { g(n, 1); }",
        ],
    )
    def test_what_is_not(self, text):
        assert self.read(text) is None

    @pytest.mark.parametrize("argument", ["(N > 4)", "(1 << 3)", "g(N < 4)", "Pair<int, 3>"])
    def test_comparisons_in_parentheses(self, argument):
        text = f"__global__ void f(Tile<{argument}> tile, int n) {{ g(n, 1); }}"
        assert self.read(text) == [(False, None), (False, ("i", 4))]

    def test_none(self):
        assert self.read("__global__ void f() {}") == self.read("__global__ void f(void) {}") == []
        check("f", (), ())
