"""What a user reads: the program once and no more of it than defines the primitive, one finding for
one cause, and an OpInfo to give where valid inputs cannot be guessed."""

import subprocess
import sys
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from miniml.testing import opcheck
from tests.faults import layers

LAYERS = Path(layers.__file__)
ASK = """
if __name__ == "__main__":
    from miniml.testing import opcheck
    print(opcheck({}, raise_error=False, budget=60))
"""


@pytest.fixture(scope="module")
def asked(tmp_path_factory):
    """The report on a primitive of a user's script, in which other things are defined, too."""
    folder = tmp_path_factory.mktemp("users")

    @cache
    def ask(made):
        script = folder / "layers.py"
        script.write_text(LAYERS.read_text() + ASK.format(made))
        ran = subprocess.run([sys.executable, str(script)], capture_output=True, text=True)
        assert ran.returncode == 0, ran.stderr
        return ran.stdout

    return ask


@pytest.mark.parametrize(("made", "others"), [
    ("LinearSystem()", ("PNorm", "unrelated")), ("Ratio()", ("LinearSystem", "PNorm", "unrelated")),
    pytest.param("PNorm()", ("LinearSystem", "unrelated"), marks=pytest.mark.deep),
])  # fmt: skip
def test_a_report_is_short_and_shows_the_checked_class_alone_and_once(asked, made, others):
    text = asked(made)
    assert len(text.splitlines()) <= 60, text
    assert text.count(f"class {made[:-2]}(") == 1, text
    for other in others:
        assert other not in text, text


@pytest.mark.parametrize(
    "made", ["LinearSystem()", pytest.param("PNorm()", marks=pytest.mark.deep)]
)
def test_where_inputs_cannot_be_guessed_it_says_the_opinfo_to_give(asked, made):
    text = asked(made)
    assert "no faults" in text, text
    assert "should only some numbers be valid, give these:" in text, text
    assert f"opcheck({made[:-2]}(" in text, text
    assert "OpInfo(" in text, text


@pytest.mark.parametrize("name", ["LinearSystem", pytest.param("PNorm", marks=pytest.mark.deep)])
def test_the_opinfo_that_is_proposed_will_do(name):
    report = opcheck(getattr(layers, name)(), raise_error=False, budget=60)
    *definition, last = report.samples
    known = {**vars(layers), "np": np}
    exec("\n".join(definition), known)
    again = eval(last[:-1] + ", raise_error=False, budget=60)", known)
    assert {f.check for f in again.findings} <= {"refusals"}, str(again)
    assert not again.samples


def test_what_one_line_raises_is_one_finding(asked):
    """However many checks run into it."""
    text = asked("Ratio()")
    assert text.count("ZeroDivisionError") == 1, text
