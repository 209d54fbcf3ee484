"""All that is to be known on a GPU, with one command, in ten minutes: `python tools/gpu_check.py`.

Each step runs in a process of its own with a time of its own, and what it found is in the JSON as
soon as it is over; a step that fails does not keep the next from running. It needs no install.
"""

from __future__ import annotations

import argparse
import datetime as dt
import json
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from benchmarks.gpu import table  # noqa: E402
from tools.gpu.runner import Step, module, run, save  # noqa: E402

BUDGET = 590.0
DOCUMENT = ROOT / "docs" / "cuda.md"
RESULTS = {
    "cuda": ROOT / "docs" / "gpu_check.json",
    "cuda-sim": ROOT / "benchmarks" / "results" / "gpu_check_sim.json",
}


def steps(device: str) -> list[Step]:
    """Steps, in order: first what says most."""
    on = ("--device", device)
    speed = [
        Step(f"speed {name}", module("benchmarks.gpu.speed", *on, "--library", name), seconds)
        for name, seconds in (("miniml", 110), ("torch", 70), ("cupy", 45), ("jax", 110))
    ]
    return [
        Step("machine", module("tools.gpu.machine", *on), 60),
        Step("tests", module("tools.gpu.device_tests", *on), 180),
        *speed[:2],
        Step("ulps", module("tools.gpu.ulps", *on), 100),
        Step("sanitizer", module("tools.gpu.sanitizer", *on), 100),
        *speed[2:],
    ]


def absent(device: str) -> str:
    """Why the device cannot be used, in a sentence; "" when it can."""
    try:
        from miniml.backends.selection import get_device  # noqa: PLC0415 - a package may be missing
        from miniml.core.errors import DeviceError  # noqa: PLC0415
    except ImportError as error:
        return f"miniml does not start here: {error}; pip install {error.name or 'what is missing'}"
    try:
        get_device(device)
    except DeviceError as error:
        return str(error)
    return ""


def main(argv: list[str] | None = None) -> int:
    """0: all went well; 1: a step failed or ran out of time; 2: there is no such device."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cuda", choices=tuple(RESULTS))
    parser.add_argument("--out", type=Path, help="the JSON; by default docs/gpu_check.json")
    parser.add_argument("--steps", help="names of steps, with commas between; all by default")
    parser.add_argument("--seconds", type=float, default=BUDGET, help="for all steps together")
    parser.add_argument(
        "--table", type=Path, help="only write the table into docs/cuda.md, from such a JSON"
    )
    given = parser.parse_args(argv)
    if given.table is not None:
        table.put(DOCUMENT, json.loads(given.table.read_text("utf-8")))
        return 0
    chosen = [s for s in steps(given.device) if not given.steps or s.name in given.steps.split(",")]
    why = absent(given.device)
    if why:
        print(why.partition("\n")[0], file=sys.stderr)
        return 2
    out = (given.out or RESULTS[given.device]).resolve()
    now = dt.datetime.now(dt.UTC).strftime("%Y-%m-%d %H:%M UTC")
    found = run(chosen, out, given.seconds, {"device": given.device, "started": now})
    split(found, out)
    print(f"written: {out}")
    return int(any(s["status"] in ("failed", "timeout") for s in found["steps"].values()))


def split(found: dict[str, Any], out: Path) -> None:
    """Move the differences in ulp of every kernel to a file of their own, where what chooses
    tolerances looks at them."""
    ulps = found["steps"].get("ulps", {}).get("result")
    if ulps:
        save(out.with_name(f"{out.stem}_ulp.json"), ulps)
        ulps.pop("kernels", None)
        save(out, found)


if __name__ == "__main__":
    sys.exit(main())
