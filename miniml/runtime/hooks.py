"""hooks: functions that are called before and after each kernel runs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..errors import DeclarationError
from ..settings import Watching
from .watched import Call

Look = Callable[[Call], object]


class Hooks:
    """A watcher that calls functions of the user's own."""

    sees_values, calls = True, None

    def __init__(self, before: Look | None, after: Look | None):
        self._before, self._after = before, after

    def before(self, call: Call) -> None:
        """Call the hook, if there is one."""
        _run("before", self._before, call)

    def after(self, call: Call) -> None:
        """Call the hook, if there is one."""
        _run("after", self._after, call)

    def program_ran(self, marks: Any) -> None:
        """Nothing: it has seen each kernel."""


def hooks(before: Look | None = None, after: Look | None = None) -> Watching[Hooks]:
    """In the `with` block, of this thread or task, call `before(call)` and `after(call)` for each
    kernel that runs.

    call: a `Call` of primitive, inputs, outputs, where. Eagerly that is each call of a primitive;
    in a compiled program, whose kernels then run one by one, each node that is executed, fused ones
    as one and views not at all, with copies of its inputs and outputs. A loop or branch that is a
    node is one call. What a hook computes is seen by no hook, and what it returns is ignored. If
    one raises, the step has changed no parameter. Outside of the block nothing is called, and
    nothing is compiled anew on either side of it.

    >>> from miniml import ops
    >>> with hooks(after=lambda call: print(call.primitive.name, *call.outputs)):
    ...     _ = ops.exp(0.0)
    Exp Tensor(1., shape=(), dtype=float32)
    """
    for fn in (before, after):
        if fn is not None and not callable(fn):
            raise DeclarationError(f"hooks got {fn!r}; give functions of a call, or None")
    if before is None and after is None:
        raise DeclarationError("hooks got neither before= nor after=; give a function of a call")
    return Watching(Hooks(before, after))


def _run(when: str, fn: Look | None, call: Call) -> None:
    if fn is None:
        return
    try:
        fn(call)
    except Exception as error:
        name = getattr(fn, "__name__", None) or type(fn).__name__
        error.add_note(f"in the hook {name}, {when} {call}")
        error.__dict__["_miniml_hook"] = fn
        raise
