"""Compilers that fail, as scripts in the place of the machine's; and those that optimize less."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from miniml.backends import compiled
from miniml.backends.cc import units
from miniml.backends.compiled import Toolchain

FAKE_LIBRARY = r"""printf '\177ELF\002\001\001' > "$OUT"; head -c 500 /dev/zero >> "$OUT" """
# One segment header of 56 bytes is said to stand at 4096.
CUT_LIBRARY = r"""{ printf '\177ELF\002\001\001'; head -c 25 /dev/zero; printf '\000\020'
head -c 20 /dev/zero; printf '\070\000\001\000'; head -c 500 /dev/zero; } > "$OUT" """


@contextmanager
def own_folders(folder: Path) -> Iterator[pytest.MonkeyPatch]:
    """The cache, and the temporary folder that can take its place, in a folder of the test's."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MINIML_CACHE", str(folder / "cache"))
        patch.setattr(compiled.tempfile, "tempdir", str(folder))
        for memory in (compiled._warn, compiled._temporary_folders):
            memory.cache_clear()
        yield patch
    compiled._temporary_folders.cache_clear()


@contextmanager
def optimized(level: str) -> Iterator[None]:
    """Kernels in C are compiled with -O1, say, in the place of -O3: in two thirds of the time, for
    many programs of which some are compiled as users' are."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(units, "FLAGS", tuple(level if f == "-O3" else f for f in units.FLAGS))
        units._key.cache_clear()
        yield
    units._key.cache_clear()


def put(patch: pytest.MonkeyPatch, tools: Toolchain, folder: Path, content: str | bytes) -> Path:
    """A script, or the bytes of a program, as the compiler; $OUT is its last argument."""
    path = folder / "compiler"
    if isinstance(content, str):
        content = f"#!/bin/sh\nPATH=/usr/bin:/bin\nfor OUT; do :; done\n{content}".encode()
    path.write_bytes(content)
    path.chmod(0o755)
    patch.setenv(tools.variable, str(path))
    return path
