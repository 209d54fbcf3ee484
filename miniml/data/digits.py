"""The 1,797 handwritten digits, 8 x 8 pixels each, that ship inside scikit-learn."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ..errors import MinimlError
from ..tensor import Array

HELD_OUT = 360


class Digits(NamedTuple):
    """Images (N, 1, 8, 8) float32 of mean 0 and standard deviation 1, labels (N,) int64 from 0
    to 9: those to learn from, and those held out to test on."""

    images: Array
    labels: Array
    test_images: Array
    test_labels: Array


def load_digits(seed: int = 0) -> Digits:
    """The digits, 360 of them, chosen by `seed`, held out. No download.

    Mean and standard deviation are those of the pixels to learn from. MinimlError says what to
    install where scikit-learn is absent.
    Source: E. Alpaydin, C. Kaynak 1998, "Optical recognition of handwritten digits", UCI.
    """
    try:
        from sklearn.datasets import load_digits as load
    except ImportError:
        raise MinimlError(
            "the digits come with scikit-learn, which is not installed; "
            "pip install scikit-learn, or pip install 'miniml[demo]'"
        ) from None
    pixels, labels = load(return_X_y=True)
    images = pixels.astype(np.float32).reshape(-1, 1, 8, 8)
    order = np.random.default_rng(seed).permutation(len(images))
    test, train = order[:HELD_OUT], order[HELD_OUT:]
    images = (images - images[train].mean()) / images[train].std()
    numbers = labels.astype(np.int64)
    return Digits(images[train], numbers[train], images[test], numbers[test])
