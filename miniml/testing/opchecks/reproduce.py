"""Programs that show a finding: pasted into a file and run, they fail as opcheck did."""

from __future__ import annotations

import ast
import base64
import inspect
import os
import sys
import zlib
from types import ModuleType
from typing import Any

import numpy as np

from ...attributes import show
from ...primitive import Primitive
from ..calls import Array, Call, as_tuple, reference
from ..layouts import CONTIGUOUS
from .draws.values import ladder_text

_LONG = 64
_FILING = {"elementwise_kernel", "raw_kernel", "infer_rule"}


def program(name: str | None, call: Call | None, primitive: Primitive) -> str:
    """The text of a program that runs one check on one call (or without one)."""
    subject = primitive if call is None else call.primitive
    lines = ["import numpy as np", "from miniml.testing import OpInfo, opcheck", ""]
    lines += _definition(type(subject))
    if call is None:
        return "\n".join([*lines, "", f"opcheck({_made(subject)})"])
    inputs = []
    for i, value in enumerate(call.args()):
        if isinstance(value, np.ndarray):
            lines.append(f"x{i} = {literal(value)}")
            inputs.append(f"x{i}")
        else:
            inputs.append(show(value))
    told = f"({', '.join(inputs)},)" if inputs else "()"
    info = _info(call)
    lines += info
    given = ", info" if info else ""
    only = call.layouts[0] if len(call.layouts) == 1 else ()
    laid = f"layouts={only!r}, " if set(only) - {CONTIGUOUS} else ""
    return "\n".join(
        [*lines, f"opcheck({_made(subject)}{given}, inputs={told}, {laid}checks=({name!r},))"]
    )


def literal(array: Array) -> str:
    """An expression that gives the array; long ones as a formula or as compressed text."""
    dtype = array.dtype.name
    if array.size > _LONG:
        row = ladder_text(array)
        if row is not None:
            return row
        packed = base64.b85encode(zlib.compress(np.ascontiguousarray(array).tobytes())).decode()
        return (
            "np.frombuffer(__import__('zlib').decompress(__import__('base64').b85decode("
            f"{packed!r})), {dtype!r}).reshape({array.shape})"
        )
    numbers = repr(_exact(array)).replace("nan", "np.nan").replace("inf", "np.inf")
    shaped = "" if array.size else f".reshape({array.shape})"
    return f"np.array({numbers}, {dtype!r}){shaped}"


def _exact(array: Array) -> Any:
    """Nested lists whose numbers, rounded to the dtype, are the array again."""
    if array.dtype.kind in "?biu":
        return array.tolist()
    text = np.array([float(str(v)) for v in array.reshape(-1)], np.float64)
    same = text.astype(array.dtype).tobytes() == np.ascontiguousarray(array).tobytes()
    return (text if same else array.astype(np.float64)).reshape(array.shape).tolist()


def _made(primitive: Primitive) -> str:
    shown = ", ".join(f"{k}={_value(v)}" for k, v in primitive.attributes.items())
    return f"{type(primitive).__qualname__}({shown})"


def _value(value: Any) -> str:
    return f"np.dtype({value.name!r})" if isinstance(value, np.dtype) else repr(value)


def _info(call: Call) -> list[str]:
    """An OpInfo that says of this call what the one given said."""
    if call.info is None:
        return []
    said = [type(call.primitive).__qualname__, "samples=lambda rng, dtype: ()"]
    if call.info.reference is not None:
        try:
            outs = ", ".join(map(literal, as_tuple(reference(call))))
        except Exception:  # the reference cannot be asked here: leave it out
            outs = ""
        single = call.primitive._single
        said += [f"reference=lambda *xs, **attrs: {outs if single else f'({outs},)'}"] * bool(outs)
    if call.info.nan != "propagates":
        said.append(f"nan={call.info.nan!r}")
    if call.info.batch_axes is not None:
        said.append(f"batch_axes={call.info.batch_axes!r}")
    return [f"info = OpInfo({', '.join(said)})"]


def _definition(cls: type[Primitive]) -> list[str]:
    """Lines that bring the primitive into the program: an import, or its source."""
    module = sys.modules.get(cls.__module__)
    name = cls.__qualname__
    if cls.__module__.startswith("miniml."):
        return [f"from {cls.__module__} import {name}"]
    if "." in name or module is None or not hasattr(module, name):
        return [f"# put the definition of {name} here"]
    if cls.__module__ != "__main__" and getattr(module, "__file__", None):
        return [*_path_to(module), f"from {cls.__module__} import {name}"]
    source = _source(module)
    return [source] if source else [f"# put the definition of {name} here"]


def _path_to(module: ModuleType) -> list[str]:
    """What makes a module importable that lies in no installed package."""
    root = os.path.abspath(str(module.__file__))
    for _ in range(module.__name__.count(".") + 1):
        root = os.path.dirname(root)
    if os.path.basename(root) in ("site-packages", "dist-packages"):
        return []
    return ["import sys", f"sys.path.insert(0, {root!r})"]


def _source(module: ModuleType) -> str:
    """The definitions of a program: its imports, classes, functions and names, without what it
    does when it runs."""
    try:
        text = inspect.getsource(module)
        body = ast.parse(text).body
    except (OSError, TypeError, SyntaxError):
        return ""
    return "\n".join(
        ast.get_source_segment(text, node, padded=True) or ""
        if not isinstance(node, (ast.FunctionDef, ast.ClassDef))
        else _with_decorators(text, node)
        for node in body
        if _defines(node)
    )


def _with_decorators(text: str, node: ast.FunctionDef | ast.ClassDef) -> str:
    first = min([node.lineno, *(d.lineno for d in node.decorator_list)])
    return "\n".join(["", *text.splitlines()[first - 1 : node.end_lineno], ""])


def _defines(node: ast.stmt) -> bool:
    if isinstance(node, (ast.Import, ast.ImportFrom, ast.FunctionDef, ast.ClassDef)):
        return True
    if isinstance(node, ast.Assign):
        return not any(isinstance(n, ast.Call) for n in ast.walk(node.value))
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
        called = node.value.func
        return getattr(called, "id", getattr(called, "attr", "")) in _FILING
    return False
