"""Kernels that rebind `out`: their result is lost, and the array passed as out= stays unfilled."""

from __future__ import annotations

import dis
from collections.abc import Iterator
from functools import partial
from types import CodeType
from typing import Any

from ..errors import DeclarationError

_STORES = frozenset(
    code for name, code in dis.opmap.items() if name.startswith(("STORE_FAST", "STORE_DEREF"))
)


def refuse_rebinding(name: str, body: Any) -> None:
    """DeclarationError if the function of a kernel rebinds its parameter `out`.

    Found in its bytecode: a plain assignment, a loop's target, `with ... as`, a walrus. `out += x`
    is allowed, since it writes into the array itself. Functions without bytecode (ufuncs) rebind
    nothing.
    """
    while isinstance(body, partial):
        body = body.func
    code = getattr(body, "__code__", None)
    if not isinstance(code, CodeType) or "out" not in _parameters(code):
        return
    line = next(_rebindings(code), None)
    if line is not None:
        raise DeclarationError(
            f"{name} kernel {body.__name__!r} rebinds out at {code.co_filename}:{line}, which "
            "leaves the array it was given unfilled; write into it, as in out[...] = 2 * x or "
            "np.multiply(2, x, out=out), and give views of it names of their own"
        )


def _parameters(code: CodeType) -> tuple[str, ...]:
    return code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]


def _rebindings(code: CodeType) -> Iterator[int]:
    """The lines on which the name `out` gets another value."""
    steps = list(dis.get_instructions(code)) if _STORES.intersection(code.co_code[::2]) else []
    # From Python 3.12 on a comprehension over `out` is inlined into the function and saves the
    # name.
    saved = any(s.opname == "LOAD_FAST_AND_CLEAR" and s.argval == "out" for s in steps)
    in_place = False  # out += x: an in-place operation whose result is stored in the name
    for step in [] if saved else steps:
        if "out" in _stored(step) and not in_place:
            yield (step.positions.lineno if step.positions else None) or code.co_firstlineno
        in_place = step.opname == "BINARY_OP" and step.argrepr.endswith("=")
    for inner in code.co_consts:
        if isinstance(inner, CodeType) and "out" in inner.co_freevars:  # `nonlocal out`
            yield from _rebindings(inner)


def _stored(step: dis.Instruction) -> tuple[str, ...]:
    """The names that an instruction binds; Python 3.13 has some that store two names."""
    if step.opcode not in _STORES:
        return ()
    names = step.argval if isinstance(step.argval, tuple) else (step.argval,)
    return names[:1] if step.opname == "STORE_FAST_LOAD_FAST" else names
