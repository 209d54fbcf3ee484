"""A cache of files gives what it was given, or nothing: damage, other users, full disks, age."""

import errno
import os
import stat
import subprocess
import sys
import time
import warnings

import numpy as np
import pytest

from miniml.backends import compiled
from miniml.backends.compiled import Cache
from miniml.errors import DeviceError

CONTENT = np.random.default_rng(0).bytes(10_000)


@pytest.fixture(autouse=True)
def _fresh(tmp_path, monkeypatch):
    """Folders of the test's own, and every warning is new."""
    monkeypatch.setenv("MINIML_CACHE", str(tmp_path / "cache"))
    (tmp_path / "temporary").mkdir()
    monkeypatch.setattr(compiled.tempfile, "tempdir", str(tmp_path / "temporary"))
    for memory in (compiled._warn, compiled._temporary_folders):
        memory.cache_clear()
    yield
    compiled._temporary_folders.cache_clear()


def made(kept: Cache, name: str = "x.so", content: bytes = CONTENT) -> object:
    return kept.make(name, lambda scratch: content)


def names(folder) -> list[str]:
    """What a folder has, but for the mark of the last trimming."""
    return sorted(set(os.listdir(folder)) - {compiled._TRIMMED})


def foreign(path, monkeypatch) -> None:
    """Makes a file or folder another user's."""
    if os.geteuid() == 0:
        os.chown(path, 65534, 65534)
    else:
        monkeypatch.setattr(os, "geteuid", lambda: 65534)


def test_what_was_made_is_found_whole():
    kept = Cache("units", 1 << 20)
    assert kept.find("x.so") is None
    path = made(kept)
    assert kept.find("x.so") == path
    assert path.read_bytes().startswith(CONTENT)
    assert path.parent == kept.folder
    assert stat.S_IMODE(path.stat().st_mode) == 0o644
    assert names(kept.folder) == ["x.so"]
    assert kept.problem() == ""


def damages(content: bytes) -> list[bytes]:
    """Cut to 0, 1, 63, 1000 bytes, by half, by 1; a byte more; pages of zeros; flipped bits."""
    cut = [content[:n] for n in (0, 1, 39, 40, 63, 1000, len(content) // 2, len(content) - 1)]
    pages = [content[:i] + bytes(4096) + content[i + 4096 :] for i in range(0, 8000, 1000)]
    flipped = []
    for bit in np.random.default_rng(1).integers(8 * len(content), size=200).tolist():
        other = bytearray(content)
        other[bit // 8] ^= 1 << bit % 8
        flipped.append(bytes(other))
    return [*cut, content + b"x", *pages, *flipped, b"\x7fELF" + bytes(5000)]


def test_nothing_damaged_is_found_and_what_is_made_anew_takes_its_place():
    kept = Cache("units", 1 << 20)
    path = made(kept)
    whole = path.read_bytes()
    for damaged in damages(whole):
        path.write_bytes(damaged)
        assert kept.find("x.so") is None
    assert made(kept) == path
    assert kept.find("x.so") == path
    assert path.read_bytes() == whole


def test_a_file_under_the_name_of_another_is_not_found():
    """The loader knows libraries by their paths: it would not load the right one after it."""
    kept = Cache("units", 1 << 20)
    one, two = kept.make("x-1.so", lambda _: b"one"), kept.make("x-2.so", lambda _: b"two")
    one.write_bytes(two.read_bytes())
    assert kept.find("x-1.so") is None
    assert kept.find("x-2.so") == two


def test_what_is_no_file_is_not_found():
    kept = Cache("units", 1 << 20)
    path = made(kept)
    elsewhere = path.rename(path.with_name("y.so"))
    path.symlink_to(elsewhere)
    assert kept.find("x.so") is None
    path.unlink()
    path.mkdir()
    assert kept.find("x.so") is None
    path.rmdir()
    os.mkfifo(path)
    assert kept.find("x.so") is None
    assert made(kept) == path
    assert kept.find("x.so") == path


@pytest.mark.parametrize("mode", [0o664, 0o646, 0o666])
def test_a_file_that_others_can_write_is_made_anew(mode):
    kept = Cache("units", 1 << 20)
    path = made(kept)
    path.chmod(mode)
    with pytest.warns(RuntimeWarning, match=r"x\.so is compiled anew, for others could have"):
        assert kept.find("x.so") is None
    made(kept)
    assert kept.find("x.so") == path


def test_a_file_of_another_user_is_made_anew(monkeypatch):
    kept = Cache("units", 1 << 20)
    path = made(kept)
    with monkeypatch.context() as patch:
        foreign(path, patch)
        if os.geteuid() == 0:
            with pytest.warns(RuntimeWarning, match="others could have"):
                assert kept.find("x.so") is None
            made(kept)
        assert kept.find("x.so") == (path if os.geteuid() == 0 else None)


@pytest.mark.parametrize("which", ["leaf", "parent", "above", "owner", "owner of the parent"])
def test_a_folder_that_others_can_change_is_not_used(tmp_path, monkeypatch, which):
    kept = Cache("units", 1 << 20)
    path = made(kept)
    where = kept.folder if which in ("leaf", "owner") else kept.folder.parent
    if which.startswith("owner"):
        foreign(where, monkeypatch)
    elif which == "above":
        tmp_path.chmod(0o777)
    else:
        where.chmod(0o777)
    assert kept.find("x.so") is None
    assert kept.problem()
    if which == "above":  # the temporary folder stands there, too
        tmp_path.chmod(0o1777)
        assert kept.find("x.so") == path
        return
    if os.geteuid() == 0 or not which.startswith("owner"):
        with pytest.warns(RuntimeWarning, match=r"compiled files go to .*miniml-.*MINIML_CACHE"):
            other = made(kept)
        assert other.is_relative_to(tmp_path / "temporary" / f"miniml-{os.geteuid()}")
        assert kept.find("x.so") == other
        made(kept, "y.so")  # no second warning


def test_a_shared_folder_for_all_with_the_sticky_bit_will_do(tmp_path, monkeypatch):
    folder = tmp_path / "shared"
    folder.mkdir()
    folder.chmod(0o1777)
    monkeypatch.setenv("MINIML_CACHE", str(folder))
    kept = Cache("units", 1 << 20)
    assert made(kept) == kept.find("x.so") == folder / "units" / "x.so"


def test_what_root_made_is_found_where_nothing_can_be_written(monkeypatch):
    if os.geteuid() == 0:
        kept = Cache("units", 1 << 20)
        path = made(kept)
        monkeypatch.setattr(os, "geteuid", lambda: 65534)
        monkeypatch.setattr(os, "utime", lambda *a, **k: os.stat("/nowhere"))
        assert kept.find("x.so") == path


@pytest.mark.parametrize("place", ["/proc/miniml", "file/x", "/dev/null", "n" * 300])
def test_where_no_folder_can_be_a_temporary_one_takes_its_place(tmp_path, monkeypatch, place):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("MINIML_CACHE", str(tmp_path / place))
    kept = Cache("units", 1 << 20)
    assert kept.find("x.so") is None
    assert kept.problem()
    with pytest.warns(RuntimeWarning, match="set MINIML_CACHE to a folder of your own"):
        path = made(kept)
    assert path.is_relative_to(tmp_path / "temporary")
    assert kept.find("x.so") == path


def test_a_relative_cache_in_a_folder_that_is_gone_is_said_and_a_temporary_one_takes_its_place(
    tmp_path, monkeypatch
):
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    monkeypatch.setenv("MINIML_CACHE", "relative")
    kept = Cache("units", 1 << 20)
    assert kept.find("x.so") is None
    assert "no working directory" in kept.problem()
    with pytest.warns(RuntimeWarning, match="no working directory; set MINIML_CACHE"):
        path = made(kept)
    assert path.is_relative_to(tmp_path / "temporary")
    assert kept.find("x.so") == path


def test_without_a_home_a_temporary_folder_takes_its_place(tmp_path, monkeypatch):
    for name in ("MINIML_CACHE", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)
    for home, reason in (("/proc/nobody", "No such file"), ("~", "there is no home folder")):
        monkeypatch.setenv("HOME", home)
        with pytest.warns(RuntimeWarning, match=f"{reason}.*set MINIML_CACHE"):
            path = made(Cache("units", 1 << 20))
        assert path.is_relative_to(tmp_path / "temporary")
        assert os.listdir(tmp_path) == ["temporary"]


def test_a_full_disk_leads_to_the_next_folder_and_at_last_to_a_sentence(tmp_path, monkeypatch):
    kept, calls = Cache("units", 1 << 20), []

    def full(scratch):
        calls.append(scratch)
        if len(calls) == 1:
            raise OSError(errno.ENOSPC, "No space left on device")
        return CONTENT

    with pytest.warns(RuntimeWarning, match="No space left on device"):
        path = kept.make("x.so", full)
    assert path.is_relative_to(tmp_path / "temporary")

    def fail(descriptor):
        raise OSError(errno.EDQUOT, "Disk quota exceeded")

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(DeviceError, match=r"no folder can take .*quota.*set MINIML_CACHE"):
        made(kept, "y.so")
    left = {p.name for p in tmp_path.rglob("*") if p.is_file() or ".tmp" in p.name}
    assert left - {compiled._TRIMMED} == {"x.so"}


def test_a_temporary_folder_of_another_is_not_used(tmp_path, monkeypatch):
    squatted = tmp_path / "temporary" / f"miniml-{os.geteuid()}"
    squatted.mkdir()
    squatted.chmod(0o777)
    monkeypatch.setenv("MINIML_CACHE", "/proc/miniml")
    kept = Cache("units", 1 << 20)
    with pytest.warns(RuntimeWarning, match="MINIML_CACHE"):
        path = made(kept)
    assert path.parent.parent.name.startswith(squatted.name + "-")
    assert kept.find("x.so") == path
    compiled._remove_own(str(path.parent.parent), os.getpid() + 1)
    assert path.exists()
    compiled._remove_own(str(path.parent.parent), os.getpid())
    assert not path.parent.parent.exists()


def test_what_fails_while_it_is_made_leaves_nothing():
    kept = Cache("units", 1 << 20)

    def interrupted(scratch):
        (scratch / "half").write_bytes(b"x")
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        kept.make("x.so", interrupted)
    assert os.listdir(kept.folder) == []


def test_any_umask_gives_folders_that_are_ones_own():
    for umask in (0, 0o002, 0o077):
        before = os.umask(umask)
        try:
            kept = Cache(f"units/{umask}", 1 << 20)
            assert made(kept) == kept.find("x.so")
        finally:
            os.umask(before)


def aged(path, size: int, age: float) -> None:
    path.write_bytes(bytes(size))
    os.utime(path, (time.time() - age, time.time() - age))


def test_what_was_read_longest_ago_goes_first(tmp_path):
    """What somebody may be about to load stays; other folders are not touched."""
    for i, age in enumerate((30, 7200, 9000, 8000)):
        aged(tmp_path / f"{i}.so", 100, age)
    for limit, left in ((400, "0123"), (250, "01"), (50, "0")):
        compiled.trim(tmp_path, limit)
        assert sorted(p.stem for p in tmp_path.glob("*.so")) == list(left)
    assert (tmp_path / "temporary").is_dir()


def test_what_is_found_counts_as_read():
    kept = Cache("units", 1 << 20)
    path = made(kept)
    os.utime(path, (time.time() - 9000, time.time() - 9000))
    kept.find("x.so")
    compiled.trim(kept.folder, 50)
    assert kept.find("x.so") == path


def test_a_folder_is_looked_through_once_a_minute(monkeypatch):
    """With 60,000 files that takes as long as a compilation."""
    kept, looked = Cache("units", 1 << 20), []
    monkeypatch.setattr(compiled, "trim", lambda folder, limit: looked.append(folder))
    stamp = kept.folder / compiled._TRIMMED
    for age, count in ((0, 1), (59, 1), (61, 2), (0, 2), (-3600, 3)):
        if stamp.exists():
            os.utime(stamp, (time.time() - age, time.time() - age))
        made(kept)
        assert looked == [kept.folder] * count


def test_drafts_do_not_count_and_go_when_their_compiler_must_be_dead():
    kept = Cache("units", 50_000)
    path = made(kept)
    os.utime(path, (time.time() - 7200, path.stat().st_mtime))
    aged(kept.folder / ".young.tmp", 100_000, 60)
    aged(kept.folder / "x.so.77.abcd.tmp", 100_000, 7200)
    scratch = kept.folder / ".abcd.tmp"
    scratch.mkdir()
    aged(scratch / "cc.s", 100_000, 7200)
    os.utime(scratch, (time.time() - 7200, time.time() - 7200))
    os.utime(kept.folder / compiled._TRIMMED, (time.time() - 61, time.time() - 61))
    made(kept, "y.so")
    assert names(kept.folder) == [".young.tmp", "x.so", "y.so"]


def test_the_file_written_last_is_the_newest():
    kept = Cache("units", 1 << 20)
    assert kept.newest("x-*.so") is None
    first, second = made(kept, "x-1.so"), made(kept, "x-2.so")
    os.utime(first, (time.time(), time.time() + 60))
    assert kept.newest("x-*.so") == first
    first.write_bytes(b"damaged")
    assert kept.newest("x-*.so") == second


def test_processes_that_make_one_file_at_once_leave_it_whole():
    code = (
        "from miniml.backends.compiled import Cache\n"
        "kept = Cache('units', 1 << 20)\n"
        "for i in range(20):\n"
        "    kept.make('x.so', lambda scratch: bytes(10_000))\n"
        "    assert kept.find('x.so')\n"
    )
    both = [subprocess.Popen([sys.executable, "-c", code], stderr=-1) for _ in range(2)]
    assert [(p.communicate()[1], p.returncode) for p in both] == [(b"", 0)] * 2
    assert names(Cache("units", 1 << 20).folder) == ["x.so"]


def test_the_folder_is_chosen_anew_whenever_the_environment_changes(tmp_path, monkeypatch):
    kept = Cache("units", 1 << 20)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        made(kept)
        monkeypatch.setenv("MINIML_CACHE", str(tmp_path / "other"))
        assert kept.find("x.so") is None
        assert made(kept).is_relative_to(tmp_path / "other")


def linked(kept: Cache, files: dict[str, bytes], links: dict[str, str]) -> object:
    return kept.make_all(lambda scratch: files, links)


def test_what_is_linked_is_found_by_either_name_while_it_is_whole():
    kept = Cache("units", 1 << 20)
    folder = linked(kept, {"x-0.so": CONTENT, "x-1.so": b"1"}, {"a": "x-0.so", "b": "x-1.so"})
    assert kept.linked("abc") == {"a": folder / "x-0.so", "b": folder / "x-1.so"}
    linked(kept, {"x-2.so": b"2"}, {"b": "x-2.so"})
    (folder / "x-0.so").write_bytes(b"damaged")
    assert kept.linked("ab") == {"b": folder / "x-2.so"}
    assert names(folder) == ["a", "b", "x-0.so", "x-1.so", "x-2.so"]


@pytest.mark.parametrize("target", ["/etc/passwd", "../x-0.so", "a", "x.txt"])
def test_a_link_to_what_is_none_of_ours_leads_nowhere(target):
    kept = Cache("units", 1 << 20)
    folder = linked(kept, {"x-0.so": CONTENT}, {"a": "x-0.so"})
    (folder / "a").unlink()
    (folder / "a").symlink_to(target)
    assert kept.linked("a") == {}


def test_links_go_with_their_file(tmp_path):
    kept = Cache("units", 1 << 20)
    folder = linked(kept, {"x-0.so": CONTENT, "x-1.so": CONTENT}, {"a": "x-0.so", "b": "x-1.so"})
    os.utime(folder / "x-0.so", (time.time() - 9000, time.time()))
    compiled.trim(folder, len(CONTENT) + 100)
    assert names(folder) == ["b", "x-1.so"]


def test_clearing_removes_what_is_ours_and_nothing_else():
    kept = Cache("units", 1 << 20)
    folder = linked(kept, {"x-0.so": CONTENT, "y-1.so": b"1"}, {"a": "x-0.so"})
    (folder / "x-0.so").write_bytes(b"damaged")
    for name in ("notes.txt", "X-0.so", "x.so"):
        (folder / name).write_text("mine")
    (folder / compiled.BESIDE).mkdir()
    found = {(e.path.name, e.kind, e.nbytes) for e in kept.entries()}
    assert found == {("x-0.so", "x", 7), ("y-1.so", "y", 41)}
    assert all(e.age < 60 for e in kept.entries())
    kept.clear()
    assert names(folder) == ["X-0.so", "notes.txt", "x.so"]
    assert kept.entries() == []
