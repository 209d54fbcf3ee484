"""What must be known when a model is read: the error names the inputs it comes from, and only
those; with their values given, the model is read and right."""

import random
import re

import numpy as np
import pytest

import miniml as ml
from miniml.errors import OnnxError

pytest.importorskip("onnx", reason="no onnx")

from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

INT, OPSETS = TensorProto.INT64, [helper.make_opsetid("", 18), helper.make_opsetid("mine", 1)]
SWAP = helper.make_function(
    "mine", "Swap", ["a", "b"], ["p", "q"],
    [helper.make_node("Identity", ["b"], ["p"]), helper.make_node("Max", ["a", "b"], ["m"]),
     helper.make_node("Max", ["a", "a"], ["q"])],
    OPSETS[:1],
)  # fmt: skip

LOOP = "a loop"  # behind its results, which are known where a shape needs them, but not elsewhere


def ints(name, shape=(1,)):
    return helper.make_tensor_value_info(name, INT, shape)


def graph_of(name, nodes, inputs, output):
    return helper.make_graph(nodes, name, inputs, [ints(output, None)])


class Drawn:
    """A model of inputs of one small number each, and the inputs that each value comes from."""

    def __init__(self, seed):
        self.draw = random.Random(seed)
        self.behind = {f"in{i}": {f"in{i}"} for i in range(5)} | {"two": set()}
        self.inputs = {name: np.array([self.draw.randint(1, 3)]) for name in self.behind}
        self.inputs.pop("two")
        self.nodes = []
        kinds = [self.pair, self.pair, self.shape, self.call, self.branch, self.loop]
        for _ in range(self.draw.randint(0, 7)):
            self.draw.choice(kinds)()

    def one(self):
        """A value, late ones more often."""
        return self.draw.choice([*self.behind, *list(self.behind)[-3:]])

    def node(self, type_, inputs, *behind, **attributes):
        """A node whose outputs come from these inputs of the model."""
        outputs = [f"v{len(self.nodes)}_{i}" for i in range(len(behind))]
        self.nodes.append(helper.make_node(type_, inputs, outputs, **attributes))
        self.behind |= dict(zip(outputs, behind, strict=True))
        return outputs[-1]

    def pair(self):
        a, b = self.one(), self.one()
        self.node(self.draw.choice(["Add", "Max"]), [a, b], self.behind[a] | self.behind[b])

    def shape(self):
        """Known, whatever it is the shape of."""
        self.node("Shape", [self.one()], set())

    def call(self):
        a, b = self.one(), self.one()
        self.node("Swap", [a, b], self.behind[b], self.behind[a], domain="mine")

    def branch(self):
        """Of a condition that is not known, and with values from around it."""
        c, a, b = self.draw.choice([*self.inputs]), self.one(), self.one()
        less = self.node("Less", [c, "two"], self.behind[c])
        self.behind.pop(less)  # a truth value, which the others cannot take
        then_branch, else_branch = (
            graph_of(f"of {n}", [helper.make_node("Identity", [n], [f"{less}{side}"])], [],
                     f"{less}{side}")
            for n, side in ((a, "yes"), (b, "no"))
        )  # fmt: skip
        came = set().union(*(self.behind[n] for n in (a, b, c)))
        self.node("If", [less], came, then_branch=then_branch, else_branch=else_branch)

    def loop(self):
        """Of two turns, which carries an input and adds a value from around it."""
        a, b = self.draw.choice([*self.inputs]), self.one()
        i = len(self.nodes)
        body = helper.make_graph(
            [helper.make_node("Identity", [f"go{i}"], [f"on{i}"]),
             helper.make_node("Add", [f"s{i}", b], [f"t{i}"])],
            "body",
            [ints(f"turn{i}", ()), helper.make_tensor_value_info(f"go{i}", TensorProto.BOOL, ()),
             ints(f"s{i}")],
            [helper.make_tensor_value_info(f"on{i}", TensorProto.BOOL, ()), ints(f"t{i}")],
        )  # fmt: skip
        came = self.behind[a] | self.behind[b] | {LOOP}
        self.node("Loop", ["turns", "go", a], came, body=body)

    def model(self, last, *nodes):
        graph = helper.make_graph(
            [*self.nodes, *nodes], "net",
            [*map(ints, self.inputs), helper.make_tensor_value_info("x", TensorProto.FLOAT, (1,))],
            [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
            [numpy_helper.from_array(np.array([2]), "two"),
             numpy_helper.from_array(np.array(2), "turns"),
             numpy_helper.from_array(np.array(True), "go"),
             numpy_helper.from_array(np.ones((2, 3), np.float32), "m")],
        )  # fmt: skip
        return helper.make_model(graph, opset_imports=OPSETS, functions=[SWAP])


def asked(error):
    return set(re.findall(r"'(\w+)': \.\.\.", str(error)))


def check(drawn, proto, behind):
    """Refused with the names of `behind`; with their values, what onnx's own evaluator gives."""
    x = np.array([0.5], np.float32)
    if behind:
        with pytest.raises(OnnxError, match=r"give values=\{") as caught:
            ml.onnx.load(proto)
        assert asked(caught.value) == behind
    graph = ml.onnx.load(proto, values={name: drawn.inputs[name] for name in behind})
    out = graph(x=x, **{n: v for n, v in drawn.inputs.items() if n not in behind})
    (expected,) = ReferenceEvaluator(proto).run(None, {**drawn.inputs, "x": x})
    np.testing.assert_array_equal(out.asnumpy(), expected)


@pytest.mark.parametrize("seed", range(40))
def test_a_shape_asks_for_the_inputs_that_it_comes_from(seed):
    drawn = Drawn(seed)
    name = [*drawn.behind][-1]
    proto = drawn.model(name, helper.make_node("Tile", ["x", name], ["y"]))
    check(drawn, proto, drawn.behind[name] - {LOOP})


@pytest.mark.parametrize("seed", range(40))
def test_a_branch_that_cannot_be_read_asks_for_what_its_condition_comes_from(seed):
    """The branch that no call takes: it multiplies matrices that do not fit, or has another shape
    than the one that is taken."""
    drawn = Drawn(100 + seed)
    name = [*drawn.behind][-1]
    value = helper.make_tensor_value_info("t", TensorProto.FLOAT, None)
    wrong = helper.make_node(*(("MatMul", ["m", "m"]) if seed % 2 else ("Neg", ["m"])), ["t"])
    branches = {
        "then_branch": helper.make_graph([helper.make_node("Exp", ["x"], ["t"])], "a", [], [value]),
        "else_branch": helper.make_graph([wrong], "b", [], [value]),
    }
    proto = drawn.model(
        name,
        helper.make_node("Greater", [name, "none"], ["p"]),
        helper.make_node("If", ["p"], ["y"], **branches),
    )
    proto.graph.initializer.append(numpy_helper.from_array(np.array([0]), "none"))
    if LOOP in drawn.behind[name]:
        with pytest.raises(OnnxError) as caught:
            ml.onnx.load(proto, values=drawn.inputs)
        assert "give values" not in str(caught.value)
        return
    check(drawn, proto, drawn.behind[name])
