"""What a launch refuses, what a fault does to the process, and what messages say."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
import threading
from functools import cache
from typing import Any

import numpy as np
import pytest

from miniml.backends.cuda.sim.memory import SimSettings, current, using
from miniml.errors import CompileError, KernelFaultError, LaunchError
from tests.device import emucupy as cp

i32, f32 = np.int32, np.float32

TEXT = r"""
struct Pair { float a, b; };
extern "C" __global__ void typed(const float* x, const long long* at, float* y, int n) {
  if (threadIdx.x < n) y[threadIdx.x] = x[at[threadIdx.x]];
}
extern "C" __global__ void scalars(double d, bool b, unsigned char c, Pair p, float* y) {
  y[0] = (float)d + b + c + p.a + p.b;
}
extern "C" __global__ void anything(void* p, float4* q) {}
extern "C" __global__ void __launch_bounds__(32 * 2, 3) bounded(float* y) { y[threadIdx.x] = 1; }
extern "C" __global__ void dynamic(float* y) {
  extern __shared__ char raw[];
  raw[threadIdx.x] = 1;
  y[threadIdx.x] = raw[threadIdx.x];
}
extern "C" __global__ void stores(float* y, long long i) { y[i] = 1; }
extern "C" __global__ void divides(int* y, int d) { y[threadIdx.x] = 7 / d; }
extern "C" __global__ void copies(const float* x, float* y, int n) {
  for (int k = threadIdx.x; k < n; k += blockDim.x) y[k] = x[k];
}
extern "C" __global__ void twice(float* x) { x[threadIdx.x] *= 2; }
"""


@cache
def unit() -> Any:
    return cp.RawModule(code=TEXT)


def launch(name: str, *args: Any, grid: Any = (1,), block: Any = (8,), shared_mem: int = 0) -> None:
    unit().get_function(name)(grid, block, args, shared_mem=shared_mem)


def arrays() -> tuple[Any, Any, Any]:
    return cp.zeros(8), cp.zeros(8, np.int64), cp.zeros(8)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({3: 8}, "argument 3 of typed is int32; got a value of int64"),
        ({3: 8.0}, "got a value of float64"),
        ({3: f32(8)}, "got a value of float32"),
        ({0: "zeros"}, "argument 0 of typed cannot be a str"),
        ({0: np.zeros(8, "f")}, "a NumPy array of 8 elements; put it into device memory first"),
        ({0: i32(0)}, "argument 0 of typed is pointer to const float32; got a value of int32"),
        ({0: np.uint64(4096)}, "argument 0 of typed is pointer to const float32"),
        ({0: "float64"}, "pointer to const float32; got an array of float64"),
        ({1: "int32"}, "pointer to const int64; got an array of int32"),
    ],
)
def test_arguments_of_another_type_are_refused(change, message):
    args = [*arrays(), i32(8)]
    for at, value in change.items():
        named = isinstance(value, str) and value != "zeros"
        args[at] = cp.zeros(8, value) if named else value
    with pytest.raises(LaunchError, match=message):
        launch("typed", *args)


def test_the_number_of_arguments_is_checked():
    with pytest.raises(LaunchError, match="typed has 4 parameters; got 2 arguments"):
        launch("typed", *arrays()[:2])


def test_python_numbers_and_structures_pass_as_in_cupy():
    y = cp.empty(1)
    pair = np.array((4.0, 8.0), [("a", f32), ("b", f32)])
    launch("scalars", 1.5, True, np.uint8(2), pair, y, block=(1,))
    assert y.get() == [16.5]
    with pytest.raises(LaunchError, match="argument 3 of scalars is a structure of 8 bytes"):
        launch("scalars", 1.5, True, np.uint8(2), f32(1), y)
    launch("anything", cp.zeros(3, np.int16), cp.zeros(4), block=(1,))
    launch("anything", np.intp(0), cp.empty(0), block=(1,))


@pytest.mark.parametrize(
    ("grid", "block", "message"),
    [
        ((1,), (1025,), "1024 threads in all"),
        ((1,), (32, 33), "1024 threads in all"),
        ((1,), (1, 1, 65), "exceeds"),
        ((1, 65536), (1,), "exceeds"),
        ((2**31,), (1,), "exceeds"),
    ],
)
def test_sizes_beyond_the_limits_are_refused(grid, block, message):
    with pytest.raises(LaunchError, match=message):
        launch("twice", cp.zeros(8), grid=grid, block=block)


def test_launch_bounds_hold():
    launch("bounded", cp.zeros(64), block=(64,))
    with pytest.raises(LaunchError, match="has 65 threads; __launch_bounds__ allows 64"):
        launch("bounded", cp.zeros(65), block=(65,))


@pytest.mark.parametrize(
    "bounds",
    [
        "N < 4 ? 64 : 32, 2", "4 > N ? 64 : 32, 2", "1 << 6, 2", "64", "halved<N, 128>(), 2",
        "(N < 4 && 4 > N) * 64, 2, 1", "Pair<N, 32>::value * 2, N < 4",
    ],
)  # fmt: skip
def test_the_first_launch_bound_may_be_any_expression(bounds):
    text = f"""
#define N 3
template <int A, int B> __device__ constexpr int halved() {{ return B / 2; }}
template <int A, int B> struct Pair {{ static const int value = B; }};
extern "C" __global__ void __launch_bounds__({bounds}) k(float* y) {{}}
"""
    function = cp.RawModule(code=text).get_function("k")
    function((1,), (64,), (cp.empty(1),))
    with pytest.raises(LaunchError, match="has 65 threads; __launch_bounds__ allows 64"):
        function((1,), (65,), (cp.empty(1),))


def test_dynamic_shared_memory_must_be_allowed():
    function = unit().get_function("dynamic")
    with pytest.raises(LaunchError, match="max_dynamic_shared_size_bytes is 49152"):
        function((1,), (8,), (cp.empty(8),), shared_mem=50000)
    function.max_dynamic_shared_size_bytes = 100_000
    function((1,), (8,), (cp.empty(8),), shared_mem=50000)
    with pytest.raises(ValueError, match="a block has 232448"):
        function.max_dynamic_shared_size_bytes = 240_000


def test_a_size_of_zero_launches_one_block_as_in_cupy():
    y = cp.zeros(8)
    launch("bounded", y, grid=(0,), block=(8,))
    assert y.get().all()


def test_an_unknown_kernel_names_those_that_exist():
    with pytest.raises(
        LaunchError, match="kernel 'nothing' in this CUDA source; it has anything, bounded"
    ):
        unit().get_function("nothing")


def test_kernels_made_by_macros_are_found():
    text = """
#define KERNEL(T, NAME) extern "C" __global__ void NAME##_##T(T* y) { y[threadIdx.x] = (T)WHAT; }
KERNEL(float, fill) KERNEL(int, fill)
extern "C" __global__ void OTHER(float* y) { y[0] = 2; }
#if 0
extern "C" __global__ void absent(float* y) {}
#endif
template <typename T> __global__ void general(T* y) {}
__global__ void mangled(float* y) {}
extern "C" __launch_bounds__(2) __global__ void bound_first(float* y) { y[0] = 4; }
extern "C" {
__device__ float three() { return 3; }
__global__ void in_a_block(float* y) { y[0] = three(); }
}
"""
    module = cp.RawModule(code=text, options=("-DWHAT=7", "-DOTHER=other_name", "--std=c++17"))
    x, y = cp.empty(4), cp.empty(4, i32)
    module.get_function("fill_float")((1,), (4,), (x,))
    module.get_function("fill_int")((1,), (4,), (y,))
    module.get_function("other_name")((1,), (1,), (x,))
    assert x.get().tolist() == [2, 7, 7, 7]
    assert y.get().tolist() == [7] * 4
    for name in ("absent", "general", "mangled"):
        with pytest.raises(LaunchError, match=f'no extern "C" kernel {name!r}'):
            module.get_function(name)
    module.get_function("in_a_block")((1,), (1,), (x,))
    assert x.get()[0] == 3
    with pytest.raises(LaunchError, match="__launch_bounds__ allows 2"):
        module.get_function("bound_first")((1,), (3,), (x,))


def test_a_text_that_does_not_compile_shows_the_users_line():
    text = 'extern "C" __global__ void k(float* y) {\n  y[0] = undefined_name;\n}'
    with pytest.raises(CompileError, match=r"kernel\.cu:2:\d+: error: .*undefined_name"):
        cp.RawModule(code=text).get_function("k")
    # A host header is as unknown here as to NVRTC.
    with pytest.raises(CompileError, match="stdint"):
        cp.RawModule(code="#include <stdint.h>\n" + text).get_function("k")


def test_line_directives_name_the_users_own_file():
    prelude = "__device__ int helper(int i) { return i; }\n\n\n"
    body = (
        'extern "C" __global__ void k(float* y) {\n  int i = helper(threadIdx.x);\n  y[i] = 1;\n}'
    )
    module = cp.RawModule(code=f'{prelude}#line 11 "/somewhere/mine.py"\n{body}')
    with using(mode="check"), pytest.raises(KernelFaultError) as caught:
        module.get_function("k")((1,), (8,), (cp.empty(4),))
    (fault,) = caught.value.faults
    assert (fault.file, fault.line, fault.source) == ("/somewhere/mine.py", 13, "  y[i] = 1;")
    assert (fault.block, fault.thread) == ((0, 0, 0), (4, 0, 0))
    assert str(caught.value) == (
        "out-of-bounds in kernel k, block (0, 0, 0) thread (4, 0, 0), /somewhere/mine.py:13: "
        "write of 4 bytes, 0 bytes past the end of argument 0 (16 bytes)\n    y[i] = 1;"
    )


@pytest.mark.parametrize(
    "between", ["\n", "\r\n", "\r", *"\f\v\x1c\x1d\x1e\x85\u2028\u2029"], ids=ascii
)
def test_lines_are_counted_as_the_compiler_counts_them(between):
    head, fault = 'extern "C" __global__ void k(float* y) {', "  y[threadIdx.x] = 1;"
    text = f"// a{between}// b\n{head}\n/*{between}*/\n{fault}\n}}"
    line = 4 + 2 * (between in ("\n", "\r\n", "\r"))
    with using(mode="check"), pytest.raises(KernelFaultError) as caught:
        cp.RawModule(code=text).get_function("k")((1,), (8,), (cp.empty(4),))
    (found,) = caught.value.faults
    assert (found.line, found.source) == (line, fault)


def test_a_race_names_both_accesses():
    text = 'extern "C" __global__ void k(float* y) {\n  y[0] = threadIdx.x;\n}'
    with (
        using(mode="check"),
        pytest.raises(KernelFaultError, match="races with the write by block") as c,
    ):
        cp.RawModule(code=text).get_function("k")((1,), (2,), (cp.empty(4),))
    assert c.value.faults[0].other == "kernel.cu:2"


@pytest.mark.parametrize("mode", ["fast", "check"])
def test_a_wild_store_is_an_exception_and_the_process_goes_on(mode):
    with using(mode=mode):
        with pytest.raises(KernelFaultError, match=r"kernel stores, .*\n.* y\[i\] = 1") as caught:
            launch("stores", cp.zeros(8), np.int64(10**12), block=(1,))
        expected = "out-of-bounds" if mode == "check" else "illegal-access"
        assert caught.value.faults[0].kind == expected
        y = cp.zeros(8)
        launch("stores", y, np.int64(3), block=(1,))
        assert y.get().sum() == 1


def test_a_division_by_zero_is_an_exception():
    modes = ("fast", "check") if platform.machine() == "x86_64" else ("check",)  # others give 0
    for mode in modes:
        with using(mode=mode), pytest.raises(KernelFaultError, match="division"):
            launch("divides", cp.zeros(8, i32), i32(0))


def test_fast_mode_sees_overruns_afterwards():
    y = cp.zeros(8)
    with (
        using(mode="fast"),
        pytest.raises(KernelFaultError, match="a write 4 bytes past the end") as c,
    ):
        launch("stores", y, np.int64(9), block=(1,))
    assert c.value.faults[0].kind == "overrun"
    with (
        using(mode="fast"),
        pytest.raises(KernelFaultError, match="a write 0 bytes before the start"),
    ):
        launch("stores", y, np.int64(-1), block=(1,))
    with using(mode="fast"):
        launch("stores", y, np.int64(0), block=(1,))


def test_neighbours_in_one_block_of_memory_do_not_hide_an_overrun():
    """Views of an arena stand side by side, yet each is bounded to itself."""
    arena = cp.zeros(512, np.uint8)
    x, y, w = (arena[a : a + 32].view(f32) for a in (0, 32, 64))
    x.set(np.arange(8, dtype=f32))
    with using(mode="check"):
        launch("copies", x, y, i32(8))
        launch("copies", y, w, i32(8))
        assert w.get().tolist() == list(range(8))
        with pytest.raises(KernelFaultError, match="past the end of argument 0"):
            launch("copies", x, y, i32(9))
        with pytest.raises(KernelFaultError, match="0 bytes past the end of argument 1"):
            launch("copies", cp.zeros(16), x, i32(9))


def test_aliases_may_overlap():
    x = cp.asarray(np.arange(8, dtype=f32))
    with using(mode="check"):
        launch("copies", x, x, i32(8))
        assert x.get().tolist() == list(range(8))
        with pytest.raises(KernelFaultError, match="race"):
            launch("copies", x[:7], x[1:], i32(7))


def test_what_a_kernel_wrote_counts_as_initialised_for_the_next():
    with using(mode="check"):
        x, y = cp.empty(8), cp.empty(8)
        with pytest.raises(KernelFaultError, match="uninitialised"):
            launch("copies", x, y, i32(8))
        x = cp.empty(8)
        launch("bounded", x)
        launch("copies", x, y, i32(8))
        launch("twice", y)
        assert y.get().tolist() == [2.0] * 8
    with using(mode="fast"):
        z = cp.empty(8)
        launch("bounded", z)
    with using(mode="check"):
        launch("twice", z)


def test_settings_belong_to_their_context():
    outside = current()
    assert isinstance(outside, SimSettings)
    seen = []
    with using(mode="fast", schedule="shuffled", seed=3):
        assert current().seed == 3
        thread = threading.Thread(target=lambda: seen.append(current()))
        thread.start()
        thread.join()
    assert seen == [outside]
    with pytest.raises(ValueError, match="schedule 'backwards'"), using(schedule="backwards"):
        pass
    with pytest.raises(ValueError, match="mode 'slow'"), using(mode="slow"):
        pass


def test_many_threads_may_launch():
    results: list[Any] = [None] * 8

    def work(k: int) -> None:
        x, y = cp.asarray(np.full(64, k, f32)), cp.empty(64)
        for _ in range(20):
            launch("copies", x, y, i32(64))
        results[k] = y.get()

    threads = [threading.Thread(target=work, args=(k,)) for k in range(8)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    for k, y in enumerate(results):
        np.testing.assert_array_equal(y, np.full(64, k, f32))


def python(code: str, **environment: str) -> subprocess.CompletedProcess[str]:
    kept = {k: v for k, v in os.environ.items() if k != "CXX"}
    return subprocess.run(
        [sys.executable, "-c", code], env=kept | environment, capture_output=True, text=True
    )


SMALL = """
import numpy as np
from tests.device import emucupy as cp
y = cp.empty(4)
module = cp.RawModule(code='extern "C" __global__ void k(float* y) { y[threadIdx.x] = 3; }')
module.get_function("k")((1,), (4,), (y,))
assert (y.get() == 3).all()
"""


def test_other_systems_are_told_what_to_use_instead():
    done = python("import sys\nsys.platform = 'darwin'\n" + SMALL)
    (message,) = [line for line in done.stderr.splitlines() if "DeviceError: " in line]
    assert "runs on Linux only" in message


def test_no_compiler_is_one_sentence_that_says_what_to_install(tmp_path):
    done = python(SMALL, CXX="/nowhere/c++", MINIML_CACHE=str(tmp_path))
    (message,) = [line for line in done.stderr.splitlines() if "DeviceError: " in line]
    assert "device 'cuda-sim' needs a C++ compiler" in message
    assert "apt install g++" in message


def test_processes_share_the_cache_folder(tmp_path):
    """Two at once on an empty folder: both run; a third finds what they compiled."""
    environment = os.environ | {"MINIML_CACHE": str(tmp_path)}
    command = [sys.executable, "-c", SMALL]
    both = [subprocess.Popen(command, env=environment, stderr=subprocess.PIPE) for _ in range(2)]
    for process in both:
        _, errors = process.communicate()
        assert process.returncode == 0, errors.decode()
    folder = tmp_path / "cuda-sim"
    made = {p.name: p.stat().st_mtime_ns for p in folder.glob("*-*")}
    assert sorted(name.partition("-")[0] for name in made) == ["check", "runtime"]
    moved = tmp_path / "elsewhere"
    moved.mkdir()
    folder.rename(moved / "cuda-sim")  # units find the runtime beside them
    assert python(SMALL, MINIML_CACHE=str(moved)).returncode == 0
    again = (moved / "cuda-sim").glob("*-*")
    assert {p.name: p.stat().st_mtime_ns for p in again} == made
