"""Matrix products of provider "cc" against float64 and long double."""

import numpy as np
import pytest

from miniml.backends.cc.product import product_text, stored
from miniml.backends.cc.units import load, run
from miniml.backends.product import Product

WIDE = {np.float32: np.float64, np.float64: np.longdouble}
# Around the tiles: 6 and 12 rows, 16 columns and 64, lines of a panel.
SHAPES = [
    (0, 3, 4), (3, 0, 4), (3, 4, 0), (1, 1, 1), (1, 1, 100), (1, 10, 8), (1, 65, 33), (1, 256, 64),
    (10, 1, 8), (7, 1, 130), (2, 17, 3), (3, 15, 16), (5, 16, 17), (6, 63, 31), (7, 64, 32),
    (11, 65, 15), (12, 66, 16), (13, 127, 48), (25, 128, 257), (32, 10, 64), (49, 130, 300),
]  # fmt: skip


def dense(m, n, k, transpose_x=False, transpose_y=False, batch=((1, (0, 0, 0)),)):
    x, y = (1, m) if transpose_x else (k, 1), (1, k) if transpose_y else (n, 1)
    return Product(m, n, k, x, y, (n, 1), list(batch))


def operands(m, n, k, transpose_x, transpose_y, dtype):
    rng = np.random.default_rng(m + n + k)
    x = rng.standard_normal((k, m) if transpose_x else (m, k)).astype(dtype)
    y = rng.standard_normal((n, k) if transpose_y else (k, n)).astype(dtype)
    return x, y


def check(got, x, y):
    """A sum of k products in any order errs by at most k eps times the sum of their magnitudes."""
    wide = WIDE[got.dtype.type]
    x, y = x.astype(wide), y.astype(wide)
    bound = (x.shape[-1] + 1) * np.finfo(got.dtype).eps * (abs(x) @ abs(y))
    assert got.shape == (x @ y).shape
    assert (abs(got - x @ y) <= bound).all()


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_every_shape_and_transpose(dtype):
    cases = [(*s, tx, ty) for s in SHAPES for tx in (False, True) for ty in (False, True)]
    sources = [product_text(dense(*case), np.dtype(dtype)) for case in cases]
    load(sources)
    for (m, n, k, tx, ty), source in zip(cases, sources, strict=True):
        x, y = operands(m, n, k, tx, ty, dtype)
        out = np.full((m, n), np.nan, dtype)
        run(source, (x, y, out))
        check(out, x.T if tx else x, y.T if ty else y)


def test_sums_are_added_where_the_epilogue_says_so():
    p = dense(7, 70, 9)
    source = product_text(p, np.dtype(np.float32), stored(p, np.dtype(np.float32), accumulate=True))
    x, y = operands(7, 70, 9, False, False, np.float32)
    out = np.ones((7, 70), np.float32)
    run(source, (x, y, out))
    check(out - 1, x, y)
