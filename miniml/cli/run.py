"""`run GRAPH`: runs a saved graph on arrays in files, and prints its times."""

from __future__ import annotations

import io
import time
from argparse import ArgumentParser, Namespace
from collections.abc import Iterable, Sequence
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from statistics import median

import numpy as np

from ..core.errors import MinimlError
from ..core.files import refused, write_file
from ..core.hints import elsewhere
from ..core.settings import context
from ..core.tensor import Array, Tensor
from ..export.saved import load_graph
from ..graph.ir import Graph
from . import imported, near, whole


def add_run(command: ArgumentParser) -> None:
    command.description = (
        "Load a graph that ml.save_graph wrote, run it, and say how long that took. Nothing of "
        "miniml is imported that only training needs."
    )
    command.add_argument("graph", help="the JSON file; its arrays lie beside it")
    command.add_argument(
        "--input", action="append", default=[], metavar="[NAME=]FILE.npy",
        help="an input, in the order of the graph's inputs or by name; once for each",
    )  # fmt: skip
    command.add_argument(
        "--output", action="append", default=[], metavar="[NAME=]FILE.npy",
        help="where to write an output, in their order or by name",
    )  # fmt: skip
    command.add_argument(
        "--import", action="append", default=[], metavar="MODULE", dest="modules",
        help="a module or file.py that registers primitives and kernels of your own; first",
    )  # fmt: skip
    command.add_argument(
        "--repeat", type=partial(whole, "number of calls", 1), default=1, metavar="N",
        help="how many times to call it; the outputs are those of the first (default: 1)",
    )  # fmt: skip
    command.add_argument(
        "--profile", action="store_true", help="print the time, calls and bytes of each node, too"
    )
    command.add_argument(
        "--device", default="cpu", metavar="cpu|cuda-sim|cuda",
        help="where to compute (default: %(default)s)",
    )  # fmt: skip
    command.set_defaults(run=run)


def run(options: Namespace) -> int:
    """Run the graph as the options say; returns the exit code."""
    for module in options.modules:
        imported(module)
    with context(device_target=options.device):
        graph = load_graph(options.graph)
        targets = _assigned("output", graph.output_names, options.output)
        given = _assigned("input", graph.input_names, options.input)
        absent = [name for name in graph.input_names if name not in given]
        if absent:
            types = {n: v.abstract for n, v in zip(graph.input_names, graph.inputs, strict=True)}
            raise MinimlError(
                f"{options.graph} needs the input {absent[0]}: {types[absent[0]]}; give "
                f"--input {absent[0]}=FILE.npy"
            )
        inputs = [Tensor(_array(given[name])) for name in graph.input_names]
        with elsewhere("miniml", "profile")() if options.profile else nullcontext() as seen:
            outputs = _timed(graph, inputs, options.repeat)
    if seen is not None:
        print(seen)
    for name, value in zip(graph.output_names, outputs, strict=True):
        print(f"{name}: {value!r}")
        if name in targets:
            _write(targets[name], value.asnumpy())
    return 0


def _assigned(what: str, names: Sequence[str], given: Iterable[str]) -> dict[str, str]:
    """The files by name; those without a name take the first names, in order."""
    found: dict[str, str] = {}
    unnamed = iter(names)
    for text in given:
        name, equals, file = text.partition("=")
        if not equals:
            name, file = next(unnamed, ""), text
        if name not in names or name in found:
            wrong = "is given twice" if name in found else f"is no {what}; {near(name, names)}"
            raise MinimlError(f"--{what} {text}: {name!r} {wrong}")
        found[name] = file
    return found


def _array(file: str) -> Array:
    """The array in a file; nothing in it is run."""
    try:
        found = np.load(file, allow_pickle=False)
    except OSError as error:
        raise refused(file, "loaded", error) from None
    except (ValueError, EOFError):
        raise MinimlError(f"{file} is damaged, or no .npy file of numbers") from None
    if not isinstance(found, np.ndarray):
        raise MinimlError(f"{file} is an archive of several arrays; give a .npy file")
    return found


def _timed(graph: Graph, inputs: Sequence[Tensor], repeat: int) -> tuple[Tensor, ...]:
    """The outputs of the first call; prints the times of all."""
    seconds: list[float] = []
    first: tuple[Tensor, ...] = ()
    for _ in range(repeat):
        began = time.perf_counter()
        result = graph(*inputs)
        outputs = result if isinstance(result, tuple) else (result,)
        for value in outputs[:1]:
            value.asnumpy()  # waits for the device
        seconds.append(time.perf_counter() - began)
        first = first or outputs
    later = sorted(seconds[1:])
    print(f"{graph.name}: {len(graph.nodes)} nodes; first call, compiled, {_duration(seconds[0])}")
    if later:
        print(f"{len(later)} more: least {_duration(later[0])}, median {_duration(median(later))}")
    return first


def _duration(seconds: float) -> str:
    rounded = float(f"{seconds:.3g}")
    return f"{rounded:g} s" if rounded >= 1 else f"{1e3 * rounded:.3g} ms"


def _write(file: str, array: Array) -> None:
    data = io.BytesIO()
    np.save(data, array, allow_pickle=False)
    try:
        write_file(Path(file), [data.getvalue()])
    except OSError as error:
        raise refused(file, "saved", error) from None
