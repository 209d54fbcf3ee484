"""Calls in which NumPy gives no floating-point warnings."""

from __future__ import annotations

from collections.abc import Callable
from contextvars import Context, copy_context
from functools import partial
from typing import Any

import numpy as np

_context = Context()
_context.run(np.seterr, all="ignore")
_ERRORS, _IGNORED = next(iter(_context.items()))  # NumPy's variable for its error state

# To be called first in a context of its own: np.errstate takes ten times as long.
ignore_errors = partial(_ERRORS.set, _IGNORED)


def quietly(run: Callable[..., Any], *args: Any) -> Any:
    """`run(*args)`, without floating-point warnings of NumPy.

    It runs in a copy of the context of `contextvars`, so no interrupt can leave NumPy quiet.
    """
    return copy_context().run(_quiet, run, *args)


def _quiet(run: Callable[..., Any], *args: Any) -> Any:
    ignore_errors()
    return run(*args)
