"""`python -m miniml run`: a saved graph, by a reader that has the runtime only."""

import re
import subprocess
import sys

import numpy as np
import pytest

import miniml as ml
from miniml import cli, nn, ops
from miniml.cli import run

X = np.linspace(-1, 1, 6, dtype=np.float32).reshape(2, 3)
TRAINING = ("grad", "nn", "optim", "train", "testing", "data", "viz")


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    np.save("x.npy", X)
    return tmp_path


def refusal(capsys, *command):
    assert cli.main(["run", *command]) == 2
    return capsys.readouterr().err


def test_a_reader_needs_nothing_of_training(folder):
    net = nn.Sequential(nn.Dense(3, 20), nn.ReLU(), nn.LayerNorm(20), nn.Dense(20, 2))
    ml.save_graph(net, "net.json", X)
    code = f"""
import sys
from miniml.cli import main
assert main("run net.json --input x.npy --output y.npy --repeat 3".split()) == 0
found = [m for m in sys.modules if m.startswith({tuple(f"miniml.{part}" for part in TRAINING)!r})]
assert not found, found
"""
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=100)
    assert run.returncode == 0, run.stderr
    assert "first call, compiled, " in run.stdout
    assert "2 more: least " in run.stdout
    np.testing.assert_allclose(np.load("y.npy"), net(X).asnumpy(), 1e-5)  # in C, and by NumPy


def test_gradients_are_found_as_soon_as_anybody_differentiates(folder):
    ml.save_graph(lambda x: ops.sum(ops.exp(x)), "exp.json", X)
    code = """
import sys, numpy as np, miniml as ml
graph = ml.load_graph("exp.json")
assert "miniml.grad" not in sys.modules
print(ml.grad.grad(graph)(np.zeros((2, 3), np.float32)).tolist()[0])
"""
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=100)
    assert run.stdout == "[1.0, 1.0, 1.0]\n", run.stderr


def test_the_first_gradient_makes_nothing_stale():
    """Importing the gradient rules while a function is traced is no change of anything."""
    code = """
import numpy as np, miniml as ml
f = ml.jit(lambda x: ml.grad.grad(lambda x: (x * x).sum())(x))
f(np.ones(3, np.float32)), f(np.ones(3, np.float32))
print(f.recompilations)
"""
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=100)
    assert run.stdout == "['first call']\n", run.stderr


def test_inputs_and_outputs_go_by_name(folder, capsys):
    ml.save_graph(lambda a, b: {"sum": a + b, "difference": a - b}, "two.json", X, X)
    np.save("one.npy", np.ones_like(X))
    assert cli.main(
        "run two.json --input b=one.npy --input a=x.npy --output sum=s.npy".split()
    ) == 0  # fmt: skip
    np.testing.assert_array_equal(np.load("s.npy"), X + 1)
    assert "difference: Tensor(" in capsys.readouterr().out


def test_times_of_seconds_are_seconds():
    assert [*map(run._duration, (2e-5, 0.999, 1.04))] == ["0.02 ms", "999 ms", "1.04 s"]
    assert [*map(run._duration, (0.99951, 1234.0))] == ["1 s", "1230 s"]


def test_a_profile_says_what_each_node_took(folder, capsys):
    ml.save_graph(lambda x: ops.sort(ops.exp(x))[0], "sorted.json", X)
    assert cli.main("run sorted.json --input x.npy --repeat 3 --profile".split()) == 0
    _, table = capsys.readouterr().out.split("2 more: least ")
    rows = [line.split() for line in table.splitlines() if re.search(r"\b(Exp|Sort)\b", line)]
    assert sorted((row[5], row[2]) for row in rows) == [("Exp", "3"), ("Sort", "3")]  # calls


def test_kernels_of_the_users_own_are_imported_when_asked_for(folder, capsys):
    ml.save_graph(ops.Custom("RunThrice", outputs=[X]), "custom.json", X)
    assert "RunThrice has no kernel" in refusal(capsys, "custom.json", "--input", "x.npy")
    (folder / "thrice.py").write_text(
        "import numpy as np\nimport miniml as ml\n\n"
        '@ml.kernel("RunThrice", "cpu", "f->f")\n'
        "def thrice(x, *, out):\n    np.multiply(x, 3, out=out)\n"
    )
    command = "run custom.json --import thrice.py --input x.npy --output y.npy"
    assert cli.main(command.split()) == 0
    np.testing.assert_array_equal(np.load("y.npy"), 3 * X)


@pytest.mark.parametrize(
    ("command", "sentence"),
    [
        ("exp.json", r"needs the input x: float32\[2, 3\]; give --input x=FILE.npy"),
        ("exp.json --input y=x.npy", "'y' is no input; there are: x"),
        ("exp.json --input x.npy --input x.npy", "'' is no input"),
        ("exp.json --input x=x.npy --input x=x.npy", "'x' is given twice"),
        ("exp.json --input none.npy", "none.npy cannot be loaded: No such file"),
        ("exp.json --input exp.json", "damaged, or no .npy file of numbers"),
        ("exp.json --input wide.npy", r"takes x: float32\[2, 3\]; got float64\[2, 3\]"),
        ("exp.json --input x.npy --output none/y.npy", "cannot be saved: No such file"),
        ("none.json", "none.json does not exist"),
        ("x.npy", "it is damaged, or not a saved graph"),
        ("model.onnx", r"is a model in ONNX, not a saved graph: ml\.onnx\.load\(path\) reads it"),
    ],
)
def test_what_cannot_be_run_is_one_sentence(folder, capsys, command, sentence):
    ml.save_graph(ops.exp, "exp.json", X)
    np.save("wide.npy", X.astype(np.float64))
    (folder / "model.onnx").touch()
    error = refusal(capsys, *command.split())
    assert re.search(sentence, error), error
