"""Values and gradients at the samples with which PyTorch tests its own operators."""

import itertools
import warnings

import numpy as np
import pytest

import miniml as ml
from miniml.grad import vjp

torch = pytest.importorskip("torch", reason="no torch")
with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    internal = pytest.importorskip(
        "torch.testing._internal.common_methods_invocations", reason="no torch tests"
    )

from .torch_calls import CALLS, LacksError  # noqa: E402

pytestmark = [pytest.mark.deep, pytest.mark.filterwarnings("ignore")]

SAMPLES = 40  # of one operator
ELEMENTS = 16000  # of one sample's largest tensor
# Both sum in float64 in orders of their own: 2^-53 times a few thousand terms.
CLOSE = {"rtol": 1e-9, "atol": 1e-10}
FLOAT32 = {"nn.functional.hardsigmoid": "PyTorch holds 1/6 in float32"}  # compared to 1e-7
# What is refused here by design, where PyTorch has an answer: the words of the refusal, and why.
REFUSED = {
    "of rank 0": "PyTorch gives a tensor without axes one",
    "needs bool tensors": "logic is for bools; numbers are compared first",
    "unexpected keyword argument": "an option that is missing here",
    "does not broadcast": "PyTorch broadcasts x to the mask, and slopes of one element",
    "and none in its output": "an ellipsis is never summed",
    "of a tensor of rank 1": "PyTorch joins an empty vector with anything",
    "batchmean": "the sum divided by the number of rows, which kl_div alone gives",
}


def positive(rows):
    """The signs that make the first large entry of each row positive."""
    if not rows.shape[-1]:
        return torch.ones((*rows.shape[:-1], 1), dtype=rows.dtype)
    large = rows.abs() >= 0.9 * rows.abs().amax(-1, keepdim=True)
    first = torch.take_along_dim(rows, large.to(torch.int8).argmax(-1, keepdim=True), -1)
    return torch.where(first < 0, -1.0, 1.0).detach()


def signs_of_qr(out):
    s = torch.where(out[1].diagonal(dim1=-2, dim2=-1) < 0, -1.0, 1.0).detach()
    return [out[0] * s[..., None, :], out[1] * s[..., None]]


def signs_of_eigh(out):
    return [out[0], out[1] * positive(out[1].mT).mT]


def signs_of_svd(out):
    s = positive(out[0].mT)
    return [out[0] * s.mT, out[1], out[2] * s]


# The factors are unique but for signs, which are chosen here.
SIGNS = {"linalg.qr": signs_of_qr, "linalg.eigh": signs_of_eigh, "linalg.svd": signs_of_svd}


# PyTorch's gradient of CTC is that of logits, whatever the logarithms come from; its eigenvalues
# are those of one triangle of a matrix, here they are of its symmetric part.
PREPARED = {
    "linalg.eigh": lambda a, **named: torch.linalg.eigh((a + a.mT) / 2, **named),
    "nn.functional.ctc_loss": lambda x, *args, **named: torch.nn.functional.ctc_loss(
        x.log_softmax(-1), *args, **named
    ),
}


def infos():
    """The mapped operators, by name and variant."""
    for info in internal.op_db:
        name = ":".join(filter(None, (info.name, info.variant_test_name)))
        if name in CALLS:
            yield pytest.param(info, CALLS[name], id=name)


def sizes(value):
    """The numbers of elements of the tensors in a tree."""
    if isinstance(value, torch.Tensor):
        return [value.numel()]
    if isinstance(value, (list, tuple)):
        return [size for part in value for size in sizes(part)]
    return []


def tree(value, change):
    """A copy with `change` of every tensor."""
    if isinstance(value, torch.Tensor):
        return change(value)
    if isinstance(value, (list, tuple)):
        return type(value)([tree(part, change) for part in value])
    return value


def tensors(value):
    """The tensors of numbers with gradients, in order."""
    if isinstance(value, (list, tuple)):
        return [t for part in value for t in tensors(part)]
    real = isinstance(value, (torch.Tensor, ml.Tensor)) and "float" in str(value.dtype)
    return [value] if real else []


def compare(info, call, sample):
    """Values, then gradients, of one sample."""
    close = CLOSE | ({"rtol": 1e-7} if info.name in FLOAT32 else {})
    given = (sample.input, *sample.args)
    ours = tree(given, lambda t: ml.Tensor(t.detach().numpy()))
    named = {
        name: tree(v, lambda t: ml.Tensor(t.detach().numpy())) for name, v in sample.kwargs.items()
    }
    leaves = tensors(ours)

    def run(*at):
        rest = iter(at)
        again = tree_of(ours, lambda t: next(rest) if "float" in str(t.dtype) else t)
        return tensors_out(call(*again, **named))

    got = run(*leaves)
    theirs = tree(given, lambda t: t.detach().requires_grad_(t.dtype.is_floating_point))
    operator = PREPARED.get(info.name, info.op)
    expected = SIGNS.get(info.name, tensors_out)(operator(*theirs, **sample.kwargs))
    assert len(got) == len(expected)
    for a, b in zip(got, expected):
        assert a.shape == tuple(b.shape)
        np.testing.assert_allclose(a.asnumpy(), b.detach().numpy(), **close)
    if not leaves or not info.supports_autograd or not any(b.requires_grad for b in expected):
        return
    draws = np.random.default_rng(0)
    floats = [b for b in expected if b.requires_grad]
    seeds = [draws.standard_normal(tuple(b.shape)) for b in floats]
    roots = tensors(theirs)
    slopes = torch.autograd.grad(
        floats, roots, [torch.from_numpy(np.asarray(s)) for s in seeds], allow_unused=True
    )
    rest = iter(seeds)
    douts = tuple(ml.Tensor(next(rest)) if b.requires_grad else None for b in expected)
    _, pull = vjp(lambda *at: tuple(run(*at)), *leaves)
    for a, b, root in zip(pull(douts), slopes, roots):
        b = np.zeros(tuple(root.shape)) if b is None else b.numpy()
        np.testing.assert_allclose(a.asnumpy(), b, **close, err_msg="gradient")


def tree_of(value, change):
    """The same with our tensors."""
    if isinstance(value, ml.Tensor):
        return change(value)
    if isinstance(value, (list, tuple)):
        return type(value)([tree_of(part, change) for part in value])
    return value


def tensors_out(out):
    """The outputs as a list."""
    return list(out) if isinstance(out, (list, tuple)) else [out]


@pytest.mark.parametrize(("info", "call"), list(infos()))
def test_values_and_gradients_are_pytorchs(info, call):
    torch.manual_seed(0)
    dtype = torch.float64 if torch.float64 in info.dtypes else torch.int64
    samples = info.sample_inputs("cpu", dtype, requires_grad=False)
    ran = 0
    for sample in itertools.islice(samples, SAMPLES):
        if max(sizes((sample.input, *sample.args)), default=0) > ELEMENTS:
            continue
        try:
            compare(info, call, sample)
        except LacksError:
            continue
        except (AssertionError, TypeError, ml.errors.MinimlError) as error:
            if any(words in str(error) for words in REFUSED):
                continue
            raise AssertionError(f"{error}\n{sample}") from error
        ran += 1
    assert ran, "no sample ran"
