"""Elementwise kernels on a CUDA device: packs of neighbours, and what does not come in packs."""

import numpy as np
import pytest

import miniml as ml
from miniml import ops
from miniml.backends.cuda.sim.memory import SCHEDULES, using


def integers(*shape, dtype="f"):
    return np.random.default_rng(1).integers(0, 9, shape).astype(dtype)


@pytest.mark.parametrize("n", [0, 1, 3, 4, 5, 31, 32, 33, 1023, 1024, 1025, 4099])
@pytest.mark.parametrize("dtype", ["b", "e", "f", "d"])
def test_contiguous_arrays_of_every_length(on_device, n, dtype):
    x, y = integers(n, dtype=dtype), integers(n, dtype=dtype)[::-1].copy()
    assert np.array_equal((ml.Tensor(x) + ml.Tensor(y)).asnumpy(), x + y)
    assert np.array_equal((ml.Tensor(x) < ml.Tensor(y)).asnumpy(), x < y)


LOOKS = {
    "aligned": lambda x: x[:, 4:12],
    "odd start": lambda x: x[:, 1:9],
    "odd extent": lambda x: x[:, :7],
    "odd rows": lambda x: x[1:2, :23],
    "row repeated": lambda x: x[2],
    "column repeated": lambda x: x[:, :1],
    "one element": lambda x: x[3:4, 5:6],
    "steps": lambda x: x[:, ::2],
    "backwards": lambda x: x[:, ::-1],
    "turned": lambda x: x.T,
}


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("look", LOOKS.values(), ids=LOOKS)
def test_views_and_broadcasting(on_device, look, schedule):
    x = integers(40, 24)
    seen = look(x)
    with using(schedule=schedule, seed=1):
        own = look(ml.Tensor(x))
        for other in (np.ones(seen.shape, "f"), integers(*seen.shape), np.ones((), "f")):
            came = (own * ml.Tensor(other)).asnumpy()
            assert np.array_equal(came, seen * other)
        if seen.shape[-1] in (1, 24):
            assert np.array_equal((ml.Tensor(x) - own).asnumpy(), x - seen)
        assert np.array_equal(own.astype("float64").asnumpy(), seen)


@pytest.mark.parametrize("shape", [(3, 4, 8), (3, 4, 5), (2, 8)])
def test_copies_of_turned_arrays(on_device, shape):
    x = integers(*shape)
    assert np.array_equal(ops.concat([ml.Tensor(x).T] * 2, 0).asnumpy(), np.concatenate([x.T] * 2))


@pytest.mark.parametrize("n", [1, 5, 16, 1027])
def test_tensors_made_from_nothing(on_device, n):
    assert np.array_equal(ops.full((n,), 3, "int16").asnumpy(), np.full(n, 3))
    assert np.array_equal(ops.arange(n).asnumpy(), np.arange(n))


@pytest.mark.parametrize("dtype", ["b", "L", "e", "f", "d"])
def test_linspace_on_a_device(on_device, dtype):
    for start, stop, num in ((3, 45, 7), (45, 3, 3), (7, 7, 4), (5, 9, 1), (5, 9, 0)):
        expected = np.linspace(start, stop, num).astype(dtype)
        assert np.array_equal(ops.linspace(start, stop, num, dtype).asnumpy(), expected)


def test_linspace_from_end_to_end_of_the_range_on_a_device(on_device):
    got = ops.linspace(-1.5e308, 1.5e308, 5, "float64").tolist()
    assert got == [-1.5e308, -0.75e308, 0.0, 0.75e308, 1.5e308]
    assert ops.linspace(1.0, 1.0 + 1e-15, 50, "float64").tolist()[-1] == 1.0 + 1e-15
    assert ops.linspace(2**64 - 1, 2**64 - 3, 3, "uint64").tolist() == [
        2**64 - i for i in (1, 2, 3)
    ]
    assert ops.arange(2**63, 2**63 + 2, dtype="uint64").tolist() == [2**63, 2**63 + 1]


@pytest.mark.parametrize("source", ["float16", "bfloat16", "float32", "float64"])
def test_floats_become_integers_as_on_the_cpu(on_device, source):
    ends = [
        float(f(np.iinfo(d))) for d in ml.dtype.INTEGERS for f in (lambda i: i.min, lambda i: i.max)
    ]
    near = np.array([e + d for e in ends for d in (-1.5, -1, -0.5, 0, 0.5, 1, 1.5)])
    with np.errstate(over="ignore"):
        x = np.concatenate([near, [np.nan, np.inf, -np.inf, -0.0]]).astype(
            ml.dtype.as_dtype(source)
        )
    for target in ml.dtype.INTEGERS:
        with ml.context(device_target="cpu"):
            expected = ops.cast(ml.Tensor(x), target).asnumpy()
        assert np.array_equal(ops.cast(ml.Tensor(x), target).asnumpy(), expected)


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("dtype", ["?", "e", "f", "d"])
@pytest.mark.parametrize("shape", [(31, 33), (64, 32), (3, 70, 25), (2, 33, 2, 40), (5, 1, 7)])
def test_arrays_are_turned_by_tiles(on_device, shape, dtype, schedule):
    x = integers(*shape).astype(dtype)
    with using(schedule=schedule, seed=1):
        for axes in (range(x.ndim)[::-1], (*range(1, x.ndim), 0), (1, 0, *range(2, x.ndim))):
            turned = ops.transpose(ml.Tensor(x), tuple(axes))
            assert np.array_equal(turned.reshape(-1).asnumpy(), x.transpose(tuple(axes)).ravel())


@pytest.mark.parametrize("dtype", ["b", "e", "d"])
@pytest.mark.parametrize("n", [1, 15, 16, 17, 300])
def test_zeros_are_filled_in(on_device, dtype, n):
    """The gradient of a slice is zeros, of which a part is overwritten."""
    x = integers(n, dtype=dtype)
    slice_grad = ops.SliceGrad((n + 40,), (3,), (3 + n,), (1,))
    assert np.array_equal(slice_grad(ml.Tensor(x)).asnumpy(), np.pad(x, (3, 37)))
