"""The validator: each check, in the older and the newer spelling, lets through and refuses."""

import numpy as np
import pytest

import miniml as ml
from miniml.errors import (
    AttributeRefusedError,
    ConstInputError,
    DeclarationError,
    DTypeError,
    ShapeError,
    ValueRefusedError,
)
from miniml.ops import validator as v
from miniml.ops.validator import Rel

RELATIONS = [  # relation, bounds, a value that is in it, one that is not, words
    ("EQ", (3,), 3, 2, "an int equal to 3"),
    ("NE", (3,), 2, 3, "an int other than 3"),
    ("LT", (3,), 2, 3, "an int less than 3"),
    ("LE", (3,), 3, 4, "an int at most 3"),
    ("GT", (3,), 4, 3, "an int greater than 3"),
    ("GE", (3,), 3, 2, "an int at least 3"),
    ("INC_NEITHER", (1, 4), 2, 1, r"an int in \(1, 4\)"),
    ("INC_LEFT", (1, 4), 1, 4, r"an int in \[1, 4\)"),
    ("INC_RIGHT", (1, 4), 4, 1, r"an int in \(1, 4\]"),
    ("INC_BOTH", (1, 4), 4, 5, r"an int in \[1, 4\]"),
    ("IN", ((1, 2),), 2, 3, r"an int that is one of \(1, 2\)"),
    ("NOT_IN", ((1, 2),), 3, 2, r"an int that is none of \(1, 2\)"),
]


@pytest.mark.parametrize(("rel", "bounds", "inside", "outside", "words"), RELATIONS)
def test_relations(rel, bounds, inside, outside, words):
    check = v.check_int if len(bounds) == 1 else v.check_int_range
    assert check(inside, *bounds, Rel[rel], "k", "TopK") == inside
    message = f"^TopK got k={outside} of type int; expected {words}"
    with pytest.raises(ValueRefusedError, match=message):
        check(outside, *bounds, Rel[rel], "k", "TopK")
    if len(bounds) == 1:
        assert v.check_integer("k", inside, *bounds, Rel[rel], "TopK") == inside
        with pytest.raises(ValueError, match=message):
            v.check_integer("k", outside, *bounds, Rel[rel], "TopK")


def test_all_relations_are_tested():
    assert [rel.name for rel in Rel] == [row[0] for row in RELATIONS]


FLOATS = {"x1": ml.float32, "x2": ml.float32}
MIXED = {"x1": ml.float32, "x2": ml.float64}
LET_THROUGH = [
    (v.check_int, (np.int32(3), 3, Rel.EQ), 3),
    (v.check_float_range, (0.5, 0, 1, Rel.INC_BOTH, "p", "Dropout"), 0.5),
    (v.check_positive_int, (1, "k", "TopK"), 1),
    (v.check_negative_int, (-1,), -1),
    (v.check_non_negative_int, (0,), 0),
    (v.check_non_positive_int, (0,), 0),
    (v.check_positive_float, (1e-9,), 1e-9),
    (v.check_negative_float, (-0.5,), -0.5),
    (v.check_non_negative_float, (0.0,), 0.0),
    (v.check_bool, (False, "keepdims"), False),
    (v.check_string, ("mean", ["mean", "sum"], "reduction", "Loss"), "mean"),
    (v.check_value_type, ("axis", 1, [int, tuple], "Sum"), 1),
    (v.check_value_type, ("axis", (1,), (int, tuple), "Sum"), (1,)),
    (v.check_value_type, ("flag", True, bool, "Sum"), True),
    (v.check_subclass, ("x", ml.float32, np.floating, "Exp"), ml.float32),
    (v.check_subclass, ("kind", bool, [int], "Exp"), bool),
    (v.check_subclass, ("x", ml.float32, [ml.int32, ml.float32], "Exp"), ml.float32),
    (v.check_const_input, ("perm", (1, 0), "Transpose"), (1, 0)),
    (v.check_tensor_dtype_valid, ("x", ml.float32, [ml.float32, "int8"], "Exp"), ml.float32),
    (v.check_tensors_dtypes_same_and_valid, (FLOATS, (ml.float32,), "Add"), None),
    (v.check_tensor_type_same, (FLOATS, [ml.float32], "Add"), None),
    (v.check_scalar_or_tensor_types_same, ({"x": ml.int64, "y": int}, ml.int64, "Add"), None),
    (v.check_axis_in_range, (-1, 3), 2),
    (v.check_transpose_axis, ((-1, 0), 2), (1, 0)),
    (v.check_transpose_axis, ((), 3), (2, 1, 0)),
    (v.check_reduce_shape, ((2, 3, 4), (2, 4), 1, "Sum"), (2, 4)),
    (v.infer_out_shape, ((2, 1), (3,)), (2, 3)),
]


@pytest.mark.parametrize(("check", "given", "out"), LET_THROUGH)
def test_what_is_right_comes_back(check, given, out):
    assert check(*given) == out


Wrong, Refused = AttributeRefusedError, ValueRefusedError
REFUSED = [
    (v.check_int, (True, 3, Rel.EQ, "k", "TopK"), Wrong,
     "TopK got k=True of type bool; expected an int equal to 3"),
    (v.check_integer, ("k", 2.0, 3, Rel.EQ, "TopK"), Wrong, "k=2.0 of type float; expected an int"),
    (v.check_int, (2, 3, Rel.GE), Refused, "^the call got 2 of type int; expected an int at l"),
    (v.check_float_range, (1.5, 0, 1, Rel.INC_BOTH, "p", "Dropout"), Refused,
     r"Dropout got p=1.5 of type float; expected a float in \[0, 1\]"),
    (v.check_float_range, (1, 0, 1, Rel.INC_BOTH, "p", "Dropout"), Wrong, "expected a float in"),
    (v.check_positive_int, (0, "k", "TopK"), Refused, "TopK got k=0 .* an int greater than 0"),
    (v.check_non_negative_int, (-1, "k", "TopK"), Refused, "TopK got k=-1 .* an int at least 0"),
    (v.check_positive_float, (0.0, "eps", "Norm"), Refused, "eps=0.0 .* a float greater than 0"),
    (v.check_bool, (1, "keepdims", "Sum"), Wrong, "Sum got keepdims=1 of type int; expected a"),
    (v.check_string, ("max", ["mean", "sum"], "reduction", "Loss"), Refused,
     r"Loss got reduction='max' of type str; expected a string that is one of \['mean', 'sum'\]"),
    (v.check_string, (3, ["mean"], "reduction", "Loss"), Wrong, "reduction=3 of type int"),
    (v.check_value_type, ("axis", True, [int, tuple], "Sum"), Wrong,
     "Sum got axis=True of type bool; expected int or tuple"),
    (v.check_value_type, ("axis", "0", int, "Sum"), Wrong, "axis='0' of type str; expected int"),
    (v.check_subclass, ("x", ml.int8, np.floating, "Exp"), Wrong,
     "Exp got x=int8; expected a subclass of floating"),
    (v.check_subclass, ("x", ml.int8, [ml.float32], "Exp"), Wrong,
     "Exp got x=int8; expected a subclass of float32"),
    (v.check_const_input, ("perm", None, "Transpose"), ConstInputError,
     r"Transpose got perm=None; expected a constant; .* const_inputs = \('perm',\)"),
    (v.check_tensor_dtype_valid, ("x", ml.int8, [ml.float32], "Exp"), DTypeError,
     "Exp got x: int8; expected float32"),
    (v.check_tensors_dtypes_same_and_valid, (MIXED, [ml.float32, ml.float64], "Add"), DTypeError,
     "Add got x1: float32 and x2: float64; expected the same dtype for all, float32 or float64"),
    (v.check_tensor_type_same, (FLOATS, [ml.int8], "Add"), DTypeError, "same dtype for all, int8"),
    (v.check_scalar_or_tensor_types_same, ({"x": ml.int8, "y": int}, ml.int8, "Add"), DTypeError,
     "Add got x: int8 and y: int64"),
    (v.check_axis_in_range, (3, 3, "Sum"), ShapeError, "Sum got axis 3 of a tensor of rank 3"),
    (v.check_transpose_axis, ((0, 0), 2, "Transpose"), ShapeError, "names one axis twice"),
    (v.check_transpose_axis, ((0,), 2, "Transpose"), ShapeError, "for a tensor of rank 2"),
    (v.check_reduce_shape, ((2, 3), (2,), 0, "Sum"), ShapeError,
     r"Sum got shape \(2,\); expected \(3,\), which is \(2, 3\) reduced along 0"),
    (v.check_int, ("k", 3, 3, Rel.EQ, "TopK"), DeclarationError,
     "TopK got the relation 3; .* check_int takes .value, bound, rel.* older check_integer .name"),
]  # fmt: skip


@pytest.mark.parametrize(("check", "given", "error", "message"), REFUSED)
def test_what_is_wrong_is_refused_in_a_sentence(check, given, error, message):
    with pytest.raises(error, match=message):
        check(*given)


def test_the_mistake_stands_on_the_users_line():
    class ValPositive(ml.Primitive):
        k: int
        like = "x"

        def infer_shape(self, x):
            v.check_positive_int(self.k, "k", self.name)
            return x

    with pytest.raises(ValueRefusedError, match="ValPositive got k=0") as caught:
        ValPositive(0)(ml.Tensor([1.0]))
    assert "test_validator.py" in caught.value.__notes__[0]
    assert "ValPositive(0)(ml.Tensor([1.0]))" in caught.value.__notes__[0]
