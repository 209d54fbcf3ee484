"""From CUDA C to functions that can be launched, each text compiled once."""

from __future__ import annotations

from typing import Any

from ...errors import CompileError

OPTIONS = ("--std=c++17",)


class Compiler:
    """The modules of one device, by their text; cupy and the simulator keep them on disk too."""

    def __init__(self, module: Any, **choices: Any):
        self._module, self._choices = module, choices
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
            unit = self._module.RawModule(code=code, options=OPTIONS, **self._choices)
            self._loaded[code] = unit
        try:
            return unit.get_function(entry)
        except Exception as error:
            self._loaded.pop(code, None)
            if "ompil" not in type(error).__name__:
                raise
            raise CompileError(f"the kernel {entry} does not compile:\n{error}") from error
