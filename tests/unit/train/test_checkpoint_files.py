"""Files of checkpoints: damaged ones, links, modes, names, drafts, places where none can be."""

import errno
import hashlib
import json
import os
import resource
import stat
import struct
import subprocess
import sys
import textwrap
import threading

import numpy as np
import pytest
import safetensors.numpy

import miniml as ml
from miniml import nn, optim
from miniml.core import files
from miniml.errors import CheckpointError
from miniml.train import Snapshot
from tests.conftest import DEEP


def training() -> dict[str, object]:
    net = nn.Sequential(nn.Dense(3, 2), nn.BatchNorm1d(2))
    adam = optim.Adam(net.trainable_params(), lr=0.1)
    return {"net": net, "optimizer": adam, "random": ml.random_state, "epoch": 3}


def values(obj: dict[str, object]) -> dict[str, object]:
    owners = [v for v in obj.values() if isinstance(v, (nn.Cell, optim.Optimizer))]
    found = {
        f"{type(o).__name__}.{n}": p.tolist()
        for o in owners
        for n, p in o.parameters_dict().items()
    }
    return {**found, "random": ml.random_state.tolist(), "epoch": obj["epoch"]}


def flipped(draw: np.random.Generator, content: bytearray, at: int) -> None:
    content[at] ^= 1 << draw.integers(8)


def changed(draw: np.random.Generator, content: bytearray, at: int) -> None:
    content[at] = draw.integers(256)


def swapped(draw: np.random.Generator, content: bytearray, at: int) -> None:
    other = draw.integers(max(at - 9, 0), min(at + 9, len(content)))
    content[at], content[other] = content[other], content[at]


def overwritten(draw: np.random.Generator, content: bytearray, at: int) -> None:
    end = min(at + int(draw.integers(2, 20)), len(content))
    content[at:end] = draw.integers(256, size=end - at).astype(np.uint8).tobytes()


@pytest.mark.larger
@pytest.mark.parametrize("damage", [flipped, changed, swapped, overwritten])
@pytest.mark.parametrize("options", [{}, {"only": "*"}, {"strict": False}, {"only": "n*"}])
def test_no_damaged_file_is_loaded_as_something_else(options, damage, tmp_path):
    """Refused, or all of what was saved: where the metadata or the blanks between are damaged.

    Entries of which the file has lost the name count: without `strict` nobody misses them."""
    path, obj, draw = tmp_path / "x", training(), np.random.default_rng(0)
    step = ml.train_step(obj["net"], nn.MSELoss(), obj["optimizer"])
    other = Snapshot(obj["net"], obj["optimizer"])
    before = values(obj) | {"epoch": 0}
    step(np.ones((4, 3), np.float32), np.ones((4, 2), np.float32))
    ml.save_checkpoint(obj, path)
    saved, content = values(obj), path.read_bytes()
    if options == {"only": "n*"}:
        options, obj = options | {"strict": False}, obj | {"epoch": 0}
        saved = {n: v if n.startswith("Seq") else before[n] for n, v in saved.items()}
    start, refused = 8 + struct.unpack_from("<Q", content)[0], 0
    places = [*range(start)] * 4 if DEEP else draw.integers(start, size=150).tolist()
    places += draw.integers(start, len(content), size=len(places) // 5).tolist()
    for at in places:
        damaged = bytearray(content)
        damage(draw, damaged, at)
        path.write_bytes(damaged)
        other.restore()
        obj["epoch"] = 0
        try:
            ml.load_checkpoint(path, obj, **options)
        except CheckpointError:
            refused += 1
            assert values(obj) == before
        else:
            assert values(obj) == saved, (at, bytes(damaged[max(at - 9, 0) : at + 9]))
    assert refused > 0.8 * len(places)


def test_files_of_before_are_loaded_and_their_data_are_checked(tmp_path):
    """Their hash covers the data alone, and has another name."""
    path, w = tmp_path / "x", ml.Parameter([1.0, 2.0])
    array = np.array([3.0, 4.0], np.float32)
    hashed = hashlib.blake2b(array.tobytes(), digest_size=16).hexdigest()
    safetensors.numpy.save_file({"w": array}, path, {"format": "np", "miniml.blake2b": hashed})
    ml.load_checkpoint(path, {"w": w})
    assert w.tolist() == [3.0, 4.0]
    path.write_bytes(path.read_bytes()[:-1] + b"\x41")
    with pytest.raises(CheckpointError, match="damaged"):
        ml.load_checkpoint(path, {"w": w})


def test_damaged_data_are_named_and_files_without_a_hash_are_loaded(tmp_path):
    path, w = tmp_path / "w.safetensors", ml.Parameter([1.0, 2.0])
    ml.save_checkpoint({"w": w}, path)
    content = path.read_bytes()
    path.write_bytes(content[:-1] + b"\x41")
    with pytest.raises(CheckpointError, match=r"w\.safetensors is damaged: its entries are not"):
        ml.load_checkpoint(path, {"w": w})
    assert w.tolist() == [1.0, 2.0]
    safetensors.numpy.save_file({"w": np.array([3, 4], np.float32)}, path)
    ml.load_checkpoint(path, {"w": w})
    assert w.tolist() == [3.0, 4.0]


def sparse(path, header: dict[str, object], nbytes: int) -> None:
    text = json.dumps(header).encode()
    with path.open("wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        file.truncate(8 + len(text) + nbytes)


def test_what_does_not_fit_is_refused_before_data_are_read(tmp_path):
    """A file of 256 GB, nearly all of it a hole."""
    path, nbytes = tmp_path / "x", 256 << 30
    shape = {"dtype": "F32", "shape": [nbytes // 4], "data_offsets": [0, nbytes]}
    sparse(path, {"w": shape}, nbytes)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(CheckpointError, match=r"w is float32\[68719476736\] in the file"):
        ml.load_checkpoint(path, {"w": ml.Tensor([1.0])})
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 50_000  # KB


def test_dtypes_that_miniml_lacks_are_named(tmp_path):
    path = tmp_path / "x"
    sparse(path, {"w": {"dtype": "F8_E4M3", "shape": [2], "data_offsets": [0, 2]}}, 2)
    with pytest.raises(CheckpointError, match=r"w is F8_E4M3\[2\] in the file, float32\[1\] here"):
        ml.load_checkpoint(path, {"w": ml.Tensor([1.0])})


def test_sentences_stay_short(tmp_path):
    path, long = tmp_path / "x", "n" * 10_000
    entry = {"dtype": "F32", "shape": [1] * 5000, "data_offsets": [0, 4]}
    sparse(path, {long: entry}, 4)
    for obj in ({"w": ml.Tensor([1.0])}, {long: ml.Tensor([1.0])}, {long: ml.Tensor([[1.0]])}):
        with pytest.raises(CheckpointError) as caught:
            ml.load_checkpoint(path, obj)
        assert len(str(caught.value)) < 1000
    path.write_bytes(struct.pack("<Q", 10_000) + b"{" + b"x" * 9_999)
    with pytest.raises(CheckpointError) as caught:
        ml.load_checkpoint(path, {})
    assert len(str(caught.value)) < 1000
    for wrong in ({long: [1]}, {1: ml.Tensor([1.0]), "1": 2}):
        with pytest.raises(CheckpointError) as caught:
            ml.save_checkpoint(wrong, path)
        assert len(str(caught.value)) < 1000


def test_a_link_stays_and_what_it_points_to_is_replaced(tmp_path):
    folder = tmp_path / "runs"
    folder.mkdir()
    link, target = tmp_path / "last", folder / "1.safetensors"
    link.symlink_to("runs/1.safetensors")
    for value in (1, 2):  # the first through a link that dangles
        ml.save_checkpoint({"epoch": value}, link)
        assert link.is_symlink()
        assert list(folder.iterdir()) == [target]
        into = {"epoch": 0}
        ml.load_checkpoint(link, into)
        assert into == {"epoch": value}


@pytest.mark.parametrize("mode", [0o600, 0o640, 0o666, 0o444])
def test_the_mode_of_a_file_is_kept(tmp_path, mode):
    path = tmp_path / "x"
    ml.save_checkpoint({"epoch": 1}, path)
    path.chmod(mode)
    ml.save_checkpoint({"epoch": 2}, path)
    assert stat.S_IMODE(path.stat().st_mode) == mode


def test_a_new_file_has_the_mode_that_the_umask_leaves(tmp_path):
    for umask in (0o022, 0o077, 0o002):
        before = os.umask(umask)
        try:
            ml.save_checkpoint({"epoch": 1}, tmp_path / oct(umask))
        finally:
            os.umask(before)
        assert stat.S_IMODE((tmp_path / oct(umask)).stat().st_mode) == 0o666 & ~umask


@pytest.mark.parametrize("name", ["x" * 255, "é" * 127, ".", "new\nline", "a b;$(c)", "-x", "~"])
def test_any_name_works_or_is_refused_in_a_sentence(tmp_path, name):
    path = tmp_path / name
    if name == ".":
        with pytest.raises(CheckpointError, match="a folder"):
            ml.save_checkpoint({"epoch": 1}, path)
        return
    for value in (1, 2):
        ml.save_checkpoint({"epoch": value}, path)
        into = {"epoch": 0}
        ml.load_checkpoint(path, into)
        assert into == {"epoch": value}
    assert os.listdir(tmp_path) == [name]


def test_places_that_cannot_be_are_one_sentence(tmp_path):
    (tmp_path / "file").write_text("")
    (tmp_path / "loop").symlink_to("loop")
    os.mkfifo(tmp_path / "pipe")
    places = {
        tmp_path: "a folder",
        "": "a folder",
        "/dev/null": "pipe, socket or device",
        tmp_path / "pipe": "pipe, socket or device",
        tmp_path / "file" / "x": "Not a directory",
        tmp_path / "loop": "symbolic links",
        tmp_path / ("x" * 256): "name too long",
        tmp_path / ("y/" * 3000): "name too long",
        "a\0b": "null",
    }
    for place, message in places.items():
        with pytest.raises(CheckpointError, match=f"(?s)cannot be saved: .*{message}"):
            ml.save_checkpoint({"epoch": 1}, place)
        with pytest.raises(CheckpointError, match=f"(?s)cannot be loaded: .*{message}"):
            ml.load_checkpoint(place, {"epoch": 1})
    with pytest.raises(CheckpointError, match="there is no folder"):
        ml.save_checkpoint({"epoch": 1}, tmp_path / "no" / "x")
    with pytest.raises(CheckpointError, match=r"cannot be saved: (Permission|No such)"):
        ml.save_checkpoint({"epoch": 1}, "/proc/x")
    assert sorted(os.listdir(tmp_path)) == ["file", "loop", "pipe"]


def test_swapped_arguments_are_explained():
    for call in (
        lambda: ml.save_checkpoint("x", {"epoch": 1}),
        lambda: ml.save_checkpoint("x", nn.Dense(1, 1)),
        lambda: ml.load_checkpoint(nn.Dense(1, 1), "x"),
        lambda: ml.save_checkpoint({"epoch": 1}, 3),
        lambda: ml.save_checkpoint({"epoch": 1}, b"x"),
    ):
        with pytest.raises(CheckpointError, match=r"the calls are save_checkpoint\(obj"):
            call()


@pytest.mark.parametrize("call", ["write", "fsync", "replace"])
def test_whatever_fails_the_old_file_stays_and_the_draft_goes(tmp_path, monkeypatch, call):
    path = tmp_path / "x"
    ml.save_checkpoint({"epoch": 1}, path)

    def fail(*args):
        raise OSError(errno.EDQUOT, os.strerror(errno.EDQUOT))

    class Full(list):
        __iter__ = fail

    if call == "write":
        with pytest.raises(OSError, match="quota"):
            files.write_file(path, Full())
    else:
        monkeypatch.setattr(*((os, call) if call == "fsync" else (type(path), call)), fail)
        with pytest.raises(CheckpointError, match=r"x cannot be saved: Disk quota exceeded"):
            ml.save_checkpoint({"epoch": 2}, path)
    monkeypatch.undo()
    assert list(tmp_path.iterdir()) == [path]
    into = {"epoch": 0}
    ml.load_checkpoint(path, into)
    assert into == {"epoch": 1}


HOLDS_A_DRAFT = """
    import os, sys, time
    from miniml.core import files
    def parts():
        yield b"half"
        print("writing", flush=True)
        sys.stdin.readline()
        yield b"whole"
    files.write_file(files.Path(sys.argv[1]), parts())
"""


def test_drafts_of_the_dead_go_and_those_of_the_living_stay(tmp_path):
    path = tmp_path / "x"
    words = [sys.executable, "-c", textwrap.dedent(HOLDS_A_DRAFT), str(path)]
    writers = [subprocess.Popen(words, stdin=-1, stdout=-1, text=True) for _ in range(2)]
    for writer in writers:
        assert writer.stdout.readline() == "writing\n"
    assert len(list(tmp_path.iterdir())) == 2
    writers[0].kill()
    writers[0].communicate()
    ml.save_checkpoint({"epoch": 1}, path)
    assert len(list(tmp_path.iterdir())) == 2  # the file, and the draft of the one that lives
    writers[1].communicate("\n")
    assert writers[1].returncode == 0
    assert path.read_bytes() == b"halfwhole"
    assert list(tmp_path.iterdir()) == [path]


def test_files_of_similar_names_are_not_taken_for_drafts(tmp_path):
    names = [".x.tmp", ".x.12345678", ".y.12345678.tmp", ".x.123456789.tmp", "x.12345678.tmp"]
    for name in names:
        (tmp_path / name).write_text("mine")
    (tmp_path / ".x.12345678.tmp").write_text("of a save that was killed")
    ml.save_checkpoint({"epoch": 1}, tmp_path / "x")
    assert sorted(os.listdir(tmp_path)) == sorted([*names, "x"])


def test_a_draft_made_anew_while_it_is_looked_at_stays(tmp_path, monkeypatch):
    """Another process removed the one that was opened, and its writer tried again."""
    draft, lock = tmp_path / ".x.12345678.tmp", files._lock
    draft.write_text("removed")

    def late(descriptor, *how):
        draft.unlink()
        draft.write_text("anew")
        return lock(descriptor, *how)

    monkeypatch.setattr(files, "_lock", late)
    files.remove_drafts(tmp_path / "x")
    assert draft.read_text() == "anew"


def test_threads_that_save_to_one_path_leave_one_whole_file(tmp_path):
    path, errors = tmp_path / "x", []

    def save(value):
        try:
            for _ in range(20):
                ml.save_checkpoint({"a": np.full(1000, value), "b": value}, path)
        except Exception as error:
            errors.append(error)

    threads = [threading.Thread(target=save, args=(float(i),)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors
    assert list(tmp_path.iterdir()) == [path]
    into = {"a": np.zeros(1000), "b": 0.0}
    ml.load_checkpoint(path, into)
    assert set(into["a"].tolist()) == {into["b"]}
