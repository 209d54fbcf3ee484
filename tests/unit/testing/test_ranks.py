"""Gradients across ranks, and opcheck of collectives, on threads that are ranks: faults that one
rank cannot show are found, and right collectives pass."""

import numpy as np
import pytest

import miniml as ml
from miniml import Primitive, distributed, kernel, ops
from miniml.errors import GradientArgumentError
from miniml.grad import bprop_getters, stop_gradient
from miniml.testing import GradientError, OpCheckError, gradcheck, opcheck


def mixed(x, w):
    return ops.tanh(distributed.all_reduce(x * w)) * w + ops.sum(distributed.all_gather(ops.sin(x)))


def halved(x, w):
    """The right values; the gradient is that of this rank's term alone."""
    own = x * w
    return own + stop_gradient(distributed.all_reduce(own) - own)


def checked(fn, size, elements=3, **options):
    def on(group):
        x, w = np.random.default_rng(group.rank).normal(size=(2, elements))
        return gradcheck(fn, x, w, group=group, raise_error=False, **options)

    return distributed.loopback(on, size)


@pytest.mark.parametrize("mode", [ml.PYNATIVE_MODE, ml.GRAPH_MODE])
def test_gradients_of_both_orders_across_ranks_are_right(mode):
    reports = checked(mixed, 2, order=2, mode=mode)
    assert all(report.ok and not report.findings for report in reports)
    assert reports[0].judged == reports[1].judged >= 12  # the arguments of both ranks, two orders


def test_a_gradient_that_stays_on_its_rank_is_wrong_on_all():
    for report in checked(halved, 2, 1):
        assert not report.ok
        arguments = {f.argument for f in report.findings}
        assert {"argument 0 on rank 0", "argument 1 on rank 0"} <= arguments
        for f in report.findings:
            assert f.verdict == "wrong"
            assert np.isclose(f.analytic, f.numeric / 2)


@pytest.mark.deep
def test_all_ranks_raise():
    def on(group):
        with pytest.raises(GradientError):
            gradcheck(halved, np.ones(1), np.ones(1), group=group)
        with pytest.raises(GradientArgumentError, match="returns int64"):
            gradcheck(lambda x: distributed.all_reduce(ops.cast(x, ml.int64)), np.ones(2),
                      group=group)  # fmt: skip
        return True

    assert distributed.loopback(on, 2) == [True, True]


def test_a_group_of_one_is_a_plain_check():
    assert gradcheck(mixed, np.ones(2), np.ones(2), group=distributed.init("self")).ok


# --- opcheck --------------------------------------------------------------------------------------


class Summed(Primitive, abstract=True):
    """A collective of a user's: the sum over ranks."""

    effect = "ordered"
    group: str = "self"
    size: int = 1

    def infer_shape(self, x):
        return x

    def infer_dtype(self, x):
        return x


def summed(x, *, group, size, out):
    distributed.world().all_reduce(np.ascontiguousarray(x), out)  # the only group here


def collective(name, back, **facts):
    """A primitive with this bprop and these facts."""
    cls = type(name, (Summed,), facts)
    kernel(name, "cpu", "d->d")(summed)
    bprop_getters.register(cls)(lambda self: lambda x, out, dout: (back(self, dout),))
    return cls()


def everywhere(self, dout):
    return ops.AllReduce("sum", self.group, self.size)(dout)


def ranks(primitive, **options):
    return opcheck(primitive, checks=("ranks",), raise_error=False, **options)


def test_a_right_collective_of_a_user_passes():
    report = ranks(collective("RankSumRight", everywhere))
    assert report.ok, report


FAULTS = {
    "RankSumForgot": (lambda self, dout: dout, {}, "its gradient across ranks is wrong"),
    "RankSumMean": (
        lambda self, dout: ops.AllReduce("mean", self.group, self.size)(dout), {},
        "its gradient across ranks is wrong",
    ),
    "RankSumPure": (everywhere, {"effect": "pure"}, "may drop or reorder"),
}  # fmt: skip


@pytest.mark.parametrize(
    "name", ["RankSumForgot", *(pytest.param(n, marks=pytest.mark.deep) for n in list(FAULTS)[1:])]
)
def test_a_fault_that_one_rank_cannot_show_is_found(name):
    back, facts, says = FAULTS[name]
    primitive = collective(name, back, **facts)
    assert gradcheck(primitive, np.array([0.5, 2.0])).ok  # on one rank
    report = ranks(primitive, inputs=(np.array([0.5, 2.0]),))
    assert not report.ok
    assert says in str(report)
    assert "checks=('ranks',)" in report.findings[0].example


BUILT_IN = [
    ops.AllReduce("sum", "world", 3), ops.AllReduce("max", "world", 2), ops.AllGather("world", 2),
    ops.Broadcast(1, "world", 2), ops.Reduce(1, "world", 2), ops.AllToAll("world", 2),
    ops.ReduceScatter("world", 2), ops.SendRecv(((0, 1), (1, 2)), "world", 3),
    ops.SendRecv(((0, 0),), "world", 2),
]  # fmt: skip


@pytest.mark.parametrize("primitive", BUILT_IN, ids=str)
@pytest.mark.deep
def test_built_in_collectives_of_several_ranks_pass(primitive):
    assert opcheck(primitive, budget=30).ok


@pytest.mark.deep
def test_a_collective_for_several_ranks_is_checked_on_as_many():
    report = opcheck(ops.SendRecv(((0, 0),), "world", 2), budget=30)
    assert report.ok  # a rank that sends to itself beside one that has nobody
    three = type(collective("RankSumOfThree", lambda self, dout: dout))("world", 3)
    with pytest.raises(OpCheckError, match="on rank 0 of 3"):
        opcheck(three, inputs=(np.array([0.5, 2.0]),))
