"""Errors and warnings, one class for each way of refusing, and the user's line they point at.

First the classes; then the location: the first frame outside miniml, shown with a caret under the
call, or the line that is pinned while code runs that was written elsewhere.
"""

from __future__ import annotations

import contextlib
import functools
import linecache
import os
import sys
import warnings
from contextvars import ContextVar
from itertools import islice
from types import CodeType, FrameType
from typing import Any, NamedTuple

import optree

from .scope import Block, Scoped

# --- Errors and warnings --------------------------------------------------------------------------


NONE = "a function, or a cell's construct, that ends without return gives None"


class MinimlError(Exception):
    """Base of every error that miniml raises on purpose; a note shows the user's own line."""

    def __init__(self, *args: object):
        super().__init__(*args)
        point_at(self, user_location())


class ArityError(MinimlError, TypeError):
    """A primitive got too few or too many inputs or attributes."""


class ShapeError(MinimlError, ValueError):
    """Shapes, ranks or axes do not fit the operation."""


class UnsizedError(ShapeError, TypeError):
    """A single value has neither length nor rows; a TypeError, by which Python and NumPy tell."""


class OutOfRangeError(MinimlError, IndexError):
    """An index points outside the axis it indexes."""


class DTypeError(MinimlError, TypeError):
    """A dtype is not accepted, or dtypes have no common type."""


class AttributeRefusedError(MinimlError, TypeError):
    """An attribute of a primitive is unknown, missing, unhashable or frozen."""


class ValueRefusedError(MinimlError, ValueError):
    """An argument has the right type and a value that is not allowed."""


class ConstInputError(MinimlError, TypeError):
    """An input that must be known when the call is made is not a constant."""


class DuplicateError(MinimlError, ValueError):
    """A name or a registration is already taken."""


class DeclarationError(MinimlError, ValueError):
    """A primitive, kernel or expression is declared in a way that contradicts itself."""


class KernelNotFoundError(MinimlError, LookupError):
    """No kernel is registered for this primitive, device and dtypes."""


class DeviceError(MinimlError, RuntimeError):
    """A device is unknown or absent, or one call got values of two devices: its own and `other`."""

    other: str | None = None


class DeviceMemoryError(MinimlError, MemoryError):
    """The memory of a device is exhausted."""


class DeviceLostError(DeviceError):
    """A kernel has faulted on a GPU, after which nothing on it can be used in this process."""


class CompileError(MinimlError, RuntimeError):
    """The source of a kernel does not compile; the compiler's log says why."""


class BpropNotFoundError(MinimlError, LookupError):
    """A gradient was requested through a primitive that has no bprop."""


class BpropError(MinimlError, ValueError):
    """A bprop returned gradients in the wrong number, shape or dtype."""


class BatchError(MinimlError, ValueError):
    """A batch rule, or a fact about batching, gives something that does not fit."""


class GradientArgumentError(MinimlError, TypeError):
    """A gradient was requested with respect to a value that has none."""


class TracedValueError(MinimlError, TypeError):
    """The Python value of a tensor was requested while it is being traced and has none."""


class TraceEndedError(MinimlError, RuntimeError):
    """A traced tensor was used after the trace that made it had ended."""


class ImmutableError(MinimlError, TypeError):
    """An attempt to change something immutable."""


class GraphError(MinimlError, ValueError):
    """A graph breaks one of its own rules, or contains something that graph mode cannot run."""


class CheckpointError(MinimlError, ValueError):
    """A checkpoint is damaged, does not fit the object it is loaded into, or cannot be written."""


class OnnxError(MinimlError, ValueError):
    """An ONNX model is damaged, leaves its folder, or needs what miniml lacks."""

    def __init__(self, text: str):
        half = 1000  # characters: a file may hold names of any length, and nodes of any depth
        plain = legible(text)
        short = len(plain) <= 2 * half
        super().__init__(plain if short else f"{plain[:half]} [...] {plain[-half:]}")


class ExportError(MinimlError, ValueError):
    """A network or step has something that the other form, such as a C file, cannot hold."""


class InUseError(MinimlError, RuntimeError):
    """Parameters are used by a step that this call interrupted, or that waits for this call."""


class DistributedError(MinimlError, RuntimeError):
    """Ranks of a group do not do the same, or one of them is missing."""


class NonFiniteError(MinimlError, FloatingPointError):
    """A NaN or an infinity appeared where the run was told to stop on one."""


class CaptureError(MinimlError, RuntimeError):
    """A call during the recording of a CUDA graph that a graph cannot repeat."""


class LaunchError(MinimlError, ValueError):
    """A CUDA kernel was launched with the wrong arguments, or beyond the limits of a device."""


class KernelFaultError(MinimlError, RuntimeError):
    """A CUDA kernel did something illegal; `faults` lists what the simulator found."""

    faults: tuple[object, ...] = ()


class MinimlWarning(UserWarning):
    """Base of every warning that miniml gives."""


class PerformanceWarning(MinimlWarning):
    """Results are right, but slower than need be: compiled again and again, or in float64."""


class KernelWarning(MinimlWarning):
    """A likely mistake in a CUDA kernel, though no launch has failed."""


class RetiredWarning(MinimlWarning, FutureWarning):
    """A spelling that still works, and will be refused two versions after the one that replaced it;
    the text says what to write."""


class OnnxWarning(MinimlWarning):
    """An ONNX model was read, but what one may want of it next will fail."""

    def __init__(self, text: str):
        super().__init__(legible(text))


def legible(text: str) -> str:
    """Text out of a file with what would command a terminal, or bring lines of its own, escaped."""
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)


class TrainingWarning(MinimlWarning):
    """A likely mistake in a training step: parameters that do not learn."""


_kept: ContextVar[list[MinimlWarning] | None] = ContextVar("miniml_kept_warnings", default=None)


def keep_warnings() -> list[MinimlWarning]:
    """The list in which the warnings of this context (of `contextvars`) are kept from now on, to be
    given later where a line of the user's is running."""
    kept: list[MinimlWarning] = []
    _kept.set(kept)
    return kept


def warn_user(warning: MinimlWarning) -> None:
    """Give a warning at the user's own line."""
    kept = _kept.get()
    if kept is not None:
        kept.append(warning)
        return
    where = user_location()
    file, line = ("miniml", 0) if where is None else (where.code.co_filename, where.line)
    warnings.warn_explicit(warning, None, file, line)


# --- The user's line ------------------------------------------------------------------------------


_PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep
_OWN = (_PACKAGE, "<frozen", "<miniml ")
_LIBRARIES = (
    os.path.dirname(optree.__file__) + os.sep,
    contextlib.contextmanager.__code__.co_filename,
    functools.wraps.__code__.co_filename,
)


class Location:
    """One call in the user's source, an instruction of a code object: cheap to take, its line is
    found only when somebody asks.

    called: the primitive or cell that was called there, whatever passes put in its place; "" where
    that is not known. layer: while a network is traced, what made the call, such as "layer 0.dense
    (Dense)"; else "". gradient: True for calls that belong to the gradient of that call, whose name
    is `forward`.
    """

    __slots__ = ("called", "code", "forward", "gradient", "lasti", "layer")

    def __init__(
        self,
        code: CodeType,
        lasti: int,
        called: str = "",
        layer: str = "",
        gradient: bool = False,
        forward: str = "",
    ):
        self.code, self.lasti, self.called = code, lasti, called
        self.layer, self.gradient, self.forward = layer, gradient, forward

    @property
    def line(self) -> int:
        """Its number in the file."""
        return self._position()[0] or self.code.co_firstlineno

    def _position(self) -> tuple[int | None, int | None, int | None, int | None]:
        nowhere = None, None, None, None
        return next(islice(self.code.co_positions(), self.lasti // 2, None), nowhere)

    @property
    def file(self) -> str:
        """Its file; a cell of a notebook as the notebook counts it, as in "In[3]"."""
        shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
        named = getattr(getattr(shell, "compile", None), "format_code_name", lambda name: None)
        cell = named(self.code.co_filename)
        return str(cell[1]) if cell else self.code.co_filename

    @property
    def text(self) -> str:
        """The call itself, as it is written; "" where that is not known or several lines."""
        first, last, start, stop = self._position()
        if first is None or first != last:
            return ""
        return linecache.getline(self.code.co_filename, first).encode()[start:stop].decode()

    def __str__(self) -> str:
        return f"{self.file}:{self.line}"

    def __reduce__(self) -> str | tuple[object, ...]:
        return _unpickled, (str(self),)

    def render(self) -> str:
        """The line as Python's own tracebacks show it, with carets under the call."""
        text = linecache.getline(self.code.co_filename, self.line).rstrip("\n")
        head = f'  File "{self.file}", line {self.line}, in {self.code.co_name}'
        if not text.strip():
            return head
        indent = len(text) - len(text.lstrip())
        shown = f"{head}\n    {text.strip()}"
        first, last, start, stop = self._position()
        if first != self.line or start is None or stop is None:
            return shown
        stop = stop if last == first else len(text)
        return f"{shown}\n    {' ' * (start - indent)}{'^' * max(1, stop - start)}"


def _unpickled(text: str) -> None:
    """Locations are dropped by pickling, since code objects cannot be pickled."""
    return


def is_own_file(name: str) -> bool:
    """True for miniml's own code, including compiled programs."""
    return name.startswith(_OWN)


class _Own(dict[str, bool]):
    """By name of a file: True for miniml's own and those of libraries that call back into it."""

    def __missing__(self, file: str) -> bool:
        own = self[file] = is_own_file(file) or file.startswith(_LIBRARIES)
        return own


own_files = _Own()


def is_own(frame: FrameType) -> bool:
    """True for frames of miniml itself and of the libraries that call back into it."""
    return own_files[frame.f_code.co_filename]


class Pin:
    """The place to which calls are attributed: a gradient's calls to its forward call."""

    __slots__ = ("where", "outer")
    where: Location | None

    def __init__(self) -> None:
        around = _pinned.get()
        self.where = self.outer = None if around is None else around.where

    def move(self, where: Location | None) -> None:
        """From now on at `where`; as around the block where that is None."""
        self.where = where or self.outer


_pinned: Scoped[Pin] = Scoped("miniml_location")
pin_block = _pinned.variable.get  # fast where nothing is pinned


def pinned() -> Block[Pin]:
    """Inside the block, every call is attributed to the place that its Pin says."""
    return _pinned.use(Pin)


class Layer(NamedTuple):
    """The layer of a traced call: a readable name, and the network in which it has that name."""

    name: str
    network: Any = None


layers: Scoped[Layer] = Scoped("miniml_layer")
layer_block = layers.variable.get


# The code object and instruction of a call, its layer, and whether it belongs to its gradient.
Place = tuple[CodeType | None, int, str, bool]
NOWHERE: Place = None, 0, "", False


def user_place(passed: int = 0) -> Place:
    """The place of a call, without the names of a Location; `passed` as for `user_location`."""
    if pin_block() is not None and (at := _pin()) is not None:
        return at.code, at.lasti, at.layer, True
    frame: FrameType | None = sys._getframe(1 + passed)
    while frame is not None and own_files[frame.f_code.co_filename]:
        frame = frame.f_back
    if frame is None:
        return NOWHERE
    layer = layers.get() if layer_block() is not None else None
    return frame.f_code, frame.f_lasti, layer.name if layer else "", False


def user_location(called: str = "", passed: int = 0) -> Location | None:
    """The innermost frame that is not miniml's own, or the pinned place; None if there is none.

    called: the name of what is called there. passed: how many frames from the caller's outwards
    are known to be miniml's; each that is looked at costs as much as the Location.
    """
    code, lasti, layer, gradient = user_place(passed + 1)
    at = _pin() if gradient else None
    forward = "" if at is None else at.called or at.forward
    return None if code is None else Location(code, lasti, called, layer, gradient, forward)


def _pin() -> Location | None:
    pin = _pinned.get() if pin_block() is not None else None
    return None if pin is None else pin.where


def point_at(error: BaseException, where: Location | None) -> None:
    """Add to `error` a note with the user's own line.

    There is at most one such note: the first that says what was called there stays, and replaces
    one that only shows a line.
    """
    bare = getattr(error, "_miniml_note", None)
    if where is None or bare == "" or (bare and not where.called):
        return
    if bare:
        error.__notes__.remove(bare)
    doing = f"{where.called} was called" if where.called else "refused"
    if where.gradient and where.forward:
        doing = f"in the backward of {where.forward}, which was called"
    note = f"{doing} at\n{where.render()}"
    error._miniml_note = "" if where.called else note  # type: ignore[attr-defined]
    error.add_note(note)
    if where.layer:
        name_layer(error, where.layer)


def note_step(error: BaseException, loop: str, step: int) -> None:
    """Add to an error that leaves a loop in which step it was."""
    error.add_note(f"in step {step} of the {loop}, counted from 0")


def name_layer(error: BaseException, layer: str) -> None:
    """Make the layer that `error` came from its first note, replacing an earlier such note."""
    if layer in str(error):
        return
    notes, old = getattr(error, "__notes__", []), getattr(error, "_miniml_layer", "")
    error.__notes__ = [f"in {layer}", *(n for n in notes if n != f"in {old}")]
    error._miniml_layer = layer  # type: ignore[attr-defined]
