"""miniml on an emulated aarch64: `python -m tools.aarch64 [FOLDER] [PYTEST ARGUMENTS]`.

A Python of Debian and the wheels of what miniml needs are fetched for aarch64 into FOLDER, nothing
is installed, and qemu-user runs them. What native code needs is compiled by the cross compiler. It
needs qemu-user, gcc-aarch64-linux-gnu, apt-get and pip. Without arguments for pytest it imports
miniml, compiles a function and a training step, and runs opcheck on one primitive; with them, these
tests.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path
from zipfile import ZipFile

ROOT = Path(__file__).resolve().parent.parent
# Python, and the libraries that it and NumPy's wheels load.
DEBIAN = """python3.11-minimal libpython3.11-minimal libpython3.11-stdlib libc6 libexpat1 zlib1g
    libssl3 libffi8 libbz2-1.0 liblzma5 libsqlite3-0 libgcc-s1 libstdc++6 libuuid1 libcrypt1
    libtinfo6 libncursesw6 libreadline8""".split()
WHEELS = """numpy scipy ml_dtypes optree safetensors threadpoolctl typing_extensions pytest
    pytest-timeout hypothesis""".split()
PLATFORMS = ("manylinux_2_28_aarch64", "manylinux_2_27_aarch64", "manylinux_2_17_aarch64")
# -march=native is for the processor that compiles: the wrapper gives the one that runs.
COMPILER = """\
#!/bin/sh
for word; do
  shift
  case $word in -march=native) word=-march=armv8.2-a ;; esac
  set -- "$@" "$word"
done
exec aarch64-linux-gnu-gcc "$@"
"""
TRIAL = """
import time, platform, numpy as np
start = time.perf_counter()
import miniml as ml
from miniml import nn, ops, optim
from miniml.testing import opcheck
print(f"{platform.machine()}: import {time.perf_counter() - start:.1f} s")
x = np.linspace(-2, 2, 4000, dtype=np.float32)
fn = lambda x: ops.sum(ops.tanh(x * 2 + 1))
with ml.context(providers=("cc",)):
    made = float(ml.jit(fn)(x))
print("jit", made, "eager", float(fn(ml.Tensor(x))))
ml.manual_seed(0)
net = nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.Flatten(), nn.Dense(144, 10))
step = ml.train_step(net, nn.CrossEntropyLoss(), optim.Adam(net.trainable_params(), 1e-2))
images = (np.arange(512) * 37 % 101 / 50 - 1).astype(np.float32).reshape(8, 1, 8, 8)
print("losses", *(f"{float(step(images, np.arange(8))):.6f}" for _ in range(5)))
opcheck(ops.Tanh)
print("opcheck(Tanh) passed")
"""


def main(arguments: list[str]) -> int:
    """Fetch what FOLDER lacks, and run."""
    named = arguments[:1] if arguments and not arguments[0].startswith("-") else []
    folder = Path(named[0] if named else tempfile.mkdtemp()).resolve()
    tests = arguments[len(named) :]
    folder.mkdir(parents=True, exist_ok=True)
    if not (folder / "root").is_dir():
        fetched_python(folder)
    if not (folder / "site").is_dir():
        fetched_wheels(folder)
    compiler = folder / "aarch64-cc"
    compiler.write_text(COMPILER)
    compiler.chmod(0o755)
    root = folder / "root"
    command = ["qemu-aarch64", "-L", str(root)]
    libraries = ":".join(f"{root}/{lib}/aarch64-linux-gnu" for lib in ("usr/lib", "lib"))
    inside = {
        "PYTHONPATH": f"{folder / 'site'}:{ROOT}",
        "LD_LIBRARY_PATH": libraries,
        "CC": str(compiler),
        "MINIML_CACHE": str(folder / "cache"),
    }
    for name, value in inside.items():
        command += ["-E", f"{name}={value}"]
    python = [*command, str(root / "usr/bin/python3.11")]
    options = ["-o", "addopts=--import-mode=importlib", "-p", "no:cacheprovider", "-q"]
    ran = ["-m", "pytest", *options, *tests] if tests else ["-c", TRIAL]
    return subprocess.run([*python, *ran], cwd=ROOT).returncode


def fetched_python(folder: Path) -> None:
    """Debian's Python for aarch64, with lists of packages of its own, apart from the system's."""
    state = folder / "apt"
    for name in ("lists/partial", "cache/archives/partial", "debs"):
        (state / name).mkdir(parents=True, exist_ok=True)
    (state / "status").touch()
    options = [
        f"-oDir::State::lists={state / 'lists'}", f"-oDir::State::status={state / 'status'}",
        f"-oDir::Cache={state / 'cache'}", "-oAPT::Architecture=arm64",
        "-oAPT::Architectures=arm64",
    ]  # fmt: skip
    subprocess.run(["apt-get", *options, "-q", "update"], check=True)
    subprocess.run(["apt-get", *options, "-q", "download", *DEBIAN], cwd=state / "debs", check=True)
    for package in sorted((state / "debs").glob("*.deb")):
        subprocess.run(["dpkg-deb", "-x", str(package), str(folder / "root")], check=True)


def fetched_wheels(folder: Path) -> None:
    """The wheels for aarch64, unpacked side by side."""
    wheels = folder / "wheels"
    platforms = [word for name in PLATFORMS for word in ("--platform", name)]
    subprocess.run(
        [sys.executable, "-m", "pip", "download", "-q", "--only-binary=:all:", *platforms,
         "--python-version", "3.11", "-d", str(wheels), *WHEELS],
        check=True,
    )  # fmt: skip
    for wheel in sorted(wheels.glob("*.whl")):
        with ZipFile(wheel) as archive:
            archive.extractall(folder / "site")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
