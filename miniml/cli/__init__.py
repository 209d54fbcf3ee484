"""The command line: `python -m miniml COMMAND`, a module for each command."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from importlib import import_module

import miniml

from ..core.errors import MinimlError, NonFiniteError

COMMANDS = {
    "demo": "train a small network on handwritten digits",
    "new": "a small project to start from, with a primitive, a network and tests",
    "doctor": "versions, BLAS, compiler, GPU: what is on, what is missing, how to get it",
    "cache": "compiled kernels on disk: how many, how large, how old",
    "show": "one primitive: definition, gradient, kernels, tests",
    "nvrtc": "what NVIDIA's compiler makes of CUDA C: registers, memory, errors; needs no GPU",
    "summary": "a network, its layers and its parameters",
    "run": "a saved graph, on arrays in files",
    "onnx": "models in ONNX: what they need",
    "scale": "where data parallel stops paying, simulated for 1 to 4,096 ranks",
    "export": "a model as one C file without dependencies",
    "bench": "speed and memory, measured (in a checkout)",
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; returns the exit code: 0, or 2, with the reason on stderr."""
    given = list(sys.argv[1:] if argv is None else argv)
    parser = _parser(given)
    if not given:
        parser.print_help(sys.stderr)
        return 2
    options = parser.parse_args(given)
    try:
        code = int(options.run(options))
        sys.stdout.flush()
        return code
    except BrokenPipeError:  # `| head` has read enough; Python would complain again at its exit
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except NonFiniteError as error:
        print(f"miniml: {error}", *getattr(error, "__notes__", ()), sep="\n", file=sys.stderr)
        return 1
    except MinimlError as error:
        notes = [note for note in getattr(error, "__notes__", ()) if "\n" not in note]
        print("; ".join([f"miniml: {error}", *notes]), file=sys.stderr)
        return 2


def _parser(given: Sequence[str]) -> argparse.ArgumentParser:
    """The parser of all commands; of the one that is given, its module adds the options."""
    parser = argparse.ArgumentParser(
        prog="python -m miniml",
        description="miniml: define a primitive with a gradient, check it, train with it.",
        epilog="Checks: miniml.testing.gradcheck(fn, *args) of a gradient, opcheck(primitive) of a "
        "whole primitive, and `pytest --miniml-opcheck FILE` of all that a file defines; "
        "docs/checking.md tells more.",
    )
    parser.add_argument("--version", action="version", version=f"miniml {miniml.__version__}")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    for name, does in COMMANDS.items():
        description = f"{does[0].upper()}{does[1:]}."
        command = commands.add_parser(name, help=does, description=description)
        if name == next(iter(given), None):
            import_module(f"{__name__}.{name}").add(command)
    return parser
