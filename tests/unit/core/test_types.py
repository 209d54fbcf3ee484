"""Dtypes: what numbers become, where they meet, and what is refused."""

import warnings
from itertools import combinations_with_replacement, permutations

import ml_dtypes
import numpy as np
import pytest

import miniml as ml
from miniml import KernelAttr, ops
from miniml.core.abstract import (
    ALL,
    COMPLEX,
    FLOATS,
    INTEGERS,
    Abstract,
    as_dtype,
    from_type_code,
    holds,
    promote,
    real_dtype,
    scalar_dtype,
    type_code,
)
from miniml.core.infer import infer
from miniml.errors import DTypeError

SHORT = {
    "?": "bool", "i8": "int8", "i16": "int16", "i32": "int32", "i64": "int64", "u8": "uint8",
    "u16": "uint16", "u32": "uint32", "u64": "uint64", "f16": "float16", "b16": "bfloat16",
    "f32": "float32", "f64": "float64",
}  # fmt: skip

# Row and column are promoted to what stands where they meet; "-" is refused. Symmetric.
LATTICE = """
     ?   u8  u16 u32 u64 i8  i16 i32 i64 f16 b16 f32 f64
?    ?   u8  u16 u32 u64 i8  i16 i32 i64 f16 b16 f32 f64
u8   u8  u8  u16 u32 u64 i16 i16 i32 i64 f16 b16 f32 f64
u16  u16 u16 u16 u32 u64 i32 i32 i32 i64 f16 b16 f32 f64
u32  u32 u32 u32 u32 u64 i64 i64 i64 i64 f16 b16 f32 f64
u64  u64 u64 u64 u64 u64 -   -   -   -   f16 b16 f32 f64
i8   i8  i16 i32 i64 -   i8  i16 i32 i64 f16 b16 f32 f64
i16  i16 i16 i32 i64 -   i16 i16 i32 i64 f16 b16 f32 f64
i32  i32 i32 i32 i64 -   i32 i32 i32 i64 f16 b16 f32 f64
i64  i64 i64 i64 i64 -   i64 i64 i64 i64 f16 b16 f32 f64
f16  f16 f16 f16 f16 f16 f16 f16 f16 f16 f16 f32 f32 f64
b16  b16 b16 b16 b16 b16 b16 b16 b16 b16 f32 b16 f32 f64
f32  f32 f32 f32 f32 f32 f32 f32 f32 f32 f32 f32 f32 f64
f64  f64 f64 f64 f64 f64 f64 f64 f64 f64 f64 f64 f64 f64
"""
_HEAD, *_BODY = LATTICE.strip().splitlines()
MEETINGS = [
    (line.split()[0], column, cell)
    for line in _BODY
    for column, cell in zip(_HEAD.split(), line.split()[1:], strict=True)
]


def dtype(short):
    return as_dtype(SHORT[short])


def test_promotion_lattice():
    for a, b, meet in MEETINGS:
        if meet == "-":
            with pytest.raises(DTypeError, match="have no common integer dtype; cast one"):
                promote(dtype(a), dtype(b))
        else:
            assert promote(dtype(a), dtype(b)) == dtype(meet), (a, b)


def test_operations_promote_as_the_lattice_says():
    for a, b, meet in MEETINGS:
        x, y = ml.Tensor(np.ones(2, dtype(a))), ml.Tensor(np.ones(2, dtype(b)))
        if meet == "-":
            with pytest.raises(DTypeError, match=r"Maximum: .*have no common integer dtype"):
                ops.maximum(x, y)
        else:
            assert ops.maximum(x, y).dtype == dtype(meet), (a, b)


def test_promotion_does_not_depend_on_order():
    def of(*dtypes):
        try:
            return promote(*dtypes)
        except DTypeError:
            return None

    for a, b, c in combinations_with_replacement(ALL, 3):
        assert len({of(*order) for order in permutations((a, b, c))}) == 1, (a, b, c)


class TestPythonNumbers:
    @pytest.mark.parametrize(
        ("data", "wanted"),
        [
            (1.5, "float32"),
            (1, "int64"),
            (True, "bool"),
            ([1, 2.5], "float32"),
            ([[1], [2]], "int64"),
            ([], "float32"),
            (np.float64(1), "float64"),
            (np.ones(2), "float64"),
            (np.ones(2, np.int8), "int8"),
            (np.ones(2, ml_dtypes.bfloat16), "bfloat16"),
            ([np.float64(1)], "float64"),
        ],
    )
    def test_what_a_tensor_of_them_is(self, data, wanted):
        assert ml.Tensor(data).dtype.name == wanted

    @pytest.mark.parametrize("d", ALL)
    def test_scalars_are_weak(self, d):
        x = ml.Tensor(np.ones(2, d))
        floats = d.kind not in "?biu" or d == ml.bfloat16
        wide = {ml.float64: ml.complex128, ml.complex128: ml.complex128}
        assert (x + 1j).dtype == wide.get(d, ml.complex64)
        assert (x + 1).dtype == (ml.int64 if d == ml.bool_ else d)
        assert (1 + x).dtype == (x + 1).dtype
        assert (x + 1.0).dtype == (d if floats else ml.float32)
        assert (x * True).dtype == d

    def test_weakness_is_not_a_property_of_values(self):
        x = ml.Tensor(np.ones(2, np.float16))
        assert (x + ml.Tensor(1.0)).dtype == ml.float32
        assert (x + np.float64(1)).dtype == ml.float64
        assert scalar_dtype(2, (ml.float16, ml.bfloat16)) == ml.float32

    def test_two_scalars_take_the_larger_class(self):
        assert ops.add(1, 2.0).dtype == ml.float32
        assert ops.add(1, True).dtype == ml.int64

    def test_a_scalar_that_does_not_fit_is_refused(self):
        with pytest.raises(DTypeError, match="Add got the scalar 300, which uint8 cannot hold"):
            ml.Tensor(np.ones(2, np.uint8)) + 300

    def test_casts_are_visible_nodes(self):
        graph = str(ml.trace(ops.add, np.ones(2, np.float32), np.ones(2, np.int32)))
        assert "Cast" in graph

    @pytest.mark.parametrize("d", INTEGERS)
    def test_functions_of_floats_take_integers_as_float32(self, d):
        assert ops.sin(ml.Tensor(np.ones(2, d))).dtype == ml.float32


class TestNames:
    @pytest.mark.parametrize("d", ALL)
    def test_each_dtype_has_a_name_and_a_letter(self, d):
        assert as_dtype(d) is as_dtype(d.name) is from_type_code(type_code(d)) is d
        assert getattr(ml, d.name if d != ml.bool_ else "bool_") is d

    def test_python_types(self):
        known = {bool: ml.bool_, int: ml.int64, float: ml.float32, complex: ml.complex64}
        assert {t: as_dtype(t) for t in known} == known

    def test_other_byte_order_is_the_same_dtype(self):
        assert as_dtype(">f4") is ml.float32
        assert ml.Tensor(np.ones(2, ">f4")).dtype is ml.float32

    @pytest.mark.parametrize(
        "spec", ["U3", "O", "M8[s]", "float128", "complex256", "f80", 3, None, "flaot32"]
    )
    def test_other_dtypes_are_refused(self, spec):
        with pytest.raises(DTypeError, match="use one of bool, int8"):
            as_dtype(spec)

    def test_data_of_other_dtypes_are_refused_by_name(self):
        with pytest.raises(DTypeError, match="complex256"):
            ml.Tensor(np.ones(2, np.clongdouble))
        with pytest.raises(DTypeError, match=r"^Add.*complex256"):
            ops.add(np.ones(2, np.clongdouble), 1.0)


class TestBfloat16:
    def test_stored_in_two_bytes_and_rounded_to_nearest_even(self):
        x = ml.Tensor([1.0, 1 + 2**-8, 1 + 3 * 2**-8]).astype("bfloat16")
        assert x.nbytes == 6
        assert x.astype("float32").tolist() == [1.0, 1.0, 1 + 2**-6]

    def test_sums_are_made_in_float32(self):
        x = ml.Tensor(np.ones(1000), dtype="bfloat16")
        assert x.sum().dtype == ml.bfloat16
        assert float(x.sum()) == 1000.0

    def test_beside_float16_it_becomes_float32(self):
        a, b = ml.Tensor([1.0], dtype="bfloat16"), ml.Tensor([1.0], dtype="float16")
        assert (a + b).dtype == ml.float32


def all_values(dtype):
    """All values of a dtype of at most 16 bits; of others the ends, and those near powers of 2."""
    if dtype == np.bool_:
        return np.array([False, True])
    if dtype.itemsize <= 2:
        return np.arange(2 ** (8 * dtype.itemsize), dtype=f"u{dtype.itemsize}").view(dtype)
    if dtype in COMPLEX:
        parts = all_values(real_dtype(dtype))
        return np.concatenate([parts, parts + 1j]).astype(dtype)
    if dtype in FLOATS:
        info = np.finfo(dtype)
        ends = [info.smallest_subnormal, info.tiny, 1 + info.eps, info.max, np.inf, -0.0, np.nan]
        return np.array([*ends, *np.negative(ends)], dtype)
    info = np.iinfo(dtype)
    near = {s * 2**k + d for k in range(64) for d in (-1, 0, 1) for s in (-1, 1)}
    return np.array([v for v in near if info.min <= v <= info.max], dtype)


def exact(array):
    """The values as Python numbers, which compare without rounding."""
    if array.dtype.kind == "c":
        return array.tolist()
    return (array if array.dtype.kind in "biu" else array.astype(np.float64)).tolist()


@pytest.mark.parametrize("narrow", ALL, ids=str)
def test_a_dtype_holds_another_if_it_has_all_its_values(narrow):
    values = all_values(narrow)
    for wide in ALL:
        with np.errstate(all="ignore"), warnings.catch_warnings(action="ignore"):
            expected, got = exact(values), exact(values.astype(wide))
        same = all(a == b or (a != a and b != b) for a, b in zip(got, expected, strict=True))
        assert holds(wide, narrow) == same, (wide, narrow)


SPELT = [(bool, "bool", ml.bool_), (int, "int", ml.int64), (float, "float", ml.float32)]
X = np.array([0.0, 1.0])
ENTRIES = {
    "Tensor": lambda kind: ml.Tensor(X, dtype=kind).dtype,
    "cast": lambda kind: ops.cast(X, kind).dtype,
    "zeros": lambda kind: ops.zeros((2,), kind).dtype,
    "ones": lambda kind: ops.ones((2,), dtype=kind).dtype,
    "full": lambda kind: ops.full((2,), 1, kind).dtype,
    "full_like": lambda kind: ops.full_like(X, 1, kind).dtype,
    "zeros_like": lambda kind: ops.zeros_like(X, kind).dtype,
    "ones_like": lambda kind: ops.ones_like(X, kind).dtype,
    "eye": lambda kind: ops.eye(2, dtype=kind).dtype,
    "one_hot": lambda kind: ops.one_hot(np.array([0, 1]), 2, kind).dtype,
    "in a graph": lambda kind: ml.jit(lambda x: ops.cast(x, kind))(X).dtype,
    "KernelAttr": lambda kind: KernelAttr().add_output_attr(kind).signature.outputs[0],
}
NUMERIC = {
    "arange": lambda kind: ops.arange(3, dtype=kind).dtype,
    "sum": lambda kind: ops.sum(ops.cast(X, kind)).dtype,
}
DRAWN = {
    "uniform": lambda kind: ops.uniform((2,), dtype=kind).dtype,
    "normal": lambda kind: ops.normal((2,), dtype=kind).dtype,
    "linspace": lambda kind: ops.linspace(0.0, 1.0, 3, kind).dtype,
}


@pytest.mark.parametrize(("python", "name", "expected"), SPELT, ids=str)
def test_a_python_type_and_its_name_are_one_dtype_everywhere(python, name, expected):
    entries = ENTRIES | (NUMERIC if python is not bool else {})
    entries |= DRAWN if python is float else {}
    for where, entry in entries.items():
        assert entry(python) == entry(name) == expected, where


def test_numpys_own_spellings_stay_numpys():
    for spelt in (np.float64, "float64", "d", "double", np.dtype(float)):
        assert as_dtype(spelt) == ml.float64


def test_a_dtype_rule_may_say_a_python_type():
    class SaysFloat(ml.Primitive):
        """x as the dtype that Python's float is."""

        def infer_shape(self, x):
            return x

        def infer_dtype(self, x):
            return float

    assert infer(SaysFloat(), [Abstract((2,), ml.float32)])[0].dtype == ml.float32
