"""Errors and warnings, one class for each way of refusing, and the checks that refuse options.

First the classes; then the note by which an error points at the user's own line. Then checks of
options: numbers, flags and words. Each gives the plain Python value, or refuses it. A value of a
wrong type is an AttributeRefusedError, which is a TypeError; one of the right type and out of range
a ValueRefusedError, which is a ValueError. Both read "<who> got <name>=<value>; expected <what>". A
bool is no number; NumPy's numbers are, and become Python's. At the end the names of the features of
machines, with what each of them needs.
"""

from __future__ import annotations

import math
import reprlib
import warnings
from collections.abc import Iterable, Sequence
from contextvars import ContextVar
from typing import Any, NoReturn

import ml_dtypes
import numpy as np

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


# --- Options --------------------------------------------------------------------------------------


_MOST = 2**63 - 1  # what extents, axes and the like may be at all
_REALS = (int, float, np.integer, np.floating, ml_dtypes.bfloat16)
_PLAIN = {int}
_NUMERALS = "no", "one", "two", "three"


def integer(who: str, name: str, value: Any, low: float = -math.inf, high: float = _MOST) -> int:
    """The value as an int from `low` to `high`, by default the largest of 64 bits."""
    most = math.inf if high == _MOST else high
    if not _is_int(value):
        _refuse(AttributeRefusedError, who, name, value, "an int", low, most)
    if not low <= value <= high:
        what = "an int of 64 bits" if high == _MOST and value > high else "an int"
        _refuse(ValueRefusedError, who, name, value, what, low, most)
    return int(value)


def count(who: str, name: str, value: Any, least: int = 1) -> int:
    """The value as an int of at least `least`."""
    return integer(who, name, value, least)


def counts(who: str, **values: Any) -> list[int]:
    """The values as ints of at least 1."""
    return [integer(who, name, value, 1) for name, value in values.items()]


def integers(who: str, name: str, value: Any, n: int, low: int) -> tuple[int, ...]:
    """The value, a tuple of n ints of at least `low`."""
    known = isinstance(value, tuple) and _PLAIN.issuperset(map(type, value))
    if not known:
        known = isinstance(value, tuple) and all(map(_is_int, value))
        value = tuple(map(int, value)) if known else value
    if not known or len(value) != n or min(value) < low or max(value) > _MOST:
        kind = ValueRefusedError if known else AttributeRefusedError
        wide = " of 64 bits" * (known and max(value, default=0) > _MOST)
        _refuse(kind, who, name, value, f"{_NUMERALS[n]} int{'s' * (n > 1)}{wide}", low)
    return value  # type: ignore[no-any-return]


def _is_int(value: Any) -> bool:
    return type(value) is int or (isinstance(value, (int, np.integer)) and type(value) is not bool)


def number(
    who: str,
    name: str,
    value: Any,
    low: float = -math.inf,
    high: float = math.inf,
    above: float = -math.inf,
    below: float = math.inf,
) -> float:
    """The value as a finite float from `low` to `high`, and between `above` and `below`."""
    if isinstance(value, bool) or not isinstance(value, _REALS):
        _refuse(AttributeRefusedError, who, name, value, "a number", low, high, above, below)
    try:
        found = float(value)
    except OverflowError:  # an int of more than 308 digits
        found = math.inf
    if not (low <= found <= high and above < found < below):
        what = "a number" if math.isfinite(found) else "a finite number"
        _refuse(ValueRefusedError, who, name, value, what, low, high, above, below)
    return found


def probability(who: str, name: str, value: Any) -> float:
    """The value as a float from 0 to 1."""
    return number(who, name, value, 0, 1)


def flag(who: str, name: str, value: Any) -> bool:
    """The value as a bool."""
    if not isinstance(value, (bool, np.bool_)):
        _refuse(AttributeRefusedError, who, name, value, "True or False")
    return bool(value)


def choice(who: str, name: str, value: Any, known: Sequence[str], hint: str = "") -> str:
    """The value, one of the words `known`."""
    if not isinstance(value, str) or value not in known:
        kind = ValueRefusedError if isinstance(value, str) else AttributeRefusedError
        _refuse(kind, who, name, value, f"one of {', '.join(map(repr, known))}{hint}")
    return value


class _Brief(reprlib.Repr):
    def repr_int(self, x: int, level: int) -> str:
        digits = int(abs(x).bit_length() * 0.30103) + 1  # Python prints no more than 4,300
        return repr(x) if digits <= self.maxlong else f"an int of about {digits} digits"


brief = _Brief().repr  # a short text of any value, for errors


def _refuse(
    kind: type[AttributeRefusedError] | type[ValueRefusedError],
    who: str,
    name: str,
    value: Any,
    what: str,
    low: float = -math.inf,
    high: float = math.inf,
    above: float = -math.inf,
    below: float = math.inf,
) -> NoReturn:
    """Raise the error: `what` was expected, within those of the bounds that are finite."""
    if math.isfinite(low) and math.isfinite(high):
        what += f" from {_shown(low)} to {_shown(high)}"
        low = high = math.inf
    signs = (">=", low), ("<=", high), (">", above), ("<", below)
    bounds = " and".join(f" {sign} {_shown(b)}" for sign, b in signs if math.isfinite(b))
    raise kind(f"{who} got {name}={brief(value)}; expected {what}{bounds}")


def _shown(bound: float) -> str:
    return str(bound) if isinstance(bound, int) else f"{bound:g}"


# --- Features of machines -------------------------------------------------------------------------


_PRESENT: dict[str, bool] = np._core._multiarray_umath.__cpu_features__  # type: ignore[attr-defined]
CPU = {name.lower(): present for name, present in _PRESENT.items()}  # True where present
GPU = ("cublas", "wmma", "wmma_bfloat16")
KNOWN = {"cpu": tuple(CPU), "cuda": GPU}  # by the device under which kernels are registered


def features(names: str | Iterable[object], device: str = "") -> tuple[str, ...]:
    """The names in lower case, as kernels of that device ("" for any) may require them.

    DeviceError lists the known names for one that is unknown: spelt wrongly, it would count as
    absent everywhere.
    """
    known = KNOWN.get(device, (*CPU, *GPU))
    given = (names,) if isinstance(names, str) else names
    found = tuple(n.lower() if isinstance(n, str) else n for n in given)
    for name in found:
        if name not in known:
            raise DeviceError(
                f"feature {name!r} is unknown{f' on {device}' if device else ''}; known are "
                f"{', '.join(known)}"
            )
    return found  # type: ignore[return-value]
