"""Candidates: any order of registration selects the same kernel, and `explain` says why others
lost, by the same rules."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import miniml as ml
from miniml import ArraySpec, kernel, ops
from miniml.backends import registry
from miniml.backends.cuda.device import FEATURES
from miniml.backends.selection import Target, get_device
from miniml.core.abstract import parse
from miniml.core.settings import masking
from miniml.core.signature import CPU, GPU
from miniml.errors import DeviceError, KernelNotFoundError
from tests.unit.core.kernels import constant, primitive

PRESENT, OTHER = [f for f, on in CPU.items() if on][:2]
ABSENT = next(f for f, on in CPU.items() if not on)
NHWC = ml.KernelAttr().add_input_attr(ml.float32, "NHWC").add_output_attr(ml.float32)
NCHW = ml.KernelAttr().add_input_attr(ml.float32, "NCHW").add_output_attr(ml.float32)
IMAGES = [
    ml.KernelAttr().add_input_attr(ml.int64, f).add_output_attr(ml.int64) for f in ("NCHW", "NHWC")
]
pytestmark = pytest.mark.usefixtures("tables_as_before")


def _register(row, value):
    signature, provider, requires, priority = row
    kernel("KerOne", "cpu", signature, provider=provider, requires=requires, priority=priority)(
        constant(value)
    )


def _forget():
    registry.table.pop(("KerOne", "cpu"), None)


_ROWS = st.lists(
    st.tuples(
        st.sampled_from(["l->l", "l*->l", ".->.", "d->d", *IMAGES]),
        st.sampled_from(["miniml", "cc", "a", "b"]),
        st.sampled_from([(), (PRESENT,), (OTHER,), (PRESENT, OTHER), (ABSENT,)]),
        st.integers(0, 1),
    ),
    min_size=1,
    max_size=6,
    unique_by=lambda row: (parse(row[0]), *row[1:3]),
)


class TestOrder:
    @given(_ROWS, st.permutations(["miniml", "cc", "a", "b"]), st.integers(0, 4), st.randoms())
    def test_the_order_of_registration_decides_nothing(self, rows, ranked, count, random):
        for name in "ab":  # known providers
            kernel("KerOther", "cpu", "f->f", provider=name)(constant(0))
        target = Target(get_device("cpu"), tuple(ranked[:count]))
        spec = [ArraySpec((2,), ml.int64)]  # which is widened to nothing
        found = []
        for order in (rows, random.sample(rows, len(rows)), rows[::-1]):
            _forget()
            for row in order:
                _register(row, 1)
            judged = target.candidates("KerOne", spec, spec)
            try:
                assert target.select("KerOne", spec, spec).entry is judged[0].entry
                assert not judged[0].lost
            except KernelNotFoundError:
                assert judged[0].lost
            assert all(c.lost for c in judged[1:])
            found.append([(c.entry.describe(), c.entry.signature, c.lost) for c in judged])
        _forget()
        assert found[0] == found[1] == found[2]

    @pytest.mark.parametrize(
        ("first", "second", "reason"),
        [
            (("f->f", "a", (), 0), ("f->f", "miniml", (), 9), "provider 'miniml' ranks behind 'a'"),
            (("f->f", "a", (), 2), ("f->f", "a", (PRESENT,), 1), "priority 1, not 2"),
            (("f->f", "a", (), 0), ("f*->f", "a", (), 0), "a more general signature than f->f"),
            (("f*->f", "a", (), 0), (".->.", "a", (), 0), "a more general signature than f*->f"),
            (("f->f", "a", (PRESENT,), 0), ("f->f", "a", (), 0), "requires fewer features"),
            ((NCHW, "a", (), 0), ("f->f", "a", (), 0), "names fewer formats"),
            (("f->f", "a", (PRESENT,), 0), ("f->f", "a", (OTHER,), 0), "later in the alphabet"),
            (("f->f", "a", (), 0), ("d->d", "a", (), 0), "takes other dtypes"),
            (("f->f", "a", (), 0), ("f->d", "a", (), 0), "gives other dtypes"),
            (("f->f", "a", (), 0), (NHWC, "a", (), 9), "takes formats NHWC"),
            (("f->f", "a", (), 0), ("f->f", "a", (ABSENT,), 9), f"lacks {ABSENT}"),
            (("f->f", "a", (), 0), ("f->f", "cc", (), 9), "'cc' is not used here"),
        ],
    )  # fmt: skip
    def test_each_reason(self, first, second, reason):
        for order in ((first, second), (second, first)):
            _forget()
            for row in order:
                _register(row, 1)
            spec = [ArraySpec((2,), ml.float32)]
            judged = Target(get_device("cpu"), ("a",)).candidates("KerOne", spec, spec)
            assert [c.entry.priority for c in judged] == [first[3], second[3]]
            assert reason in judged[1].lost


class TestProviders:
    def test_a_custom_operator_falls_back_to_any_provider(self):
        op = primitive()()
        kernel("KerOne", "cpu", "f->f", provider="b")(constant(2))
        kernel("KerOne", "cpu", "f->f", provider="a", priority=-1)(constant(1))
        assert op(ml.Tensor(0.0)).item() == 2.0  # of those not ranked, by priority
        kernel("KerOne", "cpu", "d->d")(constant(3))
        assert op(ml.Tensor(0.0)).item() == 2.0  # the built-in provider has none for float32
        kernel("KerOne", "cpu", "f->f", priority=-9)(constant(4))
        assert op(ml.Tensor(0.0)).item() == 4.0
        with ml.context(providers="a"):
            assert op(ml.Tensor(0.0)).item() == ml.jit(op)(ml.Tensor(0.0)).item() == 1.0

    def test_as_many_as_there_are(self):
        op, names = primitive()(), [f"vendor{i}" for i in range(40)]
        for i, name in enumerate(names):
            kernel("KerOne", "cpu", "f->f", provider=name)(constant(i))
        for i in (0, 17, 39):
            with ml.context(providers=names[i:]):
                assert op(ml.Tensor(0.0)).item() == i

    @ml.context(providers=())
    def test_for_a_built_in_one_a_provider_must_be_enabled(self):
        @kernel("Exp", "cpu", "f->f", "i->i", provider="acme", priority=99)
        def nine(x, *, out):
            out[...] = 9

        assert ops.exp(ml.Tensor(0.0)).item() == 1.0
        assert ml.jit(ops.exp)(ml.Tensor([0.0])).tolist() == [1.0]
        with ml.context(providers="acme"):
            assert ops.exp(ml.Tensor(0.0)).item() == 9.0
        (row,) = ml.explain(ops.exp, ml.Tensor(0.0)).rows
        lost = {c.entry.provider: c.lost for c in row.candidates if c.entry.body is nine}
        assert "ml.context(providers=('acme',)) does so" in lost["acme"] or "other" in lost["acme"]

    @ml.context(providers=())
    def test_the_error_names_a_provider_that_could(self):
        kernel("LogicalNot", "cpu", "f->f", provider="acme")(constant(1))
        spec = [ArraySpec((2,), ml.float32)]
        with pytest.raises(KernelNotFoundError, match="its provider is not enabled"):
            Target(get_device("cpu")).select("LogicalNot", spec, spec)


class TestFeatures:
    def test_masked_ones_are_not_used(self):
        op = primitive()()
        kernel("KerOne", "cpu", "f->f", requires=(PRESENT,), priority=1)(constant(2))
        run, x = ml.jit(op), ml.Tensor(0.0)
        assert op(x).item() == run(x).item() == 2.0
        with ml.context(without=(PRESENT,)):
            for call in (op, run):
                with pytest.raises(KernelNotFoundError) as caught:
                    call(x)
                assert f"requires {PRESENT}): lacks {PRESENT}, which without= masks" in str(
                    caught.value
                )
                assert "it has none that runs here" in str(caught.value)
        kernel("KerOne", "cpu", "f->f")(constant(1))
        with ml.context(without=PRESENT.upper()):
            assert op(x).item() == run(x).item() == 1.0
            (row,) = ml.explain(op, x).rows
            assert row.why == f"exact dtypes, provider 'miniml', lacks {PRESENT}"
        assert op(x).item() == run(x).item() == 2.0
        assert "settings changed" in run.recompilations[-1]

    def test_one_that_lacks_features_is_not_said_to_lack_formats(self):
        op = primitive()()
        kernel("KerOne", "cpu", "f->f", NHWC, "d->d", requires=(PRESENT,))(constant(2))
        with ml.context(without=(PRESENT,)), pytest.raises(KernelNotFoundError) as caught:
            op(ml.Tensor(0.0))
        assert str(caught.value) == (
            "KerOne has no kernel for f (float32) on cpu; it has none that runs here; not usable "
            f"here: f->f (miniml, requires {PRESENT}): lacks {PRESENT}, which without= masks; "
            "register one that does: @kernel('KerOne', 'cpu', 'f->...')"
        )

    def test_what_needs_a_masked_one_is_masked_too(self):
        target = Target(get_device("cpu"), masked=masking(("avx2",)))
        assert not any(map(target.has, ("avx2", "avx512f", "avx512bw", "x86_v3", "x86_v4")))
        assert target.has("sse2") == CPU["sse2"]
        assert target.has("fma3") == CPU["fma3"]

    def test_an_unknown_one_is_refused_with_those_known(self):
        with pytest.raises(DeviceError, match=r"feature 'avx3' is unknown; known are .*wmma"):
            ml.context(without=("avx3",)).__enter__()
        with pytest.raises(DeviceError, match=r"feature 'wmma' is unknown on cpu; known are .*avx"):
            kernel("KerOne", "cpu", "f->f", requires=("wmma",))
        with pytest.raises(DeviceError, match=r"feature 7 is unknown"):
            ml.context(without=(7,)).__enter__()

    def test_those_of_cuda_are_known(self):
        assert tuple(FEATURES) == GPU


class TestExplained:
    def test_as_text_and_as_data(self):
        op = primitive()()
        kernel("KerOne", "cpu", "f->f", "d->d")(constant(1))
        kernel("KerOne", "cpu", "f->f", requires=(ABSENT,))(constant(2))
        explained = ml.explain(op, np.zeros((2, 3), "f"))
        (row,) = explained.rows
        first, *others = row.candidates
        assert (first.entry.describe(), first.lost) == ("f->f (miniml)", "")
        assert sorted(c.lost for c in others) == [f"lacks {ABSENT}", "takes other dtypes"]
        assert row.sizes == ((24,), (24,), ())
        assert str(explained).splitlines()[-4:] == [
            "candidates:",
            "  KerOne: f->f (miniml) runs",
            f"    lacks {ABSENT}: f->f (miniml, requires {ABSENT})",
            "    takes other dtypes: d->d (miniml)",
        ]
        assert str(row).splitlines() == [
            "KerOne() float32[2, 3]",
            "  f->f (miniml) runs",
            f"  f->f (miniml, requires {ABSENT}) lost: lacks {ABSENT}",
            "  d->d (miniml) lost: takes other dtypes",
        ]
