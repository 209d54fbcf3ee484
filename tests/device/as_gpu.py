"""A module in the place of cupy, on the simulator, and cupy's own errors, for tests to raise."""

from types import SimpleNamespace

from miniml.backends.cuda import emulator as emucupy


class CUDARuntimeError(RuntimeError):
    """As cupy has it: the name, a colon, the driver's words; and the number."""

    def __init__(self, status, text):
        super().__init__(text)
        self.status = status


class CUDADriverError(CUDARuntimeError):
    """The same for the driver's interface."""


class CUBLASError(RuntimeError):
    """What cuBLAS refuses."""


class OutOfMemoryError(MemoryError):
    """cupy's pool has no more."""


class CompileException(Exception):
    """NVRTC's log."""


ILLEGAL = CUDARuntimeError(700, "cudaErrorIllegalAddress: an illegal memory access was encountered")


def double():
    """A module with the names of cupy, on the simulator; a test breaks what it wants to break."""
    names = {n: getattr(emucupy, n) for n in dir(emucupy) if not n.startswith("_")}
    own = {**vars(emucupy.cuda), "runtime": SimpleNamespace(**vars(emucupy.cuda.runtime))}
    return SimpleNamespace(**{**names, "cuda": SimpleNamespace(**own)})


def raising(error):
    def call(*args, **kwargs):
        raise error

    return call


def first_line(caught):
    """The sentence of an error that pytest has caught."""
    return str(caught.value).splitlines()[0]
