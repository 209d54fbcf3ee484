"""How much there is to read: files, lines and modules with one importer, which may not become more.

A bound that is in the way is a question, not a wall: can the new part go into the file whose story
it continues, or does it replace something? Where neither is so, it is raised.
"""

import ast
from pathlib import Path

import pytest

import miniml
from tests.unit.test_import_rings import arrows, modules

ROOT = Path(miniml.__file__).parent
CORE = "core ops grad graph runtime backends nn optim data train".split()
LONGEST_FILE, LONGEST_FUNCTION = 800, 60  # lines


def files(folders=("",)):
    return [path for folder in folders for path in (ROOT / folder).rglob("*.py")]


def lines(path):
    return path.read_text("utf-8").count("\n")


def one_importer(graph):
    """The modules that exactly one other imports."""
    counts = dict.fromkeys(graph, 0)
    for imported in graph.values():
        for name in imported:
            counts[name] += 1
    return sorted(name for name, count in counts.items() if count == 1)


def too_long(text, most):
    """The functions of more than `most` lines, by name."""
    defined = (ast.FunctionDef, ast.AsyncFunctionDef)
    found = (node for node in ast.walk(ast.parse(text)) if isinstance(node, defined))
    return [f.name for f in found if f.end_lineno - f.lineno >= most]


def test_no_file_is_longer_than_one_story():
    assert [f"{p}: {n}" for p in files() if (n := lines(p)) > LONGEST_FILE] == []


@pytest.mark.parametrize("folder", sorted(p.name for p in ROOT.iterdir() if p.is_dir()))
def test_no_function_is_too_long(folder):
    for path in files([folder]):
        assert too_long(path.read_text("utf-8"), LONGEST_FUNCTION) == [], path


def test_a_function_of_one_line_more_is_found():
    body = "    x = 1\n"
    assert too_long(f"def f():\n{body * (LONGEST_FUNCTION - 1)}", LONGEST_FUNCTION) == []
    assert too_long(f"def f():\n{body * LONGEST_FUNCTION}", LONGEST_FUNCTION) == ["f"]


def test_the_core_has_no_more_to_read_than_before():
    """What stands in `docs/architecture.md` as the core, without the CUDA device, a wing."""
    core = [p for p in files(CORE) if "cuda" not in p.relative_to(ROOT).parts]
    assert len(core) <= 144
    assert sum(map(lines, core)) <= 56_728


def test_the_package_has_no_more_files_than_before():
    assert len(modules(ROOT)) <= 256


def test_no_more_modules_have_one_importer_than_before():
    found = one_importer(arrows(ROOT, annotations=False))
    assert len(found) <= 54, found


def test_a_module_with_one_importer_is_found():
    made_up = {"a": {"b", "c"}, "b": {"c"}, "c": set()}
    assert one_importer(made_up) == ["b"]
