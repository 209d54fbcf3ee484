"""From CUDA C to launchable functions; each text is compiled once."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

from ....errors import CompileError
from ..failures import not_launched, not_loaded, raise_as
from .parameters import check, parameters

OPTIONS = ("--std=c++17",)


class Compiler:
    """The modules of one device, by their text; cupy and the simulator keep them on disk too.

    around: entered for every compilation and launch, as the simulator's mode is.
    """

    def __init__(
        self, device: Any, around: Callable[[], AbstractContextManager[Any]] | None = None
    ):
        self._device, self._around = device, around
        self._loaded: dict[str, Any] = {}
        self._functions: dict[tuple[str, str], Any] = {}

    def function(self, code: str, entry: str) -> Any:
        """The `extern "C" __global__` function `entry` of the text.

        It is called as f(grid, block, arguments, shared_mem=bytes). CompileError, with the
        compiler's log, when the text does not compile.
        """
        found = self._functions.get((code, entry))
        if found is None:
            found = self._functions[code, entry] = self._get(code, entry)
        return found

    def _get(self, code: str, entry: str) -> Any:
        unit = self._loaded.get(code)
        if unit is None:
            unit = self._loaded[code] = self._device.module.RawModule(code=code, options=OPTIONS)
        if self._around is not None:
            with self._around():
                return Within(unit.get_function(entry), self._around)
        try:
            return Checked(unit.get_function(entry), self._device, code, entry)
        except Exception as error:
            clear = not_loaded(error, self._device, entry)
            if clear is error and "Compile" in type(error).__name__:
                clear = CompileError(f"the kernel {entry} does not compile:\n{error}")
            raise_as(clear, error)


class Loaded:
    """Base of kernels that can be launched."""

    _function: Any

    @property
    def max_dynamic_shared_size_bytes(self) -> int:
        """Bytes of dynamic shared memory that launches may ask for."""
        size: int = self._function.max_dynamic_shared_size_bytes
        return size

    @max_dynamic_shared_size_bytes.setter
    def max_dynamic_shared_size_bytes(self, nbytes: int) -> None:
        self._function.max_dynamic_shared_size_bytes = nbytes


class Checked(Loaded):
    """A kernel on a GPU: its arguments are compared with its text at the first launch, and errors
    of CUDA become miniml's."""

    def __init__(self, function: Any, device: Any, code: str, entry: str):
        self._function, self._device, self._entry = function, device, entry
        self._unchecked = parameters(code, entry)

    def __call__(self, grid: Any, block: Any, args: Any, shared_mem: int = 0) -> None:
        if self._unchecked is not None:
            check(self._entry, self._unchecked, args)
            self._unchecked = None
        try:
            self._function(grid, block, args, shared_mem=shared_mem)
        except Exception as error:
            raise_as(not_launched(error, self._device, self._entry, grid, block, shared_mem), error)


class Within(Loaded):
    """A kernel that is launched inside a `with`."""

    def __init__(self, function: Any, around: Callable[[], AbstractContextManager[Any]]):
        self._function, self._around = function, around

    def __call__(self, grid: Any, block: Any, args: Any, shared_mem: int = 0) -> None:
        with self._around():
            self._function(grid, block, args, shared_mem=shared_mem)
