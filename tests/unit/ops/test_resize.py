"""resize: PyTorch's numbers, NumPy's interpolation, derivatives, and what is refused."""

import numpy as np
import pytest

import miniml as ml
from miniml import ops
from miniml.errors import AttributeRefusedError, ShapeError, ValueRefusedError
from miniml.grad import grad
from miniml.testing import gradcheck

ROW = np.array([[[1.0, 3.0, -2.0, 5.0]]])
IMAGE = np.array([[[[1.0, 2.0, 4.0], [0.0, -3.0, 5.0]]]])
SIX, FOUR = {"size": 6}, {"size": (3, 4)}
# Golden numbers of torch.nn.functional.interpolate 2.13: x, arguments, result.
GOLDEN = [
    (ROW, {"size": 2}, [1, -2]),
    (ROW, {"size": 3}, [1, 3, -2]),
    (ROW, SIX, [1, 1, 3, -2, -2, 5]),
    (ROW, {"scale_factor": 1.6}, [1, 1, 3, 3, -2, 5]),
    (ROW, {"size": 2, "mode": "nearest-exact"}, [3, 5]),
    (ROW, {"size": 3, "mode": "nearest-exact"}, [1, -2, 5]),
    (ROW, SIX | {"mode": "nearest-exact"}, [1, 3, 3, -2, 5, 5]),
    (ROW, {"size": 2, "mode": "linear"}, [2, 1.5]),
    (ROW, {"size": 3, "mode": "linear"}, [4 / 3, 0.5, 23 / 6]),
    (ROW, SIX | {"mode": "linear"}, [1, 2, 13 / 6, -7 / 6, 1.5, 5]),
    (ROW, SIX | {"mode": "linear", "align_corners": True}, [1, 2.2, 2, -1, 0.8, 5]),
    (ROW, {"scale_factor": 1.6, "mode": "linear"}, [1, 1.875, 2.6875, -0.4375, 0.1875, 4.5625]),
    (IMAGE, FOUR | {"mode": "linear"},
     [1, 1.625, 2.75, 4, 0.5, -0.125, 1.375, 4.5, 0, -1.875, 0, 5]),
    (IMAGE, FOUR | {"mode": "linear", "align_corners": True},
     [1, 5 / 3, 8 / 3, 4, 0.5, -1 / 6, 7 / 6, 4.5, 0, -2, -1 / 3, 5]),
    (IMAGE, FOUR | {"mode": "cubic"}, [
        0.9901055230034723, 1.7860480414496522, 3.1150580512152777, 4.0193650987413205,
        0.5717773437500001, -0.6889648437499999, 1.1918945312500002, 4.85888671875,
        0.15344916449652762, -3.1639777289496545, -0.7312689887152787, 5.698408338758681]),
    (IMAGE, FOUR | {"mode": "cubic", "align_corners": True}, [
        1, 1.4629629629629626, 2.7407407407407414, 4, 0.5, -0.7407407407407409,
        0.9629629629629635, 4.5, 0, -2.9444444444444446, -0.8148148148148143, 5]),
]  # fmt: skip


@pytest.mark.parametrize(("x", "given", "expected"), GOLDEN)
def test_what_pytorch_gives(x, given, expected):
    got = ops.resize(x, **given).asnumpy()
    np.testing.assert_allclose(got.ravel(), expected, 1e-12, 1e-12)
    np.testing.assert_allclose(ml.jit(lambda x: ops.resize(x, **given))(x).asnumpy(), got, 1e-12)


@pytest.mark.parametrize("count", [1, 2, 3, 7, 12])
@pytest.mark.parametrize("corners", [False, True])
def test_linear_is_what_numpy_interpolates_axis_by_axis(count, corners):
    x = np.random.default_rng(count).normal(size=(2, 3, 4, 5, 3))
    out = x
    for at in (2, 3, 4):
        n = x.shape[at]
        points = (np.arange(count) + 0.5) * n / count - 0.5
        if corners:
            points = np.linspace(0, n - 1, count) if count > 1 else [0.0]
        f = lambda v, points=points, n=n: np.interp(points, np.arange(n), v)  # noqa: E731
        out = np.apply_along_axis(f, at, out)
    got = ops.resize(x, count, mode="linear", align_corners=corners)
    np.testing.assert_allclose(got.asnumpy(), out, 1e-12, 1e-12)


def test_nearest_repeats_and_picks_whole_ratios_exactly():
    x = np.arange(49.0).reshape(1, 1, 7, 7)
    for ratio in (2, 3, 7):
        big = x.repeat(ratio, 2).repeat(ratio, 3)
        np.testing.assert_array_equal(ops.resize(x, 7 * ratio).asnumpy(), big)
        np.testing.assert_array_equal(ops.resize(x, scale_factor=ratio).asnumpy(), big)
        np.testing.assert_array_equal(ops.resize(big, 7).asnumpy(), x)
    slope = grad(lambda x: ops.sum(ops.resize(x, (14, 21))))(x)
    np.testing.assert_array_equal(slope.asnumpy(), np.full(x.shape, 6.0))


@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
def test_two_derivatives(mode):
    x = np.random.default_rng(1).normal(size=(1, 2, 3, 4))
    assert gradcheck(lambda x: ops.resize(x, (5, 3), mode=mode) ** 2, x, order=2).ok


def test_what_is_outside_has_no_weight():
    x = np.array([[[np.inf, 1.0, 2.0, 3.0]]])
    assert ops.resize(x, 8, mode="linear").asnumpy()[0, 0, 3:].tolist() == [
        1.25,
        1.75,
        2.25,
        2.75,
        3.0,
    ]


def test_dtypes_and_batches_without_images():
    x = np.array([[[0, 200]]], np.uint8)
    assert ops.resize(x, 4).tolist() == [[[0, 0, 200, 200]]]
    assert ops.resize(x, 4).dtype == ml.uint8
    assert ops.resize(x, 4, mode="linear").tolist() == [[[0, 50, 150, 200]]]
    for mode in ("nearest", "linear", "cubic"):
        assert ops.resize(x.astype(np.float16), 3, mode=mode).dtype == ml.float16
        assert ops.resize(np.zeros((0, 3, 4, 4)), (2, 5), mode=mode).shape == (0, 3, 2, 5)
        assert ops.resize(ROW, 4, mode=mode).tolist() == ROW.tolist()
        assert ops.resize(ROW, scale_factor=1.2, mode=mode).tolist() == ROW.tolist()


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda: ops.resize(ROW, 4, mode="bilinear"), "'bilinear'; .*bilinear and .* are 'linear'"),
        (lambda: ops.resize(ROW, 4, align_corners=True), "align_corners=True for mode='nearest'"),
        (lambda: ops.resize(ROW), "size=None and scale_factor=None; give one"),
        (lambda: ops.resize(ROW, 4, 2.0), "give one of the two"),
        (lambda: ops.resize(ROW, (4, 4)), r"size=\(4, 4\); expected one int"),
        (lambda: ops.resize(ROW, 0), "size=.0,.; expected one int >= 1"),
        (lambda: ops.resize(ROW, scale_factor=-1.0), r"scale_factor=-1\.0"),
        (lambda: ops.resize(ROW, scale_factor=(1, 2)), r"one for each of \(L\)"),
        (lambda: ops.resize(ROW, scale_factor=0.1), "leaves nothing"),
        (lambda: ops.resize(ROW[0], 3), r"x of shape \(1, 4\); it takes \(N, C, ...\)"),
        (lambda: ops.resize(ROW[..., :0], 3), "none of them empty"),
    ],
)
def test_refusals(call, says):
    with pytest.raises((AttributeRefusedError, ShapeError, ValueRefusedError), match=says):
        call()
