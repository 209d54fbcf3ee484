"""Networks and training steps as C files: compiled without warnings, they compute what Python's
programs compute."""

import ctypes
import json
import re
import shutil
import subprocess

import numpy as np
import pytest
import safetensors.numpy

import miniml as ml
from miniml import nn, ops, optim
from miniml.cli import main
from miniml.core.signature import CPU
from miniml.errors import ExportError
from miniml.grad import grad, value_and_grad
from tests.frame.native import needs_compiler

pytestmark = needs_compiler
FLAGS = "-std=c11 -O1 -Wall -Wextra -Werror -pedantic -ffp-contract=off -fno-math-errno".split()
WIDE = [f for f in "avx512f avx2 avx fma3 f16c sse42 sse41 ssse3 sse3".split() if f in CPU]


@pytest.fixture(params=[c for c in ("gcc", "clang") if shutil.which(c)])
def compiler(request):
    return request.param


def built(compiler, file):
    """The library of a C file."""
    library = file.with_suffix(".so")
    command = [compiler, *FLAGS, "-fPIC", "-shared", str(file), "-o", str(library), "-lm"]
    made = subprocess.run(command, capture_output=True, text=True)
    assert (made.returncode, made.stderr) == (0, "")
    return ctypes.CDLL(str(library))


FENCE = np.full(256, 0xA5, np.uint8)
FENCED = []


def aligned(nbytes):
    """Memory at a multiple of 64, of zeros, behind which no program may write."""
    block = np.zeros(nbytes + 64 + len(FENCE), np.uint8)
    begin = -block.ctypes.data % 64
    FENCED.append(block[begin + nbytes :][: len(FENCE)])
    FENCED[-1][:] = FENCE
    return block[begin:][:nbytes]


@pytest.fixture(autouse=True)
def fences():
    """After each test nothing has been written behind memory that was given to a program."""
    yield
    found = [fence.tolist() for fence in FENCED]
    FENCED.clear()
    assert found == [FENCE.tolist()] * len(found)


def bytes_of(file, word):
    """A number that the header defines."""
    lines = file.with_suffix(".h").read_text().splitlines()
    return next(int(line.split()[-1]) for line in lines if line.startswith(f"#define {word} "))


def pointers(*arrays):
    return [ctypes.c_void_p(a.ctypes.data) for a in arrays]


def ran(compiler, obj, folder, *args):
    """The outputs of an exported function, and those of the program in Python."""
    file = folder / "net.c"
    ml.export_c(obj, file, *args)
    library, arena = built(compiler, file), aligned(bytes_of(file, "NET_ARENA_BYTES"))
    with ml.context(providers=("cc",), without=tuple(WIDE)):
        expected = ml.jit(obj)(*args)
    expected = [t.asnumpy() for t in (expected if isinstance(expected, tuple) else (expected,))]
    outs = [aligned(e.nbytes).view(e.dtype).reshape(e.shape) for e in expected]
    for out in outs:
        out[...] = 7
    library.net_run(*pointers(arena, *args, *outs))
    return outs, expected


class Step:
    """An exported training step, with its state and arena."""

    def __init__(self, compiler, step, folder, *args):
        file = folder / "net.c"
        ml.export_c(step, file, *args)
        sized = folder / "sized.c"
        sized.write_text('#include "net.c"\nlong size(void) { return sizeof(net_state); }\n')
        self.library = built(compiler, sized)
        self.library.net_step.restype = ctypes.c_float
        self.state = aligned(self.library.size())
        self.arena = aligned(bytes_of(file, "NET_ARENA_BYTES"))
        self.library.net_init(*pointers(self.state))

    def __call__(self, *args):
        return self.library.net_step(*pointers(self.state, self.arena, *args))


def same(got, expected, compiler):
    """Bit for bit where the compiler is the same; clang may order nothing else, but calls another
    mathematical library's functions."""
    for a, b in zip(got, expected, strict=True):
        if compiler == "gcc":
            np.testing.assert_array_equal(a, b)
        else:
            np.testing.assert_allclose(a, b, 1e-5, 1e-6)


@pytest.fixture
def rng():
    ml.manual_seed(3)
    return np.random.default_rng(3)


def floats(rng, *shape):
    return rng.standard_normal(shape).astype(np.float32)


def evaluated(net):
    net.set_train(False)
    return net


def mlp():
    return nn.Sequential(nn.Dense(8, 16), nn.Tanh(), nn.Dense(16, 10))


def cnn():
    return nn.Sequential(
        nn.Conv2d(1, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(),
        nn.Dropout(0.25), nn.Dense(64, 10),
    )  # fmt: skip


class LastOfLSTM(nn.Cell):
    """The scores of a sequence, by the state after its last row."""

    def __init__(self):
        super().__init__()
        self.lstm, self.head = nn.LSTM(6, 8), nn.Dense(8, 10)

    def construct(self, x):
        return self.head(self.lstm(x)[0][-1])


class Bag(nn.Cell):
    """The scores of a few words."""

    def __init__(self):
        super().__init__()
        self.words, self.head = nn.Embedding(20, 8), nn.Dense(8, 3)

    def construct(self, words):
        return self.head(ops.mean(self.words(words), 1))


# --- Inference ------------------------------------------------------------------------------------


def test_an_mlp_is_what_numpy_computes(rng, tmp_path, compiler):
    net, x = evaluated(mlp()), floats(rng, 2, 8)
    outs, expected = ran(compiler, net, tmp_path, x)
    same(outs, expected, compiler)
    weights = [p.asnumpy().astype(np.float64) for p in net.get_parameters()]
    by_hand = np.tanh(x @ weights[0] + weights[1]) @ weights[2] + weights[3]
    np.testing.assert_allclose(outs[0], by_hand, 1e-5, 1e-6)


def test_a_large_product(rng, tmp_path, compiler):
    x = floats(rng, 820, 820)
    (out,), _ = ran(compiler, lambda x: x @ x, tmp_path, x)
    np.testing.assert_allclose(out, x @ x, 1e-4, 1e-3)


@pytest.mark.parametrize("rows", [512, 640, 1030])
def test_sums_over_many_short_rows_beside_elementary_functions(rng, tmp_path, compiler, rows):
    """They go in blocks of 512 rows, whose loops have pragmas; warnings are errors here."""
    x = floats(rng, rows, 16)
    same(*ran(compiler, lambda x: ops.sum(ops.tanh(x) * x, 0) * x, tmp_path, x), compiler)


@pytest.mark.parametrize(
    ("net", "shape"),
    [
        (cnn, (1, 1, 8, 8)),
        (LastOfLSTM, (5, 1, 6)),
        (lambda: nn.TransformerEncoderLayer(16, 2, 32), (1, 6, 16)),
    ],
    ids=["cnn", "lstm", "transformer"],
)
def test_networks_give_the_numbers_of_the_program(rng, tmp_path, compiler, net, shape):
    same(*ran(compiler, evaluated(net()), tmp_path, floats(rng, *shape)), compiler)


class Squeezed(nn.Cell):
    """Channels weighted by their means, under names as long as those of files of others."""

    LONG = (
        "a_block_of_the_backbone_whose_name_tells_how_it_came_to_be_what_it_is_and_where_it_stands"
    )

    def __init__(self):
        super().__init__()
        setattr(self, self.LONG, nn.Conv2d(3, 24, 3, padding=1))
        setattr(self, f"{self.LONG}_2", nn.Conv2d(24, 24, 1))

    def construct(self, x):
        x = getattr(self, self.LONG)(x)
        means = ops.mean(x, (2, 3), True)
        return x * ops.sigmoid(getattr(self, f"{self.LONG}_2")(means))


def test_long_names_and_means_of_channels_that_fill_no_block(rng, tmp_path, compiler):
    net, x = evaluated(Squeezed()), floats(rng, 1, 3, 8, 8)
    same(*ran(compiler, net, tmp_path, x), compiler)
    names = re.findall(
        r"^static .*\bvoid (net_\w{40,})\(", (tmp_path / "net.c").read_text(), re.MULTILINE
    )
    assert names
    assert max(map(len, names)) <= 63
    ml.export_c(net, tmp_path / "net.c", x, weights="file")
    built(compiler, tmp_path / "net.c")


def test_reshapes_that_copy_are_in_the_arena_once(rng, tmp_path, compiler):
    """Kernels behind them find their memory, too."""

    def fn(x):
        for _ in range(3):
            x = ops.softmax(ops.reshape(ops.transpose(ops.exp(x)), x.shape))
        return x, ops.reshape(ops.transpose(x), (-1,))

    x = floats(rng, 40, 30)
    same(*ran(compiler, fn, tmp_path, x), compiler)
    row_of_a_kernel = 128
    assert bytes_of(tmp_path / "net.c", "NET_ARENA_BYTES") <= 3 * x.nbytes + row_of_a_kernel


def test_several_inputs_views_outputs_and_dtypes(rng, tmp_path, compiler):
    def several(x, n, flags):
        doubled = ops.cast(x, ml.float64) * 2
        return x.T, ops.where(flags, n, n * n), doubled[1:, ::2], ops.cast(x, ml.float16), x > 0

    n = np.array([2**62, -(2**63), 5], np.int64)
    args = floats(rng, 3, 5), n, np.array([True, False, True])
    same(*ran(compiler, several, tmp_path, *args), compiler)


def test_a_scan_that_swaps_what_it_carries(rng, tmp_path, compiler):
    def swapped(x):
        def step(carry, row):
            a, b, total = carry
            return (b, a, total + row), a * total

        rows, (a, b, total) = ops.scan(step, (x[0], x[1], x[2]), x, reverse=True)
        return a, b, total, rows

    same(*ran(compiler, swapped, tmp_path, floats(rng, 5, 3)), compiler)


def test_branches_and_loops_whose_end_is_found_on_the_way(rng, tmp_path, compiler):
    def newton(x):
        def step(state):
            better = (state[0] + x / state[0]) / 2
            return better, ops.max(ops.abs(better - state[0]))

        root, far = ops.while_loop(lambda state: state[1] > 1e-3, step, (x, ops.max(x)))
        return ops.cond(far > 1, lambda: (root, x), lambda: (x, root))

    outs, expected = ran(compiler, newton, tmp_path, np.abs(floats(rng, 3, 4)) + 1)
    same(outs, expected, compiler)
    np.testing.assert_allclose(outs[1], np.sqrt(outs[0]), 1e-5)


def test_a_saved_graph_needs_no_arguments(rng, tmp_path, compiler):
    net, x = evaluated(mlp()), floats(rng, 1, 8)
    ml.save_graph(net, tmp_path / "net.json", x)
    ml.export_c(ml.load_graph(tmp_path / "net.json"), tmp_path / "loaded.c", name="loaded")
    library, out = built(compiler, tmp_path / "loaded.c"), np.zeros((1, 10), np.float32)
    arena = aligned(bytes_of(tmp_path / "loaded.c", "LOADED_ARENA_BYTES"))
    library.loaded_run(*pointers(arena, x, out))
    np.testing.assert_allclose(out, net(x).asnumpy(), 1e-5, 1e-6)


def test_an_index_out_of_range_shows_in_every_output(rng, tmp_path, compiler):
    words = rng.integers(0, 20, (2, 4))
    net = evaluated(Bag())
    same(*ran(compiler, net, tmp_path, words), compiler)
    out = np.zeros((2, 3), np.float32)
    words[1, 2] = 20
    library, arena = built(compiler, tmp_path / "net.c"), aligned(2**16)
    library.net_run(*pointers(arena, words, out))
    assert np.isnan(out).all()


# --- Training -------------------------------------------------------------------------------------


def test_200_steps_of_the_cnn_have_the_losses_of_python(rng, tmp_path, compiler):
    net = cnn()
    step = ml.train_step(net, nn.CrossEntropyLoss(), optim.Adam(net.trainable_params(), 1e-3))
    x, y = floats(rng, 8, 1, 8, 8), rng.integers(0, 10, 8)
    in_c = Step(compiler, step, tmp_path, x, y)
    with ml.context(providers=("cc",), without=tuple(WIDE)):
        losses = [float(step(x, y)) for _ in range(200)]
    got = [in_c(x, y) for _ in range(200)]
    assert losses[-1] < losses[0] / 4
    if compiler == "gcc":
        assert got == losses
    else:  # rounding differs, and grows from step to step
        np.testing.assert_allclose(got[:5], losses[:5], 1e-4)
        assert got[-1] < got[0] / 4


def test_sgd_in_c_is_sgd_by_hand(rng, tmp_path, compiler):
    net = nn.Sequential(nn.Dense(4, 3))
    x, y = floats(rng, 6, 4), floats(rng, 6, 3)
    w, b = (p.asnumpy().astype(np.float64) for p in net.get_parameters())
    step = ml.train_step(net, nn.MSELoss(), optim.SGD(net.trainable_params(), 0.1))
    in_c = Step(compiler, step, tmp_path, x, y)
    for _ in range(10):
        apart = x @ w + b - y
        np.testing.assert_allclose(in_c(x, y), np.mean(apart**2), 1e-5)
        w -= 0.1 * 2 / apart.size * x.T @ apart
        b -= 0.1 * 2 / apart.size * apart.sum(0)


def test_steps_of_an_lstm(rng, tmp_path, compiler):
    net = LastOfLSTM()
    step = ml.train_step(net, nn.CrossEntropyLoss(), optim.SGD(net.trainable_params(), 0.1))
    x, y = floats(rng, 5, 4, 6), rng.integers(0, 10, 4)
    in_c = Step(compiler, step, tmp_path, x, y)
    with ml.context(providers=("cc",), without=tuple(WIDE)):
        same([[in_c(x, y) for _ in range(3)]], [[float(step(x, y)) for _ in range(3)]], compiler)


@pytest.mark.parametrize("dtype", [ml.bfloat16, pytest.param(ml.float16, marks=pytest.mark.deep)])
@pytest.mark.parametrize(
    ("make", "shape"),
    [(cnn, (8, 1, 8, 8)), (lambda: nn.TransformerEncoderLayer(16, 2, 32, dropout=0.0), (2, 6, 16))],
    ids=["images", "attention"],
)
def test_steps_that_compute_in_16_bits(rng, tmp_path, compiler, dtype, make, shape):
    net, x = make(), floats(rng, *shape)
    step = ml.train_step(
        net, lambda out, y: ops.mean(ops.square(out - y)), optim.SGD(net.trainable_params(), 0.1)
    )
    y = floats(rng, *net(x).shape)
    with ml.context(autocast=dtype):
        in_c = Step(compiler, step, tmp_path, x, y)
        losses = [float(step(x, y)) for _ in range(10)]
    assert "16_t" in (tmp_path / "net.c").read_text()
    np.testing.assert_allclose([in_c(x, y) for _ in range(10)], losses, 2e-2)
    assert losses[-1] < losses[0]


def test_a_label_out_of_range_changes_nothing(rng, tmp_path, compiler):
    net = mlp()
    step = ml.train_step(net, nn.CrossEntropyLoss(), optim.Adam(net.trainable_params(), 1e-2))
    x, y = floats(rng, 4, 8), rng.integers(0, 10, 4)
    in_c = Step(compiler, step, tmp_path, x, y)
    in_c(x, y)
    before = in_c.state.copy()
    for label in (-1, 10):
        y[2] = label
        assert np.isnan(in_c(x, y))
        np.testing.assert_array_equal(in_c.state, before)


class Named(nn.Cell):
    """A product with a parameter whose name is a word of C, and ends a comment."""

    def __init__(self):
        super().__init__()
        self.double = ml.Parameter(np.array([2.0, -0.0, 3.0]), name="double")
        self.other = ml.Parameter(np.array(0.5), name="*/ int /*")

    def construct(self, x):
        return x * self.double + self.other


def test_names_that_c_knows_doubles_and_values_beside_the_loss(rng, tmp_path, compiler):
    net = Named()

    def loss(out, y):
        apart = out - y
        return ops.mean(apart * apart), (ops.max(apart), out > 0)

    step = ml.train_step(net, loss, optim.SGD(net.trainable_params(), 0.1))
    x, y = rng.standard_normal((4, 3)), rng.standard_normal((4, 3))
    in_c = Step(compiler, step, tmp_path, x, y)
    in_c.library.net_step.restype = ctypes.c_double
    worst, above = np.zeros(1), np.zeros((4, 3), bool)
    got = [in_c(x, y, worst, above) for _ in range(3)]
    with ml.context(providers=("cc",), without=tuple(WIDE)):
        expected = [step(x, y) for _ in range(3)]
    same([got], [[e[0].item() for e in expected]], compiler)
    same([worst[0], above], [expected[2][1][0].item(), expected[2][1][1].asnumpy()], compiler)


@pytest.mark.skipif(not shutil.which("g++"), reason="no C++ compiler")
def test_the_header_is_one_of_cpp_too(rng, tmp_path):
    net = mlp()
    step = ml.train_step(net, nn.CrossEntropyLoss(), optim.SGD(net.trainable_params(), 0.1))
    ml.export_c(step, tmp_path / "net.c", floats(rng, 4, 8), rng.integers(0, 10, 4))
    command = ["g++", "-std=c++11", "-Wall", "-Wextra", "-Werror", "-pedantic", "-fsyntax-only"]
    (tmp_path / "main.cpp").write_text('#include "net.h"\nnet_state state;\n')
    subprocess.run([*command, str(tmp_path / "main.cpp")], check=True)


def test_a_state_is_saved_as_safetensors_and_loaded_again(rng, tmp_path, compiler):
    net = mlp()
    step = ml.train_step(net, nn.CrossEntropyLoss(), optim.Adam(net.trainable_params(), 1e-2))
    x, y = floats(rng, 4, 8), rng.integers(0, 10, 4)
    in_c = Step(compiler, step, tmp_path, x, y)
    losses = [in_c(x, y) for _ in range(3)]
    saved = aligned(bytes_of(tmp_path / "net.c", "NET_FILE_BYTES"))
    in_c.library.net_save(*pointers(in_c.state, saved))
    losses.append(in_c(x, y))
    (tmp_path / "state.safetensors").write_bytes(saved.tobytes())
    ml.load_checkpoint(tmp_path / "state.safetensors", net, strict=False)
    np.testing.assert_allclose(nn.CrossEntropyLoss()(net(x), y).item(), losses[3], 1e-6)
    assert safetensors.numpy.load(saved.tobytes())["step"] == 3
    in_c.library.net_init(*pointers(in_c.state))
    assert in_c(x, y) == losses[0]
    assert in_c.library.net_load(*pointers(in_c.state, saved)) == 0
    assert in_c(x, y) == losses[3]
    saved[12] += 1  # another name
    assert in_c.library.net_load(*pointers(in_c.state, saved)) == 1


def test_weights_in_a_file_of_their_own(rng, tmp_path, compiler):
    net, x = evaluated(cnn()), floats(rng, 1, 1, 8, 8)
    file = tmp_path / "net.c"
    ml.export_c(net, file, x, weights="file")
    stored = (tmp_path / "net.safetensors").read_bytes()
    assert safetensors.numpy.load(stored)["6.weight"].shape == (64, 10)
    assert len(stored) == bytes_of(file, "NET_FILE_BYTES")
    file.write_text(file.read_text() + "\nlong size(void) { return sizeof(net_state); }\n")
    library, out = built(compiler, file), np.zeros((1, 10), np.float32)
    state, arena = aligned(library.size()), aligned(bytes_of(file, "NET_ARENA_BYTES"))
    given = aligned(len(stored))
    for change in (0, 1):  # what is loaded counts, not what was there when the C was written
        net[6].bias.set_data(net[6].bias + change)
        ml.save_checkpoint(net, tmp_path / "other.safetensors")
        values = safetensors.numpy.load_file(tmp_path / "other.safetensors")
        header = int.from_bytes(stored[:8], "little") + 8
        entries = json.loads(stored[8:header])
        given[:header] = np.frombuffer(stored[:header], np.uint8)
        for name, entry in entries.items():
            begin, end = entry["data_offsets"]
            given[header + begin : header + end] = values[name].reshape(-1).view(np.uint8)
        assert change or given.tobytes() == stored
        assert library.net_load(*pointers(state, given)) == 0
        library.net_run(*pointers(state, arena, x, out))
        with ml.context(providers=("cc",), without=tuple(WIDE)):
            same([out], [ml.jit(net)(x).asnumpy()], compiler)
    given[20] ^= 1
    assert library.net_load(*pointers(state, given)) == 1


def test_a_step_whose_first_values_are_in_a_file(rng, tmp_path, compiler):
    net = mlp()
    step = ml.train_step(net, nn.CrossEntropyLoss(), optim.Adam(net.trainable_params(), 1e-2))
    x, y = floats(rng, 4, 8), rng.integers(0, 10, 4)
    whole = Step(compiler, step, tmp_path, x, y)
    (tmp_path / "apart").mkdir()
    ml.export_c(step, tmp_path / "apart" / "net.c", x, y, weights="file")
    assert "net_init" not in (tmp_path / "apart" / "net.h").read_text()
    library = built(compiler, tmp_path / "apart" / "net.c")
    library.net_step.restype = ctypes.c_float
    file = np.fromfile(tmp_path / "apart" / "net.safetensors", np.uint8)
    state, saved = aligned(whole.state.nbytes), np.zeros_like(file)
    assert library.net_load(*pointers(state, file)) == 0
    np.testing.assert_array_equal(state, whole.state)
    library.net_save(*pointers(state, saved))
    np.testing.assert_array_equal(saved, file)
    assert library.net_step(*pointers(state, whole.arena, x, y)) == whole(x, y)


# --- The file itself ------------------------------------------------------------------------------


MAIN = """
#include <stdio.h>
#include <stdlib.h>
#include "net.c"
int main(void) {
  float x[8 * 64], *loss = malloc(50 * sizeof(float));
  int64_t y[8];
  net_state *state = aligned_alloc(64, sizeof(net_state));
  void *arena = aligned_alloc(64, NET_ARENA_BYTES);
  for (int i = 0; i < 8 * 64; ++i) x[i] = (float)((i * 37) % 101) / 50 - 1;
  for (int i = 0; i < 8; ++i) y[i] = i;
  net_init(state);
  for (int i = 0; i < 50; ++i) loss[i] = net_step(state, arena, x, y);
  printf("%a %a", loss[0], loss[49]);
  free(arena), free(state), free(loss);
}
"""


def test_sanitizers_find_nothing(rng, tmp_path, compiler):
    net = cnn()
    step = ml.train_step(net, nn.CrossEntropyLoss(), optim.Adam(net.trainable_params(), 1e-2))
    x = ((np.arange(512) * 37) % 101 / np.float32(50) - 1).astype(np.float32).reshape(8, 1, 8, 8)
    ml.export_c(step, tmp_path / "net.c", x, np.arange(8))
    (tmp_path / "main.c").write_text(MAIN)
    checked = ["-fsanitize=address,undefined", "-fno-sanitize-recover=all"]
    program = str(tmp_path / "main")
    command = [compiler, *FLAGS, *checked, str(tmp_path / "main.c"), "-o", program, "-lm"]
    subprocess.run(command, check=True)
    found = subprocess.run([program], capture_output=True, text=True)
    assert found.returncode == 0, found.stderr
    first, last = map(float.fromhex, found.stdout.split())
    with ml.context(providers=("cc",), without=tuple(WIDE)):
        np.testing.assert_allclose(first, float(step(x, np.arange(8))), 1e-5)
    assert last < first / 4


@pytest.mark.skipif(not shutil.which("nm"), reason="no C compiler")
def test_nothing_in_it_varies_and_libm_is_all_it_needs(rng, tmp_path, compiler):
    net = cnn()
    step = ml.train_step(net, nn.CrossEntropyLoss(), optim.Adam(net.trainable_params()))
    ml.export_c(step, tmp_path / "net.c", floats(rng, 8, 1, 8, 8), rng.integers(0, 10, 8))
    made = str(tmp_path / "net.o")
    subprocess.run([compiler, *FLAGS, "-c", str(tmp_path / "net.c"), "-o", made], check=True)
    listed = subprocess.run(["nm", made], capture_output=True, text=True, check=True).stdout
    symbols = [line.split() for line in listed.splitlines()]
    assert {s[-1] for s in symbols if s[-2] in "TDBC"} == {
        "net_init",
        "net_load",
        "net_save",
        "net_step",
    }
    assert not [s for s in symbols if s[-2] in "bBdDC"]
    needed = {s[-1] for s in symbols if s[-2] == "U"}
    assert needed <= {"memcpy", "memcmp", "bcmp", "memset", "fma", "trunc", "_GLOBAL_OFFSET_TABLE_"}


def test_functions_are_named_by_their_layers(rng, tmp_path):
    ml.export_c(evaluated(cnn()), tmp_path / "net.c", floats(rng, 1, 1, 8, 8))
    text = (tmp_path / "net.c").read_text()
    assert " void net_layer_6_matmul_add(" in text
    assert "/* layer 3 (MaxPool2d) */" in text
    assert max(map(len, (tmp_path / "net.h").read_text().splitlines())) <= 100


def test_a_function_with_two_optimizers_is_a_step(rng, tmp_path, compiler):
    """A generator and its critic, which has the gradient of a gradient, from random numbers."""
    generator, critic = (
        nn.Sequential(nn.Dense(a, 8), nn.LeakyReLU(0.2), nn.Dense(8, b))
        for a, b in ((3, 2), (2, 1))
    )
    made_by, judged_by = optim.EMA(adam(generator), 0.99), adam(critic)

    def critics_loss(true, made):
        slope = grad(lambda x: ops.sum(critic(x)))(true)
        return ops.mean(ops.softplus(critic(made) - critic(true))) + ops.mean(slope * slope)

    def generators_loss(noise):
        return ops.mean(ops.softplus(-critic(generator(noise))))

    judge = value_and_grad(critics_loss, argnums=None, weights=judged_by.params)
    make = value_and_grad(generators_loss, argnums=None, weights=made_by.params)

    def step(true):
        of_critic, gradients = judge(true, generator(ops.normal((4, 3))))
        judged_by.update(gradients)
        of_generator, gradients = make(ops.normal((4, 3)))
        made_by.update(gradients)
        return of_critic, of_generator

    true, second = floats(rng, 4, 2), np.zeros(1, np.float32)
    in_c = Step(compiler, step, tmp_path, true)
    with ml.context(providers=("cc",), without=tuple(WIDE)):
        losses = [[float(loss) for loss in ml.jit(step)(true)] for _ in range(20)]
    same([[in_c(true, second), second[0]] for _ in losses], losses, compiler)
    assert losses[0] != losses[-1]


def adam(net):
    return optim.Adam(net.trainable_params(), 1e-2)


def test_a_function_that_draws_goes_on_where_it_was(rng, tmp_path, compiler):
    """Its outputs are arrays, so its step returns nothing; a wrong index leaves the stream."""
    table = nn.Embedding(5, 4)

    def drawn(index):
        return table(index) + ops.normal((2, 4))

    index, out = np.array([1, 4]), np.zeros((2, 4), np.float32)
    in_c = Step(compiler, drawn, tmp_path, index)
    with ml.context(providers=("cc",), without=tuple(WIDE)):
        expected = [ml.jit(drawn)(index).asnumpy() for _ in range(2)]
    in_c(index, out)
    same([out], expected[:1], compiler)
    in_c(np.array([1, 5]), out)
    assert np.isnan(out).all()
    in_c(index, out)
    same([out], expected[1:], compiler)
    assert "void net_step(net_state *state, void *arena, " in (tmp_path / "net.h").read_text()


# --- Refusals -------------------------------------------------------------------------------------


def test_what_has_no_c_is_refused_at_its_line_before_anything_is_written(rng, tmp_path):
    doubled = ops.custom(lambda x: 2 * x, name="DoubledByNumPy")

    def fn(x):
        return ops.sum(doubled(x))

    with pytest.raises(ExportError, match="no C for DoubledByNumPy of float32") as caught:
        ml.export_c(fn, tmp_path / "net.c", floats(rng, 2, 5))
    assert "ops.sum(doubled(x))" in "\n".join(caught.value.__notes__)
    assert not [*tmp_path.iterdir()]


def test_arguments_that_cannot_be_exported(rng, tmp_path):
    net, x = cnn(), floats(rng, 1, 1, 8, 8)
    file = tmp_path / "net.c"
    with pytest.raises(ExportError, match=r"updates .*set_train\(False\)"):
        ml.export_c(net, file, x)
    with pytest.raises(ExportError, match=r"ends in \.c"):
        ml.export_c(net, tmp_path / "net.cpp", x)
    with pytest.raises(ExportError, match="no folder"):
        ml.export_c(net, tmp_path / "absent" / "net.c", x)
    with pytest.raises(ExportError, match="identifier of C"):
        ml.export_c(net, file, x, name="my net")
    with pytest.raises(ExportError, match="'int', which C knows"):
        ml.export_c(net, file, x, name="int")
    with pytest.raises(ExportError, match="give None"):
        ml.export_c(net, file, x, target="sparc")
    with pytest.raises(ExportError, match="'arrays' or 'file'"):
        ml.export_c(net, file, x, weights="apart")
    with pytest.raises(ExportError, match="no parameters"):
        ml.export_c(ops.exp, file, x, weights="file")
    with pytest.raises(ExportError, match="a network, a function"):
        ml.export_c(nn.Dense, file, x)
    with pytest.raises(ExportError, match="without elements"):
        ml.export_c(lambda x: x[:0], file, x)
    with pytest.raises(ExportError, match=r"complex64; pass ops\.real and ops\.imag"):
        ml.export_c(lambda x: ops.cast(x, ml.complex64), file, x)
    assert not [*tmp_path.iterdir()]


# --- The command ----------------------------------------------------------------------------------


def test_the_command_writes_a_saved_graph_and_a_model_in_onnx(rng, tmp_path, capsys, compiler):
    net, x = evaluated(mlp()), floats(rng, 1, 8)
    ml.save_graph(net, tmp_path / "net.json", x)
    ml.onnx.save(net, tmp_path / "net.onnx", x, dynamic={"x": {0: "batch"}})
    for source, options in (("net.json", []), ("net.onnx", ["--dim", "batch=1"])):
        file = tmp_path / "out.c"
        given = ["export", str(tmp_path / source), "-o", str(file), "--name", "mine", *options]
        assert main(given) == 0
        said = capsys.readouterr().out
        assert "parameters 1,256 bytes" in said
        found = re.search(r"^stack +([\d,]+) bytes at most", said, re.MULTILINE)
        taken = f"takes up to {found[1]} bytes of stack" if found else None
        assert (taken or "stack      not known") in (said + file.with_suffix(".h").read_text())
        arena, out = aligned(bytes_of(file, "MINE_ARENA_BYTES")), np.zeros((1, 10), np.float32)
        built(compiler, file).mine_run(*pointers(arena, x, out))
        np.testing.assert_allclose(out, net(x).asnumpy(), 1e-5, 1e-6)
        file.with_suffix(".so").unlink()  # the next one is another library
    assert main(["export", str(tmp_path / "net.json"), "-o", str(tmp_path / "net.txt")]) == 2


OWN = """
from miniml import nn

def make(width=16):
    return nn.Sequential(nn.Dense(8, width), nn.Tanh(), nn.Dropout(0.5), nn.Dense(width, 10))
"""


def test_the_command_writes_parameters_with_the_network_that_they_are_of(
    rng, tmp_path, capsys, compiler
):
    (tmp_path / "own_net.py").write_text(OWN)
    namespace: dict = {}
    exec(OWN, namespace)
    net, x = evaluated(namespace["make"]()), floats(rng, 1, 8)
    ml.save_checkpoint(net, tmp_path / "net.safetensors")
    file = tmp_path / "out.c"
    given = ["export", str(tmp_path / "net.safetensors"), "-o", str(file)]
    assert main(given) == 2
    assert "--net module:net --input 1,64" in capsys.readouterr().err
    given += ["--net", f"{tmp_path / 'own_net.py'}:make", "--input", "1,8"]
    assert main([*given, "--weights", "file"]) == 0
    assert f"in {tmp_path / 'out.safetensors'}" in capsys.readouterr().out
    assert main(given) == 0
    arena, out = aligned(bytes_of(file, "NET_ARENA_BYTES")), np.zeros((1, 10), np.float32)
    built(compiler, file).net_run(*pointers(arena, x, out))
    np.testing.assert_allclose(out, net(x).asnumpy(), 1e-5, 1e-6)
