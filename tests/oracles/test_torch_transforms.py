"""vmap and jvp beside torch.func's, at the samples with which PyTorch tests its own operators."""

import itertools
import warnings

import numpy as np
import pytest

import miniml as ml
from miniml.grad import jvp

torch = pytest.importorskip("torch", reason="no torch")
with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    pytest.importorskip(
        "torch.testing._internal.common_methods_invocations", reason="no torch tests"
    )

from .test_torch_samples import (  # noqa: E402
    CLOSE,
    ELEMENTS,
    FLOAT32,
    PREPARED,
    REFUSED,
    SIGNS,
    infos,
    sizes,
    tensors_out,
    tree,
    tree_of,
)
from .torch_calls import LacksError  # noqa: E402

pytestmark = [pytest.mark.deep, pytest.mark.filterwarnings("ignore")]

SAMPLES = 12  # of one operator
EXAMPLES = 2
# What torch.func does not map or differentiate, in its words.
THEIRS = (
    "vmap", "batching rule", "functorch", "data-dependent", "Batching rule", "forward AD",
    "not implemented", "in-place", "inplace", "doesn't have storage", "not supported",
    "must match the size",  # of the signs that are chosen for empty factors
)  # fmt: skip


def numbers(tensor):
    return tensor.detach().numpy(force=True)


def is_real(tensor):
    return "float" in str(tensor.dtype)


def plain(fn, given, named):
    """A function of the float tensors in a tree; `fn` gets the tree again."""

    def run(*at):
        rest = iter(at)
        again = tree_of(given, lambda t: next(rest) if is_real(t) else t)
        return tuple(tensors_out(fn(*again, **named)))

    return run


def theirs_plain(info, given, named):
    operator = PREPARED.get(info.name, info.op)
    signs = SIGNS.get(info.name, tensors_out)

    def run(*at):
        rest = iter(at)
        return tuple(
            signs(operator(*tree(given, lambda t: next(rest) if is_real(t) else t), **named))
        )

    return run


def leaves(value):
    if isinstance(value, torch.Tensor):
        return [value] if is_real(value) else []
    return [t for v in value for t in leaves(v)] if isinstance(value, (list, tuple)) else []


def choices(count):
    """Where the examples stand in each of the tensors: first, last, and only in some."""
    yield (0,) * count
    yield (-1,) * count
    if count > 1:
        yield (0,) + (None,) * (count - 1)


def stacked(x, axis, draws):
    """Two examples of a tensor along an axis: itself, and a smaller one, symmetric if it is; twice
    the same where all are signs, as targets are."""
    if axis is None:
        return x
    signs = np.array_equal(np.abs(x), np.ones_like(x))
    return np.stack([x, x if signs else x * draws.uniform(0.95, 0.99)], axis)


def towards_of(x, draws):
    """A tangent, symmetric where the point is."""
    t = draws.standard_normal(x.shape)
    square = x.ndim > 1 and x.shape[-1] == x.shape[-2]
    return t + np.swapaxes(t, -1, -2) if square and np.allclose(x, np.swapaxes(x, -1, -2)) else t


def compare(info, call, sample):
    """The number of choices of axes, and tangents, that were compared."""
    close = CLOSE | ({"rtol": 1e-7} if info.name in FLOAT32 else {"rtol": 1e-7, "atol": 1e-8})
    given = (sample.input, *sample.args)
    ours = tree(given, lambda t: ml.Tensor(numbers(t)))
    named = {n: tree(v, lambda t: ml.Tensor(numbers(t))) for n, v in sample.kwargs.items()}
    points = [numbers(t) for t in leaves(given)]
    if not points:
        return 0
    mine, other = plain(call, ours, named), theirs_plain(info, given, sample.kwargs)
    draws, done = np.random.default_rng(0), 0
    for axes in choices(len(points)):
        together = [stacked(p, axis, draws) for p, axis in zip(points, axes)]
        try:
            expected = torch.func.vmap(other, axes)(*map(torch.from_numpy, together))
        except (RuntimeError, NotImplementedError, ValueError) as error:
            if any(words in str(error) for words in THEIRS):
                continue
            raise
        got = ml.vmap(mine, axes)(*together)
        for a, b in zip(got, expected, strict=True):
            np.testing.assert_allclose(a.asnumpy(), numbers(b), **close, err_msg=f"axes {axes}")
        done += 1
    if not all(p.size for p in points):  # PyTorch's tangents of NaN are zeros there
        return done
    towards = [towards_of(p, draws) for p in points]
    if not info.supports_forward_ad or not info.supports_autograd:
        return done
    try:
        expected = torch.func.jvp(
            other, tuple(map(torch.from_numpy, points)),
            tuple(torch.from_numpy(np.asarray(t)) for t in towards),
        )[1]  # fmt: skip
    except (RuntimeError, NotImplementedError) as error:
        if any(words in str(error) for words in THEIRS):
            return done
        raise
    got = jvp(mine, tuple(points), tuple(towards))[1]
    close |= {"atol": 1e-5} if info.name == "logcumsumexp" else {}  # PyTorch's are as far off
    for a, b in zip(got, expected, strict=True):
        if a is not None:
            np.testing.assert_allclose(a.asnumpy(), numbers(b), **close, err_msg="tangent")
    return done + 1


@pytest.mark.parametrize(("info", "call"), list(infos()))
def test_batches_and_tangents_are_pytorchs(info, call):
    torch.manual_seed(0)
    if torch.float64 not in info.dtypes:
        pytest.skip("no floats, which alone are mapped here")
    done = 0
    for sample in itertools.islice(
        info.sample_inputs("cpu", torch.float64, requires_grad=False), SAMPLES
    ):
        if max(sizes((sample.input, *sample.args)), default=0) > ELEMENTS:
            continue
        try:
            done += compare(info, call, sample)
        except LacksError:
            continue
        except (AssertionError, TypeError, ml.errors.MinimlError) as error:
            if any(words in str(error) for words in REFUSED):
                continue
            raise AssertionError(f"{error}\n{sample}") from error
    if not done:
        pytest.skip("torch.func maps none of the samples")
