"""`python -m miniml show NAME` has all of every primitive, with file and line."""

import ast
import re
from functools import cache

import pytest

from miniml.cli.show import describe, find
from miniml.errors import MinimlError
from miniml.ops import LeakyReLU
from tests.frame.completeness import library

LIBRARY = {p.name: p for p in library()}


@pytest.fixture(scope="module", autouse=True)
def parsed_once():
    """Each file: inspect parses the whole of it for each class that it shows."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ast, "parse", cache(ast.parse))
        yield


@pytest.mark.parametrize("name", LIBRARY)
def test_every_primitive_is_shown_whole(name):
    text = describe(LIBRARY[name])
    title, *sections = re.split(r"\n\n(?=definition|gradient|kernels|tests\n)", text)
    assert title.startswith(f"{name}: ")
    definition, gradient, kernels, tests = sections
    assert re.search(r"miniml/ops/\w+\.py:\d+", definition)
    assert f"class {LIBRARY[name].__name__}(" in definition
    if LIBRARY[name].differentiable:
        assert re.search(r"miniml/(grad/rules/\w+|ops/elementwise|ops/logic)\.py:\d+", gradient)
    else:
        assert "by definition" in gradient
    assert "cpu, from 'miniml'" in kernels
    assert re.search(r"tests/opinfo/\w+\.py:\d+", tests)


@pytest.mark.parametrize("name", ["LeakyReLU", "leaky_relu", "leakyrelu"])
def test_class_and_function_names_are_one(name):
    assert find(name) is LeakyReLU


def test_an_unknown_name_gets_suggestions():
    with pytest.raises(MinimlError, match=r"no primitive is called 'soft_max2'; near it: "):
        find("soft_max2")


def test_a_kernel_that_also_runs_through_a_wrapper_is_printed_once():
    text = describe(LeakyReLU)
    assert text.count("def leaky_relu(") == 1
    assert "through in_float32: miniml/backends/cpu/elementwise.py:" in text
