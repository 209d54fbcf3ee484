"""Parts that the modules of steps share: arguments, and a result that is saved as it grows."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from tools.gpu.runner import save


class Result(dict[str, Any]):
    """Findings of a step; `save` after each part keeps it should the step be interrupted."""

    def __init__(self, path: Path | None):
        super().__init__()
        self.path = path

    def save(self) -> None:
        """Write what is known."""
        if self.path is not None:
            save(self.path, self)


def arguments(about: str | None, *more: tuple[str, dict[str, Any]]) -> argparse.Namespace:
    """--result, --device, and what the step adds. `found` is its Result."""
    parser = argparse.ArgumentParser(description=about)
    parser.add_argument("--result", type=Path)
    parser.add_argument("--device", default="cuda", choices=("cuda", "cuda-sim"))
    for name, options in more:
        parser.add_argument(name, **options)
    given = parser.parse_args()
    given.found = Result(given.result)
    return given
