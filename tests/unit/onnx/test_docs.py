"""The page on ONNX lists the operators that are read, and those that are not."""

from pathlib import Path

import pytest

from miniml.onnx import operators
from miniml.onnx.model import table

PAGE = Path(__file__).parents[3] / "docs/onnx.md"


def test_the_page_lists_the_operators_that_are_read():
    listed = PAGE.read_text("utf-8").partition("\n## Operators\n\n")[2]
    assert listed == table(), "write miniml.onnx.model.table() below the last heading"


def test_the_page_lists_the_operators_that_nothing_reads():
    onnx = pytest.importorskip("onnx", reason="no onnx")
    unread = set()
    for schema in onnx.defs.get_all_schemas():
        if not schema.deprecated and not operators.known(schema.domain, schema.name):
            unread.add(f"{schema.domain}.{schema.name}".removeprefix("."))
    listed = PAGE.read_text("utf-8").partition("<!-- unread -->")[2].partition("<!-- read -->")[0]
    assert listed.split() == sorted(unread, key=lambda name: ("." in name, name))
