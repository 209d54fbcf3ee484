"""The page on ONNX lists the operators that are read."""

from pathlib import Path

from miniml.onnx.coverage import table

PAGE = Path(__file__).parents[3] / "docs/onnx.md"


def test_the_page_lists_the_operators_that_are_read():
    listed = PAGE.read_text("utf-8").partition("\n## Operators\n\n")[2]
    assert listed == table(), "write miniml.onnx.coverage.table() below the last heading"
