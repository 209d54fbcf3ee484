"""OpInfo: one row per primitive with valid inputs, a reference and refused calls."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from ..core.dtype import DType
from ..core.errors import MinimlError
from ..core.primitive import Primitive


@dataclass(frozen=True, slots=True)
class Sample:
    """One valid call: inputs by position (const inputs as values), attributes by name."""

    inputs: tuple[Any, ...]
    attrs: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Refusal:
    """One call that must be refused with a message in which `match` (a regular expression) is
    found."""

    inputs: tuple[Any, ...]
    match: str
    attrs: Mapping[str, Any] = field(default_factory=dict)
    error: type[Exception] = MinimlError


@dataclass(frozen=True, slots=True)
class OpInfo:
    """The facts about a primitive that tests need beyond its rules.

    samples(rng, dtype): small valid calls for a working dtype, away from kinks and poles.
    reference(*inputs, **attrs): the right outputs, independent of miniml, in float64.
    dtypes: type codes of the working dtypes, all of the registered kernels' by default. domain:
    where inputs come from, a sentence or (low, high). refused: calls that must be refused. nan:
    "handled" if a NaN may rightly vanish. batch_axes: the input axes along which the
    primitive works row by row, if any.
    """

    primitive: type[Primitive]
    samples: Callable[[np.random.Generator, DType], Iterable[Sample]]
    reference: Callable[..., Any] | None = None
    dtypes: str | None = None
    domain: str | tuple[float, float] | None = None
    refused: tuple[Refusal, ...] = ()
    nan: Literal["propagates", "handled"] = "propagates"
    batch_axes: tuple[int | None, ...] | None = None
