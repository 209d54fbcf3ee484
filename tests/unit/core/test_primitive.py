"""A primitive is a frozen value: its annotations say all there is to say."""

import copy
import pickle
from typing import ClassVar, Literal

import numpy as np
import pytest

import miniml as ml
from miniml import Primitive, PrimitiveWithInfer, ops, prim_attr_register
from miniml.core.primitive import primitives
from miniml.errors import (
    ArityError,
    AttributeRefusedError,
    DeclarationError,
    DuplicateError,
    ImmutableError,
)


class CoreScale(Primitive):
    """x times a factor, along axes."""

    factor: float
    axes: tuple[int, ...] = ()
    mode: str = "fast"
    table: ClassVar[int] = 3

    def infer_shape(self, x):
        return x

    def infer_dtype(self, x):
        return x


class CorePair(Primitive):
    """Two attributes of any type."""

    a: object
    b: object
    like = "x"


ZEROS = (0.0, -0.0)


@prim_attr_register
def _register_classic(self, perm, keep=True):
    self.init_prim_io_names(inputs=["x"], outputs=["y"])
    self.rank = len(perm)
    self.add_prim_attr("extra", [1, 2])


class CoreClassic(PrimitiveWithInfer):
    """The classic spelling."""

    __init__ = _register_classic

    def infer_shape(self, x_shape):
        return x_shape

    def infer_dtype(self, x_dtype):
        return x_dtype


class TestValue:
    def test_attributes_come_from_annotations_in_order(self):
        assert CoreScale(2).attributes == {"factor": 2.0, "axes": (), "mode": "fast"}
        assert CoreScale(2, (0,), mode="slow").attributes["mode"] == "slow"

    def test_repr_is_the_call(self):
        assert repr(CoreScale(2, [1])) == "CoreScale(factor=2.0, axes=(1,), mode='fast')"

    def test_equal_attributes_make_equal_primitives(self):
        assert CoreScale(2.0, [1, 2]) == CoreScale(2, (1, 2))
        assert hash(CoreScale(2.0, [1, 2])) == hash(CoreScale(2, (1, 2)))
        assert CoreScale(2.0) != CoreScale(3.0)
        assert CoreScale(2.0) != 2.0

    @pytest.mark.parametrize(
        ("a", "b"), [(1, True), (0, False), (1, 1.0), (0.0, -0.0), (1 + 0j, complex(1, -0.0))]
    )
    def test_numbers_that_python_calls_equal_are_told_apart(self, a, b):
        assert CoreClassic((a,)) != CoreClassic((b,))
        assert CoreClassic((frozenset({a}),)) != CoreClassic((frozenset({b}),))

    def test_zeros_of_numpy_keep_their_sign(self):
        factors = [CoreScale(kind(v)).factor for kind in (np.float32, np.float16) for v in ZEROS]
        assert list(map(str, factors)) == ["0.0", "-0.0"] * 2

    def test_nan_attributes_are_one(self):
        assert CoreScale(float("nan")) == CoreScale(float("nan"))

    def test_two_classes_are_never_equal(self):
        assert ml.ops.Add() != ml.ops.Mul()

    @pytest.mark.parametrize("made", [CoreScale(0.5, (1, 2)), CoreClassic((1, 0), keep=False)])
    def test_copies_and_pickles_are_equal(self, made):
        for other in (pickle.loads(pickle.dumps(made)), copy.deepcopy(made), copy.copy(made)):
            assert other == made
            assert hash(other) == hash(made)
            assert repr(other) == repr(made)
            assert other.attributes == made.attributes

    @pytest.mark.parametrize("value", [[1, 2], (1, 2), np.array([1, 2]), range(1, 3)])
    def test_sequences_become_tuples_of_python_numbers(self, value):
        axes = CoreScale(1.0, value).axes
        assert axes == (1, 2)
        assert [type(a) for a in axes] == [int, int]

    def test_numpy_scalars_and_dtypes_become_plain(self):
        made = CoreScale(np.float32(0.5), (np.int64(3),), mode=np.str_("slow"))
        assert type(made.factor) is float
        assert type(made.axes[0]) is int
        assert type(made.mode) is str

    @pytest.mark.parametrize("value", [{1: 2}, {1}, object, lambda x: x, [{}]])
    def test_what_cannot_be_a_value_is_refused(self, value):
        with pytest.raises(AttributeRefusedError, match="CoreScale refuses attribute axes="):
            CoreScale(1.0, value)

    def test_tensors_are_inputs_not_attributes(self):
        with pytest.raises(AttributeRefusedError, match="tensors are inputs"):
            CoreScale(1.0, ml.Tensor([1.0]))

    def test_frozen(self):
        made = CoreScale(1.0)
        with pytest.raises(ImmutableError, match="CoreScale is frozen, so factor cannot be set"):
            made.factor = 2.0
        with pytest.raises(ImmutableError, match="CoreScale is frozen, so new cannot be set"):
            made.new = 2.0
        with pytest.raises(ImmutableError, match="cannot be deleted"):
            del made.factor

    def test_constructor_arguments_are_checked(self):
        with pytest.raises(ArityError, match="CoreScale needs attribute factor"):
            CoreScale()
        with pytest.raises(ArityError, match="CoreScale takes 3 attributes"):
            CoreScale(1.0, (), "fast", 4)
        with pytest.raises(ArityError, match="factor twice"):
            CoreScale(1.0, factor=2.0)
        with pytest.raises(AttributeRefusedError, match="CoreScale has no attribute facto"):
            CoreScale(facto=1.0)

    def test_reserved_names_and_class_variables_are_no_attributes(self):
        class CoreReserved(Primitive):
            outputs: tuple[str, ...] = ("a", "b")
            effect: str = "pure"
            size: int = 1

            def infer_shape(self, x):
                return x, x

            def infer_dtype(self, x):
                return x, x

        assert CoreReserved().attributes == {"size": 1}

    def test_string_annotations_are_read(self):
        class CoreStrings(Primitive):
            rate: "float" = 1
            _private: "int" = 3
            shared: "ClassVar[int]" = 4

            def infer_shape(self, x):
                return x

            def infer_dtype(self, x):
                return x

        assert CoreStrings().attributes == {"rate": 1.0}
        assert type(CoreStrings(3).rate) is float

    def test_classes_made_with_type(self):
        rules = {"infer_shape": lambda self, x: x, "infer_dtype": lambda self, x: x}
        made = type("CoreMade", (Primitive,), {"__annotations__": {"n": int}, "n": 2, **rules})
        assert made().attributes == {"n": 2}
        assert made(3) == made(n=3)

    def test_attributes_and_defaults_are_inherited(self):
        class CoreBase(Primitive, abstract=True):
            axis: int = 0
            keep: bool = False

            def infer_shape(self, x):
                return x

            def infer_dtype(self, x):
                return x

        class CoreChild(CoreBase):
            keep = True
            size: int = 4

        assert CoreChild().attributes == {"axis": 0, "keep": True, "size": 4}
        assert CoreChild(1).axis == 1
        assert "CoreBase" not in primitives

    def test_no_code_is_generated_per_class(self):
        assert CoreScale.__init__ is Primitive.__init__
        assert CoreScale.__eq__ is Primitive.__eq__
        assert CoreScale.__hash__ is Primitive.__hash__


class CoreTyped(Primitive):
    """Attributes of all kinds."""

    rate: float = 1.0
    count: int = 1
    flag: bool = False
    word: str | None = "a"
    kind: Literal["max", "mean"] = "max"
    extents: tuple[int, ...] = ()
    pair: tuple[int, float] = (1, 1.0)
    steps: "list[int] | int" = 1
    dtype: np.dtype = np.dtype("f")
    later: "NoSuchName" = 0  # noqa: F821
    anything: object = None
    ambiguous: float = None

    def infer_shape(self, x):
        return x

    def infer_dtype(self, x):
        return x


class TestAnnotations:
    @pytest.mark.parametrize(
        "given",
        [
            {"rate": 2}, {"rate": np.float64(2.0)}, {"count": np.int8(2)}, {"flag": np.True_},
            {"word": None}, {"kind": "mean"}, {"extents": [1, 2]}, {"extents": np.array([1, 2])},
            {"pair": (1, 2)}, {"steps": [1]}, {"dtype": ml.int8}, {"dtype": np.float32},
            {"later": "x"}, {"anything": (1, "x")}, {"ambiguous": None},
        ],
    )  # fmt: skip
    def test_values_of_the_annotated_type_are_taken(self, given):
        (name,) = given
        assert CoreTyped(**given).attributes[name] == getattr(CoreTyped(**given), name)

    @pytest.mark.parametrize(
        ("given", "declared"),
        [
            ({"rate": "big"}, "'big'; it is declared rate: float"),
            ({"rate": True}, "True; it is declared rate: float"),
            ({"rate": None}, "None; it is declared rate: float"),
            ({"count": 1.5}, "1.5; it is declared count: int"),
            ({"flag": 1}, "1; it is declared flag: bool"),
            ({"word": 1}, r"1; it is declared word: str \| None"),
            ({"kind": "min"}, r"'min'; it is declared kind: Literal\['max', 'mean'\]"),
            ({"extents": (1, 2.5)}, r"\(1, 2.5\); it is declared extents: tuple\[int, ...\]"),
            ({"extents": 1}, r"1; it is declared extents: tuple\[int, ...\]"),
            ({"pair": (1, 2, 3)}, r"\(1, 2, 3\); it is declared pair: tuple\[int, float\]"),
            ({"steps": "a"}, r"'a'; it is declared steps: list\[int\] \| int"),
            ({"dtype": "f"}, r"'f'; it is declared dtype: numpy.dtype"),
        ],
    )
    def test_others_are_refused_with_what_is_declared(self, given, declared):
        (name,) = given
        with pytest.raises(
            AttributeRefusedError, match=rf"^CoreTyped got attribute {name}={declared}\n"
        ):
            CoreTyped(**given)

    @pytest.mark.parametrize("x", [np.ones(3, np.float32), ml.Tensor([1.0])])
    def test_the_class_taken_for_the_primitive_is_told_apart(self, x):
        with pytest.raises(AttributeRefusedError, match=r"as in CoreTyped\(\)\(x\)"):
            CoreTyped(x)
        with pytest.raises(ArityError, match=r"takes 0 attributes .* as in Sin\(\)\(x\)\n"):
            ml.ops.Sin(x)

    def test_an_attribute_without_annotation_is_named(self):
        class CoreBare(Primitive):
            alpha = 1.0

            def infer_shape(self, x):
                return x

            def infer_dtype(self, x):
                return x

        message = r"; alpha = 1.0 has no annotation; write alpha: float = 1.0\n"
        with pytest.raises(ArityError, match=message):
            CoreBare(2.0)
        with pytest.raises(AttributeRefusedError, match=message):
            CoreBare(alpha=2.0)


class TestClassic:
    def test_every_bound_argument_is_an_attribute(self):
        made = CoreClassic([1, 0])
        assert made.attributes == {"perm": (1, 0), "keep": True, "extra": (1, 2)}
        assert (made.perm, made.keep, made.rank, made.extra) == ((1, 0), True, 2, (1, 2))
        assert repr(made) == "CoreClassic(perm=(1, 0), keep=True, extra=(1, 2))"

    def test_frozen_once_init_ends(self):
        with pytest.raises(ImmutableError, match="CoreClassic is frozen"):
            CoreClassic((1, 0)).perm = (0, 1)

    def test_attributes_compare(self):
        assert CoreClassic((1, 0)) == CoreClassic([1, 0], True)
        assert CoreClassic((1, 0)) != CoreClassic((0, 1))

    def test_arguments_are_checked(self):
        with pytest.raises(TypeError, match="perm"):
            CoreClassic()

    def test_io_names_must_agree_with_infer_shape(self):
        class CoreMisnamed(Primitive):
            @prim_attr_register
            def __init__(self):
                self.init_prim_io_names(inputs=["a", "b"], outputs=["y"])

            def infer_shape(self, x, y):
                return x

            def infer_dtype(self, x, y):
                return x

        with pytest.raises(DeclarationError, match="CoreMisnamed names its inputs a, b; infer_sh"):
            CoreMisnamed()

    def test_io_names_must_agree_with_outputs(self):
        class CoreTwoOut(Primitive):
            @prim_attr_register
            def __init__(self):
                self.init_prim_io_names(inputs=["x"], outputs=["a", "b"])

            def infer_shape(self, x):
                return x

            def infer_dtype(self, x):
                return x

        with pytest.raises(DeclarationError, match=r"CoreTwoOut names 2 outputs \(a, b\); it has"):
            CoreTwoOut()

    def test_init_without_record_is_refused_by_name(self):
        message = r"CoreForgot.__init__ must call super\(\).__init__\(...\) or carry @prim_attr_reg"
        with pytest.raises(DeclarationError, match=message):

            class CoreForgot(Primitive):
                def __init__(self, alpha):
                    self.alpha = alpha

                def infer_shape(self, x):
                    return x

                def infer_dtype(self, x):
                    return x

        assert "CoreForgot" not in primitives

    def test_an_init_that_calls_another_is_left_alone(self):
        class CoreCalls(Primitive):
            alpha: float

            def __init__(self, half):
                super().__init__(2.0 * half)

            def infer_shape(self, x):
                return x

            def infer_dtype(self, x):
                return x

        assert CoreCalls(0.5).attributes == {"alpha": 1.0}

    def test_annotated_arguments_are_checked(self):
        class CoreAnnotated(PrimitiveWithInfer):
            @prim_attr_register
            def __init__(self, rate: float, name: str | None = None):
                pass

            def infer_shape(self, x):
                return x

            def infer_dtype(self, x):
                return x

        assert CoreAnnotated(2).attributes == {"rate": 2.0, "name": None}
        with pytest.raises(
            AttributeRefusedError, match=r"rate='big'; it is declared rate: float\n"
        ):
            CoreAnnotated("big")


class TestNames:
    def test_input_names_come_from_infer_shape(self):
        assert CoreScale(1.0).input_names == ("x",)
        assert CoreClassic((0,)).input_names == ("x",)

    def test_a_variable_number_of_inputs(self):
        class CoreMany(Primitive):
            def infer_shape(self, *xs):
                return xs[0]

            def infer_dtype(self, *xs):
                return xs[0]

        assert CoreMany().input_names is None

    def test_a_taken_name_is_refused_with_file_and_line(self):
        with pytest.raises(DuplicateError, match=r"'Add' is taken by miniml.*elementwise.py:\d+"):

            class Add(Primitive):
                def infer_shape(self, x, y):
                    return x

                def infer_dtype(self, x, y):
                    return x

        assert primitives["Add"] is ml.ops.Add

    def test_a_name_of_ones_own(self):
        class CoreLocal(Primitive):
            name = "CoreGlobal"

            def infer_shape(self, x):
                return x

            def infer_dtype(self, x):
                return x

        assert primitives["CoreGlobal"] is CoreLocal
        assert repr(CoreLocal()) == "CoreGlobal()"

    def test_no_inference_is_refused_at_definition(self):
        with pytest.raises(DeclarationError, match="CoreNone defines no infer_shape"):

            class CoreNone(Primitive):
                pass


class TestCall:
    def test_too_few_and_too_many_inputs(self):
        with pytest.raises(ArityError, match=r"Add takes 2 inputs \(x, y\); got 1"):
            ml.ops.Add()(ml.Tensor(1.0))
        with pytest.raises(ArityError, match=r"Add takes 2 inputs \(x, y\); got 3"):
            ml.ops.add(1.0, 2.0, 3.0)

    def test_the_error_shows_the_users_line_with_a_caret(self):
        with pytest.raises(ml.errors.ShapeError) as caught:
            ml.ops.add(np.ones(3), np.ones(2))
        (note,) = caught.value.__notes__
        assert note.startswith("Add was called at\n")
        assert f'File "{__file__}"' in note
        lines = note.splitlines()
        assert lines[-2].strip() == "ml.ops.add(np.ones(3), np.ones(2))"
        assert lines[-1].strip() == "^" * len(lines[-2].strip())

    @pytest.mark.parametrize("value", ["text", {}, len])
    def test_what_is_no_tensor_is_refused(self, value):
        with pytest.raises(ml.errors.DTypeError, match=r"Neg got .* for a tensor"):
            ml.ops.neg(value)


def test_a_primitive_made_again_of_the_same_values_is_not_bound_anew():
    made = ops.Transpose((2, 0, 1))._key
    assert ops.Transpose((2, 0, 1))._key is made
    assert ops.Transpose([2, 0, 1])._key == made
    assert ops.Scatter((2, 0, 1))._key != ops.Scatter((2.0, 0, 1))._key


def test_attributes_by_name_are_told_apart_from_tuples_that_look_like_them():
    made = CorePair(1, b=2)
    assert CorePair((1,), (("b", 2),)).attributes == {"a": (1,), "b": (("b", 2),)}
    assert made.attributes == {"a": 1, "b": 2}
