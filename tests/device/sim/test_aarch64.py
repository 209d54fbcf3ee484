"""The simulator on aarch64, which another machine emulates: both modes, three schedules."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from .aarch64 import COMPILER, EMULATOR

ROOT = Path(__file__).parents[3]


@pytest.mark.deep
@pytest.mark.skipif(
    not (shutil.which(COMPILER) and shutil.which(EMULATOR)),
    reason=f"no aarch64 here: it takes {COMPILER} and {EMULATOR}",
)
def test_fibers_barriers_shuffles_and_the_checker(tmp_path):
    done = subprocess.run(
        [sys.executable, "-m", "tests.device.sim.aarch64"],
        cwd=ROOT,
        env={**os.environ, "CXX": COMPILER, "MINIML_CACHE": str(tmp_path)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    for name, printed in json.loads(done.stdout).items():
        *faults, sums = printed.splitlines()
        if name.startswith("right"):
            assert (faults, sums) == ([], "2997 2998 2999 8994"), name
        elif "check" in name:
            assert any("which the block has not written" in f or "races" in f for f in faults), name
        else:
            assert not faults, name
