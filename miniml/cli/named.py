"""Arguments of the command line: `module:name`, `path/to/file.py:name`, and numbers."""

from __future__ import annotations

import difflib
import importlib
import sys
from argparse import ArgumentTypeError
from collections.abc import Iterable
from importlib.machinery import ModuleSpec, SourceFileLoader
from importlib.util import find_spec, module_from_spec
from pathlib import Path
from types import ModuleType

from ..core.errors import MinimlError


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
    line, trace = "", error.__traceback__
    while trace is not None:
        code = trace.tb_frame.f_code
        line = (
            f" ({code.co_filename}:{trace.tb_lineno})" if Path(code.co_filename).is_file() else line
        )
        trace = trace.tb_next
    return MinimlError(f"importing {source} raised {type(error).__name__}: {error}{line}")
