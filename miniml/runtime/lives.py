"""Lives of kernel objects: from `prepare` to `release`."""

from __future__ import annotations

from contextlib import suppress
from weakref import finalize

from ..backends.kernel import Kernel, KernelNode


class Life:
    """A prepared kernel object. It is released once: by `end`, when nothing holds its life any
    more, or at the exit of the interpreter, those that were prepared last first."""

    __slots__ = ("__weakref__", "end", "kernel")

    def __init__(self, kernel: Kernel):
        self.kernel, self.end = kernel, finalize(self, kernel.release)


def begun(kernel: Kernel, node: KernelNode) -> Life:
    """The life of a kernel that is prepared now; if it raises, it is released at once."""
    try:
        kernel.prepare(node)
    except BaseException:
        with suppress(Exception):  # what `prepare` raised says more
            kernel.release()
        raise
    return Life(kernel)
