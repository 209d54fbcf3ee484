"""`export MODEL`: writes a model in ONNX, a saved graph, or a network, as one C file that needs
nothing."""

from __future__ import annotations

import platform
from argparse import ArgumentParser, ArgumentTypeError, Namespace
from pathlib import Path
from typing import Any

import numpy as np

from .. import onnx
from ..core.errors import MinimlError
from ..core.tensor import Array
from ..export.exporter import exported
from ..export.web import export_web
from ..graph.ir import Graph
from ..graph.saved import load_graph
from ..nn import Cell, CrossEntropyLoss
from ..optim import SGD
from ..train.checkpoint import load_checkpoint, names_below
from ..train.step import train_step
from .named import imported, whole
from .summary import network, spec


def add(command: ArgumentParser) -> None:
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
    command.set_defaults(run=run)


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


def run(options: Namespace) -> int:
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
