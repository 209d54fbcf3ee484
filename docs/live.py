"""Run the code of docs/live.md and keep what it writes for the site: `python -m docs.live`.

The page's sections run in one process, in build/extra/live, which Sphinx copies as it is. What a
section prints is kept as a text of its own. A section that needs a compiler which this machine
lacks leaves pictures or a sentence instead, and the site is built all the same.
"""

from __future__ import annotations

import contextlib
import io
import re
import shutil
import sys
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path
from typing import Any

from miniml import errors
from tests.unit.test_readme import fenced_blocks, script

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "live.md"
MADE = ROOT / "build" / "extra" / "live"
STAMP = MADE / "made"
INSTEAD = """<!doctype html><html lang="en"><meta charset="utf-8"><title>miniml</title>
<p>This copy of the site was built on a machine without what the page needs: {why}.</p>
<p><img src="picture.png" alt="the digits network of an earlier run" style="max-width: 100%"></p>
"""


def sections(text: str) -> Iterator[tuple[str, str]]:
    """The code of each section that has some, with a name from its heading."""
    for title, blocks in groupby(fenced_blocks(text), key=lambda block: block.section):
        code = [block for block in blocks if block.language == "python"]
        yield re.sub(r"\W+", "_", title.lower()), script(code)


def run(text: str, folder: Path) -> list[str]:
    """Run the sections in a folder, which becomes the current one; returns those that could not
    be made, with the reason."""
    names: dict[str, Any] = {"__name__": "live"}
    missing = []
    with contextlib.chdir(folder):
        for title, code in sections(text):
            said = io.StringIO()
            try:
                with contextlib.redirect_stdout(said):
                    exec(compile(code, PAGE, "exec"), names)
            except (errors.ExportError, errors.CompileError, errors.DeviceError) as error:
                why = str(error).partition("\n")[0]
                missing.append(f"{title}: {why}")
                print(why, file=said)
            Path(f"{title}.txt").write_text(said.getvalue(), "utf-8")
    return missing


def replace_page(folder: Path, why: str) -> None:
    """Put a picture in the place of the page of digits."""
    folder.mkdir(exist_ok=True)
    shutil.copyfile(ROOT / "docs" / "gallery" / "digits.png", folder / "picture.png")
    (folder / "index.html").write_text(INSTEAD.format(why=why), "utf-8")


def up_to_date() -> bool:
    """True if nothing that the page runs has changed since it ran."""
    made_of = [PAGE, Path(__file__), *(ROOT / "miniml").rglob("*.*")]
    kept = [path for path in made_of if path.suffix not in (".pyc", "")]
    return STAMP.exists() and STAMP.stat().st_mtime > max(p.stat().st_mtime for p in kept)


def main() -> None:
    """Run the page, unless that was done."""
    if up_to_date():
        return
    shutil.rmtree(MADE, ignore_errors=True)
    MADE.mkdir(parents=True)
    missing = run(PAGE.read_text("utf-8"), MADE)
    if not (MADE / "digits" / "index.html").exists():
        replace_page(MADE / "digits", missing[0].partition(": ")[2])
    for reason in missing:
        print(f"==> Not live: {reason}", file=sys.stderr)
    STAMP.write_text("")


if __name__ == "__main__":
    main()
