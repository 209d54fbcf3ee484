"""Saved graphs: what is loaded is what was saved, bit for bit, and nothing else is loaded."""

import builtins
import json
import math
import os
import random as python_random
import resource
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import miniml as ml
from miniml import Primitive, infer_rule, kernel, nn, ops, optim
from miniml.core.primitive import primitives
from miniml.errors import CheckpointError, GraphError
from miniml.export import saved as saving
from miniml.export.saved import signed
from miniml.grad import grad, jacobian, value_and_grad
from tests.conftest import DEEP
from tests.opinfo import ROWS
from tests.stateful.machines import Stateful
from tests.stateful.programs import PARAMETERS, SIZE, draw, run

X = np.linspace(-1, 1, 6, dtype=np.float32).reshape(2, 3)
ARRAYS = np.ndarray, ml.Tensor


@pytest.fixture
def path(tmp_path):
    return str(tmp_path / "graph.json")


def text(path):
    with open(path, "rb") as file:
        return file.read()


def again(graph, path):
    """The graph that is loaded of this one; saving that gives the same bytes."""
    ml.save_graph(graph, path)
    first = text(path)
    loaded = ml.load_graph(path)
    ml.save_graph(loaded, path)
    assert text(path) == first
    return loaded


def rewritten(path, change):
    """The file with its JSON changed, and signed as if it had been saved so."""
    file = json.loads(text(path))
    del file["hash"]
    change(file)
    with open(path, "wb") as out:
        out.write(signed(json.dumps(file)[:-1] + ","))


def test_the_text_is_one_that_people_can_read(path):
    weight = ml.Parameter(np.array([0.5, -0.0, math.nan], np.float32), "weight")

    def scaled(batch):
        return {"loss": ops.mean(ops.exp(batch["x"]) * weight * 0.1)}

    ml.save_graph(scaled, path, {"x": X})
    lines = text(path).decode().splitlines()
    assert lines[:6] == [
        '{"format": "miniml graph",', '"version": 1,', '"uses": {},', '"data": "",',
        '"graph": {', '"name": "scaled",',
    ]  # fmt: skip
    assert '  "batch.x": "float32[2, 3]"' in lines
    assert (
        '  "weight": {"name": "weight", "requires_grad": true, "type": "float32[3]", '
        '"value": [0.5, -0.0, "nan"]}'
    ) in lines
    assert (
        '  {"op": "Mul", "in": ["mul", "float32(0.1)"], "out": {"mul_2": "float32[2, 3]"}},'
    ) in lines
    assert '  "loss": "mean"' in lines


def test_one_node_more_is_one_line_more(path, tmp_path):
    ml.save_graph(lambda x: ops.sin(ops.exp(x) * 2), path, X)
    other = str(tmp_path / "other.json")
    ml.save_graph(lambda x: ops.sin(ops.abs(ops.exp(x)) * 2), other, X)
    before, after = ([*text(p).decode().splitlines()[:-1]] for p in (path, other))
    assert len({*before} ^ {*after}) == 3  # the new node, and the one that reads it


LOGICAL = "And", "Or", "Xor", "Not"
INPUTS = dict.fromkeys(["LeftShift", "RightShift"], "l")
INPUTS |= {f"Logical{name}": "?" for name in LOGICAL} | {f"Bitwise{name}": "l" for name in LOGICAL}


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.primitive.__name__)
def test_every_primitive_comes_back(row, path):
    known = (row.dtypes or "").replace("E", "") or INPUTS.get(row.primitive.__name__, "f")
    dtype = np.dtype(known[0])
    for sample in [*row.samples(np.random.default_rng(0), dtype)][:4]:
        primitive = row.primitive(**sample.attrs)
        consts = {i for i, _ in primitive._const}
        traced = [i not in consts and isinstance(a, ARRAYS) for i, a in enumerate(sample.inputs)]

        def call(*xs, primitive=primitive, inputs=sample.inputs, traced=traced):
            rest = iter(xs)
            return primitive(*[next(rest) if t else a for a, t in zip(inputs, traced, strict=True)])

        arrays = [a for a, t in zip(sample.inputs, traced, strict=True) if t]
        if primitive.dynamic_outputs or primitive.name == "Fused":
            continue
        graph = ml.trace(call, *arrays)
        if not graph.state:
            assert again(graph, path) == graph


@pytest.mark.parametrize("seed", range(8))
def test_random_programs_with_state_and_branches(seed, path):
    program = draw(np.random.default_rng(seed))
    start = np.random.default_rng(seed).uniform(-1, 1, (PARAMETERS, SIZE))
    parameters = [ml.Parameter(p, f"p{k}") for k, p in enumerate(start)]
    x = np.random.default_rng(seed + 99).uniform(-1, 1, SIZE)
    graph = ml.trace(lambda x: run(Stateful(parameters), program, [x]), x)
    loaded = again(graph, path)
    for _ in range(2):
        assert loaded(x).asnumpy().tobytes() == graph(x).asnumpy().tobytes()
    own = {p.name: p for p, _ in loaded.state}
    for p, _ in graph.state:
        assert own[p.name].asnumpy().tobytes() == p.asnumpy().tobytes()


def test_a_step_of_training_goes_on_where_it_was_saved(path):
    net = nn.Sequential(nn.Dense(3, 20), nn.ReLU(), nn.Dropout(0.5), nn.Dense(20, 2))
    adam = optim.Adam(net.trainable_params(), lr=0.1)
    step = ml.train_step(net, nn.MSELoss(), adam)
    y = X[:, :2]
    step(X, y)
    ml.save_graph(step, path, X, y)
    assert os.path.exists(f"{path}.safetensors")
    loaded = ml.load_graph(path)
    before = net[0].weight.asnumpy()
    for seed in range(3):
        ml.manual_seed(seed)
        expected = step(X, y).item()
        ml.manual_seed(seed)
        assert loaded(X, y).item() == expected
    assert not np.array_equal(net[0].weight.asnumpy(), before)
    own = {p.name: p for p, _ in loaded.state}
    assert own["0.weight"].asnumpy().tobytes() == net[0].weight.asnumpy().tobytes()
    assert [p.name for p in loaded.trainable_params()] == [p.name for p in net.trainable_params()]


@pytest.mark.parametrize("of", [grad, value_and_grad, jacobian, ml.jit, ml.recompute])
def test_inputs_keep_their_names_in_functions_of_functions(path, of):
    def both(left, right):
        return ops.sum(left * right)

    ml.save_graph(of(both), path, X, X)
    assert ml.load_graph(path).input_names == ("left", "right")


def test_a_function_of_others_is_used_from_the_module_that_made_it_a_primitive(path):
    ml.save_graph(ops.custom(np.square, name="SavedSquare"), path, X)
    assert json.loads(Path(path).read_text())["uses"] == {"SavedSquare": __name__}


def test_a_loaded_graph_is_a_function_like_any_other(path):
    net = nn.Dense(3, 2)
    ml.save_graph(net, path, X)
    loaded = ml.load_graph(path)
    assert loaded.input_names == ("x",)
    np.testing.assert_array_equal(loaded(x=X).asnumpy(), net(X).asnumpy())
    weights = loaded.trainable_params()
    _, grads = value_and_grad(lambda x: ops.sum(loaded(x)), weights=weights)(X)
    np.testing.assert_allclose(np.asarray(grads[1][0])[:, 0], X.sum(0), rtol=1e-6)
    assert "= MatMul(" in str(loaded)


def test_constants_and_attributes_keep_every_bit(path):
    odd = np.array([math.nan, -math.inf, -0.0, 1e-45, 0.1], np.float32)
    payload = np.array([0x7FC00001], np.uint32).view(np.float32)  # a NaN that text cannot show
    large = np.arange(40, dtype=np.float64) / 7

    def fn(x):
        return x + odd[:1], x + payload, x + large[0].astype(np.float32), ops.sum(large[:38] * 2)

    class SavedAttributes(Primitive):
        given: Any

        def infer_shape(self, x):
            return x

        def infer_dtype(self, x):
            return x

    plain = (1, 1.0, True, -0.0, math.inf, 2**70, "é\n", b"\0", ml.bfloat16, None, (), (0.5,))
    plain += (slice(None, -1), Ellipsis)
    loaded = again(ml.trace(fn, X[0, :1]), path)
    for expected, got in zip(ml.trace(fn, X[0, :1])(X[0, :1]), loaded(X[0, :1]), strict=True):
        assert expected.asnumpy().tobytes() == got.asnumpy().tobytes()
    held = again(ml.trace(lambda x: SavedAttributes(plain)(x) + odd, X[0, :1]), path)
    assert held.nodes[0].primitive == SavedAttributes(plain)
    with pytest.raises(
        GraphError, match=r"SavedAttributes attribute given cannot be saved: frozen"
    ):
        ml.save_graph(SavedAttributes(frozenset()), path, X)
    del primitives["SavedAttributes"]
    with pytest.raises(
        GraphError, match=r"no primitive 'SavedAttributes'.*test_saved.*before load"
    ):
        ml.load_graph(path)


def test_operators_that_nobody_has_seen_load_and_print_and_run_later(path):
    unseen = ops.Custom("SavedUnseen", {"n": b"\2"}, outputs=[X])
    ml.save_graph(lambda x: unseen(x) * 2, path, X)
    code = f"""
import numpy as np, miniml as ml
g = ml.load_graph({path!r})
print(g)
x = np.ones((2, 3), np.float32)
try:
    g(x)
except ml.errors.KernelNotFoundError as error:
    print(error)
@ml.kernel("SavedUnseen", "cpu", "f->f")
def unseen(x, *, n, out):
    np.multiply(x, n[0], out=out)
print(g(x).tolist()[0])
"""
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=100)
    assert run.returncode == 0, run.stderr
    assert r"%1: float32[2, 3] = SavedUnseen(n=b'\x02') %0" in run.stdout
    assert "SavedUnseen has no kernel on cpu" in run.stdout
    assert run.stdout.endswith("[4.0, 4.0, 4.0]\n")


def test_a_rule_that_is_registered_must_agree_with_the_file(path):
    ml.save_graph(ops.Custom("SavedRuled", outputs=[X]), path, X)
    infer_rule("SavedRuled")(lambda x: x)
    assert ml.load_graph(path).nodes[0].primitive == ops.Custom("SavedRuled")
    infer_rule("SavedRuled")(lambda x: ml.Tensor(X[0])._abstract)
    with pytest.raises(GraphError, match=r"inferred to be float32\[3\]"):
        ml.load_graph(path)


@pytest.mark.parametrize("where", ["arrays", "text", "rename"])
def test_a_save_that_fails_leaves_what_was_there(where, path, monkeypatch):
    ml.save_graph(lambda x: ops.sum(x) + np.arange(50.0).sum() + ops.sum(LARGE), path, X)
    before = ml.load_graph(path)(X).item()
    names = {"arrays": ".safetensors", "text": "graph.json"}
    write_file, replace = saving.write, saving.Path.replace

    def full(target, parts, given):
        if target.name.endswith(names.get(where, "never")):
            raise CheckpointError("the disk is full")
        write_file(target, parts, given)

    def stuck(source, target):
        if where == "rename":
            raise OSError(5, "the disk is gone")
        return replace(source, target)

    with monkeypatch.context() as patched:
        patched.setattr(saving, "write", full)
        patched.setattr(saving.Path, "replace", stuck)
        with pytest.raises(CheckpointError, match="the disk is"):
            ml.save_graph(lambda x: ops.sum(x) + ops.sum(2 * LARGE), path, X)
    after = ml.load_graph(path)(X).item()
    assert after == (before if where != "rename" else X.sum() + 2 * LARGE.sum())
    ml.save_graph(ops.sum, path, X)
    assert os.listdir(os.path.dirname(path)) == ["graph.json"]


LARGE = np.arange(50, dtype=np.float32)


def bodies(x):
    ys, total = ops.scan(lambda c, r: (c + ops.sum(r), c * r), ops.sum(x) * 0, x)
    picked = ops.cond(total > 0, lambda: ops.sum(ys), lambda: ops.sum(ys + LARGE[:3]))
    parts = ops.split(x, 3, 1)
    custom = ops.Custom("SavedFuzz", {"a": b"12"}, outputs=[X])
    return picked, ops.uniform((2,)), x[..., ::2], custom(x), parts[1], ops.sum(LARGE * 2)


BAD = {
    "no JSON": (lambda f: None, "damaged, or not a saved graph"),
    "a newer version": (lambda f: f.update(version=2), "version 2, and this miniml reads"),
    "another format": (lambda f: f.update(format="onnx"), "format is 'miniml graph'"),
    "an unknown part": (lambda f: f.update(code="print()"), "'code' is unknown beside"),
    "an unknown primitive": (lambda f: node(f).update(op="Snake"), "no primitive 'Snake'.*import"),
    "an unknown attribute": (
        lambda f: node(f)["attributes"].update(axes=1), "Sum has the attributes axis, keepdims",
    ),
    "an attribute of another type": (
        lambda f: node(f)["attributes"].update(keepdims=1), "declared keepdims: bool",
    ),
    "a dangling value": (lambda f: node(f).update({"in": ["y"]}), "'y' is used, and nothing"),
    "a cycle": (lambda f: node(f).update({"in": ["sum"]}), "'sum' is used, and nothing before"),
    "another dtype": (lambda f: node(f).update(out={"sum": "int32[]"}), "is inferred to be"),
    "a huge value": (
        lambda f: f["graph"]["inputs"].update(x="float32[1000000000, 1000000000, 1000000000]"),
        "more than an array can be",
    ),
    "a huge constant": (
        lambda f: f["graph"]["constants"].update(
            c={"type": "float32[1000000000]", "value": [0.0]}
        ),
        "not the elements of float32",
    ),
    "a constant that is not there": (
        lambda f: f["graph"]["constants"].update(c={"type": "float32[1000000000]"}),
        "which the arrays beside it lack",
    ),
    "a huge int": (
        lambda f: f["graph"]["constants"].update(c={"type": "int64[]", "value": [10**30]}),
        "do not fit int64",
    ),
    "a body of itself": (
        lambda f: scan_of(f)["attributes"].update(body={"body": -1}), "no body -1 after it",
    ),
    "a body in a circle": (
        lambda f: f["bodies"][0]["nodes"].append({**scan_of(f), "in": [], "out": {}}),
        "no body 0 after it",
    ),
    "deep nesting": (
        lambda f: node(f)["attributes"].update(axis=json.loads("[" * 900 + "]" * 900)),
        "declared axis|nested too deeply|inference refuses",
    ),
    "a name twice": (
        lambda f: f["graph"]["nodes"].append(dict(node(f))), "'sum' is defined twice",
    ),
    "other arrays": (lambda f: f.update(data="0" * 32), "belongs to another graph"),
    "no arrays": (lambda f: f.update(data=""), "which the arrays beside it lack"),
    "a missing output": (lambda f: f["graph"]["outputs"].update(out="z"), "'z' is used"),
    "a const that is none": (lambda f: node(f).update(consts={"q": 1}), "Sum got 1 inputs"),
}  # fmt: skip


def node(file):
    return next(n for n in file["graph"]["nodes"] if n.get("op") == "Sum")


def scan_of(file):
    return next(n for n in file["graph"]["nodes"] if n.get("op") == "Scan")


@pytest.mark.parametrize("what", BAD)
def test_bad_files_are_refused_in_a_sentence(what, path):
    ml.save_graph(bodies, path, X)
    change, match = BAD[what]
    rewritten(path, change)
    if what == "no JSON":
        with open(path, "wb") as out:
            out.write(b"\x80\x04not json")
    with pytest.raises(GraphError, match=match) as caught:
        ml.load_graph(path)
    assert path in str(caught.value)


def test_many_bodies_of_bodies_are_counted_before_they_are_walked(path):
    """2 ** 40 nodes in 40 lines."""
    ml.save_graph(bodies, path, X)

    def doubled(file):
        last = len(file["bodies"])
        twin = scan_of(file)
        for _ in range(40):
            row = json.loads(json.dumps(file["bodies"][0]))
            calls = {**twin, "attributes": {**twin["attributes"], "body": {"body": last + 1}}}
            row["nodes"] = [
                {**calls, "in": ["x0", "x1"], "out": {f"{n}": "float32[]", f"{n}s": "float32[3]"}}
                for n in "ab"
            ]
            row["outputs"] = {"out": "a", "rows": "as"}
            file["bodies"].append(row)
            last += 1
        file["bodies"].append(file["bodies"][0])
        scan_of(file)["attributes"]["body"] = {"body": last - 39}

    rewritten(path, doubled)
    with pytest.raises(GraphError, match="more than 1000000 nodes, bodies"):
        ml.load_graph(path)


MUTATED, HARMED = (5000, 10_000) if DEEP else (60, 300)


@pytest.mark.larger
def test_any_byte_that_is_changed_is_noticed(path):
    """Either the result is the same, or we refuse; no more memory than the file is worth."""
    ml.save_graph(bodies, path, X)
    ml.manual_seed(0)
    kernel("SavedFuzz", "cpu", "f->f")(np.negative)
    expected = [t.tolist() for t in ml.load_graph(path)(X)]
    held = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    rng = python_random.Random(0)
    refused = 0
    for file in (path, f"{path}.safetensors"):
        whole = text(file)
        for _ in range(MUTATED):
            data = bytearray(whole)
            at = rng.randrange(len(data))
            if rng.random() < 0.3:
                del data[at : at + rng.choice([1, 100, len(data)])]
            else:
                data[at] ^= 1 << rng.randrange(8)
            with open(file, "wb") as out:
                out.write(data)
            ml.manual_seed(0)
            try:
                assert [t.tolist() for t in ml.load_graph(path)(X)] == expected
            except (GraphError, CheckpointError):
                refused += 1
        with open(file, "wb") as out:
            out.write(whole)
    assert refused > 1.6 * MUTATED
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - held < 100_000  # kB


VALUES = (
    None, True, 0, -1, 10**9, 2**63, 10**40, 0.5, "", "x", "Split", "float32[1000000000]",
    [], [1], [[]], {}, {"body": 0}, {"dtype": "float64"}, {"bytes": "zz"}, {"float": "nan"},
    {"slice": [None, None, 10**18]},
)  # fmt: skip


def parts(value, path=()):
    """The ways to everything in a JSON value."""
    yield path
    rows = enumerate(value) if isinstance(value, list) else ()
    pairs = value.items() if isinstance(value, dict) else rows
    for name, inner in pairs:
        yield from parts(inner, (*path, name))


@pytest.mark.larger
def test_files_made_to_harm_are_refused_by_us(path):
    """What is signed correctly, and says anything: it is loaded and can be printed, or refused."""
    ml.save_graph(bodies, path, X)
    whole = text(path)
    ways = [p for p in parts(json.loads(whole)) if p and p != ("hash",)]
    rng = python_random.Random(1)
    held, outcomes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, {True: 0, False: 0}
    for _ in range(HARMED):
        way, value = rng.choice(ways), rng.choice(VALUES)

        def harm(file, way=way, value=value):
            for name in way[:-1]:
                file = file[name]
            file[way[-1]] = value

        with open(path, "wb") as out:
            out.write(whole)
        rewritten(path, harm)
        try:
            str(ml.load_graph(path))
            outcomes[True] += 1
        except (GraphError, CheckpointError):
            outcomes[False] += 1
    assert outcomes[False] > 0.6 * HARMED
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - held < 100_000  # kB


def test_paths_that_cannot_be(path, tmp_path):
    with pytest.raises(CheckpointError, match=r"does not exist; save_graph\(fn, path"):
        ml.load_graph(path)
    with pytest.raises(CheckpointError, match="there is no folder"):
        ml.save_graph(ops.exp, tmp_path / "none" / "x.json", X)
    with pytest.raises(CheckpointError, match="it is a folder"):
        ml.load_graph(tmp_path)
    with pytest.raises(CheckpointError, match="path of a file is a str; got int"):
        ml.save_graph(ops.exp, 3, X)
    with pytest.raises(GraphError, match="has its types already"):
        ml.save_graph(ml.trace(ops.exp, X), path, X)


def test_no_code_is_run(path, monkeypatch):
    """Nothing in a file is evaluated or imported."""
    ml.save_graph(bodies, path, X)
    rewritten(path, lambda f: f["uses"].update(Sum="antigravity"))
    for name in ("eval", "exec"):
        monkeypatch.setattr(builtins, name, lambda *_: pytest.fail("code is run"))
    ml.load_graph(path)
    assert "antigravity" not in sys.modules


@pytest.mark.parametrize(
    "entry",
    [
        {"dtype": "F32", "shape": [50], "data_offsets": [1000, 1200]},
        {"dtype": "F32", "shape": [10**9], "data_offsets": [0, 4 * 10**9]},
        {"dtype": "F32", "shape": [10**9, 10**9, 10**9], "data_offsets": [0, 200]},
        {"dtype": "F64", "shape": [25], "data_offsets": [0, 200]},
        {"dtype": "F32", "shape": [-50], "data_offsets": [0, 200]},
        None,
    ],
)
def test_arrays_beside_it_that_claim_what_is_not_there(entry, path):
    ml.save_graph(lambda x: ops.sum(x) + ops.sum(LARGE * 2), path, X)
    arrays = f"{path}.safetensors"
    whole = text(arrays)
    length = int.from_bytes(whole[:8], "little")
    header = json.loads(whole[8 : 8 + length])
    name = next(n for n in header if n != "__metadata__")
    header[name] = entry or header[name]
    changed = json.dumps(header).encode()
    size = 2**60 if entry is None else len(changed)
    with open(arrays, "wb") as out:
        out.write(size.to_bytes(8, "little") + changed + whole[8 + length :])
    held = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(GraphError, match="cannot be loaded: "):
        ml.load_graph(path)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - held < 100_000  # kB
