"""Each pass states the graph it produces, as text."""

from dataclasses import replace
from textwrap import dedent

import ml_dtypes
import numpy as np
import pytest

import miniml as ml
from miniml import Primitive, ops
from miniml.core.abstract import FLOATS
from miniml.graph.ir import Graph, verify
from miniml.graph.passes import PIPELINE, run_passes
from miniml.graph.passes.rewrite import everywhere, fold, prune, share
from miniml.graph.passes.simplify import RULES, by_kind, simplify
from miniml.ops import Unary

X = np.arange(6, dtype=np.float32).reshape(2, 3)
ONE = np.ones((2, 3), np.float32)


class Draw(Primitive):
    """A random primitive: a pure function of its state (key, offset) and of the blocks to skip."""

    skip: int

    def infer_shape(self, state):
        return state

    def infer_dtype(self, state):
        return state


class Repeat(Unary):
    """A loop: a body applied `count` times."""

    body: Graph
    count: int


def parameter(name="w"):
    return ml.Parameter(ONE, name=name)


def body(change, fn, *args):
    """The lines between head and return, and what is returned, after `change`."""
    graph = ml.trace(fn, *args)
    after = change(graph)
    verify(after)
    lines = [line.strip() for line in str(after).splitlines()]
    return lines[lines.index(next(line for line in lines if line.endswith(":"))) + 1 :]


def shown(expected):
    return dedent(expected).strip("\n")


class TestFold:
    def test_what_depends_on_constants_alone_is_computed(self):
        def fn(x):
            return x + ops.exp(ops.full((3,), 0.0)) * np.array([1, 2, 3], np.float32)

        assert body(fold, fn, X) == [
            "%c0: float32[3] = constant [1., 2., 3.]",
            "%c1: float32[3] = constant [0., 0., 0.]",
            "%c2: float32[3] = constant [1., 1., 1.]",
            "%c3: float32[3] = constant [1., 2., 3.]",
            "%1: float32[2, 3] = Add() %0, %c3",
            "return %1",
        ]

    def test_dtypes_and_bits_are_those_of_an_eager_call(self):
        for dtype in (np.float16, ml.bfloat16, np.float64):
            graph = fold(ml.trace(lambda d=dtype: ops.exp(ops.full((), 0.3, d))))
            (out,) = graph.outputs
            expected = ops.exp(ops.full((), 0.3, dtype)).asnumpy()
            assert out.abstract.value.dtype == expected.dtype == dtype
            assert out.abstract.value.tobytes() == expected.tobytes()
            assert graph.nodes == ()

    def test_a_value_above_64_kb_is_folded_only_if_it_does_not_grow(self):
        assert len(fold(ml.trace(lambda: ops.zeros(16384))).nodes) == 0
        assert len(fold(ml.trace(lambda: ops.zeros(16385))).nodes) == 1
        big = np.zeros((100, 1000), np.float32)
        assert len(fold(ml.trace(lambda: ops.transpose(ml.Tensor(big)))).nodes) == 0
        row = big[:1]
        assert len(fold(ml.trace(lambda: ops.broadcast_to(ml.Tensor(row), (100, 1000)))).nodes) == 1

    def test_parameters_are_no_constants(self):
        w = parameter()
        assert body(fold, lambda: ops.exp(w)) == ["%0: float32[2, 3] = Exp() %w", "return %0"]

    def test_effects_on_constants_stay(self):
        w = parameter()
        graph = fold(ml.trace(lambda: ops.assign(w, ONE)))
        assert [n.primitive.name for n in graph.nodes] == ["Assign"]

    def test_a_node_that_cannot_be_computed_is_left_for_the_run(self):
        class Lost(Draw):
            """A primitive without kernels."""

        assert body(fold, lambda: Lost(1)(ml.Tensor(1.0))) == [
            "%0: float32[] = Lost(skip=1) 1.0",
            "return %0",
        ]

    def test_a_nan_is_left_for_the_run_where_it_is_looked_for(self):
        graph = ml.trace(lambda: ops.log(ml.Tensor(-1.0)))
        assert str(fold(graph)).endswith("return nan")
        with ml.debug_nans():
            assert [n.primitive.name for n in fold(graph).nodes] == ["Log"]


class TestShare:
    def test_equal_calls_are_made_once(self):
        def fn(x):
            return ops.exp(x) + ops.exp(x), ops.sum(ops.exp(x), 0), ops.sum(ops.exp(x), 0)

        assert body(share, fn, X) == [
            "%1: float32[2, 3] = Exp() %0",
            "%2: float32[2, 3] = Add() %1, %1",
            "%3: float32[3] = Sum(axis=0, keepdims=False) %1",
            "return %2, %3, %3",
        ]

    def test_attributes_and_the_order_of_inputs_count(self):
        def fn(x, y):
            return ops.sum(x, 0), ops.sum(x, (0,)), x - y, y - x, ops.leaky_relu(x, 0.1)

        graph = ml.trace(fn, X, X)
        assert share(graph) is graph

    def test_zero_and_minus_zero_differ(self):
        graph = ml.trace(lambda: (ops.full((3,), 0.0), ops.full((3,), -0.0), ops.full((3,), 0)))
        assert share(graph) is graph

    def test_equal_constants_are_one(self):
        a, b = np.arange(100.0), np.arange(100.0)
        assert body(share, lambda x: (x + a, x + b), a)[1:] == [
            "%c1: float64[100] = constant",
            "%1: float64[100] = Add() %0, %c0",
            "return %1, %1",
        ]

    def test_random_draws_are_shared_only_when_key_and_offset_are_equal(self):
        def fn(state, other):
            return Draw(0)(state), Draw(0)(state), Draw(4)(state), Draw(0)(other)

        state = np.zeros(2, np.uint64)
        assert body(share, fn, state, state) == [
            "%2: uint64[2] = Draw(skip=0) %0",
            "%3: uint64[2] = Draw(skip=4) %0",
            "%4: uint64[2] = Draw(skip=0) %1",
            "return %2, %2, %3, %4",
        ]

    def test_reads_before_and_after_an_assignment_differ(self):
        w = parameter()

        def fn(x):
            before = ops.exp(w)
            ops.assign(w, x)
            return before, ops.exp(w)

        assert body(share, fn, X) == [
            "%1: float32[2, 3] = Exp() %w",
            "%2: float32[2, 3] = Assign() %w, %0",
            "%3: float32[2, 3] = Exp() %2",
            "return %1, %3",
        ]

    def test_equal_assignments_are_both_made(self):
        w, v = parameter(), parameter("v")

        def fn(x):
            for p in (w, w, v):
                ops.assign(p, x)

        assert [n.primitive.name for n in share(ml.trace(fn, X)).nodes] == ["Assign"] * 3


def cast(*dtypes):
    def fn(x):
        for dtype in dtypes:
            x = ops.cast(x, dtype)
        return x

    return fn


def spread(x, shape, then=None):
    x = ops.broadcast_to(x, shape)
    return x if then is None else ops.reshape(x, then)


I8, I32 = np.zeros(3, np.int8), np.zeros(3, np.int32)

SIMPLE = {
    "x + 0": (lambda x: x + 0, I32, "return %0"),
    "x + -0.0": (lambda x: x + -0.0, X, "return %0"),
    "x + zeros that broadcast": (lambda x: x + ops.full((1, 3), -0.0), X, "return %0"),
    "0 + x": (lambda x: 0 + x, I32, "return %0"),
    "-0.0 + x": (lambda x: -0.0 + x, X, "return %0"),
    "x - 0": (lambda x: x - 0.0, X, "return %0"),
    "x * 1": (lambda x: x * ops.ones((2, 3)), X, "return %0"),
    "1 * x": (lambda x: 1.0 * x, X, "return %0"),
    "x * -1": (lambda x: x * -1.0, X, "Neg() %0"),
    "-1 * x": (lambda x: -1.0 * x, X, "Neg() %0"),
    "x / 1": (lambda x: x / 1, X, "return %0"),
    "x ** 1": (lambda x: x**1, X, "return %0"),
    "x ** 2": (lambda x: ops.pow(x, 2.0), X, "Square() %0"),
    "x ** 0.5": (lambda x: x**0.5, X, "Sqrt() %0"),
    "x ** -1": (lambda x: x**-1, X, "Reciprocal() %0"),
    "-(-x)": (lambda x: ops.neg(-x), X, "return %0"),
    "-1 * -x": (lambda x: -1.0 * -x, X, "return %0"),
    "cast to itself": (cast("float32"), X, "return %0"),
    "cast there and back": (cast("float64", "float32"), X, "return %0"),
    "cast by way of": (cast("float64", "float16"), X, "Cast(dtype=float16) %0"),
    "cast of a chain": (cast("int16", "int32", "int64", "float32"), I8, "Cast(dtype=float32) %0"),
    "reshape to itself": (lambda x: ops.reshape(x, (2, -1)), X, "return %0"),
    "reshape of reshape": (
        lambda x: ops.reshape(ops.reshape(x, (6,)), (3, 2)), X, "Reshape(shape=(3, 2)) %0",
    ),
    "reshape there and back": (
        lambda x: ops.reshape(ops.squeeze(ops.expand_dims(x, 0), 0), (2, 3)), X, "return %0",
    ),
    "flip": (
        lambda x: ops.flip(x, -1), X,
        "Slice(begin=(0, 2), end=(2, -1), strides=(1, -1), dropped=()) %0",
    ),
    "gradient of what runs backwards": (
        ops.SliceGrad((2, 3), (1, 0), (-1, 3), (-1, 1)), X,
        "Slice(begin=(1, 0), end=(-1, 3), strides=(-1, 1), dropped=()) %0",
    ),
    "transpose by nothing": (lambda x: ops.transpose(x, (0, 1)), X, "return %0"),
    "transpose there and back": (lambda x: ops.transpose(ops.transpose(x)), X, "return %0"),
    "transpose of transpose": (
        lambda x: ops.transpose(ops.transpose(x, (1, 2, -3)), (1, 2, 0)),
        np.zeros((2, 3, 4), np.float32),
        "Transpose(axes=(2, 0, 1)) %0",
    ),
    "broadcast to itself": (lambda x: ops.broadcast_to(x, (2, 3)), X, "return %0"),
    "broadcast of broadcast": (
        lambda x: ops.broadcast_to(ops.broadcast_to(x, (1, 3)), (2, 3)),
        X[0],
        "BroadcastTo(shape=(2, 3)) %0",
    ),
    "repetition of repetition": (
        lambda x: spread(spread(x, (2, 5, 3, 1), (10, 3, 1)), (10, 3, 4), (2, 5, 3, 4)),
        np.zeros((2, 1, 3, 1), np.float32),
        "BroadcastTo(shape=(2, 5, 3, 4)) %0",
    ),
    "conversion there and back": (
        lambda x: ops.Convert("NCHW")(ops.Convert("NHWC")(x)), np.zeros((1, 2, 3, 4)), "return %0",
    ),
    "conversion of conversion": (
        lambda x: ops.Convert("CHWN")(ops.Convert("NHWC")(x)),
        np.zeros((1, 2, 3, 4)),
        "Convert(format='CHWN') %0",
    ),
    "einsum of matrices": (
        lambda x: ops.einsum("...ij, ...kj -> ...ik", x, x),
        np.arange(12, dtype=np.float32).reshape(2, 2, 3),
        "MatMul(transpose_x=False, transpose_y=True) %0, %0",
    ),
    "einsum in the other order": (
        lambda x: ops.einsum("ji,jk->ki", x, x), X,
        "MatMul(transpose_x=True, transpose_y=False) %0, %0",
    ),
    "product of a transpose": (
        lambda x: ops.transpose(x) @ x, X, "MatMul(transpose_x=True, transpose_y=False) %0, %0",
    ),
    "product of two transposes": (
        lambda x: ops.matmul(ops.transpose(x), ops.transpose(x), transpose_x=True),
        X,
        "MatMul(transpose_x=False, transpose_y=True) %0, %0",
    ),
    "transpose of a product": (
        lambda x: ops.transpose(ops.matmul(x, x, transpose_x=True)),
        X,
        "MatMul(transpose_x=True, transpose_y=False) %0, %0",
    ),
    "prod over no axes": (lambda x: ops.prod(x, ()), X, "return %0"),
    "max over an extent of 1": (lambda x: ops.max(x, 0, keepdims=True), X[:1], "return %0"),
    "where always": (lambda x: ops.where(np.ones((2, 3), bool), x, 1.0), X, "return %0"),
    "where never": (lambda x: ops.where(False, 1.0, x), X, "return %0"),
    "one number many times": (lambda x: x * ops.full((2, 3), 3.0), X, "Mul() %0, 3.0"),
    "one number, first": (lambda x: ops.full((3,), 3.0) - x, X, "Sub() 3.0, %0"),
    "one number, broadcast and reshaped": (
        lambda x: x * ops.reshape(ops.broadcast_to(ops.full((1,), 3.0), (3, 2)), (2, 3)),
        X,
        "Mul() %0, 3.0",
    ),
}  # fmt: skip

KEPT = {
    "x + 0.0 is 0.0 for -0.0": (lambda x: x + 0.0, X),
    "0.0 + x": (lambda x: 0.0 + x, X),
    "x - -0.0": (lambda x: x - -0.0, X),
    "x ** 2 for many exponents": (lambda x: ops.pow(x, ops.full((2, 3), 2.0)), X),
    "x ** 1 for many exponents": (lambda x: ops.pow(x, ops.full((3,), 1.0)), X),
    "x ** 0.5 for many exponents": (lambda x: ops.pow(x, ops.full((2, 3), 0.5)), X),
    "x ** -0.5": (lambda x: x**-0.5, X),
    "sum_to itself begins with 0.0": (lambda x: ops.sum_to(x, (2, 3)), X),
    "sum over no axes": (lambda x: ops.sum(x, ()), X),
    "mean over an extent of 1": (lambda x: ops.mean(x, 0, keepdims=True), X[:1]),
    "0 * x keeps NaN": (lambda x: x * 0.0, X),
    "0 - x": (lambda x: 0.0 - x, X),
    "1 / x": (lambda x: 1.0 / x, X),
    "zeros that widen x": (lambda x: x + np.zeros((4, 2, 3), np.float32), X),
    "a sum that changes the dtype": (lambda x: ops.sum(x, ()), I32),
    "a lossy cast": (cast("float16", "float32"), X),
    "int64 by way of float64": (cast("float64", "int64"), np.zeros(3, np.int64)),
    "floats to integers by way of floats": (cast("float64", "int32"), X),
    "a reduction": (lambda x: ops.sum(x, 0, keepdims=True), X),
    "a transposed square": (ops.transpose, np.zeros((3, 3))),
    "einsum that sums two axes": (lambda x: ops.einsum("ij,ij->", x, x), X),
    "einsum of other axes": (lambda x: ops.einsum("ibj,bjk->bik", x, x), np.ones((2, 2, 2))),
    "a product of other axes exchanged": (
        lambda x: ops.transpose(x, (1, 0, 2)) @ np.ones((3, 2), np.float32),
        np.zeros((2, 2, 3), np.float32),
    ),
    "a choice by a mask": (lambda x: ops.where(X > 2, x, 1.0), X),
    "a choice that widens x": (lambda x: ops.where(np.ones((4, 2, 3), bool), x, 1.0), X),
    "stop_gradient": (ops.stop_gradient, X),
    "repetition across the parts of an axis": (
        lambda x: ops.reshape(spread(spread(x, (4, 2, 3), (6, 4, 1)), (6, 4, 5)), (120,)),
        X,
    ),
    "repetition of nothing": (
        lambda x: spread(spread(x, (4, 0, 3), (3, 0, 1)), (3, 0, 2), (2, 0)),
        np.zeros((0, 3), int),
    ),
    "a mixture of zeros": (lambda x: x / np.array([0.0, -0.0, 0.0], np.float32), X),
}


class TestSimplify:
    @pytest.mark.parametrize("name", SIMPLE)
    def test_an_identity(self, name):
        fn, x, expected = SIMPLE[name]

        def change(graph):
            return prune(simplify(graph))

        first, *rest = body(change, fn, x)
        assert first == expected or (first.endswith(f"= {expected}") and rest == ["return %1"])

    @pytest.mark.parametrize("name", KEPT)
    def test_what_is_no_identity_stays(self, name):
        fn, x = KEPT[name]
        graph = ml.trace(fn, x)
        assert simplify(graph) is graph

    def test_every_rule_is_needed_by_an_example(self, monkeypatch):
        graphs = [ml.trace(fn, x) for fn, x, _ in SIMPLE.values()]
        used = set()
        for rule in RULES:
            others = by_kind([r for r in RULES if r is not rule])
            with monkeypatch.context() as patch:
                patch.setattr("miniml.graph.passes.simplify._BY_KIND", others)
                without = [str(simplify(g)) for g in graphs]
            if without != [str(simplify(g)) for g in graphs]:
                used.add(rule.says)
        assert used == {rule.says for rule in RULES}

    def test_repetitions_and_tiles_are_one_broadcast(self):
        rng = np.random.default_rng(0)
        for _ in range(40):
            x = rng.normal(size=rng.integers(1, 4, rng.integers(1, 4)))
            calls = [(int(n), int(rng.integers(x.ndim))) for n in rng.integers(1, 4, 3)]

            def fn(x, calls=calls):
                for n, axis in calls:
                    x = ops.repeat(x, n, axis)
                return ops.tile(x, (2,) * x.ndim)

            right = x
            for n, axis in calls:
                right = np.repeat(right, n, axis)
            graph = simplify(simplify(ml.trace(fn, x)))
            assert sum(n.primitive.name == "BroadcastTo" for n in prune(graph).nodes) <= 1, graph
            np.testing.assert_array_equal(ml.jit(fn)(x), np.tile(right, (2,) * x.ndim))

    def test_the_line_of_the_call_stays(self):
        graph = ml.trace(lambda x: x * -1.0, X)
        assert simplify(graph).nodes[0].where is graph.nodes[0].where is not None

    @pytest.mark.parametrize("dtype", FLOATS, ids=str)
    @pytest.mark.parametrize("name", [*SIMPLE, *KEPT])
    def test_every_bit_is_that_of_an_eager_call(self, name, dtype):
        fn, like = {**SIMPLE, **KEPT}[name][:2]
        compiled = ml.jit(fn)
        for x in special(like, dtype):
            eager, graph = fn(ml.Tensor(x)).asnumpy(), compiled(ml.Tensor(x)).asnumpy()
            assert bits(eager) == bits(graph), (x, eager, graph)


def special(like, dtype):
    """Arrays like an example, in a dtype if it is of floats, of what rules may go wrong for."""
    if like.dtype.kind != "f":
        return [like]
    info = ml_dtypes.finfo(dtype)
    ends = [info.smallest_subnormal, info.tiny, info.max, np.inf]
    positive = [0.0, *map(float, ends), 1.0, 1.5, 3.0, 0.1]
    ordinary = np.random.default_rng(0).uniform(0.0, 9.0, 100)
    values = np.array([*positive, *(-v for v in positive), np.nan, *ordinary], dtype)
    starts = range(0, values.size, like.size)
    return [np.resize(np.roll(values, -i), like.shape) for i in starts]


def bits(array):
    """The bits of an array, those of all NaN alike."""
    nan = np.isnan(array)
    return nan.tobytes(), np.where(nan, np.zeros((), array.dtype), array).tobytes()


class TestPrune:
    def test_what_nobody_uses_goes(self):
        w, v = parameter(), parameter("v")

        def fn(x, unused):
            ops.exp(ops.sin(x)) + np.arange(6.0).reshape(2, 3) * v
            return ops.cos(x) * w

        assert str(prune(ml.trace(fn, X, X))) == shown("""
            fn(%0: float32[2, 3], %1: float32[2, 3], state %w: float32[2, 3]):
              %2: float32[2, 3] = Cos() %0
              %3: float32[2, 3] = Mul() %2, %w
              return %3
            """)

    def test_effects_and_what_they_need_stay(self):
        w = parameter()

        def fn(x):
            ops.assign(w, ops.exp(x) * w)

        assert body(prune, fn, X) == [
            "%1: float32[2, 3] = Exp() %0",
            "%2: float32[2, 3] = Mul() %1, %w",
            "%3: float32[2, 3] = Assign() %w, %2",
            "return",
        ]

    def test_a_node_stays_for_one_of_its_outputs(self):
        graph = prune(ml.trace(lambda x: ops.topk(x, 2)[1], X))
        assert [n.primitive.name for n in graph.nodes] == ["TopK"]


class TestEverywhere:
    def test_every_pass_reaches_the_graphs_inside_attributes(self):
        def step(x):
            ops.sin(x)
            return (ops.exp(x) + ops.exp(x) * 1.0) * (ops.full((3,), 1.0) + 1.0)

        inner = ml.trace(step, X)
        twice = ml.trace(Repeat(ml.trace(Repeat(inner, 2), X), 3), X)
        assert str(run_passes(twice, verified=True)) == shown("""
            Repeat(%0: float32[2, 3]):
              %1: float32[2, 3] = Repeat(body=<Graph Repeat: 1 nodes>, count=3) %0
                body: Repeat(%0: float32[2, 3]):
                  %1: float32[2, 3] = Repeat(body=<Graph step: 3 nodes>, count=2) %0
                    body: step(%0: float32[2, 3]):
                      %1: float32[2, 3] = Exp() %0
                      %2: float32[2, 3] = Add() %1, %1
                      %3: float32[2, 3] = Mul() %2, 2.0
                      return %3
                  return %1
              return %1
            """)

    def test_a_loop_over_constants_is_not_run_ahead_of_time(self):
        inner = ml.trace(ops.exp, X)
        graph = ml.trace(lambda: Repeat(inner, 2)(ml.Tensor(X)))
        assert everywhere(fold, graph).nodes[0].primitive == Repeat(inner, 2)

    def test_equal_bodies_are_shared(self):
        bodies = [ml.trace(lambda x: ops.exp(x) * 2.0, X) for _ in range(2)]
        graph = share(ml.trace(lambda x: [Repeat(b, 2)(x) for b in bodies], X))
        assert len(graph.nodes) == 1


class TestTogether:
    def test_a_gradient_is_as_short_as_one_written_by_hand(self):
        square = ml.grad.grad(lambda x: ops.sum(x * x * 2.0))
        assert str(run_passes(ml.trace(square, X), verified=True)) == shown("""
            graph(%0: float32[2, 3]):
              %1: float32[2, 3] = Mul() 2.0, %0
              %2: float32[2, 3] = Add() %1, %1
              return %2
            """)

    def test_passes_are_idempotent_on_their_own_result(self):
        fn = ml.grad.value_and_grad(lambda x: ops.mean(ops.exp(x * 2.0) - x**2))
        once = run_passes(ml.trace(fn, X), verified=True)
        assert run_passes(once, verified=True) == once

    def test_the_graph_itself_comes_back_where_nothing_changes(self):
        graph = ml.trace(lambda x, y: ops.exp(x) * y, X, X)
        for _, fn in PIPELINE[:-1]:
            assert fn(graph) is graph

    def test_a_step_keeps_its_effects_in_order(self):
        w, count = parameter(), ml.Parameter(np.array(0), name="count")

        def step(x):
            loss, (g,) = ml.grad.value_and_grad(
                lambda x: ops.sum((x * w) ** 2), argnums=None, weights=(w,)
            )(x)
            ops.assign(w, w - 0.1 * g)
            ops.assign(count, count + 1)
            return loss

        graph = run_passes(ml.trace(step, X), verified=True)
        assert [(p.name) for p, _ in graph.state] == ["w", "count"]
        assigned = [n for n in graph.nodes if n.primitive.name == "Assign"]
        assert [n.inputs[0] for n in assigned] == [v for _, v in graph.state]
        assert replace(graph, name="x").nodes == graph.nodes
