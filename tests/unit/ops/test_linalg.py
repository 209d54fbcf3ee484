"""Matrix products and Einstein sums: memory, mixed dtypes and refusals that no row can say."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import miniml as ml
from miniml import ops
from miniml.errors import ShapeError
from miniml.grad import grad, vjp
from miniml.testing import gradcheck

RNG = np.random.default_rng(0)


def test_dtypes_are_promoted():
    x, y = ml.Tensor([[1, 2]], "int32"), ml.Tensor([[0.5], [2.0]], "float16")
    assert (x @ y).dtype == ml.float16
    assert (x @ y).tolist() == [[4.5]]
    assert ops.einsum("ij,jk->", x, y).dtype == ml.float16
    half = ops.matmul(ml.Tensor([[1.0]], "float16"), ml.Tensor([[1.0]], "bfloat16"))
    assert half.dtype == ml.float32


def test_low_precision_sums_are_rounded_once():
    ones = np.ones((1, 4096), np.float16)
    x = np.where(np.arange(4096) == 0, np.float16(2048), np.float16(1))[:, None]
    exact = np.float16(2048 + 4095)
    assert ops.matmul(ones, x).item() == exact
    assert ops.einsum("ij,jk->ik", ones, x).item() == exact


def test_bools_multiply_by_and_and_add_by_or():
    x = np.array([[True, False], [False, False]])
    assert ops.matmul(x, x).tolist() == x.tolist()
    assert ops.einsum("ij,jk->ik", x, x).tolist() == x.tolist()


def test_an_array_on_the_left_and_numpys_matmul():
    x = ml.Tensor([[1.0, 2.0]])
    assert (np.ones((3, 1), np.float32) @ x).tolist() == [[1, 2]] * 3
    assert np.matmul(x, x.T).tolist() == [[5]]


@pytest.mark.parametrize(
    ("x", "y"),
    [((4,), (4,)), ((4,), (2, 4, 3)), ((2, 3, 4), (4,)), ((5, 1, 3, 4), (2, 4, 2)),
     ((3, 4), (2, 4, 5)), ((2, 3, 4), (4, 5)), ((3, 0), (0, 2))],
)  # fmt: skip
def test_gradients_have_the_shape_of_their_input(x, y):
    x, y = RNG.normal(size=x), RNG.normal(size=y)
    out, pull = vjp(ops.matmul, ml.Tensor(x), ml.Tensor(y))
    dx, dy = pull(ops.ones_like(out))
    assert (dx.shape, dy.shape) == (x.shape, y.shape)
    # The product is bilinear, so either gradient times its input is the sum of the outputs.
    total = np.matmul(x, y).sum()
    np.testing.assert_allclose(np.sum(dx.asnumpy() * x), total, atol=1e-12)
    np.testing.assert_allclose(np.sum(dy.asnumpy() * y), total, atol=1e-12)


def test_gradients_of_a_product_copy_no_transpose():
    x, y = ml.Tensor(RNG.normal(size=(3, 4))), ml.Tensor(RNG.normal(size=(4, 5)))
    graph = ml.trace(grad(lambda x, y: ops.sum((x @ y) ** 2), (0, 1)), x, y)
    names = [node.primitive.name for node in graph.nodes]
    assert names.count("MatMul") == 3
    assert "Transpose" not in names


def test_derivatives_of_order_three():
    x = ml.Tensor([[1.0, 2.0], [3.0, 4.0]], ml.float64)

    def cube(x):
        return ops.sum(ops.einsum("ij,jk,kl->il", x, x, x))

    def total(f):
        return lambda x: ops.sum(grad(f)(x))

    one, half = x.asnumpy(), 1e-3
    values = [cube(ml.Tensor(one + k * half)).item() for k in (-3, -1, 1, 3)]
    third = (values[3] - 3 * values[2] + 3 * values[1] - values[0]) / (2 * half) ** 3
    np.testing.assert_allclose(total(total(total(cube)))(x).item(), third, rtol=1e-4)


@st.composite
def equations(draw):
    """One to four operands over five labels; diagonals, missing labels, any order."""
    extents = dict(zip("abcde", (2, 3, 1, 4, 2)))
    terms = draw(st.lists(st.text("abcde", max_size=4), min_size=1, max_size=4))
    used = sorted(set("".join(terms)))
    output = draw(st.permutations(used))[: draw(st.integers(0, len(used)))]
    return f"{','.join(terms)}->{''.join(output)}", [[extents[c] for c in t] for t in terms]


@given(equations())
def test_einsum_is_numpys(drawn):
    equation, shapes = drawn
    operands = [np.arange(1.0, 1 + np.prod(s, dtype=int)).reshape(s) for s in shapes]
    expected = np.einsum(equation, *operands)
    np.testing.assert_allclose(ops.einsum(equation, *operands).asnumpy(), expected, rtol=1e-12)
    # Linear in each operand: gradient times operand is the weighted sum of the outputs.
    weights = np.arange(1.0, 1 + expected.size).reshape(expected.shape)
    _, pull = vjp(lambda *xs: ops.einsum(equation, *xs), *map(ml.Tensor, operands))
    for dx, x in zip(pull(ml.Tensor(weights)), operands):
        assert dx.shape == x.shape
        np.testing.assert_allclose(np.sum(dx.asnumpy() * x), np.sum(expected * weights), rtol=1e-10)


def test_einsum_implicit_and_spaced():
    x, y = RNG.normal(size=(2, 3)), RNG.normal(size=(3, 2))
    for equation in ("ij , jk -> ik", "ij,jk", "ba,ca->bc"):
        operands = (x, y) if "a" not in equation else (x, x)
        expected = np.einsum(equation.replace(" ", ""), *operands)
        np.testing.assert_allclose(ops.einsum(equation, *operands).asnumpy(), expected)
    np.testing.assert_allclose(ops.outer([1.0, 2.0], [3.0, 4.0]).asnumpy(), [[3, 4], [6, 8]])


def test_gradient_of_a_diagonal_is_zero_beside_it_even_for_infinities():
    x = ml.Tensor(np.ones((2, 2)))
    _, pull = vjp(lambda x: ops.einsum("ii->i", x), x)
    (dx,) = pull(ml.Tensor([np.inf, 1.0], ml.float64))
    assert dx.tolist() == [[np.inf, 0], [0, 1]]


def test_refusals_say_what_came():
    with pytest.raises(ShapeError, match=r"\(2, 3\) transposed by \(2, 3\) transposed"):
        ops.matmul(np.ones((2, 3)), np.ones((2, 3)), True, True)
    with pytest.raises(ShapeError, match="multiply by a number with"):
        ml.Tensor([1.0]) @ 2.0
    with pytest.raises(ShapeError, match="Einsum equation 'i-j' has the term 'i-j'"):
        ops.einsum("i-j", np.ones(2))


@pytest.mark.parametrize(
    "shapes", [((0, 0, 0), (0,)), ((2, 3, 0), (0, 4)), ((0, 2, 0), (0, 4)), ((2, 0, 3), (3, 4))]
)
def test_empty_stacks_have_products_and_gradients(shapes):
    x, y = map(np.ones, shapes)
    out, pull = vjp(ops.matmul, x, y)
    assert np.array_equal(out.asnumpy(), np.matmul(x, y))
    assert [g.shape for g in pull(ops.ones_like(out))] == list(shapes)


# Products composed of others

A, B = np.sin(np.arange(24.0)).reshape(2, 3, 4), np.cos(np.arange(40.0)).reshape(5, 4, 2)
PRODUCTS = (
    (ops.dot, np.dot, A, B), (ops.dot, np.dot, A, B[0, :, 0]), (ops.dot, np.dot, A[0, 0], B),
    (ops.dot, np.dot, A[0, 0], A[0, 1]), (ops.dot, np.dot, 2.0, A), (ops.dot, np.dot, A, 2.0),
    (ops.dot, np.dot, np.zeros((2, 0)), np.zeros((0, 3))),
    (ops.inner, np.inner, A, A[0]), (ops.inner, np.inner, A[0, 0], A),
    (ops.inner, np.inner, A, 2.0),
    (ops.kron, np.kron, A, B), (ops.kron, np.kron, A[0], B), (ops.kron, np.kron, A[0, 0], B[0]),
    (ops.kron, np.kron, 3.0, A), (ops.kron, np.kron, np.zeros((0, 2)), A),
    (ops.cross, np.cross, A[..., :3], A[..., 1:]), (ops.cross, np.cross, A[..., :3], A[0, 1, :3]),
    (lambda x, y: ops.cross(x, y, 1), lambda x, y: np.cross(x, y, axis=1), A, A[::-1] + 1),
)  # fmt: skip


@pytest.mark.parametrize(("fn", "reference", "x", "y"), PRODUCTS)
def test_products_are_numpys(fn, reference, x, y):
    expected = reference(x, y)
    for run in (fn, ml.jit(fn)):
        np.testing.assert_allclose(run(x, y).asnumpy(), expected, 1e-12, 1e-15)
    stacked = np.stack([x, np.asarray(x) * 2])
    each = ml.vmap(fn, (0, None))(stacked, y).asnumpy()
    np.testing.assert_allclose(each, [expected, 2 * expected], 1e-12, 1e-15)
    whole = [np.rint(np.multiply(v, 3)).astype(np.int32) for v in (x, y)]
    got = fn(*whole)
    assert got.dtype == ml.int32
    np.testing.assert_array_equal(got.asnumpy(), reference(*whole))
    assert fn(np.float16(x), np.float16(y)).dtype == ml.float16
    if np.size(x) and np.size(y):
        assert gradcheck(lambda x, y: ops.square(fn(x, y)), np.asarray(x), np.asarray(y)).ok


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: ops.dot(A, A), r"rows of x have 4 elements, columns of y 3"),
        (lambda: ops.inner(A, B), "whose last extents differ"),
        (lambda: ops.cross(A, A), "both have 3 elements along that axis"),
        (lambda: ops.cross(A, A, 3), "cross got axis 3"),
        (lambda: ops.cross(1.0, A), "a tensor of shape .. has none"),
        (lambda: ops.trace(A[0, 0]), "it takes two axes at least"),
    ],
)
def test_refusals_of_products(call, message):
    with pytest.raises(ShapeError, match=message):
        call()
