"""Matrix products of provider "cc" against float64 and long double."""

from functools import partial

import numpy as np
import pytest

import miniml as ml
from miniml import ArraySpec
from miniml.backends.cc.product import ProductKernel, pack_text, packed_size, product_text, stored
from miniml.backends.cc.units import Source, load, run
from miniml.backends.cuda.kernels.linalg import product_of_labels
from miniml.backends.kernel import KernelNode, start_of
from miniml.backends.product import Product
from miniml.core.signature import CPU
from tests.frame.native import needs_compiler
from tests.unit.cc.fences import FENCES, first_to_fail, ignores_forks, needs_fences

pytestmark = needs_compiler

F, D = np.dtype(np.float32), np.dtype(np.float64)
WIDE = {F: np.float64, D: np.longdouble}
# Around the tiles: 6 and 12 rows, 16 columns and 64, the lines of a panel.
SHAPES = [
    (0, 3, 4), (3, 0, 4), (3, 4, 0), (1, 1, 1), (1, 1, 100), (1, 10, 8), (1, 65, 33), (1, 256, 64),
    (10, 1, 8), (7, 1, 130), (2, 17, 3), (3, 15, 16), (4, 33, 40), (5, 16, 17), (6, 63, 31),
    (7, 64, 32), (11, 65, 15), (12, 66, 16), (13, 127, 48), (25, 128, 257), (32, 10, 64),
    (49, 130, 300), (200, 70, 20), (28, 512, 130), (29, 512, 130),
    # Few columns, of whose last lines the vectors would end beyond y; sums in several chains.
    (1, 10, 131), (1, 3, 130), (2, 1, 9), (4, 3, 140), (1, 20, 67), (3, 40, 66), (1, 120, 129),
    (64, 10, 130),
]  # fmt: skip
TURNS = [(x, y) for x in (False, True) for y in (False, True)]
CASES = [(*s, *turn) for i, s in enumerate(SHAPES) for turn in (TURNS[i % 4], TURNS[-1 - i % 3])]
CASES.append((600, 260, 140, True, False))  # blocks of x are copied


def dense(m, n, k, transpose_x=False, transpose_y=False):
    x, y = (1, m) if transpose_x else (k, 1), (1, k) if transpose_y else (n, 1)
    return Product(m, n, k, x, y, (n, 1), [(1, (0, 0, 0))])


def operands(m, n, k, transpose_x=False, transpose_y=False, dtype=F):
    rng = np.random.default_rng(m + n + k)
    x = rng.standard_normal((k, m) if transpose_x else (m, k)).astype(dtype)
    y = rng.standard_normal((n, k) if transpose_y else (k, n)).astype(dtype)
    return x, y


def right(got, x, y):
    """Whether got is x @ y: a sum of k products, in any order and with or without fma, errs by at
    most k eps / 2 / (1 - k eps / 2) times the sum of their magnitudes."""
    x, y = x.astype(WIDE[got.dtype]), y.astype(WIDE[got.dtype])
    bound = (x.shape[-1] + 1) * np.finfo(got.dtype).eps / 2 * (abs(x) @ abs(y))
    return got.shape == (x @ y).shape and bool((abs(got - x @ y) <= 1.01 * bound).all())


def computed(source, x, y, shape):
    out = np.full(shape, np.nan, x.dtype)
    run(source, (x, y, out))
    return out


@pytest.mark.parametrize("dtype", [F, D])
def test_every_shape_and_transpose(dtype):
    sources = [product_text(dense(*case), dtype) for case in CASES]
    load(sources)
    for (m, n, k, tx, ty), source in zip(CASES, sources, strict=True):
        x, y = operands(m, n, k, tx, ty, dtype)
        got = computed(source, x, y, (m, n))
        assert right(got, x.T if tx else x, y.T if ty else y), (m, n, k, tx, ty)


def test_products_that_no_cache_holds():
    sources = [product_text(dense(870, 790, 810, *turn), F) for turn in TURNS]
    load(sources)
    for (tx, ty), source in zip(TURNS, sources, strict=True):
        x, y = operands(870, 790, 810, tx, ty)
        assert right(computed(source, x, y, (870, 790)), x.T if tx else x, y.T if ty else y)


@pytest.mark.deep
@pytest.mark.parametrize("dtype", [F, D])
@pytest.mark.parametrize(("tx", "ty"), TURNS)
def test_a_grid_of_shapes(dtype, tx, ty):
    shapes = [
        (m, n, k)
        for m in (1, 2, 3, 5, 6, 7, 12, 13, 48, 97)
        for n in (1, 2, 15, 16, 17, 63, 64, 65, 129)
        for k in (1, 7, 16, 127, 129)
    ]
    sources = [product_text(dense(*s, tx, ty), dtype) for s in shapes]
    load(sources)
    for (m, n, k), source in zip(shapes, sources, strict=True):
        x, y = operands(m, n, k, tx, ty, dtype)
        got = computed(source, x, y, (m, n))
        assert right(got, x.T if tx else x, y.T if ty else y), (m, n, k)


def test_a_planted_fault_is_found():
    source = product_text(dense(7, 70, 9), F)
    for good, bad in (("i * 70L", "i * 69L"), ("KERNEL_K 9L", "KERNEL_K 8L")):
        assert good in source.text
        x, y = operands(7, 70, 9)
        faulty = source._replace(text=source.text.replace(good, bad))
        assert not right(computed(faulty, x, y, (7, 70)), x, y)


# Shapes of x and y as MatMul takes them, and which are transposed.
NODES = [
    ((4,), (4,), False, False), ((4,), (4, 3), False, False), ((3, 4), (4,), False, False),
    ((2, 5, 4), (4, 3), False, False), ((2, 5, 4), (3, 4), False, True),
    ((2, 1, 5, 4), (3, 4, 6), False, False), ((4, 5), (2, 3, 4, 6), True, False),
    ((1, 5, 4), (3, 6, 4), False, True), ((2, 3, 4, 5), (2, 1, 6, 4), True, True),
    ((0, 5, 4), (4, 3), False, False), ((2, 4), (3, 4, 1), False, False),
    ((5, 1), (1, 6), False, False),
]  # fmt: skip


def kernel_for(x, y, transpose_x, transpose_y):
    out = ml.ops.MatMul(transpose_x, transpose_y).infer_shape(x, y)
    inputs = ArraySpec(x, F), ArraySpec(y, F)
    attrs = {"transpose_x": transpose_x, "transpose_y": transpose_y}
    kernel = ProductKernel()
    kernel.prepare(KernelNode("MatMul", inputs, (ArraySpec(out, F),), attrs))
    return kernel, out


def test_matmul_with_batches_that_broadcast_and_vectors():
    kernels = [kernel_for(*node) for node in NODES]
    load([kernel.source for kernel, _ in kernels])
    rng = np.random.default_rng(0)
    for (kernel, shape), (x, y, tx, ty) in zip(kernels, NODES, strict=True):
        x, y = (rng.integers(-9, 9, s).astype(np.float32) for s in (x, y))
        out = np.full(shape, np.nan, np.float32)
        kernel.launch((x, y), (), (out,), None)
        np.testing.assert_array_equal(out, (x.mT if tx else x) @ (y.mT if ty else y))


def test_a_batch_of_rows_is_one_product():
    kernel, _ = kernel_for((8, 5, 4), (4, 3), False, False)
    assert "KERNEL_BATCHES 1L" in kernel.source.text


def test_operands_and_result_at_any_step_and_address():
    """Every second column of y, x from behind, out with gaps, all at odd addresses."""
    p = Product(9, 20, 11, (-11, 1), (80, 2), (50, 2), [(1, (0, 0, 0))])
    memory = np.random.default_rng(0).standard_normal(2000).astype(np.float32)
    x, y, out = memory[1:100].reshape(9, 11), memory[101:981], np.zeros(451, np.float32)[1:]
    run(product_text(p, F), (x[8:], y, out))
    whole = np.lib.stride_tricks.as_strided(out, (9, 20), (200, 8))
    assert right(whole, x[::-1], y.reshape(11, 80)[:, :40:2])
    assert not out.reshape(9, 50)[:, 1::2].any()


def test_nan_and_infinity_go_where_numpy_puts_them():
    shapes = [(7, 70, 20, False, False), (7, 70, 20, True, True), (2, 33, 21, False, True)]
    sources = [product_text(dense(*s), F) for s in shapes]
    load(sources)
    for (m, n, k, tx, ty), source in zip(shapes, sources, strict=True):
        x, y = operands(m, n, k, tx, ty)
        x[0, 1], x[1, 0], y[1, 2] = np.inf, np.nan, -np.inf
        with np.errstate(invalid="ignore"):
            expected = (x.T if tx else x) @ (y.T if ty else y)
        got = computed(source, x, y, (m, n))
        np.testing.assert_array_equal(np.isnan(got), np.isnan(expected))
        np.testing.assert_array_equal(got[np.isinf(expected)], expected[np.isinf(expected)])


def test_numbers_of_the_next_line_are_in_no_sum():
    """Vectors of the last columns end in the line that follows."""
    for m, n, k in ((1, 10, 40), (3, 20, 40), (30, 3, 40)):
        x, y = operands(m, n, k)
        x[:, 0], y[1:, 0] = 0, np.nan
        got = computed(product_text(dense(m, n, k), F), x, y, (m, n))
        assert np.isnan(got[:, 0]).all()
        assert right(got[:, 1:], x, y[:, 1:])


def test_nothing_around_the_result_is_written():
    for m, n, k in ((5, 17, 9), (1, 70, 9), (13, 1, 40)):
        x, y = operands(m, n, k)
        around = np.full(m * n + 128, 7, np.float32)
        run(product_text(dense(m, n, k), F), (x, y, around[64:-64]))
        assert right(around[64:-64].reshape(m, n), x, y)
        assert (around[:64] == 7).all()
        assert (around[-64:] == 7).all()


@needs_fences
@ignores_forks
def test_nothing_around_the_operands_is_read():
    cases = [*(case for case in CASES if all(case[:3])), (2, 143, 2000, False, False)]
    sources = [product_text(dense(*case), F) for case in cases]
    packs = [pack_text(dense(*case), F) for case in cases]
    load([*sources, *packs])

    def multiplied(placed, case, source, pack):
        m, n, k, tx, ty = case
        x, y = map(placed, operands(m, n, k, tx, ty))
        out = placed(np.full((m, n), np.nan, F))
        run(source, (x, y, out))
        room = np.empty(packed_size(dense(*case), F), F)
        run(pack, (y, np.array([1, start_of(room)])))
        return right(out, x.T if tx else x, y.T if ty else y)

    steps = [
        (f"{case} {placed.__name__}", partial(multiplied, placed, case, source, pack))
        for placed in FENCES
        for case, source, pack in zip(cases, sources, packs, strict=True)
    ]
    assert not first_to_fail(steps)


def test_sums_are_added_where_the_epilogue_says_so():
    for m, n, k in ((7, 70, 9), (9, 1, 40)):
        p = dense(m, n, k)
        x, y = operands(m, n, k)
        out = np.full((m, n), 3, np.float32)
        run(product_text(p, F, stored(p, F, accumulate=True)), (x, y, out))
        np.testing.assert_array_equal(out, computed(product_text(p, F), x, y, (m, n)) + 3)


# The interface of fused groups: bias and relu on the sums, from other positions of `at`.
EPILOGUE = """\
static inline void KERNEL_epilogue(
    char *const *at, long batch, long i, long j, long count, const float *restrict sums) {
  const float *bias = (const float *)at[0] + j;
  float *out = (float *)at[3] + batch * %(size)dL + i * %(n)dL + j;
  for (long c = 0; c < count; ++c) out[c] = sums[c] + bias[c] > 0 ? sums[c] + bias[c] : 0;
}
"""


def test_an_epilogue_takes_the_sums_of_every_path():
    shapes = [
        (7, 70, 20, True),
        (30, 1, 20, False),
        (1, 70, 20, True),
        (20, 64, 300, False),
        (2, 150, 2000, False),
    ]
    cases = [(dense(*s, s[3]), s[:3], s[3]) for s in shapes]
    sources = [
        product_text(p, F, EPILOGUE % {"size": m * n, "n": n}, operands=(2, 1))
        for p, (m, n, k), ty in cases
    ]
    load(sources)
    for source, (p, (m, n, k), turned) in zip(sources, cases, strict=True):
        x, y = operands(m, n, k, turned, turned)
        bias, out = np.linspace(-2, 2, n, dtype=np.float32), np.full((m, n), np.nan, np.float32)
        run(source, (bias, y, x, out))
        sums = computed(product_text(p, F), x, y, (m, n))
        np.testing.assert_array_equal(out, np.maximum(sums + bias, 0))


def test_sums_use_fma_and_epilogues_do_not():
    """1 - (1 + e)(1 - e) is e * e with fma, and 0 without."""
    has_fma = any(CPU.get(f) for f in ("fma3", "asimd"))
    e = np.float32(2**-13)
    x, y = np.full((8, 2), 1, np.float32), np.full((2, 32), 1, np.float32)
    x[:, 1], y[1] = 1 + e, e - 1
    got = computed(product_text(dense(8, 32, 2), F), x, y, (8, 32))
    assert (got == (e * e if has_fma else 0)).all()
    scaled = """\
static inline void KERNEL_epilogue(
    char *const *at, long batch, long i, long j, long count, const float *restrict sums) {
  for (long c = 0; c < count; ++c) ((float *)at[2])[i * 32 + j + c] = sums[c] * 0.1f + 0.7f;
}
"""
    x, y = operands(8, 32, 2)
    expected = computed(product_text(dense(8, 32, 2), F), x, y, (8, 32)) * np.float32(0.1)
    got = computed(product_text(dense(8, 32, 2), F, scaled), x, y, (8, 32))
    np.testing.assert_array_equal(got, expected + np.float32(0.7))


# Runs the parts of `miniml.parallel` on two threads, from the last to the first, and counts them.
THREADS = """\
#include <pthread.h>
static long two_threads_parts;
typedef struct { void (*part)(void *, long); void *data; long begin, end; } two_threads_share;
static void *two_threads_take(void *given) {
  two_threads_share *share = given;
  for (long i = share->end; i-- > share->begin;) share->part(share->data, i);
  return 0;
}
static void two_threads_parallel(void (*part)(void *, long), void *data, long parts) {
  two_threads_share shares[2] = {{part, data, 0, parts / 2}, {part, data, parts / 2, parts}};
  pthread_t other;
  if (parts < 2 || pthread_create(&other, 0, two_threads_take, &shares[1])) return;
  two_threads_take(&shares[0]);
  pthread_join(other, 0);
}
static miniml_services two_threads = {two_threads_parallel, 0, 0};
#define miniml two_threads
"""


def test_threads_give_equal_bits():
    shapes = [(250, 257, 130, True), (97, 1024, 60, False), (600, 65, 260, True)]
    wide = [dense(*s, s[3]) for s in (*shapes, (3, 2100, 700, False), (2, 1000, 700, False))]
    batch = Product(64, 64, 32, (32, 1), (1, 32), (64, 1), [(48, (2048, 2048, 4096))])
    one = [product_text(p, F) for p in (*wide, batch)]
    two = [Source(s.text, (THREADS, *s.shared)) for s in one]
    load(one)
    load(two)
    rng = np.random.default_rng(0)
    for p, alone, shared in zip((*wide, batch), one, two, strict=True):
        assert "KERNEL_PARTS 1L" not in alone.text
        x, y = (rng.standard_normal(p.batches * p.k * e).astype(np.float32) for e in (p.m, p.n))
        outs = [computed(source, x, y, p.batches * p.m * p.n) for source in (alone, shared)]
        np.testing.assert_array_equal(*outs)


@pytest.mark.parametrize("dtype", [F, D])
def test_a_packed_operand_serves_several_products(dtype):
    cases = (70, 150, True), (150, 30, False), (10, 8, True), (150, 2200, False)
    rows = 1, 3, 9, 80
    likes = [[dense(m, *case[:2], False, case[2]) for m in rows] for case in cases]
    plain = [[product_text(p, dtype) for p in each] for each in likes]
    reads = [[product_text(p, dtype, words=3) for p in each] for each in likes]
    packs = [[pack_text(p, dtype) for p in each] for each in likes]
    load([source for each in (*plain, *reads, *packs) for source in each])
    for case, each in enumerate(likes):
        assert packs[case][1] == packs[case][3]
        for i, p in enumerate(each):
            if p.m <= 4 and cases[case][2]:
                continue  # dot products
            x, y = operands(p.m, p.n, p.k, False, cases[case][2], dtype)
            around = np.full(packed_size(p, dtype) + 32, 7, dtype)
            words, out = np.array([1, start_of(around[1:])]), np.empty((p.m, p.n), dtype)
            run(packs[case][i], (y, words))
            assert (around[0], *around[-31:]) == (7,) * 32
            run(reads[case][i], (x, np.full_like(y, np.nan), out, words))
            np.testing.assert_array_equal(out, computed(plain[case][i], x, y, (p.m, p.n)))
            words[0] = 0
            run(packs[case][i], (y * 2, words))
            run(reads[case][i], (x, y, out, words))
            np.testing.assert_array_equal(out, computed(plain[case][i], x, y, (p.m, p.n)))


@pytest.mark.parametrize("dtype", [F, D])
def test_few_rows_are_divided_by_the_lines_of_y(dtype):
    """One more or less than whole panels of columns, and parts of unequal numbers of lines."""
    cases = [
        dense(1, 512, 784),
        dense(1, 129, 2051),
        dense(3, 143, 2000),
        dense(4, 191, 1999, True),
    ]
    sources = [product_text(p, dtype) for p in cases]
    load(sources)
    for p, source in zip(cases, sources, strict=True):
        assert "KERNEL_task" in source.text
        x, y = operands(p.m, p.n, p.k, p.x[0] == 1, False, dtype)
        around = np.full(p.m * p.n + 32, 7, dtype)
        run(source, (x, y, around[16:-16]))
        assert right(around[16:-16].reshape(p.m, p.n), x.T if p.x[0] == 1 else x, y)
        assert (around[:16] == 7).all()
        assert (around[-16:] == 7).all()


# A dot product, whatever its length, is a sum of 64 terms in each lane, of the lanes and of what is
# left; sums of 128 terms are added up in all others.
LONG = [
    (dense(1, 1, 2**12), 100),
    (dense(1, 1, 2**21 + 37), 100),
    (dense(2, 16, 2**17, False, True), 100),
]
LONG += [(dense(m, n, k), 130 + k // 128) for m, n, k in ((7, 70, 2**14), (1, 20, 2**17))]


@pytest.mark.parametrize("dtype", [F, D])
def test_rounding_of_long_sums_does_not_grow_with_their_length(dtype):
    """Equal terms, of which each rounding goes the same way."""
    sources = [product_text(p, dtype) for p, _ in LONG]
    load(sources)
    for (p, roundings), source in zip(LONG, sources, strict=True):
        x, y = np.full((p.m, p.k), 0.1, dtype), np.full((p.k, p.n), 0.3, dtype)
        expected = p.k * x.astype(WIDE[dtype])[:, :1] * y.astype(WIDE[dtype])[:1]
        got = computed(source, x, y, (p.m, p.n))
        assert (abs(got / expected - 1) <= roundings * np.finfo(dtype).eps / 2).all(), p


def test_small_products_are_one_part():
    assert "KERNEL_PARTS 1L" in product_text(dense(64, 128, 128), F).text


def test_lines_that_share_places_in_the_first_cache_are_packed_for_fewer_rows():
    for n, rows in ((1024, 28), (512, 28), (1000, 64), (256, 64)):
        assert f"KERNEL_UNPACKED {rows}L" in product_text(dense(64, n, 128), F).text


def test_labels_give_the_same_description_as_matmul():
    """An Einstein sum that is a product can have this kernel, too."""
    x, y = {"b": 20, "i": 4, "k": 1}, {"b": 12, "k": 3, "j": 1}
    extents = {"b": 2, "i": 5, "j": 3, "k": 4}
    p = product_of_labels(x, y, ["b", "i", "j"], extents)
    assert p == Product(5, 3, 4, (4, 1), (3, 1), (3, 1), [(2, (20, 12, 15))])
