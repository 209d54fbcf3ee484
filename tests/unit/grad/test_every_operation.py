"""Every function of miniml.ops under vmap, jvp, gradients of vmap and vmap of gradients.

Each runs, and gives what it gives for one example after another, or refuses in a sentence that
docs/transforms.md lists. A function is called with the first of the arguments in `USUAL` that it
takes, or with its own in `CALLS`.
"""

import inspect
import re
from pathlib import Path

import numpy as np
import pytest

import miniml as ml
from miniml import ops
from miniml.core.abstract import is_float
from miniml.errors import MinimlError
from miniml.grad import grad, jvp, vjp

PAGE = Path(__file__).resolve().parents[3] / "docs" / "transforms.md"
RNG = np.random.default_rng(0)
X, Y, Z = RNG.uniform(0.2, 0.9, size=(3, 3, 4))
A = RNG.normal(size=(3, 3)) * 0.1 + np.diag([3.0, 2.0, 1.0])
A = (A + A.T) / 2
IMAGE = RNG.normal(size=(2, 4, 6, 6))
LABELS = np.array([0, 3, 1])
INDEX = np.array([[2, 0], [1, 1]])
USUAL = [
    (X,), (X, Y), (X, Y, Z), (X > 0.5,), (X > 0.5, Y > 0.5), (LABELS,), (LABELS, LABELS),
    (X, 1), (X, LABELS), (A,), (A, X), (IMAGE,), (IMAGE, 2), (X[0],), (X[0], X[1]), (),
    ((3, 4),), (X, Y, Z, X), (X > 0.5, X, Y), (X, (4, 3)), (X, INDEX, X),
]  # fmt: skip
IMAGES = RNG.normal(size=(2, 3, 4))
# Functions that the usual arguments do not fit, with theirs, or a function of arrays.
CALLS = {
    "adaptive_avg_pool1d": (IMAGES, 2), "adaptive_max_pool1d": (IMAGES, 2),
    "adaptive_avg_pool3d": (IMAGE[:, :, None], 2), "adaptive_max_pool3d": (IMAGE[:, :, None], 1),
    "avg_pool1d": (IMAGES, 2), "max_pool1d": (IMAGES, 2),
    "avg_pool3d": (IMAGE[None, :, :2], 2), "max_pool3d": (IMAGE[None, :, :2], 2),
    "batch_norm": (IMAGE, np.ones(4), np.zeros(4), np.zeros(4), np.ones(4)),
    "bincount": (LABELS, 4), "categorical": (X,), "concat": lambda x, y: ops.concat([x, y]),
    "conv1d": (IMAGES, RNG.normal(size=(2, 3, 2))),
    "conv2d": (IMAGE, RNG.normal(size=(3, 4, 2, 2))),
    "conv3d": (IMAGE[:, :, None], RNG.normal(size=(3, 4, 1, 2, 2))),
    "conv_transpose1d": (IMAGES, RNG.normal(size=(3, 2, 2))),
    "conv_transpose2d": (IMAGE, RNG.normal(size=(4, 3, 2, 2))),
    "conv_transpose3d": (IMAGE[:, :, None], RNG.normal(size=(4, 3, 1, 2, 2))),
    "assign": lambda x: ops.assign(ml.Parameter(np.zeros((3, 4))), x),
    "cholesky": (A,), "cond": lambda x: ops.cond(ops.sum(x) > 0, ops.sin, ops.cos, x),
    "cross_entropy": (X, LABELS), "nll_loss": (-X, LABELS),
    "ctc_loss": (-np.stack([X, Y]), LABELS[:, None] % 3 + 1, np.full(3, 2), np.ones(3, int)),
    "einsum": lambda x, y: ops.einsum("ij,kj->ik", x, y), "scan": lambda x: ops.scan(
        lambda c, r: (c * r, c), x[0], x)[0],
    "while_loop": lambda x: ops.while_loop(lambda v: ops.sum(v) > 1.0, lambda v: 0.5 * v, x),
    "fold": (RNG.normal(size=(1, 4, 9)), (4, 4), 2), "unfold": (IMAGE, 2),
    "gather_nd": (X, np.array([[0, 1], [2, 3]])), "getitem": lambda x: ops.getitem(x, (0, [1, 2])),
    "group_norm": (IMAGE, 2), "kl_div": (X, Y), "one_hot": (LABELS, 4),
    "lstsq": (np.vstack([A, A[:1]]), X.T), "meshgrid": (X[0], X[1]), "scatter_add": (
        X, np.array([0, 2]), Y[:2]), "scatter": lambda x, y: ops.scatter(x, 0, y[0]),
    "permutation": lambda x: ops.permutation(3), "polygamma": lambda x: ops.polygamma(1, x),
    "pow": (X, Y), "randint": lambda: ops.randint((2,), 0, 9), "resize": (IMAGE, (3, 3)),
    "rotary_embedding": (IMAGE,), "scaled_dot_product_attention": (
        IMAGE, IMAGE + 0.5, -IMAGE), "searchsorted": (np.array([0.1, 0.4]), X[0]),
    "slice": (X, (0, 1), (2, 3)), "slogdet": (A,), "solve": (A, X), "stack": lambda x, y: ops.stack(
        [x, y]), "triangular_solve": (np.tril(A), X), "tile": (X, (2, 1)), "topk": (X, 2),
    "where": (X > 0.5, X, Y), "take_along_axis": (X, LABELS[:, None]),
    "var": (X,), "split": (X, 2, 1), "repeat": (X, 2), "squeeze": (X[:1],), "pad": (X, 1),
    "bernoulli": ((3, 4), 0.5), "dropout": (X, 0.5), "barrier": (X, Y),
    "acosh": (1.0 + X,), "arange": (4,), "eye": (3,), "linspace": (0.0, 1.0, 5),
    "full": ((3, 4), 2.0), "ones": ((3, 4),), "zeros": ((3, 4),), "normal": ((3, 4),),
    "gumbel": ((3, 4),), "uniform": ((3, 4),), "truncated_normal": ((3, 4),),
    "broadcast_to": (X, (2, 3, 4)), "cast": (X, "float32"), "expand_dims": (X, 1),
    "moveaxis": (X, 0, 1), "swapaxes": (X, 0, 1), "roll": (X, 1), "masked_fill": (X, X > 0.5, 0.0),
    "sinusoidal_positions": (3, 4), "affine_grid": (RNG.normal(size=(2, 2, 3)), (2, 1, 3, 4)),
    "associative_scan": lambda x: ops.associative_scan(ops.mul, x),
    "cosine_embedding_loss": (X, Y, np.array([1, -1, 1])), "embedding_bag": (X, INDEX),
    "fftfreq": (5,), "rfftfreq": (5,), "map": lambda x: ops.map(ops.sin, x),
    "fori_loop": lambda x: ops.fori_loop(0, 3, lambda i, v: ops.sin(v) + i, x),
    "grid_sample": (IMAGE, RNG.uniform(-0.9, 0.9, size=(2, 3, 3, 2))),
    "lp_pool1d": (IMAGES + 2.0, 2, 2), "lp_pool2d": (np.abs(IMAGE), 2, 2),
    "lp_pool3d": (np.abs(IMAGE[None, :, :2]), 2, 2),
    "masked_select": lambda x: ops.masked_select(x, X > 0.5), "percentile": (X, 30.0),
    "poisson": ((3,), 2.0), "quantile": (X, 0.3),
    "scatter_nd": (X, np.array([[0, 1], [2, 3]]), Y[0, :2]), "segment_max": (X, LABELS, 4),
    "segment_mean": (X, LABELS, 4), "segment_min": (X, LABELS, 4), "segment_prod": (X, LABELS, 4),
    "segment_sum": (X, LABELS, 4), "swap_axes": (X, 0, 1),
    "switch": lambda x: ops.switch(1, [ops.sin, ops.cos], x),
}  # fmt: skip
# No functions of tensors.
OTHERS = {"custom", "pack_attribute", "unpack_attribute"}
NAMES = sorted(
    n for n, f in vars(ops).items()
    if n.islower() and n[0] != "_" and callable(f) and not inspect.ismodule(f) and n not in OTHERS
)  # fmt: skip


def called(name):
    """A function of arrays, and the arrays, of the first arguments that are taken."""
    own = CALLS.get(name)
    if callable(own):
        count = len(inspect.signature(own).parameters)
        return own, [X, Y][:count]
    fn = getattr(ops, name)
    for args in [own] if own else USUAL:
        arrays = [a for a in args if isinstance(a, np.ndarray)]

        def run(*xs, args=args):
            rest = iter(xs)
            return fn(*(next(rest) if isinstance(a, np.ndarray) else a for a in args))

        try:
            run(*arrays)
        except (MinimlError, TypeError, ValueError, AttributeError):
            continue
        return run, arrays
    raise AssertionError(f"ops.{name} takes none of the usual arguments; give it a line in CALLS")


def leaves(out):
    every = out if isinstance(out, (tuple, list)) else [out]
    return [o for o in every if isinstance(o, ml.Tensor)]


def close(got, expected, scale=1.0):
    for a, b in zip(got, expected, strict=True):
        low = b.dtype in (np.float32, np.float16)
        tolerance = 1e-4 if low else 1e-8
        np.testing.assert_allclose(a, b, rtol=tolerance, atol=tolerance * scale, equal_nan=True)


def draws(name, run, arrays):
    """True for a function that gives other numbers at each call."""
    pairs = zip(leaves(run(*arrays)), leaves(run(*arrays)))
    return name == "dropout" or any(
        not np.array_equal(a, b, equal_nan=a.dtype.kind == "f")
        for a, b in ((np.asarray(x), np.asarray(y)) for x, y in pairs)
    )


def total(run):
    def fn(*xs):
        outs = [o for o in leaves(run(*xs)) if is_float(o.dtype)]
        return sum((ops.sum(o * o) for o in outs[1:]), ops.sum(outs[0] * outs[0]))

    return fn


def check_vmap(run, arrays, random):
    others = [np.flip(a, -1) if a.dtype.kind == "f" and a.shape != A.shape else a for a in arrays]
    together = [np.stack(pair) for pair in zip(arrays, others)]
    got = leaves(ml.vmap(run, axis_size=2)(*together))
    each = [leaves(run(*map(ml.Tensor, some))) for some in (arrays, others)]
    expected = [np.stack([a.asnumpy(), b.asnumpy()]) for a, b in zip(*each)]
    assert [g.shape for g in got] == [e.shape for e in expected]
    if not random:
        close([g.asnumpy() for g in got], expected)


def check_jvp(run, points, random):
    tangents = tuple(RNG.normal(size=p.shape) for p in points)
    fn = lambda *xs: tuple(o for o in leaves(run(*xs)) if is_float(o.dtype))  # noqa: E731
    outs, moved = jvp(fn, tuple(points), tangents)
    if random:
        return
    _, pull = vjp(fn, *points)
    douts = tuple(ml.Tensor(RNG.normal(size=o.shape).astype(o.dtype)) for o in outs)
    left = sum(np.vdot(d.asnumpy(), t.asnumpy()) for d, t in zip(douts, moved))
    right = [g.asnumpy() * t for g, t in zip(pull(douts), tangents)]
    scale = sum(np.abs(r).sum() for r in right) + 1.0
    assert abs(left - sum(r.sum() for r in right)) < 1e-4 * scale


def check_gradients(run, points, random):
    fn, numbers = total(run), tuple(range(len(points)))
    together = [np.stack([p, p]) for p in points]
    one = [g.asnumpy() for g in grad(fn, numbers)(*points)]
    expected = [np.stack([g, g]) for g in one]
    inner = ml.vmap(grad(fn, numbers))(*together)
    outer = grad(lambda *xs: ops.sum(ml.vmap(fn)(*xs)), numbers)(*together)
    if not random:
        scale = max((np.abs(g).max(initial=0) for g in one), default=1.0)
        close([g.asnumpy() for g in inner], expected, scale)
        close([g.asnumpy() for g in outer], expected, scale)


def listed():
    """The sentences of refusals on the page, as patterns: ... stands for anything."""
    part = PAGE.read_text().split("## What is refused")[1].split("\n## ")[0]
    rows = re.findall(r"^- `(.+?)`", part, re.MULTILINE)
    return [".*".join(map(re.escape, row.split("..."))) for row in rows]


@pytest.mark.parametrize("name", NAMES)
def test_it_runs_or_refuses_in_a_sentence_of_the_page(name):
    run, arrays = called(name)
    random = draws(name, run, arrays)
    floats = [i for i, a in enumerate(arrays) if a.dtype.kind == "f"]
    points = [arrays[i] for i in floats]

    def of_floats(*xs):
        given = dict(zip(floats, xs))
        return run(*(given.get(i, a) for i, a in enumerate(arrays)))

    smooth = points and any(is_float(o.dtype) for o in leaves(run(*arrays)))
    checks = [lambda: check_vmap(run, arrays, random)]
    checks += [lambda: check_jvp(of_floats, points, random)] * bool(smooth)
    checks += [lambda: check_gradients(of_floats, points, random)] * bool(smooth)
    for check in checks:
        try:
            check()
        except MinimlError as error:
            said = str(error).splitlines()[0]
            assert any(re.search(pattern, said) for pattern in listed()), said
