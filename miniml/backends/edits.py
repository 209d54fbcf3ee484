"""Edits of one text of an elementwise primitive, its NumPy kernel or its C expression, and not of
the other, as where one cell of a notebook is run again: then one of them may be out of date."""

from __future__ import annotations

from types import CodeType
from typing import Any, Literal

from ..scope import Scoped
from .kernel import Expression, KernelEntry

Half = Literal["NumPy kernel", "C expression"]
replaced: dict[tuple[str, str], Half] = {}
"""By primitive and signature, the text that was replaced by another since both were registered."""
believed: Scoped[bool] = Scoped("miniml_edits")  # to compare the two texts, as opcheck does


def note(entry: KernelEntry, before: KernelEntry | None) -> None:
    """Note that an entry is registered, in the place of `before`; both are texts of one edit where
    the other text was registered again in the meantime."""
    if before is None and not replaced:
        return
    half: Half = "C expression" if isinstance(entry.body, Expression) else "NumPy kernel"
    if entry.device != ("cuda" if half == "C expression" else "cpu"):
        return
    key = entry.name, str(entry.signature)
    if replaced.get(key, half) != half:
        del replaced[key]
    elif before is not None and not _same(before.body, entry.body):
        replaced[key] = half


def doubt(name: str, signature: str) -> str:
    """Why the C expression of a primitive may not be what its NumPy kernel computes; "" where
    nothing speaks against it."""
    half = replaced.get((name, signature)) if replaced else None
    if half is None or believed.get():
        return ""
    other: Half = "NumPy kernel" if half == "C expression" else "C expression"
    return (
        f"the {half} {signature} of {name} was replaced, and its {other} was not, so one may be "
        f"out of date: nothing is fused with {name} until you register the {other} again"
    )


def _same(a: Any, b: Any) -> bool:
    """True for two bodies that say the same: equal texts, or functions of equal code that see
    equal values."""
    if not (hasattr(a, "__code__") and hasattr(b, "__code__")):
        return bool(a == b)
    seen = [_seen(a), _seen(b)]
    return _plain(a.__code__) == _plain(b.__code__) and seen[0] == seen[1]


def _plain(code: CodeType) -> CodeType:
    """The code, wherever it stands."""
    return code.replace(co_firstlineno=1, co_linetable=b"")


def _seen(body: Any) -> list[tuple[type, object]]:
    """What a function sees besides its arguments: numbers and texts by value, all else by
    identity."""
    cells = [cell.cell_contents for cell in body.__closure__ or ()]
    given = [*cells, *(body.__defaults__ or ()), *(body.__kwdefaults__ or {}).values()]
    by_value = (bool, int, float, str)
    return [(type(v), v if isinstance(v, by_value) else id(v)) for v in given]
