"""Primitives that only check, and primitives whose output shapes depend on values."""

import numpy as np
import pytest

import miniml as ml
from miniml import Kernel, Primitive, PrimitiveWithCheck, infer_rule, kernel
from miniml.core.abstract import Abstract
from miniml.errors import DeclarationError, ShapeError


class TestPrimitiveWithCheck:
    def test_it_validates_and_its_output_is_like_input_0(self):
        class InfChecked(PrimitiveWithCheck):
            def check_shape(self, x, y):
                if x != y:
                    raise ShapeError(f"InfChecked wants equal shapes; got {x} and {y}")

            def check_dtype(self, x, y):
                pass

        @kernel("InfChecked", "cpu", "ff->f")
        def checked(x, y, *, out):
            np.add(x, y, out=out)

        assert InfChecked()(ml.Tensor([1.0]), ml.Tensor([2.0])).tolist() == [3.0]
        assert InfChecked().input_names == ("x", "y")
        with pytest.raises(ShapeError, match="InfChecked wants equal shapes"):
            InfChecked()(ml.Tensor([1.0]), ml.Tensor([2.0, 3.0]))

    def test_an_infer_rule_says_otherwise(self):
        class InfRuled(PrimitiveWithCheck):
            def check_shape(self, x):
                pass

        @infer_rule("InfRuled")
        def ruled(x):
            return Abstract((x.size,), ml.int64)

        @kernel("InfRuled", "cpu", "f->l")
        def count(x, *, out):
            out[...] = np.arange(x.size)

        assert InfRuled()(ml.Tensor([[1.0, 2.0], [3.0, 4.0]])).tolist() == [0, 1, 2, 3]

    def test_a_rule_gives_an_abstract_for_each_output(self):
        class InfPair(PrimitiveWithCheck):
            outputs = ("a", "b")

            def check_shape(self, x):
                pass

        with pytest.raises(
            DeclarationError, match="InfPair has no infer_rule, which gives float32"
        ):
            InfPair()(1.0)
        infer_rule("InfPair")(lambda x: ((2, 3), x))
        with pytest.raises(
            DeclarationError, match=r"InfPair infer_rule gave \(2, 3\), float32\[\] fo"
        ):
            InfPair()(1.0)

    def test_a_rule_that_would_never_be_asked_is_refused(self):
        class InfOwnRules(Primitive):
            like = "x"
            inputs = ("x",)

        for name in ("Maximum", "InfOwnRules"):
            with pytest.raises(DeclarationError, match=f"{name} .* infers by itself"):
                infer_rule(name)(lambda *xs: xs[0])
        assert ml.ops.maximum(1.0, 2.0).item() == 2.0

    def test_a_rule_may_come_before_its_class_but_not_before_one_that_infers(self):
        for name in ("InfEarlyCheck", "InfEarlyOwn"):
            infer_rule(name)(lambda x: Abstract((), x.dtype))

        class InfEarlyCheck(PrimitiveWithCheck):
            def check_shape(self, x):
                pass

        assert ml.core.infer.infer(InfEarlyCheck(), (Abstract((3,), ml.float32),))[0].shape == ()
        with pytest.raises(DeclarationError, match=r"InfEarlyOwn .* infers by itself"):

            class InfEarlyOwn(Primitive):
                like = "x"
                inputs = ("x",)

    def test_a_class_that_is_defined_again_with_rules_of_its_own_drops_the_rule(self):
        def defined(base, body):
            return type("InfAgain", (base,), {"__module__": __name__, **body})

        defined(PrimitiveWithCheck, {"check_shape": lambda self, x: None})
        infer_rule("InfAgain")(lambda x: Abstract((), x.dtype))
        own = {"infer_shape": lambda self, x: x, "infer_dtype": lambda self, x: x}
        again = defined(Primitive, own)()
        assert ml.core.infer.infer(again, (Abstract((3,), ml.float32),))[0].shape == (3,)


class TestDynamicOutputs:
    def test_eager_only(self):
        class InfNonZero(Primitive):
            dynamic_outputs = True
            differentiable = False

            def infer_shape(self, x):
                raise AssertionError("a dynamic shape is not inferred")

            def infer_dtype(self, x):
                return ml.int64

        @kernel("InfNonZero", "cpu", "f->l")
        def non_zero(x):
            return np.flatnonzero(x)

        x = ml.Tensor([0.0, 1.0, 2.0])
        assert InfNonZero()(x).tolist() == [1, 2]
        assert InfNonZero()(ml.Tensor(np.array([0, 3], np.int8))).tolist() == [1]
        with pytest.raises(ml.errors.GraphError, match="InfNonZero gives shapes that depend on"):
            ml.jit(InfNonZero())(x)

    def test_what_comes_back_is_what_the_signature_says(self):
        class InfLines(Primitive):
            dynamic_outputs = True
            outputs = ("rows", "columns")

            def infer_shape(self, x):
                return x, x

            def infer_dtype(self, x):
                return ml.int64, ml.int64

        kernel("InfLines", "cpu", "f->ll")(lambda x: np.nonzero(x)[:1])
        with pytest.raises(DeclarationError, match="InfLines kernel f->ll returned int64; return"):
            InfLines()(ml.Tensor([[1.0]]))

    @pytest.mark.parametrize("first", ["kernel", "primitive"])
    def test_a_kernel_that_needs_to_know_the_shapes_is_refused(self, first):
        name = f"InfKept{first.title()}"

        class Keeps(Kernel):
            def prepare(self, node):
                self.call = lambda x, out: None

        def define():
            infer = {f"infer_{of}": lambda self, x: x for of in ("shape", "dtype")}
            type(name, (Primitive,), {"__module__": __name__, "dynamic_outputs": True, **infer})

        steps = [lambda: kernel(name, "cpu", "f->f")(Keeps), define]
        accepted, refused = steps if first == "kernel" else steps[::-1]
        accepted()
        with pytest.raises(DeclarationError, match=f"{name} kernel f->f has to know the shapes"):
            refused()
