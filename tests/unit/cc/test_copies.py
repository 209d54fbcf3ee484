"""Copies of views in C: every layout as NumPy copies it, and results that are views."""

import numpy as np
import pytest

import miniml as ml
from miniml import ops
from miniml.backends.cc import native
from tests.frame.native import needs_compiler

pytestmark = needs_compiler


@pytest.fixture(autouse=True)
def natively():
    with ml.context(providers=("cc",)):
        yield


def copied(view):
    """The view, copied by the kernel."""
    out = np.full(view.shape, 1, view.dtype)
    native.native_run([native.copy(out, view, view)], 1)()
    return out


def any_view(rng, dtype):
    """A view with axes that are cut, reversed, repeated and permuted."""
    axes = int(rng.integers(1, 6))
    shape = rng.choice([1, 2, 3, 4, 5, 17, 33], axes) if axes < 4 else rng.integers(1, 5, axes)
    x = rng.integers(0, 255, (*shape, dtype.itemsize), np.uint8).view(dtype)[..., 0]
    for axis in range(axes):
        begin, step = int(rng.integers(0, 2)), int(rng.choice([1, 1, 2, -1, -2, 3]))
        x = x[(slice(None),) * axis + (slice(None, None, step),)]
        x = x[(slice(None),) * axis + (slice(begin, None),)] if x.shape[axis] > 1 else x
    for _ in range(int(rng.integers(0, 3))):
        at = int(rng.integers(0, x.ndim + 1))
        shape = (*x.shape[:at], int(rng.choice([2, 3, 4, 9])), *x.shape[at:])
        x = np.broadcast_to(np.expand_dims(x, at), shape)
    return x.transpose(rng.permutation(x.ndim))


@pytest.mark.parametrize("code", ["u1", "u2", "u4", "u8", "c16"])
def test_a_copy_has_the_bits_of_the_view(code):
    rng = np.random.default_rng(0)
    for _ in range(400):
        view = any_view(rng, np.dtype(code))
        assert copied(view).tobytes() == view.tobytes(), (view.shape, view.strides)


@pytest.mark.parametrize("code", ["u1", "u2", "u4", "u8", "c16"])
def test_rows_of_every_length_are_repeated_reversed_turned_and_woven(code):
    """Longer ones are copied from what is there, of up to 1024 elements."""
    x = np.arange(3 * 5000, dtype="u8").astype(code).reshape(3, 5000)
    for n in (1, 2, 31, 32, 33, 63, 64, 65, 1000, 1024, 1025, 2047, 2049, 4999):
        pairs = np.broadcast_to(x[:, :n, None], (3, n, 2))
        tall = np.resize(x, (n, 9))
        for view in (
            np.broadcast_to(x[:, -1:], (3, n)),
            x[:, n::-1],
            x[:, :n].T,
            x[:2, :n].T,
            pairs,
            tall.T,
            tall[::-1, ::-1].T,
        ):
            assert copied(view).tobytes() == view.tobytes(), n


def test_empty_and_0d_views_are_copied():
    x = np.arange(12.0).reshape(3, 4)
    for view in (x[:0].T, x[1, 2], x[:, :0], np.broadcast_to(x[0, 1], (2, 0, 3))):
        np.testing.assert_array_equal(copied(view), view)


def test_large_copies_are_shared_by_threads():
    x = np.arange(2**20, dtype="f").reshape(64, 128, 128)
    for view in (x[:, ::-1], x.transpose(1, 0, 2), x.transpose(2, 1, 0), x[:, :, ::-1]):
        out = np.empty(view.shape, view.dtype)
        native.native_run([native.copy(out, view, view)], 2)()
        np.testing.assert_array_equal(out, view)


X = np.random.default_rng(0).standard_normal((4, 8, 6, 10)).astype("f")
VIEWS = {
    "flipped": (lambda x: ops.flip(x, (2,)), X[:, :, ::-1]),
    "cut": (lambda x: x[:, 1:, ::2], X[:, 1:, ::2]),
    "broadcast": (lambda x: ops.broadcast_to(x, (3, *X.shape)), np.stack((X, X, X))),
    "flattened": (
        lambda x: ops.reshape(ops.transpose(x, (1, 0, 2, 3)), (8, -1)),
        X.transpose(1, 0, 2, 3).reshape(8, -1),
    ),
    "repeated": (lambda x: ops.repeat(ops.repeat(x, 2, 2), 2, 3), X.repeat(2, 2).repeat(2, 3)),
    "shuffled": (
        lambda x: ops.pixel_shuffle(x, 2),
        X.reshape(4, 2, 2, 2, 6, 10).transpose(0, 1, 4, 2, 5, 3).reshape(4, 2, 12, 20),
    ),
}


@pytest.mark.parametrize(("fn", "expected"), VIEWS.values(), ids=VIEWS)
def test_results_that_are_views_are_one_call(fn, expected):
    """Also of inputs with other strides, and beside results that are none."""
    run = ml.jit(fn)
    for x in (X, np.asfortranarray(X)):
        np.testing.assert_array_equal(run(x).asnumpy(), expected)
    assert ", in one call" in str(ml.explain(fn, X))
    first, second, third = ml.jit(lambda x: (fn(x), x + 1.0, fn(x) * 2.0))(X)
    np.testing.assert_array_equal(first.asnumpy(), expected)
    np.testing.assert_array_equal(second.asnumpy(), X + 1)
    np.testing.assert_array_equal(third.asnumpy(), expected * 2)


def test_numpy_reads_what_c_has_reshaped():
    fn = ml.jit(lambda x: ops.svd(ops.reshape(ops.transpose(x), (60, -1)))[1])
    flat = X.T.reshape(60, -1)
    expected = np.linalg.svd(flat.astype("d"), compute_uv=False)
    np.testing.assert_allclose(fn(X).asnumpy(), expected, rtol=1e-5)


@pytest.mark.parametrize("of", [lambda x: x, ops.exp], ids=["an input", "what C computed"])
def test_numpy_reads_what_c_has_moved_and_reshaped(of):
    """In the shape that it has then, not in that which it was copied from."""
    x = np.random.default_rng(0).normal(size=(2, 3, 4))

    def fn(x):
        rows = ops.reshape(ops.moveaxis(of(x), 1, -1), (-1, 3))
        return ops.svd(rows)[1], ops.fft(ops.reshape(rows, (4, 6)))

    values, waves = ml.jit(fn)(x)
    rows = np.moveaxis(of(ml.Tensor(x)).asnumpy(), 1, -1).reshape(-1, 3)
    np.testing.assert_allclose(values.asnumpy(), np.linalg.svd(rows)[1])
    np.testing.assert_allclose(waves.asnumpy(), np.fft.fft(rows.reshape(4, 6)))


def test_a_parameter_becomes_a_flattened_view():
    p = ml.Parameter(np.zeros((8, 240), "f"), name="p")

    def step(x):
        ops.assign(p, ops.reshape(ops.transpose(x, (1, 0, 2, 3)), (8, -1)))
        return ops.flip(x, (0,))

    np.testing.assert_array_equal(ml.jit(step)(X).asnumpy(), X[::-1])
    np.testing.assert_array_equal(p.asnumpy(), X.transpose(1, 0, 2, 3).reshape(8, -1))


def test_every_result_is_the_callers_own():
    run = ml.jit(lambda x: ops.flip(x, (0,)))
    first = run(X).asnumpy()
    kept = first.copy()
    run(X + 1.0)
    np.testing.assert_array_equal(first, kept)
