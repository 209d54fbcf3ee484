"""C that kernels share, in headers: each stands once in a unit that needs it."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

_HERE = Path(__file__).parent
_INCLUDE = re.compile(r'^#include "(\w+)\.h"\n', re.MULTILINE)


@cache
def header(name: str) -> tuple[str, ...]:
    """The text of a header, after those that it includes. Its functions, which are of one element,
    are always inlined."""
    text = (_HERE / f"{name}.h").read_text("utf-8")
    text = text.replace("static inline", "static MINIML_INLINE")
    before = (part for other in _INCLUDE.findall(text) for part in header(other))
    return (*dict.fromkeys(before), _INCLUDE.sub("", text))
