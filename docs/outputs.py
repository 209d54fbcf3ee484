"""Run the documents' Python blocks and store what they print: `python -m docs.outputs`."""

import os
import re
import subprocess
import sys
import tempfile
from itertools import groupby
from pathlib import Path

from tests.unit.test_readme import DOCUMENTS, ROOT, Block, fenced_blocks, script


def printed(blocks: list[Block]) -> list[tuple[Block, str]]:
    """Each output block of a section, with what its code prints before it now."""
    code = [b for b in blocks if b.language == "python" and b.not_run is None]
    marked = [b._replace(code=f"{b.code}print('@@{b.line}@@')\n") for b in code]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "document.py"
        path.write_text(script(marked))
        run = subprocess.run(
            [sys.executable, str(path)],
            cwd=folder,
            env={**os.environ, "PYTHONPATH": str(ROOT), "MPLBACKEND": "Agg"},
            stdout=subprocess.PIPE,
            text=True,
            check=True,
        )
    parts = re.split(r"@@(\d+)@@\n", run.stdout)
    by_line = dict(zip(map(int, parts[1::2]), parts[::2]))
    found, before = [], 0
    for block in blocks:
        if block.language == "python":
            before = block.line
        else:
            found.append((block, by_line[before]))
    return found


def main() -> None:
    for path in DOCUMENTS:
        text = path.read_text("utf-8")
        lines = text.splitlines()
        sections = groupby(fenced_blocks(text), key=lambda block: block.section)
        groups = [list(blocks) for _, blocks in sections]
        expected = [blocks for blocks in groups if any(b.language == "text" for b in blocks)]
        stored = [pair for blocks in expected for pair in printed(blocks)]
        for block, output in reversed(stored):
            end = block.line - 1 + len(block.code.strip("\n").splitlines())
            lines[block.line - 1 : end] = [line.rstrip() for line in output.strip().splitlines()]
        path.write_text("\n".join(lines) + "\n", "utf-8")


if __name__ == "__main__":
    main()
