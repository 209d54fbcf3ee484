"""The scaffolding keeps its promises: metadata, lock, floors, nothing of one machine."""

import ast
import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
EXTRAS = PROJECT["optional-dependencies"]
OWN_FOLDERS = ("miniml", "tests", "docs", "notebooks", "examples", "benchmarks", "tools", ".ci")


def requirements(extra: str) -> list[Requirement]:
    """What an extra asks for beside miniml itself, the extras it refers to included."""
    found = []
    for requirement in map(Requirement, EXTRAS[extra]):
        if requirement.name == "miniml":
            found += [r for name in sorted(requirement.extras) for r in requirements(name)]
        else:
            found.append(requirement)
    return found


CORE = [Requirement(text) for text in PROJECT["dependencies"]]
EVERYTHING = CORE + [r for extra in EXTRAS for r in requirements(extra)]


LOCKS = ("requirements-lock.txt", "requirements-cuda-lock.txt", "requirements-docs-lock.txt")
LOCKED = [(r, LOCKS[0]) for r in CORE + requirements("test")]
# cuBLAS, of 400 MB, does nothing without a GPU.
CUDA = [r for r in requirements("sim") + requirements("cuda13") if r.name != "nvidia-cublas"]
LOCKED += [(r, LOCKS[1]) for r in CUDA]
LOCKED += [(r, LOCKS[2]) for r in requirements("docs")]


def locked(file: str) -> dict[str, list[tuple[str, list[str]]]]:
    """A lock as {name: [(version and marker, hashes), ...]}."""
    entries: dict[str, list[tuple[str, list[str]]]] = {}
    text = (ROOT / file).read_text("utf-8")
    for entry in re.split(r"(?<!\\)\n", text):
        if entry.strip() and not entry.startswith("#"):
            head, *options = (part.strip(" \\") for part in entry.splitlines())
            name, _, rest = head.partition("==")
            entries.setdefault(canonicalize_name(name), []).append((rest, options))
    return entries


def project_files() -> list[Path]:
    """The tracked files; without git, what stands in the project's own folders."""
    if (ROOT / ".git").exists():
        try:
            listing = subprocess.run(
                ["git", "-c", f"safe.directory={ROOT}", "ls-files", "-z"],
                cwd=ROOT,
                capture_output=True,
                check=True,
            ).stdout
            return [ROOT / name for name in os.fsdecode(listing).split("\0")[:-1]]
        except (OSError, subprocess.CalledProcessError):
            pass
    files = [path for folder in OWN_FOLDERS for path in (ROOT / folder).rglob("*")]
    return [p for p in (*ROOT.iterdir(), *files) if "__pycache__" not in p.parts]


def test_the_extras_that_the_readme_promises_exist():
    assert set(EXTRAS) >= {"demo", "notebooks", "test", "dev", "cuda12", "cuda13", "sim"}


def test_every_requirement_has_a_floor_and_a_reason():
    reasons = (ROOT / "docs" / "dependencies.md").read_text("utf-8")
    for requirement in EVERYTHING:
        assert any(part.operator == ">=" for part in requirement.specifier), requirement
        assert f"`{requirement.name}`" in reasons, (
            f"docs/dependencies.md does not say why: {requirement}"
        )


@pytest.mark.parametrize("file", LOCKS)
def test_the_lock_satisfies_pyproject(file):
    entries, faults = locked(file), []
    for requirement in (r for r, place in LOCKED if place == file):
        pins = [
            rest.split(" ")[0] for rest, _ in entries.get(canonicalize_name(requirement.name), [])
        ]
        if not pins or not all(map(requirement.specifier.contains, pins)):
            faults.append(f"{requirement}: locked {pins}")
    assert not faults, f"run `make lock`: {faults}"


def test_python_3_12_has_the_packages_of_3_13():
    """So what NumPy's version changes is judged on one of them: TESTS_ON_3.12 in the Makefile."""
    split = {
        m
        for file in LOCKS[:2]
        for m in re.findall(r"python_\w*version\b[^;\\]*", (ROOT / file).read_text("utf-8"))
    }
    assert {m.strip() for m in split} == {
        "python_full_version < '3.12'",
        "python_full_version >= '3.12'",
    }


def test_what_other_pythons_run_and_leave_out_is_there():
    """pytest takes an absent file to ignore without a word."""
    shown = "print:\n\t@echo $(TESTS_ON_3.12) $(TESTS_ON_3.13)\n"
    make = ["make", "--silent", "--file", "Makefile", "--file", "-", "print"]
    run = subprocess.run(make, cwd=ROOT, input=shown, capture_output=True, text=True)
    named = {word for word in run.stdout.split() if word.startswith("tests")}
    assert len(named) > 80, run.stderr
    assert [name for name in sorted(named) if not (ROOT / name).exists()] == []


@pytest.mark.parametrize(("file", "least"), [(LOCKS[0], 50), (LOCKS[1], 4), (LOCKS[2], 30)])
def test_every_locked_package_has_hashes_and_no_address(file, least):
    entries = locked(file)
    assert len(entries) >= least
    for name, pins in entries.items():
        for rest, options in pins:
            assert re.match(r"[\w.]+( ; .+)?$", rest), f"{name}=={rest}"
            assert options, f"{name} has no hash"
            assert all(re.fullmatch(r"--hash=sha256:[0-9a-f]{64}", o) for o in options), name


# Written so that this file does not match itself.
FOREIGN = {
    "a path of one machine": r"/(?:wo[r]k|ro[o]t|ho[m]e)/\w|/o[p]t/(?:wheels|pypi)|\.\./sh[a]red",
    "a registry's host": r"py[p]i\.org/simple|files\.pythonh[o]sted|--(?:extra-)?index-u[r]l",
}


@pytest.mark.parametrize("what", FOREIGN)
def test_no_file_names(what):
    found = []
    for path in project_files():
        try:
            text = path.read_text("utf-8")
        except (OSError, UnicodeDecodeError):
            continue
        for number, line in enumerate(text.splitlines(), 1):
            if re.search(FOREIGN[what], line):
                found.append(f"{path.relative_to(ROOT)}:{number}: {line.strip()[:100]}")
    assert not found, f"{what}:\n" + "\n".join(found)


def test_foreign_patterns_find_what_they_are_for():
    assert re.search(FOREIGN["a path of one machine"], "see /" + "work/main")
    assert re.search(FOREIGN["a path of one machine"], "in .." + "/shared/notes.md")
    assert re.search(FOREIGN["a registry's host"], "https://files.python" + "hosted.org/x.whl")


def left_open(node, inside=False):
    """The lines of loops `while condition` that stand in a `try` of their own function."""
    for child in ast.iter_child_nodes(node):
        if inside and isinstance(child, ast.While) and not isinstance(child.test, ast.Constant):
            yield child.lineno
        own = isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
        yield from left_open(child, not own and (inside or isinstance(child, ast.Try)))


def test_no_loop_leaves_the_try_that_it_stands_in():
    """In CPython 3.12 and 3.13 the jump back of a `while` with a condition belongs to no `try`, and
    it hears signals: what a handler raises there passes the `except` and the `finally`. The jump of
    a `for` does not; a function that is called in the `try` may have any loop."""
    found = [
        f"{path.relative_to(ROOT)}:{line}"
        for path in sorted((ROOT / "miniml").rglob("*.py"))
        if " while " in (text := path.read_text("utf-8"))
        for line in left_open(ast.parse(text))
    ]
    assert not found, "a loop `while condition` in a `try`"


def test_a_loop_that_leaves_its_try_is_found():
    loop = "while f(): g()"
    assert [*left_open(ast.parse(f"try:\n  {loop}\nfinally:\n  g()"))] == [2]
    assert [*left_open(ast.parse(f"try:\n  def h():\n    {loop}\nfinally:\n  g()"))] == []


def test_every_module_says_what_it_is():
    for path in sorted((ROOT / "miniml").rglob("*.py")):
        head = '"""'.join(path.read_text("utf-8").split('"""', 2)[:2])
        docstring = ast.get_docstring(ast.parse(f'{head}"""'))
        assert docstring, f"{path}: a module opens with one sentence that says what it is"
        assert docstring.split("\n\n")[0].rstrip()[-1] in ".:!?", f"{path}: that sentence ends"


def test_what_draws_more_in_a_deep_run_is_marked():
    """`make test-deep` would leave it out."""
    for path in (ROOT / "tests").rglob("test_*.py"):
        text = path.read_text("utf-8")
        assert " if DEEP else " not in text or "@pytest.mark.larger" in text, path


def test_a_docstring_opens_with_a_verb_or_a_noun():
    definitions = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Module
    opens = [
        f"{path.relative_to(ROOT)}: {docstring.splitlines()[0]}"
        for folder in ("miniml", "tools", "benchmarks")
        for path in sorted((ROOT / folder).rglob("*.py"))
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(node, definitions) and (docstring := ast.get_docstring(node))
        if re.match(r"(What|How|Whether) ", docstring)
    ]
    assert not opens, "say what it is or does, in the field's terms"


# One import each that a floor forbids, and the contract that must name it.
TOWER = (
    "cli core/errors core/abstract core/settings core/primitive core/bprop ops "
    "core/tensor graph grad/transforms grad/rules grad/reverse backends/registry "
    "backends/cpu backends/cuda backends/expressions runtime nn train onnx"
).split()
FORBIDDEN = [
    ("core/errors", "core.abstract", None),  # neighbours on one floor: allowed
    ("core/primitive", "backends.registry", None),  # all that primitive may know of backends
    ("core/abstract", "core.tensor", "The floors"),
    ("ops", "graph", "The floors"),
    ("runtime", "grad.reverse", "The floors"),
    ("grad/rules", "runtime", "The floors"),
    ("core/tensor", "nn", "The floors"),
    ("train", "onnx", "The floors"),
    ("backends/cpu", "ops", "Backends know arrays"),
    ("backends/registry", "core.settings", "Backends know arrays"),
    ("core/primitive", "backends.cpu", "Definitions and gradients"),
    ("ops", "backends.registry", "Definitions and gradients"),
    ("backends/cpu", "backends.cuda", "Inside backends"),
    ("backends/cuda", "backends.expressions", None),
    ("backends/expressions", "backends.registry", "Inside backends"),
    ("grad/reverse", "grad.rules", "Inside grad"),
    ("grad/rules", "grad.transforms", "Inside grad"),
]


def contracts(folder, imports):
    """What the contracts say of a tower of empty modules with these imports: the exit code, and
    the imports that each broken one names."""
    planted = {name: [to for by, to, _ in imports if by == name] for name in TOWER}
    for name, imported in planted.items():
        module = folder / "miniml" / f"{name}.py"
        module.parent.mkdir(parents=True, exist_ok=True)
        for folder_ in (module.parent, folder / "miniml"):
            (folder_ / "__init__.py").touch()
        module.write_text("".join(f"import miniml.{to}\n" for to in imported))
    command = "import sys; from importlinter.cli import lint_imports; sys.exit(lint_imports(**%r))"
    options = {"config_filename": str(ROOT / "pyproject.toml"), "no_cache": True}
    run = subprocess.run(
        [sys.executable, "-c", command % options],
        cwd=folder,
        env=os.environ | {"COLUMNS": "300"},  # else titles are broken into lines
        capture_output=True,
        text=True,
    )
    details = run.stdout.partition("Broken contracts")[2]
    parts = re.split(r"\n(\S[^\n]*)\n-+\n", details)[1:]
    return run, dict(zip(parts[::2], parts[1::2], strict=True))


def test_the_floors_hold(tmp_path):
    """The contracts refuse planted imports, and only those."""
    allowed = [row for row in FORBIDDEN if row[2] is None]
    run, broken = contracts(tmp_path / "allowed", allowed)
    assert run.returncode == 0, run.stdout + run.stderr
    run, broken = contracts(tmp_path / "forbidden", FORBIDDEN)
    assert run.returncode == 1, run.stdout + run.stderr
    for importer, imported, contract in FORBIDDEN:
        direct = f"miniml.{importer.replace('/', '.')} -> miniml.{imported} ("
        naming = [name for name, text in broken.items() if direct in text]
        assert any(n.startswith(contract) for n in naming) if contract else not naming, direct


SKIPS = """
import pytest

@pytest.mark.skip(reason="no network")
def test_without_a_reason_that_holds(): pass

@pytest.mark.skip(reason="no C++ compiler")  # true: PATH is empty below
def test_with_one(): pass

@pytest.mark.deep
def test_left_out(): pass

@pytest.mark.xfail(reason="known", run=False)
def test_known_to_fail(): pass

def test_for_which_there_may_be_time(): pass
"""


@pytest.mark.parametrize(
    ("policy", "minutes", "outcome"),
    [
        ("0", "", "1 passed, 2 skipped, 1 deselected, 1 xfailed in"),
        ("1", "", "1 passed, 1 skipped, 1 deselected, 1 xfailed, 1 error"),
        ("1", "0", "2 skipped, 1 deselected, 1 xfailed, 1 error"),
    ],
)
def test_a_skip_that_does_not_hold_is_a_failure(tmp_path, policy, minutes, outcome):
    shutil.copy(ROOT / "tests" / "conftest.py", tmp_path)
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    (tmp_path / "test_skips.py").write_text(SKIPS)
    environment = {k: v for k, v in os.environ.items() if k != "MINIML_DEEP"}
    run = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-p", "no:xdist", tmp_path],
        cwd=tmp_path,
        env={
            **environment,
            "MINIML_NO_SKIPS": policy,
            "MINIML_MINUTES": minutes,
            "PATH": "",
            "CXX": "",
        },
        capture_output=True,
        text=True,
    )
    assert outcome in run.stdout.splitlines()[-1], run.stdout
