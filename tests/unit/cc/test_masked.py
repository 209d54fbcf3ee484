"""C for a machine that lacks features: compiled without them, with the vectors it would have."""

import platform

import numpy as np
import pytest

import miniml as ml
from miniml import ops
from miniml.backends.cc import units
from miniml.backends.cc.scalars import register_bytes
from miniml.backends.cc.units import Source
from miniml.core.settings import masking
from miniml.core.signature import CPU
from miniml.runtime.jit import Jit
from tests.frame.native import needs_compiler

pytestmark = [
    needs_compiler,
    pytest.mark.skipif(not CPU.get("avx2"), reason=f"no AVX2 on this {platform.machine()}"),
]
MACRO = """
#ifdef __AVX2__
#define ON 1
#else
#define ON 0
#endif
void KERNEL(char *const *at) { ((double *)at[0])[0] = ON; }
"""


def test_the_compiler_may_not_use_them(tmp_path):
    for without, expected in (((), 1.0), (masking(("avx2",)), 0.0), (("avx512f",), 1.0)):
        x = np.full(1, -1.0)
        units.run(Source(f"{MACRO}// {tmp_path}", (), without), [x])  # not in the cache
        assert x[0] == expected


def test_vectors_are_as_wide_as_what_is_left():
    assert register_bytes(masking(("avx512f",))) == 32
    assert register_bytes(masking(("avx",))) == 16


def block(image, filters, w):
    x = ops.relu(ops.conv2d(image, filters, stride=1, padding=1))
    return ops.softmax(ops.matmul(ops.reshape(x, (x.shape[0], -1)), w) + 1.0)


def test_whole_programs_agree():
    rng = np.random.default_rng(5)
    shapes = (8, 3, 9, 9), (4, 3, 3, 3), (324, 20)
    args = [rng.standard_normal(s).astype("f") / s[-1] for s in shapes]
    expected = Jit(block)(*args).asnumpy()
    with ml.context(providers=("cc",), without=("avx2",)):
        run = Jit(block)
        got = run(*args).asnumpy()
        natives = [p.native for p in run.compiled(*args).program.prepared.values() if p.native]
    assert natives
    assert all(n.source.without == masking(("avx2",)) for n in natives if n.source)
    np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-6)
