"""Kernels: signatures, duplicates, what is checked when they are registered, and their calls."""

import gc

import numpy as np
import pytest

import miniml as ml
from miniml import (
    ArraySpec,
    Kernel,
    KernelAttr,
    Launch,
    elementwise_kernel,
    kernel,
    ops,
    raw_kernel,
    view_kernel,
)
from miniml.backends import registry
from miniml.backends.cc.native import NativeKernel
from miniml.core.abstract import parse
from miniml.errors import DeclarationError, DTypeError, DuplicateError
from miniml.ops import Unary
from tests.unit.core.kernels import constant, primitive

pytestmark = pytest.mark.usefixtures("tables_as_before")


class TestSignatures:
    @pytest.mark.parametrize("text", ["f->f", "?ff->f", "->d", "f*->f", "f->f*", "lf*->f", "E->E"])
    def test_text_round_trips(self, text):
        assert str(parse(text)) == text

    @pytest.mark.parametrize("text", ["ff", "f->", "f**->f", "*->f", "f*f->f", "x->f", "G->G", ""])
    def test_bad_text_is_refused(self, text):
        with pytest.raises(DeclarationError, match="signature"):
            parse(text)

    def test_kernel_attr_is_the_same_thing(self):
        attr = KernelAttr().add_input_attr(ml.float32).add_input_attr("int64")
        assert str(attr.add_output_attr(bool).signature) == "fl->?"
        assert attr.signature == parse("fl->?") != parse("f.->?")
        formats = KernelAttr().add_input_attr(ml.float32, "NCHW").add_output_attr(ml.float32)
        assert formats.signature.input_formats == ("NCHW",)

    def test_kernel_attr_for_any_number_of_inputs(self):
        attr = KernelAttr().add_all_same_attr().add_input_attr("float32").add_output_attr("float32")
        assert str(attr.signature) == "f*->f"

    def test_kernel_attr_needs_an_output(self):
        with pytest.raises(DeclarationError, match="KernelAttr has no output"):
            kernel("KerOne", "cpu", KernelAttr().add_input_attr(ml.float32))
        with pytest.raises(DTypeError, match="complex256"):
            KernelAttr().add_input_attr("complex256")

    def test_letters_are_spelling_only(self):
        assert parse("q->q") == parse("l->l")
        assert parse("Q->Q").inputs == (ml.uint64,)

    def test_an_array_has_a_size(self):
        spec = ArraySpec((2, 3, 4, 5), ml.float32)
        assert (spec.size, spec.nbytes) == (120, 480)
        blocks = ArraySpec((2, 3, 4, 5), ml.float32, "NC16HW")
        assert (blocks.size, blocks.nbytes) == (2 * 16 * 20, 2 * 16 * 20 * 4)

    def test_repeated_inputs(self):
        assert parse("lf*->f").accepts((ml.int64, ml.float32, ml.float32))
        assert parse("lf*->f").accepts((ml.int64,))
        assert not parse("lf*->f").accepts((ml.float32, ml.float32))

    def test_a_dot_is_any_dtype_and_float64_is_no_dot(self):
        free, fixed = parse("?.*->.*"), parse("d*->d")
        assert str(free) == "?.*->.*"
        assert free.accepts((ml.bool_, ml.float64, ml.int8))
        assert not free.accepts((ml.float64, ml.float64))
        assert fixed.expanded(2, 1) == ((ml.float64,) * 2, (ml.float64,))
        assert not fixed.accepts((ml.float32,))
        with pytest.raises(DeclarationError, match="names no dtype"):
            free.expanded(2, 2)


class TestRegistration:
    def test_a_taken_key_is_refused_with_file_and_line(self):
        kernel("KerOne", "cpu", "f->f")(constant(1))
        with pytest.raises(
            DuplicateError, match=r"KerOne has a kernel f->f on cpu .*\.py:\d+; give"
        ):
            kernel("KerOne", "cpu", "f->f")(constant(2))
        kernel("KerOne", "cpu", "f->f", provider="mine")(constant(2))
        kernel("KerOne", "cpu", "d->d")(constant(2))

    def test_the_same_function_registered_again_replaces(self):
        for value in (1, 2):

            @kernel("KerAgain", "cpu", "f->f")
            def again(x, *, out, value=value):
                out[...] = value

        assert len(registry.table["KerAgain", "cpu"]) == 1
        assert primitive("KerAgain")()(ml.Tensor(0.0)).item() == 2.0

    @pytest.mark.parametrize("order", ["kernel first", "primitive first"])
    def test_arity_is_checked_when_the_second_half_arrives(self, order):
        halves = [
            lambda: kernel("KerArity", "cpu", "f->f")(constant(1)),
            lambda: primitive("KerArity", inputs=2),
        ]
        first, second = halves if order == "kernel first" else halves[::-1]
        first()
        with pytest.raises(DeclarationError, match="f->f has 1 inputs; the primitive has 2: x, y"):
            second()

    @pytest.mark.parametrize("order", ["kernel first", "primitive first"])
    def test_outputs_are_counted(self, order):
        halves = [
            lambda: kernel("KerOut", "cpu", "f->f")(constant(1)),
            lambda: primitive("KerOut", outputs=2),
        ]
        first, second = halves if order == "kernel first" else halves[::-1]
        first()
        with pytest.raises(DeclarationError, match="has 1 outputs; the primitive has 2: a, b"):
            second()

    @pytest.mark.parametrize("order", ["kernel first", "primitive first"])
    def test_attributes_are_asked_for_by_name(self, order):
        def wrong(x, *, beta, out):
            out[...] = x

        halves = [
            lambda: kernel("KerAttrs", "cpu", "f->f")(wrong),
            lambda: primitive("KerAttrs", __annotations__={"alpha": float}),
        ]
        first, second = halves if order == "kernel first" else halves[::-1]
        first()
        with pytest.raises(DeclarationError, match="does not take alpha and asks for beta"):
            second()

    def test_a_device_and_a_signature_are_needed(self):
        with pytest.raises(DeclarationError, match="device 'tpu' is unknown; register it for"):
            kernel("KerOne", "tpu", "f->f")
        with pytest.raises(DeclarationError, match="'cuda-sim' runs the 'cuda' ones"):
            kernel("KerOne", "cuda-sim", "f->f")
        with pytest.raises(DeclarationError, match="kernel for KerOne has no signature"):
            kernel("KerOne", "cpu")


class TestCalls:
    def test_a_kernel_gets_arrays_by_position_and_attributes_by_keyword(self):
        seen = {}

        @kernel("KerSeen", "cpu", "f->f")
        def see(x, *, alpha, out):
            seen.update(x=x, alpha=alpha, out=out)
            out[...] = alpha * x

        op = primitive("KerSeen", __annotations__={"alpha": float})(0.5)
        assert op(ml.Tensor(4.0)).item() == 2.0
        assert seen["alpha"] == 0.5
        assert type(seen["x"]) is np.ndarray
        assert not seen["x"].flags.writeable
        assert seen["out"].flags.c_contiguous
        assert not np.shares_memory(seen["x"], seen["out"])

    def test_a_launch_is_skipped_only_when_every_output_is_empty(self):
        ran = []

        @kernel("KerSum", "cpu", "f->f")
        def summed(x, *, out):
            ran.append(x.shape)
            out[...] = x.sum()

        op = primitive("KerSum", infer_shape=lambda self, x: x[1:])()
        assert op(ml.Tensor(np.zeros((0, 2), np.float32))).tolist() == [0.0, 0.0]
        op(ml.Tensor(np.zeros((2, 0), np.float32)))
        assert ran == [(0, 2)]

    @pytest.mark.parametrize("run", [lambda fn: fn, ml.jit], ids=["eager", "compiled"])
    def test_a_ufunc_fills_several_outputs(self, run):
        made = primitive("KerOne", 2, 2)()
        kernel("KerOne", "cpu", "ff->ff")(np.divmod)
        quotient, rest = run(made)(ml.Tensor([7.0, 8.0]), ml.Tensor([2.0, 3.0]))
        assert (quotient.tolist(), rest.tolist()) == ([3.0, 2.0], [1.0, 2.0])

    def test_floating_point_warnings_are_off(self):
        assert ml.ops.exp(ml.Tensor(1e4)).item() == np.inf

    @pytest.mark.parametrize("given", [(64,), ArraySpec((2,), ml.float32), None])
    def test_a_workspace_is_a_tuple_of_arrays(self, given):
        class KerScratch(Unary):
            pass

        @kernel("KerScratch", "cpu", "f->f")
        class Scratch(Kernel):
            def workspace(self):
                return given

            def launch(self, inputs, workspace, outputs, stream):
                outputs[0][...] = inputs[0]

        match = r"KerScratch kernel f->f \(miniml\): workspace gave .*; .* with an ml\.ArraySpec\("
        for call in (KerScratch(), ml.jit(KerScratch())):
            with pytest.raises(DeclarationError, match=match):
                call(ml.Tensor([1.0]))

    def test_the_life_of_a_class_kernel(self):
        life = []

        class KerClass(Unary):
            scale: float = 1.0

        @kernel("KerClass", "cpu", "f->f")
        class Scaled(Kernel):
            def prepare(self, node):
                life.append(("prepare", node.name, node.inputs[0].shape, dict(node.attrs)))
                self.scale = node.attrs["scale"]
                self.shape = node.inputs[0].shape

            def workspace(self):
                return (ArraySpec(self.shape, ml.float32),)

            def launch(self, inputs, workspace, outputs, stream):
                life.append(("launch", stream))
                np.multiply(inputs[0], self.scale, out=workspace[0])
                outputs[0][...] = workspace[0]

        op = KerClass(3.0)
        assert [op(ml.Tensor([v])).item() for v in (1.0, 2.0)] == [3.0, 6.0]
        assert life[0] == ("prepare", "KerClass", (1,), {"scale": 3.0})
        assert [step for step, *_ in life] == ["prepare", "launch", "launch"]
        assert life[1] == ("launch", None)

    def test_a_class_kernel_may_pick_a_function_and_is_released_all_the_same(self):
        released = []

        @kernel("KerOne", "cpu", "f->f")
        class Scaled(Kernel):
            def prepare(self, node):
                factor = np.float32(node.attrs["factor"])
                self.call = lambda x, out: np.multiply(x, factor, out=out)

            def release(self):
                released.append(True)

        op = primitive(__annotations__={"factor": float})(factor=3.0)
        run = ml.jit(op)
        assert (op(ml.Tensor(2.0)).item(), run(ml.Tensor(2.0)).item()) == (6.0, 6.0)
        assert "KerOne" in run.compiled(ml.Tensor(2.0)).program.source  # called as it stands
        assert not released
        del run
        gc.collect()
        assert released == [True]

    def test_a_class_kernel_that_neither_launches_nor_picks_says_so(self):
        kernel("KerOne", "cpu", "f->f")(type("Idle", (Kernel,), {"__module__": __name__}))
        with pytest.raises(NotImplementedError, match="Idle defines no launch"):
            primitive()()(ml.Tensor(2.0))

    def test_a_class_kernel_that_picks_a_function_that_rebinds_out_is_refused(self):
        def careless(x, out):
            out = x + 1  # noqa: F841

        @kernel("KerOne", "cpu", "f->f")
        class Careless(Kernel):
            def prepare(self, node):
                self.call = careless

        with pytest.raises(DeclarationError, match="rebinds out"):
            primitive()()(ml.Tensor(2.0))

    def test_a_view_kernel_returns_a_view_of_the_input_it_names(self):
        @view_kernel("KerOne", "cpu")
        def turned(x):
            return x[::-1]

        @view_kernel("KerTwo", "cpu", "ff->f", of=1)
        def second(x, y):
            return y

        x = np.arange(3, dtype=np.float32)
        for dtype in (np.float32, np.int8, bool):
            assert primitive()()(ml.Tensor(x.astype(dtype))).tolist() == [*x.astype(dtype)[::-1]]
        two = primitive("KerTwo", inputs=2)()
        (choice,) = ml.explain(two, x, x).rows
        assert (choice.why, ml.jit(two)(x, x + 1).tolist()) == ("a view: no copy", [1.0, 2.0, 3.0])

    def test_a_class_kernel_is_released_when_nothing_can_launch_it_any_more(self):
        life = []

        @kernel("KerFreed", "cpu", "f->f")
        class Freed(Kernel):
            def launch(self, inputs, workspace, outputs, stream):
                outputs[0][...] = inputs[0]

            def release(self):
                life.append(self.node.inputs[0].shape)

        op = primitive("KerFreed")()
        compiled = ml.jit(op)
        compiled(ml.Tensor([1.0])), compiled(ml.Tensor(1.0)), op(ml.Tensor([1.0, 2.0]))
        gc.collect()
        assert life == []
        del compiled
        gc.collect()
        assert sorted(life) == [(), (1,)]
        kernel("KerFreed", "cpu", "d->d")(Freed)  # drops what was prepared with other kernels
        op(ml.Tensor([1.0]))
        gc.collect()
        assert life[2:] == [(2,)]


SOURCE = 'extern "C" __global__ void row_sum(const T* x, T* out, long n) { /* ... */ }'


class TestTotal:
    """What never raises may run among the last updates of a step."""

    def test_built_in_ones_are_c_alone_and_speak_of_memory_apart(self):
        rows = [e for rows in registry.table.values() for e in rows if e.built_in]
        on_cpu = [e for e in rows if e.total and e.device == "cpu"]
        assert on_cpu
        native = [e for e in on_cpu if e.provider == "cc"]
        assert all(issubclass(e.body, NativeKernel) for e in native)
        assert all(isinstance(e.body, np.ufunc) for e in on_cpu if e not in native)
        power = {e.signature.inputs[0]: e for e in registry.table["Pow", "cpu"]}
        assert (power[ml.int32].inplace, power[ml.int32].total) == ((0, 1), False)
        assert power[ml.float32].total

    def test_an_update_that_may_raise_runs_before_any_parameter_changes(self):
        p = ml.Parameter(np.array([2, 3]), requires_grad=False)
        q = ml.Parameter(np.array([5, 7]), requires_grad=False)

        @ml.jit
        def step(y):
            ops.assign(q, q + 1)
            ops.assign(p, p**y)

        step(np.array([2, 2]))
        assert (p.tolist(), q.tolist()) == ([4, 9], [6, 8])
        with pytest.raises(DTypeError, match="negative exponent"):
            step(np.array([1, -1]))
        assert (p.tolist(), q.tolist()) == ([4, 9], [6, 8])


class TestCudaDeclarations:
    @pytest.mark.parametrize("order", ["kernel first", "primitive first"])
    def test_an_expression_speaks_of_inputs_and_attributes(self, order):
        halves = [
            lambda: elementwise_kernel("KerSnake", "x + sin(alhpa * x)", "f->f", "d->d"),
            lambda: primitive("KerSnake", __annotations__={"alpha": float}),
        ]
        first, second = halves if order == "kernel first" else halves[::-1]
        first()
        with pytest.raises(
            DeclarationError, match=r"names alhpa; .* inputs x and attributes alpha"
        ):
            second()

    @pytest.mark.parametrize("order", ["kernel first", "primitive first"])
    def test_a_right_expression_is_registered(self, order):
        halves = [
            lambda: elementwise_kernel("KerSnake", "x + sin(alpha * x) * 2.5f", "f->f", "d->d"),
            lambda: primitive("KerSnake", __annotations__={"alpha": float}),
        ]
        first, second = halves if order == "kernel first" else halves[::-1]
        first(), second()
        assert len(registry.table["KerSnake", "cuda"]) == 2

    @pytest.mark.parametrize("text", ["", "x;", "f(x", "x; y = 2"])
    def test_what_is_not_one_expression_is_refused(self, text):
        with pytest.raises(DeclarationError, match="is not one C expression"):
            elementwise_kernel("KerOne", text, "f->f")

    def test_raw_text_must_have_its_entry_and_a_launch_rule(self):
        def launch(node):
            return Launch((1,), (32,))

        raw_kernel("KerRaw", "f->f", entry="row_sum", source=SOURCE, launch=launch)
        with pytest.raises(DeclarationError, match="__global__ function 'row_sun'"):
            raw_kernel("KerRaw", "d->d", entry="row_sun", source=SOURCE, launch=launch)
        with pytest.raises(DeclarationError, match="launch must be a function"):
            raw_kernel("KerRaw", "d->d", entry="row_sum", source=SOURCE, launch=Launch((1,), (1,)))

    @pytest.mark.parametrize("order", ["kernel first", "primitive first"])
    def test_raw_kernels_are_counted_too(self, order):
        halves = [
            lambda: raw_kernel(
                "KerRaw", "ff->f", entry="row_sum", source=SOURCE, launch=lambda node: None
            ),
            lambda: primitive("KerRaw"),
        ]
        first, second = halves if order == "kernel first" else halves[::-1]
        first()
        with pytest.raises(DeclarationError, match="ff->f has 2 inputs; the primitive has 1: x"):
            second()


class TestArity:
    """Of primitive, signature and function, whichever is declared last."""

    def test_of_the_signature_and_the_function(self, tables_as_before):
        def one(x, *, out):
            out[...] = x

        for body, arrays in ((one, "1 array"), (lambda out: None, "0 arrays"), (np.exp, "1 ar")):
            with pytest.raises(DeclarationError, match=f"takes {arrays}.* ff->f has 2 inputs"):
                kernel("KerTwo", "cpu", "ff->f")(body)
        with pytest.raises(DeclarationError, match=r"takes 2 arrays by .* f->f has 1 input"):
            kernel("KerOne", "cpu", "f->f")(np.add)
        with pytest.raises(DeclarationError, match=r"'<lambda>' takes 1 array .* has 2 inputs"):
            kernel("KerTwo", "cpu", "ff->f")(lambda x, out: None)
        kernel("KerOne", "cpu", "f*->f", "dd->d")(lambda *xs, out: None)
        kernel("KerTwo", "cpu", "f->f")(lambda x, alpha, out: None)

    def test_of_the_attr_and_the_primitive(self, tables_as_before):
        two = ml.KernelAttr().add_input_attr("float32").add_input_attr("float32")
        two = two.add_output_attr("float32")
        primitive()
        with pytest.raises(DeclarationError, match="KerOne kernel ff->f has 2 inputs; the prim"):
            kernel("KerOne", "cpu", two)(np.add)
        kernel("KerLate", "cpu", two)(np.add)
        with pytest.raises(DeclarationError, match="KerLate kernel ff->f has 2 inputs; the primit"):
            primitive("KerLate")
