"""A training step in C on other processors: compiled without a warning, run by an emulator where
one is here, with the losses of Python."""

import importlib.util
import shutil
import subprocess
import sys
from typing import NamedTuple

import numpy as np
import pytest

import miniml as ml
from miniml import nn, optim
from tests.frame.native import needs_compiler
from tests.unit.export.test_export_c import WIDE, cnn

pytestmark = [needs_compiler, pytest.mark.deep]
FLAGS = "-std=c11 -O2 -Wall -Wextra -Werror -pedantic -ffp-contract=off -fno-math-errno".split()
ZIG = [sys.executable, "-m", "ziglang", "cc", "-target"]


class Target(NamedTuple):
    """A compiler's command, what runs its programs, if it is here, why it may be absent, and
    whether rounding is that of x86-64 without fma, bit for bit."""

    compiler: list[str]
    emulator: list[str]
    absent: str
    exact: bool


NODE = """
const { WASI } = require('node:wasi');
const wasi = new WASI({ version: 'preview1' });
WebAssembly.compile(require('node:fs').readFileSync(process.argv[2]))
  .then((made) => WebAssembly.instantiate(made, wasi.getImportObject()))
  .then((made) => wasi.start(made));
"""
WASM = ["node", "--no-warnings", "-e", NODE, "-"]
TARGETS = {
    "aarch64 by gcc": Target(
        ["aarch64-linux-gnu-gcc", "-static"], ["qemu-aarch64"], "no aarch64", False
    ),
    "x86-64 without AVX": Target(
        ["gcc", "-static", "-march=x86-64"],
        ["qemu-x86_64", "-cpu", "core2duo"],
        "no C compiler",
        True,
    ),
    "x86-64": Target([*ZIG, "x86_64-linux-musl"], [], "no zig", True),
    "aarch64": Target([*ZIG, "aarch64-linux-musl"], ["qemu-aarch64"], "no zig", False),
    "armv7": Target([*ZIG, "arm-linux-musleabihf"], ["qemu-arm"], "no zig", True),
    "riscv64": Target([*ZIG, "riscv64-linux-musl"], ["qemu-riscv64"], "no zig", False),
    "WebAssembly": Target([*ZIG, "wasm32-wasi", "-msimd128"], WASM, "no zig", True),
    "macOS on aarch64": Target([*ZIG, "aarch64-macos"], ["nothing here"], "no zig", False),
    "Windows": Target([*ZIG, "x86_64-windows-gnu"], ["nothing here"], "no zig", False),
}
MAIN = """
#include <stdio.h>
#include <stdlib.h>
#include "net.c"
static net_state state;
static _Alignas(64) char arena[NET_ARENA_BYTES];
int main(void) {
  static float x[4 * 64];
  int64_t y[4];
  for (int i = 0; i < 4 * 64; ++i) x[i] = (float)((i * 37) % 101) / 50 - 1;
  for (int i = 0; i < 4; ++i) y[i] = i;
  net_init(&state);
  for (int i = 0; i < 5; ++i) printf("%a\\n", net_step(&state, arena, x, y));
}
"""


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    """The folder of an exported step, with a main function, and the losses of Python."""
    ml.manual_seed(3)
    folder, net = tmp_path_factory.mktemp("step"), cnn()
    step = ml.train_step(net, nn.CrossEntropyLoss(), optim.Adam(net.trainable_params(), 1e-3))
    x = ((np.arange(256) * 37) % 101 / np.float32(50) - 1).astype(np.float32).reshape(4, 1, 8, 8)
    ml.export_c(step, folder / "net.c", x, np.arange(4))
    (folder / "main.c").write_text(MAIN)
    with ml.context(providers=("cc",), without=tuple(WIDE)):
        return folder, [float(step(x, np.arange(4))) for _ in range(5)]


def needs(target):
    """Skip where the compiler of a target is not installed."""
    zig = importlib.util.find_spec("ziglang") is not None
    found = zig if target.absent == "no zig" else shutil.which(target.compiler[0])
    if not found or (target.absent == "no aarch64" and not shutil.which(target.emulator[0])):
        pytest.skip(target.absent)


@pytest.mark.parametrize("name", TARGETS)
def test_a_step_on_another_processor(written, name, tmp_path):
    target = TARGETS[name]
    needs(target)
    folder, losses = written
    program = str(tmp_path / "main")
    command = [*target.compiler, *FLAGS, str(folder / "main.c"), "-o", program, "-lm"]
    made = subprocess.run(command, capture_output=True, text=True)
    assert (made.returncode, made.stderr) == (0, "")
    if target.emulator and not shutil.which(target.emulator[0]):
        return
    ran = subprocess.run([*target.emulator, program], capture_output=True, text=True, check=True)
    got = [*map(float.fromhex, ran.stdout.split())]
    if target.exact:
        assert got == losses
    else:  # products may be contracted to fma by the texts' own doing, or sums ordered otherwise
        np.testing.assert_allclose(got, losses, 1e-5)
