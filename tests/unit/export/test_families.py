"""Linear algebra, Einstein sums, complex numbers, searches, draws and collectives in C, each beside
NumPy, SciPy or what defines its result."""

import ctypes
import subprocess

import numpy as np
import pytest
from scipy import special

import miniml as ml
from miniml import distributed, ops
from miniml.errors import ExportError
from miniml.export.loops import quantile
from tests.frame.native import needs_compiler
from tests.unit.export.test_export_c import (
    FLAGS,
    aligned,
    built,
    bytes_of,
    compiler,
    fences,
    pointers,
    ran,
    rng,
)

__all__ = ["compiler", "fences", "rng"]
pytestmark = needs_compiler


def of_matrices(a, b, wide, low):
    """Every decomposition of stacks a (n, n), b (n, k), wide (m, n) and its transpose, of rank 2
    low (m, n)."""
    tall = ops.swapaxes(wide, -1, -2)
    return (
        ops.solve(a, b),
        ops.triangular_solve(a, b),
        ops.triangular_solve(a, b, upper=True, transpose=True, unit_diagonal=True),
        ops.cholesky(ops.matmul(a, a, transpose_y=True)),
        ops.det(a),
        *ops.slogdet(a),
        *ops.qr(wide),
        *ops.qr(tall),
        *ops.eigh(a),
        *ops.svd(wide),
        *ops.svd(tall),
        *ops.svd(low),
        ops.pinv(low, 1e-4),
    )


def matrices(rng, dtype):
    a = rng.standard_normal((3, 6, 6)) + 4 * np.eye(6)
    b, wide = rng.standard_normal((3, 6, 2)), rng.standard_normal((2, 3, 5))
    low = rng.standard_normal((2, 5, 2)) @ rng.standard_normal((2, 2, 4))
    return [x.astype(dtype) for x in (a, b, wide, low)]


deep = pytest.mark.deep


@pytest.mark.parametrize("dtype", [pytest.param(np.float32, marks=deep), np.float64])
def test_linear_algebra_is_lapacks_up_to_rounding(rng, tmp_path, compiler, dtype):
    *_, low = given = matrices(rng, dtype)
    outs, expected = ran(compiler, of_matrices, tmp_path, *given)
    near = {"rtol": 0, "atol": 200 * np.finfo(dtype).eps}
    for i, (got, other) in enumerate(zip(outs, expected, strict=True)):
        if i in (19, 21):  # the vectors of singular values that are 0 are any orthonormal ones
            got, other = (v[..., :2] if i == 19 else v[..., :2, :] for v in (got, other))
        np.testing.assert_allclose(got, other, **near | {"atol": near["atol"] * abs(other).max()})
    u, s, vh = outs[19:22]
    np.testing.assert_allclose(u.mT @ u, np.broadcast_to(np.eye(4), (2, 4, 4)), **near)
    np.testing.assert_allclose(vh @ vh.mT, np.broadcast_to(np.eye(4), (2, 4, 4)), **near)
    np.testing.assert_allclose((u * s[:, None]) @ vh, low, rtol=0, atol=200 * near["atol"])


def test_a_matrix_without_a_result_gets_nan_and_the_others_of_its_stack_theirs(
    rng, tmp_path, compiler
):
    a, b, wide, low = matrices(rng, np.float64)
    a[1], wide[0, 1, 1], low[1] = 0, np.inf, np.nan
    outs, expected = ran(compiler, of_matrices, tmp_path, a, b, wide, low)
    for got, other in zip(outs, expected, strict=True):
        np.testing.assert_array_equal(np.isnan(got), np.isnan(other))
    assert (outs[4][1], outs[6][1]) == (0, -np.inf)


@deep
def test_eigenvalues_of_all_sizes_and_equal_ones(rng, tmp_path, compiler):
    q = np.linalg.qr(rng.standard_normal((12, 12)))[0]
    values = np.array([-3, -3, -3, 0, 0, 1e-9, 1e-5, 1, 1, 2, 5e150, 5e150])
    (w, v), _ = ran(compiler, ops.eigh, tmp_path, (q * values) @ q.T)
    np.testing.assert_allclose(w[-2:], 5e150, 1e-13)
    np.testing.assert_allclose(v.T @ v, np.eye(12), atol=1e-14)


def sums(x, y, z):
    return (
        ops.einsum("ij,jk,kl->il", x, y, z),
        ops.einsum("iij,jk,...kl->...i", ops.stack([x[:, :3]] * 3), y[:3], z),
        ops.einsum("ij,jk,kl->", x, y, z),
    )


@pytest.mark.parametrize(
    "dtype", [np.float32, *(pytest.param(d, marks=deep) for d in (np.int32, np.bool_, ml.bfloat16))]
)
def test_einstein_sums_of_three_operands(rng, tmp_path, compiler, dtype):
    x, y, z = (rng.integers(0, 3, shape).astype(dtype) for shape in ((3, 4), (4, 5), (5, 2)))
    outs, expected = ran(compiler, sums, tmp_path, x, y, z)
    for got, other in zip(outs, expected, strict=True):  # whole numbers, whose sums are exact
        np.testing.assert_array_equal(got.astype(np.float64), other.astype(np.float64))
    exact = x.astype("d") @ y.astype("d") @ z.astype("d")
    np.testing.assert_array_equal(outs[0].astype("d"), exact.astype(dtype).astype("d"))


def turned(x, y):
    z = ops.complex(x, y)
    quotient = z * (2 - 1j) / (z + 3)
    return ops.abs(quotient), ops.imag(quotient), ops.real(ops.sum(z * quotient, 1))


def test_complex_numbers_between_real_ones(rng, tmp_path, compiler):
    x, y = (rng.standard_normal((7, 41)) for _ in range(2))
    outs, _ = ran(compiler, turned, tmp_path, x, y)
    z = x + 1j * y
    quotient = z * (2 - 1j) / (z + 3)
    expected = abs(quotient), quotient.imag, (z * quotient).sum(1).real
    for got, other in zip(outs, expected, strict=True):
        np.testing.assert_allclose(got, other, rtol=1e-12, atol=1e-12)


def searched(row, values, places):
    return (
        ops.searchsorted(row, values),
        ops.searchsorted(row, values, "right"),
        *ops.Sort(-1, True)(values),
        *ops.TopK(2, 0, False)(values),
        ops.argmax(values, 1),
        ops.cumsum(values, 1),
        ops.Index((0, 2), 0)(values, places, places),
        ops.IndexReduce((1,), 0, (2, 4), "max")(values[:, :, 0], places),
        ops.Scatter((slice(None, None, -2), None, slice(None), "tensor"))(
            values, values[:2, None, :, :3], places
        ),
    )


def ordered(x, places):
    found = [*ops.Sort(1)(x), *ops.Sort(-1, True)(x), *ops.TopK(2, 1, False)(x)]
    found += [f(x, a) for f in (ops.argmax, ops.argmin) for a in (0, 1, -1, None)]
    found += [f(a)(x) for f in (ops.CumMax, ops.CumMin) for a in (1, -1)]
    found += [f(x, 1, *how) for f in (ops.cumsum, ops.cumprod) for how in ((), (True, True))]
    return (*found, ops.take_along_axis(x, places, 1))


def ordered_along_one(x, places):
    """Each kind of `ordered` once: what a dtype changes is the same along every axis."""
    found = [*ops.Sort(-1, True)(x), *ops.TopK(2, 1, False)(x), ops.argmax(x, 1), ops.argmin(x)]
    found += [f(1)(x) for f in (ops.CumMax, ops.CumMin)]
    found += [f(x, 1, True, True) for f in (ops.cumsum, ops.cumprod)]
    return (*found, ops.take_along_axis(x, places, 1))


@pytest.mark.parametrize("codes", ["f?eb", "Edhil", "BHIL"])
def test_order_along_an_axis_in_every_dtype(rng, tmp_path, compiler, codes):
    """What NumPy's kernels give: equal elements in their order, NaN as the largest, both zeros."""
    fn, given = ordered if "f" in codes else ordered_along_one, []
    for code in codes:
        x = rng.integers(-3 if code not in "?BHIL" else 0, 2 if code == "?" else 6, (3, 5, 70))
        if code in "feEd":
            x = np.where(x == 3, np.nan, np.where(x == 2, np.inf, np.where(x == 1, -0.0, x)))
        given += [x.astype(ml.bfloat16 if code == "E" else code), rng.integers(-5, 5, (3, 8, 1))]

    def every(*given):  # exported as one program
        return tuple(y for pair in zip(given[::2], given[1::2], strict=True) for y in fn(*pair))

    with np.errstate(all="ignore"), ml.context(providers=("miniml",)):
        expected = [t.asnumpy() for t in every(*map(ml.Tensor, given))]
    for one, other in zip(ran(compiler, every, tmp_path, *given)[0], expected, strict=True):
        assert one.dtype == other.dtype
        narrow = one.dtype in (np.float16, ml.bfloat16)
        np.testing.assert_array_equal(*(a.astype("d") if narrow else a for a in (one, other)))


@pytest.mark.parametrize("dtype", [np.int8, pytest.param(np.float16, marks=deep)])
def test_searching_sorting_and_indices_of_narrow_dtypes(rng, tmp_path, compiler, dtype):
    row, values = np.arange(-4, 5).astype(dtype), rng.integers(-5, 6, (3, 2, 4)).astype(dtype)
    places = np.array([2, -1, 2])
    given = row, values, places
    (left, right, high, at, low, low_at, most, sums, named, reduced, put), _ = ran(
        compiler, searched, tmp_path, *given
    )
    np.testing.assert_array_equal(left, np.searchsorted(row, values))
    np.testing.assert_array_equal(right, np.searchsorted(row, values, "right"))
    order = np.argsort(-values.astype("d"), -1, kind="stable")
    np.testing.assert_array_equal(at, order)
    np.testing.assert_array_equal(high, np.take_along_axis(values, order, -1))
    order = np.argsort(values, 0, kind="stable")[:2]
    np.testing.assert_array_equal(low_at, order)
    np.testing.assert_array_equal(low, np.take_along_axis(values, order, 0))
    np.testing.assert_array_equal(most, values.argmax(1))
    np.testing.assert_array_equal(sums, np.cumsum(values, 1))
    np.testing.assert_array_equal(named, values[places, :, places])
    least = np.iinfo(dtype).min if dtype == np.int8 else -np.inf
    expected = np.full((4, 2), least, dtype)
    np.maximum.at(expected, places, values[:, :, 0])
    np.testing.assert_array_equal(reduced, expected.T)
    expected = values.copy()
    expected[::-2, None, :, places] = values[:2, None, :, :3]
    np.testing.assert_array_equal(put, expected)
    places[1] = 4
    arena = aligned(bytes_of(tmp_path / "net.c", "NET_ARENA_BYTES"))
    outs = [left, right, high, at, low, low_at, most, sums, named, reduced, put]
    built(compiler, tmp_path / "net.c").net_run(*pointers(arena, row, values, places, *outs))
    assert (left == -1).all()  # refused


def drawn(state, alpha, lam):
    return (
        ops.Gumbel((9,), np.float64, 1.0, 2.0)(state),
        ops.TruncatedNormal((9,), np.float64, 1.0, 2.0, 0.5, np.inf)(state),
        ops.TruncatedNormal((9,), np.float32, 0.0, 1.0, 8.0, 12.0)(state),
        ops.Normal((9,), np.float16)(state),
        ops.Uniform((9,), ml.bfloat16, -1.0, 3.0)(state),
        ops.Gamma((40,), np.float64, skip=30)(state, alpha),
        ops.Gamma((40,), np.float32, True, skip=30)(state, alpha),
        ops.Poisson((40,), np.int32, skip=99)(state, lam),
    )


STATE = np.array([5, 2**64 - 40], np.uint64)


def test_draws_are_pythons(tmp_path, compiler):
    alpha = np.concatenate([np.geomspace(1e-3, 1e3, 38), [np.inf, -1.0]])
    lam = np.concatenate([np.geomspace(1e-3, 1e6, 38), [9.99, np.nan]])
    outs, expected = ran(compiler, drawn, tmp_path, STATE, alpha, lam)
    for got, other in zip(outs, expected, strict=True):
        digits = 1e-14 if got.dtype == np.float64 else 1e-6 if got.dtype.itemsize == 4 else 1e-2
        np.testing.assert_allclose(got.astype("d"), other.astype("d"), digits, digits / 10)
    assert outs[7][-1] == -1


INCLUDES = """\
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#define MINIML_INLINE inline
"""


def test_quantiles_are_scipys_from_the_least_probability_on(tmp_path, compiler):
    text = "\n".join(quantile())
    (tmp_path / "q.c").write_text(
        f"{INCLUDES}\n{text}\ndouble at(double p) {{ return miniml_normal_quantile(p); }}\n"
    )
    command = [compiler, "-O1", "-w", "-fPIC", "-shared", "-o", str(tmp_path / "q.so")]
    subprocess.run([*command, str(tmp_path / "q.c"), "-lm"], check=True)
    at = ctypes.CDLL(str(tmp_path / "q.so")).at
    at.restype, at.argtypes = ctypes.c_double, [ctypes.c_double]
    p = np.concatenate([np.geomspace(1e-300, 0.5, 200), 1 - np.geomspace(1e-15, 0.5, 50), [0, 1]])
    np.testing.assert_allclose([*map(at, p)], special.ndtri(p), 1e-14, 1e-16)


def collected(x):
    return (
        distributed.all_reduce(x, "mean"),
        distributed.all_gather(x),
        distributed.reduce_scatter(x),
        distributed.broadcast(x, 0),
        distributed.all_to_all(x),
        distributed.send_recv(x, [(0, 0)]),
        distributed.send_recv(x, []),
    )


def test_collectives_of_a_group_of_one_are_copies(rng, tmp_path, compiler):
    x = rng.standard_normal((4, 3))
    outs, _ = ran(compiler, collected, tmp_path, x)
    for got in outs[:-1]:
        np.testing.assert_array_equal(got, x)
    np.testing.assert_array_equal(outs[-1], 0)


def test_collectives_of_more_ranks_are_refused(tmp_path):
    def written(group):
        with pytest.raises(ExportError, match=r"AllReduce .* 2 ranks"):
            ml.export_c(distributed.all_reduce, tmp_path / "net.c", np.ones(3))

    distributed.loopback(written, 2)


SANITIZED = ["-fsanitize=address,undefined", "-fno-sanitize-recover=all"]
MAIN = """
#include <stdlib.h>
#include "net.c"
int main(void) {
  void *arena = aligned_alloc(64, NET_ARENA_BYTES + 63 & ~63);
  NAMES
  net_run(arena, ARGS);
  free(arena);
}
"""


@deep
@pytest.mark.parametrize("fn", [of_matrices, sums, searched, drawn])
def test_sanitizers_find_nothing(rng, tmp_path, compiler, fn):
    given = {
        of_matrices: lambda: matrices(rng, np.float32),
        sums: lambda: [rng.standard_normal(s) for s in ((3, 4), (4, 5), (5, 2))],
        searched: lambda: [np.arange(5.0), rng.standard_normal((3, 2, 4)), np.array([2, -1, 2])],
        drawn: lambda: [STATE, np.geomspace(1e-2, 1e2, 40), np.geomspace(1e-2, 1e4, 40)],
    }[fn]()
    ml.export_c(fn, tmp_path / "net.c", *given)
    outs = ml.jit(fn)(*given)
    lines, names = [], []
    for i, x in enumerate((*given, *(o.asnumpy() for o in outs))):
        values = ", ".join(map(str, x.tobytes())) if i < len(given) else "0"
        lines.append(f"_Alignas(64) static unsigned char b{i}[{x.nbytes}] = {{{values}}};")
        names.append(f"(void *)b{i}")
    main = MAIN.replace("NAMES", "\n  ".join(lines)).replace("ARGS", ", ".join(names))
    (tmp_path / "main.c").write_text(main)
    program = str(tmp_path / "main")
    flags = [f for f in FLAGS if f not in ("-Werror", "-Wall", "-Wextra")]
    command = [compiler, *flags, *SANITIZED, str(tmp_path / "main.c"), "-o", program, "-lm"]
    subprocess.run(command, check=True)
    found = subprocess.run([program], capture_output=True, text=True)
    assert (found.returncode, found.stderr) == (0, "")
