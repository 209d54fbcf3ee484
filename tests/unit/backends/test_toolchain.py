"""A compiler is found once, and each way in which it fails is one sentence."""

import os
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from miniml.backends.cc import units
from miniml.backends.compiled import Cache, Job, Toolchain
from miniml.errors import CompileError, DeviceError
from tests.conftest import DEEP
from tests.frame.compilers import FAKE_LIBRARY, own_folders, put
from tests.frame.moments import Moments, drawn
from tests.frame.native import needs_compiler

TOOLS = Toolchain("X", "XC", ("xc", "yc"), "device 'x'", "apt install xc", 60.0)


@pytest.fixture(autouse=True)
def patch(tmp_path):
    with own_folders(tmp_path) as patch:
        yield patch


@pytest.fixture
def fake(tmp_path, patch):
    """Puts a script, or bytes of a program, in the place of the compiler."""
    return lambda content: put(patch, TOOLS, tmp_path, content)


def build(text: str = "", tools: Toolchain = TOOLS, texts: int = 1) -> Path:
    def made(scratch: Path) -> bytes:
        return tools.libraries([Job(["-x", "c"], text)] * texts, scratch)[-1][0]

    return Cache("units", 1 << 20).make("x-0.so", made)


def left(folder: Path) -> list[str]:
    return [p.name for p in folder.glob("*/units/*")]


def test_the_compiler_is_the_named_one_or_the_first_on_the_path(tmp_path, patch):
    patch.delenv("XC", raising=False)
    patch.setenv("PATH", str(tmp_path))
    assert TOOLS.find() == ()
    assert TOOLS.absence() == "there is none on the PATH (xc, yc)"
    with pytest.raises(DeviceError, match=r"device 'x' needs a X compiler, and there is none"):
        TOOLS.identity()
    assert replace(TOOLS, other=lambda: ("/zig", "cc")).find() == ("/zig", "cc")
    for name in ("yc", "xc"):
        (tmp_path / name).write_text("")
        (tmp_path / name).chmod(0o755)
        patch.setenv("PATH", f"/nowhere/{name}:{tmp_path}")  # looked for once for each PATH
        assert TOOLS.find() == (str(tmp_path / name),)
        assert TOOLS.absence() == ""
    patch.setenv("XC", "yc -m32")
    assert TOOLS.find() == (str(tmp_path / "yc"), "-m32")
    patch.setenv("XC", "/nowhere/yc -m32")
    assert TOOLS.absence() == "$XC names /nowhere/yc -m32, which is not there"


def test_the_identity_is_that_of_the_file_and_of_the_command(fake, tmp_path, patch):
    path = fake("exit 0")
    first = TOOLS.identity()
    patch.setenv("XC", f"{path} -m32")
    assert TOOLS.identity() != first
    other = fake("exit 10").rename(tmp_path / "other")
    patch.setenv("XC", str(other))
    assert TOOLS.identity() != first


@pytest.mark.parametrize(
    ("content", "error", "message"),
    [
        (r"printf '\377\376: no\n' >&2; exit 1", CompileError, "\ufffd\ufffd: no"),
        ("yes | head -c 1000000 >&2; exit 1", CompileError, "y\ny"),
        ("exit 3", DeviceError, "ended with 3 and printed no reason; set XC"),
        ("kill -9 $$", DeviceError, "was ended by signal 9; it may have been short of memory"),
        (
            "echo 'g++: fatal error: Killed signal terminated program cc1plus' >&2; exit 1",
            DeviceError,
            "was ended by a signal:\ng\\+\\+: fatal.*; it may have been short of memory",
        ),
        ("exit 0", DeviceError, "success and wrote no library but 0 bytes; set XC"),
        (': > "$OUT"', DeviceError, "wrote no library but 0 bytes"),
        ('echo hello > "$OUT"', DeviceError, "wrote no library but 6 bytes"),
        ("yes", DeviceError, "printed more than 64 MiB; set XC"),
        (
            r"printf 'a\033[31mb\033]0;c\007\r\n\td' >&2; exit 1",
            CompileError,
            "^ab\ufffd]0;c\ufffd\n\td",
        ),
        (b"", DeviceError, r"cannot be run \(Exec format error\); set XC"),
        (b"\x7fELF" + bytes(100), DeviceError, r"cannot be run \(Exec format error\)"),
        (
            "echo 'ld: final link failed: No space left on device' >&2; exit 1",
            DeviceError,
            "no folder can take compiled files: .*No space left on device.*set MINIML_CACHE",
        ),
    ],
)
def test_a_compiler_that_fails_is_one_sentence(fake, tmp_path, content, error, message):
    fake(content)
    with pytest.raises(error, match=f"(?s){message}") as caught:
        build("int x;")
    assert len(str(caught.value)) < 25_000
    assert left(tmp_path) == []


def test_a_compiler_that_hangs_is_killed_with_its_children(fake, tmp_path):
    fake(f"sleep 600 & echo $! > {tmp_path}/child; wait")
    with pytest.raises(DeviceError, match=r"did not end within 0\.5 seconds; set XC"):
        build(tools=replace(TOOLS, seconds=0.5))
    assert ends(int((tmp_path / "child").read_text()))
    assert left(tmp_path) == []


def test_an_interrupt_ends_the_compilers_and_their_children(fake, tmp_path):
    fake(f"sleep 600 & echo $! > {tmp_path}/child$$; wait")
    timer = threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGINT))
    timer.start()
    with pytest.raises(KeyboardInterrupt):
        build(texts=2)
    timer.join()
    children = list(tmp_path.glob("child*"))
    assert len(children) == 2
    assert all(ends(int(child.read_text())) for child in children)
    assert left(tmp_path) == []


@pytest.mark.larger
@pytest.mark.timeout(600)
def test_an_interrupt_at_any_moment_ends_the_compilers(fake, tmp_path):
    draw, before = np.random.default_rng(0), children()
    tools = replace(TOOLS, seconds=0.2)
    with Moments() as moments:
        fake(FAKE_LIBRARY)
        codes = moments.count(lambda: build(texts=2, tools=tools))
        fake("sleep 600")
        for _ in range(400 if DEEP else 20):
            at = drawn(draw, codes)
            with suppress(DeviceError):  # it hung: the signal would have come later
                moments.during(lambda: build(texts=2, tools=tools), at, TimeoutError)
            assert children() == before, (at, codes[at].co_qualname)


def children() -> set[str]:
    """The processes that this one has begun and that still run, or were not waited for."""
    found = set()
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            if int(path.read_text().rpartition(")")[2].split()[1]) == os.getpid():
                found.add(path.parent.name)
    return found


@needs_compiler
def test_a_library_that_is_cut_is_refused_where_the_loader_would_crash(tmp_path):
    """Sections at the end, which are for debuggers, may be missing."""
    source, whole = tmp_path / "x.c", tmp_path / "x.so"
    source.write_text("static double held[900] = {1.0}; double *get(void) { return held; }")
    command = [*units.TOOLS.command(), "-shared", "-fPIC", "-g", source, "-o", whole]
    subprocess.run(command, check=True)
    content, draw, accepted = whole.read_bytes(), np.random.default_rng(0), []
    cuts = {2000, 4096, len(content) - 1, *draw.integers(64, len(content), size=60).tolist()}
    for cut in sorted(cuts):
        path = tmp_path / f"{cut}.so"
        path.write_bytes(content[:cut])
        with suppress(DeviceError):
            accepted.append(TOOLS._library(path) and path)
    assert 0 < len(accepted) < len(cuts) / 2
    load = "import ctypes, sys; [ctypes.CDLL(path).get() for path in sys.argv[1:]]"
    subprocess.run([sys.executable, "-c", load, whole, *accepted], check=True)


def ends(process: int) -> bool:
    """True when a process is gone within seconds, or waits for its parent to look."""
    for _ in range(100):
        try:
            state = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]
        except FileNotFoundError:
            return True
        if state == "Z":
            return True
        time.sleep(0.05)
    return False


def test_several_texts_are_compiled_side_by_side(fake, tmp_path):
    """Each waits until the other has begun; what they get is longer than a pipe holds."""
    met = f"touch {tmp_path}/$$.met; until [ $(ls {tmp_path} | grep -c met) = 2 ]; do :; done"
    fake(f"test $(wc -c) = 200000 || exit 1; {met}; {FAKE_LIBRARY}")
    build("x" * 200_000, texts=2)


def test_a_compiler_for_another_machine_is_one_sentence(fake):
    fake(FAKE_LIBRARY)
    with pytest.raises(DeviceError, match=r"cannot be loaded .*; remove the file, or set MINIML"):
        TOOLS.load(build())


def test_what_it_prints_is_its_output(patch):
    patch.setenv("XC", sys.executable)
    assert TOOLS.run(["-c", "print(input())"], "é\ud800".replace("\ud800", "")) == "é\n"
