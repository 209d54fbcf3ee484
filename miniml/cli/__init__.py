"""The command line: python -m miniml demo | doctor | cache | show | summary | onnx | bench."""

from __future__ import annotations

import argparse
import importlib.util
import runpy
import sys
from collections.abc import Sequence
from functools import partial

import miniml

from ..errors import MinimlError, NonFiniteError
from . import cache, demo, doctor, onnx, show, summary


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; returns the exit code: 0, or 2, with the reason on stderr."""
    given = list(sys.argv[1:] if argv is None else argv)
    parser = _parser()
    if not given:
        parser.print_help(sys.stderr)
        return 2
    options = parser.parse_args(given)
    try:
        return int(options.run(options))
    except NonFiniteError as error:
        print(f"miniml: {error}", *getattr(error, "__notes__", ()), sep="\n", file=sys.stderr)
        return 1
    except MinimlError as error:
        print(f"miniml: {error}", file=sys.stderr)
        return 2


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m miniml",
        description="miniml: define a primitive with a gradient, check it, train with it.",
    )
    parser.add_argument("--version", action="version", version=f"miniml {miniml.__version__}")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    _add_demo(commands.add_parser("demo", help="train a small network on handwritten digits"))
    commands.add_parser(
        "doctor", help="versions, BLAS, compiler, GPU: what is on, what is missing, how to get it"
    ).set_defaults(run=lambda o: doctor.run())
    kept = commands.add_parser(
        "cache", help="compiled kernels on disk: how many, how large, how old"
    )
    kept.add_argument("--clear", action="store_true", help="remove them; they are compiled anew")
    kept.set_defaults(run=lambda o: cache.run(o.clear))
    one = commands.add_parser("show", help="one primitive: definition, gradient, kernels, tests")
    one.add_argument(
        "name",
        help="such as Add, leaky_relu or conv2d; one of your own as module:Snake or "
        "path/to/file.py:Snake",
    )
    one.set_defaults(run=lambda o: show.run(o.name))
    _add_summary(commands.add_parser("summary", help="a network, its layers and its parameters"))
    _add_onnx(commands.add_parser("onnx", help="models in ONNX: what they need"))
    commands.add_parser(
        "bench",
        help="speed and memory, measured (in a checkout)",
        description="Run the benchmarks of a checkout, as `make bench` does: training steps beside "
        "NumPy written by hand, memory beside its lower bound, compile and import times, and the "
        "checkers beside other systems that are installed. Best on an idle machine; some minutes.",
    ).set_defaults(run=lambda o: _bench())
    return parser


def _add_onnx(command: argparse.ArgumentParser) -> None:
    actions = command.add_subparsers(required=True, metavar="ACTION")
    listed = actions.add_parser(
        "coverage", help="the operators of a model, and which of them no row reads"
    )
    listed.add_argument("model", help="path/to/model.onnx")
    listed.set_defaults(run=lambda o: onnx.run(o.model))


def _add_summary(command: argparse.ArgumentParser) -> None:
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
    command.set_defaults(run=lambda o: summary.run(o.net, o.input))


def _add_demo(train: argparse.ArgumentParser) -> None:
    defaults = demo.Demo()
    train.add_argument(
        "--device",
        default=defaults.device,
        metavar="cpu|cuda-sim|cuda",
        help="where to compute (default: %(default)s)",
    )
    train.add_argument(
        "--epochs",
        type=partial(_whole, "number of epochs", 1),
        help=f"how many times to go through the digits (default: {demo.EPOCHS}; on cuda-sim, which "
        f"takes its time, {demo.EPOCHS_SIMULATED})",
    )
    train.add_argument(
        "--seed",
        type=partial(_whole, "seed", 0),
        default=defaults.seed,
        help="chooses the initial weights, the held-out digits and their order; equal seeds give "
        "equal weights (default: %(default)s)",
    )
    train.add_argument(
        "--mode",
        choices=("graph", "eager"),
        default=defaults.mode,
        help="compile each step into one program, or run it op by op (default: %(default)s)",
    )
    train.add_argument(
        "--lr",
        type=float,
        default=defaults.lr,
        help="learning rate; try 1e30 to see a run go wrong (default: %(default)s)",
    )
    train.set_defaults(
        run=lambda o: demo.run(demo.Demo(o.device, o.epochs, o.seed, o.mode, o.lr)),
    )


def _whole(what: str, least: int, text: str) -> int:
    try:
        value = int(text)
    except ValueError:
        value = least - 1
    if value < least:
        raise argparse.ArgumentTypeError(
            f"{text!r} is not a {what}; give a whole number from {least}"
        )
    return value


def _bench() -> int:
    if importlib.util.find_spec("benchmarks") is None:
        print(
            "miniml: the benchmarks are not installed with miniml; run this, or `make bench`, in "
            "the top folder of a checkout",
            file=sys.stderr,
        )
        return 2
    runpy.run_module("benchmarks", run_name="__main__", alter_sys=True)
    return 0
