"""Kernels registered under a name that no primitive has: most likely a misspelling."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from difflib import get_close_matches


def misnamed(name: str, registered: Iterable[str], primitives: Collection[str]) -> str:
    """The hint if `name` lacks a kernel and one is registered under a similar name that no
    primitive has; else "". Kernels may be registered before their primitive, so this is reported
    only when a kernel is missing."""
    free = {other.lower(): other for other in registered if other not in primitives}
    near = [repr(free[found]) for found in get_close_matches(name.lower(), free, cutoff=0.5)]
    if not near:
        return ""
    return f"; no primitive is called {' or '.join(near)}, for which kernels are registered"
