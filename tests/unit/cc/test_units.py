"""Native kernels are compiled once, found again by any process, and fail in one sentence."""

import ctypes
import os
import shutil
import subprocess
import sys
import threading
import warnings
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from miniml.backends import compiled as cache
from miniml.backends.cc import units
from miniml.backends.cc.units import Source
from miniml.errors import CompileError, DeviceError, PerformanceWarning
from tests.conftest import HAS_CC
from tests.frame.compilers import CUT_LIBRARY, FAKE_LIBRARY, own_folders, put


def adding(n: float, *shared: str) -> Source:
    text = "void KERNEL(char *const *at) { double *x = (double *)at[0]; x[0] += "
    return Source(f"{text}{n}; }}", shared)


@pytest.fixture(autouse=True)
def divided(monkeypatch):
    """Long texts are divided, as they are for users; other tests compile each at once."""
    monkeypatch.setattr(units, "_PROCESSES", 8)


@pytest.fixture
def alone(tmp_path, monkeypatch):
    """What a new process knows, and a cache of the test's own; called again, as a next process."""

    def forget() -> None:
        for name, empty in (("_loaded", {}), ("_libraries", {}), ("_services", None)):
            monkeypatch.setattr(units, name, empty)

    forget()
    with own_folders(tmp_path):
        yield forget


@pytest.fixture
def fresh(alone):
    """The same, for tests that compile."""
    if not HAS_CC:
        pytest.skip("no C compiler on this machine")
    return alone


@pytest.fixture
def fake(alone, tmp_path, monkeypatch):
    monkeypatch.setattr(units, "_given_up", {})
    return lambda content: put(monkeypatch, units.TOOLS, tmp_path, content)


@pytest.fixture
def compilations(monkeypatch):
    """How many texts each call of the compiler was given."""
    counts = []
    compiled = units.compiled

    def counted(texts, scratch):
        counts.append(len(texts))
        return compiled(texts, scratch)

    monkeypatch.setattr(units, "compiled", counted)
    return counts


def sum_of(*sources: Source) -> float:
    """What all of them have added."""
    units.load(sources)
    x = np.zeros(1)
    for source in sources:
        units.run(source, [x])
    return float(x[0])


def stored() -> list[Path]:
    return [entry.path for entry in units.CACHE.entries()]


def test_a_kernel_is_found_in_any_unit_that_has_it(fresh, compilations):
    assert sum_of(adding(1), adding(2), adding(1)) == 4
    assert sum_of(adding(2)) == 2
    assert (compilations, len(stored())) == ([1], 1)
    fresh()
    assert sum_of(adding(2), adding(4)) == 6  # one is there
    assert (compilations, len(stored())) == ([1, 1], 2)
    fresh()
    assert sum_of(adding(4), adding(1), adding(2)) == 7  # of two units
    assert sum_of() == 0
    assert compilations == [1, 1]


def test_a_long_text_is_compiled_in_parts(fresh, compilations, monkeypatch):
    monkeypatch.setattr(units, "_PART", 300)
    monkeypatch.setattr(units, "cpus", lambda: 3)
    assert sum_of(*map(adding, range(20))) == 190
    assert (compilations, len(stored())) == ([3], 3)
    fresh()
    assert sum_of(*map(adding, range(20))) == 190
    assert compilations == [3]


def test_parts_have_about_equal_work_and_share_few_texts(monkeypatch):
    monkeypatch.setattr(units, "cpus", lambda: 2)
    sources = [adding(n, f"/* text {n % 2} */") for n in range(20)]
    parts = units._parts(sources)
    assert sorted(map(len, parts)) == [10, 10]
    assert [len({s.shared for s in part}) for part in parts] == [1, 1]
    assert sorted(s for part in parts for s in part) == sorted(sources)


def test_a_family_that_shares_a_text_is_compiled_whole_where_it_ends_near_the_middle(monkeypatch):
    monkeypatch.setattr(units, "cpus", lambda: 2)
    family = [adding(n, "/* shared */") for n in range(12)]
    parts = units._parts([*map(adding, range(6)), *family, adding(99, "/* another */")])
    assert [len({s.shared[:1] for s in part}) for part in parts] == [1, 2]
    assert sorted(parts[0]) == sorted(family)


def test_a_large_family_is_compiled_by_all_processors(monkeypatch):
    monkeypatch.setattr(units, "cpus", lambda: 2)
    parts = units._parts([*map(adding, range(3)), *(adding(n, "/* shared */") for n in range(40))])
    assert [*map(len, parts)] == [21, 22]


def test_a_kernel_depends_on_compiler_flags_processor_and_services(fresh, monkeypatch):
    keys = {units.key()}
    for name, value in (("FLAGS", ("-g",)), ("SERVICES", ""), ("_features", lambda: "avx9")):
        units._key.cache_clear()
        monkeypatch.setattr(units, name, value)
        keys.add(units.key())
    units._key.cache_clear()
    monkeypatch.setenv("CC", f"{units.TOOLS.command()[0]} -pipe")
    assert len({*keys, units.key()}) == 5
    units._key.cache_clear()


def test_another_compiler_compiles_anew(fresh, compilations, monkeypatch):
    command = units.TOOLS.command()
    for flag in ("-pipe", "", "-pipe"):
        monkeypatch.setenv("CC", " ".join((*command, flag)).strip())
        fresh()
        assert sum_of(adding(1)) == 1
    assert compilations == [1, 1]


def test_a_damaged_unit_is_compiled_anew(fresh, compilations, tmp_path, monkeypatch):
    sum_of(adding(1))
    (path,) = stored()
    whole = path.read_bytes()
    damaged = (whole[:100], b"", whole[:5000] + b"x" + whole[5001:], whole + b"x")
    for i, content in enumerate(damaged):  # copies, for a library that is loaded must not change
        folder = tmp_path / f"{i}" / "cc"
        ignored = shutil.ignore_patterns(cache.BESIDE)
        shutil.copytree(path.parent, folder, symlinks=True, ignore=ignored)
        (folder / path.name).write_bytes(content)
        monkeypatch.setenv("MINIML_CACHE", str(folder.parent))
        fresh()
        assert sum_of(adding(1)) == 1
        assert cache.is_whole(folder / path.name)
    assert compilations == [1] * 5


def test_a_unit_under_the_name_of_another_is_compiled_anew(fresh, tmp_path):
    """Also where the loader knows its path: in the process that loaded it, and in the next one."""
    sum_of(adding(1))
    (one,) = stored()
    sum_of(adding(2))
    (two,) = set(stored()) - {one}
    other = tmp_path / "copy"
    shutil.copy(two, other)
    other.replace(one)
    fresh()
    assert [sum_of(adding(n)) for n in (1, 2)] == [1, 2]
    assert cache.is_whole(one)


def test_what_was_not_written_here_is_not_loaded(fresh, compilations, tmp_path):
    """A library of somebody else's behind the link, or one of ours without the kernel."""
    sum_of(adding(1))
    (path,) = stored()
    (link,) = [p for p in path.parent.iterdir() if p.is_symlink()]
    stranger = shutil.copy(path, tmp_path / "unit-0.so")
    fresh()
    sum_of(adding(2))
    (other,) = set(stored()) - {path}
    for target in (stranger, other.name, link.name):
        link.unlink()
        link.symlink_to(target)
        fresh()
        assert sum_of(adding(1)) == 1
    assert compilations == [1] * 5


SERVING = """void KERNEL(char *const *at) {
  double *x = (double *)at[0];
  if (miniml.parallel != miniml_serial) x[0] = *(double *)(void *)miniml.parallel;
}"""


class Services(ctypes.Structure):
    _fields_ = [(name, ctypes.c_void_p) for name in ("parallel",)]


def test_units_get_the_services_of_the_process(fresh):
    """Those that are loaded at once, the others when they are."""
    before, after = Source(SERVING), Source(SERVING + "//")
    assert sum_of(before) == 0
    number = ctypes.c_double(3)
    units.provide(Services(ctypes.addressof(number)))
    assert (sum_of(before), sum_of(after)) == (3, 3)


PROCESS = """
import numpy as np
from miniml.backends.cc import units
from miniml.backends.cc.units import Source
text = "void KERNEL(char *const *at) { ((double *)at[0])[0] += %d; }"
x = np.zeros(1)
for i in range(4):
    some = [Source(text % j) for j in range(i, i + 3)]
    units.load(some)
    for source in some:
        units.run(source, [x])
assert x[0] == 30
"""


def test_processes_and_threads_that_compile_at_once_get_what_they_asked_for(fresh):
    environment = {**os.environ, "MINIML_CACHE": os.environ["MINIML_CACHE"]}
    both = [
        subprocess.Popen([sys.executable, "-c", PROCESS], stderr=-1, env=environment)
        for _ in range(2)
    ]
    found = []
    threads = [
        threading.Thread(target=lambda: found.append(sum_of(adding(0.5), adding(8))))
        for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [8.5] * 4
    assert [(p.communicate()[1], p.returncode) for p in both] == [(b"", 0)] * 2
    assert all(cache.is_whole(path) for path in stored())


def test_a_refused_text_is_a_compile_error_and_the_next_one_is_tried(fresh):
    with pytest.raises(CompileError, match=r"error: .*nonsense"):
        units.load([Source("void KERNEL(char *const *at) { nonsense; }")])
    assert units.available()
    assert sum_of(adding(1)) == 1


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("exit 3", "ended with 3 and printed no reason; set CC to another"),
        ("sleep 600", r"did not end within 0\.5 seconds; set CC"),
        ("exit 0", "reported success and wrote no library"),
        (FAKE_LIBRARY, "wrote a library without the functions of its text; set CC"),
        (CUT_LIBRARY, "wrote a library that is cut after 558 bytes; set CC"),
        ("echo 'ld: No space left on device' >&2; exit 1", "no folder can take .*No space left"),
        (
            "echo 'error: no stdint.h\\nstop' >&2; exit 1",
            r"refuses a text that is right \(error: no stdint.h\); it may lack its headers or",
        ),
        (b"", r"cannot be run \(Exec format error\)"),
    ],
)
def test_a_compiler_that_fails_is_not_tried_again(fake, monkeypatch, tmp_path, content, message):
    path = fake(content)
    if content == "sleep 600":
        monkeypatch.setattr(units, "TOOLS", replace(units.TOOLS, seconds=0.5))
    assert (units.available(), units.absence()) == (True, "")
    with pytest.raises(DeviceError, match=f"(?s){message}"):
        units.load([adding(1)])
    assert not units.available()
    assert units.absence()
    monkeypatch.delenv("CC")
    assert units.available() == bool(units.TOOLS.find())
    monkeypatch.setenv("CC", str(path))
    monkeypatch.setenv("MINIML_CACHE", str(tmp_path / "other"))
    assert units.available()


def test_no_compiler_is_a_clause_and_an_error(alone, monkeypatch):
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.delenv("CC", raising=False)
    monkeypatch.setattr(units, "TOOLS", replace(units.TOOLS, other=tuple))
    assert not units.available()
    assert units.absence() == "there is none on the PATH (gcc, clang, cc)"
    with pytest.raises(DeviceError, match=r"provider 'cc' needs a C compiler.*miniml\[compiler\]"):
        units.load([adding(1)])


def test_the_wheel_is_found(tmp_path, monkeypatch):
    (tmp_path / "ziglang").mkdir()
    for name in ("__init__.py", "zig"):
        (tmp_path / "ziglang" / name).write_text("")
        (tmp_path / "ziglang" / name).chmod(0o755)
    monkeypatch.syspath_prepend(str(tmp_path))
    assert units._of_wheel() == (str(tmp_path / "ziglang" / "zig"), "cc")


def test_the_user_is_told_once():
    with pytest.warns(PerformanceWarning, match=r"NumPy's kernels take the place.*: it broke; "):
        units.warn_without(DeviceError("it broke\nat length"))
    with warnings.catch_warnings(action="error"):
        units.warn_without(DeviceError("it broke\nat length"))
