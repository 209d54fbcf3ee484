"""ONNX models against onnxruntime, on one thread, in turns: `OMP_NUM_THREADS=1 python -m
benchmarks.onnx_models model.onnx x=1,3,64,64 [other.onnx ...]`. The aim: 1.3 of its time; where a
model takes more, the operations that took most are listed."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime as ort

import miniml as ml
from benchmarks.measure import Ratio, compare, machine

AIM = 1.3


def measured(path: str, shapes: dict[str, tuple[int, ...]], seconds: float = 8.0) -> Ratio:
    """CPU seconds of both for one call at these shapes, after their results were compared."""
    graph, arrays, session, named = _both(path, shapes)
    out = graph(*arrays)
    here = out if isinstance(out, tuple) else (out,)
    for a, b in zip(here, session.run(None, named), strict=True):
        np.testing.assert_allclose(a.asnumpy(), b, 1e-3, 1e-3)
    return compare(
        lambda: graph(*arrays), lambda: session.run(None, named), seconds, 40, time.process_time
    )


def _both(path: str, shapes: dict[str, tuple[int, ...]]) -> tuple[Any, list[Any], Any, Any]:
    options = ort.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    ort.set_default_logger_severity(3)
    session = ort.InferenceSession(path, options)
    draw = np.random.default_rng(0)
    types = {"tensor(float)": np.float32, "tensor(float16)": np.float16}
    named = {}
    for declared in session.get_inputs():
        shape = shapes.get(declared.name, tuple(declared.shape))
        dtype = types.get(declared.type)
        named[declared.name] = (
            draw.integers(0, 2, shape) if dtype is None else draw.normal(size=shape).astype(dtype)
        )
        if declared.type == "tensor(int32)":
            named[declared.name] = named[declared.name].astype(np.int32)
    given = {name: a.shape for name, a in named.items()}
    graph = ml.onnx.load(path, shapes=given, train_constants=False)
    return graph, [named[n] for n in graph.input_names], session, named


def slowest(path: str, shapes: dict[str, tuple[int, ...]], count: int = 8) -> str:
    """The operations of a call that took most."""
    graph, arrays, _, _ = _both(path, shapes)
    graph(*arrays)
    with ml.profile() as found:
        for _ in range(5):
            graph(*arrays)
    return "\n".join(str(found).splitlines()[: count + 2])


def _models(words: Sequence[str]) -> Iterator[tuple[str, dict[str, tuple[int, ...]]]]:
    """Paths, each with the shapes that follow it."""
    models: list[tuple[str, dict[str, tuple[int, ...]]]] = []
    for word in words:
        name, is_shape, extents = word.partition("=")
        if is_shape:
            models[-1][1][name] = tuple(map(int, filter(None, extents.split(","))))
        else:
            models.append((word, {}))
    yield from models


if __name__ == "__main__":
    print(machine())
    for path, shapes in _models(sys.argv[1:]):
        ratio = measured(path, shapes)
        print(f"{Path(path).name}: {ratio}; aim {AIM}{'' if ratio.ratio <= AIM else ', MISSED'}")
        if ratio.ratio > AIM:
            print(slowest(path, shapes))
