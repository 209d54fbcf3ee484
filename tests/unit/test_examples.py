"""The programs in examples/ reach their numbers, and draw."""

import ast
import importlib
import math
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
LEAST = {
    "digits": 0.95, "resnet": 0.97, "gpt": 0.95, "ctc": 0.95, "gan": 0.5, "reinforce": 150,
    "gnn": 0.85,
}  # fmt: skip
MOST = {
    "char_lstm": 0.3, "vae": 26, "flow": 0.95, "pinn": 0.003, "neural_ode": 0.4, "maml": 0.05,
}  # fmt: skip


@pytest.mark.deep
@pytest.mark.parametrize("name", [*LEAST, *MOST])
def test_a_program_reaches_its_number(name, tmp_path):
    found = importlib.import_module(f"examples.{name}").main(tmp_path / "picture.png")
    assert LEAST.get(name, -1e9) < found < MOST.get(name, 1e9)
    assert (tmp_path / "picture.png").read_bytes().startswith(b"\x89PNG")


TWINS = sorted((ROOT / "examples" / "in_pytorch").glob("*.py"))


@pytest.mark.parametrize("path", TWINS, ids=lambda path: path.stem)
def test_a_twin_in_pytorch_has_the_parts_of_ours(path):
    own = ast.parse((ROOT / "examples" / path.name).read_text("utf-8"))
    other = ast.parse(path.read_text("utf-8"))
    names = [{n.name for n in tree.body if hasattr(n, "name")} for tree in (own, other)]
    assert names[0] - {"draw", "write"} == names[1]
    assert "miniml" not in {n.split(".")[0] for n in imported(other)}
    said = (ROOT / "docs" / "gallery.md").read_text("utf-8")
    assert f"](../examples/in_pytorch/{path.name})" in said


def imported(tree):
    nodes = [n for n in ast.walk(tree) if isinstance(n, ast.Import | ast.ImportFrom)]
    return [a.name for n in nodes for a in n.names] + [getattr(n, "module", "") for n in nodes]


@pytest.mark.deep
@pytest.mark.parametrize("path", TWINS, ids=lambda path: path.stem)
def test_a_twin_in_pytorch_runs(path):
    pytest.importorskip("torch", reason="no torch")
    found = importlib.import_module(f"examples.in_pytorch.{path.stem}").main(2)
    assert math.isfinite(found)
    name = path.stem  # two steps do not reach the number: it is that of the training
    assert not LEAST.get(name, -1e9) < found < MOST.get(name, 1e9)


def test_every_program_is_short_and_listed():
    programs = {p.stem: p.read_text("utf-8") for p in (ROOT / "examples").glob("[a-z]*.py")}
    assert programs.keys() == LEAST.keys() | MOST.keys()
    assert all(text.count("\n") <= 150 for text in programs.values())
    for page in ("examples/README.md", "docs/gallery.md"):
        listed = re.findall(r"\]\((?:\.\./examples/)?(\w+)\.py\)", (ROOT / page).read_text("utf-8"))
        assert sorted(listed) == sorted(programs)
