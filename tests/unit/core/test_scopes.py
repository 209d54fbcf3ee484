"""Traces, settings, logs and pinned lines hold for their block exactly, whatever interrupts it."""

import asyncio
import contextvars
import inspect
import linecache
import re
import sys
import threading
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import pytest

import miniml as ml
from miniml import nn, ops
from miniml.core import parameter, scope
from miniml.core.access import Access
from miniml.core.scope import Scoped
from miniml.core.settings import current
from miniml.core.trace import current_trace, eager_trace, is_tracing
from miniml.grad import grad, vjp

PACKAGE = Path(ml.__file__).parent
# Whose every step is interrupted: the contexts themselves, and the functions that open them.
CONTEXTS = {
    str(PACKAGE / f"core/{name}.py") for name in ("scope", "settings", "trace", "parameter")
}
CONTEXTS.add(np.errstate.__exit__.__code__.co_filename)
OPENERS = {
    "record", "trace_body", "trace_graph", "finish", "backward", "pull_graph", "_host",
    "__call__", "linearize", "pinned", "pull", "derived", "quietly", "_quiet",
}  # fmt: skip
X = ml.Tensor([1.0, 2.0])
WARNINGS = np.geterr()


class Stop(BaseException):
    """What a signal's handler raises."""


def of_contexts(code):
    return code.co_filename in CONTEXTS or (of_package(code) and code.co_name in OPENERS)


def of_package(code):
    return code.co_filename.startswith(str(PACKAGE))


SOURCE, FIRST = inspect.getsourcelines(Access.run)
ENDS = FIRST + next(i for i, line in enumerate(SOURCE) if "_turns.pop(turn" in line)
TAKES_A_LOCK = re.compile(r"\s*with (self\.)?_?(lock|registry):")


def is_one_call_into_c(frame):
    """True in lines in which the interpreter looks for signals after a call into C alone: the one
    that ends a turn, and those that take a lock and, after the block, give it back."""
    if frame.f_code is Access.run.__code__ and frame.f_lineno == ENDS:
        return True
    line = linecache.getline(frame.f_code.co_filename, frame.f_lineno or 0)
    return TAKES_A_LOCK.match(line) is not None


def run_to(step, call, chosen):
    """Call it, and raise Stop before that step of the bytecode of the chosen functions."""
    left = step

    def steps(frame, event, arg):
        nonlocal left
        if event == "opcode" and not is_one_call_into_c(frame):
            left -= 1
            if left < 0:
                sys.settrace(None)
                raise Stop
        return steps

    def calls(frame, event, arg):
        code = frame.f_code
        frame.f_trace_opcodes = chosen(code) or code is getattr(call, "__code__", None)
        return steps if frame.f_trace_opcodes else None

    before = sys.gettrace()
    sys._getframe().f_trace_opcodes = True  # Python 3.12 looks at it when tracing begins
    sys.settrace(calls)
    try:
        call()
    finally:
        sys.settrace(before)


def interrupt(call, step, chosen, check):
    """True if the call came so far, and was stopped there; then what `check` says must hold."""
    try:
        run_to(step, call, chosen)
    except Stop:
        check()  # while the traceback still holds all frames
        return True
    return False


def assert_nothing_stays():
    assert not is_tracing()
    assert current_trace() is eager_trace()
    assert current().check_nan is False
    assert parameter._log.get() is None
    assert scope._pinned.get() is None
    assert np.geterr() == WARNINGS


def assert_another_thread_compiles():
    """No lock of the process is left with this thread, which alone could take it again."""
    thread = threading.Thread(target=ml.jit(lambda x: ops.exp(x) + 1.0), args=(X,), daemon=True)
    thread.start()
    thread.join(60)
    assert not thread.is_alive()


def in_a_context():
    with ml.context(check_nan=True):
        ops.exp(X)
        with ml.context(check_nan=True, providers=("miniml",)):
            pass


@ml.context(check_nan=True)
def decorated():
    return ops.exp(X)


def stacked():
    with ExitStack() as stack:
        stack.enter_context(ml.context(check_nan=True))


def in_graph_mode():
    with ml.context(mode=ml.GRAPH_MODE, check_nan=True):
        nn.Sequential(nn.Flatten())(ml.Tensor([[1.0]]))


def a_step():
    with ml.context(jit=False):
        STEP(np.ones((2, 2), np.float32), np.ones((2, 1), np.float32))


NET = nn.Dense(2, 1)
STEP = ml.train_step(NET, nn.MSELoss(), ml.optim.SGD(NET.trainable_params(), lr=0.1))
CALLS = {
    "an operation": lambda: ops.exp(X),
    "eager gradient": lambda: grad(lambda x: ops.sum(x * x))(X),
    "Python if under a gradient": lambda: grad(lambda x: ops.sum(x) if x[0] > 0 else x[0])(X),
    "nested gradient": lambda: grad(lambda x: ops.sum(grad(lambda y: ops.sum(y * x))(x)))(X),
    "pulled": lambda: vjp(lambda x: x * x, X)[1](X),
    "jit": lambda: ml.jit(ops.exp)(X),
    "cond": lambda: ml.trace(lambda x: ops.cond(x[0] > 0, lambda: x, lambda: -x), X),
    "trace": lambda: ml.trace(lambda x: x + ops.uniform((2,)), X),
    "context": in_a_context,
    "decorator": decorated,
    "graph mode": in_graph_mode,
    "step op by op": a_step,
}


def interrupt_all(call, chosen, most, check=None):
    """Interrupt it at each of its steps, or at `most` of them, evenly spread; gives their count."""
    check = check or assert_nothing_stays
    interrupt(call, sys.maxsize, chosen, check)  # Python 3.13 traces opcodes from the second time
    end = 1
    while interrupt(call, end, chosen, check):
        end *= 2
    return sum(interrupt(call, n, chosen, check) for n in range(0, end, max(1, end // most)))


@pytest.mark.parametrize("name", CALLS)
def test_an_interrupt_at_any_step_leaves_nothing_current(name):
    assert interrupt_all(CALLS[name], of_contexts, most=150) > 20
    assert_nothing_stays()


@pytest.mark.deep
@pytest.mark.parametrize("name", CALLS)
def test_an_interrupt_anywhere_in_the_package_leaves_nothing_current(name):
    assert interrupt_all(CALLS[name], of_package, most=1500) > 100
    assert_nothing_stays()
    assert_another_thread_compiles()


def test_what_a_block_around_had_stays_in_force_after_an_interrupt():
    def inner():
        with ml.context(check_nan=False, providers=("a",)):
            pass

    providers = current().providers

    def check():
        assert (current().check_nan, current().providers) == (True, providers)
        assert parameter._log.get() is log

    with ml.context(check_nan=True), parameter.logged() as log:
        assert interrupt_all(inner, of_contexts, most=500, check=check) > 100
        check()
    assert_nothing_stays()


def test_a_parameter_is_noted_in_every_block_around():
    p = ml.Parameter([1.0])
    with parameter.logged() as outer:
        with parameter.logged() as inner:
            p.set_data(np.float32([2.0]))
        assert [q is p for q, _ in inner.written()] == [True]
        inner.restore()
        p.set_data(np.float32([3.0]))
    outer.restore()
    assert p.asnumpy().tolist() == [1.0]


def test_a_context_serves_one_block_and_a_decorator_every_call():
    used = ml.context(check_nan=True)
    with used:
        assert current().check_nan
    with pytest.raises(RuntimeError, match="make another"), used:
        pass
    seen = ml.context(check_nan=True)(lambda: current().check_nan)
    assert [seen(), seen()] == [True, True]
    assert not current().check_nan


def test_a_context_may_be_entered_by_a_stack_or_by_hand():
    with ExitStack() as stack:
        stack.enter_context(ml.context(check_nan=True))
        assert current().check_nan
    assert not current().check_nan
    by_hand = ml.context(check_nan=True)
    assert hasattr(by_hand, "__exit__")
    by_hand.__enter__()
    assert hasattr(by_hand, "__exit__")
    assert current().check_nan
    by_hand.__exit__(None, None, None)
    assert not current().check_nan


def test_a_block_is_given_up_only_where_it_was_entered():
    value = Scoped("test_scope")
    block = value.use(lambda: 1)
    way_out = block.__exit__
    block.__enter__()
    copied = contextvars.copy_context()
    seen = []
    del way_out  # as an exception between the steps of `with` does
    thread = threading.Thread(target=lambda: seen.append(copied.run(value.get)))
    thread.start()
    thread.join()
    assert (value.get(), seen) == (None, [1])


def test_a_task_keeps_the_settings_in_which_it_was_started():
    async def look():
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        return current().check_nan

    async def start():
        with ml.context(check_nan=True):
            task = asyncio.create_task(look())
        return await task, current().check_nan

    assert asyncio.run(start()) == (True, False)


def test_a_context_in_a_generator_ends_with_it():
    def numbers():
        with ml.context(check_nan=True):
            yield current().check_nan

    steps = numbers()
    assert next(steps)
    assert current().check_nan  # as with every context variable: Python has one context for both
    steps.close()
    assert not current().check_nan
