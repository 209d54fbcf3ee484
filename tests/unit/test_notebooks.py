"""The notebooks run in processes of their own, under the default settings as for users, and the
stored ones are what their .py files make."""

import importlib.util
import re
import subprocess
import sys
from pathlib import Path

import jupytext
import nbformat
import pytest

ROOT = Path(__file__).resolve().parents[2]
SOURCES = sorted((ROOT / "notebooks").glob("[0-9]*.py"))
PICTURES = {"03": 1, "05": 7, "06": 1, "07": 4, "08": 4, "09": 3}


def run(*numbers):
    return subprocess.run(
        [sys.executable, str(ROOT / "notebooks" / "execute.py"), "--check", *numbers],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )


def test_notebooks_run_and_are_up_to_date():
    done = run("00", "01", "02", "03", "04")
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.deep
@pytest.mark.timeout(1000)
@pytest.mark.parametrize("number", ["05", "06", "07", "08", "09", "10", "11", "12", "13"])
def test_what_a_notebook_claims_holds(number):
    for package in {"10": ("torch", "jax")}.get(number, ()):
        pytest.importorskip(package, reason=f"no {package}")
    done = run(number)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "cells ran" in done.stdout


def test_a_notebook_whose_packages_are_missing_is_not_run(tmp_path, monkeypatch, capsys):
    """It stays as it is, and a line says so."""
    spec = importlib.util.spec_from_file_location("execute", ROOT / "notebooks" / "execute.py")
    execute = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(execute)
    source = "import numpy as np\nimport no_such_package.part\nfrom absent_one import x\n"
    (tmp_path / "00_other.py").write_text(source)
    monkeypatch.setattr(execute, "FOLDER", tmp_path)
    monkeypatch.setattr(sys, "argv", ["execute.py"])
    assert execute.main() == 0
    assert capsys.readouterr().out == "00_other.py: not run, no absent_one, no_such_package\n"
    assert [p.name for p in tmp_path.iterdir()] == ["00_other.py"]


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: path.stem)
def test_stored_notebooks_are_what_their_sources_make(path):
    stored = nbformat.read(path.with_suffix(".ipynb"), as_version=4)
    assert [c.source for c in stored.cells] == [c.source for c in jupytext.read(path).cells]
    outputs = [o for cell in stored.cells for o in cell.get("outputs", ())]
    assert not any(o.output_type == "error" for o in outputs)
    assert sum("image/png" in o.get("data", ()) for o in outputs) == PICTURES.get(path.stem[:2], 0)


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
