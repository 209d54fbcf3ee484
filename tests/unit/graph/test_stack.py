"""What is done alike to many small operands is done once, to all of them."""

import numpy as np
import pytest

import miniml as ml
from miniml import ops
from miniml.grad import value_and_grad
from miniml.graph.ir import verify
from miniml.graph.passes import run_passes
from miniml.graph.passes.batch_products import lookups, stack
from miniml.graph.passes.rewrite import prune

OFF = ("stack", "lookups")


def body(graph):
    """The nodes of a graph as text, without attributes that say nothing."""
    verify(graph)
    text = str(graph).replace("transpose_x=False, transpose_y=False", "")
    text = text.replace("transpose_x=True, transpose_y=False", "x^T")
    text = text.replace("transpose_x=False, transpose_y=True", "y^T")
    lines = [line.strip().replace("float32", "") for line in text.splitlines()]
    return lines[lines.index(next(line for line in lines if line.endswith(":"))) + 1 :]


def calls(graph):
    """How often each primitive is called."""
    names = [n.primitive.name for n in graph.nodes]
    return {name: names.count(name) for name in sorted(set(names))}


def array(*shape, seed=0):
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


class TestProducts:
    def test_products_with_one_matrix_are_slices_of_one(self):
        def fn(x, y, w):
            return ops.tanh(x @ w), ops.exp(y @ w)

        assert body(stack(ml.trace(fn, array(2, 3), array(4, 3), array(3, 5)))) == [
            "%3: [6, 3] = Concat(axis=0) %0, %1",
            "%4: [6, 5] = MatMul() %3, %2",
            "%5: [2, 5] = Slice(begin=(0, 0), end=(2, 5), strides=(1, 1), dropped=()) %4",
            "%6: [4, 5] = Slice(begin=(2, 0), end=(6, 5), strides=(1, 1), dropped=()) %4",
            "%7: [2, 5] = Tanh() %5",
            "%8: [4, 5] = Exp() %6",
            "return %7, %8",
        ]

    def test_what_lies_side_by_side_is_not_copied(self):
        def fn(x, w):
            return [x[t] @ w for t in range(1, 3)]

        assert body(prune(stack(ml.trace(fn, array(4, 2, 3), array(3, 5))))) == [
            "%2: [2, 2, 3] = Slice(begin=(1, 0, 0), end=(3, 2, 3), strides=(1, 1, 1), "
            "dropped=()) %0",
            "%3: [4, 3] = Reshape(shape=(4, 3)) %2",
            "%4: [4, 5] = MatMul() %3, %1",
            "%5: [2, 5] = Slice(begin=(0, 0), end=(2, 5), strides=(1, 1), dropped=()) %4",
            "%6: [2, 5] = Slice(begin=(2, 0), end=(4, 5), strides=(1, 1), dropped=()) %4",
            "return %5, %6",
        ]

    def test_products_that_depend_on_each_other_stay(self):
        def fn(h, w):
            for _ in range(3):
                h = ops.tanh(h @ w)
            return h

        graph = ml.trace(fn, array(2, 3), array(3, 3))
        assert stack(graph) is graph

    def test_groups_that_wait_for_each_other_make_no_ring(self):
        def fn(x, y, v, w):
            return (x @ v) @ w, (y @ w) @ v

        graph = stack(ml.trace(fn, array(2, 3), array(2, 3), array(3, 3), array(3, 3)))
        verify(graph)
        assert calls(graph) == {"Concat": 1, "MatMul": 3, "Slice": 2}

    def test_a_copy_that_costs_more_than_it_saves_is_not_made(self):
        def fn(x, y, w):
            return x @ w, y @ w

        graph = ml.trace(fn, array(2000, 8), array(2000, 8), array(8, 2))
        assert stack(graph) is graph


class TestSums:
    def test_gradients_of_a_recurrence_are_one_product_and_one_sum(self):
        def fn(x, w, u, b):
            h = ops.zeros((2, 4))
            for t in range(3):
                h = ops.tanh(x[t] @ w + h @ u + b)
            return ops.sum(h)

        args = array(3, 2, 5), array(5, 4), array(4, 4), array(4)
        graph = prune(ml.trace(value_and_grad(fn, (1, 2, 3)), *args))
        before, after = calls(graph), calls(prune(stack(graph)))
        assert (before["MatMul"], before["SumTo"]) == (14, 3)
        # x w, h u at three steps, dh u^T at two, dw, du
        assert (after["MatMul"], after["SumTo"]) == (8, 1)
        lines = body(stack(graph))
        assert sum("MatMul(x^T)" in line for line in lines) == 2

    def test_other_terms_are_added(self):
        def fn(a, b, c):
            return ops.exp(c) + ops.sum_to(a, (3,)) + (c + ops.sum_to(b, (3,)))

        assert body(stack(ml.trace(fn, array(2, 3), array(4, 3), array(3)))) == [
            "%3: [3] = Exp() %2",
            "%4: [6, 3] = Concat(axis=0) %1, %0",
            "%5: [3] = SumTo(shape=(3,)) %4",
            "%6: [3] = Add() %3, %2",
            "%7: [3] = Add() %6, %5",
            "return %7",
        ]

    def test_terms_that_are_used_otherwise_stay(self):
        def fn(a, b):
            one, two = ops.sum_to(a, (3,)), ops.sum_to(b, (3,))
            return one + two, one

        graph = ml.trace(fn, array(2, 3), array(2, 3))
        assert stack(graph) is graph

    def test_terms_that_keep_their_rows_stay(self):
        def sums(a, b):
            return ops.sum_to(a, (2, 1)) + ops.sum_to(b, (2, 1))

        def columns(e, i):
            return ops.sum(ops.exp(ops.gather(e, i[0], 1)) * ops.gather(e, i[1], 1))

        graph = ml.trace(sums, array(2, 3), array(2, 3))
        assert stack(graph) is graph
        graph = ml.trace(value_and_grad(columns), array(5, 3), np.array([[0, 1], [1, 2]]))
        assert calls(graph)["IndexAdd"] == calls(stack(graph))["IndexAdd"] == 2

    def test_updates_of_one_table_are_added_at_once(self):
        def fn(e, i):
            return ops.sum(ops.exp(ops.gather(e, i[0])) * ops.gather(e, i[1]))

        graph = ml.trace(value_and_grad(fn), array(5, 3), np.array([[0, 1, 1, 4], [1, 2, 3, 4]]))
        assert calls(graph)["IndexAdd"] == 2
        assert calls(stack(graph))["IndexAdd"] == 1


def embedded(e, w, i):
    return ops.sum(ops.tanh(ops.gather(e, i) @ w))


class TestLookups:
    E, W, ROWS = array(4, 40), array(40, 3, seed=1), np.arange(12) % 3

    def test_a_product_of_rows_is_rows_of_a_product(self):
        def fn(e, w, i):
            return ops.gather(e, i) @ w

        assert body(prune(lookups(ml.trace(fn, self.E, self.W, self.ROWS)))) == [
            "%3: [4, 3] = MatMul() %0, %1",
            "%4: [12, 3] = Gather(axis=0) %3, %2",
            "return %4",
        ]

    def test_rows_of_which_slices_are_read_are_looked_up_when_they_are_needed(self):
        def fn(e, w, i):
            rows = ops.gather(e, i) @ w
            return rows[:6], rows[6:]

        assert body(prune(lookups(ml.trace(fn, self.E, self.W, self.ROWS)))) == [
            "%3: [4, 3] = MatMul() %0, %1",
            "%4: int64[6] = Slice(begin=(0,), end=(6,), strides=(1,), dropped=()) %2",
            "%5: [6, 3] = Gather(axis=0) %3, %4",
            "%6: int64[6] = Slice(begin=(6,), end=(12,), strides=(1,), dropped=()) %2",
            "%7: [6, 3] = Gather(axis=0) %3, %6",
            "return %5, %7",
        ]

    def test_updates_are_added_to_rows_before_the_product(self):
        graph = ml.trace(value_and_grad(embedded, (0, 1)), self.E, self.W, self.ROWS)
        assert body(prune(lookups(graph)))[-8:] == [
            "%12: bool[4] = Scatter(index=('tensor',)) %c0, True, %2",
            "%13: bool[4, 1] = Reshape(shape=(4, 1)) %12",
            "%14: [4, 40] = Select() %13, %0, 0.0",
            "%15: [4, 3] = IndexAdd(axes=(0,), at=0, shape=(4, 3)) %11, %2",
            "%16: [40, 3] = MatMul(x^T) %14, %15",
            "%17: [4, 40] = MatMul(y^T) %15, %1",
            "%18: [4, 40] = Select() %13, %17, 0.0",
            "return %6, %18, %16",
        ]

    @pytest.mark.parametrize("bad", [np.nan, np.inf])
    def test_rows_that_nobody_reads_need_not_be_finite(self, bad):
        e, w = self.E.copy(), self.W.copy()
        e[3] = bad
        check(embedded, (0, 1), e, w, self.ROWS)
        w[0, 0] = bad
        check(embedded, (0, 1), e, w, self.ROWS)

    def test_indices_of_more_axes(self):
        check(embedded, (0, 1), self.E, self.W, self.ROWS.reshape(2, 2, 3))

    def test_a_large_table_stays(self):
        graph = ml.trace(lambda e, w, i: ops.gather(e, i) @ w, array(99, 40), self.W, self.ROWS)
        assert lookups(graph) is graph

    def test_pairs_of_rows_and_rows_of_float16_stay(self):
        def pairs(e, w, i):
            return ops.reshape(ops.gather(e, i), (6, 80)) @ w

        graph = ml.trace(pairs, self.E, array(80, 3), self.ROWS)
        assert calls(lookups(graph)) == calls(graph)
        half = [x.astype(np.float16) for x in (self.E, self.W)]
        graph = ml.trace(lambda e, w, i: ops.gather(e, i) @ w, *half, self.ROWS)
        assert calls(lookups(graph)) == calls(graph)

    def test_columns_in_another_order(self):
        def fn(e, w, i):
            rows = ops.gather(e, i) @ w
            return ops.sum(ops.tanh(rows[:6, ::-1]) * rows[6:, ::-1] * array(6, 3))

        check(fn, (0, 1), self.E, self.W, self.ROWS)

    def test_an_index_outside_is_refused_as_before(self):
        run = ml.jit(lambda e, w, i: ops.gather(e, i) @ w)
        with pytest.raises(ml.errors.OutOfRangeError, match="Gather got index 7 for axis 0"):
            run(self.E, self.W, np.full(12, 7))


def check(fn, argnums, *args):
    """Values and gradients as without the passes, up to the rounding of float32."""
    results = []
    for off in (OFF, ()):
        with ml.context(disabled_passes=off, verify_passes=True):
            value, gradients = ml.jit(value_and_grad(fn, argnums))(*args)
        results.append([value.asnumpy(), *(g.asnumpy() for g in gradients)])
    for expected, got in zip(*results, strict=True):
        finite = expected[np.isfinite(expected)]
        scale = np.abs(finite).max() if finite.size else 1.0
        np.testing.assert_allclose(got, expected, rtol=2e-5, atol=2e-6 * scale)


@pytest.mark.parametrize("seed", range(12))
def test_random_networks_compute_the_same(seed):
    """Random steps over a few weights, which are used again and again."""
    rng = np.random.default_rng(seed)
    plan = rng.integers(0, 5, (6, 4))

    def fn(x, e, w, v, i):
        values = [x[t] for t in range(3)] + [ops.gather(e, i[t]) for t in range(3)]
        for kind, a, b, c in plan:
            one, two = values[a % len(values)], values[-1 - b % len(values)]
            matrix = w if c % 2 else v
            found = (
                ops.tanh(one @ matrix),
                ops.matmul(one, matrix, transpose_y=True),
                one * ops.sum_to(two, (4,)),
                one + two,
                ops.gather(e, i[c % 3]) @ w,
            )
            values.append(found[kind])
        return sum(ops.mean(ops.tanh(value)) for value in values)

    args = array(3, 2, 4), array(2, 4), array(4, 4), array(4, 4, seed=1), rng.integers(0, 2, (3, 2))
    check(fn, (0, 1, 2, 3), *args)
    graph = ml.trace(value_and_grad(fn, (0, 1, 2, 3)), *args)
    assert stack(graph) is not graph


def test_two_layers_step_by_step_compute_the_same():
    """The products of the second layer wait for all steps of the first one."""

    def fn(x, w, u, v):
        h = g = ops.zeros((2, 4))
        for t in range(4):
            h = ops.tanh(ops.einsum("bi,ij->bj", x[t], w) + h @ u)
            g = ops.tanh(h @ v + ops.matmul(g, u, transpose_y=True))
        return ops.sum(g)

    args = array(4, 2, 3), array(3, 4), array(4, 4), array(4, 4, seed=1)
    check(fn, (0, 1, 2, 3), *args)
    graph = run_passes(ml.trace(value_and_grad(fn, (0, 1, 2, 3)), *args))
    # x w, h v, and at each step h u and g u^T; backwards dx and what h v gives to dh, and at all
    # steps but the first dh and dg; then dw, du (of both layers together), dv.
    assert calls(graph)["MatMul"] == 2 + 4 * 2 + 2 + 3 * 2 + 3
