"""The line of a user's bprop that an error of a gradient comes from."""

from __future__ import annotations

import dis
from inspect import unwrap
from types import CodeType

from ..bprop import bprop_getters
from ..errors import BpropError
from ..location import Location, is_own_file
from ..primitive import Primitive


def note_bprop(error: Exception, primitive: Primitive) -> None:
    """Add to an error of a pull-back a note with the line of the bprop: where it was when it
    raised, or where it returns what it must not. miniml's own bprops are not named."""
    code = _code_of(primitive)
    if code is None or is_own_file(code.co_filename):
        return
    where = _raised_in(error, code)
    if where is None and isinstance(error, BpropError):
        where = _returns(code)
    if where is not None:
        error.add_note(f"in the bprop of {primitive.name}, at\n{where.render()}")


def _code_of(primitive: Primitive) -> CodeType | None:
    getter = bprop_getters.find(type(primitive))
    try:
        return getattr(unwrap(getter(primitive)), "__code__", None) if getter else None
    except Exception:  # of the getter: then that is the error which is on its way
        return getattr(getter, "__code__", None)


def _raised_in(error: Exception, code: CodeType) -> Location | None:
    found, step = None, error.__traceback__
    while step is not None:
        if step.tb_frame.f_code is code:
            found = Location(code, step.tb_lasti)
        step = step.tb_next
    return found


def _returns(code: CodeType) -> Location:
    """Its last return."""
    returns = [i for i in dis.get_instructions(code) if i.opname.startswith("RETURN_")]
    return Location(code, returns[-1].offset)
