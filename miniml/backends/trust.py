"""Whether what stands in a folder is the user's own, or root's."""

from __future__ import annotations

import os
import stat
from pathlib import Path

OTHERS = stat.S_IWGRP | stat.S_IWOTH


def distrust(folder: Path) -> str:
    """Why the contents of a folder might be another user's, as a clause; "" if they cannot be."""
    if not folder.is_absolute():
        return "there is no home folder"
    try:
        mode = folder.stat().st_mode
        strange = [p for p in (folder, folder.parent) if not is_owner(p.stat())]
        loose = [p for p in folder.parents if _lets_others_rename(p)]
    except OSError as error:
        return error.strerror or str(error)
    if strange:
        return f"{strange[0]} belongs to another user"
    if mode & OTHERS:
        return f"others can write to it (mode {stat.S_IMODE(mode):o}), chmod go-w it"
    return f"others can rename what stands in {loose[0]}" if loose else ""


def is_owner(status: os.stat_result) -> bool:
    return status.st_uid in (0, os.geteuid())


def _lets_others_rename(folder: Path) -> bool:
    mode = folder.stat().st_mode
    return bool(mode & stat.S_IWOTH and not mode & stat.S_ISVTX)
