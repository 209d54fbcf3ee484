"""Facts in the class of a user's primitive: checked where it is defined, read by every pass."""

from contextlib import contextmanager

import numpy as np
import pytest

import miniml as ml
from miniml import ops
from miniml.backends import registry
from miniml.backends.selection import follows
from miniml.cli.show import describe
from miniml.core.abstract import OTHERS, Abstract
from miniml.core.infer import contradictions
from miniml.core.primitive import primitives
from miniml.core.trace import use_trace
from miniml.errors import DeclarationError
from miniml.graph.passes import run_passes
from miniml.runtime.program import Program
from miniml.testing import opcheck
from miniml.testing.calls import Call, calls, dtypes_of
from miniml.testing.gradchecks.derivative import Perturbation, Rounding
from tests.frame.native import needs_compiler
from tests.opinfo import ROWS

X = np.linspace(-2, 2, 24, dtype=np.float32).reshape(2, 3, 4)


@contextmanager
def defined(name, kernel, infer_shape, signatures=("f->f", "d->d"), **body):
    """A primitive for this block only."""
    cls = type(name, (ml.Primitive,), {"infer_shape": infer_shape, "__module__": __name__, **body})
    ml.kernel(name, "cpu", *signatures)(kernel)
    try:
        yield cls
    finally:
        registry.forget(name)
        registry.specs.pop(name)
        primitives.pop(name)


def flattened():
    def fact_flat(x, *, out):
        out[...] = x.reshape(out.shape)

    def shape(self, x):
        return (int(np.prod(x)),)

    return defined("FactFlat", fact_flat, shape, view="reshape")


def turned():
    def fact_turn(x, *, axes, out):
        out[...] = x.transpose(axes)

    def shape(self, x):
        return tuple(x[a] for a in self.axes)

    more = {"__annotations__": {"axes": tuple[int, ...]}, "view": "transpose"}
    return defined("FactTurn", fact_turn, shape, **more)


def total(reduces="sum", numpy=np.sum, name="FactTotal", **more):
    def fact_total(x, *, axis, out):
        numpy(x, axis, out=out)

    def shape(self, x):
        return tuple(n for i, n in enumerate(x) if i != self.axis % len(x))

    more = {"__annotations__": {"axis": int}, "reduces": reduces, **more}
    return defined(name, fact_total, shape, **more)


REFUSED = {
    "view": ("square", "has view = 'square'; \"reshape\" is the input in another shape"),
    "reduces": ("median", 'has reduces = \'median\'; "sum", "mean"'),
    "elementwise": ("yes", "has elementwise = 'yes'; True computes each element"),
    "rounds": ("always", "has rounds = 'always'; True rounds every result"),
    "implicit": (1.5, "has implicit = 1.5; True has gradients of a distribution"),
    "images": (("x", "y"), r"has images = \('x', 'y'\); it is a tuple of names of inputs and outp"),
    "linear": ("x", "has linear = 'x'; it is a tuple of names of inputs: x"),
    "by_element": (("f", "d"), "it is a string of type codes, as in 'fd'"),
    "flops": (3, r"has flops = 3; flops\(self, inputs, outputs\) gives"),
}


@pytest.mark.parametrize("fact", REFUSED)
def test_a_fact_of_another_kind_is_refused_where_the_class_is_defined(fact):
    value, says = REFUSED[fact]
    with pytest.raises(DeclarationError, match=says):
        type("FactRefused", (ml.Primitive,), {fact: value, "infer_shape": lambda self, x: x})
    assert "FactRefused" not in primitives


CLAIMS = {  # a fact, infer_shape, infer_dtype, and the sentence
    "an axis in front is taken away": (
        {"batch": "leading"}, lambda self, x: x[1:], None,
        r"of \(2, 4, 3, 3\) gives \(4, 3, 3\), and of \(5, 2, 4, 3, 3\) gives \(2, 4, 3, 3\), "
        r"where one more axis .*; take the fact out, or register a batch rule: @batch_rules.re"),
    "axes in reverse": ({"batch": "leading"}, lambda self, x: x[::-1], None, "its"),
    "a reduction to one number": ({"batch": "leading"}, lambda self, x: (), None, "its"),
    "only matrices": (
        {"batch": "leading"}, lambda self, x: (x[0], x[1]) if len(x) == 2 else 1 / 0, None,
        r"and of \(5, 3, 3\) raises ZeroDivisionError"),
    "not an element for each": (
        {"elementwise": True}, lambda self, x: x[:-1], None,
        r"elementwise = True; its infer_shape of \(2, 4, 3, 3\) gives \(2, 4, 3\), and it would"),
    "two of them": ({"elementwise": True}, lambda self, x, y: (*x, *y), None, "elementwise"),
    "bools of floats": (
        {"linear": ("x",)}, lambda self, x: x, lambda self, x: ml.bool_,
        "its infer_dtype of float32 gives bool, and a linear function of floats gives floats"),
    "no input": ({"linear": ("",)}, lambda self, x: x, None, "each entry names inputs in which"),
    "one input twice": ({"linear": ("x x",)}, lambda self, x: x, None, "each one once"),
    "shapes of values": (
        {"elementwise": True, "dynamic_outputs": True}, lambda self, x: x, None,
        "with dynamic_outputs = True its shapes depend on values; take one out"),
}  # fmt: skip


@pytest.mark.parametrize("what", CLAIMS)
def test_a_claim_that_the_rules_contradict_is_refused_where_the_class_is_defined(what):
    facts, shape, dtype, says = CLAIMS[what]
    body = facts | {"infer_shape": shape} | ({"infer_dtype": dtype} if dtype else {})
    with pytest.raises(DeclarationError, match=says):
        type("FactClaims", (ml.Primitive,), body)
    assert "FactClaims" not in primitives


@pytest.mark.parametrize(
    "body",
    [
        {"batch": "leading", "infer_shape": lambda self, x: x[:-2]},  # takes vectors, too
        {"batch": "leading", "infer_shape": lambda self, x: (*x[:-2], x[-1], x[-2])},
        {"batch": "leading", "infer_shape": lambda self, x, y: (*x[:-1], y[-1])},
        {"elementwise": True, "infer_shape": ops.rules.broadcast},
        {"linear": ("x",), "infer_shape": lambda self, x, n: x, "const_inputs": ("n",)},
        {"batch": "leading", "infer_shape": lambda self, x: 1 / 0},  # told by the first call
    ],
)
def test_a_claim_that_holds_passes(body):
    try:
        type("FactHolds", (ml.Primitive,), {**body, "__module__": __name__})
    finally:
        registry.specs.pop("FactHolds")
        primitives.pop("FactHolds")


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.primitive.name)
def test_the_library_claims_what_its_rules_say(row):
    """Its classes are not tried at import; here they are, on the shapes of their samples."""
    cls = row.primitive
    if not (cls.elementwise or cls.batch or cls.linear):
        return
    tried = 0
    for call in calls(row, (dtypes_of(row) or [ml.float32])[-1], np.random.default_rng(0)):
        types = [Abstract(a.shape, a.dtype) for a in call.arrays]
        found = contradictions(call.primitive, types, call.consts)
        assert not found, found
        tried += found is not None
    assert tried


def test_a_view_has_one_input_and_its_order_is_an_attribute():
    with pytest.raises(DeclarationError, match="of one input and one output; it has x, y -> out"):
        type("FactTwo", (ml.Primitive,), {"view": "same", "infer_shape": lambda self, x, y: x})
    with pytest.raises(DeclarationError, match="its order is the attribute axes, which it lacks"):
        type("FactAxes", (ml.Primitive,), {"view": "transpose", "infer_shape": lambda self, x: x})


def test_a_fact_is_inherited_and_overridden_and_an_annotated_name_is_an_attribute():
    assert ops.Softmax.elementwise is False
    assert ops.Tanh.elementwise

    def fact_field(x, *, view, out):
        out[...] = x

    with defined("FactField", fact_field, lambda self, x: x, __annotations__={"view": str}) as cls:
        assert cls("mine").attributes == {"view": "mine"}
        assert cls.view is None


def test_a_reshape_of_a_users_reshape_is_one():
    with flattened() as flat:
        graph = run_passes(ml.trace(lambda x: ops.reshape(flat()(x), (3, 8)), X))
        assert [n.primitive for n in graph.nodes] == [ops.Reshape((3, 8))]
        graph = run_passes(ml.trace(lambda x: flat()(ops.reshape(x, (24,))), X))
        assert [n.primitive.name for n in graph.nodes] == ["Reshape"]


def in_c(fn):
    """The program of fn in C, and its output."""
    with ml.context(providers=("cc", "miniml")):
        program = Program(ml.trace(fn, X))
        return program.graph, program(X)[0]


@needs_compiler
@pytest.mark.parametrize("view", [flattened, turned])
def test_a_users_view_is_read_inside_a_fused_loop(view):
    with view() as cls:
        made = cls() if view is flattened else cls((2, 0, 1))

        def fn(x):
            return ops.exp(made(ops.tanh(x))) * 2.0

        graph, got = in_c(fn)
        assert [n.primitive.name for n in graph.nodes] == ["Fused"]
        assert np.allclose(got, fn(X), rtol=1e-6)


@needs_compiler
@pytest.mark.parametrize(("reduces", "numpy"), [("mean", np.mean), ("max", np.max)])
def test_a_users_reduction_joins_a_fused_loop(reduces, numpy):
    with total(reduces, numpy) as cls:

        def fn(x):
            return ops.exp(x) - ops.reshape(cls(-1)(ops.tanh(x)), (2, 3, 1))

        graph, got = in_c(fn)
        assert [n.primitive.name for n in graph.nodes] == ["Fused"]
        assert np.allclose(got, fn(X), rtol=1e-5, atol=1e-6)


def test_the_maximum_of_one_element_is_the_element():
    def fact_peak(x, *, axis, out):
        np.max(x, axis, keepdims=True, out=out)

    def shape(self, x):
        return tuple(1 if i == self.axis else n for i, n in enumerate(x))

    more = {"__annotations__": {"axis": int}, "reduces": "max"}
    with defined("FactPeak", fact_peak, shape, **more) as peak:
        graph = run_passes(ml.trace(peak(0), X[:1]))
        assert not graph.nodes


def test_a_users_elementwise_kernel_follows_memory_formats():
    def fact_wave(x, *, out):
        np.sin(x, out=out)

    images, filters = np.ones((2, 3, 6, 6), np.float32), np.ones((3, 3, 3, 3), np.float32)
    counts = []
    for elementwise in (False, True):
        with defined("FactWave", fact_wave, lambda self, x: x, elementwise=elementwise) as wave:

            def fn(x, w, wave=wave):
                return ops.conv2d(wave()(ops.conv2d(x, w)), w)

            assert follows("FactWave") == elementwise
            with ml.context(providers=("miniml",), formats=("NHWC",)):
                graph = Program(ml.trace(fn, images, filters)).graph
                assert np.allclose(ml.jit(fn)(images, filters), fn(images, filters), rtol=1e-5)
            counts.append(sum(n.primitive.name == "Convert" for n in graph.nodes))
    assert counts == [4, 2]


def test_a_users_kernel_of_images_reads_and_writes_them_in_other_formats():
    def fact_doubled(x, *, out):
        np.multiply(x, 2, out=out)

    images, filters = np.ones((2, 3, 6, 6), np.float32), np.ones((3, 3, 3, 3), np.float32)
    facts = {"images": ("x", "out")}
    with defined("FactDoubled", fact_doubled, lambda self, x: x, **facts) as doubled:

        def fn(x, w):
            return ops.conv2d(doubled()(ops.conv2d(x, w)), w)

        with ml.context(providers=("miniml",), formats=("NHWC",)):
            graph = Program(ml.trace(fn, images, filters)).graph
            assert np.allclose(ml.jit(fn)(images, filters), fn(images, filters))
        assert sum(n.primitive.name == "Convert" for n in graph.nodes) == 2
        assert opcheck(doubled, raise_error=False, checks=("kernels", "layouts")).ok
        own = ml.KernelAttr().add_input_attr("float32", "NHWC").add_output_attr("float32", "NHWC")
        ml.kernel("FactDoubled", "cpu", own)(twice)  # comes before what follows from another
        entries = [e for e in registry.table["FactDoubled", "cpu"] if e.signature.arranged]
        assert [e.body is twice for e in entries].count(True) == 1
        assert len(entries) == 2 * len(OTHERS)


def test_flops_of_a_view_are_none():
    with flattened() as flat, total() as cls:
        abstract = ml.trace(flat(), X).nodes[0].outputs[0].abstract
        assert flat().flops([abstract], [abstract]) == 0
        assert cls(0).flops([abstract], [abstract]) == 24


def test_show_tells_the_facts():
    with total(linear=("x",)) as cls:
        assert "\nreduces: sum\nlinear: x\n" in describe(cls)
    facts = "\nelementwise: True\nrounds: True\ntakes_complex: True\nlinear: x y\n"
    assert facts in describe(ops.Add)
    assert "\nview: transpose\n" in describe(ops.Transpose)


def twice(x, *, out):
    np.multiply(x, 2, out=out)


def shifted(x, *, out):
    out.reshape(-1)[...] = np.roll(x.reshape(-1), 1)


def same(self, x):
    return x


FALSE = {
    "view": lambda: defined("FactWrong", twice, same, view="same"),
    "reduces": lambda: total("max", np.min, name="FactWrong"),
    "elementwise": lambda: defined("FactWrong", shifted, same, elementwise=True),
    "linear": lambda: defined(
        "FactWrong", lambda x, *, out: np.square(x, out=out), same, linear=("x",)
    ),
}


@pytest.mark.parametrize("fact", FALSE)
def test_opcheck_names_a_false_fact(fact):
    with FALSE[fact]() as cls:
        subject = cls(0) if fact == "reduces" else cls
        report = opcheck(subject, raise_error=False, checks=("facts",))
        assert {f.check for f in report.faults} == {"facts"}
        assert f"{fact} = " in str(report)


@pytest.mark.parametrize("made", [flattened, turned, total])
def test_opcheck_passes_a_true_fact(made):
    with made() as cls:
        subject = {flattened: cls, turned: None, total: None}[made]
        subject = subject or (cls((1, 0)) if made is turned else cls(0))
        report = opcheck(subject, raise_error=False, checks=("facts", "in C"))
        assert not report.findings
        assert report.calls["facts"]


@pytest.mark.parametrize(("rounds", "moved"), [(True, True), (None, False), (False, False)])
def test_a_result_that_equals_an_input_is_rounded_where_the_class_says_so(rounds, moved):
    def fact_same(x, *, out):
        out[...] = x

    with defined("FactSame", fact_same, lambda self, x: x, rounds=rounds) as cls:
        rounding = Rounding(Perturbation(0.125), np.random.default_rng(0))
        with use_trace(rounding):
            out = cls()(ml.Tensor(X))
        assert bool((out.asnumpy() != X).any()) == moved


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("infershape", r"did you mean infer_shape\?"),
        ("inferDtype", r"did you mean infer_dtype\?"),
        ("bprob", r"did you mean bprop\?"),
        ("computes", r"did you mean compute\?"),
        ("forward", r"compute\(self, \*arrays, out\) is its kernel"),
        ("backward", r"bprop\(self, \*inputs, out, dout\) is its gradient"),
        ("jvp", r"@miniml.grad.jvp_rules.register\(FactSpelt\)"),
    ],
)
def test_a_method_by_a_name_that_is_nearly_read_is_refused(name, says):
    body = {name: lambda self, x: x, "like": "x", "__module__": __name__}
    with pytest.raises(DeclarationError, match=f"FactSpelt defines {name}, which .*; .*{says}"):
        type("FactSpelt", (ml.Primitive,), body)
    assert "FactSpelt" not in primitives


@pytest.mark.parametrize(
    ("name", "value", "meant"),
    [
        ("input", ("x",), "inputs"),
        ("expresion", "x * x", "expression"),
        ("promotes", "float", "promote"),
        ("autoCast", "low", "autocast"),
    ],
)
def test_a_fact_by_a_name_that_is_nearly_read_is_refused(name, value, meant):
    with pytest.raises(DeclarationError, match=rf"{name}, .* mean {meant}\?.*: _{name}\)"):
        type("FactSpelt", (ml.Primitive,), {name: value, "like": "x", "__module__": __name__})


def test_names_of_ones_own_and_attributes_are_not_taken_for_others():
    def fact_own(x, *, jvp, out):
        out[...] = x * jvp

    def shape(self, x):
        return self.reduce(self._forward(x))

    own = {"reduce": lambda self, x: x, "_forward": lambda self, x: x, "rows": 3, "Views": dict}
    attributes = {"__annotations__": {"jvp": float}, "jvp": 2.0}  # annotated, so an attribute
    with defined("FactOwn", fact_own, shape, **own, **attributes) as cls:
        assert np.array_equal(cls()(X), 2 * X)


def test_ordered_inputs_are_sorted_wherever_a_check_makes_a_call():
    row, values = np.array([3.0, np.nan, 1.0]), np.array([2.0, 1.0])
    call = Call(ops.SearchSorted(), (row, values))
    for made in (call, call.on((row[::-1], values))):
        np.testing.assert_array_equal(made.arrays[0], [1.0, 3.0, np.nan])
        np.testing.assert_array_equal(made.arrays[1], values)
    assert row[0] == 3.0


def test_ordered_inputs_have_names_of_inputs():
    with pytest.raises(DeclarationError, match=r"ordered = .*names of inputs: x"):

        class Ranks(ml.Primitive):
            ordered = ("y",)

            def infer_shape(self, x):
                return x
