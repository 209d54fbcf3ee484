"""What a type checker, `help` and `dir` know of miniml."""

import inspect
import pydoc
import re
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

import miniml as ml
from miniml import Primitive, ops
from miniml.errors import ArityError
from tests.unit.typed import own_code

ROOT = Path(__file__).parents[2]
TYPED = Path(__file__).parent / "typed"


@pytest.fixture(scope="module")
def report():
    """What mypy says of the two files, strictly; `make lint` fills the same cache."""
    files = [str(TYPED / name) for name in ("own_code.py", "mistakes.py")]
    run = [sys.executable, "-m", "mypy", "--config-file", "pyproject.toml", *files]
    return subprocess.run(run, cwd=ROOT, capture_output=True, text=True, timeout=250).stdout


def test_mypy_is_content_with_a_users_file(report):
    assert "mistakes.py" in report
    assert [line for line in report.splitlines() if "own_code.py" in line] == []
    assert [line for line in report.splitlines() if line.startswith("miniml")] == []


def test_mypy_finds_each_mistake(report):
    lines = (TYPED / "mistakes.py").read_text().splitlines()
    marked = {(i, line.split("  # ")[1]) for i, line in enumerate(lines, 1) if "  # " in line}
    found = re.findall(r"mistakes\.py:(\d+): error: .*\[([a-z-]+)\]", report)
    assert {(int(line), code) for line, code in found} == marked
    assert len(marked) > 20


def test_the_users_file_runs():
    assert own_code.train() < 100.0


def test_types_are_shipped(tmp_path):
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)]
    subprocess.run(build, cwd=ROOT, check=True, capture_output=True, timeout=100)
    (wheel,) = tmp_path.glob("*.whl")
    assert "miniml/py.typed" in zipfile.ZipFile(wheel).namelist()


@pytest.mark.parametrize(
    ("called", "expected"),
    [
        (ops.sin, "(x)"),
        (ops.add, "(x, y)"),
        (ops.where, "(cond, x, y)"),
        (ops.relu_grad, "(x, dout)"),
        (ops.Concat(0), "(*xs)"),
        (ops.Sin, "()"),
        (own_code.TypedSnake, "(alpha: float = 1.0)"),
        (own_code.TypedSnake(), "(x)"),
    ],
)
def test_signatures_name_inputs_and_attributes(called, expected):
    assert str(inspect.signature(called)) == expected


def test_each_primitive_has_both_signatures():
    for kind in vars(ops).values():
        if isinstance(kind, type) and issubclass(kind, Primitive) and kind.name == kind.__name__:
            assert list(inspect.signature(kind).parameters) == [f.name for f in kind._fields]
            names = list(inspect.signature(kind.__call__).parameters)[1:]
            assert kind._inputs in (None, tuple(names))


def test_help_shows_the_inputs():
    shown = pydoc.plain(pydoc.render_doc(ops.where))
    assert "__call__(self, /, cond, x, y)" in shown
    assert "*args" not in shown.split("Methods inherited")[0]


def test_inputs_by_name():
    x, y = ml.Tensor([1.0, 2.0]), ml.Tensor([3.0, 5.0])
    assert ops.sub(y=x, x=y).tolist() == [2.0, 3.0]
    assert ops.sub(y, y=x).tolist() == [2.0, 3.0]
    assert ml.jit(lambda x, y: ops.sub(y=x, x=y))(x, y).tolist() == [2.0, 3.0]
    slopes = ml.grad.grad(lambda x, y: ops.sum(ops.mul(x, y=ops.square(x=y))), (0, 1))(x, y)
    assert [s.tolist() for s in slopes] == [[9.0, 25.0], [6.0, 20.0]]
    curve = ml.grad.grad(lambda x: ops.sum(ml.grad.grad(lambda z: ops.sum(ops.sin(x=z)))(x)))
    assert curve(x).tolist() == (-ops.sin(x)).tolist()


@pytest.mark.parametrize(
    ("args", "inputs", "expected"),
    [
        ((1.0,), {"z": 1.0}, r"Add takes the inputs \(x, y\); missing a required argument: 'y'"),
        ((1.0, 2.0), {"z": 1.0}, "got an unexpected keyword argument 'z'"),
        ((1.0,), {"x": 1.0}, "multiple values for argument 'x'"),
    ],
)
def test_inputs_by_other_names_are_refused(args, inputs, expected):
    with pytest.raises(ArityError, match=expected) as caught:
        ops.add(*args, **inputs)
    assert "test_types.py" in caught.value.__notes__[0]


def test_a_call_of_ones_own_stays():
    class OwnCall(ops.Sin):
        def __call__(self, x):
            return "own"

    assert OwnCall()(1.0) == "own"
