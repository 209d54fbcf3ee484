"""The digits and the minibatches: what is held out, in which order, and what is refused."""

import tracemalloc
from collections import ChainMap

import numpy as np
import pytest

import miniml as ml
from miniml import ops
from miniml.data import (
    DataLoader,
    chain,
    k_fold,
    load_digits,
    minibatches,
    normalize,
    random_crop,
    random_flip,
    split,
    stratified_split,
)
from miniml.errors import AttributeRefusedError, MinimlError, ShapeError, ValueRefusedError
from miniml.runtime import executor
from tests.frame.native import needs_compiler


def test_the_digits_are_normalised_and_held_out_by_seed():
    digits = load_digits()
    assert digits.images.shape == (1437, 1, 8, 8)
    assert digits.test_images.shape == (360, 1, 8, 8)
    assert digits.images.dtype == np.float32
    assert digits.labels.dtype == np.int64
    assert abs(digits.images.mean()) < 1e-4
    assert abs(digits.images.std() - 1) < 1e-4
    assert np.array_equal(np.unique(digits.test_labels), np.arange(10))
    again, other = load_digits(0), load_digits(1)
    assert np.array_equal(digits.test_images, again.test_images)
    assert not np.array_equal(digits.test_labels, other.test_labels)


def test_no_digit_is_in_both_parts():
    digits = load_digits()
    images = np.concatenate([digits.images, digits.test_images])
    pixels = np.rint((images - images.min()) / np.ptp(images) * 16).astype(int)
    assert pixels.sum() == 561718  # of all 1,797 digits


def test_batches_cover_every_row_once_in_an_order_of_seed_and_epoch():
    rows, twice = np.arange(10), 2 * np.arange(10)

    def order(**options):
        batches = list(minibatches(rows, twice, size=3, **options))
        assert all(np.array_equal(2 * a, b) for a, b in batches)
        return [a.tolist() for a, _ in batches]

    assert order(drop_last=False) == [[0, 1, 2], [3, 4, 5], [6, 7, 8], [9]]
    assert order() == [[0, 1, 2], [3, 4, 5], [6, 7, 8]]
    shuffled = order(seed=1, drop_last=False)
    assert sorted(row for batch in shuffled for row in batch) == rows.tolist()
    assert shuffled == order(seed=1, drop_last=False)
    assert shuffled != order(seed=1, epoch=1, drop_last=False)
    assert shuffled != order(seed=2, drop_last=False)


def test_what_does_not_fit_is_refused():
    with pytest.raises(ShapeError, match=r"sources of \[3, 4\] rows"):
        list(minibatches(np.zeros(3), np.zeros(4), size=2))
    with pytest.raises(
        ValueRefusedError, match="of 3 rows got size=5; expected an int from 1 to 3"
    ):
        list(minibatches(np.zeros(3), size=5))
    with pytest.raises(ShapeError, match="no rows"):
        DataLoader(np.zeros((0, 3)), size=1)
    with pytest.raises(ShapeError, match=r"shape \(\)"):
        DataLoader(np.zeros(()), size=1)
    for options, message in (({"seed": -1}, "seed=-1"), ({"prefetch": 1.5}, r"prefetch=1\.5")):
        with pytest.raises(MinimlError, match=rf"{message}; expected an int >= 0"):
            DataLoader(np.zeros(3), size=1, **options)
    with pytest.raises(AttributeRefusedError, match=r"of 3 rows got size=1\.5"):
        DataLoader(np.zeros(3), size=1.5)
    for unreadable, name in (((i for i in [1]), "generator"), (ChainMap({"x": [1]}), "ChainMap")):
        with pytest.raises(MinimlError, match=f"got a {name}"):
            DataLoader(unreadable, size=1)
    for wrong in (3, lambda rows: rows):
        with pytest.raises(MinimlError, match="with a batch of the first source and a NumPy Gen"):
            DataLoader([1], size=1, transform=wrong)
    with pytest.raises(ShapeError, match=r"of shapes \(1,\) and \(2,\) .*pad_sequences"):
        list(DataLoader([[1], [2, 3]], size=2))


@pytest.mark.parametrize("seed", range(4))
def test_a_source_may_be_a_tree(seed):
    draw = np.random.default_rng(seed)
    a, b, c = (draw.normal(size=(11, *draw.integers(1, 4, 2))) for _ in range(3))
    rows = [list(row) for row in b]
    tree = {"u": a, "v": ({"w": rows}, (c[:, 0],)), "t": ml.Tensor(a)}
    plain = DataLoader(a, b, c[:, 0], size=4, seed=seed, drop_last=False)
    pairs = zip(DataLoader(tree, c, size=4, seed=seed, drop_last=False), plain, strict=True)
    for (found, _), (u, w, x) in pairs:
        assert list(found) == list(tree)
        assert np.array_equal(found["u"], u)
        assert np.array_equal(found["t"], u)
        (inner, (last,)) = found["v"]
        assert np.array_equal(inner["w"], w)
        assert np.array_equal(last, x)
    with pytest.raises(ShapeError, match=r"\[3, 4\] rows"):
        DataLoader({"x": a[:3], "y": a[:4]}, size=1)


def test_a_loader_goes_on_from_any_batch_of_any_epoch():
    loader = DataLoader(np.arange(10), size=3, seed=4)
    first, second = list(loader), list(loader)
    assert len(loader) == 3
    assert loader.epoch == 2
    assert np.array_equal(next(loader.batches(1, 1))[0], second[1][0])
    assert not np.array_equal(first, second)
    assert np.concatenate(list(loader.every_row()), 1)[0].tolist() == list(range(10))


def test_of_a_view_only_the_rows_of_a_batch_are_copied():
    windows = np.lib.stride_tricks.sliding_window_view(np.arange(50_000.0), 1000)[::5]
    first = np.random.default_rng((0, 0)).permutation(len(windows))[:4]
    tracemalloc.start()
    (batch,) = next(iter(DataLoader(windows, size=4, seed=0)))
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert np.array_equal(batch[:, 0], 5.0 * first)
    assert batch.flags.c_contiguous
    assert most < 1e6  # the whole view has 78 MB
    (batch,) = next(iter(DataLoader(np.ones((3, 4, 5)).T, size=2)))
    assert batch.flags.c_contiguous


def test_rows_of_sequences_are_stacked_and_tuples_stay_together():
    class Squares:
        def __len__(self):
            return 4

        def __getitem__(self, i):
            return np.full(2, i), i * i

    fields, names = next(iter(DataLoader(Squares(), [5, 6, 7, 8], size=3)))
    assert fields[0].shape == (3, 2)
    assert fields[1].tolist() == [0, 1, 4]
    assert names.tolist() == [5, 6, 7]
    (a, b), y = next(iter(DataLoader((np.arange(4), -np.arange(4)), np.ones(4), size=2)))
    assert a.tolist() == [0, 1]
    assert b.tolist() == [0, -1]
    assert y.shape == (2,)


@needs_compiler
def test_of_a_table_rows_are_meant_and_not_labels():
    class Series(dict):
        """As one of pandas, whose index is in another order."""

        def to_numpy(self):
            return np.array([*self.values()])

    (batch,) = DataLoader(Series({2: 20, 0: 0, 1: 10}), size=3)
    assert batch[0].tolist() == [20, 0, 10]


def test_a_compiled_step_reads_a_batch_where_it_was_gathered(monkeypatch):
    copied = []

    def made_usable(specs, *arrays):
        copied.append(arrays)
        return [np.ascontiguousarray(a) for a in arrays]

    monkeypatch.setattr(executor, "made_usable", made_usable)
    images = np.random.default_rng(0).normal(size=(8, 6, 6, 3)).astype(np.float32)
    moved = chain(random_crop(4), random_flip(), normalize(0.5, 2.0))
    with ml.context(providers=("cc",)):
        total = ml.jit(lambda x: ops.sum(x * 2.0))
        for transform in (None, moved):
            loader = DataLoader(
                images.transpose(0, 3, 1, 2)[..., :4, :4], size=4, transform=transform
            )
            for (x,) in loader:
                assert float(total(x)) == pytest.approx(2.0 * x.sum(), rel=1e-4)
        assert not copied
        total(images.transpose(0, 3, 1, 2)[:4, :, :4, :4])
        assert len(copied) == 1


def test_a_loader_is_shown_with_its_size():
    loader = DataLoader(np.zeros((1797, 2)), size=64)
    assert repr(loader) == "DataLoader(1,797 rows, size=64, 28 batches)"


def test_splits_hold_out_each_row_once_and_keep_the_shares_of_classes():
    learn, held = split(10, 0.3, seed=1)
    assert sorted([*learn, *held]) == list(range(10))
    assert len(held) == 3
    labels = np.repeat([0, 1], [20, 80])
    learn, held = stratified_split(labels, 0.25)
    assert np.bincount(labels[held]).tolist() == [5, 20]
    assert len(learn) == 75
    folds = list(k_fold(10, 3))
    assert sorted(np.concatenate([h for _, h in folds])) == list(range(10))
    assert all(not set(a) & set(b) and len(a) + len(b) == 10 for a, b in folds)
    for refused, message in (
        (lambda: split(10, (0.8, 0.2)), r"share=\(0.8, 0.2\); expected a number"),
        (lambda: split(10, 1.0), "share=1.0; expected a number > 0 and < 1"),
        (lambda: split(1, 0.5), "share=0.5 holds out 0 of 1 rows"),
        (lambda: split(labels, 0.5), "split got rows=array.*; expected an int"),
        (lambda: k_fold(labels, 2), "k_fold got rows=array"),
        (lambda: k_fold(3, 4), "of 3 rows got folds=4; expected an int from 2 to 3"),
        (lambda: stratified_split(range(4), 0.2), "holds out 0 of 4 rows"),  # none of each class
        (lambda: stratified_split(range(4), 0.6), "holds out 4 of 4 rows"),
        (lambda: stratified_split([], 0.5), "holds out 0 of 0 rows"),
        (lambda: stratified_split(np.eye(4), 0.5), r"labels \(4, 4\); expected \(N,\)"),
    ):
        with pytest.raises(MinimlError, match=message):
            refused()


class Items:
    """A dataset of what a function makes of the row's number."""

    def __init__(self, item):
        self.item = item

    def __len__(self):
        return 4

    def __getitem__(self, i):
        return self.item(i)


def test_items_are_stacked_field_by_field():
    def item(i):
        label = (
            {"label": i, "weight": (1.0, [i, i])}
            if i % 2
            else {"weight": (1.0, [i, i]), "label": i}
        )
        return np.full(2, i), label

    (x, y), _ = DataLoader(Items(item), size=2)
    assert x.tolist() == [[0, 0], [1, 1]]
    assert list(y) == ["weight", "label"]
    assert (y["label"].tolist(), y["weight"][0].tolist()) == ([0, 1], [1.0, 1.0])
    assert y["weight"][1].tolist() == [[0, 0], [1, 1]]
    ((alone,), _) = DataLoader(Items(lambda i: {"a": i}), size=2)
    assert alone["a"].tolist() == [0, 1]


@pytest.mark.parametrize(
    "item", [lambda i: (0,) * (i + 1), lambda i: {"ab"[i % 2]: i}, lambda i: ((0,), 0)[i % 2]]
)
def test_items_of_other_structure_are_refused(item):
    with pytest.raises(ShapeError, match=r"items that differ .*; give collate="):
        next(iter(DataLoader(Items(item), size=2)))
