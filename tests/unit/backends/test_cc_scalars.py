"""Scalar expressions in C against the NumPy kernels that define them."""

import itertools

import ml_dtypes
import numpy as np
import pytest
from scipy import special

from miniml import ArraySpec, Kernel, bfloat16, bool_, float16, float32, float64
from miniml.backends import registry
from miniml.backends.cc import units
from miniml.backends.cc.scalars import in_c, literal, names
from miniml.backends.cc.units import Source
from miniml.backends.expressions import (
    C_TYPES,
    C_WORDS,
    ROWS,
    Expression,
    accumulation,
    ends,
    table,
)
from miniml.backends.kernel import KernelNode
from miniml.backends.registry import parse
from miniml.backends.selection import Target, get_device
from tests.conftest import DEEP, HAS_CC

from .loops import loop

pytestmark = pytest.mark.skipif(not HAS_CC, reason="no C compiler")
LIBRARY = [key for key, expression in table.items() if expression.unit]
ATTRIBUTES = {
    "Clip": ({"min": 1, "max": 5}, {"min": None, "max": 3}), "ELU": ({"alpha": 0.7},),
    "GELU": ({"approximate": True}, {"approximate": False}),
    "ExpNegSquare": ({"halved": True}, {"halved": False}),
    "LeakyReLU": ({"slope": 0.1}, {"slope": 0.0}, {"slope": 2.0}),
    "LeakyReLUGrad": ({"slope": 0.1}, {"slope": 2.0}),
    "Polygamma": ({"n": 0}, {"n": 1}),
    "Full": ({"value": 3},), "Eye": ({"n": 40, "m": 25},),
    "Arange": ({"start": -7, "stop": 993, "step": 1},),
    "Linspace": ({"start": 3, "stop": 90, "num": 1000},),
}  # fmt: skip
# The error of functions in units of the last digit, NumPy's and ours together. GELU and SciPy's
# erfc multiply the rounding of an argument by its square.
ULPS = {
    "GELU": 600, "Erfc": 600, "Pow": 4, "Softplus": 6, "SiLU": 10, "Sigmoid": 8, "ELU": 6,
    "LGamma": 4, "Polygamma": 12,
}  # fmt: skip
EITHER_ZERO = {"Maximum", "Minimum", "ReLU"}  # of 0 and -0 NumPy takes the first only in float16
ROUNDED_TWICE = {"Arange", "Linspace"}  # in 16 bits


def edges(dtype):
    """Numbers at which an element's computation changes its way."""
    if dtype == bool_:
        return np.array([False, True])
    if dtype.kind in "iu":
        ends = np.iinfo(dtype)
        return np.array([ends.min, ends.min + 1, 0, 1, 2, 3, 7, ends.max - 1, ends.max], dtype)
    info = ml_dtypes.finfo(dtype)
    positive = [0, info.smallest_subnormal, info.tiny, 0.5, 1, 1.5, 2, 2.5, 127.5, 255.5, 3e4,
                2**31, 2**63, 1.8e19, info.max, np.inf, np.nan]  # fmt: skip
    with np.errstate(over="ignore"):
        return np.array([s * float(x) for x in positive for s in (1, -1)], float64).astype(dtype)


def values(dtype, rng, n):
    """The edges, and n numbers of all sizes."""
    if dtype.kind == "c":  # both parts of each of these
        parts = values(np.empty(0, dtype).real.dtype, rng, n)
        return np.stack([parts, rng.permutation(parts)], -1).view(dtype)[:, 0]
    if dtype == bool_:
        some = rng.random(n) < 0.5
    elif dtype.kind in "iu":
        some = np.frombuffer(rng.bytes(n * dtype.itemsize), dtype)
        bits = rng.integers(0, 8 * dtype.itemsize, n).astype(some.dtype)
        some = some >> bits
    else:
        some = rng.standard_normal(n) * np.exp(rng.uniform(-6, 4, n))
    return np.concatenate([edges(dtype), some.astype(dtype)])


def inputs_of(name, dtypes, rng):
    """Arrays of equal size: all pairs of edges, and pairs of other numbers."""
    pools = [values(dtype, rng, 300) for dtype in dtypes]
    pairs = zip(*itertools.product(*(pool[:40] for pool in pools)), strict=True)
    size = min(map(len, pools))
    arrays = [
        np.concatenate([np.array(column, pool.dtype), rng.permutation(pool)[:size]])
        for column, pool in zip(pairs, pools, strict=True)
    ]
    if name == "Pow" and dtypes[0].kind in "iu":  # NumPy refuses negative exponents
        arrays[1] = arrays[1] & (np.iinfo(dtypes[1]).max >> 1)
    return arrays


class Case:
    """One expression for some attributes: its kernel in C, and NumPy's."""

    def __init__(self, name, signature, attrs):
        expression, spec, parsed = table[name, signature], registry.specs[name], parse(signature)
        (out,) = parsed.outputs
        rng = np.random.default_rng([*map(ord, name + signature)])
        self.arrays = inputs_of(name, parsed.inputs, rng) if parsed.inputs else []
        shape = self.arrays[0].shape if self.arrays else (1000,)
        attrs = {**attrs, **({"dtype": out} if not self.arrays or name == "Cast" else {})}
        specs = tuple(ArraySpec(a.shape, a.dtype) for a in self.arrays)
        self.node = KernelNode(name, specs, (ArraySpec(shape, out),), attrs)
        types = expression.scalar_types(parsed, spec.attributes or ())
        scalars = dict(zip(types, expression.scalar_values(self.node, types), strict=True))
        takes = list(zip(spec.inputs, parsed.inputs, strict=True))
        self.source = loop(expression, takes, out, scalars)
        exact = not expression.words & ELEMENTARY
        self.ulps = 0 if exact else ULPS.get(name, 4)
        if name in ROUNDED_TWICE and out.itemsize == 2:
            self.ulps = 1

    def __repr__(self):
        return f"{self.node.name} {self.node.inputs} {self.node.outputs} {self.node.attrs}"

    def got(self):
        out = np.empty(*self.node.outputs[0][:2])
        units.run(self.source, (*self.arrays, out, np.array(out.size, np.int64)))
        return out

    def expected(self):
        node, out = self.node, np.empty(*self.node.outputs[0][:2])
        target = Target(get_device("cpu"), ("miniml",))
        body = target.select(node.name, node.inputs, node.outputs).entry.body
        with np.errstate(all="ignore"):
            if isinstance(body, type) and issubclass(body, Kernel):
                kernel = body()
                kernel.prepare(node)
                kernel.launch(tuple(self.arrays), (), (out,), None)
            elif isinstance(body, np.ufunc):
                body(*self.arrays, out=out)
            else:
                shape = {"shape": out.shape} if node.name == "Full" else {}
                body(*self.arrays, **node.attrs, **shape, out=out)
        return out


ELEMENTARY = set(
    """exp exp2 expm1 log log2 log10 log1p tanh erf erfc sin cos pow tan asin acos atan sinh cosh
    asinh acosh atanh atan2 lgamma polygamma erfinv normcdf gaussian log_add hypotenuse
    cabs cexp""".split()
)


# Whose terms cancel where the result is near 0: their errors are units of the result or of 1.
CANCELLING = {"LGamma", "LogAddExp", "Polygamma"}


def distance(got, expected, least=0):
    """How many units of the last digit of `expected` two arrays are apart, or of `least` where that
    is larger; 0 for NaN and NaN."""
    info = ml_dtypes.finfo(expected.dtype)
    least = np.longdouble(max(least, info.tiny))
    a, b = (x.astype(np.longdouble) for x in (got, expected))
    with np.errstate(all="ignore"):
        exponent = np.floor(np.log2(np.maximum(np.abs(b), least)))
        apart = np.abs(a - b) / np.exp2(np.minimum(exponent, info.maxexp) - info.nmant)
    same = (a == b) | (np.isnan(a) & np.isnan(b))
    return np.where(same, 0, np.where(np.isnan(apart), np.inf, apart))


def differs(case, got, expected):
    """Where numbers are further apart than a case allows."""
    if expected.dtype.kind in "iub":
        return got != expected
    wrong = distance(got, expected, 1 if case.node.name in CANCELLING else 0) > case.ulps
    signs = np.signbit(got) != np.signbit(expected)
    return wrong | ((got == 0) & (expected == 0) & signs & (case.node.name not in EITHER_ZERO))


def failures(cases):
    units.load([case.source for case in cases])
    for case in cases:
        got, expected = case.got(), case.expected()
        parts = [a.view(a.real.dtype).reshape(*a.shape, -1) for a in (got, expected)]
        wrong = differs(case, *parts).any(-1)
        if wrong.any():
            at = np.flatnonzero(wrong)[:4]
            yield case, [a[at] for a in case.arrays], got[at], expected[at]


def cases(keys):
    return [
        Case(name, signature, attrs)
        for name, signature in keys
        for attrs in ATTRIBUTES.get(name, ({},))
    ]


# Every day the common dtypes, and casts and sums of the others.
DAILY = [
    (name, signature)
    for name, signature in LIBRARY
    if set(signature) <= set("?lf->" + "BeEd" * (name in ("Cast", "Add")))
]


@pytest.mark.larger
def test_every_expression_is_that_of_numpy():
    found = list(failures(cases(LIBRARY if DEEP else DAILY)))
    assert not found, found[0]


def test_a_wrong_expression_is_found(monkeypatch):
    monkeypatch.setitem(table, ("Tanh", "f->f"), Expression("x == 0 ? T(0) : tanh(x)", "wrong"))
    ((case, x, got, _),) = failures(cases([("Tanh", "f->f")]))
    assert x[0][0] == 0
    assert case.ulps > 0
    assert not np.signbit(got[0])


def test_scalars_are_exact():
    numbers = [0.1, -2.5e-45, 3e38, np.inf, -np.inf, np.nan, -0.0]
    for dtype in (float32, float64):
        sources = [loop("x + a", [("x", dtype)], dtype, {"a": dtype.type(a)}) for a in numbers]
        units.load(sources)
        for source, a in zip(sources, numbers, strict=True):
            zero = np.array([-0.0], dtype)
            out = np.empty(1, dtype)
            units.run(source, (zero, out, np.array(1, np.int64)))
            np.testing.assert_array_equal(out, dtype.type(a))
            assert np.signbit(out) == np.signbit(dtype.type(a)) or np.isnan(a)
    assert literal(np.int64(-(2**63))) == "(-9223372036854775807LL - 1)"
    assert literal(np.uint64(2**64 - 1)) == "18446744073709551615ULL"


def test_every_word_of_an_expression_is_known_in_c():
    plain = "T U float double int bool char short long unsigned signed true false NAN INFINITY M_PI"
    assert {*C_WORDS} - {*plain.split()} == {*names()}


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("dtype", [float16, bfloat16])
def test_floats_of_16_bits_are_read_and_rounded_exactly(dtype):
    bits = np.arange(1 << 16, dtype=np.uint16).view(dtype)
    rng = np.random.default_rng(0)
    x = np.frombuffer(rng.bytes(1 << 20), float32)
    exact = bits.astype(float32)
    neighbour = (bits.view(np.uint16) + np.uint16(1)).view(dtype).astype(float32)
    halfway = exact / 2 + neighbour / 2
    x = np.concatenate([x, exact, halfway, np.nextafter(halfway, float32.type(0))])
    read = loop("x", [("x", dtype)], float32)
    write = loop("x", [("x", float32)], dtype)
    units.load([read, write])
    for source, given, out in ((read, bits, float32), (write, x, dtype)):
        got = np.empty(given.size, out)
        units.run(source, (given, got, np.array(got.size, np.int64)))
        expected = given.astype(out)
        np.testing.assert_array_equal(got.astype(float64), expected.astype(float64))


def test_types_choose_functions_as_in_cpp():
    x = np.array([3.7, -0.0, 5.0], float32)
    expected = {
        "sqrt(2)": np.full(3, np.sqrt(2.0)),  # of an int it is that of a double
        "double(max(int(x), 4)) + min(x, 1.5f)": [5.5, 4.0, 6.5],
        "pow(x, 2)": np.square(x),
        "fma(sin(x), sin(x) / 2.f, x)": x + np.sin(x) ** 2 / 2,
        "abs(x) + T(isnan(x))": np.abs(x),
        "long(3) / U(2) + index": [1.5, 2.5, 3.5],
    }
    sources = {text: loop(text, [("x", float32)], float64) for text in expected}
    units.load([*sources.values()])
    for text, source in sources.items():
        got = np.empty(3)
        units.run(source, (x, got, np.array(3, np.int64)))
        np.testing.assert_allclose(got, np.asarray(expected[text], float64), 2e-7, err_msg=text)


REDUCTIONS = {
    "Sum": np.sum, "Mean": np.mean, "Prod": np.prod, "Max": np.max, "Min": np.min, "Any": np.any,
    "All": np.all, "ArgMax": np.argmax, "ArgMin": np.argmin, "LogSumExp": special.logsumexp,
}  # fmt: skip


def reduction(row, dtype):
    """A kernel that reduces a whole array of float32 or float64 to one float64."""
    low, high = ends(dtype)
    types = {"C": dtype, "S": accumulation(dtype)}
    texts = {name: ", ".join(getattr(row, name)) for name in ("identity", "element", "combine")}
    texts |= {name: getattr(row, name) for name in ("finish", "value", "other")}
    parts = {name: in_c(text, types) for name, text in texts.items()}
    shared = dict.fromkeys(text for _, texts in parts.values() for text in texts)
    c = {name: text for name, (text, _) in parts.items()}
    text = f"""
#define LOWEST {low}
#define HIGHEST {high}
void KERNEL(char *const *at) {{
  typedef struct {{ {c["value"]} value; {c["other"]} other; }} KERNEL_pair;
  const {C_TYPES[dtype]} *in = (const void *)at[0];
  const long long n = *(const int64_t *)at[2];
  KERNEL_pair a = {{{c["identity"]}}};
  for (long long i = 0; i < n; ++i) {{
    const {C_TYPES[dtype]} x = in[i];
    const KERNEL_pair b = {{{c["element"]}}}, both = {{{c["combine"]}}};
    a = both;
  }}
  *(double *)at[1] = {c["finish"]};
}}
#undef LOWEST
#undef HIGHEST
"""
    return Source(text, tuple(shared))


def test_rows_of_reductions_are_c_too():
    x = np.random.default_rng(0).standard_normal(40)
    sources = {(n, d): reduction(ROWS[n], d) for n in REDUCTIONS for d in (float32, float64)}
    units.load([*sources.values()])
    for (name, dtype), source in sources.items():
        given, out = x.astype(dtype), np.empty(1)
        units.run(source, (given, out, np.array(given.size, np.int64)))
        expected = REDUCTIONS[name](given.astype(float64))
        np.testing.assert_allclose(out[0], expected, rtol=1e-5, err_msg=f"{name} {dtype}")
