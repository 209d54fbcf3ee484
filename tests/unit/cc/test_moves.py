"""Data movement in C: equal to NumPy's bit by bit; views are read where they lie; indices are
checked once."""

import re

import numpy as np
import pytest

import miniml as ml
from miniml import ArraySpec, kernel, ops
from miniml.backends import registry
from miniml.backends.cc.moves import AddToRows, Combine, Concat, Lookup, Place, PutRows
from miniml.backends.cc.native import Call as NativeCall
from miniml.backends.cpu import index
from miniml.backends.cpu import shape as join
from miniml.core.scope import epoch
from miniml.errors import OutOfRangeError
from miniml.grad import grad
from miniml.runtime.executor import Natives, RunOfCalls
from miniml.runtime.memory import KernelLaunch, Memory, View
from tests.frame.native import needs_compiler
from tests.unit.cc.native import Call, results

pytestmark = needs_compiler


def padded(x, *, padding, value, out):
    out.fill(value)
    out[tuple(slice(a, a + n) for n, (a, _) in zip(x.shape, padding, strict=True))] = x


NUMPY = {
    "Concat": join.concat, "Pad": padded, "SliceGrad": join.slice_grad, "Lookup": index.gather,
    "AddRows": index.index_add, "PutRows": index.scatter, "LookupAlong": index.take_along_axis,
    "AddAlong": index.put_along_axis_add, "AddToRows": index.scatter_add,
    "ReduceRows": index.index_reduce,
}  # fmt: skip


def numbers(*shape, dtype="f", seed=0):
    rng = np.random.default_rng((seed, *shape))
    if np.dtype(dtype).kind in "bui":
        return rng.integers(0, 2 if dtype == "?" else 100, shape).astype(dtype)
    found = rng.standard_normal(shape).astype(dtype)
    found.reshape(-1)[:2] = (np.nan, -0.0)[: found.size]
    return found


def bits(array):
    return np.ascontiguousarray(array).view(f"u{array.dtype.itemsize}")


def same_as_numpy(cases):
    """Whether kernels compute what NumPy's do, all of them compiled together."""
    expected = []
    for case in cases:
        out = np.empty(case.outputs[0].shape, case.outputs[0].dtype)
        with np.errstate(invalid="ignore"):  # np.minimum.at warns of NaN
            NUMPY[case.name](*case.arrays, **case.attrs, out=out)
        expected.append(out)
    for (got,), out in zip(results(cases), expected, strict=True):
        np.testing.assert_array_equal(bits(got), bits(out))


def case(body, name, arrays, shape, /, **attrs):
    out = ArraySpec(shape, arrays[0].dtype)
    return Call(body, name, tuple(arrays), (out,), attrs, (None,) * (len(arrays) + 1))


def test_concatenated_padded_and_put_in_place():
    cases = []
    for dtype in ("f", "d", "e", "?", "b", "L"):
        parts = [numbers(3, n, 5, dtype=dtype, seed=n) for n in (2, 0, 1, 4)]
        cases.append(case(Concat, "Concat", parts, (3, 7, 5), axis=1))
        x = numbers(2, 3, dtype=dtype)
        value = 1 if dtype == "?" else 7
        padding = ((1, 0), (2, 3))
        cases.append(case(Place, "Pad", [x], (3, 8), padding=padding, value=value))
        slices = {"begin": (0, 6), "end": (3, 0), "strides": (2, -2)}
        cases.append(case(Place, "SliceGrad", [x], (3, 7), shape=(3, 7), **slices))
    cases.append(case(Place, "Pad", [numbers()], (), padding=(), value=0))
    first, last = [numbers(2, 3), numbers(4, 3)], [numbers(2, 3), numbers(2, 1)]
    cases.append(case(Concat, "Concat", first, (6, 3), axis=0))
    cases.append(case(Concat, "Concat", last, (2, 4), axis=-1))
    same_as_numpy(cases)


def test_rows_looked_up_added_and_put_in_order():
    cases = []
    for dtype, named in (("f", "l"), ("d", "i"), ("i", "l"), ("B", "i")):
        x = numbers(4, 5, 6, dtype=dtype)
        indices = np.array([[0, 3, -1], [-4, 3, 3]], named)
        for axis in (0, 1, 2):
            shape = (*x.shape[:axis], 2, 3, *x.shape[axis + 1 :])
            cases.append(case(Lookup, "Lookup", [x, indices], shape, axis=axis))
            updates = numbers(*shape, dtype=dtype)
            attrs = {"axes": (axis,), "at": axis, "shape": x.shape}
            cases.append(case(Combine, "AddRows", [updates, indices], x.shape, **attrs))
            for mode in ("mul", "min", "max"):
                given = [updates, indices]
                cases.append(case(Combine, "ReduceRows", given, x.shape, **attrs, mode=mode))
        moved = numbers(4, 6, 2, 3, dtype=dtype)
        attrs = {"axes": (1,), "at": 2, "shape": x.shape}
        cases.append(case(Combine, "AddRows", [moved, indices], x.shape, **attrs))
        for value in (x[0, 0, 0], numbers(3, 5, 6, dtype=dtype, seed=1)):
            given = [x, np.asarray(value), indices]
            cases.append(case(PutRows, "PutRows", given, x.shape, index=("tensor",)))
    none = np.zeros((0, 2), "l")
    cases.append(case(Lookup, "Lookup", [numbers(3, 2), none], (0, 2, 2), axis=0))
    attrs = {"axes": (0,), "at": 0, "shape": (3, 2)}
    cases.append(case(Combine, "AddRows", [np.zeros((0, 2, 2), "f"), none], (3, 2), **attrs))
    same_as_numpy(cases)


def test_elements_looked_up_and_added_along_an_axis():
    cases = []
    for dtype, named in (("f", "l"), ("d", "i"), ("i", "l"), ("B", "i")):
        x = numbers(4, 5, 6, dtype=dtype)
        indices = np.random.default_rng(1).integers(-4, 4, (4, 5, 6)).astype(named)
        for axis, given in (
            (0, indices),
            (1, indices[:, :2]),
            (-1, indices[..., :7]),
            (0, indices[:3, :1]),
            (2, indices[:1, :, :1]),
            (1, indices[:, :0]),
        ):
            shape = [*np.broadcast_shapes(np.delete(x.shape, axis), np.delete(given.shape, axis))]
            shape.insert(axis % 3, given.shape[axis])
            cases.append(case(Lookup, "LookupAlong", [x, given], tuple(shape), axis=axis))
            updates, out = numbers(*shape, dtype=dtype), shape.copy()
            out[axis] = 4
            attrs = {"axis": axis, "extent": 4}
            cases.append(case(Combine, "AddAlong", [updates, given], tuple(out), **attrs))
        one = numbers(1, 6, dtype=dtype)
        cases.append(case(Lookup, "LookupAlong", [one, indices[0]], (5, 6), axis=1))
    same_as_numpy(cases)


def test_updates_added_to_rows_in_their_order():
    cases = []
    for dtype, named in (("f", "l"), ("d", "i"), ("i", "l"), ("B", "i")):
        x, indices = numbers(4, 5, 6, dtype=dtype), np.array([[0, 3, -1], [-4, 3, 3]], named)
        for axis in (0, 1, -1):
            at = axis % 3
            rows = numbers(*x.shape[:at], 2, 3, *x.shape[at + 1 :], dtype=dtype, seed=1)
            for updates in (rows, rows[:1, :1], rows.reshape(-1)[3:4].reshape(())):
                given = [x, indices, np.ascontiguousarray(updates)]
                cases.append(case(AddToRows, "AddToRows", given, x.shape, axis=axis))
    same_as_numpy(cases)


INDEXED = {
    "take": lambda x, i: ops.take_along_axis(x, i, 1),
    "put": grad(lambda x, i: ops.sum(ops.square(ops.take_along_axis(x, i, 1)))),
    "scatter": lambda x, i: ops.scatter_add(x, i[:, 0], x[i[:, 0]]),
}


@pytest.mark.parametrize("name", INDEXED)
def test_indices_are_checked_in_c_and_refused_by_numpy(name):
    x, good = numbers(4, 4), np.array([[0, -1], [3, 1], [-4, 2], [1, 1]])
    with ml.context(providers=("miniml",)):
        expected = ml.jit(INDEXED[name])(x, good).asnumpy()
    found, program = natively(INDEXED[name], x, good)
    np.testing.assert_array_equal(found[0], expected)
    assert program.launched.startswith("kernels in C")
    assert program.launched.endswith("in one call")
    for wrong in (4, -5):
        bad = good.copy()
        bad[2, 0] = wrong
        with ml.context(providers=("cc",)), pytest.raises(OutOfRangeError, match=f"index {wrong} "):
            ml.jit(INDEXED[name])(x, bad)


def natively(fn, *given):
    """The results of a compiled function, and its program."""
    with ml.context(providers=("cc",)):
        compiled = ml.jit(fn)
        found = compiled(*given)
        program = compiled.compiled(*given).program
    found = found if isinstance(found, tuple) else (found,)
    return [each.asnumpy() for each in found], program


def kernels_and_copies(program):
    """How many kernels a program calls natively, and how many copies it makes for them."""
    _, buffers = program.arranged(watched=False, direct=False)
    natives = Natives(Memory(buffers, program.device), program.graph.inputs)
    run = RunOfCalls()
    for step in program.steps.compute:
        if isinstance(step, (KernelLaunch, View)):
            assert natives.add(step, run)
    assert all(isinstance(call, NativeCall) for call in run.calls)
    kernels = sum(call.kernel != "copy" for call in run.calls)
    return kernels, len(run.calls) - kernels


def heads(x, y):
    """Attention's products: of heads that lie beside each other in memory."""
    x, y = ops.tanh(x), ops.tanh(y)
    q, k, v = ops.split(ops.matmul(x, y), 3, 2)
    q, k, v = (ops.transpose(ops.reshape(a, (2, 5, 4, 8)), (0, 2, 1, 3)) for a in (q, k, v))
    scores = ops.matmul(q, ops.transpose(k, (0, 1, 3, 2)))
    return ops.matmul(ops.square(scores), v)


def heads_side_by_side(x, y):
    """The same with the heads' results beside each other again, which is how they are stored."""
    mixed = ops.transpose(heads(x, y), (0, 2, 1, 3))
    return ops.matmul(ops.reshape(mixed, (2, 5, 32)), ops.transpose(ops.tanh(y))[:32])


def slices(x, y):
    x, y = ops.tanh(x), ops.tanh(y)
    return ops.matmul(x[:, ::-1, 1:9], y[::2, ::3]), ops.matmul(x[0, :, :8], y[:8, 3]) + 1.0


def broadcast(x, y):
    x, y = ops.tanh(x), ops.tanh(y)
    row = ops.broadcast_to(x[:1, :1], (3, 5, 16))
    return ops.relu(ops.matmul(row, y)), ops.matmul(ops.transpose(y), ops.transpose(x, (0, 2, 1)))


@pytest.mark.parametrize("fn", [heads, heads_side_by_side, slices, broadcast])
def test_products_read_views_where_they_lie(fn):
    columns = {slices: 30, broadcast: 7}.get(fn, 96)
    x, y = numbers(2, 5, 16, dtype="d"), numbers(16, columns, dtype="d")
    x, y = np.nan_to_num(x), np.nan_to_num(y)
    found, program = natively(fn, x, y)
    with ml.context(providers=("miniml",)):
        expected = fn(ml.Tensor(x), ml.Tensor(y))
    expected = expected if isinstance(expected, tuple) else (expected,)
    for got, out in zip(found, expected, strict=True):
        made = out.asnumpy()
        np.testing.assert_allclose(got, made, rtol=0, atol=1e-14 * np.abs(made).max())
    assert kernels_and_copies(program)[1] == 0


def test_parts_of_a_split_are_no_copies():
    x = numbers(6, 12)
    found, program = natively(lambda x: ops.add(*ops.split(ops.tanh(x), (6, 6), 1)), x)
    whole = np.tanh(x.astype("d"))
    np.testing.assert_allclose(found[0], whole[:, :6] + whole[:, 6:], rtol=1e-6, atol=1e-7)
    assert not any(n.primitive.name == "Split" for n in program.graph.nodes)
    assert kernels_and_copies(program) == (2, 0)


@pytest.fixture
def own_gather():
    entries = registry.table["Gather", "cpu"]
    before = list(entries)

    @kernel("Gather", "cpu", "fl->f", provider="own")
    def mine(x, indices, *, axis, out):
        out[...] = -1

    yield
    entries[:] = before
    epoch.bump("kernels")


def test_kernels_of_users_are_not_replaced(own_gather):
    fn = ml.jit(lambda w, i: ops.gather(ops.tanh(w), i))
    with ml.context(providers=("own", "cc")):
        assert (fn(numbers(3, 2), np.array([0, 1])).asnumpy() == -1).all()


def looked_up(table, indices):
    """Parts of the indices, as steps in time use them."""
    rows = [ops.gather(table, indices[:, t]) for t in range(3)]
    return ops.concat(rows, 1), ml.grad.grad(
        lambda w: ops.sum(ops.square(ops.gather(w, indices[:, :3])))
    )(table)


def test_indices_are_checked_once_for_all_parts_of_them():
    table = np.nan_to_num(numbers(7, 4))
    indices = np.array([[0, -7, 6, 99], [6, 6, -1, -99]])  # the last column is not used
    (rows, gradient), program = natively(looked_up, table, indices)
    np.testing.assert_array_equal(rows, table[indices[:, :3]].reshape(2, 12))
    counts = np.bincount(indices[:, :3].reshape(-1) % 7, minlength=7)
    np.testing.assert_allclose(gradient, 2 * table * counts[:, None], rtol=1e-6)
    names = [n.primitive.name for n in program.graph.nodes]
    assert names.count("CheckedIndices") == 1
    assert not {"Gather", "IndexAdd"}.intersection(names)
    assert len(re.findall(r"run\d+\(", program.source)) == 1


def test_rows_of_indices_are_checked_once_too():
    table, indices = np.nan_to_num(numbers(7, 4)), np.array([[0, -7], [6, 1], [2, 3]])
    found, program = natively(
        lambda w, i: [ops.gather(w, ops.reshape(i, (6,))[2 * t : 2 * t + 2]) for t in range(3)][-1]
        + ops.gather(w, i[1]), table, indices
    )  # fmt: skip
    np.testing.assert_array_equal(found[0], table[[2, 3]] + table[[6, 1]])
    names = [n.primitive.name for n in program.graph.nodes]
    assert names.count("CheckedIndices") == 1


@pytest.mark.parametrize("bad", [7, -8])
def test_an_index_outside_is_refused_before_anything_happens(bad):
    counter = ml.Parameter(np.zeros(3, "f"), name="counter")

    def counted(table, indices):
        ops.assign(counter, counter + 1.0)
        return ops.gather(table, ops.reshape(indices, (4,))[1:])

    table, indices = numbers(7, 4), np.array([[0, 1], [2, bad]])
    with ml.context(providers=("cc",)):
        step = ml.jit(counted)
        step(table, np.zeros((2, 2), np.int64))
        with pytest.raises(OutOfRangeError, match=f"Gather got index {bad} for axis 0 of extent 7"):
            step(table, indices)
    np.testing.assert_array_equal(counter.asnumpy(), 1)


@pytest.mark.parametrize("bad", [(0, 1), (1, 0)])
def test_every_part_of_the_indices_that_is_read_is_checked(bad):
    indices = np.zeros((2, 2), np.int64)
    indices[bad] = 7
    with pytest.raises(OutOfRangeError, match="index 7"):
        natively(lambda w, i: ops.gather(w, i[0]) + ops.gather(w, i[1]), numbers(7, 4), indices)


def test_constant_indices_are_checked_when_the_program_is_compiled():
    table = np.nan_to_num(numbers(7, 4))
    found, program = natively(lambda w: ops.gather(w, np.array([3, -1])), table)
    np.testing.assert_array_equal(found[0], table[[3, -1]])
    assert not any(n.primitive.name == "CheckedIndices" for n in program.graph.nodes)
    with pytest.raises(OutOfRangeError, match="index 7"):
        natively(lambda w: ops.gather(w, np.array([3, 7])), table)


def joined(x, y):
    """Blocks that are computed where they belong, twice, in place, by a view, and read later."""
    a, b = ops.tanh(x), ops.matmul(x, y)
    whole = ops.concat((a, ops.transpose(b), b, a), 0)
    again = ops.concat((ops.square(whole), ops.relu(b)), 0)
    across = ops.concat((ops.exp(a), b), 1)
    return again, across, ops.add(a, b), ops.concat((x, whole), 0)


def test_blocks_are_computed_where_they_are_joined():
    x, y = np.nan_to_num(numbers(4, 4)), np.nan_to_num(numbers(4, 4, seed=1))
    found, program = natively(joined, x, y)
    with ml.context(providers=("miniml",)):
        expected = joined(ml.Tensor(x), ml.Tensor(y))
    for got, out in zip(found, expected, strict=True):
        np.testing.assert_allclose(got, out.asnumpy(), rtol=1e-5, atol=1e-6)
    blocks = [a for a in program.buffers.allocation.values() if a.kind == "block"]
    assert len(blocks) >= 3
    for block in blocks:
        assert block.whole.start <= block.start or block.start == 0
        assert block.end <= block.whole.end


@pytest.mark.deep
@pytest.mark.parametrize("seed", range(40))
def test_random_programs_of_blocks(seed):
    """Chains of concatenations, slices and elementwise calls, some of which work in place."""

    def drawn(*given):
        rng, values = np.random.default_rng(seed), list(given)
        for _ in range(14):
            x, z = (values[rng.integers(len(values))] for _ in range(2))
            draw = rng.integers(4)
            made = ops.concat((x, z, ops.tanh(x))[: rng.integers(2, 4)], 0) if draw < 2 else (
                ops.square(x) if draw == 2 else x[rng.integers(2) :] * 0.5
            )  # fmt: skip
            values.append(made[:6])
        return tuple(values[-5:])

    x, y = np.nan_to_num(numbers(5, 3)), np.nan_to_num(numbers(6, 3))
    found, _ = natively(drawn, x, y)
    with ml.context(providers=("miniml",)):
        expected = drawn(ml.Tensor(x), ml.Tensor(y))
    for got, out in zip(found, expected, strict=True):
        np.testing.assert_allclose(got, out.asnumpy(), rtol=1e-5, atol=1e-6)


def turned_round(x):
    return ops.reshape(ops.reshape(x, (16,))[::-1], (4, 4))


def sliced_product(x):
    y = ops.matmul(x, x)
    return ops.tanh(y) + y[::-1], ops.sigmoid(y) + turned_round(y)


def sliced_value(x):
    y = ops.square(ops.tanh(x))
    return y + turned_round(y), y * turned_round(y + 1.0)


def copied_view(x):
    return ops.reshape(ops.transpose(x), (2, 8)), ops.tanh(x)


@pytest.mark.parametrize("fn", [sliced_product, sliced_value, copied_view])
def test_slices_and_views_are_read_after_what_they_show_is_made(fn):
    x = np.nan_to_num(numbers(4, 4, dtype="d"))
    found, _ = natively(fn, x)
    with ml.context(providers=("miniml",)):
        expected = fn(ml.Tensor(x))
    for got, out in zip(found, expected, strict=True):
        np.testing.assert_allclose(got, out.asnumpy(), rtol=1e-12, atol=1e-12)


@pytest.mark.deep
@pytest.mark.parametrize("seed", range(50))
def test_random_programs_of_views_and_products(seed):
    """Products, sums and looked-up rows of views of views, against NumPy's kernels."""

    def viewed(rng, x):
        draw = rng.integers(6)
        if draw == 0:
            return ops.transpose(x, tuple(int(a) for a in rng.permutation(3)))
        if draw == 1:
            return x[::-1, :, ::-1] if rng.integers(2) else x[:, ::-1]
        if draw == 2:
            return ops.reshape(ops.transpose(x, (1, 0, 2)), (4, 4, 4))
        if draw == 3:
            return ops.broadcast_to(x[rng.integers(4)], (4, 4, 4))
        if draw == 4:
            axis = int(rng.integers(3))
            return ops.concat(ops.split(x, 2, axis)[::-1], axis)
        return ops.reshape(x, (16, 4))[rng.integers(4) :: 3][:4, None] + x * 0.5

    def drawn(x, y, indices):
        rng, values = np.random.default_rng(seed), [x, y]
        for _ in range(12):
            a, b = (values[rng.integers(len(values))] for _ in range(2))
            draw = rng.integers(5)
            if draw < 2:
                made = viewed(rng, a)
            elif draw == 2:
                turned = bool(rng.integers(2)), bool(rng.integers(2))
                made = ops.tanh(ops.matmul(a, viewed(rng, b), *turned))
            elif draw == 3:
                made = ops.tanh(viewed(rng, a) + b - ops.sum(viewed(rng, b), 1, True))
            else:
                made = ops.gather(a, indices[rng.integers(2)], int(rng.integers(3)))
            values.append(made if made.shape == (4, 4, 4) else ops.tanh(a))
        return tuple(values[-4:])

    x, y = numbers(4, 4, 4, dtype="d"), numbers(4, 4, 4, dtype="d", seed=1)
    given = np.nan_to_num(x), np.nan_to_num(y), np.random.default_rng(seed).integers(-4, 4, (2, 4))
    found, _ = natively(drawn, *given)
    with ml.context(providers=("miniml",)):
        expected = drawn(*map(ml.Tensor, given))
    for got, out in zip(found, expected, strict=True):
        np.testing.assert_allclose(got, out.asnumpy(), rtol=1e-10, atol=1e-10)
