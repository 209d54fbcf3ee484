"""The notebooks run, and the stored ones are what their .py files make."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def test_notebooks_run_and_are_up_to_date():
    run = subprocess.run(
        [sys.executable, str(ROOT / "notebooks" / "execute.py"), "--check"],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert run.returncode == 0, run.stdout + run.stderr


def test_stored_notebooks_show_the_results_of_the_documents():
    text = (ROOT / "notebooks" / "01_first_primitive.ipynb").read_text("utf-8")
    for shown in ("[[0. 3.]", "[2. 5.]]", "[[0. 2. 4.]", "[1. 3. 5.]]", "[2. 2. 2. 2.]]"):
        assert shown in text
