"""Faults and right ones that the checks did not know: one for each cause of a wrong answer."""

from dataclasses import replace

import numpy as np
import pytest
from scipy import special

from miniml import Launch, ops, raw_kernel
from miniml.testing import gradcheck_vjp, opcheck
from miniml.testing.calls import Call
from miniml.testing.opchecks.draws import first_part
from miniml.testing.opchecks.gradients import long
from miniml.testing.opchecks.values import LONGEST

from .cuda_kernels import whole
from .natural import Natural, both, natural, numbers, reduced, refuse, same
from .planted import SCALE, WAVE, Planted, planted, sine
from .planting import plant
from .test_corpus import needs_a_compiler

KEPT = np.zeros(2**14)


def report_of(row, *checks, **options):
    with planted(row) as (primitive, info):
        return opcheck(primitive, info, checks=checks, raise_error=False, **options)


# Right ones.
def square_matrices(self, x):
    square = len(x) > 1 and x[-1] == x[-2] > 0
    return x[:-2] if square else refuse(self, "square matrices", x)


def log_det(x):
    eye = np.eye(x.shape[-1], dtype=x.dtype)
    root = np.linalg.cholesky(x @ np.swapaxes(x, -1, -2) + eye)
    return 2 * np.log(np.diagonal(root, axis1=-2, axis2=-1)).sum(-1)


OSCILLATING = natural(
    "CosOfAProduct", both, lambda x, y: np.cos(x * y),
    lambda x, y, out, d: (-ops.sin(x * y) * y * d, -ops.sin(x * y) * x * d), numbers(2),
)  # fmt: skip
DETERMINANT = natural("LogDeterminant", square_matrices, log_det, lambda x, out, d: None, numbers())
DETERMINANT = replace(DETERMINANT, bprop="none", body={"differentiable": False})
ENTROPY = natural(
    "RelativeEntropy", both, special.rel_entr,
    lambda x, y, out, d: (d * (ops.log(x / y) + 1.0), -d * x / y), numbers(2),
)  # fmt: skip
ENTROPY = replace(ENTROPY, body={"elementwise": True})


@pytest.mark.parametrize("x", [1e5, -3e4])
def test_a_result_that_oscillates_between_two_numbers_is_right_whatever_it_is(x):
    """float32 knows x y to some hundred radians here."""
    given = (x * np.linspace(0.5, 1, 200)).astype(np.float32), np.float32(1e5)
    report = report_of(OSCILLATING, "kernels", inputs=given)
    assert not report.findings, str(report)


def test_another_cosine_is_wrong_where_that_one_does_not_oscillate():
    wrong = replace(OSCILLATING, others=((lambda x, y, *, out: np.sin(x * y, out=out), "f", {}),))
    report = report_of(wrong, "kernels", inputs=(np.float32(1.5), np.float32(0.2)))
    assert report.faults, str(report)


def test_an_error_that_rounding_gives_to_all_by_one_scalar_is_not_the_kernels():
    """x x rounds the same way in each sum x x + y y of one size."""
    rule = natural(
        "LogGammas", both,
        lambda x, y: special.gammaln(x * x + y * y + 1) - special.gammaln(y * y + 1),
        lambda x, y, out, d: None, numbers(2),
    )  # fmt: skip
    quiet = replace(rule, bprop="none", body={"differentiable": False})
    report = report_of(quiet, "kernels")
    assert report.ok, str(report)


@pytest.mark.parametrize("seed", [2, 3, 5])
def test_terms_that_cancel_inside_are_a_warning_for_unusual_numbers(seed):
    """Rows of 1000 and a little: the product of the matrix with itself rounds the little away."""
    report = report_of(DETERMINANT, "kernels", seed=seed)
    assert report.findings, str(report)
    assert report.ok, str(report)


def test_a_kernel_that_computes_another_formula_for_unusual_numbers_alone_is_wrong():
    """Its error is the same for all numbers nearby."""

    def body(x, *, out):
        out[...] = np.sin(x.astype(float)) * np.where(np.abs(x) > 500, 0.9, 1)

    report = report_of(replace(WAVE_IN_FD, others=((body, "f", {}),)), "kernels")
    assert report.faults, str(report)


def test_a_tangent_that_leaves_the_range_in_one_order_of_products_alone_is_right():
    given = np.float32(0.4), np.linspace(1.1e-39, 4e-39, 40, dtype=np.float32)
    report = report_of(ENTROPY, "facts", inputs=given)
    assert report.ok, str(report)


def test_a_pull_back_that_needs_a_table_of_all_pairs_is_not_asked_for_long_inputs():
    """There may be no memory for it, and what then ends is the program."""

    def table(self):
        def bprop(x, out, dout):
            ones = ops.exp(0.0 * ops.expand_dims(x, 0) + 0.0 * ops.expand_dims(x, 1))
            return (ops.matmul(ones * ops.eye(x.shape[0], dtype=x.dtype), dout * ops.cos(x)),)

        return bprop

    for bprop, asked in ((table, False), (lambda self: lambda x, out, d: (d * ops.cos(x),), True)):
        with plant(fn=lambda x, *, alpha, out: np.sin(x, out=out), bprop=bprop) as primitive:
            call = Call(primitive, (np.linspace(-1, 1, 40_000),), kind=LONGEST)
            assert first_part(call).arrays[0].size < 4000
            assert long(call) is asked


# Faults.
WAVE_IN_FD = Planted("Wave", WAVE, "", letters="fd")


def of_all_eights(x):
    """The sum of squares in a buffer, up to a multiple of eight numbers."""
    KEPT[: x.size] = x.reshape(-1)
    return (KEPT[: -(-x.size // 8) * 8] ** 2).sum()


def into_any_memory(x):
    total = np.empty(x.shape[:-1], x.dtype)
    for k in range(x.shape[-1]):
        total += x[..., k]
    return total


def but_for_nan(x, *, out):
    np.exp(x, out=out, where=~np.isnan(x))


def marking_nan(x, *, out):
    x[np.isnan(x)] = 0.0
    np.exp(x, out=out)


def beyond_its_domain(x):
    return np.log(-1 - np.abs(x))


def quiet(name: str, shape, f, **body) -> Natural:
    made = natural(name, shape, f, lambda *xs: None, numbers())
    return replace(made, bprop="none", body={"differentiable": False, **body})


class Hidden(float):
    """A factor that the class keeps beside its attributes."""


def with_a_hidden_factor(self, alpha=2.5):
    super(type(self), self).__init__(alpha=alpha)
    object.__setattr__(self, "_factor", Hidden(alpha))


@pytest.mark.parametrize(
    ("row", "check", "says"),
    [
        (quiet("Buffered", lambda self, x: (), of_all_eights), "repeat",
            "after calls with other inputs"),
        (quiet("Accumulated", reduced, into_any_memory), "memory", "what was in memory"),
        (replace(quiet("SkipsNaN", same, np.exp), fn=but_for_nan), "special", "what was in memory"),
        (replace(quiet("MarksNaN", same, np.exp), fn=marking_nan), "special", "writes into input"),
        (quiet("NeverRounded", same, np.sin, rounds=False), "facts", "rounds = False"),
        (quiet("Counted", same, np.sin, flops=lambda self, xs, outs: 5 * xs[0].shape[0]), "facts",
            "flops raises IndexError"),
        (quiet("NegativeCount", same, np.sin, flops=lambda self, xs, outs: -1), "facts",
            "flops gives -1"),
    ],
    ids=lambda given: getattr(given, "name", None),
)  # fmt: skip
def test_a_fault_is_found_by_its_check(row, check, says):
    report = report_of(row, check)
    assert any(f.check == check and says in f.message for f in report.faults), str(report)


def test_what_a_primitive_keeps_beside_its_attributes_is_found():
    pulled = Planted(
        "Hides", SCALE, "attributes", letters="fd",
        bprop=lambda self: lambda x, out, dout: (dout * self._factor,),
        body={"__init__": with_a_hidden_factor},
    )  # fmt: skip
    report = report_of(pulled, "attributes")
    assert "made of the attributes alone" in str(report.faults), str(report)


def test_a_primitive_that_gives_no_number_at_all_is_not_judged():
    row = quiet("Nowhere", same, beyond_its_domain)
    report = report_of(row, "kernels", "memory")
    assert not report.ok, str(report)
    assert "no drawn call of ordinary numbers" in str(report), str(report)


FOUR_EACH = """
extern "C" __global__ void wave(const T* x, T* out, long long n) {
  long long i = 4 * ((long long)blockIdx.x * blockDim.x + threadIdx.x);
  for (int k = 0; k < 4; ++k)
    if (i + k < n) out[i + k] = n > 1000 && i + 4 > n ? x[i + k] : sin(x[i + k]);
}
"""
SHORT = """
extern "C" __global__ void wave(const T* x, T* out, long long n) {
  short i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) out[i] = sin(x[i]);
}
"""


@needs_a_compiler
@pytest.mark.parametrize(
    ("source", "says"), [(FOUR_EACH, "differs in"), (SHORT, "out-of-bounds")], ids=["tail", "short"]
)
def test_a_cuda_kernel_that_is_wrong_for_many_elements_alone_is_found(source, says):
    def file(name):
        def rule(node):
            n = int(np.prod(node.outputs[0].shape))
            return Launch((whole(n),), (128,), (np.int64(n),))

        raw_kernel(name, "f->f", "d->d", entry="wave", source=source, launch=rule)

    row = Planted("LongOnCuda", WAVE, "", fn=sine, cuda=file, letters="fd")
    report = report_of(row, "devices with long inputs")
    assert says in str(report.faults), str(report)


# gradcheck.
@pytest.mark.parametrize("by", [-1e-5, 1e-7, 0.25])
def test_a_constant_beside_a_gradient_is_not_called_rounding(by):
    x = np.random.default_rng(0).normal(size=5)
    found = gradcheck_vjp(
        np.tanh, lambda x, d: (d * (1 - np.tanh(x) ** 2) + by * d.sum() / 5,), x, raise_error=False
    )
    assert found.wrong
    assert f"off by {by:.3g} in each element" in str(found) or by == 0.25, str(found)


@pytest.mark.parametrize("every", [4, 5, 6])
def test_a_small_change_in_some_calls_is_a_state_and_no_noise(every):
    calls = [0]

    def f(x):
        calls[0] += 1
        return np.sin(x) * (1 + 1e-7 * (calls[0] % every == 0))

    for first in range(every):
        calls[0] = first
        x = np.array([1.0, 2.0, 3.0])
        report = gradcheck_vjp(f, lambda x, d: (d * np.cos(x),), x, raise_error=False)
        assert not report.repeatable, str(report)


def test_gradients_that_are_equal_by_chance_are_no_name_for_a_fault():
    """Of two arguments with the same numbers each has the gradient of the other."""
    x = np.array([0.5, -1.5, 2.0])

    def f(x, y):
        return np.sin(x) * np.cos(2 * y)

    def vjp(x, y, d):
        by_x = d * np.cos(x) * np.cos(2 * y)
        return by_x, by_x

    for y, named in ((x.copy(), False), (x[::-1].copy(), True)):
        report = gradcheck_vjp(f, vjp, x, y, raise_error=False)
        assert report.wrong
        assert ("another input" in str(report)) is named, str(report)
