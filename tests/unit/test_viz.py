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
from miniml import nn, ops, optim, viz
from miniml.errors import MinimlError
from miniml.graph.ir import Graph
from miniml.ops import Unary
from miniml.viz.page import BOX_HEIGHT, box_width, drawing_of, fold, layout_of

X = np.ones((2, 3), np.float32)


class Loop(Unary):
    """A body applied again and again."""

    body: Graph


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
          i0(["%0<br/>float32[2, 3]"])
          s1[("%the__w____1_<br/>float32[2, 3]")]
          c2[/"%c0<br/>float32[3]"/]
          n0["LeakyReLU<br/>float32[2, 3]"]
          n1["Mul<br/>float32[2, 3]"]
          n2["Add<br/>float32[2, 3]"]
          n3["Sub 1.0<br/>float32[2, 3]"]
          n4[["Assign<br/>float32[2, 3]"]]
          out(["return<br/>float32[2, 3]"])
          i0 -->|"float32[2, 3]"| n0
          n0 -->|"float32[2, 3]"| n1
          s1 -->|"float32[2, 3]"| n1
          n1 -->|"float32[2, 3]"| n2
          c2 -->|"float32[3]"| n2
          n2 -->|"float32[2, 3]"| n3
          s1 -->|"float32[2, 3]"| n4
          n3 -->|"float32[2, 3]"| n4
          n2 -->|"float32[2, 3]"| out
        """)


def test_mermaid_draws_inner_graphs_as_boxes_of_boxes():
    assert viz.to_mermaid(loop_graph()) == shown("""
        flowchart TD
          i0(["%0<br/>float32[2, 3]"])
          n0["Loop<br/>float32[2, 3]"]
          subgraph n0_0["body: Exp"]
            n0_0_i0(["%0<br/>float32[2, 3]"])
            n0_0_n0["Exp<br/>float32[2, 3]"]
            n0_0_out(["return<br/>float32[2, 3]"])
            n0_0_i0 -->|"float32[2, 3]"| n0_0_n0
            n0_0_n0 -->|"float32[2, 3]"| n0_0_out
          end
          n0 -.- n0_0
          n1["Mul 2.0<br/>float32[2, 3]"]
          out(["return<br/>float32[2, 3]"])
          i0 -->|"float32[2, 3]"| n0
          n0 -->|"float32[2, 3]"| n1
          n1 -->|"float32[2, 3]"| out
        """)


def test_dot():
    text = viz.to_dot(loop_graph())
    lines = [re.sub(r', tooltip="(\\.|[^"])*"', "", line) for line in text.splitlines()]
    assert "\n".join(lines) == shown(r"""
        digraph "graph" {
          compound=true;
          node [fontname="monospace"];
          i0 [label="%0\nfloat32[2, 3]", shape=oval];
          n0 [label="Loop\nfloat32[2, 3]", shape=box, style=rounded];
          subgraph cluster_n0_0 {
            label="body: Exp";
            n0_0_i0 [label="%0\nfloat32[2, 3]", shape=oval];
            n0_0_n0 [label="Exp\nfloat32[2, 3]", shape=box, style=rounded];
            n0_0_out [label="return\nfloat32[2, 3]", shape=oval];
            n0_0_i0 -> n0_0_n0 [label="float32[2, 3]"];
            n0_0_n0 -> n0_0_out [label="float32[2, 3]"];
          }
          n0 -> n0_0_i0 [style=dashed, arrowhead=none, lhead=cluster_n0_0];
          n1 [label="Mul 2.0\nfloat32[2, 3]", shape=box, style=rounded];
          out [label="return\nfloat32[2, 3]", shape=oval];
          i0 -> n0 [label="float32[2, 3]"];
          n0 -> n1 [label="float32[2, 3]"];
          n1 -> out [label="float32[2, 3]"];
        }
        """)
    if shutil.which("dot"):
        subprocess.run(["dot", "-Tsvg"], input=text, text=True, check=True, capture_output=True)


class Page(HTMLParser):
    """What a page shows, and whether its tags close."""

    def __init__(self, source):
        super().__init__()
        self.open, self.boxes, self.headings, self.addresses = [], {}, [], []
        self.links, self.sections = [], []
        self.feed(source)
        assert self.open == []
        assert set(self.links) <= set(self.sections)

    def handle_starttag(self, tag, attrs):
        values = dict(attrs)
        addresses = [v for k, v in attrs if k in ("src", "href", "data", "action")]
        self.addresses += [a for a in addresses if not a.startswith("#")]
        self.links += [a[1:] for a in addresses if a.startswith("#")]
        self.links += [values["data-opens"]] if "data-opens" in values else []
        self.links += [values["data-outer"]] if "data-outer" in values else []
        self.sections += [values["id"]] if tag == "section" else []
        if "data-details" in values:
            self.boxes[values["id"]] = values["data-details"]
        if tag == "h2":
            self.headings.append("")
        if tag != "meta":
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        pass

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if "h2" in self.open:
            self.headings[-1] += data


def page_of(path):
    return Page(path.read_text(encoding="utf-8"))


def test_the_page_shows_types_attributes_and_the_users_line(tmp_path):
    path = viz.to_html(step_graph(), tmp_path / "step.html")
    source = path.read_text(encoding="utf-8")
    page = Page(source)
    assert page.addresses == []
    assert "http" not in source
    assert page.headings == ["All 5 calls", "Text"]
    assert "<title>step: 5 calls</title>" in source
    relu = page.boxes["all.n0"].splitlines()
    assert relu[:2] == ["%1: float32[2, 3] = LeakyReLU(slope=0.5) %0", "slope = 0.5"]
    assert relu[2].startswith("test_viz.py:")
    assert relu[2].endswith("y = ops.leaky_relu(x, 0.5) * w + np.arange(3, dtype=np.float32)")


def test_a_box_opens_the_graphs_inside_it(tmp_path):
    page = page_of(viz.to_html(loop_graph(), tmp_path / "loop.html"))
    assert page.headings == ["All 2 calls", "All 2 calls / Loop body: Exp", "Text"]
    assert "all.n0.0.n0_0_n0" in page.boxes


def two_layers():
    """A training step of some fifty calls, and arguments for it."""
    net = nn.Sequential(nn.Dense(3, 4), nn.Tanh(), nn.Dense(4, 2))
    adam = optim.Adam(net.trainable_params())
    step = ml.train_step(net, nn.CrossEntropyLoss(), adam, clip=1.0)
    return step, X, np.zeros(2, np.int64)


def test_a_long_step_is_drawn_layer_by_layer(tmp_path):
    step, *args = two_layers()
    page = page_of(viz.to_html(step, tmp_path / "step.html", *args))
    layers = [d.splitlines()[0] for b, d in page.boxes.items() if re.fullmatch(r"parts\.p\d+", b)]
    assert {"0 (Dense)", "2 (Dense)", "gradient of 2 (Dense)", "Adam"} <= set(layers)
    assert page.headings[0] == "Layers"
    assert "Layers / 0 (Dense)" in page.headings


def test_folding_keeps_every_call_and_every_arrow_leads_on():
    step, *args = two_layers()
    whole = drawing_of(ml.trace(step, *args))
    folded = fold(whole)
    inner = [box.inner[0][1] for box in folded.boxes if box.kind == "part"]
    boxes = [b for d in (folded, *inner) for b in d.boxes if b.kind not in ("part", "outside")]
    assert sorted(b.key for b in boxes) == sorted(b.key for b in whole.boxes)
    position = {box.key: i for i, box in enumerate(folded.boxes)}
    assert all(position[a.source] < position[a.target] for a in folded.arrows)
    assert len(folded.boxes) < len(whole.boxes) / 3


def test_a_line_that_others_run_through_is_folded_in_pieces():
    def back_and_forth(x):
        steps = [ops.sin, ops.cos]
        for i in range(4):
            x = steps[i % 2](x) if i != 2 else ops.tanh(x)
        return x

    folded = fold(drawing_of(ml.trace(back_and_forth, X)))
    assert [b.kind for b in folded.boxes] == ["input", "part", "output"]
    net = nn.Sequential(nn.Tanh(), nn.Dense(3, 3))
    twice = fold(drawing_of(ml.trace(lambda x: net(net(x)), X)))
    assert [b.title for b in twice.boxes if b.kind == "part"] == ["1 (Dense)", "1 (Dense)"]


def test_networks_functions_and_steps_are_traced_for_example_arguments(tmp_path):
    net, (step, *given) = nn.Dense(3, 2), two_layers()
    for what, args, title in (
        (net, (X,), "Dense: 2 calls"),
        (ml.jit(lambda a, b: a * b), (X, X), "graph: 1 call"),
        (step, given, "train_step: "),
        (ml.trace(net, X), (), "Dense: 2 calls"),
    ):
        page = viz.to_html(what, tmp_path / "x.html", *args)
        assert f"<title>{title}" in page.read_text("utf-8")
    assert viz.to_mermaid(net, X) == viz.to_mermaid(ml.trace(net, X))
    assert viz.to_dot(net, X) == viz.to_dot(ml.trace(net, X))


@pytest.mark.parametrize(
    ("args", "sentence"),
    [
        ((nn.Dense(3, 2),), "to_mermaid got Dense without example arguments; give the"),
        ((3,), "to_mermaid got 3 of type int; give a graph, a network or a function"),
        ((ml.trace(ops.exp, X), X), "to_mermaid got a graph and example arguments; leave"),
    ],
)
def test_what_cannot_be_drawn_is_one_sentence(args, sentence):
    with pytest.raises(MinimlError, match=sentence):
        viz.to_mermaid(*args)


@pytest.mark.parametrize("make", [step_graph, loop_graph, lambda: ml.trace(lambda: 1)])
def test_arrows_point_down_and_boxes_do_not_overlap(make):
    drawing = drawing_of(make())
    layout = layout_of(drawing)
    for arrow, path in zip(drawing.arrows, layout.paths, strict=True):
        heights = [y for _, y in path]
        assert heights == sorted(set(heights))
        assert path[0] == layout.centres[arrow.source]
        assert path[-1] == layout.centres[arrow.target]
    spans = {}
    for box in drawing.boxes:
        x, y = layout.centres[box.key]
        half = box_width(box) / 2
        assert half <= x <= layout.width - half
        assert BOX_HEIGHT / 2 <= y <= layout.height - BOX_HEIGHT / 2
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
    page = page_of(viz.to_html(graph, tmp_path / "long.html"))
    assert len([b for b in page.boxes if b.startswith("all.")]) == 2502
