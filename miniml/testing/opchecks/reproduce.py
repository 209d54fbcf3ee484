"""Programs that reproduce a finding: pasted into a file and run, they fail as opcheck did."""

from __future__ import annotations

import ast
import base64
import inspect
import os
import sys
import zlib
from collections.abc import Sequence
from types import ModuleType
from typing import Any

import numpy as np

from ...core.primitive import Primitive, show
from ...ops import Custom
from ..calls import Array, Call, as_tuple, reference
from ..layouts import CONTIGUOUS
from .values import ladder_text

_LONG = 64  # elements at most that a literal spells out


_REGISTERING = {"elementwise_kernel", "raw_kernel", "infer_rule"}


def program(name: str | None, call: Call | None, primitive: Primitive) -> str:
    """The text of a program that runs one check on one call (or without one)."""
    subject = primitive if call is None else call.primitive
    lines = ["import numpy as np", "from miniml.testing import OpInfo, gradcheck, opcheck", ""]
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
    each = f"({', '.join(inputs)},)" if inputs else "()"
    info = _info(call)
    lines += info
    given = ", info" if info else ""
    only = call.layouts[0] if len(call.layouts) == 1 else ()
    laid = f"layouts={only!r}, " if set(only) - {CONTIGUOUS} else ""
    lines.append(f"opcheck({_made(subject)}{given}, inputs={each}, {laid}checks=({name!r},))")
    return "\n".join(lines)


def gradchecked(call: Call) -> str:
    """The line that runs gradcheck on a call, after the lines of its program."""
    given = (f"x{i}" if isinstance(v, np.ndarray) else show(v) for i, v in enumerate(call.args()))
    return f"gradcheck({', '.join((_made(call.primitive), *given))})"


def _made(primitive: Primitive) -> str:
    if isinstance(primitive, Custom):
        return repr(primitive)
    shown = ", ".join(f"{k}={_value(v)}" for k, v in primitive.attributes.items())
    return f"{type(primitive).__qualname__}({shown})"


def _value(value: Any) -> str:
    return f"np.dtype({value.name!r})" if isinstance(value, np.dtype) else repr(value)


def _info(call: Call) -> list[str]:
    """An OpInfo with the same claims about this call as the given one."""
    if call.info is None:
        return []
    parts = [type(call.primitive).__qualname__, "samples=lambda rng, dtype: ()"]
    if call.info.reference is not None:
        try:
            outs = ", ".join(map(literal, as_tuple(reference(call))))
        except Exception:  # the reference fails here: leave it out
            outs = ""
        single = call.primitive._single
        parts += [f"reference=lambda *xs, **attrs: {outs if single else f'({outs},)'}"] * bool(outs)
    if call.info.nan != "propagates":
        parts.append(f"nan={call.info.nan!r}")
    if call.info.batch_axes is not None:
        parts.append(f"batch_axes={call.info.batch_axes!r}")
    return [f"info = OpInfo({', '.join(parts)})"]


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
    """Nested lists whose numbers, rounded to the dtype, give the array exactly."""
    if array.dtype.kind in "?biu":
        return array.tolist()
    text = np.array([float(str(v)) for v in array.reshape(-1)], np.float64)
    same = text.astype(array.dtype).tobytes() == np.ascontiguousarray(array).tobytes()
    return (text if same else array.astype(np.float64)).reshape(array.shape).tolist()


def _definition(cls: type[Primitive]) -> list[str]:
    """Lines that define the primitive in the program: an import, or its source."""
    module = sys.modules.get(cls.__module__)
    name = cls.__qualname__
    if issubclass(cls, Custom):
        return ["from miniml.ops import Custom", f"# put the kernels and rules of {cls.name} here"]
    if cls.__module__.startswith("miniml."):
        return [f"from {cls.__module__} import {name}"]
    if "." in name or module is None or not hasattr(module, name):
        return [f"# put the definition of {name} here"]
    if cls.__module__ != "__main__" and getattr(module, "__file__", None):
        return [*_path_to(module), f"from {cls.__module__} import {name}"]
    source = _source(module, cls)
    return [source] if source else [f"# put the definition of {name} here"]


def _path_to(module: ModuleType) -> list[str]:
    """The lines that make a module importable if it is in no installed package."""
    root = os.path.abspath(str(module.__file__))
    for _ in range(module.__name__.count(".") + 1):
        root = os.path.dirname(root)
    if os.path.basename(root) in ("site-packages", "dist-packages"):
        return []
    return ["import sys", f"sys.path.insert(0, {root!r})"]


def _source(module: ModuleType, cls: type[Primitive]) -> str:
    """The part of a program that defines a primitive: its class, the registrations for it, and the
    imports, classes, functions and names that these use."""
    try:
        text = inspect.getsource(module)
        body = [_Part(text, node) for node in ast.parse(text).body]
    except (OSError, TypeError, SyntaxError):
        return ""
    used, known = {cls.__qualname__}, {cls.__qualname__, cls.name}
    taken: list[_Part] = []
    while more := [p for p in body if p not in taken and (p.binds & used or p.registers(known))]:
        taken += more
        used |= {name for part in more for name in part.uses}
    return "\n".join(part.text for part in body if part in taken)


class _Part:
    """A statement of a module. binds: names that it assigns; uses: names that it reads."""

    def __init__(self, text: str, node: ast.stmt):
        inner = list(ast.walk(node))
        self.node = node
        self.uses = {n.id for n in inner if isinstance(n, ast.Name)}
        self.binds: set[str] = set()
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            self.binds = {(a.asname or a.name).partition(".")[0] for a in node.names}
        elif isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            self.binds = {node.name}
        elif isinstance(node, ast.Assign) and not any(isinstance(n, ast.Call) for n in inner):
            targets = [n for target in node.targets for n in ast.walk(target)]
            self.binds = {n.id for n in targets if isinstance(n, ast.Name)}
        decorators = getattr(node, "decorator_list", [])
        first = min([node.lineno, *(d.lineno for d in decorators)])
        self.text = "\n".join(text.splitlines()[first - 1 : node.end_lineno])
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            self.text = f"\n{self.text}"

    def registers(self, known: set[str]) -> bool:

        calls = list(getattr(self.node, "decorator_list", []))
        if isinstance(self.node, ast.Expr):
            calls = [self.node.value]
        for call in calls:
            first = next(iter(getattr(call, "args", ())), None)
            if getattr(first, "id", getattr(first, "value", None)) in known:
                return isinstance(self.node, ast.FunctionDef) or _name(call.func) in _REGISTERING
        return False


def _name(function: ast.expr) -> str:
    return str(getattr(function, "id", getattr(function, "attr", "")))


def an_opinfo(primitive: Primitive, calls: Sequence[Call]) -> tuple[str, ...]:
    """Lines that give an OpInfo with a sample like the first of these calls; none without any."""
    if not calls:
        return ()
    name, inputs = type(primitive).__qualname__, ", ".join(map(_sampled, calls[0].args()))
    return (
        "from miniml.testing import OpInfo, Sample, opcheck",
        "def samples(rng, dtype):",
        f"    yield Sample(({inputs}{',' * (len(calls[0].args()) == 1)}))",
        f"opcheck({_made(primitive)}, OpInfo({name}, samples, domain='as drawn in samples'))",
    )


def _sampled(value: Any) -> str:
    """An expression for an input: square matrices get a heavy diagonal, so that they are
    nonsingular (and, if only the lower half is read, positive definite)."""
    if not isinstance(value, np.ndarray):
        return show(value)
    if value.dtype.kind in "?biu":
        return literal(value)
    numbers, n = f"rng.uniform(0.5, 2.0, {value.shape})", value.shape[-1] if value.ndim else 0
    if value.ndim > 1 and value.shape[-2] == n:
        return f"({numbers} + {2 * n} * np.eye({n})).astype(dtype)"
    return f"{numbers}.astype(dtype)"
