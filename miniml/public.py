"""The public names of a package: what `dir` shows of it, and what `import *` takes."""

from __future__ import annotations

import builtins
from collections.abc import Callable, Mapping
from types import ModuleType


def names(
    namespace: Mapping[str, object], *modules: str
) -> tuple[list[str], Callable[[], list[str]]]:
    """`__all__` and `__dir__` of a package: what it imports by name, and these of its modules.

    What Python itself has, as `sum`, is left to `__dir__`, so that `import *` shadows nothing.
    """
    imported = {
        name
        for name, value in namespace.items()
        if not name.startswith("_") and not isinstance(value, ModuleType)
    }
    shown = sorted(imported.union(modules))
    return [name for name in shown if not hasattr(builtins, name)], lambda: list(shown)
