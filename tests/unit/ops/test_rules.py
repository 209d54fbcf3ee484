"""Inference by name: `like`, `inputs`, the rules of `ops.rules`, and dictionaries."""

import numpy as np
import pytest

import miniml as ml
from miniml import Primitive, PrimitiveWithCheck, PrimitiveWithInfer, kernel
from miniml.core.abstract import Abstract
from miniml.core.infer import infer
from miniml.errors import ArityError, DeclarationError, DTypeError, ShapeError
from miniml.ops import rules

F = ml.float32


def inferred(primitive, *inputs):
    """The outputs as text; inputs: (shape, dtype) of tensors, or const values."""
    given = tuple(Abstract(*i) if isinstance(i, tuple) and len(i) == 2 else i for i in inputs)
    return [str(out) for out in infer(primitive, given)]


def declared(**body):
    """A new class of primitives with this body."""
    return type("RuleOne", (Primitive,), {"__module__": __name__, **body})


class TestLike:
    def test_one_word_is_all_the_inference(self):
        class RuleLike(Primitive):
            like = "x"

        @kernel("RuleLike", "cpu", "f->f")
        def double(x, *, out):
            np.multiply(x, 2, out=out)

        assert RuleLike()(ml.Tensor([1.0, 2.0])).tolist() == [2.0, 4.0]
        assert RuleLike()(x=ml.Tensor([3.0])).tolist() == [6.0]
        with pytest.raises(ArityError, match=r"RuleLike takes 1 input \(x\); got 2"):
            RuleLike()(1.0, 2.0)

    def test_it_may_name_another_input_than_the_first(self):
        op = declared(inputs=("w", "x"), like="x")()
        assert op.input_names == ("w", "x")
        assert inferred(op, ((3,), ml.int64), ((2, 5), F)) == ["float32[2, 5]"]

    def test_it_holds_for_every_output(self):
        op = declared(like="x", outputs=("a", "b"))()
        assert inferred(op, ((2,), F)) == ["float32[2]"] * 2

    def test_it_fills_in_the_rule_that_is_missing(self):
        op = declared(like="x", inputs=("w", "x"), infer_shape=lambda self, w, x: w)()
        assert inferred(op, ((3,), ml.int64), ((2,), F)) == ["float32[3]"]
        op = declared(like="x", infer_dtype=lambda self, x: ml.bool_)()
        assert inferred(op, ((3,), F)) == ["bool[3]"]

    def test_subclasses_inherit_it(self):
        base = declared(like="x", inputs=("x", "w"))
        assert type("RuleTwo", (base,), {})().input_names == ("x", "w")
        assert type("RuleThree", (declared(like="x"),), {})().input_names == ("x",)

    @pytest.mark.parametrize(
        ("body", "message"),
        [
            ({}, "RuleOne defines no infer_shape; say what shape comes out: .* or like = 'x'"),
            ({"like": "y", "inputs": ("x",)}, "says like = 'y'; its tensor inputs are x"),
            ({"like": "p", "inputs": ("x", "p"), "const_inputs": ("p",)}, "tensor inputs are x"),
            ({"like": "x", "outputs": "*parts"}, "number of outputs depends on the instance"),
            ({"inputs": ("a", "b"), "infer_shape": lambda self, x, y: x}, "infer_shape takes x, y"),
            ({"inputs": ("x", "y"), "infer_shape": rules.reduce("axis")}, "lists the inputs x, y"),
            ({"like": "x", "inputs": ("x", "x")}, r"lists inputs = \('x', 'x'\): duplicate param"),
            ({"like": "x", "inputs": ("*xs", "x")}, r"lists inputs = .* the last perhaps with a"),
            ({"like": "x", "inputs": ("x", 2)}, r"lists inputs = \('x', 2\)"),
            ({"infer_shape": lambda self: ()}, "defines no infer_dtype and has no tensor input"),
        ],
    )
    def test_what_contradicts_itself_is_refused_at_definition(self, body, message):
        with pytest.raises(DeclarationError, match=message):
            declared(**body)


class TestDefaultDtype:
    def test_it_is_that_of_the_first_tensor(self):
        op = declared(infer_shape=lambda self, x, indices: indices)()
        assert inferred(op, ((3,), F), ((2,), ml.int64)) == ["float32[2]"]

    def test_it_is_that_of_the_tensors_that_are_promoted(self):
        op = declared(inputs=("cond", "x", "y"), promote=("x", "y"), infer_shape=rules.broadcast)()
        assert inferred(op, ((3,), ml.bool_), ((), F), ((1,), F)) == ["float32[3]"]

    def test_one_dtype_stands_for_all_outputs(self):
        op = declared(outputs="*parts", infer_shape=lambda self, x: [x, x[1:], ()])()
        assert inferred(op, ((3, 2), F)) == ["float32[3, 2]", "float32[2]", "float32[]"]

    def test_any_number_of_inputs(self):
        op = declared(inputs="*xs", infer_shape=rules.broadcast)()
        assert op.input_names is None
        assert inferred(op, ((3,), F), ((1,), F), ((), F)) == ["float32[3]"]
        with pytest.raises(ArityError, match="RuleOne got no input; give at least one"):
            op()


X, Y = ((2, 1, 4), F), ((3, 1), F)

RULES = [
    ({"infer_shape": rules.same, "inputs": ("x", "y")}, (X, X), "float32[2, 1, 4]"),
    ({"infer_shape": rules.broadcast}, (X, Y), "float32[2, 3, 4]"),
    ({"infer_shape": rules.broadcast, "infer_dtype": rules.promote},
     (((2,), ml.int64), ((), F)), "float32[2]"),
    ({"infer_shape": rules.reduce("axis"), "axis": -1}, (X,), "float32[2, 1]"),
    ({"infer_shape": rules.reduce("over"), "over": (0, 2)}, (X,), "float32[1]"),
    ({"infer_shape": rules.reduce("axis"), "axis": 0, "keepdims": True}, (X,), "float32[1, 1, 4]"),
    ({"infer_shape": rules.reduce("axis", "kept"), "axis": None, "kept": True}, (X,),
     "float32[1, 1, 1]"),
    ({"infer_shape": rules.along("axis"), "axis": 2}, (X,), "float32[2, 1, 4]"),
    ({"infer_shape": rules.attribute("size"), "size": (7, 1)}, (), None),
    ({"infer_shape": rules.same, "infer_dtype": rules.always(ml.int8)}, (X,), "int8[2, 1, 4]"),
    ({"infer_shape": rules.same, "infer_dtype": rules.sums}, (((2,), ml.int8),), "int64[2]"),
    ({"infer_shape": rules.same, "infer_dtype": rules.sums}, (((2,), ml.uint8),), "uint64[2]"),
    ({"infer_shape": rules.same, "infer_dtype": rules.attribute("to"), "to": ml.int16}, (X,),
     "int16[2, 1, 4]"),
    ({"infer_shape": rules.same, "infer_dtype": rules.one_of("int32", F)}, (X,),
     "float32[2, 1, 4]"),
    ({"infer_shape": rules.same, "infer_dtype": rules.bools}, (((2,), ml.bool_),), "bool[2]"),
    ({"infer_shape": rules.same, "infer_dtype": rules.floats}, (((2,), ml.float64),), "float64[2]"),
    ({"infer_shape": rules.same, "infer_dtype": rules.numbers}, (((2,), ml.int8),), "int8[2]"),
]  # fmt: skip


@pytest.mark.parametrize(("body", "inputs", "out"), RULES)
def test_a_named_rule_gives(body, inputs, out):
    kept = {name for name in body if not name.startswith("infer_") and name != "inputs"}
    if "size" in body:
        body, out = {**body, "inputs": "*xs", "infer_dtype": rules.always(F)}, "float32[7, 1]"
    op = declared(**body, __annotations__=dict.fromkeys(kept, object))()
    assert inferred(op, *inputs) == [out]


@pytest.mark.parametrize(
    ("body", "inputs", "message"),
    [
        ({"infer_shape": rules.same, "inputs": ("x", "y")}, (X, Y), r"\(2, 1, 4\) and \(3, 1\)"),
        ({"infer_shape": rules.broadcast}, (((2,), F), ((3,), F)), r"cannot broadcast shapes \(2,"),
        ({"infer_shape": rules.reduce("axis")}, (X,), "rule that reads its attribute 'axis'"),
        ({"infer_shape": rules.same, "infer_dtype": rules.one_of(F, "int32")}, (((), ml.int8),),
         "RuleOne got int8; they must be all float32 or all int32; cast them"),
        ({"infer_shape": rules.same, "infer_dtype": rules.bools}, (X,), "needs bool tensors; got"),
        ({"infer_shape": rules.same, "infer_dtype": rules.floats}, (((), ml.int8),), "needs a fl"),
        ({"infer_shape": rules.same, "infer_dtype": rules.numbers}, (((), ml.bool_),), "for bool"),
    ],
)  # fmt: skip
def test_a_named_rule_refuses(body, inputs, message):
    with pytest.raises((ShapeError, DTypeError, DeclarationError), match=message):
        inferred(declared(**body)(), *inputs)


def test_a_rule_of_shapes_holds_for_every_output():
    op = declared(outputs=("a", "b"), infer_shape=rules.broadcast)()
    assert inferred(op, X, Y) == ["float32[2, 3, 4]"] * 2


def test_rules_pass_over_const_inputs():
    op = declared(
        inputs=("x", "y", "perm"), const_inputs=("perm",), infer_shape=rules.broadcast,
        infer_dtype=rules.promote,
    )()  # fmt: skip
    assert inferred(op, ((2,), F), ((3, 1), ml.int8), "text") == ["float32[3, 2]"]


class RuleTurned(PrimitiveWithInfer):
    """x with its axes in the order of `perm`, by dictionaries."""

    const_inputs = ("perm",)

    def __infer__(self, x, perm):
        value = None if x["value"] is None else x["value"].transpose(perm["value"])
        shape = [x["shape"][axis] for axis in perm["value"]]
        return {"shape": shape, "dtype": x["dtype"], "value": value}


class TestDictionaries:
    def test_shape_dtype_and_value(self):
        x = np.arange(6.0).reshape(1, 2, 3)
        assert RuleTurned().input_names == ("x", "perm")
        np.testing.assert_array_equal(RuleTurned()(x, (2, 0, 1)).asnumpy(), x.transpose(2, 0, 1))
        graph = ml.trace(lambda x: RuleTurned()(x, (2, 0, 1)), x)
        assert str(graph.outputs[0].abstract) == "float64[3, 1, 2]"
        folded = ml.trace(lambda: RuleTurned()(ml.Tensor(x), (2, 0, 1)))
        assert not folded.nodes  # the value is known, so there is no call

    def test_they_go_before_the_three_tracks(self):
        op = declared(
            __infer__=lambda self, x: {"shape": (7,), "dtype": F},
            infer_shape=lambda self, x: x,
        )()
        assert inferred(op, ((2,), F)) == ["float32[7]"]

    def test_several_outputs(self):
        one = {"shape": (), "dtype": F, "value": None}
        op = declared(outputs=("a", "b"), __infer__=lambda self, x: (one, one))()
        assert inferred(op, ((2,), F)) == ["float32[]"] * 2

    @pytest.mark.parametrize("found", [None, (2,), {"shape": ()}, [{"shape": (), "dtype": F}] * 2])
    def test_what_is_no_dictionary_of_one_output_is_refused(self, found):
        op = declared(__infer__=lambda self, x: found)()
        with pytest.raises(
            DeclarationError, match=r"RuleOne __infer__ returned .*return a dictiona"
        ):
            inferred(op, ((2,), F))

    def test_a_shape_rule_that_expects_them_is_told_where_they_go(self):
        def infer_shape(self, x, perm):
            return [x["shape"][i] for i in perm["value"]]

        op = declared(const_inputs=("perm",), infer_shape=infer_shape)()
        with pytest.raises(
            DeclarationError,
            match=r"RuleOne infer_shape takes its inputs for dictionaries, .* it got \(2, 3\), "
            r"\(1, 0\); .* rename the rule to __infer__",
        ):
            op(np.ones((2, 3), np.float32), (1, 0))
        op = declared(infer_shape=lambda self, x: x, infer_dtype=lambda self, x: x["dtype"])()
        with pytest.raises(DeclarationError, match="infer_dtype takes its inputs for dictionaries"):
            op(1.0)

    def test_other_errors_of_rules_stay_as_they_are(self):
        op = declared(infer_shape=lambda self, x: x["other"])()
        with pytest.raises(TypeError, match="indices must be integers"):
            op(1.0)

    def test_checks_may_take_them_too(self):
        class RuleChecked(PrimitiveWithCheck):
            def __check__(self, x, y):
                if x["dtype"] != y["dtype"]:
                    raise DTypeError(f"RuleChecked got {x['dtype']} and {y['dtype']}")

        assert RuleChecked().input_names == ("x", "y")
        assert inferred(RuleChecked(), ((2,), F), ((), F)) == ["float32[2]"]
        with pytest.raises(DTypeError, match="RuleChecked got float32 and int8"):
            inferred(RuleChecked(), ((2,), F), ((), ml.int8))
