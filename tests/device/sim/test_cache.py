"""The folder of compiled files: what goes when it grows."""

import os
import time

from miniml.backends.cuda.sim import toolchain


def test_what_was_read_longest_ago_goes_first(tmp_path):
    """What somebody may be about to load stays."""
    now = time.time()
    for i, age in enumerate((30, 7200, 9000, 8000)):
        path = tmp_path / f"{i}.so"
        path.write_bytes(bytes(100))
        os.utime(path, (now - age, now))
    toolchain.trim(tmp_path, 400)
    assert len(list(tmp_path.iterdir())) == 4
    toolchain.trim(tmp_path, 250)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["0.so", "1.so"]
    assert toolchain.is_there(tmp_path / "1.so")
    toolchain.trim(tmp_path, 50)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["0.so", "1.so"]


def test_what_was_never_compiled_is_not_there(tmp_path):
    assert not toolchain.is_there(tmp_path / "unit.so")
