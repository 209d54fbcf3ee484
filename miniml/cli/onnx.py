"""`onnx coverage MODEL`: lists the operators of a model, and those that are missing."""

from __future__ import annotations

import argparse
from pathlib import Path

from ..onnx import coverage


def add(command: argparse.ArgumentParser) -> None:
    actions = command.add_subparsers(required=True, metavar="ACTION")
    listed = actions.add_parser(
        "coverage",
        help="the operators of a model, and which of them no row reads",
        description="The operators of a model, their versions, how many nodes use them, and which "
        "of them no row reads. Exit code 1 if there are such, 2 if the file cannot be read.",
    )
    listed.add_argument("model", help="path/to/model.onnx")
    listed.set_defaults(run=lambda options: run(options.model))


def run(model: str) -> int:
    """Print the list; returns 1 if an operator is missing, else 0."""
    found = coverage(Path(model))
    print(found)
    return 1 if found.missing else 0
