"""NumPy kernels of random draws: Philox words made into numbers."""

from __future__ import annotations

from .filing import ANY, FLOAT, file
from .philox import bernoulli, normal, uniform

file("Uniform", uniform, *[f"L->{c}" for c in FLOAT])
file("Normal", normal, *[f"L->{c}" for c in FLOAT])
file("Bernoulli", bernoulli, *[f"L->{c}" for c in ANY])
