"""What is computed of parts, and put among zeros or joined: one loop over the whole output."""

from functools import partial

import numpy as np
import pytest

import miniml as ml
from miniml import ops
from miniml.backends.selection import Target, get_device
from miniml.graph.ir import verify
from miniml.graph.passes import run_passes
from miniml.runtime.jit import Jit
from miniml.runtime.lowering import lower
from tests.frame.native import needs_compiler

pytestmark = needs_compiler
RNG = np.random.default_rng(0)
CC = Target(get_device("cpu"), ("cc",))


def names(fn, *args):
    """Each node of the lowered graph, and the members of those that are fused but for windows."""
    graph = verify(lower(run_passes(ml.trace(fn, *args)), CC))
    found = []
    for node in graph.nodes:
        fused = isinstance(node.primitive, ops.Fused)
        members = node.primitive.body.nodes if fused else (node,)
        found.append([n.primitive.name for n in members if "Slice" not in n.primitive.name])
    return found


def laplacian(m, x):
    inner = 4 * x[1:-1, 1:-1]
    return inner - x[:-2, 1:-1] - x[2:, 1:-1] - x[1:-1, :-2] - x[1:-1, 2:]


def slope(x, w):
    """The gradient of the sum of laplacian(x) * w in x, by hand."""
    padded = np.pad(w, 2)
    sides = padded[2:, 1:-1] + padded[:-2, 1:-1] + padded[1:-1, 2:] + padded[1:-1, :-2]
    return 4 * padded[1:-1, 1:-1] - sides


@pytest.mark.parametrize("shape", [(5, 40), (40, 5), (3, 3), (17, 600)])
@pytest.mark.parametrize("code", ["f4", "f8"])
def test_the_gradient_of_a_stencil_is_one_loop(shape, code):
    x = RNG.normal(size=shape).astype(code)
    w = RNG.normal(size=(shape[0] - 2, shape[1] - 2)).astype(code)
    fn = ml.grad.grad(lambda x, w: ops.sum(laplacian(ops, x) * w))
    assert len(names(fn, x, w)) == 1
    with ml.context(providers=("cc",)):
        got = ml.jit(fn)(x, w).asnumpy()
    np.testing.assert_allclose(got, slope(x, w.astype("f8")), atol=np.finfo(code).eps * 32)


def test_variation_along_two_axes_has_its_gradient_by_hand():
    x = RNG.normal(size=(30, 90))

    def fn(x):
        return ops.sum(ops.abs(x[1:] - x[:-1]) ** 3) + ops.sum((x[:, 1:] - x[:, :-1]) ** 2)

    down, right = np.diff(x, axis=0), np.diff(x, axis=1)
    down, right = 3 * down * abs(down), 2 * right
    expected = -np.diff(np.pad(down, ((1, 1), (0, 0))), axis=0)
    expected -= np.diff(np.pad(right, ((0, 0), (1, 1))), axis=1)
    with ml.context(providers=("cc",)):
        np.testing.assert_allclose(ml.jit(ml.grad.grad(fn))(x).asnumpy(), expected, 1e-12, 1e-13)


JOINED = {  # of NumPy and of ours, on a matrix and another one
    "rolled": lambda m, x, y: m.roll(x, 1, 1),
    "rolled back": lambda m, x, y: m.roll(x * y, -3, 1),
    "border": lambda m, x, y: m.concatenate([x[:, :1], x[:, 1:] - x[:, :-1]], 1),
    "of three": lambda m, x, y: m.concatenate([-x[:, :2], x[:, 5:] * y[:, 5:], y[:, :3]], 1),
    "read": lambda m, x, y: m.abs(m.concatenate([x[1:] - y[1:], x[:1]], 0)),
    "backwards": lambda m, x, y: m.concatenate([x[:, ::-1], x[:, :1] + y[:, :1]], 1),
    "nothing there": lambda m, x, y: m.concatenate([1 - x[:, :1], y[:, 1:]], 1),
}


@pytest.mark.parametrize("name", JOINED)
def test_unequal_parts_are_selected_bit_by_bit(name):
    """Zeros keep their sign; and no NaN comes from what is computed beside a part."""
    call = JOINED[name]
    given = [RNG.normal(size=(6, 80)).astype("f4") for _ in range(2)]
    for a in given:
        a[:, ::7], a[1::2, ::5], a[2, 3:6] = -0.0, np.inf, np.nan
    with np.errstate(invalid="ignore"):
        expected = call(np, *given)
    ours = partial(call, _Ours)
    assert [n for n in names(ours, *given) if "Concat" in n] == []
    with ml.context(providers=("cc",)):
        got = ml.jit(ours)(*given).asnumpy()
    np.testing.assert_array_equal(got, expected, strict=True)
    np.testing.assert_array_equal(np.signbit(got), np.signbit(expected))


class _Ours:
    """NumPy's names."""

    roll, concatenate, abs, reshape = ops.roll, ops.concat, ops.abs, ops.reshape


def test_blocks_beside_those_before_them_are_read_through_views():
    """As keys of attention in blocks: parts of a reshaped input, joined with it whole."""
    x = RNG.normal(size=(2, 3, 256, 2)).astype("f4")

    def fn(m, x):
        blocks = m.reshape(x, (2, 3, 8, 32, 2))
        before = m.concatenate([blocks[:, :, :1] * 0, blocks[:, :, :-1]], 2)
        return m.concatenate([before, blocks], 3)

    with ml.context(providers=("cc",)):
        got = ml.jit(partial(fn, _Ours))(x).asnumpy()
    np.testing.assert_array_equal(got, fn(np, x), strict=True)


@pytest.mark.parametrize("device", ["cpu", "cuda-sim"])
@pytest.mark.parametrize("code", ["f4", "f8", "i4", "u1", "?"])
def test_parts_among_zeros_are_read_where_they_lie(code, device):
    """Along every axis, and reduced; in rows that are short, long, and side by side."""

    def part(x, shape, *begin):
        end = tuple(b + n for b, n in zip(begin, x.shape, strict=True))
        return ops.SliceGrad(shape, begin, end, (1,) * len(begin))(x)

    def fn(x, y, z):
        one = part(x, (4, 70), 1, 2) | part(y, (4, 70), 0, 0) if code == "?" else (
            part(x, (4, 70), 1, 2) + part(y, (4, 70), 0, 0))  # fmt: skip
        rows = part(z, (3, 9, 20), 1, 2, 0)
        return one, ops.max(one, 1), ops.max(rows, 1), ops.max(rows, 0), ops.sum(rows, (0, 1))

    shapes = [(3, 68), (2, 70), (2, 6, 20)]
    given = [RNG.integers(0, 2 if code == "?" else 9, s).astype(code) for s in shapes]
    expected = [out.asnumpy() for out in fn(*map(ml.Tensor, given))]
    with ml.context(providers=("cc",), device_target=device):
        arrays = [ml.Tensor(a) for a in given]
        run = Jit(fn)
        got = [out.asnumpy() for out in run(*arrays)]
        left = [n.primitive.name for n in run.compiled(*arrays).program.graph.nodes]
    assert "SliceGrad" not in left
    for out, right in zip(got, expected, strict=True):
        np.testing.assert_array_equal(out, right, strict=True)


@pytest.mark.parametrize(
    "fn",
    [
        lambda x, w: x[1:] * w,  # infinite beside zeros
        lambda x, w: ops.exp(x[1:]) * 0.5,
        lambda x, w: x[1:] * np.float32(np.inf),
        lambda x, w: 1 / x[1:] + ops.cos(x[1:]),
    ],
)
def test_what_lies_beside_a_part_is_zero(fn):
    x = np.linspace(0.5, 2, 40, dtype="f4").reshape(4, 10)
    w = np.full(10, np.inf, "f4")

    def put(x, w):
        y = fn(x, w)
        return ops.SliceGrad((5, 12), (1, 1), (4, 11), (1, 1))(y), ops.sum(x)

    with ml.context(providers=("cc",)):
        got = ml.jit(put)(x, w)[0].asnumpy()
    assert not got[[0, 4]].any()
    assert not got[:, [0, 11]].any()
    assert not np.signbit(got[[0, 4]]).any()
    np.testing.assert_allclose(got, put(ml.Tensor(x), ml.Tensor(w))[0].asnumpy(), 1e-6)


@pytest.mark.parametrize(
    ("fn", "expected"),
    [
        (lambda x: ops.concat([x[:, :1], ops.exp(x[:, 1:])], 1), [["Exp"], ["Select"]]),
        (lambda x: ops.concat([x[:, :40] * 2.0, -x[:, 40:]], 1), [["Mul", "Neg", "Concat"]]),
        (lambda x: ops.concat([x[:1], x[1:] * 2.0]), [["Mul"], ["Concat"]]),  # blocks
        (lambda x: ops.concat([x[:, :1] + 1.0, x[:, 2:5]], 1), [["Add"], ["Concat"]]),  # short rows
        (lambda x: ops.concat([x, x[:, :6] @ x], 1), [["MatMul"], ["Concat"]]),  # in memory
    ],
)
def test_what_is_costly_or_joined_elsewhere_is_computed_once(fn, expected):
    assert [n for n in names(fn, np.ones((6, 80), "f4")) if n and n != ["Transpose"]] == expected
