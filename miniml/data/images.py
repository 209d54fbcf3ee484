"""Transforms of images for a DataLoader: each takes a batch (N, C, H, W) and a generator."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ..errors import MinimlError, ShapeError
from ..tensor import Array

Transform = Callable[[Any, np.random.Generator], Any]


def chain(*transforms: Transform) -> Transform:
    """One transform after the other."""

    def chained(images: Any, draw: np.random.Generator) -> Any:
        for transform in transforms:
            images = transform(images, draw)
        return images

    return chained


def normalize(mean: float | Sequence[float], std: float | Sequence[float]) -> Transform:
    """(images - mean) / std as float32; mean and std: numbers, or one for each channel."""
    center, scale = (np.asarray(v, np.float32).reshape(-1, 1, 1) for v in (mean, std))
    if not (np.isfinite(scale).all() and (scale > 0).all()):
        raise MinimlError(f"normalize got std={std}; expected numbers > 0")

    def normalized(images: Array, draw: np.random.Generator) -> Array:
        if not {center.size, scale.size} <= {1, _checked("normalize", images).shape[1]}:
            raise ShapeError(
                f"normalize got {center.size} means and {scale.size} stds for images "
                f"{images.shape}; give one number, or one for each of {images.shape[1]} channels"
            )
        return ((images - center) / scale).astype(np.float32, copy=False)

    return normalized


def pad_images(width: int, value: float = 0.0) -> Transform:
    """`width` pixels of `value` more on all four sides."""
    if width < 0:
        raise MinimlError(f"pad_images got width={width}; expected an int >= 0")

    def padded(images: Array, draw: np.random.Generator) -> Array:
        if not _holds(_checked("pad_images", images).dtype, value):
            raise MinimlError(
                f"pad_images got value={value} for images of {images.dtype}, which do not hold it; "
                "chain it after normalize"
            )
        return _padded(images, width, value)

    return padded


def random_crop(size: int | tuple[int, int], padding: int = 0) -> Transform:
    """A window of `size` (height and width) at a place of its own in each image, which is first
    padded with zeros on all sides."""
    height, width = size if isinstance(size, tuple) else (size, size)

    def cropped(images: Array, draw: np.random.Generator) -> Array:
        wide = _padded(_checked("random_crop", images), padding, 0.0)
        rows, columns = wide.shape[2] - height + 1, wide.shape[3] - width + 1
        if min(rows, columns, height, width) < 1:
            raise ShapeError(
                f"random_crop got images {images.shape}, padded to {wide.shape[2:]}, for windows "
                f"of {(height, width)}; give a smaller size, or padding"
            )
        windows = np.lib.stride_tricks.sliding_window_view(wide, (height, width), (2, 3))
        top, left = draw.integers(rows, size=len(wide)), draw.integers(columns, size=len(wide))
        return windows[np.arange(len(wide)), :, top, left]

    return cropped


def random_flip(p: float = 0.5) -> Transform:
    """Left and right exchanged, in each image with probability p."""
    if not 0.0 <= p <= 1.0:
        raise MinimlError(f"random_flip got p={p}; expected a probability from 0 to 1")

    def flipped(images: Array, draw: np.random.Generator) -> Array:
        turned = draw.random(len(_checked("random_flip", images))) < p
        return np.where(turned[:, None, None, None], images[..., ::-1], images)

    return flipped


def _padded(images: Array, width: int, value: float) -> Array:
    sides = (0, 0), (0, 0), (width, width), (width, width)
    return np.pad(images, sides, constant_values=value) if width else images


def _holds(dtype: np.dtype[Any], value: float) -> bool:
    """False for a fraction, or what is out of range, beside integers."""
    if dtype.kind not in "iu":
        return True
    return float(value).is_integer() and np.iinfo(dtype).min <= value <= np.iinfo(dtype).max


def _checked(who: str, images: Any) -> Array:
    """The images; ShapeError unless they are (N, C, H, W)."""
    if isinstance(images, np.ndarray) and images.ndim == 4:
        return images
    raise ShapeError(
        f"{who} got {getattr(images, 'shape', type(images).__name__)}; expected images "
        "(N, C, H, W): a grey one has an axis of one channel"
    )
