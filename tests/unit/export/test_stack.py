"""Exported programs on small stacks: their scratch memory is in the arena that the caller gives."""

import ctypes
import shutil
import subprocess

import numpy as np
import pytest

import miniml as ml
from miniml import nn, ops, optim
from miniml.cli.demo import network
from miniml.export.exporter import chain_of, deepest_in
from tests.conftest import HAS_CC
from tests.unit.export.test_export_c import aligned, bytes_of, compiler, fences, pointers, rng

pytestmark = pytest.mark.skipif(not HAS_CC or not shutil.which("gcc"), reason="no C compiler")
__all__ = ["compiler", "fences", "rng"]
MOST = 4096


class Recurrent(nn.Cell):
    """Scores of each token's successor."""

    def __init__(self):
        super().__init__()
        self.look_up, self.lstm, self.head = nn.Embedding(30, 16), nn.LSTM(16, 32), nn.Dense(32, 30)

    def construct(self, x):
        return self.head(self.lstm(self.look_up(x))[0]).reshape(-1, 30)


class Attending(nn.Cell):
    """The same by attention."""

    def __init__(self):
        super().__init__()
        self.look_up = nn.Embedding(30, 32)
        self.layer = nn.TransformerEncoderLayer(32, heads=4, hidden=128, dropout=0.05)
        self.head = nn.Dense(32, 30)

    def construct(self, x):
        return self.head(self.layer(self.look_up(x))).reshape(-1, 30)


def deepest(folder, *options):
    """Bytes of the deepest chain of calls in net.c, as gcc finds it."""
    texts = {name: (folder / name).read_text() for name in ("net.c", "net.h")}
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CC", "gcc")
        return deepest_in(texts, options)


IMAGE = np.zeros((1, 1, 8, 8), np.float32)
TOKENS = np.zeros((1, 12), np.int64)
CASES = {
    "CNN": (network, IMAGE, np.zeros(1, np.int64), 1),
    "CNN, 32 images": (network, IMAGE, np.zeros(1, np.int64), 32),
    "LSTM": (Recurrent, TOKENS, TOKENS[0], 1),
    "attention": (Attending, TOKENS, TOKENS[0], 1),
}


def exported(name, step, folder):
    """Write a network, or its training step, to net.c."""
    make, x, y, batch = CASES[name]
    net = make()
    net.set_train(step)
    x, y = np.tile(x, (batch, *(1,) * (x.ndim - 1))), np.tile(y, batch)
    if step:
        params = net.trainable_params()
        trained = ml.train_step(net, nn.CrossEntropyLoss(), optim.Adam(params, 1e-3))
        ml.export_c(trained, folder / "net.c", x, y)
    else:
        ml.export_c(net, folder / "net.c", x)


def check(name, step, level, folder):
    exported(name, step, folder)
    assert 0 < deepest(folder, level) <= MOST


@pytest.mark.parametrize("name", ["CNN", "LSTM"])
def test_a_training_step_has_a_small_stack(name, tmp_path):
    check(name, True, "-Os", tmp_path)


@pytest.mark.deep
@pytest.mark.parametrize("level", ["-Os", "-O2", "-O3"])
@pytest.mark.parametrize("step", [False, True])
@pytest.mark.parametrize("name", CASES)
def test_networks_and_training_steps_have_small_stacks(name, step, level, tmp_path):
    check(name, step, level, tmp_path)


@pytest.mark.parametrize("target", [None, "native"])
def test_large_products_have_their_panels_in_the_arena(tmp_path, target):
    """The last layer packs its columns, and a transposed x of a gradient is copied in blocks."""
    net = nn.Sequential(nn.Dense(64, 512), nn.ReLU(), nn.Dense(512, 300))
    step = ml.train_step(net, nn.CrossEntropyLoss(), optim.SGD(net.trainable_params(), 0.1))
    example = np.zeros((300, 64), np.float32), np.zeros(300, np.int64)
    ml.export_c(step, tmp_path / "net.c", *example, target=target)
    assert 0 < deepest(tmp_path, "-Os", *["-march=native"] * (target == "native")) <= MOST


@pytest.mark.deep
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(("m", "k", "n"), [(1024, 300, 600), (600, 300, 600), (4, 4096, 512)])
def test_products_by_wide_vectors_have_their_panels_in_the_arena(rng, tmp_path, dtype, m, k, n):
    """Of a transposed x, of a plain one, and by lines of y."""
    x, y = rng.standard_normal((k, m)).astype(dtype), rng.standard_normal((k, n)).astype(dtype)
    x = x if m == 1024 else np.ascontiguousarray(x.T)

    def fn(x, y):
        return ops.matmul(x, y, m == 1024)

    taken = used("gcc", "-O2", fn, tmp_path, x, y, target="native")
    assert taken <= MOST
    assert taken <= deepest(tmp_path, "-O2", "-march=native") + AROUND


# Runs a call of net_run on a stack of its own, full of one byte, and says how much was overwritten.
PAINTED = """
#define _GNU_SOURCE
#include <ucontext.h>
#include "net.c"
static _Alignas(64) unsigned char painted[1 << 19];
static ucontext_t here, there;
static void **given;
static void go(void) { net_run(ARGUMENTS); }
long used(void **arguments) {
  given = arguments;
  memset(painted, 0xA5, sizeof painted);
  getcontext(&there);
  there.uc_stack.ss_sp = painted, there.uc_stack.ss_size = sizeof painted;
  there.uc_link = &here;
  makecontext(&there, go, 0);
  swapcontext(&here, &there);
  long untouched = 0;
  while (painted[untouched] == 0xA5) ++untouched;
  return (long)sizeof painted - untouched;
}
"""
AROUND = 1024  # bytes for the start of the other stack, and for functions of the C library


def used(compiler, level, fn, folder, *args, target=None):
    """Bytes of stack that a call of the exported function took; its outputs are Python's."""
    ml.export_c(fn, folder / "net.c", *args, target=target)
    made = ml.jit(fn)(*args)
    expected = [t.asnumpy() for t in (made if isinstance(made, tuple) else (made,))]
    outs = [np.full_like(e, 7) for e in expected]
    arena = aligned(bytes_of(folder / "net.c", "NET_ARENA_BYTES"))
    given = pointers(arena, *args, *outs)
    names = ", ".join(f"given[{i}]" for i in range(len(given)))
    (folder / "painted.c").write_text(PAINTED.replace("ARGUMENTS", names))
    command = [compiler, level, "-fPIC", "-shared", "painted.c", "-o", "painted.so", "-lm"]
    command += ["-Wl,-z,now"]  # the loader would look up functions on this stack
    subprocess.run(command + ["-march=native"] * (target == "native"), cwd=folder, check=True)
    found = ctypes.CDLL(str(folder / "painted.so")).used((ctypes.c_void_p * len(given))(*given))
    for out, e in zip(outs, expected, strict=True):
        np.testing.assert_allclose(out, e, 1e-4, 1e-4)
    return found


@pytest.mark.parametrize(
    ("fn", "n", "dtype"),
    [
        pytest.param(lambda x: ops.topk(x, 600), 5000, np.float32, id="topk by counts"),
        pytest.param(lambda x: ops.sort(ops.floor(x / 4)), 5000, np.float64, id="equal numbers"),
        *(
            pytest.param(fn, n, dtype, marks=pytest.mark.deep, id=name)
            for name, fn, n, dtype in (
                ("float64", ops.sort, 5000, np.float64),
                ("argsort", ops.argsort, 300, np.int32),
                ("median", ops.median, 5000, np.float32),
            )
        ),
    ],
)
def test_sorting_has_its_counts_in_the_arena(rng, tmp_path, compiler, fn, n, dtype):
    x = (rng.standard_normal((2, n)) * 1000).astype(dtype)
    taken = used(compiler, "-Os", fn, tmp_path, x)
    assert taken <= 2048
    if compiler == "gcc":
        assert taken <= deepest(tmp_path, "-Os") + AROUND


@pytest.mark.parametrize("level", ["-Os", "-O3"])
def test_what_is_said_of_the_stack_is_what_is_taken(rng, tmp_path, level):
    net = nn.Sequential(nn.Dense(64, 512), nn.Tanh(), nn.LayerNorm(512), nn.Dense(512, 300))
    net.set_train(False)
    x = rng.standard_normal((70, 64)).astype(np.float32)
    taken = used("gcc", level, net, tmp_path, x)
    said = deepest(tmp_path, level)
    assert said / 2 <= taken <= said + AROUND


CHAIN = """
graph: { title: "net.c"
node: { title: "net.c:a" label: "a\\nnet.c:1:1\\n100 bytes (static)" }
node: { title: "net.c:b" label: "b\\nnet.c:2:1\\n1000 bytes (dynamic,bounded)" }
node: { title: "net.c:c" label: "c\\nnet.c:3:1\\n30 bytes (static)" }
node: { title: "net_run" label: "net_run\\nnet.c:4:1\\n8 bytes (static)" }
edge: { sourcename: "net_run" targetname: "net.c:a" label: "net.c:4:9" }
edge: { sourcename: "net_run" targetname: "net.c:c" label: "net.c:4:9" }
"""


def test_the_deepest_chain_of_a_call_graph():
    edge = 'edge: {{ sourcename: "net.c:{}" targetname: "{}" label: "" }}\n'.format
    assert chain_of(CHAIN) == 1000  # b is called by none
    assert chain_of(CHAIN + edge("c", "__indirect_call")) == 1038  # now it may be
    assert chain_of(CHAIN + edge("a", "net.c:b")) == 1108
    assert chain_of(CHAIN + edge("a", "expf")) == 1000
    assert chain_of(CHAIN + edge("a", "net.c:b") + edge("b", "net.c:a")) is None
    assert chain_of(CHAIN.replace("dynamic,bounded", "dynamic")) is None


def test_a_compiler_that_cannot_say_the_stack_leaves_it_unknown(tmp_path, monkeypatch):
    compiler = tmp_path / "other"
    compiler.write_text("#!/bin/sh\necho unknown argument >&2\nexit 1\n")
    compiler.chmod(0o755)
    monkeypatch.setenv("CC", str(compiler))
    assert deepest_in({"net.c": "int x;", "net.h": ""}, []) is None
