"""A disk cache of compiled files: verified when read, published whole, bounded in size."""

from __future__ import annotations

import atexit
import hashlib
import os
import shutil
import stat
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import cache
from pathlib import Path

from ..errors import DeviceError
from ..files import DRAFT, write_file

_MARK = b"miniml 1"  # begins the trailer of a file; its hash follows
_DIGEST = 32  # bytes of that hash
_HOUR = 3600.0  # seconds
_ADVICE = "set MINIML_CACHE to a folder of your own that can be written"
_OTHERS = stat.S_IWGRP | stat.S_IWOTH


class Cache:
    """Files by name, in the folder `part` of $MINIML_CACHE or of miniml in the user's own cache.

    A file is returned only if it is complete, as the hash after its content shows, if it belongs to
    this user or root, and if nobody else can write it or its folder. If the folder belongs to
    another user or cannot be written, a temporary folder takes its place, with one warning. limit:
    bytes of a folder, beyond which the least recently read files are removed. It may be emptied at
    any time.
    """

    def __init__(self, part: str, limit: int):
        self.part, self.limit = part, limit

    def find(self, name: str) -> Path | None:
        """The file of that name, whole and trustworthy; None if there is none."""
        paths = (folder / name for folder in self._folders() if not distrust(folder))
        return next(filter(is_whole, paths), None)

    def newest(self, pattern: str) -> Path | None:
        """The file written last of those whose names match, as `find` gives it."""
        for folder in self._folders():
            if not distrust(folder):
                whole = [path for path in folder.glob(pattern) if is_whole(path)]
                if whole:
                    return max(whole, key=os.path.getmtime)
        return None

    def make(self, name: str, build: Callable[[Path], bytes]) -> Path:
        """Store the result of `build` under a name; its argument is a folder for drafts.

        An OSError of the file system leads to the next folder; DeviceError when there is none.
        """
        reasons: list[str] = []
        for folder in self._folders():
            try:
                path = self._publish(folder, name, build)
            except OSError as error:
                reasons.append(f"{folder}: {error.strerror or error}")
            else:
                if reasons:
                    _warn(f"compiled files go to {folder}, for {reasons[0]}; {_ADVICE}")
                return path
        raise DeviceError(f"no folder can take compiled files: {'; '.join(reasons)}; {_ADVICE}")

    def problem(self) -> str:
        """Why the first folder cannot be used, as a clause; "" if it can."""
        folder = self.folder
        try:
            _prepare(folder)
        except OSError as error:
            return error.strerror or str(error)
        return "" if os.access(folder, os.W_OK | os.X_OK) else "it cannot be written"

    def nbytes(self) -> int:
        """The total size of the files in the first folder."""
        return sum(path.stat().st_size for path in self.folder.glob("*") if path.is_file())

    @property
    def folder(self) -> Path:
        """The first folder that is tried."""
        return next(self._folders())

    def _folders(self) -> Iterator[Path]:
        """The candidate folders, best first, with links resolved; they need not exist."""
        chosen = os.environ.get("MINIML_CACHE")
        yield self._below(os.path.abspath(chosen) if chosen else _of_user())
        yield from map(self._below, _temporary_folders())

    def _below(self, folder: str) -> Path:
        path = os.path.join(folder, self.part)
        return Path(os.path.realpath(path) if os.path.isabs(path) else path)

    def _publish(self, folder: Path, name: str, build: Callable[[Path], bytes]) -> Path:
        _prepare(folder)
        scratch = tempfile.mkdtemp(DRAFT, ".", folder)
        try:
            content = build(Path(scratch))
        finally:
            shutil.rmtree(scratch, ignore_errors=True)
        write_file(folder / name, [content, _trailer(content)], 0o644)
        trim(folder, self.limit)
        return folder / name


def _of_user() -> str:
    """The folder in the user's own cache; relative for a user who has no home."""
    user = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    return os.path.join(user, "miniml")


@cache
def _temporary_folders() -> tuple[str, ...]:
    """One that outlives the process and, should that belong to another user, one for this
    process."""
    try:
        kept = os.path.join(tempfile.gettempdir(), f"miniml-{os.geteuid()}")
    except OSError:  # there is no temporary folder
        return ()
    own = f"{kept}-{os.urandom(8).hex()}"
    atexit.register(_remove_own, own, os.getpid())
    return kept, own


def _remove_own(folder: str, process: int) -> None:
    if os.getpid() == process:  # not a child by fork
        shutil.rmtree(folder, ignore_errors=True)


def _prepare(folder: Path) -> None:
    """Make the folder; OSError where it cannot be, or must not be trusted."""
    if folder.is_absolute():
        for missing in reversed([p for p in (folder, *folder.parents) if not p.exists()]):
            missing.mkdir(0o755, exist_ok=True)
    reason = distrust(folder)
    if reason:
        raise PermissionError(reason)


def distrust(folder: Path) -> str:
    """Why the contents of a folder might be another user's, as a clause; "" if they cannot be."""
    if not folder.is_absolute():
        return "there is no home folder"
    try:
        mode = folder.stat().st_mode
        strange = [p for p in (folder, folder.parent) if not _is_owner(p.stat())]
        loose = [p for p in folder.parents if _lets_others_rename(p)]
    except OSError as error:
        return error.strerror or str(error)
    if strange:
        return f"{strange[0]} belongs to another user"
    if mode & _OTHERS:
        return f"others can write to it (mode {stat.S_IMODE(mode):o}), chmod go-w it"
    return f"others can rename what stands in {loose[0]}" if loose else ""


def _is_owner(status: os.stat_result) -> bool:
    return status.st_uid in (0, os.geteuid())


def _lets_others_rename(folder: Path) -> bool:
    mode = folder.stat().st_mode
    return bool(mode & stat.S_IWOTH and not mode & stat.S_ISVTX)


def is_whole(path: Path) -> bool:
    """True for a file that belongs to this user or root and ends with the hash of its content.

    It counts as read now.
    """
    try:
        with open(path, "rb", opener=_opener) as file:
            status = os.fstat(file.fileno())
            if not _is_owner(status) or status.st_mode & _OTHERS:
                _warn(f"{path} is compiled anew, for others could have written it")
                return False
            content = memoryview(file.read())
    except OSError:
        return False
    end = len(content) - len(_MARK) - _DIGEST
    if end < 0 or content[end:] != _trailer(content[:end]):
        return False
    _count_as_read(path, status)
    return True


def content_of(path: Path) -> bytes:
    """The stored content of a file that `find` returned, without the trailer."""
    return path.read_bytes()[: -len(_MARK) - _DIGEST]


def _opener(path: str, flags: int) -> int:
    """Opens without following links or waiting for the writer of a pipe."""
    return os.open(path, flags | os.O_NONBLOCK | os.O_NOFOLLOW)


def _count_as_read(path: Path, status: os.stat_result) -> None:
    with suppress(OSError):  # root's, or on a disk that cannot be written
        os.utime(path, ns=(time.time_ns(), status.st_mtime_ns))


def _trailer(content: bytes | memoryview) -> bytes:
    return _MARK + hashlib.blake2b(content, digest_size=_DIGEST).digest()


def trim(folder: Path, limit: int) -> None:
    """Remove the files read longest ago until the folder has no more than `limit` bytes.

    Files read within the last hour stay: another process may be about to load them. Drafts do not
    count; those older than an hour are abandoned, and are removed.
    """
    files, now = [], time.time()
    for entry in os.scandir(folder):
        with suppress(OSError):  # another process is trimming, too
            status = entry.stat(follow_symlinks=False)
            if entry.name.endswith(DRAFT):
                _remove(entry, now - status.st_mtime)
            elif stat.S_ISREG(status.st_mode):
                files.append((status.st_atime, status.st_size, entry.path))
    excess = sum(size for _, size, _ in files) - limit
    for used, size, path in sorted(files):
        if excess <= 0 or now - used < _HOUR:
            return
        with suppress(OSError):
            os.unlink(path)
        excess -= size


def _remove(draft: os.DirEntry[str], age: float) -> None:
    if age < _HOUR:
        return
    if draft.is_dir(follow_symlinks=False):
        shutil.rmtree(draft.path, ignore_errors=True)
    else:
        os.unlink(draft.path)


@cache
def _warn(message: str) -> None:
    """Warn, once for each message."""
    warnings.warn(f"miniml: {message}", RuntimeWarning, stacklevel=2)
