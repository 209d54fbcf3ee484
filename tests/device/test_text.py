"""Units: texts of CUDA C below what parametrises them."""

import re
from pathlib import Path

import numpy as np

from miniml import bfloat16, float16
from miniml.backends import cuda
from miniml.backends.cuda.text.source import unit

FOLDER = Path(cuda.__file__).parent


def named(**names):
    """What a unit without a text says of its names."""
    return unit("", **names).rpartition("}  // namespace miniml\n")[2]


def test_a_dtype_is_its_c_type():
    assert named(T=np.dtype("f"), S=bfloat16) == "typedef float T;\ntypedef __nv_bfloat16 S;\n"


def test_a_record_is_a_struct():
    record = np.dtype([("n", np.int64), ("step", np.int32, 2)])
    assert named(Sizes=record) == "struct Sizes { long long n; int step[2]; };\n"


def test_all_else_is_a_macro():
    assert named(K=3, TERM="a + b") == "#define K 3\n#define TERM a + b\n"


def test_headers_come_for_the_dtypes_that_are_named():
    assert "cuda_fp16.h" in unit("", T=float16)
    assert "#include" not in unit("", T=np.dtype("d"))


def test_the_grid_stride_loop_is_written_once():
    loop = re.compile(r"blockIdx\.x \* blockDim\.x \+ threadIdx\.x[,;]")
    found = [p.name for p in FOLDER.rglob("*.py") if loop.search(p.read_text("utf-8"))]
    assert found == ["source.py"]
