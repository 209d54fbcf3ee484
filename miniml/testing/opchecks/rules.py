"""Checks of shape and dtype rules against the kernels, and of attributes.

In order: rules agree with the kernels and with the reference, and refuse what no kernel can do; a
primitive is a value determined by its attributes: equality, hash and copies follow them.
"""

from __future__ import annotations

import copy
import pickle
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any, Literal, get_args, get_origin

import numpy as np

from ...backends import registry
from ...core.abstract import Abstract, from_type_code, typed
from ...core.errors import DeclarationError, DTypeError, KernelNotFoundError, MinimlError
from ...core.primitive import Primitive, key
from ..calls import (
    ON_CPU,
    Arrays,
    Call,
    OpInfo,
    failure,
    kernels_of,
    launch,
    other_shape,
    reference,
    refused_by_value,
)
from .session import Issue, first_line

# Errors that Python raises where a rule does not check its inputs.
_SLOPPY = (IndexError, TypeError, AttributeError, KeyError, ZeroDivisionError, UnboundLocalError)
_FOREIGN = "?iBed"  # type codes of the dtypes that inputs are changed to


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


def _signature(call: Call) -> Iterator[Issue]:
    """The dtypes that infer_dtype gives are those of the signature that takes the inputs."""
    try:
        given = [Abstract(a.shape, a.dtype) for a in call.arrays]
        ON_CPU.select(call.primitive.name, given, call.inferred)
    except KernelNotFoundError:
        return
    except DeclarationError as error:
        yield Issue("dtypes", f"{call}: {error}", "make infer_dtype and the signature agree")


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
    """The shapes of the reference, None without one; it may cover less than the rules accept, but
    not less than the samples."""
    if not call.referenced:
        return None
    try:
        return [o.shape for o in reference(call)]
    except Exception:
        if call.sample:
            raise
        return None


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
    """The rules refuse, in a sentence, what the kernels cannot do."""
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
            if _sloppy(error, call.primitive.name):
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


def _spoilt(call: Call) -> Iterator[tuple[str, Arrays]]:
    """Inputs of which one has another rank or extent, or all have another dtype, each after the
    rule that should refuse them."""
    for i, a in enumerate(call.arrays):
        shapes = [(2, *a.shape), *([a.shape[1:]] if a.ndim else [])]
        shapes += [(*a.shape[:k], n + 2, *a.shape[k + 1 :]) for k, n in enumerate(a.shape)]
        for shape in shapes:
            changed = np.resize(a, shape).astype(a.dtype)
            yield "infer_shape", (*call.arrays[:i], changed, *call.arrays[i + 1 :])
    for dtype in map(from_type_code, _FOREIGN):
        if all(a.dtype != dtype for a in call.arrays):
            yield "infer_dtype", tuple(np.ones(a.shape, dtype) for a in call.arrays)


def _sloppy(error: Exception, name: str) -> bool:
    """True for an error that Python raises where a rule does not check its inputs; one that names
    the primitive, though not as the owner of a function, is the rule's own."""
    if not isinstance(error, _SLOPPY) or isinstance(error, MinimlError):
        return False
    return re.search(rf"\b{re.escape(name)}\b(?!\.)", str(error)) is None


def _accepted(call: Call) -> Iterator[Issue]:
    """An issue if a kernel cannot compute what the rules accept, though no shape or number is to
    blame."""
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


# --- Attributes -----------------------------------------------------------------------------------


_QUOTED, _NO_WORD = r"""['"](\w+)['"]""", "no such word"
_SHAPES: tuple[tuple[int, ...], ...] = ((), (2,), (2, 3))


def attributes(call: Call) -> Iterator[Issue]:
    """Hash, equality and copies follow the attributes."""
    primitive = call.primitive
    try:
        hash(primitive)
    except TypeError as error:
        yield Issue(
            "hash",
            f"{primitive!r} cannot be hashed ({error}), so it cannot run: kernels and programs are "
            "kept by primitive",
            "leave __eq__ and __hash__ to Primitive",
        )
        return
    yield from _copied(primitive, call)
    for other in others(primitive):
        yield from _copied(other, Call(other, call.arrays, call.consts))
        same_values = _values(primitive) == _values(other)
        if primitive == other and not same_values:
            yield Issue(
                "equality",
                f"{primitive!r} and {other!r} are equal, so a program compiled for one runs the "
                "other",
                "leave __eq__ and __hash__ to Primitive, which compare the attributes",
            )


def _values(primitive: Primitive) -> object:
    return key(tuple(primitive.attributes.items()))


def _copied(primitive: Primitive, call: Call) -> Iterator[Issue]:
    cls = type(primitive)
    copied: dict[str, Callable[[Primitive], Primitive]] = {
        "copy.deepcopy": copy.deepcopy,
        "its attributes alone": lambda p: p.with_attributes(p.attributes),
    }
    if getattr(sys.modules.get(cls.__module__), cls.__qualname__, None) is cls:
        copied["pickle"] = lambda p: pickle.loads(pickle.dumps(p))
    for how, function in copied.items():
        wrong = "is not equal to it, or infers something else"
        try:
            twin = function(primitive)
            alike = twin == primitive and hash(twin) == hash(primitive)
            if alike and _inferred(call) == _inferred(replace(call, primitive=twin)):
                continue
        except Exception as error:
            wrong = f"raises {first_line(error)}"
        yield Issue(
            how,
            f"{primitive!r} made from {how} {wrong}",
            "keep everything that rules and kernels use in annotated attributes, and define "
            "neither __eq__ nor __hash__",
        )


def _inferred(call: Call) -> object:
    """The outputs inferred by the rules; None if they refuse, whatever they raise."""
    try:
        return call.inferred
    except Exception:
        return None


def others(primitive: Primitive) -> Iterator[Primitive]:
    """The primitive with one attribute changed, for each attribute with other values."""
    for name, value in primitive.attributes.items():
        for changed in _likely(primitive, name, value)[:1]:
            yield from _changed(primitive, name, changed)


def variations(primitive: Primitive) -> Iterator[tuple[Primitive, bool]]:
    """The primitive with one attribute changed, in every known way; True for values that it must be
    right for, False for those that may have no meaning: of the other sign, or smaller."""
    for name, value in primitive.attributes.items():
        likely = _likely(primitive, name, value)
        for changed in (*likely, *_unlikely(value)):
            for twin in _changed(primitive, name, changed):
                yield twin, changed in likely


def _changed(primitive: Primitive, name: str, value: Any) -> Iterator[Primitive]:
    """The primitive with this value of the attribute, if the class accepts it."""
    with suppress(Exception):  # whatever the class raises, it refuses that value
        yield _rebuilt(primitive, {**primitive.attributes, name: value})


def _rebuilt(primitive: Primitive, values: dict[str, Any]) -> Primitive:
    """A primitive of the same class with these attributes, constructed as by a user."""
    if primitive._classic or type(primitive).__init__ is not Primitive.__init__:
        return primitive.with_attributes(values)
    return type(primitive)(**values)


def _likely(primitive: Primitive, name: str, value: Any) -> tuple[Any, ...]:
    """Other values of an attribute, of the same type; none if none can be guessed."""
    if isinstance(value, bool):
        return (not value,)
    if isinstance(value, int):
        return (value + 1,)
    if isinstance(value, float):
        return (1.5 * value + 0.25,) if value >= 0 else (1.5 * value - 0.25,)
    if isinstance(value, str):
        return tuple(words(primitive, name, value))
    if isinstance(value, tuple) and value:
        return tuple((first, *value[1:]) for first in _likely(primitive, name, value[0]))
    return ()


def _unlikely(value: Any) -> tuple[Any, ...]:
    """The next smaller whole number, and the number of the other sign."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return ()
    less = (value - 1,) if isinstance(value, int) else ()
    return (*less, *((-value,) if value and -value not in less else ()))


def words(primitive: Primitive, name: str, value: str) -> Iterator[str]:
    """The other words that a class allows for an attribute: those in its annotation, in its error
    for a word that is none of them, or beside the present one in a tuple of its rules."""
    found = dict.fromkeys(
        [
            *_annotated(primitive, name),
            *_named_in_refusals(primitive, name, value),
            *_beside(primitive, value),
        ]
    )
    return (word for word in found if word != value)


def _annotated(primitive: Primitive, name: str) -> Iterator[str]:
    annotation = {f.name: f.annotation for f in type(primitive)._fields}[name]
    if isinstance(annotation, str) and annotation.partition("[")[0].endswith("Literal"):
        yield from re.findall(_QUOTED, annotation)
    elif get_origin(annotation) is Literal:
        yield from (word for word in get_args(annotation) if isinstance(word, str))


def _named_in_refusals(primitive: Primitive, name: str, value: str) -> Iterator[str]:
    """The quoted words of the errors that quote the present value."""
    try:
        twin = _rebuilt(primitive, {**primitive.attributes, name: _NO_WORD})
    except Exception as error:
        texts = [str(error)]
    else:
        texts = [str(e) for shape in _SHAPES for e in _refused(twin, shape)]
    for text in texts:
        quoted = re.findall(_QUOTED, text)
        if value in quoted:
            yield from (word for word in quoted if word != _NO_WORD)


def _refused(primitive: Primitive, shape: tuple[int, ...]) -> Iterator[Exception]:
    for count in (1, 2, 3):
        try:
            primitive.infer_shape(*(shape,) * count)
        except Exception as error:  # whatever a rule raises
            yield error


def _beside(primitive: Primitive, value: str) -> Iterator[str]:
    for rule in ("__init__", "infer_shape", "infer_dtype", "__infer__"):
        code = getattr(getattr(type(primitive), rule, None), "__code__", None)
        for constant in code.co_consts if code is not None else ():
            if isinstance(constant, (tuple, frozenset)) and value in constant:
                yield from sorted(word for word in constant if isinstance(word, str))
