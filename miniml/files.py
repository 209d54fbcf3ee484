"""Files that appear wholly or not at all: written as a draft, synced, moved into place."""

from __future__ import annotations

import fcntl
import os
import stat
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

Buffer = bytes | memoryview
_CREATE = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
DRAFT = ".tmp"  # the suffix of draft names
_RANDOM = 4  # bytes of a draft's name, twice as many characters


def write_file(target: Path, parts: Iterable[Buffer], mode: int | None = None) -> None:
    """Write `parts` to a draft beside `target`, sync it and put it in target's place.

    A link is followed. mode: of the file; None keeps the mode of an existing file, and gives a new
    one what the umask allows. Drafts of the same target left by killed processes are removed. If
    anything is raised, target is as it was and the draft is gone; an OSError means that the system
    refuses.
    """
    target = Path(os.path.realpath(target))
    remove_drafts(target)
    with _draft(target, mode) as (draft, descriptor):
        with open(descriptor, "wb", closefd=False) as file:
            file.writelines(parts)
        os.fsync(descriptor)
        draft.replace(target)
    _sync_folder(target.parent)


def remove_drafts(target: Path) -> None:
    """Remove the drafts of `target` whose writers are dead: a living writer holds a lock."""
    start = _prefix(target)
    with suppress(OSError):
        for entry in os.scandir(target.parent):
            if entry.name.startswith(start) and entry.name.endswith(DRAFT):
                if len(entry.name) == len(start) + 2 * _RANDOM + len(DRAFT):
                    _remove_unless_locked(entry.path)


@contextmanager
def _draft(target: Path, mode: int | None) -> Iterator[tuple[Path, int]]:
    """A new file beside target, locked while it is written; removed when anything is raised."""
    draft = target.with_name(f"{_prefix(target)}{os.urandom(_RANDOM).hex()}{DRAFT}")
    descriptor = -1
    try:
        descriptor = _create_locked(draft)
        _set_mode(descriptor, target, mode)
        yield draft, descriptor
    except BaseException:
        draft.unlink(missing_ok=True)
        raise
    finally:
        if descriptor >= 0:
            os.close(descriptor)


def _set_mode(descriptor: int, target: Path, mode: int | None) -> None:
    with suppress(FileNotFoundError):
        os.fchmod(descriptor, stat.S_IMODE(target.stat().st_mode) if mode is None else mode)


def _create_locked(draft: Path) -> int:
    while True:
        descriptor = os.open(draft, _CREATE, 0o666)
        _lock(descriptor, fcntl.LOCK_EX)
        if os.fstat(descriptor).st_nlink:
            return descriptor
        os.close(descriptor)  # another process removed it as abandoned before it was locked


def _remove_unless_locked(path: str) -> None:
    with suppress(OSError):  # gone meanwhile, or another user's
        descriptor = os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK)
        try:
            if _lock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB):
                os.unlink(path)
        finally:
            os.close(descriptor)


def _lock(descriptor: int, operation: int) -> bool:
    """False where another process holds the lock, or the file system has no locks."""
    try:
        fcntl.flock(descriptor, operation)
    except OSError:
        return False
    return True


def _prefix(target: Path) -> str:
    """The prefix of the names of target's drafts: cut, since a name may have at most 255 bytes."""
    return f".{os.fsdecode(os.fsencode(target.name)[:100])}."


def _sync_folder(folder: Path) -> None:
    """Make a rename survive a power cut, where folders can be synced."""
    with suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
