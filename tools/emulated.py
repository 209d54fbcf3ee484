"""miniml on a processor that is not here: `python -m tools.emulated PROCESSOR [--opcheck] [TESTS]`.

qemu-user runs Python and what it loads; nothing is installed. PROCESSOR is one of

- aarch64: a Python of Debian and the wheels of what miniml needs are fetched into --folder, and the
  cross compiler makes native code. Needs qemu-aarch64, aarch64-linux-gnu-gcc, apt-get and pip;
- x86-64: this Python on a Nehalem, which has no AVX; native code is compiled for SSE2 alone. Needs
  qemu-x86_64 and gcc. Processes that a test starts run on the real processor.

By default it imports miniml, compiles a function and a training step, and prints losses; --opcheck
checks each row of tests/opinfo, but for the simulator of CUDA; other words are pytest's.
"""

from __future__ import annotations

import argparse
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
WRAPPER = """\
#!/bin/sh
for word; do
  shift
  case $word in -march=native) word=-march={march} ;; esac
  set -- "$@" "$word"
done
exec {compiler} "$@"
"""
TRIAL = """
import time, platform, numpy as np
start = time.perf_counter()
import miniml as ml
from miniml import nn, ops, optim
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
"""
OPCHECK = """
import time
from miniml.testing import opcheck
from miniml.testing.opchecks import CHECKS
from tests.opinfo import ROWS
checks, failed = [name for name in CHECKS if name != "devices"], 0
for row in ROWS:
    start = time.perf_counter()
    report = opcheck(row.primitive, row, 60.0, checks=checks, draws="samples", raise_error=False)
    failed += not report.ok
    found = "passed" if report.ok else str(report)
    print(f"{row.primitive.__name__}: {found}, {time.perf_counter() - start:.1f} s", flush=True)
print(f"{len(ROWS) - failed} of {len(ROWS)} rows passed")
"""


def main() -> int:
    """Fetch what is lacking, and run."""
    options = argparse.ArgumentParser(description="miniml on an emulated processor.")
    options.add_argument("processor", choices=PROCESSORS)
    options.add_argument("--folder", type=Path, help="where what is fetched and compiled stays")
    options.add_argument("--opcheck", action="store_true", help="check all rows of tests/opinfo")
    given, tests = options.parse_known_args()
    folder = (given.folder or Path(tempfile.mkdtemp())).resolve()
    folder.mkdir(parents=True, exist_ok=True)
    python = PROCESSORS[given.processor](folder)
    ran = ["-c", OPCHECK if given.opcheck else TRIAL]
    if tests:
        ran = ["-m", "pytest", "-o", "addopts=--import-mode=importlib", "-p", "no:cacheprovider"]
        ran += ["-q", *tests]
    return subprocess.run([*python, *ran], cwd=ROOT).returncode


def x86(folder: Path) -> list[str]:
    """The command that runs Python where there is no AVX."""
    # OpenBLAS does not know this processor by its number, and would choose one that is too old.
    inside = {"PYTHONPATH": str(ROOT), "OPENBLAS_CORETYPE": "Nehalem"}
    emulator = ["qemu-x86_64", "-cpu", "Nehalem"]
    return [*emulator, *settings(folder, inside, "x86-64", "gcc"), sys.executable]


def aarch64(folder: Path) -> list[str]:
    """The command that runs Python for aarch64, once it is fetched."""
    root = folder / "root"
    if not root.is_dir():
        fetched_python(folder)
    if not (folder / "site").is_dir():
        fetched_wheels(folder)
    libraries = ":".join(f"{root}/{lib}/aarch64-linux-gnu" for lib in ("usr/lib", "lib"))
    inside = {"PYTHONPATH": f"{folder / 'site'}:{ROOT}", "LD_LIBRARY_PATH": libraries}
    made = settings(folder, inside, "armv8.2-a", "aarch64-linux-gnu-gcc")
    return ["qemu-aarch64", "-L", str(root), *made, str(root / "usr/bin/python3.11")]


PROCESSORS = {"aarch64": aarch64, "x86-64": x86}


def settings(folder: Path, inside: dict[str, str], march: str, compiler: str) -> list[str]:
    """The emulator's options for the environment, with a compiler and a cache of their own."""
    wrapper = folder / "cc"
    wrapper.write_text(WRAPPER.format(march=march, compiler=compiler))
    wrapper.chmod(0o755)
    whole = {**inside, "CC": str(wrapper), "MINIML_CACHE": str(folder / "cache")}
    return [word for name, value in whole.items() for word in ("-E", f"{name}={value}")]


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
    sys.exit(main())
