"""Run notebooks: each .py beside this file becomes an executed .ipynb (make notebooks).

One that imports a package which is not installed is left as it is, with a line that says so.
`--times` measures instead: each with an empty cache of compiled kernels, into docs/learn.md.
"""

import argparse
import ast
import os
import re
import sys
import tempfile
import time
from importlib.util import find_spec
from pathlib import Path

import jupytext
import nbclient
import nbformat

FOLDER = Path(__file__).resolve().parent
PAGE = FOLDER.parent / "docs" / "learn.md"


def missing(path: Path) -> list[str]:
    """The packages that a notebook imports and that are not installed."""
    names = []
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names.append(node.module or "")
    packages = {name.partition(".")[0] for name in names}
    return sorted(p for p in packages if find_spec(p) is None)


def executed(path: Path) -> nbformat.NotebookNode:
    """The notebook that the percent-format file makes, with outputs; raises where a cell does."""
    notebook = jupytext.read(path)
    for number, cell in enumerate(notebook.cells):  # equal runs give equal files
        cell.id = f"cell-{number}"
    client = nbclient.NotebookClient(
        notebook, timeout=900, record_timing=False, coalesce_streams=True
    )
    client.create_kernel_manager().transport = "ipc"  # no port is opened
    client.execute(cwd=FOLDER.parent)
    notebook.metadata.pop("language_info", None)
    return notebook


def timed(path: Path) -> str:
    """The seconds that a notebook takes from start to end with an empty cache of kernels."""
    with tempfile.TemporaryDirectory() as empty:
        os.environ["MINIML_CACHE"] = empty  # the notebook's process inherits it
        start = time.perf_counter()
        executed(path)
    return f"{time.perf_counter() - start:.0f} s"


def noted(page: str, name: str, seconds: str) -> str:
    """The page with other seconds in the row that links to a notebook."""
    row = rf"^(\|.*notebooks/{name}\.ipynb.*\| )[^|]*( \|)$"
    text, found = re.subn(row, rf"\g<1>{seconds}\g<2>", page, flags=re.MULTILINE)
    if found != 1:
        raise LookupError(f"{PAGE.name} has {found} rows for {name}")
    return text


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="run them and write nothing")
    parser.add_argument("--times", action="store_true", help="measure them, into docs/learn.md")
    parser.add_argument("numbers", nargs="*", help="such as 05; all by default")
    options = parser.parse_args()
    for path in sorted(FOLDER.glob("[0-9]*.py")):
        if options.numbers and path.stem[:2] not in options.numbers:
            continue
        if lacking := missing(path):
            print(f"{path.name}: not run, no {', '.join(lacking)}")
            continue
        if options.times:
            seconds = timed(path)
            PAGE.write_text(noted(PAGE.read_text("utf-8"), path.stem, seconds), "utf-8")
            print(f"{path.name}: {seconds}")
            continue
        notebook = executed(path)
        target = path.with_suffix(".ipynb")
        if options.check:
            stored = nbformat.read(target, as_version=4) if target.exists() else None
            sources = [[c.source for c in n.cells] for n in (notebook, stored) if n]
            if sources[0] != sources[-1] or stored is None:
                print(f"{target.name} is not what {path.name} makes; run `make notebooks`")
                return 1
        else:
            nbformat.write(notebook, target)
        print(f"{path.name}: {len(notebook.cells)} cells ran")
    return 0


if __name__ == "__main__":
    sys.exit(main())
