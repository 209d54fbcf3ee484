"""Compiled versions of a function: none that could serve again is lost, and no others are kept."""

import gc
import weakref
from collections import OrderedDict

import numpy as np
import pytest

import miniml as ml
from miniml import nn, optim
from miniml.runtime.jit import Jit

X = np.ones((2, 3), np.float32)


class Scaled(nn.Cell):
    """x times a factor; notes when it is traced."""

    def __init__(self, factor=1.0):
        self.factor, self.traced = factor, Counter()

    def construct(self, x):
        self.traced.count += 1
        return x * self.factor


class Counting(nn.Cell):
    """x, and one more call."""

    def __init__(self):
        self.calls = 0

    def construct(self, x):
        self.calls += 1
        return x * 1.0


class Counter:
    count = 0


def programs(quick):
    """Weak references to the programs, each of which owns an arena."""
    return [weakref.ref(c.program) for _, c in quick._kept]


@pytest.mark.filterwarnings(
    "ignore:.*compiled for the fifth time:miniml.core.errors.PerformanceWarning"
)
def test_versions_of_outgrown_structures_go_with_their_arenas():
    net = Scaled()
    quick = Jit(net)
    seen = set()
    for i in range(300):
        net.factor = float(i)
        assert float(quick(X).asnumpy()[0, 0]) == i
        seen.update(programs(quick))
    gc.collect()
    assert len(quick._kept) == 1
    assert sum(ref() is not None for ref in seen) == 1
    assert len(quick.recompilations) == 100


@pytest.mark.deep
@pytest.mark.filterwarnings(
    "ignore:.*compiled for the fifth time:miniml.core.errors.PerformanceWarning"
)
def test_many_assignments_in_a_training_loop_leave_one_version():
    net = nn.Sequential(nn.Dense(3, 3), Scaled())
    step = ml.train_step(net, nn.MSELoss(), optim.Adam(net.trainable_params(), lr=1e-3))
    for i in range(1500):
        net[1].factor = 1.0 + i
        step(X, X)
    assert len(step._program._kept) == 1


def test_modes_and_contents_that_come_back_find_their_version():
    net = Scaled(2.0)
    net.sizes = [1, 2]
    quick = Jit(net)
    for _ in range(3):
        for mode in (True, False):
            for sizes in ([1, 2], [1, 2, 3]):
                net.set_train(mode)
                net.sizes[:] = sizes
                quick(X)
    assert net.traced.count == 4
    assert len(quick._kept) == 4


@pytest.mark.filterwarnings(
    "ignore:.*compiled for the fifth time:miniml.core.errors.PerformanceWarning"
)
def test_the_oldest_versions_go_where_there_are_too_many():
    net = Scaled()
    quick = Jit(net)
    for n in [*range(1, 71), *range(70, 20, -1)]:
        quick(np.ones(n, np.float32))
    assert net.traced.count == 70
    quick(np.ones(1, np.float32))
    assert net.traced.count == 71
    assert len(quick._kept) == 64


def with_a_loss_of_its_own(x):
    return nn.MSELoss()(nn.ReLU()(x), x)


def with_a_cell_that_it_changes(x):
    cell = Scaled(2.0)
    y = cell(x)
    cell.factor = 3.0
    return y


def with_a_cell_that_changes_itself(x):
    return Counting()(x)


@pytest.fixture(params=["collected at once", "collected never"])
def collector(request):
    """What is called between two calls: the garbage collector, in charge or not."""
    gc.collect()
    gc.disable()
    yield gc.collect if request.param == "collected at once" else lambda: None
    gc.enable()


@pytest.mark.parametrize(
    "made",
    [with_a_loss_of_its_own, with_a_cell_that_it_changes, with_a_cell_that_changes_itself],
)
def test_cells_made_while_tracing_cost_no_new_program(made, collector):
    quick = Jit(made)
    for _ in range(3):
        for n in (1, 2):
            quick(np.ones((n, 3), np.float32))
            collector()
    assert len(quick.recompilations) == 2


def test_a_cell_made_while_tracing_that_is_kept_is_seen_when_it_changes(collector):
    kept = []

    def made(x):
        if not kept:
            kept.append(Scaled(2.0))
        return kept[0](x)

    quick = Jit(made)
    for factor in (2.0, 5.0):
        kept and setattr(kept[0], "factor", factor)
        for _ in range(2):
            assert float(quick(X).asnumpy()[0, 0]) == factor
            collector()
    assert len(quick.recompilations) == 2


def test_a_child_made_while_tracing_is_traced_again_and_then_stays(collector):
    class Lazy(nn.Cell):
        child = None

        def construct(self, x):
            if self.child is None:
                self.child = Scaled(2.0)
            return self.child(x)

    net = Lazy()
    quick = Jit(net)
    for _ in range(3):
        assert float(quick(X).asnumpy()[0, 0]) == 2.0
        collector()
    assert len(quick.recompilations) == 2
    net.child.factor = 3.0
    assert float(quick(X).asnumpy()[0, 0]) == 3.0


def test_a_global_is_read_when_tracing_whether_its_cell_is_collected_or_not(collector):
    held = [Scaled(2.0)]

    def first(x):
        return held[0](x)

    quick = Jit(first)
    quick(X)
    held[0] = Scaled(3.0)
    collector()
    assert float(quick(X).asnumpy()[0, 0]) == 2.0


def mutate(container):
    """One change that no assignment of an attribute shows."""
    if isinstance(container, dict):
        container["k"] = 5.0
    elif isinstance(container, set):
        container.add(5.0)
    else:
        container.append(5.0)


def total(container):
    values = container.values() if isinstance(container, dict) else container
    return sum(total(v) if isinstance(v, (list, dict, set)) else v for v in values)


class Held(nn.Cell):
    """x times the sum of what an attribute holds."""

    def __init__(self, held):
        self.held = held

    def construct(self, x):
        return x * total(self.held)


@pytest.mark.parametrize(
    "held",
    [[1.0], {"k": 1.0}, {1.0}, OrderedDict(k=1.0), [[1.0], 2.0], ([1.0],), {"a": {"k": 1.0}}],
    ids=repr,
)
@pytest.mark.parametrize("way", ["jit", "graph mode", "inside another"])
def test_a_container_changed_after_the_first_call_is_seen(held, way):
    net = Held(held)
    called = {"jit": ml.jit(net), "graph mode": net, "inside another": ml.jit(nn.Sequential(net))}
    with ml.context(mode=ml.GRAPH_MODE if way == "graph mode" else ml.PYNATIVE_MODE):
        for _ in range(2):
            assert float(called[way](X).asnumpy()[0, 0]) == total(held)
        inner = held
        while isinstance(inner, tuple) or (isinstance(inner, dict) and "a" in inner):
            inner = inner[0] if isinstance(inner, tuple) else inner["a"]
        mutate(inner)
        for _ in range(2):
            assert float(called[way](X).asnumpy()[0, 0]) == total(held)


def test_numbers_in_a_container_differ_by_kind_and_objects_by_identity():
    net = Held([1])
    net.things = [object(), ml.Tensor([1.0]), np.ones(2)]
    quick = Jit(net)
    quick(X)
    for change in (lambda: net.held.__setitem__(0, True), lambda: net.held.__setitem__(0, 1.0)):
        change()
        quick(X)
    assert len(quick.recompilations) == 3
    quick(X)
    net.things[0] = object()
    quick(X)
    assert len(quick.recompilations) == 4


def test_a_cell_in_a_list_that_grew_later_is_refused_where_it_would_be_missed():
    net = Held([])
    net.held.append((nn.Dense(3, 3),))
    for use in (net.trainable_params, net.set_train, lambda: ml.jit(net)(X)):
        with pytest.raises(ml.errors.AttributeRefusedError, match=r"Held\.held is a list that hol"):
            use()


def test_a_container_that_stays_as_it_is_costs_no_new_program():
    net = Held([1.0])
    quick = Jit(net)
    for _ in range(10):
        quick(X)
    assert len(quick.recompilations) == 1
    assert not nn.Conv2d(1, 2, 3, padding=((1, 1), (1, 1))).silent  # and nothing at all here
