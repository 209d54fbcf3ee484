"""Passes and rules of users: positions, patterns, types, and what breaks a graph, by name."""

from dataclasses import replace

import numpy as np
import pytest

import miniml as ml
from miniml import Primitive, infer_rule, kernel, ops
from miniml.errors import DeclarationError, DuplicateError, GraphError
from miniml.graph.passes import PIPELINE, pipeline, run_passes
from miniml.graph.passes.pipeline import rule
from miniml.graph.passes.simplify import Rule
from miniml.ops import rules

X = np.arange(6, dtype=np.float32).reshape(2, 3)
Y = np.ones((2, 3), np.float32)


class RuleAddN(Primitive):
    """The sum of any number of tensors."""

    inputs = "*xs"
    infer_shape = rules.same


@kernel("RuleAddN", "cpu", "f*->f")
def add_n_cpu(*xs, out):
    np.copyto(out, sum(xs))


@infer_rule("Custom_AddN")
def infer_custom(*xs):
    return xs[0]


@kernel("Custom_AddN", "cpu", "f*->f")
def custom_cpu(*xs, input_num, out):
    assert int(input_num) == len(xs)
    np.copyto(out, sum(xs))


@pytest.fixture(autouse=True)
def _no_pass_is_left_behind():
    yield
    for name, _ in pipeline():
        ml.unregister_pass(name)
    assert pipeline() == PIPELINE


def passed(fn, *args):
    """The names of the primitives that are left of a function."""
    graph = run_passes(ml.trace(fn, *args))
    return [n.primitive.name for n in graph.nodes]


def custom(count):
    return ops.Custom("Custom_AddN", {"input_num": b"%d" % count, "op_kind": b"custom op"})


def as_custom(graph):
    """A pass by hand: each RuleAddN of the graph, of any number of inputs, as a Custom."""

    def changed(node):
        if not isinstance(node.primitive, RuleAddN):
            return node
        return replace(node, primitive=custom(len(node.inputs)))

    return replace(graph, nodes=tuple(map(changed, graph.nodes)))


@pytest.mark.parametrize("by_rule", [True, False], ids=["by a rule", "by a pass"])
def test_the_documents_example_leaves_one_node_of_a_custom_type(by_rule):
    ml.register_rule(lambda x, y, z: ops.add(ops.add(x, y), z), RuleAddN())
    if by_rule:
        ml.register_rule(lambda x, y, z, n=RuleAddN: n(x, y, z), custom(3))
    else:
        ml.register_pass("CustomAddN", as_custom, "end")
    graph = run_passes(ml.trace(lambda a, b, c: a + b + c, X, Y, Y))
    (node,) = graph.nodes
    assert node.primitive.name == "Custom_AddN"
    assert node.primitive.attributes == {"input_num": b"3", "op_kind": b"custom op"}
    assert len(node.inputs) == 3
    out = ml.jit(lambda a, b, c: a + b + c)(X, Y, Y)
    np.testing.assert_array_equal(out.asnumpy(), X + 2)


class TestPatterns:
    def test_a_rule_of_a_user_is_the_rule_of_the_table(self):
        made = rule(lambda x: ops.exp(ops.log(x)), lambda x: x)
        assert isinstance(made, Rule)
        assert (made.says, made.kinds) == ("Exp(Log(x))", (ops.Exp,))

    def test_it_is_named_by_its_pattern_and_found_by_that_name(self):
        name = ml.register_rule(lambda x, y: ops.exp(x) * y, lambda x, y: y)
        assert name == "Mul(Exp(x), y)"
        order = [p.name for p in pipeline()]
        assert order.index(name) == order.index("simplify") + 1
        ml.unregister_pass(name)
        assert pipeline() == PIPELINE

    def test_operators_and_functions_mean_their_primitives(self):
        ml.register_rule(lambda x: ops.sum(x, 0), lambda x: ops.max(x, 0))
        assert passed(lambda x: ops.sum(x, 0), X) == ["Max"]
        assert passed(lambda x: ops.sum(x, 1), X) == ["Sum"]

    def test_a_variable_twice_is_one_value(self):
        ml.register_rule(lambda x: x * x, ops.square)
        assert passed(lambda x: ops.sin(x) * ops.sin(x), X) == ["Sin", "Square"]
        assert passed(lambda x, y: x * y, X, Y) == ["Mul"]

    def test_a_number_is_an_array_filled_with_it(self):
        ml.register_rule(lambda x: x * 2.0, lambda x: x + x, where=lambda x, out: x == out)
        assert passed(lambda x: x * 2.0, X) == ["Add"]
        assert passed(lambda x: ops.full((2, 3), 2.0) * x, X) == ["Add"]
        assert passed(lambda x: x * 3.0, X) == ["Mul"]
        assert passed(lambda x: ops.sum(x) * ops.full((2, 3), 2.0), X) == ["Sum", "Mul"]

    def test_the_inputs_of_a_commutative_primitive_come_in_any_order(self):
        ml.register_rule(lambda x, y: ops.exp(x) - y, lambda x, y: x)
        ml.register_rule(lambda x, y: ops.exp(x) + ops.sin(y), ops.maximum)
        assert passed(lambda x, y: ops.sin(y) + ops.exp(x), X, Y) == ["Maximum"]
        assert passed(lambda x, y: y - ops.exp(x), X, Y) == ["Exp", "Sub"]

    def test_attributes_are_captured_with_their_primitive(self):
        ml.register_rule(
            lambda x, t=ops.Transpose, s=ops.Softmax: s(t(x)),
            lambda x, t, s: t(ops.softmax(x, t.axes[s.axis])),
        )
        fn = lambda x: ops.softmax(ops.transpose(x, (1, 0)), 1)  # noqa: E731
        graph = run_passes(ml.trace(fn, X))
        assert [repr(n.primitive) for n in graph.nodes] == [
            "Softmax(axis=0)", "Transpose(axes=(1, 0))",
        ]  # fmt: skip
        np.testing.assert_allclose(ml.jit(fn)(X).asnumpy(), fn(ml.Tensor(X)).asnumpy())

    def test_a_replacement_of_any_number_of_inputs_gets_them_in_order(self):
        ml.register_rule(lambda y, x, s=ops.Softmax: y - s(x), RuleAddN())
        graph = run_passes(ml.trace(lambda x, y: y - ops.softmax(x), X, Y))
        assert graph.nodes[0].inputs == graph.inputs[::-1]

    def test_where_sees_types_and_primitives(self):
        ml.register_rule(
            lambda x, r=ops.Sum: r(x), lambda x, r: ops.max(x, r.axis),
            where=lambda x, r, out: r.axis == 0 and x.ndim == 2 and out.shape == (3,),
        )  # fmt: skip
        assert passed(lambda x: ops.sum(x, 0), X) == ["Max"]
        assert passed(lambda x: ops.sum(x, 1), X) == ["Sum"]
        assert passed(lambda x: ops.sum(x, 0), X[0]) == ["Sum"]

    def test_const_inputs_are_values_or_variables(self):
        class RulePower(Primitive):
            inputs = ("x", "n")
            const_inputs = ("n",)
            like = "x"

        ml.register_rule(lambda x: RulePower()(x, 2), lambda x: x * x)
        ml.register_rule(
            lambda x, m, n: RulePower()(RulePower()(x, m), n),
            lambda x, m, n: RulePower()(x, m * n),
            position="before:fold",
        )
        power = RulePower()
        assert passed(lambda x: power(x, 2), X) == ["Mul"]
        graph = run_passes(ml.trace(lambda x: power(power(power(x, 3), 5), 7), X))
        assert [n.consts for n in graph.nodes] == [(("n", 105),)]

    def test_what_is_put_in_place_is_looked_at_again(self):
        ml.register_rule(lambda x, y: ops.log(x * y), lambda x, y: ops.log(x) + ops.log(y))
        names = passed(lambda a, b, c: ops.log(a * b * c), X, Y, Y + 1)
        assert sorted(names) == ["Add", "Add", "Log", "Log", "Log"]

    def test_inner_values_that_others_read_stay(self):
        ml.register_rule(lambda x: ops.exp(ops.sin(x)), ops.cos)

        def fn(x):
            inner = ops.sin(x)
            return ops.exp(inner), inner

        assert passed(fn, X) == ["Sin", "Cos"]

    def test_constants_and_graphs_inside_graphs(self):
        table = ml.Tensor([1.0, 2.0, 3.0])
        ml.register_rule(ops.sin, lambda x: x * table)
        fn = lambda x: ops.cond(x[0, 0] > 0, ops.sin, ops.cos, x)  # noqa: E731
        run = ml.jit(fn)
        np.testing.assert_array_equal(run(X + 1).asnumpy(), (X + 1) * [1, 2, 3])

    def test_gradients_pass_through_what_was_written(self):
        """Rules come after differentiation: they change what is computed, not what it means."""
        ml.register_rule(ops.tanh, lambda x: 2.0 * ops.sigmoid(2.0 * x) - 1.0)
        slope = ml.jit(ml.grad.grad(lambda x: ops.sum(ops.tanh(x))))
        np.testing.assert_allclose(slope(X).asnumpy(), 1 - np.tanh(X) ** 2, atol=1e-6)


class TestRefusedRules:
    @pytest.mark.parametrize(
        ("pattern", "replacement", "message"),
        [
            (lambda x: x, lambda x: x, "has a pattern that gives x; it gives a call"),
            (3, lambda x: x, "a rule got 3 for its pattern, which is a function"),
            (ops.exp, None, "a rule got None for its replacement, which is a function"),
            (lambda x: 2.0, lambda x: x, "has a pattern that gives 2.0; it gives a call"),
            (ops.Sort(), lambda x: x, "gives a call of a primitive with one output"),
            (lambda x, y: ops.exp(x), lambda x: x, "variable y does not occur; take it out"),
            (ops.exp, lambda z: z, "function of z; its pattern has x; use these"),
            (lambda x: ops.exp(x, x), lambda x: x, "calls Exp with 2 inputs; it takes x"),
            (ops.Assign(), lambda x: x, "calls Assign, which has an effect"),
            (lambda x: ops.Split(0, 2)(x)[0], lambda x: x, "gives any number of outputs"),
            (lambda x: x + np.ones(3), lambda x: x, "a pattern passes array.* to Add; it is made"),
            (lambda x, k=3: x + k, lambda x: x, "has the parameter k=3; a default is the class"),
            (RuleAddN(), lambda x: x, "takes its variables by position"),
            (lambda x: ops.transpose(x) + 1.0, lambda x: x, "values have no shape; call"),
            (lambda out: out + 1.0, lambda out: out, "a variable out; in where, out is the"),
            (lambda x: ops.exp(x) if x > 0 else x, lambda x: x, "bool needs numbers"),
        ],
    )  # fmt: skip
    def test_when_they_are_registered(self, pattern, replacement, message):
        with pytest.raises((DeclarationError, GraphError), match=message):
            ml.register_rule(pattern, replacement)
        assert pipeline() == PIPELINE

    @pytest.mark.parametrize(
        ("replacement", "message"),
        [
            (lambda x: ops.cast(x, ml.float64),
             r"the call gives float32\[2, 3\], its replacement float64\[2, 3\]"),
            (ops.sum, r"the call gives float32\[2, 3\], its replacement float32\[\]"),
            (lambda x: 3.0, "its replacement is 3.0, which is not a tensor"),
            (lambda x: x.shape[7], r"it raises IndexError\('tuple index out of range'\)"),
            (lambda x: ops.dropout(x, 0.5), "its replacement reads or writes parameters or ra"),
        ],
    )  # fmt: skip
    def test_where_they_would_apply(self, replacement, message):
        name = ml.register_rule(ops.exp, replacement)
        match = rf"rule 'Exp\(x\)' cannot replace Exp\(\): {message}"
        with pytest.raises(GraphError, match=match) as caught:
            ml.jit(lambda x: ops.exp(x) + 1.0)(X)  # the user's own line
        assert "ml.jit(lambda x: ops.exp(x) + 1.0)" in caught.value.__notes__[0]
        assert "Exp was called at" in caught.value.__notes__[0]
        with ml.context(disabled_passes=(name,)):
            assert ml.jit(ops.exp)(X).shape == (2, 3)

    def test_a_condition_that_raises(self):
        ml.register_rule(ops.exp, ops.sin, where=lambda x: x.shape[7] > 1, name="mine")
        with pytest.raises(GraphError, match=r"rule 'mine' cannot replace Exp\(\): it raises"):
            ml.jit(ops.exp)(X)

    def test_one_that_never_ends(self):
        ml.register_rule(lambda x, y: x - y, lambda x, y: y - x, name="swap")
        with pytest.raises(GraphError, match="does not end: what 'swap' puts in place of"):
            run_passes(ml.trace(lambda x, y: x - y, X, Y))

    def test_two_of_one_name(self):
        ml.register_rule(ops.exp, lambda x: x, name="mine")
        with pytest.raises(DuplicateError, match="there is a pass 'mine' already"):
            ml.register_rule(ops.sin, lambda x: x, name="mine")
        with pytest.raises(DuplicateError, match="there is a pass 'mine' already"):
            ml.register_pass("mine", lambda graph: graph, "end")

    def test_a_cell_that_is_run_twice_replaces_its_rule(self):
        def cell():
            return ml.register_rule(ops.exp, ops.sin)

        assert cell() == cell()
        assert passed(ops.exp, X) == ["Sin"]


class TestSchedule:
    def test_registering_and_scheduling_are_two_acts(self):
        seen = []

        def spy(graph):
            seen.append(len(graph.nodes))
            return graph

        ml.register_pass("spy", spy, None)
        run_passes(ml.trace(lambda x: x * 1.0 + 0.5, X))
        assert seen == []
        for position in ("begin", "after:simplify", "begin"):
            ml.schedule_pass("spy", position)
        run_passes(ml.trace(lambda x: x * 1.0 + 0.5, X))
        assert seen == [2, 1]
        with ml.context(disabled_passes="spy"):
            ml.jit(lambda x: x * 1.0)(X)
        assert seen == [2, 1]

    def test_a_later_schedule_comes_behind_and_replaces_nothing(self):
        for name in ("a", "b", "c"):
            ml.register_pass(name, lambda graph: graph, None)
        for name in ("b", "a"):
            ml.schedule_pass(name, "begin")
        ml.schedule_pass("c", "begin")
        assert [p.name for p in pipeline()][:3] == ["b", "a", "c"]

    def test_one_pass_around_built_in_ones_and_in_lowering(self):
        seen = []

        def spy(graph):
            seen.append(graph)
            return graph

        ml.register_pass("spy", spy, "before:fold")
        ml.schedule_pass("spy", "after:legalize")
        ml.jit(lambda x: x * 2.0)(X)
        assert len(seen) == 2

    def test_one_name_is_scheduled_at_a_time(self):
        with pytest.raises(DeclarationError, match=r"got \['a', 'b'\]; it takes the name of one"):
            ml.schedule_pass(["a", "b"], "begin")

    def test_a_rule_is_scheduled_as_a_pass_is(self):
        name = ml.register_rule(lambda x: ops.exp(ops.log(x)), lambda x: x, position="end")
        ml.schedule_pass(name, "begin")
        names = [p.name for p in pipeline()]
        assert (names[0], names[-1], names.count(name)) == (name, name, 2)
        ml.unregister_pass(name)
        assert pipeline() == PIPELINE

    def test_refusals(self):
        with pytest.raises(GraphError, match=r"pass 'gone' is not registered.*registered are none"):
            ml.schedule_pass("gone", "end")
        ml.register_pass("here", lambda graph: graph)
        with pytest.raises(GraphError, match="position 'middle' is unknown; use begin, "):
            ml.schedule_pass("here", "middle")
        with pytest.raises(DuplicateError, match="there is a pass 'here' already"):
            ml.register_pass("here", lambda graph: graph, "begin")
        with pytest.raises(GraphError, match="takes a target, which there is not at "):
            ml.register_pass("pair", lambda graph, target: graph, "end")
        with pytest.raises(DeclarationError, match=r"pass 'three' takes \(a, b, c\); a pass takes"):
            ml.register_pass("three", lambda a, b, c: a)
        with pytest.raises(DeclarationError, match="pass 'number' is 3; a pass is a function"):
            ml.register_pass("number", 3)
        with pytest.raises(DeclarationError, match="a pass got the name 3; a name is a string"):
            ml.register_pass(3, lambda graph: graph)


def cycle(graph):
    a, b = graph.nodes[:2]
    return replace(graph, nodes=(replace(a, inputs=b.outputs), b, *graph.nodes[2:]))


def dangling(graph):
    return replace(graph, nodes=graph.nodes[1:])


def backwards(graph):
    return replace(graph, nodes=graph.nodes[::-1])


def other_type(graph):
    return replace(graph, outputs=graph.nodes[0].outputs)


BROKEN = {
    cycle: r"input 0, %2, is used before it is defined: %2: .* = Cos\(\) %1 needs %1 in turn",
    dangling: "input 0, .*, is used before it is defined: no node, input, constant or parameter",
    backwards: r"= Cos\(\) .* comes later; nodes stand in the order in which they run",
    other_type: r"has other outputs than before: float32\[2, 3\]; it had float32\[\]",
}


@pytest.mark.parametrize("broken", BROKEN, ids=lambda b: b.__name__)
def test_a_pass_that_breaks_the_graph_is_named_without_being_asked_for(broken):
    ml.register_pass("breaks it", broken, "end")
    with pytest.raises(GraphError, match=f"pass 'breaks it' broke a rule .*{BROKEN[broken]}"):
        ml.jit(lambda x: ops.sum(ops.cos(ops.sin(x))))(X)
    with ml.context(disabled_passes="breaks it"):
        ml.jit(lambda x: ops.sum(ops.cos(ops.sin(x))))(X)


def test_a_pass_that_raises_is_named():
    ml.register_pass("raises", lambda graph: graph.nothing)
    with pytest.raises(AttributeError) as caught:
        ml.jit(lambda x: x * 2.0)(X)
    assert "in pass 'raises'" in caught.value.__notes__
