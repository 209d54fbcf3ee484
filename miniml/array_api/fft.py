"""The extension `fft` of the array API standard."""

from __future__ import annotations

from typing import Any

from .. import ops
from ..core.abstract import float32
from ..core.options import choice
from ..core.tensor import Tensor
from .functions import on

__all__ = [
    "fft",
    "ifft",
    "fftn",
    "ifftn",
    "rfft",
    "irfft",
    "rfftn",
    "irfftn",
    "hfft",
    "ihfft",
    "fftfreq",
    "rfftfreq",
    "fftshift",
    "ifftshift",
]

_SWAPPED = {"backward": "forward", "ortho": "ortho", "forward": "backward"}


def _one_axis(name: str) -> Any:
    function = getattr(ops, name)

    def transform(
        x: Tensor, /, *, n: int | None = None, axis: int = -1, norm: str = "backward"
    ) -> Tensor:
        return function(x, n, axis, norm)  # type: ignore[no-any-return]

    return _named(transform, name)


def _axes(name: str) -> Any:
    function = getattr(ops, name)

    def transform(
        x: Tensor,
        /,
        *,
        s: tuple[int, ...] | None = None,
        axes: tuple[int, ...] | None = None,
        norm: str = "backward",
    ) -> Tensor:
        return function(x, s, axes, norm)  # type: ignore[no-any-return]

    return _named(transform, name)


def _shift(name: str) -> Any:
    function = getattr(ops, name)

    def shift(x: Tensor, /, *, axes: int | tuple[int, ...] | None = None) -> Tensor:
        return function(x, axes)  # type: ignore[no-any-return]

    return _named(shift, name)


def _frequencies(name: str) -> Any:
    function = getattr(ops, name)

    def frequencies(
        n: int, /, *, d: float = 1.0, dtype: object = None, device: str | None = None
    ) -> Tensor:
        with on(device):
            return function(n, d, float32 if dtype is None else dtype)  # type: ignore[no-any-return]

    return _named(frequencies, name)


def _named(function: Any, name: str) -> Any:
    function.__name__ = function.__qualname__ = name
    function.__doc__ = f"`ops.{name}`, with the standard's keywords."
    return function


fft, ifft, rfft, irfft = map(_one_axis, ("fft", "ifft", "rfft", "irfft"))
fftn, ifftn, rfftn, irfftn = map(_axes, ("fftn", "ifftn", "rfftn", "irfftn"))
fftshift, ifftshift = map(_shift, ("fftshift", "ifftshift"))
fftfreq, rfftfreq = map(_frequencies, ("fftfreq", "rfftfreq"))


def hfft(x: Tensor, /, *, n: int | None = None, axis: int = -1, norm: str = "backward") -> Tensor:
    """The real `fft` of n numbers of which x holds the first n // 2 + 1, and the others are
    conjugates; n is 2 (m - 1) by default."""
    known = choice("hfft", "norm", norm, tuple(_SWAPPED))
    return ops.irfft(ops.conj(x), n, axis, _SWAPPED[known])


def ihfft(x: Tensor, /, *, n: int | None = None, axis: int = -1, norm: str = "backward") -> Tensor:
    """The inverse of `hfft`: the n // 2 + 1 first numbers of `ifft` of a real x."""
    known = choice("ihfft", "norm", norm, tuple(_SWAPPED))
    return ops.conj(ops.rfft(x, n, axis, _SWAPPED[known]))
