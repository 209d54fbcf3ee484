"""Programs that tests start as ranks: real processes under MPI, which end by themselves."""

import os
import subprocess
import sys
from pathlib import Path
from textwrap import dedent
from typing import NamedTuple

import pytest

from tests.conftest import HAS_MPI

ROOT = Path(__file__).parents[3]
needs_mpi = pytest.mark.skipif(not HAS_MPI, reason="no mpi4py with an mpiexec")
LIMIT = 120  # seconds after which mpiexec ends all ranks; the machine may be very busy


class Ended(NamedTuple):
    """The exit status of mpiexec, what the ranks printed, and what they wrote to stderr."""

    status: int
    out: str
    err: str


def ranks(size, program, folder, *args, launcher=("-m", "mpi4py")):
    """Run the text of a program in `size` processes."""
    done = subprocess.run(
        write(size, program, folder, *args, launcher=launcher),
        cwd=folder,
        env=environment(),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=LIMIT + 60,
    )
    return Ended(done.returncode, done.stdout, done.stderr)


def write(size, program, folder, *args, launcher=("-m", "mpi4py")):
    """The command that runs the text of a program, which is written into the folder."""
    script = folder / "program.py"
    script.write_text(dedent(program), "utf-8")
    mpiexec = Path(sys.executable).with_name("mpiexec")
    return [mpiexec, "-n", str(size), sys.executable, *launcher, str(script), *args]


def environment():
    """The variables of ranks: those of this process without any of a launcher."""
    inherited = {k: v for k, v in os.environ.items() if not k.startswith(("PMI", "OMPI", "HYDRA"))}
    own = {"MPIEXEC_TIMEOUT": str(LIMIT), "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    return {**inherited, **own}
