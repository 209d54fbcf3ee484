"""Compiled units on disk, and the compiler that makes them: whatever fails is one sentence."""

import os
import shutil
import stat
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from miniml.backends import compiled
from miniml.backends.cuda.sim import unit
from miniml.errors import CompileError

TEXT = 'extern "C" __global__ void k(float* y) { y[threadIdx.x] = 3; }'
SMALL = f"""
import numpy as np
from tests.device import emucupy as cp
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
    for path in (unit.runtime_library(), unit.build(TEXT, (), "check")):
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
        assert compiled.is_whole(anew)


@pytest.mark.deep
def test_a_damaged_runtime_is_compiled_anew(warm, tmp_path):
    folder = shutil.copytree(warm, tmp_path / "copy")
    (path,) = folder.glob("cuda-sim/runtime-*")
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    done = python(SMALL, MINIML_CACHE=str(folder))
    assert (done.returncode, done.stderr) == (0, "")
    assert compiled.is_whole(path)


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


def test_a_text_with_any_characters_reaches_the_compiler(warm, monkeypatch):
    monkeypatch.setenv("MINIML_CACHE", str(warm))
    with pytest.raises(CompileError, match="does not compile"):
        unit.build('extern "C" __global__ void f() { \ud800é }', (), "fast")
