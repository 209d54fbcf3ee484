"""ml.draw: the graph before and after each pass, in a page that works in a real browser."""

import re
import shutil
import subprocess

import numpy as np
import pytest

import miniml as ml
from miniml import nn, ops, viz
from miniml.errors import MinimlError
from miniml.viz.pictures import new_in, stages
from tests.conftest import BROWSERS
from tests.frame.native import needs_compiler

X = np.ones((2000, 4), np.float32)
BROWSER = next(filter(None, map(shutil.which, BROWSERS)), None)
OPTIONS = """--headless --no-sandbox --disable-gpu --disable-quic --no-first-run
    --disable-background-networking --disable-component-update --disable-sync""".split()
needs_browser = pytest.mark.skipif(
    BROWSER is None, reason="no browser: neither chromium nor chrome is on the PATH"
)


def fn(x):
    """A call to drop, two to fuse, and a loop."""
    twice = ops.exp(x * 1.0) + 2.0
    return ops.scan(lambda c, row: (c + row, None), ops.sum(twice, axis=0), twice)[1]


def drawn(path, what=fn, args=(X,), providers=("miniml",)):
    with ml.context(providers=providers):
        return ml.draw(what, *args, path=path).read_text("utf-8")


def sections(source):
    """The heading of each section, without its tags, by the section's address."""
    found = re.findall(r'<section id="([^"]+)".*?<h2>(.*?)</h2>', source)
    return {key: re.sub(r"<[^>]+>", "", heading) for key, heading in found}


def test_each_pass_that_changes_the_graph_has_a_drawing(tmp_path):
    source = drawn(tmp_path / "fn.html")
    assert "http" not in source
    tabs = re.findall(r"<nav>(.*?)</nav>", source, re.DOTALL)[0]
    shown = re.findall(r'<a href="#(stage\d)">(\w+)</a>', tabs)
    assert shown == [("stage0", "traced"), ("stage1", "simplify")]
    assert "share" in re.findall(r'<span class="same"[^>]*>(\w+)</span>', tabs)
    found = sections(source)
    assert found["stage0"] == (
        "as traced: 5 calls; dropped or replaced next, by simplify: Mul, Exp"
    )
    assert found["stage1"] == (
        "after simplify: 4 calls; made or changed: Exp; dropped or replaced: Mul, Exp"
    )
    marked = re.findall(r'class="box call goes" id="(stage0\.\w+)"', source)
    assert len(marked) == 2
    assert "# as traced\nfn(" in source


def test_a_place_where_no_page_can_stand_is_refused(tmp_path):
    with pytest.raises(MinimlError, match=r"there is no folder .*absent; make it first"):
        ml.draw(fn, X, path=tmp_path / "absent" / "fn.html")
    with pytest.raises(MinimlError, match="is a folder; name a file"):
        viz.to_html(fn, tmp_path, X)
    with pytest.raises(MinimlError, match=r"got int; the calls are ml\.draw"):
        ml.draw(fn, X, path=3)


@needs_compiler
def test_fused_groups_are_named_and_open(tmp_path):
    source = drawn(tmp_path / "fn.html", lambda x: ops.softmax(ops.exp(x) + 1.0), providers=())
    last = max(k for k in sections(source) if re.fullmatch(r"stage\d", k))
    assert re.search(rf'class="box call made" id="{last}\.n\d" tabindex="0" data-opens=', source)
    assert "Fused exp_add_max_sub" in source
    assert any("Fused exp_add_max_sub" in h for h in sections(source).values())


@needs_compiler
def test_the_passes_are_those_of_the_program(tmp_path):
    graph = ml.trace(lambda x: ops.softmax(ops.exp(x) + 1.0), X)
    with ml.context(providers=(), disabled_passes=("decompose",)):
        found = [*stages(graph, "cpu")]
        program = ml.jit(lambda x: ops.softmax(ops.exp(x) + 1.0)).compiled(X).program
    assert found[0].graph is graph
    assert "decompose" not in [stage.name for stage in found]
    assert found[-1].graph == program.graph
    with ml.context(providers=()):
        *_, note = [s.note for s in stages(ml.trace(ops.exp, X[:1]), "cpu") if s.note]
    assert note.startswith("too small for kernels in C")


def test_what_is_new_in_a_graph():
    graph = ml.trace(lambda x: ops.exp(x) + 1.0, X)
    assert new_in(graph, graph) == {}
    assert list(new_in(graph, ml.trace(ops.exp, X))) == list(graph.nodes)


def test_users_passes_have_a_drawing_too(tmp_path):
    name = ml.register_rule(ops.exp, lambda x: ops.expm1(x) + 1.0, name="by_expm1")
    try:
        found = sections(drawn(tmp_path / "x.html", ops.exp))
    finally:
        ml.unregister_pass(name)
    assert found["stage1"].startswith("after by_expm1: 2 calls; made or changed: Expm1, Add")


def test_what_cannot_be_drawn_is_one_sentence(tmp_path):
    with pytest.raises(MinimlError, match="draw got Dense without example arguments; give the"):
        ml.draw(nn.Dense(3, 2), path=tmp_path / "x.html")


STEPS = """
<script>
const seen = [], errors = [];
addEventListener("error", (event) => errors.push(event.message));
function note() {
  const now = document.querySelector("section.current"), heading = now.querySelector("h2");
  const box = now.querySelector(".goes rect, .made rect");
  seen.push([now.id, getComputedStyle(heading).display,
    box ? getComputedStyle(box).stroke : "", now.getBoundingClientRect().width > 300].join(" "));
}
const keys = ["n", "n", "n", "p", "Escape", "open", "p"];
function go() {
  note();
  const key = keys.shift();
  if (key === "open") location.hash = document.querySelector("#stage1 [data-opens]").dataset.opens;
  else if (key) dispatchEvent(new KeyboardEvent("keydown", { key }));
  else document.title = "seen: " + [...seen, ...errors].join(" | ");
  if (key) setTimeout(go, 20);
}
setTimeout(go, 50);
</script></body>"""


@needs_browser
def test_a_browser_goes_through_the_passes(tmp_path):
    source = drawn(tmp_path / "fn.html")
    page = tmp_path / "stepped.html"
    page.write_text(source.replace("</body>", STEPS), "utf-8")
    run = subprocess.run(
        [BROWSER, *OPTIONS, f"--user-data-dir={tmp_path}/profile", "--virtual-time-budget=3000",
         "--dump-dom", page.as_uri()],
        capture_output=True, text=True, timeout=60, check=True,
    )  # fmt: skip
    seen = re.findall(r"<title>seen: (.*?)</title>", run.stdout)[0].split(" | ")
    visited = [line.split()[0] for line in seen]
    assert visited == [
        "stage0", "stage1", "as-text", "as-text", "stage1", "stage1", "stage1.n3.0", "stage0",
    ]  # fmt: skip
    assert all(line.endswith("true") for line in seen)
    assert seen[0] == "stage0 block rgb(201, 42, 42) true"
    assert seen[1] == "stage1 block rgb(18, 129, 63) true"
