"""profile: what is counted, how long things take, and where the numbers can be seen."""

import gc
import json
import threading
import time
import weakref
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

import miniml as ml
from miniml import nn, ops, optim
from miniml.grad import grad
from miniml.viz import reports as module

X = np.random.default_rng(0).normal(size=(32, 16)).astype(np.float32)
Y = np.arange(32) % 4
PROVIDERS = pytest.mark.parametrize("providers", [("miniml",), ("cc",)], ids=str)


def net_step():
    ml.manual_seed(0)
    net = nn.Sequential(nn.Dense(16, 32), nn.ReLU(), nn.Dense(32, 4))
    opt = optim.SGD(net.trainable_params(), lr=0.1, momentum=0.9)
    return ml.train_step(net, nn.CrossEntropyLoss(), opt)


def test_eager_calls_are_counted_by_line():
    with ml.profile() as p:
        for _ in range(3):
            y = ops.exp(X)
        ops.add(y, y)
    rows = {row.node: row for row in p.rows}
    assert (rows["Exp"].calls, rows["Add"].calls) == (3, 1)
    assert (rows["Exp"].bytes, rows["Add"].bytes) == (3 * 2 * X.nbytes, 3 * X.nbytes)
    assert rows["Exp"].line.endswith(f"test_profile.py:{number_of('y = ops.exp(X)')}")
    assert rows["Exp"].bandwidth == pytest.approx(rows["Exp"].bytes / rows["Exp"].seconds)
    assert rows["Exp"].layer == ""


def test_eager_calls_of_layers_and_gradients_say_so():
    net, pulled = nn.Sequential(nn.Dense(16, 4), nn.ReLU()), grad(lambda x: ops.sum(ops.sin(x)))
    with ml.profile() as p:
        net(X)
        pulled(X)
    rows = {(row.node, row.layer, row.gradient) for row in p.rows}
    assert {("MatMul", "layer 0 (Dense)", False), ("ReLU", "layer 1 (ReLU)", False)} <= rows
    assert {("Sin", "", False), ("Cos", "", True), ("Mul", "", True)} <= rows
    assert {row.line.split(":")[0] for row in p.rows} == {__file__}


@pytest.mark.parametrize("providers", [("miniml",), ("cc",)], ids=str)
def test_a_step_whose_gradient_reads_a_view_of_its_input(providers):
    class Patches(nn.Cell):
        def __init__(self):
            self.dense = nn.Dense(4, 3, bias=False)

        def construct(self, x):
            x = ops.transpose(ops.reshape(x, (-1, 2, 2, 2, 2)), (0, 1, 3, 2, 4))
            return self.dense(ops.reshape(x, (-1, 4, 4)))

    net = Patches()
    step = ml.train_step(net, nn.MSELoss(), optim.SGD(net.trainable_params(), lr=0.1))
    x, y = np.ones((3, 4, 4), np.float32), np.zeros((3, 4, 3), np.float32)
    with ml.context(providers=providers):
        first = float(step(x, y).asnumpy())
        with ml.profile() as p:
            assert 0.0 < float(step(x, y).asnumpy()) < first
    assert p.rows


def number_of(text):
    lines = Path(__file__).read_text("utf-8").splitlines()
    return next(i for i, line in enumerate(lines, 1) if line.strip().startswith(text))


@PROVIDERS
def test_a_step_is_profiled_by_node_layer_and_line(providers):
    with ml.context(providers=providers):
        step, plain = net_step(), net_step()
        for _ in range(2):
            assert float(step(X, Y)) == float(plain(X, Y))
        with ml.profile() as p:
            began = time.perf_counter()
            losses = [float(step(X, Y)) for _ in range(5)]
            took = time.perf_counter() - began
        assert losses == [float(plain(X, Y)) for _ in range(5)]
    assert len(step.recompilations) == 1
    assert all(row.calls == 5 for row in p.rows)
    assert {"layer 2 (Dense)", "CrossEntropyLoss", "SGD"} <= {row.layer for row in p.layers}
    assert any(row.gradient for row in p.rows)
    total = sum(row.seconds for row in p.rows)
    assert 0.0 < total <= took
    assert sum(row.seconds for row in p.layers) == pytest.approx(total)
    assert [r.line.split(":")[0] for r in p.lines if r.line] == [__file__]
    product = next(r for r in p.rows if "matmul" in r.node.lower() and r.layer == "layer 2 (Dense)")
    assert product.bytes >= 5 * 4 * (32 * 32 + 32 * 4 + 32 * 4)  # both inputs and the output
    assert [r.seconds for r in p.rows] == sorted((r.seconds for r in p.rows), reverse=True)


@PROVIDERS
def test_the_slow_node_is_found(providers):
    big = np.ones((500, 500), np.float32)

    def f(x):
        return ops.sum(ops.exp(x @ x)) + ops.sum(x[:2, :2])

    with ml.context(providers=providers):
        fn = ml.jit(f)
        fn(big)
        with ml.profile() as p:
            for _ in range(10):  # so that one interruption does not decide
                fn(big)
    assert "MatMul" in p.rows[0].node or "matmul" in p.rows[0].node


def test_the_table_is_cut_to_the_terminal(monkeypatch):
    monkeypatch.setenv("COLUMNS", "50")
    with ml.profile() as p:
        net_step()(X, Y)
    lines = str(p).splitlines()
    assert lines[0].split()[:6] == ["ms", "%", "calls", "MB", "GB/s", "node"]
    assert max(map(len, lines)) <= 50
    assert "by layer" in lines


@PROVIDERS
def test_the_trace_is_in_the_format_of_chrome(tmp_path, providers):
    with ml.context(providers=providers):
        step = net_step()
        step(X, Y)
        with ml.profile() as p:
            step(X, Y)
            other = threading.Thread(target=lambda: None)
            other.start()
            other.join()
            ops.exp(X)
    p.save_trace(tmp_path / "trace.json")
    events = json.loads((tmp_path / "trace.json").read_text("utf-8"))["traceEvents"]
    assert {event["ph"] for event in events} == {"X"}
    assert len(events) >= sum(row.calls for row in p.rows)
    assert events[-1]["name"] == "Exp"
    spans = sorted((e["ts"], e["ts"] + e["dur"]) for e in events)
    assert all(a[1] <= b[0] + 1e-3 for a, b in pairwise(spans))
    assert sum(e["dur"] for e in events) / 1e6 == pytest.approx(sum(r.seconds for r in p.rows))
    assert {"layer", "line", "bytes"} == set(events[0]["args"])


def test_long_profiles_keep_their_sums_and_the_last_times(monkeypatch, tmp_path):
    monkeypatch.setattr(module, "_KEPT", 10)
    with ml.profile() as p:
        for _ in range(20):
            ops.exp(X)
    (row,) = p.rows
    assert (row.calls, row.bytes) == (20, 20 * 2 * X.nbytes)
    p.save_trace(tmp_path / "t.json")
    trace = json.loads((tmp_path / "t.json").read_text("utf-8"))
    assert len(trace["traceEvents"]) + trace["otherData"]["runs left out"] == 20
    assert trace["otherData"]["runs left out"] > 0


def test_profiles_and_hooks_together_and_what_raises():
    seen = []
    step = net_step()
    step(X, Y)
    with ml.profile() as p, ml.hooks(after=seen.append):
        step(X, Y)
        with pytest.raises(ml.errors.ShapeError):
            ops.matmul(X, X)
        fails = ml.jit(lambda x: ops.gather(x, np.array([99])))
        with pytest.raises(ml.errors.OutOfRangeError):
            fails(X)
    assert {c.primitive.name for c in seen}
    assert sum(row.calls for row in p.rows if row.node not in ("copy", "update")) == len(seen)


def test_programs_that_run_at_once_have_marks_of_their_own():
    step = ml.jit(lambda x: ops.tanh(x @ x.T) @ x)
    step(X)
    profiles = []

    def run():
        with ml.profile() as p:
            for _ in range(20):
                step(X)
        profiles.append(p)

    threads = [threading.Thread(target=run) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(profiles) == 3
    assert all({row.calls for row in p.rows} == {20} for p in profiles)


def test_outside_of_the_block_nothing_is_noted():
    with ml.profile() as p:
        pass
    ops.exp(X)
    ml.jit(ops.exp)(X)
    assert p.rows == []
    assert str(p).startswith("ms")


@PROVIDERS
def test_a_program_that_was_watched_is_freed_at_once(providers):
    with ml.context(providers=providers):
        fn = ml.jit(lambda x: ops.exp(x) @ x.T)
        with ml.profile(), ml.hooks(after=lambda call: None):
            fn(X)
        with ml.profile():
            fn(X)
        kept = weakref.ref(fn.compiled(X).program)
        gc.collect()
        gc.disable()
        try:
            del fn
            assert kept() is None
        finally:
            gc.enable()


def test_nobody_keeps_a_profile():
    fn = ml.jit(ops.exp)
    with ml.profile() as p:
        fn(X)
        ops.sin(X)
    kept = weakref.ref(p)
    del p
    gc.collect()
    assert kept() is None
