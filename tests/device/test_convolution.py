"""Convolution and its gradients on a CUDA device: by tiles and alone, groups, strides, dilation."""

import itertools

import numpy as np
import pytest

import miniml as ml
from miniml import ops
from miniml.backends.cuda.kernels.images import FORWARD, INPUT, WEIGHT, WINDOW, tiled
from miniml.backends.cuda.sim.memory import SCHEDULES, using

# images, channels, rows, columns; outputs, taps; stride, padding, dilation, groups
CASES = {
    "tiles of 32": ((3, 6, 9, 7), (20, 3, 3), (1, 1), ((1, 1), (1, 1)), (1, 1), 1),
    "tiles of 64": ((2, 9, 6, 7), (66, 3, 2), (1, 1), ((0, 1), (1, 0)), (1, 1), 1),
    "strides": ((2, 10, 11, 13), (33, 3, 3), (2, 3), ((1, 0), (2, 1)), (1, 1), 1),
    "dilation": ((2, 8, 11, 12), (16, 3, 2), (1, 2), ((2, 2), (0, 1)), (2, 3), 1),
    "groups": ((2, 24, 6, 5), (30, 3, 2), (1, 1), ((1, 1), (1, 1)), (1, 1), 3),
    "one tap": ((2, 17, 5, 9), (65, 1, 1), (1, 1), ((0, 0), (0, 0)), (1, 1), 1),
    "cut sums": ((9, 8, 12, 12), (9, 2, 2), (1, 1), ((0, 0), (0, 0)), (1, 1), 1),
    "alone": ((2, 4, 6, 5), (4, 3, 3), (2, 1), ((1, 1), (0, 2)), (1, 1), 4),
}


def parts(case):
    """Each tap of the filters with the pixels of padded images that it meets, group by group."""
    (_, channels, _, _), (outputs, kh, kw), stride, _, dilation, groups = case
    for g, a, b in itertools.product(range(groups), range(kh), range(kw)):
        inner, outer = channels // groups, outputs // groups
        own, to = slice(g * inner, (g + 1) * inner), slice(g * outer, (g + 1) * outer)
        yield own, to, a, b, a * dilation[0], b * dilation[1], stride


def three(case, rng, dtype):
    """x, w and dout, with the convolution and both gradients in float64."""
    shape, (outputs, kh, kw), stride, padding, dilation, groups = case
    x = rng.standard_normal(shape).astype(dtype)
    w = rng.standard_normal((outputs, shape[1] // groups, kh, kw)).astype(dtype)
    padded = np.pad(x.astype("d"), ((0, 0), (0, 0), *padding))
    oh, ow = (
        (padded.shape[2 + i] - dilation[i] * (k - 1) - 1) // stride[i] + 1
        for i, k in enumerate((kh, kw))
    )
    dout = rng.standard_normal((shape[0], outputs, oh, ow)).astype(dtype)
    out, dx, dw = np.zeros(dout.shape), np.zeros(padded.shape), np.zeros(w.shape)
    for own, to, a, b, y, z, (sh, sw) in parts(case):
        seen = np.s_[:, own, y : y + sh * (oh - 1) + 1 : sh, z : z + sw * (ow - 1) + 1 : sw]
        tap = w[to, :, a, b].astype("d")
        out[:, to] += np.einsum("nchw,oc->nohw", padded[seen], tap)
        dx[seen] += np.einsum("nohw,oc->nchw", dout[:, to].astype("d"), tap)
        dw[to, :, a, b] += np.einsum("nohw,nchw->oc", dout[:, to].astype("d"), padded[seen])
    (top, _), (left, _) = padding
    inside = dx[:, :, top : top + shape[2], left : left + shape[3]]
    return (x, w, dout), (out, inside, dw)


def near(got, right, dtype, terms):
    """Errors of sums of `terms` products of normal numbers, and of one rounding."""
    own = float(np.finfo(dtype).eps)
    eps = own if dtype == np.float64 else float(np.finfo(np.float32).eps)
    assert np.all(np.abs(got.astype("d") - right) <= 16 * eps * terms + own * np.abs(right))


def check(case, dtype=np.float32):
    shape, (_, kh, kw), stride, padding, dilation, groups = case
    (x, w, dout), (out, dx, dw) = three(case, np.random.default_rng(9), dtype)
    attrs = {"stride": stride, "padding": padding, "dilation": dilation, "groups": groups}
    tensors = [ml.Tensor(a) for a in (x, w, dout)]
    terms = w[0].size
    near(ops.Conv2D(**attrs)(*tensors[:2]).asnumpy(), out, dtype, terms)
    grad = ops.Conv2DInputGrad(input_shape=shape[2:], **attrs)(tensors[2], tensors[1])
    near(grad.asnumpy(), dx, dtype, terms * len(w) // w.shape[1])
    grad = ops.Conv2DWeightGrad(kernel_shape=(kh, kw), **attrs)(tensors[0], tensors[2])
    near(grad.asnumpy(), dw, dtype, dout[:, 0].size)


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_every_way(on_device, case, schedule):
    with using(schedule=schedule, seed=7):
        check(case)


@pytest.mark.parametrize("dtype", [np.float16, np.float64])
def test_dtypes(on_device, dtype):
    check(CASES["strides"], dtype)


def sizes(**given):
    """The struct Window of some convolution."""
    record = np.ones(1, WINDOW)
    for name, number in given.items():
        record[name] = number
    return record


def test_what_is_computed_by_tiles():
    few = sizes(n=64, c=1, h=32, w=32, o=8, oh=32, ow=32, kh=3, kw=3)
    many = sizes(n=64, c=64, h=32, w=32, o=128, oh=32, ow=32, kh=3, kw=3)
    assert tiled(FORWARD, few) is None
    assert tiled(FORWARD, many).entry == "tiles_64"
    assert tiled(INPUT, sizes(n=1, c=32, h=9, w=9, o=64, oh=9, ow=9)).entry == "tiles_32"
    assert tiled(WEIGHT, many).split > 1
    huge = sizes(n=1 << 16, c=64, h=256, w=256, o=64, oh=256, ow=256)
    assert tiled(FORWARD, huge) is None


@pytest.mark.parametrize("short", [0, 1, 14, 15, 16, 17, 128, 255, 256, 1000, 1 << 20])
def test_numbers_that_32_bits_count_end_before_their_limit(short):
    """A tile beyond the last product, row or column is counted, too."""
    most = (1 << 31) - short
    row = sizes(n=1, c=2048, o=2048, w=most, ow=most)  # many columns, or sums in one part
    few = sizes(n=1, c=16, o=16, w=most, ow=most)  # sums in many parts
    channels = sizes(n=16, c=most, o=most, groups=1)
    apart = sizes(n=16, c=16, o=16, w=2 * most, ow=most // 64, sw=128)  # only pixels are far
    for kind, window in itertools.product((FORWARD, INPUT, WEIGHT), (row, few, channels, apart)):
        found = tiled(kind, window)
        if found is None:
            continue
        product = {name: int(found.product[name][0]) for name in found.product.dtype.names}
        ends = product["m"] + 64, product["n"] + 128, product["k"] + 16
        length = product["length"]
        assert max(*ends, *map(int, window[0].item())) < 1 << 31
        assert (found.split - 1) * length < product["k"] <= found.split * length
    assert (tiled(WEIGHT, few) is None) == (short < 256)
