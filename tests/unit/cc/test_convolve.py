"""Convolution in C against loops in float64, for windows of every kind and both orders of axes."""

from functools import partial
from itertools import product

import numpy as np
import pytest

import miniml as ml
from miniml import ArraySpec, ops
from miniml.backends.cc import convolution
from miniml.backends.cc.convolution import tile
from miniml.backends.cc.units import load
from miniml.backends.cpu import images as window
from tests.frame.native import needs_compiler
from tests.opinfo import images as rows
from tests.unit.cc.fences import FENCES, first_to_fail, ignores_forks, needs_fences
from tests.unit.cc.native import BATCH_INNERMOST, BLOCKS, Call, prepared, results, run

pytestmark = needs_compiler

NO_PAD = ((0, 0), (0, 0))
ONE = ((1, 1), (1, 1))

# images, (H, W), input and output channels, kernel, stride, padding, dilation, groups
CASES = {
    "image by image": (2, (7, 9), 3, 5, (3, 2), (1, 1), ((1, 0), (2, 1)), (1, 1), 1),
    "one image": (1, (4, 5), 1, 1, (3, 3), (1, 1), NO_PAD, (1, 1), 1),
    "many pixels": (1, (19, 21), 2, 7, (3, 3), (1, 1), ONE, (1, 1), 1),
    "batch": (32, (6, 5), 2, 7, (3, 3), (1, 1), NO_PAD, (1, 1), 1),
    "odd batch": (19, (5, 4), 3, 4, (2, 3), (1, 1), ONE, (1, 1), 1),
    "bands of outputs": (16, (3, 4), 24, 67, (3, 3), (1, 1), ONE, (1, 1), 1),
    "bands of images": (1, (5, 6), 21, 67, (3, 3), (1, 1), ONE, (1, 1), 1),
    "large batch": (128, (3, 3), 2, 7, (2, 2), (1, 1), NO_PAD, (1, 1), 1),
    "stride": (2, (7, 8), 2, 3, (3, 3), (2, 3), ONE, (1, 1), 1),
    "stride of a batch": (16, (7, 8), 2, 3, (3, 3), (2, 3), ONE, (1, 1), 1),
    "stride over kernel": (2, (9, 9), 2, 2, (2, 2), (3, 4), ((1, 0), (0, 1)), (1, 1), 1),
    "stride over kernel of a batch": (16, (9, 9), 2, 2, (2, 2), (3, 4), NO_PAD, (1, 1), 1),
    "dilation": (2, (8, 7), 2, 3, (3, 2), (1, 1), ((2, 2), (1, 3)), (2, 3), 1),
    "dilation and stride": (16, (9, 8), 2, 3, (2, 3), (2, 1), ((1, 2), (2, 1)), (3, 2), 1),
    "groups": (2, (5, 5), 4, 6, (3, 3), (1, 1), ONE, (1, 1), 2),
    "depthwise": (16, (6, 6), 3, 6, (3, 3), (2, 2), ONE, (1, 1), 3),
    "pointwise": (3, (4, 3), 3, 2, (1, 1), (1, 1), NO_PAD, (1, 1), 1),
    "pointwise, a product": (3, (9, 11), 5, 7, (1, 1), (1, 1), NO_PAD, (1, 1), 1),
    "pointwise, a tall product": (2, (8, 9), 30, 71, (1, 1), (1, 1), NO_PAD, (1, 1), 1),
    "pointwise, groups": (2, (9, 8), 4, 6, (1, 1), (1, 1), NO_PAD, (1, 1), 2),
    "pointwise, as many windows as pixels": (
        2, (8, 8), 4, 5, (1, 1), (2, 2), ((4, 4), (4, 4)), (1, 1), 1
    ),
    "too much padding": (16, (3, 4), 2, 2, (2, 2), (1, 1), ((3, 4), (4, 3)), (1, 1), 1),
    "kernel as large as image": (2, (4, 5), 2, 3, (4, 5), (1, 1), NO_PAD, (1, 1), 1),
    "blocks": (2, (6, 7), 32, 48, (3, 3), (1, 2), ONE, (1, 1), 1),
    "blocks that are not full": (1, (6, 7), 20, 40, (3, 3), (1, 1), ONE, (1, 1), 1),
    "blocks in a long row": (2, (3, 45), 16, 32, (3, 3), (1, 1), ONE, (1, 1), 1),
    "depthwise blocks": (2, (19, 37), 32, 32, (3, 3), (1, 1), ONE, (1, 1), 32),
    "blocks by stride": (2, (7, 24), 20, 20, (5, 3), (2, 2), ((2, 1), (1, 3)), (1, 1), 20),
    "blocks by dilation": (1, (9, 7), 16, 16, (2, 3), (1, 2), ((2, 4), (9, 3)), (2, 3), 16),
    "blocks over kernel": (1, (9, 9), 16, 16, (2, 2), (3, 4), ((1, 0), (0, 1)), (1, 1), 16),
    "columns": (2, (40, 1), 3, 5, (4, 1), (3, 2), ((2, 1), (0, 0)), (2, 3), 1),
    "columns of a batch": (16, (9, 1), 3, 5, (3, 1), (1, 1), ((1, 1), (0, 0)), (1, 1), 1),
    "columns in blocks": (1, (33, 1), 32, 48, (5, 1), (2, 1), ((2, 0), (0, 0)), (1, 1), 1),
    "columns of one channel": (1, (33, 1), 16, 16, (5, 1), (1, 1), ((2, 2), (0, 0)), (1, 1), 16),
    "columns, padded": (2, (9, 1), 3, 5, (3, 3), (1, 1), ONE, (1, 1), 1),
    "many filters": (1, (5, 6), 300, 32, (3, 3), (1, 1), ONE, (1, 1), 1),
    "no images": (0, (4, 4), 2, 2, (3, 3), (1, 1), NO_PAD, (1, 1), 1),
    "no input channels": (2, (4, 4), 0, 2, (3, 3), (1, 1), NO_PAD, (1, 1), 1),
    "no output channels": (2, (4, 4), 2, 0, (3, 3), (1, 1), NO_PAD, (1, 1), 1),
}  # fmt: skip


IN_BLOCKS = (BLOCKS, None, BLOCKS)

# Of float64, whose text differs only in how many numbers a register holds.
WIDE = (
    "pointwise, a product", "many pixels", "odd batch", "batch", "stride of a batch", "depthwise",
    "groups", "blocks", "blocks by stride",
    "blocks that are not full",
)  # fmt: skip


def draw(shape, seed, dtype):
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


def windows(case):
    _, _, _, _, _, stride, padding, dilation, groups = CASES[case]
    return {"stride": stride, "padding": padding, "dilation": dilation, "groups": groups}


def inputs(case, dtype):
    """x, w and dout, as float64 numbers that the dtype has."""
    images, plane, inner, outer, kernel, *_, groups = CASES[case]
    x = draw((images, inner, *plane), 1, dtype).astype(np.float64)
    w = draw((outer, inner // groups, *kernel), 2, dtype).astype(np.float64)
    dout = draw(rows.conv2d(x, w, **windows(case)).shape, 3, dtype).astype(np.float64)
    return x, w, dout


def expected(name, given, attrs):
    """The float64 reference."""
    if name == "Conv2D":
        return rows.conv2d(*given, **attrs)
    if name == "Conv2DInputGrad":
        return rows.input_grad(*given, **attrs)
    return rows.weight_grad(*given, **attrs)


def terms(name, given):
    """How many products a sum has at most."""
    _, y = given
    if name == "Conv2D":
        return y[0].size
    if name == "Conv2DInputGrad":
        return y.shape[0] * y.shape[2] * y.shape[3]
    return y.shape[0] * y.shape[2] * y.shape[3]


def in_blocks(case, name, result):
    """True where there is a kernel for channels in blocks."""
    _, _, inner, outer, _, stride, _, _, groups = CASES[case]
    whole = min(np.subtract(result.shape[2:], stride)) >= 0
    return (
        groups in {1, inner}
        and inner == outer * (groups > 1) + inner * (groups == 1)
        and (name != "Conv2DInputGrad" or whole)
    )


def calls(dtype, orders, cases=None):
    """(name, inputs in float64, attributes, Call) of all three for all cases, or for these."""
    cases = cases or (CASES if dtype == "f" else WIDE)
    for case, order in product(cases, orders):
        x, w, dout = inputs(case, dtype)
        attrs, formats = windows(case), (order, None, order)
        for name, given, extra, result, order_of in (
            ("Conv2D", (x, w), {}, dout, formats),
            ("Conv2DInputGrad", (dout, w), {"input_shape": x.shape[2:]}, x, formats),
            ("Conv2DWeightGrad", (x, dout), {"kernel_shape": w.shape[2:]}, w, (order, order, None)),
        ):
            if result.size and (order != BLOCKS or in_blocks(case, name, result)):
                arrays = tuple(a.astype(dtype) for a in given)
                out = (ArraySpec(result.shape, np.dtype(dtype)),)
                yield (
                    f"{case}: {name} {order}",
                    name,
                    given,
                    {**attrs, **extra},
                    Call(convolution.Convolution, name, arrays, out, {**attrs, **extra}, order_of),
                )


def agree(every):
    """Each call gives the float64 reference."""
    found = results([call for *_, call in every])
    for (label, name, given, attrs, _), (got,) in zip(every, found, strict=True):
        want = expected(name, given, attrs)
        # Of a sum of n products in any order: n roundings, each of at most the sum of magnitudes.
        size = expected(name, tuple(map(np.abs, given)), attrs)
        bound = terms(name, given) * np.finfo(got.dtype).eps * size
        assert np.all(np.abs(got - want) <= bound), label


@pytest.mark.parametrize("dtype", ["f", "d"])
def test_convolution_and_its_gradients(dtype):
    agree([*calls(dtype, (None, BATCH_INNERMOST, BLOCKS))])


def one(name, given, result, attrs, formats=(None, None, None)):
    arrays = tuple(given)
    out = (ArraySpec(result.shape, arrays[0].dtype),)
    return Call(convolution.Convolution, name, arrays, out, attrs, formats)


def special(shape, seed):
    """Numbers among which a few are infinite or NaN."""
    x = draw(shape, seed, "f")
    x.flat[:: max(1, x.size // 3)] = np.inf
    x.flat[1 :: max(2, x.size // 2)] = np.nan
    return x


@pytest.mark.parametrize("images", [2, 16])
def test_nan_and_infinities_reach_the_sums_that_they_reach_in_the_numpy_kernels(images):
    attrs = {"stride": (1, 2), "padding": ((1, 0), (1, 2)), "dilation": (1, 1), "groups": 1}
    x, w = special((images, 2, 5, 7), 1), draw((3, 2, 3, 2), 2, "f")
    dout = special(rows.conv2d(x, w, **attrs).shape, 3)
    size, taps = {"input_shape": x.shape[2:]}, {"kernel_shape": w.shape[2:]}
    calls = [
        one("Conv2D", (x, w), dout, attrs),
        one("Conv2D", (x, special(w.shape, 4)), dout, attrs),
        one("Conv2DInputGrad", (dout, w), x, {**attrs, **size}),
        one("Conv2DWeightGrad", (x, dout), w, {**attrs, **taps}),
    ]
    kernels = {
        "Conv2D": window.conv2d,
        "Conv2DInputGrad": window.conv2d_input_grad,
        "Conv2DWeightGrad": window.conv2d_weight_grad,
    }
    for call, (got,) in zip(calls, results(calls), strict=True):
        want = np.empty_like(got)
        with np.errstate(all="ignore"):
            kernels[call.name](*call.arrays, **call.attrs, out=want)
        np.testing.assert_array_equal(np.isfinite(got), np.isfinite(want), call.name)
        np.testing.assert_array_equal(np.isnan(got), np.isnan(want), call.name)


@pytest.mark.parametrize("dtype", ["f", "d"])
@pytest.mark.parametrize("size", [16, 32])
def test_narrower_registers(size, dtype, monkeypatch):
    monkeypatch.setattr("miniml.backends.cc.scalars.register_bytes", lambda masked: size)
    agree([*calls(dtype, (None,) if dtype == "f" else (BLOCKS,), WIDE)])


THREADS = r"""
#include <pthread.h>
typedef struct { void (*part)(void *, long); void *data; long first, parts; } job;
static void *work(void *given) {
  job *j = given;
  for (long i = j->first; i < j->parts; i += 3) j->part(j->data, i);
  return 0;
}
static void threaded(void (*part)(void *, long), void *data, long parts) {
  pthread_t threads[3];
  job jobs[3];
  for (long t = 0; t < 3; ++t) {
    jobs[t] = (job){part, data, t, parts};
    pthread_create(threads + t, 0, work, jobs + t);
  }
  for (long t = 0; t < 3; ++t) pthread_join(threads[t], 0);
}
__attribute__((constructor)) static void start(void) { miniml.parallel = threaded; }
"""


def test_the_results_do_not_depend_on_the_number_of_threads(monkeypatch):
    monkeypatch.setattr(convolution, "SPLIT", 0)
    attrs = {"stride": (1, 1), "padding": ONE, "dilation": (1, 1), "groups": 1}
    x, w = draw((16, 5, 9, 9), 1, "f"), draw((18, 5, 3, 3), 2, "f")
    dout = draw((16, 18, 9, 9), 3, "f")
    many, filters = draw((1, 420, 9, 9), 4, "f"), draw((18, 420, 3, 3), 5, "f")
    calls = [
        one("Conv2D", (x, w), dout, attrs),
        one("Conv2D", (x[:3], w), dout[:3], attrs),
        one("Conv2DInputGrad", (dout, w), x, {**attrs, "input_shape": (9, 9)}),
        one("Conv2DWeightGrad", (x, dout), w, {**attrs, "kernel_shape": (3, 3)}),
        one("Conv2D", (x[:3], w), dout[:3], attrs, (None, None, BLOCKS)),
        one("Conv2DInputGrad", (dout, w), x, {**attrs, "input_shape": (9, 9)}, IN_BLOCKS),
        one(
            "Conv2DWeightGrad",
            (x, dout),
            w,
            {**attrs, "kernel_shape": (3, 3)},
            (None, BLOCKS, None),
        ),
        one("Conv2D", (many, filters), dout[:1], attrs, IN_BLOCKS),
    ]
    kernels = [prepared(call) for call in calls]
    assert all("#define KERNEL_THREADS 1L" in k.source.text for k in kernels)
    alone = [run(k, call) for k, call in zip(kernels, calls, strict=True)]
    for k, call, (expected,) in zip(kernels, calls, alone, strict=True):
        k.source = k.source._replace(shared=(*k.source.shared, THREADS))
        np.testing.assert_array_equal(run(k, call)[0], expected)


@pytest.mark.parametrize("fault", ["* KERNEL_COLUMN_STEP", "+ lane", "< KERNEL_CHANNELS"])
def test_a_fault_in_the_text_is_found(fault):
    x, w, dout = (a.astype("f") for a in inputs("large batch", "f"))
    call = one("Conv2D", (x, w), dout, windows("large batch"))
    made = prepared(call)
    assert fault in made.source.text
    instead = fault.replace("*", "/ 2 *").replace("+", "+ 0 *").replace("<", "< -1 +")
    made.source = made.source._replace(text=made.source.text.replace(fault, instead))
    got = run(made, call)[0]
    assert not np.allclose(got, rows.conv2d(x, w, **call.attrs), atol=1e-3)


@needs_fences
@ignores_forks
def test_nothing_around_the_arrays_is_read():
    every = [(label, call) for label, *_, call in calls("f", (None, BATCH_INNERMOST))]
    every += [(label, call) for label, *_, call in calls("d", (BLOCKS,))]
    kernels = [prepared(call) for _, call in every]
    load([kernel.source for kernel in kernels])

    def launched(placed, kernel, call):
        return all(np.isfinite(out).all() for out in run(kernel, call, placed))

    steps = [
        (f"{label} {placed.__name__}", partial(launched, placed, kernel, call))
        for placed in FENCES
        for kernel, (label, call) in zip(kernels, every, strict=True)
    ]
    assert not first_to_fail(steps)


def test_tiles_fit_into_the_registers_and_cover_small_results():
    for outputs, run_, registers in ((6, 4, 32), (16, 4, 32), (64, 2, 32), (3, 1, 16), (1, 9, 16)):
        m, n = tile(outputs, run_, registers, exact=True)
        assert run_ % n == 0
        assert m * n + n + 1 <= registers
    assert tile(6, 4, 32) == (6, 4)
    assert tile(64, 203, 32) == (4, 6)  # 2 by 7 is fewer operations, of which each reads too much


BIAS_AND_RELU = """\
static inline void KERNEL_epilogue(char *const *at, long batch, long i, long j, long count,
                                   const REAL *restrict acc) {
  REAL *to = (REAL *)at[2] + (batch * KERNEL_ALL_OUTPUTS + i) * KERNEL_PLANE + j;
  for (long k = 0; k < count; ++k) to[k] = acc[k] + i > 0 ? acc[k] + i : 0;
}
"""


@pytest.mark.parametrize(
    ("case", "order"), [("batch", None), ("batch", BATCH_INNERMOST), ("many pixels", None)]
)
def test_what_follows_is_computed_on_the_results_of_each_output(case, order, monkeypatch):
    x, w, dout = (a.astype("f") for a in inputs(case, "f"))

    def with_epilogue(node, v):
        return convolution.convolution(node, v, BIAS_AND_RELU)

    monkeypatch.setitem(convolution.TEXTS, "Conv2D", with_epilogue)
    [(got,)] = results([one("Conv2D", (x, w), dout, windows(case), (order, None, order))])
    sums = rows.conv2d(x, w, **windows(case)) + np.arange(len(w))[:, None, None]
    np.testing.assert_allclose(got, np.maximum(sums, 0), atol=1e-4)


def test_pointwise_convolutions_have_their_epilogue():
    """Of row-major images: a bias of each channel, other images, a number of each row."""
    x, w = draw((3, 30, 9, 10), 1, "f"), draw((7, 30, 1, 1), 2, "f")
    b, other, row = draw((7, 1, 1), 3, "f"), draw((3, 7, 9, 10), 4, "f"), draw((9, 1), 5, "f")

    def fn(x, w, b, other, row):
        return ops.relu(ops.conv2d(x, w) + b) * other + row

    with ml.context(providers=("cc",), verify_passes=True):
        got = ml.jit(fn)(x, w, b, other, row).asnumpy()
    wide = np.einsum("nchw,oc->nohw", x.astype(np.float64), w[:, :, 0, 0])
    np.testing.assert_allclose(got, np.maximum(wide + b, 0) * other + row, 1e-4, 1e-4)
