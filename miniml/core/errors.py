"""Errors and warnings, one class for each way of refusing.

First the classes; then the note by which an error points at the user's own line.
"""

from __future__ import annotations

import warnings
from contextvars import ContextVar

from .scope import Location, user_location

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


# --- Notes of errors ------------------------------------------------------------------------------


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
