"""`onnx coverage MODEL`: lists the operators of a model, and those that are missing.
`onnx save GRAPH MODEL`: writes a saved graph as a model."""

from __future__ import annotations

import argparse
from pathlib import Path

from ..graph.saved import load_graph
from ..onnx import coverage, save


def add(command: argparse.ArgumentParser) -> None:
    actions = command.add_subparsers(required=True, metavar="ACTION")
    listed = actions.add_parser(
        "coverage",
        help="the operators of a model, and which of them no row reads",
        description="The operators of a model, their versions, how many nodes use them, and which "
        "of them no row reads. Exit code 1 if there are such, 2 if the file cannot be read.",
    )
    listed.add_argument("model", help="path/to/model.onnx")
    listed.set_defaults(run=lambda options: run(options.model))
    written = actions.add_parser(
        "save",
        help="a saved graph as a model in ONNX",
        description="Write a graph that ml.save_graph wrote as a model in ONNX. Exit code 2 if it "
        "cannot be written.",
    )
    written.add_argument("graph", help="path/to/graph.json")
    written.add_argument("model", help="path/to/model.onnx")
    written.add_argument("--opset", type=int, default=21, help="of the default domain, 21")
    written.set_defaults(run=lambda options: write(options.graph, options.model, options.opset))


def run(model: str) -> int:
    """Print the list; returns 1 if an operator is missing, else 0."""
    found = coverage(Path(model))
    print(found)
    return 1 if found.missing else 0


def write(graph: str, model: str, opset: int) -> int:
    """Write a saved graph as a model; returns 0."""
    save(load_graph(graph), model, opset=opset)
    print(f"{model}: written in ONNX, opset {opset}")
    return 0
