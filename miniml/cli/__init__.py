"""The command line, `python -m miniml COMMAND`: the commands, and what they take.

`main` and the table of commands, whose options are added by modules named in it; then arguments
that name objects.
"""

from __future__ import annotations

import argparse
import difflib
import importlib
import os
import sys
from argparse import ArgumentTypeError
from collections.abc import Iterable, Sequence
from importlib.machinery import ModuleSpec, SourceFileLoader
from importlib.util import find_spec, module_from_spec
from pathlib import Path
from traceback import walk_tb
from types import ModuleType

import miniml

from ..core.errors import MinimlError, NonFiniteError

COMMANDS = {  # by module, whose function `add_<name>` adds the options: names, and their help
    "demo": {
        "demo": "train a small network on handwritten digits",
        "new": "a small project to start from, with a primitive, a network and tests",
    },
    "doctor": {
        "doctor": "versions, BLAS, compiler, GPU: what is on, what is missing, how to get it",
        "cache": "compiled kernels on disk: how many, how large, how old",
        "nvrtc": "what NVIDIA's compiler makes of CUDA C: registers, memory, errors; needs no GPU",
        "bench": "speed and memory, measured (in a checkout)",
    },
    "show": {"show": "one primitive: definition, gradient, kernels, tests"},
    "models": {
        "summary": "a network, its layers and its parameters",
        "onnx": "models in ONNX: what they need",
        "export": "a model as one C file without dependencies",
    },
    "run": {"run": "a saved graph, on arrays in files"},
    "scale": {"scale": "where data parallel stops paying, simulated for 1 to 4,096 ranks"},
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
    named = [(m, name, does) for m, names in COMMANDS.items() for name, does in names.items()]
    for module, name, does in named:
        description = f"{does[0].upper()}{does[1:]}."
        command = commands.add_parser(name, help=does, description=description)
        if name == next(iter(given), None):
            getattr(importlib.import_module(f"{__name__}.{module}"), f"add_{name}")(command)
    return parser


# --- Arguments: `module:name`, `path/to/file.py:name`, and numbers --------------------------------


def load(address: str) -> object:
    """The object at `module:name` or `file.py:name`; the module is imported for it.

    MinimlError where there is none, with the nearest names, and where the import fails.
    """
    source, _, name = address.rpartition(":")
    if not source or not name:
        raise MinimlError(f"{address!r} names nothing; give module:name or path/to/file.py:name")
    module = imported(source)
    if not hasattr(module, name):
        raise MinimlError(f"{source} has no {name!r}; {near(name, _public(module))}")
    found: object = getattr(module, name)
    return found


def imported(source: str) -> ModuleType:
    """The module of that name, or in that file; MinimlError where its import fails."""
    return _file(Path(source)) if source.endswith(".py") else _module(source)


def whole(what: str, least: int, text: str) -> int:
    """The value of an option, an int of at least `least`; `what` names it in the error."""
    try:
        value = int(text)
    except ValueError:
        value = least - 1
    if value < least:
        raise ArgumentTypeError(f"{text!r} is not a {what}; give a whole number from {least}")
    return value


def near(name: str, known: Iterable[str]) -> str:
    """The end of a message: the known names that are closest to `name`, or contain it; else all
    of them, or their number if they are many."""
    folded: dict[str, list[str]] = {}
    for spelt in known:
        folded.setdefault(fold(spelt), []).append(spelt)
    close = difflib.get_close_matches(fold(name), folded, n=5, cutoff=0.5)
    close += [f for f in folded if fold(name) and fold(name) in f and f not in close][:5]
    if not close and len(folded) > 10:
        return f"there are {len(folded)}, none of them like it"
    shown = ", ".join(spelt for found in close or folded for spelt in folded[found])
    return f"near it: {shown}" if close else f"there are: {shown or 'none'}"


def fold(name: str) -> str:
    """The key that different spellings of a name share."""
    return name.replace("_", "").lower()


def _public(module: ModuleType) -> list[str]:
    """The public names of a module, other modules left out."""
    named = vars(module).items()
    return [n for n, v in named if not n.startswith("_") and not isinstance(v, ModuleType)]


def _module(name: str) -> ModuleType:
    try:
        found = find_spec(name)
    except (ModuleNotFoundError, ValueError):
        found = None
    if found is None:
        here = [p.stem for p in Path().glob("*.py")]
        raise MinimlError(f"there is no module {name!r} here; {near(name, here)}")
    try:
        return importlib.import_module(name)
    except Exception as error:
        raise _failed(name, error) from error


def _file(path: Path) -> ModuleType:
    """The module in a file, which may import others of its folder, as when Python runs it."""
    if not path.is_file():
        there = [str(p) for p in path.parent.glob("*.py")]
        raise MinimlError(f"there is no file {str(path)!r}; {near(str(path), there)}")
    name = str(path) if path.stem in sys.modules else path.stem
    loader = SourceFileLoader(name, str(path))
    module = sys.modules[name] = module_from_spec(ModuleSpec(name, loader, origin=str(path)))
    sys.path.insert(0, str(path.parent.resolve()))
    try:
        loader.exec_module(module)
    except Exception as error:
        raise _failed(str(path), error) from error
    return module


def _failed(source: str, error: Exception) -> MinimlError:
    """The error for a file whose import raises, with the line in it."""
    line = ""
    for frame, number in walk_tb(error.__traceback__):
        file = frame.f_code.co_filename
        line = f" ({file}:{number})" if Path(file).is_file() else line
    return MinimlError(f"importing {source} raised {type(error).__name__}: {error}{line}")
