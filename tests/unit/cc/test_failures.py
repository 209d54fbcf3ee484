"""Whatever becomes of the compiler and its cache, a program runs; at worst by NumPy's kernels."""

import errno
import os
import subprocess
import sys
import warnings
from dataclasses import replace

import numpy as np
import pytest

import miniml as ml
from miniml import nn, ops, optim
from miniml.backends import compiled
from miniml.backends.cc import units
from miniml.errors import PerformanceWarning
from tests.frame.compilers import CUT_LIBRARY, own_folders, put
from tests.frame.native import needs_compiler

from .programs import exact, exact_inputs, function, inputs_for, with_gradient


@pytest.fixture
def alone(tmp_path, monkeypatch):
    """What a new process knows, a cache of its own, and the default settings; called again, as the
    next process."""

    def forget() -> None:
        for name, empty in (("_loaded", {}), ("_libraries", {}), ("_services", None)):
            monkeypatch.setattr(units, name, empty)
        monkeypatch.setattr(units, "_given_up", {})
        units._warn.cache_clear()
        units.executor.cache_clear()

    forget()
    with own_folders(tmp_path), ml.context(providers=()):
        yield forget
    units.executor.cache_clear()
    units._warn.cache_clear()


def trained():
    """The losses and the parameters of two steps of a small network."""
    ml.manual_seed(1)
    net = nn.Sequential(nn.Dense(6, 9), nn.Tanh(), nn.LayerNorm(9), nn.Dense(9, 3))
    optimizer = optim.SGD(net.trainable_params(), 0.1, momentum=0.9)
    step = ml.train_step(net, nn.CrossEntropyLoss(), optimizer)
    x = np.random.default_rng(0).normal(size=(8, 6)).astype("f")
    losses = [step(x, np.arange(8) % 3) for _ in range(2)]
    return [value.asnumpy().tobytes() for value in (*losses, *net.trainable_params())]


def by_numpy(fn):
    with ml.context(providers=("miniml",)):
        return fn()


def warned(fn):
    """What it gives, and the warnings."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        return fn(), [str(w.message) for w in caught if w.category is PerformanceWarning]


def no_compiler(monkeypatch):
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.delenv("CC", raising=False)
    monkeypatch.setattr(units, "TOOLS", replace(units.TOOLS, other=tuple))


def disk_is_full(monkeypatch):
    def full(*arguments, **named):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(compiled, "write_file", full)


COMPILERS = {
    "crashes": ("kill -9 $$", "was ended by signal 9|ended with"),
    "fails": ("exit 3", "ended with 3"),
    "hangs": ("sleep 600", "did not end within 0.5 seconds"),
    "refuses every text": ("echo 'error: no stdint.h' >&2; exit 1", "refuses a text that is right"),
    "cuts what it writes": (CUT_LIBRARY, "wrote a library that is cut"),
    "prints without end": ("yes", "printed more than 64 MiB"),
    "writes nothing": ("exit 0", "wrote no library"),
    "has no disk": ("echo 'ld: No space left on device' >&2; exit 1", "No space left"),
}


@pytest.mark.parametrize("kind", COMPILERS)
def test_a_compiler_that_fails(alone, monkeypatch, tmp_path, kind):
    content, reason = COMPILERS[kind]
    put(monkeypatch, units.TOOLS, tmp_path, content)
    seconds = 0.5 if kind == "hangs" else 30
    monkeypatch.setattr(units, "TOOLS", replace(units.TOOLS, seconds=seconds))
    (first, one), (second, others) = warned(trained), warned(trained)
    assert first == second == by_numpy(trained)
    assert (len(one), others) == (1, [])
    assert any(text in one[0] for text in reason.split("|")), one


def test_a_compiler_that_fails_at_an_eager_call(alone, monkeypatch, tmp_path):
    content, reason = COMPILERS["crashes"]
    put(monkeypatch, units.TOOLS, tmp_path, content)
    x = ml.Tensor(np.linspace(-3, 3, 1 << 18, dtype=np.float32))
    (found, one), (again, others) = (warned(lambda: ops.erf(x).asnumpy()) for _ in range(2))
    np.testing.assert_array_equal(found, again)
    np.testing.assert_array_equal(found, by_numpy(lambda: ops.erf(x).asnumpy()))
    assert (len(one), others) == (1, [])
    assert any(text in one[0] for text in reason.split("|")), one


@needs_compiler
def test_a_full_disk(alone, monkeypatch):
    disk_is_full(monkeypatch)
    result, messages = warned(trained)
    assert result == by_numpy(trained)
    assert len(messages) == 1
    assert os.strerror(errno.ENOSPC) in messages[0]


@needs_compiler
def test_a_damaged_cache_is_made_anew(alone):
    right, messages = warned(trained)
    assert messages == []
    for entry in units.CACHE.entries():  # by another file: one that is loaded must not change
        entry.path.unlink()
        entry.path.write_bytes(b"\x7fELF nonsense")
    alone()
    assert warned(trained) == (right, [])
    assert all(compiled.is_whole(entry.path) for entry in units.CACHE.entries())


def test_without_a_compiler_nothing_is_said(alone, monkeypatch):
    """Nobody has asked for one; those who name the provider are told once."""
    no_compiler(monkeypatch)
    assert warned(trained) == (by_numpy(trained), [])
    with ml.context(providers=("cc",)):
        result, messages = warned(trained)
        assert result == by_numpy(trained)
        assert len(messages) == 1
        assert "there is none on the PATH" in messages[0]
        assert warned(trained)[1] == []


def test_without_a_compiler_every_program_gives_what_numpy_gives(alone, monkeypatch):
    no_compiler(monkeypatch)
    for seed in range(6):
        programs = (
            (function(seed), inputs_for(seed, np.float64)),
            (with_gradient(function(seed, 6)), inputs_for(seed, np.float64)),
            (exact(seed), exact_inputs(seed)),
        )
        for fn, xs in programs:
            got, expected = ml.jit(fn)(*xs), by_numpy(lambda fn=fn, xs=xs: ml.jit(fn)(*xs))
            assert repr(got) == repr(expected)


PROCESS = """
import hashlib
import miniml as ml
from tests.unit.cc.networks import trained
with ml.context(threads={threads}):
    for seed in {seeds}:
        for value in trained(seed, "f"):
            print(hashlib.sha256(value.tobytes()).hexdigest())
"""


def process(threads, *seeds):
    text = PROCESS.format(threads=threads, seeds=seeds)
    return subprocess.Popen([sys.executable, "-c", text], stdout=-1, stderr=-1, env=os.environ)


def outputs(processes):
    ended = [(*p.communicate(timeout=120), p.returncode) for p in processes]
    assert [(error, code) for _, error, code in ended] == [(b"", 0)] * len(ended)
    return [out for out, *_ in ended]


@needs_compiler
def test_equal_seeds_give_equal_weights_in_every_process(alone):
    """In two that compile at once, and in those that find it done, on one thread or several."""
    cold = outputs([process(1, 2, 4), process(0, 2, 4)])
    cached = outputs([process(1, 2, 4), process(2, 2, 4)])
    assert len(cold[0].split()) > 10
    assert len({*cold, *cached}) == 1
