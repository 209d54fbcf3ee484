"""Abstract evaluation: three tracks, const inputs, several outputs, checking primitives."""

import numpy as np
import pytest

import miniml as ml
from miniml import Primitive, kernel, ops
from miniml.core.abstract import Abstract
from miniml.core.infer import infer
from miniml.errors import DeclarationError, ShapeError
from miniml.grad import bprop_getters
from miniml.ops import Unary

SEEN = {}


class InfPermute(Primitive):
    """x with its axes in the order of `perm`, which is a const input."""

    const_inputs = ("perm",)

    def infer_shape(self, x, perm):
        SEEN["infer_shape"] = perm
        return tuple(x[p] for p in perm)

    def infer_dtype(self, x, perm):
        SEEN["infer_dtype"] = perm
        return x

    def infer_value(self, x, perm):
        SEEN["infer_value"] = perm


@kernel("InfPermute", "cpu", "f->f", "d->d")
def permute(x, *, perm, out):
    SEEN["kernel"] = perm
    out[...] = x.transpose(perm)


@bprop_getters.register(InfPermute)
def get_bprop_permute(self):
    def bprop(x, perm, out, dout):
        SEEN["bprop"] = perm
        return InfPermute()(dout, np.argsort(perm)), ml.ops.zeros((len(perm),), "int32")

    return bprop


class InfInvert(Unary):
    """The inverse of a permutation, known without a kernel where its input is constant."""

    def infer_value(self, x):
        return np.argsort(x)


class TestConstInputs:
    @pytest.mark.parametrize(
        "perm",
        [
            (2, 0, 1),
            [2, 0, 1],
            np.array([2, 0, 1]),
            np.array([2, 0, 1], np.uint8),
            ml.Tensor([2, 0, 1]),
            (np.int64(2), ml.Tensor(0), 1),
        ],
    )
    def test_one_normal_value_goes_everywhere(self, perm):
        SEEN.clear()
        x = np.arange(24.0).reshape(2, 3, 4)
        out, pull = ml.grad.vjp(lambda x: InfPermute()(x, perm), x)
        np.testing.assert_array_equal(out.asnumpy(), x.transpose(2, 0, 1))
        (dx,) = pull(out)
        np.testing.assert_array_equal(dx.asnumpy(), x)
        SEEN.clear()
        ml.grad.vjp(lambda x: InfPermute()(x, perm), x)[1](out)
        SEEN.pop("kernel", None), SEEN.pop("infer_shape", None), SEEN.pop("infer_dtype", None)
        assert SEEN["bprop"] == (2, 0, 1)
        assert type(SEEN["bprop"]) is tuple
        assert [type(p) for p in SEEN["bprop"]] == [int, int, int]

    def test_shape_dtype_and_kernel_get_the_same_object(self):
        SEEN.clear()
        InfPermute()(np.zeros((5, 7), np.float32), [1, 0])
        assert set(SEEN) == {"infer_shape", "infer_dtype", "infer_value", "kernel"}
        assert len({id(v) for v in SEEN.values()}) == 1

    def test_a_kernel_attr_does_not_count_them(self):
        class InfTake(Primitive):
            const_inputs = ("index",)

            def infer_shape(self, x, index):
                return ()

            def infer_dtype(self, x, index):
                return x

        attr = ml.KernelAttr().add_input_attr(ml.float32).add_output_attr(ml.float32)

        @kernel("InfTake", "cpu", attr)
        def take(x, *, index, out):
            out[...] = x[index]

        assert InfTake()(ml.Tensor([1.0, 5.0]), 1).item() == 5.0
        two = ml.KernelAttr().add_input_attr(ml.float64).add_input_attr(ml.int64)
        with pytest.raises(DeclarationError, match="has 2 inputs; the primitive has 1: x"):
            kernel("InfTake", "cpu", two.add_output_attr(ml.float64))(take)

    def test_a_name_that_is_no_input_is_refused_at_definition(self):
        with pytest.raises(DeclarationError, match="InfWrong declares const_inputs perm; infer_sh"):

            class InfWrong(Unary):
                const_inputs = ("perm",)


class TestInferValue:
    def test_it_runs_eagerly_and_feeds_a_const_input_without_a_kernel(self):
        x = np.arange(24.0).reshape(2, 3, 4)
        moved = InfPermute()(x, (2, 0, 1))
        back = InfPermute()(moved, InfInvert()(ml.Tensor([2, 0, 1])))
        np.testing.assert_array_equal(back.asnumpy(), x)

    def test_it_runs_while_tracing(self):
        def f(x):
            return InfPermute()(x, InfInvert()(np.array([2, 0, 1])))

        x = np.arange(24.0).reshape(2, 3, 4)
        np.testing.assert_array_equal(ml.jit(f)(x).asnumpy(), x.transpose(1, 2, 0))

    def test_its_result_has_the_dtype_of_the_rules(self):
        assert InfInvert()(np.array([1, 0], np.int32)).dtype == ml.int32

    @pytest.mark.parametrize("run", [lambda f: f, ml.jit])
    def test_its_result_has_the_shapes_of_the_rules(self, run):
        class InfLonger(Unary):
            def infer_value(self, x):
                return np.zeros(3)

        class InfFewer(InfLonger):
            outputs = ("a", "b")

            def infer_shape(self, x):
                return x, x

            def infer_dtype(self, x):
                return x, x

            def infer_value(self, x):
                return (x,)

        one = ml.Tensor(1.0)
        with pytest.raises(DeclarationError, match=r"gave float64\[3\]; its rules say float32\[\]"):
            run(lambda: InfLonger()(one))()
        with pytest.raises(
            DeclarationError, match=r"\[\]; its rules say float32\[\], float32\[\];"
        ):
            run(lambda: InfFewer()(one))()


class InfMinMax(Primitive):
    """The least and the largest element."""

    outputs = ("low", "high")

    def infer_shape(self, x):
        return (), ()

    def infer_dtype(self, x):
        return x, x


@kernel("InfMinMax", "cpu", "f->ff", "d->dd")
def min_max(x, *, out):
    out[0][...], out[1][...] = x.min(), x.max()


class InfParts(Primitive):
    """x cut into `count` equal parts along its first axis."""

    count: int
    outputs = "*parts"

    def infer_shape(self, x):
        return [(x[0] // self.count, *x[1:])] * self.count

    def infer_dtype(self, x):
        return [x] * self.count


@kernel("InfParts", "cpu", "f->f*")
def parts(x, *, count, out):
    for part, piece in zip(out, np.split(x, count), strict=True):
        part[...] = piece


class TestOutputs:
    def test_named_outputs_come_as_a_tuple(self):
        low, high = InfMinMax()(ml.Tensor([3.0, 1.0, 2.0]))
        assert (low.item(), high.item()) == (1.0, 3.0)

    @pytest.mark.parametrize("count", [1, 2, 3])
    def test_a_number_that_depends_on_the_instance(self, count):
        outs = InfParts(count)(ml.Tensor(np.arange(6, dtype=np.float32)))
        assert isinstance(outs, tuple)
        assert [o.shape for o in outs] == [(6 // count,)] * count

    def test_the_rules_must_return_one_entry_per_output(self):
        class InfShort(InfMinMax):
            def infer_dtype(self, x):
                return (x,)

        with pytest.raises(DeclarationError, match=r"InfShort infer_dtype returned .* outputs"):
            InfShort()(1.0)

    def test_the_rules_must_agree_on_the_count(self):
        class InfUneven(InfParts):
            def infer_dtype(self, x):
                return [x]

        with pytest.raises(DeclarationError, match="infer_shape gives 2 outputs and infer_dtype 1"):
            InfUneven(2)(np.zeros(4, np.float32))


class TestRules:
    @pytest.mark.parametrize("shape", [3, (2, -1), (2.0,), None, "ab", [(1,)]])
    def test_a_shape_is_a_tuple_of_python_ints(self, shape):
        class InfBadShape(Primitive):
            def infer_shape(self, x):
                return shape

            def infer_dtype(self, x):
                return x

        with pytest.raises(
            DeclarationError, match=r"InfBadShape infer_shape returned .* a shape is"
        ):
            InfBadShape()(1.0)

    def test_numpy_ints_become_python_ints(self):
        class InfNumpyShape(Primitive):
            def infer_shape(self, x):
                return [np.int64(n) for n in x]

            def infer_dtype(self, x):
                return x

        (out,) = infer(InfNumpyShape(), (Abstract((2, 3), ml.float32),))
        assert out.shape == (2, 3)
        assert [type(n) for n in out.shape] == [int, int]

    @pytest.mark.parametrize("dtype", [None, "float32", (2,)])
    def test_a_dtype_is_a_dtype(self, dtype):
        class InfBadDtype(Primitive):
            def infer_shape(self, x):
                return x

            def infer_dtype(self, x):
                return dtype

        with pytest.raises(DeclarationError, match="InfBadDtype infer_dtype returned"):
            InfBadDtype()(1.0)


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: ops.zeros((2**62, 2**62)), "Full gives an array of shape"),
        (lambda: ops.zeros((2**61,)), r"less than 2\*\*63 bytes"),
        (lambda: ops.zeros((2**40, 2**40, 0)), "Full gives an array of shape"),
        (lambda: ops.zeros((1,) * 65), "Full gives an array of 65 axes"),
    ],
)
def test_a_shape_that_no_array_can_have_is_refused(make, says):
    with pytest.raises(ShapeError, match=says):
        make()
    with pytest.raises(ShapeError, match=says):
        ml.jit(make)()


def test_rules_of_the_library_are_asked_once_for_types_and_a_users_own_each_time(monkeypatch):
    """So opcheck finds what a user's rule changes, and a rule that is replaced holds at once."""
    asked = []

    class InfOnce(Primitive):
        scale: float = 1.0

        def infer_shape(self, x):
            asked.append(self.scale)
            return x

        def infer_dtype(self, x):
            return x

    def counted(self, x):
        asked.append(self.shape)
        return (77, 13)

    monkeypatch.setattr(ops.Reshape, "infer_shape", counted)
    x, wide = Abstract((7, 143), ml.float32), Abstract((7, 143), ml.float64)
    for given in (x, x, wide, x):
        (out,) = infer(InfOnce(), (given,))
        assert (out.shape, out.dtype) == ((7, 143), given.dtype)
        (out,) = infer(ops.Reshape((77, 13)), (given,))
        assert (out.shape, out.dtype) == ((77, 13), given.dtype)
    assert asked.count((77, 13)) == 2
    assert asked.count(1.0) == 4
    for perm in ((0, 1), (1, 0), (False, True)):  # equal to the first as a tuple
        infer(InfPermute(), (x, perm))
        assert SEEN["infer_shape"] is perm
