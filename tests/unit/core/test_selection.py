"""Which kernel is chosen: exactness, providers, features, priority, widening; and the errors."""

import numpy as np
import pytest

import miniml as ml
from miniml import ArraySpec, elementwise_kernel, kernel
from miniml.backends.selection import Target, get_device, widenings
from miniml.core.abstract import ALL, FLOATS, INTEGERS
from miniml.core.signature import CPU
from miniml.errors import DeclarationError, KernelNotFoundError
from tests.unit.core.kernels import constant, primitive

ABSENT = next(f for f, on in CPU.items() if not on)
PRESENT = next(f for f, on in CPU.items() if on)
pytestmark = pytest.mark.usefixtures("tables_as_before")


class TestSelection:
    def test_providers_as_the_context_ranks_them(self):
        op = primitive()()
        for name in ("miniml", "a", "b"):
            kernel("KerOne", "cpu", "f->f", provider=name)(
                constant("miniml a b".split().index(name))
            )
        x = ml.Tensor(9.0)
        assert op(x).item() == 0.0
        with ml.context(providers=("b", "a")):
            assert op(x).item() == 2.0
        with ml.context(providers="a"):
            assert op(x).item() == 1.0
        assert op(x).item() == 0.0

    def test_a_provider_without_this_kernel_is_passed_over_and_an_unknown_one_refused(self):
        op = primitive()()
        kernel("KerOne", "cpu", "f->f")(constant(1))
        kernel("KerOther", "cpu", "f->f", provider="mine")(constant(2))
        with ml.context(providers=("mine", "miniml")):
            assert op(ml.Tensor(0.0)).item() == 1.0
        for run in (op, ml.jit(op)):
            with (
                ml.context(providers=("mine", "nobody")),
                pytest.raises(KernelNotFoundError, match="'nobody' has registered no kernel"),
            ):
                run(ml.Tensor(0.0))

    def test_machine_features_then_priority(self):
        op = primitive()()
        kernel("KerOne", "cpu", "f->f")(constant(1))
        kernel("KerOne", "cpu", "f->f", requires=(ABSENT,), priority=9)(constant(2))
        assert op(ml.Tensor(0.0)).item() == 1.0
        kernel("KerOne", "cpu", "f->f", requires=PRESENT, priority=5)(constant(3))
        assert op(ml.Tensor(0.0)).item() == 3.0

    def test_a_kernel_for_another_memory_format_is_passed_over(self):
        op = primitive()()
        channels_last = ml.KernelAttr().add_input_attr(ml.float32, "NHWC")
        kernel("KerOne", "cpu", channels_last.add_output_attr(ml.float32), priority=9)(constant(2))
        with pytest.raises(KernelNotFoundError):
            op(ml.Tensor(0.0))
        plain = ml.KernelAttr().add_input_attr(ml.float32, "NCHW").add_output_attr(ml.float32)
        kernel("KerOne", "cpu", plain)(constant(1))
        assert op(ml.Tensor(0.0)).item() == 1.0

    def test_exact_dtypes_come_before_providers(self):
        op = primitive()()
        kernel("KerOne", "cpu", "f->f")(constant(1))
        kernel("KerOne", "cpu", "d->d", provider="mine")(constant(2))
        with ml.context(providers=("mine",)):
            assert op(ml.Tensor(0.0)).item() == 1.0

    def test_without_an_exact_kernel_inputs_are_widened(self):
        op = primitive()()

        @kernel("KerOne", "cpu", "d->d")
        def half(x, *, out):
            assert x.dtype == np.float64
            np.multiply(x, 0.5, out=out)

        for dtype in (ml.float16, ml.bfloat16, ml.float32):
            out = op(ml.Tensor([3.0]).astype(dtype))
            assert (out.dtype, out.astype("float32").tolist()) == (dtype, [1.5])

    def test_several_inputs_are_widened_to_one_dtype(self):
        op = primitive("KerTwo", inputs=2)()
        kernel("KerTwo", "cpu", "ff->f")(np.add)
        a, b = ml.Tensor(1.0, dtype="float16"), ml.Tensor(2.0, dtype="bfloat16")
        assert (op(a, b).dtype, op(a, b).item()) == (ml.float16, 3.0)

    @pytest.mark.parametrize("source", ALL)
    def test_widening_loses_nothing(self, source):
        for target in widenings((source,)):
            for value in _ends(source):
                wide = np.array(value, source).astype(target)
                assert wide.astype(source) == np.array(value, source)
                assert target not in FLOATS or float(wide) == float(value)

    def test_a_truth_value_is_widened_to_integers_alone(self):
        assert [d.char for d in widenings((ml.bool_,))] == ["b", "h", "i", "l"]
        assert [d.char for d in widenings((ml.bool_, ml.int16))] == ["h", "i", "l"]
        assert not widenings((ml.bool_, ml.float32))

    def test_64_bit_integers_are_not_widened_to_floats(self):
        op = primitive()()
        kernel("KerOne", "cpu", "d->d")(constant(1))
        with pytest.raises(
            KernelNotFoundError, match=r"KerOne has no kernel for l \(int64\) on cpu"
        ):
            op(ml.Tensor(1))

    def test_the_error_lists_what_exists_and_what_came(self):
        op = primitive()()
        kernel("KerOne", "cpu", "d->d", "f->f")(constant(1))
        kernel("KerOne", "cpu", "?->?", requires=(ABSENT,))(constant(2))
        with pytest.raises(KernelNotFoundError) as caught:
            op(ml.Tensor([1, 2]))
        assert str(caught.value) == (
            "KerOne has no kernel for l (int64) on cpu; it has d->d (miniml), f->f (miniml); not "
            f"usable here: ?->? (miniml, requires {ABSENT}): lacks {ABSENT}; cast the inputs, or "
            "register one with @kernel('KerOne', 'cpu', 'l->...')"
        )
        assert "op(ml.Tensor([1, 2]))" in caught.value.__notes__[0]

    def test_no_kernel_at_all(self):
        with pytest.raises(
            KernelNotFoundError, match="KerOne has no kernel on cpu; it has none any"
        ):
            primitive()()(ml.Tensor(1.0))
        elementwise_kernel("KerOne", "x", "f->f")
        with pytest.raises(KernelNotFoundError, match="on cpu; it has kernels on cuda"):
            primitive()()(ml.Tensor(1.0))

    def test_the_rules_dtypes_must_be_the_signatures(self):
        op = primitive(infer_dtype=lambda self, x: ml.float64)()
        kernel("KerOne", "cpu", "f->f")(constant(1))
        with pytest.raises(
            DeclarationError,
            match=r"KerOne infer_dtype gives float64 for inputs float32; the kernel f->f \(minim",
        ):
            op(ml.Tensor(1.0))

    def test_repeated_and_free_dtypes_are_found_beside_exact_ones(self):
        inputs, outputs = ([ArraySpec((2,), d)] for d in (ml.float32, ml.float64))
        target = Target(get_device("cpu"))
        for signature in ("f*->d", "f->f*", "ff->d", "d->d"):
            kernel("KerOne", "cpu", signature)(constant(signature))
        found = [target.select("KerOne", inputs * n, outputs).entry for n in (1, 3)]
        assert [str(e.signature) for e in found] == ["f*->d", "f*->d"]
        assert str(target.select("KerOne", inputs, inputs * 2).entry.signature) == "f->f*"
        kernel("KerOne", "cpu", ".->.", priority=1)(constant(5))
        assert str(target.select("KerOne", inputs, outputs).entry.signature) == ".->."
        assert target.select("KerOne", inputs * 3, outputs).entry is found[1]

    def test_asked_again_it_is_the_same_selection(self):
        kernel("KerOne", "cpu", "f->f")(constant(1))
        spec = [ArraySpec((2,), ml.float32)]
        chosen = [Target(get_device("cpu")).select("KerOne", spec, spec) for _ in range(2)]
        assert chosen[0] is chosen[1]

    @ml.context(providers=())
    def test_a_new_kernel_is_seen_at_once(self):
        op = primitive()()
        kernel("KerOne", "cpu", "f->f")(constant(1))
        assert op(ml.Tensor(0.0)).item() == 1.0
        kernel("KerOne", "cpu", "f->f", requires=PRESENT, priority=1)(constant(7))
        assert op(ml.Tensor(0.0)).item() == 7.0


def _ends(dtype):
    if dtype == ml.bool_:
        return False, True
    if dtype in INTEGERS:
        return np.iinfo(dtype).min, np.iinfo(dtype).max
    info = ml.dtype.ml_dtypes.finfo(dtype)
    return info.smallest_subnormal, info.max
