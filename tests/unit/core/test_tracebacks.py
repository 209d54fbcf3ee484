"""Tracebacks show the user's frames; those of miniml are hidden, unless asked for."""

import traceback
from pathlib import Path

import numpy as np
import pytest

import miniml as ml
from miniml import Primitive, kernel, nn, ops, optim
from miniml.core.scope import epoch
from miniml.grad import GradOperation, grad, hvp, jacobian, jvp, value_and_grad, vjp
from miniml.runtime.eager import EagerTrace

HERE = str(Path(__file__))
PACKAGE = str(Path(ml.__file__).parent)
X = np.ones((2, 3), np.float32)
T = ml.Tensor(X)


class Mismatched(nn.Cell):
    """Adds what does not fit."""

    def construct(self, x):
        return x + ops.zeros((7, 5))


def failing(x):
    return ops.sum(x + np.ones((7, 5), np.float32))


def net():
    return nn.Sequential(nn.Dense(3, 4), nn.Sequential(nn.ReLU(), Mismatched()))


def step():
    made = nn.Sequential(nn.Dense(3, 4), Mismatched())
    return ml.train_step(made, nn.MSELoss(), optim.SGD(made.trainable_params(), 0.1))


def frames(mistake, error=ml.errors.MinimlError):
    """The files and functions of the traceback of a mistake, from this file on."""
    try:
        mistake()
    except error as caught:
        steps = traceback.extract_tb(caught.__traceback__)
        return [(s.filename, s.name) for s in steps][1:]
    raise AssertionError("nothing was raised")


def own(steps):
    return [s for s in steps if s[0].startswith(PACKAGE)]


MISTAKES = {
    "net": lambda: net()(X),
    "jit": lambda: ml.jit(net())(X),
    "jit of a function": lambda: ml.jit(failing)(X),
    "step": lambda: step()(X, X),
    "grad": lambda: grad(failing)(X),
    "value_and_grad": lambda: value_and_grad(failing)(X),
    "nested grad": lambda: grad(lambda x: ops.sum(grad(failing)(x)))(X),
    "vjp": lambda: vjp(failing, X),
    "pull": lambda: vjp(ops.sin, X)[1](ml.Tensor(np.ones(7, np.float32))),
    "jvp": lambda: jvp(failing, (X,), (X,)),
    "hvp": lambda: hvp(failing, X, X),
    "jacobian": lambda: jacobian(failing)(X),
    "GradOperation": lambda: GradOperation()(failing)(X),
    "update": lambda: optim.SGD([ml.Parameter(X)], 0.1).update([T, T]),
}


@pytest.mark.parametrize("name", MISTAKES)
@pytest.mark.parametrize("mode", [ml.PYNATIVE_MODE, ml.GRAPH_MODE])
def test_no_frame_of_miniml_is_shown(name, mode):
    with ml.context(mode=mode):
        steps = frames(MISTAKES[name])
    assert {file for file, _ in steps} == {HERE}


def test_the_users_frames_stay_in_order():
    assert [name for _, name in frames(MISTAKES["net"])] == ["<lambda>", "construct"]
    assert [name for _, name in frames(MISTAKES["nested grad"])] == [
        "<lambda>",
        "<lambda>",
        "failing",
    ]


@pytest.mark.parametrize(
    "mistake",
    [lambda: T + np.ones(4), lambda: ops.matmul(T, T), lambda: ops.sin(T, T)],
)
def test_one_operation_shows_what_was_called_at_most(mistake):
    steps = frames(mistake)
    assert len(own(steps)) <= 2
    with ml.context(full_tracebacks=True):
        assert len(own(frames(mistake))) > len(own(steps))


@pytest.mark.parametrize("name", ["net", "step", "nested grad"])
def test_the_setting_shows_all(name):
    with ml.context(full_tracebacks=True):
        assert len(own(frames(MISTAKES[name]))) > 10


def test_an_error_of_the_users_own_is_shown_to_its_line():
    def wrong(x):
        return ops.sum(x).no_such_thing

    steps = frames(lambda: grad(wrong)(X), AttributeError)
    assert [name for _, name in steps if name != "__getattr__"] == ["<lambda>", "wrong"]


def test_an_error_that_nobody_planned_shows_where_it_happened(monkeypatch):
    names = {}
    code = "def broken(*_):\n    raise ZeroDivisionError"
    exec(compile(code, f"{PACKAGE}/runtime/broken.py", "exec"), names)
    monkeypatch.setattr(EagerTrace, "_plan", names["broken"])
    epoch.bump("kernels")  # no plan is known
    steps = frames(lambda: nn.Sequential(Mismatched())(X), ZeroDivisionError)
    assert [name for _, name in steps][:2] == ["<lambda>", "construct"]
    assert steps[-1] == (f"{PACKAGE}/runtime/broken.py", "broken")


def test_the_users_kernel_is_shown():
    class FailsInKernel(Primitive):
        def infer_shape(self, x):
            return x

        def infer_dtype(self, x):
            return x

    @kernel("FailsInKernel", "cpu", "f->f")
    def fails(x, *, out):
        raise RuntimeError("in the kernel")

    for call in (lambda: FailsInKernel()(X), lambda: ml.jit(FailsInKernel())(X)):
        steps = frames(call, RuntimeError)
        assert steps[-1] == (HERE, "fails")
        assert len(own(steps)) <= 1  # Primitive.__call__, eagerly


def test_what_an_error_came_from_is_shown_alike():
    def wraps(x):
        try:
            return grad(failing)(x)
        except ml.errors.ShapeError as error:
            raise ValueError("mine") from error

    with pytest.raises(ValueError, match="mine") as caught:
        ml.jit(wraps)(X)
    cause = traceback.extract_tb(caught.value.__cause__.__traceback__)
    assert [step.name for step in cause] == ["wraps", "failing"]


def test_a_stopped_run_shows_every_frame():
    class Stopped(nn.Cell):
        def construct(self, x):
            raise KeyboardInterrupt

    assert own(frames(lambda: nn.Sequential(Stopped())(X), KeyboardInterrupt))
