"""The README's Python blocks run as they stand, section by section."""

import ast
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).resolve().parents[2]
README = ROOT / "README.md"
NOT_RUN = re.compile(r"<!--\s*not run:(.*?)-->")


class Block(NamedTuple):
    """One fenced Python block: its section, the line its code starts on, and why it is not run."""

    section: str
    line: int
    code: str
    not_run: str | None


def python_blocks(text: str) -> list[Block]:
    """The ```python blocks of a Markdown text. Headings of level 1 and 2 begin a section."""
    blocks, section, above = [], "start", ""
    fence, start, code = None, 0, []
    for number, line in enumerate(text.splitlines(), 1):
        if fence is not None:
            if line.strip() == "```":
                if fence == "python":
                    mark = NOT_RUN.search(above)
                    reason = mark[1].strip() if mark else None
                    blocks.append(Block(section, start, "\n".join(code) + "\n", reason))
                fence, above = None, ""
            else:
                code.append(line)
        elif line.startswith("```"):
            words = line[3:].split()
            fence, start, code = words[0] if words else "", number + 1, []
        elif re.match(r"##? ", line):
            section = line.lstrip("# ").strip()
        elif line.strip():
            above = line
    return blocks


def script(blocks: list[Block]) -> str:
    """One program of several blocks, every line of it on the line it has in the README."""
    lines: list[str] = []
    for block in blocks:
        lines += [""] * (block.line - 1 - len(lines))
        lines += block.code.splitlines()
    return "\n".join(lines) + "\n"


BLOCKS = python_blocks(README.read_text("utf-8")) if README.exists() else []
SECTIONS = list(dict.fromkeys(block.section for block in BLOCKS if block.not_run is None))


@pytest.mark.parametrize("section", SECTIONS)
def test_section_runs(section, tmp_path):
    """A process of its own: a section may define primitives, whose names are global."""
    path = tmp_path / "README.py"
    path.write_text(script([b for b in BLOCKS if b.section == section and b.not_run is None]))
    run = subprocess.run(
        [sys.executable, "-W", "error", str(path)],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT), "MPLBACKEND": "Agg"},
        capture_output=True,
        text=True,
    )
    assert run.returncode == 0, f"README.md, section {section!r}:\n{run.stderr}"


def test_blocks_that_are_not_run_are_python_and_say_why():
    for block in BLOCKS:
        if block.not_run is not None:
            ast.parse(block.code, f"README.md, the block on line {block.line}")
            assert block.not_run


def test_readme_has_something_to_run():
    assert SECTIONS, "README.md has no Python block that runs"


def test_blocks_keep_their_lines_and_reasons():
    text = "# A\n```python\nx = 1\n```\n## B\n<!-- not run: needs a GPU -->\n\n```python\ny\n```\n"
    text += "words\n```text\nnothing\n```\n\n```python\nraise OSError\n```\n"
    run, skipped, failing = python_blocks(text)
    assert run == Block("A", 3, "x = 1\n", None)
    assert skipped == Block("B", 9, "y\n", "needs a GPU")
    assert failing.section == "B"
    assert failing.not_run is None
    assert script([run, failing]).splitlines().index("raise OSError") + 1 == failing.line
