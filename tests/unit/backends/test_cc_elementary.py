"""Elementary functions in C: their errors, and that compilers vectorise loops over them."""

import platform
import re
import subprocess

import numpy as np
import pytest
from scipy import special

from miniml import bool_, float32, float64
from miniml.backends.cc import units
from miniml.backends.cc.units import unit

from .loops import loop

COMPILER = units.TOOLS.find()
pytestmark = [
    pytest.mark.skipif(not COMPILER, reason="no C compiler"),
    pytest.mark.filterwarnings("ignore::RuntimeWarning"),
]
CHUNK = 1 << 20
LONG = np.finfo(np.longdouble).nmant >= 63  # x86's long double


def gauss(x, rate=1):
    """exp(-rate x^2) of float64 in long double: x^2 by the exact square of its leading digits."""
    top = x.astype(np.float32).astype(np.longdouble)
    return np.exp(-rate * top * top) * np.exp(-rate * (x - top) * (x + top))


def series(x):
    """erf by 2 / sqrt(pi) exp(-x^2) (x + 2/3 x^3 + 4/15 x^5 + ...), |x| <= 3."""
    term = total = x
    for k in range(1, 90):
        term = term * 2 * x * x / (2 * k + 1)
        total = total + term
    return gauss(x) * total * 2 / ROOT_PI


def fraction(x):
    """erfc by exp(-x^2) / sqrt(pi) / (x + 1/2 / (x + 2/2 / (x + 3/2 / ...))), x >= 2."""
    return gauss(x) / denominator(x) / ROOT_PI


def denominator(x):
    below = x
    for k in range(300, 0, -1):
        below = x + np.longdouble(k) / 2 / below
    return below


def long_erf(x):
    far = 1 - fraction(np.clip(np.abs(x), 2, 30))
    return np.where(np.abs(x) < 2, series(np.clip(x, -2, 2)), np.copysign(far, x))


def long_erfc(x):
    return np.where(x > 2, fraction(np.clip(x, 2, 30)), 1 - long_erf(x))


def long_normcdf(x):
    """Phi(x) = erfc(-x / sqrt(2)) / 2, whose tail has the exact square of x too."""
    a = -x * np.sqrt(np.longdouble(0.5))
    far = np.clip(a, 2, 30)
    tail = gauss(np.clip(x, -40, -2), 0.5) / denominator(far) / ROOT_PI
    return np.where(a > 2, tail, long_erfc(a)) / 2


ULPS = 2
# The functions that are made of others, whose errors add up: of float64 and of float32.
MORE = dict.fromkeys(("acosh", "atan2"), 3)
MORE_FLOAT32 = {"normcdf": 3}
ROOT_PI = np.sqrt(2 * np.arctan2(np.longdouble(1), np.longdouble(0)))
# The reference in float64 for float32, and in long double for float64.
WIDE = {
    "exp": np.exp, "exp2": np.exp2, "expm1": np.expm1, "log": np.log, "log2": np.log2,
    "log1p": np.log1p, "tanh": np.tanh, "sin": np.sin, "cos": np.cos, "erf": special.erf,
    "erfc": special.erfc, "normcdf": special.ndtr, "tan": np.tan, "log10": np.log10,
    "asin": np.arcsin, "acos": np.arccos, "atan": np.arctan, "sinh": np.sinh, "cosh": np.cosh,
    "asinh": np.arcsinh, "acosh": np.arccosh, "atanh": np.arctanh, "cbrt": np.cbrt,
}  # fmt: skip
FLOAT32 = WIDE | {"erfinv": special.erfinv}
LONGER = WIDE | {"erf": long_erf, "erfc": long_erfc, "normcdf": long_normcdf}


def ulps(got, reference):
    """The largest distance of `got` from a wider reference, in units of its last digit there; inf
    where one is NaN, or infinite, and the other not."""
    rounded = reference.astype(got.dtype)
    at = (got != rounded) & ~(np.isnan(got) & np.isnan(rounded))
    got, reference, rounded = got[at], reference[at], rounded[at]
    top = np.finfo(got.dtype).max
    unit = np.spacing(np.minimum(np.abs(rounded), top))
    apart = np.abs(got.astype(reference.dtype) - reference) / unit
    return np.max(np.where(np.isnan(apart), np.inf, apart), initial=0)


def values(source, *arrays):
    out = np.empty_like(arrays[0])
    units.run(source, (*arrays, out, np.array(out.size, np.int64)))
    return out


def loop_of(name, dtype):
    return loop(f"{name}(x)", [("x", dtype)], dtype)


def floats(begin, end, step=1):
    """The float32 with these bits."""
    return np.arange(begin, end, step, dtype=np.uint64).astype(np.uint32).view(np.float32)


def of_two(text, dtype):
    return loop(text, [("x", dtype), ("y", dtype)], dtype)


TURNING = ["sin", "cos", "tan"]
REMAINDERS = {
    "fmod(x, y)": np.fmod, "float_mod(x, y)": np.remainder, "float_floor_div(x, y)": np.floor_divide
}  # fmt: skip
INTEGERS = [np.dtype(c) for c in "bhilBHIL"]


@pytest.fixture(scope="module", autouse=True)
def compiled():
    """Nearly all of them in one unit."""
    both, gamma = (float32, float64), [loop_of(name, float32) for name in REFERENCES]
    ones = [loop_of(name, dtype) for name in FLOAT32 for dtype in both]
    narrow = [loop_of(name, d)._replace(without=("avx512f",)) for name in TURNING for d in both]
    floats = [of_two(t, d) for t in (*REMAINDERS, "pow(x, y)", "atan2(x, y)") for d in both]
    whole = [of_two(t, d) for t in ("int_floor_div(x, y)", "int_mod(x, y)") for d in INTEGERS]
    units.load([*gamma, *ones, *narrow, *floats, *whole])


@pytest.mark.parametrize("name", FLOAT32)
def test_a_sample_of_float32_is_within_a_few_ulps(name):
    x = floats(0, 1 << 32, 16381)  # a prime: all exponents, and digits of all kinds
    got = values(loop_of(name, float32), x)
    assert ulps(got, FLOAT32[name](x.astype(np.float64))) <= MORE_FLOAT32.get(name, ULPS)


def worst_of(name, apart):
    """The largest error over float32, of which one chunk in `apart` is looked at."""
    source, worst = loop_of(name, float32), 0.0
    for begin in range(0, 1 << 32, apart * CHUNK):
        x = floats(begin, begin + CHUNK)
        worst = max(worst, ulps(values(source, x), FLOAT32[name](x.astype(np.float64))))
    print(f"{name} {worst:.3f}")
    return worst


@pytest.mark.deep
@pytest.mark.parametrize("name", FLOAT32)
def test_float32_of_all_sizes_are_within_a_few_ulps(name):
    assert worst_of(name, 37) <= MORE_FLOAT32.get(name, ULPS)


@pytest.mark.rates  # minutes for each
@pytest.mark.parametrize("name", FLOAT32)
def test_every_float32_is_within_a_few_ulps(name):
    assert worst_of(name, 1) <= MORE_FLOAT32.get(name, ULPS)


def points(rng, n=20000):
    """float64 of all sizes, and many where functions bend, overflow and vanish."""
    quarters = rng.integers(1, 10**6, n) * (np.pi / 2)
    return np.concatenate(
        [
            np.frombuffer(rng.bytes(8 * n)), rng.uniform(-750, 750, n), rng.uniform(-30, 30, n),
            rng.uniform(-1.5, 1.5, n), 1 + rng.standard_normal(n) * np.exp(rng.uniform(-30, 0, n)),
            quarters, np.ldexp(1.0, np.arange(-1074, 1024)),
            [6381956970095103 * 2.0**797, 709.782712893384, 709.7827128933841, -745.1332191019411],
        ]
    )  # fmt: skip


@pytest.mark.skipif(not LONG, reason="long double is float64 here")
@pytest.mark.parametrize("name", WIDE)
def test_a_sample_of_float64_is_within_its_bound(name):
    x = points(np.random.default_rng(0))
    got = values(loop_of(name, float64), x)
    assert ulps(got, LONGER[name](x.astype(np.longdouble))) <= MORE.get(name, ULPS)


def test_the_number_nearest_to_a_multiple_of_half_pi():
    x = np.array([6381956970095103 * 2.0**797])
    assert values(loop_of("cos", float64), x)[0] == -4.687165924254628e-19


@pytest.mark.parametrize("without", [(), ("avx512f",)])
@pytest.mark.parametrize("dtype", [float32, float64])
@pytest.mark.parametrize("name", TURNING)
def test_huge_angles_do_not_change_those_beside_them(name, dtype, without):
    """Loops of any length, of whose elements some are reduced in more steps than others."""
    x = np.random.default_rng(4).normal(0, 100, 99).astype(dtype)
    huge = [2.0**20, -3e7, 1e30, np.inf, np.nan, 0.0, -0.0, 1e-40, -(2.0**20) + 0.25]
    mixed = np.insert(x, np.arange(5, 95, 10), np.array(huge, dtype))
    source = loop_of(name, dtype)._replace(without=without)
    alone = np.array([values(source, v)[0] for v in mixed[:, None]])
    for size in range(1, mixed.size + 1):
        got = values(source, mixed[-size:])
        np.testing.assert_array_equal(got, alone[-size:])
        np.testing.assert_array_equal(np.signbit(got), np.signbit(alone[-size:]))
    expected = FLOAT32[name](mixed.astype(np.longdouble))
    assert ulps(alone, expected) <= ULPS
    numbers = ~np.isnan(expected)
    np.testing.assert_array_equal(np.signbit(alone)[numbers], np.signbit(expected)[numbers])


@pytest.mark.parametrize(("dtype", "wide"), [(float32, np.float64), (float64, np.longdouble)])
def test_powers_are_within_two_ulps(dtype, wide):
    rng, n = np.random.default_rng(1), 50000
    near_one = 1 + rng.standard_normal(n) * np.exp(-rng.uniform(0, 16, n))
    x = np.concatenate([np.exp2(rng.uniform(-126, 126, n)), near_one]).astype(dtype)
    most = -np.log2(np.finfo(dtype).smallest_subnormal)
    y = (rng.uniform(-most, most, x.size) / np.log2(np.abs(x))).astype(dtype)
    y = np.where(x < 0, np.rint(y), y)
    got = values(of_two("pow(x, y)", dtype), x, y)
    assert ulps(got, np.power(x.astype(wide), y.astype(wide))) <= ULPS


# Numbers at which functions of two change their way.
SPECIAL = [0.0, -0.0, 1, -1, np.inf, -np.inf, np.nan, 1e-45, 3e38, 2.5, 2.0**-126]


def pairs(dtype, rng, n=50000):
    """Two arrays: all pairs of special numbers, and of numbers of all sizes and of near ones."""
    x, y = (side.ravel() for side in np.meshgrid(*[np.array(SPECIAL, dtype)] * 2))
    size = n * np.dtype(dtype).itemsize
    some = [(np.frombuffer(rng.bytes(size), dtype), rng.normal(size=n).astype(dtype)) for _ in "xy"]
    return np.concatenate([x, *some[0]]), np.concatenate([y, *some[1]])


@pytest.mark.skipif(not LONG, reason="long double is float64 here")
@pytest.mark.parametrize(("dtype", "wide"), [(float32, np.float64), (float64, np.longdouble)])
def test_angles_of_points(dtype, wide):
    y, x = pairs(dtype, np.random.default_rng(2))
    got = values(of_two("atan2(x, y)", dtype), y, x)
    expected = np.arctan2(y.astype(wide), x.astype(wide))
    assert ulps(got, expected) <= (MORE["atan2"] if dtype == float64 else ULPS)
    numbers = ~np.isnan(expected)
    np.testing.assert_array_equal(np.signbit(got)[numbers], np.signbit(expected)[numbers])


@pytest.mark.parametrize("name", ["lgamma", "digamma"])
def test_gamma_functions_of_float32_are_rounded_once(name):
    """Below 0, where they have roots, the error is that of 1 where the result is less."""
    x = np.concatenate([floats(0, 1 << 32, 16381), np.arange(-9, 9, 0.5**12, np.float32)])
    got, reference = values(loop_of(name, float32), x), getattr(special, REFERENCES[name])
    expected = reference(x.astype(np.float64))
    expected = np.where(np.isinf(x) & (name == "lgamma"), np.inf, expected)
    assert ulps(got[x > 0], expected[x > 0]) <= 0.52
    below = np.abs(got - expected)[(x < 0) & (np.abs(expected) < 1)]
    assert below.max() < 2.0**-24
    rest = (x < 0) & ~(np.abs(expected) < 1)
    assert ulps(got[rest], expected[rest]) <= 0.52
    np.testing.assert_array_equal(np.isnan(got), np.isnan(expected))


REFERENCES = {"lgamma": "gammaln", "digamma": "digamma"}


@pytest.mark.parametrize("dtype", [float32, float64])
@pytest.mark.parametrize(("text", "reference"), REMAINDERS.items())
def test_remainders_have_numpys_bits(text, reference, dtype):
    x, y = pairs(dtype, np.random.default_rng(3))
    got = values(of_two(text, dtype), x, y)
    expected = reference(x, y)
    np.testing.assert_array_equal(got, expected)
    numbers = ~np.isnan(expected)
    np.testing.assert_array_equal(np.signbit(got)[numbers], np.signbit(expected)[numbers])


@pytest.mark.parametrize("dtype", INTEGERS, ids=str)
def test_quotients_of_integers_are_numpys(dtype):
    """Of all sizes, at the ends of the dtype, beside multiples, and by 0, which gives 0."""
    rng, ends = np.random.default_rng(5), np.iinfo(dtype)
    x, y = rng.integers(ends.min, ends.max, (2, 20_000), dtype, endpoint=True)
    x, y = (v >> rng.integers(0, ends.bits, v.size).astype(dtype) for v in (x, y))
    beside = [np.array(x * y + d).astype(dtype) for d in np.array([-1, 0, 1]).astype(dtype)]
    some = np.array([ends.min, ends.min + 1, ends.min // 2, 0, 1, 3, ends.max // 2, ends.max])
    some = np.append(some, [-1, -3] * (ends.min < 0)).astype(dtype)
    edges = np.meshgrid(some, some)
    x, y = np.hstack([x, *beside, edges[0].ravel()]), np.hstack([y, y, y, y, edges[1].ravel()])
    for text, reference in (("int_floor_div(x, y)", np.floor_divide), ("int_mod(x, y)", np.mod)):
        got = values(of_two(text, dtype), x, y)
        with np.errstate(all="ignore"):
            np.testing.assert_array_equal(got, reference(x, y))


@pytest.mark.parametrize("dtype", INTEGERS, ids=str)
def test_quotients_by_constants_are_numpys(dtype):
    """Which compilers know: both signs, powers of 2 and their neighbours, the ends, and 0."""
    ends = np.iinfo(dtype)
    some = np.array([2**k + d for k in range(ends.bits) for d in (-1, 0, 1)])
    x = np.unique([v for v in (*some, *-some, ends.min, ends.max) if ends.min <= v <= ends.max])
    x = x.astype(dtype)
    cases = {}
    for y in (0, 1, 7, 8, 100, ends.max, *((-1, -2, -7, ends.min) if ends.min else ())):
        for name, reference in (("int_floor_div", np.floor_divide), ("int_mod", np.mod)):
            text = f"{name}(x, T({y + (y == ends.min)}LL - {int(y == ends.min)}))"
            cases[loop(text, [("x", dtype)], dtype)] = reference, dtype.type(y)
    units.load([*cases])
    for source, (reference, y) in cases.items():
        with np.errstate(all="ignore"):
            np.testing.assert_array_equal(values(source, x), reference(x, y), str(y))


@pytest.mark.parametrize("dtype", [float32, float64])
def test_logarithms_of_powers_of_ten_are_whole(dtype):
    n = np.arange(*((-37, 39) if dtype == float32 else (-307, 309)))
    x = np.array([float(f"1e{k}") for k in n], dtype)
    np.testing.assert_array_equal(values(loop_of("log10", dtype), x), n)


def test_inverse_of_erf():
    x = np.concatenate([np.linspace(-1, 1, 999), [1 - 2.0**-53, 1e-300, -0.0, np.nan, 2]])
    got, expected = values(loop_of("erfinv", float64), x), special.erfinv(x)
    np.testing.assert_allclose(got, expected, rtol=2e-15)
    assert np.signbit(got[-3])


# Packed arithmetic of x86 and ARM: moves of vectors are in scalar code, too.
VECTORS = re.compile(
    r"\bv?(?:add|mul|sqrt|round|rndscale|fn?m(?:add|sub)\d*)p[sd]\b|\b(?:f\w+)\s+v\d+\.\d[sd]\b"
)
CALLS = re.compile(r"^\s+(?:callq?|jmp|bl)\s+([A-Za-z_]\w*)", re.MULTILINE)

# Functions that have variants for vectors, which loops call, where GCC compiles for x86-64.
BY_VECTORS = ("sin", "cos", "tan")
VARIANTS = re.compile(
    rf"\b(?:_ZGV\w+_|miniml_all_)?miniml_(?:{'|'.join(BY_VECTORS)})_float(?:32|64)\b"
)


def tuning():
    """GCC's tuning for Zen 1 to 3, and for no processor in particular, leaves out short gathers, by
    which sin and cos read their tables. What is tested is that the text allows vectors."""
    version = subprocess.run([*COMPILER, "--version"], check=True, capture_output=True).stdout
    gcc = b"Free Software Foundation" in version and platform.machine() in ("x86_64", "AMD64")
    return ["-mtune=haswell"] if gcc else []


def assembled(text, tmp_path, *more):
    """The assembly of a unit's text, with more flags."""
    out = tmp_path / "unit.s"
    flags = [flag for flag in units.FLAGS if flag != "-shared"]
    command = [*COMPILER, *flags, *tuning(), *more, "-S", "-x", "c", "-", "-o", str(out)]
    subprocess.run(command, input=text.encode(), check=True, capture_output=True)
    return out.read_text("latin-1")


def assembly(sources, tmp_path):
    """The assembly of kernels, by name."""
    text = assembled(unit(sources), tmp_path)
    ends = ("\n" + text).split("\n.LFE") if ".LFE" in text else text.split(".Lfunc_end")
    return {s: next(part.partition(f"\n{s.name}:")[2] for part in ends if f"\n{s.name}:" in part)
            for s in sources}  # fmt: skip


def test_compilers_vectorise_them(tmp_path):
    names = [*WIDE, "sqrt", "rsqrt", "floor", "rint", "trunc", "ceil"]
    loops = {loop_of(name, d): (name, d) for name in names for d in (float32, float64)}
    for d in (float32, float64):
        loops[loop("pow(x, y)", [("x", d), ("y", d)], d)] = "pow", d
        loops[loop("T(1) / (T(1) + exp(-x))", [("x", d)], d)] = "sigmoid", d
        loops[loop("c ? x * T(2) : x", [("x", d), ("c", bool_)], d)] = "a mask", d
        loops[loop("atan2(x, y)", [("x", d), ("y", d)], d)] = "atan2", d
        loops[loop("polygamma(x, T(0))", [("x", d)], d)] = "digamma", d
    for name in ("erfinv", "lgamma"):
        loops[loop_of(name, float32)] = name, float32
    for name in ("float_mod", "float_floor_div"):
        loops[loop(f"{name}(x, T(3))", [("x", float32)], float32)] = name, float32
    slow = [loop_of("tgamma", float32), loop("hypot(x, T(3))", [("x", float64)], float64)]
    found = assembly([*loops, *slow], tmp_path)
    for source in slow:  # what is looked for below is seen where it is not so
        assert CALLS.findall(found[source])
        assert not VECTORS.search(found.pop(source))
    for source, text in found.items():
        calls = CALLS.findall(text)
        if loops[source][0] in BY_VECTORS:
            assert "_ZGV" in text if calls else VECTORS.search(text), loops[source]
            calls = [name for name in calls if not VARIANTS.search(name)]
        else:
            assert VECTORS.search(text), loops[source]
        assert not calls, loops[source]


def test_loops_over_remainders_of_float64_call_a_variant_for_vectors(tmp_path):
    (text,) = assembly([loop("float_mod(x, T(3))", [("x", float64)], float64)], tmp_path).values()
    fused = assembled("#ifdef __FP_FAST_FMA\nint fused_here;\n#endif\n", tmp_path)
    variants = bool(tuning()) and "fused_here" in fused  # by GCC on x86-64
    assert any(name.startswith("_ZGV") for name in CALLS.findall(text)) == variants


FUNCTION = re.compile(r"\.type\s+(miniml_\S+),\s*[@%]function")


@pytest.mark.parametrize("uses", [1, 4])
def test_no_unit_keeps_a_function_of_one_element(tmp_path, uses):
    """In units of every size: by -O1, where a compiler inlines next to nothing by its own choice,
    as it does by -O3 in a unit that has grown."""
    names = [*WIDE, "sqrt", "rsqrt", "floor", "abs", "max"]
    texts = [
        (f"{name}(x * T({i})" + ", x" * (name == "max") + ")", dtype)
        for name in names for dtype in (float32, float64) for i in range(uses)
    ]  # fmt: skip
    texts += [(f"pow(x, T({i}))", dtype) for dtype in (float32, float64) for i in range(uses)]
    text = unit([loop(text, [("x", dtype)], dtype) for text, dtype in texts])
    found = FUNCTION.findall(assembled(text, tmp_path, "-O1"))
    kept = {name for name in found if not VARIANTS.search(name.removesuffix("_rare"))}
    assert kept <= {"miniml_serial", "miniml_start"}
    if kept and uses > 1:  # the assembler knows functions, and would show one that is called
        text = text.replace("inline __attribute__((always_inline))", "inline")
        assert "miniml_tanh_float32" in FUNCTION.findall(assembled(text, tmp_path, "-O1"))
