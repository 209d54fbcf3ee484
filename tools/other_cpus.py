"""Tests of numbers, as other processors compute them: `python -m tools.other_cpus -m pytest`.

NumPy chooses its loops, and OpenBLAS its products, by what the processor can do, and they round
differently. Both let an older processor be asked for, though no newer one.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass

# Where it can matter: kernels, gradients, and whether the checkers call right numbers wrong.
TESTS = (
    *(f"tests/unit/{folder}" for folder in ("ops", "nn", "optim")),
    *(
        f"tests/unit/backends/test_{name}.py"  # the others compile, for the processor that there is
        for name in (
            "cc_elementary",
            "cc_scalars",
            "cpu_philox",
            "cpu_pool",
            "cpu_products",
            "cpu_window",
        )
    ),
    *(
        f"tests/unit/core/test_{name}.py"
        for name in ("gradients", "transforms", "stateful_programs")
    ),
    *(
        f"tests/unit/testing/test_{name}.py"
        for name in ("derivative", "gradcheck", "gradcheck_honesty")
    ),
    "tests/unit/test_ops.py",
    "tests/faults/test_natural.py",
    "tests/faults/test_rights_opcheck.py",
)

NOTHING_SELECTED = 5  # how pytest ends where ARGS choose other tests

# What NumPy still uses of what it can do without, and what OpenBLAS computes for.
PROBE = """
import json, threadpoolctl, numpy._core._multiarray_umath as umath
blas = [i for i in threadpoolctl.threadpool_info() if i["internal_api"] == "openblas"]
used = [f for f in umath.__cpu_dispatch__ if umath.__cpu_features__[f]]
print(json.dumps([used, sorted({i["architecture"].lower() for i in blas})]))
"""


@dataclass(frozen=True)
class Processor:
    """An older processor: which of NumPy's features it lacks, and OpenBLAS's name for it."""

    name: str
    lacks: Callable[[str], bool]
    core: str


PROCESSORS = (
    Processor("without AVX-512", lambda f: f.startswith("AVX512") or f == "X86_V4", "Haswell"),
    Processor("with NumPy's baseline alone", lambda f: True, "Nehalem"),
)


def probe(env: dict[str, str]) -> tuple[list[str], list[str]]:
    """NumPy's features in use and OpenBLAS's cores, in that environment."""
    shown = subprocess.run(
        [sys.executable, "-c", PROBE], env=env, capture_output=True, text=True, check=True
    )
    used, cores = json.loads(shown.stdout)
    return used, cores


def imitate(processor: Processor) -> tuple[dict[str, str], list[str]]:
    """Additions to the environment, and a sentence for each thing that cannot be had here."""
    used, _ = probe(dict(os.environ))
    off = [f for f in used if processor.lacks(f)]
    added = {"NPY_DISABLE_CPU_FEATURES": " ".join(off)} if off else {}
    left_out = [] if off else ["NumPy uses no more than that here"]
    _, cores = probe({**os.environ, "OPENBLAS_CORETYPE": processor.core})
    if cores == [processor.core.lower()]:
        added["OPENBLAS_CORETYPE"] = processor.core
    else:
        left_out.append(f"OpenBLAS cannot compute as for {processor.core} here")
    return added, left_out


def main(command: list[str]) -> int:
    """Run the command, with the tests at its end, as each processor; the number that failed."""
    failed = 0
    for processor in PROCESSORS:
        added, left_out = imitate(processor)
        for sentence in left_out:
            print(f"==> A processor {processor.name}, left out: {sentence}", flush=True)
        if added:
            shown = " ".join(f"{key}={value!r}" for key, value in added.items())
            print(f"==> A processor {processor.name}: {shown}", flush=True)
            ran = subprocess.run([sys.executable, *command, *TESTS], env={**os.environ, **added})
            failed += ran.returncode not in (0, NOTHING_SELECTED)
    return failed


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
