"""The tests of the device, and which of them failed."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

from tools.gpu.runner import ROOT
from tools.gpu.step import arguments

# The simulator stands in for a few tests, so that this very step is known to work.
TESTS = {
    "cuda": ("-m", "gpu", "tests/device"),
    "cuda-sim": ("-m", "not gpu", "-k", "TestTensors", "tests/device/test_programs.py"),
}
MOST_FAILURES = 30


def command(device: str, report: Path) -> list[str]:
    """pytest, in several processes where it can."""
    several = device == "cuda" and importlib.util.find_spec("xdist") is not None
    processes = ["-n", str(min(8, os.cpu_count() or 1))] if several else []
    options = ["-q", "-p", "no:cacheprovider", f"--maxfail={MOST_FAILURES}", *processes]
    options += ["-p", "no:benchmark"]  # pytest-benchmark, where it is, warns of several processes
    return [sys.executable, "-m", "pytest", *options, f"--junitxml={report}", *TESTS[device]]


def summary(report: Path) -> dict[str, Any]:
    """Counts, and the names and first lines of failures, of a JUnit file; {} where there is none,
    or half of one."""
    try:
        cases = list(ET.parse(report).iter("testcase"))
    except (OSError, ET.ParseError):
        return {}
    failures = [
        {"test": f"{case.get('classname')}::{case.get('name')}", "said": first_line(wrong)}
        for case in cases
        for wrong in (*case.iter("failure"), *case.iter("error"))
    ]
    skipped = sum(case.find("skipped") is not None for case in cases)
    passed = len(cases) - skipped - len({f["test"] for f in failures})
    return {"passed": passed, "failed": len(failures), "skipped": skipped, "failures": failures}


def first_line(wrong: Any) -> str:
    return str(wrong.get("message") or wrong.text or "").strip().partition("\n")[0][:300]


def main() -> int:
    given = arguments(__doc__)
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "junit.xml"
        process = subprocess.Popen(command(given.device, report), cwd=ROOT)
        try:
            code = process.wait()
        except KeyboardInterrupt:  # pytest is interrupted as well, and writes its report
            code = process.wait()
        given.found.update(summary(report))
        given.found["exit"] = code
        given.found.save()
    return code


if __name__ == "__main__":
    sys.exit(main())
