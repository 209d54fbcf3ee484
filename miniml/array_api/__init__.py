"""The array API standard, 2025.12: the namespace that `Tensor.__array_namespace__` gives.

`SAME` are functions of `ops` under the standard's name, `RENAMED` those that `ops` spells
otherwise. What has another signature there stands in `creation`, `dtypes` and `functions`;
`linalg` and `fft` are the extensions. docs/interop.md lists what is missing, and why.
"""

from __future__ import annotations

import math as _math
import sys
from types import ModuleType

from .. import ops
from ..core.abstract import bfloat16 as bfloat16
from ..core.abstract import bool_
from ..core.abstract import complex64 as complex64
from ..core.abstract import complex128 as complex128
from ..core.abstract import float16 as float16
from ..core.abstract import float32 as float32
from ..core.abstract import float64 as float64
from ..core.abstract import int8 as int8
from ..core.abstract import int16 as int16
from ..core.abstract import int32 as int32
from ..core.abstract import int64 as int64
from ..core.abstract import uint8 as uint8
from ..core.abstract import uint16 as uint16
from ..core.abstract import uint32 as uint32
from ..core.abstract import uint64 as uint64
from ..core.errors import ValueRefusedError
from . import fft as fft
from . import linalg as linalg
from .dtypes import Info as Info
from .dtypes import astype as astype
from .dtypes import can_cast as can_cast
from .dtypes import finfo as finfo
from .dtypes import iinfo as iinfo
from .dtypes import isdtype as isdtype
from .dtypes import result_type as result_type
from .functions import all as all
from .functions import any as any
from .functions import arange as arange
from .functions import argmax as argmax
from .functions import argmin as argmin
from .functions import argsort as argsort
from .functions import asarray as asarray
from .functions import broadcast_arrays as broadcast_arrays
from .functions import broadcast_shapes as broadcast_shapes
from .functions import clip as clip
from .functions import concat as concat
from .functions import count_nonzero as count_nonzero
from .functions import cumulative_prod as cumulative_prod
from .functions import cumulative_sum as cumulative_sum
from .functions import diff as diff
from .functions import empty as empty
from .functions import empty_like as empty_like
from .functions import expand_dims as expand_dims
from .functions import eye as eye
from .functions import flip as flip
from .functions import from_dlpack as from_dlpack
from .functions import full as full
from .functions import full_like as full_like
from .functions import isin as isin
from .functions import linspace as linspace
from .functions import matrix_transpose as matrix_transpose
from .functions import max as max
from .functions import mean as mean
from .functions import meshgrid as meshgrid
from .functions import min as min
from .functions import nonzero as nonzero
from .functions import ones as ones
from .functions import ones_like as ones_like
from .functions import permute_dims as permute_dims
from .functions import positive as positive
from .functions import prod as prod
from .functions import repeat as repeat
from .functions import reshape as reshape
from .functions import roll as roll
from .functions import searchsorted as searchsorted
from .functions import sign as sign
from .functions import signbit as signbit
from .functions import sort as sort
from .functions import squeeze as squeeze
from .functions import stack as stack
from .functions import std as std
from .functions import sum as sum
from .functions import take as take
from .functions import take_along_axis as take_along_axis
from .functions import tensordot as tensordot
from .functions import tril as tril
from .functions import triu as triu
from .functions import unique_all as unique_all
from .functions import unique_counts as unique_counts
from .functions import unique_inverse as unique_inverse
from .functions import unique_values as unique_values
from .functions import unstack as unstack
from .functions import var as var
from .functions import vecdot as vecdot
from .functions import zeros as zeros
from .functions import zeros_like as zeros_like

__array_api_version__ = "2025.12"

e, inf, nan, pi, newaxis = _math.e, _math.inf, _math.nan, _math.pi, None
bool = bool_

SAME = """abs acos acosh add asin asinh atan atan2 atanh bitwise_and bitwise_or bitwise_xor
    broadcast_to ceil conj copysign cos cosh equal exp expm1 floor greater greater_equal hypot imag
    isfinite isinf isnan less less_equal log log10 log1p log2 logaddexp logical_and logical_not
    logical_or logical_xor matmul maximum minimum moveaxis not_equal pow real reciprocal round sin
    sinh sqrt square tan tanh tile trunc where""".split()

RENAMED = {
    "bitwise_invert": "bitwise_not", "bitwise_left_shift": "left_shift",
    "bitwise_right_shift": "right_shift", "divide": "div", "floor_divide": "floor_div",
    "multiply": "mul", "negative": "neg", "remainder": "mod", "subtract": "sub",
}  # fmt: skip

globals().update({name: getattr(ops, name) for name in SAME})
globals().update({name: getattr(ops, own) for name, own in RENAMED.items()})

_DTYPES = """bool int8 int16 int32 int64 uint8 uint16 uint32 uint64 float16 bfloat16 float32 float64
    complex64 complex128""".split()
_OWN = """arange asarray empty empty_like eye from_dlpack full full_like linspace meshgrid ones
    ones_like tril triu zeros zeros_like astype can_cast finfo iinfo isdtype result_type all any
    argmax argmin argsort broadcast_arrays broadcast_shapes clip concat count_nonzero
    cumulative_prod cumulative_sum diff expand_dims flip isin matrix_transpose max mean min nonzero
    permute_dims positive prod repeat reshape roll searchsorted sign signbit sort squeeze stack std
    sum take take_along_axis tensordot unique_all unique_counts unique_inverse unique_values unstack
    var vecdot""".split()

_MORE = "e inf nan newaxis pi linalg fft __array_api_version__ __array_namespace_info__".split()
_NAMES = _OWN + SAME + list(RENAMED) + _DTYPES + _MORE
__all__ = list(_NAMES)

# Versions of the standard whose names and meanings this namespace has.
_VERSIONS = "2021.12", "2022.12", "2023.12", "2024.12", "2025.12"


def __array_namespace_info__() -> Info:
    """Information on this namespace: capabilities, devices and dtypes."""
    return Info()


def namespace(version: str | None) -> ModuleType:
    """This module, for a version of the standard; ValueRefusedError for one that it is not."""
    if version is not None and version not in _VERSIONS:
        raise ValueRefusedError(
            f"__array_namespace__ got api_version={version!r}; expected one of "
            f"{', '.join(map(repr, _VERSIONS))}, or None"
        )
    return sys.modules[__name__]


def __dir__() -> list[str]:
    return sorted(__all__)
