"""Arguments of a launch against the parameters in the text of a kernel: cupy does not check
them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from ....errors import LaunchError

_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
_QUALIFIERS = re.compile(r"\b(?:const|volatile|__restrict__|__restrict|__grid_constant__)\b")
# Kind and bytes of the types that C spells out; other types are not checked.
_TYPES = {
    "bool": ("b", 1), "char": ("i", 1), "signed char": ("i", 1), "unsigned char": ("u", 1),
    "short": ("i", 2), "unsigned short": ("u", 2), "int": ("i", 4), "unsigned": ("u", 4),
    "unsigned int": ("u", 4), "long long": ("i", 8), "unsigned long long": ("u", 8),
    "size_t": ("u", 8), "float": ("f", 4), "double": ("f", 8),
}  # fmt: skip


class TextParameter(NamedTuple):
    """text: as written. type: its known type, or the type it points to; None for others."""

    text: str
    pointer: bool
    type: tuple[str, int] | None


def parameters(code: str, entry: str) -> tuple[TextParameter, ...] | None:
    """The parameters of the `__global__` function `entry`; None if they cannot be parsed, as when
    macros define them."""
    plain = _COMMENT.sub(" ", code)
    for found in re.finditer(rf"\b{re.escape(entry)}\s*\(", plain):
        if "__global__" not in plain[: found.start()].rpartition("}")[2].rpartition(";")[2]:
            continue
        parts = list(_parts(plain, found.end()))
        if any("#" in p or len(p.split()) < 2 for p in parts if p not in ("", "void")):
            return None
        return tuple(_parameter(p) for p in parts if p not in ("", "void"))
    return None


def _parts(text: str, at: int) -> Iterator[str]:
    """The parts between the commas up to the closing parenthesis."""
    depth, begin = 0, at
    for i in range(at, len(text)):
        c = text[i]
        if (c == ")" and depth == 0) or (c == "," and depth == 0):
            yield " ".join(text[begin:i].split())
            begin = i + 1
            if c == ")":
                return
        depth += (c in "(<[") - (c in ")>]")


def _parameter(text: str) -> TextParameter:
    pointer = "*" in text or "[" in text
    head = text.partition("[")[0] if "*" not in text else text.partition("*")[0] + " x"
    words = _QUALIFIERS.sub(" ", head).split()
    known = None if text.count("*") > 1 else _TYPES.get(" ".join(words[:-1]))
    return TextParameter(text, pointer, known)


def check(entry: str, expected: Sequence[TextParameter], args: Sequence[Any]) -> None:
    """LaunchError when arguments do not fit the parameters in number or type."""
    if len(args) != len(expected):
        raise LaunchError(f"{entry} has {len(expected)} parameters; got {len(args)} arguments")
    for i, (argument, parameter) in enumerate(zip(args, expected, strict=True)):
        is_array = _on_device(argument)
        dtype = argument.dtype if is_array else _scalar(entry, i, argument)
        fits = parameter.type is None or is_array != parameter.pointer or dtype.kind == "V"
        if is_array != parameter.pointer or not (fits or _fit(dtype, parameter.type)):
            got = "an array" if is_array else "a value"
            raise LaunchError(f"argument {i} of {entry} is {parameter.text}; got {got} of {dtype}")


def _on_device(argument: Any) -> bool:
    """True for an array that is not a NumPy array."""
    return hasattr(argument, "dtype") and not (
        isinstance(argument, np.generic) or type(argument) is np.ndarray
    )


def _fit(dtype: np.dtype[Any], known: tuple[str, int] | None) -> bool:
    assert known is not None
    kind, size = known
    return dtype.itemsize == size and (dtype.kind == kind or {dtype.kind, kind} <= set("iub"))


def _scalar(entry: str, i: int, argument: Any) -> np.dtype[Any]:
    """The dtype in which cupy passes a scalar, or a structure."""
    if isinstance(argument, np.ndarray) and argument.size != 1:
        raise LaunchError(
            f"argument {i} of {entry} is a NumPy array of {argument.size} elements; "
            "put it into device memory first"
        )
    if isinstance(argument, (np.generic, np.ndarray)):
        return argument.dtype
    for python, dtype in ((bool, np.bool_), (int, np.int64), (float, np.float64)):
        if isinstance(argument, python):
            return np.dtype(dtype)
    raise LaunchError(f"argument {i} of {entry} cannot be a {type(argument).__name__}")
