"""The Python blocks of the README and of the guides run as they stand, section by section."""

import ast
import os
import re
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).resolve().parents[2]
GUIDES = (
    "checking", "training", "sequences", "transforms", "compiling", "looking-inside", "passes",
    "graphs", "onnx", "complex", "interop", "export", "distributed",
)  # fmt: skip
API = ROOT / "docs" / "api"  # written by `make docs`, which checks the links in it
PAGES = tuple(
    path
    for path in (
        *ROOT.glob("*.md"),
        ROOT / "examples" / "README.md",
        *sorted(ROOT.glob("docs/**/*.md")),
    )
    if API not in path.parents
)
DOCUMENTS = (ROOT / "README.md", *(ROOT / f"docs/{name}.md" for name in GUIDES))
NOT_RUN = re.compile(r"<!--\s*not run:(.*?)-->")
COMPILER = any(map(shutil.which, ("c++", "g++", "clang++")))
NUMBER = re.compile(r"-?(\d+(\.\d*)?|\.\d+)(e[-+]?\d+)?")


class Block(NamedTuple):
    """One fenced block: its section, the line it starts on, its language, and the marks above it.

    not_run: why a Python block is not run. A text block marked `<!-- output -->` is what its
    section prints at that point.
    """

    section: str
    line: int
    code: str
    not_run: str | None
    language: str = "python"


def fenced_blocks(text: str) -> list[Block]:
    """The Python blocks and outputs of a Markdown text; headings of level 1 and 2 make sections."""
    blocks, section, above = [], "start", ""
    fence, start, code = None, 0, []
    for number, line in enumerate(text.splitlines(), 1):
        if fence is not None:
            if line.strip() == "```":
                mark = NOT_RUN.search(above)
                if fence == "python" or (fence == "text" and "<!-- output -->" in above):
                    reason = mark[1].strip() if mark else None
                    blocks.append(Block(section, start, "\n".join(code) + "\n", reason, fence))
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


def python_blocks(text: str) -> list[Block]:
    """The ```python blocks of a Markdown text."""
    return [block for block in fenced_blocks(text) if block.language == "python"]


def script(blocks: list[Block]) -> str:
    """One program of several blocks, every line of it on the line it has in the README."""
    lines: list[str] = []
    for block in blocks:
        lines += [""] * (block.line - 1 - len(lines))
        lines += block.code.splitlines()
    return "\n".join(lines) + "\n"


BLOCKS = {path.name: fenced_blocks(path.read_text("utf-8")) for path in DOCUMENTS}
SECTIONS = [
    (name, section)
    for name, blocks in BLOCKS.items()
    for section in dict.fromkeys(
        b.section for b in blocks if b.language == "python" and b.not_run is None
    )
]


def words(text: str) -> list[str]:
    """A text without its numbers, which machines may differ in, and without its spacing."""
    return re.sub(r"#(, ?#)*", "#", NUMBER.sub("#", text)).split()


# A process that has imported miniml and forks for each program that it is told of: an import takes
# as long as most sections, and so does an end that looks for garbage in what is imported.
FORKS = """
import gc, os, sys
import scipy.special
import miniml.data, miniml.export, miniml.grad, miniml.nn, miniml.onnx, miniml.optim
import miniml.testing, miniml.train
gc.freeze()
for line in sys.stdin:
    path = line.rstrip("\\n")
    child = os.fork()
    if child:
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
        continue
    for number, name in enumerate(("/dev/null", path + ".out", path + ".err")):
        os.dup2(os.open(name, os.O_RDWR | os.O_CREAT), number)
    os.chdir(os.path.dirname(path))
    sys.path[0], sys.argv, here = os.path.dirname(path), [path], globals()
    with open(path, encoding="utf-8") as file:
        code = compile(file.read(), path, "exec")
    for name in "gc os sys scipy miniml line path child number name file".split():
        del here[name]
    here["__file__"] = code.co_filename
    exec(code, here)
    break
"""


@pytest.fixture(scope="module")
def forks():
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "MPLBACKEND": "Agg"}
    command = [sys.executable, "-W", "error", "-c", FORKS]
    with subprocess.Popen(command, stdin=-1, stdout=-1, text=True, env=environment) as process:
        yield process


def run_in(forks, path):
    """The exit status of a program in a process of its own, and what it prints and complains of."""
    print(path, file=forks.stdin, flush=True)
    status = int(forks.stdout.readline())
    return status, *(Path(f"{path}.{of}").read_text("utf-8") for of in ("out", "err"))


def test_a_section_that_fails_or_warns_is_found(forks, tmp_path):
    for code, status, said in (
        ("print(1)\nimport sys\nsys.exit(3)", 3, ""),
        ("import miniml as ml\nx = 1 / 0", 1, "line 2, in <module>"),
        ("import warnings\nwarnings.warn('old', DeprecationWarning)", 1, "DeprecationWarning: old"),
        ("assert __name__ == '__main__' and 'os' not in globals()", 0, ""),
    ):
        path = tmp_path / f"page_{status}.py"
        path.write_text(code)
        found, printed, complaint = run_in(forks, path)
        assert (found, printed) == (status, "1\n" if status == 3 else ""), complaint
        assert said in complaint
        assert bool(said) == bool(complaint)


@pytest.mark.parametrize(("document", "section"), SECTIONS)
def test_section_runs(document, section, tmp_path, forks):
    """A process of its own, as users' are: under the default settings, and a section may define
    primitives, whose names are global."""
    blocks = [b for b in BLOCKS[document] if b.section == section and b.not_run is None]
    if any("cuda-sim" in b.code for b in blocks) and not COMPILER:
        pytest.skip("no C++ compiler here")
    if any("from onnx" in b.code for b in blocks) and find_spec("onnx") is None:
        pytest.skip("no onnx here")
    for package in ("torch", "jax"):
        if any(f"import {package}\n" in b.code for b in blocks) and find_spec(package) is None:
            pytest.skip(f"no {package} here")
    path = tmp_path / f"page_{Path(document).stem}.py"  # not onnx.py, which it imports
    path.write_text(script([b for b in blocks if b.language == "python"]))
    status, printed, complaint = run_in(forks, path)
    assert status == 0, f"{document}, section {section!r}:\n{complaint}"
    shown = [word for b in blocks if b.language == "text" for word in words(b.code)]
    if shown:
        assert words(printed) == shown, f"{document}, section {section!r} prints:\n{printed}"


@pytest.mark.parametrize("document", BLOCKS)
def test_blocks_that_are_not_run_are_python_and_say_why(document):
    for block in BLOCKS[document]:
        if block.not_run is not None:
            ast.parse(block.code, f"{document}, the block on line {block.line}")
            assert block.not_run


@pytest.mark.parametrize("document", BLOCKS)
def test_document_has_something_to_run(document):
    assert document in {name for name, _ in SECTIONS}, f"{document} has no Python block that runs"


def anchors(text: str) -> set[str]:
    """What the headings of a Markdown text are linked by, as GitHub spells it."""
    headings = re.findall(r"(?m)^#+ (.*)", re.sub(r"(?ms)^```.*?^```", "", text))
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.deep
def test_the_blocks_of_the_guide_to_training_run_in_one_file(tmp_path):
    path = tmp_path / "page_training.py"
    path.write_text(script([b for b in BLOCKS["training.md"] if b.language == "python"]))
    run = subprocess.run(
        [sys.executable, "-W", "error", str(path)],
        cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True, text=True,
    )  # fmt: skip
    assert run.returncode == 0, run.stderr


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_to_files_and_headings(page):
    text = re.sub(r"(?ms)^```.*?^```|`[^`\n]*`", "", page.read_text("utf-8"))
    for path, anchor in re.findall(r"\]\((?!https?:)([^)#]*)#?([^)]*)\)", text):
        target = (page.parent / path).resolve() if path else page
        if not {ROOT / "build", ROOT / "docs" / "api"}.isdisjoint(target.parents):
            continue  # made by `make docs`, which checks it
        assert target.exists(), path
        assert not anchor or anchor in anchors(target.read_text("utf-8")), f"{path}#{anchor}"


NAMED = re.compile(r"`([\w.]+)`\s+\(\[[^\]]+\]\(\.\./(miniml/[\w/]+\.py)\)")


def test_functions_of_the_architecture_stand_in_the_files_they_are_linked_to():
    named = NAMED.findall((ROOT / "docs/architecture.md").read_text("utf-8"))
    assert len(named) > 15
    for name, path in named:
        last = name.rpartition(".")[2]
        text = (ROOT / path).read_text("utf-8")
        assert re.search(rf"(def|class) {last}\b", text), f"{path} has no {name}"


def test_outputs_are_compared_without_their_numbers():
    text = "```python\nprint(1.5)\n```\n<!-- output -->\n```text\n2.5\n```\n```text\nother\n```\n"
    code, output = fenced_blocks(text)
    assert (code.language, output.language) == ("python", "text")
    assert words(output.code) == words("1.25e-3") == ["#"]


def test_blocks_keep_their_lines_and_reasons():
    text = "# A\n```python\nx = 1\n```\n## B\n<!-- not run: needs a GPU -->\n\n```python\ny\n```\n"
    text += "words\n```text\nnothing\n```\n\n```python\nraise OSError\n```\n"
    run, skipped, failing = python_blocks(text)
    assert run == Block("A", 3, "x = 1\n", None)
    assert skipped == Block("B", 9, "y\n", "needs a GPU")
    assert failing.section == "B"
    assert failing.not_run is None
    assert script([run, failing]).splitlines().index("raise OSError") + 1 == failing.line
