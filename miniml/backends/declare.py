"""Checks of kernel declarations against the declaration of the primitive."""

from __future__ import annotations

import inspect
import re
from functools import lru_cache
from typing import Any

import numpy as np

from ..errors import DeclarationError
from .expressions.functions import C_WORDS
from .kernel import Expression, KernelEntry, OpSpec, RawSource


def check(entry: KernelEntry, spec: OpSpec) -> None:
    """DeclarationError unless the kernel's arity and names agree with the primitive's."""
    s = entry.signature
    if spec.inputs is not None:
        _count(entry, "inputs", len(s.inputs), spec.inputs, s.repeats_input)
    if spec.outputs is not None:
        _count(entry, "outputs", len(s.outputs), spec.outputs, s.repeats_output)
    if isinstance(entry.body, Expression):
        if entry.body.types is None:  # else its parameters are its own names
            _check_names(entry, entry.body, spec)
    elif not isinstance(entry.body, (RawSource, type)):
        _check_function(entry, entry.body, spec)


def _count(
    entry: KernelEntry, what: str, count: int, names: tuple[str, ...], repeats: bool
) -> None:
    if count != len(names) and not repeats:
        raise DeclarationError(
            f"{entry.name} kernel {entry.signature} has {count} {what}; the primitive has "
            f"{len(names)}: {', '.join(names)}"
        )


def _check_names(entry: KernelEntry, body: Expression, spec: OpSpec) -> None:
    if spec.inputs is None or spec.attributes is None:
        return
    known = {*spec.inputs, *spec.attributes}
    unknown = sorted(body.words - known - C_WORDS)
    if unknown:
        raise DeclarationError(
            f"{entry.name} expression {body.text!r} names {', '.join(unknown)}; the primitive has "
            f"inputs {', '.join(spec.inputs)} and attributes {', '.join(spec.attributes) or 'none'}"
        )


def _check_function(entry: KernelEntry, body: Any, spec: OpSpec) -> None:
    """A function gets all attributes by keyword; a function with other parameters could never be
    called."""
    if isinstance(body, np.ufunc) or spec.attributes is None:
        return
    keywords = _keywords(body)
    if keywords is None:
        return
    takes, needs = keywords
    gets = {*spec.attributes, *spec.const_inputs}
    missing = sorted(gets - takes)
    extra = sorted(needs - gets - {"out"})
    if missing or extra:
        expected = ", ".join(sorted(gets)) or "no attributes"
        wrong = [f"does not take {', '.join(missing)}"] * bool(missing)
        wrong += [f"asks for {', '.join(extra)}"] * bool(extra)
        raise DeclarationError(
            f"{entry.name} kernel {getattr(body, '__name__', body)!r} {' and '.join(wrong)}; "
            f"the primitive passes {expected} by keyword, and out="
        )


def taken(entry: KernelEntry, spec: OpSpec | None, attrs: dict[str, Any]) -> dict[str, Any]:
    """The attributes that a kernel gets: all of them, except that a function gets those it names
    where the class of the primitive declares none. DeclarationError for one that it lacks."""
    body = entry.body
    if spec is None or spec.attributes is not None or not inspect.isfunction(body):
        return attrs
    keywords = _keywords(body)
    if keywords is None:
        return attrs
    absent = sorted(keywords[1] - attrs.keys() - {"out"})
    if absent:
        raise DeclarationError(
            f"{entry.name} kernel {getattr(entry.body, '__name__', entry.body)!r} asks for "
            f"{', '.join(absent)}; the call has the attributes {', '.join(attrs) or 'none'}"
        )
    return {k: v for k, v in attrs.items() if k in keywords[0]}


def check_fills(entry: KernelEntry) -> None:
    """DeclarationError if a function kernel has no `out` to fill."""
    body: Any = entry.body
    keywords = _keywords(body) if inspect.isfunction(body) else None
    if keywords is not None and "out" not in keywords[0]:
        raise DeclarationError(
            f"{entry.name} kernel {body.__name__!r} does not take out; a kernel fills the array "
            "out= and returns nothing, as in np.multiply(x, x, out=out)"
        )


def refuse_returned(entry: KernelEntry, returned: object, out: Any) -> None:
    """DeclarationError if a kernel returned an array other than `out`, which stays unfilled."""
    if isinstance(returned, np.ndarray) and not any(np.may_share_memory(returned, o) for o in out):
        raise DeclarationError(
            f"{entry.name} kernel {getattr(entry.body, '__name__', entry.body)!r} returned an "
            "array; a kernel fills the array out= and returns nothing, as in out[...] = result"
        )


@lru_cache(maxsize=512)
def _keywords(body: Any) -> tuple[frozenset[str], frozenset[str]] | None:
    """The keywords that a function takes, and those it requires; None if it takes any."""
    try:
        parameters = inspect.signature(body).parameters.values()
    except (TypeError, ValueError):
        return None
    if any(p.kind is p.VAR_KEYWORD for p in parameters):
        return None
    named = (p for p in parameters if p.kind in (p.KEYWORD_ONLY, p.POSITIONAL_OR_KEYWORD))
    needed = (p for p in parameters if p.kind is p.KEYWORD_ONLY and p.default is p.empty)
    return frozenset(p.name for p in named), frozenset(p.name for p in needed)


def check_expression(name: str, text: str) -> None:
    """DeclarationError unless the text can be one C expression."""
    if not text.strip() or ";" in text or text.count("(") != text.count(")"):
        raise DeclarationError(
            f"{name} expression {text!r} is not one C expression; it has no ';' and balanced "
            "parentheses"
        )


def check_raw(name: str, entry: str, source: str, launch: object) -> None:
    """DeclarationError unless the source has the entry point and the launch rule is callable."""
    pattern = rf'extern\s+"C"\s*(?:\{{.*?)?__global__\s+\w[^;{{]*?\b{re.escape(entry)}\s*\('
    if not re.search(pattern, source, re.DOTALL):
        raise DeclarationError(
            f'{name} source has no extern "C" __global__ function {entry!r}; name the one it has '
            "as entry="
        )
    if not callable(launch):
        raise DeclarationError(f"{name} launch must be a function from node to Launch")
