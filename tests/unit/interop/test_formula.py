"""ml.elementwise: a primitive from one expression, on every device, with every gradient."""

import math
import re
from pathlib import Path

import numpy as np
import pytest
from scipy import special

import miniml as ml
from miniml import nn, ops, optim
from miniml.core.primitive import primitives
from miniml.errors import DeclarationError, MinimlError
from miniml.grad import grad, jvp
from miniml.interop.formula import FORMULAS
from miniml.testing import gradcheck, opcheck
from tests.frame.native import needs_compiler

X = np.array([-2.5, -1.0, -0.3, 0.2, 0.7, 1.9, 3.2])
Y = np.array([0.4, -0.9, 1.7, 2.2, -0.1, 1.3, 0.8])

# Expressions, their attributes, and the same in NumPy, by hand; the slope in x where it is known.
CASES = {
    "x * x * x": ({}, lambda x: x**3, lambda x: 3 * x**2),
    "-x + 2": ({}, lambda x: 2 - x, lambda x: -1 + 0 * x),
    "a * x + b": ({"a": 3.0, "b": -1.0}, lambda x: 3 * x - 1, lambda x: 3 + 0 * x),
    "x - 1.5 - 2.0 - 3e-1": ({}, lambda x: x - 3.8, lambda x: 1 + 0 * x),
    "8.0 / 4.0 / (x * x + 2.0f)": (
        {},
        lambda x: 2 / (x**2 + 2),
        lambda x: -4 * x / (x**2 + 2) ** 2,
    ),
    "x > 0 ? x : alpha * expm1(x)": (
        {"alpha": 1.5},
        lambda x: np.where(x > 0, x, 1.5 * np.expm1(x)),
        lambda x: np.where(x > 0, 1, 1.5 * np.exp(x)),
    ),
    "x < -1 ? -1.0 : x > 1 ? 1.0 : x": (
        {},
        lambda x: np.clip(x, -1, 1),
        lambda x: np.where(abs(x) > 1, 0.0, 1.0),
    ),
    "x > -1 && x < 2 || x == 3 ? x * 2 : 0.0": (
        {},
        lambda x: np.where((x > -1) & (x < 2), 2 * x, 0),
        lambda x: np.where((x > -1) & (x < 2), 2.0, 0),
    ),
    "!(x >= 0) ? -x : x": ({}, np.abs, np.sign),
    "exp(-x * x / 2.0) * erf(x)": (
        {},
        lambda x: np.exp(-x * x / 2) * special.erf(x),
        lambda x: np.exp(-x * x / 2)
        * (2 / math.sqrt(math.pi) * np.exp(-x * x) - x * special.erf(x)),
    ),
    "pow(fabs(x), 2.5)": (
        {},
        lambda x: np.abs(x) ** 2.5,
        lambda x: 2.5 * np.abs(x) ** 1.5 * np.sign(x),
    ),
    "atan2(x, 2.0) + hypot(x, 1.0)": (
        {},
        lambda x: np.arctan2(x, 2) + np.hypot(x, 1),
        lambda x: 2 / (x**2 + 4) + x / np.hypot(x, 1),
    ),
    "nan_max(x, 0.5) + fmin(x, 1.0)": (
        {},
        lambda x: np.maximum(x, 0.5) + np.minimum(x, 1),
        lambda x: (x > 0.5) + 1.0 * (x < 1),
    ),
    "tanh(log1p(exp(x))) * x": (
        {},
        lambda x: np.tanh(np.log1p(np.exp(x))) * x,
        lambda x: np.tanh(np.logaddexp(0, x))
        + x * (1 - np.tanh(np.logaddexp(0, x)) ** 2) / (1 + np.exp(-x)),
    ),
    "floor(x) + x": ({}, lambda x: np.floor(x) + x, lambda x: 1 + 0 * x),
    # Numbers are floats where C would have ints, and truths are numbers where these are due.
    "nan_max(0, x) + 7 / (x > 0 ? 2 : 3)": (
        {},
        lambda x: np.maximum(x, 0) + np.where(x > 0, 3.5, 7 / 3),
        lambda x: 1.0 * (x > 0),
    ),
    "((x > 0) + (x > 1)) * x + -(x < 0) / 2": (
        {},
        lambda x: x * (1.0 * (x > 0) + (x > 1)) - (x < 0) / 2,
        lambda x: 1.0 * (x > 0) + (x > 1),
    ),
    "x ? !x + (x && 1) * x : 0": ({}, lambda x: x, lambda x: 1 + 0 * x),
    "x > 0.5": ({}, lambda x: 1.0 * (x > 0.5), lambda x: 0 * x),
    "exp(x > 0) * T(2) * x": (
        {},
        lambda x: np.where(x > 0, np.e, 1) * 2 * x,
        lambda x: np.where(x > 0, np.e, 1) * 2,
    ),
}  # fmt: skip
MADE = {
    text: ml.elementwise(f"Formula{i}", text, **case[0])
    for i, (text, case) in enumerate(CASES.items())
}


@pytest.mark.parametrize("text", CASES)
def test_values_and_slopes(text):
    _, value, slope = CASES[text]
    op = MADE[text]()
    np.testing.assert_allclose(op(X).asnumpy(), value(X), rtol=1e-13)
    found = grad(lambda x: ops.sum(op(x)))(X)
    np.testing.assert_allclose(found.asnumpy(), slope(X), rtol=1e-12, atol=1e-14)
    tangent = jvp(op, (X,), (Y,))[1]
    np.testing.assert_allclose(tangent.asnumpy(), slope(X) * Y, rtol=1e-12, atol=1e-14)
    single = op(X.astype(np.float32))
    assert single.dtype == np.float32
    np.testing.assert_allclose(single.asnumpy(), value(X), rtol=3e-6, atol=1e-6)
    assert ml.vmap(op)(np.stack([X, Y])).shape == (2, 7)


@needs_compiler
def test_fused_in_c_they_are_the_same():
    def every(x):
        return tuple(op()(x) * 1.0 for op in MADE.values())

    with ml.context(providers=("cc", "miniml")):
        compiled, slopes = ml.jit(every)(X), ml.jit(grad(lambda x: sum(map(ops.sum, every(x)))))(X)
    for got, (_, value, _) in zip(compiled, CASES.values(), strict=True):
        np.testing.assert_allclose(got.asnumpy(), value(X), rtol=1e-12, atol=1e-13)
    total = sum(slope(X) for _, _, slope in CASES.values())
    np.testing.assert_allclose(slopes.asnumpy(), total, rtol=1e-11)


@pytest.mark.parametrize("text", [*CASES][4:12:3] + [*CASES][15:19])
def test_on_the_simulator_of_cuda(text):
    with ml.context(device_target="cuda-sim"):
        got = MADE[text]()(X).asnumpy()
    np.testing.assert_allclose(got, CASES[text][1](X), rtol=1e-12, atol=1e-13)


def test_several_inputs_broadcast_in_the_order_of_the_text():
    op = ml.elementwise("FormulaTwo", "w * sin(z) + c * z", c=2.0)
    assert op()._inputs == ("w", "z")
    w, z = X[:, None], Y[None, :3]
    np.testing.assert_allclose(op()(w, z).asnumpy(), w * np.sin(z) + 2 * z, rtol=1e-13)
    dw, dz = grad(lambda w, z: ops.sum(op()(w, z)), (0, 1))(w, z)
    np.testing.assert_allclose(dw.asnumpy(), np.broadcast_to(np.sin(z), (7, 3)).sum(1)[:, None])
    np.testing.assert_allclose(dz.asnumpy(), (w * np.cos(z) + 2).sum(0)[None], rtol=1e-12)
    assert op()(np.arange(3), 2).dtype == np.float32


def test_it_passes_the_checkers_and_trains():
    snake = ml.elementwise(
        "FormulaSnake", "x + sin(alpha * x) * sin(alpha * x) / alpha", alpha=1.0, doc="Snake."
    )
    assert (snake.__doc__, snake.__module__) == ("Snake.", __name__)
    assert snake.defined_at.startswith(__file__)
    gradcheck(snake(0.5), X, order=2)
    opcheck(snake(0.5), budget=8)
    ml.manual_seed(0)
    first, second = nn.Dense(1, 16), nn.Dense(16, 1)
    parameters = [*first.trainable_params(), *second.trainable_params()]
    optimizer = optim.Adam(parameters, lr=0.03)
    x = np.linspace(-2, 2, 32, dtype=np.float32)[:, None]

    @ml.jit
    def step():
        def loss():
            return ops.mean((second(snake(2.0)(first(x))) - np.sin(3 * x)) ** 2)

        value, gradients = ml.grad.value_and_grad(loss, None, weights=parameters)()
        optimizer.update(gradients)
        return value

    begin = step().item()
    for _ in range(60):
        last = step().item()
    assert last < 0.5 * begin


def test_ties_halve_the_gradient_and_a_number_wins_over_nan():
    x, y = np.array([1.0, np.nan, 2.0, 3.0]), np.array([1.0, 3.0, np.nan, 2.0])
    for name, low, slopes in (("fmin", True, [0.5, 0, 1, 0]), ("fmax", False, [0.5, 0, 1, 1])):
        op = ml.elementwise(f"FormulaOf{name}", f"{name}(x, y)")()
        np.testing.assert_array_equal(op(x, y).asnumpy(), (np.fmin if low else np.fmax)(x, y))
        dx, dy = grad(lambda x, y, op=op: ops.sum(op(x, y)), (0, 1))(x, y)
        np.testing.assert_array_equal(dx.asnumpy(), slopes)
        np.testing.assert_array_equal(dy.asnumpy(), 1 - np.array(slopes))


def test_a_bprop_of_ones_own_is_used():
    text = "x > 0 ? 1.0 : -1.0 + 0.0 * x"
    op = ml.elementwise("FormulaSign", text, bprop=lambda self, x, out, dout: (dout,))
    np.testing.assert_array_equal(grad(lambda x: ops.sum(op()(x)))(X).asnumpy(), np.ones(7))


def test_the_page_lists_the_language():
    page = Path(__file__).parents[3] / "docs" / "transforms.md"
    table = page.read_text().split("## The language of")[1].split("\n## ")[0]
    listed = set(re.findall(r"`([a-z]\w*)`", table.replace("ml.elementwise", "")))
    assert listed == {name for name in FORMULAS if name.isidentifier()} - {"negative", "T"}


REFUSED = {
    "x +": (r"it ends\n  x \+\n     \^", {}),
    "sin(x": (r"its end where '\)' is due\n  sin\(x\n       \^", {}),
    "x $ y": (r"'\$' is nothing that it knows\n  x \$ y\n    \^", {}),
    "1 / 2 * x": (r"without fractions; write 1.0 / 2.0\n  1 / 2 \* x\n    \^", {}),
    "x + foo(x)": (r"foo is no function.*\n  x \+ foo\(x\)\n      \^", {}),
    "x ^ 2": (r"'\^' is nothing that it knows", {}),
    "pow(x)": ("pow takes 2; it has 1", {}),
    "x y": ("'y' follows a whole expression", {}),
    "": ("it ends", {}),
    "1.0 + 2.0": ("names no input", {}),
    "x * out": ("got the name 'out'", {}),
    "double + x": ("got the name 'double'; give one that is no word of Python or of C", {}),
    "M_PI * x": (r"M_PI is a constant of C.*\n  M_PI \* x\n  \^", {}),
    "x * 1e999": (r"1e999 is no float64", {}),
    "x": ("has the attribute beta, which 'x' lacks", {"beta": 1.0}),
    "x * k": ("number", {"k": "a"}),
}


@pytest.mark.parametrize("text", REFUSED)
def test_refusals_name_the_place(text):
    match, attributes = REFUSED[text]
    with pytest.raises(MinimlError, match=match):
        ml.elementwise("FormulaRefused", text, **attributes)
    assert "FormulaRefused" not in primitives
    with pytest.raises(DeclarationError, match="got the name 'not a name'"):
        ml.elementwise("not a name", "x")
    with pytest.raises(DeclarationError, match="its expression is a string"):
        ml.elementwise("FormulaRefused", 3)
