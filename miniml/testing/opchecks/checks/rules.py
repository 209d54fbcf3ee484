"""Do the rules say what the kernels do, and do they refuse what kernels cannot do?"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from ....abstract import Abstract, Shape
from ....backends import registry
from ....backends.kernel import KernelEntry
from ....dtype import DType
from ....errors import DeclarationError, KernelNotFoundError, MinimlError
from ...calls import Array, Call, reference
from ...opinfo import OpInfo
from ..session import Issue, first_line
from .launches import failure, launch, launched, other_shape, refused_by_value

_SLOPPY = (IndexError, TypeError, AttributeError, KeyError, ZeroDivisionError, UnboundLocalError)


def rules(call: Call) -> Iterator[Issue]:
    """The rules give the shapes and dtypes that every kernel gives."""
    if call.primitive.dynamic_outputs:
        return
    said = [(o.shape, o.dtype) for o in call.inferred]
    yield from _pure(call)
    yield from _signature(call)
    for entry in call.entries() if launched(call) else ():
        error = failure(entry, call)
        if error is not None:
            yield from _unfilled(call, entry, error)
            continue
        outs = launch(entry, call)
        if not all(isinstance(o, np.ndarray) for o in outs):
            kinds = ", ".join(type(o).__name__ for o in outs)
            yield Issue(
                "no array",
                f"{call}: the kernel {entry.describe()} returns {kinds}, not an array",
                "return an array, of 0 dimensions too: x[...] stays one where x[()] does not",
            )
            continue
        came = [(o.shape, o.dtype) for o in outs]
        if came != said:
            yield Issue(
                "outputs",
                f"{call}: infer_shape and infer_dtype say {_typed(said)}; the kernel "
                f"{entry.describe()} gives {_typed(came)}",
                "make the rules say what the kernel gives",
            )
    if call.info is not None and call.info.reference is not None:
        try:
            shapes = [o.shape for o in reference(call)]
        except Exception:
            if call.sample:
                raise
            return  # a reference may be made for less than the rules accept
        if shapes != [shape for shape, _ in said]:
            yield Issue(
                "reference",
                f"{call}: the rules say {_typed(said)}; the reference has shapes {shapes}",
                "correct infer_shape (or the reference)",
            )


def _signature(call: Call) -> Iterator[Issue]:
    """The dtypes that infer_dtype gives are those of the signature that takes the inputs."""
    try:
        outs = tuple(o.dtype for o in call.inferred)
        registry.select(call.primitive.name, "cpu", call.dtypes, (), outs)
    except KernelNotFoundError:
        return
    except DeclarationError as error:
        yield Issue("dtypes", f"{call}: {error}", "make infer_dtype and the signature agree")


def _unfilled(call: Call, entry: KernelEntry, error: Exception) -> Iterator[Issue]:
    if unusual(call):
        return  # `kernels_run` says it
    shape = other_shape(entry, call)
    told = f"the kernel {entry.describe()} raises {first_line(error)}"
    if shape is not None:
        said = ", ".join(str(o.shape) for o in call.inferred)
        yield Issue(
            "shape",
            f"{call}: infer_shape says {said}, but {told}; it does fill an output of shape {shape}",
            f"correct infer_shape: for {_shapes(call)} it must give {shape}",
        )
    elif call.sample:
        yield Issue(
            "sample", f"{call}, a sample of the OpInfo: {told}", "correct the kernel, or the sample"
        )


def refusals(call: Call) -> Iterator[Issue]:
    """What the kernels cannot do is refused by the rules."""
    if not unusual(call):
        yield from _accepted(call, "wrong extents", call)
    if not call.consts:
        for what, arrays in _spoilt(call):
            yield from _bad(call, what, arrays)


def accepted_though_refused(info: OpInfo) -> Iterator[str]:
    """Calls that an OpInfo says are refused, and are not, or not in its words."""
    for refusal in info.refused:
        attrs = "".join(f", {k}={v!r}" for k, v in refusal.attrs.items())
        shown = f"{info.primitive.name}({', '.join(map(_brief, refusal.inputs))}{attrs})"
        try:
            info.primitive(**refusal.attrs)(*refusal.inputs)
        except refusal.error as error:
            if not re.search(refusal.match, str(error)):
                yield f"{shown} is refused with {str(error)!r}, which lacks {refusal.match!r}"
            elif not str(error).startswith(info.primitive.name):
                yield f"{shown} is refused with {str(error)!r}, which does not begin with the name"
        except Exception as error:
            yield f"{shown} is refused with {first_line(error)}, not {refusal.error.__name__}"
        else:
            yield f"{shown} is accepted"


def _brief(value: object) -> str:
    if isinstance(value, np.ndarray):
        return str(Abstract(value.shape, value.dtype))
    return repr(value)


def _bad(call: Call, what: str, arrays: tuple[Array, ...]) -> Iterator[Issue]:
    other = call.on(arrays)
    try:
        _ = other.inferred
    except _SLOPPY as error:
        if not isinstance(error, MinimlError):
            rule = "infer_dtype" if what == "another dtype" else "infer_shape"
            yield Issue(
                "sloppy",
                f"{call.primitive!r} refuses {_types(other)} with {first_line(error)}, which "
                "names neither the primitive nor what is wanted",
                f"check in {rule} first, and raise ShapeError or DTypeError with a sentence",
                "warning",
                other,
            )
    except DeclarationError as error:
        yield Issue(
            "declaration",
            f"for inputs {_types(other)}: {first_line(error)}",
            "return a tuple of ints from infer_shape and a dtype from infer_dtype, one per output",
        )
    except Exception:  # refused: as it should be
        return
    else:
        yield from _accepted(other, what, call)


def _accepted(call: Call, what: str, valid: Call) -> Iterator[Issue]:
    if not launched(call) or unusual(call) or call.primitive.dynamic_outputs:
        return
    for entry in call.entries():
        error = failure(entry, call)
        if error is None or other_shape(entry, call) is not None or refused_by_value(call):
            continue
        if call is valid and call.sample:
            return
        yield Issue(
            "kernel refuses",
            f"{call}: the rules accept it and give {', '.join(map(str, call.inferred))}; the "
            f"kernel {entry.describe()} raises {first_line(error)}",
            "refuse it in infer_shape (raise ShapeError) or infer_dtype (raise DTypeError), or "
            "let the kernel compute it",
            "fault",
            call,
        )
        return


def _spoilt(call: Call) -> Iterator[tuple[str, tuple[Array, ...]]]:
    """The call with one input of another rank, another extent or another dtype."""
    for i, a in enumerate(call.arrays):
        shapes: list[tuple[str, Shape]] = [("a rank more", (2, *a.shape))]
        if a.ndim:
            shapes.append(("a rank less", a.shape[1:]))
            shapes += [("wrong extents", _longer(a.shape, axis)) for axis in range(a.ndim)]
        for what, shape in shapes:
            yield what, _with(call, i, np.resize(a, shape).astype(a.dtype))
    for dtype in _foreign(call):
        yield "another dtype", tuple(np.ones(a.shape, dtype) for a in call.arrays)


def _longer(shape: Shape, axis: int) -> Shape:
    return (*shape[:axis], shape[axis] + 2, *shape[axis + 1 :])


def _with(call: Call, i: int, array: Array) -> tuple[Array, ...]:
    return (*call.arrays[:i], array, *call.arrays[i + 1 :])


def _foreign(call: Call) -> Iterator[DType]:
    for name in ("bool", "int32", "uint8", "float16", "float64"):
        dtype = np.dtype(name)
        if all(a.dtype != dtype for a in call.arrays):
            yield dtype


def unusual(call: Call) -> bool:
    """True for calls with an empty or a 0-d input."""
    return any(a.size == 0 or a.ndim == 0 for a in call.arrays)


def kernels_run(call: Call) -> Iterator[Issue]:
    """Empty and 0-d inputs are computed like others."""
    for entry in call.entries() if launched(call) else ():
        error = failure(entry, call)
        if error is None:
            continue
        what = "empty" if any(a.size == 0 for a in call.arrays) else "0-d"
        yield Issue(
            f"{what} input",
            f"{call}: the kernel {entry.describe()} raises {first_line(error)} on an {what} input",
            f"let the kernel compute {what} inputs, or refuse them in infer_shape",
        )


def _pure(call: Call) -> Iterator[Issue]:
    """The rules say the same when they are asked again."""
    again = replace(call).inferred  # a new Call, which asks anew
    if again != call.inferred:
        yield Issue(
            "changing",
            f"{call}: the rules say {_types_of(call.inferred)} the first time and "
            f"{_types_of(again)} the second",
            "let infer_shape and infer_dtype depend on their arguments and attributes only",
        )


def _typed(outputs: list[tuple[Shape, DType]]) -> str:
    return ", ".join(str(Abstract(shape, dtype)) for shape, dtype in outputs)


def _types(call: Call) -> str:
    return ", ".join(str(Abstract(a.shape, a.dtype)) for a in call.arrays)


def _types_of(abstracts: tuple[Abstract, ...]) -> str:
    return ", ".join(map(str, abstracts))


def _shapes(call: Call) -> str:
    return ", ".join(str(a.shape) for a in call.arrays)
