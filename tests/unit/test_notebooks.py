"""The notebooks run in processes of their own, under the default settings as for users, and the
stored ones are what their .py files make."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SOURCES = sorted((ROOT / "notebooks").glob("[0-9]*.py"))


def test_notebooks_run_and_are_up_to_date():
    run = subprocess.run(
        [sys.executable, str(ROOT / "notebooks" / "execute.py"), "--check"],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert run.returncode == 0, run.stdout + run.stderr


@pytest.mark.parametrize(
    ("name", "last"), [("01_first_primitive", "[2. 2. 2. 2.]]"), ("04_kernel_system", "[2 2 2 2]]")]
)
def test_stored_notebooks_show_the_results_of_the_documents(name, last):
    text = (ROOT / "notebooks" / f"{name}.ipynb").read_text("utf-8")
    for shown in ("[[0. 3.]", "[2. 5.]]", "[[0. 2. 4.]", "[1. 3. 5.]]", last):
        assert shown in text


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: path.stem)
def test_files_that_a_notebook_names_exist(path):
    named = re.findall(r"`((?:miniml|docs|notebooks)/[\w/.-]+)`", path.read_text("utf-8"))
    assert named or path.stem == "01_first_primitive"
    assert [name for name in named if not (ROOT / name).is_file()] == []


def test_framework_from_nothing_has_the_length_that_it_says():
    text = (ROOT / "notebooks" / "00_from_nothing.py").read_text("utf-8")
    code = [line for line in text.splitlines() if line and not line.startswith("#")]
    assert 150 < len(code) <= 200
