"""Run notebooks: each .py beside this file becomes an executed .ipynb (make notebooks)."""

import argparse
import sys
from pathlib import Path

import jupytext
import nbclient
import nbformat

FOLDER = Path(__file__).resolve().parent


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


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="run them and write nothing")
    parser.add_argument("numbers", nargs="*", help="such as 05; all by default")
    options = parser.parse_args()
    for path in sorted(FOLDER.glob("[0-9]*.py")):
        if options.numbers and path.stem[:2] not in options.numbers:
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
