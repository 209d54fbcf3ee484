"""`bench`: runs the benchmarks of a checkout."""

from __future__ import annotations

import importlib.util
import runpy
import sys
from argparse import ArgumentParser


def add(command: ArgumentParser) -> None:
    command.description = (
        "Run the benchmarks of a checkout, as `make bench` does: training steps beside NumPy "
        "written by hand, memory beside its lower bound, compile and import times, and the "
        "checkers beside other systems that are installed. Best on an idle machine; some minutes."
    )
    command.set_defaults(run=lambda o: run())


def run() -> int:
    """Run them; returns the exit code."""
    if importlib.util.find_spec("benchmarks") is None:
        print(
            "miniml: the benchmarks are not installed with miniml; run this, or `make bench`, in "
            "the top folder of a checkout",
            file=sys.stderr,
        )
        return 2
    runpy.run_module("benchmarks", run_name="__main__", alter_sys=True)
    return 0
