"""tools/gpu_check.py: steps that fail or hang are noted, results are kept, and the simulator stands
in for a GPU."""

import json
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

from benchmarks.gpu import table
from benchmarks.gpu.cases import cases
from tests.conftest import HAS_CXX
from tools import gpu_check
from tools.gpu import device_tests
from tools.gpu.runner import Step, run, save
from tools.gpu.ulps import ulps

ROOT = Path(gpu_check.__file__).parents[1]
PART = (
    "import json, sys, time; from pathlib import Path; "
    "Path(sys.argv[-1]).write_text(json.dumps({'part': 1})); "
)


needs_a_compiler = pytest.mark.skipif(not HAS_CXX, reason="no C++ compiler here")


def step(name, text, seconds=30.0):
    return Step(name, (sys.executable, "-c", text), seconds)


def command(*args):
    return subprocess.run(
        [sys.executable, "tools/gpu_check.py", *args], cwd=ROOT, capture_output=True, text=True
    )


class TestRunner:
    def test_a_step_that_fails_or_hangs_is_noted_and_the_others_go_on(self, tmp_path):
        out, message = tmp_path / "deep" / "found.json", []
        planted = [
            step("first", PART),
            step("raises", f"{PART}raise ValueError('planted')"),
            step("hangs", f"{PART}time.sleep(60)", seconds=1.5),
            step("absent", PART.replace("'part': 1", "'absent': 'no such thing'")),
            step("says nothing", "pass"),
        ]
        found = run(planted, out, 100, {"device": "none"}, message.append)
        assert json.loads(out.read_text()) == found
        assert [s["status"] for s in found["steps"].values()] == [
            "ok", "failed", "timeout", "skipped", "ok"
        ]  # fmt: skip
        raises, hangs = found["steps"]["raises"], found["steps"]["hangs"]
        assert (raises["why"], raises["exit"]) == ("ValueError: planted", 1)
        assert "Traceback" in raises["printed"]
        assert hangs["why"] == "more than 2 s"
        assert raises["result"] == hangs["result"] == {"part": 1}
        assert found["steps"]["absent"]["why"] == "no such thing"
        assert found["steps"]["says nothing"]["result"] == {}
        assert [line.split()[0] for line in message] == "first raises hangs absent says".split()

    def test_the_time_of_all_is_limited(self, tmp_path):
        planted = [step("a", "import time; time.sleep(60)"), step("b", "pass")]
        found = run(planted, tmp_path / "found.json", 1.5, say=lambda line: None)
        assert [s["status"] for s in found["steps"].values()] == ["timeout", "left out"]

    def test_a_file_is_old_or_new_never_half(self, tmp_path):
        path = tmp_path / "found.json"
        save(path, {"a": 1})
        with pytest.raises(TypeError):
            save(path, {"a": object()})
        assert json.loads(path.read_text()) == {"a": 1}


class TestCommand:
    def test_every_step_is_a_module_that_exists(self):
        modules = [step.command[2] for step in gpu_check.steps("cuda-sim")]
        assert len(modules) == 8
        assert [m for m in modules if find_spec(m) is None] == []

    def test_without_a_gpu_it_says_so(self, monkeypatch):
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
        ran = command()
        assert ran.returncode == 2
        assert ran.stdout == ""
        assert ran.stderr.startswith("device 'cuda' is not available: ")
        assert ran.stderr.count("\n") == 1

    def test_a_missing_package_is_named(self, monkeypatch):
        monkeypatch.setitem(sys.modules, "miniml.backends.selection", None)
        assert "miniml does not start here" in gpu_check.absent("cuda-sim")

    @needs_a_compiler
    def test_on_the_simulator(self, tmp_path):
        out = tmp_path / "found.json"
        ran = command(
            "--device", "cuda-sim", "--out", str(out), "--steps", "machine,ulps,sanitizer"
        )
        assert ran.returncode == 0, ran.stdout + ran.stderr
        found = json.loads(out.read_text())
        steps = {name: s["status"] for name, s in found["steps"].items()}
        assert steps == {"machine": "ok", "ulps": "ok", "sanitizer": "skipped"}
        assert found["steps"]["machine"]["result"]["versions"]["numpy"] == np.__version__
        summary = found["steps"]["ulps"]["result"]
        assert (summary["raised"], summary["compared"]) == ({}, 6)
        assert summary["differing"] <= 5
        kernels = json.loads((tmp_path / "found_ulp.json").read_text())["kernels"]
        assert len(kernels) == 6
        assert kernels["Softmax float32"]["of_largest"] <= 4
        assert kernels["ArgMax float32"]["ulp"] == 0

    @needs_a_compiler
    @pytest.mark.deep
    def test_all_steps_on_the_simulator(self, tmp_path):
        out = tmp_path / "found.json"
        ran = command("--device", "cuda-sim", "--out", str(out))
        assert ran.returncode == 0, ran.stdout + ran.stderr
        steps = json.loads(out.read_text())["steps"]
        timed = steps["speed miniml"]["result"]["cases"]
        assert {c.name for c in cases("cuda-sim")} < set(timed)
        assert all("us" in case for case in timed.values()), timed
        assert steps["tests"]["result"]["passed"] > 10
        assert steps["speed torch"]["why"] == "peers are timed on a GPU"


class TestParts:
    def test_ulps(self):
        one = np.float32([1.0, -2.0, 0.0, np.inf])
        assert ulps(one, one) == (0, 0, 0)
        near = np.nextafter(one[:2], np.float32(9))
        assert ulps(near, one[:2]) == (1, 0.5, 0)
        assert ulps(np.float32([np.nan, 1e-45]), np.float32([1.0, 0.0])) == (0, 0, 1)
        assert ulps(np.float64([5e-324]), np.float64([0.0])) == (1, 1, 0)
        assert ulps(np.int8([3]), np.int8([-4])) == (7, 7, 0)
        assert ulps(np.float16([1.001]), np.float16([1.0]))[0] == 1
        assert ulps(np.zeros(0), np.zeros(0)) == (0, 0, 0)
        assert ulps(np.float32(3), np.float32(4)) == (2**21, 2**21, 0)

    def test_reports_of_pytest(self, tmp_path):
        report = tmp_path / "junit.xml"
        assert device_tests.summary(report) == {}
        report.write_text(
            "<testsuites><testsuite><testcase classname='t' name='a'/>"
            "<testcase classname='t' name='b'><failure message='wrong&#10;more'/></testcase>"
            "<testcase classname='t' name='c'><skipped/></testcase></testsuite></testsuites>"
        )
        failures = [{"test": "t::b", "said": "wrong"}]
        assert device_tests.summary(report) == {
            "passed": 1, "failed": 1, "skipped": 1, "failures": failures
        }  # fmt: skip
        report.write_text("<testsuites><half")
        assert device_tests.summary(report) == {}

    def test_cases_have_inputs_that_no_cache_holds(self):
        for case in cases("cuda"):
            once = sum(np.prod(s) for s in case.shapes) * np.dtype(case.dtype).itemsize
            assert case.sets() >= 2
            assert case.sets() * once >= 128 << 20
        for case in cases("cuda-sim"):
            first, second = case.arrays(0)[0], case.arrays(1)[0]
            assert first.dtype == case.dtype
            assert not np.array_equal(first, second)


FOUND = {
    "device": "cuda",
    "started": "2030-01-02 03:04 UTC",
    "steps": {
        "machine": {
            "status": "ok",
            "result": {"gpu": "A GPU", "versions": {"python": "3.12.3"}, "commit": "abc"},
        },
        "tests": {"status": "ok", "result": {"passed": 9, "failed": 0}},
        "ulps": {
            "status": "ok",
            "result": {
                "against": "cuda-sim",
                "worst": {"Exp float32": 1.5, "Add float32": 0},
                "compared": 2,
                "differing": 1,
            },
        },
        "sanitizer": {"status": "skipped", "why": "none here", "result": {}},
        "speed miniml": {
            "status": "ok",
            "result": {
                "cases": {
                    "copy": {"us": 100.0, "GB/s": 4000.0},
                    "add": {"us": 200.0, "GB/s": 3600.0},
                    "matmul": {"us": 50.0, "TFLOP/s": 40.5},
                    "step with a CUDA graph": {"us": 30.0},
                    "step without": {"us": 90.0},
                    "odd": {"raised": "ValueError: a|b"},
                }
            },
        },
        "speed torch": {
            "status": "ok",
            "result": {"cases": {"add": {"us": 160.0}, "step": {"us": 60.0}}},
        },
    },
}


class TestTable:
    def test_what_is_written(self, tmp_path):
        document = tmp_path / "cuda.md"
        document.write_text(f"before\n{table.BEGIN}\nold\n{table.END}\nafter\n")
        table.put(document, FOUND)
        lines = document.read_text().splitlines()
        assert (lines[0], lines[-1]) == ("before", "after")
        assert "A GPU; python 3.12.3; commit abc, 2030-01-02 03:04 UTC." in lines
        assert "- tests: ok, 9 passed, 0 failed" in lines
        assert "- ulps: ok, 1 of 2 differ from cuda-sim, most of all Exp float32: 1.5 ulp" in lines
        assert "- sanitizer: skipped (none here)" in lines
        assert "| add | 200.0 | 90% | 1.25 |" in lines
        assert "| matmul | 50.0 | 40.5 TFLOP/s |  |" in lines
        assert "| step with a CUDA graph | 30.0 |  | 0.50 |" in lines
        assert "| step without | 90.0 |  | 1.50 |" in lines
        assert "| odd | ValueError: a/b |  |  |" in lines
        table.put(document, None)
        assert document.read_text() == (
            f"before\n{table.BEGIN}\n{table.NOTHING}\n{table.END}\nafter\n"
        )

    def test_the_document_has_a_place_for_it(self, tmp_path):
        whole = gpu_check.DOCUMENT.read_text()
        assert whole.count(table.BEGIN) == 1
        assert whole.count(table.END) == 1
        results = gpu_check.RESULTS["cuda"]
        if not results.exists():
            assert table.NOTHING in whole
        empty = tmp_path / "empty.md"
        empty.write_text("nothing")
        with pytest.raises(ValueError, match="has no"):
            table.put(empty, None)
