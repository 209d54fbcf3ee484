"""Run-time compilation: a compiler's driver, the disk cache of shared libraries, and their trust.

A toolchain is found once, run with a time limit, and reports its failures in sentences. The cache
keeps compiled files, which are verified when read, published whole and bounded in size; files and
folders are trusted where they are the user's own, or root's. At the end, a lock across forks.
"""

from __future__ import annotations

import atexit
import ctypes
import errno
import hashlib
import os
import re
import selectors
import shutil
import signal
import stat
import struct
import subprocess
import tempfile
import threading
import time
import warnings
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import NamedTuple

from ..core.access import at_fork, uninterrupted
from ..core.errors import CompileError, DeviceError
from ..core.files import DRAFT, write_file

_LOG = 20_000  # characters of a compiler's log in an error
_PRINTED = 64 << 20  # bytes that a compiler may print; a preprocessed C++ text has two millions
_CHUNK = 1 << 16  # bytes: what a pipe holds
_COLORS = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")
# The reports of gcc's and clang's drivers that a signal ended their subprocess.
_KILLED = re.compile(r"signal terminated program|Killed signal|unable to execute command: \w+")
_GROUPS = hasattr(os, "killpg")  # of processes: what a compiler starts ends with it
_FULL = {os.strerror(code): code for code in (errno.ENOSPC, errno.EDQUOT)}


class Job(NamedTuple):
    """One run of a compiler: its arguments, and its input."""

    arguments: Sequence[str]
    text: str = ""


@dataclass(frozen=True)
class Toolchain:
    """The compiler of a language: $`variable`, or the first of `names` on the PATH, or `other`.

    user, where: what needs it and how to get one, for messages. other: gives a command from
    elsewhere, () for none. seconds: after which the compiler counts as hung.
    """

    language: str
    variable: str
    names: tuple[str, ...]
    user: str
    where: str
    seconds: float
    other: Callable[[], tuple[str, ...]] = tuple  # none

    def find(self) -> tuple[str, ...]:
        """The compiler's command, looked for once; () without one."""
        named = os.environ.get(self.variable, "")
        return _find(named, self.names, self.other, os.environ.get("PATH"))

    def absence(self) -> str:
        """The reason why there is no compiler, as a clause; "" if there is one."""
        if self.find():
            return ""
        named = os.environ.get(self.variable, "").strip()
        if named:
            return f"${self.variable} names {named}, which is not there"
        return f"there is none on the PATH ({', '.join(self.names)})"

    def command(self) -> tuple[str, ...]:
        """The compiler's command; DeviceError without one."""
        found = self.find()
        if not found:
            raise DeviceError(
                f"{self.user} needs a {self.language} compiler, and {self.absence()}; "
                f"install one: {self.where}"
            )
        return found

    def identity(self) -> str:
        """Equal for equal compilers, for file names; DeviceError without one."""
        return _identity(self.command())

    def run(self, arguments: Sequence[str], text: str = "") -> str:
        """The compiler's output.

        CompileError with its log if it refuses the text; DeviceError if the compiler itself fails;
        OSError if the disk is full.
        """
        return self._all([Job(arguments, text)], {})[0][0]

    def log(self, arguments: Sequence[str], text: str) -> str:
        """The compiler's warnings of a text; raises what `run` raises."""
        return self._all([Job(arguments, text)], {})[0][1]

    def libraries(
        self, jobs: Sequence[Job], scratch: Path, environment: Mapping[str, str] | None = None
    ) -> list[tuple[bytes, str]]:
        """The shared libraries that these jobs make, all at once, and the log of each.

        scratch: a folder for temporary files. Raises what `run` raises.
        """
        outputs = [scratch / f"{i}.so" for i in range(len(jobs))]
        jobs = [Job([*j.arguments, "-o", str(o)], j.text) for j, o in zip(jobs, outputs)]
        own = {"TMPDIR": str(scratch), **(environment or {})}
        logs = [log for _, log in self._all(jobs, own)]
        return [(self._library(path), log) for path, log in zip(outputs, logs)]

    def failed(self, what: str, advice: str = "") -> DeviceError:
        """The error for a failure of the compiler itself."""
        advice = advice or f"set {self.variable} to another, or reinstall it: {self.where}"
        command = self.command()[0]
        return DeviceError(f"the {self.language} compiler {command} {what}; {advice}")

    def load(self, path: Path) -> ctypes.CDLL:
        """A compiled file, loaded into this process; DeviceError if it cannot be."""
        try:
            return ctypes.CDLL(str(path))
        except OSError as error:
            raise DeviceError(
                f"what the {self.language} compiler made cannot be loaded ({error}); remove the "
                "file, or set MINIML_CACHE to a folder from which programs may run"
            ) from None

    def _library(self, path: Path) -> bytes:
        content = path.read_bytes() if path.is_file() else b""
        if not content.startswith((b"\x7fELF", b"\xcf\xfa\xed\xfe")):  # of Linux, of macOS
            raise self.failed(f"reported success and wrote no library but {len(content)} bytes")
        if content.startswith(b"\x7fELF") and _end_of_segments(content) > len(content):
            raise self.failed(
                f"reported success and wrote a library that is cut after {len(content)} bytes"
            )
        return content

    def _all(self, jobs: Sequence[Job], environment: dict[str, str]) -> list[tuple[str, str]]:
        """The output and the log of each job; no process outlives this call."""
        environment = {**os.environ, "LC_ALL": "C.UTF-8", **environment}
        end = time.monotonic() + self.seconds
        running: list[subprocess.Popen[bytes]] = []
        with uninterrupted() as gate:  # a handler that raises would lose a process just started
            try:
                running.extend(self._started(job, environment) for job in jobs)
                with gate.lifted():
                    return [self._ended(process, end) for process in running]
            finally:
                for process in running:
                    _end(process)

    def _started(self, job: Job, environment: dict[str, str]) -> subprocess.Popen[bytes]:
        command = [*self.command(), *job.arguments]
        if _over.is_set():
            raise self.failed("is not started, since this process ends")
        # A file, not a pipe, so that no process waits while the text of another is written.
        with tempfile.TemporaryFile() as text:
            text.write(job.text.encode(errors="surrogatepass"))
            text.seek(0)
            try:
                group = 0 if _GROUPS else None
                process = subprocess.Popen(
                    command, stdin=text, stdout=-1, stderr=-1, env=environment, process_group=group
                )
            except OSError as error:
                raise self.failed(f"cannot be run ({error.strerror})") from None
        _running.add(process)
        if _over.is_set():  # meanwhile
            _kill(process)
        return process

    def _ended(self, process: subprocess.Popen[bytes], end: float) -> tuple[str, str]:
        output, log = (printed.decode(errors="replace") for printed in self._read(process, end))
        try:
            process.wait(max(end - time.monotonic(), 0))
        except subprocess.TimeoutExpired:
            raise self._late() from None
        log = printable(log)
        if process.returncode:
            raise self._error(process.returncode, log)
        return output, log

    def _read(self, process: subprocess.Popen[bytes], end: float) -> list[bytearray]:
        """The output and the errors that a process prints, until it closes both."""
        held = {process.stdout: bytearray(), process.stderr: bytearray()}
        with selectors.DefaultSelector() as streams:
            for stream in held:
                assert stream is not None
                streams.register(stream, selectors.EVENT_READ)
            while streams.get_map():
                ready = streams.select(max(end - time.monotonic(), 0))
                if not ready or time.monotonic() > end:
                    raise self._late()
                for key, _ in ready:
                    chunk = os.read(key.fd, _CHUNK)
                    held[key.fileobj] += chunk  # type: ignore[index]
                    if not chunk:
                        streams.unregister(key.fileobj)
                if sum(map(len, held.values())) > _PRINTED:
                    raise self.failed(f"printed more than {_PRINTED >> 20} MiB")
        return [*held.values()]

    def _late(self) -> DeviceError:
        return self.failed(f"did not end within {self.seconds:g} seconds")

    def _error(self, code: int, log: str) -> Exception:
        """The error for a compiler that ended with a code other than 0."""
        log = log.strip()[:_LOG]
        for reason, number in _FULL.items():
            if reason in log:
                return OSError(number, reason)
        if code < 0 or _KILLED.search(log):
            by = f"by signal {-code}" if code < 0 else f"by a signal:\n{log}"
            return self.failed(f"was ended {by}", "it may have been short of memory")
        return CompileError(log) if log else self.failed(f"ended with {code} and printed no reason")


@cache
def _find(
    named: str, names: Sequence[str], other: Callable[[], tuple[str, ...]], path: str | None
) -> tuple[str, ...]:
    words = named.split()
    for command in [words] if words else [[name] for name in names]:
        found = shutil.which(command[0], path=path)
        if found:
            return (found, *command[1:])
    return () if words else other()


@cache
def _identity(command: tuple[str, ...]) -> str:
    path = os.path.realpath(command[0])
    status = os.stat(path)
    return digest(repr(command), path, str(status.st_size), str(status.st_mtime_ns))


def digest(*parts: str) -> str:
    """A short hash of texts, for file names."""
    return hashlib.sha256("\0".join(parts).encode(errors="surrogatepass")).hexdigest()[:32]


def _end(process: subprocess.Popen[bytes]) -> None:
    """Kill a process and its children, unless it has ended and has been waited for."""
    _kill(process)
    with process:  # closes the pipes, and waits
        pass
    _running.discard(process)


def _kill(process: subprocess.Popen[bytes]) -> None:
    if process.returncode is None:
        with suppress(ProcessLookupError):
            if _GROUPS:
                os.killpg(process.pid, signal.SIGKILL)
            else:
                process.kill()


_running: set[subprocess.Popen[bytes]] = set()
_over = threading.Event()  # the process ends
at_fork(after_in_child=_running.clear)  # they are the parent's


def end_compilers() -> None:
    """Kill the compilers that other threads run, which then raise, and start no other: for the end
    of the process."""
    _over.set()
    for process in list(_running):
        _kill(process)


def printable(log: str) -> str:
    """A log without colours and other control sequences."""
    plain = _COLORS.sub("", log).replace("\r\n", "\n")
    return "".join(c if c.isprintable() or c in "\n\t" else "\ufffd" for c in plain)


def _end_of_segments(content: bytes) -> int:
    """The bytes that an ELF file must have for its segments: to load a shorter one ends the process
    by SIGBUS. The fields are those of the specification, for 64 and 32 bits."""
    order = ">" if content[5:6] == b"\2" else "<"
    if content[4:5] == b"\2":
        table, sizes, offset, length, word = 32, 54, 8, 32, "Q"
    else:
        table, sizes, offset, length, word = 28, 42, 4, 16, "I"
    try:
        (start,) = struct.unpack_from(order + word, content, table)
        size, count = struct.unpack_from(f"{order}HH", content, sizes)
        ends = [start + size * count]
        for at in range(start, start + size * count, max(size, 1)):
            (begin,) = struct.unpack_from(order + word, content, at + offset)
            (nbytes,) = struct.unpack_from(order + word, content, at + length)
            ends.append(begin + nbytes)
    except struct.error:
        return len(content) + 1
    return int(max(ends))


# --- Cache ----------------------------------------------------------------------------------------


_MARK = b"miniml 2"  # begins the trailer of a file; the hash of its name and content follows
_DIGEST = 32  # bytes of that hash
BESIDE = "compiler"  # a folder in which a compiler may keep what it needs
_MINUTE, _HOUR = 60.0, 3600.0  # seconds
_TRIMMED = ".trimmed"  # written when a folder was last trimmed
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

    A file is returned only if it is complete and under its own name, as the hash after its content
    shows, if it belongs to this user or root, and if nobody else can write it or its folder. If the
    folder belongs to another user or cannot be written, a temporary folder takes its place, with
    one warning. limit: bytes of a folder, beyond which the least recently read files are removed.
    It may be emptied at any time.
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
        self, build: Callable[[Path], Mapping[str, bytes]], links: Mapping[str, str] | None = None
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
        """The reason why the first folder cannot be used, as a clause; "" if it can."""
        folder = self.folder
        try:
            _prepare(folder)
        except OSError as error:
            return error.strerror or str(error)
        return "" if os.access(folder, os.W_OK | os.X_OK) else "it cannot be written"

    def entries(self) -> list[Entry]:
        """The library's files, damaged ones too, in every folder that can be trusted."""
        found, now = [], time.time()
        for folder in self._trusted():
            for file in os.scandir(folder):
                if _OURS.fullmatch(file.name) and file.is_file(follow_symlinks=False):
                    status = file.stat()
                    age, kind = now - status.st_atime, file.name.partition("-")[0]
                    found.append(Entry(Path(file.path), kind, status.st_size, age))
        return found

    def clear(self) -> None:
        """Remove the library's files, links to them, and what compilers keep beside them."""
        for entry in self.entries():
            entry.path.unlink(missing_ok=True)
        for folder in self._trusted():
            shutil.rmtree(folder / BESIDE, ignore_errors=True)
            (folder / _TRIMMED).unlink(missing_ok=True)
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
        user = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
        # Relative for a user who has no home.
        yield self._below(_absolute(chosen) if chosen else os.path.join(user, "miniml"))
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
                draft = os.path.join(scratch, name)
                write_file(Path(draft), [content, _trailer(name, content)], 0o644)
                os.replace(draft, folder / name)
            for name, target in links.items():
                draft = os.path.join(scratch, name)
                os.symlink(target, draft)
                os.replace(draft, folder / name)
        finally:
            shutil.rmtree(scratch, ignore_errors=True)
        if _is_due(folder):
            trim(folder, self.limit)


def _absolute(folder: str) -> str:
    """The absolute path; the path itself if the working directory has been removed."""
    try:
        return os.path.abspath(folder)
    except OSError:
        return folder


@cache
def _temporary_folders() -> tuple[str, ...]:
    """A folder that outlives the process and, should it belong to another user, one that does
    not."""
    try:
        kept = os.path.join(tempfile.gettempdir(), f"miniml-{_user()}")
    except OSError:  # there is no temporary folder
        return ()
    own = f"{kept}-{os.urandom(8).hex()}"
    atexit.register(_remove_own, own, os.getpid())
    return kept, own


def _remove_own(folder: str, process: int) -> None:
    if os.getpid() == process:  # not a child by fork
        shutil.rmtree(folder, ignore_errors=True)


def _prepare(folder: Path) -> None:
    """Make the folder; OSError if it cannot be made, or must not be trusted."""
    if folder.is_absolute():
        for missing in reversed([p for p in (folder, *folder.parents) if not p.exists()]):
            missing.mkdir(0o755, exist_ok=True)
    reason = distrust(folder)
    if reason:
        raise PermissionError(reason)


def _target(link: Path) -> str:
    """The name of the file to which a link leads; "" unless it is one of the library's."""
    with suppress(OSError):
        target = os.readlink(link)
        return target if _OURS.fullmatch(target) else ""
    return ""


def _trailer(name: str, content: bytes | memoryview) -> bytes:
    hashed = hashlib.blake2b(name.encode() + b"\0", digest_size=_DIGEST)
    hashed.update(content)
    return _MARK + hashed.digest()


def is_whole(path: Path) -> bool:
    """True for a file that belongs to this user or root and ends with the hash of its name and
    content, as the loader knows libraries by their paths. It counts as read now.
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
    if end < 0 or content[end:] != _trailer(path.name, content[:end]):
        return False
    with suppress(OSError):  # root's, or on a disk that cannot be written
        os.utime(path, ns=(time.time_ns(), status.st_mtime_ns))
    return True


def _opener(path: str, flags: int) -> int:
    """Open without following links or waiting for the writer of a pipe."""
    more = ("O_NONBLOCK", "O_NOFOLLOW", "O_BINARY")  # as the platform has them
    return os.open(path, flags | sum(getattr(os, flag, 0) for flag in more))


def content_of(path: Path) -> bytes:
    """The stored content of a file that `find` returned, without the trailer."""
    return path.read_bytes()[: -len(_MARK) - _DIGEST]


def _is_due(folder: Path) -> bool:
    """True if nobody has trimmed the folder for a minute: it may have so many files that looking at
    all of them takes as long as a compilation."""
    stamp = folder / _TRIMMED
    with suppress(OSError):
        if 0 <= time.time() - stamp.stat().st_mtime < _MINUTE:
            return False
    with suppress(OSError):
        stamp.touch()
    return True


def trim(folder: Path, limit: int) -> None:
    """Remove the files read longest ago until the folder has no more than `limit` bytes.

    Files read within the last hour stay: another process may be about to load them. Dangling links
    go. Drafts do not count; those older than an hour are abandoned, and are removed.
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


# --- Trust, and a lock across forks ---------------------------------------------------------------


OTHERS = stat.S_IWGRP | stat.S_IWOTH  # permissions to write


def distrust(folder: Path) -> str:
    """The reason why a folder may hold another user's files, as a clause; "" if it cannot."""
    if not folder.is_absolute():
        return "it is relative, and there is no home folder or no working directory"
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
    return status.st_uid in (0, _user())


def _user() -> int:
    """The number of this process's user: 0, which all files have, where users have none."""
    return os.geteuid() if hasattr(os, "geteuid") else 0


def _lets_others_rename(folder: Path) -> bool:
    mode = folder.stat().st_mode
    return bool(mode & stat.S_IWOTH and not mode & stat.S_ISVTX)


def lock_of_process() -> threading.RLock:
    """A lock that a fork waits for: in the child it is free, and the data it guards consistent."""
    lock = threading.RLock()
    at_fork(before=lock.acquire, after_in_parent=lock.release, after_in_child=lock.release)
    return lock
