"""Every function of the array API namespace against NumPy's of that name, on one table of samples.

NumPy implements the standard itself, so a sample is what both are called with.
"""

import numpy as np
import pytest

import miniml as ml
from miniml import ops
from miniml.testing import gradcheck

xp = ml.array_api
R = np.random.default_rng(0)
A, B = R.normal(size=(3, 4)), R.normal(size=(3, 4))
P = R.uniform(0.1, 0.9, size=(3, 4))
N, J = R.integers(-9, 9, size=(3, 4)), R.integers(1, 5, size=(3, 4))
M = A > 0
C = A + 1j * B
S = R.normal(size=(2, 3, 3))
SYM = S @ np.swapaxes(S, -1, -2) + np.eye(3)
V, W = R.normal(size=5), R.normal(size=5)
NAN = np.array([1.0, -0.0, np.nan, np.inf, -np.inf, 0.0])


def case(*args, **named):
    return args, named


def each(*samples):
    return [case(x) for x in samples]


SAMPLES = {
    "arange": [case(5), case(1, 7, 2), case(1.0, 2.0, 0.25, dtype=np.float64)],
    "asarray": [case(A), case([1, 2]), case(A, dtype=np.float32), case(True)],
    "empty_like": [],  # checked by shape below: NumPy's values are whatever was there
    "empty": [],
    "eye": [case(3, dtype=np.float64), case(3, 4, k=1, dtype=np.int64), case(3, 2, k=-1)],
    "from_dlpack": [],
    "full": [case((2, 3), 4), case(2, 1.5, dtype=np.float64), case((), True)],
    "full_like": [case(N, 3), case(A, 1.5)],
    "linspace": [case(0.0, 1.0, 5, dtype=np.float64), case(0.0, 1.0, 4, endpoint=False)],
    "meshgrid": [case(V, W), case(V, W, indexing="ij")],
    "ones": [case((2, 3)), case(3, dtype=np.int32)],
    "ones_like": [case(N), case(A, dtype=np.int8)],
    "zeros": [case((2, 0)), case((), dtype=np.bool_)],
    "zeros_like": [case(N), case(A, dtype=np.int8)],
    "tril": [case(A), case(S, k=1)],
    "triu": [case(A), case(S, k=-1)],
    "astype": [case(A, np.float32), case(N, np.float64), case(M, np.int64)],
    "broadcast_arrays": [case(A, V[:4]), case(A, A[:, :1])],
    "broadcast_shapes": [case((3, 1), (4,)), case((), (2, 0))],
    "broadcast_to": [case(V, (2, 5))],
    "can_cast": [case(np.int8, np.float32), case(np.float64, np.float32),
                 case(N.astype(np.int32), np.complex128)],
    "isdtype": [case(np.dtype(np.int8), k) for k in ("bool", "integral", "signed integer")]
    + [case(np.dtype(np.complex64), ("real floating", "numeric"))]
    + [case(np.dtype(np.uint8), np.uint8), case(np.dtype(np.uint8), "unsigned integer")],
    "result_type": [case(np.float32, np.float64), case(np.int8, np.uint8), case(A, 1)],
    "finfo": [],
    "iinfo": [],
    **{
        name: each(A, NAN)
        for name in """asinh atan ceil expm1 floor round sinh tanh trunc isfinite isinf isnan
        signbit sign""".split()
    },
    **{name: each(A, np.float32(0.5)) for name in "sin cos tan sinh cosh tanh".split()},
    "exp": each(A, C),
    **{name: each(P) for name in "acos asin atanh log1p".split()},
    **{name: each(P + 1) for name in "acosh log2 log10 reciprocal".split()},
    **{name: each(P) for name in "log sqrt".split()},
    "square": each(P, C),
    **{name: each(A, N, C) for name in "abs negative positive conj real imag".split()},
    "reciprocal": each(A, C),
    "sign": each(A, N, NAN, C, np.zeros(2, np.complex128)),
    "bitwise_invert": each(N, M),
    "logical_not": each(M),
    **{name: [case(N, J), case(M, ~M)] for name in "bitwise_and bitwise_or bitwise_xor".split()},
    **{name: [case(N, J), case(N, 2)] for name in "bitwise_left_shift bitwise_right_shift".split()},
    **{name: [case(M, ~M)] for name in "logical_and logical_or logical_xor".split()},
    **{name: [case(A, B), case(N, J), case(A, 2.0), case(C, A)] for name in
       "add subtract multiply".split()},
    "divide": [case(A, B), case(A, 2.0), case(C, C + 1)],
    **{name: [case(A, B), case(N, J), case(N, -3)] for name in "floor_divide remainder".split()},
    "pow": [case(P, B), case(J, 3), case(A, 2)],
    **{name: [case(A, B), case(NAN, 0.0)] for name in
       "equal not_equal less less_equal greater greater_equal maximum minimum".split()},
    **{name: [case(A, B)] for name in "atan2 copysign hypot logaddexp".split()},
    "clip": [case(A, -0.5, 0.5), case(N, 0), case(N, None, 3), case(A, B, B + 1)],
    "take": [case(V, np.array([3, 0])), case(A, np.array([1, 0, 1]), axis=1)],
    "take_along_axis": [case(A, np.argsort(A, 1), axis=1), case(A, np.argsort(A, 0), axis=0)],
    "matmul": [case(A, B.T), case(S, V[:3]), case(N, J.T), case(C, A.T)],
    "matrix_transpose": each(A, S),
    "tensordot": [case(S, S, axes=((1, 2), (1, 2))), case(S[0], S[1], axes=1),
                  case(A, B, axes=((0, 1), (0, 1))), case(V, W, axes=0),
                  case(S, A, axes=((-1,), (0,))), case(A, B, axes=((-2, 1), (0, -1)))],
    "vecdot": [case(A, B), case(C, C), case(A, B[:1], axis=-1), case(A, B, axis=-2)],
    "concat": [case([A, B]), case([A, B], axis=1), case([A, V], axis=None), case([N, A])],
    "expand_dims": [case(A, axis=0), case(A, axis=-1), case(A, axis=(0, 2))],
    "flip": [case(A), case(A, axis=1), case(S, axis=(0, -1))],
    "moveaxis": [case(S, 0, -1), case(S, (0, 1), (1, 2))],
    "permute_dims": [case(S, (2, 0, 1))],
    "repeat": [case(A, 2), case(A, 2, axis=1), case(V, np.array([0, 1, 2, 0, 3]))],
    "reshape": [case(A, (2, 6)), case(A, (-1,)), case(A, (4, 3), copy=True)],
    "roll": [case(A, 1), case(A, (1, -1), axis=(0, 1))],
    "squeeze": [case(A[None], 0), case(A[None, :, None], (0, 2))],
    "stack": [case([A, B]), case([A, B], axis=-1)],
    "tile": [case(A, (2,)), case(V, (2, 1))],
    "unstack": [case(A), case(A, axis=1)],
    **{name: [case(A), case(N, axis=1), case(A, axis=0, keepdims=True)] for name in
       "argmax argmin".split()},
    "nonzero": each(N > 3, A, np.zeros((0, 2))),
    "count_nonzero": [case(N), case(M, axis=1), case(A, axis=0, keepdims=True)],
    "searchsorted": [case(np.sort(V), W), case(np.sort(V), np.sort(V), side="right"),
                     case(V, W, sorter=np.argsort(V))],
    "where": [case(M, A, B), case(M, A, 0.0)],
    **{name: [case(np.array([3, 1, 3, 2, 1])), case(N)] for name in
       "unique_all unique_counts unique_inverse unique_values".split()},
    "isin": [case(N, np.array([1, 2])), case(N, np.array([], np.int64)), case(N, J, invert=True),
             case(NAN, NAN), case(C, C[:1])],
    **{name: [case(V), case(A, axis=0), case(N, axis=1, stable=True)] for name in
       "argsort sort".split()},
    "cumulative_sum": [case(V), case(A, axis=1), case(N.astype(np.int8), axis=0),
                       case(A, axis=-1, include_initial=True), case(M, axis=1)],
    "cumulative_prod": [case(V), case(A, axis=1), case(J.astype(np.uint8), axis=0),
                        case(A, axis=0, include_initial=True)],
    "diff": [case(V), case(A, axis=0), case(A, n=2), case(A, n=0), case(A, n=0, prepend=A),
        case(M), case(V[:1]),
             case(V, prepend=W, append=W), case(N, axis=0, n=5)],
    **{name: [case(A), case(N, axis=1), case(S, axis=(0, -1), keepdims=True)] for name in
       "max min".split()},
    "mean": [case(A), case(A, axis=1), case(S, axis=(0, -1), keepdims=True), case(C)],
    **{name: [case(A), case(A, axis=1, correction=1), case(S, axis=(0, -1), keepdims=True)]
       for name in "std var".split()},
    **{name: [case(A), case(J.astype(np.int8)), case(J.astype(np.uint8), axis=1),
              case(M, axis=0, keepdims=True), case(A, dtype=np.float32), case(np.zeros((0, 2)))]
       for name in "sum prod".split()},
    **{name: [case(M), case(A, axis=1), case(M, axis=(0, 1), keepdims=True)]
       for name in "all any".split()},
}  # fmt: skip

LINALG = {
    "cholesky": [case(SYM), case(SYM, upper=True)],
    "cross": [case(S, S[:1]), case(S, S[::-1], axis=1)],
    "det": each(S),
    "diagonal": [case(A), case(S, offset=1), case(S, offset=-1)],
    "eigvalsh": each(SYM),
    "inv": each(S),
    "matmul": [case(S, S)],
    "matrix_norm": [case(S), case(S, keepdims=True, ord=1)]
    + [case(S, ord=o) for o in ("nuc", 2, -2, -1, np.inf, -np.inf)],
    "matrix_power": [case(S, 3), case(S, 0), case(S, -2)],
    "matrix_rank": [case(S), case(np.ones((4, 3))), case(np.zeros((2, 2))), case(SYM, rtol=0.5)],
    "matrix_transpose": each(S),
    "outer": [case(V, W)],
    "pinv": [case(A), case(A, rtol=0.1), case(S)],
    "slogdet": each(S),
    "solve": [case(S, S[::-1].copy()), case(S[0], V[:3]), case(S, V[:3]), case(S, S[0])],
    "svdvals": each(A, S),
    "tensordot": [case(A, B, axes=((1,), (1,)))],
    "trace": [case(A), case(S, offset=1), case(J[:, :3].astype(np.int8)), case(S, dtype=np.int64)],
    "vecdot": [case(A, B)],
    "vector_norm": [case(A), case(S, axis=(0, 2)), case(A, axis=1, keepdims=True, ord=np.inf)]
    + [case(A, axis=0, ord=o) for o in (0, 1, 3, -np.inf)],
}

_X = R.normal(size=(4, 6))
_Z = _X + 1j * R.normal(size=(4, 6))
_NORMS = [case(_X, norm=n) for n in ("backward", "ortho", "forward")]
FFT = {
    **{name: [*_NORMS, case(_Z, n=5), case(_Z, axis=0, n=7)] for name in
       "fft ifft irfft hfft".split()},
    **{name: [*_NORMS, case(_X, n=5), case(_X, axis=0, n=7)] for name in "rfft ihfft".split()},
    **{name: [case(_Z), case(_Z, s=(3, 5), axes=(0, 1)), case(_Z, axes=(1,), norm="ortho")]
       for name in "fftn ifftn irfftn".split()},
    "rfftn": [case(_X), case(_X, s=(3, 5), axes=(0, 1)), case(_X, axes=(1,), norm="ortho")],
    **{name: [case(6), case(7, d=0.5, dtype=np.float64)] for name in "fftfreq rfftfreq".split()},
    **{name: [case(_X), case(_X, axes=1), case(_X, axes=(0,))] for name in
       "fftshift ifftshift".split()},
}  # fmt: skip

TABLES = {
    "": (xp, np, SAMPLES),
    "linalg": (xp.linalg, np.linalg, LINALG),
    "fft": (xp.fft, np.fft, FFT),
}


def ours(value):
    if isinstance(value, np.ndarray):
        return ml.Tensor(value)
    return [ours(v) for v in value] if type(value) is list else value


def reference(space, name, args, named):
    if space is np and name == "clip":
        return np.clip(*args, *[None] * (3 - len(args)))
    if name == "unique_values":
        return np.unique(*args)
    if name == "can_cast":
        first = args[0]
        return np.can_cast(first.dtype if isinstance(first, np.ndarray) else first, args[1])
    if space is np.fft and "dtype" in named:
        return getattr(space, name)(*args, d=named["d"]).astype(named["dtype"])
    return getattr(space, name)(*args, **named)


def same(got, expected, path=""):
    if isinstance(expected, (tuple, list)) and not isinstance(expected[0], int):
        assert len(got) == len(expected)
        for g, e in zip(got, expected, strict=True):
            same(g, e, path)
        return
    if not isinstance(got, ml.Tensor):
        assert got == expected, path
        return
    expected = np.asarray(expected)
    assert got.shape == expected.shape, path
    tolerance = 3e-6 if got.dtype in (ml.float32, ml.complex64) else 1e-11
    np.testing.assert_allclose(got.asnumpy(), expected, rtol=tolerance, atol=tolerance)
    if got.dtype not in (ml.float32, ml.complex64):  # the defaults here, 64 bits in NumPy
        assert got.dtype == expected.dtype, path


@pytest.mark.parametrize(
    ("extension", "name"), [(e, n) for e, (_, _, table) in TABLES.items() for n in table]
)
def test_values_and_dtypes_are_numpys(extension, name):
    space, numpys, table = TABLES[extension]
    for args, named in table[name]:
        with np.errstate(all="ignore"):
            expected = reference(numpys, name, args, named)
        found = getattr(space, name)(*map(ours, args), **{k: ours(v) for k, v in named.items()})
        same(found, expected, f"{name}{named}")


def test_every_function_of_the_namespace_has_a_sample():
    functions = {n for n in xp.__all__ if callable(getattr(xp, n)) and not n.startswith("__")}
    assert functions - set(SAMPLES) == set()
    signs_are_free = {"eigh", "qr", "svd"}  # tested below
    assert set(xp.linalg.__all__) == set(LINALG) | signs_are_free
    assert set(xp.fft.__all__) == set(FFT)


def test_what_is_empty_has_the_shape_and_the_dtype():
    for made in (
        xp.empty((2, 0), dtype=xp.int8),
        xp.empty_like(ml.Tensor(np.zeros((2, 0), np.int8))),
    ):
        assert made.shape == (2, 0)
        assert made.dtype == ml.int8


@pytest.mark.parametrize("shape", [(4, 3), (3, 4), (2, 5, 2), (3, 3), (3, 1)])
def test_complete_bases_are_orthonormal_and_give_the_matrix_back(shape):
    a = ml.Tensor(np.random.default_rng(1).normal(size=shape))
    rows, columns = shape[-2:]
    q, r = xp.linalg.qr(a, mode="complete")
    u, s, vh = xp.linalg.svd(a)
    assert q.shape[-2:] == u.shape[-2:] == (rows, rows)
    assert vh.shape[-2:] == (columns, columns)
    for basis in (q, u, vh.mT):
        unit = np.broadcast_to(np.eye(basis.shape[-1]), basis.shape)
        np.testing.assert_allclose((basis.mT @ basis).asnumpy(), unit, atol=1e-12)
    np.testing.assert_allclose((q @ r).asnumpy(), a.asnumpy(), atol=1e-12)
    k = min(rows, columns)
    np.testing.assert_allclose(
        (u[..., :k] * s[..., None, :] @ vh[..., :k, :]).asnumpy(), a.asnumpy(), atol=1e-12
    )


def test_reduced_factors_and_eigenvectors_give_the_matrix_back():
    a, symmetric = ml.Tensor(S), ml.Tensor(SYM)
    q, r = xp.linalg.qr(a)
    w, v = xp.linalg.eigh(symmetric)
    found = xp.linalg.svd(a[:, :2], full_matrices=False)
    assert found._fields == ("U", "S", "Vh")
    assert found.U.shape == (2, 2, 2)
    assert found.Vh.shape == (2, 2, 3)
    for product, matrix in (
        (q @ r, a), (v * w[:, None, :] @ v.mT, symmetric),
        (found.U * found.S[:, None, :] @ found.Vh, a[:, :2]),
    ):  # fmt: skip
        np.testing.assert_allclose(product.asnumpy(), matrix.asnumpy(), atol=1e-12)


def test_a_complete_basis_of_columns_that_are_unit_vectors():
    q, _ = xp.linalg.qr(ml.Tensor(np.eye(4)[:, :2]), mode="complete")
    np.testing.assert_allclose((q.mT @ q).asnumpy(), np.eye(4), atol=1e-12)


DIFFERENTIABLE = {
    "tensordot": (lambda x: xp.tensordot(x, x, axes=((0,), (0,))), A),
    "vecdot": (lambda x: xp.vecdot(x, x), A),
    "diff": (lambda x: xp.diff(x, n=2), A),
    "cumulative_sum": (lambda x: xp.cumulative_sum(x, axis=0, include_initial=True), A),
    "cumulative_prod": (lambda x: xp.cumulative_prod(x, axis=1, include_initial=True), A),
    "trace": (xp.linalg.trace, S),
    "solve": (lambda x: xp.linalg.solve(x, ops.ones((3,), "float64")), SYM),
    "clip": (lambda x: xp.clip(x, -0.5, 0.5), A),
    "repeat": (lambda x: xp.repeat(x, 2, axis=1), A),
    "eigvalsh": (lambda x: xp.linalg.eigvalsh(x + x.mT), S),
}


@pytest.mark.parametrize("name", DIFFERENTIABLE)
def test_gradients_graphs_and_vmap_pass(name):
    function, x = DIFFERENTIABLE[name]
    assert gradcheck(function, x).ok
    plain = function(ml.Tensor(x)).asnumpy()
    np.testing.assert_allclose(ml.jit(function)(x).asnumpy(), plain, rtol=1e-10, atol=1e-12)
    both = ml.vmap(function)(np.stack([x, 2 * x])).asnumpy()
    np.testing.assert_allclose(both[0], plain, rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(
        both[1], function(ml.Tensor(2 * x)).asnumpy(), rtol=1e-10, atol=1e-12
    )


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32"])
def test_narrow_floats_stay_what_they_are(dtype):
    x = ml.Tensor(A).astype(dtype)
    for found in (
        xp.diff(x), xp.vecdot(x, x), xp.tensordot(x, x, axes=((1,), (1,))), xp.sum(x, axis=0),
        xp.cumulative_sum(x, axis=0, include_initial=True), xp.clip(x, 0), xp.concat([x, x]),
        xp.positive(x), xp.sign(x), xp.matrix_transpose(x),
    ):  # fmt: skip
        assert found.dtype == x.dtype
    assert xp.signbit(x).asnumpy().tolist() == (A < 0).tolist()
