"""docs/kernel-system.md: each row is linked to a test that exists, and names what exists."""

import re
from operator import attrgetter
from pathlib import Path

import pytest

import miniml as ml
from miniml import ops
from miniml.ops import rules, validator

DOCS = Path(__file__).resolve().parents[2] / "docs"
ROW = re.compile(r"\| (?!---|.*\| test \|$)(.+?) \| (.+) \| (.+) \|$")
LINK = re.compile(r"\[(test_\w+)\]\[([\w/]+)\]")
NAMES = {"ml": ml, "ops": ops, "rules": rules, "validator": validator}
NAMED = re.compile(rf"\b({'|'.join(NAMES)})\.([\w.]+)")
TEXT = (DOCS / "kernel-system.md").read_text("utf-8")
FILES = dict(re.findall(r"^\[([\w/]+)\]: (\S+)$", TEXT, re.MULTILINE))
ROWS = [line for line in TEXT.splitlines() if ROW.match(line)]


def missing(row):
    """What a row of a table is linked to, or names, that there is not."""
    links = LINK.findall(ROW.match(row)[3])
    return [
        *(["a test"] * (not links)),
        *(test for test, label in links if not defines(DOCS / FILES.get(label, "?"), test)),
        *(f"{root}.{name}" for root, name in NAMED.findall(row) if not has(NAMES[root], name)),
    ]


def defines(path, test):
    return path.is_file() and f"def {test}(" in path.read_text("utf-8")


def has(module, name):
    try:
        return attrgetter(name.rstrip("."))(module) is not None
    except AttributeError:
        return False


@pytest.mark.parametrize("row", ROWS, ids=lambda row: ROW.match(row)[1][:60])
def test_a_row_has_its_test(row):
    assert missing(row) == []


def test_rows_are_in_tables_of_three_columns():
    lines = [line for line in TEXT.splitlines() if line.startswith("|")]
    tables = TEXT.count("|---|---|---|")
    assert len(lines) == len(ROWS) + 2 * tables
    assert len(ROWS) > 100


@pytest.mark.parametrize(
    ("row", "expected"),
    [
        ("| a | b | c |", ["a test"]),
        ("| a | b | [test_gone][notebooks] |", ["test_gone"]),
        ("| a | b | [test_gone][gone] |", ["test_gone"]),
        ("| a | `ml.gone` | [test_outputs][runtime/lives] |", ["ml.gone"]),
    ],
)
def test_a_row_without_is_found(row, expected):
    assert missing(row) == expected


def test_other_links_of_the_page_lead_somewhere():
    others = [path for path in re.findall(r"\]\(([^)#]+)\)", TEXT) if "tests/" not in path]
    assert [path for path in others if not (DOCS / path).is_file()] == []
    assert "../notebooks/04_kernel_system.ipynb" in others
