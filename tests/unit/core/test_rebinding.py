"""Kernels that rebind out are refused when they are registered; writing into it is fine."""

import textwrap
from functools import partial

import numpy as np
import pytest

from miniml import kernel
from miniml.backends import registry
from miniml.backends.kernel import refuse_rebinding
from miniml.core.scope import epoch
from miniml.errors import DeclarationError

# What a kernel of x and out may say, and the line of it that rebinds out.
REBINDING = [
    ("out = 2 * x", 1),
    ("out = out + x", 1),
    ("out: object = x", 1),
    ("y = out = x", 1),
    ("x, out = out, x", 1),
    ("x, *out = x", 1),
    ("for out in x:\n    pass", 1),
    ("with x as out:\n    pass", 1),
    ("x.fill(0)\nreturn np.add(x, (out := x))", 2),
    ("try:\n    x[9]\nexcept IndexError as out:\n    pass", 3),
    ("import math as out", 1),
    ("def inner():\n    nonlocal out\n    out = x\ninner()", 3),
    ("out = np.sin(x)\nreturn lambda: out", 1),
    ("out += 1\nout = x", 2),
    ("match x:\n    case [out, *_]:\n        pass", 2),
]
FILLING = [
    "out[...] = x\nout += 1\nout *= x\nout[0] -= 1",
    "y = out\ny = x\nnp.add(x, y, out=out)",
    "for i, row in enumerate(x):\n    out[i] = row\n    out **= 2",
    "def inner(out):\n    out = 3\n    return out\nout.fill(inner(x))",
    "a, b = out\na[...] = x\nb.fill(0)",
    "np.add(x, x, out=out)\nreturn [out for out in x]",
]


def made(text, parameters="x, *, out"):
    source = f"def body({parameters}):\n{textwrap.indent(text, '    ')}\n"
    exec(compile(source, "kernels.py", "exec"), names := {"np": np})
    return names["body"]


@pytest.mark.parametrize(("text", "line"), REBINDING)
def test_a_kernel_that_rebinds_out_is_refused_with_its_line(text, line):
    for body in (made(text), made(text, "x, out"), partial(made(text), x=1)):
        with pytest.raises(DeclarationError, match=r"write into it, as in out\[...\] = ") as caught:
            refuse_rebinding("Rebound", body)
        message = f"Rebound kernel 'body' rebinds out at kernels.py:{line + 1}, "
        assert str(caught.value).startswith(message)


@pytest.mark.parametrize("text", FILLING)
def test_a_kernel_that_writes_into_out_is_not(text):
    refuse_rebinding("Filled", made(text))


def test_what_has_no_parameter_out_or_no_code_rebinds_nothing():
    for body in (made("out = x\nreturn out", "x"), np.add, partial(np.add), abs, object()):
        refuse_rebinding("Filled", body)


def test_nothing_is_registered_of_a_refused_kernel():
    before = epoch.now
    with pytest.raises(DeclarationError, match=r"rebinds out at kernels\.py:2"):
        kernel("ReboundHere", "cpu", "f->f")(made("out = 2 * x"))
    assert epoch.now is before
    assert ("ReboundHere", "cpu") not in registry.table
