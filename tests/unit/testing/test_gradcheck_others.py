"""gradcheck of functions of torch tensors and of JAX arrays, as they are."""

import sys
from types import SimpleNamespace

import numpy as np
import pytest

from miniml.errors import MinimlError
from miniml.testing import GradientError, gradcheck
from miniml.testing.gradchecks.run import framework_of, refusing


class _Tensor:
    """A double of an array of another framework."""


def test_arrays_say_whose_function_it_is(monkeypatch):
    assert framework_of((np.ones(2), 3.0, {"a": [None]})) == ""
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(Tensor=_Tensor))
    monkeypatch.setitem(sys.modules, "jax", SimpleNamespace(Array=dict))
    assert framework_of(({"a": [_Tensor()]}, 2.0)) == "torch"
    monkeypatch.setitem(sys.modules, "jax", SimpleNamespace(Array=_Tensor))
    with pytest.raises(MinimlError, match="gradcheck got torch tensors and JAX arrays"):
        framework_of((_Tensor(),))


def test_errors_of_a_framework_are_told_by_dtype():
    def fails(x):
        raise RuntimeError("expected float")

    with pytest.raises(MinimlError, match="f raised RuntimeError for : expected float"):
        refusing(fails, "f")(np.ones(2))


class TestTorch:
    @pytest.fixture(autouse=True)
    def torch(self):
        self.torch = pytest.importorskip("torch", reason="no torch")

    def test_right_functions(self):
        torch = self.torch
        x = torch.randn(3, 4, dtype=torch.float64)
        assert gradcheck(torch.sin, x).ok
        assert gradcheck(lambda a, b: (a @ b["m"]).tanh(), x, {"m": x.T}, order=2).ok
        report = gradcheck(lambda v: v * torch.ones(4) @ torch.ones(4, 4), torch.randn(4))
        assert report.ok
        assert "ran in float32" in str(report)

    def test_one_wrong_element_is_named(self):
        torch = self.torch

        class Exp(torch.autograd.Function):
            @staticmethod
            def forward(ctx, x):
                ctx.save_for_backward(x)
                return x.exp()

            @staticmethod
            def backward(ctx, d):
                g = (d * ctx.saved_tensors[0].exp()).clone()
                g[123] *= 1.01
                return g

        for given in (Exp, Exp.apply):
            with pytest.raises(GradientError) as caught:
                gradcheck(given, torch.randn(500, dtype=torch.float64))
            (finding,) = caught.value.report.wrong
            assert finding.index == (123,)
            assert "1.01 times" in finding.diagnosis

    def test_module_and_its_parameters(self):
        torch = self.torch
        layers = torch.nn.Linear(4, 3), torch.nn.BatchNorm1d(3), torch.nn.Tanh()
        module = torch.nn.Sequential(*layers).eval()
        before = [p.clone() for p in module.parameters()]
        report = gradcheck(module, torch.randn(5, 4))
        assert report.ok
        assert report.judged == 20 + 15 + 6
        for p, old in zip(module.parameters(), before, strict=True):
            assert torch.equal(p, old)


class TestJax:
    @pytest.fixture(autouse=True)
    def jax(self):
        self.jax = pytest.importorskip("jax", reason="no jax")

    def test_right_and_wrong_ones(self):
        jax = self.jax
        assert gradcheck(jax.numpy.sin, jax.numpy.ones(3)).ok

        @jax.custom_vjp
        def cube(x):
            return x**3

        cube.defvjp(lambda x: (x**3, x), lambda x, d: (d * 2 * x**2,))
        report = gradcheck(cube, jax.numpy.linspace(1, 2, 3), raise_error=False)
        assert len(report.wrong) == 3
        assert "0.666667" in report.wrong[0].diagnosis
