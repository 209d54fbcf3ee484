"""The faults planted in functions of torch and JAX, and in operators: each found, no right one."""

import pytest

from miniml.testing import gradcheck, opcheck

from . import foreign_functions, foreign_operators
from .foreign_functions import in_jax, in_torch
from .foreign_operators import operator


def named(rows):
    return pytest.mark.parametrize("row", rows, ids=[row.name for row in rows])


def report_in_torch(row):
    pytest.importorskip("torch", reason="no torch")
    function, xs = in_torch(row)
    return gradcheck(function, *[x.detach() for x in xs], raise_error=False)


def report_in_jax(row):
    jax = pytest.importorskip("jax", reason="no jax")
    with jax.enable_x64(True):
        function, xs = in_jax(row)
        return gradcheck(function, *xs, raise_error=False)


def report_of_operator(row):
    torch = pytest.importorskip("torch", reason="no torch")
    return opcheck(operator(row), inputs=tuple(map(torch.tensor, row.point())), raise_error=False)


@named(foreign_functions.WRONG)
def test_a_wrong_gradient_is_found_in_torch(row):
    assert report_in_torch(row).wrong


@named(foreign_functions.RIGHT)
def test_a_right_gradient_passes_in_torch(row):
    report = report_in_torch(row)
    assert report.ok, report


@named(foreign_functions.WRONG)
def test_a_wrong_gradient_is_found_in_jax(row):
    assert report_in_jax(row).wrong


@named(foreign_functions.RIGHT)
def test_a_right_gradient_passes_in_jax(row):
    report = report_in_jax(row)
    assert report.ok, report


@named(foreign_operators.WRONG)
def test_a_wrong_operator_is_found_by_the_check_for_it(row):
    report = report_of_operator(row)
    found = {f.check for f in (report.warnings if row.warns else report.faults)}
    assert row.check in found, report


@named(foreign_operators.RIGHT)
def test_a_right_operator_passes(row):
    report = report_of_operator(row)
    assert report.ok, report
