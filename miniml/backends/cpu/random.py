"""NumPy kernels of random draws: Philox words turned into numbers."""

from __future__ import annotations

from ..typecodes import ANY, FLOAT
from .philox import bernoulli, gumbel, normal, truncated_normal, uniform
from .registering import register

register("Uniform", uniform, *[f"L->{c}" for c in FLOAT])
register("Normal", normal, *[f"L->{c}" for c in FLOAT])
register("Gumbel", gumbel, *[f"L->{c}" for c in FLOAT])
register("TruncatedNormal", truncated_normal, *[f"L->{c}" for c in FLOAT])
register("Bernoulli", bernoulli, *[f"L->{c}" for c in ANY])
