"""python -m miniml onnx coverage MODEL: which operators a model needs, and which are missing."""

from __future__ import annotations

import argparse
from pathlib import Path

from ..onnx import coverage


def add(command: argparse.ArgumentParser) -> None:
    actions = command.add_subparsers(required=True, metavar="ACTION")
    listed = actions.add_parser(
        "coverage", help="the operators of a model, and which of them no row reads"
    )
    listed.add_argument("model", help="path/to/model.onnx")
    listed.set_defaults(run=lambda options: run(options.model))


def run(model: str) -> int:
    """Print the list; 1 where something is missing, else 0."""
    found = coverage(Path(model))
    print(found)
    return 1 if found.missing else 0
