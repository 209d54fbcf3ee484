"""`export MODEL`: writes a model in ONNX, or a saved graph, as one C file without dependencies."""

from __future__ import annotations

from argparse import ArgumentParser, ArgumentTypeError, Namespace
from pathlib import Path

from .. import onnx
from ..export.exporter import exported
from ..graph.saved import load_graph
from .named import imported, whole


def add(command: ArgumentParser) -> None:
    command.description = (
        "Write a model in ONNX, or a graph that ml.save_graph wrote, as one C file and its header, "
        "which need a C compiler and libm alone. Exit code 2 if it cannot be written. In Python "
        "ml.export_c takes networks, functions and training steps, too."
    )
    command.add_argument("model", help="path/to/model.onnx or path/to/graph.json")
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
        "--native", action="store_true",
        help="vectors as wide as this machine's, for -march=native (default: 16 bytes)",
    )  # fmt: skip
    command.add_argument(
        "--import", action="append", default=[], metavar="MODULE", dest="modules",
        help="a module or file.py that registers primitives and kernels of your own; first",
    )  # fmt: skip
    command.set_defaults(run=run)


def _dimension(text: str) -> tuple[str, int]:
    name, _, extent = text.rpartition("=")
    if not name:
        raise ArgumentTypeError(f"{text!r} is not NAME=EXTENT, as batch=1")
    return name, whole("size of an axis", 1, extent)


def run(options: Namespace) -> int:
    """Write the files and print their sizes; returns 0."""
    for module in options.modules:
        imported(module)
    if Path(options.model).suffix == ".onnx":
        graph = onnx.load(options.model, dims=dict(options.dim))
    else:
        graph = load_graph(options.model)
    target = "native" if options.native else None
    made = exported(graph, options.output, (), options.name, target)
    size = made.source.stat().st_size
    print(f"{made.source}: {size:,} bytes of text, and {made.header}")
    print(f"parameters {made.parameters:,} bytes, constants in the program")
    print(f"arena      {made.arena:,} bytes, which the caller provides")
    print(f"work       {made.flops:,} operations in floating point a call")
    return 0
