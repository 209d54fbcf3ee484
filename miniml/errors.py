"""Every way in which miniml refuses: one class each, all of them kinds of MinimlError."""

from __future__ import annotations

import warnings

from .location import point_at, user_location

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


class InUseError(MinimlError, RuntimeError):
    """Parameters are used by a step that this call interrupted, or that waits for this call."""


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


def warn_user(warning: MinimlWarning) -> None:
    """Give a warning at the user's own line."""
    where = user_location()
    file, line = ("miniml", 0) if where is None else (where.code.co_filename, where.line)
    warnings.warn_explicit(warning, None, file, line)
