"""Arrays beside memory that nobody may read: whatever reaches beyond them ends its process."""

import ctypes
import mmap
import os
import sys
from collections.abc import Callable, Iterable
from typing import Any

import pytest

Array = Any
needs_fences = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="no mprotect here")
ignores_forks = pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")


def before_fence(array: Array) -> Array:
    """A copy that ends where a page begins that may not be touched."""
    return _beside(array, True)


def behind_fence(array: Array) -> Array:
    """A copy that begins where such a page ends."""
    return _beside(array, False)


FENCES = before_fence, behind_fence


def _beside(array: Array, ends: bool) -> Array:
    page = mmap.PAGESIZE
    size = -(-array.nbytes // page) * page
    memory = (ctypes.c_char * (size + page)).from_buffer(mmap.mmap(-1, size + page))
    fence = ctypes.addressof(memory) + (size if ends else 0)
    assert not ctypes.CDLL(None).mprotect(ctypes.c_void_p(fence), page, 0)
    first = size - array.nbytes if ends else page
    # Not frombuffer, which refuses arrays without elements.
    copy = type(array)(array.shape, array.dtype, memory, first)
    copy[...] = array
    return copy


def first_to_fail(steps: Iterable[tuple[str, Callable[[], bool]]]) -> str:
    """The name of the first step that is not True, or ends its process, in a child; "" if none."""
    read, write = os.pipe()
    child = os.fork()
    if not child:
        try:
            for name, step in steps:
                os.write(write, f"{name}\n".encode())
                if not step():
                    os._exit(1)
            os._exit(0)
        finally:
            os._exit(2)
    os.close(write)
    with os.fdopen(read) as lines:
        names = lines.read().splitlines()
    failed = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    return f"{names[-1:]}: {failed}" if failed else ""
