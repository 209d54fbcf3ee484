"""The table of docs/cuda.md, from the JSON that gpu_check wrote."""

from __future__ import annotations

from pathlib import Path
from typing import Any

BEGIN, END = "<!-- what tools/gpu_check.py found -->", "<!-- end -->"
NOTHING = "Not yet measured: no GPU was available."
PEERS = ("cupy", "torch", "jax")


def text(found: dict[str, Any]) -> str:
    """The machine, the tests and the times, as Markdown."""
    steps = found["steps"]
    lines = [about(found), "", *checks(steps), "", *times(steps)]
    return "\n".join(lines)


def about(found: dict[str, Any]) -> str:
    """The machine and the versions, in one line."""
    machine = found["steps"].get("machine", {}).get("result", {})
    versions = machine.get("versions", {})
    named = [f"{n} {versions[n]}" for n in ("python", "numpy", "torch", "jax") if n in versions]
    named += [f"{n} {v}" for n, v in versions.items() if n.startswith("cupy")]
    device = machine.get("gpu") or found["device"]
    commit = machine.get("commit", "")[:10]
    return f"{device}; {', '.join(named)}; commit {commit}, {found['started']}."


def checks(steps: dict[str, Any]) -> list[str]:
    """A line for each step that is no measurement of time."""
    lines = []
    for name, entry in steps.items():
        if name.startswith("speed"):
            continue
        result, said = entry.get("result", {}), entry["status"]
        if name == "tests" and "passed" in result:
            said += f", {result['passed']} passed, {result['failed']} failed"
        if name == "ulps" and result.get("worst"):
            worst, most = next(iter(result["worst"].items()))
            said += f", {result['differing']} of {result['compared']} differ from "
            said += f"{result['against']}, most of all {worst}: {most:g} ulp"
        why = f" ({entry['why']})" if entry.get("why") else ""
        lines.append(f"- {name}: {said}{why}")
    return lines


def times(steps: dict[str, Any]) -> list[str]:
    """A row for each case: miniml's time, its part of the bandwidth of a copy, its time as a
    multiple of each peer's."""
    own = cases_of(steps, "miniml")
    if not own:
        return ["No times."]
    copy = own.get("copy", {}).get("GB/s")
    peers = [p for p in PEERS if cases_of(steps, p)]
    heads = ["case", "µs", "of a copy", *(f"x {p}" for p in peers)]
    lines = [
        f"A copy moves {copy} GB/s. x: miniml's time as a multiple of the peer's, so below 1 is "
        "quicker.", "", row(heads), row(["---"] * len(heads)),
    ]  # fmt: skip
    for name, case in own.items():
        if "us" not in case:
            why = case.get("raised") or case.get("absent") or ""
            lines.append(row([name, why.replace("|", "/"), "", *[""] * len(peers)]))
            continue
        share = f"{case['GB/s'] / copy:.0%}" if copy and "GB/s" in case else ""
        share = share or (f"{case['TFLOP/s']:g} TFLOP/s" if "TFLOP/s" in case else "")
        ratios = [ratio(case, cases_of(steps, p), name) for p in peers]
        lines.append(row([name, f"{case['us']:.1f}", share, *ratios]))
    return lines


def row(cells: list[str]) -> str:
    """A row of a table."""
    return f"| {' | '.join(cells)} |"


def cases_of(steps: dict[str, Any], library: str) -> dict[str, Any]:
    """Measurements of a library's step."""
    cases: dict[str, Any] = steps.get(f"speed {library}", {}).get("result", {}).get("cases", {})
    return cases


def ratio(case: dict[str, Any], theirs: dict[str, Any], name: str) -> str:
    """miniml's time by the peer's; a step with and one without a graph have the same peer."""
    peer = theirs.get(name) or theirs.get(name.removesuffix(" without").partition(" with a")[0])
    return f"{case['us'] / peer['us']:.2f}" if peer and "us" in peer else ""


def put(document: Path, found: dict[str, Any] | None) -> None:
    """Replace what stands between the marks of the document; ValueError without them."""
    whole = document.read_text("utf-8")
    before, mark, rest = whole.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not mark or not end:
        raise ValueError(f"{document} has no {BEGIN!r} ... {END!r}")
    body = NOTHING if found is None else text(found)
    document.write_text(f"{before}{BEGIN}\n{body}\n{END}{after}", encoding="utf-8")
