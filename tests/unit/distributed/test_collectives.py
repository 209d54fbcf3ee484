"""Collectives of several ranks, against what NumPy computes from the values of all of them."""

import numpy as np
import pytest

import miniml as ml
from miniml import distributed, ops
from miniml.distributed import loopback
from miniml.errors import DistributedError, GraphError, ShapeError
from miniml.grad import grad, jvp, value_and_grad, vjp
from tests.frame.native import needs_compiler

SIZE = 3
RNG = np.random.default_rng(0)
X = RNG.normal(size=(SIZE, 6, 2))  # of rank r: X[r]
PAIRS = ((0, 1), (1, 2))


def blocks(x):
    """x[r, s]: block s of rank r."""
    return x.reshape(SIZE, SIZE, -1, *x.shape[2:])


def every(value):
    return np.stack([value] * SIZE)


def sent(x):
    return np.stack([np.zeros_like(x[0]), x[0], x[1]])


def largest(x, dout):
    """The cotangents of a maximum, of which no two ranks have the same."""
    return (x == x.max(0)) * dout.sum(0)


# By name: the function, its result for all ranks, and the cotangents of all ranks.
LINEAR = {
    "sum": (distributed.all_reduce, lambda x: every(x.sum(0)), lambda d: every(d.sum(0))),
    "mean": (
        lambda x: distributed.all_reduce(x, "mean"),
        lambda x: every(x.mean(0)),
        lambda d: every(d.mean(0)),
    ),
    "gather": (
        distributed.all_gather,
        lambda x: every(np.concatenate(list(x))),
        lambda d: d.sum(0).reshape(SIZE, -1, *d.shape[2:]),
    ),
    "scatter": (
        distributed.reduce_scatter,
        lambda x: blocks(x).sum(0),
        lambda d: every(np.concatenate(list(d))),
    ),
    "broadcast": (
        lambda x: distributed.broadcast(x, 1),
        lambda x: every(x[1]),
        lambda d: np.stack([0 * d[0], d.sum(0), 0 * d[0]]),
    ),
    "exchange": (
        distributed.all_to_all,
        lambda x: np.swapaxes(blocks(x), 0, 1).reshape(x.shape),
        lambda d: np.swapaxes(blocks(d), 0, 1).reshape(d.shape),
    ),
    "send": (
        lambda x: distributed.send_recv(x, PAIRS),
        sent,
        lambda d: np.stack([d[1], d[2], 0 * d[0]]),
    ),
}
CASES = {
    **{name: (f, of, lambda x, d, back=back: back(d)) for name, (f, of, back) in LINEAR.items()},
    "max": (lambda x: distributed.all_reduce(x, "max"), lambda x: every(x.max(0)), largest),
}


def ranks(fn):
    """The results of fn(rank) of all ranks, as arrays with an axis of ranks in front."""
    results = loopback(lambda group: fn(group.rank), SIZE)
    return [np.stack([np.asarray(r) for r in found]) for found in zip(*results)]


@pytest.mark.parametrize("name", CASES)
def test_values_cotangents_and_tangents(name):
    collective, expected, back = CASES[name]
    dout = RNG.normal(size=expected(X).shape)
    moved = RNG.normal(size=X.shape)

    def on(rank):
        out, pull = vjp(collective, X[rank])
        pulled = pull(dout[rank])[0]
        compiled = ml.jit(lambda x, d: (collective(x), vjp(collective, x)[1](d)[0]))
        again = vjp(lambda d: vjp(collective, X[rank])[1](d)[0], dout[rank])[1](moved[rank])[0]
        tangent = jvp(collective, (X[rank],), (moved[rank],))[1]
        return out, pulled, *compiled(X[rank], dout[rank]), tangent, again

    out, pulled, out_jit, pulled_jit, tangent, again = ranks(on)
    np.testing.assert_allclose(out, expected(X), rtol=1e-13)
    np.testing.assert_allclose(pulled, back(X, dout), rtol=1e-13, atol=1e-15)
    assert np.array_equal(out, out_jit)
    np.testing.assert_allclose(pulled_jit, pulled, rtol=1e-13, atol=1e-15)
    # Adjoint: <dout, A moved> = <A* dout, moved> in the sum over all ranks; and A** = A.
    assert np.isclose(np.vdot(dout, tangent), np.vdot(pulled, moved))
    np.testing.assert_allclose(again, tangent, rtol=1e-12, atol=1e-14)
    if name != "max":
        np.testing.assert_allclose(tangent, expected(moved), rtol=1e-13, atol=1e-15)


@pytest.mark.parametrize("name", CASES)
def test_under_vmap_and_in_a_loop(name):
    collective, expected, _ = CASES[name]
    many = RNG.normal(size=(SIZE, 4, 6, 2))

    def on(rank):
        mapped = ml.vmap(collective)(many[rank])
        loop = ml.jit(lambda x: ops.scan(lambda c, row: (c, collective(row)), 0.0, x)[0])
        return mapped, loop(many[rank])

    by_row = np.stack([expected(many[:, i]) for i in range(4)], 1)
    for found in ranks(on):
        np.testing.assert_allclose(found, by_row, rtol=1e-13)


def test_the_gradient_of_a_maximum_that_ranks_share_is_divided():
    (found,) = ranks(lambda r: (grad(lambda x: distributed.all_reduce(x, "max"))(min(r, 1) * 2.0),))
    assert found.tolist() == [0.0, 1.5, 1.5]  # three results, two ranks have the maximum


def test_second_derivatives_pass_through_ranks():
    """L = sum of the ranks' (a + b)^3: its gradient is 2 * 3 (a + b)^2, of one rank's entry."""

    def loss(x):
        return distributed.all_reduce(x) ** 3

    def on(group):
        return grad(loss)(1.0 + group.rank).item(), grad(grad(loss))(1.0 + group.rank).item()

    # The sum over 2 ranks: first 2 * 3 s^2; of the sum of both first derivatives 2 * 2 * 2 * 3 s.
    assert loopback(on, 2) == [(54.0, 72.0)] * 2


def test_gradients_through_a_scan():
    rows = RNG.normal(size=(SIZE, 4, 2))

    def loss(x):
        step = lambda c, row: (distributed.all_reduce(c * row, "mean"), None)  # noqa: E731
        return ops.sum(ops.scan(step, np.ones(2), x)[1])

    def by_hand(x):
        """Each step multiplies by the mean m of the rows; the ranks' results are equal."""
        means = x.mean(0)
        total = np.prod(means, axis=0)
        return np.broadcast_to(total / means, x.shape)  # 3 results, each row has a third

    for found in ranks(lambda r: (grad(loss)(rows[r]), ml.jit(grad(loss))(rows[r]))):
        np.testing.assert_allclose(found, by_hand(rows), rtol=1e-12)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "int32", "complex64"])
@pytest.mark.parametrize("count", [0, 1, 7, 5000])
def test_reductions_are_the_same_to_the_bit_on_all_ranks(dtype, count):
    """Terms are added in the order of the ranks, whatever the size."""
    kind = getattr(ml, dtype)
    x = (RNG.normal(size=(SIZE, count)) * 100).astype(kind)
    (found,) = ranks(lambda r: (distributed.all_reduce(x[r]),))
    wide = np.float32 if kind.itemsize == 2 else kind
    total = x[0].astype(wide)
    for part in x[1:]:
        total = total + part.astype(wide)
    for out in found:
        assert out.dtype == kind
        assert np.array_equal(out, total.astype(kind))


def calls_of(fn, *args, providers=("miniml",)):
    """For each rank, what the group was asked for and the results: op by op, and compiled."""

    def on(group):
        asked, agree = [], group.agree
        group.agree = lambda call: (asked.append(call), agree(call))
        given = [ml.Tensor(x[group.rank]) for x in args]
        eager = fn(*given)
        first, asked[:] = [*asked], []
        with ml.context(providers=providers):
            return (first, eager), (asked, ml.jit(fn)(*given))

    return loopback(on, SIZE)


@needs_compiler
@pytest.mark.parametrize("providers", [("miniml",), ("cc", "miniml")])
def test_every_call_is_made_in_order_even_if_nobody_reads_its_result(providers):
    """Else a rank that does read it would wait for ever."""

    def fn(x):
        distributed.all_reduce(x)
        y = distributed.all_gather(x * 2)
        distributed.all_reduce(x)  # repeats the first
        ops.scan(lambda c, row: (distributed.broadcast(c), distributed.all_reduce(row)), x[0], x)
        ops.cond(ops.sum(y) < 1e9, lambda: distributed.all_reduce(y), lambda: y)
        return ops.sum(y) + ops.sum(ops.tanh(x))

    for (asked, eager), (asked_compiled, compiled) in calls_of(fn, X, providers=providers):
        assert len(asked) == 3 + 2 * 6 + 1
        assert asked_compiled == asked
        assert np.isclose(eager.item(), compiled.item())


@needs_compiler
def test_fused_loops_do_not_reorder_collectives():
    """What the first call reads and what is made of the second's result could share a loop, which
    would have to run before the first and after the second."""

    def fn(x, y):
        first = distributed.all_reduce(ops.tanh(x) * 2.0)
        second = distributed.broadcast(y)
        third = distributed.all_reduce(ops.sin(x) * second, "mean")
        return first, ops.exp(third) * ops.cos(x)

    large = RNG.normal(size=(SIZE, 50, 400))  # small programs have no fused loops
    found = calls_of(fn, large, large + 1.0, providers=("cc", "miniml"))
    for (asked, eager), (asked_compiled, compiled) in found:
        assert len(asked) == 3
        assert asked_compiled == asked
        for one, other in zip(eager, compiled):
            np.testing.assert_allclose(one, other, rtol=1e-12, atol=1e-12)


def test_parts_of_a_group():
    def fn(group):
        half = group.split(group.rank % 2, key=-group.rank)
        values = distributed.all_gather(np.array([group.rank]), group=half).tolist()
        return half.rank, half.size, values

    assert loopback(fn, 4) == [(1, 2, [2, 0]), (1, 2, [3, 1]), (0, 2, [2, 0]), (0, 2, [3, 1])]


def test_alone_there_is_a_world_of_one():
    group = distributed.init("self")
    assert group is distributed.world()
    assert (distributed.rank(), distributed.size()) == (0, 1)
    assert distributed.all_gather([1.0, 2.0]).tolist() == [1.0, 2.0]
    assert value_and_grad(lambda x: distributed.all_reduce(x * x))(3.0)[1].item() == 6.0


def test_what_is_refused():
    with pytest.raises(DistributedError, match="'nowhere' of 2, which this process has not joined"):
        ops.AllReduce("sum", "nowhere", 2)(np.ones(2))
    with pytest.raises(DistributedError, match="made for 4 ranks, and the group 'self' has 1"):
        ops.AllReduce("sum", "self", 4)(np.ones(2))
    with pytest.raises(DistributedError, match="got 2 of type int as its group"):
        distributed.all_reduce(np.ones(2), group=2)
    with pytest.raises(ShapeError, match="a block for each of 3 ranks"):
        loopback(lambda group: distributed.reduce_scatter(np.ones(4)), 3)


def test_other_frameworks_get_no_collectives():
    pytest.importorskip("torch", reason="no torch")
    with pytest.raises(GraphError, match="AllReduce, which is computed by all ranks"):
        ml.interop.to_torch(ops.AllReduce())


def test_a_graph_of_collectives_can_be_saved(tmp_path):
    ml.save_graph(lambda x: distributed.all_reduce(x) * 2.0, tmp_path / "g", X[0])
    assert "AllReduce" in str(ml.load_graph(tmp_path / "g"))
