"""`show NAME`: prints one primitive: definition, gradient, kernels and tests, with their lines."""

from __future__ import annotations

import ast
import inspect
import textwrap
from argparse import ArgumentParser
from collections.abc import Callable, Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from ..backends import registry
from ..backends.kernel import Expression, KernelEntry, RawSource
from ..core.bprop import bprop_getters
from ..core.errors import MinimlError
from ..core.facts import MEANINGS, Facts
from ..core.primitive import Primitive, primitives
from ..nn import Cell
from . import fold, load, near

ROOT = Path(__file__).resolve().parents[2]


def add_show(command: ArgumentParser) -> None:
    command.add_argument(
        "name",
        help="such as Add, leaky_relu or conv2d; one of your own as module:Snake or "
        "path/to/file.py:Snake",
    )
    command.set_defaults(run=lambda o: run_show(o.name))


def run_show(name: str) -> int:
    """Print the parts of the primitive of that name, or at `module:name`; returns the exit code.

    The name may be the class's or the function's, in any case. MinimlError for an unknown one
    suggests close names.
    """
    print(describe(users(name) if ":" in name else find(name)))
    return 0


def users(address: str) -> type[Primitive]:
    """The primitive class at `module:name`, or of the instance there."""
    found = load(address)
    kind = found if isinstance(found, type) else type(found)
    if not issubclass(kind, Primitive):
        what = f"a {kind.__name__}" if kind is not found else "a class"
        raise MinimlError(f"{address} is {what}, not a primitive; {_hint(kind)}")
    return kind


def _hint(kind: type) -> str:
    """A hint for an object that is not a primitive."""
    if issubclass(kind, Cell):
        return "python -m miniml summary shows a network"
    return "give a class derived from Primitive, or an instance of one"


def find(name: str) -> type[Primitive]:
    """The primitive class that `name` means: LeakyReLU, leakyrelu and leaky_relu are one."""
    folded = {fold(n): n for n in primitives}
    found = folded.get(fold(name))
    if found is not None:
        return primitives[found]
    hint = near(name, primitives)
    raise MinimlError(f"no primitive is called {name!r}; {hint}; one of yours is module:name")


def describe(primitive: type[Primitive]) -> str:
    """The text that `show` prints."""
    parts = [
        _headline(primitive),
        _section("definition", _definition(primitive)),
        _section("gradient", _gradient(primitive)),
        _section("kernels", "\n".join(_kernels(primitive.name)) or "none"),
        _section("tests", "\n\n".join(_tests(primitive.__name__)) or "none in this folder"),
    ]
    return "\n\n".join(parts)


def _headline(primitive: type[Primitive]) -> str:
    named = primitive.input_names.fget(primitive)  # type: ignore[attr-defined]
    inputs = "any number of inputs" if named is None else ", ".join(named) or "no inputs"
    outputs = primitive.outputs
    out = outputs if isinstance(outputs, str) else ", ".join(outputs)
    attributes = ", ".join(f.name for f in primitive._fields) or "none"
    lines = [f"{primitive.name}: {inputs} -> {out}; attributes: {attributes}"]
    if primitive.const_inputs:
        lines.append(f"const inputs: {', '.join(primitive.const_inputs)}")
    lines += _stated(primitive)
    if primitive.effect != "pure":
        lines.append(f"effect: {primitive.effect}, so it keeps its place in the program")
    return "\n".join(lines)


def _stated(cls: type[Facts]) -> list[str]:
    """The facts of a class in words, where it says another than most do."""
    said = {n: getattr(cls, n) for n in (*MEANINGS, "linear", "images", "ordered", "by_element")}
    return [
        f"{name}: {', '.join(value) if isinstance(value, tuple) else value}"
        for name, value in said.items()
        if value != getattr(Facts, name)
    ]


def _section(title: str, text: str) -> str:
    return f"{title}\n{textwrap.indent(text, '    ')}"


def _definition(primitive: type[Primitive]) -> str:
    """The class and, below it, the abstract classes of its own whose rules it shares."""
    shared = [
        cls
        for cls in primitive.__mro__[1:]
        if issubclass(cls, Primitive) and cls.__module__ != Primitive.__module__
    ]
    return "\n\n".join(dict.fromkeys(map(_source, (primitive, *shared))))


def _gradient(primitive: type[Primitive]) -> str:
    if not primitive.differentiable:
        return "none, by definition: differentiable = False"
    getter = bprop_getters.find(primitive)
    return "none: no gradient passes" if getter is None else _source(getter)


def _kernels(name: str) -> Iterator[str]:
    """One block per function: its signatures, then its source."""
    shown: set[str] = set()  # a function that also runs through a wrapper is printed once
    for device in ("cpu", "cuda"):
        groups: dict[object, list[KernelEntry]] = {}
        for entry in registry.table.get((name, device), ()):
            same = entry.body.text if isinstance(entry.body, Expression) else id(entry.body)
            groups.setdefault(same, []).append(entry)
        for entries in groups.values():
            first = entries[0]
            signatures = " ".join(str(e.signature) for e in entries)
            needs = f", requires {' '.join(first.requires)}" if first.requires else ""
            yield f"{device}, from {first.provider!r}{needs}: {signatures}"
            body = _body(first)
            head, _, source = body.partition("\n")
            yield textwrap.indent(head if source in shown else body, "    ")
            shown.add(source)


def _body(entry: KernelEntry) -> str:
    if isinstance(entry.body, np.ufunc):
        return f"np.{entry.body.__name__} itself"
    if isinstance(entry.body, Expression):
        return f"C expression: {entry.body.text}"
    if isinstance(entry.body, RawSource):
        return f"CUDA C, registered at {_near(entry.where)}\n{entry.body.source}"
    if not hasattr(entry.body, "__wrapped__"):
        return _source(entry.body)
    code: Any = getattr(entry.body, "__code__", None)  # __qualname__ is the wrapped function's
    wrapper = code.co_qualname.partition(".<locals>")[0] if code else type(entry.body).__name__
    return f"through {wrapper}: {_source(entry.body)}"


def _tests(class_name: str) -> Iterator[str]:
    """The OpInfo rows of a checkout that name the class."""
    for path in sorted((ROOT / "tests" / "opinfo").glob("*.py")):
        text, calls = _calls(path)
        for call in calls:
            named = call.args[0]
            if class_name == getattr(named, "attr", getattr(named, "id", None)):
                if "row" in _called(call).lower() or "info" in _called(call).lower():
                    shown = ast.get_source_segment(text, call, padded=True) or ""
                    yield f"{_near(f'{path}:{call.lineno}')}\n{textwrap.dedent(shown)}"


@lru_cache
def _calls(path: Path) -> tuple[str, list[ast.Call]]:
    """A file's text, and the calls with an argument in it."""
    text = path.read_text("utf-8")
    return text, [n for n in ast.walk(ast.parse(text)) if isinstance(n, ast.Call) and n.args]


def _called(call: ast.Call) -> str:
    return str(getattr(call.func, "attr", getattr(call.func, "id", "")))


def _source(thing: type | Callable[..., Any]) -> str:
    """The file, line and source of a class or function."""
    while hasattr(thing, "__wrapped__"):
        thing = thing.__wrapped__
    try:
        lines, start = inspect.getsourcelines(thing)
        path = inspect.getsourcefile(thing)
    except (OSError, TypeError):
        return f"{getattr(thing, '__qualname__', thing)!r}, whose source is not at hand"
    return f"{_near(f'{path}:{start}')}\n{textwrap.dedent(''.join(lines)).rstrip()}"


def _near(where: str) -> str:
    """A file and line relative to the checkout or the current folder, if inside."""
    return where.removeprefix(f"{ROOT}/").removeprefix(f"{Path.cwd()}/")
