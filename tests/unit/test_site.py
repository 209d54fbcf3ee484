"""The site: every public name has an entry, recipes run, dictionaries name what there is."""

import importlib
import inspect
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import miniml as ml
from docs import live, reference
from tests.unit.test_readme import COMPILER
from tools import docstrings
from tools.public_names import PUBLIC, exported

ROOT = Path(__file__).resolve().parents[2]
FIRST = ("index.md", "start.md")
RECIPES = [*sorted((ROOT / "docs" / "howto").glob("*.md")), *map((ROOT / "docs").joinpath, FIRST)]
DICTIONARIES = sorted((ROOT / "docs" / "howto").glob("from-*.md"))
RUN = """
import re, sys
from pathlib import Path
import miniml as ml
for path in sys.argv[1:]:
    text = Path(path).read_text("utf-8")
    code = "".join(re.findall(r"^```python\\n(.*?)^```", text, flags=re.M | re.S))
    ml.manual_seed(0)
    exec(compile(code, path, "exec"), {"__name__": "recipe"})
"""


def test_recipes_run(tmp_path):
    """All in one process: none defines what another does."""
    run = subprocess.run(
        [sys.executable, "-W", "error", "-c", RUN, *map(str, RECIPES)],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
    )
    assert run.returncode == 0, run.stderr


def entries_of(text):
    return set(re.findall(r"^`{7}\{py:\w+\} (\w+)", text, flags=re.MULTILINE))


@pytest.fixture(scope="module")
def pages():
    return reference.pages()


def missing(pages, module):
    """The public names of a namespace that have no entry; submodules have pages of their own."""
    texts = [text for text in pages.values() if f"{{py:currentmodule}} {module}\n" in text]
    found = set().union(*map(entries_of, texts))
    home = importlib.import_module(module)
    return {n for n in exported(module) if not inspect.ismodule(vars(home).get(n))} - found


@pytest.mark.parametrize("module", [*PUBLIC, "miniml.nn.init"])
def test_every_public_name_has_an_entry(pages, module):
    assert module in reference.NAMESPACES
    assert module.removeprefix("miniml.") in pages
    assert not missing(pages, module)


def test_a_name_without_an_entry_is_found(pages):
    without = {name: t.replace("{py:class} LSTM(", "{py:class} LTSM(") for name, t in pages.items()}
    assert missing(without, "miniml.nn") == {"LSTM"}


def test_every_task_of_a_module_has_an_entry():
    """A name that moves to another module would come under the title of that one."""
    modules = (*PUBLIC, "miniml.distributed")
    entries = [e for module in modules for e in reference.entries(module)]
    places = [f"{e.home}.{e.name}" for e in entries]
    for key in (*reference.TASKS, *reference.TITLES):
        assert any(place.startswith(key) for place in places), key


def test_an_entry_says_all_that_it_should(pages):
    text = pages["ops-norms-and-softmax"]
    entry = text[text.index("{py:function} log_softmax") :].split("\n```````\n")[0]
    for part in ("axis: int", ">>> ops.log_softmax(", "dtypes:", "Source:", "torch.log_softmax"):
        assert part in entry, part
    early = pages["train"].split("{py:class} EarlyStopping")[1]
    assert ":param mode:" in early
    assert ":raises MinimlError:" in early


def test_examples_name_what_there_is(pages):
    """Those that the reference makes: `x = ops.uniform(...)` and the line below it."""
    lines = re.findall(r"^>>> .*", "\n".join(pages.values()), flags=re.MULTILINE)
    used = set(
        re.findall(r"(?<![\w.])((?:ml|ops|nn|optim|train|data)\.[a-z_A-Z]\w+)", "\n".join(lines))
    )
    assert len(used) > 300
    assert not [name for name in sorted(used) if not there(name)]


@pytest.mark.parametrize("path", DICTIONARIES, ids=lambda path: path.stem)
def test_a_dictionary_names_what_there_is(path):
    rows = re.findall(r"^\| (.+?) \| (.+?) \|", path.read_text("utf-8"), flags=re.MULTILINE)[2:]
    assert len(rows) > 15
    for theirs, ours in rows:
        for spelled in re.findall(r"`([\w.]+)`", ours):
            assert there(spelled), f"{theirs}: {spelled}"


def there(spelled):
    """True for a public name, a module, or an attribute of one."""
    head, *rest = spelled.split(".")
    rooms = {"ml": "miniml", "miniml": "miniml"}
    value = importlib.import_module(rooms.get(head, f"miniml.{head}") if rest else "miniml")
    if not rest:
        return hasattr(ml.nn.Cell, head) or head == "construct"
    for name in rest:
        if not hasattr(value, name) and head != "interop":
            return False
        value = getattr(value, name) if head != "interop" else value
    return True


def described(doc, parameters=("x",), module="miniml.nn", name="Made"):
    return reference.Entry(module, name, None, "function", module, None, "(x)", parameters, doc)


@pytest.mark.parametrize(
    ("doc", "parameters", "says"),
    [
        ("", (), "no docstring"),
        ("A summary that goes on", (), "without an end"),
        ("Sums x.\n\nArgs:\n    x: what to sum.", ("x",), "another form"),
        ("Sums x.\n\nParameters\n----------\nx", ("x",), "another form"),
        ("Sums x. WrongShapeError for others.", ("x",), "WrongShapeError"),
        ("Sums x.\n\n>>> 1\n1", ("x", "brightness"), "'brightness'"),
        ("Sums x.", ("x",), "no example"),
    ],
)
def test_the_checker_of_docstrings_finds(doc, parameters, says):
    assert any(says in problem for problem in docstrings.problems(described(doc, parameters)))


def test_the_checker_of_docstrings_passes_the_form():
    doc = "x, brighter.\n\nbrightness: a float. ShapeError for others.\n\n>>> 1\n1"
    assert not [*docstrings.problems(described(doc, ("x", "brightness")))]


def half(x: ml.Tensor) -> ml.Tensor:
    if not x.shape:
        raise ml.errors.ShapeError("half got a number")
    return x / 2


class Halver(ml.nn.Cell):
    def construct(self, x: ml.Tensor) -> ml.Tensor:
        return half(x)


def entry_of(value, doc, home="miniml.nn"):
    made = described(doc, ("x",), name=value.__name__)
    made.value, made.home = value, home
    made.kind = "class" if inspect.isclass(value) else "function"
    return made


FORM = ":\n\nx: a tensor.\n\n>>> 1\n1"


@pytest.mark.parametrize(
    ("value", "summary", "home", "says"),
    [
        (half, "Divide x by 2, of its shape. ShapeError for numbers", "miniml.nn", "it returns"),
        (half, "The half of x. ShapeError for numbers", "miniml.nn", "which shape"),
        (half, "The half of x, of its shape", "miniml.nn", "raises ShapeError"),
        (Halver, "The half of x", "miniml.nn", "which shape its output"),
        (Halver, "x / 2, of any shape", "miniml.nn.loss", "without a source"),
    ],
)
def test_the_checker_of_docstrings_reads_the_code(value, summary, home, says):
    entry = entry_of(value, summary + FORM, home)
    assert [p for p in docstrings.problems(entry) if says in p], says


@pytest.mark.parametrize(
    ("value", "summary", "home"),
    [
        (half, "The half of x, of its shape. ShapeError for numbers", "miniml.nn"),
        (half, "Divide x by 2; returns it in its shape. ShapeError for numbers", "miniml.nn"),
        (Halver, "x / 2, of any shape. Source: Euclid 1482", "miniml.nn.loss"),
        (Halver, "x / 2 as `ops.softmax` has it, of any shape", "miniml.nn.loss"),
    ],
)
def test_the_checker_of_docstrings_passes_what_says_all(value, summary, home):
    assert not [*docstrings.problems(entry_of(value, summary + FORM, home))]


LIVE = """# A page

## Made

```python
from pathlib import Path
print("made", Path("here.txt").write_text("x"))
```

## Lacking

```python
from miniml.errors import ExportError
raise ExportError("export_web needs a compiler")
```

## After it

```python
print(Path("here.txt").read_text())
```
"""


def test_a_live_page_without_a_compiler_is_made_all_the_same(tmp_path):
    assert live.run(LIVE, tmp_path) == ["lacking: export_web needs a compiler"]
    said = {name: (tmp_path / f"{name}.txt").read_text() for name in ("made", "lacking")}
    assert said == {"made": "made 1\n", "lacking": "export_web needs a compiler\n"}
    assert (tmp_path / "after_it.txt").read_text() == "x\n"
    live.replace_page(tmp_path / "digits", "no compiler")
    assert "no compiler" in (tmp_path / "digits" / "index.html").read_text("utf-8")
    assert (tmp_path / "digits" / "picture.png").read_bytes().startswith(b"\x89PNG")


def test_a_fault_in_a_live_page_stops_it(tmp_path):
    with pytest.raises(ZeroDivisionError):
        live.run("## Wrong\n\n```python\n1 / 0\n```\n", tmp_path)


@pytest.mark.skipif(not COMPILER, reason="no C++ compiler here")
def test_the_live_page_shows_the_race_that_the_simulator_finds(tmp_path):
    text = live.PAGE.read_text("utf-8")
    imports = "## Imports\n\n```python\nimport numpy as np\nimport miniml as ml\n```\n\n"
    last = text[text.rindex("\n## ") :]
    assert not live.run(imports + last, tmp_path)
    (printed,) = re.findall(r"literalinclude\} \.\./build/extra/live/(\S+)", last)
    assert "race in kernel row_max" in (tmp_path / printed).read_text("utf-8")
