"""Loops over chains of choices have no branches, so that compilers vectorise them."""

import re
import subprocess

import numpy as np
import pytest

import miniml as ml
from miniml import ops
from miniml.backends.cc import units
from miniml.backends.cc.units import unit
from miniml.grad import grad

COMPILER = units.TOOLS.find()
X = np.array([np.nan, -np.inf, -7.0, -0.0, 0.0, 1e-9, 0.5, 6.0, 7.0, np.inf] * 100, np.float32)
PACKED = re.compile(r"\bv?mulp[sd]\b|\bfmul\s+v\d+\.\d[sd]\b")
ALONE = re.compile(r"\bv?mulss\b|\bfmul\s+s\d")
# Vectors without SSE4.1 take longer than one element after another where bits are compared.
SCALAR = "#if defined(__x86_64__) && !defined(__SSE4_1__)\nold\n#endif\n"
OLD = "#if defined(__GNUC__) && !defined(__clang__) && __GNUC__ < 12\nold\n#endif\n"


def is_one(text):
    """True where the compiler, for this processor, is one of those that the text is about."""
    command = [*COMPILER, *units.FLAGS, "-E", "-x", "c", "-"]
    found = subprocess.run(command, input=text.encode(), check=True, capture_output=True)
    return b"\nold" in found.stdout


CHAINS = {
    "clip": (
        lambda x: 3.0 * ops.clip(ops.clip(x, 0.0, None), None, 6.0),
        lambda x: 3.0 * np.minimum(np.maximum(x, 0.0), 6.0),
    ),
    "maximum": (
        lambda x: 3.0 * ops.maximum(ops.minimum(ops.maximum(x, 0.5), x + 1.0), 0.0),
        lambda x: 3.0 * np.maximum(np.minimum(np.maximum(x, 0.5), x + 1.0), 0.0),
    ),
    "log1p": (
        lambda x: ops.log1p(ops.relu(x)),
        lambda x: np.log1p(np.maximum(x, 0.0)),
    ),
    "exp": (
        lambda x: ops.exp(ops.log1p(x)),
        lambda x: np.exp(np.log1p(x)),
    ),
    "expm1": (
        lambda x: ops.expm1(ops.log(x)),
        lambda x: np.expm1(np.log(x)),
    ),
    "pow": (
        lambda x: ops.pow(ops.clip(x, 0.0, 1.0), 2.5),
        lambda x: np.clip(x, 0.0, 1.0) ** 2.5,
    ),
    "xlogy": (
        lambda x: ops.xlogy(ops.relu(x), ops.relu(x)),
        lambda x: np.where(x <= 0.0, 0.0, x * np.log(np.where(x <= 0.0, 1.0, x))),
    ),
    "where": (
        lambda x: ops.where(ops.logical_and(ops.clip(x, None, 2.0) > 0.0, x < 3.0), 3.0 * x, 1.0),
        lambda x: np.where((x > 0.0) & (x < 3.0), 3.0 * x, 1.0),
    ),
}


@pytest.mark.skipif(not COMPILER, reason="no C compiler")
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("name", CHAINS)
def test_chains_of_choices_are_vectorised(monkeypatch, tmp_path, name):
    if name in ("pow", "where") and is_one(OLD):
        pytest.skip("GCC before version 12 cannot leave out partial redundancies of one function")
    fn, expected = CHAINS[name]
    sources, load = [], units.load
    monkeypatch.setattr(units, "load", lambda given: sources.extend(given) or load(given))
    with ml.context(providers=("cc",)):
        got = ml.jit(fn)(X).asnumpy()
    np.testing.assert_allclose(got, expected(X.astype(np.float64)), rtol=1e-5, atol=1e-6)
    loops = [s for s in sources if "MINIML_APART" in s.text]
    alone = name == "pow" and is_one(SCALAR)
    assert alone or PACKED.search(assembly(loops, tmp_path / "loops.s"))


@pytest.mark.skipif(not COMPILER or is_one(OLD), reason="no compiler that takes the attribute")
def test_a_choice_that_asks_what_another_one_chose_is_vectorised(monkeypatch, tmp_path):
    """As in the gradient of relu, in one loop with relu: without a branch for each element."""
    knots = np.arange(8, dtype=np.float32)
    weights = np.linspace(1, 2, 8, dtype=np.float32)
    x = np.random.default_rng(0).normal(4, 3, (640, 1)).astype(np.float32)
    fn = grad(lambda x: ops.sum(ops.square(ops.sum(ops.relu(x - knots) * weights, 1))))
    sources, load = [], units.load
    monkeypatch.setattr(units, "load", lambda given: sources.extend(given) or load(given))
    with ml.context(providers=("cc",)):
        got = ml.jit(fn)(x).asnumpy()
    above = np.maximum(x.astype(np.float64) - knots, 0.0)
    expected = 2 * (above * weights).sum(1) * ((above > 0) * weights).sum(1)
    np.testing.assert_allclose(got[:, 0], expected, rtol=1e-5)
    text = assembly([s for s in sources if "MINIML_APART" in s.text], tmp_path / "loops.s")
    assert PACKED.search(text)
    assert not ALONE.search(text)


@pytest.mark.skipif(not COMPILER, reason="no C compiler")
@pytest.mark.parametrize(
    ("fn", "expected", "rolled"),
    [
        (lambda x: ops.log(ops.sum(ops.exp(x), 1)), lambda x: np.log(np.exp(x).sum(1)), True),
        (lambda x: ops.sum(x * x, 1), lambda x: (x * x).sum(1), False),
    ],
)
def test_loops_over_short_rows_are_unrolled_where_that_pays(monkeypatch, fn, expected, rolled):
    """Not beside elementary functions: GCC compares all memory of all rounds, which takes as long
    as the products of a small network. Sums alone would take up to 1.45 of the time."""
    x = np.random.default_rng(0).normal(size=(32, 10)).astype(np.float32)
    sources, load = [], units.load
    monkeypatch.setattr(units, "load", lambda given: sources.extend(given) or load(given))
    with ml.context(providers=("cc",)):
        got = ml.jit(fn)(x).asnumpy()
    np.testing.assert_allclose(got, expected(x.astype(np.float64)), 1e-5)
    loops = r"(.* end = 10L;.*)\n *for \(; i < end"
    before = [line for s in sources for line in re.findall(loops, s.text)]
    assert before
    assert all(line.endswith("MINIML_ROLLED") == rolled for line in before)


def assembly(sources, out):
    command = [*COMPILER, *units.FLAGS, "-S", "-x", "c", "-", "-o", str(out)]
    subprocess.run(command, input=unit(sources).encode(), check=True, capture_output=True)
    return out.read_text("latin-1")
