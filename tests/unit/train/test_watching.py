"""Event files and live plots: what they hold of a run, resumed too, and what they need."""

import struct
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

import miniml as ml
from miniml import nn, optim, train
from miniml.data import DataLoader
from miniml.errors import MinimlError

X, Y = np.random.default_rng(0).normal(size=(32, 4)).astype(np.float32), np.arange(32) % 3


def fit(callbacks, epochs=3, path=None):
    ml.manual_seed(0)
    net = nn.Dense(4, 3)
    adam = optim.Adam(net.trainable_params(), lr=0.01)
    model = train.Model(net, nn.CrossEntropyLoss(), adam, [train.accuracy(), train.f1(3)])
    data = DataLoader(X, Y, size=8, seed=0)
    options = {"validation": data, "callbacks": callbacks, "resume": path, "show": False}
    return model.fit(data, epochs=epochs, save_every=2, **options)


def events(folder):
    """What stands in all event files: lengths, checksums, and an Event of protobuf each."""
    proto = pytest.importorskip("tensorboardX.proto.event_pb2")
    for file in sorted(Path(folder).iterdir()):
        data, at = file.read_bytes(), 0
        while at < len(data):
            length = struct.unpack_from("<Q", data, at)[0]
            yield proto.Event.FromString(data[at + 12 : at + 12 + length])
            at += 12 + length + 4


def scalars(folder):
    """{tag: {step: value}}, as TensorBoard reads them: a session's start drops later steps."""
    found = {}
    for event in events(folder):
        if event.HasField("session_log"):
            for steps in found.values():
                for step in [s for s in steps if s >= event.step]:
                    del steps[step]
        for value in event.summary.value:
            found.setdefault(value.tag, {})[event.step] = value.simple_value
    return found


def test_event_files_hold_the_rows_and_losses_of_a_run(tmp_path):
    pytest.importorskip("tensorboardX")
    rows = fit([train.TensorBoard(tmp_path / "log")])
    found = scalars(tmp_path / "log")
    names = {"loss", "accuracy", "f1", "val_loss", "val_accuracy", "val_f1", "seconds"}
    assert found.keys() == {f"epoch/{n}" for n in names} | {"step/loss", "step/lr"}
    for name in names:
        expected = {4 * row["epoch"]: row[name] for row in rows}
        assert found[f"epoch/{name}"] == pytest.approx(expected, rel=1e-6)
    assert max(found["step/loss"]) == 12
    assert found["step/lr"][12] == pytest.approx(0.01)


def test_event_files_of_a_resumed_run_have_each_epoch_once(tmp_path):
    pytest.importorskip("tensorboardX")
    broken = train.Callback()
    broken.on_steps = lambda run, losses: 1 / (run.steps - 10)
    with pytest.raises(ZeroDivisionError):
        fit([train.TensorBoard(tmp_path / "log"), broken], path=tmp_path / "run.safetensors")
    rows = fit([train.TensorBoard(tmp_path / "log")], path=tmp_path / "run.safetensors")
    assert [row["epoch"] for row in rows] == [3]
    found = scalars(tmp_path / "log")
    assert list(found["epoch/loss"]) == [4, 8, 12]
    straight = fit([])
    assert found["epoch/val_loss"][12] == pytest.approx(straight[-1]["val_loss"], rel=1e-6)


class Notebook:
    """Stands for IPython in a notebook: notes what is shown."""

    def __init__(self, monkeypatch):
        self.shown = []
        pytest.importorskip("IPython.display")
        monkeypatch.setattr("IPython.get_ipython", lambda: SimpleNamespace(kernel=self))
        monkeypatch.setattr("IPython.display.display", self.display)

    def display(self, picture, display_id):
        assert display_id is True
        self.shown.append(("new", picture.data))
        return SimpleNamespace(update=lambda p: self.shown.append(("update", p.data)))


def test_a_live_plot_is_one_picture_that_grows(monkeypatch, capsys):
    seen = Notebook(monkeypatch).shown
    fit([train.LivePlot(seconds=0.0)], epochs=2)
    fit([train.LivePlot()], epochs=1)
    assert [kind for kind, _ in seen].count("new") == 2
    assert len({picture for _, picture in seen}) >= 3
    assert all(picture.startswith(b"\x89PNG") for _, picture in seen)
    assert not capsys.readouterr().out


def test_outside_of_a_notebook_a_live_plot_says_so_once(capsys):
    pytest.importorskip("matplotlib")
    fit([train.LivePlot()])
    assert capsys.readouterr().out == "LivePlot draws in notebooks only; here it does nothing\n"


def test_what_is_not_installed_is_named(monkeypatch):
    for module, make in (
        ("tensorboardX", lambda: train.TensorBoard("x")),
        ("matplotlib.figure", train.LivePlot),
    ):
        monkeypatch.setitem(sys.modules, module, None)
        with pytest.raises(
            MinimlError, match=r"is not installed; pip install \w+, or pip install 'miniml\["
        ):
            make()


@pytest.mark.deep
def test_a_live_plot_in_a_real_notebook():
    nbformat, nbclient = pytest.importorskip("nbformat"), pytest.importorskip("nbclient")
    code = "import tests.unit.train.test_watching as t\nt.fit([t.train.LivePlot(seconds=0.0)])"
    book = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(code + ";")])
    nbclient.NotebookClient(book, timeout=100).execute()
    pictures = [o for o in book.cells[0].outputs if "image/png" in o.get("data", {})]
    assert len(pictures) == 1
