"""pytest --miniml-opcheck: one test per primitive, without loading miniml otherwise."""

import os
import subprocess
import sys
from pathlib import Path

PLUGINS = ("-p", "_miniml_pytest", "-p", "pytest_timeout")
SNAKES = Path(__file__).parents[2] / "faults" / "snakes.py"


def pytest_on(*args, cwd):
    return subprocess.run(
        [sys.executable, "-m", "pytest", *PLUGINS, "-q", "-rA", *args],
        cwd=cwd, capture_output=True, text=True,
        # Else the summary is cut, by the checkout's path, and other plugins load for half a second.
        env=os.environ | {"COLUMNS": "300", "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
    )  # fmt: skip


def test_a_file_has_one_test_per_primitive_beside_tests_that_are_asked_for(tmp_path):
    (tmp_path / "test_it.py").write_text("def test_other(): pass\ndef test_out(): pass\n")
    asked = ("test_it.py", "-k", "other or snakes")
    ran = pytest_on(
        *asked, "--miniml-opcheck", str(SNAKES), "--miniml-opcheck-budget", "1", cwd=tmp_path
    )
    assert ran.returncode == 1, ran.stdout + ran.stderr
    assert "1 failed, 2 passed, 1 deselected" in ran.stdout
    assert "snakes.py::adder - opcheck Test" in ran.stdout
    assert "writes into input 0" in ran.stdout
    assert "Traceback" not in ran.stdout


def test_a_module_is_found_by_its_name(tmp_path):
    ran = pytest_on("--miniml-opcheck", "miniml.ops.elementwise", "--collect-only", cwd=tmp_path)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "miniml.ops.elementwise::GELU" in ran.stdout


def test_the_budget_is_passed_on(tmp_path):
    ran = pytest_on(
        "--miniml-opcheck", str(SNAKES), "--miniml-opcheck-budget", "0", "-k", "Snake", cwd=tmp_path
    )
    assert ran.returncode == 1, ran.stdout + ran.stderr
    assert "nothing was checked before the budget was used up" in ran.stdout


def test_what_cannot_be_found_is_said(tmp_path):
    missing = pytest_on("--miniml-opcheck", "nowhere.py", cwd=tmp_path)
    assert "nowhere.py: there is no such file" in missing.stdout + missing.stderr
    without = pytest_on("--miniml-opcheck", "miniml.core.abstract", cwd=tmp_path)
    assert "it defines no primitive" in without.stdout + without.stderr
    absent = pytest_on("--miniml-opcheck", "no_such.primitives", cwd=tmp_path)
    assert "there is no module no_such where Python looks" in absent.stdout
    for ran in (missing, without, absent):
        assert ran.returncode == 2, ran.stdout
        assert "Traceback" not in ran.stdout


def test_both_checkers_are_fixtures(tmp_path):
    (tmp_path / "test_it.py").write_text(
        "from miniml import ops\n"
        "def test_right(gradcheck, opcheck):\n"
        "    assert gradcheck(ops.sin, 0.5)\n"
        "    assert opcheck(ops.Sin(), checks=('rules',))\n"
        "def test_wrong(gradcheck):\n"
        "    gradcheck(lambda x: ops.stop_gradient(x) * x, 0.5)\n"
    )
    ran = pytest_on("test_it.py", cwd=tmp_path)
    assert "1 failed, 1 passed" in ran.stdout, ran.stdout + ran.stderr
    assert "GradientError" in ran.stdout


def test_pytest_does_not_load_miniml_unless_asked(tmp_path):
    (tmp_path / "test_it.py").write_text(
        "import sys\ndef test_it(): assert 'miniml' not in sys.modules\n"
    )
    ran = pytest_on("test_it.py", cwd=tmp_path)
    assert ran.returncode == 0, ran.stdout + ran.stderr
