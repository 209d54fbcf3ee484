"""Steps one after another, each in a process of its own with a time of its own; what is known is
on disk after each."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
GRACE = 10.0  # seconds in which an interrupted step may write what it has


@dataclass(frozen=True)
class Step:
    """command: run from the project's root, with `--result FILE` at its end. seconds: after which
    it is interrupted."""

    name: str
    command: tuple[str, ...]
    seconds: float


def module(name: str, *args: str) -> tuple[str, ...]:
    """The command of a step that is a module of this checkout, such as "tools.gpu.ulps"."""
    return (sys.executable, "-m", name, *args)


def save(path: Path, value: Any) -> None:
    """Write JSON so that whoever reads the file finds the old or the new, never a half."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(path.name + ".part")
    part.write_text(json.dumps(value, indent=1, sort_keys=False) + "\n", encoding="utf-8")
    os.replace(part, path)


def run(
    steps: Sequence[Step],
    out: Path,
    budget: float,
    header: dict[str, Any] | None = None,
    say: Callable[[str], None] = print,
) -> dict[str, Any]:
    """Run the steps, at most `budget` seconds in all, and keep `out` up to date.

    A step that fails, or is out of time, is noted and the next one begins.
    """
    found: dict[str, Any] = {**(header or {}), "steps": {}}
    begin = time.monotonic()
    for step in steps:
        left = budget - (time.monotonic() - begin)
        found["steps"][step.name] = {"status": "running"}
        save(out, found)
        if left < 1:
            entry: dict[str, Any] = {"status": "left out", "why": "the time was used up"}
        else:
            entry = run_step(step, min(step.seconds, left))
        found["steps"][step.name] = entry
        found["seconds"] = round(time.monotonic() - begin, 1)
        save(out, found)
        why = f": {entry['why']}" if entry.get("why") else ""
        say(f"{step.name:<16} {entry['status']:<9} {entry.get('seconds', 0):6.1f} s{why}")
    return found


def run_step(step: Step, seconds: float) -> dict[str, Any]:
    """One step: status, seconds, exit code, the end of what it printed, and its result, which is
    partial unless the status is "ok"."""
    with tempfile.TemporaryDirectory() as folder:
        result, log = Path(folder) / "result.json", Path(folder) / "log"
        begin = time.monotonic()
        with log.open("wb") as printed:
            status, code = finished(
                subprocess.Popen(
                    [*step.command, "--result", str(result)], cwd=ROOT, stdout=printed,
                    stderr=subprocess.STDOUT, start_new_session=True, env=environment(),
                ),
                seconds,
            )  # fmt: skip
        tail = log.read_text("utf-8", "replace")[-3000:]
        entry: dict[str, Any] = {
            "status": status, "seconds": round(time.monotonic() - begin, 1), "exit": code
        }  # fmt: skip
        entry["result"] = read(result)
    if status == "timeout":
        entry["why"] = f"more than {seconds:.0f} s"
    elif status == "failed":
        lines = tail.strip().splitlines()
        entry["why"] = lines[-1][:300] if lines else f"exit code {code}"
    elif "absent" in entry["result"]:
        entry["status"], entry["why"] = "skipped", entry["result"].pop("absent")
    if entry["status"] in ("timeout", "failed"):
        entry["printed"] = tail
    return entry


def finished(process: subprocess.Popen[bytes], seconds: float) -> tuple[str, int]:
    """Wait for a process, interrupt it when its time is over, and end it if it stays."""
    try:
        code = process.wait(seconds)
        return ("ok" if code == 0 else "failed"), code
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGINT)
        try:
            process.wait(GRACE)
        except subprocess.TimeoutExpired:
            pass
        finally:  # it leads a group of its own: its children, too
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
        return "timeout", process.wait()
    except BaseException:
        os.killpg(process.pid, signal.SIGKILL)
        raise


def environment() -> dict[str, str]:
    """The environment of steps: this checkout, and peers that leave memory to others."""
    path = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
    return {
        **os.environ, "PYTHONPATH": path, "PYTHONUNBUFFERED": "1",
        "XLA_PYTHON_CLIENT_PREALLOCATE": "false",
    }  # fmt: skip


def read(path: Path) -> dict[str, Any]:
    """Results that a step has written; nothing where it has not come so far."""
    try:
        found: dict[str, Any] = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError):
        return {}
    return found
