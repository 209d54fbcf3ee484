"""Attention in C against the formulas in float64: sizes around its blocks, masks, draws, steps."""

from functools import cache, partial
from itertools import pairwise
from types import SimpleNamespace

import numpy as np

import miniml as ml
from miniml import ArraySpec, ops
from miniml.backends.cc import units
from miniml.backends.cc.product import Attention, AttentionGrad, AttentionMaskGrad, Sizes
from miniml.backends.cc.units import Source, header
from miniml.backends.kernel import KernelNode
from miniml.grad import value_and_grad
from miniml.ops import attention as limits
from tests.frame.native import needs_compiler
from tests.opinfo import attention as rows
from tests.unit.cc.fences import FENCES, first_to_fail, ignores_forks, needs_fences
from tests.unit.cc.native import Call, prepared, run

pytestmark = needs_compiler

BODIES = (Attention, AttentionGrad, AttentionMaskGrad)
FORMULAS = (rows.attention, rows.attention_grad, rows.attention_mask_grad)
NAMES = ("", "Grad", "MaskGrad")

# Around blocks of 64 queries and 96 keys, and lines of 64 bytes.
# leading axes; T, S, E, F; shape and kind of the mask; attributes
CASES = [
    ((), (1, 1, 1, 1), ((), bool), {}),
    ((2,), (1, 97, 3, 5), ((1, 97), bool), {}),
    ((2, 3), (5, 7, 3, 1), ((2, 1, 5, 7), bool), {"causal": True}),
    ((3,), (65, 96, 16, 80), ((3, 1, 96), float), {"scale": -0.3}),
    ((9,), (130, 100, 20, 17), ((130, 1), bool), {"causal": True}),
    ((2, 2), (70, 101, 2, 2), ((1, 2, 70, 101), float), {"dropout": 0.4, "skip": 3}),
    ((2, 1), (66, 9, 33, 64), ((2, 1, 1, 1), float), {"dropout": 0.7, "causal": True}),
    ((2,), (3, 0, 2, 2), ((1, 1), float), {}),
    ((2,), (0, 3, 2, 2), ((1, 3), float), {}),
]


def drawn(case, dtype, seed=0):
    """The inputs of the three kernels."""
    lead, (t, s, e, f), (shape, kind), _ = case
    rng = np.random.default_rng(seed)
    q, k, v, dout = (rng.normal(size=(*lead, *n)) for n in ((t, e), (s, e), (s, f), (t, f)))
    seen = rng.random(shape) < 0.7
    mask = np.asarray(seen) if kind is bool else np.where(seen, rng.normal(size=shape), -np.inf)
    lse, delta = 3 + rng.random((*lead, t)), rng.normal(size=(*lead, t))
    given = [q, k, v, mask, rows.STATE, lse, delta, dout]
    return tuple(x.astype(dtype) if x.dtype == float else x for x in given)


def call(case, dtype, which, given):
    """A kernel, what it gets and what it is to fill."""
    attrs = {"scale": 0.5, "causal": False, "dropout": 0.0, "skip": 0} | case[3]
    q, k, v, mask, _, lse, _, dout = given
    shapes = ((dout.shape, lse.shape), (q.shape, k.shape, v.shape), (mask.shape,))[which]
    name, outs = f"ScaledDotProductAttention{NAMES[which]}", [ArraySpec(s, dtype) for s in shapes]
    given = given if which else given[:5]
    return Call(BODIES[which], name, given, tuple(outs), attrs, (None,) * (len(given) + len(outs)))


@cache
def calls():
    """All calls, which are compiled together: float64 for some."""
    found = []
    for number, case in enumerate(CASES):
        for dtype in (np.dtype("f"), np.dtype("d"))[: 1 + (number % 4 == 2)]:
            given = drawn(case, dtype)
            kinds = range(3) if given[3].dtype == dtype else range(2)
            found += [(case, which, call(case, dtype, which, given)) for which in kinds]
    made = [prepared(c) for _, _, c in found]
    units.load([m.source for m in made])
    return list(zip(found, made, strict=True))


def right(case, which, arrays, got):
    """Whether the results are the formula's. A weight errs by the roundings of its score, the
    others by those of sums of so many terms: each of the sum of magnitudes."""
    exact = [x.astype(float) if x.dtype.kind == "f" else x for x in arrays]
    attrs = {"scale": 0.5} | case[3]
    with np.errstate(all="ignore"):
        expected = FORMULAS[which](*exact, **attrs)
    expected = expected if isinstance(expected, tuple) else (expected,)
    sizes = [np.where(np.isfinite(x), abs(x), 0).max(initial=1.0) for x in arrays if x.ndim != 0]
    terms = sum(case[1]) + 8
    for one, other in zip(got, expected, strict=True):
        largest = abs(np.where(np.isfinite(other), other, 0)).max(initial=1.0)
        bound = terms * np.finfo(one.dtype).eps * largest * max(sizes)
        if not np.allclose(one, other, rtol=0, atol=bound, equal_nan=True):
            return False
    return True


def test_all_sizes_masks_and_attributes():
    for (case, which, made), kernel in calls():
        assert right(case, which, made.arrays, run(kernel, made)), (case, NAMES[which])


def heights(t, s, e, f, causal):
    """The rows of all tiles of the products of a call, counted as attention.c runs them."""
    blocks, keys, found = max(-(-t // 64), 1), max(min(96, s), 1), set()

    def product(rows):
        tiles = (rows + 5) // 6
        ends = [i * rows // tiles for i in range(tiles + 1)] if tiles else []
        found.update(end - begin for begin, end in pairwise(ends))

    for block in range(blocks):
        last = (block + 1) * t // blocks
        seen = min(last, s) if causal else s
        for key in range(0, seen, keys):
            product(min(seen - key, keys))
    product(e)
    product(f)
    return found or {1}


def test_tiles_of_all_heights_that_products_have_are_compiled():
    rng = np.random.default_rng(0)
    for t, s, e, f in [*rng.integers(0, 300, (500, 4)).tolist(), (1000, 1000, 64, 64)]:
        for causal in (False, True):
            specs = [ArraySpec(shape, ml.float32) for shape in ((t, e), (s, e), (s, f))]
            attrs = {"dropout": 0.0, "causal": causal}
            node = SimpleNamespace(inputs=specs, attrs=attrs, constant=lambda *_: True)
            assert Sizes(node).heights == heights(t, s, e, f, causal)


@needs_fences
@ignores_forks
def test_nothing_around_the_operands_is_read():
    def fits(placed, case, which, made, kernel):
        return right(case, which, made.arrays, run(kernel, made, placed))

    steps = [
        (f"{case} {NAMES[which]} {placed.__name__}", partial(fits, placed, case, which, *both))
        for placed in FENCES
        for (case, which, made), kernel in calls()
        for both in [(made, kernel)]
    ]
    assert not first_to_fail(steps)


def test_operands_are_read_where_they_lie():
    """Views of (N, T, H, E), of reversed and repeated rows, and of transposed matrices."""
    case = ((2, 3), (70, 20, 18, 5), ((2, 1, 70, 20), float), {"causal": True})
    plain = [np.asarray(x) for x in drawn(case, np.dtype("f"))]

    def turned(x, *axes):
        return np.ascontiguousarray(x.transpose(axes)).transpose(np.argsort(axes))

    q, k, v, mask, state, lse, delta, dout = plain
    k = np.broadcast_to(k[:, :1], k.shape)
    turns = ((0, 2, 1, 3), None, (1, 0, 3, 2), (3, 2, 1, 0), None, (2, 0, 1), None, (3, 2, 1, 0))
    each = zip((q, k, v, mask, state, lse, delta, dout), turns, strict=True)
    *views, delta, dout = (x if axes is None else turned(x, *axes) for x, axes in each)
    views += [delta[..., ::-1], dout[:, :, ::-1]]
    given = [call(case, np.dtype("f"), which, tuple(views)) for which in range(3)]
    kernels = []
    for made in given:
        strides = tuple(tuple(s // x.itemsize for s in x.strides) for x in made.arrays)
        specs = tuple(ArraySpec(x.shape, x.dtype) for x in made.arrays)
        kernels.append(made.body())
        kernels[-1].prepare(KernelNode(made.name, specs, made.outputs, made.attrs, strides=strides))
    units.load([kernel.source for kernel in kernels])
    for which, (made, kernel) in enumerate(zip(given, kernels, strict=True)):
        outs = tuple(np.full(o.shape, np.nan, o.dtype) for o in made.outputs)
        scratch = tuple(np.full(w.shape, np.nan, w.dtype) for w in kernel.workspace())
        kernel.launch(made.arrays, scratch, outs, None)
        assert right(case, which, made.arrays, outs), NAMES[which]


def test_a_program_has_the_numbers_of_numpy_where_they_are_not_finite(monkeypatch):
    """NaN, infinities, queries that see nothing; and the same draws."""
    monkeypatch.setattr(limits, "COMPOSED", 0)
    rng = np.random.default_rng(1)
    q, k, v = (rng.normal(size=(2, n, 3)).astype(np.float32) for n in (70, 99, 99))
    q[0, 5, 0], q[1, 3, 1], k[0, 98, 0], v[1, 2, 1] = np.nan, np.inf, np.inf, np.inf
    seen = rng.random((2, 70, 99)) < 0.5
    seen[:, 7] = False

    def loss(q, k, v):
        out = ops.scaled_dot_product_attention(q, k, v, seen, 0.3)
        return ops.sum(out), out

    found = []
    for provider in ("miniml", "cc"):
        ml.manual_seed(2)
        with ml.context(providers=(provider,)):
            (_, out), slopes = ml.jit(value_and_grad(loss, (0, 1, 2), True))(q, k, v)
        found.append([x.asnumpy() for x in (out, *slopes)])
    for numpy, got in zip(*found, strict=True):
        np.testing.assert_allclose(got, numpy, 1e-4, 1e-5)
    assert np.isnan(found[0][0]).any()
    assert np.isinf(found[0][0]).any()
    assert not found[1][0][:, 7, [0, 2]].any()


def test_layers_that_draw_share_kernels_and_have_draws_of_their_own(monkeypatch):
    monkeypatch.setattr(limits, "COMPOSED", 0)
    loaded, load = [], units.load
    monkeypatch.setattr(units, "load", lambda given: loaded.extend(given) or load(given))
    x = np.random.default_rng(4).normal(size=(2, 9, 5)).astype(np.float32)

    def layers(x):
        for _ in range(3):
            x = ops.scaled_dot_product_attention(x, x, x, dropout=0.5)
        return x

    def loss(x):
        return ops.sum(layers(ops.dropout(ops.dropout(x, 0.3), 0.3)))

    found = []
    for provider in ("miniml", "cc"):
        ml.manual_seed(2)
        with ml.context(providers=(provider, "miniml")):
            found.append([x.asnumpy() for x in ml.jit(value_and_grad(loss))(x)])
    for numpy, got in zip(*found, strict=True):
        np.testing.assert_allclose(got, numpy, 1e-4, 1e-5)
    drawing = {source for source in loaded if "miniml_philox(" in source.text}
    assert len(drawing) == 3  # dropout, and the layers and their gradients


def test_of_a_mask_that_hides_nothing_nothing_is_left(monkeypatch):
    monkeypatch.setattr(limits, "COMPOSED", 0)
    x = np.ones((2, 3), np.float32)
    with ml.context(providers=("cc",)):
        text = str(ml.explain(lambda x: ops.scaled_dot_product_attention(x, x, x), x))
    assert "fff?L->ff  cc" in text
    masks = [np.ones((1, 1), bool), np.zeros((1, 1), bool), None]
    made = [prepared_with(mask) for mask in masks]
    assert ["#define KERNEL_MASK " in kernel.source.text for kernel in made] == [False, True, True]


def prepared_with(mask):
    """The kernel where a program has this constant as its mask."""
    case = ((), (2, 2, 3, 3), ((1, 1), bool), {})
    arrays = drawn(case, np.dtype("f"))[:5]
    specs = tuple(ArraySpec(x.shape, x.dtype) for x in arrays)
    made = call(case, np.dtype("f"), 0, drawn(case, np.dtype("f")))
    kernel, values = Attention(), (None, None, None, mask, None)
    kernel.prepare(KernelNode(made.name, specs, made.outputs, made.attrs, values=values))
    return kernel


WEIGHTS = """
void KERNEL(char *const *at) {
  const REAL *x = (const REAL *)at[0];
  for (long i = 0; i < 5000; ++i) ((REAL *)at[1])[i] = miniml_weight_BITS(x[i]);
}
"""


def test_weights_are_exponentials_and_zero_where_these_are_tiny():
    for bits, least, wide in ((32, -86, np.float64), (64, -707, np.longdouble)):
        text = WEIGHTS.replace("REAL", "float" if bits == 32 else "double")
        x = np.linspace(least - 20, 0, 5000).astype(f"float{bits}")
        x[:4] = np.nan, -np.inf, least, 0
        got = np.empty_like(x)
        units.run(Source(text.replace("BITS", f"float{bits}"), header("exp")), (x, got))
        expected = np.where(x < least, 0, np.exp(x.astype(wide)))
        np.testing.assert_allclose(got.astype(wide), expected, 2 * np.finfo(x.dtype).eps, 0)
