"""A network of images as a page: WebAssembly, a canvas to draw on, scores, and learning.

The page is one file that asks for nothing: the module is in it. Both the network and the training
step are those of `export_c`; a little C between them and the page holds their memory, and copies
what was learnt to the network.
"""

from __future__ import annotations

import base64
import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from math import isqrt, prod
from os import PathLike
from pathlib import Path
from string import Template
from typing import Any, NamedTuple

import numpy as np

from ..core.errors import ExportError
from ..core.files import write_file
from ..core.tensor import Array
from ..nn import Cell
from ..train.step import TrainStep
from .exporter import Exported, exported

FLAGS = "-std=c11 -O2 -msimd128 -ffp-contract=off -fno-math-errno -fno-trapping-math".split()
_PAGE = Path(__file__).with_name("page.html")


class Page(NamedTuple):
    """The files that were written, the network in C, and what learns it, if anything does."""

    page: Path
    module: Path
    net: Exported
    learner: Exported | None


def export_web(
    net: Cell,
    folder: str | PathLike[str],
    image: Array,
    step: Callable[..., Any] | None = None,
    levels: tuple[float, float] = (0.0, 1.0),
) -> Page:
    """Write `index.html` and `net.wasm` to a folder, which is made if it is not there.

    net: gives scores (1, classes) for an image of the type of `image`: float32 of shape
    (1, 1, height, width), (1, height, width) or (1, pixels of a square). It is left in the
    mode for inference. levels: what white and ink are in such an image. step: a training step of
    it, for one image and its class as int64[1]; the page then learns what the user corrects. The
    module needs a compiler for WebAssembly: clang with wasm-ld and wasi-libc, or the one in the
    wheel `ziglang`. ExportError where there is none, for a net that gives no scores of classes, and
    as from `export_c`.
    """
    height, width = _extents(image)
    if step is not None and not isinstance(step, TrainStep):
        raise ExportError(f"export_web got the step {step!r:.200}; give one that train_step made")
    target = Path(folder)
    with tempfile.TemporaryDirectory() as made:
        place = Path(made)
        learner = None
        if step is not None:
            net.set_train(True)
            given = image, np.zeros(1, np.int64)
            learner = exported(step, place / "learn.c", given, "learn")
        net.set_train(False)
        kept = "arrays" if step is None else "file"
        written = exported(net, place / "net.c", (image,), "net", weights=kept)
        classes = _classes(written, learner)
        (place / "glue.c").write_text(_glue(written, learner, image.size, classes))
        module = _compiled(place, ["net.c", "glue.c"] + ["learn.c"] * (learner is not None))
    facts = {
        "height": height,
        "width": width,
        "classes": classes,
        "learns": learner is not None,
        "levels": levels,
    }
    page = Template(_PAGE.read_text("utf-8")).substitute(
        title=f"A network for images of {height} x {width}",
        facts=json.dumps(facts),
        module=base64.b64encode(module).decode(),
    )
    return _written(target, page.encode(), module, written, learner)


def _written(
    folder: Path, page: bytes, module: bytes, net: Exported, learner: Exported | None
) -> Page:
    made = Page(folder / "index.html", folder / "net.wasm", net, learner)
    try:
        folder.mkdir(exist_ok=True)
        write_file(made.module, [module])
        write_file(made.page, [page])
    except OSError as error:
        raise ExportError(f"export_web cannot write {folder}: {error.strerror}") from None
    return made


def _extents(image: Array) -> tuple[int, int]:
    """The height and width of an image in one of the shapes that a page draws."""
    shape = np.shape(image)
    if np.asarray(image).dtype == np.float32 and shape[:1] == (1,):
        if len(shape) == 2 and isqrt(shape[1]) ** 2 == shape[1] > 1:
            return isqrt(shape[1]), isqrt(shape[1])
        if (len(shape) == 4 and shape[1] == 1) or len(shape) == 3:
            return shape[-2], shape[-1]
    raise ExportError(
        f"export_web got an image of {np.asarray(image).dtype.name}{list(shape)}; a page draws "
        "float32 of shape (1, 1, height, width), (1, height, width) or (1, pixels of a square)"
    )


def _classes(net: Exported, learner: Exported | None) -> int:
    """The number of scores that a network gives."""
    outs = [v.abstract for v in net.graph.outputs]
    if len(outs) != 1 or outs[0].dtype != np.float32 or prod(outs[0].shape) != outs[0].shape[-1]:
        raise ExportError(
            f"export_web got a network that gives {', '.join(map(str, outs))}; a page shows "
            "float32[1, classes]"
        )
    if learner is not None and len(learner.graph.outputs) != 1:
        raise ExportError(
            "export_web got a step that returns more than its loss; return that alone"
        )
    return outs[0].shape[-1]


# --- The C between page and network ---------------------------------------------------------------


def _glue(net: Exported, learner: Exported | None, pixels: int, classes: int) -> str:
    """The functions that the page calls. They hold all memory: the module asks for none."""
    parts = [
        '#include "net.h"\n#include <string.h>',
        '#define SHOWN(name) __attribute__((export_name(name), visibility("default")))',
        "static _Alignas(64) char arena[NET_ARENA_BYTES];",
        f"static float pixels[{pixels}], scores[{classes}];",
        'SHOWN("image") float *image(void) { return pixels; }',
        'SHOWN("scores") float *made(void) { return scores; }',
    ]
    if learner is None:
        parts += [
            'SHOWN("begin") void begin(void) {}',
            'SHOWN("answer") void answer(void) { net_run(arena, pixels, scores); }',
        ]
        return "\n".join([*parts, ""])
    to = {id(parameter): name for parameter, name in learner.members}
    copies = [
        f"  memcpy(shown.{name}, learnt.{to[id(parameter)]}, sizeof shown.{name});"
        for parameter, name in net.members
    ]
    parts += [
        '#include "learn.h"',
        "static _Alignas(64) char room[LEARN_ARENA_BYTES];",
        "static net_state shown;\nstatic learn_state learnt;",
        "static void copy(void) {",
        *copies,
        "}",
        'SHOWN("begin") void begin(void) { learn_init(&learnt); copy(); }',
        'SHOWN("answer") void answer(void) { net_run(&shown, arena, pixels, scores); }',
        'SHOWN("correct") float correct(int label) {',
        "  const int64_t right[1] = {label};",
        "  const float loss = learn_step(&learnt, room, pixels, right);",
        "  copy();\n  return loss;\n}",
    ]
    return "\n".join([*parts, ""])


def _compiled(folder: Path, files: Sequence[str]) -> bytes:
    """The module of C files, by the first compiler that can make it."""
    found = [*_compilers()]
    reasons = []
    for compiler in found:
        command = [*compiler, *FLAGS, "-mexec-model=reactor", *files, "-o", "net.wasm", "-lm"]
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, stdin=-3)
        if done.returncode == 0:
            return (folder / "net.wasm").read_bytes()
        said = [line for line in done.stderr.splitlines() if "error" in line] or ["it failed"]
        reasons.append(f"{Path(compiler[0]).name}: {said[0]:.200}")
    raise ExportError(
        "export_web needs a compiler for WebAssembly: pip install 'miniml[compiler]', or clang "
        f"with wasm-ld and wasi-libc ({'; '.join(reasons) or 'neither is here'})"
    )


def _compilers() -> list[list[str]]:
    clang, made = shutil.which("clang"), []
    if clang is not None and shutil.which("wasm-ld") is not None:
        stack = ["-Wl,-z,stack-size=1048576", "-Wl,-s"]
        made.append([clang, "--target=wasm32-wasi", *stack])
    if find_spec("ziglang") is not None:
        made.append([sys.executable, "-m", "ziglang", "cc", "-target", "wasm32-wasi", "-s"])
    return made
