"""Run the programs, print their numbers and write the pictures of the gallery: `make gallery`."""

import importlib
import sys
import time
from pathlib import Path

HERE = Path(__file__).parent
GALLERY = HERE.parent / "docs" / "gallery"


def main(names):
    GALLERY.mkdir(exist_ok=True)
    for name in names or sorted(p.stem for p in HERE.glob("[a-z]*.py")):
        started = time.perf_counter()
        found = importlib.import_module(f"examples.{name}").main(GALLERY / f"{name}.png")
        print(f"{name}: {found:.4g} in {time.perf_counter() - started:.0f} s")


if __name__ == "__main__":
    main(sys.argv[1:])
