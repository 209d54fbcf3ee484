"""Does a call leave the program's shared state alone: generators, error states, the environment?"""

from __future__ import annotations

import os
import random
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from functools import partial
from typing import Any

import numpy as np

from ....bprop import bprop_getters
from ....dtype import is_float
from ....tensor import Tensor
from ...calls import Call
from ..session import Issue
from .gradients import has_bprop
from .launches import launch, launched

_UNUSUAL = 271828
_GENERATOR = "draw from a generator of the kernel's own, seeded by an input (a key)"


def _numpy_generator() -> list[Any]:
    name, key, *rest = tuple(np.random.get_state())  # noqa: NPY002
    return [name, np.asarray(key).tobytes(), *rest]


def _set_numpy_generator(was: list[Any]) -> None:
    name, key, *rest = was
    np.random.set_state((name, np.frombuffer(key, np.uint32), *rest))  # noqa: NPY002


def _directory() -> str:
    try:
        return os.getcwd()
    except OSError:  # it was removed
        return ""


def _set_directory(was: str) -> None:
    if was:
        os.chdir(was)


def _set_environment(was: dict[str, str]) -> None:
    os.environ.clear()
    os.environ.update(was)


def _set_filters(was: list[Any]) -> None:
    warnings.filters[:] = was  # type: ignore[index]


# Shared state of a program: a name, its present value, how to restore it, what to do instead.
State = tuple[str, Callable[[], Any], Callable[[Any], Any], str]
SHARED: tuple[State, ...] = (
    ("numpy.random's generator", _numpy_generator, _set_numpy_generator, _GENERATOR),
    ("random's generator", random.getstate, random.setstate, _GENERATOR),
    ("numpy's error state (np.seterr)", np.geterr, lambda was: np.seterr(**was),
     "use `with np.errstate(...)`"),
    ("the environment (os.environ)", lambda: dict(os.environ), _set_environment,
     "read the environment only"),
    ("the working directory", _directory, _set_directory, "give whole paths to what opens files"),
    ("the filters of warnings", lambda: list(warnings.filters), _set_filters,
     "use `with warnings.catch_warnings()`"),
    ("numpy's print options", np.get_printoptions, lambda was: np.set_printoptions(**was),
     "use `with np.printoptions(...)`"),
)  # fmt: skip


_first: ContextVar[list[Any] | None] = ContextVar("miniml_first_state", default=None)


@contextmanager
def remembered() -> Iterator[None]:
    """Inside the block `state` knows the shared state at its beginning, before anything ran; at the
    end that is restored."""
    first = [read() for _, read, _, _ in SHARED]
    token = _first.set(first)
    try:
        yield
    finally:
        _first.reset(token)
        _restore(first)


def state(call: Call) -> Iterator[Issue]:
    """Rules, kernels and the bprop change nothing that the rest of the program shares.

    Each of them starts from the state before any of them ran, and from freshly seeded generators,
    so that setting the same value each time shows, too.
    """
    now = [read() for _, read, _, _ in SHARED]
    for what, act in _acts(call):
        _restore(_first.get() or now)
        np.random.seed(_UNUSUAL)  # noqa: NPY002
        random.seed(_UNUSUAL)
        before = [read() for _, read, _, _ in SHARED]
        with suppress(Exception):  # other checks report it
            act()
        after = [read() for _, read, _, _ in SHARED]
        _restore(now)
        for (name, _, _, advice), was, left in zip(SHARED, before, after):
            if was != left:
                yield Issue(name, f"{call}: {what} changes {name}", advice)


def _restore(states: list[Any]) -> None:
    for (_, read, restore, _), was in zip(SHARED, states):
        if read() != was:
            restore(was)


def _acts(call: Call) -> Iterator[tuple[str, Callable[[], Any]]]:
    """Everything that runs code of the primitive's author."""
    yield "infer_shape or infer_dtype", lambda: call.on(call.arrays).inferred
    for entry in call.entries() if launched(call) else ():
        yield f"the kernel {entry.describe()}", partial(launch, entry, call)
    yield "a call", call.run
    if has_bprop(call):
        yield "its bprop", lambda: _pull(call)


def _pull(call: Call) -> None:
    """Run the bprop once, with cotangents of ones."""
    tensors = tuple(map(Tensor, call.arrays))
    outs = tuple(map(Tensor, call.run(tensors)))
    douts = tuple(Tensor(np.ones(o.shape, o.dtype)) if is_float(o.dtype) else None for o in outs)
    unwrap = call.primitive.unwrap
    bprop_getters.get(call.primitive)(*call.args(tensors), unwrap(outs), unwrap(douts))
