"""A compiler of this machine: found once, run with a time limit, its failures in sentences."""

from __future__ import annotations

import ctypes
import errno
import hashlib
import os
import re
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import NamedTuple

from ..errors import CompileError, DeviceError

_LOG = 20_000  # characters of a compiler's log in an error
# How the drivers of gcc and clang report that a signal ended their subprocess.
_KILLED = re.compile(r"signal terminated program|Killed signal|unable to execute command: \w+")
_FULL = {os.strerror(code): code for code in (errno.ENOSPC, errno.EDQUOT)}


class Job(NamedTuple):
    """One run of a compiler: its arguments, and its input."""

    arguments: Sequence[str]
    text: str = ""


@dataclass(frozen=True)
class Toolchain:
    """The compiler of a language: $`variable`, or the first of `names` on the PATH, or `other`.

    user: what needs it, and where: how to get one, in sentences. other: a command from elsewhere,
    () for none. seconds: after which the compiler counts as hung.
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
        """Why there is no compiler, as a clause; "" if there is one."""
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

        CompileError with its log if it refuses the text; DeviceError if it fails itself; OSError if
        the disk is full.
        """
        return self._all([Job(arguments, text)], {})[0][0]

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
        """The error for a compiler that fails itself."""
        advice = advice or f"set {self.variable} to another, or reinstall it: {self.where}"
        command = self.command()[0]
        return DeviceError(f"the {self.language} compiler {command} {what}; {advice}")

    def load(self, path: Path) -> ctypes.CDLL:
        """A compiled file, loaded into this process; DeviceError says why it cannot be."""
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
        return content

    def _all(self, jobs: Sequence[Job], environment: dict[str, str]) -> list[tuple[str, str]]:
        """The output and the log of each job; no process outlives this call."""
        environment = {**os.environ, "LC_ALL": "C.UTF-8", **environment}
        end = time.monotonic() + self.seconds
        running: list[subprocess.Popen[bytes]] = []
        try:
            running.extend(self._started(job, environment) for job in jobs)
            return [self._ended(process, end) for process in running]
        finally:
            for process in running:
                _end(process)

    def _started(self, job: Job, environment: dict[str, str]) -> subprocess.Popen[bytes]:
        command = [*self.command(), *job.arguments]
        # A file, not a pipe: a process that begins to read while another is written to.
        with tempfile.TemporaryFile() as text:
            text.write(job.text.encode(errors="surrogatepass"))
            text.seek(0)
            try:
                return subprocess.Popen(
                    command, stdin=text, stdout=-1, stderr=-1, env=environment, process_group=0
                )
            except OSError as error:
                raise self.failed(f"cannot be run ({error.strerror})") from None

    def _ended(self, process: subprocess.Popen[bytes], end: float) -> tuple[str, str]:
        try:
            streams = process.communicate(timeout=max(end - time.monotonic(), 0))
        except subprocess.TimeoutExpired:
            raise self.failed(f"did not end within {self.seconds:g} seconds") from None
        output, log = (stream.decode(errors="replace") for stream in streams)
        if process.returncode:
            raise self._error(process.returncode, log)
        return output, log

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
    text = "\0".join(parts).encode(errors="surrogatepass")
    return hashlib.sha256(text).hexdigest()[:32]


def _end(process: subprocess.Popen[bytes]) -> None:
    """Kill a process and its children, unless it has ended and was waited for."""
    if process.returncode is None:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
    with process:  # closes the pipes, and waits
        pass
