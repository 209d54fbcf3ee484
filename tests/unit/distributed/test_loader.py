"""Batches that ranks divide among them."""

from itertools import chain

import numpy as np
import pytest

import miniml as ml
from miniml import nn, optim
from miniml.data import DataLoader
from miniml.distributed import init, loopback
from miniml.errors import MinimlError, ValueRefusedError

X = np.arange(22.0, dtype=np.float32).reshape(11, 2)
Y = np.arange(11)


def of_ranks(size, make):
    """The labels of all batches of an epoch, of each rank."""
    return loopback(lambda group: [y.tolist() for _, y in make(group).batches(3)], size)


@pytest.mark.parametrize("seed", [None, 5])
@pytest.mark.parametrize("size", [1, 2, 3])
def test_ranks_see_together_what_one_sees_alone(size, seed):
    alone = [y.tolist() for _, y in DataLoader(X, Y, size=6, seed=seed, drop_last=True).batches(3)]
    parts = of_ranks(size, lambda group: DataLoader(X, Y, size=6, seed=seed, group=group))
    assert [[*chain.from_iterable(batches)] for batches in zip(*parts)] == alone
    assert all(len(part) == 6 // size for batches in parts for part in batches)


def test_the_last_batch_is_filled_up_from_its_own_beginning():
    parts = of_ranks(3, lambda group: DataLoader(X, Y, size=6, drop_last=False, group=group))
    assert [rank[-1] for rank in parts] == [[6, 7], [8, 9], [10, 6]]


def test_an_epoch_goes_on_from_any_batch():
    def on(group):
        loader = DataLoader(X, Y, size=4, seed=1, drop_last=False, group=group)
        whole = [y.tolist() for _, y in loader.batches(2)]
        return [y.tolist() for _, y in loader.batches(2, start=1)] == whole[1:]

    assert loopback(on, 2) == [True, True]


def test_each_row_comes_once_where_all_are_asked_for():
    def on(group):
        return [y.tolist() for _, y in DataLoader(X, Y, size=4, group=group).every_row()]

    # batches of 4, 4 and 3 rows
    assert loopback(on, 4) == [[[0], [4], [8]], [[1], [5], [9]], [[2], [6], [10]], [[3], [7]]]


def test_transforms_draw_other_numbers_on_each_rank():
    def on(group):
        shift = lambda rows, draw: rows + draw.normal()  # noqa: E731
        loader = DataLoader(X * 0, Y, size=4, seed=1, transform=shift, group=group)
        return [x[0, 0].item() for x, _ in loader]

    first, second = loopback(on, 2)
    assert not set(first) & set(second)


def test_what_does_not_fit_is_refused():
    with pytest.raises(ValueRefusedError, match="size=5, which 2 ranks cannot divide"):
        loopback(lambda group: DataLoader(X, Y, size=5, group=group), 2)
    with pytest.raises(MinimlError, match="DataLoader got group=2 of type int"):
        DataLoader(X, Y, size=5, group=2)
    assert DataLoader(X, Y, size=5, group=init("self")).group is None


def test_a_model_does_not_train_ranks_apart():
    net = nn.Dense(2, 3)
    model = ml.train.Model(net, nn.CrossEntropyLoss(), optim.SGD(net.trainable_params(), 0.1))

    def on(group):
        model.fit(DataLoader(X, Y % 3, size=4, group=group), epochs=1, show=False)

    with pytest.raises(
        MinimlError, match=r"got a DataLoader of Loopback.*Model\(\.\.\., group=group\)"
    ):
        loopback(on, 2)
