"""Whether kernels in C can be compiled on this machine."""

from __future__ import annotations

import shutil
from functools import cache

from ...errors import MinimlError, PerformanceWarning, warn_user

_given_up: list[str] = []


def available() -> bool:
    """True where kernels in C can be compiled, as far as is known without trying."""
    return shutil.which("gcc") is not None and not _given_up


def give_up(error: MinimlError) -> None:
    """Remember that this machine compiles nothing."""
    _given_up.append(str(error))


@cache
def _warn(text: str) -> None:
    warn_user(PerformanceWarning(text))


def warn_without(error: MinimlError) -> None:
    """Tell the user, once for each reason, that NumPy's kernels take the place of those in C."""
    reason = str(error).strip().partition("\n")[0]
    _warn(
        f"NumPy's kernels take the place of those in C, which are faster: {reason}; "
        "providers=('miniml',) asks for NumPy's"
    )
