"""Settings: as `context` takes them, `set_context` describes them and docs/settings.md has them."""

import inspect
import re
from dataclasses import fields
from pathlib import Path

import miniml as ml
from miniml.core.settings import Settings, current

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/settings.md").read_text("utf-8")
OF_SETTINGS, OF_VARIABLES = PAGE.split("## Environment variables")
# Not of miniml: where commands are found.
OF_THE_SYSTEM = {"PATH"}


def rows(text):
    """The cells of the rows of a table, by the name in the first."""
    found = re.findall(r"^\| `(\w+)` \| (.*?) \| (.*)", text, re.MULTILINE)
    return {name: (default.strip("`"), rest) for name, default, rest in found}


def read_in(folder, *more):
    """The names of the environment variables that Python files below a folder read."""
    taken = r'environ(?:\.get\(|\[)"(\w+)"', *more
    texts = [path.read_text("utf-8") for path in sorted((ROOT / folder).rglob("*.py"))]
    return {name for text in texts for pattern in taken for name in re.findall(pattern, text)}


def test_every_setting_is_a_keyword_of_both_and_a_row_of_the_page():
    settings = [f.name for f in fields(Settings)][: -len(("watchers", "unwatched", "plans"))]
    assert list(inspect.signature(ml.set_context).parameters) == settings
    assert list(inspect.signature(ml.context).parameters) == settings
    assert list(rows(OF_SETTINGS)) == settings
    described = re.findall(r"^(\w+): ", inspect.getdoc(ml.set_context), re.MULTILINE)
    assert described == settings


def test_defaults_are_those_of_the_page():
    for name, (default, _) in rows(OF_SETTINGS).items():
        assert getattr(Settings(), name) == eval(default, vars(ml)), name


def test_the_words_of_the_page_are_taken():
    """In `values` whatever has quotation marks, and what is a name of miniml."""
    for name, (_, rest) in rows(OF_SETTINGS).items():
        values = re.findall(r"`((?:\"|ml\.)[^`]+)`", rest.split(" | ")[0])
        for text in values:
            value = eval(text, {"ml": ml})
            with ml.context(**{name: value}):
                assert getattr(current(), name) == ((value,) if name == "without" else value)


def test_every_environment_variable_that_is_read_has_a_row():
    listed = rows(OF_VARIABLES)
    assert read_in("miniml", r'variable="(\w+)"') - OF_THE_SYSTEM == set(listed)
    tests = {name for name in read_in("tests") if name.startswith("MINIML_")} - set(listed)
    assert tests == set(re.findall(r"`(MINIML_\w+)`", OF_VARIABLES)) - set(listed)
    developing = (ROOT / "docs/developing.md").read_text("utf-8")
    assert all(name in developing for name in tests)
