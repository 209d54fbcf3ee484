"""Complex numbers: dtypes, operations beside NumPy's, what refuses them, in graphs and files."""

import copy
import pickle
import warnings

import numpy as np
import pytest

import miniml as ml
from miniml import Primitive, kernel, ops, optim
from miniml.core.abstract import complex_dtype, real_dtype
from miniml.errors import CheckpointError, DeclarationError, DTypeError, MinimlError
from miniml.grad import grad
from miniml.testing import gradcheck, opcheck
from miniml.testing.calls import calls, dtypes_of
from tests.frame.calls import rng_of
from tests.opinfo import COMPLEX_ROWS

RNG = np.random.default_rng(3)
X = RNG.normal(size=(3, 4))
Z, W = (RNG.normal(size=(3, 4)) + 1j * RNG.normal(size=(3, 4)) for _ in range(2))
COMPLEX = np.complex64, np.complex128
NAN = complex(np.nan, 1.0)


def close(got, expected, dtype):
    got = got.asnumpy()
    assert got.dtype == expected.dtype, (got.dtype, expected.dtype)
    assert got.shape == expected.shape
    unit = np.finfo(dtype).eps
    size = np.abs(expected[np.isfinite(expected)]).max(initial=1.0)
    np.testing.assert_allclose(got, expected, rtol=0, atol=64 * unit * size)


# --- Dtypes ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("made", "expected"),
    [
        (lambda: ml.Tensor([1 + 2j, 3.0]), "complex64"),
        (lambda: ml.Tensor(1j), "complex64"),
        (lambda: ml.Tensor(np.ones(2, complex)), "complex128"),
        (lambda: ml.Tensor([1, 2], dtype=complex), "complex64"),
        (lambda: ml.Tensor([1, 2], dtype="complex128"), "complex128"),
        (lambda: ml.Tensor([1.0]) * 1j, "complex64"),
        (lambda: 1j + ml.Tensor(np.ones(2)), "complex128"),
        (lambda: ml.Tensor([1, 2]) * 1j, "complex64"),
        (lambda: ml.Tensor([1.0], dtype="float16") * 1j, "complex64"),
        (lambda: ml.Tensor([1j]) * ml.Tensor(np.ones(1)), "complex128"),
        (lambda: ml.Tensor([1j]) * 2.0, "complex64"),
        (lambda: ops.zeros((2,), complex), "complex64"),
        (lambda: ops.full((2,), 1 + 2j, "complex128"), "complex128"),
        (lambda: ops.eye(2, dtype="complex64"), "complex64"),
    ],
)
def test_dtypes(made, expected):
    assert made().dtype.name == expected


def test_a_tensor_of_complex_numbers():
    t = ml.Tensor([1 + 2j, 3 - 4j])
    assert t.tolist() == [1 + 2j, 3 - 4j]
    assert t[0].item() == complex(t[0]) == 1 + 2j
    assert "complex64" in repr(t)
    assert t.real.tolist() == [1, 3]
    assert t.imag.tolist() == [2, -4]
    assert t.conj().tolist() == [1 - 2j, 3 + 4j]
    assert abs(t).tolist() == pytest.approx([5**0.5, 5])
    assert pickle.loads(pickle.dumps(t)).tolist() == t.tolist()
    assert copy.deepcopy(t).tolist() == t.tolist()
    np.testing.assert_array_equal(np.from_dlpack(t), t.asnumpy())
    assert ml.Tensor(np.from_dlpack(t)).dtype == ml.Tensor(t).dtype == t.dtype
    assert np.conjugate(t).tolist() == t.conj().tolist()
    with pytest.raises(TypeError):
        float(t[0])


def test_a_real_tensor_has_parts_too():
    t = ml.Tensor([1.0, -2.0])
    assert t.real.tolist() == t.conj().tolist() == [1, -2]
    assert t.imag.tolist() == [0, 0]
    np.testing.assert_allclose(ops.angle(t).asnumpy(), [0, np.pi], rtol=1e-6)


# --- Operations -----------------------------------------------------------------------------------

INDEX = np.array([2, 0, 0])
HERE_AND_THERE = {
    "add": (ops.add, np.add, 2),
    "sub": (ops.sub, np.subtract, 2),
    "mul": (ops.mul, np.multiply, 2),
    "div": (ops.div, np.divide, 2),
    "neg": (ops.neg, np.negative, 1),
    "square": (ops.square, np.square, 1),
    "pow 2": (lambda x: x**2, np.square, 1),
    "reciprocal": (ops.reciprocal, np.reciprocal, 1),
    "exp": (ops.exp, np.exp, 1),
    "abs": (ops.abs, np.abs, 1),
    "angle": (ops.angle, np.angle, 1),
    "real": (ops.real, np.real, 1),
    "imag": (ops.imag, np.imag, 1),
    "conj": (ops.conj, np.conj, 1),
    "equal": (ops.equal, np.equal, 2),
    "not_equal": (ops.not_equal, np.not_equal, 2),
    "isnan": (ops.isnan, np.isnan, 1),
    "isinf": (ops.isinf, np.isinf, 1),
    "isfinite": (ops.isfinite, np.isfinite, 1),
    "where": (lambda x, y: ops.where(X > 0, x, y), lambda x, y: np.where(X > 0, x, y), 2),
    "sum": (lambda x: ops.sum(x, 0), lambda x: np.sum(x, 0), 1),
    "sum of all": (ops.sum, np.sum, 1),
    "mean": (lambda x: ops.mean(x, (0, 1)), np.mean, 1),
    "mean along": (lambda x: ops.mean(x, 1, keepdims=True), lambda x: x.mean(1, keepdims=True), 1),
    "sum_to": (lambda x: ops.sum_to(x, (3, 1)), lambda x: x.sum(1, keepdims=True), 1),
    "matmul": (lambda x, y: x @ y.T, lambda x, y: x @ y.T, 2),
    "einsum": (lambda x, y: ops.einsum("ij,kj->k", x, y), lambda x, y: (x @ y.T).sum(0), 2),
    "einsum of three": (
        lambda x, y: ops.einsum("ij,kj,ij->", x, y, x),
        lambda x, y: np.einsum("ij,kj,ij->", x, y, x), 2),
    "reshape": (lambda x: ops.reshape(x, (2, -1)), lambda x: x.reshape(2, -1), 1),
    "transpose": (lambda x: x.T, np.transpose, 1),
    "broadcast": (lambda x: ops.broadcast_to(x, (2, 3, 4)),
                  lambda x: np.broadcast_to(x, (2, 3, 4)), 1),
    "flip": (lambda x: ops.flip(x, 1), lambda x: np.flip(x, 1), 1),
    "roll": (lambda x: ops.roll(x, 1, 1), lambda x: np.roll(x, 1, 1), 1),
    "index": (lambda x: x[INDEX], lambda x: x[INDEX], 1),
    "two indices": (lambda x: x[INDEX, INDEX], lambda x: x[INDEX, INDEX], 1),
    "slice": (lambda x: x[::-1, 1:3], lambda x: x[::-1, 1:3], 1),
    "concat": (lambda x, y: ops.concat([x, y], 1), lambda x, y: np.concatenate([x, y], 1), 2),
    "stack": (lambda x, y: ops.stack([x, y]), lambda x, y: np.stack([x, y]), 2),
    "split": (lambda x: ops.split(x, 2, 1)[1], lambda x: np.split(x, 2, 1)[1], 1),
    "pad": (lambda x: ops.pad(x, 1), lambda x: np.pad(x, 1), 1),
    "pad by i": (lambda x: ops.pad(x, 1, 1j), lambda x: np.pad(x, 1, constant_values=1j), 1),
    "scatter": (lambda x: ops.scatter(x, 0, 1j), lambda x: np.concatenate([0 * x[:1] + 1j, x[1:]]),
                1),
}  # fmt: skip


@pytest.mark.parametrize("name", HERE_AND_THERE)
@pytest.mark.parametrize("dtype", COMPLEX, ids=lambda d: d.__name__)
def test_operations_beside_numpys(name, dtype):
    here, there, count = HERE_AND_THERE[name]
    given = [a.astype(dtype) for a in (Z, W)[:count]]
    expected = np.asarray(there(*given))
    close(here(*map(ml.Tensor, given)), expected, dtype)
    close(ml.jit(here)(*map(ml.Tensor, given)), expected, dtype)
    odd = [np.asfortranarray(a)[::-1, ::-1][::-1, ::-1] for a in given]
    close(here(*[ml.Tensor.wrap(a, "cpu") for a in odd]), expected, dtype)
    stacked = [np.stack([a, -a]) for a in given]
    mapped = ml.vmap(here)(*stacked)
    for k, sign in enumerate((1, -1)):
        close(mapped[k], np.asarray(there(*[sign * a for a in given])), dtype)


@pytest.mark.parametrize("name", ["add", "mul", "exp", "abs", "conj", "sum", "matmul", "mean"])
def test_nothing_at_all(name):
    here, there, count = HERE_AND_THERE[name]
    for shape in ((0, 4), (3, 0)):
        given = [np.zeros(shape, np.complex64)] * count
        with warnings.catch_warnings(action="ignore"), np.errstate(all="ignore"):
            expected = np.asarray(there(*given))
        np.testing.assert_array_equal(here(*map(ml.Tensor, given)).asnumpy(), expected)


def test_real_beside_complex():
    z = ml.Tensor(Z)
    np.testing.assert_allclose((z * X + X).asnumpy(), Z * X + X)
    np.testing.assert_allclose((X @ z.T).asnumpy(), X @ Z.T)
    np.testing.assert_allclose(ops.where(X > 0, z, X).asnumpy(), np.where(X > 0, Z, X))
    np.testing.assert_allclose(ops.concat([z, X]).asnumpy(), np.concatenate([Z, X]))


def test_nan_and_infinity():
    z = ml.Tensor(np.array([NAN, complex(np.inf, 0), 1j]))
    assert ops.isnan(z).tolist() == [True, False, False]
    assert ops.isinf(z).tolist() == [False, True, False]
    assert ops.isfinite(z).tolist() == [False, False, True]
    assert (z == z).tolist() == [False, True, True]
    assert np.isnan(abs(z).asnumpy()).tolist() == [True, False, False]


ENDS = np.array([0.0, -0.0, 1.5, 120.0, -120.0, 88.9, -104.0, np.inf, -np.inf, np.nan])


@pytest.mark.parametrize("name", ["exp", "sum", "mean along"])
@pytest.mark.parametrize("dtype", COMPLEX, ids=lambda d: d.__name__)
@pytest.mark.parametrize("others", [0.0, 3.0])
def test_parts_that_are_not_finite(name, dtype, others):
    """The finite part of a sum stays, and exponentials are C's: inf + 0i of inf, 0 of -inf."""
    here, there, _ = HERE_AND_THERE[name]
    z = np.empty((ENDS.size, ENDS.size), dtype)
    z.real, z.imag = ENDS[:, None], ENDS
    z = np.concatenate([z[..., None], np.full((*z.shape, 2), others)], -1).astype(dtype)
    z = z if name == "exp" else np.moveaxis(z, -1, 0 if name == "sum" else 1)
    with np.errstate(all="ignore"):
        expected, got = there(z), here(ml.Tensor(z)).asnumpy()
    for one, other in ((got.real, expected.real), (got.imag, expected.imag)):
        np.testing.assert_allclose(one, other, 8 * np.finfo(dtype).eps, 1e-44)


def test_graphs_keep_the_bits_of_eager_calls():
    """x * 1 is not x, where x is infinite: no identity of real numbers is applied."""
    z = np.array([complex(np.inf, 1), complex(-0.0, 0.0)])
    for fn in (lambda z: z * 1, lambda z: z + 0, lambda z: z / 1, lambda z: z * -1):
        given = ml.Tensor(z)
        assert ml.jit(fn)(given).asnumpy().tobytes() == fn(given).asnumpy().tobytes()


@pytest.mark.parametrize("row", COMPLEX_ROWS, ids=lambda row: row.primitive.name)
def test_primitives_on_their_samples(row):
    for dtype in dtypes_of(row):
        for call in calls(row, dtype, rng_of(row.primitive.name)):
            wide = np.complex128 if dtype.kind == "c" else np.float64
            expected = row.reference(*[a.astype(wide) for a in call.arrays], **call.given)
            (out,) = call.run()
            unit = np.finfo(out.dtype).eps
            assert out.shape == np.shape(expected)
            kind = complex_dtype if np.iscomplexobj(expected) else real_dtype
            assert out.dtype == kind(dtype)
            np.testing.assert_allclose(out, expected, rtol=0, atol=64 * unit)
            again = ml.jit(call.primitive)(*call.arrays).asnumpy()
            assert again.tobytes() == out.tobytes()
            odd = [np.moveaxis(np.moveaxis(a, 0, -1).copy(), -1, 0) for a in call.arrays if a.ndim]
            if len(odd) == len(call.arrays):
                given = [ml.Tensor.wrap(a, "cpu") for a in odd]
                got = call.primitive(*given).asnumpy()
                np.testing.assert_allclose(got, out, rtol=0, atol=16 * unit)


@pytest.mark.parametrize("row", COMPLEX_ROWS, ids=lambda row: row.primitive.name)
def test_primitives_refuse(row):
    for refusal in row.refused:
        with pytest.raises(refusal.error, match=refusal.match):
            row.primitive(**refusal.attrs)(*refusal.inputs)


# --- Control flow ---------------------------------------------------------------------------------


@pytest.mark.parametrize("wrap", [lambda f: f, ml.jit], ids=["eager", "jit"])
def test_loops_and_branches(wrap):
    scan = wrap(lambda z: ops.scan(lambda c, row: (c + row, c * row), z[0], z))
    ys, last = scan(Z)
    c, rows = Z[0], []
    for row in Z:
        rows.append(c * row)
        c = c + row
    np.testing.assert_allclose(ys.asnumpy(), rows)
    np.testing.assert_allclose(last.asnumpy(), c)
    chosen = wrap(lambda p, z: ops.cond(p, lambda z: z * 1j, lambda z: -z, z))
    np.testing.assert_allclose(chosen(np.array(True), ml.Tensor(Z)).asnumpy(), Z * 1j)
    grown = wrap(lambda z: ops.while_loop(lambda v: abs(v) < 10, lambda v: v * (1 + 1j), z))
    assert grown(np.array(1j)).item() == pytest.approx((1 + 1j) ** 7 * 1j)


def test_parameters():
    p = ml.Parameter(np.array([1 + 1j, 2.0]), name="p")
    ml.jit(lambda v: ops.assign(p, p * v))(1j)
    assert p.tolist() == [-1 + 1j, 2j]
    ops.assign(p, p * 2)
    assert p.tolist() == [-2 + 2j, 4j]


# --- Refusals -------------------------------------------------------------------------------------

REFUSED = [
    *[
        (f, "refuses complex128.*takes real numbers, such as ops.real")
        for f in (
            ops.tanh, ops.sqrt, ops.log, ops.sin, ops.relu, ops.floor, ops.sign, ops.softmax,
            ops.max, ops.argmax, ops.prod, ops.sort, ops.inv, ops.logsumexp,
            lambda z: ops.cumsum(z, 0),
            lambda z: z < 1, lambda z: ops.maximum(z, z), lambda z: z**5, lambda z: z // 2,
            lambda z: ops.clip(z, 0, 1), ops.any, ops.nonzero, ops.unique,
        )
    ],
    (lambda z: ops.cast(z, "float32"), "Cast refuses complex128 to float32, as the imaginary"),
    (lambda z: ops.cast(z, bool), "Cast refuses complex128 to bool"),
    (lambda z: ml.Tensor(z, dtype="float32"), "Tensor refuses to make float32 of complex128"),
    (lambda z: ops.full((2,), 1j, "float32"), "Full got 1j to fill with; expected a number"),
    (lambda z: ops.arange(3, dtype="complex64"), "complex64"),
    (lambda z: ops.normal((2,), dtype="complex64"), "complex64"),
    (lambda z: ops.real(z).to("cuda-sim") * z, "two devices"),
    (lambda z: ml.Tensor(z).to("cuda-sim"), "cuda-sim holds no complex128.*on the cpu alone"),
    (lambda z: ml.Tensor(z, device="cuda-sim"), "cuda-sim holds no complex128"),
    (lambda z: optim.SGD([ml.Parameter(z, name="z")], lr=0.1), "complex128"),
    (lambda z: opcheck(ops.FFT((-1,))), "opcheck of FFT draws real numbers"),
]  # fmt: skip


@pytest.mark.parametrize(("call", "match"), REFUSED)
def test_refusals(call, match):
    with pytest.raises(MinimlError, match=match):
        call(ml.Tensor(Z[:, :3]))


def test_real_operations_on_the_simulator_are_as_before():
    with ml.context(device_target="cuda-sim"):
        assert (ml.Tensor([1.0, 2.0]) * 2).tolist() == [2, 4]
        with pytest.raises(DTypeError, match="holds no complex64"):
            ml.Tensor([1.0]) * 1j
        for call in (ops.fft, ops.rfft, ml.jit(ops.rfft), ml.jit(lambda x: abs(x * 1j))):
            with pytest.raises(MinimlError, match="cpu alone"):
                call(ml.Tensor([1.0, 2.0]))


def test_a_primitive_of_ones_own():
    class Turned(Primitive):
        """i x."""

        def infer_shape(self, x):
            return x

        def infer_dtype(self, x):
            return x

    @kernel("Turned", "cpu", "F->F", "D->D")
    def turned(x, *, out):
        np.multiply(x, 1j, out=out)

    with pytest.raises(DTypeError, match="a class that is defined for complex numbers says takes_"):
        Turned()(Z)
    Turned.takes_complex = True
    np.testing.assert_allclose(ml.jit(lambda z: Turned()(z) * 2)(Z).asnumpy(), 2j * Z)
    with pytest.raises(DeclarationError, match="takes_complex = 3"):
        type("Odd", (Turned,), {"takes_complex": 3})


# --- Files and texts ------------------------------------------------------------------------------


def test_the_text_of_a_graph():
    text = str(ml.trace(lambda z: ops.fft(z * 2j + 1.5), ml.Tensor(Z[0].astype("F"))))
    assert "%0: complex64[4]" in text
    assert "Mul() %0, 2j" in text
    assert "1.5+0j" in text
    assert "FFT(axes=(-1,), norm='backward')" in text


def test_saved_graphs(tmp_path):
    def fn(z):
        return ops.fft(z * W + (1 - 2j)) + ops.full((4,), complex(0.0, np.inf), "complex128")

    ml.save_graph(fn, tmp_path / "graph", Z)
    with np.errstate(all="ignore"):
        expected = fn(ml.Tensor(Z)).asnumpy()
    assert ml.load_graph(tmp_path / "graph")(Z).asnumpy().tobytes() == expected.tobytes()


def test_checkpoints_hold_complex64(tmp_path):
    path = tmp_path / "z.safetensors"
    p = ml.Parameter(Z.astype(np.complex64), name="p")
    ml.save_checkpoint({"p": p}, path)
    other = ml.Parameter(np.zeros_like(Z, np.complex64), name="p")
    ml.load_checkpoint(path, {"p": other})
    np.testing.assert_array_equal(other.asnumpy(), p.asnumpy())
    with pytest.raises(CheckpointError, match="p is complex128, which safetensors files do not"):
        ml.save_checkpoint({"p": ml.Parameter(Z, name="p")}, tmp_path / "wide.safetensors")
    assert not (tmp_path / "wide.safetensors").exists()


@pytest.mark.parametrize("dtype", COMPLEX)
@pytest.mark.parametrize(("axis", "correction"), [(None, 0), (0, 1), (-1, 0.5), ((0, 1), 2)])
def test_variances_are_those_of_sizes_and_nan_is_left_out(dtype, axis, correction):
    x = Z.astype(dtype)
    with_nan = np.where(X > 1.0, dtype(NAN), x)
    for call, expected in ((ml.jit, np), (lambda fn: fn, np)):
        for name in ("var", "std", "nanvar", "nanstd"):
            given = with_nan if name.startswith("nan") else x
            found = call(lambda v, n=name: getattr(ops, n)(v, axis, correction=correction))(given)
            close(found, getattr(expected, name)(given, axis, ddof=correction), dtype)
        for name in ("nansum", "nanmean"):
            found = call(lambda v, n=name: getattr(ops, n)(v, axis))(with_nan)
            close(found, np.asarray(getattr(np, name)(with_nan, axis)), dtype)
    assert (
        ops.count_nonzero(x * (X > 0), axis).tolist()
        == np.count_nonzero(x * (X > 0), axis).tolist()
    )


@pytest.mark.parametrize("fn", [ops.var, ops.std, ops.nanvar, ops.nan_to_num])
def test_gradients_of_variances(fn):
    gradcheck(fn, Z)


def test_equal_numbers_have_no_gradient_of_their_variance():
    assert grad(ops.var)(np.full(3, 1 + 2j)).tolist() == [0j] * 3


def test_nan_and_infinity_are_replaced_in_both_parts():
    x = np.array([NAN, complex(1, -np.inf), complex(np.inf, np.nan), 2 - 3j])
    for options in ({}, {"nan": 5.0, "posinf": 7.0}, {"neginf": -1.0}):
        close(ops.nan_to_num(x, **options), np.nan_to_num(x, **options), np.complex128)
