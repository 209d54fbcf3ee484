"""Kernels registered under a name that no primitive has: most likely a misspelt one."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from difflib import get_close_matches


def misnamed(name: str, registered: Iterable[str], primitives: Collection[str]) -> str:
    """What to say where `name` lacks a kernel and one is registered under a name like it, which is
    no primitive's; "" where there is none. Either half may come first, so it is said only then."""
    free = {other.lower(): other for other in registered if other not in primitives}
    near = [repr(free[found]) for found in get_close_matches(name.lower(), free, cutoff=0.5)]
    if not near:
        return ""
    return f"; no primitive is called {' or '.join(near)}, for which kernels are registered"
