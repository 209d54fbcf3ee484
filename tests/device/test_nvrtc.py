"""The compiler gate: NVIDIA's compiler takes every kernel, without a GPU and without complaint."""

import ast
import json
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import miniml as ml
from miniml import cli
from miniml.backends import cuda
from miniml.backends.cuda import driver
from miniml.backends.cuda.text.source import OPTIONS, STATIC_SHARED
from miniml.backends.kernel import Expression
from miniml.errors import CompileError, DeviceError
from tests.device.gate import compiled, runs_on
from tests.device.units import ROWS, all_units, units
from tests.unit.cc.programs import function, inputs_for
from tests.unit.test_readme import BLOCKS, ROOT, script

SOURCES = Path(cuda.__file__).parent
ALWAYS = 90
DEEP = pytest.mark.deep
FAST = ("--option=--use_fast_math",)


@pytest.fixture(autouse=True)
def _compiler():
    try:
        driver.compiler()
    except DeviceError as error:
        pytest.skip(f"no NVRTC: {error}")


def complaints(texts, architecture):
    """What the compiler does not like, each with the primitive whose kernel it is."""
    found = []
    for text, entry in texts.items():
        if not runs_on(entry, architecture):
            continue
        name = f"{entry.name} {entry.signature} for sm_{architecture}"
        try:
            found += [f"{name}: {message}" for message in compiled(text, architecture).faults()]
        except CompileError as error:
            found.append(f"{name}: {error}")
    return found


def sample(name):
    """One text of a primitive; of expressions, which differ in dtypes alone, the middle one: it
    holds the other primitives with these dtypes too."""
    texts = list(units(name).items())
    if texts and all(isinstance(entry.body, Expression) for _, entry in texts):
        return dict(texts[len(texts) // 2 :][:1])
    return dict(texts[:1])


# The architectures of a primitive follow one another, so a process finds its texts once.
@pytest.mark.parametrize(
    "architecture",
    [pytest.param(a, marks=() if a == ALWAYS else pytest.mark.deep) for a in driver.ARCHITECTURES],
)
@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=pytest.mark.deep if i % 2 else ()) for i, n in enumerate(ROWS)]
)
def test_kernels_of_every_primitive_compile(name, architecture):
    """One of every second primitive a day; the next test has all for one architecture, and
    `make nvrtc` those for every one."""
    found = complaints(sample(name), architecture)
    assert not found, "\n".join(found)


@pytest.mark.deep
@pytest.mark.parametrize("name", ROWS)
def test_every_kernel_compiles(name):
    found = complaints(units(name), ALWAYS)
    assert not found, "\n".join(found)


def test_no_kernel_of_the_sources_is_left_out():
    entry = re.compile(r"__global__ void (?:__launch_bounds__\([^)]*\) )?(\w+)\(")
    written = {n for path in SOURCES.rglob("*.py") for n in entry.findall(path.read_text("utf-8"))}
    assert len(written) > 30
    # One is compiled to see whether it does, for architectures; of one a macro gives the names.
    written -= {"probe", "NAME"}
    assert written <= {name for text in all_units() for name in entry.findall(text)}


@pytest.mark.parametrize("seed", [3, 7, *[pytest.param(s, marks=DEEP) for s in range(100, 140)]])
def test_fused_groups_compile(seed):
    xs = [ml.Tensor(a, device="cuda-sim") for a in inputs_for(seed, np.float32)]
    with ml.context(device_target="cuda-sim", providers=("cc",)):
        texts = ml.explain(function(seed), *xs, text=True).texts
    for text in texts:
        assert compiled(text, ALWAYS).faults() == []


# -- kernels of users --

TAIL = """
import json
from tests.device.units import declared
print(json.dumps({text: f"{e.name} {e.signature}" for text, e in declared().items()}))
"""


def filed_by(code):
    """The texts that a program files, each with the name of its kernel."""
    run = subprocess.run(
        [sys.executable, "-c", code + TAIL], cwd=ROOT, capture_output=True, text=True
    )
    assert run.returncode == 0, run.stderr
    return json.loads(run.stdout.splitlines()[-1])


def declarations(code):
    """The statements of a program that declare something: the others may take long."""

    def declares(node):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
            return ast.unparse(node.value.func).endswith("_kernel")
        kinds = ast.Import, ast.ImportFrom, ast.ClassDef, ast.FunctionDef, ast.Assign
        return isinstance(node, kinds)

    tree = ast.parse(code)
    tree.body = [node for node in tree.body if declares(node)]
    return ast.unparse(tree) + "\n"


def documented():
    """The programs of the guides in which CUDA kernels are declared, by section."""
    for blocks in BLOCKS.values():
        python = [b for b in blocks if b.language == "python" and b.not_run is None]
        for section in dict.fromkeys(b.section for b in python):
            code = script([b for b in python if b.section == section])
            if "_kernel(" in code or '"cuda", "' in code:
                yield section, declarations(code)


PROGRAMS = {"the tests": "import tests.device.test_users_kernels\n", **dict(documented())}


@pytest.mark.parametrize("program", PROGRAMS)
def test_kernels_of_users_compile(program):
    texts = filed_by(PROGRAMS[program])
    assert texts
    for text, name in texts.items():
        found = compiled(text, ALWAYS).faults()
        assert not found, f"{name}: {found}"


@pytest.mark.deep
def test_the_idioms_of_the_simulator_are_those_of_cuda():
    """The simulator's own headers offer what NVIDIA's do, with those of CCCL."""
    folders = driver.folders_of_cccl()
    if not folders:
        pytest.skip("neither cupy nor CCCL on this machine")
    text = (ROOT / "tests" / "device" / "sim" / "kernels" / "idioms.cu").read_text("utf-8")
    kernels = {k.kernel for k in compiled(text, ALWAYS, *folders).kernels}
    assert kernels == set(re.findall(r"__global__ void (\w+)\(", text))


# -- the command --

MINE = """extern "C" __global__ void scaled(const T* x, T* y, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = miniml::store<T>(SCALE * miniml::load(x[i]));
}
"""
COOPERATIVE = """#include <cooperative_groups.h>
extern "C" __global__ void meet(float* y) {
  cooperative_groups::this_thread_block().sync();
  y[threadIdx.x] = 1;
}
"""
REGISTERS = """
from pathlib import Path
import miniml as ml
class NvrtcScaled(ml.Primitive):
    "2 x."
    like = "x"
    inputs = ("x",)
def launch(node):
    return ml.Launch(grid=(1,), block=(64,), args=(node.inputs[0].size,))
ml.raw_kernel("NvrtcScaled", "f->f", "d->d", entry="scaled", launch=launch,
              defines={"SCALE": 2}, source=Path("mine.cu").read_text())
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name, text in {
        "mine.cu": MINE, "meet.cu": COOPERATIVE, "mine.py": REGISTERS, "none.py": "",
    }.items():  # fmt: skip
        (tmp_path / name).write_text(text)


def nvrtc_command(capsys, *arguments):
    code = cli.main(["nvrtc", *arguments])
    return code, *capsys.readouterr()


@pytest.mark.usefixtures("folder")
class TestCommand:
    @pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "int64"])
    def test_it_says_what_a_text_takes_of_each_architecture(self, capsys, dtype):
        types = "-D", f"T={dtype}", "-D", "SCALE=2"
        code, out, _ = nvrtc_command(capsys, "mine.cu", "--arch", "80", "120", *types)
        assert code == 0
        assert re.findall(r"mine\.cu, (sm_\d+), NVRTC \d+\.\d+\n  kernel ", out) == [
            "sm_80",
            "sm_120",
        ]
        assert len(re.findall(r"^  scaled +[1-9]\d* +0 +0 +0$", out, re.MULTILINE)) == 2

    def test_what_does_not_compile_is_shown_with_its_line(self, capsys):
        code, out, _ = nvrtc_command(capsys, "mine.cu", "-D", "T=float32")
        assert code == 1
        assert 'mine.cu(3): error: identifier "SCALE" is undefined' in out

    def test_options_reach_the_compiler(self, capsys):
        macros = "-D", "T=float32", "-D", "SCALE=1/x[i]"
        texts = [nvrtc_command(capsys, "mine.cu", *macros, *more)[1] for more in ((), FAST)]
        assert texts[0] != texts[1]

    def test_the_raw_kernels_of_a_python_file_are_compiled_in_each_signature(self, capsys):
        code, out, _ = nvrtc_command(capsys, "mine.py")
        assert code == 0, out
        assert re.findall(r"^NvrtcScaled (\S+), sm_90", out, re.MULTILINE) == ["f->f", "d->d"]

    def test_groups_find_their_headers(self, capsys):
        if not driver.folders_of_cccl():
            pytest.skip("neither cupy nor CCCL on this machine")
        assert nvrtc_command(capsys, "meet.cu")[0] == 0

    def test_without_them_the_wheel_is_named(self, capsys, monkeypatch):
        monkeypatch.setattr(driver, "folders_of_cccl", lambda: ())
        code, out, _ = nvrtc_command(capsys, "meet.cu")
        assert code == 1
        assert "pip install 'nvidia-cuda-cccl==" in out

    @pytest.mark.parametrize(
        ("arguments", "message"),
        [
            (["absent.cu"], "no file 'absent.cu'; .*mine.cu"),
            (["none.py"], "none.py registers no raw_kernel"),
            (["mine.cu", "--arch", "91"], "compiles for 75, 80, .*; got 91"),
            (["mine.cu", "-D", "3=4"], "'3=4' defines nothing; give NAME=VALUE"),
        ],
    )
    def test_what_it_refuses(self, capsys, arguments, message):
        code, _, error = nvrtc_command(capsys, *arguments)
        assert code == 2
        assert re.search(message, error)


# -- the gate itself --

HEAD = 'extern "C" __global__ void '


def test_a_kernel_that_does_not_compile_is_reported_on_its_line():
    text = f'#line 1 "mine.cu"\n{HEAD}f(float* x) {{\n  x[0] = y;\n}}\n'
    with pytest.raises(CompileError, match=r'mine\.cu\(2\): error: identifier "y" is undefined'):
        compiled(text, ALWAYS)


def test_a_warning_is_a_fault():
    (message,) = compiled(HEAD + "f(float* x) { int i = 3; x[0] = 1; }", ALWAYS).faults()
    assert message == 'kernel.cu(1): warning #177-D: variable "i" was declared but never referenced'


# 64 numbers that are all alive at the barrier.
HOLDING = """
  float a[64];
  #pragma unroll
  for (int i = 0; i < 64; ++i) a[i] = x[i * 32 + threadIdx.x];
  __syncthreads();
  #pragma unroll
  for (int i = 0; i < 64; ++i) x[i * 32 + threadIdx.x] = a[63 - i] * a[i];
"""
SPILLS = r"f spills registers: [1-9]\d* bytes of stores, [1-9]\d* of loads"


def test_a_kernel_that_lacks_registers_is_a_fault():
    assert compiled(f"{HEAD}f(float* x) {{{HOLDING}}}", ALWAYS).faults() == []
    bounded = f"{HEAD}__launch_bounds__(1024, 2) f(float* x) {{{HOLDING}}}"
    (message,) = compiled(bounded, ALWAYS).faults()
    assert re.fullmatch(SPILLS, message)


def test_a_spill_in_a_function_counts_for_the_kernel_that_calls_it():
    text = (
        f"__device__ __noinline__ void g(float* x) {{{HOLDING}}}\n"
        f"{HEAD}f(float* x) {{ g(x); x[1] = 2; }}\n{HEAD}h(float* x) {{ x[0] = 1; }}"
    )
    (message,) = compiled(text, ALWAYS, "--maxrregcount=24").faults()
    assert re.fullmatch(SPILLS, message)


def test_shared_memory_is_counted_and_has_a_limit():
    text = (
        HEAD + "f(double* x) {{ __shared__ double s[{0}]; s[threadIdx.x] = x[0]; "
        "__syncthreads(); x[threadIdx.x] = s[{0} - 1]; }}"
    )
    fits = compiled(text.format(6144), ALWAYS)
    assert fits.kernels[0].shared == STATIC_SHARED
    assert fits.faults() == []
    with pytest.raises(CompileError, match="f has 49160 bytes of static shared memory"):
        compiled(text.format(6145), ALWAYS)


def test_the_options_are_those_of_cupy(monkeypatch):
    """As far as a machine without a driver lets cupy go: to the call of the compiler."""
    cupy = pytest.importorskip("cupy", reason="no cupy on this machine")
    inside = cupy.cuda.compiler
    given = []

    class Program:
        def __init__(self, *args, **kwargs):
            pass

        def compile(self, options, log):
            given.extend(options)
            raise InterruptedError

    arch = f"-arch=sm_{ALWAYS}", "cubin"
    monkeypatch.setattr(inside, "_get_arch_for_options_for_nvrtc", lambda _: arch)
    monkeypatch.setattr(inside, "_preprocess", lambda *args: "")
    monkeypatch.setattr(inside, "_NVRTCProgram", Program)
    options = cupy._core.core.assemble_cupy_compiler_options(OPTIONS)
    with pytest.raises(InterruptedError):
        inside._compile_module_with_cache(HEAD + "f() {}", options, arch=str(ALWAYS))
    ours = driver.compiler().options(ALWAYS)
    assert [o for o in given if not o.startswith("-I")] == [o for o in ours if o[:2] != "-I"]
    folders = [{Path(o[2:]).resolve() for o in all_ if o[:2] == "-I"} for all_ in (ours, given)]
    assert folders[0] <= folders[1]


def test_results_are_kept_by_content(monkeypatch):
    text = f"{HEAD}kept(float* x) {{ x[0] = 1; }}"
    first = compiled(text, ALWAYS)
    monkeypatch.setattr(driver.Nvrtc, "compile", lambda *args: pytest.fail("compiled twice"))
    assert compiled(text, ALWAYS) == first
    with pytest.raises(pytest.fail.Exception):
        compiled(text, ALWAYS, "-DOTHER")


def test_the_architectures_are_what_the_compiler_knows():
    assert set(driver.ARCHITECTURES) <= set(driver.compiler().architectures)


def test_what_to_install_where_there_is_no_compiler(monkeypatch):
    monkeypatch.setattr(driver.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(DeviceError, match=r"pip install 'miniml\[sim\]'"):
        driver.compiler.__wrapped__()
