"""ONNX models against onnxruntime, on one thread, in turns: `OMP_NUM_THREADS=1 python -m
benchmarks.onnx_models model.onnx x=1,3,64,64 [other.onnx ...]`. The aim: 1.3 of its time; where a
model takes more, the operations that took most are listed."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
import onnxruntime as ort

import miniml as ml
from benchmarks.measure import Ratio, compare, machine
from miniml.core.tensor import Array

AIM = 1.3


class Call(NamedTuple):
    """A file, the shapes of its inputs, the values of those on which its shapes depend, and how far
    results may be apart, of the greatest number among them."""

    path: Path
    shapes: Mapping[str, tuple[int, ...]]
    values: Mapping[str, Array] = MappingProxyType({})
    tolerance: float = 1e-3


def measured(call: Call, seconds: float = 8.0) -> Ratio:
    """CPU seconds of both for one call, after their results were compared."""
    graph, arrays, session, named = both(call)
    out = graph(*arrays)
    here = out if isinstance(out, tuple) else (out,)
    for a, b in zip(here, session.run(None, named), strict=True):
        size = float(np.abs(b).max(initial=1.0))
        np.testing.assert_allclose(a.asnumpy(), b, call.tolerance, call.tolerance * size)
    begun = time.process_time()
    graph(*arrays)
    rounds = min(
        40, max(4, int(seconds / (time.process_time() - begun + 1e-6)))
    )  # of slow ones few
    return compare(
        lambda: graph(*arrays), lambda: session.run(None, named), seconds, rounds, time.process_time
    )


def both(call: Call) -> tuple[Any, list[Any], Any, Any]:
    """The graph here with its inputs, and a session of onnxruntime with its own."""
    options = ort.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    ort.set_default_logger_severity(3)
    session = ort.InferenceSession(str(call.path), options)
    draw = np.random.default_rng(0)
    floats = {"tensor(float)": np.float32, "tensor(float16)": np.float16}
    others = {"tensor(int32)": np.int32, "tensor(bool)": np.bool_}
    named: dict[str, Any] = {}
    for declared in session.get_inputs():
        name, shape = declared.name, call.shapes.get(declared.name, tuple(declared.shape))
        if name in call.values:
            named[name] = call.values[name]
        elif declared.type in floats:
            named[name] = draw.normal(size=shape).astype(floats[declared.type])
        else:
            dtype = others.get(declared.type, np.int64)
            named[name] = draw.integers(0, 2, shape).astype(dtype)
    given = {name: a.shape for name, a in named.items()}
    graph = ml.onnx.load(call.path, shapes=given, values=dict(call.values), train_constants=False)
    return graph, [named[n] for n in graph.input_names], session, named


def slowest(call: Call, count: int = 8) -> str:
    """The operations of a call that took most."""
    graph, arrays, _, _ = both(call)
    for _ in range(3):
        graph(*arrays)
    with ml.profile() as found:
        for _ in range(5):
            graph(*arrays)
    return "\n".join(str(found).splitlines()[: count + 2])


def _calls(words: Sequence[str]) -> Iterator[Call]:
    """Paths, each with the shapes that follow it."""
    models: list[tuple[str, dict[str, tuple[int, ...]]]] = []
    for word in words:
        name, is_shape, extents = word.partition("=")
        if is_shape:
            models[-1][1][name] = tuple(map(int, filter(None, extents.split(","))))
        else:
            models.append((word, {}))
    yield from (Call(Path(path), shapes) for path, shapes in models)


if __name__ == "__main__":
    print(machine())
    for call in _calls(sys.argv[1:]):
        ratio = measured(call)
        print(f"{call.path.name}: {ratio}; aim {AIM}{'' if ratio.ratio <= AIM else ', MISSED'}")
        if ratio.ratio > AIM:
            print(slowest(call))
