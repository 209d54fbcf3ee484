"""The text of a graph."""

from textwrap import dedent

import numpy as np
import pytest

import miniml as ml
from miniml import Primitive, ops
from miniml.graph.ir import Graph, text
from miniml.ops import Unary

X = np.zeros((2, 3), np.float32)


class Twice(Unary):
    """A body applied twice."""

    body: Graph


class Choose(Unary):
    """One of several bodies."""

    bodies: tuple


class Halves(Primitive):
    """Two outputs and a const input."""

    const_inputs = ("order",)
    outputs = ("low", "high")
    scale: float = 1.0

    def infer_shape(self, x, order):
        return (x[0] // 2,), (x[0] - x[0] // 2,)

    def infer_dtype(self, x, order):
        return x, ml.int64


def shown(expected):
    return dedent(expected).strip("\n")


def test_parameters_are_printed_by_name_and_told_apart():
    ws = [ml.Parameter(X, name=n) for n in ("fc.weight", "fc.weight", "0", "a b", "c0")]
    graph = ml.trace(lambda x: sum((w for w in ws), x) + X.astype("d")[:1], X)
    assert str(graph) == shown("""
        graph(
            %0: float32[2, 3],
            state %fc.weight: float32[2, 3],
            state %fc.weight_2: float32[2, 3],
            state %p0: float32[2, 3],
            state %a_b: float32[2, 3],
            state %c0: float32[2, 3],
        ):
          %c0_2: float64[1, 3] = constant [[0., 0., 0.]]
          %1: float32[2, 3] = Add() %0, %fc.weight
          %2: float32[2, 3] = Add() %1, %fc.weight_2
          %3: float32[2, 3] = Add() %2, %p0
          %4: float32[2, 3] = Add() %3, %a_b
          %5: float32[2, 3] = Add() %4, %c0
          %6: float64[2, 3] = Cast(dtype=float64) %5
          %7: float64[2, 3] = Add() %6, %c0_2
          return %7
        """)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (np.float32(1), "1.0"),
        (np.float32(0.1), "0.1"),
        (np.float32(1e30), "1e+30"),
        (np.float32(-np.inf), "-inf"),
        (np.float64(0.1), "float64(0.1)"),
        (np.array(3, ml.bfloat16), "bfloat16(3.0)"),
        (np.int64(-7), "-7"),
        (np.uint8(7), "uint8(7)"),
        (np.bool_(True), "True"),
    ],
)
def test_scalar_constants_stand_where_they_are_used(value, expected):
    graph = ml.trace(lambda: ml.Tensor(value))
    assert str(graph) == f"graph():\n  return {expected}"


def test_larger_constants_have_lines_and_small_ones_show_their_elements():
    big = np.arange(100.0)
    graph = ml.trace(lambda: (ml.Tensor(big), ml.Tensor([[1, 2], [3, 4]])))
    assert str(graph) == shown("""
        graph():
          %c0: float64[100] = constant
          %c1: int64[2, 2] = constant [[1, 2], [3, 4]]
          return %c0, %c1
        """)


def test_attributes_const_inputs_and_several_outputs():
    assert str(ml.trace(lambda x: Halves(0.5)(x, [1, 0]), np.zeros(5, "f"))) == shown("""
        graph(%0: float32[5]):
          %1: float32[2], %2: int64[3] = Halves(scale=0.5, order=(1, 0)) %0
          return %1, %2
        """)


def test_graphs_inside_attributes_are_printed_below_their_node():
    def body(x):
        return ops.exp(x) * 2.0

    inner = ml.trace(body, X)
    outer = ml.trace(lambda x: -Twice(ml.trace(Twice(inner), X))(x), X)
    outer_text = str(outer)
    assert outer_text == shown("""
        graph(%0: float32[2, 3]):
          %1: float32[2, 3] = Twice(body=<Graph Twice: 1 nodes>) %0
            body: Twice(%0: float32[2, 3]):
              %1: float32[2, 3] = Twice(body=<Graph body: 2 nodes>) %0
                body: body(%0: float32[2, 3]):
                  %1: float32[2, 3] = Exp() %0
                  %2: float32[2, 3] = Mul() %1, 2.0
                  return %2
              return %1
          %2: float32[2, 3] = Neg() %1
          return %2
        """)
    both = ml.trace(Choose((inner, inner)), X)
    assert "\n    bodies[0]: body(%0" in str(both)
    assert "\n    bodies[1]: body(%0" in str(both)


def test_the_users_line_as_a_comment():
    graph = ml.trace(lambda x: ops.exp(-x), X)
    comment = text(graph, where=True).splitlines()[2].partition("  # ")[2]
    assert comment.startswith("test_printer.py:")
    assert comment.endswith(": graph = ml.trace(lambda x: ops.exp(-x), X)")
    assert "#" not in text(graph)


def test_a_graph_has_a_short_repr():
    graph = ml.trace(ops.exp, X)
    assert repr(graph) == "<Graph Exp: 1 nodes>"


def test_equal_programs_have_equal_text_and_are_equal():
    first, second = (ml.trace(lambda x: ops.exp(x) + 1.0, X) for _ in range(2))
    assert str(first) == str(second)
    assert first == second
    assert first != ml.trace(lambda x: ops.exp(x) + 2.0, X)
