"""Rows of state and of the flow of gradients."""

import numpy as np

from miniml import ops
from miniml.errors import DTypeError, ShapeError
from miniml.testing import OpInfo, Refusal, Sample

from .draws import SHAPES, numbers


def assign_samples(rng, dtype):
    for shape in SHAPES:
        yield Sample((numbers(rng, shape, dtype), numbers(rng, shape, dtype)))


def stop_gradient_samples(rng, dtype):
    for shape in SHAPES:
        yield Sample((numbers(rng, shape, dtype),))


ROWS = (
    OpInfo(
        ops.Assign,
        assign_samples,
        reference=lambda parameter, value: value,
        nan="handled",  # what the parameter held before is gone
        refused=(
            Refusal((np.ones(3), np.ones(2)), r"shape \(2,\)", error=ShapeError),
            Refusal((np.ones(3), np.ones(3, np.int64)), "int64.*float64", error=DTypeError),
        ),
    ),
    OpInfo(ops.StopGradient, stop_gradient_samples, reference=lambda x: x),
)
