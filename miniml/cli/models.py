"""Commands about models: their layers, their operators in ONNX, and their program in C.

`summary`: prints a network as a tree, its parameters, and its layers as a table. `onnx coverage
MODEL`: lists the operators of a model, and those that are missing; `onnx save GRAPH MODEL`: writes
a saved graph as a model. `export MODEL`: writes a model in ONNX, a saved graph, or a network, as
one C file that needs nothing.
"""

from __future__ import annotations

import platform
import re
from argparse import ArgumentParser, ArgumentTypeError, Namespace
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from .. import onnx
from ..core.abstract import ArraySpec, as_dtype, float32
from ..core.errors import MinimlError
from ..core.tensor import Array
from ..export.exporter import exported
from ..export.saved import load_graph
from ..export.web import export_web
from ..graph.ir import Graph
from ..nn import Cell, CrossEntropyLoss
from ..optim import SGD
from ..train.checkpoint import load_checkpoint, names_below
from ..train.step import train_step
from . import demo, imported, load, whole

Row = tuple[str, str, str, str]


def add_summary(command: ArgumentParser) -> None:
    command.add_argument(
        "net",
        nargs="?",
        help="a network, or what makes one without arguments, as module:net or "
        "path/to/file.py:net (default: the demo's)",
    )
    command.add_argument(
        "--input",
        action="append",
        default=[],
        metavar="TYPE",
        help="the type of an input, such as 32,784 or int64[32, 10]: shows what each layer gives; "
        "once for each input",
    )
    command.set_defaults(run=lambda o: run_summary(o.net, o.input))


def run_summary(address: str | None, inputs: Sequence[str]) -> int:
    """Print the network at `module:net`, the demo's for None, and its layers, for inputs given as
    types such as "float32[32, 784]" with what each gives; returns the exit code."""
    net = demo.network() if address is None else network(address)
    print(net, parameters(net), net.summary(*map(spec, inputs)), sep="\n\n")
    return 0


def network(address: str) -> Cell:
    """The Cell at `module:name`, or the one that a class or a function there makes."""
    found = load(address)
    net = found if isinstance(found, Cell) or not callable(found) else _made(address, found)
    if not isinstance(net, Cell):
        raise MinimlError(
            f"{address} is {net!r} of type {type(net).__name__}; give a Cell, or what makes "
            "one without arguments"
        )
    return net


def _made(address: str, make: Any) -> object:
    try:
        return make()
    except Exception as error:
        raise MinimlError(
            f"{address}() raised {type(error).__name__}: {error}; give a network, or what makes "
            "one without arguments"
        ) from error


def spec(text: str) -> ArraySpec:
    """The type written as "float32[32, 784]", "32,784" or "32x784"."""
    found = re.fullmatch(r"(?:(\w+)\[(.*)\])?|(.*)", text)
    sizes = re.split(r"[,x]", found[2] or found[3] or "") if found else []
    if found is None or not all(size.strip().isdigit() for size in sizes):
        raise MinimlError(f"{text!r} is not a type; write float32[32, 784], int64[32] or 32,784")
    return ArraySpec(tuple(map(int, sizes)), as_dtype(found[1] or float32))


def parameters(net: Cell) -> str:
    """One line for each parameter: name, shape, dtype, numbers; and their sum."""
    found = net.parameters_dict()
    rows = [
        (n if p.requires_grad else f"{n} (not trained)", str(p.shape), p.dtype.name, f"{p.size:,}")
        for n, p in found.items()
    ]
    total = ("together", "", "", f"{sum(p.size for p in found.values()):,}")
    return _table([("parameter", "shape", "dtype", "numbers"), *rows, total])


def _table(rows: Sequence[Row]) -> str:
    """Columns, the last right-aligned, with a rule below the head and above the last row."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = ["  ".join((*map(str.ljust, row[:3], widths), row[3].rjust(widths[3]))) for row in rows]
    rule = "-" * len(lines[0])
    return "\n".join((lines[0], rule, *lines[1:-1], rule, lines[-1]))


# --- `onnx coverage` and `onnx save` --------------------------------------------------------------


def add_onnx(command: ArgumentParser) -> None:
    actions = command.add_subparsers(required=True, metavar="ACTION")
    listed = actions.add_parser(
        "coverage",
        help="the operators of a model, and which of them no row reads",
        description="The operators of a model, their versions, how many nodes use them, and which "
        "of them no row reads. Exit code 1 if there are such, 2 if the file cannot be read.",
    )
    listed.add_argument("model", help="path/to/model.onnx")
    listed.set_defaults(run=lambda options: run_onnx(options.model))
    written = actions.add_parser(
        "save",
        help="a saved graph as a model in ONNX",
        description="Write a graph that ml.save_graph wrote as a model in ONNX. Exit code 2 if it "
        "cannot be written.",
    )
    written.add_argument("graph", help="path/to/graph.json")
    written.add_argument("model", help="path/to/model.onnx")
    written.add_argument("--opset", type=int, default=21, help="of the default domain, 21")
    written.set_defaults(run=lambda options: save_onnx(options.graph, options.model, options.opset))


def run_onnx(model: str) -> int:
    """Print the list; returns 1 if an operator is missing, else 0."""
    found = onnx.coverage(Path(model))
    print(found)
    return 1 if found.missing else 0


def save_onnx(graph: str, model: str, opset: int) -> int:
    """Write a saved graph as a model; returns 0."""
    onnx.save(load_graph(graph), model, opset=opset)
    print(f"{model}: written in ONNX, opset {opset}")
    return 0


# --- `export` -------------------------------------------------------------------------------------


def add_export(command: ArgumentParser) -> None:
    command.description = (
        "Write a model in ONNX, a graph that ml.save_graph wrote, or the parameters of a network, "
        "as one C file and its header, which need a C compiler and libm alone. Exit code 2 if it "
        "cannot be written. In Python ml.export_c takes functions and training steps, too."
    )
    command.add_argument(
        "model", help="path/to/model.onnx, graph.json, or parameters.safetensors with --net"
    )
    command.add_argument(
        "--net", metavar="MODULE:NET",
        help="the network of the parameters, or what makes one, as module:net or file.py:net",
    )  # fmt: skip
    command.add_argument(
        "--input", action="append", default=[], metavar="TYPE",
        help="the type of an input of --net, such as 1,64 or int64[1, 32]; once for each",
    )  # fmt: skip
    command.add_argument(
        "-o", "--output", default="net.c", metavar="FILE.c",
        help="the C file; its header stands beside it (default: %(default)s)",
    )  # fmt: skip
    command.add_argument(
        "--name", default="net", help="the prefix of all names in C (default: %(default)s)"
    )
    command.add_argument(
        "--dim", action="append", default=[], type=_dimension, metavar="NAME=EXTENT",
        help="an extent that an ONNX model leaves open, as batch=1; once for each",
    )  # fmt: skip
    command.add_argument(
        "--weights", choices=["arrays", "file"], default="arrays",
        help="where parameters are: in the C file, or in FILE.safetensors beside it, which "
        "net_load reads (default: %(default)s)",
    )  # fmt: skip
    command.add_argument(
        "--quantize", choices=["int8"], help="products by weights in int8; with --calibrate"
    )
    command.add_argument(
        "--calibrate", metavar="FILE.npy",
        help="inputs as those of use, along the first axis: they set the scales of activations",
    )  # fmt: skip
    _add_page(command)
    command.add_argument(
        "--native", action="store_true",
        help="vectors as wide as this machine's, for -march=native (default: 16 bytes)",
    )  # fmt: skip
    command.add_argument(
        "--import", action="append", default=[], metavar="MODULE", dest="modules",
        help="a module or file.py that registers primitives and kernels of your own; first",
    )  # fmt: skip
    command.set_defaults(run=run_export)


def _add_page(command: ArgumentParser) -> None:
    """Add the options of the page that `--web` writes."""
    command.add_argument(
        "--web", metavar="FOLDER",
        help="write a page instead, FOLDER/index.html, with --net as WebAssembly: one draws an "
        "image of the type of --input, and it shows the scores",
    )  # fmt: skip
    command.add_argument(
        "--levels", type=float, nargs=2, default=(0.0, 1.0), metavar=("WHITE", "INK"),
        help="pixels of white paper and of ink on the page (default: 0 and 1)",
    )  # fmt: skip
    command.add_argument(
        "--learn", type=float, metavar="LR",
        help="the page learns what its user corrects, by SGD at this rate",
    )  # fmt: skip


def _dimension(text: str) -> tuple[str, int]:
    name, _, extent = text.rpartition("=")
    if not name:
        raise ArgumentTypeError(f"{text!r} is not NAME=EXTENT, as batch=1")
    return name, whole("size of an axis", 1, extent)


def run_export(options: Namespace) -> int:
    """Write the files and print their sizes; returns 0."""
    for module in options.modules:
        imported(module)
    model, inputs = _model(options)
    if options.web is not None:
        return _page(options, model, inputs)
    target = "native" if options.native else None
    made = exported(
        model, options.output, inputs, options.name, target, options.weights, options.quantize,
        _calls(options, model, inputs), measured=True,
    )  # fmt: skip
    size = made.source.stat().st_size
    print(f"{made.source}: {size:,} bytes of text, and {made.header}")
    where = f"in {made.weights}" if made.weights else "constants in the program"
    print(f"parameters {made.parameters:,} bytes, {where}")
    if made.report is not None:
        print(made.report)
    print(f"arena      {made.arena:,} bytes, which the caller provides")
    print(f"stack      {_stack(made.stack)}")
    print(f"work       {made.flops:,} operations in floating point a call")
    return 0


def _stack(nbytes: int | None) -> str:
    if nbytes is None:
        return "not known: gcc says it, and it is not the C compiler here; CC=gcc names one"
    return f"{nbytes:,} bytes at most, and libm's own, by gcc -O3 for {platform.machine()}"


def _calls(options: Namespace, model: Any, inputs: list[Array]) -> list[Array]:
    """The calibration data, cut into inputs of the model."""
    if options.calibrate is None:
        return []
    try:
        rows = np.load(options.calibrate, allow_pickle=False)
    except (OSError, ValueError) as error:
        raise MinimlError(f"{options.calibrate} is no file of numpy.save: {error}") from None
    shapes = [v.abstract.shape for v in model.inputs] if isinstance(model, Graph) else []
    shape = (*shapes, *(x.shape for x in inputs))[0]
    if len(shape) != rows.ndim or not shape or len(rows) < shape[0]:
        raise MinimlError(
            f"{options.calibrate} has shape {rows.shape}; give inputs of shape {shape}, one or "
            "more along the first axis"
        )
    count = len(rows) // shape[0]
    return [rows[i * shape[0] : (i + 1) * shape[0]] for i in range(count)]


def _page(options: Namespace, model: Any, inputs: list[Array]) -> int:
    if not isinstance(model, Cell) or len(inputs) != 1:
        raise MinimlError(
            f"{options.model} cannot be a page; give parameters of a network of one image, as "
            "digits.safetensors --net module:net --input 1,1,8,8"
        )
    step = None
    if options.learn is not None:
        optimizer = SGD(model.trainable_params(), options.learn)
        step = train_step(model, CrossEntropyLoss(), optimizer)
    white, ink = options.levels
    made = export_web(model, options.web, inputs[0], step, (white, ink))
    print(f"{made.page}: {made.page.stat().st_size:,} bytes; it needs no server and no other file")
    print(f"{made.module}: {made.module.stat().st_size:,} bytes, the module in it")
    return 0


def _model(options: Namespace) -> tuple[Any, list[Array]]:
    """The model of the options, and arrays of the types of its inputs; a graph has its own."""
    suffix = Path(options.model).suffix
    if suffix == ".onnx":
        return onnx.load(options.model, dims=dict(options.dim)), []
    if suffix != ".safetensors":
        return load_graph(options.model), []
    if options.net is None or not options.input:
        raise MinimlError(
            f"{options.model} has parameters alone; give the network that they are of, and its "
            "inputs, as --net module:net --input 1,64"
        )
    net = network(options.net)
    there = names_below("", options.model)  # of a training step: the optimizer's, too
    load_checkpoint(options.model, net, strict=not net.parameters_dict().keys() <= {*there})
    net.set_train(False)
    return net, [np.zeros(given.shape, given.dtype) for given in map(spec, options.input)]
