"""The networks of the notebooks out to ONNX: what onnxruntime computes of the file, and miniml
again, is what the network computes."""

import ast
from pathlib import Path

import numpy as np
import optree
import pytest

import miniml as ml
from miniml import ops

onnx = pytest.importorskip("onnx", reason="no onnx")
ort = pytest.importorskip("onnxruntime", reason="no onnxruntime")
ort.set_default_logger_severity(4)

NOTEBOOKS = Path(__file__).parents[3] / "notebooks"
DIGITS, POINTS = (3, 1, 8, 8), (3, 2)
SYMBOLS = list("abcdefgh")
LETTERS = {"symbols": SYMBOLS, "pieces": SYMBOLS, "LENGTH": 16}

# The notebook, the names that make the network, the network, the shape that it takes, and what the
# notebook has by then.
NETWORKS = {
    "01 snake": (
        "01_first_primitive", "OwnSnake get_bprop_snake snake_cpu OwnSnakeLayer net", "net", (4, 1),
        {},
    ),
    "03 digits": ("03_training", "Block make", "make()[0]", DIGITS, {}),
    "05 digits": ("05_digits", "net", "net", DIGITS, {}),
    "06 LSTM": ("06_language_model", "LSTM", "LSTM(12)", "tokens", LETTERS),
    "06 transformer": (
        "06_language_model", "Transformer", "Transformer(16, depth=2)", "tokens", LETTERS,
    ),
    "07 blocks": ("07_looking_inside", "Block net", "net", DIGITS, {}),
    "07 distance": ("07_looking_inside", "Distance far", "far", DIGITS, {}),
    "08 implicit": (
        "08_implicit_layers", "fixed_point Implicit net", "net", POINTS,
        {"rng": np.random.default_rng(0)},
    ),
    "09 generator": ("09_generating", "mlp", "mlp(8, 64, 64, 2)", (3, 8), {}),
    "09 autoencoder": ("09_generating", "mlp Autoencoder", "Autoencoder()", DIGITS, {}),
    "10 cell": ("10_in_pytorch_and_jax", "cell", "cell", (3, 1), {}),
    "11 digits": ("11_onnx", "net", "net", DIGITS, {}),
}  # fmt: skip


def defined(notebook, names, given):
    """What a notebook has after the imports of miniml and NumPy, and the first statements that
    define these names."""
    wanted, kept = names.split(), []
    text = (NOTEBOOKS / f"{notebook}.py").read_text("utf-8")
    text = text.replace("Snake", "OwnSnake")  # names of primitives are global
    for statement in ast.parse(text).body:
        if isinstance(statement, (ast.Import, ast.ImportFrom)):
            module = getattr(statement, "module", None) or statement.names[0].name
            first, *rest = module.split(".")
            if first in {"miniml", "numpy", "itertools"} and rest != ["interop"]:
                kept.append(statement)
            continue
        name = getattr(statement, "name", None)
        if isinstance(statement, ast.Assign) and isinstance(statement.targets[0], ast.Name):
            name = statement.targets[0].id
        if name in wanted:
            wanted.remove(name)
            kept.append(statement)
    assert not wanted
    space = {"__name__": f"notebook_{notebook}", **given}
    exec(compile(ast.Module(kept, []), notebook, "exec"), space)
    return space


@pytest.mark.parametrize("name", NETWORKS)
def test_the_network_of_a_notebook_is_what_onnxruntime_computes(name, tmp_path):
    notebook, names, expression, takes, given = NETWORKS[name]
    ml.manual_seed(0)
    space = defined(notebook, names, given)
    if "OwnSnake" in space:  # no operator of ONNX, and no expression: it says what it is made of
        ml.onnx.register_composition(space["OwnSnake"])(
            lambda self, x: x + ops.sin(self.alpha * x) ** 2 / self.alpha
        )
    net = eval(expression, space).set_train(False)
    draw = np.random.default_rng(1)
    x = draw.integers(0, 8, (2, 16)) if takes == "tokens" else draw.normal(size=takes)
    x = x.astype(np.int32 if takes == "tokens" else np.float32)
    path = str(tmp_path / "net.onnx")
    ml.onnx.save(net, path, x)
    onnx.checker.check_model(path, full_check=True)
    session = ort.InferenceSession(path)
    theirs = session.run(None, {session.get_inputs()[0].name: x})
    again = ml.onnx.load(path)
    for fn in (net, again):
        ours = [leaf.asnumpy() for leaf in optree.tree_leaves(fn(x))]
        assert len(ours) == len(theirs)
        for a, b in zip(ours, theirs, strict=True):
            np.testing.assert_allclose(a, b, 1e-4, 1e-5)
