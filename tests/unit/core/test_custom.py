"""ops.Custom: operators known by the name of their type, with byte strings as attributes."""

import copy
import pickle

import numpy as np
import pytest

import miniml as ml
from miniml import infer_rule, kernel, ops
from miniml.errors import (
    ArityError,
    AttributeRefusedError,
    BpropNotFoundError,
    DeclarationError,
    DuplicateError,
    KernelNotFoundError,
    ShapeError,
)
from miniml.grad import bprop_getters, grad
from miniml.ops import pack_attribute, unpack_attribute
from miniml.testing import OpInfo, Sample, opcheck

PAIR = {"input_num": pack_attribute(2, "<i4"), "op_kind": b"custom op"}
X = np.array([1.0, 2.0], np.float32)


@infer_rule("CustomSum")
def sum_rule(*xs, input_num):
    count = unpack_attribute({"input_num": input_num}, "input_num", "<i4")
    if len(xs) != count:
        raise ArityError(f"CustomSum has input_num {count}; got {len(xs)} inputs")
    if len({x.shape for x in xs}) > 1:
        raise ShapeError("CustomSum takes equal shapes")
    return xs[0]


@kernel("CustomSum", "cpu", "f*->f", "d*->d")
def sum_cpu(*xs, op_kind, out):
    assert op_kind == b"custom op"
    np.sum(xs, axis=0, out=out)


@bprop_getters.register("CustomSum")
def sum_bprop(self):
    count = unpack_attribute(self.attributes, "input_num", "<i4")

    def bprop(*inputs_out_dout):
        return (inputs_out_dout[-1],) * count

    return bprop


def test_it_is_found_by_the_name_of_its_type_everywhere():
    both = ops.Custom("CustomSum", PAIR)
    np.testing.assert_array_equal(both(X, X).asnumpy(), 2 * X)
    np.testing.assert_array_equal(ml.jit(lambda x: both(x, x) * 3)(X).asnumpy(), 6 * X)
    np.testing.assert_array_equal(grad(lambda x: both(x, x).sum())(X).asnumpy(), [2.0, 2.0])
    text = str(ml.trace(both, X, X))
    assert r"= CustomSum(input_num=b'\x02\x00\x00\x00', op_kind=b'custom op') %0, %1" in text
    assert "CustomSum" in str(ml.explain(lambda x: both(x, x), X))


def test_opcheck_finds_no_fault_in_it():
    def samples(rng, dtype):
        x, y = rng.uniform(-1, 1, (2, 3, 2)).astype(dtype)
        yield Sample((x, y), {"type": "CustomSum", "attrs": PAIR})

    row = OpInfo(ops.Custom, samples, lambda x, y, type, attrs: x + y, domain="finite numbers")
    # Whatever number of inputs is tried: the combinations of dtypes take seconds to refuse.
    assert opcheck(ops.Custom("CustomSum", PAIR), row, budget=30).ok


def test_it_is_a_value():
    one, other = ops.Custom("CustomSum", PAIR), ops.Custom("CustomSum", dict(PAIR))
    assert one == other
    assert hash(one) == hash(other)
    assert one != ops.Custom("CustomSum", {**PAIR, "op_kind": b""})
    assert one != ops.Custom("CustomSum", PAIR, outputs=2)
    assert pickle.loads(pickle.dumps(one)) == copy.deepcopy(one) == eval(repr(one), vars(ops))
    assert isinstance(one, ops.Custom)
    assert one.input_num == PAIR["input_num"]


def test_several_outputs_come_as_a_tuple():
    infer_rule("CustomTwice")(lambda x: (x, x))

    @kernel("CustomTwice", "cpu", "f->ff")
    def twice(x, *, out):
        out[0][...], out[1][...] = x, 2 * x

    first, second = ops.Custom("CustomTwice", outputs=2)(X)
    np.testing.assert_array_equal(second.asnumpy(), 2 * first.asnumpy())
    with pytest.raises(DeclarationError, match=r"infer_rule gave .* for outputs \('out',\)"):
        ops.Custom("CustomTwice")(X)


def test_without_a_rule_it_gives_what_its_first_input_is_or_what_it_declares():
    x = X.astype(np.float64)
    kernel("CustomLike", "cpu", "df->d")(np.add)
    plain = ops.Custom("CustomLike", {"input_num": b"\x02\x00\x00\x00"})
    np.testing.assert_array_equal(plain(x, X).asnumpy(), 2 * x)
    assert "%2: float64[2] = CustomLike(" in str(ml.trace(plain, x, X))
    with pytest.raises(DeclarationError, match=r"no infer_rule.*@infer_rule\('CustomLike'\)"):
        ops.Custom("CustomLike", outputs=2)(X)
    with pytest.raises(DeclarationError, match=r"no infer_rule, and no tensor that its outputs"):
        ops.Custom("CustomLike")()
    declared = ops.Custom("CustomBare", outputs=[ml.Tensor(X)])
    graph = ml.trace(declared, X)
    assert "%1: float32[2] = CustomBare() %0" in str(graph)
    with pytest.raises(KernelNotFoundError, match=r"@kernel\('CustomBare'"):
        graph(X)
    kernel("CustomBare", "cpu", "f->f")(np.negative)
    np.testing.assert_array_equal(graph(X).asnumpy(), -X)
    with pytest.raises(BpropNotFoundError, match=r"@bprop_getters.register\('CustomBare'\)"):
        grad(lambda x: declared(x).sum())(X)


def test_kernels_get_the_attributes_that_they_name():
    infer_rule("CustomNamed")(lambda x: x)

    @kernel("CustomNamed", "cpu", "f->f")
    def named(x, *, factor, out):
        np.multiply(x, np.frombuffer(factor, "<f4"), out=out)

    given = {"factor": pack_attribute(3, "<f4"), "a name!": b"", "lambda": b""}
    call = ops.Custom("CustomNamed", given)
    np.testing.assert_array_equal(call(X).asnumpy(), 3 * X)
    np.testing.assert_array_equal(ml.jit(call)(X).asnumpy(), 3 * X)
    with pytest.raises(DeclarationError, match="asks for factor; the call has the attributes none"):
        ops.Custom("CustomNamed")(X)

    @kernel("CustomAll", "cpu", "f->f")
    def all_of_them(x, *, out, **attrs):
        out[...] = len(attrs)

    declared = ops.Custom("CustomAll", given, outputs=[X])
    np.testing.assert_array_equal(ml.jit(declared)(X).asnumpy(), [3.0, 3.0])


def test_two_images_are_added_as_in_the_engines_own_test():
    infer_rule("CustomTestData")(lambda x, y: x)

    @kernel("CustomTestData", "cpu", "ff->f")
    def add(x, y, *, test_key, out):
        assert test_key == b"test_data"
        np.add(x, y, out=out)

    one, other = np.zeros((2, 1, 28, 28, 3), np.float32)
    one.flat[0], other.flat[0] = 10, 20
    out = ops.Custom("CustomTestData", {"test_key": b"test_data"})(one, other)
    assert (out.asnumpy().flat[0], out.size, out.dtype) == (30.0, 2352, ml.float32)


def test_names_are_global():
    with pytest.raises(DuplicateError, match=r"'Add' is taken by the primitive miniml\.ops\.el"):
        ops.Custom("Add")
    ops.Custom("CustomTaken")
    with pytest.raises(DuplicateError, match=r"'CustomTaken' is taken by .*test_custom.py"):

        class CustomTaken(ml.Primitive):
            like = "x"

            def infer_shape(self, x):
                return x

            def infer_dtype(self, x):
                return x


@pytest.mark.parametrize(
    ("given", "match"),
    [
        (("Custom Odd", {}), "type 'Custom Odd'; it is a name"),
        ((3, {}), "type 3"),
        (("CustomOdd", {"n": 3}), "attribute n=3 of type int; its attributes are bytes"),
        (("CustomOdd", {"n": "text"}), "pack_attribute"),
        (("CustomOdd", {3: b""}), "an attribute named 3"),
        (("CustomOdd", {"out": b""}), "not 'out', which kernels fill"),
        (("CustomOdd", {}, ["float32"]), "outputs with 'float32'; give their number"),
        (("CustomOdd", {}, -1), "CustomOdd got outputs=-1; give their number"),
        (("CustomOdd", {}, X), r"CustomOdd got outputs=array.*a list with a value"),
        (("CustomOdd", ["n"]), r"CustomOdd got the attributes \['n'\]; give bytes by name"),
    ],
)
def test_other_types_and_attributes_are_refused(given, match):
    with pytest.raises(AttributeRefusedError, match=match):
        ops.Custom(*given)


@pytest.mark.parametrize(
    ("value", "kind", "shape", "expected"),
    [
        (3, "<i4", (), b"\3\0\0\0"),
        (3, ">i4", (), b"\0\0\0\3"),
        (True, bool, (), b"\1"),
        (-0.5, ml.float32, (), b"\0\0\0\xbf"),
        (((1, 2), (3, 4)), np.uint8, (2, -1), b"\1\2\3\4"),
        ((), "<i8", (-1,), b""),
        ("é", str, (), b"\xc3\xa9"),
        (1.5, ml.bfloat16, (), b"\xc0\x3f"),
    ],
)
def test_packing_and_unpacking(value, kind, shape, expected):
    assert pack_attribute(value, kind) == expected
    assert unpack_attribute({"a": expected}, "a", kind, shape) == value


@pytest.mark.parametrize(
    ("value", "kind"), [(2**31, "<i4"), (-1, "u1"), (0.5, "i8"), ("3", "i4"), ([1, [2]], "i4")]
)
def test_a_number_that_does_not_fit_is_not_packed(value, kind):
    with pytest.raises(AttributeRefusedError, match="cannot hold it"):
        pack_attribute(value, kind)


@pytest.mark.parametrize(
    ("data", "kind", "shape", "match"),
    [
        (b"\1\2\3", "<i4", (), "'a' has 3 bytes; expected 4, for int32"),
        (b"\1\2\3\4\5", "<i4", (), "'a' has 5 bytes; expected 4"),
        (b"\1\2\3", "<i2", (-1,), "'a' has 3 bytes; expected a multiple of 2"),
        (b"\1\2", "<i2", (10**9,), "'a' has 2 bytes; expected 2000000000"),
        (b"", "<i2", (-1, -1), "'a' has 0 bytes"),
        (b"", "<i2", (-1, 0), "'a' has 0 bytes; expected"),
        (b"", "<i2", (0, 2, -1), "'a' has 0 bytes; expected"),
        (b"\xff", str, (), "'a' is no UTF-8 text"),
        (b"\1", "nonsense", (), "kind 'nonsense'"),
        (b"\1\2\3\4\5\6\7\0", "<M8[s]", (), "kind '<M8"),
    ],
)
def test_bytes_of_another_length_or_type_are_refused(data, kind, shape, match):
    with pytest.raises(AttributeRefusedError, match=match):
        unpack_attribute({"a": data}, "a", kind, shape)
    with pytest.raises(AttributeRefusedError, match="'b' is missing; there are a"):
        unpack_attribute({"a": data}, "b", "<i4")
