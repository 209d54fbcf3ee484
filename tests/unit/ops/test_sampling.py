"""Pixels moved and sampled: numbers by hand and of NumPy and SciPy, derivatives, refusals."""

from itertools import product

import numpy as np
import pytest
from scipy import ndimage

import miniml as ml
from miniml import ops
from miniml.errors import DTypeError, ShapeError, ValueRefusedError
from miniml.grad import grad
from miniml.testing import gradcheck

rng = np.random.default_rng(0)

# Blocks of pixels


@pytest.mark.parametrize("b", [1, 2, 3])
def test_channels_become_blocks_by_their_formulas(b):
    x = rng.normal(size=(2, 2 * b * b, 3, 2))
    crd, dcr = np.empty((2, 2, 2, 3 * b, 2 * b))
    for c, h, w, i, j in product(range(2), range(3), range(2), range(b), range(b)):
        crd[:, c, h * b + i, w * b + j] = x[:, (c * b + i) * b + j, h, w]
        dcr[:, c, h * b + i, w * b + j] = x[:, (i * b + j) * 2 + c, h, w]
    for fn, expected in (
        (lambda x: ops.pixel_shuffle(x, b), crd),
        (lambda x: ops.depth_to_space(x, b, "CRD"), crd),
        (lambda x: ops.depth_to_space(x, b), dcr),
    ):
        np.testing.assert_array_equal(fn(x).asnumpy(), expected)
        np.testing.assert_array_equal(ml.jit(fn)(x).asnumpy(), expected)
        np.testing.assert_array_equal(ml.vmap(fn)(x).asnumpy(), expected)  # images (C, H, W)
        assert gradcheck(lambda x, fn=fn: fn(x) ** 2, x, order=2).ok
    np.testing.assert_array_equal(ops.pixel_unshuffle(crd, b).asnumpy(), x)
    np.testing.assert_array_equal(ops.space_to_depth(crd, b, "CRD").asnumpy(), x)
    np.testing.assert_array_equal(ops.space_to_depth(dcr, b).asnumpy(), x)


def test_blocks_of_other_dtypes_and_of_nothing():
    for dtype in (bool, np.int8, np.float16):
        x = np.arange(8).reshape(8, 1, 1).astype(dtype)
        assert ops.pixel_shuffle(x, 2).dtype == dtype
        assert ops.pixel_unshuffle(ops.pixel_shuffle(x, 2), 2).tolist() == x.tolist()
    assert ops.pixel_shuffle(np.zeros((0, 4, 3, 3)), 2).shape == (0, 1, 6, 6)
    assert ops.space_to_depth(np.zeros((2, 0, 4, 4)), 2).shape == (2, 0, 2, 2)


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda: ops.pixel_shuffle(np.ones((6, 2, 2)), 2), "of the 6 channels .* a multiple of 4"),
        (lambda: ops.pixel_unshuffle(np.ones((1, 3, 2)), 2), r"\(1, 3, 2\) into blocks of 2 x 2"),
        (lambda: ops.pixel_shuffle(np.ones((4, 2)), 2), r"images, of shape \(..., C, H, W\)"),
        (lambda: ops.depth_to_space(np.ones((4, 2, 2)), 2, "RCD"), "'RCD'; expected one of 'DCR'"),
        (lambda: ops.space_to_depth(np.ones((4, 2, 2)), 0), "block_size=0; expected an int >= 1"),
    ],
)
def test_blocks_that_do_not_fit(call, says):
    with pytest.raises((ShapeError, ValueRefusedError), match=says):
        call()


# Grids of affine maps


@pytest.mark.parametrize("align", [False, True])
@pytest.mark.parametrize("extents", [(3,), (3, 4), (2, 3, 4)])
def test_the_grid_of_an_affine_map(align, extents):
    d = len(extents)
    theta = rng.normal(size=(2, d, d + 1))
    got = ops.affine_grid(theta, (2, 5, *extents), align)
    assert got.shape == (2, *extents, d)
    for at in product(*map(range, extents)):
        spots = [
            2 * i / (n - 1) - 1 if align else (2 * i + 1) / n - 1
            for i, n in zip(at, extents, strict=True)
        ]
        expected = theta @ np.array([*spots[::-1], 1.0])
        np.testing.assert_allclose(got.asnumpy()[(slice(None), *at)], expected, 1e-12, 1e-12)
    whole = (2, 5, *extents)
    assert gradcheck(lambda t: ops.affine_grid(t, whole, align) ** 2, theta, order=2).ok
    np.testing.assert_allclose(
        ml.jit(lambda t: ops.affine_grid(t, whole, align))(theta).asnumpy(), got.asnumpy(), 1e-14
    )


def test_small_grids_and_dtypes():
    unit = np.eye(2, 3)[None]
    assert ops.affine_grid(unit, (1, 1, 1, 1), True).tolist() == [[[[0, 0]]]]
    assert ops.affine_grid(unit, (1, 1, 0, 2)).shape == (1, 0, 2, 2)
    assert ops.affine_grid(unit[:0], (0, 1, 3, 2)).shape == (0, 3, 2, 2)
    assert ops.affine_grid(unit.astype(np.float16), (1, 1, 2, 2)).dtype == ml.float16
    with pytest.raises(ShapeError, match=r"theta of shape \(1, 2, 3\) and size \(2, 1, 2, 2\)"):
        ops.affine_grid(unit, (2, 1, 2, 2))
    with pytest.raises(DTypeError, match="affine_grid needs a float tensor"):
        ops.affine_grid(unit.astype(int), (1, 1, 2, 2))


# Images at points

# SciPy's modes with zeros, the last pixels repeated, and mirrors at the outer edges.
PADDINGS = {"zeros": "grid-constant", "border": "nearest", "reflection": "reflect"}
ORDERS = {"nearest": 0, "linear": 1}


def pixels(grid, extents, align):
    """The points in pixels, rows first."""
    spans = np.array(extents[::-1])
    at = (grid + 1) / 2 * (spans - 1) if align else ((grid + 1) * spans - 1) / 2
    return np.moveaxis(at[..., ::-1], -1, 0)


@pytest.mark.parametrize("padding", PADDINGS)
@pytest.mark.parametrize("mode", ORDERS)
@pytest.mark.parametrize("extents", [(5,), (4, 5), (3, 4, 2)])
@pytest.mark.parametrize("align", [False, True])
def test_sampling_is_what_scipy_interpolates(padding, mode, extents, align):
    """Mirrors at centres of pixels are SciPy's "mirror"."""
    x = rng.normal(size=(2, 3, *extents))
    grid = rng.uniform(-2.2, 2.2, (2, 4, 3, len(extents)))
    outside = "mirror" if align and padding == "reflection" else PADDINGS[padding]
    got = ops.grid_sample(x, grid, mode, padding, align)
    assert got.shape == (2, 3, 4, 3)
    for n, c in product(range(2), range(3)):
        at = pixels(grid[n], extents, align)
        expected = ndimage.map_coordinates(x[n, c], at, order=ORDERS[mode], mode=outside)
        np.testing.assert_allclose(got.asnumpy()[n, c], expected, 1e-10, 1e-10)


@pytest.mark.parametrize("padding", PADDINGS)
@pytest.mark.parametrize("align", [False, True])
def test_cubic_sampling_is_a_sum_of_weights(padding, align):
    """By Keys' kernel, of pixels that `np.pad` puts around the image."""
    around = {"zeros": "constant", "border": "edge", "reflection": "symmetric"}[padding]
    around = "reflect" if align and padding == "reflection" else around
    x, grid = rng.normal(size=(1, 1, 4, 5)), rng.uniform(-1.6, 1.6, (1, 6, 2))
    wide = np.pad(x[0, 0], 8, around)

    def kernel(t, a=-0.75):
        t = abs(t)
        if t <= 1:
            return (a + 2) * t**3 - (a + 3) * t**2 + 1
        return a * (t**3 - 5 * t**2 + 8 * t - 4) if t < 2 else 0.0

    got = ops.grid_sample(x, grid, "cubic", padding, align).asnumpy()[0, 0]
    for value, (r, q) in zip(got, pixels(grid[0], (4, 5), align).T, strict=True):
        rows, columns = (int(np.floor(v)) + np.arange(-1, 3) for v in (r, q))
        expected = sum(
            kernel(r - i) * kernel(q - j) * wide[i + 8, j + 8] for i in rows for j in columns
        )
        np.testing.assert_allclose(value, expected, 1e-10, 1e-12)


@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
def test_derivatives_of_sampling_and_many_examples(mode):
    x, grid = rng.normal(size=(2, 2, 4, 5)), rng.uniform(-0.9, 0.9, (2, 3, 2))
    fn = lambda x, g: ops.grid_sample(x, g, mode, "border")  # noqa: E731
    assert gradcheck(fn, x, grid, order=2 if mode == "linear" else 1).ok
    expected = fn(x, grid).asnumpy()
    np.testing.assert_allclose(ml.jit(fn)(x, grid).asnumpy(), expected, 1e-12, 1e-14)
    apart = ml.vmap(lambda x, g: fn(x[None], g[None])[0])(x, grid)
    np.testing.assert_allclose(apart.asnumpy(), expected, 1e-12, 1e-14)


def test_the_slope_on_a_pixel_is_that_ahead_of_it():
    """On each of five pixels, and from the last to the zeros behind it."""
    pixels, points = [1.0, 4.0, 2.0, 9.0, 3.0], ml.Tensor(np.linspace(-1, 1, 5)[None, :, None])
    sampled = grad(lambda p: ops.grid_sample([[pixels]], p, align_corners=True).sum())
    slopes = 2 * np.diff([*pixels, 0.0])  # pixels are 1 / 2 wide
    np.testing.assert_array_equal(sampled(points).asnumpy().ravel(), slopes)


def test_an_identity_gives_the_image_and_an_exchange_its_transpose():
    x = rng.normal(size=(1, 2, 5, 5)).astype(np.float32)
    for align in (False, True):
        same = ops.affine_grid(np.eye(2, 3, dtype=np.float32)[None], x.shape, align)
        got = ops.grid_sample(x, same, align_corners=align).asnumpy()
        np.testing.assert_allclose(got, x, 1e-5, 1e-5)
        turned = ops.grid_sample(x, same[..., ::-1], align_corners=align).asnumpy()
        np.testing.assert_allclose(turned, x.swapaxes(2, 3), 1e-5, 1e-5)


def test_points_that_are_not_numbers_far_away_or_none():
    x = np.array([[[1.0, 2.0, 3.0]]])
    far = np.array([[[np.nan], [np.inf], [-np.inf], [1e30]]])
    for mode in ("nearest", "linear"):
        got = ops.grid_sample(x, far, mode).asnumpy().ravel()
        np.testing.assert_array_equal(got, [np.nan, 0, 0, 0])
        got = ops.grid_sample(x, far, mode, "border").asnumpy().ravel()
        np.testing.assert_array_equal(got, [np.nan, 3, 1, 3])
    assert ops.grid_sample(x, far[:, :0]).shape == (1, 1, 0)
    assert ops.grid_sample(x[:0], far[:0]).shape == (0, 1, 4)
    assert ops.grid_sample(x[:, :0], far).shape == (1, 0, 4)
    assert ops.grid_sample(x, [[0.0]]).tolist() == [[2.0]]  # a point for each image
    half = ops.grid_sample(x.astype(np.float16), np.float32([[[0.5]]]))
    assert half.dtype == ml.float16
    assert half.item() == 2.75
    low = ops.grid_sample(ml.Tensor(x, dtype=ml.bfloat16), np.float32([[[0.5]]]))
    assert low.dtype == ml.bfloat16
    slope = grad(lambda g: ops.sum(ops.grid_sample(x, g, "nearest")))(np.array([[[0.3]]]))
    assert slope.tolist() == [[[0.0]]]


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda x, g: ops.grid_sample(x, g, "bilinear"), "'bilinear'; .*bilinear and .* 'linear'"),
        (lambda x, g: ops.grid_sample(x, g, padding_mode="edge"), "padding_mode='edge'; expected"),
        (lambda x, g: ops.grid_sample(x[0], g), r"x of shape \(1, 3\) and grid of shape"),
        (lambda x, g: ops.grid_sample(x, np.ones((2, 4, 1))), "as many axes behind"),
        (lambda x, g: ops.grid_sample(x, np.ones((1, 4, 2))), "as many axes behind"),
        (lambda x, g: ops.grid_sample(x[..., :0], g), "whose images have no pixels"),
        (lambda x, g: ops.grid_sample(x.astype(int), g), "grid_sample needs a float tensor"),
        (lambda x, g: ops.grid_sample(x, g.astype(int)), "grid_sample needs a float tensor"),
    ],
)
def test_refusals_of_sampling(call, says):
    with pytest.raises((ShapeError, ValueRefusedError, DTypeError), match=says):
        call(np.ones((1, 1, 3)), np.ones((1, 4, 1)))
