"""Do the rules agree with the kernels, and do they refuse what kernels cannot do?"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

import numpy as np

from ....abstract import Abstract, typed
from ....backends import registry
from ....dtype import from_type_code
from ....errors import DeclarationError, DTypeError, KernelNotFoundError, MinimlError
from ....primitive import Primitive
from ...calls import ON_CPU, Arrays, Call, reference
from ...opinfo import OpInfo
from ..session import Issue, first_line
from .launches import failure, kernels_of, launch, other_shape, refused_by_value

_SLOPPY = (IndexError, TypeError, AttributeError, KeyError, ZeroDivisionError, UnboundLocalError)
_FOREIGN = "?iBed"


def rules(call: Call) -> Iterator[Issue]:
    """The rules give the shapes and dtypes that every kernel gives, and the reference's shapes."""
    if call.primitive.dynamic_outputs:
        return
    inferred, again = call.inferred, replace(call).inferred  # a new Call, which infers again
    if again != inferred:
        yield Issue(
            "changing",
            f"{call}: the rules say {_types(inferred)} the first time and {_types(again)} the "
            "second",
            "let infer_shape and infer_dtype depend on their arguments and attributes only",
        )
    yield from _signature(call)
    yield from _kernels(call)
    shapes = _referred(call)
    if shapes not in (None, [o.shape for o in inferred]):
        yield Issue(
            "reference",
            f"{call}: the rules say {_types(inferred)}; the reference has shapes {shapes}",
            "correct infer_shape (or the reference)",
        )


def _kernels(call: Call) -> Iterator[Issue]:
    for entry in kernels_of(call):
        error, name = failure(entry, call), f"the kernel {entry.describe()}"
        if error is not None:
            shape = None if unusual(call) else other_shape(entry, call)
            if shape is not None:
                yield Issue(
                    "shape",
                    f"{call}: infer_shape says {_types(call.inferred)}, but {name} raises "
                    f"{first_line(error)}; it does fill an output of shape {shape}",
                    f"correct infer_shape: for {_types(call.arrays)} it must give {shape}",
                )
            elif call.sample and not unusual(call):
                text = f"{call}, a sample of the OpInfo: {name} raises {first_line(error)}"
                yield Issue("sample", text, "correct the kernel, or the sample")
            continue
        outs = launch(entry, call)
        if not all(isinstance(o, np.ndarray) for o in outs):
            yield Issue(
                "no array",
                f"{call}: {name} returns {', '.join(type(o).__name__ for o in outs)}, no array",
                "return an array, of 0 dimensions too: x[...] stays one where x[()] does not",
            )
        elif [(o.shape, o.dtype) for o in outs] != [(o.shape, o.dtype) for o in call.inferred]:
            yield Issue(
                "outputs",
                f"{call}: infer_shape and infer_dtype say {_types(call.inferred)}; {name} gives "
                f"{_types(outs)}",
                "make the rules say what the kernel gives",
            )


def _referred(call: Call) -> list[tuple[int, ...]] | None:
    """The shapes of the reference, None without one; it may cover less than the rules take, but not
    less than the samples."""
    if not call.referenced:
        return None
    try:
        return [o.shape for o in reference(call)]
    except Exception:
        if call.sample:
            raise
        return None


def _signature(call: Call) -> Iterator[Issue]:
    """The dtypes that infer_dtype gives are those of the signature that takes the inputs."""
    try:
        given = [Abstract(a.shape, a.dtype) for a in call.arrays]
        ON_CPU.select(call.primitive.name, given, call.inferred)
    except KernelNotFoundError:
        return
    except DeclarationError as error:
        yield Issue("dtypes", f"{call}: {error}", "make infer_dtype and the signature agree")


def unusual(call: Call) -> bool:
    """True for calls with an empty or a 0-d input."""
    return any(a.size == 0 or a.ndim == 0 for a in call.arrays)


def kernels_run(call: Call) -> Iterator[Issue]:
    """Empty and 0-d inputs are computed like others."""
    what = "empty" if any(a.size == 0 for a in call.arrays) else "0-d"
    for entry in kernels_of(call):
        error = failure(entry, call)
        if error is not None:
            yield Issue(
                f"{what} input",
                f"{call}: the kernel {entry.describe()} raises {first_line(error)} on an {what} "
                "input",
                f"let the kernel compute {what} inputs, or refuse them in infer_shape",
            )


def refusals(call: Call) -> Iterator[Issue]:
    """What the kernels cannot do is refused by the rules, in a sentence."""
    if not call.sample:
        yield from _accepted(call)
    for rule, arrays in () if call.consts else _spoilt(call):
        other = call.on(arrays)
        try:
            _ = other.inferred
        except DeclarationError as error:
            yield Issue(
                "declaration",
                f"for inputs {_types(arrays)}: {first_line(error)}",
                "return a tuple of ints from infer_shape and a dtype from infer_dtype, one per "
                "output",
            )
        except Exception as error:  # refused, as it should be
            if isinstance(error, _SLOPPY) and not isinstance(error, MinimlError):
                yield Issue(
                    "sloppy",
                    f"{call.primitive!r} refuses {_types(arrays)} with {first_line(error)}, which "
                    "names neither the primitive nor what would do",
                    f"check in {rule} first, and raise ShapeError or DTypeError with a sentence",
                    "warning",
                    other,
                )
        else:
            yield from _accepted(other)


def _accepted(call: Call) -> Iterator[Issue]:
    """A kernel that cannot compute what the rules accept, though no shape or number is to blame."""
    for entry in () if unusual(call) or call.primitive.dynamic_outputs else kernels_of(call):
        error = failure(entry, call)
        if error is None or other_shape(entry, call) is not None or refused_by_value(call):
            continue
        yield Issue(
            "kernel refuses",
            f"{call}: the rules accept it and give {_types(call.inferred)}; the kernel "
            f"{entry.describe()} raises {first_line(error)}",
            "refuse it in infer_shape (raise ShapeError) or infer_dtype (raise DTypeError), or "
            "let the kernel compute it",
            "fault",
            call,
        )
        return


def _spoilt(call: Call) -> Iterator[tuple[str, Arrays]]:
    """The rule that should refuse, and inputs of which one has another rank or extent, or all have
    another dtype."""
    for i, a in enumerate(call.arrays):
        shapes = [(2, *a.shape), *([a.shape[1:]] if a.ndim else [])]
        shapes += [(*a.shape[:k], n + 2, *a.shape[k + 1 :]) for k, n in enumerate(a.shape)]
        for shape in shapes:
            changed = np.resize(a, shape).astype(a.dtype)
            yield "infer_shape", (*call.arrays[:i], changed, *call.arrays[i + 1 :])
    for dtype in map(from_type_code, _FOREIGN):
        if all(a.dtype != dtype for a in call.arrays):
            yield "infer_dtype", tuple(np.ones(a.shape, dtype) for a in call.arrays)


def accepted_though_refused(info: OpInfo) -> Iterator[str]:
    """Calls that the OpInfo declares refused, but which are accepted, or refused with another
    message."""
    for refusal in info.refused:
        arrays = (_types([x]) if isinstance(x, np.ndarray) else repr(x) for x in refusal.inputs)
        attrs = (f"{k}={v!r}" for k, v in refusal.attrs.items())
        shown = f"{info.primitive.name}({', '.join((*arrays, *attrs))})"
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


def unreached(primitive: Primitive, calls: Sequence[Call]) -> Iterator[str]:
    """Kernels that run for no call, because infer_dtype refuses the dtypes that they take."""
    for entry in registry.table.get((primitive.name, "cpu"), ()):
        s, like = entry.signature, next((c for c in calls if not c.consts), None)
        given = any(s.accepts(tuple(a.dtype for a in c.arrays)) for c in calls)
        if like is None or given or s.any_dtype or not ON_CPU.supports(entry):
            continue
        takes, _ = s.expanded(len(like.arrays), len(like.inferred))
        if len(takes) == len(like.arrays):
            arrays = tuple(a.astype(t) for a, t in zip(like.arrays, takes, strict=True))
            try:
                _ = like.on(arrays).inferred
            except (DTypeError, TypeError) as error:
                yield f"no call reaches the kernel {entry.describe()}: {first_line(error)}"


def _types(values: Iterable[Abstract | np.ndarray]) -> str:
    return ", ".join(map(typed, values))
