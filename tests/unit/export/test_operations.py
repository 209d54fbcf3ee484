"""Every operation that export_c takes gives the numbers of the compiled program, without a warning
of the compiler."""

import numpy as np
import pytest

import miniml as ml
from miniml.errors import ExportError
from miniml.testing.calls import calls, dtypes_of
from tests.frame.native import needs_compiler
from tests.opinfo import ROWS
from tests.unit.export.test_export_c import (
    WIDE,
    aligned,
    built,
    bytes_of,
    compiler,
    fences,
    pointers,
)

__all__ = ["compiler", "fences"]
pytestmark = [needs_compiler, pytest.mark.deep]


# Computed by other algorithms than NumPy's, or by other elementary functions: the bound of their
# error, relative to the largest number of an output.
LOOPS = dict.fromkeys("Solve TriangularSolve Cholesky Det SlogDet QR SVD Eigh Pinv".split(), 1e-5)
LOOPS |= dict.fromkeys("Einsum Normal Gumbel TruncatedNormal Gamma".split(), 1e-6)


def _rank(dtype):
    return {ml.float32: 0, ml.int64: 1}.get(dtype, 2)


def cases():
    """The largest call of each row, in float32 if it can be."""
    rng = np.random.default_rng(0)
    for row in ROWS:
        dtypes = sorted(dtypes_of(row), key=_rank)
        found = [c for d in dtypes[:1] for c in calls(row, d, rng) if all(a.size for a in c.arrays)]
        if found and not found[0].primitive.dynamic_outputs:
            largest = max(found, key=lambda call: sum(a.size for a in call.arrays))
            yield pytest.param(largest, id=row.primitive.name)


@pytest.mark.parametrize("call", [*cases()])
def test_an_operation_in_c(call, tmp_path, compiler):
    def fn(*arrays):
        return call.primitive(*call.args(arrays))

    arrays = [a.copy(order="C") for a in call.arrays]
    ml.export_c(fn, tmp_path / "net.c", *arrays)
    with ml.context(providers=("cc",), without=tuple(WIDE)):
        expected = ml.jit(fn)(*arrays)
    expected = [t.asnumpy() for t in (expected if isinstance(expected, tuple) else (expected,))]
    outs = [np.full_like(e, 7) for e in expected]
    arena = aligned(bytes_of(tmp_path / "net.c", "NET_ARENA_BYTES"))
    built(compiler, tmp_path / "net.c").net_run(*pointers(arena, *arrays, *outs))
    for a, b in zip(outs, expected, strict=True):
        bound = LOOPS.get(call.primitive.name, 0)
        np.testing.assert_allclose(a, b, 0, bound * np.abs(b[np.isfinite(b)]).max(initial=0))


# Sums at indices and checks of 16 bits, which training steps compute in float32.
HALVES = {"IndexAdd", "PutAlongAxisAdd", "ScatterAdd", "CheckedProbabilities"}


def test_operations_are_written_in_every_dtype_but_for_those_that_docs_name(tmp_path):
    rng, refused, written = np.random.default_rng(0), set(), 0
    for row in ROWS:
        for dtype in dtypes_of(row):
            found = [c for c in calls(row, dtype, rng) if all(a.size for a in c.arrays)]
            if (
                not found
                or found[0].primitive.dynamic_outputs
                or dtype in (ml.float32, ml.complex64)
            ):
                continue
            call = max(found, key=lambda call: sum(a.size for a in call.arrays))

            def fn(*arrays, call=call):
                return call.primitive(*call.args(arrays))

            try:
                ml.export_c(fn, tmp_path / "net.c", *[a.copy(order="C") for a in call.arrays])
                written += 1
            except ExportError:
                refused.add((call.primitive.name, np.dtype(dtype).name))
    assert written > 1000
    assert refused == {(name, dtype) for name in HALVES for dtype in ("float16", "bfloat16")}
