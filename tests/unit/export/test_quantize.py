"""Networks with products of int8: the C file has the numbers of the quantized program, and these
are close to float's."""

import re

import numpy as np
import pytest

import miniml as ml
from miniml import nn, ops, optim
from miniml.cli import main
from miniml.errors import ExportError
from miniml.export.exporter import exported
from tests.frame.native import needs_compiler
from tests.unit.export.test_export_c import (
    aligned,
    built,
    bytes_of,
    cnn,
    compiler,
    evaluated,
    floats,
    mlp,
    pointers,
    rng,
)

__all__ = ["compiler", "rng"]
pytestmark = needs_compiler


def test_a_dense_layer_is_what_numpy_computes(rng, tmp_path, compiler):
    net, calls = nn.Dense(8, 5), [floats(rng, 2, 8) for _ in range(20)]
    ml.export_c(net, tmp_path / "net.c", calls[0], quantize="int8", calibration=calls)
    library, out = built(compiler, tmp_path / "net.c"), np.zeros((2, 5), np.float32)
    arena = aligned(bytes_of(tmp_path / "net.c", "NET_ARENA_BYTES"))
    library.net_run(*pointers(arena, calls[3], out))
    w, b = (p.asnumpy().astype(np.float64) for p in net.get_parameters())
    of_x = np.abs(np.stack(calls)).max() / 127
    of_w = np.abs(w).max(0) / 127
    by_hand = np.rint(calls[3] / of_x) @ np.rint(w / of_w) * of_x * of_w + b
    np.testing.assert_allclose(out, by_hand, 1e-5, 1e-5)
    assert np.abs(out - (calls[3] @ w + b)).max() > 1e-4  # it is quantized
    library.net_run(*pointers(arena, 2 * np.abs(calls[3]) * 100, out))  # what is larger is clipped
    clipped = np.full((2, 8), 127) @ np.rint(w / of_w) * of_x * of_w + b
    np.testing.assert_allclose(out, clipped, 1e-5, 1e-5)


@pytest.mark.parametrize("net", [cnn, lambda: nn.Sequential(nn.Flatten(), nn.Dense(64, 9))])
def test_networks_have_the_numbers_of_the_quantized_program(rng, tmp_path, compiler, net):
    net = evaluated(net())
    calls = [floats(rng, 1, 1, 8, 8) for _ in range(30)]
    made = exported(net, tmp_path / "net.c", calls[:1], quantize="int8", calibration=calls)
    float32 = exported(net, tmp_path / "float.c", calls[:1])
    library = built(compiler, tmp_path / "net.c")
    arena, expected, got = aligned(made.arena), [], []
    for x in calls:
        out = np.zeros(made.graph.outputs[0].abstract.shape, np.float32)
        library.net_run(*pointers(arena, x, out))
        got.append(out)
        expected.append(net(x).asnumpy())
    apart = np.array(got, np.float64) - expected
    error = np.sqrt(np.mean(apart**2) / np.mean(np.array(expected, np.float64) ** 2))
    report = made.report
    np.testing.assert_allclose(report.error, error, 1e-3)
    np.testing.assert_allclose(report.worst, np.abs(apart).max(), 1e-3)
    assert 0 < error < 0.02
    assert report.agree > 0.85
    assert (report.calls, report.left) == (30, 0)
    assert report.weights[0] < report.weights[1] / 2
    assert made.parameters < float32.parameters / 2
    text = (tmp_path / "net.c").read_text()
    assert f"{report.products} products by weights" in re.sub(r"\s+", " ", text)
    assert "static const _Alignas(64) int32_t net_c" in text


def test_what_cannot_be_quantized(rng, tmp_path):
    net, x, file = evaluated(mlp()), floats(rng, 1, 8), tmp_path / "net.c"
    given = {"quantize": "int8", "calibration": [x]}
    with pytest.raises(ExportError, match="None or 'int8'"):
        ml.export_c(net, file, x, quantize="int4", calibration=[x])
    with pytest.raises(ExportError, match="without calibration="):
        ml.export_c(net, file, x, quantize="int8")
    with pytest.raises(ExportError, match=r"calibration\[1\] of float32\[8\]; .*float32\[1, 8\]"):
        ml.export_c(net, file, x, quantize="int8", calibration=[x, x[0]])
    with pytest.raises(ExportError, match="has no MatMul or Conv2D of float32 by a parameter"):
        ml.export_c(ops.exp, file, x, **given)
    step = ml.train_step(net, nn.MSELoss(), optim.SGD(net.trainable_params(), 0.1))
    with pytest.raises(ExportError, match="it is for inference: give the network"):
        ml.export_c(step, file, x, floats(rng, 1, 10), **given)
    assert not [*tmp_path.iterdir()]


def test_the_command_quantizes(rng, tmp_path, capsys):
    net, x = evaluated(mlp()), floats(rng, 30, 8)
    ml.save_graph(net, tmp_path / "net.json", x[:2])
    np.save(tmp_path / "x.npy", x)
    given = ["export", str(tmp_path / "net.json"), "-o", str(tmp_path / "net.c")]
    given += ["--quantize", "int8", "--calibrate", str(tmp_path / "x.npy")]
    assert main(given) == 0
    assert re.search(r"int8: 2 products by weights.* on 15 calls", capsys.readouterr().out)
    np.save(tmp_path / "x.npy", x[0])
    assert main(given) == 2
    assert "has shape (8,); give inputs of shape (2, 8)" in capsys.readouterr().err
    assert main([*given[:-1], str(tmp_path / "net.c")]) == 2
    assert "is no file of numpy.save" in capsys.readouterr().err
