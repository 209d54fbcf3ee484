"""jit."""
from typing import Any

def compiled(fn: Any) -> Any:
    return fn
