"""The pass that simplifies scans: what runs once, what moves out of the loop, what is dropped."""

import numpy as np
import pytest

import miniml as ml
from miniml import Primitive, kernel, ops
from miniml.grad import grad, value_and_grad
from miniml.graph.ir import verify
from miniml.graph.passes import run_passes
from miniml.graph.passes.loops import loops
from miniml.graph.record import replay

RNG = np.random.default_rng(0)
W, V = RNG.normal(size=(3, 3)), RNG.normal(size=(3, 4))
ROWS, START = RNG.normal(size=(5, 2, 3)), RNG.normal(size=(2, 3))


def changed(fn, *args):
    """The text of the graph after the pass, with the same results as before."""
    before = ml.trace(fn, *args)
    after = verify(loops(before))
    tensors = [ml.Tensor(a) for a in args]
    for x, y in zip(replay(before, tensors), replay(after, tensors), strict=True):
        np.testing.assert_allclose(y.asnumpy(), x.asnumpy(), 1e-12)
    return str(after)


def test_scans_of_the_same_steps_run_once():
    def twice(start, rows):
        def step(kept):
            return lambda c, x: (ops.tanh(c + x), kept(ops.tanh(c + x), c))

        _, first = ops.scan(step(lambda after, before: None), start, rows)
        (ys, again), second = ops.scan(step(lambda after, before: (before, before)), start, rows)
        return first, second, ys, again

    passed = run_passes(ml.trace(twice, START, ROWS), verified=True)
    assert [n.primitive.name for n in passed.nodes] == ["Scan"]
    assert len(passed.nodes[0].outputs) == 2
    for found, expected in zip(ml.jit(twice)(START, ROWS), twice(START, ROWS), strict=True):
        np.testing.assert_array_equal(found.asnumpy(), expected.asnumpy())


def test_a_gradient_runs_two_loops_and_keeps_what_it_reads():
    def loss(w, start, rows):
        return ops.sum(ops.scan(lambda h, x: (ops.tanh(h @ w + x), None), start, rows)[1])

    graph = run_passes(ml.trace(grad(loss), W, START, ROWS), verified=True)
    forward, backward = [n for n in graph.nodes if n.primitive.name == "Scan"]
    assert len(forward.outputs) == 3  # h at the end, h before each step, tanh
    assert len(backward.outputs) == 2  # dh, and dz of each step for the product after the loop
    assert [n.primitive.name for n in graph.nodes[-3:]] == ["Reshape", "Reshape", "MatMul"]


def test_what_no_step_changes_is_computed_before_the_loop():
    def fn(w, start, rows):
        return ops.scan(lambda h, x: (h @ ops.transpose(ops.exp(w) * 2.0) + x, h), start, rows)

    assert changed(fn, W, START, ROWS) == (
        "fn(%0: float64[3, 3], %1: float64[2, 3], %2: float64[5, 2, 3]):\n"
        "  %3: float64[3, 3] = Exp() %0\n"
        "  %4: float64[3, 3] = Mul() %3, float64(2.0)\n"
        "  %5: float64[2, 3], %6: float64[5, 2, 3] = Scan(body=<Graph body: 3 nodes>, length=5, "
        "carried=1, scanned=1, reverse=False) %1, %2, %4\n"
        "    body: body(%0: float64[2, 3], %1: float64[2, 3], %2: float64[3, 3]):\n"
        "      %3: float64[3, 3] = Transpose(axes=(1, 0)) %2\n"
        "      %4: float64[2, 3] = MatMul(transpose_x=False, transpose_y=False) %0, %3\n"
        "      %5: float64[2, 3] = Add() %4, %1\n"
        "      return %5, %0\n"
        "  return %6, %5"
    )


def test_a_view_goes_with_what_is_computed_of_it():
    def fn(w, start):
        def step(h, _):
            turned = ops.transpose(w)
            return h @ turned + ops.exp(turned), h

        return ops.scan(step, start, length=3)

    text = changed(fn, W, W)
    assert text.index("Transpose") < text.index("Exp") < text.index("Scan")


def test_products_of_rows_are_one_product_before_and_after_the_loop():
    def fn(w, v, start, rows):
        return ops.scan(lambda h, x: ((h := ops.tanh(x @ w + h)), h @ v), start, rows)[0]

    assert changed(fn, W, V, START, ROWS) == (
        "fn(%0: float64[3, 3], %1: float64[3, 4], %2: float64[2, 3], %3: float64[5, 2, 3]):\n"
        "  %4: float64[10, 3] = Reshape(shape=(10, 3)) %3\n"
        "  %5: float64[10, 3] = MatMul(transpose_x=False, transpose_y=False) %4, %0\n"
        "  %6: float64[5, 2, 3] = Reshape(shape=(5, 2, 3)) %5\n"
        "  %7: float64[2, 3], %8: float64[5, 2, 3] = Scan(body=<Graph body: 2 nodes>, length=5, "
        "carried=1, scanned=1, reverse=False) %2, %6\n"
        "    body: body(%0: float64[2, 3], %1: float64[2, 3]):\n"
        "      %2: float64[2, 3] = Add() %1, %0\n"
        "      %3: float64[2, 3] = Tanh() %2\n"
        "      return %3, %3\n"
        "  %9: float64[10, 3] = Reshape(shape=(10, 3)) %8\n"
        "  %10: float64[10, 4] = MatMul(transpose_x=False, transpose_y=False) %9, %1\n"
        "  %11: float64[5, 2, 4] = Reshape(shape=(5, 2, 4)) %10\n"
        "  return %11"
    )


def test_a_carried_sum_of_products_is_one_product_of_all_rows():
    def fn(total, bias, rows):
        def step(carry, x):
            total, bias = carry
            return (total + ops.matmul(x, x, True, False), bias + ops.sum_to(x, (3,))), None

        return ops.scan(step, (total, bias), rows)[1]

    text = changed(fn, W, V[:, 0], ROWS)
    assert "Scan" not in text
    assert "MatMul(transpose_x=True, transpose_y=False)" in text
    assert "SumTo(shape=(3,)) %2" in text


def test_rows_that_indices_name_are_looked_up_before_the_loop():
    def fn(table, w, start, indices):
        return ops.scan(lambda h, i: (ops.tanh(ops.gather(table, i) @ w + h), h), start, indices)

    indices = np.array([[0, 1], [4, 0], [-1, 2], [3, 3]])
    table = RNG.normal(size=(5, 3))
    text = changed(fn, table, W, START, indices)
    assert text.index("Gather") < text.index("MatMul") < text.index("Scan")
    with pytest.raises(IndexError, match="5"):
        ml.jit(fn)(table, W, START, indices + 2)

    def slope(table, w, start, indices):
        return grad(lambda table: ops.sum(fn(table, w, start, indices)[0]))(table)

    graph = run_passes(ml.trace(slope, table, W, START, indices), verified=True)
    names = [n.primitive.name for n in graph.nodes]
    assert names[names.index("Scan") :][-5:] == ["Scan", "Reshape", "MatMul", "Reshape", "IndexAdd"]
    expected = slope(table, W, START, indices).asnumpy()
    found = ml.jit(slope)(table, W, START, indices).asnumpy()
    np.testing.assert_allclose(found, expected, 1e-12)


def test_a_table_that_is_looked_up_in_a_loop_is_multiplied_and_added_to_once():
    def loss(table, w, start, indices):
        step = lambda h, i: (ops.tanh(ops.gather(table, i) @ w + h), h)  # noqa: E731
        return ops.sum(ops.scan(step, start, indices)[0])

    rng = np.random.default_rng(0)
    start, indices = rng.normal(size=(40, 3)), rng.integers(0, 4, (6, 40))
    table, w = rng.normal(size=(4, 24)), rng.normal(size=(24, 3)) * 0.2
    both = grad(loss, (0, 1))
    graph = run_passes(ml.trace(both, table, w, start, indices), verified=True)
    names = [n.primitive.name for n in graph.nodes]
    assert (names.count("Gather"), names.count("IndexAdd")) == (1, 1)
    assert names.index("MatMul") < names.index("Gather") < names.index("Scan")
    expected = both(table, w, start, indices)
    for found, right in zip(ml.jit(both)(table, w, start, indices), expected, strict=True):
        np.testing.assert_allclose(found.asnumpy(), right.asnumpy(), 1e-12)


def test_rows_that_are_as_they_were_given_stay_where_they_are():
    def fn(start, rows):
        return ops.scan(lambda h, x: (ops.tanh(x + h), (h, x)), start, rows, reverse=True)[0]

    assert "%2: float64[2, 3], %3: float64[5, 2, 3] = Scan" in changed(fn, START, ROWS)
    passed = run_passes(ml.trace(fn, START, ROWS), verified=True)
    assert [n.primitive.name for n in passed.nodes] == ["Scan"]


def test_indices_along_another_axis_stay():
    def fn(table, start, indices):
        step = lambda h, i: (h + ops.gather(table, i, axis=1), h)  # noqa: E731
        return ops.scan(step, start, indices)

    indices = np.array([[0, 1, 2], [1, 0, 1]])
    text = changed(fn, START, START, indices)
    assert text.index("Scan") < text.index("Gather")


@pytest.mark.parametrize(
    "step",
    [
        lambda c, x: (c + ops.matmul(x, x, True, False), ops.sum(c)),  # read in between
        lambda c, x: ((a := c + ops.matmul(x, x, True, False)), a),  # kept
        lambda c, x: ((a := ops.matmul(x, x, True, False)) + a, None),  # not a sum
        lambda c, x: (c + c + ops.matmul(x, x, True, False), None),
        lambda c, x: (c + ops.matmul(c, c, True, False), None),
    ],
)
def test_other_carried_values_stay(step):
    fn = lambda start, rows: ops.scan(step, start, rows)  # noqa: E731
    assert "carried=1" in changed(fn, W * 0.1, ROWS * 0.1)


def test_products_that_steps_read_or_of_more_axes_stay():
    def read(w, start, rows):
        def step(h, x):
            y = h @ w
            return ops.tanh(y) + x, y

        return ops.scan(step, start, rows)

    assert "MatMul" in changed(read, W, START, ROWS).partition("body")[2]
    blocks = RNG.normal(size=(5, 4, 2, 3))
    text = changed(lambda w, x: ops.scan(lambda c, x: (c, x @ w), ops.sum(w), x), V, blocks)
    assert "MatMul" in text.partition("body")[2]


class LoopSeen(Primitive):
    """Its input; each call has an effect."""

    effect = "ordered"

    def infer_shape(self, x):
        return x

    def infer_dtype(self, x):
        return x


@kernel("LoopSeen", "cpu", "d->d")
def loop_seen(x, *, out):
    out[...] = x


def test_what_has_an_effect_happens_at_each_step():
    text = changed(
        lambda w, h, x: ops.scan(lambda h, x: (h @ LoopSeen()(w) + x, h), h, x), W, START, ROWS
    )
    assert text.index("Scan") < text.index("LoopSeen")


def test_sums_that_are_spread_over_what_is_carried_stay():
    def fn(start, rows):
        step = lambda c, x: (c + ops.matmul(x, x, transpose_x=True), None)  # noqa: E731
        return ops.scan(step, start, rows)[1]

    assert "MatMul" in changed(fn, RNG.normal(size=(2, 3, 3)), ROWS).partition("body")[2]


def test_what_nothing_needs_is_dropped():
    def fn(start, rows, w):
        def step(carry, x):
            used, unused, feeds = carry
            return (used + feeds, unused * ops.sin(w), feeds * x), (unused, used, x)

        return ops.scan(step, (start, start, start), rows)[0][1]

    text = changed(fn, START, ROWS, START)
    assert "carried=2, scanned=1, reverse=False) %0, %0, %1\n" in text
    assert "Sin" not in text


def test_nothing_moves_out_of_a_loop_that_does_not_run():
    """What raises in a step must not raise where no step runs."""

    def fn(x, labels, rows):
        return ops.scan(lambda c, row: (c + ops.cross_entropy(x, labels), row), 0.0, rows)

    x, labels = np.ones((2, 3), np.float32), np.array([0, 3])
    assert ml.jit(fn)(x, labels, ROWS[:0])[1].item() == 0.0
    with pytest.raises(IndexError, match="label 3 for 3 classes"):
        ml.jit(fn)(x, labels, ROWS)


def test_loops_inside_loops_are_simplified():
    def fn(w, start, rows):
        def outer(h, row):
            def inner(h, x):
                return ops.tanh(h @ ops.exp(w) + x), h

            return ops.scan(inner, h, row)[1], None

        return ops.scan(outer, start, rows)[1]

    graph = run_passes(ml.trace(fn, W, START, ROWS[None]), verified=True)
    assert [n.primitive.name for n in graph.nodes] == ["Exp", "Scan"]
    (inner,) = graph.nodes[1].primitive.body.nodes
    assert len(inner.outputs) == 1


def test_equal_loops_keep_their_own_lines():
    def first(start, rows):
        return ops.scan(lambda c, x: (ops.log(c + x), None), start, rows)[1]

    def second(start, rows):
        return ops.scan(lambda c, x: (ops.log(c + x), None), start, rows)[1]

    graphs = [ml.trace(fn, START, ROWS) for fn in (first, second)]
    scans = [n.primitive for graph in graphs for n in graph.nodes if n.primitive.name == "Scan"]
    again = [type(scan)(*scan.attributes.values()) for scan in scans]  # as passes make them
    assert scans[0] == scans[1] == again[0] == again[1]
    lines = [scan.body.nodes[0].where.line for scan in again]
    assert lines[0] == first.__code__.co_firstlineno + 1
    assert lines[1] == second.__code__.co_firstlineno + 1


def root(x, bound=50):
    """Newton's iteration until it is near, at most `bound` times, with the rounds that it took."""

    def away(state):
        return ops.any(ops.abs(state[1] * state[1] - x) > 1e-6)

    def step(state):
        return state[0] + 1, 0.5 * (state[1] + x / state[1])

    return ops.while_loop(away, step, (ml.Tensor(0), x), max_iterations=bound)


def root_by_hand(x, bound=50):
    rounds, y = 0, x
    while rounds < bound and np.any(np.abs(y * y - x) > 1e-6):
        rounds, y = rounds + 1, 0.5 * (y + x / y)
    return rounds, y


def kinds(fn, *args):
    return [n.primitive.name for n in run_passes(ml.trace(fn, *args), verified=True).nodes]


@pytest.mark.parametrize("bound", [0, 1, 3, 50])
@pytest.mark.parametrize("first", [1.0, 90.0, np.nan])
def test_a_bounded_loop_without_a_gradient_ends_when_its_condition_does(bound, first):
    x = np.array([first, 4.0])
    rounds, y = ml.jit(root)(x, bound)
    expected = root_by_hand(x, bound)
    assert rounds.item() == expected[0]
    np.testing.assert_allclose(y.asnumpy(), expected[1], 1e-12)
    if bound > 1:
        assert "WhileLoop" in kinds(lambda x: root(x, bound), x)
        assert "Scan" not in kinds(lambda x: root(x, bound), x)


def test_the_gradient_of_a_bounded_loop_is_still_that_of_the_scan():
    x = np.array([90.0, 4.0])
    value, slope = ml.jit(value_and_grad(lambda x: ops.sum(root(x)[1])))(x)
    np.testing.assert_allclose(value.item(), np.sqrt(x).sum(), 1e-9)
    np.testing.assert_allclose(slope.asnumpy(), 0.5 / np.sqrt(x), 1e-6)


def test_a_scan_whose_flag_or_values_go_on_stays_a_scan():
    def flagged(kept, more):
        def step(carry, _):
            going = ops.logical_and(carry[0], ops.sum(carry[1]) < 10.0)
            return (more(going), ops.cond(going, lambda v: v * 2.0, kept, carry[1])), None

        return lambda flag, x: ops.scan(step, (flag, x), length=6)[1][1]

    same = lambda x: x  # noqa: E731
    x = np.ones(3)
    ending = flagged(same, same)
    others = {
        "a flag that is set again": (lambda x: flagged(same, ops.logical_not)(True, x), 4.0),
        "a value that goes on": (lambda x: flagged(lambda v: v + 1.0, same)(True, x), 8.0),
        "a flag that is computed": (lambda x: ending(ops.sum(x) > 0.0, x), 4.0),
    }
    assert "WhileLoop" in kinds(lambda x: ending(True, x), x)
    assert ml.jit(lambda x: ending(True, x))(x).tolist() == [4.0] * 3
    for why, (fn, expected) in others.items():
        assert "WhileLoop" not in kinds(fn, x), why
        assert ml.jit(fn)(x).tolist() == [expected] * 3, why


def test_a_branch_computes_what_is_read_of_it():
    """The gradient of a branch for one of its operands keeps no rows of the other."""

    def step(h, x):
        return ops.cond(ops.sum(h) < 1.0, lambda: h + x, lambda: h * 0.5 - ops.sin(x)), None

    def loss(start, rows):
        return ops.sum(ops.scan(step, start, rows)[1])

    graph = run_passes(ml.trace(grad(loss), START, ROWS), verified=True)
    forward, backward = [n for n in graph.nodes if n.primitive.name == "Scan"]
    assert len(forward.outputs) == 2  # the last h, and which branch each step took
    assert len(backward.inputs) == 2  # that, and dh
    (cond,) = backward.primitive.body.nodes
    assert len(cond.outputs) == 1
    slope, h = np.ones_like(START), START
    for x in ROWS:
        slope, h = (slope, h + x) if h.sum() < 1.0 else (slope * 0.5, h * 0.5 - np.sin(x))
    np.testing.assert_allclose(ml.jit(grad(loss))(START, ROWS).asnumpy(), slope, 1e-12)


def test_a_branch_without_readers_of_some_outputs():
    def fn(x, y, z):
        a, b, _ = ops.cond(
            ops.sum(x) > 0.0, lambda: (x + y, y, z * 2.0), lambda: (x, x * 2.0, ops.exp(z))
        )
        return a, a + ops.cond(ops.sum(b) > 0.0, lambda: (b, z), lambda: (x, y))[0]

    graph = run_passes(ml.trace(fn, START, START, START), verified=True)
    conds = [n for n in graph.nodes if n.primitive.name == "Cond"]
    assert [len(n.outputs) for n in conds] == [2, 1]
    for sign in (1.0, -1.0):
        x, y, z = sign * np.abs(START), START * 2.0, START - 1.0
        a, b = (x + y, y) if sign > 0 else (x, x * 2.0)
        found = ml.jit(fn)(x, y, z)
        np.testing.assert_allclose(found[0].asnumpy(), a)
        np.testing.assert_allclose(found[1].asnumpy(), a + (b if b.sum() > 0 else x))
