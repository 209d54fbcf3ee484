"""python -m miniml onnx coverage MODEL: which operators a model needs, and which are missing."""

from __future__ import annotations

from pathlib import Path

from ..onnx import coverage


def run(model: str) -> int:
    """Print the list; 1 where something is missing, else 0."""
    found = coverage(Path(model))
    print(found)
    return 1 if found.missing else 0
