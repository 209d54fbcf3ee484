"""The wheel and the sdist, installed alone: no compiler, no extras, nothing of the checkout."""

import os
import re
import subprocess
import sys
import tarfile
import tomllib
import venv
import zipfile
from pathlib import Path

import pytest
import trove_classifiers
from packaging.metadata import Metadata

import miniml as ml
from miniml import cli

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = """
import warnings
warnings.simplefilter("error")
import numpy as np
import miniml as ml
from miniml import nn, ops, optim
from miniml.testing import gradcheck

ml.manual_seed(0)
net = nn.Sequential(nn.Dense(4, 8), nn.ReLU(), nn.Dense(8, 2))
step = ml.train_step(net, nn.CrossEntropyLoss(), optim.Adam(net.trainable_params(), lr=0.05))
x = np.random.default_rng(0).normal(size=(64, 4)).astype("f")
y = (x[:, 0] > 0).astype(np.int64)
losses = [float(step(x, y)) for _ in range(50)]
assert losses[-1] < losses[0] / 2, losses
assert gradcheck(ops.tanh, np.array([0.3, -1.0])).ok

def missing(what, call):
    try:
        call()
    except ml.errors.MinimlError as error:
        print(f"{what}: {error}")
    else:
        print(f"{what}: there")

missing("digits", lambda: ml.data.load_digits())
missing("onnx", lambda: ml.onnx.load("x.onnx"))
missing("torch", lambda: ml.interop.to_torch)
missing("bars", lambda: ml.viz.draw(net, x, path="net.html"))
print("from", ml.__file__, ml.__version__)
"""


def run(*words, **kwargs):
    done = subprocess.run(
        [str(w) for w in words], capture_output=True, text=True, timeout=600, **kwargs
    )
    assert done.returncode == 0, f"{words}:\n{done.stdout}\n{done.stderr}"
    return done.stdout


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """The wheel, the sdist, and the wheel that the sdist makes."""
    folder = tmp_path_factory.mktemp("dist")
    run(sys.executable, "-m", "hatchling", "build", "-d", folder, cwd=ROOT)
    (sdist,), (wheel,) = folder.glob("*.tar.gz"), folder.glob("*.whl")
    again = folder / "again"
    run(
        sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation",
        "--disable-pip-version-check", "--no-index", "--wheel-dir", again, sdist,
    )  # fmt: skip
    return wheel, sdist, next(again.glob("*.whl"))


def contents(wheel):
    with zipfile.ZipFile(wheel) as file:
        return {n: file.read(n) for n in file.namelist() if not n.endswith("RECORD")}


@pytest.mark.deep
def test_the_wheel_has_the_package_and_the_sdist_makes_the_same(built):
    wheel, _, again = built
    found = contents(wheel)
    assert found == contents(again)
    tops = {name.split("/")[0] for name in found}
    assert tops == {"miniml", "_miniml_pytest.py", f"miniml-{ml.__version__}.dist-info"}
    assert {"miniml/py.typed", "miniml/viz/page.html"} <= found.keys()
    assert wheel.stat().st_size < 3_000_000


@pytest.mark.deep
def test_the_sdist_has_what_its_makefile_and_pages_need(built):
    own = {p.relative_to(ROOT).as_posix() for p in ROOT.glob("*.*") if p.suffix in (".md", ".txt")}
    for folder in ("docs", "notebooks", "examples", "tools"):
        files = (p for p in (ROOT / folder).rglob("*") if p.suffix in (".py", ".md", ".ipynb"))
        own |= {p.relative_to(ROOT).as_posix() for p in files if ROOT / "docs/api" not in p.parents}
    with tarfile.open(built[1]) as file:
        names = {name.partition("/")[2] for name in file.getnames()}
    assert own | {"Makefile", ".ci/run"} <= names
    assert {"CHANGELOG.md", "notebooks/03_training.ipynb", "docs/conf.py"} <= own


@pytest.mark.deep
def test_an_index_would_take_them(built):
    """As `twine check` and an index look at them: valid metadata, equal in both, a description."""
    wheel, sdist, _ = built
    with tarfile.open(sdist) as file:
        own = file.extractfile(f"miniml-{ml.__version__}/PKG-INFO").read()
    for said in (own, contents(wheel)[f"miniml-{ml.__version__}.dist-info/METADATA"]):
        found = Metadata.from_email(said, validate=True)
        assert set(found.classifiers) <= trove_classifiers.classifiers
        assert found.description_content_type == "text/markdown"
        assert found.description.startswith("# miniml\n")
        assert found.license_files == ["LICENSE"]
    assert own == contents(wheel)[f"miniml-{ml.__version__}.dist-info/METADATA"]


def test_metadata_that_is_not_valid_is_refused():
    with pytest.raises(ExceptionGroup):
        Metadata.from_email(b"Metadata-Version: 2.5\nName: mini ml\nVersion: 0.2", validate=True)


@pytest.mark.deep
def test_the_page_says_how_large_they_are(built):
    said = (ROOT / "docs" / "start.md").read_text("utf-8")
    size, files, source = re.search(r"([\d.]+) MB in (\d+) files; .* ([\d.]+) MB", said).groups()
    wheel, sdist, _ = built
    assert wheel.stat().st_size == pytest.approx(1e6 * float(size), rel=0.15)
    assert sdist.stat().st_size == pytest.approx(1e6 * float(source), rel=0.15)
    assert len(contents(wheel)) == pytest.approx(int(files), rel=0.15)


def core_lock(path):
    """The lock's entries of what miniml itself depends on, with their hashes."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    names = {re.match(r"[\w-]+", d)[0].replace("_", "-") for d in project["dependencies"]}
    names |= {"typing-extensions"}  # of optree
    entries = re.split(r"(?<!\\)\n", (ROOT / "requirements-lock.txt").read_text("utf-8"))
    path.write_text("\n".join(e for e in entries if e.split("==")[0] in names), "utf-8")
    return path


@pytest.mark.deep
def test_it_works_in_an_empty_environment_and_says_what_is_missing(built, tmp_path):
    wheel, *_ = built
    venv.create(tmp_path / "env", with_pip=True)
    python = tmp_path / "env" / "bin" / "python"
    pip = python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps"
    run(*pip, "--require-hashes", "--only-binary", ":all:", "-r", core_lock(tmp_path / "lock.txt"))
    run(*pip, wheel)
    nowhere = {k: v for k, v in os.environ.items() if k not in ("CC", "CXX", "PYTHONPATH")}
    env = {**nowhere, "PATH": str(python.parent), "MINIML_CACHE": str(tmp_path / "cache")}
    said = run(python, "-c", PROGRAM, cwd=tmp_path, env=env)
    sentences = dict(re.findall(r"^(\w+): (.*)$", said, re.MULTILINE))
    assert "scikit-learn" in sentences["digits"]
    assert "onnx" in sentences["onnx"]
    assert "pip install torch" in sentences["torch"]
    assert sentences["bars"] == "there"
    assert f"site-packages/miniml/__init__.py {ml.__version__}" in said
    assert "compiler" in run(python, "-m", "miniml", "doctor", cwd=tmp_path, env=env)


@pytest.mark.deep
def test_a_new_project_trains_and_its_tests_pass(tmp_path):
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    folder = tmp_path / "spirals"
    run(sys.executable, "-m", "miniml", "new", folder, cwd=tmp_path, env=env)
    said = run(sys.executable, "train.py", cwd=folder, env=env)
    assert float(re.search(r"([\d.]+)% of new points", said)[1]) > 95
    assert "4 passed" in run(sys.executable, "-m", "pytest", "-q", cwd=folder, env=env)


def test_a_folder_that_holds_something_stays_as_it_is(tmp_path, capsys):
    (tmp_path / "mine.txt").write_text("mine")
    assert cli.main(["new", str(tmp_path)]) == 2
    assert "is not empty" in capsys.readouterr().err
    assert [p.name for p in tmp_path.iterdir()] == ["mine.txt"]


def test_versions_agree():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    assert project["version"] == ml.__version__
    assert f"\n## {ml.__version__}\n" in (ROOT / "CHANGELOG.md").read_text("utf-8")
