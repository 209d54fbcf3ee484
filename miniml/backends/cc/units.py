"""Native kernels by their text: compiled together, kept on disk, loaded once per process.

A unit is a file of the cache with several kernels. Every kernel's name, with what it depends on
beside its text, is a link to a unit that has it: so what one Program compiled, another finds.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import accumulate
from pathlib import Path
from typing import Any

from ...errors import DeviceError
from ..device import cpu_threads
from ..forks import lock_of_process
from ..toolchain import digest
from . import compiler
from .source import Source, addresses_of, unit

_PART = 6000  # characters of kernels, 50 ms for gcc: as long as one more process of it takes
_EACH = 2000  # more for each kernel: short texts are loops, which take longer than their length
_PROCESSES = 8  # at most: each takes some 50 MB, and a container may have fewer CPUs than it sees
Function = Callable[[Any], None]
_loaded: dict[Source, Function] = {}
_libraries: dict[Path, ctypes.CDLL] = {}
_services: ctypes.Structure | None = None
_lock = lock_of_process()


def load(sources: Sequence[Source]) -> list[Function]:
    """The functions of these kernels; those that no unit has are compiled together.

    CompileError: the compiler refuses a text. DeviceError: there is no compiler, it fails itself,
    or there is no folder for what it makes; `compiler.absence` gives the reason from then on.
    """
    if any(source not in _loaded for source in sources):
        with _lock:
            _load([s for s in dict.fromkeys(sources) if s not in _loaded])
    return [_loaded[s] for s in sources]


def run(source: Source, arrays: Sequence[Any]) -> None:
    """Call a kernel once on NumPy arrays: inputs, outputs, workspace."""
    addresses = (ctypes.c_void_p * len(arrays))(*addresses_of(arrays))
    load([source])[0](addresses)


def provide(services: ctypes.Structure) -> None:
    """Give the units that are loaded, and those that will be, a `miniml_services` of source.py.

    Until then they are serial and have no BLAS. It is copied, and kept as long as the process.
    """
    global _services
    with _lock:
        _services = services
        for library in _libraries.values():
            library.miniml_start(ctypes.byref(services))


def _load(missing: Sequence[Source]) -> None:
    try:
        names = {source: f"{source.name}-{compiler.key()}" for source in missing}
        _find(names)
        absent = {source: name for source, name in names.items() if source not in _loaded}
        if absent:
            _take(_compile(absent))
    except DeviceError as error:
        compiler.give_up(error)
        raise


def _find(names: Mapping[Source, str]) -> None:
    """Take what the cache has; a unit that does not load, or lacks the kernel, counts as absent."""
    paths = compiler.CACHE.linked(names.values())
    for source, name in names.items():
        if name in paths:
            try:
                _take({source: paths[name]})
            except (DeviceError, AttributeError):
                _libraries.pop(paths[name], None)


def _compile(names: Mapping[Source, str]) -> dict[Source, Path]:
    """Compile units with these kernels; the unit of each."""
    texts = {_name(text): (text, part) for part in _parts(names) if (text := unit(part))}
    of = {source: name for name, (_, part) in texts.items() for source in part}

    def build(scratch: Path) -> dict[str, bytes]:
        jobs = [(text, part[0].without) for text, part in texts.values()]
        return dict(zip(texts, compiler.compiled(jobs, scratch)))

    folder = compiler.CACHE.make_all(build, {names[s]: name for s, name in of.items()})
    return {source: folder / name for source, name in of.items()}


def _name(text: str) -> str:
    return f"unit-{digest(text, compiler.key())}.so"


def _parts(sources: Iterable[Source]) -> list[list[Source]]:
    """The kernels in parts that are compiled alike."""
    alike: dict[tuple[str, ...], list[Source]] = {}
    for source in sources:
        alike.setdefault(source.without, []).append(source)
    return [part for group in alike.values() for part in _divided(group)]


def _divided(sources: Iterable[Source]) -> list[list[Source]]:
    """The kernels in parts of about equal work, one for each processor where there is much; those
    that share texts side by side, so that few parts compile the same ones."""
    ordered = sorted(sources, key=lambda s: (s.shared, len(s.text)))
    done = list(accumulate((len(s.text) + _EACH for s in ordered), initial=0))
    count = max(1, min(done[-1] // _PART, len(ordered), cpu_threads(), _PROCESSES))
    parts: dict[int, list[Source]] = {}
    for source, begin, end in zip(ordered, done, done[1:]):
        parts.setdefault((begin + end) * count // (2 * done[-1]), []).append(source)
    return [*parts.values()]


def _take(paths: Mapping[Source, Path]) -> None:
    """Load units, and the functions of these kernels in them."""
    for source, path in paths.items():
        if path not in _libraries:
            _libraries[path] = _opened(path)
        _loaded[source] = getattr(_libraries[path], source.name)


def _opened(path: Path) -> ctypes.CDLL:
    library = compiler.TOOLS.load(path)
    if _services is not None:
        library.miniml_start(ctypes.byref(_services))
    return library
