"""Integer products by bytes: they are those of NumPy's int64, and are taken where they can be."""

from itertools import product

import numpy as np
import pytest

import miniml as ml
from miniml import ops
from miniml.backends.cc import units
from miniml.backends.cc.product import QUADS, VECTORS
from miniml.graph.passes import run_passes
from miniml.runtime.formats import narrow
from miniml.runtime.jit import Jit, program_target
from miniml.runtime.program import Program
from tests.frame.native import needs_compiler

pytestmark = needs_compiler

I8, U8 = np.dtype(np.int8), np.dtype(np.uint8)
PAIRS = [*product((I8, U8), (I8, U8))]
MASKS = {
    "all": (), "AVX2": ("avx512f",), "SSE2": ("avx512f", "avx2", "avx", "fma3", "f16c"),
}  # fmt: skip


@pytest.fixture(params=MASKS)
def masked(request):
    with ml.context(providers=("cc",), without=MASKS[request.param]):
        yield request.param


def levels(rng, dtype, *shape):
    """Bytes, with many at the ends of the range."""
    info = np.iinfo(dtype)
    made = rng.integers(info.min, info.max + 1, shape)
    ends = rng.choice([info.min, info.max], shape)
    return np.where(rng.random(shape) < 0.3, ends, made).astype(dtype)


def names(program):
    """The primitives of a program, those in fused nodes too."""
    graphs = [program.graph, *(g for n in program.graph.nodes for _, g in n.subgraphs())]
    return [n.primitive.name for g in graphs for n in g.nodes]


def check(cases, by):
    """The results of functions, which are compiled together. cases: of each the function, its
    arguments and the result."""
    counts = [len(args) for _, args, _ in cases]
    begins = np.cumsum([0, *counts])

    def fn(*args):
        return tuple(
            one(*args[begin : begin + count])
            for (one, *_), begin, count in zip(cases, begins, counts, strict=False)
        )

    args = [a for _, given, _ in cases for a in given]
    jit = Jit(fn)
    found = names(jit.compiled(*args).program)
    assert found.count(by) == len(cases)
    assert not {"MatMul", "Conv2D"}.intersection(found)
    for got, (*_, want) in zip(jit(*args), cases, strict=True):
        np.testing.assert_array_equal(got.asnumpy(), want)
    target = program_target("cpu")
    of_bytes = narrow(run_passes(ml.trace(fn, *args)), target)
    defined = Program(of_bytes, target.without("cc"))  # by NumPy, which runs under debug_nans
    assert by in names(defined)
    for got, (*_, want) in zip(defined(*map(np.asarray, args)), cases, strict=True):
        np.testing.assert_array_equal(got, want)


def wide(x, zero=0):
    """Bytes less a zero point, as quantized operators are read."""
    return ops.cast(x, ml.int32) - ops.cast(zero, ml.int32)


def exact(x, x_zero, w, w_zero, turned=(False, False)):
    """x w in int64, as int32."""
    a, b = x.astype(np.int64) - x_zero, w.astype(np.int64) - w_zero
    a, b = (np.swapaxes(v, -1, -2) if t else v for v, t in zip((a, b), turned, strict=True))
    return (a @ b).astype(np.int32)


SIZES = [(1, 16, 1), (1, 131, 130), (3, 17, 5), (13, 64, 65), (70, 33, 40), (2, 259, 1)]


def by_constant(rng, m, k, n, x_dtype, w_dtype, turned):
    """A product by weights with a zero point for each column."""
    x = levels(rng, x_dtype, *((k, m) if turned else (m, k)))
    w = levels(rng, w_dtype, *((n, k) if turned else (k, n)))
    x_zero, w_zero = levels(rng, x_dtype), levels(rng, w_dtype, n).astype(np.int32)
    w_zero = w_zero[:, None] if turned else w_zero

    def fn(x):
        return ops.matmul(wide(x, x_zero), ops.cast(w, ml.int32) - w_zero, turned, turned)

    return fn, (x,), exact(x, int(x_zero), w, w_zero, (turned, turned))


def by_value(rng, x_dtype, w_dtype):
    """A product of what is known when the program runs, as are both zero points."""
    x, w = levels(rng, x_dtype, 2, 3, 5, 37), levels(rng, w_dtype, 3, 37, 18)
    zeros = levels(rng, x_dtype), levels(rng, w_dtype)

    def fn(x, w, x_zero, w_zero):
        return ops.matmul(wide(x, x_zero), wide(w, w_zero))

    return fn, (x, w, *zeros), exact(x, int(zeros[0]), w, int(zeros[1]))


def test_products_are_those_of_int64(masked):
    """Of each size two pairs of dtypes, others with each processor."""
    rng, at = np.random.default_rng(0), list(MASKS).index(masked)
    cases = [
        by_constant(rng, *size, *PAIRS[turn % 4], turn // 2 % 2 == 1)
        for i, size in enumerate(SIZES) for turn in (i + at, i + at + 2)
    ]  # fmt: skip
    cases += [by_value(rng, *pair) for pair in PAIRS]
    x, w = np.full((2, 40001), 255, U8), np.full((40001, 3), 255, U8)
    cases.append((lambda x: ops.matmul(wide(x), wide(w)), (x,), exact(x, 0, w, 0)))
    assert cases[-1][-1].min() < 0  # beyond int32 they wrap, as NumPy's
    check(cases, "ByteMatMul")


def test_sums_beyond_int32_stay_in_float64():
    w = np.full((70000, 3), 127.0)
    graph = run_passes(
        ml.trace(lambda x: ops.matmul(ops.cast(x, ml.float64), w), np.zeros((2, 70000), U8))
    )
    with ml.context(providers=("cc",)):
        assert narrow(graph, program_target("cpu")) is graph


@pytest.mark.parametrize(
    "fn",
    [
        lambda x: ops.matmul(ops.cast(x, ml.int32), np.full((20, 4), 300, np.int32)),
        lambda x: ops.matmul(ops.cast(x, ml.int32) * 3, np.ones((20, 4), np.int32)),
        lambda x: ops.matmul(ops.cast(x, ml.float32), np.ones((20, 4), np.float32)),
        lambda x: ops.matmul(ops.cast(x[:, :9], ml.int32), np.ones((9, 4), np.int32)),
        lambda x: ops.matmul(ops.cast(x, ml.float64), np.full((20, 4), 0.5)),
    ],
)
def test_what_is_not_made_of_bytes_stays(fn):
    graph = run_passes(ml.trace(fn, np.zeros((3, 20), I8)))
    with ml.context(providers=("cc",)):
        assert narrow(graph, program_target("cpu")) is graph


# --- Convolutions ---------------------------------------------------------------------------------

CASES = [  # images, channels, filters, image, kernel, stride, padding, dilation, groups
    (1, 3, 8, (9, 10), (3, 3), (1, 1), ((1, 1), (1, 1)), (1, 1), 1),
    (2, 5, 7, (8, 11), (3, 2), (2, 3), ((0, 2), (3, 0)), (1, 2), 1),
    (2, 8, 4, (12, 7), (2, 2), (1, 2), ((4, 4), (7, 7)), (3, 1), 4),
    (1, 6, 6, (20, 33), (3, 3), (2, 2), ((1, 0), (0, 1)), (1, 1), 6),
    (17, 9, 3, (1, 1), (1, 1), (1, 1), ((0, 0), (0, 0)), (1, 1), 1),
    (2, 16, 20, (7, 7), (1, 1), (1, 1), ((0, 0), (0, 0)), (1, 1), 1),
]


def convolved(x, x_zero, w, w_zero, stride, padding, dilation, groups):
    """In int64, a window at a time."""
    a, b = x.astype(np.int64) - x_zero, w.astype(np.int64) - w_zero
    a = np.pad(a, ((0, 0), (0, 0), *padding))
    extents = [gap * (n - 1) + 1 for gap, n in zip(dilation, w.shape[2:], strict=True)]
    windows = np.lib.stride_tricks.sliding_window_view(a, extents, (2, 3))
    taps = windows[:, :, :: stride[0], :: stride[1], :: dilation[0], :: dilation[1]]
    taps = taps.reshape(len(x), groups, -1, *taps.shape[2:])
    made = np.einsum("ngcyxij,gocij->ngoyx", taps, b.reshape(groups, -1, *w.shape[1:]))
    return made.reshape(len(x), len(w), *made.shape[3:])


def convolution(rng, case, x_dtype, w_dtype, late):
    """late: the zero point is known when the program runs."""
    images, channels, filters, image, kernel, *attrs = case
    x = levels(rng, x_dtype, images, channels, *image)
    w = levels(rng, w_dtype, filters, channels // attrs[3], *kernel)
    w_zero = 0 if w_dtype == I8 else int(rng.integers(100, 150)) if attrs[3] == 1 else 128
    x_zero, weights = levels(rng, x_dtype), w.astype(np.float64) - w_zero

    def fn(x, zero=x_zero):
        centred = ops.cast(x, ml.float64) - ops.cast(zero, ml.float64)
        return ops.cast(ops.Conv2D(*attrs)(centred, weights), ml.int32)

    args = (x, x_zero) if late else (x,)
    return fn, args, convolved(x, int(x_zero), w, w_zero, *attrs)


def test_convolutions_are_those_of_int64(masked):
    rng, at = np.random.default_rng(0), list(MASKS).index(masked)
    cases = [
        convolution(rng, case, *PAIRS[(i + at) % 4], bool((i + at) % 3 == 1))
        for i, case in enumerate(CASES)
    ]
    check(cases, "ByteConv2D")


@pytest.mark.deep
def test_convolutions_of_every_pair_of_dtypes():
    rng = np.random.default_rng(1)
    with ml.context(providers=("cc",)):
        for late in (False, True):
            every = product(CASES, PAIRS)
            check([convolution(rng, c, *pair, late) for c, pair in every], "ByteConv2D")


def test_results_that_are_read_as_floats_and_images_without_elements():
    rng = np.random.default_rng(0)
    w, none = levels(rng, I8, 4, 4, 3, 3), ((1, 1), ((0, 0), (0, 0)), (1, 1), 1)

    def fn(x):
        return ops.Conv2D()(ops.cast(x, ml.float64), w.astype(np.float64)) * 0.5

    x = levels(rng, U8, 2, 4, 5, 5)
    with ml.context(providers=("cc",)):
        np.testing.assert_array_equal(ml.jit(fn)(x).asnumpy(), convolved(x, 0, w, 0, *none) * 0.5)
        assert ml.jit(fn)(x[:0]).shape == (0, 4, 3, 3)


def test_on_any_processor():
    """The text for those without an instruction, which stand for the others here."""
    rng = np.random.default_rng(0)
    u, s = levels(rng, U8, 16), levels(rng, I8, 16)
    plain = "".join(
        f"#undef __{name}__\n" for name in ("AVX512VNNI", "AVXVNNI", "SSE2", "AVX", "AVX512F")
    )
    text = """\
void KERNEL(char *const *at) {
  miniml_ints16 sum, u, s;
  memcpy(&u, at[0], 16), memcpy(&s, at[1], 16), memcpy(&sum, at[2], 16);
  sum = miniml_dot16(sum, u, s);
  memcpy(at[2], &sum, 16);
}
"""
    sums = np.arange(4, dtype=np.int32)
    units.run(units.Source(text, (VECTORS, plain + QUADS)), (u, s, sums))
    by_four = (u.astype(np.int32) * s).reshape(4, 4).sum(1)
    np.testing.assert_array_equal(sums, by_four + np.arange(4))
