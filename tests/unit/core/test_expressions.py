"""The table of scalar expressions: complete, in known words, and open to users."""

import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from miniml import Primitive, bfloat16, elementwise_kernel, ops
from miniml.backends import registry
from miniml.backends.expressions import (
    C_FUNCTIONS,
    C_WORDS,
    OWN,
    accumulation,
    computed,
    definitions,
    table,
    unsigned,
)
from miniml.core.abstract import ALL
from miniml.errors import DeclarationError

LIBRARY = [key for key, expression in table.items() if expression.unit]


def test_expressions_name_what_is_known():
    for name, signature in LIBRARY:
        expression, spec = table[name, signature], registry.specs[name]
        scalars = dict(expression.types) if expression.types is not None else spec.attributes
        known = {*spec.inputs, *scalars, "index", *C_WORDS}
        assert expression.words <= known, (name, signature)


def test_functions_are_defined_for_a_compiler():
    text = definitions("template <typename A> inline ")
    for name in OWN:
        assert text.count(f" {name}(A") == 1
    assert text.count("template <typename A> inline ") == len(OWN)


def test_the_table_knows_no_device():
    code = (
        "import sys, miniml.backends.expressions as t; assert t.table; "
        "print([m for m in sys.modules if 'backends.cuda' in m or 'cupy' in m])"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert run.stdout == "[]\n", run.stderr


@pytest.mark.parametrize(
    ("dtype", "element", "sum_", "wraps"),
    [
        ("bool", "bool", "uint64", "uint32"), ("int8", "int8", "uint64", "uint32"),
        ("uint16", "uint16", "uint64", "uint32"), ("int64", "int64", "uint64", "uint64"),
        ("float16", "float32", "float32", "float32"), (bfloat16, "float32", "float32", "float32"),
        ("float32", "float32", "float32", "float32"), ("float64", "float64", "float64", "float64"),
    ],
)  # fmt: skip
def test_what_elements_and_sums_are_computed_in(dtype, element, sum_, wraps):
    dtype = np.dtype(dtype)
    assert dtype in ALL
    found = [of(dtype).name for of in (computed, accumulation, unsigned)]
    assert found == [element, sum_, wraps]


@pytest.mark.usefixtures("tables_as_before")
class TestUsers:
    def test_an_expression_is_in_the_table(self):
        elementwise_kernel("ExprOne", "x + 1", "f->f", "d->d")
        assert table["ExprOne", "f->f"].text == table["ExprOne", "d->d"].text == "x + 1"

    def test_one_that_is_refused_is_not(self):
        with pytest.raises(DeclarationError):
            elementwise_kernel("ExprTwo", "x + 1;", "f->f")
        assert ("ExprTwo", "f->f") not in table

    @pytest.mark.parametrize(
        "text", ["erfcx(x)", "x + j0 (x)", "exp(rcbrt(x) * 2) + normcdfinv(x)"]
    )
    def test_a_function_that_is_not_known_is_called_one(self, text):
        unknown = re.findall(r"erfcx|j0|rcbrt|normcdfinv", text)
        calls = f"calls {', '.join(unknown)}; expressions know .*copysign, cos, .*a raw_kernel"
        with pytest.raises(DeclarationError, match=calls):
            elementwise_kernel("ExprCalls", text, "f->f")
        with pytest.raises(DeclarationError, match=calls):
            ops.custom(cuda=text, name="ExprCustom")
        assert not any(name in ("ExprCalls", "ExprCustom") for name, _ in table)

    def test_the_page_lists_every_function_of_c_and_none_that_is_not_known(self):
        page = (Path(__file__).parents[3] / "docs" / "cuda.md").read_text()
        listed = page.split("<!-- functions of expressions -->")[1].split("<!--")[0]
        names = {*re.findall(r"`(\w+)`", listed)}
        assert C_FUNCTIONS - {*OWN} <= names <= C_FUNCTIONS

    def test_one_that_a_new_definition_does_not_fit_goes(self):
        def define(attribute):
            fields = {"__annotations__": {attribute: float}, attribute: 1.0}
            rules = {"infer_shape": lambda self, x: x, "infer_dtype": lambda self, x: x}
            return type("ExprThree", (Primitive,), {**fields, **rules, "__module__": __name__})

        define("alpha")
        elementwise_kernel("ExprThree", "alpha * x", "f->f")
        define("beta")
        assert ("ExprThree", "f->f") not in table
