"""A disk cache of compiled files: verified when read, published whole, bounded in size."""

from __future__ import annotations

import atexit
import hashlib
import os
import re
import shutil
import stat
import tempfile
import time
import warnings
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import NamedTuple

from ..errors import DeviceError
from ..files import DRAFT, write_file
from .trust import OTHERS, distrust, is_owner

_MARK = b"miniml 1"  # begins the trailer of a file; its hash follows
_DIGEST = 32  # bytes of that hash
BESIDE = "compiler"  # a folder in which a compiler may keep what it needs
_HOUR = 3600.0  # seconds
_ADVICE = "set MINIML_CACHE to a folder of your own that can be written"
_OURS = re.compile(r"[a-z]+-[0-9a-f-]+\.so")  # the names that compilers' modules give


class Entry(NamedTuple):
    """A file of a cache. kind: the first word of its name. age: seconds since it was last read."""

    path: Path
    kind: str
    nbytes: int
    age: float


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
        paths = (folder / name for folder in self._trusted())
        return next(filter(is_whole, paths), None)

    def linked(self, names: Collection[str]) -> dict[str, Path]:
        """The file to which each name was linked, as `find` gives it; others are left out."""
        found: dict[str, Path] = {}
        for folder in self._trusted():
            targets = {n: t for n in names if n not in found and (t := _target(folder / n))}
            whole = {t for t in dict.fromkeys(targets.values()) if is_whole(folder / t)}
            found |= {n: folder / t for n, t in targets.items() if t in whole}
        return found

    def newest(self, pattern: str) -> Path | None:
        """The file written last of those whose names match, as `find` gives it."""
        for folder in self._trusted():
            whole = [path for path in folder.glob(pattern) if is_whole(path)]
            if whole:
                return max(whole, key=os.path.getmtime)
        return None

    def make(self, name: str, build: Callable[[Path], bytes]) -> Path:
        """Store the result of `build` under a name; its argument is a folder for drafts.

        An OSError of the file system leads to the next folder; DeviceError when there is none.
        """
        return self.make_all(lambda scratch: {name: build(scratch)}) / name

    def make_all(
        self,
        build: Callable[[Path], Mapping[str, bytes]],
        links: Mapping[str, str] | None = None,
    ) -> Path:
        """Store several results, as `make` does; links: further names, each of one of these.

        Returns their folder.
        """
        reasons: list[str] = []
        for folder in self._folders():
            try:
                self._publish(folder, build, links or {})
            except OSError as error:
                reasons.append(f"{folder}: {error.strerror or error}")
            else:
                if reasons:
                    _warn(f"compiled files go to {folder}, for {reasons[0]}; {_ADVICE}")
                return folder
        raise DeviceError(f"no folder can take compiled files: {'; '.join(reasons)}; {_ADVICE}")

    def problem(self) -> str:
        """Why the first folder cannot be used, as a clause; "" if it can."""
        folder = self.folder
        try:
            _prepare(folder)
        except OSError as error:
            return error.strerror or str(error)
        return "" if os.access(folder, os.W_OK | os.X_OK) else "it cannot be written"

    def entries(self) -> list[Entry]:
        """The files of ours, damaged ones too, in every folder that can be trusted."""
        found, now = [], time.time()
        for folder in self._trusted():
            for file in os.scandir(folder):
                if _OURS.fullmatch(file.name) and file.is_file(follow_symlinks=False):
                    status = file.stat()
                    age, kind = now - status.st_atime, file.name.partition("-")[0]
                    found.append(Entry(Path(file.path), kind, status.st_size, age))
        return found

    def clear(self) -> None:
        """Remove the files of ours, what was linked to them, and what compilers keep beside."""
        for entry in self.entries():
            entry.path.unlink(missing_ok=True)
        for folder in self._trusted():
            shutil.rmtree(folder / BESIDE, ignore_errors=True)
            trim(folder, self.limit)

    @property
    def folder(self) -> Path:
        """The first folder that is tried."""
        return next(self._folders())

    def _trusted(self) -> Iterator[Path]:
        return (folder for folder in self._folders() if not distrust(folder))

    def _folders(self) -> Iterator[Path]:
        """The candidate folders, best first, with links resolved; they need not exist."""
        chosen = os.environ.get("MINIML_CACHE")
        yield self._below(os.path.abspath(chosen) if chosen else _of_user())
        yield from map(self._below, _temporary_folders())

    def _below(self, folder: str) -> Path:
        path = os.path.join(folder, self.part)
        return Path(os.path.realpath(path) if os.path.isabs(path) else path)

    def _publish(
        self, folder: Path, build: Callable[[Path], Mapping[str, bytes]], links: Mapping[str, str]
    ) -> None:
        _prepare(folder)
        scratch = tempfile.mkdtemp(DRAFT, ".", folder)
        try:
            contents = build(Path(scratch))
            for name, content in contents.items():
                write_file(folder / name, [content, _trailer(content)], 0o644)
            for name, target in links.items():
                draft = os.path.join(scratch, name)
                os.symlink(target, draft)
                os.replace(draft, folder / name)
        finally:
            shutil.rmtree(scratch, ignore_errors=True)
        trim(folder, self.limit)


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


def is_whole(path: Path) -> bool:
    """True for a file that belongs to this user or root and ends with the hash of its content.

    It counts as read now.
    """
    try:
        with open(path, "rb", opener=_opener) as file:
            status = os.fstat(file.fileno())
            if not is_owner(status) or status.st_mode & OTHERS:
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


def _target(link: Path) -> str:
    """The file beside a link to which it leads; "" where it is none of ours."""
    with suppress(OSError):
        target = os.readlink(link)
        return target if _OURS.fullmatch(target) else ""
    return ""


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

    Files read within the last hour stay: another process may be about to load them. Links to no
    file go. Drafts do not count; those older than an hour are abandoned, and are removed.
    """
    files, links, now = [], [], time.time()
    for entry in os.scandir(folder):
        with suppress(OSError):  # another process is trimming, too
            status = entry.stat(follow_symlinks=False)
            if entry.name.endswith(DRAFT):
                _remove(entry, now - status.st_mtime)
            elif stat.S_ISLNK(status.st_mode):
                links.append(entry.path)
            elif stat.S_ISREG(status.st_mode):
                files.append((status.st_atime, status.st_size, entry.path))
    _shrink(sorted(files), sum(size for _, size, _ in files) - limit, now - _HOUR)
    for path in links:
        with suppress(OSError):
            if not os.path.exists(path):
                os.unlink(path)


def _shrink(files: list[tuple[float, int, str]], excess: int, latest: float) -> None:
    """Remove files, (read, bytes, path), in turn, until `excess` bytes are gone."""
    for used, size, path in files:
        if excess <= 0 or used > latest:
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
