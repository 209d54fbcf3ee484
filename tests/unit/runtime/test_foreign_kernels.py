"""Kernels of users' own inside programs: they may fail anywhere, and write to `out` only."""

from __future__ import annotations

import signal
from threading import Thread
from typing import Any

import numpy as np
import pytest

import miniml as ml
from miniml import Kernel, Primitive, kernel, ops
from miniml.backends.kernel import KernelEntry
from miniml.core.settings import Settings, current
from miniml.ops import Unary
from miniml.runtime.program import Program

ARMED = [False]


class Moved(Primitive, abstract=True):
    """A parameter moved by d."""

    effect = "state"
    differentiable = False

    def infer_shape(self, parameter: Any, d: Any) -> Any:
        return parameter

    def infer_dtype(self, parameter: Any, d: Any) -> Any:
        return parameter


class RunMove(Moved):
    """Its kernel writes in place, and raises when it is armed."""


@kernel("RunMove", "cpu", "ff->f", inplace=(0,))
def move(parameter: Any, d: Any, *, out: Any) -> None:
    np.add(parameter, d, out=out)
    if ARMED[0]:
        raise ValueError("armed")


def test_an_update_in_place_that_is_not_built_in_is_staged() -> None:
    p, q = ml.Parameter([1.0, 1.0]), ml.Parameter([2.0, 2.0])

    def step(d: Any) -> Any:
        ops.assign(p, p + d)
        RunMove()(q, d)
        return ops.sum(p)

    run = ml.jit(step)
    d = ml.Tensor([1.0, 2.0])
    run(d)
    ARMED[0] = True
    try:
        with pytest.raises(ValueError, match="armed") as caught:
            run(d)
    finally:
        ARMED[0] = False
    assert "RunMove()(q, d)" in "".join(caught.value.__notes__)
    assert (p.tolist(), q.tolist()) == ([2.0, 3.0], [3.0, 4.0])
    run(d)
    assert (p.tolist(), q.tolist()) == ([3.0, 5.0], [4.0, 6.0])


class RunSumDifference(Primitive):
    """x + y and x - y; its kernel still reads its inputs when it has written one output."""

    outputs = ("sum", "difference")
    differentiable = False

    def infer_shape(self, x: Any, y: Any) -> Any:
        return x, x

    def infer_dtype(self, x: Any, y: Any) -> Any:
        return x, x


@kernel("RunSumDifference", "cpu", "ff->ff", inplace=(0,))
def sum_difference(x: Any, y: Any, *, out: Any) -> None:
    total, difference = out
    np.add(x, y, out=total)
    np.subtract(x, y, out=difference)


def test_two_outputs_never_share_the_memory_of_an_input() -> None:
    x, y = np.float32([1.0, 2.0]), np.float32([3.0, 5.0])
    total, difference = ml.jit(lambda x, y: RunSumDifference()(x * 2.0, y))(x, y)
    assert total.tolist() == [5.0, 9.0]
    assert difference.tolist() == [-1.0, -1.0]


class RunWider(Primitive):
    """x in float64."""

    differentiable = False

    def infer_shape(self, x: Any) -> Any:
        return x

    def infer_dtype(self, x: Any) -> Any:
        return ml.float64


@kernel("RunWider", "cpu", "f->d", inplace=(0,))
def wider(x: Any, *, out: Any) -> None:
    out[...] = x.astype(np.float64)


def test_an_output_of_another_size_gets_memory_of_its_own() -> None:
    run = ml.jit(lambda x: (x + 1.0, RunWider()(x * 2.0), x + 3.0))
    x = np.arange(100, dtype=np.float32)
    made = run(x)
    for out, right in zip(made, (x + 1, 2 * x, x + 3), strict=True):
        np.testing.assert_array_equal(out, right)


class RunGreedy(Unary):
    """x in, something of its type out."""


@kernel("RunGreedy", "cpu", "f->f")
def greedy(x: Any, *, out: Any) -> None:
    x[...] = 0.0
    out[...] = x


@pytest.mark.parametrize("run", [lambda f: f, ml.jit], ids=["eager", "jit"])
@pytest.mark.parametrize("wrap", [ml.Tensor, ml.Parameter, np.asarray])
def test_what_a_kernel_gets_is_read_only(run: Any, wrap: Any) -> None:
    x = wrap(np.ones(3, np.float32))
    with pytest.raises(ValueError, match="read-only"):
        run(RunGreedy())(x)
    with pytest.raises(ValueError, match="read-only"):
        run(lambda x: ops.cond(ops.sum(x) > 0.0, lambda: RunGreedy()(x), lambda: x))(x)
    assert np.asarray(x).tolist() == [1.0, 1.0, 1.0]


@pytest.mark.parametrize("providers", [("miniml",), ("cc",)])
@pytest.mark.parametrize("seen", [lambda e: e, lambda e: ops.reshape(e, (20, 300)).T[5:]])
def test_outputs_that_a_kernel_reads_are_read_only_too(seen: Any, providers: Any) -> None:
    """In eager calls; where the caller receives them; and views of them."""

    def both(x: Any) -> Any:
        made = ops.exp(x)
        return made, ops.sum(RunGreedy()(seen(made)))

    with ml.context(providers=providers):
        for run in (both, ml.jit(both)):
            with pytest.raises(ValueError, match="read-only"):
                run(np.zeros(6000, np.float32))


class RunSettings(Unary):
    """x; its kernel notes the settings that it sees."""


SEEN: list[Settings] = []


@kernel("RunSettings", "cpu", "f->f")
def note_settings(x: Any, *, out: Any) -> None:
    SEEN.append(current())
    np.copyto(out, x)


def test_a_kernel_sees_the_settings_its_program_was_compiled_under() -> None:
    x = np.ones(2, np.float32)
    SEEN.clear()
    with ml.context(check_nan=True, providers="miniml") as settings:
        program = Program(ml.trace(RunSettings(), x))
        RunSettings()(ml.Tensor(x))
        ml.jit(RunSettings())(x)
        program(x)
    program(x)  # wherever it is called from
    with ml.context(mode=ml.GRAPH_MODE):
        program(x)
        thread = Thread(target=lambda: (program._idle.clear(), program(x)))  # a second instance
        thread.start()
        thread.join()
    assert len(SEEN) == 6
    assert set(SEEN) == {settings}


class RunShift(Moved):
    """Its kernel has a life of its own."""


@kernel("RunShift", "cpu", "ff->f", inplace=(0,), total=True)
class ShiftKernel(Kernel):
    def launch(self, inputs: Any, workspace: Any, outputs: Any, stream: Any) -> None:
        np.add(*inputs, out=outputs[0])
        signal.raise_signal(signal.SIGUSR1)
        SEEN_STATES.append(None)


SEEN_STATES: list[Any] = []


def test_no_handler_runs_between_updates_of_kernels_in_python(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(KernelEntry, "built_in", True)  # so they run last, where they write
    p, q = ml.Parameter([1.0, 1.0]), ml.Parameter([2.0, 2.0])

    def step(d: Any) -> Any:
        RunShift()(p, d)
        RunShift()(q, d)
        return d

    def look(number: int, frame: Any) -> None:
        SEEN_STATES.append((p.tolist(), q.tolist()))

    before = signal.signal(signal.SIGUSR1, look)
    try:
        ml.jit(step)(ml.Tensor([1.0, 2.0]))
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert SEEN_STATES[:2] == [None, None]
    assert SEEN_STATES[2] == ([2.0, 3.0], [3.0, 4.0])
