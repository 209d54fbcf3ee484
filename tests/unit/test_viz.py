"""Graphs as pictures and as pages."""

import re
import shutil
import subprocess
from html.parser import HTMLParser
from itertools import pairwise
from textwrap import dedent

import numpy as np
import pytest

import miniml as ml
from miniml import Primitive, ops, viz
from miniml.graph.ir import Graph
from miniml.viz.drawing import draw
from miniml.viz.layout import BOX_HEIGHT, box_width, place

X = np.ones((2, 3), np.float32)


class Loop(Primitive):
    """A body applied again and again."""

    body: Graph

    def infer_shape(self, x):
        return x

    def infer_dtype(self, x):
        return x


def step_graph():
    w = ml.Parameter(X, name='the "w" <#1>')

    def step(x):
        y = ops.leaky_relu(x, 0.5) * w + np.arange(3, dtype=np.float32)
        ops.assign(w, y - 1.0)
        return y

    return ml.trace(step, X)


def loop_graph():
    return ml.trace(lambda x: Loop(ml.trace(ops.exp, X))(x) * 2.0, X)


def shown(expected):
    return dedent(expected).strip("\n")


def test_mermaid():
    assert viz.to_mermaid(step_graph()) == shown("""
        flowchart TD
          i0(["%0<br/>float32[2,3]"])
          s1[("%the__w____1_<br/>float32[2,3]")]
          c2[/"%c0<br/>float32[3]"/]
          n0["LeakyReLU<br/>float32[2,3]"]
          n1["Mul<br/>float32[2,3]"]
          n2["Add<br/>float32[2,3]"]
          n3["Sub 1.0<br/>float32[2,3]"]
          n4[["Assign<br/>float32[2,3]"]]
          out(["return<br/>float32[2,3]"])
          i0 -->|"float32[2,3]"| n0
          n0 -->|"float32[2,3]"| n1
          s1 -->|"float32[2,3]"| n1
          n1 -->|"float32[2,3]"| n2
          c2 -->|"float32[3]"| n2
          n2 -->|"float32[2,3]"| n3
          s1 -->|"float32[2,3]"| n4
          n3 -->|"float32[2,3]"| n4
          n2 -->|"float32[2,3]"| out
        """)


def test_mermaid_draws_inner_graphs_as_boxes_of_boxes():
    assert viz.to_mermaid(loop_graph()) == shown("""
        flowchart TD
          i0(["%0<br/>float32[2,3]"])
          n0["Loop<br/>float32[2,3]"]
          subgraph n0_0["body: Exp"]
            n0_0_i0(["%0<br/>float32[2,3]"])
            n0_0_n0["Exp<br/>float32[2,3]"]
            n0_0_out(["return<br/>float32[2,3]"])
            n0_0_i0 -->|"float32[2,3]"| n0_0_n0
            n0_0_n0 -->|"float32[2,3]"| n0_0_out
          end
          n0 -.- n0_0
          n1["Mul 2.0<br/>float32[2,3]"]
          out(["return<br/>float32[2,3]"])
          i0 -->|"float32[2,3]"| n0
          n0 -->|"float32[2,3]"| n1
          n1 -->|"float32[2,3]"| out
        """)


def test_dot():
    text = viz.to_dot(loop_graph())
    lines = [re.sub(r', tooltip="(\\.|[^"])*"', "", line) for line in text.splitlines()]
    assert "\n".join(lines) == shown(r"""
        digraph "graph" {
          compound=true;
          node [fontname="monospace"];
          i0 [label="%0\nfloat32[2,3]", shape=oval];
          n0 [label="Loop\nfloat32[2,3]", shape=box, style=rounded];
          subgraph cluster_n0_0 {
            label="body: Exp";
            n0_0_i0 [label="%0\nfloat32[2,3]", shape=oval];
            n0_0_n0 [label="Exp\nfloat32[2,3]", shape=box, style=rounded];
            n0_0_out [label="return\nfloat32[2,3]", shape=oval];
            n0_0_i0 -> n0_0_n0 [label="float32[2,3]"];
            n0_0_n0 -> n0_0_out [label="float32[2,3]"];
          }
          n0 -> n0_0_i0 [style=dashed, arrowhead=none, lhead=cluster_n0_0];
          n1 [label="Mul 2.0\nfloat32[2,3]", shape=box, style=rounded];
          out [label="return\nfloat32[2,3]", shape=oval];
          i0 -> n0 [label="float32[2,3]"];
          n0 -> n1 [label="float32[2,3]"];
          n1 -> out [label="float32[2,3]"];
        }
        """)
    if shutil.which("dot"):
        subprocess.run(["dot", "-Tsvg"], input=text, text=True, check=True, capture_output=True)


class Page(HTMLParser):
    """What a page shows, and whether its tags close."""

    def __init__(self, source):
        super().__init__()
        self.open, self.boxes, self.headings, self.addresses = [], {}, [], []
        self.feed(source)
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        values = dict(attrs)
        self.addresses += [v for k, v in attrs if k in ("src", "href", "data", "action")]
        if "data-details" in values:
            self.boxes[values["id"]] = values["data-details"]
        if tag != "meta":
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        pass

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if self.open and self.open[-1] == "h2":
            self.headings.append(data)


def test_the_page_shows_types_attributes_and_the_users_line(tmp_path):
    path = viz.to_html(step_graph(), tmp_path / "step.html")
    source = path.read_text(encoding="utf-8")
    page = Page(source)
    assert page.addresses == []
    assert "http" not in source
    assert page.headings == ["step"]
    relu = page.boxes["n0"].splitlines()
    assert relu[:2] == ["%1: float32[2,3] = LeakyReLU(slope=0.5) %0", "slope = 0.5"]
    assert relu[2].startswith("test_viz.py:")
    assert relu[2].endswith("y = ops.leaky_relu(x, 0.5) * w + np.arange(3, dtype=np.float32)")


def test_the_page_draws_inner_graphs_below(tmp_path):
    page = Page(viz.to_html(loop_graph(), tmp_path / "loop.html").read_text(encoding="utf-8"))
    assert page.headings == ["graph", "graph / Loop body: Exp"]
    assert "n0_0_n0" in page.boxes


@pytest.mark.parametrize("make", [step_graph, loop_graph, lambda: ml.trace(lambda: 1)])
def test_arrows_point_down_and_boxes_do_not_overlap(make):
    drawing = draw(make())
    placed = place(drawing)
    for arrow, path in zip(drawing.arrows, placed.paths, strict=True):
        heights = [y for _, y in path]
        assert heights == sorted(set(heights))
        assert path[0] == placed.centres[arrow.source]
        assert path[-1] == placed.centres[arrow.target]
    spans = {}
    for box in drawing.boxes:
        x, y = placed.centres[box.key]
        half = box_width(box) / 2
        assert half <= x <= placed.width - half
        assert BOX_HEIGHT / 2 <= y <= placed.height - BOX_HEIGHT / 2
        spans.setdefault(y, []).append((x - half, x + half))
    for row in spans.values():
        row.sort()
        assert all(a[1] < b[0] for a, b in pairwise(row))


def test_a_long_graph_is_drawn_without_recursion(tmp_path):
    def fn(x):
        for _ in range(2500):
            x = ops.sin(x)
        return x

    graph = ml.trace(fn, X)
    assert viz.to_mermaid(graph).count("Sin") == 2500
    assert len(Page(viz.to_html(graph, tmp_path / "long.html").read_text()).boxes) == 2502
