"""cupy's own errors, for tests to raise."""

from tests.device.emucupy import CUDARuntimeError


class CUDADriverError(CUDARuntimeError):
    """The same for the driver's interface."""


class OutOfMemoryError(MemoryError):
    """cupy's pool has no more."""


class CompileException(Exception):
    """NVRTC's log."""


ILLEGAL = CUDARuntimeError(700, "cudaErrorIllegalAddress: an illegal memory access was encountered")


def raising(error):
    def call(*args, **kwargs):
        raise error

    return call


def first_line(caught):
    """The sentence of an error that pytest has caught."""
    return str(caught.value).splitlines()[0]
