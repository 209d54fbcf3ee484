"""Observation of running kernels: watchers, hooks and the check for NaN.

A watcher in `settings.watchers` has `sees_values`, and these members:

    before(call), after(call)   for each kernel, if it sees values: a `Call`
    program_ran(marks)          when a Program has run
    calls                       a list that gets the fields of a `TimedCall` for each eager call, or
                                None; where it grows longer than `most`, fold() is called

Watched runs: kernels and call plans as watchers see them, without NumPy's warnings. Hooks:
functions called before and after each kernel. NaN checks: the first call that makes a NaN or an
infinity is named.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Sequence
from threading import get_ident
from types import CodeType, FrameType
from typing import Any, NamedTuple

import numpy as np

from ..backends.kernel import Array, Device
from ..backends.selection import get_device
from ..core.abstract import typed
from ..core.errors import DeclarationError, NonFiniteError
from ..core.primitive import Primitive
from ..core.scope import (
    NOWHERE,
    Block,
    Location,
    layer_block,
    own_files,
    pin_block,
    user_location,
    user_place,
)
from ..core.settings import Settings, Watching, context, unwatched
from ..core.tensor import Tensor
from ..graph.ir import Node
from ..ops.control import Cond, Fused, Scan, WhileLoop
from .executor import clock_of
from .memory import LookAt

Plan = Callable[[Sequence[Any]], tuple[Tensor, ...]]


# --- Watched runs ---------------------------------------------------------------------------------


class Call(NamedTuple):
    """One run of a primitive's kernel: of a call, or of a node of a compiled program.

    primitive: its name and attributes. inputs, outputs: Tensors; no outputs before it runs. where:
    the call on the user's own line, or None; `where.layer` is what made it, such as "layer 0
    (Dense)", and `where.gradient` says that it belongs to the gradient of that call.
    """

    primitive: Primitive
    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]
    where: Location | None

    def __str__(self) -> str:
        at = self.where
        if at is None:
            return self.primitive.name
        layer = f" in {at.layer}" if at.layer else ""
        return f"{self.primitive.name}{layer} at {at}"


class TimedCall(NamedTuple):
    """Begin and end of an eager call, in nanoseconds. what: its name, and the bytes of its
    inputs and outputs. code, lasti, layer, gradient: as of `location.user_place`."""

    what: tuple[str, int]
    code: CodeType | None
    lasti: int
    layer: str
    gradient: bool
    begin: int
    end: int
    thread: int


def showing(when: str, device: Device, by: Sequence[Any]) -> LookAt:
    """A function that shows copies of a node's inputs and outputs to those of `by`."""

    def copies(arrays: tuple[Any, ...]) -> tuple[Tensor, ...]:
        return tuple([Tensor(device.to_host(a), device=device.name) for a in arrays])

    def show(node: Node, inputs: tuple[Any, ...], outputs: tuple[Any, ...]) -> None:
        given = outputs if when == "after" else ()
        call = Call(node.primitive, copies(inputs), copies(given), node.where)
        for watcher in by:
            getattr(watcher, when)(call)

    return show


def watching_call(primitive: Primitive, device: str, by: Sequence[Any], run: Plan) -> Plan:
    """A call plan that these watchers see, for tensors of the same kinds each time."""
    seeing = [w for w in by if w.sees_values]
    timing = [w for w in by if w.calls is not None]
    timed = _timed(primitive.name, clock_of(get_device(device)), timing, run) if timing else run

    def watched(tensors: Sequence[Tensor]) -> tuple[Tensor, ...]:
        where = user_location(passed=2)
        show("before", Call(primitive, tuple(tensors), (), where))
        outputs = timed(tensors)
        show("after", Call(primitive, tuple(tensors), outputs, where))
        return outputs

    def show(when: str, call: Call) -> None:
        with unwatched():
            for watcher in seeing:
                getattr(watcher, when)(call)

    return watched if seeing else timed


def _timed(name: str, clock: Callable[[], int], by: Sequence[Any], run: Plan) -> Plan:
    """The plan, timed for these watchers.

    A call itself takes little longer than this: so whatever can be written out is not called, and
    the garbage collector has to visit nothing that is noted.
    """
    noted = [(w.calls, w.most, w.fold) for w in by]
    frame_of, own, pinned, inside = sys._getframe, own_files, pin_block, layer_block
    thread = get_ident
    what: tuple[str, int] | None = None

    def timed(tensors: Sequence[Tensor]) -> tuple[Tensor, ...]:
        nonlocal what
        begin = clock()
        outputs = run(tensors)
        end = clock()
        if pinned() is None and inside() is None:
            frame: FrameType | None = frame_of(3)  # past `bind` and the primitive
            while frame is not None and own[frame.f_code.co_filename]:
                frame = frame.f_back
            if frame is None:
                code, lasti, layer, gradient, _ = NOWHERE
            else:
                code, lasti, layer, gradient = frame.f_code, frame.f_lasti, "", False
        else:
            code, lasti, layer, gradient, _ = user_place(2)
        if what is None:
            what = name, sum(t._abstract.nbytes for t in (*tensors, *outputs))
        call = what, code, lasti, layer, gradient, begin, end, thread()
        for calls, most, fold in noted:
            calls += call
            if len(calls) > most:
                fold()
        return outputs

    return timed


# --- Hooks ----------------------------------------------------------------------------------------

Look = Callable[[Call], object]


def hooks(before: Look | None = None, after: Look | None = None) -> Watching[Hooks]:
    """In the `with` block, of this thread or task, call `before(call)` and `after(call)` for each
    kernel that runs.

    call: a `Call` of primitive, inputs, outputs, where. Eagerly that is each call of a primitive;
    in a compiled program, whose kernels then run one by one, each node that is executed, fused ones
    as one and views not at all, with copies of its inputs and outputs. A loop or branch that is a
    node is one call. A hook's own calls are seen by no hook, and its result is ignored. If one
    raises, the step has changed no parameter. Outside the block nothing is called, and nothing is
    recompiled on either side of it. The block gives an object of which users need nothing.
    DeclarationError for two hooks of None, and for what cannot be called.

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


class Hooks:
    """A watcher that calls the user's functions."""

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
        """Do nothing: each kernel has been seen."""


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


# --- NaN checks -----------------------------------------------------------------------------------

OnHost = Callable[[Any], Array]
Members = Callable[[Node], Callable[..., Sequence[Any]]]


def debug_nans() -> Block[Settings]:
    """In the `with` block, of this thread or task, stop at the first call that makes a NaN, or that
    makes an infinity of finite inputs: NonFiniteError with the primitive, the ranges of its inputs,
    the path of the layer and the user's line, in the forward or the backward pass.

    Eager calls, compiled programs and training steps are checked after each kernel, on the kernels
    that they run anyway. The members of a fused group run once more, one by one, so that one of
    them is named; in a loop, the call in its step is. A NaN among the inputs is reported by the
    call that passes it on; infinities among them, as in a mask of -inf, are let through. When it
    raises, a step has changed no parameter. Programs are recompiled on both sides of the block.
    `set_context(check_nan=True)` does the same for everything that runs. The block gives the
    settings that hold in it.

    >>> from miniml import ops
    >>> with debug_nans():
    ...     try:
    ...         ops.log(-1.0)
    ...     except FloatingPointError as error:
    ...         print(error)
    Log made NaN; its inputs were float32[] in [-1, -1]
    """
    return context(check_nan=True)


def finding_nan(on_host: OnHost, members: Members) -> Callable[[Node, Any, Any], None]:
    """A check of the inputs and outputs of a node.

    members: for a fused node, gives a function that runs its members one by one and checks each.
    """

    def look(node: Node, inputs: Sequence[Any], outputs: Sequence[Any]) -> None:
        if isinstance(node.primitive, Fused):  # members may make infinities of -inf
            inputs = (*inputs, *members(node)(*inputs))
        check_finite(node.primitive, inputs, outputs, on_host, lambda: node.where)

    return look


def check_finite(
    primitive: Primitive,
    inputs: Iterable[Any],
    outputs: Iterable[Any],
    on_host: OnHost,
    where: Callable[[], Location | None],
) -> None:
    """Raise NonFiniteError, with the inputs' ranges, where an output holds a NaN, or an infinity
    made of finite inputs. Branches and loops check their own calls.

    on_host: gives the NumPy array of an input or output. where: finds the call, for an error.
    """
    if isinstance(primitive, _LOOKED_INTO):
        return
    for array in map(on_host, outputs):
        if _is_finite(array):
            continue
        nan, given = bool(np.isnan(_wide(array)).any()), [*map(on_host, inputs)]
        floats = [v for v in primitive.attributes.values() if isinstance(v, float)]
        if not nan and not (all(map(_is_finite, given)) and np.isfinite(floats).all()):
            continue
        passed = nan and any(np.isnan(_wide(x)).any() for x in given)
        what = "got NaN" if passed else "made NaN" if nan else "made an infinity"
        ranges = ", ".join(map(_range, given)) or "none"
        at = where()
        backward = f" in the backward of {at.forward}" if at is not None and at.forward else ""
        raise NonFiniteError(f"{primitive.name} {what}{backward}; its inputs were {ranges}")


_LOOKED_INTO = Cond, WhileLoop, Scan


def _is_finite(array: Array) -> bool:
    return array.dtype.kind not in "fV" or bool(np.isfinite(_wide(array)).all())


def _wide(array: Array) -> Array:
    """Numbers that NumPy can test, for bfloat16 too."""
    return array.astype(np.float64) if array.dtype.kind == "V" else array


def _range(array: Array) -> str:
    """The type and the range of an array, and how many of its numbers are not finite."""
    shown = typed(array)
    if not array.size:
        return f"{shown} empty"
    wide = array.astype(np.float64)
    finite, nan = wide[np.isfinite(wide)], int(np.isnan(wide).sum())
    counts = (nan, "NaN"), (wide.size - finite.size - nan, "infinite")
    others = " and ".join(f"{count} {what}" for count, what in counts if count)
    within = f"in [{finite.min():.4g}, {finite.max():.4g}]" if finite.size else "without a number"
    return f"{shown} {within}" + f" but for {others} of {wide.size}" * bool(others)
