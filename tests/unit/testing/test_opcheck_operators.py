"""opcheck of operators of torch.library: what is asked for, what is refused, and the report."""

import itertools

import pytest

from miniml import ops
from miniml.errors import ArityError
from miniml.testing import OpCheckError, OpInfo, opcheck
from miniml.testing.opchecks.operator_calls import is_operator

torch = pytest.importorskip("torch", reason="no torch")
_NUMBERS = itertools.count()


def sine(fake=torch.empty_like, slope=None):
    """An operator for sin, and its name."""
    name = f"unit_opcheck::sine{next(_NUMBERS)}"
    op = torch.library.custom_op(
        name, torch.sin, mutates_args=(), schema="(Tensor x) -> Tensor"
    )  # fmt: skip
    op.register_fake(fake)
    if slope is not None:
        op.register_autograd(
            lambda ctx, d: d * slope(ctx.saved_tensors[0]),
            setup_context=lambda ctx, inputs, output: ctx.save_for_backward(*inputs),
        )
    return op, name


def point():
    return torch.linspace(0.1, 1.2, 12, dtype=torch.float64).reshape(3, 4)


def test_the_three_forms_of_an_operator():
    op, name = sine(slope=torch.cos)
    packet = getattr(torch.ops.unit_opcheck, name.partition("::")[2])
    for form in (op, packet, packet.default):
        assert is_operator(form)
        report = opcheck(form, inputs=(point(),))
        assert report.ok, report
        assert report.subject == name
        assert report.calls["gradient"] == 1
    assert not is_operator(torch.sin)
    assert not is_operator(ops.Sin())


def test_several_calls_and_some_checks():
    op, _ = sine()
    report = opcheck(op, inputs=[(point(),), (point()[0],)], checks=("fake", "layouts"))
    assert report.calls == {"fake": 2, "layouts": 2}


def test_an_operator_of_torch_with_numbers_and_a_broadcast():
    x, y = point(), point()[:1]
    report = opcheck(torch.ops.aten.add.Tensor, inputs=(x, y))
    assert report.ok, report


def test_a_declared_write_is_no_fault():
    report = opcheck(torch.ops.aten.add_.Tensor, inputs=(point(), point()))
    assert report.ok, report
    assert "writes to an input" in report.notes[0]


def test_random_numbers_are_declared_by_a_tag():
    assert opcheck(torch.ops.aten.bernoulli.default, inputs=(point() / 2,)).ok


def test_an_operator_without_gradient_says_so():
    op, _ = sine()
    report = opcheck(op, inputs=(point(),))
    assert report.notes == ("gradient: not checked, none is registered",)


def test_the_inputs_stay_as_they_are():
    x = point().requires_grad_()
    old = x.detach().clone()
    state = torch.get_rng_state()
    opcheck(sine(slope=torch.cos)[0], inputs=(x,))
    assert torch.equal(x.detach(), old)
    assert x.grad is None
    assert torch.equal(state, torch.get_rng_state())


def test_a_finding_has_words_and_a_program_that_shows_it():
    op, name = sine(slope=lambda x: 2 * torch.cos(x))
    with pytest.raises(OpCheckError) as caught:
        opcheck(op, inputs=(point(),))
    (found,) = caught.value.report.findings
    assert found.check == "gradient"
    assert found.message.startswith(f"{name}(float64(3, 4)): the gradient of x[0, 0] is")
    assert "register_autograd" in found.advice
    with pytest.raises(OpCheckError, match="the gradient of x"):
        exec(found.example, {})


def test_strides_of_a_fake():
    op, name = sine(fake=lambda x: x.new_empty(x.shape[::-1]))
    (found,) = opcheck(op, inputs=(point(),), raise_error=False).faults
    assert found.message == (
        f"the fake of {name}(float64(3, 4)) gives output 0 as float64(4, 3), and it is "
        "float64(3, 4)"
    )


def test_the_budget_is_kept():
    report = opcheck(sine()[0], inputs=(point(),), budget=0.0, raise_error=False)
    assert any("the budget was used up" in note for note in report.notes)
    assert not report.ok
    assert report.findings[0].severity == "cannot judge"


@pytest.mark.parametrize("name", ["exp", "sum", "relu", "floor", "isnan", "t"])
def test_operators_of_torch_pass(name):
    report = opcheck(getattr(torch.ops.aten, name).default, inputs=(point(),))
    assert not report.findings, report


def test_a_layout_that_the_fake_refuses_too_is_no_fault():
    report = opcheck(torch.ops.aten.view.default, inputs=(point(), [12]))
    assert report.ok, report


class TestRefused:
    def refused(self, match, *args, **named):
        with pytest.raises(ArityError, match=match):
            opcheck(*args, **named)

    def test_no_inputs(self):
        self.refused(r"takes inputs of its calls; got None; give inputs=\(x, y\)", sine()[0])

    def test_a_tensor_for_inputs(self):
        self.refused("takes inputs of its calls", sine()[0], inputs=point())

    def test_a_packet_of_several(self):
        self.refused("opcheck takes one overload", torch.ops.aten.add, inputs=(point(), 1.0))

    def test_complex_tensors(self):
        self.refused("takes real tensors of the CPU", sine()[0], inputs=(point() * 1j,))

    def test_lists_of_tensors(self):
        inputs = ([point(), point()], 0)
        self.refused("got a list of tensors", torch.ops.aten.cat.default, inputs=inputs)

    def test_unknown_checks(self):
        self.refused(
            r"knows no checks \('speed',\); they are runs, schema", sine()[0],
            inputs=(point(),), checks=("speed",),
        )  # fmt: skip

    def test_what_primitives_take(self):
        info = OpInfo(ops.Sin, lambda rng, dtype: ())
        self.refused("takes inputs, budget, seed, checks", sine()[0], info, inputs=(point(),))
