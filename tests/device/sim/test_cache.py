"""Compiled units on disk, and the compiler that makes them: whatever fails is one sentence."""

import os
import shutil
import signal
import stat
import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path

import pytest

from miniml.backends import cache
from miniml.backends.cuda.sim import toolchain, unit
from miniml.errors import CompileError, DeviceError

TEXT = 'extern "C" __global__ void k(float* y) { y[threadIdx.x] = 3; }'
SMALL = f"""
import numpy as np
from miniml.backends.cuda.emulator import cupy as cp
y = cp.empty(4)
module = cp.RawModule(code='{TEXT}')
module.get_function("k")((1,), (4,), (y,))
assert (y.get() == 3).all()
"""


def python(code: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", code], env=os.environ | environment, capture_output=True, text=True
    )


@pytest.fixture(scope="module")
def warm(tmp_path_factory) -> Path:
    """A cache with the runtime and one unit."""
    folder = tmp_path_factory.mktemp("warm")
    (folder / "cuda-sim").mkdir()
    for path in (toolchain.runtime_library(), unit.build(TEXT, (), "check")):
        shutil.copy(path, folder / "cuda-sim")
    return folder


def damaged(content: bytes) -> dict[str, bytes]:
    """What a power cut, a full disk or a bad disk leaves."""
    middle = len(content) // 2
    cuts = {f"cut to {n}": content[:n] for n in (0, 1, 63, 1000, middle, len(content) - 1)}
    page = content[:4096] + bytes(4096) + content[8192:]
    bit = content[:middle] + bytes([content[middle] ^ 4]) + content[middle + 1 :]
    return {**cuts, "a page of zeros": page, "one bit": bit}


def test_damaged_units_are_compiled_anew(warm, tmp_path):
    """One process loads them all: it would be killed by the first that is loaded as it is."""
    (path,) = warm.glob("cuda-sim/check-*")
    for i, content in enumerate(damaged(path.read_bytes()).values()):
        folder = shutil.copytree(warm, tmp_path / str(i))
        next(folder.glob("cuda-sim/check-*")).write_bytes(content)
    loop = "for os.environ['MINIML_CACHE'] in sys.argv[1:]:"
    code = f"import os, sys\n{loop}\n{textwrap.indent(SMALL, '    ')}"
    folders = sorted(map(str, tmp_path.iterdir()))
    done = subprocess.run([sys.executable, "-c", code, *folders], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    for folder in folders:
        (anew,) = Path(folder).glob("cuda-sim/check-*")
        assert cache.is_whole(anew)


@pytest.mark.deep
def test_a_damaged_runtime_is_compiled_anew(warm, tmp_path):
    folder = shutil.copytree(warm, tmp_path / "copy")
    (path,) = folder.glob("cuda-sim/runtime-*")
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    done = python(SMALL, MINIML_CACHE=str(folder))
    assert (done.returncode, done.stderr) == (0, "")
    assert cache.is_whole(path)


def test_a_warm_cache_works_without_a_compiler(warm):
    assert python(SMALL, MINIML_CACHE=str(warm), CXX="/nowhere/c++").returncode == 0
    other = python(SMALL.replace("3", "4"), MINIML_CACHE=str(warm), CXX="/nowhere/c++")
    assert "DeviceError: device 'cuda-sim' needs a C++ compiler" in other.stderr


def test_a_cache_that_cannot_be_written_is_one_warning(warm, tmp_path):
    """The temporary folder that takes its place is warm the next time."""
    place = {"MINIML_CACHE": "/proc/miniml", "TMPDIR": str(tmp_path)}
    shutil.copytree(warm, tmp_path / f"miniml-{os.geteuid()}")
    code = SMALL + SMALL.replace("3", "5")
    done = python(code, **place)
    assert done.returncode == 0, done.stderr
    (message,) = [line for line in done.stderr.splitlines() if "RuntimeWarning" in line]
    assert "set MINIML_CACHE to a folder of your own that can be written" in message
    assert python(code, **place).stderr == ""


def test_a_unit_that_others_could_have_written_is_compiled_anew(warm, tmp_path):
    folder = shutil.copytree(warm, tmp_path / "copy")
    (path,) = folder.glob("cuda-sim/check-*")
    path.chmod(0o666)
    done = python(SMALL, MINIML_CACHE=str(folder))
    assert done.returncode == 0, done.stderr
    assert f"{path} is compiled anew, for others could have written it" in done.stderr
    assert stat.S_IMODE(path.stat().st_mode) == 0o644


@pytest.fixture
def fake(tmp_path, monkeypatch):
    """Puts another compiler in the place of the machine's: a script, or bytes of a program."""
    remembered = (toolchain.compiler, toolchain.identity, toolchain.is_clang)

    def forget() -> None:
        for known in remembered:
            known.cache_clear()

    def put(content: str | bytes) -> Path:
        path = tmp_path / "c++"
        path.write_bytes(
            content if isinstance(content, bytes) else f"#!/bin/sh\n{content}".encode()
        )
        path.chmod(0o755)
        monkeypatch.setenv("CXX", str(path))
        monkeypatch.setenv("MINIML_CACHE", str(tmp_path / "cache"))
        monkeypatch.setattr(cache.tempfile, "tempdir", str(tmp_path))
        cache._temporary_folders.cache_clear()
        forget()
        return path

    yield put
    monkeypatch.undo()
    cache._temporary_folders.cache_clear()
    forget()


def left(folder: Path) -> list[str]:
    return [p.name for p in folder.glob("*/cuda-sim/*")]


@pytest.mark.parametrize(
    ("content", "error", "message"),
    [
        (r"printf '\377\376: no\n' >&2; exit 1", CompileError, "\ufffd\ufffd: no"),
        ("yes | head -c 1000000 >&2; exit 1", CompileError, "y\ny"),
        ("exit 3", DeviceError, "ended with 3 and printed no reason; set CXX"),
        ("kill -9 $$", DeviceError, "was ended by signal 9; it may have been short of memory"),
        (
            "echo 'g++: fatal error: Killed signal terminated program cc1plus' >&2; exit 1",
            DeviceError,
            "was ended by a signal:\ng\\+\\+: fatal.*; it may have been short of memory",
        ),
        ("exit 0", DeviceError, "success and wrote no library but 0 bytes; set CXX"),
        (': > "$4"', DeviceError, "wrote no library but 0 bytes"),
        ('echo hello > "$4"', DeviceError, "wrote no library but 6 bytes"),
        ("", DeviceError, "wrote no library but 0 bytes"),
        (b"", DeviceError, r"cannot be run \(Exec format error\); set CXX"),
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
        toolchain.build("x.so", ["-x", "c++"], "int x;")
    assert len(str(caught.value)) < 25_000
    assert left(tmp_path) == []


def test_a_compiler_that_hangs_is_killed_with_its_children(fake, tmp_path, monkeypatch):
    monkeypatch.setattr(toolchain, "SECONDS", 0.5)
    fake(f"sleep 600 & echo $! > {tmp_path}/child; wait")
    with pytest.raises(DeviceError, match=r"did not end within 0\.5 seconds; set CXX"):
        toolchain.build("x.so", [])
    assert ends(int((tmp_path / "child").read_text()))
    assert left(tmp_path) == []


def test_an_interrupt_ends_the_compiler_and_its_children(fake, tmp_path):
    fake(f"sleep 600 & echo $! > {tmp_path}/child; wait")
    timer = threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGINT))
    timer.start()
    with pytest.raises(KeyboardInterrupt):
        toolchain.build("x.so", [])
    timer.join()
    assert ends(int((tmp_path / "child").read_text()))
    assert left(tmp_path) == []


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


def test_a_compiler_for_another_machine_is_one_sentence(fake):
    fake(r"""printf '\177ELF\002\001\001' > "$2"; head -c 500 /dev/zero >> "$2" """)
    path = toolchain.build("x.so", [])
    with pytest.raises(DeviceError, match=r"cannot be loaded .*; remove the file, or set MINIML"):
        toolchain.load(path)


def test_a_text_with_any_characters_reaches_the_compiler(warm, monkeypatch):
    monkeypatch.setenv("MINIML_CACHE", str(warm))
    with pytest.raises(CompileError, match="does not compile"):
        unit.build('extern "C" __global__ void f() { \ud800é }', (), "fast")
