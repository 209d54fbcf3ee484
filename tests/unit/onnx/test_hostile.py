"""Files that are damaged or mean harm are refused in a sentence, in little memory."""

import contextlib
import io
import os
import random
import tracemalloc

import numpy as np
import pytest

import miniml as ml
from miniml.errors import OnnxError, OnnxWarning
from miniml.graph.ir import Graph

pytest.importorskip("onnx", reason="no onnx")

from onnx import TensorProto, helper, numpy_helper

DEEP = os.environ.get("MINIML_DEEP", "") not in ("", "0")
MOST = 80e6  # bytes that reading a hostile file may take


def value(name, shape=(2, 3), dtype=TensorProto.FLOAT):
    return helper.make_tensor_value_info(name, dtype, shape)


def model(nodes, initializers=(), inputs=None, outputs=("y",), opset=18, functions=()):
    inputs = [value("x")] if inputs is None else inputs
    graph = helper.make_graph(
        list(nodes), "net", inputs, [value(n, None) for n in outputs], list(initializers)
    )
    imports = [helper.make_opsetid("", opset), helper.make_opsetid("mine", 1)]
    return helper.make_model(graph, opset_imports=imports, functions=list(functions))


def node(type_, inputs, outputs=("y",), **attributes):
    return helper.make_node(type_, list(inputs), list(outputs), **attributes)


def const(name, array):
    return numpy_helper.from_array(np.asarray(array), name)


def damaged(**changes):
    """A model that adds an initializer `w`, changed."""
    tensor = const("w", np.ones((2, 3), np.float32))
    for field, new in changes.items():
        if field == "dims":
            del tensor.dims[:]
            tensor.dims.extend(new)
        elif field == "float_data":
            tensor.ClearField("raw_data")
            tensor.float_data.extend(new)
        else:
            setattr(tensor, field, new)
    return model([node("Add", ["x", "w"])], [tensor])


def refused(proto, match, tmp_path):
    """Saved and loaded, the model is refused with one class, and little memory."""
    path = tmp_path / "model.onnx"
    path.write_bytes(proto if isinstance(proto, bytes) else proto.SerializeToString())
    tracemalloc.start()
    try:
        with pytest.raises(OnnxError, match=match):
            ml.onnx.load(path)
        assert tracemalloc.get_traced_memory()[1] < MOST
    finally:
        tracemalloc.stop()


TENSORS = {
    "raw bytes too short": (damaged(raw_data=b"1234"), "holds 4 bytes; .* make 24"),
    "a thousand million elements": (damaged(dims=[10**9]), "takes 4,000,000,000 bytes"),
    "more than there are": (damaged(dims=[10**18, 10**18]), "at most 2,147,483,648"),
    "many, but fewer": (damaged(dims=[10**8]), "holds 24 bytes; .* make 400000000"),
    "a negative extent": (damaged(dims=[-2, -3]), "shape .-2, -3.; an extent is 0 or more"),
    "numbers too few": (damaged(float_data=[1.0]), "holds 1 elements; .* make 6"),
    "an unknown dtype": (damaged(data_type=99), "dtype 99, which miniml lacks"),
    "no dtype": (damaged(data_type=0), "dtype UNDEFINED"),
    "strings": (damaged(data_type=8), "dtype STRING"),
}


@pytest.mark.parametrize("case", TENSORS)
def test_tensors_that_are_not_what_they_say(case, tmp_path):
    refused(*TENSORS[case], tmp_path)


BIG = const("n", np.array([10**9, 10**9], np.int64))
LOOP = helper.make_graph(
    [node("Identity", ["c"], ["d"])],
    "body",
    [value("i", (), TensorProto.INT64), value("c", (), TensorProto.BOOL)],
    [value("d", (), TensorProto.BOOL)],
)
ROWS = helper.make_graph(
    [node("Identity", ["c"], ["d"]), node("Identity", ["x"], ["row"])],
    "body", LOOP.input, [*LOOP.output, value("row")],
)  # fmt: skip
GRAPHS = {
    "a cycle": (
        model([node("Add", ["x", "b"], ["a"]), node("Exp", ["a"], ["b"]), node("Exp", ["b"])]),
        r"node of 'a' \(Add\): 'b' is defined by nothing before its use",
    ),
    "a missing input": (model([node("Add", ["x", "gone"])]), "'gone' is defined by nothing"),
    "a missing output": (model([node("Exp", ["x"], ["z"])]), "'y' is defined by nothing"),
    "two definitions": (
        model([node("Exp", ["x"]), node("Exp", ["x"])]), "'y' is defined twice",
    ),
    "an input defined anew": (model([node("Exp", ["x"], ["x"])], outputs=["x"]), "'x' is defined"),
    "two initializers": (
        model([node("Exp", ["x"])], [const("w", 1.0), const("w", 2.0)]), "two initializers",
    ),
    "two inputs": (model([node("Exp", ["x"])], inputs=[value("x"), value("x")]), "two inputs"),
    "an unknown extent": (model([node("Exp", ["x"])], inputs=[value("x", (-1,))]), "shape .[?]."),
    "a huge input": (
        model([node("Exp", ["x"])], inputs=[value("x", (10**9, 4))]), "16,000,000,000 bytes",
    ),
    "a sequence": (
        model([node("Exp", ["x"])], inputs=[
            helper.make_tensor_sequence_value_info("x", TensorProto.FLOAT, None)]),
        "'x' is a sequence",
    ),
    "too many inputs": (model([node("Exp", ["x", "x"])]), "got 2 inputs; it takes x"),
    "too few inputs": (model([node("Add", ["x"])]), "got no input y"),
    "an unknown attribute": (model([node("Exp", ["x"], size=3)]), "'size' is unknown; Exp has no"),
    "an attribute of another type": (
        model([node("LeakyRelu", ["x"], alpha="a")]), "'alpha' is of type STRING; expected FLOAT",
    ),
    "a missing attribute": (model([node("Concat", ["x", "x"])]), "Concat.: lacks attribute axis"),
    "an axis that is not there": (model([node("Softmax", ["x"], axis=7)]), "axis 7"),
    "shapes that do not fit": (model([node("MatMul", ["x", "x"])]), "cannot multiply"),
    "an opset of the future": (model([node("Exp", ["x"])], opset=1000), "miniml knows those to"),
    "no graph": (b"", "holds no graph"),
    "text": (b"this is no model" * 9, "is not an ONNX model, or it is damaged"),
    "a tensor made of a shape": (model([node("ConstantOfShape", ["n"])], [BIG]), "at most"),
    "an expansion": (model([node("Expand", ["x", "n"])], [BIG]), "Expand"),
    "a repetition": (model([node("Tile", ["x", "n"])], [BIG]), "at most"),
    "padding": (
        model([node("Pad", ["x", "p"])], [const("p", np.full(4, 10**9))]), "at most",
    ),
    "padding by reflection": (
        model([node("Pad", ["x", "p"], mode="reflect")], [const("p", np.full(4, 10**9))]),
        "a table of indices",
    ),
    "a range": (
        model([node("Range", ["a", "b", "c"])], [
            const("a", 0.0), const("b", 1e18), const("c", 1.0)]),
        "at most",
    ),
    "a window": (model([node("HannWindow", ["n"])], [const("n", np.int64(10**15))]), "table"),
    "a filter": (
        model([node("MaxPool", ["x"], kernel_shape=[10**6], pads=[10**6, 10**6], dilations=[2])],
              inputs=[value("x", (1, 1, 10**7))]),
        "table",
    ),
    "one hot": (
        model([node("OneHot", ["i", "d", "v"])], [
            const("i", np.zeros(9, np.int64)), const("d", 10**9), const("v", np.zeros(2, "f"))]),
        "at most",
    ),
    "a loop without an end": (
        model([node("Loop", ["", ""], [], body=LOOP)], outputs=[]), "never ends",
    ),
    "a loop of names": (
        model([node("Loop", ["n", ""], [], body=helper.make_graph(
            [node("Identity", ["d"], ["e"]), node("Identity", ["e"], ["d"])],
            "body", LOOP.input, LOOP.output)), node("Exp", ["x"])], [const("n", 3)]),
        "'d' is defined by nothing|'d' is defined twice",
    ),
    "a thousand million turns": (
        model([node("Loop", ["n", ""], body=ROWS)], [const("n", 10**9)]), "at most",
    ),
    "a hundred million indices": (
        model([node("GatherND", ["x", "i"])], inputs=[
            value("x"), value("i", (1, 10**8), TensorProto.INT64)]),
        "has 100000000 indices",
    ),
    "a grid of many axes": (
        model([node("GridSample", ["x", "g"])], opset=20, inputs=[
            value("x", (1,) * 34), value("g", (*(1,) * 33, 32))]),
        "has no points",
    ),
    "a sum of many channels": (
        model([node("LRN", ["x"], size=10**9)], inputs=[value("x", (1, 10**8, 1, 1))]), "has size",
    ),
    "a spectrum far away": (
        model([node("MelWeightMatrix", list("abcde"))], [
            const(n, v) for n, v in zip("abcde", (8, 16, 8192, np.float32(0), np.float32(1e15)))]),
        "the spectrum has 9 places",
    ),
    "a function of itself": (
        model([node("F", ["x"], domain="mine")], functions=[helper.make_function(
            "mine", "F", ["x"], ["y"], [node("F", ["x"], domain="mine")],
            [helper.make_opsetid("mine", 1)])]),
        "calls itself",
    ),
    "an operator of strings": (model([node("StringSplit", ["x"])], opset=20), "has no row"),
}  # fmt: skip


@pytest.mark.parametrize("case", GRAPHS)
def test_graphs_that_are_wrong(case, tmp_path):
    refused(*GRAPHS[case], tmp_path)


def test_functions_that_double_and_double(tmp_path, monkeypatch):
    monkeypatch.setattr("miniml.onnx.reader._MOST", 1000)

    def doubling(i):
        calls = [node(f"F{i + 1}", ["x"], [n], domain="mine") for n in "ab"]
        body = [*calls, node("Add", ["a", "b"])] if i < 40 else [node("Exp", ["x"])]
        imports = [helper.make_opsetid("mine", 1), helper.make_opsetid("", 18)]
        return helper.make_function("mine", f"F{i}", ["x"], ["y"], body, imports)

    doubled = model([node("F20", ["x"], domain="mine")], functions=map(doubling, range(20, 41)))
    refused(doubled, "nested too deeply|more than 1,[0-9]* nodes", tmp_path)


def test_names_that_are_not_text(tmp_path):
    renamed = model([node("Exp", ["x"])]).SerializeToString().replace(b"net", b"\xff\xfe\xfd")
    refused(renamed, "a name that is not UTF-8", tmp_path)


def named(name):
    """Wrong models, each with the name in another place."""
    beside = damaged()
    tensor = beside.graph.initializer[0]
    tensor.data_location = TensorProto.EXTERNAL
    tensor.external_data.add(key="location", value=name)
    return {
        "of a node": model([helper.make_node("Softmax", ["x"], ["y"], axis=7, name=name)]),
        "of an output": model([node("Softmax", ["x"], [name], axis=7)], outputs=[name]),
        "of an operator": model([node(name, ["x"])]),
        "of a domain": model([node("Exp", ["x"], domain=name)]),
        "of a value": model([node("Exp", [name])]),
        "of an input": model([node("Exp", [name])], inputs=[value(name, ("n",))]),
        "of an extent": model([node("Exp", ["x"])], inputs=[value("x", (name, name + "m"))]),
        "of a tensor": model([node("Add", ["x", name])], [const(name, 1.0), const(name, 1.0)]),
        "of an attribute": model([node("Exp", ["x"], **{name: 1})]),
        "of a file": beside,
        "an equation": model([node("Einsum", ["x"], equation=name)]),
        "of a shape": model(
            [node("Reshape", ["x", name])], inputs=[value("x"), value(name, (1,), 7)]
        ),
    }


# Colours, a line that is written over, another that looks like one of miniml's, text backwards.
COMMANDS = "\x1b[2J\x1b]0;t\x07 \r\n \x85 \u2028 \u202e \x7f"


@pytest.mark.parametrize("name", ["n" * 300_000, "a name " * 500, COMMANDS, COMMANDS * 90], ids=len)
@pytest.mark.parametrize("place", named(""))
def test_a_sentence_is_short_and_legible_whatever_names_a_file_has(place, name, tmp_path):
    path = tmp_path / "model.onnx"
    path.write_bytes(named(name)[place].SerializeToString())
    with pytest.raises(OnnxError) as caught:
        ml.onnx.load(path)
    assert 20 < len(str(caught.value)) < 2200
    assert str(caught.value).isprintable()
    assert all(len(note) < 1000 for note in caught.value.__notes__)
    listed = str(ml.onnx.coverage(path))
    assert len(listed) < 500
    assert listed.replace("\n", "").isprintable()


def test_the_sentence_of_a_chain_of_functions_is_short(tmp_path):
    def passing(i):
        body = [node(f"F{i + 1}" if i < 60 else "Wrong", ["x"], domain="mine", name="a name " * 9)]
        imports = [helper.make_opsetid("mine", 1)]
        return helper.make_function("mine", f"F{i}", ["x"], ["y"], body, imports)

    chain = model([node("F0", ["x"], domain="mine")], functions=map(passing, range(61)))
    with pytest.raises(OnnxError, match=r"^node of 'y' \(mine.F0\): .* has no row") as caught:
        ml.onnx.load(chain)
    assert len(str(caught.value)) < 2200


def outside(location, **entries):
    proto = damaged()
    tensor = proto.graph.initializer[0]
    tensor.ClearField("raw_data")
    tensor.data_location = TensorProto.EXTERNAL
    for key, text in {"location": location, **entries}.items():
        entry = tensor.external_data.add()
        entry.key, entry.value = key, str(text)
    return proto


@pytest.mark.parametrize(
    ("location", "entries", "match"),
    [
        ("../secret", {}, "leaves the model's folder"),
        ("sub/../../secret", {}, "leaves the model's folder"),
        ("/etc/passwd", {}, "leaves the model's folder"),
        ("link", {}, "leaves the model's folder"),
        ("linked/data", {}, "leaves the model's folder"),
        ("a\0b", {}, "leaves the model's folder"),
        ("", {}, "leaves the model's folder"),
        (".", {}, "leaves the model's folder|is not a file"),
        ("gone", {}, "is not a file"),
        ("data", {"offset": 10}, "lies at 10 to 34 of data, which has 24 bytes"),
        ("data", {"offset": -1}, "offset '-1'"),
        ("data", {"length": 10**12}, "holds 1000000000000 bytes"),
        ("data", {"offset": "1e3"}, "offset '1e3'"),
    ],
)
def test_data_beside_the_model_are_plain_files_in_its_folder(location, entries, match, tmp_path):
    folder = tmp_path / "folder"
    (folder / "sub").mkdir(parents=True)
    (tmp_path / "secret").write_bytes(bytes(24))
    (folder / "data").write_bytes(np.arange(6, dtype=np.float32).tobytes())
    (folder / "link").symlink_to(tmp_path / "secret")
    (folder / "linked").symlink_to(folder)
    refused(outside(location, **entries), match, folder)


@pytest.mark.parametrize("seed", range(4))
def test_any_name_of_data_beside_the_model_is_a_sentence(seed, tmp_path):
    """Of any length and any letters: no file is there."""
    draw = random.Random(seed)
    for _ in range(20):
        letters = draw.choice(["ab", "a/", "a/.", "é鐘", "a\0", "a \n", "\U0001f600\\"])
        length = draw.choice([1, 10, 254, 255, 256, 300, 4095, 4096, 10_000])
        name = "x" + "".join(draw.choices(letters, k=length))
        refused(outside(name), "leaves the model's folder|is not a file|cannot be read", tmp_path)


def test_data_beside_the_model_are_read(tmp_path):
    (tmp_path / "data").write_bytes(bytes(8) + np.arange(6, dtype=np.float32).tobytes())
    path = tmp_path / "model.onnx"
    path.write_bytes(outside("data", offset=8, length=24).SerializeToString())
    out = ml.onnx.load(path)(np.ones((2, 3), np.float32))
    np.testing.assert_array_equal(out.asnumpy(), np.arange(6).reshape(2, 3) + 1)


def test_a_file_that_is_not_there(tmp_path):
    with pytest.raises(OnnxError, match="cannot be read: No such file"):
        ml.onnx.load(tmp_path / "gone.onnx")
    with pytest.raises(OnnxError, match="cannot be read: File name too long"):
        ml.onnx.load(f"{tmp_path}/{'a' * 300}.onnx")
    with pytest.raises(OnnxError, match="cannot be read: embedded null"):
        ml.onnx.coverage("a\0b.onnx")


@pytest.mark.parametrize("source", [b"bytes", io.BytesIO(), None, 3, ["model.onnx"]], ids=type)
@pytest.mark.parametrize("read", [ml.onnx.load, ml.onnx.coverage])
def test_what_is_neither_a_path_nor_a_model(read, source):
    with pytest.raises(OnnxError, match=rf"of type {type(source).__name__}; give its path or"):
        read(source)


def small():
    """A model of many kinds of values: floats, shapes, attributes, a branch, a loop."""
    weights = np.linspace(-1, 1, 12, dtype=np.float32).reshape(3, 4)
    branch = helper.make_graph([node("Exp", ["h"], ["t"])], "yes", [], [value("t", None)])
    other = helper.make_graph([node("Neg", ["h"], ["t"])], "no", [], [value("t", None)])
    body = helper.make_graph(
        [node("Identity", ["go"], ["on"]), node("Mul", ["v", "v"], ["u"])], "body",
        [value("i", (), 7), value("go", (), 9), value("v", None)],
        [value("on", (), 9), value("u", None)],
    )  # fmt: skip
    return model(
        [
            node("Gemm", ["x", "w", "b"], ["h"], alpha=0.5),
            node("Shape", ["h"], ["s"]),
            node("ReduceSum", ["h"], ["r"], keepdims=0),
            node("Greater", ["r", "zero"], ["p"]),
            node("If", ["p"], ["i"], then_branch=branch, else_branch=other),
            node("Reshape", ["i", "s"], ["f"]),
            node("Concat", ["f", "f"], ["c"], axis=1),
            node("Loop", ["n", "", "c"], ["y"], body=body),
        ],
        [
            const("w", weights),
            const("b", np.zeros(4, "f")),
            const("zero", np.float32(0)),
            const("n", 2),
        ],
    ).SerializeToString()


def mutated(data, draw):
    """Bytes changed, taken out, repeated or cut off."""
    data = bytearray(data)
    for _ in range(draw.randint(1, 4)):
        at = draw.randrange(len(data) or 1)
        kind = draw.randrange(5)
        if kind < 2:
            data[at : at + 1] = bytes([draw.choice([0, 1, 127, 128, 255, draw.randrange(256)])])
        elif kind == 2:
            del data[at : at + draw.randint(1, 9)]
        elif kind == 3:
            data[at:at] = data[at : at + draw.randint(1, 9)]
        else:
            del data[draw.randrange(len(data) or 1) :]
    return bytes(data)


@pytest.mark.larger
@pytest.mark.parametrize("seed", range(4))
def test_any_bytes_are_a_graph_or_a_sentence(seed, tmp_path):
    draw, whole, path = random.Random(seed), small(), tmp_path / "model.onnx"
    path.write_bytes(whole)
    assert isinstance(ml.onnx.load(path), Graph)
    tracemalloc.start()
    try:
        for _ in range(5000 if DEEP else 60):
            path.write_bytes(mutated(whole, draw))
            with contextlib.suppress(OnnxError, OnnxWarning):
                assert str(ml.onnx.load(path))
        # One file may fill the largest table, and what the one before left may not be gone yet.
        assert tracemalloc.get_traced_memory()[1] < 2 * MOST
    finally:
        tracemalloc.stop()
