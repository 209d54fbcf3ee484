"""Complex numbers and discrete Fourier transforms.

In order: complex tensors and their parts; the primitives of transforms; transforms of one, two and
several axes, of complex and of real signals; frequencies and shifts.

Gradients are those of JAX (docs/complex.md). The matrix of a transform is symmetric, and the
cotangent of a linear map is its transpose, not its adjoint: each transform is its own gradient.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache, partial
from importlib import import_module
from typing import Any

import numpy as np

from ..core.abstract import DType, Shape, as_dtype, complex_dtype, is_complex
from ..core.errors import DTypeError, ShapeError
from ..core.options import choice, integer, number
from ..core.primitive import Primitive, freeze
from ..core.signature import LOW
from . import rules
from .checks import (
    Tensor,
    composition,
    dtype_of,
    needs_complex,
    needs_float,
    normal_axes,
    ordered_axes,
    shape_of,
)
from .composed.rearrange import roll
from .create import zeros_like
from .elementwise import Complex, Conj, Imag, Real, atan2, cast
from .shape import Pad, Slice, broadcast_to

__all__ = [
    "angle", "complex", "conj", "imag", "real",
    "FFT", "IFFT", "IRFFT", "RFFT",
    "fft", "fft2", "fftn", "ifft", "ifft2", "ifftn", "irfft", "irfft2", "irfftn", "rfft", "rfft2",
    "rfftn",
    "fftfreq", "fftshift", "ifftshift", "rfftfreq",
]  # fmt: skip


@composition
def complex(re: Any, im: Any = 0.0) -> Tensor:
    """re + i im, broadcast: the complex numbers with these real and imaginary parts.

    float64 gives complex128, other dtypes complex64. DTypeError for parts that are complex.

    >>> complex([1.0, 2.0], [3.0, 4.0]).tolist()
    [(1+3j), (2+4j)]
    """
    return Complex()(re, im)


def real(x: Any) -> Tensor:
    """The real part of each element; a real tensor is its own.

    >>> real([1 + 2j, 3j]).tolist()
    [1.0, 0.0]
    """
    return _real(x) if is_complex(dtype_of(x)) else broadcast_to(x, shape_of(x))


def imag(x: Any) -> Tensor:
    """The imaginary part of each element; zeros for a real tensor.

    >>> imag([1 + 2j, 3j]).tolist()
    [2.0, 3.0]
    """
    return _imag(x) if is_complex(dtype_of(x)) else zeros_like(x)


def conj(x: Any) -> Tensor:
    """The complex conjugate of each element, re - i im; a real tensor is its own.

    >>> conj([1 + 2j, 3j]).tolist()
    [(1-2j), -3j]
    """
    return _conj(x) if is_complex(dtype_of(x)) else broadcast_to(x, shape_of(x))


@composition
def angle(x: Any) -> Tensor:
    """The argument of complex numbers in (-pi, pi], atan2(imag, real); pi for negative real ones.

    Of the shape of x; integers are cast to float32. The gradient at 0 is NaN, as it does not exist.

    >>> angle([1j, -2.0]).tolist()
    [1.5707963705062866, 3.1415927410125732]
    """
    return atan2(imag(x), real(x))


_real, _imag, _conj = Real(), Imag(), Conj()


# --- The primitives -------------------------------------------------------------------------------


_NORMS = ("backward", "ortho", "forward")


class _Transform(Primitive, abstract=True):
    """A discrete Fourier transform, which is linear and counts its axes from the end. SciPy's takes
    several rows at once, in vectors, and NumPy's one after another.

    norm: "forward" divides the transform by the number of its points, "backward" the inverse one,
    and "ortho" each by the square root of it.
    """

    batch = "leading"
    linear = ("x",)
    rounds = takes_complex = True

    def flops(self, inputs: Any, outputs: Any) -> int:
        """5 N log2 N for N points (Cooley and Tukey, 1965), half of it for real ones."""
        points, whole = self.points(inputs[0].shape), inputs[0].dtype == outputs[0].dtype
        each = 5 * math.log2(max(points, 2))
        return int(each * max(inputs[0].size, outputs[0].size) / (1 if whole else 2))

    def points(self, x: Shape) -> int:
        """The number of points of one transform."""
        raise NotImplementedError

    def check(self, x: Shape, axes: tuple[int, ...]) -> None:
        """Refuse axes that x lacks or that count from the front, unknown norms and no points."""
        choice(self.name, "norm", self.attributes["norm"], _NORMS)
        normal_axes(self.name, axes, len(x))
        for axis in axes:
            if axis >= 0:
                raise ShapeError(
                    f"{self.name} counts axes from the end; got {axis} for a tensor of rank "
                    f"{len(x)}; write {axis - len(x)}, or call ops.{self.name.lower()}"
                )
            if x[axis] == 0:
                raise ShapeError(
                    f"{self.name} got shape {x}, which has no points along axis {axis}; a "
                    "transform has one or more"
                )


class _Whole(_Transform, abstract=True):
    """A transform of complex numbers along several axes."""

    axes: tuple[int, ...]
    norm: str = "backward"
    dtypes = "FD"

    def infer_shape(self, x: Shape) -> Shape:
        self.check(x, self.axes)
        return x

    def infer_dtype(self, x: DType) -> DType:
        return needs_complex(self.name, x)

    def points(self, x: Shape) -> int:
        return math.prod(x[a] for a in self.axes)


class FFT(_Whole):
    """y[k] = sum over j of x[j] exp(-2 pi i j k / n), along each of `axes`."""

    @staticmethod
    def compute(x: Any, *, axes: tuple[int, ...], norm: str, out: Any) -> None:
        out[...] = _by_scipy("fft", axes)(x, None, norm=norm)


class IFFT(_Whole):
    """y[k] = 1/n times the sum over j of x[j] exp(2 pi i j k / n), along each of `axes`."""

    @staticmethod
    def compute(x: Any, *, axes: tuple[int, ...], norm: str, out: Any) -> None:
        out[...] = _by_scipy("ifft", axes)(x, None, norm=norm)


class RFFT(_Transform):
    """The n // 2 + 1 first numbers of the transform of n real ones along `axis`: the others are
    their conjugates."""

    axis: int = -1
    norm: str = "backward"
    dtypes = (*(f"{c}->F" for c in LOW + "f"), "d->D")
    promote = "float"
    takes_complex = False

    def infer_shape(self, x: Shape) -> Shape:
        self.check(x, (self.axis,))
        return _with_extent(x, self.axis, x[self.axis] // 2 + 1)

    def infer_dtype(self, x: DType) -> DType:
        return complex_dtype(needs_float(self.name, x))

    def points(self, x: Shape) -> int:
        return x[self.axis]

    @staticmethod
    def compute(x: Any, *, axis: int, norm: str, out: Any) -> None:
        out[...] = _by_scipy("rfft", (axis,))(x, None, norm=norm)


class IRFFT(_Transform):
    """The n real numbers of which x has the first n // 2 + 1 numbers of the transform, along
    `axis`. The imaginary parts of the first one, and of the last one for even n, do not count.

    ShapeError where x has not n // 2 + 1 numbers along `axis`, or n is below 1.
    """

    n: int
    axis: int = -1
    norm: str = "backward"
    dtypes = "F->f", "D->d"

    def infer_shape(self, x: Shape) -> Shape:
        self.check(x, (self.axis,))
        if self.n < 1 or x[self.axis] != self.n // 2 + 1:
            raise ShapeError(
                f"IRFFT got n={self.n} for shape {x}, which has {x[self.axis]} numbers along axis "
                f"{self.axis}; n numbers have n // 2 + 1 of their transform; ops.irfft crops or "
                "pads them"
            )
        return _with_extent(x, self.axis, self.n)

    infer_dtype = rules.part

    def points(self, x: Shape) -> int:
        return self.n

    @staticmethod
    def compute(x: Any, *, n: int, axis: int, norm: str, out: Any) -> None:
        out[...] = _by_scipy("irfft", (axis,))(x, n, norm=norm)


@lru_cache
def _by_scipy(name: str, axes: tuple[int, ...]) -> Any:
    """SciPy's transform along these axes; its function of one axis takes less time than of more."""
    fft = import_module("scipy.fft")
    if len(axes) == 1:
        return partial(getattr(fft, name), axis=axes[0])
    return partial(getattr(fft, f"{name}n"), axes=axes)


def _with_extent(shape: Shape, axis: int, extent: int) -> Shape:
    axis %= len(shape)
    return (*shape[:axis], extent, *shape[axis + 1 :])


# --- Transforms -----------------------------------------------------------------------------------


@composition
def fft(x: Any, n: int | None = None, axis: int = -1, norm: str = "backward") -> Tensor:
    """The discrete Fourier transform along `axis`: y[k] = sum of x[j] exp(-2 pi i j k / n).

    x: complex or real; float64 gives complex128, other real dtypes complex64. n: the number of
    points, to which x is cropped or padded with zeros. norm: "backward" divides the inverse
    transform by n, "forward" this one, "ortho" each by sqrt(n). ShapeError for an axis that x does
    not have or that has no points. Source: Cooley and Tukey (1965).

    >>> fft([1.0, 2.0, 3.0, 4.0]).tolist()
    [(10+0j), (-2+2j), (-2+0j), (-2-2j)]
    """
    return _whole("fft", FFT, x, n, axis, norm)


@composition
def ifft(x: Any, n: int | None = None, axis: int = -1, norm: str = "backward") -> Tensor:
    """The inverse of `fft` along `axis`: y[k] = 1/n times the sum of x[j] exp(2 pi i j k / n).

    Arguments, dtypes and errors are as for `fft`.

    >>> ifft(fft([1.0, 2.0, 3.0, 4.0])).tolist()
    [(1+0j), (2+0j), (3+0j), (4+0j)]
    """
    return _whole("ifft", IFFT, x, n, axis, norm)


@composition
def rfft(x: Any, n: int | None = None, axis: int = -1, norm: str = "backward") -> Tensor:
    """The n // 2 + 1 first numbers of `fft` of a real x; the others are their conjugates.

    That axis has so many; arguments, dtypes and errors are as for `fft`; DTypeError for a complex
    x.

    >>> rfft([1.0, 2.0, 3.0, 4.0]).tolist()
    [(10+0j), (-2+2j), (-2+0j)]
    """
    return _half("rfft", x, n, axis, norm)


@composition
def irfft(x: Any, n: int | None = None, axis: int = -1, norm: str = "backward") -> Tensor:
    """The n real numbers whose `rfft` is x; n is 2 (m - 1) by default, for m numbers along `axis`.

    x is cropped or padded with zeros to n // 2 + 1 numbers. The imaginary parts of the first one,
    and of the last one for even n, do not count. complex128 gives float64, complex64 float32.

    >>> irfft(rfft([1.0, 2.0, 3.0]), 3).tolist()
    [1.0, 2.0, 3.0]
    """
    return _back("irfft", x, n, axis, norm)


@composition
def fft2(x: Any, s: Any = None, axes: Any = (-2, -1), norm: str = "backward") -> Tensor:
    """`fft` along two axes. s: the numbers of points along them, to which x is cropped or padded.

    >>> fft2([[1.0, 2.0], [3.0, 4.0]]).tolist()
    [[(10+0j), (-2+0j)], [(-4+0j), 0j]]
    """
    return _whole("fft2", FFT, x, s, _two("fft2", axes), norm)


@composition
def ifft2(x: Any, s: Any = None, axes: Any = (-2, -1), norm: str = "backward") -> Tensor:
    """The inverse of `fft2`, of the shape that it has."""
    return _whole("ifft2", IFFT, x, s, _two("ifft2", axes), norm)


@composition
def rfft2(x: Any, s: Any = None, axes: Any = (-2, -1), norm: str = "backward") -> Tensor:
    """`rfft` along the last of two axes, then `fft` along the first."""
    return _half("rfft2", x, s, _two("rfft2", axes), norm)


@composition
def irfft2(x: Any, s: Any = None, axes: Any = (-2, -1), norm: str = "backward") -> Tensor:
    """The inverse of `rfft2`. s: the shape of the result along the axes; the last extent is
    2 (m - 1) by default."""
    return _back("irfft2", x, s, _two("irfft2", axes), norm)


@composition
def fftn(x: Any, s: Any = None, axes: Any = None, norm: str = "backward") -> Tensor:
    """`fft` along several axes: all of them, or the last len(s), by default."""
    return _whole("fftn", FFT, x, s, axes, norm)


@composition
def ifftn(x: Any, s: Any = None, axes: Any = None, norm: str = "backward") -> Tensor:
    """The inverse of `fftn`, of the shape that it has."""
    return _whole("ifftn", IFFT, x, s, axes, norm)


@composition
def rfftn(x: Any, s: Any = None, axes: Any = None, norm: str = "backward") -> Tensor:
    """`rfft` along the last of several axes, then `fft` along the others."""
    return _half("rfftn", x, s, axes, norm)


@composition
def irfftn(x: Any, s: Any = None, axes: Any = None, norm: str = "backward") -> Tensor:
    """The inverse of `rfftn`. s: the shape of the result along the axes; the last extent is
    2 (m - 1) by default."""
    return _back("irfftn", x, s, axes, norm)


def _whole(name: str, kind: Callable[..., Any], x: Any, n: Any, axis: Any, norm: str) -> Tensor:
    axes, points = _spelled(name, shape_of(x), n, axis)
    given = dtype_of(x)
    x = _resized(name, x if is_complex(given) else cast(x, complex_dtype(given)), axes, points)
    transformed: Tensor = kind(axes, norm)(x)
    return transformed


def _half(name: str, x: Any, n: Any, axis: Any, norm: str) -> Tensor:
    given = dtype_of(x)
    if is_complex(given):
        raise DTypeError(
            f"{name} got {given.name}; it takes a real tensor; use ops.{name[1:]}, or ops.real(x)"
        )
    (*others, last), points = _spelled(name, shape_of(x), n, axis)
    y = RFFT(last, norm)(_resized(name, x, (*others, last), points))
    return FFT(tuple(others), norm)(y) if others else y


def _back(name: str, x: Any, n: Any, axis: Any, norm: str) -> Tensor:
    (*others, last), points = _spelled(name, shape_of(x), n, axis)
    given, count = dtype_of(x), points[-1]
    if n is None:
        count = 2 * (count - 1)
    if count < 1:
        raise ShapeError(
            f"{name} would give {count} numbers along axis {last} of shape {shape_of(x)}; give "
            "their number, as in n=1"
        )
    x = x if is_complex(given) else cast(x, complex_dtype(given))
    x = _resized(name, x, (*others, last), (*points[:-1], count // 2 + 1))
    x = IFFT(tuple(others), norm)(x) if others else x
    return IRFFT(count, last, norm)(x)


def _two(name: str, axes: Any) -> Any:
    """The axes of a transform in two dimensions; ShapeError for more or fewer."""
    frozen = freeze(axes, name, "axes")
    if isinstance(frozen, tuple) and len(frozen) == 2:
        return frozen
    raise ShapeError(f"{name} got axes {axes!r}; it has two, as in (-2, -1); ops.{name[:-1]}n any")


def _spelled(name: str, x: Shape, n: Any, axis: Any) -> tuple[tuple[int, ...], Shape]:
    """The axes, counted from the end, and the numbers of points along them."""
    n, axis = freeze(n, name, "n"), freeze(axis, name, "axis")
    points = n if n is None or isinstance(n, tuple) else (n,)
    if axis is None:
        axis = tuple(range(len(x)) if points is None else range(-len(points), 0))
    given = axis if isinstance(axis, tuple) else (axis,)
    axes = tuple([a - len(x) for a in ordered_axes(name, given, len(x))])
    if not axes:
        raise ShapeError(f"{name} got no axes, for shape {x}; a transform has at least one")
    if points is None:
        return axes, tuple(x[a] for a in axes)
    if len(points) != len(axes):
        raise ShapeError(f"{name} got {n!r} for the numbers of points along axes {given}; one each")
    return axes, tuple(integer(name, "n", m, 1) for m in points)


def _resized(name: str, x: Any, axes: tuple[int, ...], points: Shape) -> Any:
    """x cropped, or padded with zeros behind, to these extents along the axes."""
    shape = shape_of(x)
    to = list(shape)
    for axis, count in zip(axes, points, strict=True):
        to[axis] = count
    if tuple(to) == shape:
        return x
    kept = tuple(map(min, shape, to))
    if kept != shape:
        x = Slice((0,) * len(shape), kept, (1,) * len(shape))(x)
    missing = tuple((0, m - k) for m, k in zip(to, kept, strict=True))
    return Pad(missing)(x) if any(after for _, after in missing) else x


# --- Frequencies and shifts -----------------------------------------------------------------------


def fftfreq(n: int, d: float = 1.0, dtype: object = "float32") -> Tensor:
    """The frequencies of the n numbers that `fft` gives, for samples at distances d.

    >>> fftfreq(4, 0.5).tolist()
    [0.0, 0.5, -1.0, -0.5]
    """
    return _frequencies("fftfreq", np.fft.fftfreq, n, d, dtype)


def rfftfreq(n: int, d: float = 1.0, dtype: object = "float32") -> Tensor:
    """The frequencies of the n // 2 + 1 numbers that `rfft` gives, for samples at distances d.

    >>> rfftfreq(4, 0.5).tolist()
    [0.0, 0.5, 1.0]
    """
    return _frequencies("rfftfreq", np.fft.rfftfreq, n, d, dtype)


def _frequencies(name: str, made: Callable[..., Any], n: Any, d: Any, dtype: object) -> Tensor:
    points = integer(name, "n", n, 1)
    number(name, "d", d)
    if d == 0:
        raise ShapeError(f"{name} got d={d}; samples have a distance other than 0")
    return cast(made(points, d), needs_float(name, as_dtype(dtype)))


@composition
def fftshift(x: Any, axes: Any = None) -> Tensor:
    """x with the frequency 0 in the middle of `axes`, by default of all.

    >>> fftshift(fftfreq(4)).tolist()
    [-0.5, -0.25, 0.0, 0.25]
    """
    return _shifted("fftshift", x, axes, lambda n: n // 2)


@composition
def ifftshift(x: Any, axes: Any = None) -> Tensor:
    """The inverse of `fftshift`: the same elements in their old places."""
    return _shifted("ifftshift", x, axes, lambda n: -(n // 2))


def _shifted(name: str, x: Any, axes: Any, by: Callable[[int], int]) -> Tensor:
    shape = shape_of(x)
    chosen = normal_axes(name, freeze(axes, name, "axes"), len(shape))
    if not chosen:
        return broadcast_to(x, shape)
    return roll(x, tuple(by(shape[a]) for a in chosen), chosen)
