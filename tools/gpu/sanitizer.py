"""compute-sanitizer, memcheck and racecheck, on a few kernels of each kind."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys

from tools.gpu.runner import ROOT
from tools.gpu.step import arguments

TOOLS = ("memcheck", "racecheck")
SUMMARY = re.compile(r"(?:ERROR|RACECHECK) SUMMARY: (\d+)")
SECONDS = 80  # for each tool


def executable() -> str | None:
    """compute-sanitizer, on the path or where CUDA is usually installed."""
    home = os.environ.get("CUDA_PATH", os.environ.get("CUDA_HOME", "/usr/local/cuda"))
    return shutil.which("compute-sanitizer") or shutil.which(
        "compute-sanitizer", path=f"{home}/bin"
    )


def main() -> int:
    given = arguments(__doc__)
    found = given.found
    path = executable()
    if given.device == "cuda-sim":
        found["absent"] = "the simulator's check mode looks for the same faults in every test"
    elif path is None:
        found["absent"] = "there is no compute-sanitizer on this machine"
    found.save()
    if "absent" in found:
        return 0
    wrong = 0
    for tool in TOOLS:
        try:
            run = subprocess.run(
                [path, "--tool", tool, sys.executable, "-m", "tools.gpu.subset"],
                capture_output=True, text=True, cwd=ROOT, timeout=SECONDS,
            )  # fmt: skip
            said = run.stdout + run.stderr
        except subprocess.TimeoutExpired as error:
            said = f"{(error.stdout or b'').decode(errors='replace')}\nmore than {SECONDS} s"
        counted = SUMMARY.search(said)
        errors = int(counted.group(1)) if counted else None
        found[tool] = {"errors": errors, "said": said[-1500:] if errors != 0 else ""}
        found.save()
        wrong += errors != 0
    if all(found[tool]["errors"] is None for tool in TOOLS):
        found["absent"] = (
            f"compute-sanitizer does not work here: {found['memcheck']['said'][-300:]}"
        )
        found.save()
        return 0
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
