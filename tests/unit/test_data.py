"""The digits and the minibatches: what is held out, in which order, and what is refused."""

import numpy as np
import pytest

from miniml.data import load_digits, minibatches
from miniml.errors import ShapeError


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
    with pytest.raises(ShapeError, match=r"arrays of \[3, 4\] rows"):
        list(minibatches(np.zeros(3), np.zeros(4), size=2))
    with pytest.raises(ShapeError, match="size=5 for 3 rows; expected 1 to 3"):
        list(minibatches(np.zeros(3), size=5))
