"""A network as a page: the module computes Python's numbers, and the page answers and learns."""

import json
import re
import shutil
import subprocess

import numpy as np
import pytest

import miniml as ml
from miniml import nn, ops, optim
from miniml.cli import main
from miniml.errors import ExportError
from miniml.export import web
from tests.conftest import BROWSERS
from tests.frame.native import needs_compiler
from tests.unit.export.test_export_c import WIDE

OPTIONS = "--headless --no-sandbox --disable-gpu --no-first-run --disable-sync".split()
BROWSER = next(filter(None, map(shutil.which, BROWSERS)), None)
needs_wasm = pytest.mark.skipif(not web._compilers(), reason="no WebAssembly compiler")
needs_node = pytest.mark.skipif(not shutil.which("node"), reason="no node")
needs_browser = pytest.mark.skipif(BROWSER is None, reason="no browser")
pytestmark = needs_compiler
IMAGE = np.zeros((1, 1, 8, 8), np.float32)


def network():
    return nn.Sequential(
        nn.Conv2d(1, 4, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Dropout(0.25),
        nn.Dense(64, 10),
    )  # fmt: skip


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A page that learns, and Python's scores before, losses of five steps, and scores after."""
    ml.manual_seed(3)
    net = network()
    step = ml.train_step(net, nn.CrossEntropyLoss(), optim.SGD(net.trainable_params(), 0.1))
    page = web.export_web(net, tmp_path_factory.mktemp("web") / "page", IMAGE, step, (-1, 2))
    x = ((np.arange(64) * 37) % 101 / 100).astype(np.float32).reshape(IMAGE.shape)
    with ml.context(providers=("cc",), without=tuple(WIDE)):
        answer = ml.jit(net)
        first = answer(x).asnumpy()[0]
        net.set_train(True)
        losses = [float(step(x, np.array([7]))) for _ in range(5)]
        net.set_train(False)
        return page, (first, losses, answer(x).asnumpy()[0])


CALLS = """
const net = new WebAssembly.Instance(
  new WebAssembly.Module(require('node:fs').readFileSync(process.argv[1])), {}).exports;
net._initialize();
net.begin();
const image = new Float32Array(net.memory.buffer, net.image(), 64);
const scores = new Float32Array(net.memory.buffer, net.scores(), 10);
image.forEach((_, i) => { image[i] = (i * 37 % 101) / 100; });
const answer = () => { net.answer(); return Array.from(scores); };
const first = answer(), losses = [];
for (let i = 0; i < 5; ++i) losses.push(net.correct(7));
const then = answer();
net.begin();
console.log(JSON.stringify({ first, losses, then, again: answer() }));
"""


@needs_wasm
@needs_node
def test_the_module_answers_and_learns_as_python_does(made):
    page, (first, losses, then) = made
    command = ["node", "-e", CALLS, str(page.module)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    got = json.loads(done.stdout)
    np.testing.assert_allclose(got["losses"], losses, 1e-5)
    np.testing.assert_allclose([got["first"], got["then"]], [first, then], 1e-5, 1e-6)
    assert got["again"] == got["first"]
    assert np.argmax(got["then"]) == 7


DRAWS = """
<script>
const at = (x, y) => ({ clientX: paper.getBoundingClientRect().left + x,
                        clientY: paper.getBoundingClientRect().top + y, bubbles: true });
const before = Array.from(scores);
paper.dispatchEvent(new PointerEvent("pointerdown", at(160, 40)));
for (let y = 40; y <= 280; y += 20)
  paper.dispatchEvent(new PointerEvent("pointermove", at(160, y)));
window.dispatchEvent(new PointerEvent("pointerup", at(160, 280)));
paper.dispatchEvent(new PointerEvent("pointermove", at(300, 300)));  // no button is down
const result = { before, image: Array.from(pixels), after: Array.from(scores) };
result.other = (best() + 3) % 10;
bars.children[result.other].click();
result.learnt = best();
result.said = said.textContent;
$("clear").click();
result.cleared = Math.max(...pixels);
document.body.dataset.result = JSON.stringify(result);
</script>
"""


@needs_wasm
@needs_browser
def test_the_page_is_drawn_on_answers_and_learns_what_one_corrects(made, tmp_path):
    page, _ = made
    text = page.page.read_text()
    assert not re.search(r"https?:|src=", text)  # it asks for nothing
    (tmp_path / "drawn.html").write_text(text.replace("</body>", DRAWS + "</body>"))
    command = [BROWSER, *OPTIONS, f"--user-data-dir={tmp_path / 'user'}", "--dump-dom"]
    command.append((tmp_path / "drawn.html").as_uri())
    shown = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120).stdout
    found = re.search(r'data-result="([^"]*)"', shown)
    assert found, shown[-2000:]
    result = json.loads(found[1].replace("&quot;", '"'))
    image = np.array(result["image"], np.float32).reshape(IMAGE.shape)
    ink = image[0, 0]
    assert -0.7 < ink[1:7, 3:5].min() < ink.max() <= 2
    assert ink[:, :2].max() == ink[:, 6:].max() == -1
    assert result["before"] != result["after"]
    assert result["learnt"] == result["other"]
    assert re.match(rf"It learnt {result['other']} in \d+ step", result["said"])
    assert result["cleared"] == -1


@needs_wasm
def test_a_page_that_does_not_learn_of_images_as_rows(tmp_path):
    net = nn.Sequential(nn.Dense(49, 3))
    page = web.export_web(net, tmp_path / "page", np.zeros((1, 49), np.float32))
    assert '"height": 7, "width": 7, "classes": 3, "learns": false' in page.page.read_text()
    assert page.learner is None
    assert page.module.read_bytes()[:4] == b"\0asm"


@needs_wasm
def test_the_command_writes_a_page(tmp_path, capsys):
    (tmp_path / "own_page_net.py").write_text(
        "from miniml import nn\n\ndef make(n=3):\n"
        "    return nn.Sequential(nn.Flatten(), nn.Dense(16, n))\n"
    )
    ml.save_checkpoint(nn.Sequential(nn.Flatten(), nn.Dense(16, 3)), tmp_path / "x.safetensors")
    net = f"{tmp_path / 'own_page_net.py'}:make"
    given = ["export", str(tmp_path / "x.safetensors"), "--net", net, "--input", "1,4,4"]
    assert main([*given, "--web", str(tmp_path / "page"), "--learn", "0.1"]) == 0
    assert "it needs no server and no other file" in capsys.readouterr().out
    assert '"learns": true' in (tmp_path / "page" / "index.html").read_text()


def test_what_cannot_be_a_page(tmp_path, monkeypatch, capsys):
    net = network()
    with pytest.raises(ExportError, match=r"an image of float64\[1, 8\]; a page draws"):
        web.export_web(net, tmp_path / "page", np.zeros((1, 8)))
    with pytest.raises(ExportError, match=r"gives float32\[1, 4, 8, 8\]; a page shows"):
        web.export_web(net[0], tmp_path / "page", IMAGE)
    with pytest.raises(ExportError, match="give one that train_step made"):
        web.export_web(net, tmp_path / "page", IMAGE, nn.CrossEntropyLoss())
    monkeypatch.setattr(web, "_compilers", list)
    with pytest.raises(ExportError, match="needs a compiler for WebAssembly: pip install"):
        web.export_web(net, tmp_path / "page", IMAGE)
    ml.save_graph(ops.exp, tmp_path / "exp.json", np.zeros(3, np.float32))
    assert main(["export", str(tmp_path / "exp.json"), "--web", str(tmp_path / "page")]) == 2
    assert "give parameters of a network of one image" in capsys.readouterr().err
    assert not (tmp_path / "page").exists()
